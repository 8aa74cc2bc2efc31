//! A server that forwards requests to another agent.

use attache_core::BoxFuture;
use attache_protocol::Error;
use attache_server::{Forward, JsonRpcFrame, JsonRpcReply};
use futures::StreamExt;
use futures::stream;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{Transport, ask, everywhere, request};
use crate::support::{player, send, soon};

/// Answers a stream with one event and no end, unless it has a message with the text `no`, and everything else with an empty result.
struct Endless;

impl Forward for Endless {
    fn forward<'a>(
        &'a self,
        request: &'a [u8],
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<JsonRpcReply, Error>> {
        let request: Value = serde_json::from_slice(request).unwrap();
        // The members are in another order than those of this server.
        let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}}).to_string();
        let is_refused = request["params"].to_string().contains("\"no\"");
        Box::pin(async move {
            Ok(match request["method"].as_str() {
                Some("SendStreamingMessage") if is_refused => {
                    let error = json!({"code": -32000, "message": "no"});
                    let refused = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                    JsonRpcReply::One(refused.to_string().into())
                }
                Some("SendStreamingMessage") => {
                    let event = Some("7".to_owned());
                    let first = Ok(JsonRpcFrame { json: response.into(), event, is_error: false });
                    JsonRpcReply::Stream(stream::iter([first]).chain(stream::pending()).boxed())
                }
                _ => JsonRpcReply::One(response.into()),
            })
        })
    }
}

#[tokio::test]
async fn a_forwarded_stream_counts_as_a_stream_and_not_as_a_request() {
    for transport in
        [Transport::Http, Transport::Unix, Transport::Lines, Transport::WebSocket, Transport::Envelope]
    {
        let server = player().forward(Endless).options(|options| {
            options.limits.limit_loopback = true;
            options.limits.requests_per_caller = std::num::NonZeroUsize::new(1);
            options.limits.streams_per_caller = std::num::NonZeroUsize::new(1);
            options.limits.queue_timeout = std::time::Duration::ZERO;
        });
        let mut server = everywhere(server).await;
        let mut wire = server.wire(transport).await;
        wire.send(request("turn", "SendStreamingMessage", send("hello"))).await;
        let event = soon(wire.next()).await.unwrap();
        assert_eq!((&event.payload["id"], event.last), (&json!("turn"), false), "{transport:?}: {event:?}");
        let answer = ask(&mut *wire, request("get", "GetTask", json!({"id": "t"}))).await;
        assert_eq!(answer["result"], json!({}), "{transport:?}: {answer}");
        let second = ask(&mut *wire, request("second", "SendStreamingMessage", send("hello"))).await;
        let refused = second["error"]["message"].as_str().unwrap_or_default();
        assert!(refused.contains("at most 1 concurrent streams"), "{transport:?}: {second}");
    }
}

#[tokio::test]
async fn a_stream_that_the_other_agent_refuses_ends_with_its_error() {
    let server = everywhere(player().forward(Endless)).await;
    let mut lines = BufReader::new(server.connect_unix().await);
    let turn = request("turn", "SendStreamingMessage", send("no"));
    lines.get_mut().write_all(format!("{turn}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    soon(lines.read_line(&mut line)).await.unwrap();
    let refused: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&refused["error"]["message"], &refused["final"]), (&json!("no"), &json!(true)));
}
