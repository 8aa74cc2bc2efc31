//! How many processes run at once, and who makes room for whom.

use std::time::Duration;

use attache_agents::program::{ProgramOptions, Protocol};
use attache_client::Outgoing;
use attache_protocol::TaskState;

use crate::support::{failure, runs, serve, soon, task, text, until};
use crate::text::next_text;

fn one_process(options: &mut ProgramOptions) {
    options.protocol = Protocol::Json;
    options.max_processes = 1;
}

#[tokio::test]
async fn a_program_that_asks_makes_room_for_a_turn_that_waits_for_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("ask");
    let script = format!(
        r#"
        read -r message
        case "$message" in
            *'"text":"question","type"'*)
                echo "{{\"type\":\"chunk\",\"text\":\"$$\"}}"
                while [ ! -e {} ]; do sleep 0.01; done
                echo '{{"type":"ask","text":"how many?"}}'
                read -r answer ;;
        esac
        echo '{{"type":"complete","text":"done"}}'
        "#,
        signal.display()
    );
    let agent = serve(&script, one_process).await;
    let mut events = agent.stream("question").await.unwrap();
    let pid = next_text(&mut events).await;
    // The only place is taken, and there is no process yet that could make room.
    let waiting = task(agent.send(Outgoing::new("other").return_immediately()).await.unwrap());
    std::fs::write(&signal, "").unwrap();
    let done = soon(agent.wait_until(waiting.id, |task| task.status.state.is_terminal())).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed, "{done:?}");
    until("the process that waited for an answer is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn a_turn_that_gets_no_place_says_that_the_program_was_not_started() {
    let agent = serve("trap '' TERM; echo $$; while :; do sleep 0.05; done", |options| {
        options.max_processes = 1;
        options.timeout = Duration::from_secs(1);
        // The process keeps its place after its turn has taken too long.
        options.grace = Duration::from_secs(600);
    })
    .await;
    let mut events = agent.stream("one").await.unwrap();
    next_text(&mut events).await;
    let failed = task(soon(agent.send("two")).await.unwrap());
    let expected = "no process became free within 1 s, so the program was not started: try again later";
    assert_eq!(failure(&failed), expected);
    assert!(failed.artifacts.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn the_time_in_which_a_turn_waits_for_a_place_is_not_that_of_its_program() {
    let agent = serve("sleep 2; echo done", |options| {
        options.max_processes = 1;
        options.timeout = Duration::from_secs(3);
    })
    .await;
    // Together they take longer than one may take.
    let (one, two) = tokio::join!(agent.send("one"), agent.send("two"));
    for done in [task(one.unwrap()), task(two.unwrap())] {
        assert_eq!(text(&done, 0), "done\n", "{done:?}");
    }
}
