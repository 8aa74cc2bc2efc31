//! One prompt: streaming, reports, cancel, limits and failures.

use std::time::Duration;

use attache_protocol::{Message, Part, StreamResponse, TaskState};

use crate::support::{answer, failure, next_text, runs, serve, serve_iac_code, skip, text, until};

#[tokio::test]
async fn the_answer_is_streamed_while_the_agent_works() {
    if skip("the_answer_is_streamed_while_the_agent_works") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let signal = agent.path("go");
    let (mut events, first) = agent.begin(format!("stream {}", signal.display())).await;
    assert_eq!(first, "one ");
    std::fs::write(signal, "").unwrap();
    assert_eq!(next_text(&mut events).await, "two");
}

#[tokio::test]
async fn reports_of_the_agent_are_status_updates_and_thoughts_are_hidden() {
    if skip("reports_of_the_agent_are_status_updates_and_thoughts_are_hidden") {
        return;
    }
    for show_thoughts in [false, true] {
        let agent = serve(&[], |options| options.show_thoughts = show_thoughts).await;
        let message = attache_client::Outgoing::from("tools").extension(attache_core::REPORTS_EXTENSION);
        let mut events = agent.client.stream(message).await.unwrap();
        let (mut texts, mut data) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await {
            if let StreamResponse::StatusUpdate(update) = event.unwrap()
                && let Some(metadata) = &update.metadata
            {
                texts.extend(update.status.message.as_ref().map(|message| message.text()));
                data.push(metadata.read::<serde_json::Value>().unwrap()["attache"].clone());
            }
        }
        let thought = if show_thoughts { vec!["I wonder."] } else { vec![] };
        let others = ["plan: 1 of 2 steps done", "Edit a.txt: started", "Edit a.txt: completed"];
        assert_eq!(texts, [thought, others.to_vec()].concat());
        let data: Vec<_> = data.into_iter().skip(usize::from(show_thoughts)).collect();
        assert_eq!(data[0]["plan"][0]["content"], "look");
        assert_eq!(data[1]["tool"]["status"], "started");
        assert_eq!(data[2]["tool"]["status"], "input_complete");
        assert_eq!(data[2]["tool"]["input"]["path"], "a.txt");
        assert_eq!(data[3]["tool"]["toolUseId"], "t1");
        assert_eq!(data[3]["tool"]["status"], "completed");
        assert_eq!(data[3]["diff"][0]["path"], "a.txt");
        assert_eq!(data[4]["usage"]["used"], 10);
        let done = agent.client.get(agent.latest().await.id).await.unwrap();
        assert_eq!(answer(&done), "Let me look.\n\nDone.");
    }
}

#[tokio::test]
async fn a_cancel_cancels_the_prompt_and_the_session_goes_on() {
    if skip("a_cancel_cancels_the_prompt_and_the_session_goes_on") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let (_events, first) = agent.begin(attache_client::Outgoing::from("hang").context("c")).await;
    assert_eq!(first, "hanging");
    let id = agent.latest().await.id;
    assert_eq!(agent.client.cancel(id).await.unwrap().status.state, TaskState::Canceled);
    until("the prompt is canceled", || agent.count("session/cancel") == 1).await;
    let second = answer(&agent.say("c", "session").await);
    assert!(second.starts_with("s1-") && second.contains(" 2 "), "{second}");
}

#[tokio::test]
async fn an_agent_that_ignores_a_cancel_is_replaced() {
    if skip("an_agent_that_ignores_a_cancel_is_replaced") {
        return;
    }
    let agent = serve(&[], |options| options.grace = Duration::from_millis(50)).await;
    let (_events, pid) = agent.begin("deaf").await;
    assert!(runs(&pid));
    let id = agent.latest().await.id;
    agent.client.cancel(id).await.unwrap();
    until("the process is gone", || !runs(&pid)).await;
    assert_ne!(answer(&agent.send("pid").await), pid);
}

#[tokio::test]
async fn an_agent_that_hangs_fails_the_task() {
    if skip("an_agent_that_hangs_fails_the_task") {
        return;
    }
    let agent = serve(&[], |options| {
        options.timeout = Duration::from_secs(1);
        options.grace = Duration::from_millis(50);
    })
    .await;
    let failed = agent.send("deaf").await;
    assert_eq!(failure(&failed), "the coding agent did not finish within 1 s");
    until("the process is gone", || !agent.pids().iter().any(|pid| runs(pid))).await;
}

