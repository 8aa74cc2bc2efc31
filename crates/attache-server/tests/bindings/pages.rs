//! Web pages: what a page in a browser on the same machine or network can make the server do. Nothing, unless its origin is allowed.

use attache_server::auth::{AnonymousAccess, KeyPlace, KnownCallers, Reloadable};
use attache_server::{AllowedOrigin, Cors, Limits, Server};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use reqwest::Method;
use serde_json::json;

use crate::support::desk::{Desk, From, TestOperation, at, named};
use crate::support::{Binding, Ear, Player, Raw, Reply, Running, fetch, over_http2, player, send, serve};

const EVIL: &str = "https://evil.example";
const APP: &str = "https://app.example.com";

fn origins(texts: &[&str]) -> Vec<AllowedOrigin> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A server whose pages may be of these origins.
fn open_to(texts: &[&str]) -> Server<Player> {
    player().options(|options| options.cors.origins = origins(texts))
}

fn from(headers: &[(&'static str, &'static str)]) -> From {
    headers.iter().fold(at("127.0.0.1"), |from, (name, value)| from.header(name, value))
}

/// What 403 is over each binding.
fn forbidden(binding: Binding) -> i64 {
    match binding {
        Binding::JsonRpc | Binding::HttpJson => 403,
        Binding::Grpc => 7,
    }
}

/// What 200 is over each binding.
fn fine(binding: Binding) -> i64 {
    match binding {
        Binding::JsonRpc | Binding::HttpJson => 200,
        Binding::Grpc => 0,
    }
}

#[tokio::test]
async fn a_page_of_another_origin_calls_nothing_on_any_binding() {
    let desk = Desk::new(player(), Limits::default());
    for headers in [
        &[("host", "localhost:3111"), ("origin", EVIL), ("sec-fetch-site", "cross-site")][..],
        &[("host", "localhost:3111"), ("origin", EVIL)],
        &[("host", "localhost:3111"), ("origin", "null")],
        &[("host", "localhost:3111"), ("sec-fetch-site", "cross-site")],
        &[("host", "localhost:3111"), ("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")],
        &[("host", "localhost:3111"), ("origin", "http://localhost:3000")],
        &[("host", "localhost:3111"), ("origin", "http://localhost")],
        &[("host", "localhost:3111"), ("origin", "http://127.0.0.1:3111")],
        &[("host", "localhost:3111"), ("origin", "chrome-extension://abc"), ("sec-fetch-site", "none")],
        &[("host", "localhost:3111"), ("sec-fetch-site", "SAME-ORIGIN")],
        &[("origin", EVIL)],
    ] {
        for binding in Binding::ALL {
            for operation in [TestOperation::Send, TestOperation::Stream, TestOperation::List] {
                let outcome = desk.ask(binding, &from(headers), operation, &send("hi")).await;
                assert_eq!(outcome.status, forbidden(binding), "{headers:?} {binding:?} {operation:?}");
                let text = outcome.body.to_string();
                assert!(text.contains("`cors.origins`"), "{text}");
                assert!(text.contains("`Origin`") || text.contains("`Sec-Fetch-Site`"), "{text}");
            }
        }
    }
    let left = desk.list(Binding::JsonRpc, &at("127.0.0.1")).await;
    assert_eq!(left.body["result"]["totalSize"], 0, "nothing was done");
}

#[tokio::test]
async fn programs_and_pages_of_the_server_itself_are_answered() {
    let desk = Desk::new(player(), Limits::default());
    for headers in [
        &[][..],
        &[("host", "localhost:3111")],
        &[("host", "localhost:3111"), ("sec-fetch-site", "none")],
        &[("host", "localhost:3111"), ("origin", "http://localhost:3111"), ("sec-fetch-site", "same-origin")],
        &[("host", "localhost:3111"), ("origin", "http://localhost:3111")],
        &[("host", "127.0.0.1"), ("origin", "https://127.0.0.1")],
        // A proxy that names the server in its own way does not change where the page is from.
        &[
            ("host", "127.0.0.1:3111"),
            ("origin", "https://agents.example"),
            ("sec-fetch-site", "same-origin"),
        ],
        &[("host", "127.0.0.1:3111"), ("origin", "http://desk")],
        // As fetch of Node.js does.
        &[("host", "localhost:3111"), ("sec-fetch-mode", "cors")],
    ] {
        for binding in Binding::ALL {
            let outcome = desk.list(binding, &from(headers)).await;
            assert_eq!(outcome.status, fine(binding), "{headers:?} {binding:?}");
        }
    }
}

