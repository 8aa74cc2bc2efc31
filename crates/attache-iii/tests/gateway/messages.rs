//! Functions that take whole messages, and results that are more than data.

use attache_core::{Caller, Identity, Owner};
use attache_iii::{CallError, ChannelItem, FunctionInfo};
use attache_protocol::{ErrorKind, JsonObject, Message, Part, Task, TaskState};
use serde_json::{Value, json};

use crate::support::{Client, FakeEngine, call, exposed, status_text};

fn with_default(engine: &std::sync::Arc<FakeEngine>) -> Client {
    Client::with(engine, |options| options.default_function = Some("agent::chat".to_owned()))
}

fn last_payload(engine: &FakeEngine) -> Value {
    engine.calls.lock().last().expect("a call").1.clone()
}

fn answer(task: &Task, id: &str, text: &str) -> Message {
    Message { task_id: Some(task.id.clone()), ..Message::user(id, text) }
}

#[tokio::test(start_paused = true)]
async fn the_default_function_gets_files_data_and_the_caller_but_no_credential() {
    let engine = FakeEngine::new();
    engine.function("agent::chat", exposed(), json!("thanks"));
    let client = with_default(&engine);
    let identity = Identity::named("alice").scope("quote");
    let owner = Owner { principal: identity.principal, ..Owner::default() };
    let caller = Caller { owner, rights: identity.rights, ..Caller::default() };
    let file = Part::raw(vec![1, 2]).filename("a.png").media_type("image/png");
    let metadata = JsonObject::new(&json!({"k": 1})).ok();
    let message =
        Message { metadata, ..Message::user("m", file).part(Part::data(&json!({"x": 1})).unwrap()) };
    let task = client.send_as(caller, message).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    let payload = last_payload(&engine);
    assert_eq!(payload["taskId"], task.id.as_str());
    assert_eq!(payload["contextId"], payload["sessionId"]);
    assert_eq!(payload["caller"], json!({"name": "alice", "scopes": ["quote"]}));
    assert_eq!(
        payload["parts"],
        json!([{"raw": "AQI=", "filename": "a.png", "mediaType": "image/png"}, {"data": {"x": 1}}])
    );
    assert_eq!(payload["metadata"], json!({"k": 1}));
    assert_eq!(payload["message"], "");
}

#[tokio::test(start_paused = true)]
async fn a_default_function_with_a_strict_schema_gets_what_it_lists() {
    let engine = FakeEngine::new();
    let listed = ["agentId", "message", "input", "sessionId", "history", "parts"];
    let properties: serde_json::Map<_, _> =
        listed.map(|name| (name.to_owned(), json!({}))).into_iter().collect();
    let function = FunctionInfo {
        metadata: Some(exposed()),
        request_format: Some(
            json!({"type": "object", "properties": properties, "additionalProperties": false}),
        ),
        ..FunctionInfo::new("agent::chat")
    };
    engine.register(function, |_| Box::pin(async { Ok(json!("ok")) }));
    let task = with_default(&engine).send(Part::text("hi")).await;
    assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    assert_eq!(last_payload(&engine).as_object().unwrap().len(), listed.len());
}

#[tokio::test(start_paused = true)]
async fn a_named_function_gets_its_payload_alone_unless_it_asks_for_the_message() {
    let engine = FakeEngine::new();
    engine.function("plain::f", exposed(), json!(1));
    engine.function("whole::f", json!({"a2a.expose": true, "a2a.input": "message"}), json!(1));
    let client = Client::new(&engine);
    client.send(call("plain::f", json!({"n": 1}))).await;
    assert_eq!(last_payload(&engine), json!({"n": 1}));
    let task = client.send(call("whole::f", json!({"n": 1}))).await;
    let payload = last_payload(&engine);
    assert_eq!((&payload["payload"], &payload["taskId"]), (&json!({"n": 1}), &json!(task.id.as_str())));
    assert_eq!(payload["caller"], json!({"name": null, "scopes": []}));
}

