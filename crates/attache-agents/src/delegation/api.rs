//! The HTTP API: `POST /api/a2a/discover|send|cancel` and `GET /api/a2a/task|cards`.
//!
//! Whoever can use it can make this process call others, so it is not for everyone: see [`Access`].

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

/// The largest body of a request.
const LARGEST: usize = 16 * 1024 * 1024;

/// Methods and paths, as engines write them.
const API_ROUTES: [(&str, &str); 5] = [
    ("POST", "api/a2a/discover"),
    ("POST", "api/a2a/send"),
    ("GET", "api/a2a/task"),
    ("POST", "api/a2a/cancel"),
    ("GET", "api/a2a/cards"),
];

/// Who may use the API.
#[derive(Debug, Clone)]
pub enum Access {
    /// Who shows the token.
    Token(Token),
    /// Programs on this machine, where no other can connect. Pages in a browser of this machine are not meant, and neither is what
    /// a proxy brings.
    ThisMachine,
    /// Nobody: others could connect, and there is no token by which to tell them apart.
    Nobody,
}

impl Access {
    /// What is right for a server that listens on `address` and is said to be at the URLs in `public`. If one of them is not on
    /// this machine, something here brings the requests of others.
    pub fn new(
        token: Option<Token>,
        address: IpAddr,
        public: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        match token {
            Some(token) => Self::Token(token),
            None if address.is_loopback() && public.into_iter().all(|url| is_here(url.as_ref())) => {
                Self::ThisMachine
            }
            None => Self::Nobody,
        }
    }
}

/// An answer that says no.
type Refusal = Box<Response<HttpBody>>;

/// The HTTP API. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
    access: Access,
}

struct Inner {
    delegation: Delegation,
    /// Whether it was said in the log what to do about requests that are refused.
    hinted: AtomicBool,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Api {
    /// The API to a delegation.
    pub fn new(delegation: Delegation, access: Access) -> Self {
        Self { inner: Arc::new(Inner { delegation, hinted: AtomicBool::new(false) }), access }
    }

    /// The same API for a server that authenticates its callers. Programs on this machine then need the token too: one of them may
    /// be a proxy that brings the requests of others.
    pub fn for_authenticated(&self) -> Self {
        let access = match &self.access {
            Access::Token(token) => Access::Token(token.clone()),
            Access::ThisMachine | Access::Nobody => Access::Nobody,
        };
        Self { inner: self.inner.clone(), access }
    }

    /// The paths that it answers.
    pub fn paths() -> impl Iterator<Item = &'static str> {
        Action::ALL.into_iter().filter_map(Action::route).map(|(_, path)| path)
    }

    /// Whether it answers a path.
    pub fn answers(path: &str) -> bool {
        Self::paths().any(|own| own == path.trim_end_matches('/'))
    }

    /// Answers a request; nothing, if its path is not one of these.
    pub async fn handle<B>(&self, request: Request<B>) -> Option<Response<HttpBody>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let at = |action: &Action| action.route().filter(|(_, own)| *own == path);
        let (action, method) = Action::ALL.into_iter().find_map(|action| Some((action, at(&action)?.0)))?;
        let mut response = match self.answer(action, &method, request).await {
            Ok(answer) => respond(StatusCode::OK, answer.as_str().to_owned()),
            Err(refusal) => *refusal,
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }

    async fn answer<B>(&self, action: Action, method: &Method, request: Request<B>) -> Result<Json, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.admit(request.uri(), request.headers())?;
        if request.method() != method {
            let text = format!("use {method} here");
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &text);
            if let Ok(method) = HeaderValue::from_str(method.as_str()) {
                response.headers_mut().insert(ALLOW, method);
            }
            return Err(response);
        }
        let input = if method == Method::GET {
            Input::of_query(request.uri().query().unwrap_or_default())
        } else {
            let body = Limited::new(request.into_body(), LARGEST).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    let text = format!("the body is larger than {LARGEST} bytes");
                    refuse(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", &text)
                } else {
                    refuse(StatusCode::BAD_REQUEST, "invalid_input", "the body broke off")
                }
            })?;
            let body = body.to_bytes();
            let text = std::str::from_utf8(&body).map_err(|_| {
                refuse(StatusCode::BAD_REQUEST, "invalid_input", "the body must be JSON in UTF-8")
            })?;
            Input::read(text).map_err(|error| failed(&error))?
        };
        self.inner.delegation.act(action, &input).await.map_err(|error| failed(&error))
    }

    /// Whether whoever asks may.
    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.access {
            Access::Token(token) => {
                let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
                if shown.is_some_and(|shown| token.matches(shown)) {
                    return Ok(());
                }
                let text = "show the token of this API as `Authorization: Bearer …`";
                let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthorized", text);
                let challenge = HeaderValue::from_static(r#"Bearer realm="a2a""#);
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                Err(response)
            }
            Access::ThisMachine if is_local(uri, headers) => Ok(()),
            Access::ThisMachine | Access::Nobody => {
                if !self.inner.hinted.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "a request to /api/a2a was refused: without a token only programs on this machine may use it, and only \
                         where no other can connect; set one with `--api-token-file`"
                    );
                }
                let text = "this API is not open to you: its operator has set no token";
                Err(refuse(StatusCode::FORBIDDEN, "forbidden", text))
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

/// Whether a request is from a program that means this machine: no page of another site (which can send requests here, and have a
/// name of its own resolve to here), and nothing that a proxy hands on.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // HTTP/2 has the host in the request itself.
    let hosts = [text(HOST), uri.authority().map(Authority::as_str)];
    let host = hosts.into_iter().flatten().all(|host| is_here(&format!("http://{host}")));
    let origin = text(ORIGIN).is_none_or(is_here);
    let site = text(FETCH_SITE).is_none_or(|site| matches!(site, "none" | "same-origin"));
    host && origin && site && text(FORWARDED_FOR).is_none() && text(FORWARDED).is_none()
}

/// Whether a URL leads to this machine.
fn is_here(url: &str) -> bool {
    match Url::parse(url).as_ref().map(Url::host) {
        Ok(Some(Host::Domain(name))) => name == "localhost",
        Ok(Some(Host::Ipv4(address))) => address.is_loopback(),
        Ok(Some(Host::Ipv6(address))) => address.is_loopback(),
        Ok(None) | Err(_) => false,
    }
}

fn failed(error: &DelegationError) -> Refusal {
    if let DelegationError::Store(cause) = error {
        tracing::error!(error = %cause, "the records of delegated tasks cannot be reached");
    }
    refuse(error.status(), error.code(), &error.to_string())
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Refusal {
    Box::new(respond(status, json!({"error": {"code": code, "message": message}}).to_string()))
}

fn respond(status: StatusCode, body: String) -> Response<HttpBody> {
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
            let nothing = || refuse(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path");
            Ok(this.handle(request).await.unwrap_or_else(|| *nothing()))
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
            assert!(matches!(Access::new(None, here, ["http://localhost", host]), Access::Nobody), "{host}");
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
