//! Limits: what is too large, too slow or too much is refused, and the server goes on.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Conversation, Options};
use attache_server::{Limits, RedisStreams, Server, ServerOptions};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::desk::Desk;
use crate::support::{
    Binding, Ear, Player, Raw, Refusal, Reply, Running, Sse, card, fetch, message, over_http2, player,
    playing, send, serve, soon, stage,
};

const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(3600);

async fn limited(change: impl FnOnce(&mut ServerOptions)) -> Running {
    serve(player().options(change)).await
}

/// A body that comes in pieces, without its length.
fn in_pieces(text: String) -> Body {
    let pieces: Vec<_> =
        text.into_bytes().chunks(100).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
    Body::wrap_stream(stream::iter(pieces))
}

/// A body that never ends.
fn endless() -> Body {
    Body::wrap_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>())
}

/// A request whose body is JSON.
fn json_to(server: &Running, path: &str) -> RequestBuilder {
    server.http(Method::POST, path).header("Content-Type", "application/json")
}

fn rpc(params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).to_string()
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_and_without_its_length() {
    let server = limited(|options| options.max_body = 1000).await;
    let large = send(&"x".repeat(5000));
    for body in [Body::from(rpc(&large)), in_pieces(rpc(&large))] {
        let reply = server.post(body).await;
        assert_eq!((reply.status.as_u16(), reply.code()), (413, -32053));
        assert_eq!(reply.json()["error"]["data"][0]["metadata"]["limit"], "1000");
    }
    for body in [Body::from(large.to_string()), in_pieces(large.to_string())] {
        let reply = fetch(json_to(&server, "/v1/message:send").body(body)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (413, &json!(413)));
    }
    let refusal = server.ask("SendMessage", large).refused(Binding::Grpc).await;
    let (code, reason) = (tonic::Code::ResourceExhausted as i64, "PAYLOAD_TOO_LARGE");
    assert_eq!((refusal.code, refusal.reason.as_str()), (code, reason));
    for binding in Binding::ALL {
        assert!(server.ask("SendMessage", send("small")).over(binding).await.result.is_ok(), "{binding:?}");
    }
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_taken() {
    let server = limited(|options| options.max_body = 1000).await;
    let padded = |text: String, length: usize| format!("{text:length$}");
    for (length, status) in [(1000, 200), (1001, 413)] {
        let (rest, rpc) = (padded(send("hi").to_string(), length), padded(rpc(&send("hi")), length));
        for body in [Body::from(rest.clone()), in_pieces(rest)] {
            let reply = fetch(json_to(&server, "/v1/message:send").body(body)).await;
            assert_eq!(reply.status, status, "{length}");
        }
        for body in [Body::from(rpc.clone()), in_pieces(rpc)] {
            assert_eq!(server.post(body).await.status, status, "{length}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_may_take_as_long_as_its_time_and_no_longer() {
    let desk = Desk::new(player(), Limits::none());
    let (time, moment) = (ServerOptions::default().body_timeout, Duration::from_millis(1));
    for (takes, status) in [(time - moment, 200), (time + moment, 400)] {
        let late = stream::once(async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(send("hi").to_string())))
        });
        let request = http::Request::post("/v1/message:send")
            .header("a2a-version", "1.0")
            .header("content-type", "application/json")
            .body(StreamBody::new(late.boxed()))
            .unwrap();
        assert_eq!(desk.0.handle(request).await.status(), status, "{takes:?}");
    }
}

#[tokio::test]
async fn a_body_that_claims_to_be_too_large_is_refused_before_it_comes() {
    let server = limited(|options| options.body_timeout = NEVER).await;
    for path in ["/a2a", "/v1/message:send"] {
        let mut raw = Raw::connect(server.address).await;
        let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999";
        raw.write(format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n")).await;
        assert!(raw.head().await.starts_with("HTTP/1.1 413 "), "{path}");
    }
}

#[tokio::test]
async fn the_depth_of_json_has_a_limit_of_its_own() {
    let server = limited(|options| options.max_depth = 8).await;
    let nested = |depth: usize| {
        let data = (0..depth).fold(json!(1), |inner, _| json!([inner]));
        let mut message = message("");
        message["parts"] = json!([{"data": data}]);
        json!({"message": message})
    };
    // `params`, `message`, `parts` and the part itself count, and the envelope of JSON-RPC.
    for (binding, depth) in [(Binding::JsonRpc, 3), (Binding::HttpJson, 4)] {
        assert!(server.ask("SendMessage", nested(depth)).over(binding).await.result.is_ok(), "{binding:?}");
    }
    let reply = server.post(rpc(&nested(4))).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (200, -32600));
    let refusal = server.ask("SendMessage", nested(5)).refused(Binding::HttpJson).await;
    assert_eq!((refusal.code, refusal.reason.as_str()), (400, "INVALID_REQUEST"));
    let in_a_string = server.ask("SendMessage", send(&"[".repeat(500))).over(Binding::JsonRpc).await;
    assert!(in_a_string.result.is_ok(), "brackets in strings do not count");
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let server = limited(|options| options.max_headers = 8192).await;
    for size in [20_000, 200_000] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(format!(
            "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n",
            "x".repeat(size)
        ))
        .await;
        assert!(raw.head().await.starts_with("HTTP/1.1 431 "), "{size}");
    }
    let large =
        fetch(over_http2().get(format!("{}/health", server.base)).header("x-large", "x".repeat(12_000)))
            .await;
    assert_eq!(large.status, 431);
    let fine = fetch(server.bare(Method::GET, "/health").header("x-large", "x".repeat(4000))).await;
    assert_eq!(fine.status, 200);
}

