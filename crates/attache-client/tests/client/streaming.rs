//! Streams that do not break.

use attache_client::Outgoing;
use attache_protocol::{ErrorKind, TaskState};
use attache_server::Server;
use futures::StreamExt;
use serde_json::json;

use crate::support::{Fake, Player, Reaction, connect, gists, next, playing, rest, serve, soon, sse, task};

#[tokio::test]
async fn a_stream_has_every_event_and_an_end() {
    let agent = playing().await;
    let mut events = soon(agent.stream("count 3")).await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        [
            "task TASK_STATE_SUBMITTED",
            "status TASK_STATE_WORKING",
            "artifact 0 ",
            "artifact 1 ",
            "artifact 2 ",
            "artifact 3",
            "status TASK_STATE_COMPLETED"
        ]
    );
    assert!(events.next().await.is_none(), "it stays at its end");
}

#[tokio::test]
async fn a_direct_answer_is_the_only_event() {
    let agent = playing().await;
    let events = soon(agent.stream("message hi")).await.unwrap();
    let events: Vec<_> = soon(events.map(Result::unwrap).collect()).await;
    assert_eq!(gists(&events), ["message message hi"]);
}

#[tokio::test]
async fn a_stream_ends_where_the_agent_asks() {
    let agent = playing().await;
    let mut events = soon(agent.stream("ask")).await.unwrap();
    let all = rest(&mut events).await.unwrap();
    assert_eq!(gists(&all).last().unwrap(), "status TASK_STATE_INPUT_REQUIRED");
    let id = task(&all[0]).id.clone();
    let mut events = soon(agent.stream(Outgoing::new("count 1").task(id))).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()).last().unwrap(), "status TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn dropping_a_stream_does_not_stop_the_task() {
    let agent = playing().await;
    let mut events = agent.stream("wait").await.unwrap();
    let id = task(&next(&mut events).await).id.clone();
    next(&mut events).await;
    drop(events);
    assert_eq!(agent.get(id.clone()).await.unwrap().status.state, TaskState::Working);

    let mut events = agent.subscribe(id.clone()).await.unwrap();
    assert_eq!(task(&next(&mut events).await).status.state, TaskState::Working);
    agent.cancel(id.clone()).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["status TASK_STATE_CANCELED"]);
    assert_eq!(agent.subscribe(id).await.unwrap_err().kind(), Some(ErrorKind::UnsupportedOperation));
}

#[tokio::test]
async fn no_event_is_lost_when_a_wait_is_given_up() {
    let agent = playing().await;
    let mut events = agent.stream("wait").await.unwrap();
    let id = task(&next(&mut events).await).id.clone();
    next(&mut events).await;
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), events.next()).await.is_err());
    agent.cancel(id).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["status TASK_STATE_CANCELED"]);
}

#[tokio::test]
async fn an_agent_that_does_not_stream_answers_in_one_event() {
    let mut card = attache_protocol::AgentCard::new("Quiet", "Does not stream");
    card.capabilities.streaming = Some(false);
    let agent = connect(&format!("http://{}", serve(Server::new(Player).card(card)).await)).await;
    let mut events = soon(agent.stream("hi")).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["task TASK_STATE_COMPLETED"]);
    let mut events = soon(agent.stream("message hi")).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["message message hi"]);
}

#[tokio::test]
async fn a_server_may_repeat_the_whole_task_at_the_end_and_need_not_close() {
    let fake = Fake::agent(|asked| {
        let status = json!({"state": "TASK_STATE_COMPLETED"});
        let events = [
            json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}),
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}),
            json!({"task": {"id": "t", "status": status}}),
        ];
        let mut bytes = sse(asked, &events);
        bytes.extend_from_slice(b": still here\n\n");
        Reaction::Hang(bytes)
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED", "task TASK_STATE_COMPLETED"]
    );
    assert_eq!(fake.calls().len(), 1);
}
