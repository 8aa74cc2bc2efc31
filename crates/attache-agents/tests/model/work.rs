//! A model at work: its reports, and the tools that it may call.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::model::{ModelOptions, Tool};
use attache_client::{Client, Outgoing};
use attache_core::{
    Busy, Exposure, MemoryStore, Options, PeerRules, PermissionAction, PermissionPolicy, PermissionRule,
    REPORTS_EXTENSION,
};
use attache_protocol::{StreamResponse, TaskState};
use serde_json::{Value, json};

use super::{Step, adder, call, chunk, end, serve_with, task, text, text_event};

/// The metadata of all status updates.
async fn reports(agent: &Client, message: &str) -> Vec<Value> {
    let mut events = agent.stream(Outgoing::from(message).extension(REPORTS_EXTENSION)).await.unwrap();
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        if let StreamResponse::StatusUpdate(update) = event.unwrap() {
            all.extend(update.metadata.and_then(|metadata| metadata.get::<Value>("attache")));
        }
    }
    all
}

fn usage(input: u64, output: u64) -> String {
    format!(
        "data: {}\n\n",
        json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})
    )
}

fn thinking(member: &str, text: &str) -> String {
    chunk(&json!({member: text}), None)
}

#[tokio::test]
async fn tools_thoughts_and_tokens_are_reported() {
    let tool = json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": "{\"a\":2,\"b\":3}"}}]});
    let steps = || {
        let first = vec![
            thinking("reasoning_content", "let me "),
            thinking("reasoning", "add"),
            chunk(&tool, None),
            chunk(&json!({}), Some("tool_calls")),
            usage(10, 5),
            "data: [DONE]\n\n".to_owned(),
        ];
        let second = vec![
            text_event("It is 5."),
            chunk(&json!({}), Some("stop")),
            usage(20, 6),
            "data: [DONE]\n\n".to_owned(),
        ];
        [Step::Events(first), Step::Events(second)]
    };
    let all = Exposure { tool_trace: true, raw_thinking: true };
    let (agent, _) =
        serve_with(steps(), |_| {}, vec![adder()], |options| options.reports.exposure = all, Arc::default())
            .await;
    assert_eq!(
        reports(&agent, "2 + 3").await,
        [
            json!({"thinking": {"type": "raw_thinking", "text": "let me add"}}),
            json!({"tool": {"status": "started", "toolUseId": "c1", "name": "add"}}),
            json!({"tool": {"status": "input_complete", "toolUseId": "c1", "name": "add", "input": {"a": 2, "b": 3}}}),
            json!({"tool": {"status": "completed", "toolUseId": "c1", "name": "add", "result": "{\"sum\":5}"}}),
            json!({"usage": {"inputTokens": 30, "outputTokens": 11, "totalTokens": 41}}),
        ]
    );
    let (agent, _) = serve_with(
        steps(),
        |_| {},
        vec![adder()],
        |options| options.reports.exposure = Exposure::NONE,
        Arc::default(),
    )
    .await;
    let only = json!({"usage": {"inputTokens": 30, "outputTokens": 11, "totalTokens": 41}});
    assert_eq!(reports(&agent, "2 + 3").await, [only]);
}

fn eraser() -> Tool {
    Tool::new("erase", "Erases a file", json!({"type": "object"}), |arguments| async move {
        Ok(json!(format!("erased {}", arguments["path"].as_str().unwrap_or_default())))
    })
}

fn rules(options: &mut Options) {
    let rule = |path: &str, action| {
        PermissionRule::new("erase".parse().unwrap(), action).path(path.parse().unwrap())
    };
    options.permissions = PermissionPolicy::default()
        .rule(rule("tmp/**", PermissionAction::Allow))
        .rule(rule("src/**", PermissionAction::Deny))
        .rule(rule("**", PermissionAction::Ask));
}

/// What the model was told about its first tool call.
fn told(requests: &[Value]) -> String {
    let last = requests.last().unwrap()["messages"].as_array().unwrap();
    let told = last.iter().find(|message| message["role"] == "tool").unwrap();
    told["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn rules_decide_about_the_tools_of_a_model() {
    for (path, expected) in [("tmp/a", "erased tmp/a"), ("src/a", "error: the tool was not permitted")] {
        let steps = [call("erase", &json!({"path": path}).to_string()), Step::Say(&["ok"])];
        let (agent, script) = serve_with(steps, |_| {}, vec![eraser()], rules, Arc::default()).await;
        assert_eq!(text(&task(agent.send("go").await.unwrap())), "ok");
        assert_eq!(told(&script.requests.lock()), expected);
    }
}

#[tokio::test]
async fn the_caller_decides_and_the_same_conversation_goes_on() {
    for (answer, expected) in [("yes", "erased docs/a"), ("no", "error: the tool was not permitted")] {
        let first = vec![
            text_event("Let me see. "),
            chunk(
                &json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "erase", "arguments": "{\"path\":\"docs/a\"}"}}]}),
                None,
            ),
            end("tool_calls"),
        ];
        let steps = [Step::Events(first), Step::Say(&["Done."])];
        let (agent, script) = serve_with(steps, |_| {}, vec![eraser()], rules, Arc::default()).await;
        let asked = task(agent.send("go").await.unwrap());
        assert_eq!(asked.status.state, TaskState::InputRequired, "{asked:?}");
        let data: Value = asked.status.message.as_ref().unwrap().parts[1].as_data().unwrap().read().unwrap();
        assert_eq!(data["permission"]["input"], json!({"path": "docs/a"}));
        assert_eq!(script.requests.lock().len(), 1);
        let done = task(agent.answer(&asked, answer).await.unwrap());
        assert_eq!(done.status.state, TaskState::Completed);
        assert_eq!(text(&done), "Let me see. Done.");
        assert_eq!(told(&script.requests.lock()), expected);
    }
}

