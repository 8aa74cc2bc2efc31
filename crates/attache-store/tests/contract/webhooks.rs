//! The webhooks of a task: kept in order, with their secrets.

use attache_core::{News, Webhook};
use attache_protocol::{Dialect, TaskPushNotificationConfig, TaskState};

use crate::support::{Kept, id, status, task, webhook};

promises!(
    webhooks_are_kept_in_the_order_in_which_they_came,
    a_webhook_with_a_known_id_takes_the_place_of_the_old_one,
    a_webhook_can_come_with_its_task,
    a_webhook_is_kept_to_the_last_member,
    a_webhook_can_be_forgotten_twice,
    webhooks_belong_to_one_task,
    a_task_that_is_not_there_has_no_webhooks,
    a_task_that_has_ended_can_have_webhooks,
);

fn names(webhooks: &[Webhook]) -> Vec<&str> {
    webhooks.iter().map(Webhook::id).collect()
}

async fn webhooks_are_kept_in_the_order_in_which_they_came(store: Kept) {
    store.make(task("t")).await;
    assert!(store.hooks("t").await.is_empty());
    let order = ["m", "z", "a", "10", "9"];
    for name in order {
        store.put("t", webhook("t", name, "one", News::States)).await;
    }
    assert_eq!(names(&store.hooks("t").await), order);
}

async fn a_webhook_with_a_known_id_takes_the_place_of_the_old_one(store: Kept) {
    store.make(task("t").webhook(webhook("t", "a", "one", News::States))).await;
    store.put("t", webhook("t", "b", "one", News::States)).await;
    let changed = webhook("t", "a", "two", News::Everything);
    store.put("t", changed.clone()).await;
    assert_eq!(store.hooks("t").await, [changed, webhook("t", "b", "one", News::States)]);
}

async fn a_webhook_can_come_with_its_task(store: Kept) {
    let given = webhook("t", "a", "one", News::Everything);
    store.make(task("t").webhook(given.clone())).await;
    store.put("t", webhook("t", "b", "one", News::States)).await;
    assert_eq!(store.hooks("t").await, [given, webhook("t", "b", "one", News::States)]);
}

async fn a_webhook_is_kept_to_the_last_member(store: Kept) {
    store.make(task("t")).await;
    let mut whole = webhook("t", "whole", "example.com:8443", News::Everything);
    whole.config.tenant = Some("x".into());
    let bare = TaskPushNotificationConfig {
        id: Some("bare".into()),
        task_id: Some(id("t")),
        url: "http://127.0.0.1".into(),
        ..TaskPushNotificationConfig::default()
    };
    let bare = Webhook { config: bare, news: News::States, dialect: Some(Dialect::V0_3) };
    let mut half = webhook("t", "half", "one", News::States);
    half.config.token = None;
    let mut odd = webhook("t", "odd", "one", News::States);
    odd.config.token = Some("\0ü🦀".repeat(500));
    odd.config.authentication.as_mut().unwrap().credentials = None;
    let mut empty = webhook("t", "empty", "one", News::States);
    empty.config.authentication.as_mut().unwrap().credentials = Some("c".into());
    let all = [whole, bare, half, odd, empty];
    for webhook in &all {
        store.put("t", webhook.clone()).await;
    }
    assert_eq!(store.hooks("t").await, all);
}

async fn a_webhook_can_be_forgotten_twice(store: Kept) {
    store.make(task("t").webhook(webhook("t", "a", "one", News::States))).await;
    store.put("t", webhook("t", "b", "one", News::States)).await;
    for _ in 0..2 {
        store.outbox().delete_webhook(&id("t"), "a").await.unwrap();
        assert_eq!(names(&store.hooks("t").await), ["b"]);
    }
    // One that comes back is new.
    store.put("t", webhook("t", "a", "one", News::States)).await;
    assert_eq!(names(&store.hooks("t").await), ["b", "a"]);
}

async fn webhooks_belong_to_one_task(store: Kept) {
    for name in ["one", "two"] {
        store.make(task(name)).await;
        store.put(name, webhook(name, "a", name, News::States)).await;
    }
    store.outbox().delete_webhook(&id("one"), "a").await.unwrap();
    assert!(store.hooks("one").await.is_empty());
    assert_eq!(store.hooks("two").await, [webhook("two", "a", "two", News::States)]);
}

async fn a_task_that_is_not_there_has_no_webhooks(store: Kept) {
    store.put("t", webhook("t", "a", "one", News::States)).await;
    store.outbox().delete_webhook(&id("t"), "a").await.unwrap();
    assert!(store.hooks("t").await.is_empty());
    store.put("t", webhook("t", "a", "one", News::States)).await;
    store.make(task("t")).await;
    assert!(store.hooks("t").await.is_empty());
    assert!(store.take("one", 0).await.is_empty());
}

async fn a_task_that_has_ended_can_have_webhooks(store: Kept) {
    store.make(task("t").then(status("t", TaskState::Completed, 1))).await;
    store.put("t", webhook("t", "a", "one", News::States)).await;
    assert_eq!(names(&store.hooks("t").await), ["a"]);
    assert!(store.take("one", 9).await.is_empty(), "a webhook was told what happened before it came");
}
