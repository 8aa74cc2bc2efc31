//! Language models as agents, against an endpoint that replies from a script. The tests of `aimock.rs` use the endpoint of another
//! project.

mod aimock;
mod cases;
mod earlier;
mod endpoint;
#[path = "../router/killable.rs"]
mod killable;
mod limits;
#[path = "../../../attache/tests/shared/peers.rs"]
#[expect(dead_code, reason = "the interop tests use more of it")]
mod peers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

mod work;

use attache_agents::model::{Model, ModelOptions, Tool};
use attache_client::{Client, Outgoing, Reply};
use attache_protocol::{AgentCard, Message, Part, StreamResponse, Task, TaskState};
use attache_server::Server;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What the agent accepts.
const MODES: [&str; 4] = ["text/plain", "image/*", "application/pdf", "audio/mpeg"];

/// What the endpoint does with a request.
#[derive(Clone)]
enum Step {
    /// Streams these texts.
    Say(&'static [&'static str]),
    /// Streams these events as they are.
    Events(Vec<String>),
    /// Responds with a status and `Retry-After: 0`.
    Status(u16),
    /// Streams a text and then nothing.
    Hang(&'static str),
    /// Accepts the request, and sends nothing.
    Silent,
    /// Responds with a status and this `Retry-After`.
    Busy(u16, String),
    /// Responds with this media type and body.
    Body(&'static str, &'static str),
}

/// The endpoint: what it will do, and what it was sent.
#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<Value>>,
    /// When the requests arrived.
    times: Mutex<Vec<SystemTime>>,
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

fn text_event(text: &str) -> String {
    chunk(&json!({"content": text}), None)
}

fn end(reason: &str) -> String {
    format!("{}data: [DONE]\n\n", chunk(&json!({}), Some(reason)))
}

async fn reply(script: Arc<Script>, headers: HeaderMap, body: Bytes) -> Response {
    assert_eq!(headers.get("authorization").unwrap(), "Bearer the key");
    script.times.lock().push(SystemTime::now());
    script.requests.lock().push(serde_json::from_slice(&body).unwrap());
    let stream = |events: Vec<String>, hangs: bool| {
        let events = futures::stream::iter(events).map(|event| Ok::<_, std::io::Error>(Bytes::from(event)));
        let rest = futures::stream::once(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(Bytes::new())
        });
        ([("content-type", "text/event-stream")], Body::from_stream(events.chain(rest))).into_response()
    };
    let step = script.steps.lock().pop_front().expect("the request is expected");
    match step {
        Step::Say(texts) => {
            stream(texts.iter().map(|text| text_event(text)).chain([end("stop")]).collect(), false)
        }
        Step::Events(events) => stream(events, false),
        Step::Status(status) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", "0")], "secret of the provider")
                .into_response()
        }
        Step::Hang(text) => stream(vec![text_event(text)], true),
        Step::Silent => std::future::pending().await,
        Step::Busy(status, retry_after) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", retry_after)]).into_response()
        }
        Step::Body(media_type, body) => ([("content-type", media_type)], body).into_response(),
    }
}

/// Starts the endpoint and an agent that uses it.
async fn serve(
    steps: impl IntoIterator<Item = Step>,
    change: impl FnOnce(&mut ModelOptions),
    tools: Vec<Tool>,
) -> (Client, Arc<Script>) {
    serve_with(steps, change, tools, |_| {}, Arc::default()).await
}

/// The same, with options for the service and a store.
async fn serve_with(
    steps: impl IntoIterator<Item = Step>,
    change: impl FnOnce(&mut ModelOptions),
    tools: Vec<Tool>,
    service: impl FnOnce(&mut attache_core::Options),
    store: Arc<attache_core::MemoryStore>,
) -> (Client, Arc<Script>) {
    let (url, script) = endpoint_of(steps).await;
    (serve_endpoint(url, change, tools, service, store).await, script)
}

/// Starts the endpoint. Returns the URL of its API.
async fn endpoint_of(steps: impl IntoIterator<Item = Step>) -> (String, Arc<Script>) {
    let script = Arc::new(Script { steps: Mutex::new(steps.into_iter().collect()), ..Script::default() });
    let shared = script.clone();
    let app = Router::new().route(
        "/v1/chat/completions",
        post(move |headers: HeaderMap, body: Bytes| reply(shared.clone(), headers, body)),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, script)
}

