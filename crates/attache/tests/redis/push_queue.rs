//! Push notifications that several server processes share over Redis.

mod faults;
mod layout;

use std::collections::HashSet;

use attache_redis::Connection;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::home::Home;
use crate::support::{Redis, Served, command, has_redis, range, soon, until};

const STREAM: &str = "attache:a2a:push";
const RETRY: &str = "attache:a2a:push:retry";
const DEAD: &str = "attache:a2a:push:dead";

/// A notification that waits for its answer.
struct Told {
    headers: HeaderMap,
    body: Value,
    answer: oneshot::Sender<StatusCode>,
}

impl Told {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }

    fn answer(self, status: StatusCode) {
        // The server may be gone.
        let _ = self.answer.send(status);
    }
}

/// A receiver of webhooks. The test decides what it answers.
struct Receiver {
    url: String,
    told: mpsc::UnboundedReceiver<Told>,
}

impl Receiver {
    async fn start() -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let handler = post(move |headers: HeaderMap, Json(body): Json<Value>| async move {
            let (answer, answered) = oneshot::channel();
            let _ = sender.send(Told { headers, body, answer });
            answered.await.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?key=secret-of-the-url", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", handler)).await });
        Self { url, told }
    }

    async fn next(&mut self) -> Told {
        soon("a notification", self.told.recv()).await.expect("the receiver runs")
    }

    /// Accepts the notifications up to the end of a task. Returns the numbers of the events.
    async fn rest(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        loop {
            let told = self.next().await;
            numbers.push(told.header("x-a2a-event-number").parse().expect("a number"));
            let is_last = told.body.to_string().contains("TASK_STATE_COMPLETED");
            told.answer(StatusCode::OK);
            if is_last {
                return numbers;
            }
        }
    }
}

/// The settings of a server with a push queue. Servers with the same home have the same keys.
fn settings(home: &Home, redis: &Redis, name: &str, more: &str) -> String {
    settings_with_lease(home, redis, name, "5m", more)
}

fn settings_with_lease(home: &Home, redis: &Redis, name: &str, lease: &str, more: &str) -> String {
    let keys = home.path("keyring.json").display().to_string();
    let url = redis.url();
    let queue = format!("  queue: redis\n  redis: {{ url: \"{url}\", lease: {lease} }}\n");
    home.file(name, &format!("agent: echo\nkeyring: {keys}\npush:\n  allow-loopback: true\n{queue}{more}"))
}

/// Signed notifications are those of the server that has this.
const SIGNS: &str = "  secret: the-secret-of-this-test-0123456789\n";

async fn rpc(url: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = reqwest::Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0").json(&body);
    request.send().await.expect("the server answers").json().await.expect("JSON")
}

/// Sends a message whose task has a webhook. Returns the id of the task.
async fn send(url: &str, receiver: &Receiver, text: &str) -> String {
    let params = json!({
        "message": {"messageId": format!("m-{text}"), "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"taskPushNotificationConfig": {
            "id": "hook-1", "url": receiver.url, "token": "secret-token",
            "authentication": {"scheme": "Bearer", "credentials": "secret-credentials"},
        }},
    });
    let sent = rpc(url, "SendMessage", params).await;
    sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
}

/// The keys in Redis, without empty streams.
async fn leftovers(connection: &mut Connection) -> Vec<String> {
    let mut keys: Vec<String> = command("KEYS").arg("*").query_async(connection).await.unwrap();
    for stream in [STREAM, DEAD] {
        let length: usize = command("XLEN").arg(stream).query_async(connection).await.unwrap();
        keys.retain(|key| key != stream || length > 0);
    }
    keys.sort();
    keys
}

/// Waits until the queue has the end of a task, behind a job that is being delivered.
async fn handed_over(connection: &mut Connection) {
    until("the end of the task is in the queue", async || {
        let waiting: Vec<String> =
            command("KEYS").arg(format!("{STREAM}:waiting:*")).query_async(connection).await.unwrap();
        let Some(list) = waiting.first() else { return false };
        let last: Option<String> = command("LINDEX").arg(list).arg(-1).query_async(connection).await.unwrap();
        last.is_some_and(|job| job.contains("TASK_STATE_COMPLETED"))
    })
    .await;
}

