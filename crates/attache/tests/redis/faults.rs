//! What becomes of requests when Redis or a server process fails.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use attache::prelude::*;
use attache::protocol::StreamResponse;
use serde_json::json;

use crate::home::Home;
use crate::support::{
    DEAD, Peer, REQUESTS, RESPONSES, Redis, Served, command, has_redis, left, message, range, send, soon,
    until,
};

/// Settings for a program that notes each of its runs, and answers after a time.
fn slow_program(home: &Home, seconds: &str, more: &str) -> String {
    let script = home.file(
        "agent.sh",
        &format!(
            "#!/bin/sh\ntext=$(cat)\necho \"$text\" >> {}\nsleep {seconds}\necho done\n",
            home.path("runs").display()
        ),
    );
    home.file("attache.yml", &format!("program:\n  command: sh {script}\n{more}"))
}

/// How often the program has run, by its input.
fn runs(home: &Home) -> HashMap<String, usize> {
    let mut runs = HashMap::new();
    for line in std::fs::read_to_string(home.path("runs")).unwrap_or_default().lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    runs
}

#[tokio::test]
async fn requests_survive_a_restart_of_redis() {
    if !has_redis("faults::requests_survive_a_restart_of_redis") {
        return;
    }
    let mut redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "1", "redis: { in-flight: 4 }\n");
    let mut served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    for i in 0..8 {
        peer.add(&format!("c-{i}"), &send(i, &format!("text {i}")), &[]).await;
    }
    until("four requests are in progress", async || runs(&home).len() == 4).await;
    redis.kill().await;
    // The turns go on meanwhile. Their responses wait.
    for _ in 0..4 {
        served.line_with("turn ended").await;
    }
    redis.start_again().await;
    let mut peer = Peer::new(&redis).await;
    let responses = peer.finals(8).await;
    let answered: HashSet<String> = responses.iter().map(|response| response.correlation.clone()).collect();
    assert_eq!(answered.len(), 8, "{responses:?}");
    assert!(runs(&home).values().all(|count| *count == 1), "{:?}", runs(&home));
    let mut connection = redis.connection().await;
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
    let failures = served.everything().iter().filter(|line| line.contains("Redis fails")).count();
    assert!(failures <= 2, "an outage is logged once for reading and once for writing: {:?}", served.said);
}

#[tokio::test]
async fn requests_survive_a_pause_of_redis() {
    if !has_redis("faults::requests_survive_a_pause_of_redis") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let mut connection = redis.connection().await;
    for i in 0..50 {
        peer.add(&format!("before-{i}"), &send(i, "hello"), &[]).await;
    }
    command("CLIENT").arg("PAUSE").arg(2000).arg("ALL").exec_async(&mut connection).await.unwrap();
    for i in 0..50 {
        peer.add(&format!("after-{i}"), &send(i, "hello"), &[]).await;
    }
    let responses = peer.finals(100).await;
    assert_eq!(responses.len(), 100, "each request is answered once");
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
}

#[tokio::test]
async fn nothing_is_lost_while_redis_is_full() {
    if !has_redis("faults::nothing_is_lost_while_redis_is_full") {
        return;
    }
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let home = Home::new();
    let file = slow_program(&home, "2", "redis: { in-flight: 4 }\n");
    let mut served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    for i in 0..12 {
        peer.add(&format!("c-{i}"), &send(i, &format!("text {i}")), &[]).await;
    }
    let mut connection = redis.connection().await;
    let limit = async |bytes: &str| {
        let mut connection = redis.connection().await;
        command("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec_async(&mut connection).await.unwrap();
    };
    // A turn begins only while Redis can be told so.
    until("four turns have begun", async || runs(&home).len() == 4).await;
    limit("1").await;
    until("four turns are over and Redis is full", async || {
        let said = served.everything();
        said.iter().filter(|line| line.contains("turn ended")).count() == 4
            && said.iter().any(|line| line.contains("Redis fails, trying again"))
    })
    .await;
    // No more is read than can be processed, so the others stay in Redis.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // One place is for a request that sends no message: a fifth message is read and waits.
    assert_eq!((left(&mut connection).await.1, runs(&home).len()), (5, 4));
    limit("0").await;
    let responses = peer.finals(12).await;
    assert_eq!(responses.len(), 12, "each request is answered once");
    assert!(runs(&home).values().all(|count| *count == 1), "{:?}", runs(&home));
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
}

#[tokio::test]
async fn requests_of_a_killed_process_are_taken_over() {
    if !has_redis("faults::requests_of_a_killed_process_are_taken_over") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "2", "redis: { claim-after: 1s }\n");
    let url = redis.url();
    let first = Served::start(&["--config", &file, "--redis", &url]).await;
    let mut peer = Peer::new(&redis).await;
    for i in 0..4 {
        peer.add(&format!("c-{i}"), &send(i, &format!("text {i}")), &[]).await;
    }
    until("all requests are in progress", async || runs(&home).len() == 4).await;
    first.kill().await;
    let mut second = Served::start(&["--config", &file, "--redis", &url]).await;
    second.line_with("took over a request").await;
    let responses = peer.finals(4).await;
    let answered: HashSet<String> = responses.iter().map(|response| response.correlation.clone()).collect();
    assert_eq!((answered.len(), responses.len()), (4, 4), "{responses:?}");
    let mut connection = redis.connection().await;
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
}

