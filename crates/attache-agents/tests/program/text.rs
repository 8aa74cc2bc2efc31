//! The text protocol.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::budget::{Budget, BudgetOptions};
use attache_agents::program::{Program, ProgramOptions};
use attache_client::{Client, Events, Outgoing};
use attache_core::MemoryStore;
use attache_protocol::{AgentCard, Message, Part, StreamResponse, TaskState};
use attache_server::Server;

use crate::support::{LEAVE_DAEMON, failure, kill, runs, serve, soon, task, text, until};

/// The next text of an artifact in a stream.
pub(crate) async fn next_text(events: &mut Events) -> String {
    loop {
        let event = events.next().await.expect("the stream goes on").expect("an event");
        if let StreamResponse::ArtifactUpdate(update) = event {
            return update.artifact.parts.iter().filter_map(|part| part.as_text()).collect();
        }
    }
}

#[tokio::test]
async fn a_program_reads_the_message_and_its_output_is_the_answer() {
    let agent = serve("tr a-z A-Z", |_| {}).await;
    let done = task(agent.send("hello").await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(text(&done, 0), "HELLO");
}

#[tokio::test]
async fn output_is_streamed_while_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("go");
    let script = format!("echo one; while [ ! -e {} ]; do sleep 0.01; done; echo two", signal.display());
    let agent = serve(&script, |_| {}).await;
    let mut events = agent.stream("hello").await.unwrap();
    assert_eq!(next_text(&mut events).await, "one\n");
    std::fs::write(&signal, "").unwrap();
    assert_eq!(next_text(&mut events).await, "two\n");
}

#[tokio::test]
async fn a_program_that_fails_fails_the_task_and_hides_its_errors() {
    let agent = serve("echo 'password: x' >&2; exit 3", |_| {}).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program failed (exit code 3)");
    let agent = serve("echo 'no such city' >&2; exit 3", |options| options.show_errors = true).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program failed (exit code 3): no such city");
    let agent = serve("kill -9 $$", |_| {}).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program failed (signal 9)");
}

#[tokio::test]
async fn a_program_that_cannot_start_fails_the_task() {
    let agent = serve("true", |options| options.command = vec!["/nothing/here".into()]).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert!(failure(&failed).starts_with("the agent failed (error id "), "{failed:?}");
}

#[tokio::test]
async fn files_are_on_the_disk_while_the_program_runs() {
    let agent = serve("read -r first; read -r second; cat \"$second\"; echo; echo $ATTACHE_FILES; stat -c %a $ATTACHE_FILES", |_| {}).await;
    let file = Part::raw("the content").filename("../a b.txt");
    let done = task(agent.send(Message::user("m", "look").part(file).part("")).await.unwrap());
    let lines = text(&done, 0);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines[0], lines[2]), ("the content", "700"), "{lines:?}");
    assert!(!std::path::Path::new(lines[1]).exists(), "the folder is removed");
}

#[tokio::test]
async fn a_program_gets_only_the_environment_that_it_may_have() {
    // Cargo sets this for tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let change = |options: &mut attache_agents::program::ProgramOptions| {
        options.environment.insert("MODE".into(), "test".into());
        options.pass_environment.push("CARGO_PKG_NAME".into());
    };
    let agent = serve("env | cut -d= -f1 | sort; echo $MODE; echo $ATTACHE_TASK_ID", change).await;
    let done = task(agent.send("hello").await.unwrap());
    let output = text(&done, 0);
    assert!(!output.contains("CARGO_MANIFEST_DIR"), "{output}");
    for name in ["ATTACHE_CONTEXT_ID", "ATTACHE_MESSAGE_ID", "CARGO_PKG_NAME", "MODE", "PATH"] {
        assert!(output.lines().any(|line| line == name), "{name}: {output}");
    }
    assert!(output.contains(&format!("test\n{}", done.id)), "{output}");
}

#[tokio::test]
async fn a_cancel_ends_the_program_and_the_processes_that_it_started() {
    let script = "sleep 1000 & echo $! $$; wait";
    let agent = serve(script, |_| {}).await;
    let mut events = agent.stream("hello").await.unwrap();
    let pids = next_text(&mut events).await;
    assert!(pids.split_whitespace().all(runs), "{pids}");
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    assert_eq!(agent.cancel(id).await.unwrap().status.state, TaskState::Canceled);
    until("both processes are gone", || !pids.split_whitespace().any(runs)).await;
}

#[tokio::test]
async fn a_program_can_clean_up_when_its_task_is_canceled() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    let script = format!(
        "trap 'echo cleaned > {}; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        note.display()
    );
    let agent = serve(&script, |_| {}).await;
    let mut events = agent.stream("hello").await.unwrap();
    next_text(&mut events).await;
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    agent.cancel(id).await.unwrap();
    until("the program has cleaned up", || note.exists()).await;
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let agent = serve("trap '' TERM; echo $$; while :; do sleep 0.05; done", |options| {
        options.grace = Duration::from_millis(50)
    })
    .await;
    let mut events = agent.stream("hello").await.unwrap();
    let pid = next_text(&mut events).await;
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    agent.cancel(id).await.unwrap();
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn a_flood_of_output_fails_the_task() {
    let agent = serve("yes", |options| options.max_output = 100_000).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program wrote more than 100000 bytes");
    let kept: usize = text(&failed, 0).len();
    assert!(kept <= 100_000, "{kept}");
}

