//! The engine and workers as users start them, and a client to talk to them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::peers::{self, PATIENCE, Process, place};

/// The skills of the worker of these tests.
const SKILLS: [&str; 10] =
    ["quote", "fail", "slow", "late", "relay", "remember", "tell", "tell_text", "change", "ring"];

/// A version of an SDK.
#[derive(Clone, Copy)]
pub(crate) struct Sdk {
    pub(crate) module: &'static str,
    pub(crate) language: Language,
    pub(crate) version: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
    Rust,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Rust => "rust",
        }
    }
}

impl Sdk {
    /// Where it is installed: all versions for Rust in one place, the others each on its own.
    fn home(self) -> PathBuf {
        match self.language {
            Language::Rust => peers::home("rust"),
            Language::Python | Language::Node => {
                peers::home(&format!("{}-{}", self.language.name(), self.version))
            }
        }
    }

    /// Whether it has triggers of any type. From 0.26 on there are observers, and of those the ones for HTTP requests.
    pub(crate) fn has_triggers(self) -> bool {
        !self.version.starts_with("0.26.")
    }

    /// Whether it takes messages of more than 1 MiB: before 0.25 the one for Python hangs up instead.
    pub(crate) fn takes_large_messages(self) -> bool {
        self.language != Language::Python || self.version == "0.25.0"
    }

    /// The command that starts a worker: the one of these tests, or the example that users are shown.
    fn worker(self, which: Which) -> Command {
        let home = self.home();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = match which {
            Which::Test => here.join("tests/iii/workers"),
            Which::Example => here.join("../../examples/iii"),
            Which::Model => here.join("../../examples/llm"),
        };
        let mut command = match self.language {
            Language::Python => {
                let mut command = Command::new(home.join("bin/python"));
                command.arg(folder.join("python/worker.py")).env("PYTHONWARNINGS", "ignore");
                command
            }
            Language::Node => {
                // Packages are looked for beside the file that imports them.
                let name = match which {
                    Which::Test => "worker.mjs",
                    Which::Example => "example.mjs",
                    Which::Model => "model.mjs",
                };
                place(&folder.join("node/worker.mjs"), &home.join(name));
                let mut command = Command::new("node");
                command.arg(home.join(name));
                command
            }
            Language::Rust => {
                let name = match which {
                    Which::Test => "worker",
                    Which::Example | Which::Model => "example",
                };
                let version = self.version.replace('.', "-");
                Command::new(home.join("debug").join(format!("{name}-{version}")))
            }
        };
        // Newer SDKs leave a note about each worker in the user's home.
        command.env("HOME", home).env("OTEL_ENABLED", "false");
        command
    }
}

/// Which worker.
#[derive(Clone, Copy)]
enum Which {
    Test,
    Example,
    /// A language model behind a function. There is none in Rust.
    Model,
}

/// Runs a test, or says why not.
pub(crate) fn keep(sdks: &[Sdk], promise: &str, test: impl Future<Output = ()>) {
    let module = sdks.first().map_or("", |sdk| sdk.module);
    let absent = sdks.iter().find_map(|sdk| peers::absent(sdk.language.name()));
    peers::keep(&format!("{module}::{promise}"), absent, test);
}

/// Looks again and again until there is something to see.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a signal that ends a process, and waits until it has.
async fn signal(process: &mut Process, signal: &str) {
    let pid = process.child.id().expect("it runs").to_string();
    Command::new("kill").args([signal, &pid]).status().await.expect("kill works");
    let ended = tokio::time::timeout(PATIENCE, process.child.wait()).await;
    ended.expect("it ends").expect("it can be waited for");
}

/// A worker that is connected, or is about to be.
pub(crate) struct Worker {
    process: Process,
}

impl Worker {
    /// Kills it without a word of warning.
    pub(crate) async fn kill(mut self) {
        signal(&mut self.process, "-KILL").await;
    }

    /// Waits until the function that takes its time has begun.
    pub(crate) async fn slow_began(&mut self) {
        self.process.heard("a slow function begins", |line| line.contains("slow began").then_some(())).await;
    }
}