#[tokio::test]
async fn headers_of_exactly_the_limit_are_read() {
    let server = limited(|options| options.max_headers = 8192).await;
    let begin = "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: ";
    let large = |size: usize| "x".repeat(size);
    let whole = |size: usize| format!("{begin}{}\r\n\r\n", large(size - begin.len() - 4));
    for (head, status) in [
        (whole(8192), "200"),
        (whole(8193), "431"),
        // The server waits for more than these only.
        (format!("{begin}{}", large(8192 - begin.len())), "431"),
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(&head).await;
        let said = raw.head().await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{} bytes: {said}", head.len());
    }
    // HTTP/2 counts 32 bytes more for each header. The list has to be shorter than the limit.
    let address = server.address.to_string();
    let others = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", address.as_str()),
        (":path", "/health"),
        ("accept", "*/*"),
        ("x-large", ""),
    ];
    let others: usize = others.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    for (size, status) in [(8191, 200), (8193, 431)] {
        let health = over_http2().get(format!("{}/health", server.base));
        let reply = fetch(health.header("x-large", large(size - others))).await;
        assert_eq!(reply.status, status, "{size}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_headers_is_hung_up_on() {
    let server = limited(|options| options.header_timeout = SOON).await;
    for beginning in [
        "",
        "G",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        "PRI * HTT",
        "PRI * HTTP/2.0\r\n\r\n",
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(beginning).await;
        let said = raw.closed().await;
        assert!(!said.contains("200 OK"), "{beginning:?}: {said}");
    }
    assert_eq!(fetch(server.bare(Method::GET, "/health")).await.status, 200);
}

#[tokio::test]
async fn a_connection_that_never_says_anything_is_closed() {
    let server = limited(|options| {
        options.header_timeout = NEVER;
        options.limits.first_byte_timeout = SOON;
    })
    .await;
    assert_eq!(Raw::connect(server.address).await.closed().await, "");
}

#[tokio::test]
async fn a_connection_that_has_begun_is_not_closed_for_its_first_byte() {
    let server = limited(|options| {
        options.header_timeout = NEVER;
        options.limits.first_byte_timeout = SOON;
    })
    .await;
    let mut begun = Raw::connect(server.address).await;
    begun.write("G").await;
    // Its time begins later, so that of the other one is over too.
    assert_eq!(Raw::connect(server.address).await.closed().await, "");
    begun.write("ET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(begun.read_until("}").await.contains("200 OK"));
}

#[tokio::test]
async fn a_connection_that_stays_idle_is_closed() {
    let server = limited(|options| options.header_timeout = SOON).await;
    let mut raw = Raw::connect(server.address).await;
    raw.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(raw.read_until("}").await.contains("200 OK"));
    raw.closed().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = limited(|options| options.body_timeout = SOON).await;
    let head =
        |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    for body in ["Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(format!("{}{body}", head("/a2a"))).await;
        let said = raw.closed().await;
        assert!(said.contains("INVALID_REQUEST") && said.contains("did not arrive"), "{said}");

        let mut raw = Raw::connect(server.address).await;
        raw.write(format!("{}{body}", head("/v1/message:send"))).await;
        let said = raw.closed().await;
        assert!(said.starts_with("HTTP/1.1 4") && said.contains("did not arrive"), "{said}");
    }
    let call = over_http2().post(format!("{}/lf.a2a.v1.A2AService/GetTask", server.base));
    let reply =
        fetch(call.header("content-type", "application/grpc").header("te", "trailers").body(endless())).await;
    assert_eq!(reply.header("grpc-status"), (tonic::Code::InvalidArgument as i32).to_string());
}

#[tokio::test]
async fn a_stream_may_take_longer_than_a_request_may() {
    let server = limited(|options| {
        options.header_timeout = SOON;
        options.body_timeout = SOON;
        options.heartbeat = SOON / 2;
    })
    .await;
    let mut stream = server.sse("SendStreamingMessage", send("wait")).await;
    let id = stream.event().await["task"]["id"].clone();
    // Several heartbeats make up more time than the client had for its request.
    let mut beats = 0;
    while beats < 6 {
        beats += usize::from(stream.frame().await.expect("the stream goes on").comment.is_some());
    }
    server.rpc("CancelTask", json!({"id": id})).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_to_come_back() {
    let (agent, mut stage) = stage();
    let server = serve(Server::new(agent).card(card()).options(|options| options.max_requests = 1)).await;
    let sending = tokio::spawn(server.http(Method::POST, "/v1/message:send").json(&send("go")).send());
    let act = stage.turn().await;

    let full = |reply: &Reply| (reply.status.as_u16(), reply.header("retry-after").to_owned());
    assert_eq!(full(&server.rest("GET", "/tasks", None).await), (503, "1".to_owned()));
    assert_eq!(full(&server.post(rpc(&send("hi"))).await), (503, "1".to_owned()));
    let mut grpc = server.grpc().await;
    let refusal = Refusal::from_status(&grpc.call("ListTasks", json!({}), &[]).await.unwrap_err());
    assert_eq!((refusal.code, refusal.reason.as_str()), (tonic::Code::Unavailable as i64, "UNAVAILABLE"));

    act.complete().await;
    drop(act);
    let sent = soon(sending).await.unwrap().unwrap();
    assert_eq!(soon(sent.bytes()).await.unwrap().first(), Some(&b'{'));
    for binding in Binding::ALL {
        assert!(server.ask("ListTasks", json!({})).over(binding).await.result.is_ok(), "{binding:?}");
    }
}

#[tokio::test]
async fn a_stream_takes_a_place_until_it_ends_or_its_reader_goes() {
    let server = serve(Server::new(Player).card(card()).options(|options| options.max_requests = 1)).await;
    let mut stream = server.sse("SendStreamingMessage", send("wait")).await;
    assert!(stream.event().await["task"].is_object());
    assert_eq!(server.rest("GET", "/tasks", None).await.status, 503);
    drop(stream);
    soon(async {
        while server.rest("GET", "/tasks", None).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Asks for something without a body.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Asks for health checks over a connection that stays open.
async fn ask(raw: &mut Raw) {
    raw.write(get("/health")).await;
    assert!(raw.read_until("}").await.contains("200 OK"));
}

/// A connection that has made progress after all others.
async fn connected(server: &Running) -> Raw {
    let mut raw = Raw::connect(server.address).await;
    ask(&mut raw).await;
    raw
}

#[tokio::test]
async fn for_one_connection_too_many_the_one_is_closed_that_has_waited_longest() {
    let server = limited(|options| options.max_connections = 3).await;
    let (mut first, mut second) = (connected(&server).await, connected(&server).await);
    let mut third = connected(&server).await;
    ask(&mut first).await;
    let mut fourth = connected(&server).await;
    assert_eq!(second.closed().await, "");
    for raw in [&mut third, &mut first, &mut fourth] {
        ask(raw).await;
    }
    let _fifth = connected(&server).await;
    assert_eq!(third.closed().await, "");
    ask(&mut first).await;
    ask(&mut fourth).await;
}

#[tokio::test]
async fn an_upload_that_makes_progress_is_not_closed_in_favour_of_those_that_make_none() {
    let server = limited(|options| options.max_connections = 3).await;
    let body = rpc(&send("slowly"));
    let mut upload = Raw::connect(server.address).await;
    let head =
        "POST /a2a HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n";
    upload.write(format!("{head}Content-Length: {}\r\n\r\n", body.len())).await;
    let mut silent = Vec::new();
    for piece in body.as_bytes().chunks(body.len().div_ceil(8)) {
        upload.write(piece).await;
        // Half a head, and then nothing.
        let mut half = Raw::connect(server.address).await;
        half.write("POST /a2a HTTP/1.1\r\nX-Half: ").await;
        silent.push(half);
        // Everything that was written before has been read when this is answered.
        connected(&server).await;
    }
    assert!(upload.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    for half in &mut silent[..6] {
        assert_eq!(half.closed().await, "");
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_does_not_keep_a_connection_from_others() {
    let server = limited(|options| options.max_connections = 1).await;
    let mut stuck = Raw::connect(server.address).await;
    stuck.write("POST /a2a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").await;
    let mut next = Raw::connect(server.address).await;
    soon(async {
        // The first one may not have been read yet.
        while !next.try_get("/v1/tasks").await.starts_with("HTTP/1.1 200 ") {
            next = Raw::connect(server.address).await;
        }
    })
    .await;
    assert_eq!(stuck.closed().await, "");
}

#[tokio::test]
async fn health_checks_are_answered_while_every_connection_is_at_work() {
    let server = limited(|options| options.max_connections = 2).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send("wait")});
        let request = client.post(format!("{}/a2a", server.base)).header("A2A-Version", "1.0").json(&body);
        let mut stream = Sse::open(request).await;
        assert!(stream.event().await["task"].is_object());
        streams.push(stream);
    }
    for path in ["/health", "/ready"] {
        let mut raw = Raw::connect(server.address).await;
        raw.write(get(path)).await;
        let said = raw.closed().await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }
    let mut raw = Raw::connect(server.address).await;
    raw.write(get("/v1/tasks")).await;
    let said = raw.closed().await;
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("retry-after: 1"), "{said}");
    assert!(said.contains("too many connections at once"), "{said}");
    assert_eq!(fetch(over_http2().get(format!("{}/health", server.base))).await.status, 200);
    assert_eq!(fetch(over_http2().get(format!("{}/v1/tasks", server.base))).await.status, 503);

    drop(streams.pop());
    soon(async {
        while server.rest("GET", "/tasks", None).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(streams[0].frame().await.is_some(), "the other stream goes on");
}

#[tokio::test]
async fn an_address_may_have_so_many_connections_and_no_more() {
    let ear = Ear::new();
    let server = limited(|options| {
        options.limits.limit_loopback = true;
        options.limits.connections_per_address = NonZeroUsize::new(2);
    })
    .await;
    let (mut first, mut second) = (connected(&server).await, connected(&server).await);
    assert_eq!(Raw::connect(server.address).await.closed().await, "");
    assert_eq!(
        ear.audit(),
        [concat!(
            "denied principal=\"anonymous\" address=127.0.0.1 binding=\"TCP\" operation=\"connect\" ",
            "reason=\"too many connections from this address\" status=429"
        )]
    );
    ask(&mut first).await;
    ask(&mut second).await;
    drop(first);
    soon(async {
        while Raw::connect(server.address).await.try_get("/health").await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn connections_of_this_machine_are_not_counted_unless_that_is_asked_for() {
    let server = limited(|options| options.limits.connections_per_address = NonZeroUsize::new(1)).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(connected(&server).await);
    }
    for raw in &mut all {
        ask(raw).await;
    }
}

#[tokio::test]
async fn health_checks_are_answered_while_there_is_no_room_for_requests() {
    let server = limited(|options| options.max_requests = 1).await;
    let mut stream = server.sse("SendStreamingMessage", send("wait")).await;
    assert!(stream.event().await["task"].is_object());
    assert_eq!(server.rest("GET", "/tasks", None).await.status, 503);
    for (path, said) in [("/health", "healthy"), ("/ready", "ready")] {
        let reply = fetch(server.bare(Method::GET, path)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["status"]), (200, &json!(said)));
    }
}

#[tokio::test]
async fn a_connection_of_http2_has_so_many_requests_open_and_no_more() {
    let server = limited(|options| options.max_streams_per_connection = 2).await;
    let client = over_http2();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send("wait")});
    let post = || client.post(format!("{}/a2a", server.base)).header("A2A-Version", "1.0").json(&body);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = Sse::open(post()).await;
        assert!(stream.event().await["task"].is_object());
        streams.push(stream);
    }
    let third = tokio::spawn(client.get(format!("{}/health", server.base)).send());
    for _ in 0..10 {
        assert_eq!(fetch(over_http2().get(format!("{}/health", server.base))).await.status, 200);
    }
    assert!(!third.is_finished(), "it waits for one of the two to end");
    drop(streams.pop());
    assert_eq!(soon(third).await.unwrap().unwrap().status(), 200);
}

/// Begins a request on a connection of HTTP/2 of its own, whose body never ends.
async fn beginning(server: &Running) -> JoinHandle<reqwest::Result<reqwest::Response>> {
    let started = Arc::new(Notify::new());
    let telling = started.clone();
    // The first piece is sent when the request is.
    let pieces = stream::once(async move {
        telling.notify_one();
        Ok::<_, std::io::Error>(b"{".to_vec())
    });
    let call = over_http2().post(format!("{}/a2a", server.base)).header("content-type", "application/json");
    let sending = tokio::spawn(call.body(Body::wrap_stream(pieces.chain(stream::pending()))).send());
    soon(started.notified()).await;
    sending
}

#[tokio::test]
async fn requests_that_wait_for_their_bodies_keep_out_no_others() {
    let server = limited(|options| (options.max_requests, options.body_timeout) = (4, NEVER)).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(beginning(&server).await);
    }
    // As many wait as may: one more is refused on each binding, as soon as it is seen to wait.
    let refused = soon(async {
        loop {
            let mut one_more = beginning(&server).await;
            tokio::select! {
                answer = &mut one_more => return answer.unwrap().unwrap(),
                () = tokio::time::sleep(SOON) => waiting.push(one_more),
            }
        }
    })
    .await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    for binding in Binding::ALL {
        assert!(server.ask("SendMessage", send("hi")).over(binding).await.result.is_ok(), "{binding:?}");
    }
    for path in ["/health", "/ready"] {
        assert_eq!(fetch(server.bare(Method::GET, path)).await.status, 200);
    }
    for sending in &waiting {
        assert!(!sending.is_finished(), "those that wait go on waiting");
    }
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = playing().await;
    let mut raw = Raw::connect(server.address).await;
    for (path, status) in [("/health", "200 OK"), ("/nowhere", "404 Not Found"), ("/v1/tasks", "200 OK")] {
        raw.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        let head = raw.head().await;
        assert!(head.contains(status), "{head}");
        let length: usize =
            head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
        raw.read(length).await;
    }
    raw.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3)).await;
    for _ in 0..3 {
        assert!(raw.read_until("}").await.contains("200 OK"), "requests may be sent ahead");
    }
}

#[tokio::test]
async fn http2_without_tls_serves_the_json_bindings_too() {
    let server = playing().await;
    let http2 = over_http2();
    let post = |path: &str| http2.post(format!("{}{path}", server.base)).header("A2A-Version", "1.0");
    assert!(fetch(post("/a2a").header("Content-Type", "application/json").body(rpc(&send("hi")))).await.json()["result"]["task"].is_object());
    assert!(fetch(post("/v1/message:send").json(&send("hi"))).await.json()["task"].is_object());
    let mut stream = Sse::open(post("/v1/message:stream").json(&send("chunks"))).await;
    assert_eq!(stream.rest().await.len(), 6);
    assert_eq!(fetch(http2.get(format!("{}/nowhere", server.base))).await.status, 404);
    let grpc_path = post("/lf.a2a.v1.A2AService/GetTask").json(&json!({}));
    assert_eq!(fetch(grpc_path).await.status, 415, "this path speaks gRPC");
}

#[test]
fn the_default_limits_are_the_documented_ones() {
    const LIMITS: &str = include_str!("../../../../docs/limits.md");
    const CONVERSATIONS: &str = include_str!("../../../../docs/conversations.md");
    let (kib, mib, seconds) = (1024, 1024 * 1024, Duration::from_secs);

    let options = ServerOptions::default();
    let caller = &options.limits;
    let rate = |rate: Option<std::num::NonZeroU32>| rate.map(std::num::NonZeroU32::get);
    let count = |count: Option<NonZeroUsize>| count.map(NonZeroUsize::get);
    assert_eq!((rate(caller.requests_per_second), caller.burst.get()), (Some(500), 1_000));
    let address = (rate(caller.requests_per_second_per_address), caller.burst_per_address.get());
    assert_eq!(address, (Some(1_000), 2_000));
    for limit in [caller.requests_per_caller, caller.streams_per_caller, caller.turns_per_caller] {
        assert_eq!(count(limit), Some(256));
    }
    assert_eq!(count(caller.connections_per_address), Some(1_024));
    assert_eq!((caller.queue_timeout, caller.first_byte_timeout), (seconds(2), seconds(10)));
    assert_eq!((options.max_requests, options.max_connections), (10_000, 20_000));
    assert_eq!(options.max_streams_per_connection, 256);
    assert_eq!((options.max_body, options.max_headers, options.max_depth), (8 * mib, 64 * kib, 100));
    assert_eq!((options.header_timeout, options.body_timeout), (seconds(30), seconds(30)));
    let redis = RedisStreams::new("redis://127.0.0.1:6379").unwrap();
    assert_eq!((redis.in_flight, redis.streams, redis.max_entry), (256, 256, None));
    let service = Options::default();
    assert_eq!((service.max_parts, service.max_push_configs), (1_000, 32));
    let Conversation { contexts, input, .. } = Conversation::default();
    assert_eq!((contexts.queue_limit, contexts.max, contexts.idle), (16, 1_024, seconds(30 * 60)));
    assert_eq!((input.max_data, input.max_text, input.max_media), (mib, mib, 5 * mib));
    assert_eq!((input.max_file, input.max_total), (25 * mib, 64 * mib));

    for row in [
        "| `requests_per_second`, `burst` | 500, 1,000 |",
        "| `requests_per_second_per_address`, `burst_per_address` | 1,000, 2,000 |",
        "| `requests_per_caller` | 256 concurrent | waits for `queue_timeout` (2 s), then 429 |",
        "| `streams_per_caller` | 256 concurrent |",
        "| `turns_per_caller` | 256 concurrent |",
        "| `connections_per_address` | 1,024 open |",
        "| `first_byte_timeout` | 10 s |",
        "| `ServerOptions::max_requests` | 10,000 concurrent |",
        "| `ServerOptions::max_connections` | 20,000,",
        "| `ServerOptions::max_streams_per_connection` (HTTP/2) | 256,",
        "| `ServerOptions::max_body`, `max_headers`, `max_depth` | 8 MiB, 64 KiB, 100 |",
        "| `ServerOptions::header_timeout`, `body_timeout` | 30 s |",
        "| `RedisStreams::in_flight`, `streams` ([Redis Streams](redis-streams.md)) | 256 requests, 256 streams |",
        "| `RedisStreams::max_entry` | `max_body` and 64 KiB |",
        "| `Options::max_parts` | 1,000 in a message |",
        "| `Options::max_push_configs` | 32 for a task |",
        "| `ContextRules::queue_limit` (`contexts.queue-limit`) | 16 messages that wait for a context |",
        "| 1,024 live contexts of an agent",
        "| `ContextRules::idle` (`contexts.idle`) | 30 minutes |",
    ] {
        assert!(LIMITS.contains(row), "{row}");
    }
    for row in [
        "| `input.max-data`, 1 MiB |",
        "| `input.max-text`, 1 MiB |",
        "| `input.max-media`, 5 MiB |",
        "| `input.max-text`, `input.max-file` (25 MiB) |",
        "| `input.max-total`, 64 MiB |",
    ] {
        assert!(CONVERSATIONS.contains(row), "{row}");
    }
}