#[tokio::test]
async fn an_agent_that_does_not_start_fails_the_task() {
    if skip("an_agent_that_does_not_start_fails_the_task") {
        return;
    }
    let agent = serve(&["--silent"], |options| options.start_timeout = Duration::from_millis(500)).await;
    assert_eq!(failure(&agent.send("hello").await), "the coding agent did not respond within 0.5 s");
    let agent = serve(&[], |options| options.command = vec!["/nothing/here".into()]).await;
    assert!(failure(&agent.send("hello").await).starts_with("the agent failed (error id "));
    let agent = serve(&["--version", "9"], |_| {}).await;
    assert!(failure(&agent.send("hello").await).starts_with("the agent failed (error id "));
    let agent = serve(&["--login"], |_| {}).await;
    assert_eq!(failure(&agent.send("hello").await), "the coding agent is not logged in at its provider");
}

#[tokio::test]
async fn a_crash_fails_the_running_turn_and_the_next_message_starts_the_agent_again() {
    if skip("a_crash_fails_the_running_turn_and_the_next_message_starts_the_agent_again") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let before = answer(&agent.say("c", "pid").await);
    let failed = agent.say("c", "crash").await;
    assert_eq!(failure(&failed), "the coding agent ended unexpectedly (exit code 3)");
    assert_eq!(text(&failed), "half");
    let after = answer(&agent.say("c", "blocks").await);
    // The new session gets the conversation, because this agent cannot load the old one.
    for expected in ["The conversation so far", "User: pid", &format!("Agent: {before}"), "User: crash"] {
        assert!(after.contains(expected), "{expected}: {after}");
    }
}

#[tokio::test]
async fn a_crash_is_noticed_also_if_another_process_keeps_the_pipes_open() {
    if skip("a_crash_is_noticed_also_if_another_process_keeps_the_pipes_open") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let failed = tokio::time::timeout(Duration::from_secs(30), agent.say("c", "abandon")).await.unwrap();
    assert_eq!(failure(&failed), "the coding agent ended unexpectedly (exit code 3)");
    let killed = std::process::Command::new("kill").args(["-9", &text(&failed)]).status().unwrap();
    assert!(killed.success());
    assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
}

#[tokio::test]
async fn a_flood_of_output_fails_the_task() {
    if skip("a_flood_of_output_fails_the_task") {
        return;
    }
    let agent = serve(&[], |options| options.max_output = 100_000).await;
    let failed = agent.say("c", "flood").await;
    assert_eq!(failure(&failed), "the coding agent wrote more than 100000 bytes");
    assert!(text(&failed).len() <= 100_000);
    assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
}

#[tokio::test]
async fn a_line_that_never_ends_fails_the_task() {
    if skip("a_line_that_never_ends_fails_the_task") {
        return;
    }
    let agent = serve(&[], |options| options.max_line = 10_000).await;
    let failed = agent.say("c", "line 20000").await;
    assert_eq!(failure(&failed), "the coding agent wrote a line of more than 10000 bytes");
    assert_eq!(answer(&agent.say("d", "hello").await), "you said: hello");
}

#[tokio::test]
async fn lines_that_are_no_messages_are_skipped() {
    if skip("lines_that_are_no_messages_are_skipped") {
        return;
    }
    assert_eq!(answer(&serve(&[], |_| {}).await.send("garbage").await), "fine");
}

#[tokio::test]
async fn a_prompt_ends_the_task_as_its_stop_reason_says() {
    if skip("a_prompt_ends_the_task_as_its_stop_reason_says") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let done = agent.send("stop max_tokens half").await;
    assert_eq!(answer(&done), "half");
    let part = &done.status.message.as_ref().unwrap().parts[0];
    let metadata: serde_json::Value = part.metadata.as_ref().unwrap().read().unwrap();
    assert_eq!(metadata["attache"]["stopReason"], "max_tokens");
    let failed = agent.send("stop max_turn_requests").await;
    let expected =
        "the coding agent stopped before it answered: it reached its limit of requests to its model";
    assert_eq!(failure(&failed), expected);
    assert_eq!(agent.send("stop refusal no").await.status.state, TaskState::Rejected);
    assert_eq!(failure(&agent.send("stop cancelled").await), "the coding agent canceled the prompt");
    let failed = failure(&agent.send("error").await);
    assert!(failed.starts_with("the agent failed (error id ") && !failed.contains("secret"), "{failed}");
}

