//! WebSocket connections: how they are opened, who may open them, and how they are kept.

use std::time::Duration;

use attache_server::auth::KnownCallers;
use attache_server::{Cors, Server};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Everywhere, WebSocketWire, ask, everywhere, request};
use crate::support::pki::{Authority, Files};
use crate::support::{Player, player, send, serve_tls, soon};

const TOKEN: &str = "t0ken-of-ann-for-the-tests";

fn guarded() -> Server<Player> {
    player().authenticate(KnownCallers::new().bearer("ann", TOKEN))
}

async fn answers(server: &Everywhere, path: &str, headers: &[(&'static str, &str)]) -> bool {
    let mut wire = WebSocketWire(server.websocket(path, headers).await);
    let answer = ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
    answer["result"]["task"].is_object()
}

#[tokio::test]
async fn it_answers_at_its_own_path_and_at_those_of_json_rpc() {
    let server = everywhere(player()).await;
    for path in ["/ws", "/ws/", "/a2a", "/"] {
        assert!(answers(&server, path, &[]).await, "{path}");
    }
    let refused = server.try_websocket("/v1/tasks", &[]).await.err().unwrap();
    assert_ne!(refused.0, 101);
    let other =
        everywhere(player().options(|options| options.paths.websocket = Some("/socket".into()))).await;
    assert!(answers(&other, "/socket", &[]).await);
    assert_eq!(other.try_websocket("/ws", &[]).await.err().unwrap().0, 404);
    let off = everywhere(player().options(|options| options.paths.websocket = None)).await;
    assert_eq!(off.try_websocket("/a2a", &[]).await.err().unwrap().0, 405);
}

#[tokio::test]
async fn a_path_of_json_rpc_and_websocket_answers_both() {
    let server = everywhere(player().options(|options| options.paths.websocket = Some("/a2a".into()))).await;
    assert!(answers(&server, "/a2a", &[]).await);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("hello")});
    let request = reqwest::Client::new().post(format!("http://{}/a2a", server.address)).json(&body);
    let response = request.header("A2A-Version", "1.0").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().contains("\"task\""));
}

#[tokio::test]
async fn a_request_that_opens_no_connection_is_told_how() {
    let server = everywhere(player()).await;
    let response = reqwest::get(format!("http://{}/ws", server.address)).await.unwrap();
    assert_eq!(response.status(), 426);
    assert_eq!(response.headers()["upgrade"], "websocket");
    assert!(response.text().await.unwrap().contains("Connection: Upgrade"));
}

#[tokio::test]
async fn a_named_agent_has_a_path_of_its_own() {
    use attache_core::{Turn, agent_fn};
    use attache_server::NamedAgent;
    let loud = agent_fn(|turn: Turn| async move { turn.reply(turn.text().to_uppercase()).await });
    let server = everywhere(player().agent("loud", NamedAgent::new(loud)).unwrap()).await;
    let mut wire = WebSocketWire(server.websocket("/agents/loud/ws", &[]).await);
    let answer = ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "HELLO");
}

#[tokio::test]
async fn a_page_of_another_origin_opens_no_connection_unless_its_origin_is_listed() {
    let server = everywhere(player()).await;
    let own = format!("http://{}", server.address);
    assert!(answers(&server, "/ws", &[("origin", &own)]).await);
    for path in ["/ws", "/a2a"] {
        for headers in
            [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let (status, text) = server.try_websocket(path, &[headers]).await.err().unwrap();
            assert_eq!(status, 403, "{path} {headers:?}");
            assert!(text.contains("cors.origins"), "{text}");
        }
    }
    let rebound = server.try_websocket("/ws", &[("host", "evil.example")]).await.err().unwrap();
    assert_eq!(rebound.0, 403);
    let origins = vec!["https://app.example".parse().unwrap()];
    let open = everywhere(player().options(|options| options.cors = Cors { origins })).await;
    assert!(answers(&open, "/ws", &[("origin", "https://app.example")]).await);
    assert!(open.try_websocket("/ws", &[("origin", "https://evil.example")]).await.is_err());
}

#[tokio::test]
async fn credentials_are_in_a_header_in_the_first_message_or_in_a_subprotocol() {
    let server = everywhere(guarded()).await;
    let bearer = format!("Bearer {TOKEN}");
    assert!(answers(&server, "/ws", &[("authorization", &bearer)]).await);
    let (status, _) = server.try_websocket("/ws", &[("authorization", "Bearer wrong")]).await.err().unwrap();
    assert_eq!(status, 401);
    let offered = format!("a2a, a2a.header.authorization.{}", URL_SAFE_NO_PAD.encode(&bearer));
    assert!(answers(&server, "/ws", &[("sec-websocket-protocol", &offered)]).await);
    let wrong = format!("a2a, a2a.header.authorization.{}", URL_SAFE_NO_PAD.encode("Bearer wrong"));
    let (status, _) = server.try_websocket("/ws", &[("sec-websocket-protocol", &wrong)]).await.err().unwrap();
    assert_eq!(status, 401);
    let mut wire = WebSocketWire(server.websocket("/ws", &[]).await);
    let ready = ask(&mut wire, json!({"headers": {"Authorization": bearer}})).await;
    assert_eq!(ready["result"], json!({}), "{ready}");
    let answer = ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
    assert!(answer["result"]["task"].is_object(), "{answer}");
}