#[tokio::test(start_paused = true)]
async fn files_beside_a_payload_are_refused_and_not_lost() {
    let engine = FakeEngine::new();
    engine.function("plain::f", exposed(), json!(1));
    engine.function("whole::f", json!({"a2a.expose": true, "a2a.input": "message"}), json!(1));
    let client = Client::new(&engine);
    let send = async |id: &str| {
        let message = Message::user(id, call(id, json!({}))).part(Part::raw(vec![1]).filename("a.bin"));
        client.send_as(Caller::default(), message).await
    };
    let error = send("plain::f").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(error.message().contains(r#"`"a2a.input": "message"`"#), "{}", error.message());
    assert!(client.tasks().await.is_empty() && engine.calls.lock().is_empty());
    let task = send("whole::f").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    assert_eq!(last_payload(&engine)["parts"][1]["filename"], "a.bin");
}

#[tokio::test(start_paused = true)]
async fn a_strict_default_function_refuses_files_that_it_cannot_get() {
    let engine = FakeEngine::new();
    let names = ["agentId", "message", "input", "sessionId", "history"];
    let properties: serde_json::Map<_, _> =
        names.map(|name| (name.to_owned(), json!({}))).into_iter().collect();
    let function = FunctionInfo {
        metadata: Some(exposed()),
        request_format: Some(json!({"properties": properties, "additionalProperties": false})),
        ..FunctionInfo::new("agent::chat")
    };
    engine.register(function, |_| Box::pin(async { Ok(json!({"a2a": {"ask": "Which file?"}})) }));
    let client = with_default(&engine);
    let file = || Part::raw(vec![1]).filename("a.bin");
    let error = client.send_as(Caller::default(), Message::user("m", file())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(error.message().contains("lists no member `parts`"), "{}", error.message());
    let task = client.send(Part::text("hi")).await;
    let answer = Message { task_id: Some(task.id), ..Message::user("m2", file()) };
    let task = client.send_as(Caller::default(), answer).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert!(status_text(&task).contains("lists no member `parts`"), "{}", status_text(&task));
}

#[tokio::test(start_paused = true)]
async fn a_function_can_ask_and_gets_the_answer_with_the_exchange() {
    let engine = FakeEngine::new();
    let function = FunctionInfo { metadata: Some(exposed()), ..FunctionInfo::new("shop::order") };
    engine.register(function, |payload| {
        Box::pin(async move {
            match payload["input"].as_str() {
                None => Ok(json!({"a2a": {"ask": "Which size?"}})),
                // A question can be raised, too.
                Some("large") => Err(CallError::remote(
                    "invocation_failed",
                    r#"handler error: {"a2a": {"ask": "Which colour?"}}"#,
                )),
                Some(colour) => Ok(json!({"sku": payload["payload"]["sku"], "colour": colour})),
            }
        })
    });
    let client = Client::new(&engine);
    let task = client.send(call("shop::order", json!({"sku": "A-1"}))).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::InputRequired, "Which size?"));
    let task = client.send_as(Caller::default(), answer(&task, "m2", "large")).await.unwrap();
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::InputRequired, "Which colour?"));
    let task = client.send_as(Caller::default(), answer(&task, "m3", "blue")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    let result: Value = task.artifacts[0].parts[0].as_data().unwrap().read().unwrap();
    assert_eq!(result, json!({"sku": "A-1", "colour": "blue"}));
    let history = last_payload(&engine)["history"].to_string();
    for said in ["Which size?", "large", "Which colour?"] {
        assert!(history.contains(said), "{history}");
    }
    assert!(!history.contains("blue"), "{history}");
}