#[tokio::test]
async fn the_next_message_after_a_flood_of_output_is_answered() {
    let script = "read -r line; [ \"$line\" = flood ] && yes; echo fine";
    let agent = serve(script, |options| {
        options.max_output = 100_000;
        options.max_processes = 1;
    })
    .await;
    let failed = task(soon(agent.send("flood")).await.unwrap());
    assert_eq!(failure(&failed), "the program wrote more than 100000 bytes");
    assert_eq!(text(&task(soon(agent.send("hello")).await.unwrap()), 0), "fine\n");
}

#[tokio::test]
async fn a_program_that_is_killed_in_the_middle_of_its_output_fails_the_task() {
    let agent = serve("echo $$; sleep 1000; exit 0", |_| {}).await;
    let mut events = agent.stream("hello").await.unwrap();
    let pid = next_text(&mut events).await;
    kill(&pid);
    soon(async { while events.next().await.is_some() {} }).await;
    let id = agent.list(Default::default()).await.unwrap().tasks[0].id.clone();
    let failed = agent.get(id).await.unwrap();
    assert_eq!(failure(&failed), "the program failed (signal 9)");
    assert_eq!(text(&failed, 0), pid, "what arrived is kept");
}

#[tokio::test]
async fn a_program_that_hangs_fails_the_task() {
    let agent = serve("echo $$; sleep 1000", |options| options.timeout = Duration::from_millis(300)).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the program did not finish within 0.3 s");
    let pid = text(&failed, 0);
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn processes_that_a_program_leaves_behind_are_killed() {
    let agent = serve("sleep 1000 & echo $!", |_| {}).await;
    let done =
        task(tokio::time::timeout(Duration::from_secs(20), agent.send("hello")).await.unwrap().unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    let pid = text(&done, 0);
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn a_process_in_a_session_of_its_own_does_not_outlive_the_task() {
    let script = "setsid sleep 1000 & until grep -q ^sleep /proc/$!/cmdline; do sleep 0.01; done; echo $!";
    let done = task(soon(serve(script, |_| {}).await.send("hello")).await.unwrap());
    assert_eq!(done.status.state, TaskState::Completed);
    until("the process is gone", || !runs(&text(&done, 0))).await;
}

#[tokio::test]
async fn a_process_that_keeps_the_pipes_open_delays_neither_the_task_nor_the_next_message() {
    // Standard output, standard error, and a standard input that is not read.
    let script = format!("{LEAVE_DAEMON}; echo $!");
    let agent = serve(&script, |options| options.max_processes = 1).await;
    for _ in 0..2 {
        let done = task(soon(agent.send("x".repeat(1_000_000))).await.unwrap());
        assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
        kill(&text(&done, 0));
    }
}

#[tokio::test]
async fn a_program_can_clean_up_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    let script =
        format!("trap 'echo cleaned > {}; exit 0' TERM; while :; do sleep 0.05; done", note.display());
    let agent = serve(&script, |options| options.timeout = Duration::from_secs(2)).await;
    let failed = task(soon(agent.send("hello")).await.unwrap());
    assert_eq!(failure(&failed), "the program did not finish within 2 s");
    assert!(note.exists(), "the program has cleaned up before the task failed");
}

#[tokio::test]
async fn a_program_can_clean_up_when_the_budget_of_its_caller_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("note");
    let script =
        format!("trap 'echo cleaned > {}; exit 0' TERM; while :; do sleep 0.05; done", note.display());
    let store = Arc::<MemoryStore>::default();
    let options = BudgetOptions::default().with(|options| options.time = Some(Duration::from_secs(2)));
    let program = Program::new(ProgramOptions::new(["/bin/sh", "-c", &script]));
    let agent = Budget::new(options, store.clone(), "program").limit(program);
    let server = Server::new(agent).card(AgentCard::new("Program", "A shell script")).shared_store(store);
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    let failed = task(soon(Client::connect(&url).await.unwrap().send("hello")).await.unwrap());
    assert!(failure(&failed).contains("budget"), "{failed:?}");
    until("the program has cleaned up", || note.exists()).await;
}

#[tokio::test]
async fn more_turns_than_processes_wait() {
    let folder = tempfile::tempdir().unwrap();
    // `mkdir` fails if two run at once.
    let script = format!("mkdir {0} && sleep 0.05 && rmdir {0}", folder.path().join("lock").display());
    let agent = serve(&script, |options| options.max_processes = 1).await;
    let sends = (0..5).map(|_| async { task(agent.send("hello").await.unwrap()).status.state });
    let states = futures::future::join_all(sends).await;
    assert_eq!(states, vec![TaskState::Completed; 5]);
}

#[tokio::test]
async fn a_hundred_contexts_at_once_get_their_own_answers() {
    let agent = serve("cat; echo \" in $ATTACHE_CONTEXT_ID\"", |_| {}).await;
    let sends = (0..100).map(|number| {
        let message = Outgoing::new(format!("hello {number}")).context(format!("c{number}"));
        async { text(&task(agent.send(message).await.unwrap()), 0) }
    });
    for (number, answer) in futures::future::join_all(sends).await.iter().enumerate() {
        assert_eq!(*answer, format!("hello {number} in c{number}\n"));
    }
}

#[tokio::test]
async fn a_program_that_does_not_read_a_large_message_is_no_problem() {
    let agent = serve("echo done", |_| {}).await;
    let done = task(agent.send("x".repeat(1_000_000)).await.unwrap());
    assert_eq!(text(&done, 0), "done\n");
}
