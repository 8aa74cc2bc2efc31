//! Login in a browser: the authorization code flow with PKCE, with a redirect to a port of this machine (RFC 8252).
//!
//! The redirect is accepted only with the `state` that the login started with, so other requests to the port cannot end the
//! login. If the server announces that it sends its issuer, the redirect must contain it (RFC 9207).

use std::net::Ipv4Addr;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::{Origin, form_urlencoded};

use super::LoginPrompt;
use super::error::LoginError;
use super::login_method::Server;
use super::token_request::TokenRequest;
use super::tokens::Tokens;
use crate::ClientError;

/// How long a person may take to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long a browser may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a request head.
const MAX_HEAD: usize = 16 * 1024;

/// The path that the server redirects to.
const PATH: &str = "/callback";

/// The PKCE code verifier: a secret of the process that started the login (RFC 7636).
struct CodeVerifier(String);

impl CodeVerifier {
    /// The code challenge, which is public.
    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.0))
    }
}

/// A random text that cannot be guessed.
fn random() -> Result<String, ClientError> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| ClientError::Setup("the system provides no random bytes".to_owned()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// A port of this machine that the server redirects to.
pub(super) struct RedirectPort {
    listener: TcpListener,
    /// The redirect URI.
    pub(super) uri: String,
}

impl RedirectPort {
    pub(super) async fn open() -> Result<Self, ClientError> {
        let no_port = |error: std::io::Error| {
            ClientError::Setup(format!("cannot open a local port for the redirect: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(no_port)?;
        let uri = format!("http://{}{PATH}", listener.local_addr().map_err(no_port)?);
        Ok(Self { listener, uri })
    }
}

/// Lets a person log in, and returns the tokens.
pub(super) async fn login(
    token_request: TokenRequest<'_>,
    port: RedirectPort,
    agreed: &[Origin],
    show: &(dyn Fn(LoginPrompt<'_>) + Send + Sync),
) -> Result<Tokens, ClientError> {
    let server = token_request.server;
    let Some(authorize) = &server.authorize else {
        let why = "its metadata has no authorization endpoint".to_owned();
        return Err(LoginError::Unsupported(why).at(&server.name));
    };
    let RedirectPort { listener, uri: redirect } = port;
    let (verifier, state) = (CodeVerifier(random()?), random()?);

    let mut url = authorize.clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &token_request.client.id)
        .append_pair("redirect_uri", &redirect)
        .append_pair("state", &state)
        .append_pair("code_challenge", &verifier.challenge())
        .append_pair("code_challenge_method", "S256")
        .extend_pairs(token_request.scope())
        .extend_pairs(token_request.target());
    if token_request.scopes.split(' ').any(|scope| scope == super::OFFLINE) {
        // OpenID Connect requires consent for each offline access (Core, section 11).
        url.query_pairs_mut().append_pair("prompt", "consent");
    }
    show(LoginPrompt::Browser { url: url.as_str() });

    let expected = ExpectedRedirect { state: &state, server, agreed };
    let redirected = tokio::time::timeout(LOGIN_TIMEOUT, wait_for_redirect(listener, expected)).await;
    let code = redirected
        .unwrap_or(Err(LoginError::TooLate { limit: LOGIN_TIMEOUT }))
        .map_err(|error| error.at(&server.name))?;
    token_request.code(&code, &redirect, &verifier.0).await
}

/// What the redirect must match.
#[derive(Clone, Copy)]
struct ExpectedRedirect<'a> {
    state: &'a str,
    server: &'a Server,
    agreed: &'a [Origin],
}

impl ExpectedRedirect<'_> {
    /// The code in a redirect; nothing if the redirect belongs to another login.
    fn code(self, query: &str) -> Option<Result<String, LoginError>> {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let of = |name: &str| {
            let mut values = pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_ref());
            let first = values.next();
            // A parameter that occurs twice is ambiguous.
            if values.next().is_some() { None } else { first }
        };
        let is_ours = of("state")
            .is_some_and(|state| verify_slices_are_equal(state.as_bytes(), self.state.as_bytes()).is_ok());
        if !is_ours {
            return None;
        }
        if let Err(error) = self.check_server(of("iss")) {
            return Some(Err(error));
        }
        if let Some(error) = of("error") {
            return Some(Err(LoginError::refused(error, of("error_description"))));
        }
        let missing =
            || LoginError::InvalidResponse("the redirect has neither a code nor an error".to_owned());
        Some(of("code").filter(|code| !code.is_empty()).map(str::to_owned).ok_or_else(missing))
    }

    /// Rejects a redirect that names another server than that of the login.
    fn check_server(self, issuer: Option<&str>) -> Result<(), LoginError> {
        let same = match (issuer, &self.server.issuer) {
            (Some(issuer), Some(expected)) => issuer == expected,
            (Some(issuer), None) => Url::parse(issuer).is_ok_and(|it| self.agreed.contains(&it.origin())),
            (None, _) => !self.server.sends_issuer,
        };
        if same {
            return Ok(());
        }
        let shown = issuer.unwrap_or("(no issuer)").chars().filter(|c| !c.is_control()).take(200).collect();
        Err(LoginError::OtherServer(shown))
    }
}

/// Waits for the browser to bring the redirect.
async fn wait_for_redirect(
    listener: TcpListener,
    expected: ExpectedRedirect<'_>,
) -> Result<String, LoginError> {
    // Browsers also open connections that they do not use, and request icons.
    let (heard, mut requests) = mpsc::channel::<(String, TcpStream)>(8);
    let accepting = async {
        loop {
            let Ok((socket, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let heard = heard.clone();
            tokio::spawn(async move {
                if let Ok(Some(request)) = tokio::time::timeout(REQUEST_TIMEOUT, read_target(socket)).await {
                    // The receiver is gone once the login has ended.
                    let _ = heard.send(request).await;
                }
            });
        }
    };
    let answering = async {
        while let Some((target, socket)) = requests.recv().await {
            let Some(query) = callback(&target) else {
                respond(socket, "404 Not Found", "There is nothing here", "").await;
                continue;
            };
            match expected.code(query) {
                None => {
                    let text = "This is not the answer to a login that started here.";
                    respond(socket, "400 Bad Request", "Not your login", text).await;
                }
                Some(Ok(code)) => {
                    let text = "You can close this window and go back to where you came from.";
                    respond(socket, "200 OK", "Thank you", text).await;
                    return Ok(code);
                }
                Some(Err(error)) => {
                    respond(socket, "200 OK", "You are not logged in", &error.to_string()).await;
                    return Err(error);
                }
            }
        }
        Err(LoginError::InvalidResponse("the local port for the redirect failed".to_owned()))
    };
    tokio::select! {
        answer = answering => answer,
        () = accepting => Err(LoginError::InvalidResponse("the local port for the redirect failed".to_owned())),
    }
}

/// The query of a target, if it is the redirect.
fn callback(target: &str) -> Option<&str> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (path == PATH).then_some(query)
}

/// The code in a request of a browser, for fuzzing: the result of the login that the request ends, if it ends one.
///
/// The server has a name, which it must send if `sends_issuer` is true.
pub(super) async fn read_redirect(
    request: impl AsyncRead + Unpin,
    state: &str,
    issuer: &Url,
    sends_issuer: bool,
) -> Option<Result<String, LoginError>> {
    let server = Server {
        name: issuer.origin().ascii_serialization(),
        token: issuer.clone(),
        refresh: issuer.clone(),
        authorize: Some(issuer.clone()),
        device: None,
        revoke: None,
        registration: None,
        issuer: Some(issuer.to_string()),
        sends_issuer,
        offline_access: false,
        secret_in_body: false,
    };
    let (target, _) = read_target(request).await?;
    ExpectedRedirect { state, server: &server, agreed: &[] }.code(callback(&target)?)
}

/// The target of a `GET`, once the browser has sent the complete request head.
async fn read_target<S: AsyncRead + Unpin>(mut socket: S) -> Option<(String, S)> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") {
            break end;
        }
        let mut bytes = [0; 1024];
        let length = socket.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&bytes[..length]);
        if head.len() > MAX_HEAD {
            return None;
        }
    };
    let line = std::str::from_utf8(&head[..end]).ok()?.lines().next()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    Some((target, socket))
}

