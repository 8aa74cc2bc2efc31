//! The layout in Redis: that of iac-code, for programs of others, and with few rights.

use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{RETRY, Receiver, SIGNS, STREAM, jobs, leftovers, send, settings};
use crate::home::Home;
use crate::peers::{self, Process};
use crate::support::{Redis, Served, command, has_redis, soon, until};

#[tokio::test]
async fn the_rights_in_the_documentation_are_enough() {
    if !has_redis("push_queue::layout::the_rights_in_the_documentation_are_enough") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/push-notifications.md");
    let page = std::fs::read_to_string(page).unwrap();
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER push")).expect("a rule");
    let mut rule = command("ACL");
    for word in line.replace("PASSWORD", "password-of-push").split_whitespace().skip(1) {
        rule.arg(word);
    }
    let mut connection = redis.connection().await;
    rule.exec_async(&mut connection).await.unwrap();
    let file = settings(&home, &redis, "one.yml", "");
    let text = std::fs::read_to_string(&file).unwrap().replace("redis://", "redis://push:password-of-push@");
    std::fs::write(&file, text).unwrap();
    let mut served = Served::start(&["--config", &file]).await;
    send(&served.url, &receiver, "hello").await;
    receiver.next().await.answer(StatusCode::SERVICE_UNAVAILABLE);
    receiver.rest().await;
    until("nothing is left in Redis", async || leftovers(&mut connection).await.is_empty()).await;
    assert!(!served.everything().iter().any(|line| line.contains("Redis fails")), "{:?}", served.said);
    served.stop().await;
    let log: Vec<attache_redis::redis::Value> =
        command("ACL").arg("LOG").query_async(&mut connection).await.unwrap();
    assert!(log.is_empty(), "{log:?}");
}

#[tokio::test]
async fn the_settings_block_of_iac_code_starts_and_delivers() {
    if !has_redis("push_queue::layout::the_settings_block_of_iac_code_starts_and_delivers") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let block = "push-notifications: true\n\
        push-queue: redis-streams\n\
        push-redis-url: redis://localhost:6379/0\n\
        push-stream: iac-code:a2a:push\n\
        push-retry-key: iac-code:a2a:push:retry\n\
        push-dead-stream: iac-code:a2a:push:dead\n\
        push-consumer-group: iac-code-push\n\
        push-consumer-name: worker-1\n\
        push-lease-timeout-ms: 300000\n";
    let block = block.replace("localhost:6379", &format!("localhost:{}", redis.port()));
    let keys = home.path("keyring.json").display().to_string();
    let file = home.file(
        "a2a-server.yml",
        &format!("{block}agent: echo\nkeyring: {keys}\npush: {{ allow-loopback: true }}\n"),
    );
    let served = Served::start(&["--compat", "iac-code", "--config", &file]).await;
    send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let mut connection = redis.connection().await;
    let written = jobs(&mut connection, "iac-code:a2a:push").await;
    assert_eq!(written[0]["jobId"], first.header("x-a2a-delivery-id"), "{written:?}");
    let groups: Vec<std::collections::HashMap<String, attache_redis::redis::Value>> =
        command("XINFO").arg("GROUPS").arg("iac-code:a2a:push").query_async(&mut connection).await.unwrap();
    assert!(format!("{groups:?}").contains("iac-code-push"));
    let consumer = "return redis.call('XPENDING', KEYS[1], 'iac-code-push', '-', '+', 1)[1][2]";
    let consumer: String = command("EVAL")
        .arg(consumer)
        .arg(1)
        .arg("iac-code:a2a:push")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(consumer, "worker-1");
    first.answer(StatusCode::OK);
    receiver.rest().await;
}

#[test]
fn a_python_program_reads_jobs_and_adds_its_own() {
    let name = "push_queue::layout::a_python_program_reads_jobs_and_adds_its_own";
    if !has_redis(name) {
        return;
    }
    peers::keep(name, peers::absent("python"), async {
        let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
        let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", SIGNS)]).await;
        let task = send(&served.url, &receiver, "hello").await;
        let held = receiver.next().await;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/peers/python/push_queue.py");
        let mut program = Command::new(peers::home(crate::python::FOLDER).join("bin/python"));
        program.args([script, &redis.port().to_string(), STREAM, RETRY, &receiver.url]);
        let mut peer = Process::start("the peer", program);
        let mut lines = Vec::new();
        while let Some(line) = soon("a line", peer.line()).await {
            lines.push(serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("{line}")));
        }
        let read = &lines[0];
        assert_eq!((&read["taskId"], &read["configId"]), (&json!(task), &json!("hook-1")), "{read}");
        assert_eq!((&read["payload"], &read["attempt"]), (&held.body, &json!(0)), "{read}");
        held.answer(StatusCode::OK);
        let mut foreign = HashSet::new();
        while foreign.len() < 2 {
            let told = receiver.next().await;
            let id = told.header("x-a2a-delivery-id").to_owned();
            if id.starts_with("python-") {
                assert_eq!(told.body["statusUpdate"]["taskId"], "python-task");
                let secrets = ["authorization", "x-a2a-signature", "x-a2a-notification-token"];
                assert!(secrets.iter().all(|name| told.header(name).is_empty()), "{:?}", told.headers);
                foreign.insert((id, told.header("x-a2a-delivery-attempt").to_owned()));
            }
            told.answer(StatusCode::OK);
        }
        let expected =
            [("python-new".to_owned(), "1".to_owned()), ("python-retry".to_owned(), "3".to_owned())];
        assert_eq!(foreign, HashSet::from(expected));
    });
}
