//! Clients that misbehave: they get an error, hold up no other client, and never cancel a task.

use std::time::Duration;

use attache_core::{AgentResult, Turn, agent_fn};
use attache_server::{Server, ServerOptions};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::Message;

use super::{Everywhere, Transport, ask, everywhere, request};
use crate::support::{Player, player, send, soon};

/// A server that gives up on slow clients soon.
async fn impatient(change: impl FnOnce(&mut ServerOptions)) -> Everywhere {
    let server: Server<Player> = player().options(|options| {
        options.header_timeout = Duration::from_millis(400);
        options.body_timeout = Duration::from_millis(200);
        options.heartbeat = Duration::from_millis(100);
    });
    everywhere(server.options(change)).await
}

async fn still_answers(server: &mut Everywhere) {
    let mut wire = server.wire(Transport::Http).await;
    let answer = ask(&mut *wire, request("1", "SendMessage", send("hello"))).await;
    assert!(answer["result"]["task"].is_object(), "{answer}");
}

/// The line that says what was wrong, which is the last one.
async fn last_line(stream: impl tokio::io::AsyncRead + Unpin) -> Value {
    let mut lines = BufReader::new(stream).lines();
    let line = soon(lines.next_line()).await.unwrap().expect("an error");
    assert_eq!(soon(lines.next_line()).await.unwrap_or_default(), None);
    serde_json::from_str(&line).unwrap()
}