#[tokio::test]
async fn a_send_that_is_delivered_twice_runs_once_with_the_same_store() {
    if !has_redis("faults::a_send_that_is_delivered_twice_runs_once_with_the_same_store") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "1", "redis: { claim-after: 1s }\n");
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let (url, keyring) = (redis.url(), home.path("keyring.json").display().to_string());
    let environment = [("ATTACHE_STORE", store.as_str()), ("ATTACHE_KEYRING_FILE", keyring.as_str())];
    // Responses cannot be written, so the request is not acknowledged before the process is killed.
    let mut first = Served::start_with(&["--config", &file, "--redis", &url], &environment).await;
    let mut peer = Peer::new(&redis).await;
    let mut connection = redis.connection().await;
    peer.add("c-1", &send(1, "only once"), &[]).await;
    until("the request is in progress", async || runs(&home).len() == 1).await;
    let limit = command("CONFIG").arg("SET").arg("maxmemory").arg("1").exec_async(&mut connection).await;
    limit.unwrap();
    first.line_with("turn ended").await;
    first.line_with("Redis fails").await;
    first.kill().await;
    command("CONFIG").arg("SET").arg("maxmemory").arg("0").exec_async(&mut connection).await.unwrap();
    let exists = command("EXISTS").arg(RESPONSES).query_async::<bool>(&mut connection).await.unwrap();
    assert!(!exists, "there is no response yet");
    let _second = Served::start_with(&["--config", &file, "--redis", &url], &environment).await;
    let responses = peer.finals(1).await;
    assert_eq!(
        responses[0].payload["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{responses:?}"
    );
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "ListTasks", "params": {}}).to_string();
    let listed = peer.ask("c-2", &list, &[]).await;
    assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(runs(&home).get("only once"), Some(&1));
}

#[tokio::test]
async fn a_process_keeps_the_requests_that_it_works_on() {
    if !has_redis("faults::a_process_keeps_the_requests_that_it_works_on") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "4", "redis: { claim-after: 1s }\n");
    let url = redis.url();
    let arguments = ["--config", file.as_str(), "--redis", &url];
    let (mut first, mut second) = (Served::start(&arguments).await, Served::start(&arguments).await);
    let mut peer = Peer::new(&redis).await;
    peer.add("long", &send(1, "long"), &[]).await;
    peer.add("stream", &message("SendStreamingMessage", 2, "stream"), &[]).await;
    let responses = peer.finals(2).await;
    assert_eq!(responses.iter().filter(|response| response.correlation == "long").count(), 1);
    assert_eq!(runs(&home), HashMap::from([("long".to_owned(), 1), ("stream".to_owned(), 1)]));
    for served in [&mut first, &mut second] {
        assert!(!served.everything().iter().any(|line| line.contains("took over")), "{:?}", served.said);
    }
}

