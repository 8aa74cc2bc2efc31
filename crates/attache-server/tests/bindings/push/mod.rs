//! Push notifications: the webhooks of a task, and what their receivers are told.

mod artifacts;
mod configs;
mod failing;
mod guarding;
mod lasting;
mod receiver;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, Clock, DeadDelivery, ManualClock, MemoryStore, Store};
use attache_protocol::Timestamp;
use attache_server::{Policy, PushOptions, Server};
use serde_json::{Value, json};

use self::receiver::{Call, Receiver};
use crate::support::{Player, Running, card, message, send, serve, soon};

const NEVER: Duration = Duration::from_secs(3600);

/// A server that calls this machine too, and does not wait long before it tries again.
fn pushing<A: Agent>(agent: A, store: &Arc<MemoryStore>, change: impl FnOnce(&mut PushOptions)) -> Server<A> {
    Server::new(agent).card(card()).shared_store(store.clone()).push_options(|options| {
        options.policy = Policy::default().allow_loopback(true);
        options.timeout = NEVER;
        options.first_wait = Duration::from_millis(20);
        change(options);
    })
}

/// A running server of that kind, with the scripted agent.
async fn playing(change: impl FnOnce(&mut PushOptions)) -> (Running, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (serve(pushing(Player, &store, change)).await, store)
}

/// The arguments of a send with a webhook for the task that it makes.
fn send_with(text: &str, hook: &Value) -> Value {
    let mut params = send(text);
    params["configuration"] = json!({"taskPushNotificationConfig": hook});
    params
}

/// The arguments of a send that goes on with a task.
fn send_to(task: &Value, text: &str) -> Value {
    let mut message = message(text);
    message["taskId"] = task.clone();
    json!({"message": message})
}

/// A webhook with nothing but a URL.
fn plain(url: impl Into<String>) -> Value {
    json!({"url": url.into()})
}

/// Sends a text together with a webhook. The id of the task.
async fn task_with(server: &Running, text: &str, hook: &Value) -> Value {
    server.sent(send_with(text, hook)).await["task"]["id"].clone()
}

/// Gives a task a webhook.
async fn add_hook(server: &Running, task: &Value, mut hook: Value) -> Value {
    hook["taskId"] = task.clone();
    let made = server.rpc("CreateTaskPushNotificationConfig", hook).await;
    assert!(made.get("error").is_none(), "{made}");
    made["result"].clone()
}

/// Waits until the outbox is as it should be.
async fn until<T>(store: &MemoryStore, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    soon(async {
        loop {
            let grown = store.outbox().grown();
            if let Some(seen) = look().await {
                return seen;
            }
            grown.await;
        }
    })
    .await
}

/// Whether nothing is to be delivered, now or later.
async fn is_empty(store: &MemoryStore) -> bool {
    let the_end = Timestamp::from_millis(i64::MAX);
    store.outbox().due_receivers(the_end).await.unwrap().now.is_empty()
}

/// Waits until everything has been delivered or given up: no call comes after that.
async fn all_told(store: &MemoryStore) {
    until(store, async || is_empty(store).await.then_some(())).await;
}

/// Waits until so many deliveries have been given up.
async fn given_up(store: &MemoryStore, count: usize) -> Vec<DeadDelivery> {
    until(store, async || {
        let dead = store.outbox().list_dead(None, 1000).await.unwrap();
        (dead.len() >= count).then_some(dead)
    })
    .await
}

/// A clock that stands still until time is made to pass.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)))
}

/// Makes time pass.
fn pass(clock: &ManualClock, time: Duration) {
    clock.set(later(clock.now(), time));
}

fn later(than: Timestamp, time: Duration) -> Timestamp {
    Timestamp::from_millis(than.to_millis() + i64::try_from(time.as_millis()).unwrap())
}