#[tokio::test]
async fn half_a_line_and_then_silence_is_an_error_and_the_end_of_the_connection() {
    // The connection over the stream is never idle, so that the time for the line decides.
    let mut server = impatient(|_| {}).await;
    let mut stream = server.take_stream();
    stream.write_all(br#"{"jsonrpc": "2.0", "id": 1, "#).await.unwrap();
    still_answers(&mut server).await;
    let error = last_line(&mut stream).await;
    assert!(error["error"]["message"].as_str().unwrap().contains("did not arrive within"), "{error}");
    assert_eq!(error["id"], Value::Null);
    // It has ended with its client.
    server.stopped().await;
}

#[tokio::test]
async fn half_a_line_over_a_unix_socket_and_then_silence_is_an_error_and_harms_no_other() {
    // The connection would be closed for its silence later.
    let mut server = impatient(|options| options.header_timeout = Duration::from_secs(60)).await;
    let mut stream = server.connect_unix().await;
    stream.write_all(br#"{"jsonrpc": "2.0", "id": 1, "#).await.unwrap();
    still_answers(&mut server).await;
    let error = last_line(stream).await;
    assert!(error["error"]["message"].as_str().unwrap().contains("did not arrive within"), "{error}");
}

/// A call of the envelope over HTTP/2, with this body.
fn envelope_call(server: &Everywhere, name: &str, body: reqwest::Body) -> reqwest::RequestBuilder {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    envelope_call_with(&client, server, name, body)
}

fn envelope_call_with(
    client: &reqwest::Client,
    server: &Everywhere,
    name: &str,
    body: reqwest::Body,
) -> reqwest::RequestBuilder {
    let url = format!("http://{}/iac_code.a2a.transports.proto.A2AJsonRpc/{name}", server.address);
    client.post(url).header("content-type", "application/grpc").header("te", "trailers").body(body)
}

/// The message of a call that has this request.
fn envelope_of(request: &Value) -> reqwest::Body {
    use prost::Message as _;
    let payload = request.to_string().into();
    let message = attache_grpc::envelope::JsonRpcEnvelope { payload, r#final: true }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat().into()
}

#[tokio::test]
async fn half_an_envelope_and_then_silence_is_an_error_and_harms_no_other() {
    let mut server = impatient(|_| {}).await;
    let begun = futures::stream::iter([Ok::<_, std::io::Error>(vec![0, 0, 0, 0, 100, 10, 98, b'{'])]);
    let body = reqwest::Body::wrap_stream(begun.chain(futures::stream::pending()));
    let call = tokio::spawn(envelope_call(&server, "Send", body).send());
    still_answers(&mut server).await;
    let response = soon(call).await.unwrap().unwrap();
    let status = response.headers().get("grpc-status").expect("a status").to_str().unwrap().to_owned();
    assert_ne!(status, "0", "{response:?}");
}

#[tokio::test]
async fn a_reader_of_an_envelope_stream_that_stops_holds_up_no_other_on_its_connection() {
    let server = everywhere(Server::new(agent_fn(flood))).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let open = async || {
        let mut turn = request("turn", "SendStreamingMessage", send("go"));
        turn.as_object_mut().unwrap().remove("headers");
        let call = envelope_call_with(&client, &server, "Stream", envelope_of(&turn));
        soon(call.send()).await.unwrap()
    };
    let stopped = open().await;
    let read = soon(open().await.bytes()).await.unwrap();
    assert!(read.len() > 64 * 64 * 1024, "{}", read.len());
    let rest = soon(stopped.bytes()).await.unwrap();
    assert_eq!(rest.len() / (64 * 1024), read.len() / (64 * 1024), "what was not read is still there");
}

#[tokio::test]
async fn an_envelope_client_that_is_gone_gives_back_what_its_stream_used() {
    let mut server = everywhere(player().options(|options| options.max_requests = 1)).await;
    let mut turn = request("turn", "SendStreamingMessage", send("wait"));
    turn.as_object_mut().unwrap().remove("headers");
    let mut stream = soon(envelope_call(&server, "Stream", envelope_of(&turn)).send()).await.unwrap();
    soon(stream.chunk()).await.unwrap().expect("the stream has begun");
    let mut other = server.wire(Transport::Http).await;
    let refused = ask(&mut *other, request("1", "ListTasks", json!({}))).await;
    assert!(refused["error"].is_object(), "a stream counts as a request: {refused}");
    drop(stream);
    let listed = soon(async {
        loop {
            let listed = ask(&mut *other, request("1", "ListTasks", json!({}))).await;
            if listed["error"].is_null() {
                return listed;
            }
        }
    })
    .await;
    assert_eq!(listed["result"]["tasks"][0]["status"]["state"], "TASK_STATE_WORKING", "{listed}");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_that_is_refused_ends_with_its_error() {
    let loud = agent_fn(|turn: Turn| async move { turn.complete().await });
    let named = attache_server::NamedAgent::new(loud);
    let server = player().agent("loud", named).unwrap().options(|it| it.max_streams_per_connection = 1);
    let server = everywhere(server).await;
    let mut lines = BufReader::new(server.connect_unix().await);
    for headers in [json!("none"), json!({"agent": "quiet"}), json!({"A2A-Version": "9.9"})] {
        let mut turn = request("turn", "SendStreamingMessage", send("hello"));
        turn["headers"] = headers.clone();
        lines.get_mut().write_all(format!("{turn}\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        soon(lines.read_line(&mut line)).await.unwrap();
        let error: Value = serde_json::from_str(&line).unwrap();
        assert!(error["error"].is_object() && error["final"] == true, "{headers}: {error}");
    }
    // The connection is used by one request, so that the next one is refused.
    for id in ["one", "two"] {
        let turn = request(id, "SendStreamingMessage", send("wait"));
        lines.get_mut().write_all(format!("{turn}\n").as_bytes()).await.unwrap();
    }
    let mut line = String::new();
    while !line.contains(r#""id":"two""#) {
        line.clear();
        soon(lines.read_line(&mut line)).await.unwrap();
    }
    assert!(line.contains("concurrent requests") && line.contains(r#""final":true"#), "{line}");
}

#[tokio::test]
async fn half_a_websocket_message_and_then_silence_is_the_end_of_the_connection() {
    let mut server = impatient(|_| {}).await;
    let mut socket = server.websocket("/ws", &[]).await;
    // A masked text frame of 100 bytes, of which three arrive.
    socket.get_mut().write_all(&[0x81, 0x80 | 100, 1, 2, 3, 4, b'{', b'"', b'a']).await.unwrap();
    still_answers(&mut server).await;
    let mut rest = Vec::new();
    soon(socket.get_mut().read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn a_line_that_is_too_long_is_an_error_before_it_ends() {
    let mut server = impatient(|options| options.max_body = 64 * 1024).await;
    let mut stream = soon(UnixStream::connect(&server.socket)).await.unwrap();
    let text = vec![b' '; 64 * 1024 + 1];
    stream.write_all(b"{").await.unwrap();
    // The server may close before all of it was written.
    let _ = stream.write_all(&text).await;
    let error = last_line(stream).await;
    assert!(error["error"]["message"].as_str().unwrap().contains("longer than 65536 bytes"), "{error}");
    still_answers(&mut server).await;
}

/// A request of this many bytes.
fn sized(length: usize) -> Value {
    let of = |text: String| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
        request("1", "SendMessage", json!({"message": message}))
    };
    of("x".repeat(length - of(String::new()).to_string().len()))
}

#[tokio::test]
async fn a_frame_of_exactly_the_limit_is_answered_and_a_longer_one_ends_the_connection() {
    for transport in [Transport::Unix, Transport::Lines, Transport::WebSocket] {
        let mut server = everywhere(player().options(|options| options.max_body = 1000)).await;
        let mut wire = server.wire(transport).await;
        let answer = ask(&mut *wire, sized(1000)).await;
        assert!(answer["result"]["task"].is_object(), "{transport:?}: {answer}");
        wire.send(sized(1001)).await;
        let refused = soon(wire.next()).await.expect("an error").payload;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("longer than 1000 bytes"), "{transport:?}: {refused}");
        assert!(soon(wire.next()).await.is_none(), "{transport:?}");
    }
}

#[tokio::test]
async fn a_websocket_message_of_a_gibibyte_is_refused_when_it_is_announced() {
    let mut server = impatient(|_| {}).await;
    let mut socket = server.websocket("/ws", &[]).await;
    let mut header = vec![0x82, 0xff];
    header.extend_from_slice(&(1u64 << 30).to_be_bytes());
    header.extend_from_slice(&[1, 2, 3, 4]);
    socket.get_mut().write_all(&header).await.unwrap();
    let Some(Ok(Message::Text(text))) = soon(socket.next()).await else { panic!("an error comes back") };
    let error: Value = serde_json::from_str(&text).unwrap();
    let message = error["payload"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("longer than"), "{error}");
    assert_eq!(error["final"], true);
    still_answers(&mut server).await;
}

#[tokio::test]
async fn an_envelope_of_a_gibibyte_is_refused_when_it_is_announced() {
    let mut server = everywhere(player()).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/iac_code.a2a.transports.proto.A2AJsonRpc/Send", server.address);
    // The body stays open: only the announced length can be the reason.
    let announced = futures::stream::iter([Ok::<_, std::io::Error>(vec![0, 0x40, 0, 0, 0, b'{'])]);
    let body = reqwest::Body::wrap_stream(announced.chain(futures::stream::pending()));
    let request = client.post(url).header("content-type", "application/grpc").header("te", "trailers");
    let response = soon(request.body(body).send()).await.unwrap();
    let status = response.headers().get("grpc-status").expect("a status").to_str().unwrap().to_owned();
    assert_eq!(status, "8", "{response:?}");
    still_answers(&mut server).await;
}

/// Writes a lot at once, or waits to be canceled.
async fn flood(turn: Turn) -> AgentResult {
    let mut answer = turn.artifact("a lot").stream();
    for _ in 0..64 {
        answer.chunk("x".repeat(64 * 1024)).await?;
    }
    answer.last("that is all").await?;
    turn.complete().await
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_neither_the_agent_nor_other_connections() {
    for transport in [Transport::Unix, Transport::Lines, Transport::WebSocket] {
        let mut server = everywhere(Server::new(agent_fn(flood))).await;
        let mut stopped = server.wire(transport).await;
        // Two streams on one connection that is not read.
        for id in ["one", "two"] {
            stopped.send(request(id, "SendStreamingMessage", send("go"))).await;
        }
        let mut other = server.wire(Transport::Http).await;
        loop {
            let listed =
                ask(&mut *other, request("list", "ListTasks", json!({"status": "TASK_STATE_COMPLETED"})))
                    .await;
            if listed["result"]["totalSize"] == 2 {
                break;
            }
            tokio::task::yield_now().await;
        }
        // What was not read is there for the reader when it goes on.
        let (mut ended, mut bytes) = (0, 0);
        while ended < 2 {
            let got = soon(stopped.next()).await.expect("the connection stays open");
            ended += usize::from(got.last);
            bytes += got.payload["result"]["artifactUpdate"]["artifact"]["parts"][0]["text"]
                .as_str()
                .map_or(0, str::len);
        }
        assert!(bytes >= 2 * 64 * 64 * 1024, "{transport:?}: {bytes}");
    }
}

#[tokio::test]
async fn closing_a_connection_never_cancels_a_task() {
    for transport in [Transport::Unix, Transport::WebSocket, Transport::Envelope] {
        let mut server = everywhere(player()).await;
        let mut wire = server.wire(transport).await;
        wire.send(request("turn", "SendStreamingMessage", send("wait"))).await;
        let task = soon(wire.next()).await.unwrap().payload["result"]["task"]["id"].clone();
        drop(wire);
        let mut wire = server.wire(transport).await;
        let found = ask(&mut *wire, request("get", "GetTask", json!({"id": task}))).await;
        let state = found["result"]["status"]["state"].as_str().unwrap();
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state), "{transport:?}: {found}");
        let canceled = ask(&mut *wire, request("cancel", "CancelTask", json!({"id": task}))).await;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{transport:?}");
    }
}

#[tokio::test]
async fn one_connection_has_as_many_requests_at_once_as_it_may_and_no_more() {
    for transport in [Transport::Unix, Transport::WebSocket] {
        let mut server = everywhere(player().options(|options| options.max_streams_per_connection = 2)).await;
        let mut wire = server.wire(transport).await;
        for id in ["one", "two"] {
            wire.send(request(id, "SendMessage", send("wait"))).await;
        }
        wire.send(request("three", "SendMessage", send("hello"))).await;
        let refused = soon(wire.next()).await.unwrap().payload;
        assert_eq!(refused["id"], "three", "{transport:?}: {refused}");
        assert!(
            refused["error"]["message"].as_str().unwrap().contains("at most 2 concurrent requests"),
            "{refused}"
        );
        let mut other = server.wire(transport).await;
        let answer = ask(&mut *other, request("1", "SendMessage", send("hello"))).await;
        assert!(answer["result"]["task"].is_object(), "{transport:?}: {answer}");
    }
}

#[tokio::test]
async fn what_was_received_before_the_end_of_the_input_is_answered_and_then_the_server_ends() {
    let mut server = everywhere(player()).await;
    let mut stream = server.take_stream();
    let request = request("last", "SendMessage", send("hello"));
    // The last line has no line break.
    stream.write_all(request.to_string().as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert!(answer["result"]["task"].is_object(), "{answer}");
    server.stopped().await;
    assert!(!server.socket.exists(), "all listeners are closed");
}

#[tokio::test]
async fn a_client_that_is_gone_gives_back_what_its_stream_used() {
    for transport in [Transport::Unix, Transport::WebSocket] {
        let mut server = everywhere(player().options(|options| options.max_requests = 1)).await;
        let mut wire = server.wire(transport).await;
        wire.send(request("turn", "SendStreamingMessage", send("wait"))).await;
        soon(wire.next()).await.expect("the stream has begun");
        let mut other = server.wire(Transport::Http).await;
        let refused = ask(&mut *other, request("1", "ListTasks", json!({}))).await;
        assert!(refused["error"].is_object(), "{transport:?}: a stream counts as a request: {refused}");
        // Gone without a word, while its task waits.
        drop(wire);
        soon(async {
            while ask(&mut *other, request("1", "ListTasks", json!({}))).await["error"].is_object() {}
        })
        .await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_has_only_stopped_sending_gets_the_rest_of_its_stream() {
    let mut server = everywhere(player()).await;
    let mut stream = UnixStream::connect(&server.socket).await.unwrap();
    let turn = request("turn", "SendStreamingMessage", send("wait"));
    stream.write_all(format!("{turn}\n").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let first: Value = serde_json::from_str(&soon(lines.next_line()).await.unwrap().unwrap()).unwrap();
    let task = first["result"]["task"]["id"].clone();
    let mut other = server.wire(Transport::Http).await;
    ask(&mut *other, request("cancel", "CancelTask", json!({"id": task}))).await;
    let mut last = String::new();
    while let Some(line) = soon(lines.next_line()).await.unwrap() {
        last = line;
    }
    assert!(last.contains(r#""final":true"#), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_over_lines_ends_with_the_input_of_its_client() {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let agent = agent_fn(|turn: Turn| async move { turn.ask("which one?").await });
    let listening = Server::new(agent).lines(theirs).listen().await.unwrap();
    let serving = tokio::spawn(listening.run_until(std::future::pending()));
    let (reader, mut writer) = tokio::io::split(ours);
    let mut answers = BufReader::new(reader).lines();
    let ask = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string() + "\n"
    };
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    writer.write_all(ask("SendMessage", json!({"message": message})).as_bytes()).await.unwrap();
    let sent: Value = serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
    let id = &sent["result"]["task"]["id"];
    writer.write_all(ask("SubscribeToTask", json!({"id": id})).as_bytes()).await.unwrap();
    let first = answers.next_line().await.unwrap().unwrap();
    assert!(first.contains("TASK_STATE_INPUT_REQUIRED"), "{first}");
    // The task waits for an answer, so the stream would never end.
    writer.shutdown().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), serving).await;
    ended.expect("the server ends with its client").unwrap().unwrap();
}
