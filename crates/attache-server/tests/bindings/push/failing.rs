//! Receivers that fail: retried or given up, in order, without delaying other receivers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_core::{Clock, MemoryStore, Store, SystemClock};
use serde_json::json;

use super::{
    NEVER, Receiver, add_hook, all_told, clock, given_up, is_empty, later, pass, plain, playing, pushing,
    send_to, send_with, task_with, until,
};
use crate::support::{Binding, Player, serve};

#[tokio::test]
async fn a_receiver_that_fails_is_asked_again_with_the_same_delivery() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "chunks", &plain(receiver.url("/"))).await;
    let first = receiver.answer(500).await;
    for (attempt, status) in [(2, 503), (3, 429), (4, 408), (5, 204)] {
        let again = receiver.answer(status).await;
        assert_eq!((again.id(), &again.bytes, again.numbers()), (first.id(), &first.bytes, (1, attempt)));
    }
    let next = receiver.told().await;
    assert_ne!(next.id(), first.id());
    assert_eq!(next.numbers(), (2, 1));
    assert_eq!(receiver.news(1).await, ["COMPLETED"]);
    all_told(&store).await;
    assert!(receiver.is_quiet() && given_up(&store, 0).await.is_empty());
}

#[tokio::test]
async fn the_events_of_a_task_keep_their_order_however_often_they_fail() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    let id = task_with(&server, "ask", &plain(receiver.url("/"))).await;
    server.sent(send_to(&id, "this")).await;
    let mut told = Vec::new();
    for status in [500, 200].repeat(4) {
        let call = receiver.answer(status).await;
        told.push((call.news(), call.numbers().1));
    }
    let states = ["SUBMITTED", "INPUT_REQUIRED", "WORKING", "COMPLETED"];
    let expected: Vec<_> = states.iter().flat_map(|state| [1, 2].map(|n| ((*state).to_owned(), n))).collect();
    assert_eq!(told, expected);
    all_told(&store).await;
    assert!(receiver.is_quiet());
}

#[tokio::test]
async fn a_receiver_that_asks_to_be_left_alone_is() {
    let (store, clock) = (Arc::new(MemoryStore::new()), clock());
    let server = serve(pushing(Player, &store, |_| {}).clock(clock.clone())).await;
    let (mut busy, mut idle) = (Receiver::start().await, Receiver::start().await);
    for (status, retry_after) in [(429, "1"), (503, "1"), (429, "Tue, 14 Nov 2023 22:13:23 GMT")] {
        let asked = clock.now();
        let again = later(asked, Duration::from_secs(1));
        task_with(&server, "hi", &plain(busy.url("/"))).await;
        busy.call().await.answer_with(status, &[("Retry-After", retry_after)]);
        until(&store, async || {
            (store.outbox().due_receivers(asked).await.unwrap().next == Some(again)).then_some(())
        })
        .await;
        pass(&clock, Duration::from_millis(999));
        task_with(&server, "hi", &plain(idle.url("/"))).await;
        assert_eq!(idle.news(2).await, ["SUBMITTED", "COMPLETED"]);
        assert!(busy.is_quiet(), "not before its time");
        pass(&clock, Duration::from_millis(1));
        task_with(&server, "hi", &plain(idle.url("/"))).await;
        assert_eq!(busy.told().await.numbers(), (1, 2));
        assert_eq!(busy.news(1).await, ["COMPLETED"]);
        idle.news(2).await;
        all_told(&store).await;
    }
}

