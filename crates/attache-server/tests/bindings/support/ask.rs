//! One question, asked the same way over each binding.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tonic_types::StatusExt;

use super::sse::{Frame, Sse};
use super::{Reply, Running, fetch, grpc};

/// The three ways to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    HttpJson,
    Grpc,
}

impl Binding {
    pub(crate) const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];
    pub(crate) const JSON: [Self; 2] = [Self::JsonRpc, Self::HttpJson];
}

/// A question.
#[derive(Clone)]
pub(crate) struct Ask {
    base: String,
    http: reqwest::Client,
    operation: String,
    params: Value,
    headers: Vec<(String, String)>,
    query: String,
    /// The path of a named agent, for the bindings with paths.
    agent: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The result; the events of a stream in an array.
    pub(crate) result: Result<Value, Refusal>,
    /// The extensions that the response says are active.
    pub(crate) extensions: Option<String>,
}

/// A no, in the words of its binding.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// The JSON-RPC code, the HTTP status or the gRPC code.
    pub(crate) code: i64,
    /// The name that goes with an HTTP status.
    pub(crate) status: String,
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) domain: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The fields that are wrong.
    pub(crate) fields: Vec<String>,
}

impl Ask {
    pub(crate) fn new(server: &Running, operation: &str, params: Value) -> Self {
        let headers = vec![("A2A-Version".to_owned(), "1.0".to_owned())];
        let (base, http) = (server.base.clone(), server.http.clone());
        Self {
            base,
            http,
            operation: operation.to_owned(),
            params,
            headers,
            query: String::new(),
            agent: String::new(),
        }
    }

    /// Speaks another version, or does not say which.
    pub(crate) fn version(mut self, version: Option<&str>) -> Self {
        self.headers.retain(|(name, _)| name != "A2A-Version");
        match version {
            Some(version) => self.header("A2A-Version", version),
            None => self,
        }
    }

    /// Adds a header or, over gRPC, metadata.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Asks a named agent: by its path or, over gRPC, by metadata.
    pub(crate) fn of_agent(mut self, name: &str) -> Self {
        self.agent = format!("/agents/{name}");
        self.header("agent", name)
    }

    /// Adds a parameter to the query of the URL, where there is one.
    pub(crate) fn query(mut self, query: &str) -> Self {
        self.query = query.to_owned();
        self
    }

    /// Asks.
    pub(crate) async fn over(self, binding: Binding) -> Answer {
        match binding {
            Binding::JsonRpc => self.over_jsonrpc().await,
            Binding::HttpJson => self.over_http_json().await,
            Binding::Grpc => self.over_grpc().await,
        }
    }

    /// Asks from a task of its own.
    pub(crate) fn begin(self, binding: Binding) -> JoinHandle<Result<Value, Refusal>> {
        tokio::spawn(async move { self.over(binding).await.result })
    }

    /// Asks, and wants a result.
    pub(crate) async fn ok(self, binding: Binding) -> Value {
        let operation = self.operation.clone();
        self.over(binding)
            .await
            .result
            .unwrap_or_else(|refusal| panic!("{operation} {binding:?}: {refusal:?}"))
    }

    /// Asks, and wants to be refused.
    pub(crate) async fn refused(self, binding: Binding) -> Refusal {
        let operation = self.operation.clone();
        match self.over(binding).await.result {
            Err(refusal) => refusal,
            Ok(result) => panic!("{operation} over {binding:?} was not refused: {result}"),
        }
    }

    async fn over_jsonrpc(self) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": "ask", "method": self.operation, "params": self.params});
        let path = if self.query.is_empty() { "/a2a".to_owned() } else { format!("/a2a?{}", self.query) };
        let mut request = self
            .http
            .post(format!("{}{}{path}", self.base, self.agent))
            .header("Content-Type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let reply = fetch(request.body(body.to_string())).await;
        let extensions = reply.headers.get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned());
        if let Some(events) = events(&reply) {
            return Answer { result: Ok(events), extensions };
        }
        if let Some(refusal) = kept_out(&reply) {
            return Answer { result: Err(refusal), extensions };
        }
        let mut json = reply.json();
        // A request that is rejected before its body is parsed gets no id back.
        let id = if matches!(reply.status.as_u16(), 429 | 503) { json["id"].clone() } else { json!("ask") };
        assert_eq!((&json["id"], &json["jsonrpc"]), (&id, &json!("2.0")), "{json}");
        let result = match json.get("error") {
            None => Ok(json["result"].take()),
            Some(error) => Err(Refusal::from_json(error, &error["data"])),
        };
        Answer { result, extensions }
    }

    async fn over_http_json(self) -> Answer {
        let (method, mut path, body) = http_form(&self.operation, self.params);
        if !self.query.is_empty() {
            path = format!("{path}{}{}", if path.contains('?') { '&' } else { '?' }, self.query);
        }
        let mut request = self.http.request(method, format!("{}{}/v1{path}", self.base, self.agent));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let reply = fetch(request).await;
        let extensions = reply.headers.get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned());
        if let Some(events) = events(&reply) {
            return Answer { result: Ok(events), extensions };
        }
        if let Some(refusal) = kept_out(&reply) {
            return Answer { result: Err(refusal), extensions };
        }
        let json = reply.json();
        let result = if reply.status == 200 {
            Ok(json)
        } else {
            assert_eq!(json["error"]["code"], reply.status.as_u16(), "{json}");
            Err(Refusal::from_json(&json["error"], &json["error"]["details"]))
        };
        Answer { result, extensions }
    }

    async fn over_grpc(self) -> Answer {
        let mut client = grpc::connect(&self.base).await;
        match client.call(&self.operation, self.params, &self.headers).await {
            Ok((result, metadata)) => {
                let extensions =
                    metadata.get("a2a-extensions").map(|value| value.to_str().unwrap().to_owned());
                Answer { result: Ok(result), extensions }
            }
            Err(status) => Answer { result: Err(Refusal::from_status(&status)), extensions: None },
        }
    }
}