#[tokio::test]
async fn wrong_credentials_in_the_first_message_end_the_connection() {
    use super::Wire;
    let server = everywhere(guarded()).await;
    let mut wire = WebSocketWire(server.websocket("/ws", &[]).await);
    let refused = ask(&mut wire, json!({"headers": {"Authorization": "Bearer wrong"}})).await;
    assert_eq!(refused["error"]["code"], -32050, "{refused}");
    assert!(soon(wire.next()).await.is_none());
}

#[tokio::test]
async fn a_connection_without_credentials_gets_an_error_for_each_request() {
    let server = everywhere(guarded()).await;
    let mut wire = WebSocketWire(server.websocket("/ws", &[]).await);
    for id in ["1", "2"] {
        let refused = ask(&mut wire, request(id, "SendMessage", send("hello"))).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(id), &json!(-32050)), "{refused}");
    }
    let card = ask(&mut wire, request("card", "GetAgentCard", json!({}))).await;
    assert_eq!(card["result"]["name"], "Player", "the card is public");
}

#[tokio::test]
async fn pings_are_answered_and_a_client_that_answers_pings_stays_connected() {
    let server = player().options(|options| {
        options.header_timeout = Duration::from_millis(200);
        options.heartbeat = Duration::from_millis(50);
    });
    let server = everywhere(server).await;
    let mut socket = server.websocket("/ws", &[]).await;
    socket.send(Message::Ping("are you there?".into())).await.unwrap();
    let (mut pongs, mut pings) = (0, 0);
    // Twenty heartbeats are five times as long as an idle connection may last.
    while pings < 20 {
        match soon(socket.next()).await.expect("it stays open").unwrap() {
            Message::Ping(_) => pings += 1,
            Message::Pong(text) => {
                assert_eq!(&text[..], b"are you there?");
                pongs += 1;
            }
            other @ (Message::Text(_) | Message::Binary(_) | Message::Close(_) | Message::Frame(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(pongs, 1);
    let mut wire = WebSocketWire(socket);
    let answer = ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
    assert!(answer["result"]["task"].is_object());
}

#[tokio::test]
async fn the_rate_limit_of_a_caller_applies_to_its_messages() {
    let server = everywhere(guarded().options(|options| {
        options.limits.requests_per_second = std::num::NonZeroU32::new(1);
        options.limits.burst = std::num::NonZeroU32::new(2).unwrap();
    }))
    .await;
    let mut wire = WebSocketWire(server.websocket("/ws", &[]).await);
    let mut asking = request("1", "ListTasks", json!({}));
    asking["headers"]["Authorization"] = json!(format!("Bearer {TOKEN}"));
    let mut refused = 0;
    for _ in 0..6 {
        refused += usize::from(ask(&mut wire, asking.clone()).await["error"].is_object());
    }
    assert!(refused >= 3, "{refused}");
}

#[tokio::test]
async fn open_connections_are_closed_when_the_server_stops() {
    use super::Wire;
    let server = everywhere(player()).await;
    let mut wire = WebSocketWire(server.websocket("/ws", &[]).await);
    ask(&mut wire, request("1", "SendMessage", send("hello"))).await;
    server.stop().await;
    assert!(soon(wire.next()).await.is_none());
}

#[tokio::test]
async fn it_is_there_over_tls() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server("first"));
    let client = authority.trusting().http1_only().build().unwrap();
    let server = serve_tls(player().tls(files.tls()), client).await;
    let request = server
        .http(reqwest::Method::GET, "/ws")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let response = soon(request.send()).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let upgraded = soon(response.upgrade()).await.unwrap();
    let mut wire = WebSocketWire(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await);
    let answer = ask(&mut wire, request_of(send("hello"))).await;
    assert!(answer["result"]["task"].is_object(), "{answer}");
}

#[tokio::test]
async fn it_is_there_in_an_application_around_the_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = player().into_router(&format!("http://{address}")).unwrap();
    let served = tokio::spawn(async move { axum::serve(listener, app).await });
    let (socket, _) = soon(tokio_tungstenite::connect_async(format!("ws://{address}/ws"))).await.unwrap();
    let mut wire = WebSocketWire(socket);
    let answer = ask(&mut wire, request_of(send("hello"))).await;
    assert!(answer["result"]["task"].is_object(), "{answer}");
    served.abort();
}

fn request_of(params: serde_json::Value) -> serde_json::Value {
    request("1", "SendMessage", params)
}

#[tokio::test]
async fn an_idempotency_key_is_never_that_of_a_whole_connection() {
    let server = everywhere(player()).await;
    let offered = format!("a2a, a2a.header.idempotency-key.{}", URL_SAFE_NO_PAD.encode("k"));
    let mut wire = WebSocketWire(server.websocket("/ws", &[("sec-websocket-protocol", &offered)]).await);
    ask(&mut wire, json!({"headers": {"Idempotency-Key": "k", "Last-Event-ID": "7"}})).await;
    let mut tasks = Vec::new();
    for text in ["hello", "good day"] {
        let answer = ask(&mut wire, request(text, "SendMessage", send(text))).await;
        tasks.push(answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    assert_ne!(tasks[0], tasks[1]);
}
