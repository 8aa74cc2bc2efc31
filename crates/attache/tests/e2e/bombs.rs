//! Requests and schemas that are made to take a server's time and memory, at the real command.

use std::time::{Duration, Instant};

use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Worker, WorkerOptions};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use crate::support::{Program, until};

async fn server() -> (Program, Worker) {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0", "--expose-all"];
    let (program, said) = Program::command(&arguments).await;
    let engine =
        said.lines().find_map(|line| line.trim().strip_prefix("workers ")).expect("workers can join");
    let worker = Worker::connect(WorkerOptions::new(engine.trim())).expect("a worker");
    (program, worker)
}

fn function(id: &str, schema: Value) -> RegisterFunction {
    RegisterFunction { id: id.to_owned(), request_format: Some(schema), ..RegisterFunction::default() }
}

async fn send(program: &Program, body: String) -> Value {
    let request = reqwest::Client::new().post(format!("{}/a2a", program.url)).header("a2a-version", "1.0");
    let response = request.header("content-type", "application/json").body(body).send().await;
    response.expect("an answer").json().await.expect("JSON")
}

fn call(function: &str, payload: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{{"function_id":"{function}","payload":{payload}}}}}]}}}}}}"#
    )
}

/// What a task says about its state.
fn said(answer: &Value) -> String {
    answer["result"]["task"]["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned()
}

/// The most memory that a process has had, in MiB.
#[cfg(target_os = "linux")]
fn peak(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn payloads_full_of_faults_take_little_memory_and_do_not_hold_up_the_health_check() {
    let (program, worker) = server().await;
    let schema =
        json!({"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "object"}}}});
    drop(worker.register(function("orders::add", schema), async |_| Ok(to_raw_value(&1).expect("JSON"))));
    until("the function is there", async || {
        send(&program, call("orders::add", "{}")).await.to_string().contains("COMPLETED")
    })
    .await;
    let payload = format!("{{\"lines\":[0{}]}}", ",0".repeat(3_900_000));
    let before = peak(&program);
    let sending = futures::future::join_all((0..3).map(|_| send(&program, call("orders::add", &payload))));
    let mut sending = std::pin::pin!(sending);
    let mut slowest = Duration::ZERO;
    let answers = loop {
        let asked = Instant::now();
        let health = reqwest::get(format!("{}/health", program.url));
        tokio::select! {
            answers = &mut sending => break answers,
            health = health => {
                assert!(health.expect("an answer").status().is_success());
                slowest = slowest.max(asked.elapsed());
            }
        }
    };
    for answer in answers {
        assert!(said(&answer).ends_with("`payload.lines.0`: 0 is not of type \"object\""), "{answer}");
    }
    // Three payloads of 8 MB each, of which every two bytes are a value of 32. It was 1.5 GB for one of them.
    let grown = peak(&program) - before;
    assert!(grown < 700, "{grown} MiB");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

/// A list of objects with one member each has the most memory for its bytes.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_as_a_tree_takes_memory_in_proportion_to_its_bytes() {
    let (program, worker) = server().await;
    let schema = json!({"type": "object", "properties": {"lines": {"type": "array"}}});
    drop(worker.register(function("orders::add", schema), async |_| Ok(to_raw_value(&1).expect("JSON"))));
    until("the function is there", async || {
        send(&program, call("orders::add", "{}")).await.to_string().contains("COMPLETED")
    })
    .await;
    let before = peak(&program);
    let payload = format!("{{\"lines\":[0{}]}}", ",{\"\":0}".repeat(500_000));
    let answer = send(&program, call("orders::add", &payload)).await;
    assert!(answer.to_string().contains("COMPLETED"), "{}", said(&answer));
    let (grown, size) = (peak(&program) - before, payload.len() as u64);
    // About 100 times for the tree, and some copies of the payload as text.
    assert!(grown * 1024 * 1024 < 115 * size, "{grown} MiB for {size} bytes");
}

#[tokio::test]
async fn a_schema_that_doubles_is_refused_by_name_and_the_server_goes_on_and_stops() {
    let (program, worker) = server().await;
    let mut defs = Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), json!({"allOf": [next, next]}));
    }
    defs.insert("l40".to_owned(), json!({"type": "integer"}));
    let bomb = json!({"properties": {"n": {"$ref": "#/$defs/l0"}}, "$defs": defs});
    let answer = async |_| Ok(to_raw_value(&1).expect("JSON"));
    let refused = worker.register(function("bomb::go", bomb), answer);
    drop(worker.register(function("other::go", json!({"type": "object"})), answer));
    let mut refusal = refused.rejection();
    let refusal = refusal.wait_for(Option::is_some).await.expect("it is refused").clone().expect("it is");
    assert!(
        refusal.message.contains("`bomb::go`") && refusal.message.contains("more than 64"),
        "{refusal:?}"
    );
    until("the other function is there", async || {
        send(&program, call("other::go", "{}")).await.to_string().contains("COMPLETED")
    })
    .await;
    for _ in 0..4 {
        let answer = send(&program, call("bomb::go", "{\"n\":1}")).await;
        assert!(said(&answer).contains("There is no function 'bomb::go'"), "{answer}");
    }
    assert!(program.stop().await.success());
}
