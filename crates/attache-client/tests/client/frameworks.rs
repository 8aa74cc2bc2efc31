//! Servers of frameworks, which follow the protocol in their own ways: their wire formats, as recorded.

use attache_client::{ClientError, Outgoing, Reply, Texts};
use attache_protocol::{Content, Part, TaskState};
use serde_json::{Value, json};

use crate::support::{
    Fake, Reaction, ReceivedRequest, card_with, connect, gists, json as respond, plain_sse, rest, rpc_result,
    sse,
};

/// A card of 0.3 with one binding.
fn card_0_3(asked: &ReceivedRequest, binding: &str, headers: &str) -> Reaction {
    let url = format!("http://{}/rpc", asked.header("host").unwrap());
    let card = json!({"name": "Fake", "protocolVersion": "0.3.0", "url": url, "preferredTransport": binding,
        "capabilities": {"streaming": true}, "skills": []})
    .to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    Reaction::Bytes(format!("{head}\r\nContent-Length: {}\r\n{headers}\r\n{card}", card.len()).into_bytes())
}

#[tokio::test]
async fn a_task_of_fasta2a_has_times_without_a_zone() {
    let fake = Fake::agent(|asked| {
        let status = json!({"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-17T00:22:05.706878"});
        let artifacts = json!([{"artifactId": "a", "name": "result", "parts": [{"text": "hello"}]}]);
        let task = json!({"id": "t", "contextId": "c", "status": status, "artifacts": artifacts});
        match asked.method() {
            "SendMessage" => rpc_result(asked, &json!({ "task": task })),
            "SendStreamingMessage" => Reaction::Bytes(sse(asked, &[json!({ "task": task })])),
            _ => rpc_result(asked, &task),
        }
    })
    .await;
    let agent = connect(&fake.url).await;
    let Reply::Task(task) = agent.send("hi").await.unwrap() else { panic!("a task") };
    assert_eq!(task.status.timestamp.unwrap().to_string(), "2026-11-17T00:22:05.706878Z");
    assert_eq!(agent.get("t").await.unwrap(), task);
    assert_eq!(agent.stream("hi").await.unwrap().texts().await.unwrap().all(), "hello");
}

/// The stream of `langgraph-api`: only the first event is wrapped.
fn langgraph(more: &[Value]) -> Vec<Value> {
    let part = |text: &str| json!([{"kind": "text", "text": text}]);
    let update = |state: &str, last: bool| {
        json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": last,
            "status": {"state": state, "timestamp": "2026-11-17T00:22:05.706878+00:00"}})
    };
    let first = json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"},
        "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}]}});
    let artifact = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": false,
        "lastChunk": true, "artifact": {"artifactId": "a", "parts": part("the answer")}});
    [vec![first, update("working", false)], more.to_vec(), vec![artifact, update("completed", true)]].concat()
}

#[tokio::test]
async fn each_event_of_langgraph_is_read_by_its_own_shape() {
    let fake = Fake::agent(|asked| Reaction::Bytes(sse(asked, &langgraph(&[])))).await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        [
            "task TASK_STATE_SUBMITTED",
            "status TASK_STATE_WORKING",
            "artifact the answer",
            "status TASK_STATE_COMPLETED"
        ]
    );
    assert!(events.unreadable().is_empty());
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_reported_and_the_stream_goes_on() {
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let fake = Fake::server(move |asked| {
            if asked.is_for_card() {
                return card_with(asked, binding, &json!({}));
            }
            let events = langgraph(&[json!({"usage": {"tokens": 7}}), json!({"kind": "heartbeat"})]);
            Reaction::Bytes(if binding == "JSONRPC" { sse(asked, &events) } else { plain_sse(&events) })
        })
        .await;
        let agent = connect(&fake.url).await;
        let mut events = agent.stream("hi").await.unwrap();
        assert_eq!(rest(&mut events).await.unwrap().len(), 4, "{binding}");
        assert_eq!(events.unreadable().len(), 2, "{binding}: {:?}", events.unreadable());
        let texts = agent.stream("hi").await.unwrap().texts().await.unwrap();
        assert_eq!((texts.all().as_str(), texts.unreadable_events()), ("the answer", 2), "{binding}");
    }
}