#[tokio::test]
async fn a_process_that_stops_finishes_or_gives_back() {
    if !has_redis("faults::a_process_that_stops_finishes_or_gives_back") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "1", "redis: { in-flight: 2 }\n");
    let url = redis.url();
    let first = Served::start(&["--config", &file, "--redis", &url]).await;
    let mut peer = Peer::new(&redis).await;
    for i in 0..6 {
        peer.add(&format!("c-{i}"), &send(i, &format!("text {i}")), &[]).await;
    }
    until("some requests are in progress", async || runs(&home).len() >= 2).await;
    first.stop().await;
    let mut connection = redis.connection().await;
    let (waiting, pending) = left(&mut connection).await;
    // At most one was read that had no place to run.
    assert!(waiting >= 2 && pending <= 1, "{waiting} left, {pending} of them delivered");
    let consumers: Vec<HashMap<String, attache_redis::redis::Value>> = command("XINFO")
        .arg("CONSUMERS")
        .arg(REQUESTS)
        .arg("attache")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(consumers.is_empty(), pending == 0, "{consumers:?}");
    let _second = Served::start(&["--config", &file, "--redis", &url]).await;
    let responses = peer.finals(6).await;
    assert_eq!(responses.len(), 6, "each request is answered once");
    assert!(runs(&home).values().all(|count| *count == 1), "{:?}", runs(&home));
}

