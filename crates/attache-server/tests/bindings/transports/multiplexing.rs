//! Several requests on one connection at the same time, and streams that are resumed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Transport, Wire, ask, everywhere, exchange, request};
use crate::support::{player, send, soon, stage};

/// Reads until the first frame with this id, and gives it.
async fn first(wire: &mut dyn Wire, id: &str) -> Value {
    loop {
        let got = soon(wire.next()).await.expect("the connection stays open");
        if got.payload["id"] == id {
            return got.payload;
        }
    }
}

#[tokio::test]
async fn a_task_is_canceled_on_the_connection_that_waits_for_it() {
    for transport in Transport::FRAMED {
        let mut server = everywhere(player()).await;
        let mut wire = server.wire(transport).await;
        wire.send(request("turn", "SendStreamingMessage", send("wait"))).await;
        let task = first(&mut *wire, "turn").await["result"]["task"]["id"].clone();
        wire.send(request("look", "SubscribeToTask", json!({"id": task}))).await;
        assert!(first(&mut *wire, "look").await["result"]["task"].is_object());
        wire.send(request("cancel", "CancelTask", json!({"id": task}))).await;
        let mut ended = BTreeMap::new();
        while ended.len() < 3 {
            let got = soon(wire.next()).await.expect("the connection stays open");
            if got.last {
                ended.insert(got.payload["id"].as_str().unwrap().to_owned(), got);
            }
        }
        assert_eq!(
            ended["cancel"].payload["result"]["status"]["state"], "TASK_STATE_CANCELED",
            "{transport:?}"
        );
        assert!(ended["turn"].is_end() && ended["look"].is_end(), "{transport:?}");
    }
}

#[tokio::test]
async fn a_stream_is_resumed_after_the_event_that_the_client_has_seen_also_over_another_transport() {
    for (seen_over, resumed_over) in [
        (Transport::Unix, Transport::Lines),
        (Transport::Unix, Transport::WebSocket),
        (Transport::WebSocket, Transport::Envelope),
        (Transport::Envelope, Transport::Unix),
    ] {
        let (agent, mut stage) = stage();
        let mut server = everywhere(attache_server::Server::new(agent)).await;
        let mut wire = server.wire(seen_over).await;
        wire.send(request("turn", "SendStreamingMessage", send("go"))).await;
        let act = stage.turn().await;
        let next = async |wire: &mut dyn Wire| {
            let payload = soon(wire.next()).await.unwrap().payload;
            (payload["eventId"].as_u64().expect("every event has its number"), payload["result"].clone())
        };
        act.working("first").await;
        act.working("second").await;
        let mut seen = 0;
        loop {
            let (number, event) = next(&mut *wire).await;
            assert!(number > seen, "{number} after {seen}");
            seen = number;
            if event.to_string().contains("second") {
                break;
            }
        }
        // The client is gone. The task goes on.
        drop(wire);
        act.text("a", "while it was away").await;
        let mut wire = server.wire(resumed_over).await;
        let mut resume = request("again", "SubscribeToTask", json!({"id": act.task_id()}));
        resume["headers"]["Last-Event-ID"] = json!(seen.to_string());
        wire.send(resume).await;
        let (number, event) = next(&mut *wire).await;
        assert!(number > seen, "{number} after {seen}");
        assert_eq!(event["artifactUpdate"]["artifact"]["parts"][0]["text"], "while it was away", "{event}");
        act.complete().await;
        drop(act);
        let mut last = soon(wire.next()).await.unwrap();
        while !last.last {
            last = soon(wire.next()).await.unwrap();
        }
        assert!(last.is_end());
    }
}

#[tokio::test]
async fn named_agents_answer_on_every_transport() {
    use attache_core::{Turn, agent_fn};
    use attache_server::NamedAgent;
    for transport in Transport::FRAMED {
        let loud = agent_fn(|turn: Turn| async move { turn.reply(turn.text().to_uppercase()).await });
        let mut server = everywhere(player().agent("loud", NamedAgent::new(loud)).unwrap()).await;
        let mut wire = server.wire(transport).await;
        let mut to = request("1", "SendMessage", send("hello"));
        to["headers"]["agent"] = json!("loud");
        let answer = ask(&mut *wire, to.clone()).await;
        assert_eq!(answer["result"]["message"]["parts"][0]["text"], "HELLO", "{transport:?}");
        let answer = ask(&mut *wire, request("2", "SendMessage", send("hello"))).await;
        assert!(answer["result"]["task"].is_object(), "{transport:?}: {answer}");
        if transport != Transport::Envelope {
            to["headers"]["agent"] = json!("quiet");
            let answer = ask(&mut *wire, to).await;
            assert!(answer["error"]["message"].as_str().unwrap().contains("no agent `quiet`"), "{answer}");
        }
    }
}

#[tokio::test]
async fn the_card_is_a_method_where_there_are_no_paths() {
    for transport in Transport::FRAMED {
        let mut server = everywhere(player()).await;
        let mut wire = server.wire(transport).await;
        let card = ask(&mut *wire, request("card", "GetAgentCard", json!({}))).await["result"].clone();
        assert_eq!(card["name"], "Player", "{transport:?}: {card}");
        let bindings: Vec<_> = card["supportedInterfaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|interface| interface["protocolBinding"].as_str().unwrap().to_owned())
            .collect();
        let remote = ["JSONRPC", "HTTP+JSON", "GRPC", "websocket", "grpc-jsonrpc"];
        let local: &[&str] = if transport == Transport::Envelope { &[] } else { &["unix"] };
        assert_eq!(bindings, [&remote[..], local].concat(), "{transport:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_not_json_rpc_is_an_error_and_harms_no_other() {
    for transport in Transport::FRAMED {
        let mut server = everywhere(player()).await;
        let mut wire = server.wire(transport).await;
        for (bad, code) in [
            (json!([1]), -32600),
            (json!({"id": 1}), -32600),
            (json!({"jsonrpc": "2.0", "id": 1, "method": "Nonsense"}), -32601),
            (json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {}}), -32602),
        ] {
            let frames = exchange(&mut *wire, bad.clone()).await;
            assert_eq!(frames[0]["error"]["code"], code, "{transport:?}: {bad} {frames:?}");
        }
        let answer = ask(&mut *wire, request("1", "SendMessage", send("hello"))).await;
        assert!(answer["result"]["task"].is_object(), "{transport:?}: {answer}");
    }
}

#[tokio::test]
async fn a_stream_that_its_client_does_not_want_any_more_ends_and_its_task_goes_on() {
    for transport in [Transport::Unix, Transport::Lines, Transport::WebSocket] {
        let mut server = everywhere(player()).await;
        let mut wire = server.wire(transport).await;
        wire.send(request("turn", "SendStreamingMessage", send("wait"))).await;
        let task = first(&mut *wire, "turn").await["result"]["task"]["id"].clone();
        let cancel = |id: &str| json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}});
        wire.send(cancel("another")).await;
        wire.send(cancel("turn")).await;
        let mut last = soon(wire.next()).await.expect("the connection stays open");
        while !last.last {
            last = soon(wire.next()).await.expect("the connection stays open");
        }
        assert!(last.is_end() && last.payload["id"] == "turn", "{transport:?}: {last:?}");
        let found = ask(&mut *wire, request("get", "GetTask", json!({"id": task}))).await;
        assert_eq!(found["result"]["status"]["state"], "TASK_STATE_WORKING", "{transport:?}: {found}");
    }
}
