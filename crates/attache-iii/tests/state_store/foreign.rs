//! Tasks of other processes: the older worker, an earlier process, a concurrent one.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Append, RenewFailure, Seq, Store, TailItem, TaskEvent};
use attache_protocol::{Message, Part, TaskState};
use futures::StreamExt;
use serde_json::json;

use crate::support::{
    Link, LinkState, Setup, StoreExt, anonymous, artifact, at, id, older, older_completed, status, task,
};

#[tokio::test]
async fn a_task_of_the_older_worker_is_read_and_listed() {
    let setup = Setup::new();
    setup.put("t", older_completed("t", 0)).await;
    for store in [setup.store(), setup.store()] {
        assert_eq!(store.listed(&anonymous()).await, ["t"]);
        let found = store.found("t").await;
        let found = found.task();
        assert_eq!(found.status.state, TaskState::Completed);
        assert_eq!(found.status.timestamp, Some(at(0)));
        assert_eq!(found.artifacts[0].text(), "{\n  \"price\": 42\n}");
        assert_eq!(found.artifacts[0].parts[0].media_type.as_deref(), Some("application/json"));
        assert!(found.history[0].parts[0].as_data().is_some());
        assert_eq!((found.context_id.as_ref(), found.history.len()), (None, 1));
    }
    assert_eq!(setup.stored("t").await, older_completed("t", 0));
}

#[tokio::test]
async fn a_task_written_after_the_first_listing_is_found_by_its_id() {
    let setup = Setup::new();
    let store = setup.store();
    assert!(store.listed(&anonymous()).await.is_empty());
    setup.put("t", older_completed("t", 0)).await;
    assert_eq!(store.found("t").await.state, TaskState::Completed);
    assert_eq!(store.listed(&anonymous()).await, ["t"]);
}

#[tokio::test(start_paused = true)]
async fn a_live_task_of_another_process_is_refreshed() {
    let setup = Setup::new();
    setup.put("t", older("t", "working", 0)).await;
    let store = setup.store();
    let seen = store.found("t").await;
    assert_eq!(seen.state, TaskState::Working);
    let mut tail = store.tail(&id("t"), seen.seq);
    setup.put("t", older_completed("t", 5)).await;
    let Some(Ok(TailItem::Entries(entries))) = tail.next().await else { panic!("nothing") };
    let kinds: Vec<_> = entries.iter().map(|entry| entry.event.state()).collect();
    assert_eq!(kinds, [None, Some(TaskState::Completed)]);
    assert!(tail.next().await.is_none());
    assert_eq!(store.found("t").await.task().artifacts.len(), 1);
}

#[tokio::test]
async fn a_live_task_of_another_store_is_read_again_at_each_request() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    there.created(task("t")).await;
    assert_eq!(here.found("t").await.state, TaskState::Working);
    let events = vec![
        artifact("t", "a", Part::data(&json!({ "n": 1 })).unwrap()),
        TaskEvent::Message(Arc::new(Message::user("m-2", "and?"))),
        status("t", TaskState::InputRequired, 2),
    ];
    there.add("t", Seq(1), events).await.unwrap();
    assert_eq!(*here.found("t").await.task(), *there.found("t").await.task());
    // It is published again only when something has changed.
    let seq = here.found("t").await.seq;
    assert_eq!(here.found("t").await.seq, seq);
}

#[tokio::test]
async fn the_turn_of_another_process_is_alive_while_its_lease_is_renewed() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    let (_, lease) = there.created(task("t")).await;
    // Its lease ended at 30, and there was no sign of life since.
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
    let setup = Setup::new();
    setup.put("older", older("older", "working", 0)).await;
    setup.store().created(task("ours")).await;
    let store = setup.store();
    assert!(store.left_behind(119).await.is_empty());
    assert_eq!(store.left_behind(121).await, ["older"]);
    for name in ["older", "ours"] {
        let lease = store.claim(&id(name), at(200), at(230)).await.unwrap().expect("the right to");
        // The other processes see it.
        assert!(setup.store().claim(&id(name), at(210), at(240)).await.unwrap().is_none());
        let found = store.found(name).await;
        let events = vec![status(name, TaskState::Failed, 200)];
        let lease = Some(lease);
        let append = Append { after: found.seq, lease, idempotency: None, push: None, events, now: at(200) };
        store.append(&id(name), append).await.unwrap();
        assert_eq!(setup.stored(name).await["status"]["state"], "failed");
    }
    assert!(setup.store().left_behind(100_000).await.is_empty());
}

