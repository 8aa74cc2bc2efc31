//! The JSON protocol with programs that hang, flood, do not read or die, and with callers that cancel.

use std::time::Duration;

use attache_agents::program::{ProgramOptions, Protocol};
use attache_client::{Client, Events, Outgoing};
use attache_protocol::{Task, TaskState};

use crate::support::{LEAVE_DAEMON, failure, kill, runs, serve, serve_json, soon, task, text, until};
use crate::text::next_text;

/// Reports the number of the process.
const REPORT: &str = r#"echo "{\"type\":\"chunk\",\"text\":\"$$\"}""#;

/// Sends a message, and waits until the program has reported its number.
async fn begin(agent: &Client) -> (Events, String) {
    let mut events = agent.stream("hello").await.unwrap();
    let pid = next_text(&mut events).await;
    (events, pid)
}

/// The only task, when it has ended.
async fn ended(agent: &Client, mut events: Events) -> Task {
    soon(async { while events.next().await.is_some() {} }).await;
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    agent.get(id).await.unwrap()
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_the_work_ends_the_program_after_it_has_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    let trap = format!("trap 'echo cleaned > {}; exit 0' TERM", note.display());
    let script = format!("read -r message; {trap}; {REPORT}; while :; do sleep 0.05; done");
    let agent = serve_json(&script).await;
    let (_events, pid) = begin(&agent).await;
    assert!(runs(&pid));
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    assert_eq!(agent.cancel(id).await.unwrap().status.state, TaskState::Canceled);
    until("the process is gone", || !runs(&pid)).await;
    assert!(note.exists());
}

#[tokio::test]
async fn a_program_that_hangs_in_the_middle_of_its_work_fails_the_task() {
    let agent = serve(&format!("read -r message; {REPORT}; sleep 1000"), |options| {
        options.protocol = Protocol::Json;
        options.timeout = Duration::from_secs(2);
    })
    .await;
    let (events, pid) = begin(&agent).await;
    let failed = ended(&agent, events).await;
    assert_eq!(failure(&failed), "the program did not finish within 2 s");
    assert_eq!(text(&failed, 0), pid, "what arrived is kept");
    assert!(!runs(&pid));
}

#[tokio::test]
async fn a_flood_of_events_fails_the_task_and_the_next_message_is_answered() {
    let script = r#"
        read -r message
        case "$message" in
            *'"text":"flood","type"'*) yes '{"type":"chunk","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}' ;;
            *'"text":"line","type"'*) yes | tr -d '\n' ;;
            *) echo '{"type":"complete","text":"fine"}' ;;
        esac
    "#;
    let agent = serve(script, |options| {
        options.protocol = Protocol::Json;
        options.max_output = 100_000;
        options.max_processes = 1;
    })
    .await;
    for flood in ["flood", "line"] {
        let failed = task(soon(agent.send(flood)).await.unwrap());
        assert_eq!(failure(&failed), "the program wrote more than 100000 bytes", "{flood}");
    }
    let done = task(soon(agent.send("hello")).await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_program_that_is_killed_in_the_middle_of_its_work_fails_the_task() {
    let agent = serve_json(&format!("read -r message; {REPORT}; sleep 1000; exit 0")).await;
    let (events, pid) = begin(&agent).await;
    kill(&pid);
    let failed = ended(&agent, events).await;
    assert_eq!(failure(&failed), "the program failed (signal 9)");
    assert_eq!(text(&failed, 0), pid, "what arrived is kept");
}

#[tokio::test]
async fn a_hundred_contexts_at_once_get_their_own_answers() {
    let script = r#"
        read -r message
        number=$(printf '%s' "$message" | sed 's/.*"text":"\([^"]*\)".*/\1/')
        echo "{\"type\":\"artifact\",\"text\":\"$number in $ATTACHE_CONTEXT_ID\"}"
    "#;
    let agent = serve_json(script).await;
    let sends = (0..100).map(|number| {
        let message = Outgoing::new(format!("hello {number}")).context(format!("c{number}"));
        async { text(&task(agent.send(message).await.unwrap()), 0) }
    });
    for (number, answer) in futures::future::join_all(sends).await.iter().enumerate() {
        assert_eq!(*answer, format!("hello {number} in c{number}"));
    }
}

fn one_process(options: &mut ProgramOptions) {
    options.protocol = Protocol::Json;
    options.max_processes = 1;
    options.max_output = 100_000;
    options.grace = Duration::from_millis(50);
}

#[tokio::test]
async fn a_program_that_does_not_read_a_large_message_is_no_problem() {
    for (output, expected) in [
        (r#"echo '{"type":"complete"}'"#, None),
        (r#"echo '{"type":"complete"}'; sleep 1000"#, None),
        (r#"echo '{"type":"fail","text":"no"}'; sleep 1000"#, Some("no")),
        ("echo '[1'; sleep 1000", Some("the program wrote an invalid event")),
        ("yes '{\"type\":\"status\"}'", Some("the program wrote more than 100000 bytes")),
    ] {
        let agent = serve(output, one_process).await;
        let done = task(soon(agent.send("x".repeat(1_000_000))).await.unwrap());
        match expected {
            Some(why) => assert_eq!(failure(&done), why, "{output}"),
            None => assert_eq!(done.status.state, TaskState::Completed, "{output}: {done:?}"),
        }
    }
}

#[tokio::test]
async fn a_program_can_ask_before_it_has_read_a_large_message_and_gets_both_lines() {
    let script = r#"
        echo '{"type":"ask","text":"what?"}'
        read -r message
        read -r answer
        case "$answer" in
            *'"text":"this","type"'*) echo "{\"type\":\"complete\",\"text\":\"${#message}\"}" ;;
            *) echo '{"type":"fail","text":"half a line"}' ;;
        esac
    "#;
    let agent = serve_json(script).await;
    let asked = task(soon(agent.send("x".repeat(200_000))).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired, "{asked:?}");
    let done = task(soon(agent.answer(&asked, "this")).await.unwrap());
    let length: usize = done.status.message.as_ref().unwrap().text().parse().unwrap();
    assert!(length > 200_000, "{length}");
}

#[tokio::test]
async fn a_process_that_keeps_the_pipes_open_delays_neither_the_task_nor_the_next_message() {
    // One program says that it is done, the other one ends without a word about it.
    for done in [r#"echo '{"type":"complete"}'"#, "exit 0"] {
        let report = r#"echo "{\"type\":\"artifact\",\"text\":\"$!\"}""#;
        let agent = serve(&format!("{LEAVE_DAEMON}; {report}; {done}"), one_process).await;
        for _ in 0..2 {
            let done = task(soon(agent.send("x".repeat(1_000_000))).await.unwrap());
            assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
            kill(&text(&done, 0));
        }
    }
}
