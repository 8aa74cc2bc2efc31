//! Tests of the `iii-a2a` command, with an engine in this process.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use attache_core::{MemoryStore, Store};
use attache_iii::engine::{Engine, EngineOptions, Token};
use attache_iii::{CallError, FunctionCall, FunctionInfo, Functions};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The timeout of every step. Only a broken test reaches it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An engine with three functions, one for each tier, and one that is hidden.
struct Setup {
    engine: Engine,
    address: String,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Setup {
    async fn open(store: &Arc<MemoryStore>, address: &str, token: Option<Token>) -> Self {
        let options = EngineOptions::default().with(|options| {
            options.listen = address.to_owned();
            options.token = token;
        });
        let store: Arc<dyn Store> = store.clone();
        let engine = Engine::new(store, options);
        for (id, metadata) in [
            ("pricing::public_quote", json!({"a2a.expose": true, "a2a.tier": "public"})),
            ("pricing::partner_quote", json!({"a2a.expose": true, "a2a.tier": "partner"})),
            ("pricing::internal_cost", json!({"a2a.expose": true, "a2a.tier": "ops"})),
            ("demo::hidden", json!({})),
        ] {
            let function = FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new(id) };
            engine.register(function, |_| async {
                Ok(serde_json::value::to_raw_value(&json!({"price": 42})).expect("JSON"))
            });
        }
        let listening = engine.listen().await.expect("a port");
        let (address, stop) = (listening.address().to_string(), CancellationToken::new());
        let running = tokio::spawn(listening.run_until(stop.clone().cancelled_owned()));
        Self { engine, address, stop, running }
    }

    async fn new() -> Self {
        Self::open(&Arc::default(), "127.0.0.1:0", None).await
    }

    async fn close(self) {
        self.stop.cancel();
        self.running.await.expect("it ends well");
    }
}

/// A worker that listens on its own port.
struct Worker {
    url: String,
    _child: Child,
}

