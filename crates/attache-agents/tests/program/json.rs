//! The JSON protocol.

use attache_agents::program::{ProgramOptions, Protocol};
use attache_core::DefaultWorkspace;
use attache_protocol::{Content, Message, Part, TaskState};
use serde_json::{Value, json};

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
    let script = r#"read -r message; printf '%s' "$message" > "$ATTACHE_FILES/seen"; printf '{"type":"artifact","parts":[{"path":"%s","mediaType":"application/json"}]}\n' "$ATTACHE_FILES/seen""#;
    let agent = serve_json(script).await;
    let file = Part::raw("bytes").filename("a.bin").media_type("application/octet-stream");
    let done = task(agent.send(Message::user("m", "look").part(file)).await.unwrap());
    let seen: Value = serde_json::from_slice(&bytes(&done.artifacts[0].parts[0])).unwrap();
    assert_eq!(seen["type"], "message");
    assert_eq!(seen["text"], "look");
    assert_eq!(seen["taskId"], done.id.as_str());
    assert_eq!(seen["caller"], json!({"name": null, "scopes": []}));
    let part = &seen["message"]["parts"][1];
    assert!(part["path"].as_str().is_some_and(|path| path.ends_with("/a.bin")), "{part}");
    assert_eq!((part["filename"].as_str(), part["raw"].as_str()), (Some("a.bin"), None));
    assert_eq!(done.artifacts[0].parts[0].filename.as_deref(), Some("seen"));
}

fn bytes(part: &Part) -> Vec<u8> {
    let Content::Raw(bytes) = &part.content else { panic!("{part:?}") };
    bytes.to_vec()
}

/// Names the file of the message in an artifact, and reports what the server says about it.
const NAMING: &str = r#"
    read -r message
    path=$(printf '%s' "$message" | sed 's/.*"text":"\([^"]*\)".*/\1/')
    echo "inside" > chart.txt
    echo "{\"type\":\"artifact\",\"parts\":[{\"path\":\"$path\"}]}"
"#;

#[tokio::test]
async fn a_file_is_read_from_the_directory_in_which_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let private = |options: &mut ProgramOptions| {
        options.protocol = Protocol::Json;
        options.conversation.workspaces.default = DefaultWorkspace::Private(folder.path().join("data"));
    };
    let own = |options: &mut ProgramOptions| {
        options.protocol = Protocol::Json;
        options.directory = Some(folder.path().to_owned());
    };
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    for agent in [serve(NAMING, private).await, serve(NAMING, own).await] {
        let done = task(agent.send("chart.txt").await.unwrap());
        assert_eq!(bytes(&done.artifacts[0].parts[0]), b"inside\n", "{done:?}");
        for outside in ["../secret", "/etc/hostname", "/proc/self/environ"] {
            let failed = failure(&task(agent.send(outside).await.unwrap()));
            assert_eq!(failed, "the program named a file that cannot be read", "{outside}");
        }
    }
}

#[tokio::test]
async fn a_workspace_does_not_decide_which_program_runs() {
    let here = std::env::current_dir().unwrap();
    let folder = tempfile::tempdir_in(&here).unwrap();
    let script = "read -r message; echo '{\"type\":\"complete\",\"text\":\"ours\"}'";
    std::fs::write(folder.path().join("agent.sh"), script).unwrap();
    let name = folder.path().strip_prefix(&here).unwrap();
    let workspace = tempfile::tempdir().unwrap();
    std::fs::create_dir(workspace.path().join(name)).unwrap();
    std::fs::write(workspace.path().join(name).join("agent.sh"), "exit 7").unwrap();
    let agent = serve("", |options| {
        options.command = vec!["/bin/sh".into(), name.join("agent.sh").display().to_string()];
        options.protocol = Protocol::Json;
        options.conversation.workspaces.default = DefaultWorkspace::Shared(workspace.path().to_owned());
    })
    .await;
    let done = task(agent.send("hello").await.unwrap());
    assert_eq!(done.status.message.unwrap().text(), "ours");
}

