//! Tools of an MCP server for a model, and samples of a model for an MCP server.

use std::collections::VecDeque;
use std::sync::Arc;

use attache_agents::model::{Model, ModelOptions};
use attache_client::Client;
use attache_protocol::AgentCard;
use attache_server::Server;
use axum::Router;
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{agent, connect, json, run, task, text};

/// An endpoint that replies with these deltas, one for each request, and records the requests.
async fn endpoint(replies: impl IntoIterator<Item = Value>) -> (ModelOptions, Arc<Mutex<Vec<Value>>>) {
    let replies: Arc<Mutex<VecDeque<Value>>> = Arc::new(Mutex::new(replies.into_iter().collect()));
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = requests.clone();
    let reply = move |body: axum::Json<Value>| {
        seen.lock().push(body.0);
        let delta = replies.lock().pop_front().expect("the request is expected");
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]});
        let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        async move { ([("content-type", "text/event-stream")], events) }
    };
    let app = Router::new().route("/v1/chat/completions", post(reply));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (ModelOptions::new(url, "small"), requests)
}

async fn serve(model: Model) -> Client {
    let card = AgentCard::new("Model", "A language model").input_modes(["text/plain"]);
    let server = Server::new(model).card(card).bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    Client::connect(&url).await.unwrap()
}

fn tool_call(name: &str, arguments: &str) -> Value {
    json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}]})
}

#[tokio::test]
async fn a_model_calls_the_tools_of_a_server() {
    let mcp = connect(|_| {}).await;
    let (options, requests) = endpoint([
        tool_call("add", "{\"a\": 2, \"b\": 3}"),
        tool_call("fail", "{\"text\": \"no such city\"}"),
        tool_call("add", "{\"a\": 2}"),
        json!({"content": "It is 5."}),
    ])
    .await;
    let agent = serve(Model::new(options).unwrap().tools(mcp.as_model_tools())).await;
    assert_eq!(text(&task(agent.send("2 + 3").await.unwrap())), "It is 5.");
    let requests = requests.lock();
    let offered = requests[0]["tools"].as_array().unwrap();
    let add = offered.iter().find(|tool| tool["function"]["name"] == "add").unwrap();
    assert_eq!(add["function"]["parameters"]["required"], json!(["a", "b"]));
    let results: Vec<&str> = requests[3]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(results[..2], ["{\"sum\":5}", "error: no such city"]);
    assert!(results[2].starts_with("error: The arguments do not match the schema"), "{results:?}");
}

#[tokio::test]
async fn samples_are_written_by_the_configured_model() {
    let (options, requests) = endpoint([json!({"content": "Bonjour"})]).await;
    let options = options.with(|options| options.system = Some("You are ours".into()));
    let model = Model::new(options).unwrap();
    let agent = agent(|options| options.sampling = Some(model)).await;
    let sampled = json(&run(&agent, "sample", json!({"text": "Hello in French"})).await);
    assert_eq!(sampled["content"]["text"], "Bonjour", "{sampled}");
    assert_eq!((sampled["model"].as_str(), sampled["stopReason"].as_str()), (Some("small"), Some("endTurn")));
    let requests = requests.lock();
    let expected = json!([
        {"role": "system", "content": "You are ours"},
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Hello in French"},
    ]);
    assert_eq!(requests[0]["messages"], expected);
    assert_eq!(requests[0]["max_tokens"], 50);
    assert!(requests[0].get("tools").is_none());
}

#[tokio::test]
async fn samples_are_refused_without_a_model() {
    let refused = json(&run(&agent(|_| {}).await, "sample", json!({"text": "hello"})).await);
    assert_eq!(refused["code"], -32601, "{refused}");
}
