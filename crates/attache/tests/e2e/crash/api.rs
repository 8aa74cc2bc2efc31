//! Calls to a server that may die at any moment.

use std::time::Duration;

use serde_json::{Value, json};

/// How long an answer may take while the server is alive. Only a broken one reaches it.
const PATIENCE: Duration = Duration::from_secs(40);

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Its id.
    pub(super) seq: u64,
    /// What it says.
    pub(super) what: Value,
}

impl Event {
    /// The state of the task that it tells of, if it does.
    pub(super) fn state(&self) -> Option<&str> {
        let told = self.what.get("task").or_else(|| self.what.get("statusUpdate"))?;
        told["status"]["state"].as_str()
    }

    pub(super) fn ends_the_task(&self) -> bool {
        self.state().is_some_and(is_terminal)
    }

    pub(super) fn begins_an_artifact(&self) -> bool {
        self.what.get("artifactUpdate").is_some_and(|update| update["append"] != true)
    }

    /// The task that it belongs to.
    pub(super) fn task(&self) -> &str {
        task_of(&self.what)
    }
}

/// The task that an event belongs to.
pub(super) fn task_of(event: &Value) -> &str {
    [&event["task"]["id"], &event["statusUpdate"]["taskId"], &event["artifactUpdate"]["taskId"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn is_terminal(state: &str) -> bool {
    ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]
        .contains(&state)
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Miss {
    /// The connection broke: whether the server did what it was asked is not known.
    Cut,
    /// The server answered something else, or nothing.
    Refused(String),
}

/// The server, as a client sees it.
#[derive(Clone)]
pub(super) struct Api {
    http: reqwest::Client,
    url: String,
}

impl Api {
    pub(super) fn new(url: &str) -> Self {
        let http = reqwest::Client::builder().read_timeout(PATIENCE).build().expect("there are clients");
        Self { http, url: format!("{url}/a2a") }
    }

    /// Calls a method and returns its result.
    pub(super) async fn call(
        &self,
        method: &str,
        params: Value,
        headers: &[(&'static str, String)],
    ) -> Result<Value, Miss> {
        let response = self.post(method, params, headers).await?;
        let body = response.bytes().await.map_err(|error| missed(method, &error))?;
        result(method, &body)
    }

    /// Calls a method and collects the events of its stream as they come: they are there also when the stream is cut off.
    pub(super) async fn stream(
        &self,
        method: &str,
        params: Value,
        headers: &[(&'static str, String)],
        events: &mut Vec<Event>,
    ) -> Result<(), Miss> {
        let mut response = self.post(method, params, headers).await?;
        let is_stream = |value: &reqwest::header::HeaderValue| value == "text/event-stream";
        if !response.headers().get("content-type").is_some_and(is_stream) {
            let body = response.bytes().await.map_err(|error| missed(method, &error))?;
            return result(method, &body).and_then(|result| {
                Err(Miss::Refused(format!("{method} answered with {result} instead of a stream")))
            });
        }
        let mut unread = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| missed(method, &error))? {
            unread.extend_from_slice(&chunk);
            // Only what ends with an empty line has been received.
            while let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = unread.drain(..end + 2).collect();
                events.extend(event(method, &String::from_utf8_lossy(&frame))?);
            }
        }
        Ok(())
    }

    async fn post(
        &self,
        method: &str,
        params: Value,
        headers: &[(&'static str, String)],
    ) -> Result<reqwest::Response, Miss> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut request = self.http.post(&self.url).header("A2A-Version", "1.0").json(&call);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        request.send().await.map_err(|error| missed(method, &error))
    }
}

fn missed(method: &str, error: &reqwest::Error) -> Miss {
    if error.is_timeout() {
        return Miss::Refused(format!("{method} was not answered within {} s", PATIENCE.as_secs()));
    }
    Miss::Cut
}

fn result(method: &str, body: &[u8]) -> Result<Value, Miss> {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    match answer.as_ref().and_then(|answer| answer.get("result")) {
        Some(result) => Ok(result.clone()),
        None => Err(Miss::Refused(format!("{method} answered {}", String::from_utf8_lossy(body)))),
    }
}

/// Reads an event; nothing for a sign of life.
fn event(method: &str, frame: &str) -> Result<Option<Event>, Miss> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
    let Some(data) = field("data: ") else { return Ok(None) };
    let what = result(method, data.as_bytes())?;
    let seq = field("id: ").and_then(|id| id.parse().ok());
    let seq = seq.ok_or_else(|| Miss::Refused(format!("{method} sent an event without an id: {data}")))?;
    Ok(Some(Event { seq, what }))
}
