//! Protection from web pages: which requests may reach the server, decided by their headers alone.
//!
//! Any page that a user opens can make the browser send requests to this machine and its network. Every request is checked before
//! its body is read and before its caller is authenticated:
//!
//! - `Host`. A page can let its own name resolve to this machine (DNS rebinding), but the browser still sends that name. A server
//!   that does not authenticate its callers answers to its own names only.
//! - `Sec-Fetch-Site` and `Origin`. A request from a page of another origin is rejected unless the operator has allowed that origin.
//!   Allowed origins get the CORS headers, and their preflight requests are answered.
//! - `Content-Type`. A page may send text and forms anywhere without a preflight request, but not JSON.
//!
//! Other programs send neither `Origin` nor `Sec-Fetch-Site`, and name the server as they reach it.

mod allowed;

use std::net::IpAddr;

use attache_protocol::{Error, ErrorKind, MEDIA_TYPE};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, HeaderValue, ORIGIN,
    VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use url::Url;

pub(crate) use self::allowed::Grant;
pub use self::allowed::{AllowedHost, AllowedOrigin, Cors, NotAHost, NotAnOrigin};
use self::allowed::{Authority, HostName};

use crate::http::body::Body;
use crate::{Peer, ServerOptions};

/// The response headers that pages may read in addition to those that browsers always show.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "A2A-Extensions, A2A-Version, Accept-Ranges, Allow, Content-Disposition, Content-Range, ETag, Retry-After, WWW-Authenticate, \
     X-A2A-Extensions",
);

/// How long a browser may cache the response to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");

/// How much of a header is repeated in a message.
const SHOWN: usize = 128;

/// The addresses that a server listens on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Addresses {
    /// This address.
    Only(IpAddr),
    /// All addresses of the machine, or unknown ones. An address cannot be rebound as a name can, so that every address in a request is
    /// accepted.
    Any,
}

impl Addresses {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_unspecified() => Self::Any,
            address => Self::Only(address),
        }
    }
}

/// The kind of response that a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A health check. It is no secret, and probes name the server in various ways.
    Health,
    /// A document; reading it changes nothing. Browsers keep pages of other origins from reading it.
    Document,
    /// An operation with a JSON body, if it has a body.
    Json,
    /// A gRPC operation. The binding checks the content type itself.
    #[cfg(feature = "grpc")]
    Grpc,
    /// A path of the application.
    Fallback,
}

/// Which origins may call the paths of the application.
pub(crate) type FallbackCors = Box<dyn Fn(&Method, &str) -> Cors + Send + Sync>;

/// Decides which requests may reach the server.
pub(crate) struct RequestFilter {
    addresses: Addresses,
    /// The host of the base URL, and its origin in the form that browsers send.
    base_host: Option<HostName<String>>,
    base_port: Option<u16>,
    base_origin: Option<String>,
    /// Whether the base URL is made of the address that the server listens on.
    base_is_own: bool,
    allowed_hosts: Vec<AllowedHost>,
    cors: Cors,
    fallback: Option<FallbackCors>,
}

/// The decision about a request.
pub(crate) enum Filtered {
    /// The request goes on. The response tells the browser what its page may do.
    Accepted(Option<Box<Grant>>),
    /// The request was a preflight request.
    Preflight(Box<Response<Body>>),
    Rejected(Box<RejectedRequest>),
}

/// Why a request is rejected.
#[derive(Debug)]
pub(crate) struct RejectedRequest {
    pub(crate) status: StatusCode,
    pub(crate) error: Error,
}

impl RejectedRequest {
    fn malformed(text: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: Error::new(ErrorKind::InvalidRequest, text) }
    }

    fn forbidden(text: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, error: Error::new(ErrorKind::PermissionDenied, text) }
    }
}

/// The headers that matter for the decision.
#[derive(Default)]
struct RelevantHeaders<'a> {
    host: Option<&'a HeaderValue>,
    origin: Option<&'a HeaderValue>,
    site: Option<&'a HeaderValue>,
    content_type: Option<&'a HeaderValue>,
    authorization: Option<&'a HeaderValue>,
    cookie: bool,
    /// A header that must be unique but is repeated.
    repeated: Option<&'static str>,
}