/// Adds a request, and delivers it so many times to processes that end before they answer it.
async fn poison(redis: &Redis, peer: &mut Peer, consumers: &[&str]) {
    let mut connection = redis.connection().await;
    peer.add("poison", &send(1, "poison"), &[]).await;
    let (first, others) = consumers.split_first().unwrap();
    let mut calls = vec![
        vec!["XGROUP", "CREATE", REQUESTS, "attache", "0-0"],
        vec!["XREADGROUP", "GROUP", "attache", first, "STREAMS", REQUESTS, ">"],
    ];
    calls.extend(others.iter().map(|other| vec!["XAUTOCLAIM", REQUESTS, "attache", other, "0", "0-0"]));
    for arguments in calls {
        let mut call = command(arguments[0]);
        call.arg(&arguments[1..]);
        call.exec_async(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_refused_in_the_end_and_its_client_is_told() {
    if !has_redis("faults::a_request_that_is_never_answered_is_refused_in_the_end_and_its_client_is_told") {
        return;
    }
    // Without a name of its own, a process takes over the requests of others. With one, it has those of the process before it.
    for (name, consumers) in [("", ["one", "two"]), (", consumer-name: worker", ["worker", "worker"])] {
        let redis = Redis::start().await;
        let home = Home::new();
        let settings = format!("agent: echo\nredis: {{ claim-after: 1s, max-deliveries: 2{name} }}\n");
        let file = home.file("attache.yml", &settings);
        let mut peer = Peer::new(&redis).await;
        let mut connection = redis.connection().await;
        poison(&redis, &mut peer, &consumers).await;
        let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
        let told = peer.finals(1).await;
        let reason = "the request was delivered 2 times and never answered";
        let error = &told[0].payload["error"];
        assert!(error["message"].as_str().is_some_and(|text| text.contains(reason)), "{told:?}");
        assert_eq!((told[0].correlation.as_str(), &told[0].payload["id"]), ("poison", &json!(1)));
        until("it is in the dead stream", async || range(&mut connection, DEAD).await.len() == 1).await;
        let dead = range(&mut connection, DEAD).await;
        assert_eq!(dead[0].get("reason"), Some(reason.as_bytes()));
        assert!(dead[0].get("payload").is_some_and(|payload| payload.starts_with(b"{")), "{dead:?}");
        assert_eq!(left(&mut connection).await, (0, 0));
    }
}

#[tokio::test]
async fn a_request_that_ends_even_the_process_that_refuses_it_is_refused_without_being_read() {
    if !has_redis(
        "faults::a_request_that_ends_even_the_process_that_refuses_it_is_refused_without_being_read",
    ) {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = home.file("attache.yml", "agent: echo\nredis: { claim-after: 1s, max-deliveries: 2 }\n");
    let mut peer = Peer::new(&redis).await;
    poison(&redis, &mut peer, &["one", "two", "three"]).await;
    let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut connection = redis.connection().await;
    until("it is in the dead stream", async || range(&mut connection, DEAD).await.len() == 1).await;
    let dead = range(&mut connection, DEAD).await;
    let has = ["reason", "entry_id", "correlation_id", "payload"].map(|name| dead[0].get(name).is_some());
    assert_eq!(has, [true, true, false, false], "{dead:?}");
    assert_eq!(left(&mut connection).await, (0, 0));
}

#[tokio::test]
async fn a_client_whose_server_is_killed_in_a_stream_learns_how_its_task_ended() {
    if !has_redis("faults::a_client_whose_server_is_killed_in_a_stream_learns_how_its_task_ended") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let file = slow_program(&home, "600", "redis: { claim-after: 1s }\n");
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let (url, keyring) = (redis.url(), home.path("keyring.json").display().to_string());
    let environment = [("ATTACHE_STORE", store.as_str()), ("ATTACHE_KEYRING_FILE", keyring.as_str())];
    let first = Served::start_with(&["--config", &file, "--redis", &url], &environment).await;
    let client = Client::connect(&redis.agent()).await.unwrap();
    let mut events = client.stream("only once").await.unwrap();
    until("the agent works", async || runs(&home).len() == 1).await;
    first.kill().await;
    let _second = Served::start_with(&["--config", &file, "--redis", &url], &environment).await;
    let mut states = Vec::new();
    while let Some(event) = soon("an event", events.next()).await {
        match event.unwrap() {
            StreamResponse::Task(task) => states.push(task.status.state),
            StreamResponse::StatusUpdate(update) => states.push(update.status.state),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => {}
        }
    }
    assert_eq!(states.last(), Some(&TaskState::Failed), "{states:?}");
    assert_eq!(client.list(Default::default()).await.unwrap().tasks.len(), 1);
    assert_eq!(runs(&home).get("only once"), Some(&1));
}

#[tokio::test]
async fn the_group_is_made_again_after_redis_lost_its_data() {
    if !has_redis("faults::the_group_is_made_again_after_redis_lost_its_data") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let mut connection = redis.connection().await;
    for correlation in ["before", "after"] {
        let mut peer = Peer::new(&redis).await;
        let sent = peer.ask(correlation, &send(1, "hello"), &[]).await;
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        command("FLUSHALL").exec_async(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn so_many_streams_are_open_at_once_and_no_more() {
    if !has_redis("faults::so_many_streams_are_open_at_once_and_no_more") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let gate = home.path("gate");
    let script = home.file(
        "agent.sh",
        &format!(
            "#!/bin/sh\ncat > /dev/null\nwhile [ ! -e {} ]; do sleep 0.05; done\necho done\n",
            gate.display()
        ),
    );
    let settings = format!("program:\n  command: sh {script}\nredis: {{ streams: 2 }}\n");
    let file = home.file("attache.yml", &settings);
    let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    for id in [1, 2] {
        peer.add(&format!("c-{id}"), &message("SendStreamingMessage", id, "hello"), &[]).await;
    }
    let mut open = HashSet::new();
    soon("both streams have begun", async {
        while open.len() < 2 {
            open.extend(peer.read().await.into_iter().map(|response| response.correlation));
        }
    })
    .await;
    peer.add("c-3", &message("SendStreamingMessage", 3, "hello"), &[]).await;
    let responses = peer.finals(1).await;
    let refused = responses.iter().find(|response| response.is_final).unwrap();
    assert_eq!((refused.correlation.as_str(), &refused.payload["error"]["code"]), ("c-3", &json!(-32054)));
    std::fs::write(&gate, "").unwrap();
    let responses = peer.finals(2).await;
    let ended = responses.iter().filter(|response| response.is_final);
    let ended: HashSet<_> = ended.map(|response| response.correlation.as_str()).collect();
    assert_eq!(ended, HashSet::from(["c-1", "c-2"]), "{responses:?}");
}

#[tokio::test]
async fn requests_in_progress_are_answered_after_redis_lost_everything_in_a_restart() {
    if !has_redis("faults::requests_in_progress_are_answered_after_redis_lost_everything_in_a_restart") {
        return;
    }
    let mut redis = Redis::start_with(&["--appendonly", "no"]).await;
    let home = Home::new();
    let file = slow_program(&home, "1", "");
    let mut served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    for i in 0..3 {
        peer.add(&format!("c-{i}"), &send(i, &format!("text {i}")), &[]).await;
    }
    until("all requests are in progress", async || runs(&home).len() == 3).await;
    redis.kill().await;
    for _ in 0..3 {
        served.line_with("turn ended").await;
    }
    redis.start_again().await;
    let mut peer = Peer::new(&redis).await;
    let answered: HashSet<String> =
        peer.finals(3).await.into_iter().map(|response| response.correlation).collect();
    assert_eq!(answered.len(), 3, "{answered:?}");
    let later = peer.ask("later", &send(9, "later"), &[]).await;
    assert!(later["result"]["task"].is_object(), "{later}");
    assert!(runs(&home).values().all(|count| *count == 1), "{:?}", runs(&home));
}
