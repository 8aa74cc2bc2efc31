use std::time::Duration;

use attache_core::{
    DeliveryId, DueReceivers, NewTask, NewWebhook, Outbox, Outcome, PushEvents, Retention, Seq, Store,
    Webhook,
};
use attache_protocol::TaskState;
use futures::FutureExt;

use super::{Place, at, chunk, ended, live, owner, status, webhook};
use crate::sqlite::maintenance::Maintenance;

async fn hooked(place: &Place, task: &str, host: &str) -> Seq {
    place.put(NewTask { push: Some(webhook(task, "w", host)), ..live(task) }).await.0
}

async fn taken(place: &Place, host: &str, seconds: i64) -> Vec<String> {
    let taken = place.take_due(host, at(seconds), at(seconds + 10), 10).await.unwrap();
    taken.iter().map(|delivery| delivery.id.to_string()).collect()
}

fn id(task: &str, seq: u64) -> DeliveryId {
    DeliveryId { task: task.into(), webhook: "w".to_owned(), seq: Seq(seq) }
}

#[tokio::test]
async fn secrets_are_not_in_the_files_and_come_back() {
    let mut place = Place::new();
    hooked(&place, "t", "example.com").await;
    let new = NewWebhook { webhook: webhook("t", "x", "other.com"), limit: 32 };
    place.put_webhook(&"t".into(), new).await.unwrap();
    let expected = vec![webhook("t", "w", "example.com"), webhook("t", "x", "other.com")];
    for _ in 0..2 {
        assert_eq!(place.webhooks(&"t".into()).await.unwrap(), expected);
        for file in std::fs::read_dir(place.path().parent().unwrap()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for secret in ["t0ken-of-the-hook", "cr3dentials-of-the-hook"] {
                assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
            }
        }
        place.reopen();
    }
}

#[tokio::test]
async fn secrets_are_sealed_anew_so_that_old_keys_can_go() {
    let mut place = Place::new();
    hooked(&place, "t", "example.com").await;
    let theirs = place.keyring();
    theirs.rotate().unwrap();
    // The server has not heard of the new key when another process seals everything under it.
    assert_eq!(Maintenance::open(place.path()).unwrap().reseal(&theirs).unwrap(), 1);
    assert_eq!(place.webhooks(&"t".into()).await.unwrap(), [webhook("t", "w", "example.com")]);
    place.inner.keyring.rotate().unwrap();
    assert_eq!(place.reseal().await.unwrap(), 1);
    assert_eq!(place.reseal().await.unwrap(), 0);
    place.inner.keyring.retire_old().unwrap();
    place.reopen();
    assert_eq!(place.webhooks(&"t".into()).await.unwrap(), [webhook("t", "w", "example.com")]);
}

#[tokio::test]
async fn a_secret_without_its_key_is_an_error_that_names_the_key() {
    let mut place = Place::new();
    hooked(&place, "t", "example.com").await;
    let old = place.keyring().ids().remove(0);
    place.close();
    std::fs::remove_file(place.dir.path().join("keyring.json")).unwrap();
    place.reopen();
    let error = place.webhooks(&"t".into()).await.unwrap_err().to_string();
    assert!(error.contains(&old) && error.contains("keyring.json"), "{error}");
    // It holds up nobody else.
    hooked(&place, "u", "example.com").await;
    assert_eq!(taken(&place, "example.com", 1).await, ["u/w/1"]);
}

#[tokio::test]
async fn what_was_not_delivered_before_a_restart_is_delivered_after_it() {
    let mut place = Place::new();
    let seq = hooked(&place, "t", "example.com").await;
    place.add("t", seq, vec![chunk("t", "x"), status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(taken(&place, "example.com", 1).await, ["t/w/1"]);
    assert_eq!(taken(&place, "example.com", 2).await, [""; 0]);
    place.reopen();
    let due = place.due_receivers(at(2)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec!["example.com".to_owned()], next: None });
    let deliveries = place.take_due("example.com", at(2), at(9), 10).await.unwrap();
    assert_eq!((deliveries.len(), &deliveries[0].webhook), (1, &webhook("t", "w", "example.com")));
    let due = place.due_receivers(at(3)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec![], next: Some(at(9)) });
    place.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    // The piece of an artifact is no news.
    assert_eq!(taken(&place, "example.com", 3).await, ["t/w/3"]);
    place.settle(&id("t", 3), Outcome::Delivered).await.unwrap();
    assert_eq!(place.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
}

#[tokio::test]
async fn attempts_and_times_to_try_again_survive() {
    let mut place = Place::new();
    hooked(&place, "t", "a.com").await;
    hooked(&place, "u", "b.com").await;
    taken(&place, "a.com", 1).await;
    let failed = Outcome::Failed { again: at(50), error: "503".to_owned() };
    place.settle(&id("t", 1), failed).await.unwrap();
    place.settle(&id("t", 1), Outcome::Postponed(at(60))).await.unwrap();
    place.reopen();
    let due = place.due_receivers(at(2)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec!["b.com".to_owned()], next: Some(at(60)) });
    assert!(taken(&place, "a.com", 59).await.is_empty());
    let deliveries = place.take_due("a.com", at(60), at(70), 1).await.unwrap();
    assert_eq!(deliveries[0].attempts, 1);
}

