//! The HTTP API: `POST /api/a2a/discover|send|cancel` and `GET /api/a2a/task|cards`.
//!
//! A caller can make this process send requests to other servers, so access is limited: see [`Access`].

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use attache_core::BoxFuture;
use attache_iii::engine::{HttpBody, Token};
use attache_iii::serve_routes_through;
use attache_iii::worker::{Registration, Worker};
use attache_protocol::Json;
use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, FORWARDED, HOST, HeaderName, HeaderValue, ORIGIN,
    WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde_json::json;
use url::{Host, Url};

use super::functions::Action;
use super::input::Input;
use super::{Delegation, DelegationError};

/// The largest body of a request, in bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// The routes in the syntax of engines: without the leading slash.
const API_ROUTES: [(&str, &str); 5] = [
    ("POST", "api/a2a/discover"),
    ("POST", "api/a2a/send"),
    ("GET", "api/a2a/task"),
    ("POST", "api/a2a/cancel"),
    ("GET", "api/a2a/cards"),
];

/// The callers that may use the API.
#[derive(Debug, Clone)]
pub enum Access {
    /// Callers with the token.
    Token(Token),
    /// Programs on this machine, for a server that other machines cannot connect to. Web pages and requests through a proxy are
    /// rejected.
    ThisMachine,
    /// No callers: other machines could connect, and there is no token to authenticate callers.
    Closed,
}

impl Access {
    /// The access for a server that listens on `address` and has the URLs in `public`. A URL that is not on this machine means that a
    /// proxy on this machine forwards requests of other machines.
    pub fn new(
        token: Option<Token>,
        address: IpAddr,
        public: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        match token {
            Some(token) => Self::Token(token),
            None if address.is_loopback()
                && public.into_iter().all(|url| is_on_this_machine(url.as_ref())) =>
            {
                Self::ThisMachine
            }
            None => Self::Closed,
        }
    }
}

/// The response to a rejected or failed request.
type ErrorResponse = Box<Response<HttpBody>>;

/// The HTTP API. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
    access: Access,
}

struct Inner {
    delegation: Delegation,
    /// Whether the log has the hint how to open the API.
    hint_logged: AtomicBool,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Api {
    /// The API of a delegation.
    pub fn new(delegation: Delegation, access: Access) -> Self {
        Self { inner: Arc::new(Inner { delegation, hint_logged: AtomicBool::new(false) }), access }
    }

    /// The same API for a server that authenticates its callers. Programs on this machine then need the token too, since one of them
    /// may be a proxy.
    pub fn for_authenticated(&self) -> Self {
        let access = match &self.access {
            Access::Token(token) => Access::Token(token.clone()),
            Access::ThisMachine | Access::Closed => Access::Closed,
        };
        Self { inner: self.inner.clone(), access }
    }

    /// The paths of the API.
    pub fn paths() -> impl Iterator<Item = &'static str> {
        Action::ALL.into_iter().filter_map(Action::route).map(|(_, path)| path)
    }

    /// Whether the API has this path.
    pub fn has_path(path: &str) -> bool {
        Self::paths().any(|own| own == path.trim_end_matches('/'))
    }

    /// Handles a request. `None` if the API does not have its path.
    pub async fn handle<B>(&self, request: Request<B>) -> Option<Response<HttpBody>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let at = |action: &Action| action.route().filter(|(_, own)| *own == path);
        let (action, method) = Action::ALL.into_iter().find_map(|action| Some((action, at(&action)?.0)))?;
        let mut response = match self.run(action, &method, request).await {
            Ok(output) => json_response(StatusCode::OK, output.as_str().to_owned()),
            Err(response) => *response,
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }

    /// Authorizes a request, parses its input, and runs the action.
    async fn run<B>(
        &self,
        action: Action,
        method: &Method,
        request: Request<B>,
    ) -> Result<Json, ErrorResponse>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.authorize(request.uri(), request.headers())?;
        if request.method() != method {
            let text = format!("use {method} here");
            let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &text);
            if let Ok(method) = HeaderValue::from_str(method.as_str()) {
                response.headers_mut().insert(ALLOW, method);
            }
            return Err(response);
        }
        let trace_parent =
            request.headers().get("traceparent").and_then(|value| value.to_str().ok()?.parse().ok());
        let input = if method == Method::GET {
            Input::from_query(request.uri().query().unwrap_or_default())
        } else {
            let body = Limited::new(request.into_body(), MAX_BODY).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    let text = format!("the body is larger than {MAX_BODY} bytes");
                    error_response(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", &text)
                } else {
                    error_response(StatusCode::BAD_REQUEST, "invalid_input", "the body is incomplete")
                }
            })?;
            let body = body.to_bytes();
            let text = std::str::from_utf8(&body).map_err(|_| {
                error_response(StatusCode::BAD_REQUEST, "invalid_input", "the body must be JSON in UTF-8")
            })?;
            Input::parse(text).map_err(|error| delegation_error(&error))?
        };
        let input = input.with_trace_parent(trace_parent);
        self.inner.delegation.act(action, &input).await.map_err(|error| delegation_error(&error))
    }

    /// Checks that the caller may use the API.
    fn authorize(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ErrorResponse> {
        match &self.access {
            Access::Token(token) => {
                let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
                if given.is_some_and(|given| token.matches(given)) {
                    return Ok(());
                }
                let text = "send the token of this API as `Authorization: Bearer …`";
                let mut response = error_response(StatusCode::UNAUTHORIZED, "unauthorized", text);
                let challenge = HeaderValue::from_static(r#"Bearer realm="a2a""#);
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                Err(response)
            }
            Access::ThisMachine if is_local(uri, headers) => Ok(()),
            Access::ThisMachine | Access::Closed => {
                if !self.inner.hint_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "rejected a request to /api/a2a: without a token, only programs on this machine may use it, and only if other \
                         machines cannot connect; set a token with `--api-token-file`"
                    );
                }
                let text = "this API is closed to you: its operator has set no token";
                Err(error_response(StatusCode::FORBIDDEN, "forbidden", text))
            }
        }
    }
}

