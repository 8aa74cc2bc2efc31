//! Calls, their results, and the list of tools.

use attache_agents::mcp::CallError;
use attache_protocol::{Content, Message, Part, StreamResponse, TaskState};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::{agent, call, connect, failure, json, options, run, serve, start, task, text};

#[tokio::test]
async fn every_tool_is_a_skill_with_its_schema() {
    let card = serde_json::to_value(connect(|_| {}).await.card()).unwrap();
    assert_eq!(card["name"], "Scripted tools");
    assert_eq!(card["description"], "Tools for tests");
    assert_eq!(card["version"], "7.0");
    let skill = json!({"id": "add", "name": "Add", "description": "Does add", "tags": ["tool"]});
    assert!(card["skills"].as_array().unwrap().contains(&skill), "{card}");
    let schemas = &card["capabilities"]["extensions"][0];
    assert_eq!(schemas["uri"], "urn:attache:extension:skill-schemas:v1");
    assert_eq!(schemas["params"]["echo"]["request"]["required"], json!(["text"]));
}

#[tokio::test]
async fn a_tool_is_called_by_data_by_text_and_by_skill() {
    let agent = agent(|_| {}).await;
    let expected = json!({"sum": 5});
    let skill = attache_protocol::JsonObject::new(&json!({"skill": "add"})).unwrap();
    let numbers = Part::data(&json!({"a": 2, "b": 3})).unwrap();
    for message in [
        call("add", json!({"a": 2, "b": 3})),
        Message::user("m1", "add {\"a\": 2, \"b\": 3}"),
        Message { parts: vec![numbers], metadata: Some(skill), ..Message::user("m2", "") },
    ] {
        let done = task(agent.send(message).await.unwrap());
        assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
        assert_eq!(done.artifacts[0].name.as_deref(), Some("add"));
        let Content::Data(data) = &done.artifacts[0].parts[0].content else { panic!("{done:?}") };
        assert_eq!(data.read::<Value>().unwrap(), expected);
        assert_eq!(done.artifacts[0].parts.len(), 1, "the text that repeats the data is left out");
    }
    assert_eq!(text(&task(agent.send("echo hello there").await.unwrap())), "hello there");
}

#[tokio::test]
async fn plain_text_calls_the_only_tool() {
    let mcp = attache_agents::mcp::Mcp::connect(options("one")).await.unwrap();
    assert_eq!(text(&task(serve(&mcp).await.send("what a day").await.unwrap())), "what a day");
}

#[tokio::test]
async fn only_the_chosen_tools_are_skills_and_can_be_called() {
    let mcp = connect(|options| options.tools = vec!["echo".into()]).await;
    assert_eq!(mcp.card().skills.len(), 1);
    let failed = run(&serve(&mcp).await, "add", json!({"a": 1, "b": 2})).await;
    assert_eq!(failure(&failed), "There is no tool 'add'. You can call: echo.");
}

#[tokio::test]
async fn images_resources_and_links_are_parts() {
    let done = run(&agent(|_| {}).await, "media", json!({})).await;
    let parts = &done.artifacts[0].parts;
    assert!(matches!(&parts[0].content, Content::Raw(bytes) if bytes[..] == [1, 2, 3]));
    assert_eq!(parts[0].media_type.as_deref(), Some("image/png"));
    assert_eq!((parts[1].as_text(), parts[1].filename.as_deref()), (Some("# A"), Some("a.md")));
    assert!(matches!(&parts[2].content, Content::Url(url) if url == "https://a.example/b.pdf"));
}