#[tokio::test]
async fn an_answer_after_a_restart_goes_to_the_model_as_a_message() {
    let store = Arc::new(MemoryStore::default());
    let steps = [call("erase", r#"{"path":"docs/a"}"#)];
    let (agent, _) = serve_with(steps, |_| {}, vec![eraser()], rules, store.clone()).await;
    let asked = task(agent.send("go").await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let (agent, script) = serve_with([Step::Say(&["I see."])], |_| {}, vec![eraser()], rules, store).await;
    let done = task(agent.answer(&asked, "yes").await.unwrap());
    assert_eq!(text(&done), "I see.");
    let messages = script.requests.lock()[0]["messages"].to_string();
    assert!(messages.contains("The request for permission `call erase` was denied"), "{messages}");
}

#[tokio::test]
async fn a_context_is_kept_for_the_turn_that_waits_for_a_permission() {
    let steps = [
        call("erase", r#"{"path":"docs/a"}"#),
        Step::Say(&["elsewhere"]),
        Step::Say(&["Done."]),
        Step::Say(&["Hello."]),
    ];
    // A context that is not in use is put away at once.
    let idle = |options: &mut ModelOptions| options.conversation.contexts.idle = Duration::ZERO;
    let (agent, script) = serve_with(steps, idle, vec![eraser()], rules, Arc::default()).await;
    let asked = task(agent.send(Outgoing::from("go").context("c")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let mut other = agent.stream(Outgoing::from("hello").context("c")).await.unwrap();
    let elsewhere = task(agent.send(Outgoing::from("hi").context("d")).await.unwrap());
    assert_eq!(text(&elsewhere), "elsewhere");
    let done = task(agent.answer(&asked, "yes").await.unwrap());
    assert_eq!(text(&done), "Done.");
    assert_eq!(told(&script.requests.lock()[..3]), "erased docs/a");
    let mut said = String::new();
    while let Some(event) = other.next().await {
        if let StreamResponse::ArtifactUpdate(update) = event.unwrap() {
            said.push_str(&update.artifact.text());
        }
    }
    assert_eq!(said, "Hello.");
}

#[tokio::test]
async fn without_an_answer_in_time_the_model_goes_on_with_a_denial() {
    let steps =
        [call("erase", r#"{"path":"docs/a"}"#), Step::Say(&["I did not erase it."]), Step::Say(&["Hello."])];
    let limited = |options: &mut Options| {
        rules(options);
        options.permissions.timeout = Some(Duration::from_millis(50));
    };
    let (agent, script) = serve_with(steps, |_| {}, vec![eraser()], limited, Arc::default()).await;
    let asked = task(agent.send(Outgoing::from("go").context("c")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    // This one waits until the model has gone on with the denial.
    let other = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
    assert_eq!(text(&other), "Hello.");
    let end = agent.get(asked.id.clone()).await.unwrap();
    assert_eq!(text(&end), "I did not erase it.");
    let messages = script.requests.lock()[1]["messages"].to_string();
    assert!(messages.contains("the tool was not permitted"), "{messages}");
    let late = agent.answer(&asked, "yes").await.unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
}

#[tokio::test]
async fn a_cancel_of_a_waiting_task_frees_the_context() {
    let steps = [call("erase", r#"{"path":"docs/a"}"#), Step::Say(&["Hello."])];
    let busy = |options: &mut ModelOptions| options.conversation.contexts.busy = Busy::Reject;
    let compatible = |options: &mut Options| {
        rules(options);
        options.peer = PeerRules::IacCode;
    };
    let (agent, _) = serve_with(steps, busy, vec![eraser()], compatible, Arc::default()).await;
    let asked = task(agent.send(Outgoing::from("go").context("c")).await.unwrap());
    let refused = task(agent.send(Outgoing::from("hello").context("c")).await.unwrap());
    assert_eq!(super::failure(&refused), "Task is already working.");
    assert_eq!(agent.cancel(asked.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(text(&task(agent.send(Outgoing::from("hello").context("c")).await.unwrap())), "Hello.");
}
