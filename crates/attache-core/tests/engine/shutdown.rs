//! Shutdown: no new messages, a grace time for running turns, and a defined end for turns that take longer.

use std::time::Duration;

use attache_core::{Turn, agent_fn};
use attache_protocol::{ErrorKind, TaskState};
use tokio::time::Instant;

use crate::support::{Host, host, say, settle_down, soon, states, status_text};

/// An agent that completes after as many seconds as the message says. It emits a status first, unless `silent`.
fn taking_its_time(silent: bool) -> Host {
    host(agent_fn(move |turn: Turn| async move {
        if !silent {
            turn.working("").await?;
        }
        tokio::time::sleep(Duration::from_secs(turn.text().parse()?)).await;
        turn.complete().await
    }))
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_accepts_no_more_messages() {
    let host = host(agent_fn(|turn: Turn| async move { turn.ask("?").await }));
    let client = host.client();
    let task = client.send(say("hi")).await;
    assert_eq!(host.service.shutdown(Duration::ZERO).await, 0);
    for message in [say("hi"), say("hi").to(&task), say("hi").at_once()] {
        assert_eq!(client.try_send(message.clone()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(client.try_stream(message).await.err().unwrap().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(client.get(&task.id).await, task, "what is there can still be read");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_waits_for_turns_that_run() {
    for silent in [false, true] {
        let host = taking_its_time(silent);
        let sent = host.client().send_meanwhile(say("20"));
        settle_down().await;
        let begun = Instant::now();
        assert_eq!(host.service.shutdown(Duration::from_secs(60)).await, 0);
        assert_eq!(begun.elapsed().as_secs(), 20);
        assert_eq!(soon(sent).await.unwrap().status.state, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_too_long_to_stop_fails_its_task() {
    let host = taking_its_time(false);
    let client = host.client();
    let (late, early) = (client.send_meanwhile(say("500")), client.send_meanwhile(say("5")));
    settle_down().await;
    let begun = Instant::now();
    assert_eq!(host.service.shutdown(Duration::from_secs(60)).await, 1);
    assert_eq!(soon(early).await.unwrap().status.state, TaskState::Completed);
    let late = soon(late).await.unwrap();
    assert_eq!(late.status.state, TaskState::Failed);
    assert!(status_text(&late).contains("stopped"), "{}", status_text(&late));
    assert_eq!(begun.elapsed().as_secs(), 60);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_stopped_before_its_task_exists_answers_that_the_server_stops() {
    let host = taking_its_time(true);
    let client = host.client();
    let (waiting, streaming) = (client.clone(), client.clone());
    let waiting = tokio::spawn(async move { waiting.try_send(say("500")).await.unwrap_err() });
    let streaming = streaming.stream(say("500")).await;
    let streaming = tokio::spawn(streaming.error());
    settle_down().await;
    let begun = Instant::now();
    assert_eq!(host.service.shutdown(Duration::from_secs(60)).await, 2);
    for refused in [waiting, streaming] {
        assert_eq!(soon(refused).await.unwrap().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(begun.elapsed().as_secs(), 60);
    host.idle().await;
    assert!(client.list_all().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn streams_of_a_turn_that_is_stopped_see_it_fail() {
    let host = taking_its_time(false);
    let client = host.client();
    let events = client.stream(say("500")).await;
    let task = client.list_all().await.remove(0);
    let waiting = client.send_meanwhile(say("1").to(&task));
    settle_down().await;
    assert_eq!(host.service.shutdown(Duration::from_secs(1)).await, 1);
    assert_eq!(states(&events.rest().await).last(), Some(&TaskState::Failed));
    assert_eq!(soon(waiting).await.unwrap().status.state, TaskState::Failed);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_stops_at_once() {
    let host = taking_its_time(false);
    let begun = Instant::now();
    assert_eq!(host.service.shutdown(Duration::from_secs(60)).await, 0);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
