//! Requests and responses in entries.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{
    DEAD, Peer, REQUESTS, RESPONSES, Redis, Served, command, has_redis, left, message, range, send, until,
};

#[tokio::test]
async fn a_request_in_the_layout_of_existing_peers_is_answered() {
    if !has_redis("requests::a_request_in_the_layout_of_existing_peers_is_answered") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let sent = peer.ask("c-1", &send(1, "hello"), &[]).await;
    assert_eq!(sent["id"], 1);
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    let get = json!({"jsonrpc": "2.0", "id": "g", "method": "GetTask", "params": {"id": task["id"]}});
    let got = peer.ask("c-2", &get.to_string(), &[]).await;
    assert_eq!((&got["id"], &got["result"]["id"]), (&json!("g"), &task["id"]));
    // An older generation, as over HTTP.
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    let older = json!({"jsonrpc": "2.0", "id": 3, "method": "message/send", "params": {"message": message}});
    let older = peer.ask("c-3", &older.to_string(), &[]).await;
    assert_eq!(older["result"]["status"]["state"], "completed", "{older}");
    // What is no JSON-RPC gets an error.
    let bad = peer.ask("c-4", "{", &[]).await;
    assert_eq!(bad["error"]["code"], -32700, "{bad}");
    let mut connection = redis.connection().await;
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
    let ttl: i64 = command("PTTL").arg(RESPONSES).query_async(&mut connection).await.unwrap();
    assert!(ttl > 0, "the responses expire");
}

#[tokio::test]
async fn a_stream_is_one_entry_per_event_and_resumes_by_event_number() {
    if !has_redis("requests::a_stream_is_one_entry_per_event_and_resumes_by_event_number") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let mut peer = Peer::with_reply(&redis, "attache:a2a:responses:test").await;
    peer.add("s", &message("SendStreamingMessage", 7, "hello"), &[]).await;
    let events = peer.finals(1).await;
    let (end, events) = events.split_last().unwrap();
    assert_eq!((end.is_final, &end.payload), (true, &json!({"jsonrpc": "2.0", "id": 7})));
    assert!(
        events.iter().all(|event| !event.is_final && event.payload["id"] == 7 && event.correlation == "s")
    );
    let numbers: Vec<u64> = events.iter().filter_map(|event| event.event).collect();
    assert!(numbers.len() >= 2 && numbers.is_sorted(), "{numbers:?}");
    let task = events.iter().find_map(|event| event.payload["result"]["task"]["id"].as_str()).unwrap();
    let text = json!({"jsonrpc": "2.0", "id": 8, "method": "SendStreamingMessage", "params": {}}).to_string();
    peer.add("bad", &text, &[]).await;
    let refused = peer.finals(1).await;
    assert_eq!((refused.len(), &refused[0].payload["error"]["code"]), (1, &json!(-32602)), "{refused:?}");
    // A task that has ended cannot be subscribed to, unless events after a number are asked for.
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 9, "method": "SubscribeToTask", "params": {"id": task}}).to_string();
    peer.add("again", &subscribe, &[("last-event-id", &numbers[0].to_string())]).await;
    let again = peer.finals(1).await;
    let resumed: Vec<u64> = again.iter().filter_map(|event| event.event).collect();
    assert_eq!(resumed, numbers[1..], "{again:?}");
}