impl<'a> RelevantHeaders<'a> {
    fn read(headers: &'a HeaderMap) -> Self {
        let mut signs = Self::default();
        // Requests have few headers: one pass over them costs less than a lookup for each name.
        for (name, value) in headers {
            let (place, name) = match name.as_str() {
                "host" => (&mut signs.host, "Host"),
                "origin" => (&mut signs.origin, "Origin"),
                "sec-fetch-site" => (&mut signs.site, "Sec-Fetch-Site"),
                "authorization" => (&mut signs.authorization, "Authorization"),
                "content-type" => {
                    signs.content_type.get_or_insert(value);
                    continue;
                }
                "cookie" => {
                    signs.cookie = true;
                    continue;
                }
                _ => continue,
            };
            // Another repeated header is reported before `Host`, which health checks ignore.
            if place.replace(value).is_some() && (name != "Host" || signs.repeated.is_none()) {
                signs.repeated = Some(name);
            }
        }
        signs
    }

    /// Whether it carries credentials that a browser adds by itself, for whichever page.
    fn is_ambient(&self) -> bool {
        let basic = |value: &&HeaderValue| {
            value.as_bytes().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic"))
        };
        self.cookie || self.authorization.filter(basic).is_some()
    }
}

impl RequestFilter {
    pub(crate) fn new(
        addresses: Addresses,
        base_url: &str,
        options: &ServerOptions,
        fallback: Option<FallbackCors>,
    ) -> Self {
        let base = Url::parse(base_url).ok();
        let base_host = base.as_ref().and_then(|url| url.host()).map(HostName::from);
        let base_port = base.as_ref().and_then(Url::port_or_known_default);
        let base_origin = base.map(|url| url.origin().ascii_serialization());
        let (allowed_hosts, cors) = (options.allowed_hosts.clone(), options.cors.clone());
        let base_is_own = false;
        Self { addresses, base_host, base_port, base_origin, base_is_own, allowed_hosts, cors, fallback }
    }

    /// Sets whether the base URL is made of the address that the server listens on.
    pub(crate) fn base_is_own(self, base_is_own: bool) -> Self {
        Self { base_is_own, ..self }
    }

    /// Decides about a request. `answers_to` returns whether the server answers to a host name that is not its own.
    pub(crate) fn check(
        &self,
        purpose: Purpose,
        head: &Parts,
        has_body: bool,
        answers_to: impl FnOnce(&str) -> bool,
    ) -> Filtered {
        let signs = RelevantHeaders::read(&head.headers);
        match self.judge(purpose, head, &signs, has_body, answers_to) {
            Ok(grant) if grant.is_some() && is_preflight(head) => {
                Filtered::Preflight(Box::new(self.finish(preflight(&head.headers), grant.map(Box::new))))
            }
            Ok(grant) => Filtered::Accepted(grant.map(Box::new)),
            Err(refusal) => Filtered::Rejected(Box::new(refusal)),
        }
    }

    fn judge(
        &self,
        purpose: Purpose,
        head: &Parts,
        signs: &RelevantHeaders<'_>,
        has_body: bool,
        answers_to: impl FnOnce(&str) -> bool,
    ) -> Result<Option<Grant>, RejectedRequest> {
        if let Some(name) = signs.repeated.filter(|name| (purpose, *name) != (Purpose::Health, "Host")) {
            return Err(RejectedRequest::malformed(format!(
                "the header `{name}` is there more than once: send one"
            )));
        }
        if purpose != Purpose::Health {
            self.check_host(head, signs, answers_to)?;
        }
        let grant = self.check_origin(purpose, head, signs)?;
        if purpose == Purpose::Json && has_body {
            check_content_type(signs.content_type)?;
        }
        Ok(grant)
    }