impl Worker {
    async fn start(engine: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iii-a2a"))
            .args(["--engine-url", &format!("ws://{engine}"), "--listen", "127.0.0.1:0"])
            .args(more)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is ours")).lines();
        let url = loop {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.expect("it says something");
            let line = line.expect("UTF-8").expect("it says where it listens");
            if let Some(url) = line.trim().strip_prefix("JSON-RPC   ") {
                break url.trim_end_matches("/a2a").to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, _child: child }
    }

    /// Waits until the card has these skills.
    async fn shows(&self, wanted: &[&str]) {
        let mut seen = Vec::new();
        let look = async {
            while seen != wanted {
                let card =
                    reqwest::get(format!("{}/.well-known/agent-card.json", self.url)).await.expect("a card");
                let card: Value = card.json().await.expect("JSON");
                let skills = card["skills"].as_array().cloned().unwrap_or_default();
                seen =
                    skills.iter().map(|skill| skill["id"].as_str().unwrap_or_default().to_owned()).collect();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, look).await.unwrap_or_else(|_| panic!("it shows {wanted:?}"));
    }

    async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = reqwest::Client::new().post(format!("{}/a2a", self.url)).json(&body).send().await;
        response.expect("an answer").json().await.expect("JSON")
    }

    async fn call(&self, text: &str) -> Value {
        let message = json!({"messageId": "m", "role": "user", "parts": [{"text": text}]});
        self.rpc("message/send", json!({"message": message})).await["result"]["task"].clone()
    }
}

async fn iii_a2a(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_iii-a2a"))
        .args(arguments)
        .env_clear()
        .env("ATTACHE_LOG", "off")
        .env("COLUMNS", "100")
        .output()
        .await
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    format!("exit code: {:?}\n----- stdout\n{}----- stderr\n{}", status.code(), text(stdout), text(stderr))
}

#[test]
fn the_manifest_of_the_worker_registry_names_this_command() {
    let manifest = include_str!("../iii.worker.yaml");
    let value = |key: &str| manifest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    assert_eq!((value("iii"), value("name")), (Some("v1"), Some("a2a")));
    assert_eq!((value("language"), value("deploy")), (Some("rust"), Some("binary")));
    assert_eq!((value("manifest"), value("bin")), (Some("Cargo.toml"), Some("iii-a2a")));
    assert!(value("description").is_some_and(|text| !text.contains(": ")));
}

#[tokio::test]
async fn help_teaches() {
    insta::assert_snapshot!("help", iii_a2a(&["--help"]).await);
}

#[tokio::test]
async fn mistakes_get_an_error_and_a_hint() {
    insta::assert_snapshot!("bad_engine_url", iii_a2a(&["--engine-url", "http://localhost"]).await);
    insta::assert_snapshot!("bad_base_url", iii_a2a(&["--base-url", "agents.example.com"]).await);
    insta::assert_snapshot!("bad_connect", iii_a2a(&["--connect", "partner"]).await);
    insta::assert_snapshot!("bad_store", iii_a2a(&["--store", "somewhere"]).await);
    insta::assert_snapshot!("bad_listen", iii_a2a(&["--listen", "nowhere", "--store", "memory:"]).await);
}

#[tokio::test]
async fn three_tiers_have_three_cards() {
    let setup = Setup::new().await;
    for (tier, skill) in [
        ("public", "pricing::public_quote"),
        ("partner", "pricing::partner_quote"),
        ("ops", "pricing::internal_cost"),
    ] {
        let worker = Worker::start(&setup.address, &["--tier", tier, "--store", "memory:"]).await;
        worker.shows(&[skill]).await;
        assert_eq!(worker.call(skill).await["status"]["state"], "completed");
        let other = if tier == "ops" { "pricing::public_quote" } else { "pricing::internal_cost" };
        assert_eq!(worker.call(other).await["status"]["state"], "failed");
    }
}

#[tokio::test]
async fn tasks_in_the_engines_state_outlive_the_worker() {
    let setup = Setup::new().await;
    let first = Worker::start(&setup.address, &[]).await;
    first.shows(&["pricing::internal_cost", "pricing::partner_quote", "pricing::public_quote"]).await;
    let task = first.call("pricing::public_quote").await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "{\n  \"price\": 42\n}");
    drop(first);
    let second = Worker::start(&setup.address, &[]).await;
    second.shows(&["pricing::internal_cost", "pricing::partner_quote", "pricing::public_quote"]).await;
    let again = second.rpc("tasks/get", json!({"id": task["id"]})).await;
    assert_eq!(again["result"]["task"], task, "{again}");
}

#[tokio::test]
async fn it_survives_a_restart_of_the_engine() {
    let store = Arc::default();
    let setup = Setup::open(&store, "127.0.0.1:0", None).await;
    let address = setup.address.clone();
    let worker = Worker::start(&address, &["--tier", "public", "--store", "memory:"]).await;
    worker.shows(&["pricing::public_quote"]).await;
    setup.close().await;
    worker.shows(&[]).await;
    let refused = worker.call("pricing::public_quote").await;
    assert_eq!(refused["status"]["state"], "failed");
    let setup = Setup::open(&store, &address, None).await;
    worker.shows(&["pricing::public_quote"]).await;
    assert_eq!(worker.call("pricing::public_quote").await["status"]["state"], "completed");
    setup.close().await;
}

#[tokio::test]
async fn a_new_function_is_a_skill_and_a_removed_one_is_none() {
    let setup = Setup::new().await;
    let worker = Worker::start(&setup.address, &["--tier", "public", "--store", "memory:"]).await;
    worker.shows(&["pricing::public_quote"]).await;
    let metadata = Some(json!({"a2a.expose": true, "a2a.tier": "public"}));
    let function = FunctionInfo { metadata, ..FunctionInfo::new("a::new") };
    setup.engine.register(function, |_| async { Ok(serde_json::value::to_raw_value(&1).expect("JSON")) });
    worker.shows(&["a::new", "pricing::public_quote"]).await;
    setup.engine.unregister("a::new");
    worker.shows(&["pricing::public_quote"]).await;
}

