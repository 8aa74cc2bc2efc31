//! What is bounded: streams, memory, the length of reply streams, and clients that are gone or slow.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use attache::core::Agent;
use attache::prelude::*;
use attache::protocol::StreamResponse;
use attache::server::RedisStreams;
use attache_redis::redis::{Value as RedisValue, pipe};
use attache_redis::{Connection, pending_ids};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::support::{
    DEAD, GROUP, Peer, REQUESTS, RESPONSES, Redis, command, has_redis, left, message, range, send, soon,
    until,
};

/// The runs of an agent, and the permits of those that are held.
#[derive(Default)]
struct HeldRuns {
    runs: Mutex<Vec<String>>,
    permits: Mutex<Option<Arc<Semaphore>>>,
}

impl HeldRuns {
    fn runs(&self) -> Vec<String> {
        self.runs.lock().unwrap().clone()
    }

    /// How often a message was worked on.
    fn count(&self, text: &str) -> usize {
        self.runs().iter().filter(|run| *run == text).count()
    }

    fn semaphore(&self) -> Arc<Semaphore> {
        self.permits.lock().unwrap().get_or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
    }

    fn open(&self, permits: usize) {
        self.semaphore().add_permits(permits);
    }
}

/// An agent that notes each message. One that begins with `held` needs a permit.
fn gated() -> (impl Agent, Arc<HeldRuns>) {
    let gate = Arc::new(HeldRuns::default());
    let own = gate.clone();
    let agent = agent_fn(move |turn: Turn| {
        let gate = own.clone();
        async move {
            let text = turn.text();
            gate.runs.lock().unwrap().push(text.clone());
            if text.starts_with("held") {
                turn.working("held").await?;
                gate.semaphore().acquire().await?.forget();
            }
            turn.complete().await
        }
    });
    (agent, gate)
}

/// An agent that emits numbers.
fn counting(to: usize) -> impl Agent {
    agent_fn(move |turn: Turn| async move {
        let mut numbers = turn.artifact("numbers").stream();
        for number in 0..to {
            numbers.chunk(format!("{number} ")).await?;
        }
        numbers.last("end").await?;
        turn.complete().await
    })
}

/// A running server; ended when dropped.
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn start(redis: &Redis, agent: impl Agent, change: impl FnOnce(&mut RedisStreams)) -> Running {
    let streams = RedisStreams::new(&redis.url()).unwrap().with(change);
    let server = Server::new(agent).bind("127.0.0.1:0").redis(streams);
    let server = server.options(|options| options.heartbeat = Duration::from_millis(50));
    let listening = server.listen().await.unwrap();
    Running(tokio::spawn(listening.run_until(std::future::pending())).abort_handle())
}

fn list() -> String {
    json!({"jsonrpc": "2.0", "id": "list", "method": "ListTasks", "params": {}}).to_string()
}