#[tokio::test]
async fn a_refusal_is_final_and_the_next_event_is_told_all_the_same() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for (count, status) in [(1, 400), (2, 401), (3, 404), (4, 410), (5, 413)] {
        let id = task_with(&server, "chunks", &plain(receiver.url("/secret"))).await;
        let refused = receiver.answer(status).await;
        assert_eq!(refused.numbers(), (1, 1));
        assert_eq!(receiver.news(2).await, ["WORKING", "COMPLETED"], "{status}");
        all_told(&store).await;
        assert!(receiver.is_quiet(), "{status}");
        let dead = given_up(&store, count).await.pop().unwrap();
        assert_eq!(json!(dead.id.task.as_str()), id);
        assert_eq!((dead.id.token().as_str(), dead.id.seq.0, dead.attempts), (refused.id(), 1, 1));
        assert_eq!(dead.url, receiver.url("/secret"));
        assert!(dead.error.starts_with(&format!("the receiver answered {status}")), "{}", dead.error);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (server, store) = playing(|_| {}).await;
    let (mut receiver, target) = (Receiver::start().await, Receiver::start().await);
    for (count, status) in [(1, 301), (2, 302), (3, 303), (4, 307), (5, 308)] {
        task_with(&server, "hi", &plain(receiver.url("/"))).await;
        receiver.call().await.answer_with(status, &[("Location", &target.url("/"))]);
        assert_eq!(receiver.news(1).await, ["COMPLETED"], "{status}");
        let dead = given_up(&store, count).await.pop().unwrap();
        assert!(dead.error.contains("redirects are not followed"), "{}", dead.error);
    }
    all_told(&store).await;
    assert!(target.is_quiet() && receiver.is_quiet());
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_given_up_after_the_last_attempt() {
    let (server, store) = playing(|options| {
        options.attempts = 3;
        options.first_wait = Duration::from_millis(1);
    })
    .await;
    let gone = Receiver::start().await.url("/");
    task_with(&server, "hi", &plain(gone)).await;
    let dead = given_up(&store, 2).await;
    assert!(is_empty(&store).await);
    assert_eq!(dead.iter().map(|dead| (dead.id.seq.0, dead.attempts)).collect::<Vec<_>>(), [(1, 3), (3, 3)]);
    assert!(dead.iter().all(|dead| dead.error.starts_with("the request failed: ")), "{dead:?}");
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_is_asked_again() {
    let (server, store) = playing(|options| options.timeout = Duration::from_secs(1)).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "hi", &plain(receiver.url("/"))).await;
    let hung = receiver.call().await;
    let again = receiver.told().await;
    assert_eq!((again.id(), again.numbers()), (hung.id(), (1, 2)));
    assert_eq!(receiver.news(1).await, ["COMPLETED"]);
    all_told(&store).await;
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_given_up() {
    let (server, store) = playing(|options| {
        options.timeout = Duration::from_millis(50);
        options.attempts = 2;
    })
    .await;
    let receiver = Receiver::start().await;
    task_with(&server, "hi", &plain(receiver.url("/"))).await;
    let dead = given_up(&store, 2).await;
    assert!(dead.iter().all(|dead| dead.attempts == 2), "{dead:?}");
    assert!(dead.iter().all(|dead| dead.error == "the receiver did not answer within 0.05 s"), "{dead:?}");
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_neither_its_task_nor_other_receivers() {
    let (server, store) = playing(|_| {}).await;
    let (mut hung, mut well) = (Receiver::start().await, Receiver::start().await);
    let id = task_with(&server, "ask", &plain(hung.url("/"))).await;
    let mut held = hung.call().await;
    add_hook(&server, &id, plain(well.url("/"))).await;
    let done = server.sent(send_to(&id, "this")).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(well.news(2).await, ["WORKING", "COMPLETED"]);
    task_with(&server, "chunks", &plain(well.url("/"))).await;
    assert_eq!(well.news(3).await, ["SUBMITTED", "WORKING", "COMPLETED"]);
    assert!(hung.is_quiet(), "what comes next waits for what is under way");
    held.answer(200);
    assert_eq!(hung.news(3).await, ["INPUT_REQUIRED", "WORKING", "COMPLETED"]);
    all_told(&store).await;
}

#[tokio::test]
async fn another_task_of_the_same_receiver_does_not_wait_for_one_that_hangs() {
    let (server, _) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "hi", &plain(receiver.url("/hangs"))).await;
    let _hung = receiver.call().await;
    task_with(&server, "hi", &plain(receiver.url("/goes"))).await;
    for state in ["SUBMITTED", "COMPLETED"] {
        let call = receiver.told().await;
        assert_eq!((call.path.as_str(), call.news().as_str()), ("/goes", state));
    }
}

#[tokio::test]
async fn a_retry_does_not_wait_for_another_call_to_the_same_receiver() {
    let (server, store) = playing(|options| options.first_wait = Duration::from_secs(2)).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "hi", &plain(receiver.url("/fails"))).await;
    let failed = receiver.answer(500).await;
    // Sooner than a call that is under way may be forgotten: it is the retry that is waited for.
    let call_over = later(SystemClock.now(), NEVER);
    until(&store, async || {
        let next = store.outbox().due_receivers(SystemClock.now()).await.unwrap().next;
        (next? < call_over).then_some(())
    })
    .await;
    let begun = Instant::now();
    task_with(&server, "hi", &plain(receiver.url("/hangs"))).await;
    let hung = receiver.call().await;
    let again = receiver.told().await;
    assert_eq!((hung.path.as_str(), again.path.as_str()), ("/hangs", "/fails"));
    assert_eq!((again.id(), again.numbers()), (failed.id(), (1, 2)));
    assert!(begun.elapsed() < Duration::from_secs(5), "when it was due, not when someone happened to look");
}

#[tokio::test]
async fn only_so_many_calls_go_to_one_receiver_at_once() {
    let (server, store) = playing(|options| options.per_receiver = 2).await;
    let (mut narrow, mut other) = (Receiver::start().await, Receiver::start().await);
    for _ in 0..8 {
        let done = server.sent(send_with("chunks", &plain(narrow.url("/")))).await;
        assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "tasks do not wait");
    }
    let mut held = VecDeque::from([narrow.call().await, narrow.call().await]);
    for _ in 0..8 {
        task_with(&server, "chunks", &plain(other.url("/"))).await;
        assert_eq!(other.news(3).await, ["SUBMITTED", "WORKING", "COMPLETED"]);
    }
    assert!(narrow.is_quiet(), "no third one");
    let mut told: HashMap<String, Vec<u64>> = HashMap::new();
    for _ in 0..24 {
        let mut call = match held.pop_front() {
            Some(call) => call,
            None => narrow.call().await,
        };
        let body = call.body();
        let task = body["task"]["id"].as_str().or(body["statusUpdate"]["taskId"].as_str()).unwrap();
        told.entry(task.to_owned()).or_default().push(call.numbers().0);
        call.answer(200);
    }
    assert_eq!(told.len(), 8);
    assert!(told.values().all(|numbers| numbers == &[1, 2, 6]), "{told:?}");
    assert_eq!(narrow.most_at_once(), 2);
    all_told(&store).await;
    assert!(narrow.is_quiet());
}

