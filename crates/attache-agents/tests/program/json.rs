//! The JSON protocol.

use attache_agents::program::Protocol;
use attache_protocol::{Content, Message, Part, TaskState};

use crate::support::{failure, runs, serve, serve_json, task, text, until};

/// Asks for a number, and waits for the answer in the same process.
const ASKING: &str = r#"
read -r message
echo "{\"type\":\"ask\",\"text\":\"how many? $$\"}"
read -r answer
echo "{\"type\":\"complete\",\"text\":\"$$\"}"
"#;

#[tokio::test]
async fn a_program_reports_progress_and_makes_artifacts() {
    let script = r#"
        read -r message
        echo '{"type":"status","text":"thinking"}'
        echo '{"type":"artifact","name":"table","description":"numbers","data":{"a":1}}'
        echo '{"type":"chunk","name":"story","text":"once "}'
        echo '{"type":"chunk","name":"story","text":"upon","last":true}'
        echo '{"type":"complete"}'
    "#;
    let done = task(serve_json(script).await.send("hello").await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(done.artifacts[0].name.as_deref(), Some("table"));
    assert_eq!(done.artifacts[0].description.as_deref(), Some("numbers"));
    assert!(
        matches!(&done.artifacts[0].parts[0].content, Content::Data(data) if data.as_str() == r#"{"a":1}"#)
    );
    assert_eq!(text(&done, 1), "once upon");
}

#[tokio::test]
async fn a_program_sees_the_message_with_its_files_and_the_caller() {
    let script = r#"read -r message; printf '%s' "$message" > "$ATTACHE_FILES/../seen-$$"; printf '{"type":"artifact","parts":[{"path":"%s","mediaType":"application/json"}]}\n' "$ATTACHE_FILES/../seen-$$""#;
    let agent = serve_json(script).await;
    let file = Part::raw("bytes").filename("a.bin").media_type("application/octet-stream");
    let done = task(agent.send(Message::user("m", "look").part(file)).await.unwrap());
    let Content::Raw(bytes) = &done.artifacts[0].parts[0].content else { panic!("{done:?}") };
    let seen: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(seen["type"], "message");
    assert_eq!(seen["text"], "look");
    assert_eq!(seen["taskId"], done.id.as_str());
    assert_eq!(seen["caller"], serde_json::json!({"name": null, "scopes": []}));
    let part = &seen["message"]["parts"][1];
    assert!(part["path"].as_str().is_some_and(|path| path.ends_with("/a.bin")), "{part}");
    assert_eq!((part["filename"].as_str(), part["raw"].as_str()), (Some("a.bin"), None));
    let name = done.artifacts[0].parts[0].filename.clone().unwrap();
    assert!(name.starts_with("seen-"), "{name}");
    std::fs::remove_file(std::env::temp_dir().join(name)).unwrap();
}

#[tokio::test]
async fn the_answer_goes_to_the_process_that_asked() {
    let agent = serve_json(ASKING).await;
    let asked = task(agent.send("hello").await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let question = asked.status.message.as_ref().unwrap().text();
    let pid = question.trim_start_matches("how many? ").to_owned();
    let done = task(agent.answer(&asked, "five").await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(done.status.message.as_ref().unwrap().text(), pid);
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn an_answer_to_a_process_that_has_ended_starts_a_new_one_with_the_history() {
    let script = r#"
        read -r message
        case "$message" in
            *'"history":[]'*) echo '{"type":"ask","text":"how many?"}' ;;
            *) echo '{"type":"complete","text":"there is a history"}' ;;
        esac
    "#;
    let agent = serve_json(script).await;
    let asked = task(agent.send("hello").await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let done = task(agent.answer(&asked, "five").await.unwrap());
    assert_eq!(
        done.status.message.as_ref().map(|message| message.text()).as_deref(),
        Some("there is a history")
    );
}

#[tokio::test]
async fn a_cancel_ends_a_process_that_waits_for_an_answer() {
    let agent = serve_json(ASKING).await;
    let asked = task(agent.send("hello").await.unwrap());
    let question = asked.status.message.as_ref().unwrap().text();
    let pid = question.trim_start_matches("how many? ").to_owned();
    assert!(runs(&pid));
    agent.cancel(asked.id).await.unwrap();
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn a_line_that_is_no_event_fails_the_task() {
    for line in ["hello", "{}", r#"{"type":"dance"}"#, r#"{"type":"chunk"}"#, "[1"] {
        let agent = serve_json(&format!("read -r message; echo '{line}'; sleep 1000")).await;
        let failed = task(agent.send("hello").await.unwrap());
        assert!(failure(&failed).starts_with("the program wrote an "), "{line}: {failed:?}");
    }
}

#[tokio::test]
async fn a_program_fails_or_rejects_with_its_own_words() {
    let agent = serve_json(r#"echo '{"type":"fail","text":"the disk is full"}'"#).await;
    assert_eq!(failure(&task(agent.send("hello").await.unwrap())), "the disk is full");
    let agent = serve_json(r#"echo '{"type":"reject","text":"not today"}'"#).await;
    let rejected = task(agent.send("hello").await.unwrap());
    assert_eq!(rejected.status.state, TaskState::Rejected);
    assert_eq!(rejected.status.message.as_ref().unwrap().text(), "not today");
}

#[tokio::test]
async fn a_program_that_ends_without_a_word_completes_or_fails_by_its_exit_code() {
    let done = task(serve_json("read -r message").await.send("hello").await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    let failed = task(serve_json("exit 7").await.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program failed (exit code 7)");
}

#[tokio::test]
async fn a_device_is_not_read_as_a_file_of_the_program() {
    let agent = serve_json(r#"echo '{"type":"artifact","parts":[{"path":"/dev/zero"}]}'"#).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program named a file that cannot be read");
}

#[tokio::test]
async fn a_process_that_waits_for_an_answer_does_not_keep_others_from_running() {
    let script = r#"
        read -r message
        case "$message" in
            *'"history":[]'*) echo '{"type":"ask","text":"how many?"}'; read -r answer ;;
            *) echo '{"type":"complete","text":"there is a history"}' ;;
        esac
    "#;
    let agent = serve(script, |options| {
        options.protocol = Protocol::Json;
        options.max_processes = 1;
    })
    .await;
    let first = task(agent.send("one").await.unwrap());
    let second = task(agent.send("two").await.unwrap());
    let states = (first.status.state, second.status.state);
    assert_eq!(states, (TaskState::InputRequired, TaskState::InputRequired));
    for asked in [first, second] {
        let done = task(agent.answer(&asked, "five").await.unwrap());
        assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
    }
}