/// Registers the HTTP API with the engine that a worker has joined.
pub fn serve_api_through(worker: &Worker, api: Api) -> Vec<Registration> {
    serve_routes_through(worker, "a2a::api", "Delegation to other agents over HTTP", &API_ROUTES, api)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a request comes directly from a program on this machine.
///
/// A web page of another site can send requests here, and its host name can resolve to this machine: so the host and the origin must
/// be of this machine. A request with forwarding headers comes from a proxy.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // HTTP/2 has the host in the URI.
    let hosts = [text(HOST), uri.authority().map(Authority::as_str)];
    let host = hosts.into_iter().flatten().all(|host| is_on_this_machine(&format!("http://{host}")));
    let origin = text(ORIGIN).is_none_or(is_on_this_machine);
    let site = text(FETCH_SITE).is_none_or(|site| matches!(site, "none" | "same-origin"));
    host && origin && site && text(FORWARDED_FOR).is_none() && text(FORWARDED).is_none()
}

/// Whether the host of a URL is this machine.
fn is_on_this_machine(url: &str) -> bool {
    match Url::parse(url).as_ref().map(Url::host) {
        Ok(Some(Host::Domain(name))) => name == "localhost",
        Ok(Some(Host::Ipv4(address))) => address.is_loopback(),
        Ok(Some(Host::Ipv6(address))) => address.is_loopback(),
        Ok(None) | Err(_) => false,
    }
}

fn delegation_error(error: &DelegationError) -> ErrorResponse {
    error.log_store_failure();
    error_response(error.status(), error.code(), &error.to_string())
}

fn error_response(status: StatusCode, code: &str, message: &str) -> ErrorResponse {
    Box::new(json_response(status, json!({"error": {"code": code, "message": message}}).to_string()))
}

fn json_response(status: StatusCode, body: String) -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl tower_service::Service<Request<Full<Bytes>>> for Api {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let not_found = || error_response(StatusCode::NOT_FOUND, "not_found", "this path does not exist");
            Ok(this.handle(request).await.unwrap_or_else(|| *not_found()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_the_same_routes() {
        let own: Vec<_> = Action::ALL.into_iter().filter_map(Action::route).collect();
        let own: Vec<_> = own.iter().map(|(method, path)| (method.as_str(), &path[1..])).collect();
        assert_eq!(own, API_ROUTES);
    }

    #[test]
    fn without_a_token_only_a_server_for_this_machine_has_an_open_api() {
        let open = |address: &str, public: Option<&str>| {
            matches!(Access::new(None, address.parse().unwrap(), public), Access::ThisMachine)
        };
        assert!(
            open("127.0.0.1", None) && open("::1", None) && open("127.0.0.1", Some("http://localhost:3111"))
        );
        assert!(!open("0.0.0.0", None) && !open("192.168.1.2", None) && !open("::", None));
        assert!(!open("127.0.0.1", Some("https://agents.example.com")), "a proxy is in front of it");
        let here = "127.0.0.1".parse().unwrap();
        for host in ["http://*", "http://agents.example.com"] {
            assert!(matches!(Access::new(None, here, ["http://localhost", host]), Access::Closed), "{host}");
        }
        let token = Some(Token::new("secret"));
        assert!(matches!(Access::new(token, here, None::<&str>), Access::Token(_)));
    }

    #[test]
    fn web_pages_and_proxies_are_not_local() {
        let local = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_local(&Uri::from_static("/api/a2a/cards"), &pairs.collect())
        };
        assert!(local(&[]) && local(&[("host", "localhost:3111")]) && local(&[("host", "[::1]:3111")]));
        assert!(local(&[("host", "127.0.0.1:3111"), ("origin", "http://localhost:3000")]));
        assert!(!local(&[("host", "evil.example:3111")]));
        assert!(!is_local(&Uri::from_static("http://evil.example/api/a2a/cards"), &HeaderMap::new()));
        assert!(!local(&[("host", "127.0.0.1"), ("origin", "https://evil.example")]));
        assert!(!local(&[("host", "127.0.0.1"), ("origin", "null")]));
        assert!(!local(&[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")]));
        assert!(!local(&[("host", "127.0.0.1"), ("x-forwarded-for", "203.0.113.9")]));
    }
}