#[tokio::test]
async fn the_files_of_a_message_stay_while_the_same_process_waits_for_an_answer() {
    let script = r#"
        read -r message
        echo '{"type":"ask","text":"and the other one?"}'
        read -r answer
        case "$answer" in *"$ATTACHE_FILES/2-a.txt"*) ;; *) echo '{"type":"fail","text":"where is it?"}' ;; esac
        echo "{\"type\":\"complete\",\"text\":\"$(cat "$ATTACHE_FILES/a.txt") $(cat "$ATTACHE_FILES/2-a.txt") $ATTACHE_FILES\"}"
    "#;
    let agent = serve_json(script).await;
    let file = |bytes: &str| Part::raw(bytes).filename("a.txt");
    let asked = task(agent.send(Message::user("m", "look").part(file("first"))).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let answer = Message::user("m2", "here").part(file("second"));
    let done = task(agent.answer(&asked, answer).await.unwrap());
    let said = done.status.message.as_ref().unwrap().text();
    let folder = said.strip_prefix("first second ").unwrap_or_else(|| panic!("{said}"));
    until("the folder is removed", || !std::path::Path::new(folder).exists()).await;
}

#[tokio::test]
async fn an_event_has_all_of_its_content() {
    let content = r#""text":"words","data":{"a":1},"parts":[{"text":"more"},{"path":"b.txt"}]"#;
    for (event, state) in [
        ("complete", TaskState::Completed),
        ("fail", TaskState::Failed),
        ("reject", TaskState::Rejected),
        ("ask", TaskState::InputRequired),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo file > b.txt; echo '{{\"type\":\"{event}\",{content}}}'");
        let agent = serve(&script, |options| {
            options.protocol = Protocol::Json;
            options.directory = Some(folder.path().to_owned());
        })
        .await;
        let done = task(agent.send("hello").await.unwrap());
        assert_eq!(done.status.state, state, "{done:?}");
        let parts = &done.status.message.as_ref().unwrap().parts;
        assert_eq!((parts[0].as_text(), parts[2].as_text()), (Some("words"), Some("more")));
        assert!(matches!(&parts[1].content, Content::Data(data) if data.as_str() == r#"{"a":1}"#));
        assert_eq!((bytes(&parts[3]), parts[3].filename.as_deref()), (b"file\n".to_vec(), Some("b.txt")));
    }
}

#[tokio::test]
async fn content_that_is_not_known_is_not_lost_in_silence() {
    for (event, why) in [
        (
            r#"{"type":"complete","answer":"42"}"#,
            "the program wrote an event with the unknown content `answer`",
        ),
        (r#"{"type":"complete","parts":[{"words":"42"}]}"#, "the program wrote an invalid event"),
        (
            r#"{"type":"complete","parts":[{"path":"missing"}]}"#,
            "the program named a file that cannot be read",
        ),
        (r#"{"type":"ask","question":"how many?"}"#, "the program wrote an event without content"),
    ] {
        let agent = serve_json(&format!("echo '{event}'")).await;
        assert_eq!(failure(&task(agent.send("hello").await.unwrap())), why, "{event}");
    }
    let done = task(serve_json(r#"echo '{"type":"complete"}'"#).await.send("hello").await.unwrap());
    assert_eq!((done.status.state, done.status.message.is_none()), (TaskState::Completed, true));
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
    let folder = tempfile::tempdir().unwrap();
    for path in ["/dev/zero", "pipe", "."] {
        let script = format!(
            r#"[ -e pipe ] || mkfifo pipe; echo '{{"type":"artifact","parts":[{{"path":"{path}"}}]}}'"#
        );
        let agent = serve(&script, |options| {
            options.protocol = Protocol::Json;
            options.directory = Some(folder.path().to_owned());
        })
        .await;
        let failed = task(agent.send("hello").await.unwrap());
        assert_eq!(failure(&failed), "the program named a file that cannot be read", "{path}");
    }
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