/// The jobs in a stream.
async fn jobs(connection: &mut Connection, stream: &str) -> Vec<Value> {
    let entries = range(connection, stream).await;
    entries.iter().map(|entry| serde_json::from_slice(entry.get("job").unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn two_servers_share_the_deliveries_of_one() {
    if !has_redis("push_queue::two_servers_share_the_deliveries_of_one") {
        return;
    }
    let (redis, home) = (Redis::start().await, Home::new());
    let one = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    let other = Served::start(&["--config", &settings(&home, &redis, "other.yml", SIGNS)]).await;
    share(&redis, &one, &other).await;
}

#[tokio::test]
async fn servers_with_copies_of_one_store_share_deliveries_too() {
    if !has_redis("push_queue::servers_with_copies_of_one_store_share_deliveries_too") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let [one, other] = ["one.db", "other.db"].map(|name| format!("sqlite:{}", home.path(name).display()));
    let settings =
        [("one.yml", ""), ("other.yml", SIGNS)].map(|(name, more)| settings(&home, &redis, name, more));
    let first = Served::start(&["--config", &settings[0], "--store", &one]).await;
    send(&first.url, &receiver, "before the copy").await;
    receiver.rest().await;
    first.stop().await;
    std::fs::copy(home.path("one.db"), home.path("other.db")).unwrap();
    let one = Served::start(&["--config", &settings[0], "--store", &one]).await;
    let other = Served::start(&["--config", &settings[1], "--store", &other]).await;
    share(&redis, &one, &other).await;
}

/// One server gets messages, and the other one, which signs, makes some of the deliveries.
async fn share(redis: &Redis, one: &Served, _other: &Served) {
    let mut receiver = Receiver::start().await;
    let mut tasks = HashSet::new();
    for number in 0..12 {
        tasks.insert(send(&one.url, &receiver, &number.to_string()).await);
    }
    // One server makes 8 deliveries to a receiver at once, so that the others come from the other one.
    let mut waiting = Vec::new();
    while waiting.len() < 12 {
        waiting.push(receiver.next().await);
    }
    let signed = waiting.iter().filter(|told| !told.header("x-a2a-signature").is_empty()).count();
    assert!((4..=8).contains(&signed), "{signed} of 12");
    for told in &waiting {
        assert_eq!(told.header("authorization"), "Bearer secret-credentials");
        assert_eq!(told.header("x-a2a-notification-token"), "secret-token");
        assert_eq!(told.header("content-type"), "application/a2a+json");
        assert_eq!(told.header("a2a-version"), "1.0");
    }
    waiting.into_iter().for_each(|told| told.answer(StatusCode::OK));
    let mut ended = HashSet::new();
    while ended.len() < 12 {
        let told = receiver.next().await;
        if told.body.to_string().contains("TASK_STATE_COMPLETED") {
            let id = [&told.body["statusUpdate"]["taskId"], &told.body["task"]["id"]];
            ended.extend(id.iter().filter_map(|id| id.as_str()).map(str::to_owned));
        }
        told.answer(StatusCode::OK);
    }
    assert_eq!(ended, tasks);
    let mut connection = redis.connection().await;
    until("nothing is left in Redis", async || leftovers(&mut connection).await.is_empty()).await;
}

#[tokio::test]
async fn a_job_of_a_killed_server_is_delivered_by_another_one() {
    if !has_redis("push_queue::a_job_of_a_killed_server_is_delivered_by_another_one") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let one = Served::start(&["--config", &settings_with_lease(&home, &redis, "one.yml", "1s", "")]).await;
    send(&one.url, &receiver, "hello").await;
    let held = receiver.next().await;
    let other = settings_with_lease(&home, &redis, "other.yml", "1s", SIGNS);
    let mut other = Served::start(&["--config", &other]).await;
    handed_over(&mut redis.connection().await).await;
    one.kill().await;
    other.line_with("took over push jobs").await;
    let again = receiver.next().await;
    assert_eq!(again.header("x-a2a-delivery-id"), held.header("x-a2a-delivery-id"));
    assert_eq!((&again.body, again.header("x-a2a-event-number")), (&held.body, "1"));
    assert!(!again.header("x-a2a-signature").is_empty());
    again.answer(StatusCode::OK);
    let numbers = receiver.rest().await;
    assert!(numbers.is_sorted() && numbers[0] > 1, "{numbers:?}");
}

#[tokio::test]
async fn a_lease_is_renewed_while_a_receiver_takes_its_time() {
    if !has_redis("push_queue::a_lease_is_renewed_while_a_receiver_takes_its_time") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let with_lease = |name| settings_with_lease(&home, &redis, name, "3s", "");
    let one = Served::start(&["--config", &with_lease("one.yml")]).await;
    let mut other = Served::start(&["--config", &with_lease("other.yml")]).await;
    send(&one.url, &receiver, "hello").await;
    let held = receiver.next().await;
    // Three renewals are as long as one lease.
    let mut connection = redis.connection().await;
    let (mut renewals, mut last) = (0, 0);
    until("two leases have passed", async || {
        let idle = "return redis.call('XPENDING', KEYS[1], 'attache-push', '-', '+', 1)[1][3]";
        let idle: u64 =
            command("EVAL").arg(idle).arg(1).arg(STREAM).query_async(&mut connection).await.unwrap();
        renewals += u32::from(idle < last);
        last = idle;
        renewals >= 7
    })
    .await;
    assert!(receiver.told.try_recv().is_err(), "nobody else delivers it");
    held.answer(StatusCode::OK);
    receiver.rest().await;
    assert!(!other.everything().iter().any(|line| line.contains("took over")));
}

#[tokio::test]
async fn a_server_that_stops_delivers_what_it_has_and_leaves_the_group() {
    if !has_redis("push_queue::a_server_that_stops_delivers_what_it_has_and_leaves_the_group") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let stop = tokio::spawn(served.stop());
    first.answer(StatusCode::OK);
    receiver.rest().await;
    soon("the end of the server", stop).await.unwrap();
    let mut connection = redis.connection().await;
    let consumers: Vec<attache_redis::redis::Value> = command("XINFO")
        .arg("CONSUMERS")
        .arg(STREAM)
        .arg("attache-push")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(consumers.is_empty(), "{consumers:?}");
    assert_eq!(leftovers(&mut connection).await, Vec::<String>::new());
}