/// The `attache` command with its embedded engine.
pub(crate) struct Engine {
    /// Where clients find it.
    pub(crate) url: String,
    /// Where workers find it.
    workers: String,
    process: Process,
}

impl Engine {
    /// Starts it on free ports.
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0", "127.0.0.1:0").await
    }

    /// Starts it on free ports, with further arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        Self::launch("127.0.0.1:0", "127.0.0.1:0", arguments).await
    }

    /// Starts it with one worker that has registered what it has.
    pub(crate) async fn with(sdk: Sdk) -> (Self, Worker) {
        let engine = Self::start().await;
        let worker = engine.worker(sdk, "shop").await;
        (engine, worker)
    }

    /// Starts it where another one was that has ended.
    pub(crate) async fn start_at(clients: &str, workers: &str) -> Self {
        Self::launch(clients, workers, &[]).await
    }

    async fn launch(clients: &str, workers: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
        command.args(["serve", "--store", "memory:", "--listen", clients, "--engine-listen", workers]);
        command.arg("--allow-loopback-agents").args(arguments);
        let mut process = Process::start("attache", command);
        let url =
            process.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned));
        let url = url.await;
        let workers = process
            .heard("where workers connect", |line| {
                let (name, address) = line.trim().split_once(' ')?;
                (name == "workers").then(|| address.trim().to_owned())
            })
            .await;
        Self { url, workers, process }
    }

    /// Stops it as a process manager does.
    pub(crate) async fn stop(mut self) {
        signal(&mut self.process, "-TERM").await;
    }

    /// Starts a worker and waits for its last registration.
    pub(crate) async fn worker(&self, sdk: Sdk, name: &str) -> Worker {
        let mut command = sdk.worker(Which::Test);
        command.args([&self.workers, name]);
        let process = Process::start(&format!("{} ({name})", sdk.module), command);
        self.until_registered(sdk, name).await;
        Worker { process }
    }

    /// Waits until a worker has registered everything it has. SDKs do so in no particular order.
    pub(crate) async fn until_registered(&self, sdk: Sdk, name: &str) {
        let expected = if sdk.has_triggers() { 6 } else { 4 };
        for skill in SKILLS {
            self.until_skill(&format!("{name}::{skill}"), true).await;
        }
        let relay = format!("{name}::relay");
        let list = json!({"function_id": "engine::registered-triggers::list", "payload": {}});
        until("its triggers are there", async || {
            let listed = self.result(&relay, list.clone()).await;
            let triggers = listed["returned"]["registered_triggers"].as_array()?;
            let own = |trigger: &&Value| {
                trigger["function_id"].as_str().is_some_and(|id| id.starts_with(&format!("{name}::")))
            };
            (triggers.iter().filter(own).count() == expected).then_some(())
        })
        .await;
    }

    /// Starts the worker that users are shown, whose functions are called after its language.
    pub(crate) async fn example(&self, sdk: Sdk) -> Worker {
        let mut command = sdk.worker(Which::Example);
        command.env("III_URL", &self.workers);
        let process = Process::start(&format!("{} (example)", sdk.module), command);
        let name = sdk.language.name();
        for skill in ["quote", "story"] {
            self.until_skill(&format!("{name}::{skill}"), true).await;
        }
        let route = format!("/{name}/quotes/A-1");
        until("its route is there", async || (self.get(&route).await.status() == 200).then_some(())).await;
        Worker { process }
    }

    /// Starts the worker with a language model behind its function.
    pub(crate) async fn model_worker(&self, sdk: Sdk, url: &str, key: &str) -> Worker {
        let mut command = sdk.worker(Which::Model);
        command.env("III_URL", &self.workers).env("OPENAI_BASE_URL", url).env("OPENAI_API_KEY", key);
        let process = Process::start(&format!("{} (model)", sdk.module), command);
        self.until_skill("llm::reply", true).await;
        Worker { process }
    }

    pub(crate) async fn card(&self) -> Value {
        self.get("/.well-known/agent-card.json").await.json().await.expect("the card is JSON")
    }

    pub(crate) async fn has_skill(&self, id: &str) -> bool {
        let card = self.card().await;
        card["skills"].as_array().is_some_and(|skills| skills.iter().any(|skill| skill["id"] == id))
    }

    /// Waits until a skill is in the card, or is not.
    pub(crate) async fn until_skill(&self, id: &str, present: bool) {
        let what = format!("`{id}` is {}in the card", if present { "" } else { "not " });
        until(&what, async || (self.has_skill(id).await == present).then_some(())).await;
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        reqwest::get(format!("{}{path}", self.url)).await.expect("the server answers")
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        media_type: &str,
        body: impl Into<reqwest::Body>,
    ) -> reqwest::Response {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url));
        request.header("content-type", media_type).body(body).send().await.expect("the server answers")
    }

    /// Calls a method of A2A 1.0 and returns its result.
    pub(crate) async fn method(&self, method: &str, params: Value) -> Value {
        let body: Value = self.ask(method, params).await.json().await.expect("the answer is JSON");
        assert!(body.get("error").is_none(), "{method} failed: {body}");
        body["result"].clone()
    }

    /// Calls a method as the document does: without a version, and with its names.
    pub(crate) async fn documented(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": "t1", "method": method, "params": params});
        let body: Value =
            self.post("/a2a", "application/json", request.to_string()).await.json().await.expect("JSON");
        assert_eq!(body["id"], "t1", "{body}");
        body["result"].clone()
    }

    /// Calls a function and returns the task.
    pub(crate) async fn call(&self, function: &str, payload: Value) -> Value {
        self.method("SendMessage", message(function, payload)).await["task"].clone()
    }

    /// Calls a function and returns what it returned.
    pub(crate) async fn result(&self, function: &str, payload: Value) -> Value {
        let task = self.call(function, payload).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{function}: {task}");
        task["artifacts"][0]["parts"][0]["data"].clone()
    }

    /// What a function returns that one of the shop calls.
    pub(crate) async fn relayed(&self, function: &str, payload: Value) -> Value {
        let order = json!({"function_id": function, "payload": payload});
        self.result("shop::relay", order).await["returned"].clone()
    }

    /// Calls a function and returns its task at once.
    pub(crate) async fn begin(&self, function: &str, payload: Value) -> String {
        let mut params = message(function, payload);
        params["configuration"] = json!({"returnImmediately": true});
        let task = self.method("SendMessage", params).await["task"].clone();
        task["id"].as_str().expect("a task has an id").to_owned()
    }

    /// Waits until a task is over.
    pub(crate) async fn ended(&self, task: &str) -> Value {
        until("the task is over", async || {
            let task = self.method("GetTask", json!({"id": task})).await;
            let over = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"];
            let state = task["status"]["state"].as_str().expect("a task has a state");
            over.iter().any(|over| state.ends_with(over)).then_some(task)
        })
        .await
    }

    /// Calls a function and returns every event of the stream.
    pub(crate) async fn stream(&self, function: &str, payload: Value) -> Vec<Value> {
        let response = self.ask("SendStreamingMessage", message(function, payload)).await;
        let body = response.text().await.expect("the stream ends");
        let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
        events
            .map(|data| serde_json::from_str::<Value>(data).expect("an event is JSON")["result"].clone())
            .collect()
    }

    async fn ask(&self, method: &str, params: Value) -> reqwest::Response {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let client = reqwest::Client::new();
        let request = client.post(format!("{}/a2a", self.url)).header("A2A-Version", "1.0").json(&request);
        let answer = tokio::time::timeout(PATIENCE, request.send()).await;
        answer.expect("in time").expect("the server answers")
    }
}

fn message(function: &str, payload: Value) -> Value {
    let data = json!({"function_id": function, "payload": payload});
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": data}]}})
}

/// What a failed task says.
pub(crate) fn failure(task: &Value) -> &str {
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    task["status"]["message"]["parts"][0]["text"].as_str().expect("a failed task says why")
}

/// An address at which nothing listens, outside of what the system gives to others: it stays free while an engine restarts.
pub(crate) fn quiet_address() -> String {
    let addresses = std::iter::repeat_with(|| format!("127.0.0.1:{}", fastrand::u16(20_000..30_000)));
    let mut free = addresses.filter(|address| std::net::TcpListener::bind(address).is_ok());
    free.next().expect("they never end")
}
