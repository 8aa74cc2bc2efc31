use std::time::Duration;

use attache_core::{
    DeliveryId, DueReceivers, NewTask, NewWebhook, Outbox, Outcome, PushEvents, Retention, Seq, Store,
    Webhook,
};
use attache_protocol::TaskState;
use futures::FutureExt;

use super::{StoreFolder, at, chunk, ended, live, owner, status, webhook};
use crate::sqlite::maintenance::Maintenance;

async fn hooked(folder: &StoreFolder, task: &str, host: &str) -> Seq {
    folder.put(NewTask { push: Some(webhook(task, "w", host)), ..live(task) }).await.0
}

async fn taken(folder: &StoreFolder, host: &str, seconds: i64) -> Vec<String> {
    let taken = folder.take_due(host, at(seconds), at(seconds + 10), 10).await.unwrap();
    taken.iter().map(|delivery| delivery.id.to_string()).collect()
}

fn id(task: &str, seq: u64) -> DeliveryId {
    DeliveryId { task: task.into(), webhook: "w".to_owned(), seq: Seq(seq) }
}

#[tokio::test]
async fn secrets_are_encrypted_in_the_files_and_read_back() {
    let mut folder = StoreFolder::new();
    hooked(&folder, "t", "example.com").await;
    let new = NewWebhook { webhook: webhook("t", "x", "other.com"), limit: 32 };
    folder.put_webhook(&"t".into(), new).await.unwrap();
    let expected = vec![webhook("t", "w", "example.com"), webhook("t", "x", "other.com")];
    for _ in 0..2 {
        assert_eq!(folder.webhooks(&"t".into()).await.unwrap(), expected);
        for file in std::fs::read_dir(folder.path().parent().unwrap()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for secret in ["t0ken-of-the-hook", "cr3dentials-of-the-hook"] {
                assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
            }
        }
        folder.reopen();
    }
}

#[tokio::test]
async fn secrets_are_sealed_again_so_that_old_keys_can_be_retired() {
    let mut folder = StoreFolder::new();
    hooked(&folder, "t", "example.com").await;
    let theirs = folder.keyring();
    theirs.rotate().unwrap();
    // Another process rotates the key and seals all secrets again. The server has not read the new key yet.
    assert_eq!(Maintenance::open(folder.path()).unwrap().reseal(&theirs).unwrap(), 1);
    assert_eq!(folder.webhooks(&"t".into()).await.unwrap(), [webhook("t", "w", "example.com")]);
    folder.inner.keyring.rotate().unwrap();
    assert_eq!(folder.reseal().await.unwrap(), 1);
    assert_eq!(folder.reseal().await.unwrap(), 0);
    folder.inner.keyring.retire_old().unwrap();
    folder.reopen();
    assert_eq!(folder.webhooks(&"t".into()).await.unwrap(), [webhook("t", "w", "example.com")]);
}

#[tokio::test]
async fn a_secret_without_its_key_is_an_error_that_names_the_key() {
    let mut folder = StoreFolder::new();
    hooked(&folder, "t", "example.com").await;
    let old = folder.keyring().ids().remove(0);
    folder.close();
    std::fs::remove_file(folder.dir.path().join("keyring.json")).unwrap();
    folder.reopen();
    let error = folder.webhooks(&"t".into()).await.unwrap_err().to_string();
    assert!(error.contains(&old) && error.contains("keyring.json"), "{error}");
    // It does not block the others.
    hooked(&folder, "u", "example.com").await;
    assert_eq!(taken(&folder, "example.com", 1).await, ["u/w/1"]);
}