/// The status of a request that names the server in some way.
async fn named_as(server: &Running, host: &str, path: &str) -> u16 {
    fetch(server.http(Method::GET, path).header("Host", host)).await.status.as_u16()
}

#[tokio::test]
async fn another_host_name_is_answered_only_where_callers_are_authenticated() {
    let open = || player().base_url("https://agents.example.com/here").fallback(async |_| Some(own("mine")));
    let allowed = ["partner.example", "other.example:8443"].map(|text| text.parse().unwrap());
    let listed = open().options(|options| options.allowed_hosts = allowed.to_vec());
    let authenticated = open().authenticate(KnownCallers::new().bearer("alice", "t0ken"));
    let callers = Reloadable::new(AnonymousAccess);
    let (server, listed) = (serve(open()).await, serve(listed).await);
    let (authenticated, exchanged) =
        (serve(authenticated).await, serve(player().authenticate(callers.clone())).await);
    for path in ["/v1/tasks", "/.well-known/agent-card.json", "/mine", "/a2a"] {
        for host in
            ["evil.example", "evil.example:3111", "localhost.evil.example", "0.0.0.0:3111", "192.168.1.9"]
        {
            assert_eq!(named_as(&server, host, path).await, 403, "{host} {path}");
            assert_eq!(named_as(&listed, host, path).await, 403, "{host} {path}");
        }
        for host in ["127.0.0.1@evil.example", "[::1", "localhost:x", "localhost:", "a b"] {
            assert_eq!(named_as(&server, host, path).await, 403, "{host} {path}");
        }
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:80", "[::1]:3111", "[::ffff:127.0.0.1]"]
        {
            assert_ne!(named_as(&server, host, path).await, 403, "{host} {path}");
        }
        for host in ["agents.example.com", "Agents.Example.Com.:8080"] {
            assert_ne!(named_as(&server, host, path).await, 403, "{host} {path}");
        }
        for (host, answered) in [
            ("partner.example", true),
            ("partner.example:99", true),
            ("other.example:8443", true),
            ("other.example", false),
            ("a.partner.example", false),
        ] {
            assert_eq!(named_as(&listed, host, path).await != 403, answered, "{host} {path}");
        }
        assert_ne!(named_as(&authenticated, "evil.example", path).await, 403, "{path}");
    }
    for server in [&server, &listed, &authenticated, &exchanged] {
        assert_eq!(named_as(server, "evil.example", "/health").await, 200);
    }
    assert_eq!(named_as(&exchanged, "evil.example", "/v1/tasks").await, 403);
    callers.replace(KnownCallers::new().bearer("alice", "t0ken"));
    assert_eq!(named_as(&exchanged, "evil.example", "/v1/tasks").await, 401);
}

#[tokio::test]
async fn the_host_of_http2_is_its_authority() {
    let server = serve(player()).await;
    let (port, http2) = (server.address.port(), over_http2());
    let list = async |name: &str| {
        let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
        let client = client.resolve("evil.example", server.address).build().unwrap();
        fetch(client.get(format!("http://{name}:{port}/v1/tasks")).header("A2A-Version", "1.0")).await.status
    };
    assert_eq!(list("127.0.0.1").await, 200);
    assert_eq!(list("evil.example").await, 403);
    let two = http2.get(format!("{}/v1/tasks", server.base)).header("Host", "evil.example");
    assert_eq!(fetch(two).await.status, 400, "two hosts");
}

