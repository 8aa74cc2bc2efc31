//! Tasks that others write: the older worker, a process before this one, another one beside it.

use std::sync::Arc;

use attache_core::{Append, Seq, Store, TailItem, TaskEvent};
use attache_protocol::{Message, Part, TaskState};
use futures::StreamExt;
use serde_json::json;

use crate::support::{
    Asked, House, Link, Way, artifact, at, id, nobody, older, older_completed, status, task,
};

#[tokio::test]
async fn a_task_of_the_older_worker_is_read_and_listed() {
    let house = House::new();
    house.keep("t", older_completed("t", 0)).await;
    for store in [house.store(), house.store()] {
        assert_eq!(store.listed(&nobody()).await, ["t"]);
        let found = store.found("t").await;
        let found = found.task();
        assert_eq!(found.status.state, TaskState::Completed);
        assert_eq!(found.status.timestamp, Some(at(0)));
        assert_eq!(found.artifacts[0].text(), "{\n  \"price\": 42\n}");
        assert_eq!(found.artifacts[0].parts[0].media_type.as_deref(), Some("application/json"));
        assert!(found.history[0].parts[0].as_data().is_some());
        assert_eq!((found.context_id.as_ref(), found.history.len()), (None, 1));
    }
    assert_eq!(house.kept("t").await, older_completed("t", 0));
}

#[tokio::test]
async fn a_task_written_after_the_first_look_is_found_by_its_id() {
    let house = House::new();
    let store = house.store();
    assert!(store.listed(&nobody()).await.is_empty());
    house.keep("t", older_completed("t", 0)).await;
    assert_eq!(store.found("t").await.state, TaskState::Completed);
    assert_eq!(store.listed(&nobody()).await, ["t"]);
}

#[tokio::test(start_paused = true)]
async fn a_live_task_of_someone_else_is_followed() {
    let house = House::new();
    house.keep("t", older("t", "working", 0)).await;
    let store = house.store();
    let seen = store.found("t").await;
    assert_eq!(seen.state, TaskState::Working);
    let mut tail = store.tail(&id("t"), seen.seq);
    house.keep("t", older_completed("t", 5)).await;
    let Some(Ok(TailItem::Entries(entries))) = tail.next().await else { panic!("nothing") };
    let kinds: Vec<_> = entries.iter().map(|entry| entry.event.state()).collect();
    assert_eq!(kinds, [None, Some(TaskState::Completed)]);
    assert!(tail.next().await.is_none());
    assert_eq!(store.found("t").await.task().artifacts.len(), 1);
}

#[tokio::test]
async fn a_live_task_of_another_store_is_read_again_when_asked_for() {
    let house = House::new();
    let (here, there) = (house.store(), house.store());
    there.created(task("t")).await;
    assert_eq!(here.found("t").await.state, TaskState::Working);
    let events = vec![
        artifact("t", "a", Part::data(&json!({ "n": 1 })).unwrap()),
        TaskEvent::Message(Arc::new(Message::user("m-2", "and?"))),
        status("t", TaskState::InputRequired, 2),
    ];
    there.add("t", Seq(1), events).await.unwrap();
    assert_eq!(*here.found("t").await.task(), *there.found("t").await.task());
    // It is seen again only when something has changed.
    let seq = here.found("t").await.seq;
    assert_eq!(here.found("t").await.seq, seq);
}

#[tokio::test]
async fn the_turn_of_another_process_is_not_taken_for_dead_while_it_gives_signs_of_life() {
    let house = House::new();
    let (here, there) = (house.store(), house.store());
    let (_, lease) = there.created(task("t")).await;
    // Its lease was to last until 30, and nothing has been heard since.
    assert!(here.left_behind(0).await.is_empty());
    assert!(here.left_behind(149).await.is_empty());
    assert!(here.claim(&id("t"), at(149), at(179)).await.unwrap().is_none());
    for seconds in (10..=300).step_by(10) {
        there.renew(&[(id("t"), lease)], at(seconds + 30)).await.unwrap();
    }
    assert!(here.left_behind(400).await.is_empty());
    assert!(here.claim(&id("t"), at(400), at(430)).await.unwrap().is_none());
    assert_eq!(here.left_behind(451).await, ["t"]);
}

#[tokio::test]
async fn a_task_whose_process_died_can_be_ended() {
    let house = House::new();
    house.keep("older", older("older", "working", 0)).await;
    house.store().created(task("ours")).await;
    let store = house.store();
    assert!(store.left_behind(119).await.is_empty());
    assert_eq!(store.left_behind(121).await, ["older"]);
    for name in ["older", "ours"] {
        let lease = store.claim(&id(name), at(200), at(230)).await.unwrap().expect("the right to");
        // The others know.
        assert!(house.store().claim(&id(name), at(210), at(240)).await.unwrap().is_none());
        let found = store.found(name).await;
        let events = vec![status(name, TaskState::Failed, 200)];
        let lease = Some(lease);
        let append = Append { after: found.seq, lease, idempotency: None, push: None, events, now: at(200) };
        store.append(&id(name), append).await.unwrap();
        assert_eq!(house.kept(name).await["status"]["state"], "failed");
    }
    assert!(house.store().left_behind(100_000).await.is_empty());
}

#[tokio::test]
async fn a_question_asked_before_a_restart_can_be_answered_after_it() {
    let house = House::new();
    let before = house.store();
    before.created(task("t")).await;
    before.add("t", Seq(1), vec![status("t", TaskState::InputRequired, 2)]).await.unwrap();
    let store = house.store();
    let found = store.found("t").await;
    assert_eq!(found.state, TaskState::InputRequired);
    let answer = TaskEvent::Message(Arc::new(Message::user("m-2", "yes")));
    let events = vec![status("t", TaskState::Working, 3), answer];
    let append = Append { after: found.seq, lease: None, idempotency: None, push: None, events, now: at(3) };
    store.append(&id("t"), append).await.unwrap();
    assert_eq!(store.found("t").await.state, TaskState::Working);
    assert!(store.claim(&id("t"), at(3), at(33)).await.unwrap().is_some());
    let said = house.kept("t").await;
    let said: Vec<_> = said["history"].as_array().unwrap().iter().map(|said| &said["messageId"]).collect();
    assert_eq!(said, ["m-1", "s-2", "m-2"]);
}

#[tokio::test]
async fn a_task_of_someone_else_is_shown_as_it_was_while_the_engine_is_away() {
    let house = House::new();
    let link = Link::to(&house);
    let store = link.store();
    house.keep("t", older("t", "working", 0)).await;
    store.found("t").await;
    link.is(Way::Cut);
    assert_eq!(store.found("t").await.state, TaskState::Working);
    // But nobody takes it over without having looked.
    assert!(store.claim(&id("t"), at(1000), at(1030)).await.is_err());
}
