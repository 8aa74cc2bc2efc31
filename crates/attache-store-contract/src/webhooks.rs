//! The webhooks of a task: stored in order, with their secrets.

use attache_core::{AppendError, Owner, PushEvents, PutWebhook, Seq, Webhook};
use attache_protocol::{Dialect, TaskPushNotificationConfig, TaskState};

use crate::support::{TestStore, at, id, message, more, status, task, webhook};

fn names(webhooks: &[Webhook]) -> Vec<&str> {
    webhooks.iter().map(Webhook::id).collect()
}

pub async fn webhooks_are_listed_in_the_order_of_their_registration(store: TestStore) {
    store.make(task("t")).await;
    assert!(store.hooks("t").await.is_empty());
    let order = ["m", "z", "a", "10", "9"];
    for name in order {
        store.put("t", webhook("t", name, "one", PushEvents::States)).await;
    }
    assert_eq!(names(&store.hooks("t").await), order);
}

pub async fn a_webhook_with_a_used_id_replaces_the_old_one(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "a", "one", PushEvents::States))).await;
    store.put("t", webhook("t", "b", "one", PushEvents::States)).await;
    let changed = webhook("t", "a", "two", PushEvents::Everything);
    store.put("t", changed.clone()).await;
    assert_eq!(store.hooks("t").await, [changed, webhook("t", "b", "one", PushEvents::States)]);
}

pub async fn a_webhook_can_be_registered_with_its_task(store: TestStore) {
    let given = webhook("t", "a", "one", PushEvents::Everything);
    store.make(task("t").webhook(given.clone())).await;
    store.put("t", webhook("t", "b", "one", PushEvents::States)).await;
    assert_eq!(store.hooks("t").await, [given, webhook("t", "b", "one", PushEvents::States)]);
}

pub async fn every_member_of_a_webhook_is_stored(store: TestStore) {
    store.make(task("t")).await;
    let mut whole = webhook("t", "whole", "example.com:8443", PushEvents::Everything);
    whole.config.tenant = Some("x".into());
    let bare = TaskPushNotificationConfig {
        id: Some("bare".into()),
        task_id: Some(id("t")),
        url: "http://127.0.0.1".into(),
        ..TaskPushNotificationConfig::default()
    };
    let trace_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok();
    assert!(trace_parent.is_some());
    let bare =
        Webhook { config: bare, events: PushEvents::States, dialect: Some(Dialect::V0_3), trace_parent };
    let mut half = webhook("t", "half", "one", PushEvents::States);
    half.config.token = None;
    let mut odd = webhook("t", "odd", "one", PushEvents::States);
    odd.config.token = Some("\0ü🦀".repeat(500));
    odd.config.authentication.as_mut().unwrap().credentials = None;
    let mut empty = webhook("t", "empty", "one", PushEvents::States);
    empty.config.authentication.as_mut().unwrap().credentials = Some("c".into());
    let all = [whole, bare, half, odd, empty];
    for webhook in &all {
        store.put("t", webhook.clone()).await;
    }
    assert_eq!(store.hooks("t").await, all);
}

pub async fn a_webhook_can_be_deleted_twice(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "a", "one", PushEvents::States))).await;
    store.put("t", webhook("t", "b", "one", PushEvents::States)).await;
    for _ in 0..2 {
        store.outbox().delete_webhook(&id("t"), "a").await.unwrap();
        assert_eq!(names(&store.hooks("t").await), ["b"]);
    }
    // A webhook that is registered again is new.
    store.put("t", webhook("t", "a", "one", PushEvents::States)).await;
    assert_eq!(names(&store.hooks("t").await), ["b", "a"]);
}

pub async fn webhooks_belong_to_one_task(store: TestStore) {
    for name in ["one", "two"] {
        store.make(task(name)).await;
        store.put(name, webhook(name, "a", name, PushEvents::States)).await;
    }
    store.outbox().delete_webhook(&id("one"), "a").await.unwrap();
    assert!(store.hooks("one").await.is_empty());
    assert_eq!(store.hooks("two").await, [webhook("two", "a", "two", PushEvents::States)]);
}

pub async fn a_missing_task_has_no_webhooks(store: TestStore) {
    store.put("t", webhook("t", "a", "one", PushEvents::States)).await;
    store.outbox().delete_webhook(&id("t"), "a").await.unwrap();
    assert!(store.hooks("t").await.is_empty());
    store.put("t", webhook("t", "a", "one", PushEvents::States)).await;
    store.make(task("t")).await;
    assert!(store.hooks("t").await.is_empty());
    assert!(store.take("one", 0).await.is_empty());
}

pub async fn a_task_that_has_ended_can_have_webhooks(store: TestStore) {
    store.make(task("t").then(status("t", TaskState::Completed, 1))).await;
    store.put("t", webhook("t", "a", "one", PushEvents::States)).await;
    assert_eq!(names(&store.hooks("t").await), ["a"]);
    assert!(store.take("one", 9).await.is_empty(), "a webhook got an event from before its registration");
}

pub async fn the_limit_of_webhooks_holds_for_concurrent_registrations(store: TestStore) {
    store.make(task("t")).await;
    let puts = (0..32).map(|i| {
        let store = store.clone();
        let webhook = webhook("t", &format!("w{i}"), "one", PushEvents::States);
        tokio::spawn(async move { store.put_up_to("t", webhook, 5).await })
    });
    let mut kept = 0;
    for put in puts.collect::<Vec<_>>() {
        kept += usize::from(put.await.unwrap() == PutWebhook::Stored);
    }
    let known = store.hooks("t").await;
    assert_eq!((kept, known.len()), (5, 5));
    // At the limit, an existing webhook can be replaced.
    let again = Webhook { events: PushEvents::Everything, ..known[4].clone() };
    assert_eq!(store.put_up_to("t", again.clone(), 5).await, PutWebhook::Stored);
    assert_eq!(store.hooks("t").await[4], again);
}

pub async fn a_webhook_registered_with_events_gets_them(store: TestStore) {
    store.make(task("t")).await;
    let given = webhook("t", "w", "one", PushEvents::States);
    let working = more(1, [status("t", TaskState::Working, 1)]).with_webhook(given.clone(), 1);
    store.add("t", working).await.unwrap();
    assert_eq!(store.hooks("t").await, [given]);
    let due = store.outbox().due_receivers(at(9)).await.unwrap().now;
    assert_eq!(due.len(), 1, "{due:?}");
}

pub async fn events_with_a_webhook_beyond_the_limit_are_not_appended(store: TestStore) {
    let made = store.make(task("t").webhook(webhook("t", "a", "one", PushEvents::States))).await;
    let refused = more(1, [message("x")]).with_webhook(webhook("t", "b", "one", PushEvents::States), 1);
    let refused = store.add("t", refused.key(&Owner::default(), "k", 1)).await.unwrap_err();
    assert!(matches!(refused, AppendError::TooManyWebhooks), "{refused}");
    assert_eq!(store.find("t").await.unwrap().seq, Seq(1));
    assert_eq!(names(&store.hooks("t").await), ["a"]);
    // The key is still unused.
    let taken = more(1, [message("x")]).with_webhook(webhook("t", "a", "two", PushEvents::States), 1);
    store.add("t", taken.by(made.lease).key(&Owner::default(), "k", 1)).await.unwrap();
    assert_eq!(store.find("t").await.unwrap().seq, Seq(2));
}
