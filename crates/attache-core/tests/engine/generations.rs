//! Task generations: hidden unless the caller uses them, and one number for tasks, events and long polls.

use std::time::Duration;

use attache_core::{Identity, RequestTerms, Turn, agent_fn};
use attache_protocol::{
    ErrorKind, Extensions, GENERATION_EXTENSION, GetTaskRequest, StreamResponse, Task,
    TaskPushNotificationConfig, TaskState, Version,
};
use tokio::time::Instant;

use crate::support::{Host, Latch, Script, Step, host, say, settle_down, soon};

fn asking() -> Host {
    host(Script(vec![Step::Ask("?".into())]))
}

fn gated(latch: &Latch) -> Host {
    let latch = latch.clone();
    host(agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.artifact("a").text("x").await?;
            latch.pass().await;
            turn.complete().await
        }
    }))
}

fn after(task: &Task, generation: u64) -> GetTaskRequest {
    GetTaskRequest { id: task.id.clone(), current_generation: Some(generation), ..GetTaskRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn generations_are_not_shown_unless_the_caller_uses_them() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    assert_eq!(task.generation, None);
    assert_eq!(client.list_all().await[0].generation, None);
    let events = client.stream(say("hi")).await.rest().await;
    assert!(!format!("{events:?}").contains("generation: Some"));
    assert_eq!(client.cancel(&task.id).await.unwrap().generation, None);
}

#[tokio::test(start_paused = true)]
async fn generation_arguments_are_ignored_unless_the_caller_uses_them() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    let begun = Instant::now();
    client.try_get(after(&task, 99)).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    client
        .send(say("hi").to(&task).configured(|configuration| configuration.if_generation_match = Some(99)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn protocol_1_1_and_the_extension_enable_generations() {
    let host = asking();
    let admit = |version, asked: &str| {
        let asked = Extensions::parse([asked]);
        let terms = RequestTerms::new(version, &asked);
        host.service.begin(Identity::default(), terms, None).unwrap().caller().clone()
    };
    assert!(!admit(Version::V1_0, "").generations);
    assert!(!admit(Version::V0_3, "urn:other").generations);
    assert!(admit(Version::V1_0, GENERATION_EXTENSION).generations);
    assert!(admit(Version::V1_1, "").generations);
}

#[tokio::test(start_paused = true)]
async fn the_generation_of_a_task_and_of_each_event_is_its_position_in_the_log() {
    let host = asking();
    let client = host.client().with_generations();
    let events = client.stream(say("hi")).await.rest().await;
    for event in &events {
        let generation = match &event.what {
            StreamResponse::Task(task) => task.generation,
            StreamResponse::StatusUpdate(update) => update.generation,
            StreamResponse::ArtifactUpdate(update) => update.generation,
            StreamResponse::Message(_) => None,
        };
        assert_eq!((generation, generation.is_some()), (event.seq, true));
    }
    let task = client.get(&events[0].task().id).await;
    assert_eq!(task.generation, events.last().unwrap().seq);
    assert_eq!(client.list_all().await[0].generation, task.generation);
    let answered = client.send(say("this").to(&task)).await;
    assert!(answered.generation > task.generation);
    let canceled = client.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.generation, answered.generation.map(|generation| generation + 1));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_with_the_next_event() {
    let latch = Latch::new();
    let host = gated(&latch);
    let client = host.client().with_generations();
    let task = client.send(say("hi").at_once()).await;
    latch.reached().await;
    let seen = client.get(&task.id).await.generation.unwrap();
    let (poller, request) = (client.clone(), after(&task, seen));
    let poll = tokio::spawn(async move { poller.try_get(request).await.unwrap() });
    settle_down().await;
    assert!(!poll.is_finished());
    latch.open();
    let polled = soon(poll).await.unwrap();
    assert_eq!((polled.generation, polled.artifacts.len()), (Some(seen + 1), 1));
    latch.open();
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_the_unchanged_task_when_its_time_is_over() {
    let host = asking();
    let client = host.client().with_generations();
    let task = client.send(say("hi")).await;
    let begun = Instant::now();
    assert_eq!(client.try_get(after(&task, task.generation.unwrap())).await.unwrap(), task);
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_for_an_older_generation_returns_at_once() {
    let host = asking();
    let client = host.client().with_generations();
    let task = client.send(say("hi")).await;
    let begun = Instant::now();
    assert_eq!(client.try_get(after(&task, 1)).await.unwrap(), task);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_on_a_task_that_has_ended_returns_at_once() {
    let host = host(Script(vec![]));
    let client = host.client().with_generations();
    let task = client.send(say("hi")).await;
    let begun = Instant::now();
    for seen in [0, task.generation.unwrap(), 99] {
        assert_eq!(client.try_get(after(&task, seen)).await.unwrap(), task);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_message_for_another_generation_is_refused_and_leaves_nothing() {
    let host = asking();
    let client = host.client().with_generations();
    let task = client.send(say("hi")).await;
    let webhook = TaskPushNotificationConfig { url: "https://example.com".to_owned(), ..Default::default() };
    for wrong in [0, task.generation.unwrap() - 1, task.generation.unwrap() + 1, u64::MAX] {
        let message = say("this").to(&task).configured(|configuration| {
            configuration.if_generation_match = Some(wrong);
            configuration.task_push_notification_config = Some(Box::new(webhook.clone()));
        });
        let error = client.try_send(message).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TaskGenerationMismatch);
        let told =
            error.metadata().iter().find(|(key, _)| *key == "generation").map(|(_, value)| value.as_str());
        assert_eq!(told, Some(task.generation.unwrap().to_string().as_str()));
    }
    assert_eq!(client.get(&task.id).await, task);
    assert!(host.store.outbox().webhooks(&task.id).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_for_the_right_generation_is_accepted_once() {
    let host = asking();
    let client = host.client().with_generations();
    let task = client.send(say("hi")).await;
    let message =
        say("this").to(&task).configured(|configuration| configuration.if_generation_match = task.generation);
    assert_eq!(client.send(message.clone()).await.status.state, TaskState::InputRequired);
    assert_eq!(client.try_send(message).await.unwrap_err().kind(), ErrorKind::TaskGenerationMismatch);
}