async fn tasks(peer: &mut Peer) -> Vec<Value> {
    let listed = peer.ask("list", &list(), &[]).await;
    listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

#[tokio::test]
async fn a_stream_beyond_the_limit_has_not_run_and_can_be_repeated() {
    if !has_redis("bounds::a_stream_beyond_the_limit_has_not_run_and_can_be_repeated") {
        return;
    }
    let redis = Redis::start().await;
    let (agent, gate) = gated();
    let _server = start(&redis, agent, |redis| redis.streams = 1).await;
    let mut first = Peer::with_reply(&redis, &format!("{RESPONSES}:first")).await;
    let mut second = Peer::with_reply(&redis, &format!("{RESPONSES}:second")).await;
    first.add("one", &message("SendStreamingMessage", 1, "held one"), &[]).await;
    until("the first stream has begun", async || gate.count("held one") == 1).await;
    let request = message("SendStreamingMessage", 2, "two");
    second.add("two", &request, &[]).await;
    let refused = second.finals(1).await;
    let error = &refused[0].payload["error"];
    assert!(error["message"].as_str().is_some_and(|text| text.contains("too many streams")), "{refused:?}");
    assert_eq!(tasks(&mut second).await.len(), 1, "the refused request has no task");
    gate.open(1);
    first.finals(1).await;
    until("a repeated request gets its stream", async || {
        second.add("two", &request, &[]).await;
        second.finals(1).await.len() > 1
    })
    .await;
    assert_eq!(gate.runs(), ["held one", "two"]);
}

#[tokio::test]
async fn a_silent_stream_has_heartbeats_and_ends_with_the_reply_stream_of_its_client() {
    if !has_redis("bounds::a_silent_stream_has_heartbeats_and_ends_with_the_reply_stream_of_its_client") {
        return;
    }
    let redis = Redis::start().await;
    let (agent, gate) = gated();
    let _server = start(&redis, agent, |redis| redis.streams = 1).await;
    let mut connection = redis.connection().await;
    let reply = format!("{RESPONSES}:own");
    command("XADD").arg(&[&reply, "*", "client", "test"]).exec_async(&mut connection).await.unwrap();
    let mut peer = Peer::with_reply(&redis, &reply).await;
    let live = [("heartbeat", "true")];
    peer.add("s", &message("SendStreamingMessage", 1, "held"), &live).await;
    until("there are heartbeats", async || {
        let entries = range(&mut connection, &reply).await;
        let beats = entries.iter().filter(|entry| entry.get("heartbeat") == Some(b"true"));
        beats.filter(|entry| entry.get("payload").is_none() && entry.get("final") == Some(b"false")).count()
            > 2
    })
    .await;
    // The client ends without a word.
    command("UNLINK").arg(&reply).exec_async(&mut connection).await.unwrap();
    until("the request is acknowledged", async || left(&mut connection).await == (0, 0)).await;
    let mut other = Peer::new(&redis).await;
    until("there is a place for another stream", async || {
        other.add("o", &message("SendStreamingMessage", 2, "other"), &[]).await;
        other.finals(1).await.len() > 1
    })
    .await;
    assert_eq!(tasks(&mut other).await.len(), 2, "the task of the first client was not canceled");
    gate.open(1);
    until("the task has ended", async || {
        tasks(&mut other).await.iter().all(|task| task["status"]["state"] == "TASK_STATE_COMPLETED")
    })
    .await;
    let exists: bool = command("EXISTS").arg(&reply).query_async(&mut connection).await.unwrap();
    assert!(!exists, "the server does not make the stream of a client");
}

#[tokio::test]
async fn a_reader_that_stops_delays_no_other_and_its_stream_has_a_limit() {
    if !has_redis("bounds::a_reader_that_stops_delays_no_other_and_its_stream_has_a_limit") {
        return;
    }
    let redis = Redis::start().await;
    let _server = start(&redis, counting(1000), |redis| redis.keep = 10).await;
    let reply = format!("{RESPONSES}:stopped");
    let mut stopped = Peer::with_reply(&redis, &reply).await;
    let mut other = Peer::new(&redis).await;
    stopped.add("s", &message("SendStreamingMessage", 1, "many"), &[]).await;
    assert!(tasks(&mut other).await.len() <= 1);
    let mut connection = redis.connection().await;
    until("everything is acknowledged", async || left(&mut connection).await == (0, 0)).await;
    let kept: usize = command("XLEN").arg(&reply).query_async(&mut connection).await.unwrap();
    // Redis removes whole nodes, which have 100 entries.
    assert!((10..=210).contains(&kept), "{kept} of more than 1000 responses are kept");
    let last = range(&mut connection, &reply).await.pop().unwrap();
    assert_eq!(last.get("final"), Some(b"true".as_slice()));
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_every_event_in_order() {
    if !has_redis("bounds::a_client_that_reads_slowly_gets_every_event_in_order") {
        return;
    }
    let redis = Redis::start().await;
    // More events than the client keeps.
    let count = 2500;
    let _server = start(&redis, counting(count), |_| {}).await;
    let client = Client::connect(&redis.agent()).await.unwrap();
    let mut events = client.stream("count").await.unwrap();
    let mut connection = redis.connection().await;
    until("all events were written", async || left(&mut connection).await == (0, 0)).await;
    let mut text = String::new();
    while let Some(event) = soon("an event", events.next()).await {
        match event.unwrap() {
            StreamResponse::ArtifactUpdate(update) => text.push_str(&update.artifact.text()),
            StreamResponse::Task(task) => {
                text = task.artifacts.iter().map(|artifact| artifact.text()).collect();
            }
            StreamResponse::StatusUpdate(_) | StreamResponse::Message(_) => {}
        }
    }
    let expected: String = (0..count).map(|number| format!("{number} ")).collect();
    assert!(text == format!("{expected}end"), "{} of {} bytes", text.len(), expected.len() + 3);
}

/// The consumer of a delivered entry, and for how many milliseconds nothing was done about it.
async fn pending(connection: &mut Connection, id: &str) -> Option<(String, u64)> {
    let mut pending = command("XPENDING");
    pending.arg(&[REQUESTS, GROUP, id, id, "1"]);
    let rows: Vec<(String, String, u64, u64)> = pending.query_async(connection).await.unwrap();
    rows.into_iter().next().map(|(_, consumer, idle, _)| (consumer, idle))
}

/// Waits until the claim of an entry was refreshed so many times.
async fn refreshed(connection: &mut Connection, id: &str, times: usize) {
    let (mut before, mut seen) = (0, 0);
    until("the claim is refreshed", async || {
        let (_, idle) = pending(connection, id).await.expect("it is delivered");
        seen += usize::from(idle < before);
        before = idle;
        seen >= times
    })
    .await;
}

/// Adds three requests at once, of which two fit into the memory of a server with [`small`] options. Returns the id of the third one,
/// when it waits for memory.
async fn third_that_waits(redis: &Redis, peer: &mut Peer, gate: &HeldRuns) -> String {
    // The server reads several requests at once after it has read some that are small.
    for i in 0..10 {
        peer.ask("small", &send(i, "small"), &[]).await;
    }
    let mut connection = redis.connection().await;
    let mut add = pipe();
    add.atomic();
    for (i, text) in ["held 1", "held 2", "held 3"].into_iter().enumerate() {
        let payload = format!("{}{}", send(i as u64, text), " ".repeat(14_000));
        add.cmd("XADD").arg(&[REQUESTS, "*", "correlation_id", text, "payload", &payload]);
    }
    let ids: Vec<String> = add.query_async(&mut connection).await.unwrap();
    until("two of them are worked on", async || gate.count("held 1") + gate.count("held 2") == 2).await;
    until("the third one is delivered", async || pending(&mut connection, &ids[2]).await.is_some()).await;
    ids[2].clone()
}

/// Options with memory for two entries of 15 KiB.
fn small(redis: &mut RedisStreams, name: &str) {
    redis.consumer = Some(name.to_owned());
    redis.claim_after = Duration::from_secs(1);
    redis.max_entry = Some(16 * 1024);
    redis.memory = 16 * 1024;
}

#[tokio::test]
async fn a_request_that_waits_for_memory_is_not_taken_over_and_runs_once() {
    if !has_redis("bounds::a_request_that_waits_for_memory_is_not_taken_over_and_runs_once") {
        return;
    }
    let redis = Redis::start().await;
    let ((agent, gate), (other_agent, other)) = (gated(), gated());
    let _server = start(&redis, agent, |redis| small(redis, "first")).await;
    let mut peer = Peer::new(&redis).await;
    let third = third_that_waits(&redis, &mut peer, &gate).await;
    let _other = start(&redis, other_agent, |redis| small(redis, "second")).await;
    let mut connection = redis.connection().await;
    // Longer than the time after which it would be taken over.
    refreshed(&mut connection, &third, 5).await;
    assert_eq!(pending(&mut connection, &third).await.unwrap().0, "first");
    assert_eq!(gate.count("held 3"), 0, "it waits");
    gate.open(3);
    let answered = peer.finals(3).await;
    assert_eq!(answered.len(), 3, "{answered:?}");
    assert_eq!(gate.count("held 3"), 1);
    assert!(other.runs().is_empty(), "{:?}", other.runs());
}

#[tokio::test]
async fn a_request_that_was_taken_over_while_it_waited_for_memory_is_left_to_the_other_process() {
    if !has_redis(
        "bounds::a_request_that_was_taken_over_while_it_waited_for_memory_is_left_to_the_other_process",
    ) {
        return;
    }
    let redis = Redis::start().await;
    let (agent, gate) = gated();
    let _server = start(&redis, agent, |redis| small(redis, "first")).await;
    let mut peer = Peer::new(&redis).await;
    let third = third_that_waits(&redis, &mut peer, &gate).await;
    let mut connection = redis.connection().await;
    // Another process takes it and keeps its claim.
    let (mut thief, taken) = (redis.connection().await, third.clone());
    let claiming = tokio::spawn(async move {
        loop {
            let mut claim = command("XCLAIM");
            claim.arg(&[REQUESTS, GROUP, "second", "0", &taken, "JUSTID"]);
            claim.exec_async(&mut thief).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    until("another process has it", async || {
        pending(&mut connection, &third).await.is_some_and(|(consumer, _)| consumer == "second")
    })
    .await;
    let mut own = command("XPENDING");
    own.arg(&[REQUESTS, GROUP, "-", "+", "10", "first"]);
    let own = pending_ids(own.query_async::<RedisValue>(&mut connection).await.unwrap()).unwrap();
    assert_eq!(own.len(), 2, "{own:?}");
    refreshed(&mut connection, &own[0].0, 3).await;
    gate.open(2);
    assert_eq!(peer.finals(2).await.len(), 2);
    // A later request is read after the third one was looked at.
    peer.ask("later", &send(9, "later"), &[]).await;
    assert_eq!(gate.count("held 3"), 0, "{:?}", gate.runs());
    claiming.abort();
}

#[tokio::test]
async fn a_stream_goes_on_after_redis_was_paused_and_full() {
    if !has_redis("bounds::a_stream_goes_on_after_redis_was_paused_and_full") {
        return;
    }
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let ended = Arc::new(Semaphore::new(0));
    let (held, done) = (gate.clone(), ended.clone());
    let agent = agent_fn(move |turn: Turn| {
        let (gate, ended) = (held.clone(), done.clone());
        async move {
            for number in 0..6 {
                gate.acquire().await?.forget();
                turn.working(number.to_string()).await?;
            }
            ended.add_permits(1);
            turn.complete().await
        }
    });
    let _server = start(&redis, agent, |_| {}).await;
    let client = Client::connect(&redis.agent()).await.unwrap();
    let mut events = client.stream("count").await.unwrap();
    let mut numbers = Vec::new();
    let mut connection = redis.connection().await;
    let mut state = None;
    gate.add_permits(2);
    while let Some(event) = soon("an event", events.next()).await {
        let StreamResponse::StatusUpdate(update) = event.unwrap() else { continue };
        state = Some(update.status.state);
        let Some(said) = update.status.message else { continue };
        numbers.push(said.text());
        match numbers.len() {
            2 => {
                let mut pause = command("CLIENT");
                pause.arg(&["PAUSE", "1000", "ALL"]);
                pause.exec_async(&mut connection).await.unwrap();
                gate.add_permits(2);
            }
            4 => {
                let limit = async |connection: &mut Connection, bytes: &str| {
                    let mut set = command("CONFIG");
                    set.arg(&["SET", "maxmemory", bytes]);
                    set.exec_async(connection).await.unwrap();
                };
                limit(&mut connection, "1").await;
                gate.add_permits(2);
                soon("the end of the turn", ended.acquire()).await.unwrap().forget();
                limit(&mut connection, "0").await;
            }
            _ => {}
        }
    }
    assert_eq!(numbers, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(state, Some(TaskState::Completed));
}

#[tokio::test]
async fn a_task_is_canceled_while_as_many_sends_as_possible_wait_for_their_tasks() {
    if !has_redis("bounds::a_task_is_canceled_while_as_many_sends_as_possible_wait_for_their_tasks") {
        return;
    }
    let redis = Redis::start().await;
    let (agent, gate) = gated();
    let _server = start(&redis, agent, |redis| redis.in_flight = 8).await;
    let mut waiting = Peer::with_reply(&redis, &format!("{RESPONSES}:waiting")).await;
    for i in 0..8 {
        waiting.add(&i.to_string(), &send(i, "held"), &[]).await;
    }
    until("all of them wait", async || gate.count("held") == 8).await;
    let mut peer = Peer::new(&redis).await;
    let listed = tasks(&mut peer).await;
    assert_eq!(listed.len(), 8);
    let params = json!({"id": listed[0]["id"]});
    let cancel = json!({"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": params}).to_string();
    let canceled = peer.ask("cancel", &cancel, &[]).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    gate.open(8);
    assert_eq!(waiting.finals(8).await.len(), 8);
}

#[tokio::test]
async fn callers_over_a_redis_server_of_other_machines_share_a_rate() {
    if !has_redis("bounds::callers_over_a_redis_server_of_other_machines_share_a_rate") {
        return;
    }
    for (card_host, is_limited) in [(None, false), (Some("redis.example.com:6379".to_owned()), true)] {
        let redis = Redis::start().await;
        let streams = RedisStreams::new(&redis.url()).unwrap().with(|redis| redis.card_host = card_host);
        let server = Server::echo().bind("127.0.0.1:0").redis(streams).options(|options| {
            options.limits.requests_per_second_per_address = std::num::NonZeroU32::new(1);
            options.limits.burst_per_address = std::num::NonZeroU32::new(3).unwrap();
        });
        let listening = server.listen().await.unwrap();
        let _server = Running(tokio::spawn(listening.run_until(std::future::pending())).abort_handle());
        let mut peer = Peer::new(&redis).await;
        for i in 0..20 {
            peer.add(&i.to_string(), &list(), &[]).await;
        }
        let refused = peer.finals(20).await.iter().filter(|it| it.payload["error"]["code"] == -32052).count();
        assert_eq!(refused > 0, is_limited, "{refused} of 20");
    }
}

#[tokio::test]
async fn a_caller_has_the_same_rate_over_redis_as_over_every_transport() {
    if !has_redis("bounds::a_caller_has_the_same_rate_over_redis_as_over_every_transport") {
        return;
    }
    let redis = Redis::start().await;
    let streams = RedisStreams::new(&redis.url()).unwrap();
    let callers = attache::server::auth::KnownCallers::new().bearer("ann", "t0ken-of-ann-for-the-tests");
    let server = Server::echo().authenticate(callers).bind("127.0.0.1:0").redis(streams).options(|options| {
        options.limits.requests_per_second = std::num::NonZeroU32::new(1);
        options.limits.burst = std::num::NonZeroU32::new(3).unwrap();
    });
    let listening = server.listen().await.unwrap();
    let _server = Running(tokio::spawn(listening.run_until(std::future::pending())).abort_handle());
    let mut peer = Peer::new(&redis).await;
    for i in 0..20 {
        let fields = [("authorization", "Bearer t0ken-of-ann-for-the-tests")];
        peer.add(&i.to_string(), &list(), &fields).await;
    }
    let answered = peer.finals(20).await;
    let messages: Vec<_> = answered.iter().filter_map(|it| it.payload["error"]["message"].as_str()).collect();
    assert!(!messages.is_empty() && messages.len() <= 17, "{answered:?}");
    assert!(
        messages.iter().all(|it| it.starts_with("more than 1 requests per second of yours")),
        "{messages:?}"
    );
}

/// Answers everything with the method that was called.
struct Told;

impl attache::server::Forward for Told {
    fn forward<'a>(
        &'a self,
        request: &'a [u8],
        _: &'a reqwest::header::HeaderMap,
    ) -> futures::future::BoxFuture<'a, Result<attache::server::JsonRpcReply, attache::protocol::Error>> {
        let request: Value = serde_json::from_slice(request).unwrap();
        let response =
            json!({"jsonrpc": "2.0", "id": request["id"], "result": {"called": request["method"]}});
        Box::pin(async move { Ok(attache::server::JsonRpcReply::One(response.to_string().into())) })
    }
}

#[tokio::test]
async fn a_server_that_forwards_requests_does_so_over_redis_too() {
    if !has_redis("bounds::a_server_that_forwards_requests_does_so_over_redis_too") {
        return;
    }
    let redis = Redis::start().await;
    let streams = RedisStreams::new(&redis.url()).unwrap();
    let listening = Server::echo().forward(Told).bind("127.0.0.1:0").redis(streams).listen().await.unwrap();
    let _server = Running(tokio::spawn(listening.run_until(std::future::pending())).abort_handle());
    let mut peer = Peer::new(&redis).await;
    let answer = peer.ask("c", &send(1, "hello"), &[]).await;
    assert_eq!(answer["result"], json!({"called": "SendMessage"}), "{answer}");
}

#[tokio::test]
async fn of_the_entries_that_were_refused_the_newest_are_kept() {
    if !has_redis("bounds::of_the_entries_that_were_refused_the_newest_are_kept") {
        return;
    }
    let redis = Redis::start().await;
    let _server = start(&redis, gated().0, |redis| redis.keep_dead = 2).await;
    let mut peer = Peer::new(&redis).await;
    let mut connection = redis.connection().await;
    let mut dead = async || {
        let entries = range(&mut connection, DEAD).await;
        let names = entries.iter().map(|entry| entry.get("correlation_id").unwrap_or_default().to_vec());
        names.map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
    };
    for (name, kept) in [("one", &["one"][..]), ("two", &["one", "two"]), ("three", &["two", "three"])] {
        peer.add_fields(&[("correlation_id", name), ("reply_stream", RESPONSES)]).await;
        until("the newest entries are kept", async || dead().await == kept).await;
    }
}

fn unix_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[tokio::test]
async fn of_the_other_processes_256_are_known_and_10_000_requests_are_left_to_one() {
    if !has_redis("bounds::of_the_other_processes_256_are_known_and_10_000_requests_are_left_to_one") {
        return;
    }
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let (prefix, now) = (format!("{REQUESTS}:{GROUP}"), unix_millis());
    let (list, inbox) = (format!("{prefix}:members"), format!("{prefix}:inbox:store-0"));
    // Of the others only the one that was there first still runs.
    let mut others = pipe();
    for number in 0..257 {
        others.cmd("ZADD").arg(&list).arg(now - 60_000 + number).arg(format!("store-{number}")).ignore();
    }
    others.cmd("SET").arg(format!("{prefix}:alive:store-0")).arg("").ignore();
    others.exec_async(&mut connection).await.unwrap();
    let _server = start(&redis, gated().0, |_| {}).await;
    let mut peer = Peer::new(&redis).await;
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}).to_string();
    let answer = peer.ask("far", &unknown, &[]).await;
    assert_eq!(answer["error"]["code"], -32001, "one of 257 others is not known: {answer}");
    let mut fewer = pipe();
    fewer.cmd("ZREM").arg(&list).arg("store-256").ignore();
    for number in 0..9_999 {
        fewer.cmd("RPUSH").arg(&inbox).arg(number).ignore();
    }
    fewer.exec_async(&mut connection).await.unwrap();
    for oldest in ["0", "1"] {
        peer.add("near", &unknown, &[]).await;
        until("the request is left to the other process", async || {
            let mut ends = pipe();
            ends.cmd("LLEN").arg(&inbox).cmd("LINDEX").arg(&inbox).arg(0);
            let (length, first): (usize, String) = ends.query_async(&mut connection).await.unwrap();
            assert!(length <= 10_000, "{length}");
            length == 10_000 && first == oldest
        })
        .await;
    }
}