    /// Rejects a request with a foreign host name, unless `answers_to` accepts it.
    fn check_host(
        &self,
        head: &Parts,
        signs: &RelevantHeaders<'_>,
        answers_to: impl FnOnce(&str) -> bool,
    ) -> Result<(), RejectedRequest> {
        let header = signs.host.map(|value| value.to_str().unwrap_or("?"));
        let target = head.uri.authority().map(http::uri::Authority::as_str);
        if let (Some(header), Some(target)) = (header, target) {
            let same = match (Authority::read(header), Authority::read(target)) {
                (Some(header), Some(target)) => header.host.is(&target.host),
                (_, _) => header == target,
            };
            if !same {
                let text = "the header `Host` names another host than the request itself: send one of them";
                return Err(RejectedRequest::malformed(text.to_owned()));
            }
        }
        // A client that names no host is not a browser.
        let Some(named) = target.or(header) else { return Ok(()) };
        if Authority::read(named).is_some_and(|authority| self.is_own(&authority)) || answers_to(named) {
            return Ok(());
        }
        Err(RejectedRequest::forbidden(format!(
            "this server does not answer to the name in the header `Host`, `{}`: callers are not authenticated here, so its \
             operator has to list the name in `allowed-hosts`",
            shown(named)
        )))
    }