/// Starts an agent that uses an endpoint.
async fn serve_endpoint(
    url: String,
    change: impl FnOnce(&mut ModelOptions),
    tools: Vec<Tool>,
    service: impl FnOnce(&mut attache_core::Options),
    store: Arc<attache_core::MemoryStore>,
) -> Client {
    let options = ModelOptions::new(url, "small").with(|options| {
        options.key = Some("the key".into());
        change(options);
    });
    let model = Model::new(options).unwrap().tools(tools);
    let card = AgentCard::new("Model", "A language model").input_modes(MODES);
    let server = Server::new(model).card(card).shared_store(store).service_options(service);
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    Client::connect(&url).await.unwrap()
}

fn task(reply: Reply) -> Task {
    match reply {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("a message instead of a task: {message:?}"),
    }
}

fn text(task: &Task) -> String {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(|part| part.as_text()).collect()
}

fn failure(task: &Task) -> String {
    assert_eq!(task.status.state, TaskState::Failed, "{task:?}");
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test]
async fn the_reply_is_the_answer_and_the_conversation_is_remembered() {
    let steps = [Step::Say(&["Good ", "morning"]), Step::Say(&["Again"])];
    let change = |options: &mut ModelOptions| {
        options.system = Some("Be brief.".into());
        options.parameters.insert("temperature".into(), json!(0.5));
    };
    let (agent, script) = serve(steps, change, Vec::new()).await;
    let first = task(agent.send("hello").await.unwrap());
    assert_eq!((first.status.state, text(&first).as_str()), (TaskState::Completed, "Good morning"));
    let second = Outgoing::new("and now?").context(first.context_id.clone().unwrap());
    assert_eq!(text(&task(agent.send(second).await.unwrap())), "Again");
    let requests = script.requests.lock();
    assert_eq!(requests[0]["model"], "small");
    assert_eq!(requests[0]["temperature"], 0.5);
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Good morning"},
        {"role": "user", "content": "and now?"},
    ]);
    assert_eq!(requests[1]["messages"], expected);
}

#[tokio::test]
async fn the_reply_is_streamed_while_the_model_writes() {
    let (agent, _script) = serve([Step::Hang("first")], |_| {}, Vec::new()).await;
    let mut events = agent.stream("hello").await.unwrap();
    loop {
        if let StreamResponse::ArtifactUpdate(update) = events.next().await.unwrap().unwrap() {
            assert_eq!(update.artifact.parts[0].as_text(), Some("first"));
            break;
        }
    }
}

#[tokio::test]
async fn an_overloaded_endpoint_is_asked_again() {
    let (agent, script) =
        serve([Step::Status(429), Step::Status(503), Step::Say(&["ok"])], |_| {}, Vec::new()).await;
    assert_eq!(text(&task(agent.send("hello").await.unwrap())), "ok");
    assert_eq!(script.requests.lock().len(), 3);
}

#[tokio::test]
async fn errors_of_the_provider_are_not_shown_to_the_caller() {
    let steps = [Step::Status(400), Step::Status(429), Step::Status(429)];
    let (agent, script) = serve(steps, |options| options.max_retries = 1, Vec::new()).await;
    let failed = failure(&task(agent.send("hello").await.unwrap()));
    assert!(failed.starts_with("the agent failed (error id "), "{failed}");
    assert_eq!(script.requests.lock().len(), 1, "a wrong request is not repeated");
    assert_eq!(
        failure(&task(agent.send("hello").await.unwrap())),
        "the model is overloaded: try again later"
    );
}

#[tokio::test]
async fn a_reply_that_breaks_off_fails_the_task_and_keeps_what_arrived() {
    let (agent, _script) = serve([Step::Events(vec![text_event("half")])], |_| {}, Vec::new()).await;
    let failed = task(agent.send("hello").await.unwrap());
    assert_eq!(failure(&failed), "the reply of the model broke off");
    assert_eq!(text(&failed), "half");
}

#[tokio::test]
async fn garbage_and_errors_inside_the_stream_fail_the_task() {
    let garbage = ["data: {", "data: {\"error\":{\"message\":\"secret\"}}\n\n", "data: 5\n\n"];
    let steps = garbage.map(|line| Step::Events(vec![format!("{line}\n\n")]));
    let (agent, _script) = serve(steps, |_| {}, Vec::new()).await;
    for _ in garbage {
        let failed = failure(&task(agent.send("hello").await.unwrap()));
        assert!(failed.starts_with("the agent failed (error id "), "{failed}");
    }
}