#[tokio::test]
async fn pending_deliveries_are_made_after_a_restart() {
    let mut folder = StoreFolder::new();
    let seq = hooked(&folder, "t", "example.com").await;
    folder.add("t", seq, vec![chunk("t", "x"), status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(taken(&folder, "example.com", 1).await, ["t/w/1"]);
    assert_eq!(taken(&folder, "example.com", 2).await, [""; 0]);
    folder.reopen();
    let due = folder.due_receivers(at(2)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec!["example.com".to_owned()], next: None });
    let deliveries = folder.take_due("example.com", at(2), at(9), 10).await.unwrap();
    assert_eq!((deliveries.len(), &deliveries[0].webhook), (1, &webhook("t", "w", "example.com")));
    let due = folder.due_receivers(at(3)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec![], next: Some(at(9)) });
    folder.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    // The webhook does not subscribe to artifacts.
    assert_eq!(taken(&folder, "example.com", 3).await, ["t/w/3"]);
    folder.settle(&id("t", 3), Outcome::Delivered).await.unwrap();
    assert_eq!(folder.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
}

#[tokio::test]
async fn attempts_and_retry_times_survive_a_restart() {
    let mut folder = StoreFolder::new();
    hooked(&folder, "t", "a.com").await;
    hooked(&folder, "u", "b.com").await;
    taken(&folder, "a.com", 1).await;
    let failed = Outcome::Failed { again: at(50), error: "503".to_owned() };
    folder.settle(&id("t", 1), failed).await.unwrap();
    folder.settle(&id("t", 1), Outcome::Postponed(at(60))).await.unwrap();
    folder.reopen();
    let due = folder.due_receivers(at(2)).await.unwrap();
    assert_eq!(due, DueReceivers { now: vec!["b.com".to_owned()], next: Some(at(60)) });
    assert!(taken(&folder, "a.com", 59).await.is_empty());
    let deliveries = folder.take_due("a.com", at(60), at(70), 1).await.unwrap();
    assert_eq!(deliveries[0].attempts, 1);
}

#[tokio::test]
async fn a_webhook_with_a_new_url_keeps_its_queue() {
    let folder = StoreFolder::new();
    hooked(&folder, "t", "old.com").await;
    let everything = Webhook { events: PushEvents::Everything, ..webhook("t", "w", "new.com") };
    let new = NewWebhook { webhook: everything.clone(), limit: 32 };
    folder.put_webhook(&"t".into(), new).await.unwrap();
    assert!(taken(&folder, "old.com", 1).await.is_empty());
    assert_eq!(taken(&folder, "new.com", 1).await, ["t/w/1"]);
    folder.add("t", Seq(1), vec![chunk("t", "x")]).await.unwrap();
    folder.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    assert_eq!(taken(&folder, "new.com", 1).await, ["t/w/2"]);
    assert_eq!(folder.webhooks(&"t".into()).await.unwrap(), [everything]);
    folder.delete_webhook(&"t".into(), "w").await.unwrap();
    assert_eq!(folder.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
    folder.settle(&id("t", 2), Outcome::Delivered).await.unwrap();
    folder.add("t", Seq(2), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(folder.due_receivers(at(99)).await.unwrap(), DueReceivers::default());
}

#[tokio::test]
async fn dead_deliveries_can_be_retried_from_another_process() {
    let mut folder = StoreFolder::new();
    let seq = hooked(&folder, "t", "a.com").await;
    folder.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    for seq in [1, 2] {
        let given_up = Outcome::GivenUp { at: at(5), error: "gone".to_owned() };
        folder.settle(&id("t", seq), given_up).await.unwrap();
    }
    folder.reopen();
    let dead = folder.list_dead(None, 10).await.unwrap();
    assert_eq!(dead.iter().map(|dead| dead.id.seq.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((dead[0].attempts, dead[0].url.as_str(), dead[0].at), (1, "https://a.com/hook", at(5)));
    assert_eq!(folder.list_dead(Some(&dead[0].id), 10).await.unwrap().len(), 1);
    let mut beside = Maintenance::open(folder.path()).unwrap();
    assert_eq!(beside.list_dead(None, 10).unwrap().len(), 2);
    assert_eq!(beside.retry_dead(Some(&dead[1].id), at(6)).unwrap(), 1);
    assert_eq!(beside.purge_dead(None).unwrap(), 1);
    assert_eq!(taken(&folder, "a.com", 6).await, ["t/w/2"]);
    assert!(folder.list_dead(None, 10).await.unwrap().is_empty());
    assert_eq!(beside.check().unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn a_new_delivery_wakes_a_waiter_that_was_not_polled_yet() {
    let folder = StoreFolder::new();
    let mut grown = folder.grown();
    assert!((&mut grown).now_or_never().is_none());
    let later = folder.grown();
    let seq = hooked(&folder, "t", "a.com").await;
    grown.await;
    later.await;
    folder.settle(&id("t", 1), Outcome::Delivered).await.unwrap();
    let again = folder.grown();
    folder.add("t", seq, vec![status("t", TaskState::Working, 1)]).await.unwrap();
    again.await;
}

#[tokio::test]
async fn old_tasks_are_pruned_with_all_their_rows() {
    let mut folder = StoreFolder::new();
    for i in 0..10 {
        folder.put(ended(&format!("t{i}"), i)).await;
    }
    folder.put(live("open")).await;
    let owing = NewTask { push: Some(webhook("owing", "w", "a.com")), ..ended("owing", 0) };
    folder.put(owing).await;
    assert_eq!(folder.prune(&Retention::default(), at(999), 100).await.unwrap(), 0);
    let old = Retention::default().max_age(Duration::from_secs(100));
    assert_eq!(folder.prune(&old, at(103), 100).await.unwrap(), 3);
    assert_eq!(folder.prune(&old, at(103), 100).await.unwrap(), 0);
    assert!(folder.get("t2").await.is_none() && folder.get("t3").await.is_some());
    let few = Retention::default().max_tasks(4);
    assert_eq!(folder.prune(&few, at(0), 2).await.unwrap(), 2);
    folder.reopen();
    let total = folder.list(&owner(), &super::all()).await.unwrap().total;
    assert_eq!(total, 7);
    for seq in [1, 3] {
        folder.settle(&id("owing", seq), Outcome::Delivered).await.unwrap();
    }
    assert_eq!(folder.prune(&few, at(0), 100).await.unwrap(), 2);
    assert!(folder.get("owing").await.is_none() && folder.get("open").await.is_some());
    assert!(folder.webhooks(&"owing".into()).await.unwrap().is_empty());
    let report = Maintenance::open(folder.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.problems), (5, vec![]));
}