#[tokio::test]
async fn a_request_for_input_before_a_restart_can_be_answered_after_it() {
    let setup = Setup::new();
    let before = setup.store();
    before.created(task("t")).await;
    before.add("t", Seq(1), vec![status("t", TaskState::InputRequired, 2)]).await.unwrap();
    let store = setup.store();
    let found = store.found("t").await;
    assert_eq!(found.state, TaskState::InputRequired);
    let answer = TaskEvent::Message(Arc::new(Message::user("m-2", "yes")));
    let events = vec![status("t", TaskState::Working, 3), answer];
    let append = Append { after: found.seq, lease: None, idempotency: None, push: None, events, now: at(3) };
    store.append(&id("t"), append).await.unwrap();
    assert_eq!(store.found("t").await.state, TaskState::Working);
    assert!(store.claim(&id("t"), at(3), at(33)).await.unwrap().is_some());
    let said = setup.stored("t").await;
    let said: Vec<_> = said["history"].as_array().unwrap().iter().map(|said| &said["messageId"]).collect();
    assert_eq!(said, ["m-1", "s-2", "m-2"]);
}

#[tokio::test]
async fn during_an_outage_the_last_known_version_of_another_processs_task_is_returned() {
    let setup = Setup::new();
    let link = Link::to(&setup);
    let store = link.store();
    setup.put("t", older("t", "working", 0)).await;
    store.found("t").await;
    link.is(LinkState::Cut);
    assert_eq!(store.found("t").await.state, TaskState::Working);
    // But it is not taken over without reading its current version.
    assert!(store.claim(&id("t"), at(1000), at(1030)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_another_process_is_found_with_the_next_lease() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    let (_, lease) = here.created(task("t")).await;
    let seen = there.found("t").await.seq;
    there.add("t", seen, vec![status("t", TaskState::Canceled, 5)]).await.unwrap();
    assert_eq!(here.renew(&[(id("t"), lease)], at(40)).await.unwrap(), []);
    // That renewal was not written, and the next one is.
    here.renew(&[(id("t"), lease)], at(70)).await.unwrap();
    let failures = here.renew(&[(id("t"), lease)], at(71)).await.unwrap();
    assert_eq!(failures, [(id("t"), RenewFailure::Ended(TaskState::Canceled))]);
    assert_eq!(setup.stored("t").await["status"]["state"], "canceled");
    assert_eq!(setup.store().found("t").await.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_another_process_is_found_with_the_next_event() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    here.created(task("t")).await;
    let seen = there.found("t").await.seq;
    there.add("t", seen, vec![status("t", TaskState::Canceled, 5)]).await.unwrap();
    here.add("t", Seq(1), vec![artifact("t", "a", "half")]).await.unwrap();
    let found = here.found("t").await;
    assert_eq!((found.state, found.task().artifacts.len()), (TaskState::Canceled, 1));
    assert_eq!(setup.stored("t").await["status"]["state"], "canceled");
}

#[tokio::test(start_paused = true)]
async fn a_result_does_not_replace_a_cancel_by_another_process() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    here.created(task("t")).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    let seen = there.found("t").await.seq;
    there.add("t", seen, vec![status("t", TaskState::Canceled, 5)]).await.unwrap();
    here.add("t", Seq(1), vec![status("t", TaskState::Completed, 6)]).await.unwrap_err();
    assert_eq!(here.found("t").await.state, TaskState::Canceled);
    assert_eq!(setup.stored("t").await["status"]["state"], "canceled");
}