#[tokio::test]
async fn only_so_many_calls_are_made_at_once_altogether() {
    let (server, store) = playing(|options| options.at_once = 1).await;
    let (mut one, mut two) = (Receiver::start().await, Receiver::start().await);
    task_with(&server, "hi", &plain(one.url("/"))).await;
    let mut held = one.call().await;
    for _ in 0..4 {
        task_with(&server, "hi", &plain(two.url("/"))).await;
    }
    assert!(two.is_quiet());
    held.answer(200);
    let others = async { two.news(8).await };
    let (first, others) = tokio::join!(one.news(1), others);
    assert_eq!((first.len(), others.len()), (1, 8));
    assert_eq!(two.most_at_once(), 1);
    all_told(&store).await;
}

#[tokio::test]
async fn a_crowd_at_a_receiver_that_hangs_leaves_room_for_others() {
    let (server, _) = playing(|options| {
        options.per_receiver = 3;
        options.at_once = 4;
    })
    .await;
    let (mut hung, mut well) = (Receiver::start().await, Receiver::start().await);
    for _ in 0..20 {
        let params = send_with("hi", &plain(hung.url("/")));
        server.ask("SendMessage", params).ok(Binding::HttpJson).await;
    }
    let _held = [hung.call().await, hung.call().await, hung.call().await];
    for _ in 0..5 {
        task_with(&server, "hi", &plain(well.url("/"))).await;
        assert_eq!(well.news(2).await, ["SUBMITTED", "COMPLETED"]);
    }
    assert!(hung.is_quiet());
    assert_eq!((hung.most_at_once(), well.most_at_once()), (3, 1));
}

#[tokio::test]
async fn a_webhook_is_told_nothing_more_once_it_is_deleted() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for binding in Binding::ALL {
        let mut hook = plain(receiver.url("/"));
        hook["id"] = json!("h");
        let id = task_with(&server, "ask", &hook).await;
        let mut under_way = receiver.call().await;
        let delete = server.ask("DeleteTaskPushNotificationConfig", json!({"taskId": id, "id": "h"}));
        delete.ok(binding).await;
        under_way.answer(500);
        assert!(is_empty(&store).await, "{binding:?}");
        server.sent(send_to(&id, "this")).await;
        assert!(is_empty(&store).await && receiver.is_quiet(), "{binding:?}");
    }
}

#[tokio::test]
async fn a_retry_that_waits_is_forgotten_with_its_webhook() {
    let (server, store) = playing(|options| {
        options.first_wait = NEVER;
        options.longest_wait = NEVER;
        options.timeout = Duration::from_secs(60);
    })
    .await;
    let mut receiver = Receiver::start().await;
    let mut hook = plain(receiver.url("/"));
    hook["id"] = json!("h");
    let id = task_with(&server, "hi", &hook).await;
    receiver.answer(500).await;
    // Later than any call may take: it is the retry that is waited for.
    let call_over = later(SystemClock.now(), Duration::from_secs(600));
    until(&store, async || store.outbox().due_receivers(call_over).await.unwrap().next).await;
    server.rpc("DeleteTaskPushNotificationConfig", json!({"taskId": id, "id": "h"})).await;
    assert!(is_empty(&store).await && given_up(&store, 0).await.is_empty());
}

#[tokio::test]
async fn a_webhook_that_moves_is_told_at_its_new_address_what_it_was_not_told_yet() {
    let (server, store) = playing(|_| {}).await;
    let (mut old, mut new) = (Receiver::start().await, Receiver::start().await);
    let mut hook = plain(old.url("/"));
    hook["id"] = json!("h");
    hook["token"] = json!("old");
    let id = task_with(&server, "chunks", &hook).await;
    let mut under_way = old.call().await;
    hook["url"] = json!(new.url("/"));
    hook["token"] = json!("new");
    add_hook(&server, &id, hook).await;
    under_way.answer(500);
    for (event, attempt) in [(1, 2), (2, 1), (6, 1)] {
        let call = new.told().await;
        assert_eq!((call.numbers(), call.header("x-a2a-notification-token")), ((event, attempt), "new"));
    }
    all_told(&store).await;
    assert!(old.is_quiet() && new.is_quiet());
}