#[tokio::test]
async fn a_webhook_that_moves_takes_its_queue_along() {
    let place = Place::new();
    hooked(&place, "t", "old.com").await;
    let everything = Webhook { events: PushEvents::Everything, ..webhook("t", "w", "new.com") };
    let new = NewWebhook { webhook: everything.clone(), limit: 32 };
    place.put_webhook(&"t".into(), new).await.unwrap();
    assert!(taken(&place, "old.com", 1).await.is_empty());
    assert_eq!(taken(&place, "new.com", 1).await, ["t/w/1"]);
    place.add("t", Seq(1), vec![chunk("t", "x")]).await.unwrap();
    place.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    assert_eq!(taken(&place, "new.com", 1).await, ["t/w/2"]);
    assert_eq!(place.webhooks(&"t".into()).await.unwrap(), [everything]);
    place.delete_webhook(&"t".into(), "w").await.unwrap();
    assert_eq!(place.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
    place.settle(&id("t", 2), Outcome::Delivered).await.unwrap();
    place.add("t", Seq(2), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(place.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
}

#[tokio::test]
async fn what_was_given_up_can_be_tried_anew_from_another_process() {
    let mut place = Place::new();
    let seq = hooked(&place, "t", "a.com").await;
    place.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    for seq in [1, 2] {
        let given_up = Outcome::GivenUp { at: at(5), error: "gone".to_owned() };
        place.settle(&id("t", seq), given_up).await.unwrap();
    }
    place.reopen();
    let dead = place.list_dead(None, 10).await.unwrap();
    assert_eq!(dead.iter().map(|dead| dead.id.seq.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((dead[0].attempts, dead[0].url.as_str(), dead[0].at), (1, "https://a.com/hook", at(5)));
    assert_eq!(place.list_dead(Some(&dead[0].id), 10).await.unwrap().len(), 1);
    let mut beside = Maintenance::open(place.path()).unwrap();
    assert_eq!(beside.list_dead(None, 10).unwrap().len(), 2);
    assert_eq!(beside.retry_dead(Some(&dead[1].id), at(6)).unwrap(), 1);
    assert_eq!(beside.purge_dead(None).unwrap(), 1);
    assert_eq!(taken(&place, "a.com", 6).await, ["t/w/2"]);
    assert!(place.list_dead(None, 10).await.unwrap().is_empty());
    assert_eq!(beside.check().unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn growth_is_noticed_from_the_moment_of_asking() {
    let place = Place::new();
    let mut grown = place.grown();
    assert!((&mut grown).now_or_never().is_none());
    let later = place.grown();
    let seq = hooked(&place, "t", "a.com").await;
    grown.await;
    later.await;
    place.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    let again = place.grown();
    place.add("t", seq, vec![status("t", TaskState::Working, 1)]).await.unwrap();
    again.await;
}

#[tokio::test]
async fn old_tasks_are_forgotten_with_everything_that_belongs_to_them() {
    let mut place = Place::new();
    for i in 0..10 {
        place.put(ended(&format!("t{i}"), i)).await;
    }
    place.put(live("open")).await;
    let owing = NewTask { push: Some(webhook("owing", "w", "a.com")), ..ended("owing", 0) };
    place.put(owing).await;
    assert_eq!(place.prune(&Retention::default(), at(999), 100).await.unwrap(), 0);
    let old = Retention::default().max_age(Duration::from_secs(100));
    assert_eq!(place.prune(&old, at(103), 100).await.unwrap(), 3);
    assert_eq!(place.prune(&old, at(103), 100).await.unwrap(), 0);
    assert!(place.get("t2").await.is_none() && place.get("t3").await.is_some());
    let few = Retention::default().max_tasks(4);
    assert_eq!(place.prune(&few, at(0), 2).await.unwrap(), 2);
    place.reopen();
    let total = place.list(&owner(), &super::all()).await.unwrap().total;
    assert_eq!(total, 7);
    for seq in [1, 3] {
        place.settle(&id("owing", seq), Outcome::Delivered).await.unwrap();
    }
    assert_eq!(place.prune(&few, at(0), 100).await.unwrap(), 2);
    assert!(place.get("owing").await.is_none() && place.get("open").await.is_some());
    assert!(place.webhooks(&"owing".into()).await.unwrap().is_empty());
    let report = Maintenance::open(place.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.problems), (5, vec![]));
}
