//! Waiting for a task without a stream.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_client::{Client, ClientError, ClientOptions, Outgoing, Pace, Reply};
use attache_protocol::{ErrorKind, TaskId, TaskState};
use attache_server::Server;
use serde_json::json;

use crate::support::{Fake, Player, WIRES, gated, over, quick, rpc_result, serve, soon};

/// So slow that a test that depends on it does not end in time.
fn never() -> Pace {
    Pace::default().first(Duration::from_secs(600)).longest(Duration::from_secs(600))
}

fn quickly() -> ClientOptions {
    let pace = Pace::default().first(Duration::from_millis(1)).longest(Duration::from_millis(4));
    quick().pace(pace)
}

async fn begin(agent: &Client, text: &str) -> TaskId {
    let Reply::Task(task) = agent.send(Outgoing::new(text).return_immediately()).await.unwrap() else {
        panic!("a task")
    };
    task.id
}

#[tokio::test]
async fn an_agent_that_counts_changes_tells_when_there_is_one() {
    let (agent, gate) = gated();
    let server = serve(Server::new(agent)).await;
    let options = quick().pace(never());
    let agent = Client::connect_with(&format!("http://{server}"), options).await.unwrap();
    let id = begin(&agent, "count 3").await;
    let (ended, ()) = soon(futures::future::join(agent.wait(id.clone()), async {
        for _ in 0..3 {
            tokio::task::yield_now().await;
            gate.add_permits(1);
        }
    }))
    .await;
    let ended = ended.unwrap();
    assert_eq!((ended.status.state, ended.artifacts[0].text().as_str()), (TaskState::Completed, "0 1 2 3"));
    let now = agent.get_newer(id, ended.generation.unwrap() - 1).await.unwrap();
    assert_eq!(now.generation, ended.generation, "what has changed already is told at once");
}

#[tokio::test]
async fn a_wait_ends_when_the_agent_asks_or_the_condition_is_met() {
    for wire in WIRES {
        let server = serve(Server::new(Player)).await;
        let agent = over(wire, server, &format!("http://{server}")).await;
        let id = begin(&agent, "ask").await;
        assert_eq!(soon(agent.wait(id)).await.unwrap().status.state, TaskState::InputRequired, "{wire}");
        let id = begin(&agent, "wait").await;
        let working =
            soon(agent.wait_until(id, |task| task.status.state == TaskState::Working)).await.unwrap();
        assert_eq!(working.status.state, TaskState::Working, "{wire}");
        let error = soon(agent.wait("unknown")).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{wire}");
    }
}

/// A server whose task ends after this many reads, with a generation or without.
async fn looked_at(times: usize, generation: Option<u64>) -> Fake {
    let looks = AtomicUsize::new(0);
    Fake::agent(move |asked| {
        let done = looks.fetch_add(1, Ordering::SeqCst) + 1 >= times;
        let state = if done { "TASK_STATE_COMPLETED" } else { "TASK_STATE_WORKING" };
        let mut task = json!({"id": "t", "status": {"state": state}});
        if let Some(generation) = generation {
            task["generation"] = json!(generation.to_string());
        }
        rpc_result(asked, &task)
    })
    .await
}

#[tokio::test]
async fn an_agent_that_does_not_count_is_asked_again_and_again() {
    for generation in [None, Some(7)] {
        let fake = looked_at(9, generation).await;
        let agent = Client::connect_with(&fake.url, quickly()).await.unwrap();
        assert_eq!(soon(agent.wait("t")).await.unwrap().status.state, TaskState::Completed);
        assert_eq!(fake.calls().len(), 9, "{generation:?}");
        let asked = &fake.calls()[8].body["params"]["currentGeneration"];
        assert_eq!(asked.as_str(), generation.map(|it| it.to_string()).as_deref());
    }
}

#[tokio::test]
async fn an_agent_that_does_not_hold_its_answer_back_is_not_asked_without_a_pause() {
    let fake = looked_at(1_000_000, Some(7)).await;
    let options = quick().pace(never()).deadline(Duration::from_millis(200));
    let agent = Client::connect_with(&fake.url, options).await.unwrap();
    let error = soon(agent.wait("t")).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert_eq!(fake.calls().len(), 2);
}
