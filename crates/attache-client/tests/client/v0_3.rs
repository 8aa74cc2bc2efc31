//! A server of 0.3 that follows its specification exactly.

use attache_client::{Client, Outgoing, Reply};
use attache_protocol::{ErrorKind, ListTasksRequest, Part, TaskState};
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::support::{
    Fake, Reaction, ReceivedRequest, STREAM, gists, json as respond, quick, rest, rpc_result, soon, sse,
};

/// The card path of servers of 0.2, which those of 0.3 also serve.
async fn server(answer: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static) -> (Fake, Client) {
    let fake = Fake::server(move |asked| match asked.path() {
        "/.well-known/agent-card.json" => respond(404, &json!({"detail": "Not Found"})),
        "/.well-known/agent.json" => {
            let url = format!("http://{}/", asked.header("host").unwrap());
            let card = json!({
                "name": "Old", "description": "Of its time", "version": "1", "protocolVersion": "0.3.0", "url": url,
                "preferredTransport": "JSONRPC", "additionalInterfaces": [{"url": url, "transport": "JSONRPC"}],
                "capabilities": {"streaming": true}, "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
                "supportsAuthenticatedExtendedCard": true,
            });
            respond(200, &card)
        }
        _ => answer(asked),
    })
    .await;
    let options = quick().extensions(vec!["urn:a".to_owned()]);
    let agent = soon(Client::connect_with(&fake.url, options)).await.unwrap();
    (fake, agent)
}

fn task(state: &str) -> Value {
    json!({
        "kind": "task", "id": "T", "contextId": "C", "status": {"state": state, "timestamp": "2025-08-01T10:00:00Z"},
        "artifacts": [{"artifactId": "A", "parts": [
            {"kind": "text", "text": "leeks"},
            {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}},
            {"kind": "data", "data": {"k": 1}},
        ]}],
        "history": [{"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}],
    })
}

fn answers(asked: &ReceivedRequest) -> Reaction {
    let webhook = json!({"taskId": "T", "pushNotificationConfig": {"id": "W", "url": "https://h.example",
        "authentication": {"schemes": ["Bearer"], "credentials": "s3"}}});
    let result = match asked.method() {
        "message/send" if asked.body["params"]["message"]["parts"][0]["text"] == "message" => {
            json!({"kind": "message", "messageId": "m2", "role": "agent", "parts": [{"kind": "text", "text": "hello"}]})
        }
        "message/send" | "tasks/get" => task("completed"),
        "tasks/cancel" => task("canceled"),
        "tasks/pushNotificationConfig/set" | "tasks/pushNotificationConfig/get" => webhook,
        "tasks/pushNotificationConfig/list" => json!([webhook]),
        "tasks/pushNotificationConfig/delete" => Value::Null,
        "agent/getAuthenticatedExtendedCard" => {
            json!({"name": "Old friend", "url": "http://x/", "protocolVersion": "0.3.0"})
        }
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return respond(200, &json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error}));
        }
    };
    rpc_result(asked, &result)
}