impl Answer {
    pub(crate) fn unwrap(self) -> Value {
        self.result.unwrap_or_else(|refusal| panic!("{refusal:?}"))
    }
}

/// The refusal of a request that no binding has seen. Its status is what would have let it in.
fn kept_out(reply: &Reply) -> Option<Refusal> {
    let challenges = reply.headers.get_all("www-authenticate").iter();
    let challenges: Vec<_> = challenges.filter_map(|value| value.to_str().ok()).collect();
    let body: Value = serde_json::from_slice(&reply.body).ok()?;
    Some(Refusal {
        code: reply.status.as_u16().into(),
        status: challenges.join(", "),
        message: body["error"].as_str()?.to_owned(),
        reason: String::new(),
        domain: String::new(),
        metadata: BTreeMap::new(),
        fields: Vec::new(),
    })
}

/// The events of a response that is a stream.
fn events(reply: &Reply) -> Option<Value> {
    (reply.header("content-type") == "text/event-stream").then(|| {
        let text = std::str::from_utf8(&reply.body).unwrap();
        Value::Array(Sse::frames(text).iter().map(Frame::event).collect())
    })
}

/// The method, path and body of an operation.
fn http_form(operation: &str, params: Value) -> (Method, String, Option<Value>) {
    let Value::Object(mut members) = params else { panic!("arguments are an object") };
    let tenant = match members.remove("tenant") {
        Some(tenant) => format!("/{}", tenant.as_str().unwrap()),
        None => String::new(),
    };
    let mut path = |member: &str| match members.remove(member) {
        Some(id) => id.as_str().unwrap().to_owned(),
        None => String::new(),
    };
    let (method, path) = match operation {
        "SendMessage" => (Method::POST, "message:send".to_owned()),
        "SendStreamingMessage" => (Method::POST, "message:stream".to_owned()),
        "GetTask" => (Method::GET, format!("tasks/{}", path("id"))),
        "ListTasks" => (Method::GET, "tasks".to_owned()),
        "CancelTask" => (Method::POST, format!("tasks/{}:cancel", path("id"))),
        "SubscribeToTask" => (Method::POST, format!("tasks/{}:subscribe", path("id"))),
        "CreateTaskPushNotificationConfig" => {
            (Method::POST, format!("tasks/{}/pushNotificationConfigs", path("taskId")))
        }
        "ListTaskPushNotificationConfigs" => {
            (Method::GET, format!("tasks/{}/pushNotificationConfigs", path("taskId")))
        }
        "GetTaskPushNotificationConfig" => {
            (Method::GET, format!("tasks/{}/pushNotificationConfigs/{}", path("taskId"), path("id")))
        }
        "DeleteTaskPushNotificationConfig" => {
            (Method::DELETE, format!("tasks/{}/pushNotificationConfigs/{}", path("taskId"), path("id")))
        }
        "GetExtendedAgentCard" => (Method::GET, "extendedAgentCard".to_owned()),
        other => panic!("there is no operation {other}"),
    };
    if method == Method::POST {
        let body = (!members.is_empty()).then_some(Value::Object(members));
        return (method, format!("{tenant}/{path}"), body);
    }
    let query = query_of(&members);
    (method, format!("{tenant}/{path}{}{query}", if query.is_empty() { "" } else { "?" }), None)
}

fn query_of(members: &Map<String, Value>) -> String {
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={}", text.replace('+', "%2B").replace(' ', "%20")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{name}={value}")
        }
    };
    members.iter().map(pair).collect::<Vec<_>>().join("&")
}

impl Refusal {
    fn from_json(error: &Value, details: &Value) -> Self {
        let of_type = |name: &str| {
            let name = format!("type.googleapis.com/google.rpc.{name}");
            details.as_array().expect("details are an array").iter().find(|detail| detail["@type"] == *name)
        };
        let info = of_type("ErrorInfo").unwrap_or_else(|| panic!("no ErrorInfo in {error}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = info["metadata"].as_object().into_iter().flatten();
        let violations =
            of_type("BadRequest").and_then(|bad| bad["fieldViolations"].as_array()).into_iter().flatten();
        Self {
            code: error["code"].as_i64().unwrap(),
            status: text(&error["status"]),
            message: text(&error["message"]),
            reason: text(&info["reason"]),
            domain: text(&info["domain"]),
            metadata: metadata.map(|(key, value)| (key.clone(), text(value))).collect(),
            fields: violations.map(|violation| text(&violation["field"])).collect(),
        }
    }

    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
        let violations = details.bad_request().into_iter().flat_map(|bad| &bad.field_violations);
        Self {
            code: i64::from(status.code() as i32),
            status: String::new(),
            message: status.message().to_owned(),
            reason: info.reason.clone(),
            domain: info.domain.clone(),
            metadata: info.metadata.clone().into_iter().collect(),
            fields: violations.map(|violation| violation.field.clone()).collect(),
        }
    }
}