#[tokio::test(start_paused = true)]
async fn the_default_function_can_ask_too() {
    let engine = FakeEngine::new();
    let function = FunctionInfo { metadata: Some(exposed()), ..FunctionInfo::new("agent::chat") };
    engine.register(function, |payload| {
        Box::pin(async move {
            let asked = payload["history"].as_array().is_some_and(|history| !history.is_empty());
            Ok(if asked { payload["message"].clone() } else { json!({"a2a": {"ask": "What?"}}) })
        })
    });
    let client = with_default(&engine);
    let task = client.send(Part::text("do it")).await;
    assert_eq!(task.status.state, TaskState::InputRequired);
    let task = client.send_as(Caller::default(), answer(&task, "m2", "that")).await.unwrap();
    assert_eq!((task.status.state, task.artifacts[0].text().as_str()), (TaskState::Completed, "that"));
}

#[tokio::test(start_paused = true)]
async fn a_function_can_return_text_parts_and_the_reason_of_a_failure() {
    let engine = FakeEngine::new();
    engine.function("f::text", exposed(), json!({"a2a": {"text": "hello"}}));
    let parts = json!([{"text": "a chart"}, {"raw": "AQI=", "filename": "c.png", "mediaType": "image/png"}]);
    engine.function("f::parts", exposed(), json!({"a2a": {"parts": parts}}));
    engine.function("f::fail", exposed(), json!({"a2a": {"fail": "sold out"}}));
    engine.function("f::reject", exposed(), json!({"a2a": {"reject": "not for you"}}));
    engine.function("f::typo", exposed(), json!({"a2a": {"aks": "which?"}}));
    let client = Client::new(&engine);
    let task = client.send(call("f::text", json!({}))).await;
    assert_eq!(
        (task.status.state, task.artifacts[0].parts[0].as_text()),
        (TaskState::Completed, Some("hello"))
    );
    let task = client.send(call("f::parts", json!({}))).await;
    let file = Part::raw(vec![1, 2]).filename("c.png").media_type("image/png");
    assert_eq!(task.artifacts[0].parts, [Part::text("a chart"), file]);
    let task = client.send(call("f::fail", json!({}))).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Failed, "sold out"));
    let task = client.send(call("f::reject", json!({}))).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Rejected, "not for you"));
    let task = client.send(call("f::typo", json!({}))).await;
    assert_eq!(task.artifacts[0].parts[0].as_data().unwrap().as_str(), r#"{"a2a":{"aks":"which?"}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_function_reports_progress_beside_its_output() {
    let engine = FakeEngine::new();
    let function = FunctionInfo {
        metadata: Some(json!({"a2a.expose": true, "a2a.stream": true})),
        ..FunctionInfo::new("story::tell")
    };
    let writers = engine.clone();
    engine.register(function, move |_| {
        let writer = writers.writer();
        Box::pin(async move {
            for text in [r#"{"a2a": {"progress": "half"}}"#, "Once "] {
                writer.send(ChannelItem::Text(text.to_owned())).await.unwrap();
            }
            Ok(json!(null))
        })
    });
    let task = Client::new(&engine).send(call("story::tell", json!({}))).await;
    assert_eq!(task.artifacts[0].text(), "Once ");
    assert!(task.history.iter().any(|message| message.text() == "half"), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn the_card_accepts_every_media_type_where_a_function_takes_messages() {
    let engine = FakeEngine::new();
    engine.function("agent::chat", exposed(), json!(1));
    engine.function("plain::f", exposed(), json!(1));
    let modes = json!({"a2a.expose": true, "a2a.input": "message", "a2a.inputModes": ["image/png"]});
    engine.function("picture::f", modes, json!(1));
    let skills = with_default(&engine).gateway.card().skills;
    let modes: Vec<_> = skills.into_iter().map(|skill| (skill.id, skill.input_modes.join(","))).collect();
    let expected = [("agent::chat", "*/*"), ("picture::f", "image/png"), ("plain::f", "")];
    assert_eq!(modes, expected.map(|(id, modes)| (id.to_owned(), modes.to_owned())));
}