#[tokio::test]
async fn every_operation_is_encoded_and_decoded_as_0_3_requires() {
    let (fake, agent) = server(answers).await;
    let parts = vec![Part::text("hi"), Part::raw("hi").filename("a.txt"), Part::data(&[1]).unwrap()];
    let Reply::Task(task) = agent.send(Outgoing::new(parts).return_immediately()).await.unwrap() else {
        panic!("a task")
    };
    assert_eq!((task.id.as_str(), task.status.state), ("T", TaskState::Completed));
    assert_eq!(task.artifacts[0].parts[1], Part::raw("hi").filename("a.txt").media_type("text/plain"));
    assert_eq!((task.artifacts[0].text().as_str(), task.history[0].text().as_str()), ("leeks", "hi"));
    let Reply::Message(message) = agent.send("message").await.unwrap() else { panic!("a message") };
    assert_eq!(message.text(), "hello");
    assert_eq!(agent.get("T").await.unwrap(), task);
    assert_eq!(agent.cancel("T").await.unwrap().status.state, TaskState::Canceled);
    let webhook = agent
        .create_webhook("T", serde_json::from_value(json!({"url": "https://h.example"})).unwrap())
        .await
        .unwrap();
    assert_eq!(
        (webhook.id.as_deref(), webhook.authentication.as_ref().unwrap().scheme.as_str()),
        (Some("W"), "Bearer")
    );
    assert_eq!(agent.webhook("T", "W").await.unwrap(), webhook);
    let webhooks: Vec<_> = agent.webhooks("T").try_collect().await.unwrap();
    assert_eq!(webhooks, [webhook]);
    agent.delete_webhook("T", "W").await.unwrap();
    assert_eq!(agent.extended_card().await.unwrap().name, "Old friend");
    let error = agent.list(ListTasksRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::MethodNotFound), "few had it");

    let calls = fake.calls();
    for call in &calls {
        let headers = ["a2a-version", "a2a-extensions", "x-a2a-extensions"].map(|name| call.header(name));
        assert_eq!(headers, [Some("0.3"), Some("urn:a"), Some("urn:a")]);
    }
    let lines = calls.iter().map(|call| {
        let mut params = call.body["params"].clone();
        if let Some(id) = params.pointer_mut("/message/messageId") {
            *id = json!("…");
        }
        format!("{} {params}", call.method())
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

fn status(state: &str, is_final: bool) -> Value {
    json!({"kind": "status-update", "taskId": "T", "contextId": "C", "status": {"state": state}, "final": is_final})
}

fn piece(text: &str, append: bool) -> Value {
    let artifact = json!({"artifactId": "A", "parts": [{"kind": "text", "text": text}]});
    json!({"kind": "artifact-update", "taskId": "T", "contextId": "C", "artifact": artifact, "append": append, "lastChunk": append})
}

#[tokio::test]
async fn a_stream_may_begin_with_anything_and_ends_with_its_last_event() {
    let (fake, agent) = server(|asked| {
        let events =
            [status("working", false), piece("on", false), piece("ce", true), status("completed", true)];
        Reaction::Bytes(sse(asked, &events))
    })
    .await;
    let texts = soon(agent.stream("hi").await.unwrap().texts()).await.unwrap();
    assert_eq!((texts.artifact("A"), texts.state()), (Some("once"), Some(TaskState::Completed)));
    assert_eq!(fake.calls()[0].method(), "message/stream");

    let (fake, agent) = server(|asked| Reaction::Bytes(sse(asked, &[status("working", true)]))).await;
    let mut events = agent.stream("hi").await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["status TASK_STATE_WORKING"]);
    assert_eq!(fake.calls().len(), 1, "what the server calls the end is the end");
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_again_or_the_task_is_read() {
    let (fake, agent) = server(|asked| match asked.method() {
        "message/stream" => Reaction::Bytes(sse(asked, &[status("working", false)])),
        "tasks/resubscribe" => Reaction::Bytes(sse(asked, &[status("completed", true)])),
        _ => answers(asked),
    })
    .await;
    let mut events = agent.stream("hi").await.unwrap();
    let all = rest(&mut events).await.unwrap();
    assert_eq!(gists(&all), ["status TASK_STATE_WORKING", "task TASK_STATE_COMPLETED"]);
    assert_eq!(crate::support::task(&all[1]).artifacts.len(), 1, "what was missed is in the task");
    let methods: Vec<_> = fake.calls().iter().map(|call| call.method().to_owned()).collect();
    assert_eq!(methods, ["message/stream", "tasks/resubscribe", "tasks/get"]);
    assert_eq!(fake.calls()[1].body["params"], json!({"id": "T"}));

    for (code, in_stream) in [(-32001, false), (-32602, true), (-32004, true)] {
        let (_fake, agent) = server(move |asked| match asked.method() {
            "message/stream" => Reaction::Bytes(sse(asked, &[status("working", false)])),
            "tasks/resubscribe" => {
                let error = json!({"code": code, "message": "the task has ended"});
                let response = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error});
                if in_stream {
                    return Reaction::Bytes([STREAM, format!("data: {response}\n\n").as_bytes()].concat());
                }
                respond(200, &response)
            }
            _ => answers(asked),
        })
        .await;
        let mut events = agent.stream("hi").await.unwrap();
        assert_eq!(
            gists(&rest(&mut events).await.unwrap()),
            ["status TASK_STATE_WORKING", "task TASK_STATE_COMPLETED"]
        );
    }
}

#[tokio::test]
async fn a_result_of_nothing_may_be_left_out() {
    let (_fake, agent) =
        server(|asked| respond(200, &json!({"jsonrpc": "2.0", "id": asked.body["id"]}))).await;
    agent.delete_webhook("T", "W").await.unwrap();
    assert!(agent.get("T").await.is_err(), "a task is not nothing");
}

#[tokio::test]
async fn what_0_3_cannot_say_is_not_sent() {
    let (fake, agent) = server(answers).await;
    let query = serde_json::from_value(json!({"statusTimestampAfter": "2026-01-02T03:04:05Z"})).unwrap();
    let error = agent.list(query).await.unwrap_err();
    assert!(error.to_string().contains("protocol 0.3 cannot list tasks by their time"), "{error}");
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn invalid_responses_are_reported_as_such() {
    for result in [json!(null), json!([]), json!({}), json!({"kind": "task"}), json!({"task": {}})] {
        let (_fake, agent) = server(move |asked| rpc_result(asked, &result)).await;
        for error in [agent.send("hi").await.unwrap_err(), agent.get("T").await.unwrap_err()] {
            assert!(matches!(error, attache_client::ClientError::Protocol(_)), "{error}");
        }
    }
}