#[tokio::test]
async fn an_engine_with_a_token_accepts_workers_that_send_it() {
    let setup = Setup::open(&Arc::default(), "127.0.0.1:0", Some(Token::new("a-token-of-some-length"))).await;
    let arguments = ["--tier", "public", "--store", "memory:", "--token", "a-token-of-some-length"];
    let worker = Worker::start(&setup.address, &arguments).await;
    worker.shows(&["pricing::public_quote"]).await;
    let stranger = Worker::start(&setup.address, &["--tier", "public", "--store", "memory:"]).await;
    assert_eq!(stranger.call("pricing::public_quote").await["status"]["state"], "failed");
}

/// Starts a worker that serves through the HTTP of the engine, as an agent with this name.
fn serve_through_engine(setup: &Setup, name: &str) -> Child {
    let engine = format!("ws://{}", setup.address);
    Command::new(env!("CARGO_BIN_EXE_iii-a2a"))
        .args(["--engine-url", &engine, "--store", "memory:", "--agent-name", name, "--worker-name", name])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the command starts")
}

const CARD: &str = "/.well-known/agent-card.json";

/// What the engine answers to a request, if it has a route for it and the answer is JSON.
async fn answer(setup: &Setup, request: http::Request<String>) -> Option<Value> {
    use http_body_util::BodyExt;
    let response = setup.engine.handle_http(request).await?;
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&body).ok()
}