    /// The host that a request names, if the card names it instead of the host of the base URL: a name of this machine where the base
    /// URL has one too, or a name that the operator has listed. A name that is not listed could be anyone's. Where the operator has set
    /// the base URL, another port leads to another place than the intended one.
    fn asked_host<'a>(&self, head: &'a Parts) -> Option<AskedHost<'a>> {
        let named = self.named_host(head)?;
        let authority = Authority::read(named)?;
        let is_here = |base: &HostName<String>| base.borrowed().is_loopback();
        let same_port = || self.base_is_own || authority.port == self.base_port;
        let here = || self.base_host.as_ref().is_some_and(is_here) && same_port();
        let listed = || self.allowed_hosts.iter().any(|host| !host.is_any() && host.matches(&authority));
        (authority.host.is_loopback() && here() || listed()).then_some(AskedHost(named))
    }

    /// Where a client is, and the host that it asked for.
    ///
    /// A client is on this machine if it is connected over a Unix socket, or if its address, the host that it names, and the base URL of
    /// the server are addresses of this machine. A proxy on this machine passes requests of other machines on, over both.
    pub(crate) fn place<'a>(&self, head: &'a Parts, peer: &Peer) -> ClientLocation<'a> {
        let named = self.named_host(head).and_then(Authority::read);
        let names_loopback = named.is_none_or(|named| named.host.is_loopback());
        let is_passed_on = ["forwarded", "x-forwarded-for", "x-forwarded-host", "via", "x-real-ip"]
            .iter()
            .any(|name| head.headers.contains_key(*name));
        let from_loopback = peer.address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        let base_is_here = self.base_host.as_ref().is_some_and(|host| host.borrowed().is_loopback());
        let by_loopback = from_loopback && names_loopback && base_is_here;
        let is_local = (peer.process.is_some() || by_loopback) && !is_passed_on;
        ClientLocation { host: self.asked_host(head), is_local }
    }

    /// The host that a request names.
    fn named_host<'a>(&self, head: &'a Parts) -> Option<&'a str> {
        let header = || head.headers.get(HOST).and_then(|value| value.to_str().ok());
        head.uri.authority().map(http::uri::Authority::as_str).or_else(header)
    }

    fn is_own(&self, authority: &Authority<'_>) -> bool {
        let host = &authority.host;
        let listens = |address: &IpAddr| match self.addresses {
            Addresses::Only(own) => own == *address,
            Addresses::Any => true,
        };
        host.is_loopback()
            || matches!(host, HostName::Address(address) if listens(address))
            || self.base_host.as_ref().is_some_and(|own| own.borrowed().is(host))
            || self.allowed_hosts.iter().any(|allowed| allowed.matches(authority))
    }

    /// Rejects a request from a page of another origin, unless that origin is allowed. Returns what the page may do.
    fn check_origin(
        &self,
        purpose: Purpose,
        head: &Parts,
        signs: &RelevantHeaders<'_>,
    ) -> Result<Option<Grant>, RejectedRequest> {
        let own = |origin: &HeaderValue| self.is_own_origin(origin, head, signs);
        let foreign = match signs.site.map(HeaderValue::as_bytes) {
            Some(b"same-origin") => false,
            // The user has entered the address, or a part of the browser sends the request and names its origin.
            None | Some(b"none") => signs.origin.is_some_and(|origin| !own(origin)),
            Some(_) => true,
        };
        if !foreign {
            return Ok(None);
        }
        let path = head.uri.path();
        let method = requested_method(head);
        let by_application = || {
            let allows = self.fallback.as_ref().filter(|_| purpose == Purpose::Fallback)?;
            allows(&method, path).grant(signs)
        };
        if let Some(grant) = self.cors.grant(signs).or_else(by_application) {
            return Ok(Some(grant));
        }
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        match matches!(purpose, Purpose::Health | Purpose::Document) && reads {
            true => Ok(None),
            false => Err(RejectedRequest::forbidden(self.foreign(signs))),
        }
    }

    /// Whether an origin is the server's own: the one by which the request reached it, or that of the base URL.
    fn is_own_origin(&self, origin: &HeaderValue, head: &Parts, signs: &RelevantHeaders<'_>) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let header = || signs.host.and_then(|value| value.to_str().ok());
        let named = head.uri.authority().map(http::uri::Authority::as_str).or_else(header);
        // Browsers omit the default port in both.
        let after_scheme = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if after_scheme.zip(named).is_some_and(|(origin, named)| origin.eq_ignore_ascii_case(named)) {
            return true;
        }
        self.base_origin.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(origin))
    }

    fn foreign(&self, signs: &RelevantHeaders<'_>) -> String {
        let page = match signs.origin.map(|origin| origin.to_str().unwrap_or("?")) {
            Some(origin) => format!("a page of the origin `{}` (header `Origin`)", shown(origin)),
            None => "a page of another origin (header `Sec-Fetch-Site`)".to_owned(),
        };
        match self.cors.is_open() && signs.is_ambient() {
            true => format!(
                "{page} may not send cookies or a password where `cors.origins` has `*`: its operator has to list the origin"
            ),
            false => format!(
                "{page} may not call this server: its operator has to list the origin in `cors.origins`"
            ),
        }
    }

    /// Adds the CORS headers to a response.
    pub(crate) fn finish(&self, mut response: Response<Body>, grant: Option<Box<Grant>>) -> Response<Body> {
        if grant.is_none() && self.cors.origins.is_empty() {
            return response;
        }
        let headers = response.headers_mut();
        // A cached response for one origin must not be given to another.
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Some(grant) = grant else { return response };
        match *grant {
            Grant::Listed(origin) => {
                headers.entry(ACCESS_CONTROL_ALLOW_ORIGIN).or_insert(origin);
                let allowed = HeaderValue::from_static("true");
                headers.entry(ACCESS_CONTROL_ALLOW_CREDENTIALS).or_insert(allowed);
            }
            Grant::Anyone => {
                let everyone = HeaderValue::from_static("*");
                headers.entry(ACCESS_CONTROL_ALLOW_ORIGIN).or_insert(everyone);
            }
        }
        headers.entry(ACCESS_CONTROL_EXPOSE_HEADERS).or_insert(EXPOSED);
        response
    }
}

/// Where a client is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLocation<'a> {
    /// The host that it asked for, if the card names it.
    pub(crate) host: Option<AskedHost<'a>>,
    is_local: bool,
}

impl ClientLocation<'_> {
    /// Whether the client is on this machine.
    pub(crate) fn is_local(self) -> bool {
        self.is_local
    }
}

/// The host of a request, with its port, as the card may name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedHost<'a>(&'a str);

impl AskedHost<'_> {
    /// A base URL with this host.
    pub(crate) fn base_url(self, base: &str) -> String {
        let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
        let path = rest.find('/').map_or("", |at| &rest[at..]);
        format!("{scheme}://{}{path}", self.0.to_ascii_lowercase())
    }
}

