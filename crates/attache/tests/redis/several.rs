//! Several server processes that share the requests of one stream, with a store each.

use std::collections::HashSet;
use std::sync::Arc;

use attache::core::{MemoryStore, Store};
use attache::prelude::*;
use attache::server::RedisStreams;
use attache_redis::redis;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Peer, RESPONSES, Redis, Served, command, has_redis, soon, until};

/// Two processes, and a program that notes each run. It asks a question, waits until it is released, or completes.
struct Two {
    redis: Redis,
    home: Home,
    settings: String,
    served: Vec<Option<Served>>,
}

const PROGRAM: &str = r#"#!/bin/sh
read -r line
echo run >> runs
case "$line" in
  *'"text":"ask'*) echo '{"type":"ask","text":"For how many?"}'; read -r answer; echo '{"type":"complete","text":"booked"}' ;;
  *'"text":"hold'*) while [ ! -e released ]; do sleep 0.05; done; echo '{"type":"complete","text":"released"}' ;;
  *) echo '{"type":"complete","text":"done"}' ;;
esac
"#;

impl Two {
    /// Starts them with these stores, in which `HOME` is a folder.
    async fn start(stores: [&str; 2], claim_after: &str) -> Self {
        let home = Home::new();
        let script = home.file("agent.sh", PROGRAM);
        let folder = home.path("");
        let folder = folder.display();
        let settings = home.file(
            "attache.yml",
            &format!(
                "program: {{ command: sh {script}, protocol: json, directory: {folder}, processes: 64 }}\nredis: {{ claim-after: {claim_after} }}\n"
            ),
        );
        let mut two = Self { redis: Redis::start().await, home, settings, served: Vec::new() };
        for store in stores {
            let served = two.serve(store).await;
            two.served.push(Some(served));
        }
        two
    }

    async fn serve(&self, store: &str) -> Served {
        let store = store.replace("HOME", &self.home.path("").display().to_string());
        let keyring = self.home.path("keyring.json").display().to_string();
        let environment = [("ATTACHE_STORE", store.as_str()), ("ATTACHE_KEYRING_FILE", keyring.as_str())];
        let arguments =
            ["--config", &self.settings, "--redis", &self.redis.url(), "--allow-loopback-webhooks"];
        Served::start_with(&arguments, &environment).await
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.home.path("runs")).unwrap_or_default().lines().count()
    }

    /// The ids of the tasks in the store of a process, the newest first.
    async fn tasks(&self, process: usize) -> Vec<String> {
        let served = self.served[process].as_ref().expect("it runs");
        let listed = over_http(&served.url, &call("ListTasks", json!({"pageSize": 100}))).await;
        let tasks = listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}"));
        tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Sends a message again and again, until each process has a task that began while both took part. Returns that of each.
    async fn a_task_of_each(&self, peer: &mut Peer, text: &str) -> [String; 2] {
        let mut before = [0, 0];
        for _ in 0..2 {
            until("each process has a new task", async || {
                peer.ask("send", &call("SendMessage", message(text)), &[]).await;
                let now = [self.tasks(0).await.len(), self.tasks(1).await.len()];
                now[0] > before[0] && now[1] > before[1]
            })
            .await;
            before = [self.tasks(0).await.len(), self.tasks(1).await.len()];
        }
        [self.tasks(0).await.remove(0), self.tasks(1).await.remove(0)]
    }
}

fn call(method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": "rpc", "method": method, "params": params}).to_string()
}

/// A message that is answered at once.
fn message(text: &str) -> Value {
    let id = format!("m-{}", fastrand::u64(..));
    json!({
        "message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": true},
    })
}

/// The same, answered when the task is settled.
fn blocking(text: &str) -> Value {
    let mut message = message(text);
    message["configuration"] = json!({});
    message
}