/// Sends a page to the browser.
async fn respond(mut socket: TcpStream, status: &str, title: &str, text: &str) {
    let (title, text) = (escaped(title), escaped(text));
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto;padding:0 1rem;\
         color-scheme:light dark}}</style><h1>{title}</h1><p>{text}</p></html>\n"
    );
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    // If the browser has disconnected, the page is not needed.
    let written = async {
        socket.write_all(response.as_bytes()).await?;
        socket.shutdown().await
    };
    let _ = tokio::time::timeout(REQUEST_TIMEOUT, written).await;
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn a_challenge_is_that_of_the_rfc() {
        let verifier = CodeVerifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        assert_eq!(verifier.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one.len() == 43 && one != other);
    }

    fn server(issuer: Option<&str>, sends_issuer: bool) -> Server {
        let url: Url = "https://auth.example/token".parse().unwrap();
        Server {
            name: "https://auth.example".to_owned(),
            token: url.clone(),
            refresh: url.clone(),
            authorize: Some(url),
            device: None,
            revoke: None,
            registration: None,
            issuer: issuer.map(str::to_owned),
            sends_issuer,
            offline_access: false,
            secret_in_body: false,
        }
    }

    fn code(server: &Server, query: &str) -> Option<Result<String, LoginError>> {
        let agreed = [server.token.origin()];
        ExpectedRedirect { state: "s-1", server, agreed: &agreed }.code(query)
    }

    #[test]
    fn an_answer_with_another_state_does_not_end_the_login() {
        let server = server(None, false);
        assert_eq!(code(&server, "code=c&state=s-1"), Some(Ok("c".to_owned())));
        for query in ["", "code=c", "code=c&state=s-2", "code=c&state=", "code=c&state=s-1&state=s-2"] {
            assert_eq!(code(&server, query), None, "{query}");
        }
        assert_eq!(code(&server, "error=access_denied&state=s-2"), None);
    }

    #[test]
    fn an_answer_of_another_server_is_not_used() {
        let other = |issuer: &str| Some(Err(LoginError::OtherServer(issuer.to_owned())));
        let named = server(Some("https://auth.example"), true);
        assert_eq!(code(&named, "code=c&state=s-1&iss=https://auth.example"), Some(Ok("c".to_owned())));
        assert_eq!(code(&named, "code=c&state=s-1"), other("(no issuer)"));
        assert_eq!(code(&named, "code=c&state=s-1&iss=https://evil.example"), other("https://evil.example"));
        assert_eq!(
            code(&named, "code=c&state=s-1&iss=https://auth.example/"),
            other("https://auth.example/")
        );
        let unnamed = server(None, false);
        assert_eq!(code(&unnamed, "code=c&state=s-1&iss=https://auth.example/x"), Some(Ok("c".to_owned())));
        assert_eq!(
            code(&unnamed, "code=c&state=s-1&iss=https://evil.example"),
            other("https://evil.example")
        );
    }

    #[test]
    fn a_refusal_and_an_empty_answer_end_the_login() {
        let server = server(None, false);
        let refused = code(&server, "error=access_denied&error_description=no+way&state=s-1");
        assert_eq!(refused, Some(Err(LoginError::refused("access_denied", Some("no way")))));
        for query in ["state=s-1", "state=s-1&code=", "state=s-1&code=a&code=b"] {
            assert!(matches!(code(&server, query), Some(Err(LoginError::InvalidResponse(_)))), "{query}");
        }
    }

    async fn get(port: u16, target: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        socket.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn other_requests_to_the_port_do_not_end_the_login() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = server(None, false);
        let expected = ExpectedRedirect { state: "s-1", server: &server, agreed: &[] };
        // A connection that the browser opens early and does not use.
        let _idle = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let visits = async {
            assert!(get(port, "/favicon.ico").await.starts_with("HTTP/1.1 404"));
            assert!(get(port, "/callback/x?code=c&state=s-1").await.starts_with("HTTP/1.1 404"));
            assert!(get(port, "/callback?code=c&state=other").await.starts_with("HTTP/1.1 400"));
            get(port, "/callback?state=s-1&error=x&error_description=%3Cscript%3E").await
        };
        let (answer, page) = tokio::join!(wait_for_redirect(listener, expected), visits);
        assert_eq!(answer, Err(LoginError::refused("x", Some("<script>"))));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
    }
}
