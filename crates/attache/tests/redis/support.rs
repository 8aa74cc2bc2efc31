//! A Redis server, a server of this project on it, and a peer that reads and writes entries itself.

use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use attache_redis::redis::{self, Value as RedisValue, cmd};
use attache_redis::{Connection, Entry, RedisUrl, connect, entries};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long anything may take. Only what is broken reaches it.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The streams that the tests use: those that are there by default.
pub(crate) const REQUESTS: &str = "attache:a2a:requests";
pub(crate) const RESPONSES: &str = "attache:a2a:responses";
pub(crate) const DEAD: &str = "attache:a2a:requests:dead";
pub(crate) const GROUP: &str = "attache";

/// Whether there is a Redis server. If not, the test counts as skipped.
pub(crate) fn has_redis(test: &str) -> bool {
    let found = std::process::Command::new("redis-server").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        let text = format!("\nskipped {test}: redis-server is not installed");
        writeln!(std::io::stdout(), "{text}").expect("there is an output");
    }
    found
}

/// Waits for something with a limit.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MAX_WAIT, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A Redis server on a free port; killed when dropped.
pub(crate) struct Redis {
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Child,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts it with further arguments. What it holds is on the disk at once.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let child = spawn(&folder, port, &arguments);
        let server = Self { folder, port, arguments, child };
        server.wait().await;
        server
    }

    async fn wait(&self) {
        until("Redis answers", async || {
            let text = format!("redis://127.0.0.1:{}", self.port);
            let url: RedisUrl = text.parse().expect("a URL");
            match connect(&url, MAX_WAIT, MAX_WAIT, None).await {
                // A server with a password is there as well.
                Err(error) => !error.is_io_error(),
                Ok(mut connection) => cmd("PING")
                    .exec_async(&mut connection)
                    .await
                    .map_or_else(|it| it.code() == Some("NOAUTH"), |()| true),
            }
        })
        .await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The address that the card of a server on it has.
    pub(crate) fn agent(&self) -> String {
        format!("redis-streams://127.0.0.1:{}/0/{REQUESTS}/{RESPONSES}/{GROUP}", self.port)
    }

    /// A connection for the test itself.
    pub(crate) async fn connection(&self) -> Connection {
        let url: RedisUrl = self.url().parse().expect("a URL");
        connect(&url, MAX_WAIT, MAX_WAIT, None).await.expect("Redis is there")
    }

    /// Ends it without a warning. What it has acknowledged is on the disk.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Starts it again with what is on the disk.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.folder, self.port, &self.arguments);
        self.wait().await;
    }
}

fn spawn(folder: &TempDir, port: u16, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("redis-server starts")
}

/// `attache serve`, with its log.
pub(crate) struct Served {
    pub(crate) url: String,
    child: Child,
    log: mpsc::UnboundedReceiver<String>,
    pub(crate) said: Vec<String>,
}

impl Served {
    /// Starts it with these arguments, and waits until it listens.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = attache();
        command.arg("serve").args(arguments);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.env("ATTACHE_STORE", "memory:").envs(environment.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (heard, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = heard.send(line);
            }
        });
        let mut served = Self { url: String::new(), child, log, said: Vec::new() };
        let url = served.line_with("Listening on ").await;
        served.url = url.trim_start_matches("Listening on ").to_owned();
        served.line_with("Ctrl-C stops the server.").await;
        served
    }

    /// The next line of the log with this text.
    pub(crate) async fn line_with(&mut self, text: &str) -> String {
        let found = async {
            loop {
                let line = self
                    .log
                    .recv()
                    .await
                    .unwrap_or_else(|| panic!("it ended before {text}: {:?}", self.said));
                self.said.push(line.clone());
                if line.contains(text) {
                    return line;
                }
            }
        };
        soon(text, found).await
    }

    /// Everything that it has said by now.
    pub(crate) fn everything(&mut self) -> &[String] {
        while let Ok(line) = self.log.try_recv() {
            self.said.push(line);
        }
        &self.said
    }

    /// Ends it without a warning.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Does what Ctrl-C does, and waits for its end.
    pub(crate) async fn stop(mut self) {
        let pid = self.child.id().expect("it runs").to_string();
        Command::new("kill").args(["-INT", &pid]).status().await.expect("kill works");
        soon("its end", self.child.wait()).await.expect("it ends");
    }
}

/// The command, without what the environment tells the tests.
pub(crate) fn attache() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATTACHE_")) {
        command.env_remove(name);
    }
    command
}

/// A JSON-RPC request that sends a text.
pub(crate) fn send(id: u64, text: &str) -> String {
    message("SendMessage", id, text)
}