#[tokio::test]
async fn a_tool_that_fails_fails_the_task_with_its_own_words() {
    let agent = agent(|_| {}).await;
    assert_eq!(failure(&run(&agent, "fail", json!({"text": "no such city"})).await), "no such city");
    assert_eq!(failure(&run(&agent, "refuse", json!({"text": "not allowed"})).await), "not allowed");
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_list_of_tools() {
    let failed = failure(&run(&agent(|_| {}).await, "subtract", json!({})).await);
    assert!(failed.starts_with("There is no tool 'subtract'. You can call: echo, add, media"), "{failed}");
}

#[tokio::test]
async fn arguments_are_checked_before_the_call() {
    let mcp = connect(|_| {}).await;
    let failed = failure(&run(&serve(&mcp).await, "add", json!({"a": 1, "b": "two"})).await);
    assert_eq!(
        failed,
        "The arguments do not match the schema of the tool 'add': `arguments.b`: \"two\" is not of type \"integer\""
    );
    let error = mcp.call("add", json!({"a": 1})).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Arguments { faults, .. } if faults.contains("\"b\" is a required")),
        "{error}"
    );
    assert!(matches!(mcp.call("add", json!([1])).await, Err(CallError::Arguments { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn progress_is_reported_with_numbers() {
    let agent = agent(|_| {}).await;
    let message = attache_client::Outgoing::from(call("progress", json!({"count": 3})))
        .extension(attache_core::REPORTS_EXTENSION);
    let mut events = agent.stream(message).await.unwrap();
    let (mut reported, mut tools) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await {
        if let StreamResponse::StatusUpdate(update) = event.unwrap()
            && let Some(metadata) = &update.metadata
        {
            assert_eq!(update.status.state, TaskState::Working);
            let report = metadata.get::<Value>("attache").unwrap();
            match report.get("progress") {
                Some(progress) => {
                    let text = update.status.message.as_ref().unwrap().text();
                    reported.push((text, progress.clone()));
                }
                None => tools.push(report["tool"].clone()),
            }
        }
    }
    let statuses: Vec<_> = tools.iter().map(|tool| tool["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["started", "input_complete", "completed"]);
    assert!(
        tools.iter().all(|tool| tool["name"] == "progress" && tool["toolUseId"] == tools[0]["toolUseId"])
    );
    assert_eq!(tools[1]["input"], json!({"count": 3}));
    // Steps in between can be left out, and the last one is reported.
    let last = ("step 3".to_owned(), json!({"progress": 3.0, "total": 3.0}));
    assert_eq!(reported.last(), Some(&last), "{reported:?}");
}

#[tokio::test]
async fn a_flood_of_progress_is_thinned_out() {
    let agent = agent(|_| {}).await;
    let mut events = agent.stream(call("progress", json!({"count": 20_000}))).await.unwrap();
    let mut reports = 0;
    while let Some(event) = events.next().await {
        if let StreamResponse::StatusUpdate(update) = event.unwrap()
            && update.status.message.is_some()
        {
            reports += 1;
        }
    }
    assert!((1..1_000).contains(&reports), "{reports}");
}

#[tokio::test]
async fn the_card_follows_the_list_of_tools() {
    let mcp = connect(|_| {}).await;
    let mut cards = Box::pin(mcp.cards());
    let has = |card: &attache_protocol::AgentCard| card.skills.iter().any(|skill| skill.id == "fresh");
    assert!(!has(&cards.next().await.unwrap()));
    mcp.call("add_tool", json!({"text": "fresh"})).await.unwrap();
    assert!(has(&cards.next().await.unwrap()));
    assert_eq!(mcp.call("fresh", json!({})).await.unwrap().text(), "called fresh");
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_other_calls_go_on() {
    let agent = agent(|_| {}).await;
    let (hanging, _events) = start(&agent, "hang").await;
    agent.cancel(hanging.id).await.unwrap();
    // This call returns when the server has read the cancellation.
    assert_eq!(json(&run(&agent, "cancelled", json!({"count": 1})).await).as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_calls_run_at_once() {
    let agent = agent(|options| options.max_calls = 100).await;
    let calls = (0..100).map(|_| run(&agent, "gather", json!({"count": 100})));
    for done in futures::future::join_all(calls).await {
        assert_eq!(text(&done), "all");
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_wait() {
    let mcp = connect(|options| options.max_calls = 1).await;
    let agent = serve(&mcp).await;
    let (hanging, _events) = start(&agent, "hang").await;
    let waiting = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.call("cancelled", json!({"count": 1})).await }
    });
    // The waiting call runs after the first one is canceled, and the server has read the cancellation before.
    agent.cancel(hanging.id).await.unwrap();
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_server_is_told_the_configured_directories() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let roots =
        json(&run(&agent(|options| options.roots = vec![root.clone()]).await, "roots", json!({})).await);
    assert_eq!(roots["roots"][0]["uri"], format!("file://{}", root.display()));
    let none = json(&run(&agent(|_| {}).await, "roots", json!({})).await);
    assert_eq!(none, json!({"roots": []}));
}

#[tokio::test]
async fn the_example_converts_lengths_and_asks_for_a_missing_unit() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents/units.py");
    let server = attache_agents::mcp::McpServer::program(["python3", script.to_str().unwrap()]);
    let mcp = attache_agents::mcp::Mcp::connect(attache_agents::mcp::McpOptions::new(server)).await.unwrap();
    let agent = serve(&mcp).await;
    let done = task(agent.send("convert {\"value\": 10, \"from\": \"km\", \"to\": \"m\"}").await.unwrap());
    assert_eq!(text(&done), "10000 m");
    let asked = task(agent.send("convert {\"value\": 2, \"from\": \"mi\"}").await.unwrap());
    assert_eq!(crate::support::question(&asked), "To which unit?");
    assert_eq!(text(&task(agent.answer(&asked, "km").await.unwrap())), "3.21869 km");
}