#[tokio::test]
async fn a_bad_entry_goes_to_the_dead_stream_and_harms_no_other() {
    if !has_redis("requests::a_bad_entry_goes_to_the_dead_stream_and_harms_no_other") {
        return;
    }
    let redis = Redis::start().await;
    let home = crate::home::Home::new();
    let file = home.file("attache.yml", "agent: echo\nredis: { max-entry-size: 64KiB }\n");
    let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let mut connection = redis.connection().await;
    command("SET").arg("attache:a2a:responses:text").arg("kept").exec_async(&mut connection).await.unwrap();
    let large = send(1, &"x".repeat(100_000));
    let answered = send(2, "after");
    let payload = ("payload", answered.as_str());
    for fields in [
        vec![("nonsense", "1")],
        vec![("correlation_id", "no payload")],
        vec![payload],
        vec![("correlation_id", "large"), ("reply_stream", RESPONSES), ("payload", &large)],
        // Other keys: one of another program, the server's own, and one below the prefix that is no stream.
        vec![("correlation_id", "key"), ("reply_stream", "sessions"), payload],
        vec![("correlation_id", "key"), ("reply_stream", REQUESTS), payload],
        vec![("correlation_id", "key"), ("reply_stream", DEAD), payload],
        vec![("correlation_id", "type"), ("reply_stream", "attache:a2a:responses:text"), payload],
        vec![
            ("correlation_id", "twice"),
            ("payload", r#"{"jsonrpc":"2.0","id":3,"headers":{"Authorization":"Bearer s3cret"}}"#),
            ("authorization", "a"),
            ("Authorization", "b"),
            ("authorization", "s3cret"),
        ],
    ] {
        peer.add_fields(&fields).await;
    }
    peer.add("good", &answered, &[]).await;
    let responses = peer.finals(4).await;
    let correlations: HashSet<&str> =
        responses.iter().map(|response| response.correlation.as_str()).collect();
    assert_eq!(correlations, HashSet::from(["no payload", "large", "twice", "good"]));
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
    until("all refused entries are there", async || range(&mut connection, DEAD).await.len() == 9).await;
    let dead = range(&mut connection, DEAD).await;
    let reasons: Vec<String> =
        dead.iter().map(|entry| String::from_utf8_lossy(entry.get("reason").unwrap()).into_owned()).collect();
    let count = |text: &str| reasons.iter().filter(|reason| reason.contains(text)).count();
    assert_eq!(count("no `correlation_id`"), 2, "{reasons:?}");
    assert_eq!(
        (count("no `payload`"), count("bytes, and at most"), count("occurs twice")),
        (1, 1, 1),
        "{reasons:?}"
    );
    assert_eq!((count("`reply_stream` is neither"), count("WRONGTYPE")), (3, 1), "{reasons:?}");
    let all = format!("{dead:?}");
    assert!(dead.iter().all(|entry| entry.get("authorization").is_none()) && !all.contains("s3cret"));
    let keys: Vec<String> = command("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let twice = dead.iter().find(|entry| entry.get("correlation_id") == Some(b"twice")).unwrap();
    assert_eq!(twice.get("payload"), Some(br#"{"id":3,"jsonrpc":"2.0"}"#.as_slice()));
    assert!(!keys.contains(&"sessions".to_owned()), "{keys:?}");
    let kept: String =
        command("GET").arg("attache:a2a:responses:text").query_async(&mut connection).await.unwrap();
    assert_eq!(kept, "kept");
}

#[tokio::test]
async fn a_named_agent_is_reached_by_a_field() {
    if !has_redis("requests::a_named_agent_is_reached_by_a_field") {
        return;
    }
    let redis = Redis::start().await;
    let home = crate::home::Home::new();
    let settings = "agent: echo\nagents:\n  second: { echo: true, card: { name: Second } }\n";
    let file = home.file("attache.yml", settings);
    let served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let sent = peer.ask("a", &send(1, "hello"), &[("agent", "second")]).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
    let get = json!({"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": id}}).to_string();
    assert!(peer.ask("b", &get, &[("agent", "second")]).await["result"].is_object());
    assert_eq!(peer.ask("c", &get, &[]).await["error"]["code"], -32001, "the task is the other agent's");
    let unknown = peer.ask("d", &get, &[("agent", "third")]).await;
    assert!(unknown["error"].to_string().contains("no agent `third`"), "{unknown}");
    let card: Value = card(&format!("{}/agents/second", served.url)).await;
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert_eq!(interfaces.last().unwrap()["url"], format!("{}?agent=second", redis.agent()));
}

/// The card at an address.
pub(crate) async fn card(url: &str) -> Value {
    let url = format!("{url}/.well-known/agent-card.json");
    // Only clients that ask for them get the transports that the specification does not have.
    let request = reqwest::Client::new().get(url).header("A2A-Version", "1.0");
    let request = request.header("A2A-Extensions", "urn:attache:extension:transports:v1");
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn a_thousand_requests_of_several_clients_are_answered_once_each() {
    if !has_redis("requests::a_thousand_requests_of_several_clients_are_answered_once_each") {
        return;
    }
    let redis = Redis::start().await;
    let home = crate::home::Home::new();
    let file = home.file("attache.yml", "agent: echo\nredis: { in-flight: 32 }\n");
    let url = redis.url();
    let arguments = ["--config", file.as_str(), "--redis", &url];
    let _served = (Served::start(&arguments).await, Served::start(&arguments).await);
    let clients = (0..5).map(|client| {
        let redis = &redis;
        async move {
            let mut peer = Peer::with_reply(redis, &format!("{RESPONSES}:client-{client}")).await;
            for i in 0..200 {
                peer.add(&format!("{client}-{i}"), &send(i, "hello"), &[]).await;
            }
            let responses = peer.finals(200).await;
            assert_eq!(responses.len(), 200);
            for response in &responses {
                assert_eq!(response.payload["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
            }
            let own = format!("{client}-");
            assert!(responses.iter().all(|response| response.correlation.starts_with(&own)));
            responses.into_iter().map(|response| response.correlation).collect::<HashSet<_>>()
        }
    });
    let answered: HashSet<String> = futures::future::join_all(clients).await.into_iter().flatten().collect();
    assert_eq!(answered.len(), 1000);
    let mut connection = redis.connection().await;
    until("everything is acknowledged and removed", async || left(&mut connection).await == (0, 0)).await;
}

#[tokio::test]
async fn the_example_of_iac_code_answers_on_its_shared_stream() {
    let has_python = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !has_python || !has_redis("requests::the_example_of_iac_code_answers_on_its_shared_stream") {
        return;
    }
    let redis = Redis::start().await;
    let home = crate::home::Home::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = std::fs::read_to_string(root.join("examples/iac-code/attache.yml")).unwrap();
    let agent = root.join("examples/iac-code/agent.py").display().to_string();
    let settings = example.replace("examples/iac-code/agent.py", &agent)
        + &format!(
            "port: 0\ntransport: redis-streams\npush-notifications: true\nredis-url: {}/0\n",
            redis.url()
        );
    let file = home.file("attache.yml", &settings);
    let _served = Served::start(&["--config", &file]).await;
    let mut peer = Peer::with_streams(&redis, "iac-code:a2a:requests", "iac-code:a2a:responses").await;
    let sent = peer.ask("c-1", &send(1, "hello"), &[]).await;
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert!(task.to_string().contains("Here is the ROS template for: hello"), "{sent}");
    peer.add("s", &message("SendStreamingMessage", 7, "generate"), &[]).await;
    let events = peer.finals(1).await;
    assert!(events.iter().all(|event| event.correlation == "s"), "{events:?}");
    let has_tool = |payload: &Value| {
        payload["result"]["statusUpdate"]["metadata"]["iac_code"]["tool"]["status"] == "completed"
    };
    assert!(events.iter().any(|event| has_tool(&event.payload)), "{events:?}");
    let webhook = json!({"taskId": task["id"], "id": "webhook-1"});
    let mut config = webhook.clone();
    config["url"] = json!("https://hooks.example.com/a2a");
    let all = json!({"taskId": task["id"]});
    let (id, name) = (&task["id"], &json!("webhook-1"));
    for (number, method, params, expected) in [
        (2, "GetTask", json!({"id": id}), Ok(("/id", id))),
        (3, "SubscribeToTask", json!({"id": id}), Err(-32001)),
        (4, "CancelTask", json!({"id": id}), Err(-32002)),
        (5, "GetTask", json!({"id": "a b"}), Err(-32602)),
        (6, "GetExtendedAgentCard", json!({}), Ok(("/name", &json!("iac-code")))),
        (7, "ListTasks", json!({"contextId": task["contextId"]}), Ok(("/tasks/0/id", id))),
        (8, "ListTasks", json!({"status": "TASK_STATE_FAILED"}), Ok(("/totalSize", &json!(0)))),
        (9, "ListTasks", json!({"pageSize": 0}), Err(-32602)),
        (10, "CreateTaskPushNotificationConfig", config, Ok(("/id", name))),
        (11, "GetTaskPushNotificationConfig", webhook.clone(), Ok(("/taskId", id))),
        (12, "ListTaskPushNotificationConfigs", all.clone(), Ok(("/configs/0/id", name))),
        (13, "DeleteTaskPushNotificationConfig", webhook.clone(), Ok(("", &json!({})))),
        (14, "ListTaskPushNotificationConfigs", all, Ok(("/configs", &json!([])))),
        (15, "GetTaskPushNotificationConfig", webhook, Err(-32001)),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        let answer = peer.ask(&format!("c-{number}"), &request.to_string(), &[]).await;
        match expected {
            Ok((member, value)) => {
                assert_eq!(answer["result"].pointer(member), Some(value), "{method}: {answer}");
            }
            Err(code) => assert_eq!(answer["error"]["code"], code, "{method}: {answer}"),
        }
    }
}

#[tokio::test]
async fn an_entry_of_exactly_the_limit_is_answered_and_a_larger_one_is_refused() {
    if !has_redis("requests::an_entry_of_exactly_the_limit_is_answered_and_a_larger_one_is_refused") {
        return;
    }
    let redis = Redis::start().await;
    let home = crate::home::Home::new();
    let file = home.file("attache.yml", "agent: echo\nredis: { max-entry-size: 64KiB }\n");
    let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let payload = |entry: usize| {
        let of = |text: &str| {
            let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
            let params = json!({"message": message});
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).to_string()
        };
        // The names and the values of the fields count.
        let others = "correlation_id".len() + "c".len() + "payload".len();
        of(&"x".repeat(entry - others - of("").len()))
    };
    peer.add_fields(&[("correlation_id", "c"), ("payload", &payload(64 * 1024))]).await;
    let answered = peer.finals(1).await;
    assert!(answered[0].payload["result"]["task"].is_object(), "{answered:?}");
    peer.add_fields(&[("correlation_id", "c"), ("payload", &payload(64 * 1024 + 1))]).await;
    let refused = peer.finals(1).await;
    assert!(refused[0].payload["error"].is_object(), "{refused:?}");
    let mut connection = redis.connection().await;
    until("the entry is in the dead stream", async || range(&mut connection, DEAD).await.len() == 1).await;
    let dead = range(&mut connection, DEAD).await;
    let reason = String::from_utf8_lossy(dead[0].get("reason").unwrap()).into_owned();
    assert!(reason.contains("the entry has 65537 bytes, and at most 65536 are accepted"), "{reason}");
}
