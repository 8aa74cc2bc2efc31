//! Streams that break and are resumed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_client::{Client, ClientError, Outgoing};
use attache_protocol::StreamResponse;
use attache_server::Server;
use serde_json::{Value, json};

use crate::support::{
    Fake, Player, Proxy, Reaction, WIRES, connect, gated, gists, next, numbers, over_with, quick, rest,
    rpc_result, serve, soon, sse, task,
};

/// A server behind a proxy, and a client that uses the proxy for everything.
async fn behind<A: attache_core::Agent>(agent: A, proxy: &mut Proxy) -> Client {
    let server = serve(Server::new(agent).base_url(proxy.url())).await;
    proxy.forward_to(server);
    connect(&format!("http://{server}")).await
}

fn counted(to: usize) -> Vec<String> {
    let chunks = (0..to).map(|number| format!("artifact {number} "));
    let first = ["task TASK_STATE_SUBMITTED", "status TASK_STATE_WORKING"].map(str::to_owned);
    let last = [format!("artifact {to}"), "status TASK_STATE_COMPLETED".to_owned()];
    first.into_iter().chain(chunks).chain(last).collect()
}

#[tokio::test]
async fn wherever_the_line_is_cut_no_event_is_lost_and_none_comes_twice() {
    let mut proxy = Proxy::new([]).await;
    let agent = behind(Player, &mut proxy).await;
    let expected = counted(5);
    for (run, budget) in (0..3000).step_by(61).enumerate() {
        proxy.cut();
        proxy.cut_next([budget]);
        // The key allows retries when the connection breaks before the first event.
        let outgoing = Outgoing::new("count 5").idempotency_key(format!("run {run}"));
        let mut events = soon(agent.stream(outgoing)).await.unwrap();
        assert_eq!(gists(&rest(&mut events).await.unwrap()), expected, "cut after {budget} bytes");
    }
    assert!(proxy.connections() > 90, "nearly every run was cut");
}

#[tokio::test]
async fn a_stream_that_is_cut_ten_times_anywhere_is_one_stream_over_every_interface() {
    for wire in WIRES.into_iter().filter(|wire| numbers(*wire)) {
        for run in 0..5 {
            let mut proxy = Proxy::new([]).await;
            let server = serve(Server::new(Player)).await;
            proxy.forward_to(server);
            // Every break may happen before an event arrives, so each needs an attempt.
            let backoff = quick().backoff.attempts(10);
            let options = quick().prefer(wire).backoff(backoff);
            let agent = over_with(options, server, &proxy.url()).await;
            // The sum is less than the size of the stream.
            let cuts: Vec<usize> = (0..10).map(|_| fastrand::usize(1..2500)).collect();
            proxy.cut_next(cuts.clone());
            let outgoing = Outgoing::new("count 200").idempotency_key(format!("run {run}"));
            let mut events = soon(agent.stream(outgoing)).await.unwrap();
            let told = gists(&rest(&mut events).await.unwrap());
            assert_eq!(told, counted(200), "{wire:?} cut after {cuts:?} bytes");
            assert!(proxy.connections() > 10, "{wire:?}: all cuts were made");
        }
    }
}

#[tokio::test]
async fn where_events_have_no_numbers_the_task_as_it_is_comes_in_place_of_what_was_missed() {
    for wire in WIRES.into_iter().filter(|wire| !numbers(*wire)) {
        let mut proxy = Proxy::new([]).await;
        let (agent, gate) = gated();
        let server = serve(Server::new(agent)).await;
        proxy.forward_to(server);
        let agent = over_with(quick().prefer(wire), server, &proxy.url()).await;
        let mut events = soon(agent.stream("count 2")).await.unwrap();
        next(&mut events).await;
        next(&mut events).await;
        proxy.cut();
        gate.add_permits(2);
        let told = rest(&mut events).await.unwrap();
        let whole = told.iter().rev().find_map(|event| match event {
            StreamResponse::Task(task) => Some(task.artifacts.iter().map(|it| it.text()).collect::<String>()),
            StreamResponse::Message(_)
            | StreamResponse::StatusUpdate(_)
            | StreamResponse::ArtifactUpdate(_) => None,
        });
        assert!(whole.is_some_and(|text| "0 1 2".starts_with(&text)), "{wire}: {told:?}");
        assert!(gists(&told).last().unwrap().ends_with("TASK_STATE_COMPLETED"), "{wire}: {told:?}");
    }
}

#[tokio::test]
async fn a_line_that_is_cut_again_and_again_only_slows_a_stream() {
    let mut proxy = Proxy::new([]).await;
    let agent = behind(Player, &mut proxy).await;
    proxy.cut_next([1500; 30]);
    let mut events = soon(agent.stream("count 40")).await.unwrap();
    assert_eq!(gists(&rest(&mut events).await.unwrap()), counted(40));
    assert!(proxy.connections() > 6, "more often than may be tried without getting anywhere");
}

