//! The example as a server, and clients that send it the requests of the reference.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::Program;

/// How long anything may take. Only what is broken reaches it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The example with paths of this machine.
pub(super) fn settings(home: &Home) -> String {
    settings_with(home, "")
}

/// The same with further settings.
pub(super) fn settings_with(home: &Home, more: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = std::fs::read_to_string(root.join("examples/iac-code/attache.yml")).expect("it is there");
    let agent = root.join("examples/iac-code/agent.py").display().to_string();
    home.file("attache.yml", &(example.replace("examples/iac-code/agent.py", &agent) + more))
}

pub(super) struct Server {
    pub(super) program: Program,
    pub(super) http: Client,
}

pub(super) async fn start(home: &Home, environment: &[(&str, &str)]) -> Server {
    start_with(home, environment, "").await
}

/// The same with further settings.
pub(super) async fn start_with(home: &Home, environment: &[(&str, &str)], more: &str) -> Server {
    let file = settings_with(home, more);
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
    let (program, _) = Program::command_with(&arguments, environment).await;
    Server { program, http: Client::new() }
}

impl Server {
    pub(super) async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": "1", "method": method, "params": params});
        let response =
            self.http.post(format!("{}/", self.program.url)).header("A2A-Version", "1.0").json(&body);
        response.send().await.unwrap().json().await.unwrap()
    }

    pub(super) async fn send(&self, message: Value) -> Value {
        self.rpc(
            "SendMessage",
            json!({"message": message, "configuration": {"acceptedOutputModes": ["text/plain"]}}),
        )
        .await
    }

    /// Sends a message without waiting for its turn, and gives the id of the task.
    pub(super) async fn begin(&self, text: &str, context: &str) -> String {
        let params = json!({
            "message": message(text, json!({"contextId": context})),
            "configuration": {"returnImmediately": true},
        });
        let sent = self.rpc("SendMessage", params).await;
        sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
    }

    /// Sends a request, and gives the results in the stream of its events.
    pub(super) async fn stream(&self, method: &str, params: Value) -> Vec<Value> {
        self.open(method, params).await.rest().await
    }

    /// Sends a request whose response is a stream.
    pub(super) async fn open(&self, method: &str, params: Value) -> Events {
        let body = json!({"jsonrpc": "2.0", "id": "2", "method": method, "params": params});
        let request = self.http.post(format!("{}/", self.program.url)).header("A2A-Version", "1.0");
        Events::of(request.json(&body).send().await.unwrap())
    }

    /// Sends a request to a REST route. A version that is not given is not stated.
    pub(super) async fn rest(
        &self,
        version: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}{path}", self.program.url));
        let request = version.into_iter().fold(request, |request, it| request.header("A2A-Version", it));
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        request.timeout(PATIENCE).send().await.unwrap()
    }

    /// The public card.
    pub(super) async fn card(&self) -> Value {
        let url = format!("{}/.well-known/agent-card.json", self.program.url);
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }
}

/// The events of an open stream.
pub(super) struct Events {
    response: Response,
    unread: Vec<u8>,
}

impl Events {
    pub(super) fn of(response: Response) -> Self {
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Self { response, unread: Vec::new() }
    }

    /// The next event: the result of a response of JSON-RPC, or the event itself. `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                if data.is_empty() {
                    continue;
                }
                let mut frame: Value = serde_json::from_str(&data).unwrap();
                if frame["jsonrpc"].is_string() {
                    assert_eq!((&frame["jsonrpc"], &frame["id"]), (&json!("2.0"), &json!("2")), "{frame}");
                    frame = frame["result"].take();
                }
                return Some(frame);
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("an event");
            self.unread.extend_from_slice(&chunk.unwrap()?);
        }
    }

    /// All further events.
    pub(super) async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

pub(super) fn message(text: &str, more: Value) -> Value {
    let mut message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    if let (Some(message), Some(more)) = (message.as_object_mut(), more.as_object()) {
        message.extend(more.clone());
    }
    message
}

pub(super) fn state(answer: &Value) -> &str {
    answer["result"]["task"]["status"]["state"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

pub(super) fn status(answer: &Value) -> &str {
    answer["result"]["task"]["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

/// Whether `json` has everything that `part` has. An array has items like those of the other one, in order.
pub(super) fn contains(json: &Value, part: &Value) -> bool {
    match (json, part) {
        (Value::Object(all), Value::Object(some)) => {
            some.iter().all(|(name, value)| all.get(name).is_some_and(|own| contains(own, value)))
        }
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(own, value)| contains(own, value))
        }
        (json, part) => json == part,
    }
}

/// The SHA-256 of content, in hexadecimal.
pub(super) fn sha256(content: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