#[tokio::test]
async fn a_stream_without_a_readable_event_is_an_error() {
    let fake = Fake::agent(|asked| Reaction::Bytes(sse(asked, &[json!({"usage": {"tokens": 7}})]))).await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    let error = rest(&mut events).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn an_update_without_an_id_is_about_the_task_of_the_stream() {
    let fake = Fake::agent(|asked| {
        let events = [
            json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}),
            json!({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}),
        ];
        Reaction::Bytes(sse(asked, &events))
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    let all = rest(&mut events).await.unwrap();
    assert_eq!(gists(&all), ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]);
}

#[tokio::test]
async fn an_answer_of_the_agent_framework_is_in_the_history() {
    let fake = Fake::agent(|asked| {
        let part = |text: &str| json!([{"text": text}]);
        rpc_result(
            asked,
            &json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "history": [
                {"messageId": "1", "role": "ROLE_USER", "parts": part("hi")},
                {"messageId": "2", "role": "ROLE_AGENT", "parts": part("hello there")},
            ]}}),
        )
    })
    .await;
    let reply = connect(&fake.url).await.send("hi").await.unwrap();
    assert_eq!(Texts::from(&reply).all(), "hello there");
}

#[tokio::test]
async fn a_server_may_answer_in_another_version_than_its_card_states() {
    let fake = Fake::agent(|asked| {
        let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"},
            "artifacts": [{"artifactId": "a", "parts": [{"kind": "file", "file": {"bytes": "aGk="}}]}]});
        match asked.method() {
            "GetTask" => rpc_result(asked, &json!({ "task": task })),
            "ListTasks" => rpc_result(asked, &json!([task])),
            _ => rpc_result(asked, &task),
        }
    })
    .await;
    let agent = connect(&fake.url).await;
    let Reply::Task(task) = agent.send("hi").await.unwrap() else { panic!("a task") };
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts[0].parts[0], Part::raw("hi"));
    assert_eq!(agent.get("t").await.unwrap(), task);
    assert_eq!(agent.list(Default::default()).await.unwrap().tasks, [task]);
}

#[tokio::test]
async fn files_have_the_encoding_of_the_sdk_that_a_server_of_0_3_runs() {
    for (headers, encoded) in [
        ("Server: uvicorn\r\n", "QVA5aWVYUmxjdz09"),
        ("X-Powered-By: Express\r\n", "AP9ieXRlcw=="),
        ("", "AP9ieXRlcw=="),
    ] {
        let fake = Fake::server(move |asked| {
            if asked.is_for_card() {
                return card_0_3(asked, "HTTP+JSON", headers);
            }
            // An echo.
            let parts = asked.body["message"]["content"].clone();
            let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
                "artifacts": [{"artifactId": "a", "parts": parts}]});
            match asked.path() {
                "/rpc/v1/message:stream" => Reaction::Bytes(plain_sse(&[json!({ "task": task })])),
                _ => respond(200, &json!({ "task": task })),
            }
        })
        .await;
        let agent = connect(&fake.url).await;
        let file = || Outgoing::new(vec![Part::raw(*b"\x00\xffbytes")]);
        let Reply::Task(task) = agent.send(file()).await.unwrap() else { panic!("a task") };
        assert_eq!(task.artifacts[0].parts[0].content, Content::Raw(b"\x00\xffbytes".to_vec()), "{headers}");
        let call = &fake.calls()[0].body;
        assert_eq!(call["message"]["content"][0]["file"]["fileWithBytes"], encoded, "{headers}");
        let mut events = agent.stream(file()).await.unwrap();
        let streamed = rest(&mut events).await.unwrap();
        assert_eq!(crate::support::task(&streamed[0]), &task, "{headers}");
    }
}

#[tokio::test]
async fn a_card_with_an_unreadable_member_is_used_without_it() {
    let fake = Fake::server(|asked| {
        if asked.is_for_card() {
            return card_with(asked, "JSONRPC", &json!({"version": 2, "skills": [{"id": "a", "tags": "x"}]}));
        }
        rpc_result(asked, &json!({"message": {"messageId": "m", "parts": [{"text": "hi"}]}}))
    })
    .await;
    let agent = connect(&fake.url).await;
    assert_eq!(agent.card().skills[0].id, "a");
    let Reply::Message(message) = agent.send("hi").await.unwrap() else { panic!("a message") };
    assert_eq!(message.text(), "hi");
}
