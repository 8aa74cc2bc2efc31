//! Delegation as the document shows it: its requests to `/api/a2a`, to the command as a user starts it.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::support::Program;

const SERVE: [&str; 6] = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];

async fn serve(more: &[&str]) -> Program {
    Program::command(&[&SERVE[..], more].concat()).await.0
}

async fn answer(response: reqwest::Result<reqwest::Response>) -> (StatusCode, Value) {
    let response = response.expect("an answer");
    (response.status(), response.json().await.expect("JSON"))
}

/// What `curl -X POST URL -d BODY` gets.
async fn post(program: &Program, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Client::new().post(format!("{}{path}", program.url));
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    answer(request.body(body.to_string()).send().await).await
}

async fn get(program: &Program, path: &str) -> (StatusCode, Value) {
    answer(reqwest::get(format!("{}{path}", program.url)).await).await
}

#[tokio::test]
async fn the_documents_requests_get_the_documented_answers() {
    let (here, there) = (serve(&["--allow-loopback-agents"]).await, serve(&[]).await);
    let (status, found) = post(&here, "/api/a2a/discover", json!({"url": there.url})).await;
    assert_eq!((status, &found["discovered"]), (StatusCode::OK, &json!(true)));
    let skills = found["card"]["capabilities"]["tools"].as_array().expect("tools");
    assert!(skills.contains(&json!("pricing::quote")) && !skills.contains(&json!("a2a::send_task")));

    let rpc = format!("{}/a2a/rpc", there.url);
    let sent = json!({"agentUrl": rpc, "message": "Analyze this data...", "metadata": {}});
    let (status, task) = post(&here, "/api/a2a/send", sent).await;
    assert_eq!((status, &task["status"]["state"]), (StatusCode::OK, &json!("completed")), "{task}");
    let said = task["status"]["message"]["parts"][0]["text"].as_str().expect("words");
    assert!(said.starts_with("You said \"Analyze this data...\""), "{said}");

    let path = format!("/api/a2a/task?taskId={}", task["id"].as_str().expect("an id"));
    assert_eq!(get(&here, &path).await, (StatusCode::OK, task));

    let wait = json!({"agentUrl": there.url, "message": "demo::wait {\"seconds\": 60}"});
    let (_, waiting) = post(&here, "/api/a2a/send", wait).await;
    let (status, canceled) = post(&here, "/api/a2a/cancel", json!({"taskId": waiting["id"]})).await;
    assert_eq!((status, &canceled["status"]["state"]), (StatusCode::OK, &json!("cancelled")), "{canceled}");

    let (_, cards) = get(&here, "/api/a2a/cards").await;
    assert_eq!(cards.as_array().expect("cards").len(), 2);
    assert_eq!(cards[0]["url"], format!("{}/a2a/rpc", here.url));
    let (_, card) = get(&here, "/.well-known/agent.json").await;
    assert_eq!(card["url"], cards[0]["url"]);
}

#[tokio::test]
async fn agents_on_this_machine_are_refused_unless_they_are_allowed() {
    let here = serve(&[]).await;
    let (status, refused) = post(&here, "/api/a2a/discover", json!({"url": here.url})).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::BAD_REQUEST, &json!("blocked")));
}

#[tokio::test]
async fn where_others_can_connect_the_api_wants_a_token() {
    let open = ["serve", "--demo", "--insecure", "--listen", "0.0.0.0:0", "--engine-listen", "127.0.0.1:0"];
    let cards = |program: &Program| program.url.replace("0.0.0.0", "127.0.0.1") + "/api/a2a/cards";
    let closed = Program::command(&open).await.0;
    assert_eq!(reqwest::get(cards(&closed)).await.expect("an answer").status(), StatusCode::FORBIDDEN);

    let token = "0123456789abcdef0123456789abcdef";
    let environment = [("ATTACHE_STORE", "memory:"), ("ATTACHE_API_TOKEN", token)];
    let guarded = Program::command_with(&open, &environment).await.0;
    let refused = reqwest::get(cards(&guarded)).await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(refused.headers().contains_key("www-authenticate"));
    let let_in = Client::new().get(cards(&guarded)).bearer_auth(token).send().await.expect("an answer");
    assert_eq!(let_in.status(), StatusCode::OK);
}