#[tokio::test]
async fn callers_whom_an_application_knows_may_name_the_server_as_they_like() {
    let desk = Desk::new(player(), Limits::default());
    for binding in Binding::ALL {
        let outcome = desk.list(binding, &named("alice").header("host", "evil.example")).await;
        assert_eq!(outcome.status, fine(binding), "{binding:?}");
        let outcome = desk.list(binding, &at("127.0.0.1").header("host", "evil.example")).await;
        assert_eq!(outcome.status, forbidden(binding), "{binding:?}");
        let text = outcome.body.to_string();
        assert!(text.contains("`Host`") && text.contains("`allowed-hosts`"), "{text}");
    }
}

#[tokio::test]
async fn two_hosts_or_two_credentials_in_one_request_are_refused() {
    let callers = || KnownCallers::new().bearer("alice", "t0ken").bearer("bob", "other");
    let server = serve(player().authenticate(callers())).await;
    let head = "GET /v1/tasks HTTP/1.1\r\nA2A-Version: 1.0\r\nConnection: close\r\n";
    for (lines, status) in [
        ("Host: localhost\r\nAuthorization: Bearer t0ken\r\n", "200"),
        ("Host: localhost\r\nAuthorization: Bearer t0ken\r\nAuthorization: Bearer t0ken\r\n", "400"),
        ("Host: localhost\r\nAuthorization: Bearer wrong\r\nauthorization: Bearer t0ken\r\n", "400"),
        ("Host: localhost\r\nHost: localhost\r\nAuthorization: Bearer t0ken\r\n", "400"),
        ("Host: localhost\r\nHost: evil.example\r\nAuthorization: Bearer t0ken\r\n", "400"),
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(format!("{head}{lines}\r\n")).await;
        let answer = raw.closed().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{lines}: {answer}");
        assert!(status == "200" || answer.contains("is there more than once"), "{answer}");
    }
    let mut raw = Raw::connect(server.address).await;
    let twice = "Authorization: Bearer a\r\nAuthorization: Bearer b\r\nHost: a\r\nHost: b\r\n";
    raw.write(format!("GET /health HTTP/1.1\r\n{twice}Connection: close\r\n\r\n")).await;
    assert!(raw.closed().await.contains("`Authorization` is there more than once"));
    let mut raw = Raw::connect(server.address).await;
    let lines = "Host: evil.example\r\nAuthorization: Bearer t0ken\r\nConnection: close\r\n\r\n";
    raw.write(format!("GET http://localhost/v1/tasks HTTP/1.1\r\n{lines}")).await;
    assert!(raw.closed().await.starts_with("HTTP/1.1 400 "));
    let desk = Desk::new(player().authenticate(callers()), Limits::default());
    let twice =
        || at("127.0.0.1").header("authorization", "Bearer wrong").header("authorization", "Bearer t0ken");
    for (binding, status) in [(Binding::JsonRpc, 400), (Binding::HttpJson, 400), (Binding::Grpc, 3)] {
        assert_eq!(desk.list(binding, &twice()).await.status, status, "{binding:?}");
    }
}

#[tokio::test]
async fn a_request_is_refused_for_its_headers_before_its_body_comes() {
    let server = serve(player()).await;
    for (lines, status) in [
        ("Host: evil.example\r\nContent-Type: application/json\r\n", "403"),
        ("Host: localhost\r\nOrigin: https://evil.example\r\nContent-Type: application/json\r\n", "403"),
        ("Host: localhost\r\nContent-Type: text/plain\r\n", "415"),
        ("Host: localhost\r\n", "415"),
    ] {
        for path in ["/a2a", "/v1/message:send"] {
            let mut raw = Raw::connect(server.address).await;
            raw.write(format!("POST {path} HTTP/1.1\r\n{lines}Content-Length: 100\r\n\r\n")).await;
            let head = raw.head().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{lines} {path}: {head}");
        }
    }
}