#[tokio::test]
async fn a_stream_goes_on_while_the_task_does() {
    let mut proxy = Proxy::new([]).await;
    let (agent, gate) = gated();
    let agent = behind(agent, &mut proxy).await;
    let mut events = soon(agent.stream("count 6")).await.unwrap();
    let mut seen = Vec::new();
    for released in [0, 1, 2, 1, 2] {
        gate.add_permits(released);
        let expected = if released == 0 { 2 } else { released };
        for _ in 0..expected {
            seen.push(next(&mut events).await);
        }
        proxy.cut();
    }
    seen.extend(rest(&mut events).await.unwrap());
    assert_eq!(gists(&seen), counted(6));
}

#[tokio::test]
async fn a_subscription_is_taken_up_again_as_well() {
    let mut proxy = Proxy::new([]).await;
    let (agent, gate) = gated();
    let agent = behind(agent, &mut proxy).await;
    let id = task(&next(&mut agent.stream("count 2").await.unwrap()).await).id.clone();
    let mut events = agent.subscribe(id).await.unwrap();
    assert!(matches!(next(&mut events).await, StreamResponse::Task(_)));
    proxy.cut();
    gate.add_permits(2);
    assert_eq!(gists(&rest(&mut events).await.unwrap()), counted(2)[2..]);
}

#[tokio::test]
async fn a_stream_that_was_taken_up_again_ends_where_the_agent_asks() {
    let mut proxy = Proxy::new([]).await;
    let (agent, gate) = gated();
    let agent = behind(agent, &mut proxy).await;
    let mut events = soon(agent.stream("ask after 1")).await.unwrap();
    next(&mut events).await;
    next(&mut events).await;
    proxy.cut();
    gate.add_permits(1);
    let all = gists(&rest(&mut events).await.unwrap());
    assert_eq!(all, ["artifact 0 ", "artifact 1", "status TASK_STATE_INPUT_REQUIRED"]);
}

#[tokio::test]
async fn a_silent_stream_counts_as_broken() {
    let count = AtomicUsize::new(0);
    let fake = Fake::agent(move |asked| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Hang(sse(asked, &[at_work()])),
        _ => Reaction::Bytes(sse(asked, &[ended()])),
    })
    .await;
    let options = quick().idle_timeout(Duration::from_millis(50));
    let agent = Client::connect_with(&fake.url, options).await.unwrap();
    let mut events = agent.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]
    );
}

fn at_work() -> Value {
    json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}})
}

fn ended() -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_is_read_where_subscriptions_to_it_are_refused() {
    let fake = Fake::agent(|asked| match asked.method() {
        "SendStreamingMessage" => Reaction::Bytes(sse(asked, &[at_work()])),
        "GetTask" => rpc_result(asked, &json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}})),
        _ => {
            let error = json!({"code": -32004, "message": "the task has ended"});
            crate::support::json(200, &json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error}))
        }
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "task TASK_STATE_COMPLETED"]
    );
    let methods: Vec<_> = fake.calls().iter().map(|call| call.method().to_owned()).collect();
    assert_eq!(methods, ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_is_read_where_a_subscription_to_it_only_breaks() {
    let fake = Fake::agent(|asked| match asked.method() {
        "SendStreamingMessage" => Reaction::Bytes(sse(asked, &[at_work()])),
        "GetTask" => rpc_result(asked, &json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}})),
        _ => Reaction::Bytes(sse(asked, &[])),
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "task TASK_STATE_COMPLETED"]
    );
    let methods: Vec<_> = fake.calls().iter().map(|call| call.method().to_owned()).collect();
    assert_eq!(methods, ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn a_server_that_only_ever_repeats_the_task_is_given_up() {
    let fake = Fake::agent(|asked| Reaction::Bytes(sse(asked, &[at_work()]))).await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    let error = rest(&mut events).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { attempts: 5, .. }), "{error}");
    assert_eq!(fake.calls().len(), 6);
    assert!(events.next().await.is_none(), "nothing comes after an error");
}

#[tokio::test]
async fn taking_up_a_stream_names_the_last_event_that_was_read() {
    let count = AtomicUsize::new(0);
    let fake = Fake::agent(move |asked| {
        let mut bytes = sse(asked, &[]);
        let event = |id: &str, event: &Value| {
            let response = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": event});
            format!("id: {id}\ndata: {response}\n\n")
        };
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => {
                bytes.extend_from_slice(event("a-1", &at_work()).as_bytes());
                bytes.extend_from_slice(&event("a-2", &ended()).as_bytes()[..40]);
            }
            _ => bytes.extend_from_slice(event("a-2", &ended()).as_bytes()),
        }
        Reaction::Bytes(bytes)
    })
    .await;
    let mut events = connect(&fake.url).await.stream(Outgoing::new("hi").idempotency_key("k")).await.unwrap();
    assert_eq!(rest(&mut events).await.unwrap().len(), 2);
    let calls = fake.calls();
    assert_eq!((calls[1].method(), calls[1].header("last-event-id")), ("SubscribeToTask", Some("a-1")));
    assert_eq!((calls[1].header("a2a-version"), calls[1].header("idempotency-key")), (Some("1.0"), None));
}

#[tokio::test]
async fn without_a_key_a_stream_that_breaks_before_its_first_event_is_not_taken_up_again() {
    let fake = Fake::agent(|asked| Reaction::Bytes(sse(asked, &[]))).await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    let error = rest(&mut events).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { attempts: 0, .. }), "{error}");
    assert_eq!(fake.calls().len(), 1);
}
