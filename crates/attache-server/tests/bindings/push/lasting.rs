//! Every delivery is made in the end: after a stop, after a restart, and after it was dead.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Clock, MemoryStore, Store, SystemClock};

use super::{
    NEVER, Receiver, all_told, clock, given_up, is_empty, pass, plain, playing, pushing, send_with, task_with,
};
use crate::support::{Binding, Player, serve, soon, stage};

#[tokio::test]
async fn what_was_given_up_can_be_told_anew() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "chunks", &plain(receiver.url("/"))).await;
    let mut refused = Vec::new();
    for _ in 0..3 {
        refused.push(receiver.answer(404).await);
    }
    let dead = given_up(&store, 3).await;
    let now = SystemClock.now();
    assert_eq!(store.outbox().retry_dead(Some(&dead[1].id), now).await.unwrap(), 1);
    assert_eq!(receiver.told().await.id(), refused[1].id());
    all_told(&store).await;
    assert_eq!(store.outbox().retry_dead(None, now).await.unwrap(), 2);
    for call in [&refused[0], &refused[2]] {
        let again = receiver.told().await;
        assert_eq!((again.id(), &again.bytes), (call.id(), &call.bytes));
        assert_eq!(again.numbers(), (call.numbers().0, 1), "counted anew");
    }
    all_told(&store).await;
    assert!(receiver.is_quiet() && given_up(&store, 0).await.is_empty());
}

#[tokio::test]
async fn what_was_not_told_before_a_stop_is_told_by_the_next_server() {
    let mut receiver = Receiver::start().await;
    let (store, clock) = (Arc::new(MemoryStore::new()), clock());
    let mut first = serve(pushing(Player, &store, |_| {}).clock(clock.clone())).await;
    task_with(&first, "chunks", &plain(receiver.url("/"))).await;
    let failed = receiver.answer(503).await;
    first.stop();
    first.stopped().await;
    assert!(!is_empty(&store).await && receiver.is_quiet());
    pass(&clock, Duration::from_secs(1));
    let _second = serve(pushing(Player, &store, |_| {}).clock(clock.clone())).await;
    let again = receiver.told().await;
    assert_eq!((again.id(), &again.bytes, again.numbers()), (failed.id(), &failed.bytes, (1, 2)));
    assert_eq!(receiver.news(2).await, ["WORKING", "COMPLETED"]);
    all_told(&store).await;
    assert!(receiver.is_quiet());
}

/// Takes every call from now on. Where they go.
async fn taking_all() -> String {
    let mut receiver = Receiver::start().await;
    let url = receiver.url("/");
    tokio::spawn(async move {
        loop {
            receiver.told().await;
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_tells_the_last_news_first() {
    let url = taking_all().await;
    for round in 0..20 {
        let (mut server, store) = playing(|_| {}).await;
        task_with(&server, "chunks", &plain(url.clone())).await;
        server.stop();
        server.stopped().await;
        assert!(is_empty(&store).await, "{round}");
    }
}

#[tokio::test]
async fn a_turn_that_ends_while_the_server_stops_is_told_of() {
    let mut receiver = Receiver::start().await;
    let store = Arc::new(MemoryStore::new());
    let (agent, mut stage) = stage();
    let server = pushing(agent, &store, |_| {}).options(|options| options.drain = NEVER);
    let mut server = serve(server).await;
    let params = send_with("go", &plain(receiver.url("/")));
    let sending = server.ask("SendMessage", params).begin(Binding::HttpJson);
    let act = stage.turn().await;
    act.working("at it").await;
    let mut under_way = receiver.call().await;
    server.stop();
    act.complete().await;
    drop(act);
    soon(sending).await.unwrap().unwrap();
    let stopped = tokio::spawn(server.stopped());
    under_way.answer(200);
    assert_eq!(receiver.news(2).await, ["WORKING", "COMPLETED"]);
    soon(stopped).await.unwrap();
    assert!(is_empty(&store).await, "the server knows that it was told");
}

#[tokio::test]
async fn a_receiver_that_hangs_does_not_keep_a_server_from_stopping() {
    let mut receiver = Receiver::start().await;
    let store = Arc::new(MemoryStore::new());
    let server = pushing(Player, &store, |_| {});
    let mut server = serve(server.options(|options| options.drain = Duration::from_millis(50))).await;
    task_with(&server, "hi", &plain(receiver.url("/"))).await;
    let _hung = receiver.call().await;
    server.stop();
    server.stopped().await;
    assert!(!is_empty(&store).await, "it is not forgotten either");
}

#[tokio::test]
async fn two_servers_on_one_store_tell_everything_once() {
    let (one, store) = playing(|_| {}).await;
    let two = serve(pushing(Player, &store, |_| {})).await;
    let mut receiver = Receiver::start().await;
    for server in [&one, &two].repeat(10) {
        task_with(server, "chunks", &plain(receiver.url("/"))).await;
    }
    let mut ids = HashSet::new();
    for _ in 0..60 {
        assert!(ids.insert(receiver.told().await.id().to_owned()), "told before");
    }
    all_told(&store).await;
    assert!(receiver.is_quiet());
}