#[tokio::test]
async fn files_and_data_of_a_message_reach_the_agent() {
    if skip("files_and_data_of_a_message_reach_the_agent") {
        return;
    }
    let message = || {
        Message::user("m", Part::data(&serde_json::json!({"a": 1})).unwrap())
            .part(Part::raw("the content").filename("../a.txt").media_type("text/plain"))
            .part(Part::raw([1, 2]).media_type("image/png"))
    };
    let agent = serve(&["--embed"], |_| {}).await;
    let blocks =
        answer(&agent.send(Message::user("m", "blocks").part(Part::raw("x").filename("a.txt"))).await);
    assert!(blocks.contains(r#""type": "resource""#), "{blocks}");
    let agent = serve(&[], |_| {}).await;
    agent.send(message()).await;
    let prompt = agent.received().into_iter().find(|message| message["method"] == "session/prompt").unwrap();
    let blocks = &prompt["params"]["prompt"];
    assert_eq!(blocks[0]["text"], r#"{"a":1}"#);
    let path = blocks[1]["uri"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "the content");
    assert!(blocks[2]["text"].as_str().unwrap().contains("- byteSize=2"), "{blocks}");
    assert_eq!((&blocks[3]["type"], &blocks[3]["mimeType"]), (&"resource_link".into(), &"image/png".into()));
}

#[tokio::test]
async fn the_agent_gets_only_the_environment_that_it_may_have() {
    if skip("the_agent_gets_only_the_environment_that_it_may_have") {
        return;
    }
    let agent = serve(&[], |options| {
        options.environment.insert("MODE".into(), "test".into());
        options.pass_environment.push("CARGO_PKG_NAME".into());
    })
    .await;
    let names = answer(&agent.send("env").await);
    assert!(!names.contains("CARGO_MANIFEST_DIR"), "{names}");
    for name in ["CARGO_PKG_NAME", "MODE", "PATH"] {
        assert!(names.split(' ').any(|other| other == name), "{name}: {names}");
    }
}

/// The texts of the status messages of a stream, and the last state.
async fn said(agent: &crate::support::Served, message: &str) -> (Vec<String>, Option<TaskState>) {
    let mut events = agent.client.stream(message).await.unwrap();
    let (mut texts, mut state) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        match event.unwrap() {
            StreamResponse::StatusUpdate(update) => {
                state = Some(update.status.state);
                texts.extend(update.status.message.as_ref().map(|message| message.text()));
            }
            StreamResponse::ArtifactUpdate(update) => panic!("an artifact: {update:?}"),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        }
    }
    (texts, state)
}

#[tokio::test]
async fn clients_of_iac_code_get_the_answer_as_status_messages() {
    if skip("clients_of_iac_code_get_the_answer_as_status_messages") {
        return;
    }
    let agent = serve_iac_code(&[]).await;
    let (texts, state) = said(&agent, "pieces my key is hunter2|-hunt|er2, and |it works").await;
    assert_eq!(
        (texts.concat().as_str(), state),
        ("my key is ********, and it works", Some(TaskState::Completed))
    );
    assert!(texts.len() > 1, "{texts:?}");
    let task = agent.latest().await;
    let task = agent.client.get(task.id).await.unwrap();
    let [asked, answered] = &task.history[..] else { panic!("{:?}", task.history) };
    assert_eq!(asked.text(), "pieces my key is hunter2|-hunt|er2, and |it works");
    assert_eq!(answered.text(), "my key is ********, and it works");
    assert!(task.artifacts.is_empty());
}

#[tokio::test]
async fn a_new_session_knows_the_answers_that_were_status_messages() {
    if skip("a_new_session_knows_the_answers_that_were_status_messages") {
        return;
    }
    let agent = serve_iac_code(&[]).await;
    agent.say("c", "hello").await;
    let agent = agent.restart_iac_code(&[]).await;
    let told = agent.say("c", "blocks").await.history.pop().unwrap().text();
    assert!(told.contains("User: hello\\n\\nAgent: you said: hello"), "{told}");
}

#[tokio::test]
async fn the_files_of_tools_are_artifacts_and_none_replaces_another_one() {
    if skip("the_files_of_tools_are_artifacts_and_none_replaces_another_one") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let task = agent.say("c", "files").await;
    let files: Vec<_> = task
        .artifacts
        .iter()
        .map(|artifact| (artifact.artifact_id.as_str(), artifact.parts[0].content.clone()))
        .collect();
    let file = |text: &str| Part::raw(text).content;
    assert_eq!(files, [("file:a.yml", file("one")), ("file:a.yml:2", file("two"))]);
}