async fn over_http(url: &str, request: &str) -> Value {
    let client = reqwest::Client::new().post(format!("{url}/a2a"));
    let client = client.header("A2A-Version", "1.0").header("Content-Type", "application/json");
    client.body(request.to_owned()).send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn each_operation_on_a_task_is_answered_by_the_process_that_has_it() {
    if !has_redis("several::each_operation_on_a_task_is_answered_by_the_process_that_has_it") {
        return;
    }
    let two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::with_reply(&two.redis, &format!("{RESPONSES}:own")).await;
    let tasks = two.a_task_of_each(&mut peer, "hold").await;
    for task in &tasks {
        // More often than one process would be skipped by chance.
        for _ in 0..6 {
            let got = peer.ask("get", &call("GetTask", json!({"id": task})), &[]).await;
            assert_eq!(got["result"]["id"], task.as_str(), "{got}");
        }
        let webhook = json!({"taskId": task, "id": "w", "url": "http://127.0.0.1:9/hook"});
        let created = peer.ask("push", &call("CreateTaskPushNotificationConfig", webhook), &[]).await;
        assert_eq!(created["result"]["taskId"], task.as_str(), "{created}");
        for _ in 0..4 {
            let webhook = json!({"taskId": task, "id": "w"});
            let got = peer.ask("push", &call("GetTaskPushNotificationConfig", webhook), &[]).await;
            assert_eq!(got["result"]["id"], "w", "{got}");
            let listed = call("ListTaskPushNotificationConfigs", json!({"taskId": task}));
            let listed = peer.ask("push", &listed, &[]).await;
            assert_eq!(listed["result"]["configs"].as_array().map(Vec::len), Some(1), "{listed}");
        }
        let deleted = call("DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "w"}));
        let deleted = peer.ask("push", &deleted, &[]).await;
        assert!(deleted.get("error").is_none(), "{deleted}");
    }
    // As many subscriptions as both processes get some of them.
    let mut readers = Vec::new();
    for (i, task) in tasks.iter().cycle().take(8).enumerate() {
        let mut reader = Peer::with_reply(&two.redis, &format!("{RESPONSES}:{i}")).await;
        reader.add("follow", &call("SubscribeToTask", json!({"id": task})), &[]).await;
        let first = soon("the first event", async {
            loop {
                if let Some(first) = reader.read().await.into_iter().next() {
                    return first;
                }
            }
        });
        assert_eq!(first.await.payload["result"]["task"]["id"], task.as_str());
        readers.push(reader);
    }
    for task in &tasks {
        let canceled = peer.ask("cancel", &call("CancelTask", json!({"id": task})), &[]).await;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    }
    for mut reader in readers {
        let events = reader.finals(1).await;
        let text = format!("{events:?}");
        assert!(text.contains("TASK_STATE_CANCELED"), "{text}");
    }
}

#[tokio::test]
async fn the_answer_to_a_question_goes_to_the_process_that_has_asked() {
    if !has_redis("several::the_answer_to_a_question_goes_to_the_process_that_has_asked") {
        return;
    }
    let two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::new(&two.redis).await;
    two.a_task_of_each(&mut peer, "done").await;
    for i in 0..8 {
        // Redis serves the processes in turn. Each of them gets questions and answers.
        if i % 2 == 0 {
            peer.ask("list", &call("ListTasks", json!({})), &[]).await;
        }
        let asked = peer.ask("ask", &call("SendMessage", blocking("ask")), &[]).await;
        let task = &asked["result"]["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
        let mut answer = blocking("four");
        answer["message"]["taskId"] = task["id"].clone();
        let answered = peer.ask("answer", &call("SendMessage", answer), &[]).await;
        assert_eq!(answered["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answered}");
        assert_eq!(answered["result"]["task"]["id"], task["id"]);
    }
}

#[tokio::test]
async fn the_messages_of_a_context_go_to_one_process() {
    if !has_redis("several::the_messages_of_a_context_go_to_one_process") {
        return;
    }
    let two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::new(&two.redis).await;
    two.a_task_of_each(&mut peer, "done").await;
    let sent = peer.ask("send", &call("SendMessage", blocking("done")), &[]).await;
    let context = sent["result"]["task"]["contextId"].clone();
    let mut next = blocking("done");
    next["message"]["contextId"] = context.clone();
    for _ in 0..6 {
        next["message"]["messageId"] = json!(format!("m-{}", fastrand::u64(..)));
        let sent = peer.ask("send", &call("SendMessage", next.clone()), &[]).await;
        assert_eq!(sent["result"]["task"]["contextId"], context, "{sent}");
    }
    for _ in 0..4 {
        let listed = peer.ask("list", &call("ListTasks", json!({"contextId": context})), &[]).await;
        assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(7), "{listed}");
    }
}

#[tokio::test]
async fn a_task_that_began_over_http_is_found_over_redis() {
    if !has_redis("several::a_task_that_began_over_http_is_found_over_redis") {
        return;
    }
    let two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::new(&two.redis).await;
    for served in two.served.iter().flatten() {
        let sent = over_http(&served.url, &call("SendMessage", message("hold"))).await;
        let task = sent["result"]["task"]["id"].clone();
        for _ in 0..4 {
            let got = peer.ask("get", &call("GetTask", json!({"id": task})), &[]).await;
            assert_eq!(got["result"]["id"], task, "{got}");
        }
        let canceled = peer.ask("cancel", &call("CancelTask", json!({"id": task})), &[]).await;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    }
    let got = peer.ask("get", &call("GetTask", json!({"id": "unknown"})), &[]).await;
    assert_eq!(got["error"]["code"], -32001, "{got}");
}

#[tokio::test]
async fn a_send_whose_process_is_killed_runs_once_while_another_process_lives() {
    if !has_redis("several::a_send_whose_process_is_killed_runs_once_while_another_process_lives") {
        return;
    }
    let mut two = Two::start(["memory:", "memory:"], "1s").await;
    let mut peer = Peer::new(&two.redis).await;
    let tasks = two.a_task_of_each(&mut peer, "hold").await;
    let (before, began) = ([two.tasks(0).await, two.tasks(1).await], two.runs());
    peer.add("send", &call("SendMessage", blocking("hold")), &[]).await;
    until("the agent works", async || two.runs() == began + 1).await;
    let victim = usize::from(two.tasks(1).await != before[1]);
    two.served[victim].take().expect("it runs").kill().await;
    let answer = peer.finals(1).await.pop().unwrap();
    let text = answer.payload["error"]["message"].as_str().unwrap_or_default();
    assert!(
        answer.payload["error"]["code"] == -32603 && text.contains("the outcome is unknown"),
        "{answer:?}"
    );
    assert_eq!(two.runs(), began + 1);
    // What is known of its other tasks is said too.
    let got = peer.ask("get", &call("GetTask", json!({"id": tasks[victim]})), &[]).await;
    let text = got["error"]["message"].as_str().unwrap_or_default();
    assert!(got["error"]["code"] == -32054 && text.contains("the task is lost"), "{got}");
    let got = peer.ask("get", &call("GetTask", json!({"id": tasks[1 - victim]})), &[]).await;
    assert_eq!(got["result"]["id"], tasks[1 - victim], "{got}");
    assert_eq!(two.runs(), began + 1);
}

#[tokio::test]
async fn a_send_whose_process_is_killed_is_answered_by_its_next_process_with_the_same_store() {
    if !has_redis(
        "several::a_send_whose_process_is_killed_is_answered_by_its_next_process_with_the_same_store",
    ) {
        return;
    }
    let stores = ["sqlite:HOME/0.db", "sqlite:HOME/1.db"];
    let mut two = Two::start(stores, "2s").await;
    let mut peer = Peer::new(&two.redis).await;
    let tasks = two.a_task_of_each(&mut peer, "hold").await;
    let (before, began) = ([two.tasks(0).await, two.tasks(1).await], two.runs());
    peer.add("send", &call("SendMessage", blocking("hold")), &[]).await;
    until("the agent works", async || two.runs() == began + 1).await;
    let victim = usize::from(two.tasks(1).await != before[1]);
    two.served[victim].take().expect("it runs").kill().await;
    // The other process takes the request over, and finds its first process gone.
    two.served[1 - victim].as_mut().expect("it runs").line_with("took over a request").await;
    let again = two.serve(stores[victim]).await;
    two.served[victim] = Some(again);
    let answer = peer.finals(1).await.pop().unwrap();
    assert_eq!(answer.payload["result"]["task"]["status"]["state"], "TASK_STATE_FAILED", "{answer:?}");
    assert_eq!(two.runs(), began + 1);
    for _ in 0..4 {
        let got = peer.ask("get", &call("GetTask", json!({"id": tasks[victim]})), &[]).await;
        assert_eq!(got["result"]["status"]["state"], "TASK_STATE_FAILED", "{got}");
    }
    // A process that is not started again is missed, and its tasks are not reported as unknown.
    two.served[victim].take().expect("it runs").kill().await;
    let got = peer.ask("get", &call("GetTask", json!({"id": tasks[victim]})), &[]).await;
    let text = got["error"]["message"].as_str().unwrap_or_default();
    assert!(got["error"]["code"] == -32054 && text.contains("does not run"), "{got}");
}

#[tokio::test]
async fn a_message_that_is_sent_again_with_its_key_runs_once_whichever_process_gets_it() {
    if !has_redis("several::a_message_that_is_sent_again_with_its_key_runs_once_whichever_process_gets_it") {
        return;
    }
    let two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::new(&two.redis).await;
    two.a_task_of_each(&mut peer, "done").await;
    let (request, began) = (call("SendMessage", blocking("done")), two.runs());
    let mut tasks = HashSet::new();
    for _ in 0..6 {
        let sent = peer.ask("send", &request, &[("idempotency-key", "k")]).await;
        tasks.insert(sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned());
    }
    assert_eq!((tasks.len(), two.runs()), (1, began + 1));
}

#[tokio::test]
async fn what_the_processes_write_about_each_other_expires() {
    if !has_redis("several::what_the_processes_write_about_each_other_expires") {
        return;
    }
    let mut two = Two::start(["memory:", "memory:"], "5s").await;
    let mut peer = Peer::new(&two.redis).await;
    two.a_task_of_each(&mut peer, "done").await;
    peer.ask("send", &call("SendMessage", blocking("done")), &[("idempotency-key", "k")]).await;
    let mut connection = two.redis.connection().await;
    let mut names = async || {
        let mut keys = command("KEYS");
        let names: Vec<String> =
            keys.arg("attache:a2a:requests:*").query_async(&mut connection).await.unwrap();
        for name in &names {
            let left: redis::RedisResult<i64> = command("PTTL").arg(name).query_async(&mut connection).await;
            // -2: it has expired since.
            assert!(matches!(left, Ok(left) if left > 0 || left == -2), "{name} is kept forever: {left:?}");
        }
        names
    };
    let found = names().await;
    assert!(found.iter().any(|name| name.contains(":task:")), "{found:?}");
    // Of the sends that were answered, only the key of a client is known further on.
    assert_eq!(found.iter().filter(|name| name.contains(":begun:")).count(), 1, "{found:?}");
    for served in &mut two.served {
        served.take().expect("it runs").stop().await;
    }
    assert!(!names().await.iter().any(|name| name.contains(":alive:")));
}

#[tokio::test]
async fn servers_with_one_store_answer_for_each_other() {
    if !has_redis("several::servers_with_one_store_answer_for_each_other") {
        return;
    }
    let redis = Redis::start().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut servers = Vec::new();
    for _ in 0..2 {
        let streams = RedisStreams::new(&redis.url()).unwrap();
        let server = Server::echo().shared_store(store.clone()).bind("127.0.0.1:0").redis(streams);
        let listening = server.listen().await.unwrap();
        servers.push(tokio::spawn(listening.run_until(std::future::pending())));
    }
    let mut peer = Peer::new(&redis).await;
    let sent = peer.ask("send", &call("SendMessage", blocking("hello")), &[]).await;
    let task = sent["result"]["task"]["id"].clone();
    for _ in 0..4 {
        let got = peer.ask("get", &call("GetTask", json!({"id": task})), &[]).await;
        assert_eq!(got["result"]["id"], task, "{got}");
    }
    // They are one member, so nothing has to be known about tasks.
    let mut connection = redis.connection().await;
    let names: Vec<String> =
        command("KEYS").arg("attache:a2a:requests:*").query_async(&mut connection).await.unwrap();
    assert!(!names.iter().any(|name| name.contains(":task:")), "{names:?}");
    assert_eq!(names.iter().filter(|name| name.contains(":alive:")).count(), 1, "{names:?}");
    servers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn as_many_requests_wait_for_a_process_that_does_not_run_as_may_be_in_flight() {
    if !has_redis("several::as_many_requests_wait_for_a_process_that_does_not_run_as_may_be_in_flight") {
        return;
    }
    let stores = ["sqlite:HOME/0.db", "sqlite:HOME/1.db"];
    let mut two = Two::start(stores, "30s, in-flight: 2").await;
    let mut peer = Peer::new(&two.redis).await;
    let [task, _] = two.a_task_of_each(&mut peer, "done").await;
    two.served[0].take().expect("it runs").kill().await;
    // It is known at once that it does not run.
    let mut connection = two.redis.connection().await;
    let mut keys = command("KEYS");
    let alive: Vec<String> = keys.arg("*:alive:*").query_async(&mut connection).await.unwrap();
    let _: usize = command("DEL").arg(alive).query_async(&mut connection).await.unwrap();
    for name in ["one", "two", "three"] {
        peer.add(name, &call("GetTask", json!({"id": task})), &[]).await;
    }
    let refused = peer.finals(1).await;
    let error = &refused[0].payload["error"];
    assert!(refused.len() == 1 && error["code"] == -32054, "{refused:?}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("does not run")), "{refused:?}");
    // The two others are answered when it runs again.
    two.served[0] = Some(two.serve(stores[0]).await);
    for answer in peer.finals(2).await {
        assert_eq!(answer.payload["result"]["id"], task.as_str(), "{answer:?}");
    }
}