/// A request of a page, and the answer with its headers.
async fn page(server: &Running, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let request = server.http(method.parse().unwrap(), path);
    fetch(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

/// What an answer says to browsers.
fn told(reply: &Reply) -> String {
    let mut lines = vec![reply.status.as_u16().to_string()];
    for (name, value) in &reply.headers {
        if name.as_str().starts_with("access-control-") || name == "vary" {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
    }
    lines[1..].sort();
    lines.join("\n")
}

#[tokio::test]
async fn pages_of_an_allowed_origin_may_call_and_read_the_answers() {
    let callers = KnownCallers::new().bearer("alice", "t0ken");
    let server = serve(open_to(&[APP]).authenticate(callers)).await;
    let preflight = [
        ("Origin", APP),
        ("Sec-Fetch-Site", "cross-site"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "a2a-version,authorization,content-type,last-event-id"),
    ];
    let own = [("Origin", APP), ("Sec-Fetch-Site", "cross-site")];
    let known = [own[0], own[1], ("Authorization", "Bearer t0ken")];
    let mut answers = String::new();
    let grpc = "/lf.a2a.v1.A2AService/ListTasks";
    for path in ["/a2a", "/v1/tasks", "/v1/extendedAgentCard", grpc, "/.well-known/agent-card.json"] {
        answers +=
            &format!("OPTIONS {path}\n{}\n\n", told(&page(&server, "OPTIONS", path, &preflight).await));
    }
    for path in ["/v1/tasks", "/.well-known/agent-card.json", "/health"] {
        answers += &format!("GET {path}\n{}\n\n", told(&page(&server, "GET", path, &known).await));
    }
    answers += &format!(
        "GET /v1/tasks without a credential\n{}\n\n",
        told(&page(&server, "GET", "/v1/tasks", &own).await)
    );
    answers += &format!(
        "GET /v1/tasks of a program\n{}\n\n",
        told(&page(&server, "GET", "/v1/tasks", &known[2..]).await)
    );
    insta::assert_snapshot!("allowed_origin", answers);
}

#[tokio::test]
async fn preflight_requests_of_other_origins_are_refused() {
    let (closed, open) = (serve(player()).await, serve(open_to(&[APP])).await);
    for server in [&closed, &open] {
        for path in ["/a2a", "/v1/message:send", "/.well-known/agent-card.json", "/elsewhere"] {
            for origin in [EVIL, "null", "https://app.example.com.evil.example", "http://app.example.com"] {
                let asked = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
                let reply = page(server, "OPTIONS", path, &asked).await;
                assert_eq!(reply.status, 403, "{path} {origin}");
                assert_eq!(reply.header("access-control-allow-origin"), "", "{path} {origin}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_of_another_origin_is_shown_nothing_of_a_public_document() {
    let server = serve(open_to(&[APP])).await;
    let headers = [("Origin", EVIL), ("Sec-Fetch-Site", "cross-site")];
    for path in ["/.well-known/agent-card.json", "/health"] {
        let reply = page(&server, "GET", path, &headers).await;
        assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-origin")), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn a_cookie_lets_in_only_pages_of_the_server_and_of_listed_origins() {
    let callers = || KnownCallers::new().api_key("page", KeyPlace::Cookie("key".to_owned()), "k3y");
    let cookie = ("cookie", "key=k3y");
    let own = [("host", "localhost"), ("sec-fetch-site", "same-origin"), cookie];
    let app = [("host", "localhost"), ("origin", APP), ("sec-fetch-site", "cross-site"), cookie];
    let evil = [("host", "localhost"), ("origin", EVIL), ("sec-fetch-site", "cross-site"), cookie];
    let image = [("host", "localhost"), ("sec-fetch-site", "cross-site"), cookie];
    for allowed in [&[APP][..], &[APP, "*"]] {
        let desk = Desk::new(open_to(allowed).authenticate(callers()), Limits::default());
        for binding in Binding::ALL {
            assert_eq!(desk.list(binding, &from(&own)).await.status, fine(binding), "{binding:?}");
            assert_eq!(desk.list(binding, &from(&app)).await.status, fine(binding), "{binding:?}");
            for headers in [&evil[..], &image] {
                let outcome = desk.list(binding, &from(headers)).await;
                assert_eq!(outcome.status, forbidden(binding), "{allowed:?} {binding:?} {headers:?}");
            }
        }
    }
}

#[tokio::test]
async fn where_every_origin_is_allowed_none_may_use_what_the_browser_knows() {
    let callers = KnownCallers::new().bearer("alice", "t0ken").basic("ops", "pa55");
    let server = serve(open_to(&["*"]).authenticate(callers)).await;
    let with = async |name: &str, value: &str| {
        let headers = [("Origin", EVIL), ("Sec-Fetch-Site", "cross-site"), (name, value)];
        page(&server, "GET", "/v1/tasks", &headers).await
    };
    let reply = with("Authorization", "Bearer t0ken").await;
    assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-origin")), (200, "*"));
    assert_eq!(reply.header("access-control-allow-credentials"), "");
    for (name, value) in [("Authorization", "Basic b3BzOnBhNTU="), ("Cookie", "a=b")] {
        let reply = with(name, value).await;
        assert_eq!(reply.status, 403, "{name}");
        assert!(String::from_utf8_lossy(&reply.body).contains("cookies or a password"), "{reply:?}");
    }
}

fn own(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::from(text))
}

#[tokio::test]
async fn paths_of_an_application_are_guarded_like_those_of_the_bindings() {
    let server = player()
        .fallback(async |request: Request<_>| match request.uri().path() {
            "/own" | "/shared" => Some(own("mine")),
            "/custom" => {
                let mut response = own("mine");
                response
                    .headers_mut()
                    .insert("access-control-allow-origin", "https://a.example".parse().unwrap());
                Some(response)
            }
            _ => None,
        })
        .fallback_cors(|method, path| Cors {
            origins: match (method.as_str(), path) {
                ("POST", "/shared") => origins(&[APP]),
                ("GET", "/custom") => origins(&["*"]),
                _ => Vec::new(),
            },
        });
    let server = serve(server).await;
    let app = [("Origin", APP), ("Sec-Fetch-Site", "cross-site")];
    for (method, path, status, allowed) in [
        ("POST", "/own", 403, ""),
        ("GET", "/own", 403, ""),
        ("POST", "/shared", 200, APP),
        ("GET", "/shared", 403, ""),
        ("GET", "/custom", 200, "https://a.example"),
        ("POST", "/a2a", 403, ""),
    ] {
        let reply = page(&server, method, path, &app).await;
        let found = (reply.status.as_u16(), reply.header("access-control-allow-origin"));
        assert_eq!(found, (status, allowed), "{method} {path}");
    }
    let asked = [app[0], app[1], ("Access-Control-Request-Method", "POST")];
    assert_eq!(page(&server, "OPTIONS", "/shared", &asked).await.status, 204);
    assert_eq!(page(&server, "OPTIONS", "/own", &asked).await.status, 403);
    // A program that is no browser may send bodies of any type there.
    let sent = fetch(server.bare(Method::POST, "/own").body("a=b")).await;
    assert_eq!((sent.status.as_u16(), &sent.body[..]), (200, &b"mine"[..]));
}

#[tokio::test]
async fn a_request_rejected_for_a_header_is_in_the_audit_log() {
    let ear = Ear::new();
    let desk = Desk::new(player(), Limits::default());
    for binding in Binding::ALL {
        desk.list(binding, &at("198.51.100.1").header("origin", EVIL)).await;
        desk.list(binding, &at("198.51.100.1").header("host", "evil.example")).await;
    }
    let request = Request::post("/a2a").header("content-type", "text/plain");
    desk.0.handle(request.body(Full::new(Bytes::from(json!({}).to_string()))).unwrap()).await;
    insta::assert_snapshot!("refused_for_a_header", ear.audit().join("\n"));
}
