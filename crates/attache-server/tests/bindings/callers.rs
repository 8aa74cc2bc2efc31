//! Limits for each caller: a caller over a limit waits or is rejected with a time to retry, and other callers are not affected.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use attache_server::auth::KnownCallers;
use attache_server::{Limits, Server};
use futures::FutureExt;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::Instant;

use crate::support::desk::{Desk, Outcome, TestOperation, at, named, outcome};
use crate::support::{Binding, card, player, send, stage};

fn per_second(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

fn burst(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn at_most(number: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(number)
}

const MAX_WAIT: Duration = Duration::from_secs(2);

/// What a request that went well has for a status.
fn fine(binding: Binding) -> i64 {
    if binding == Binding::Grpc { 0 } else { 200 }
}

/// Checks that someone was told that it is too much of them, in the words of the binding.
fn assert_exhausted(binding: Binding, refused: &Outcome, wait: &str) {
    let (status, retry_after) = match binding {
        Binding::JsonRpc | Binding::HttpJson => (429, Some("1")),
        Binding::Grpc => (8, None),
    };
    assert_eq!((refused.status, refused.reason.as_str()), (status, "RESOURCE_EXHAUSTED"), "{binding:?}");
    assert_eq!(refused.retry_after.as_deref(), retry_after, "{binding:?}");
    assert_eq!(refused.retry_delay.as_deref(), Some(wait), "{binding:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_too_fast_is_told_when_to_retry() {
    for binding in Binding::ALL {
        let limits = Limits::default().with(|limits| {
            limits.requests_per_second = per_second(2);
            limits.burst = burst(3);
        });
        let desk = Desk::new(player(), limits);
        for _ in 0..3 {
            assert_eq!(desk.list(binding, &named("alice")).await.status, fine(binding));
        }
        assert_exhausted(binding, &desk.list(binding, &named("alice")).await, "0.500s");
        assert_eq!(desk.list(binding, &named("bob")).await.status, fine(binding), "others are not slowed");
        tokio::time::advance(Duration::from_millis(499)).await;
        assert_exhausted(binding, &desk.list(binding, &named("alice")).await, "0.001s");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(desk.list(binding, &named("alice")).await.status, fine(binding));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_shape_that_the_binding_has_for_errors() {
    let limits = Limits::default().with(|limits| {
        limits.requests_per_second = per_second(1);
        limits.burst = burst(1);
    });
    let desk = Desk::new(player(), limits);
    desk.list(Binding::JsonRpc, &named("alice")).await;
    insta::assert_json_snapshot!("too_fast_jsonrpc", desk.list(Binding::JsonRpc, &named("alice")).await.body);
    insta::assert_json_snapshot!("too_fast_http", desk.list(Binding::HttpJson, &named("alice")).await.body);
}

#[tokio::test(start_paused = true)]
async fn an_address_is_slowed_before_its_credentials_are_looked_at() {
    let limits = Limits::default().with(|limits| {
        limits.requests_per_second_per_address = per_second(1);
        limits.burst_per_address = burst(2);
    });
    let callers = KnownCallers::new().bearer("alice", "t0ken");
    let desk = Desk::new(player().authenticate(callers), limits);
    for binding in Binding::ALL {
        tokio::time::advance(Duration::from_secs(10)).await;
        let guess = || at("198.51.100.1").header("authorization", "Bearer guess");
        let denied = if binding == Binding::Grpc { 16 } else { 401 };
        for _ in 0..2 {
            assert_eq!(desk.list(binding, &guess()).await.status, denied);
        }
        assert_exhausted(binding, &desk.list(binding, &guess()).await, "1.000s");
        let good = |address| at(address).header("authorization", "Bearer t0ken");
        assert_exhausted(binding, &desk.list(binding, &good("198.51.100.1")).await, "1.000s");
        assert_eq!(desk.list(binding, &good("198.51.100.2")).await.status, fine(binding));
    }
}

#[tokio::test(start_paused = true)]
async fn anonymous_callers_are_told_apart_by_their_address() {
    let limits = Limits::default().with(|limits| {
        limits.requests_per_second_per_address = per_second(1);
        limits.burst_per_address = burst(1);
        limits.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    });
    let desk = Desk::new(player(), limits);
    let passes = async |from| desk.list(Binding::HttpJson, &from).await.status == 200;
    assert!(passes(at("198.51.100.1")).await && !passes(at("198.51.100.1")).await);
    assert!(passes(at("198.51.100.2")).await);
    assert!(passes(at("2001:db8::1")).await);
    assert!(!passes(at("2001:db8::2")).await, "who has one address of a network has them all");
    assert!(passes(at("2001:db8:0:1::1")).await);
    let proxied = |address| at("10.0.0.1").header("x-forwarded-for", address);
    assert!(passes(proxied("198.51.100.3")).await && !passes(proxied("198.51.100.3")).await);
    assert!(!passes(proxied("1.2.3.4, 198.51.100.3")).await, "what a caller says of itself is not believed");
    assert!(passes(proxied("198.51.100.4")).await);
    for _ in 0..3 {
        assert!(passes(at("127.0.0.1")).await && passes(at("::1")).await, "this machine is not limited");
    }
}

#[tokio::test(start_paused = true)]
async fn this_machine_is_limited_where_that_is_wanted() {
    let limits = Limits::default().with(|limits| {
        limits.requests_per_second_per_address = per_second(1);
        limits.burst_per_address = burst(1);
        limits.limit_loopback = true;
    });
    let desk = Desk::new(player(), limits);
    assert_eq!(desk.list(Binding::HttpJson, &at("127.0.0.1")).await.status, 200);
    assert_eq!(desk.list(Binding::HttpJson, &at("127.0.0.1")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_too_many_requests_waits_and_is_then_rejected() {
    for binding in Binding::ALL {
        let (agent, mut stage) = stage();
        let limits = Limits::default().with(|limits| {
            limits.requests_per_caller = at_most(1);
            limits.queue_timeout = MAX_WAIT;
        });
        let desk = Desk::new(Server::new(agent).card(card()), limits);
        let (alice, hi) = (named("alice"), send("hi"));
        let sending = tokio::spawn({
            let (desk, alice, hi) = (desk.clone(), alice.clone(), hi.clone());
            async move { desk.ask(binding, &alice, TestOperation::Send, &hi).await }
        });
        let act = stage.turn().await;

        let mut waiting = Box::pin(desk.list(binding, &alice));
        assert!((&mut waiting).now_or_never().is_none());
        let beyond = desk.list(binding, &alice).now_or_never().expect("no more wait than may be inside");
        assert_exhausted(binding, &beyond, "1.000s");
        let other = desk.list(binding, &named("bob")).now_or_never().expect("others do not wait");
        assert_eq!(other.status, fine(binding));
        let elsewhere = desk.list(binding, &at("198.51.100.1")).now_or_never().expect("nor who is nobody");
        assert_eq!(elsewhere.status, fine(binding));

        let began = Instant::now();
        assert_exhausted(binding, &waiting.await, "1.000s");
        assert_eq!(began.elapsed(), MAX_WAIT);

        let mut waiting = Box::pin(desk.list(binding, &alice));
        assert!((&mut waiting).now_or_never().is_none());
        act.complete().await;
        drop(act);
        assert_eq!(sending.await.unwrap().status, fine(binding));
        assert_eq!(waiting.await.status, fine(binding), "whoever waited had its place");
        assert_eq!(desk.list(binding, &alice).await.status, fine(binding));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_a_place_until_it_ends_or_its_reader_goes() {
    for binding in Binding::ALL {
        let limits = Limits::default().with(|limits| {
            limits.requests_per_caller = at_most(1);
            limits.streams_per_caller = at_most(1);
            limits.queue_timeout = MAX_WAIT;
        });
        let desk = Desk::new(player(), limits);
        let alice = named("alice");
        let stream = async |text: &str| desk.open(binding, &alice, TestOperation::Stream, &send(text)).await;
        let first = stream("wait").await;
        assert_eq!(desk.list(binding, &alice).await.status, fine(binding), "a stream is not a request");
        assert_exhausted(binding, &outcome(stream("hi").await).await, "1.000s");
        let others = desk.open(binding, &named("bob"), TestOperation::Stream, &send("hi")).await;
        assert_eq!(others.status(), 200);
        assert_eq!(count(&desk, &alice).await, 1, "what is refused leaves no task");

        drop(first);
        let mut second = stream("chunks").await;
        assert_eq!(second.status(), 200, "its reader has gone");
        while let Some(frame) = second.body_mut().frame().await {
            frame.unwrap();
        }
        assert_eq!(stream("hi").await.status(), 200, "it has ended");
    }
}

/// How many tasks a caller has.
async fn count(desk: &Desk, from: &crate::support::desk::From) -> i64 {
    desk.list(Binding::HttpJson, from).await.body["totalSize"].as_i64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn turns_go_on_after_their_requests_and_are_counted_until_they_end() {
    for binding in Binding::ALL {
        let (agent, mut stage) = stage();
        let limits = Limits::default().with(|limits| {
            limits.turns_per_caller = at_most(2);
            limits.queue_timeout = MAX_WAIT;
        });
        let desk = Desk::new(Server::new(agent).card(card()), limits);
        let (alice, bob) = (named("alice"), named("bob"));
        let mut at_once = send("hi");
        at_once["configuration"] = json!({"returnImmediately": true});
        let send = async |from| desk.ask(binding, from, TestOperation::Send, &at_once).await;
        assert_eq!(send(&alice).await.status, fine(binding));
        assert_eq!(send(&alice).await.status, fine(binding));
        let (first, second) = (stage.turn().await, stage.turn().await);
        assert_exhausted(binding, &send(&alice).await, "1.000s");
        assert_eq!(count(&desk, &alice).await, 2, "what is refused leaves no task");
        assert_eq!(send(&bob).await.status, fine(binding));
        drop(stage.turn().await);

        first.complete().await;
        drop(first);
        assert_eq!(send(&alice).await.status, fine(binding), "one of them has ended");
        drop((second, stage.turn().await));
    }
}

#[tokio::test(start_paused = true)]
async fn limits_change_while_the_server_runs() {
    let desk = Desk::new(player(), Limits::none());
    let alice = named("alice");
    for _ in 0..2_000 {
        assert_eq!(desk.list(Binding::HttpJson, &alice).await.status, 200);
    }
    let stricter = desk.0.limits().with(|limits| {
        limits.requests_per_second = per_second(1);
        limits.burst = burst(1);
    });
    desk.0.set_limits(stricter);
    assert_eq!(desk.list(Binding::HttpJson, &alice).await.status, 200);
    assert_eq!(desk.list(Binding::HttpJson, &alice).await.status, 429);
    desk.0.set_limits(Limits::none());
    assert_eq!(desk.list(Binding::HttpJson, &alice).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_full_says_so_in_the_words_of_the_binding() {
    for binding in Binding::ALL {
        let (agent, mut stage) = stage();
        let server = Server::new(agent).card(card()).options(|options| options.max_requests = 1);
        let desk = Desk::new(server, Limits::default());
        let sending = tokio::spawn({
            let desk = desk.clone();
            async move { desk.ask(binding, &named("alice"), TestOperation::Send, &send("hi")).await }
        });
        let act = stage.turn().await;
        let full = desk.list(binding, &named("bob")).await;
        let (status, retry_after) = if binding == Binding::Grpc { (14, None) } else { (503, Some("1")) };
        assert_eq!((full.status, full.reason.as_str()), (status, "UNAVAILABLE"), "{binding:?}");
        assert_eq!(full.retry_after.as_deref(), retry_after);
        assert_eq!(full.retry_delay.as_deref(), Some("1.000s"));
        if binding == Binding::JsonRpc {
            assert_eq!((&full.body["id"], &full.body["error"]["code"]), (&json!(null), &json!(-32054)));
        }
        act.complete().await;
        drop(act);
        assert_eq!(sending.await.unwrap().status, fine(binding));
        assert_eq!(desk.list(binding, &named("bob")).await.status, fine(binding));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_waiting_does_not_help_with_does_not_ask_to_wait() {
    let desk = Desk::new(player().service_options(|options| options.max_push_configs = 1), Limits::none());
    let mut asking = send("ask");
    let alice = named("alice");
    let task = desk.ask(Binding::HttpJson, &alice, TestOperation::Send, &asking).await.body["task"].clone();
    for (url, status) in [("https://example.com/a", 200), ("https://example.com/b", 429)] {
        asking["message"]["taskId"] = task["id"].clone();
        asking["configuration"] = json!({"taskPushNotificationConfig": {"url": url}});
        let sent = desk.ask(Binding::HttpJson, &alice, TestOperation::Send, &asking).await;
        assert_eq!((sent.status, sent.retry_after), (status, None));
    }
}
