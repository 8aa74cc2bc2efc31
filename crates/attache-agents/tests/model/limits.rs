//! The limits of a model: the size of the conversation, tools that are given up, and a server that is killed.

use std::sync::Arc;

use attache_agents::model::{Model, ModelOptions, Tool};
use attache_client::{Client, Outgoing};
use attache_core::MemoryStore;
use attache_protocol::{AgentCard, Message, Part, TaskState};
use attache_server::Server;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::killable::Killable;
use super::{Step, call, failure, serve, task, text};

/// A tool with a large result.
fn dump() -> Tool {
    Tool::new("dump", "Dumps", json!({"type": "object"}), |arguments| async move {
        Ok(arguments["word"].as_str().unwrap_or_default().repeat(5000).into())
    })
}

/// The contents of the messages of a request.
fn contents(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn every_request_keeps_the_limit_and_the_oldest_results_of_tools_are_left_out() {
    let steps =
        [call("dump", r#"{"word":"a"}"#), call("dump", r#"{"word":"b"}"#), Step::Say(&["many letters"])];
    let (agent, script) = serve(steps, |options| options.max_context = 8000, vec![dump()]).await;
    assert_eq!(text(&task(agent.send("go").await.unwrap())), "many letters");
    let requests = script.requests.lock();
    for request in requests.iter() {
        assert!(contents(request).iter().map(|text| text.len()).sum::<usize>() <= 8000);
    }
    assert_eq!(contents(&requests[1]), ["go", "", &"a".repeat(5000)]);
    let last = &requests[2];
    assert_eq!(contents(last), ["go", "", "(left out)", "", &"b".repeat(5000)]);
    let roles: Vec<_> = last["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool"], "each call has its result");
}

#[tokio::test]
async fn earlier_turns_are_left_out_before_results_of_tools() {
    let steps = [Step::Say(&["hello"]), call("dump", r#"{"word":"a"}"#), Step::Say(&["many letters"])];
    let (agent, script) = serve(steps, |options| options.max_context = 5200, vec![dump()]).await;
    task(agent.send(Outgoing::new("x".repeat(300)).context("c")).await.unwrap());
    task(agent.send(Outgoing::new("go").context("c")).await.unwrap());
    let requests = script.requests.lock();
    assert_eq!(contents(&requests[1]), [&"x".repeat(300), "hello", "go"]);
    let note = "(Earlier messages of this conversation were left out.)";
    assert_eq!(contents(&requests[2]), [note, "go", "", &"a".repeat(5000)]);
}

#[tokio::test]
async fn a_message_that_is_larger_than_the_context_is_rejected_and_not_sent() {
    let change = |options: &mut ModelOptions| {
        options.max_context = 100;
        options.system = Some("0123456789".to_owned());
    };
    let (agent, script) = serve([Step::Say(&["ok"])], change, Vec::new()).await;
    let rejected = task(agent.send("x".repeat(200)).await.unwrap());
    assert_eq!(rejected.status.state, TaskState::Rejected);
    let said = rejected.status.message.unwrap().text();
    assert_eq!(said, "the message and the system prompt have 210 bytes, at most 100 are accepted");
    assert!(script.requests.lock().is_empty());
    assert_eq!(text(&task(agent.send("x").await.unwrap())), "ok");
}

#[tokio::test]
async fn calls_that_are_larger_than_the_context_fail_the_task() {
    let steps = [call("dump", &json!({"word": "", "rest": "x".repeat(200)}).to_string())];
    let (agent, _) = serve(steps, |options| options.max_context = 100, vec![dump()]).await;
    let failed = failure(&task(agent.send("go").await.unwrap()));
    assert!(
        failed.starts_with("the model called tools with ") && failed.ends_with("at most 100"),
        "{failed}"
    );
}

#[tokio::test]
async fn files_of_the_listed_media_types_go_to_the_model_as_they_are() {
    let change =
        |options: &mut ModelOptions| options.files = vec!["application/pdf".into(), "audio/*".into()];
    let (agent, script) = serve([Step::Say(&["a page"]), Step::Say(&["again"])], change, Vec::new()).await;
    let message = Message::user("m", "what is it?")
        .part(Part::raw([1, 2, 3]).media_type("application/pdf").filename("page.pdf"))
        .part(Part::raw([1, 2, 3]).media_type("audio/mpeg"));
    assert_eq!(text(&task(agent.send(Outgoing::new(message).context("c")).await.unwrap())), "a page");
    task(agent.send(Outgoing::new("and now?").context("c")).await.unwrap());
    let requests = script.requests.lock();
    let file = json!({
        "type": "file", "file": {"filename": "page.pdf", "file_data": "data:application/pdf;base64,AQID"},
    });
    let sound = json!({"type": "input_audio", "input_audio": {"data": "AQID", "format": "mp3"}});
    for request in requests.iter() {
        let content = request["messages"][0]["content"].as_array().unwrap();
        assert!(content.contains(&file) && content.contains(&sound), "{content:?}");
    }
}

#[tokio::test]
async fn without_the_setting_files_go_to_the_model_as_a_description() {
    let (agent, script) = serve([Step::Say(&["ok"])], |_| {}, Vec::new()).await;
    let page = Part::raw([1, 2, 3]).media_type("application/pdf").filename("page.pdf");
    task(agent.send(Message::user("m", "what is it?").part(page)).await.unwrap());
    let content = script.requests.lock()[0]["messages"][0]["content"].clone();
    assert!(content.as_str().unwrap().contains("- filename=page.pdf"), "{content}");
}

/// A tool that never ends. It reports when it begins, and when it is given up.
fn hanging(events: mpsc::UnboundedSender<&'static str>) -> Tool {
    struct GivenUp(mpsc::UnboundedSender<&'static str>);

    impl Drop for GivenUp {
        fn drop(&mut self) {
            let _ = self.0.send("given up");
        }
    }

    Tool::new("hang", "Hangs", json!({"type": "object"}), move |_| {
        let events = events.clone();
        async move {
            let _ = events.send("begun");
            let _given_up = GivenUp(events);
            std::future::pending().await
        }
    })
}

#[tokio::test]
async fn a_cancel_during_a_tool_call_gives_up_the_tool() {
    let (events, mut seen) = mpsc::unbounded_channel();
    let (agent, script) = serve([call("hang", "{}")], |_| {}, vec![hanging(events)]).await;
    let begun = task(agent.send(Outgoing::new("go").return_immediately()).await.unwrap());
    assert_eq!(seen.recv().await, Some("begun"));
    assert_eq!(agent.cancel(begun.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(seen.recv().await, Some("given up"));
    assert_eq!(script.requests.lock().len(), 1, "the model is not asked again");
}

#[tokio::test]
async fn after_a_kill_during_a_tool_call_the_task_has_failed_and_the_next_message_works() {
    let (endpoint, script) = super::endpoint_of([call("hang", "{}"), Step::Say(&["hello"])]).await;
    let (events, mut seen) = mpsc::unbounded_channel();
    let store = Arc::new(MemoryStore::new());
    let make = || {
        let (endpoint, events, store) = (endpoint.clone(), events.clone(), store.clone());
        move || {
            let options = ModelOptions::new(endpoint, "small").with(|options| {
                options.key = Some("the key".into());
            });
            let model = Model::new(options).unwrap().tools([hanging(events)]);
            Server::new(model).card(AgentCard::new("Model", "A language model")).shared_store(store)
        }
    };
    let server = Killable::start(make()).await;
    let agent = Client::connect(&server.url).await.unwrap();
    let begun = task(agent.send(Outgoing::new("go").context("c").return_immediately()).await.unwrap());
    assert_eq!(seen.recv().await, Some("begun"));
    server.kill().await;
    let server = Killable::start(make()).await;
    let agent = Client::connect(&server.url).await.unwrap();
    let failed = agent.wait_until(begun.id, |task| task.status.state.is_terminal()).await.unwrap();
    let why = failure(&failed);
    assert!(why.contains("the server stopped while the agent was at work"), "{why}");
    assert_eq!(text(&task(agent.send(Outgoing::new("hi").context("c")).await.unwrap())), "hello");
    assert_eq!(script.requests.lock().len(), 2, "the first message was not sent again by itself");
}