#[tokio::test]
async fn a_model_that_falls_silent_fails_the_task() {
    let change = |options: &mut ModelOptions| options.silence = Duration::from_millis(200);
    let (agent, _script) = serve([Step::Hang("half")], change, Vec::new()).await;
    assert_eq!(failure(&task(agent.send("hello").await.unwrap())), "the model stopped replying");
}

#[tokio::test]
async fn a_reply_that_is_too_long_or_filtered_says_so() {
    let steps = ["length", "content_filter"].map(|reason| Step::Events(vec![text_event("x"), end(reason)]));
    let (agent, _script) = serve(steps, |_| {}, Vec::new()).await;
    let long = task(agent.send("hello").await.unwrap());
    assert_eq!(long.status.state, TaskState::Completed);
    assert!(long.status.message.unwrap().text().contains("length limit"));
    assert_eq!(task(agent.send("hello").await.unwrap()).status.state, TaskState::Rejected);
}

#[tokio::test]
async fn images_go_to_the_model_and_other_media_types_are_refused() {
    let (agent, script) = serve([Step::Say(&["a cat"])], |_| {}, Vec::new()).await;
    let image = Part::raw([1, 2, 3]).media_type("image/png");
    assert_eq!(
        text(&task(agent.send(Message::user("m", "what is it?").part(image)).await.unwrap())),
        "a cat"
    );
    let content = script.requests.lock()[0]["messages"][0]["content"].clone();
    assert!(content[1]["text"].as_str().unwrap().contains("- mediaType=image/png"), "{content}");
    assert_eq!(content[2]["image_url"]["url"], "data:image/png;base64,AQID");
    let sound = Part::raw([1, 2, 3]).media_type("audio/wav");
    assert!(agent.send(Message::user("m2", "what is it?").part(sound)).await.is_err());
}

fn call(name: &str, arguments: &str) -> Step {
    let call =
        json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}]});
    Step::Events(vec![chunk(&call, None), end("tool_calls")])
}

fn adder() -> Tool {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}});
    Tool::new("add", "Adds two numbers", schema, |arguments| async move {
        match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
            (Some(a), Some(b)) => Ok(json!({"sum": a + b})),
            _ => Err("`a` and `b` must be numbers".to_owned()),
        }
    })
}

#[tokio::test]
async fn tools_are_called_until_the_model_replies() {
    let steps = [call("add", r#"{"a":2,"b":3}"#), Step::Say(&["It is 5."])];
    let (agent, script) = serve(steps, |_| {}, vec![adder()]).await;
    assert_eq!(text(&task(agent.send("2 + 3").await.unwrap())), "It is 5.");
    let requests = script.requests.lock();
    assert_eq!(requests[0]["tools"][0]["function"]["name"], "add");
    let messages = requests[1]["messages"].as_array().unwrap();
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], r#"{"a":2,"b":3}"#);
    assert_eq!(messages[2], json!({"role": "tool", "content": r#"{"sum":5}"#, "tool_call_id": "c1"}));
}

#[tokio::test]
async fn the_model_is_told_of_wrong_tools_and_wrong_arguments() {
    let steps = [call("divide", "{}"), call("add", "not JSON"), call("add", ""), Step::Say(&["sorry"])];
    let (agent, script) = serve(steps, |_| {}, vec![adder()]).await;
    assert_eq!(text(&task(agent.send("2 / 3").await.unwrap())), "sorry");
    let requests = script.requests.lock();
    let told: Vec<String> = requests[3]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert!(told[0].contains("there is no tool `divide`, expected one of: add"), "{told:?}");
    assert!(told[1].contains("the arguments are not JSON"), "{told:?}");
    assert_eq!(told[2], "error: `a` and `b` must be numbers");
}

#[tokio::test]
async fn a_model_that_never_stops_calling_tools_is_stopped() {
    let steps = vec![call("add", r#"{"a":1,"b":1}"#); 3];
    let (agent, _script) = serve(steps, |options| options.max_rounds = 2, vec![adder()]).await;
    let failed = failure(&task(agent.send("go on").await.unwrap()));
    assert_eq!(failed, "the model called tools more than 2 times in a row");
}