/// Whether a URL names this machine: `localhost` or a loopback address.
pub fn is_loopback_url(url: &str) -> bool {
    let url = Url::parse(url).ok();
    url.and_then(|url| url.host().map(HostName::from)).is_some_and(|host| host.borrowed().is_loopback())
}

/// Checks that a body is declared as JSON.
fn check_content_type(value: Option<&HeaderValue>) -> Result<(), RejectedRequest> {
    let text = value.map(|value| value.to_str().unwrap_or("?"));
    if text.is_some_and(is_json) {
        return Ok(());
    }
    let expected = format!("expected the header `Content-Type: application/json` or `{MEDIA_TYPE}`");
    let error = match text {
        Some(text) => format!("{expected}, not `{}`", shown(text)),
        None => format!("{expected} with a body"),
    };
    let error = Error::new(ErrorKind::ContentTypeNotSupported, error);
    Err(RejectedRequest { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, error })
}

fn is_json(content_type: &str) -> bool {
    if content_type == "application/json" {
        return true;
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (start, end) = ("application/", "+json");
    let begins = essence.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    let subtype = essence.get(start.len()..).filter(|_| begins).unwrap_or_default();
    let ends = subtype.len().checked_sub(end.len()).and_then(|at| subtype.get(at..));
    subtype.eq_ignore_ascii_case("json") || ends.is_some_and(|text| text.eq_ignore_ascii_case(end))
}

fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The method of a request. For a preflight request, the method that it announces.
fn requested_method(head: &Parts) -> Method {
    let requested = head.headers.get(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| is_preflight(head));
    requested.and_then(|value| value.as_bytes().try_into().ok()).unwrap_or_else(|| head.method.clone())
}

/// The response to a preflight request of an allowed page. Every header is allowed.
fn preflight(asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    for (answer, question) in [
        (ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_REQUEST_METHOD),
        (ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS),
        (ALLOW_PRIVATE_NETWORK, REQUEST_PRIVATE_NETWORK),
    ] {
        if let Some(value) = asked.get(question) {
            headers.insert(answer, value.clone());
        }
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    response
}

/// The beginning of a text from a client.
fn shown(text: &str) -> &str {
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for (text, shown) in [
            ("*", "*"),
            ("agents.example.com", "agents.example.com"),
            ("Agents.Example.com:8443", "agents.example.com:8443"),
            ("agents.example.com:80", "agents.example.com:80"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("10.1.2.3", "10.1.2.3"),
            ("::1", "[::1]"),
            ("[2001:db8::1]:8443", "[2001:db8::1]:8443"),
        ] {
            let host = text.parse::<AllowedHost>().map(|host| host.to_string());
            assert_eq!(host.as_deref(), Ok(shown), "{text}");
        }
        for text in ["", "*.example.com", "https://a", "a/b", "a b", "a@b", ":80", "a:x", "a:99999", "[::1"] {
            assert_eq!(text.parse::<AllowedHost>(), Err(NotAHost), "{text}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_no_more() {
        for (text, shown) in [
            ("*", "*"),
            ("https://App.example.com", "https://app.example.com"),
            ("https://app.example.com:443/", "https://app.example.com"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            let origin = text.parse::<AllowedOrigin>().map(|origin| origin.to_string());
            assert_eq!(origin.as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "",
            "null",
            "app.example.com",
            "https://",
            "https://a/b",
            "https://u@a",
            "https://*.a",
            "https://a?b",
        ] {
            assert_eq!(text.parse::<AllowedOrigin>(), Err(NotAnOrigin), "{text}");
        }
    }

    #[test]
    fn json_is_told_from_what_a_page_may_send_to_anyone() {
        for text in [
            "application/json",
            "Application/JSON; charset=utf-8",
            " application/a2a+json ",
            "application/x+json",
        ] {
            assert!(is_json(text), "{text}");
        }
        for text in [
            "",
            "json",
            "text/plain",
            "text/json",
            "text/plain; application/json",
            "application/jsonp",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "application/json, text/plain",
            "applicatión/json",
        ] {
            assert!(!is_json(text), "{text}");
        }
    }
}
