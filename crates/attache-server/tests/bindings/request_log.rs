//! The log of requests and turns: one line each, with caller, operation and outcome, and nothing that was said.

use std::time::Duration;

use attache_core::{Turn, agent_fn};
use attache_server::auth::KnownCallers;
use attache_server::{Limits, RequestLog, Server};
use serde_json::json;

use crate::support::desk::{Desk, TestOperation, at, named};
use crate::support::{Binding, Ear, card, player, send};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The lines of a target, without what differs from run to run.
fn lines(ear: &Ear, target: &str) -> Vec<String> {
    let of = format!(" {target}: ");
    let all = ear.all().into_iter().filter(|line| line.contains(&of));
    let masked = |line: String| {
        let mask = |word: &str| match word.split_once('=') {
            Some((name @ ("task" | "bytes" | "duration_ms"), _)) => format!("{name}=…"),
            Some(_) | None => word.to_owned(),
        };
        line.split(' ').map(mask).collect::<Vec<_>>().join(" ")
    };
    all.map(masked).collect()
}

#[tokio::test(start_paused = true)]
async fn each_request_and_each_turn_is_one_line_without_what_was_said() {
    let ear = Ear::new();
    let desk = Desk::new(player(), Limits::default());
    for binding in Binding::ALL {
        let alice = named("alice").header("traceparent", TRACE);
        desk.ask(binding, &alice, TestOperation::Send, &send("s3cret")).await;
        desk.ask(binding, &alice, TestOperation::Stream, &send("ask s3cret")).await;
        desk.list(binding, &at("198.51.100.1")).await;
    }
    let requests = lines(&ear, "attache::request");
    let expected = ["JSONRPC", "HTTP+JSON", "GRPC"].into_iter().flat_map(|binding| {
        let line = |operation: &str, caller: &str, task: &str, trace: &str| {
            format!(
                "INFO attache::request: answered binding=\"{binding}\" operation=\"{operation}\" \
                 caller=\"{caller}\"{task} status=200 bytes=… duration_ms=…{trace}"
            )
        };
        let trace = format!(" traceparent=\"{TRACE}\"");
        [
            line("SendMessage", "alice", " task=… state=\"completed\"", &trace),
            line("SendStreamingMessage", "alice", " task=… state=\"input-required\"", &trace),
            line("ListTasks", "anonymous", "", ""),
        ]
    });
    assert_eq!(requests, expected.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn each_turn_is_one_line_with_its_outcome() {
    let ear = Ear::new();
    let desk = Desk::new(player(), Limits::default());
    for text in ["s3cret", "ask s3cret", "fail s3cret", "reject s3cret", "message s3cret"] {
        let alice = named("alice").header("traceparent", TRACE);
        desk.ask(Binding::JsonRpc, &alice, TestOperation::Send, &send(text)).await;
    }
    let panics = agent_fn(|_: Turn| async { panic!("at the disco") });
    let desk = Desk::new(Server::new(panics).card(card()), Limits::default());
    desk.ask(Binding::JsonRpc, &named("bob"), TestOperation::Send, &send("hi")).await;
    let turns = lines(&ear, "attache::turn");
    let line = |caller: &str, outcome: &str, trace: &str| {
        format!(
            "INFO attache::turn: turn ended agent=\"Player\" caller=\"{caller}\" task=… outcome=\"{outcome}\" \
             duration_ms=…{trace}"
        )
    };
    let trace = format!(" traceparent=\"{TRACE}\"");
    let outcomes = ["completed", "input-required", "failed", "rejected", "message"];
    let mut expected: Vec<_> = outcomes.into_iter().map(|outcome| line("alice", outcome, &trace)).collect();
    expected.push(line("bob", "panicked", ""));
    assert_eq!(turns, expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_logged_with_its_error_and_without_its_credential() {
    let ear = Ear::new();
    let server = player().authenticate(KnownCallers::new().bearer("alice", "t0ken-of-alice-1"));
    let desk = Desk::new(server, Limits::default());
    for binding in Binding::ALL {
        let guess = at("198.51.100.1").header("authorization", "Bearer s3cret-guess");
        desk.list(binding, &guess).await;
        let alice = at("198.51.100.1").header("authorization", "Bearer t0ken-of-alice-1");
        let mut params = send("hi");
        params["message"]["taskId"] = json!("no-such-task");
        desk.ask(binding, &alice, TestOperation::Send, &params).await;
    }
    let requests = lines(&ear, "attache::request");
    let all = requests.join("\n");
    assert!(!all.contains("s3cret") && !all.contains("t0ken"), "{all}");
    assert_eq!(requests.len(), 6);
    for pair in requests.chunks(2) {
        assert!(pair[0].starts_with("DEBUG"), "an attacker must not fill the log: {}", pair[0]);
        assert!(pair[0].contains("caller=\"anonymous\" status=401 error=\"UNAUTHENTICATED\""), "{}", pair[0]);
        assert!(pair[1].starts_with("INFO"), "{}", pair[1]);
        let wanted = "operation=\"SendMessage\" caller=\"alice\" task=… status=404 error=\"TASK_NOT_FOUND\"";
        assert!(pair[1].contains(wanted), "{}", pair[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_slow_requests_or_none_are_logged_if_the_operator_wants_that() {
    let ear = Ear::new();
    let desk =
        Desk::new(player().options(|options| options.request_log = RequestLog::Off), Limits::default());
    let alice = named("alice");
    let ask = || desk.list(Binding::JsonRpc, &alice);
    ask().await;
    desk.0.set_request_log(RequestLog::SlowerThan(Duration::from_secs(3600)));
    ask().await;
    assert_eq!(lines(&ear, "attache::request"), [""; 0]);
    desk.0.set_request_log(RequestLog::SlowerThan(Duration::from_nanos(1)));
    ask().await;
    assert_eq!(lines(&ear, "attache::request").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn health_checks_are_logged_for_those_who_want_details() {
    let ear = Ear::new();
    let desk = Desk::new(player(), Limits::default());
    let get = |uri: &str| http::Request::get(uri).body(String::new()).unwrap();
    drop(desk.0.handle(get("/health")).await);
    drop(desk.0.handle(get("/nothing?key=s3cret")).await);
    let logged = lines(&ear, "attache::request");
    assert_eq!(
        logged,
        [
            "DEBUG attache::request: answered binding=\"HTTP\" operation=\"GET /health\" \
             caller=\"anonymous\" status=200 bytes=… duration_ms=…",
            "INFO attache::request: answered binding=\"HTTP\" operation=\"GET /nothing\" \
             caller=\"anonymous\" status=404 bytes=… duration_ms=…",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_learns_which_trace_a_request_belongs_to() {
    let agent = agent_fn(|turn: Turn| async move {
        let trace = turn.trace_parent().map_or("none".to_owned(), |parent| parent.to_string());
        turn.reply(trace).await
    });
    let desk = Desk::new(Server::new(agent).card(card()), Limits::default());
    for (header, expected) in [(TRACE, TRACE), ("00-nonsense-01", "none")] {
        let from = named("alice").header("traceparent", header);
        let reply = desk.ask(Binding::HttpJson, &from, TestOperation::Send, &send("hi")).await;
        assert_eq!(reply.body["message"]["parts"][0]["text"], expected);
    }
    let twice = named("alice").header("traceparent", TRACE).header("traceparent", TRACE);
    let reply = desk.ask(Binding::HttpJson, &twice, TestOperation::Send, &send("hi")).await;
    assert_eq!(reply.body["message"]["parts"][0]["text"], "none");
}
