//! The audit log: one line for each denial, with caller, operation and reason, and a bounded number of lines.

use std::num::NonZeroU32;
use std::time::Duration;

use attache_server::Limits;
use attache_server::auth::KnownCallers;
use serde_json::json;

use crate::support::desk::{Desk, TestOperation, at, named};
use crate::support::{Binding, Ear, player, send};

fn rate(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_denied_caller_is_in_the_audit_log_without_its_credential() {
    let ear = Ear::new();
    let desk =
        Desk::new(player().authenticate(KnownCallers::new().bearer("alice", "t0ken")), Limits::default());
    for binding in Binding::ALL {
        desk.list(binding, &at("198.51.100.1").header("authorization", "Bearer s3cret-guess")).await;
        desk.list(binding, &at("198.51.100.1")).await;
    }
    let lines = ear.audit();
    assert!(!lines.join("\n").contains("s3cret"), "{lines:#?}");
    insta::assert_snapshot!("not_let_in", lines.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_caller_at_a_limit_is_in_the_audit_log() {
    let ear = Ear::new();
    let limits = Limits::default().with(|limits| {
        limits.requests_per_second = Some(rate(1));
        limits.burst = rate(1);
    });
    let desk = Desk::new(player(), limits);
    for _ in 0..2 {
        desk.list(Binding::Grpc, &named("alice")).await;
    }
    assert_eq!(
        ear.audit(),
        [concat!(
            "denied principal=\"alice\" address=203.0.113.7 binding=\"GRPC\" ",
            "operation=\"POST /lf.a2a.v1.A2AService/ListTasks\" ",
            "reason=\"more than 1 requests per second of yours: try again in a moment\" status=429"
        )]
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_may_not_be_called_is_in_the_log_and_its_url_is_not() {
    let ear = Ear::new();
    let desk = Desk::new(player(), Limits::default());
    let mut params = send("hi");
    params["tenant"] = json!("acme");
    params["configuration"] =
        json!({"taskPushNotificationConfig": {"url": "http://169.254.169.254/s3cret?token=s3cret"}});
    for binding in Binding::ALL {
        desk.ask(binding, &named("alice"), TestOperation::Send, &params).await;
    }
    let lines = ear.audit();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in lines {
        assert!(line.contains("principal=\"alice\" tenant=\"acme\" address=203.0.113.7"), "{line}");
        assert!(line.contains("operation=\"SendMessage\"") && line.contains("metadata service"), "{line}");
        assert!(!line.contains("s3cret"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_denied_again_and_again_does_not_fill_the_log() {
    let ear = Ear::new();
    let desk = Desk::new(player().authenticate(KnownCallers::new().bearer("alice", "t0ken")), Limits::none());
    for _ in 0..1_000 {
        desk.list(Binding::HttpJson, &at("198.51.100.1")).await;
    }
    assert_eq!(ear.audit().len(), 20);
    desk.list(Binding::HttpJson, &at("198.51.100.2")).await;
    assert_eq!(ear.audit().len(), 1, "others have lines of their own");
    tokio::time::advance(Duration::from_secs(1)).await;
    desk.list(Binding::HttpJson, &at("198.51.100.1")).await;
    let lines = ear.audit();
    assert!(lines[0].ends_with("status=401 suppressed=980"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_logged_is_counted_in_the_end() {
    let ear = Ear::new();
    let desk = Desk::new(player().authenticate(KnownCallers::new().bearer("alice", "t0ken")), Limits::none());
    for _ in 0..30 {
        desk.list(Binding::HttpJson, &at("2001:db8::1")).await;
    }
    assert_eq!(ear.audit().len(), 20);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ear.audit(), ["denials were not logged address=2001:db8:: suppressed=10"]);
}

#[tokio::test(start_paused = true)]
async fn an_address_has_20_lines_at_once_and_two_a_second() {
    let ear = Ear::new();
    let desk = Desk::new(player().authenticate(KnownCallers::new().bearer("alice", "t0ken")), Limits::none());
    for (wait, denials, lines) in [(0, 20, 20), (0, 1, 0), (499, 1, 0), (1, 5, 1), (1_000, 5, 2)] {
        tokio::time::advance(Duration::from_millis(wait)).await;
        for _ in 0..denials {
            desk.list(Binding::HttpJson, &at("198.51.100.1")).await;
        }
        assert_eq!(ear.audit().len(), lines, "after {wait} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn all_addresses_have_1000_lines_at_once_and_a_hundred_a_second() {
    let ear = Ear::new();
    let desk = Desk::new(player().authenticate(KnownCallers::new().bearer("alice", "t0ken")), Limits::none());
    let mut addresses = (0..=u16::MAX).map(|number| {
        let [high, low] = number.to_be_bytes();
        at(format!("203.0.{high}.{low}").leak())
    });
    for (wait, denials, lines) in [(0, 1_000, 1_000), (0, 1, 0), (9, 1, 0), (1, 5, 1), (1_000, 200, 100)] {
        tokio::time::advance(Duration::from_millis(wait)).await;
        for from in addresses.by_ref().take(denials) {
            desk.list(Binding::HttpJson, &from).await;
        }
        assert_eq!(ear.audit().len(), lines, "after {wait} ms");
    }
}