/// Waits until the engine serves the card of the agent with this name.
async fn serves(setup: &Setup, name: &str) {
    let look = async {
        loop {
            let request = http::Request::get(CARD).body(String::new()).expect("a request");
            if answer(setup, request).await.is_some_and(|card| card["name"] == name) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.unwrap_or_else(|_| panic!("{name} serves"));
}

#[tokio::test]
async fn each_interface_of_the_card_has_a_route_in_the_engine() {
    let setup = Setup::new().await;
    let _worker = serve_through_engine(&setup, "routes");
    serves(&setup, "routes").await;
    // A client that asks for it gets each transport, and one without a version gets the interfaces of 0.3, too.
    let request = http::Request::get(CARD)
        .header("A2A-Extensions", "urn:attache:extension:transports:v1")
        .body(String::new())
        .expect("a request");
    let card = answer(&setup, request).await.expect("a card");
    let interfaces = card["supportedInterfaces"].as_array().expect("a list");
    let bindings = |version: &str| -> Vec<_> {
        let of_version = interfaces.iter().filter(|it| it["protocolVersion"] == version);
        of_version.map(|it| it["protocolBinding"].as_str().expect("a name")).collect()
    };
    assert_eq!(bindings("1.0"), ["JSONRPC", "HTTP+JSON"], "{card:#}");
    assert_eq!(bindings("0.3"), ["JSONRPC", "HTTP+JSON"], "{card:#}");
    for interface in interfaces {
        let url = interface["url"].as_str().expect("a URL");
        let path = url.strip_prefix("http://localhost:3111").expect("a path of the engine");
        let request = match interface["protocolBinding"].as_str() {
            Some("JSONRPC") => http::Request::post(path),
            _ if path.ends_with("/v1") => http::Request::get(format!("{path}/tasks")),
            _ => http::Request::get(format!("{path}/v1/tasks")),
        };
        let request = request
            .header("content-type", "application/json")
            .header("content-length", "2")
            .body("{}".to_owned())
            .expect("a request");
        assert!(answer(&setup, request).await.is_some(), "there is nothing at {path}");
    }
    setup.close().await;
}

#[tokio::test]
async fn after_a_rolling_restart_the_new_process_serves() {
    let setup = Setup::new().await;
    let mut old = serve_through_engine(&setup, "old");
    serves(&setup, "old").await;
    let _new = serve_through_engine(&setup, "new");
    // Each worker has a function of its own, for changes of functions.
    called(&setup, "a2a::functions_changed.new", json!({"event": "functions_changed"})).await;
    old.kill().await.expect("it can be killed");
    serves(&setup, "new").await;
    setup.close().await;
}

/// Calls a function of the engine from this process, as soon as it is registered.
async fn called(setup: &Setup, function: &str, payload: Value) -> Value {
    let payload = serde_json::value::to_raw_value(&payload).expect("JSON");
    let calling = async {
        loop {
            let call = FunctionCall { function, payload: &payload, timeout: TIMEOUT, trace_parent: None };
            match setup.engine.call(call).await {
                Err(CallError::Remote { code, .. }) if code == "function_not_found" => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                result => break result.expect("a result"),
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, calling).await.expect("the function comes");
    serde_json::from_str(result.get()).expect("JSON")
}

#[tokio::test]
async fn workers_can_delegate_and_the_api_lists_the_tasks() {
    let setup = Setup::new().await;
    let worker = Worker::start(&setup.address, &["--tier", "partner", "--allow-loopback-agents"]).await;
    worker.shows(&["pricing::partner_quote"]).await;
    let rpc = format!("{}/a2a/rpc", worker.url);
    let sent = json!({"agentUrl": rpc, "message": "pricing::partner_quote {}"});
    let task = called(&setup, "a2a::send_task", sent).await;
    assert_eq!(task["status"]["message"]["parts"][0]["data"], json!({"price": 42}), "{task}");
    let path = format!("{}/api/a2a/task?taskId={}", worker.url, task["id"].as_str().expect("an id"));
    let got: Value = reqwest::get(path).await.expect("an answer").json().await.expect("JSON");
    assert_eq!(got, task);
    setup.close().await;
}

#[tokio::test]
async fn webhooks_on_this_machine_need_the_flag_that_the_error_names() {
    let setup = Setup::new().await;
    for (flags, refused) in [(&[][..], true), (&["--allow-loopback-webhooks"], false)] {
        let worker = Worker::start(&setup.address, &[&["--tier", "public"], flags].concat()).await;
        worker.shows(&["pricing::public_quote"]).await;
        let task = worker.call("pricing::public_quote {}").await;
        let webhook = json!({"taskId": task["id"], "pushNotificationConfig": {"url": "http://127.0.0.1:9/"}});
        let response = worker.rpc("tasks/pushNotificationConfig/set", webhook).await;
        let message = response["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("`--allow-loopback-webhooks`"), refused, "{response}");
        assert_eq!(response["result"].is_object(), !refused, "{response}");
    }
    setup.close().await;
}

#[tokio::test]
async fn an_agent_gets_the_token_that_the_file_has_for_it() {
    let callers = KnownCallers::new().bearer("house", "the token of the house");
    let guarded = Server::echo().push(false).bind("127.0.0.1:0").authenticate(callers);
    let guarded = guarded.listen().await.expect("a port");
    let url = format!("http://{}", guarded.address().expect("an address"));
    let running = tokio::spawn(async { guarded.run_until(std::future::pending()).await });
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("agents.json");
    let list = json!([{"url": url, "bearer": "the token of the house"}]);
    std::fs::write(&file, list.to_string()).expect("it can be written");
    let setup = Setup::new().await;
    let file = file.display().to_string();
    let _worker =
        Worker::start(&setup.address, &["--allow-loopback-agents", "--agent-credentials", &file]).await;
    let rpc = json!({"agentUrl": format!("{url}/a2a/rpc"), "message": "hello"});
    let task = called(&setup, "a2a::send_task", rpc).await;
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "hello", "{task}");
    setup.close().await;
    running.abort();
}

#[tokio::test]
async fn unread_variables_are_warned_of() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iii-a2a"));
    command.env("ATTACHE_STOER", "memory:").env("NO_COLOR", "1").args(["--base-url", "nowhere"]);
    let output = command.output().await.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("variable=\"ATTACHE_STOER\" meant=\"ATTACHE_STORE\""), "{said}");
}
