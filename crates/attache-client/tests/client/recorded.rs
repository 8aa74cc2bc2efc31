//! Streams of frameworks and SDKs, as they were recorded (`recorded/*.json`): the answer is read from each.

use attache_protocol::TaskState;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Fake, Reaction, STREAM, connect, json as respond};

const ANSWER: &str = "turn 1: You said: hi you";

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    protocol_version: String,
    events: Vec<Value>,
}

fn recorded(text: &str) -> Recorded {
    serde_json::from_str(text).unwrap()
}

impl Recorded {
    /// A server that answers every stream like this.
    async fn serve(self) -> Fake {
        Fake::server(move |asked| {
            let url = format!("http://{}/rpc", asked.header("host").unwrap());
            if asked.is_for_card() {
                // Cards of the SDK for Java have no version at an interface, and an empty tenant.
                let interface = json!({"url": url, "protocolBinding": "JSONRPC", "tenant": ""});
                let mut card = json!({"name": "Echo", "capabilities": {"streaming": true}});
                if self.protocol_version == "1.0" {
                    card["supportedInterfaces"] = json!([interface]);
                } else {
                    card["protocolVersion"] = json!(self.protocol_version);
                    card["preferredTransport"] = json!("JSONRPC");
                    card["url"] = json!(url);
                }
                return respond(200, &card);
            }
            let mut out = STREAM.to_vec();
            for event in &self.events {
                let response = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": event});
                // LangGraph and the SDK for Java name the type of each event.
                out.extend_from_slice(format!("event: message\ndata: {response}\n\n").as_bytes());
            }
            Reaction::Bytes(out)
        })
        .await
    }
}

#[tokio::test]
async fn the_artifact_of_a_recorded_stream_is_the_answer() {
    for text in [
        include_str!("recorded/adk-2.13.0.json"),
        include_str!("recorded/adk-js-2.0.0.json"),
        include_str!("recorded/strands-1.62.0.json"),
        include_str!("recorded/crewai-1.15.30.json"),
        include_str!("recorded/a2a-java.json"),
    ] {
        let fake = recorded(text).serve().await;
        let texts = connect(&fake.url).await.stream("hi you").await.unwrap().texts().await.unwrap();
        assert_eq!((texts.all().trim_end(), texts.state()), (ANSWER, Some(TaskState::Completed)), "{text}");
    }
}

#[tokio::test]
async fn a_recorded_stream_without_artifacts_has_the_answer_in_its_last_message() {
    for text in [
        include_str!("recorded/agent-framework-1.0.0b261022.json"),
        include_str!("recorded/beeai-0.1.85.json"),
    ] {
        let fake = recorded(text).serve().await;
        let texts = connect(&fake.url).await.stream("hi you").await.unwrap().texts().await.unwrap();
        assert_eq!(texts.last_message(), Some(ANSWER), "{text}");
    }
}

#[tokio::test]
async fn every_event_of_a_recorded_stream_with_several_messages_is_read() {
    let recorded = recorded(include_str!("recorded/agno-3.1.10.json"));
    let fake = recorded.clone().serve().await;
    let mut events = connect(&fake.url).await.stream("hi you").await.unwrap();
    let seen = crate::support::rest(&mut events).await.unwrap();
    let pieces: Vec<String> = crate::support::gists(&seen)
        .iter()
        .filter_map(|gist| gist.strip_prefix("message ").map(str::to_owned))
        .collect();
    assert_eq!(pieces.concat(), ANSWER);
}