/// The same with a method.
pub(crate) fn message(method: &str, id: u64, text: &str) -> String {
    let message =
        json!({"messageId": format!("m-{id}-{text}"), "role": "ROLE_USER", "parts": [{"text": text}]});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"message": message}}).to_string()
}

/// A client that follows the layout of existing peers: it adds entries and reads a stream of responses.
pub(crate) struct Peer {
    connection: Connection,
    requests: String,
    reply: String,
    last: String,
}

/// A response entry.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) correlation: String,
    pub(crate) payload: Value,
    pub(crate) is_final: bool,
    pub(crate) event: Option<u64>,
}

impl Peer {
    pub(crate) async fn new(redis: &Redis) -> Self {
        Self::with_reply(redis, RESPONSES).await
    }

    pub(crate) async fn with_reply(redis: &Redis, reply: &str) -> Self {
        Self::with_streams(redis, REQUESTS, reply).await
    }

    pub(crate) async fn with_streams(redis: &Redis, requests: &str, reply: &str) -> Self {
        let (requests, reply) = (requests.to_owned(), reply.to_owned());
        Self { connection: redis.connection().await, requests, reply, last: "0-0".to_owned() }
    }

    /// Adds a request with further fields.
    pub(crate) async fn add(&mut self, correlation: &str, payload: &str, more: &[(&str, &str)]) {
        let reply = self.reply.clone();
        let fields = [("correlation_id", correlation), ("reply_stream", &reply), ("payload", payload)];
        self.add_fields(&[&fields, more].concat()).await;
    }

    /// Adds an entry as it is.
    pub(crate) async fn add_fields(&mut self, fields: &[(&str, &str)]) {
        let mut add = cmd("XADD");
        add.arg(&self.requests).arg("*");
        for (name, value) in fields {
            add.arg(name).arg(value);
        }
        add.exec_async(&mut self.connection).await.expect("the entry is added");
    }

    /// The next responses, or none after a second.
    pub(crate) async fn read(&mut self) -> Vec<Response> {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(100).arg("BLOCK").arg(1000).arg("STREAMS").arg(&self.reply).arg(&self.last);
        let found: RedisValue = read.query_async(&mut self.connection).await.expect("Redis answers");
        let found = entries(found).expect("entries");
        if let Some(last) = found.last() {
            self.last.clone_from(&last.id);
        }
        found.iter().map(response).collect()
    }

    /// Waits until this many requests have their last response. Returns all responses.
    pub(crate) async fn finals(&mut self, count: usize) -> Vec<Response> {
        let mut all: Vec<Response> = Vec::new();
        soon("responses", async {
            while all.iter().filter(|response| response.is_final).count() < count {
                all.extend(self.read().await);
            }
        })
        .await;
        all
    }

    /// Sends a request and waits for its only response.
    pub(crate) async fn ask(&mut self, correlation: &str, payload: &str, more: &[(&str, &str)]) -> Value {
        self.add(correlation, payload, more).await;
        let mut found = self.finals(1).await;
        let last = found.pop().expect("a response");
        assert_eq!((found.len(), last.correlation.as_str()), (0, correlation), "{last:?}");
        last.payload
    }
}

fn response(entry: &Entry) -> Response {
    let text = |name| entry.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    let payload = text("payload").expect("a payload");
    Response {
        correlation: text("correlation_id").expect("a correlation id"),
        payload: serde_json::from_str(&payload).expect("JSON"),
        is_final: match text("final").as_deref() {
            Some("true") => true,
            Some("false") => false,
            other => panic!("`final` is {other:?}"),
        },
        event: text("event").map(|event| event.parse().expect("a number")),
    }
}

/// The entries of a stream.
pub(crate) async fn range(connection: &mut Connection, stream: &str) -> Vec<Entry> {
    let found: RedisValue =
        cmd("XRANGE").arg(stream).arg("-").arg("+").query_async(connection).await.expect("entries");
    let stream = RedisValue::Array(vec![RedisValue::Nil, found]);
    entries(RedisValue::Array(vec![stream])).expect("entries")
}

/// How many entries are in a stream, and how many of them are delivered but not acknowledged.
pub(crate) async fn left(connection: &mut Connection) -> (u64, u64) {
    let length = cmd("XLEN").arg(REQUESTS).query_async(connection).await.expect("a length");
    let pending: (u64, RedisValue, RedisValue, RedisValue) =
        cmd("XPENDING").arg(REQUESTS).arg(GROUP).query_async(connection).await.expect("a summary");
    (length, pending.0)
}

/// Keeps the import of the library in one place.
pub(crate) use redis::cmd as command;
