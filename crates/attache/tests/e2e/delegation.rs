//! Delegation as the document shows it: its requests to `/api/a2a`, to the command as a user starts it.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::home::Home;
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

    let wait = json!({"agentUrl": there.url, "message": "demo::wait {\"seconds\": 60}", "wait": 0});
    let (_, waiting) = post(&here, "/api/a2a/send", wait).await;
    let (status, canceled) = post(&here, "/api/a2a/cancel", json!({"taskId": waiting["id"]})).await;
    assert_eq!((status, &canceled["status"]["state"]), (StatusCode::OK, &json!("cancelled")), "{canceled}");

    let (_, cards) = get(&here, "/api/a2a/cards").await;
    assert_eq!(cards.as_array().expect("cards").len(), 2);
    assert_eq!(cards[0]["url"], format!("{}/a2a/rpc", here.url));
    let (_, card) = get(&here, "/.well-known/agent.json").await;
    assert_eq!(card, cards[0], "the own card is the served one");
}

#[tokio::test]
async fn agents_and_webhooks_on_this_machine_are_refused_unless_they_are_allowed() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let (here, demo) = (Program::command(&arguments).await.0, serve(&[]).await);
    let discover = json!({"url": demo.url});
    let (status, refused) = post(&here, "/api/a2a/discover", discover.clone()).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::BAD_REQUEST, &json!("blocked")));
    let text = refused["error"]["message"].as_str().expect("words");
    assert!(text.contains("`--allow-loopback-agents`"), "{text}");
    assert_eq!(post(&demo, "/api/a2a/discover", discover).await.0, StatusCode::OK, "the demo allows it");

    let webhook = async |program: &Program| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
        let hook = json!({"url": "http://127.0.0.1:9/hook"});
        let params = json!({"message": message, "configuration": {"taskPushNotificationConfig": hook}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let request = Client::new().post(format!("{}/a2a", program.url)).header("A2A-Version", "1.0");
        answer(request.json(&body).send().await).await.1
    };
    let refused = webhook(&here).await.to_string();
    assert!(refused.contains("`--allow-loopback-webhooks`"), "{refused}");
    assert!(webhook(&demo).await["result"]["task"].is_object(), "the demo allows it");
}

#[tokio::test]
async fn where_others_can_connect_the_api_wants_a_token() {
    let open = ["--insecure", "--allowed-host", "*", "--listen", "0.0.0.0:0"];
    let open = [&["serve", "--demo", "--engine-listen", "127.0.0.1:0"][..], &open].concat();
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

const TOKEN: &str = "the token that the other agent wants";

/// A server that requires a token, also for its card.
async fn guarded(home: &Home) -> Program {
    let text = format!(
        "agent: functions\nlisten: 127.0.0.1:0\nengine: {{ listen: 127.0.0.1:0 }}\nfunctions: {{ demo: true }}\n\
         public-card: false\nauth:\n  bearer:\n    - {{ name: here, token: \"{TOKEN}\" }}\n"
    );
    let file = home.file("there.yml", &text);
    Program::command(&["serve", "--config", &file]).await.0
}

/// The settings of a server that shows agents at these addresses a token.
fn showing(entries: &[(&str, &str)]) -> String {
    let entries: String = entries
        .iter()
        .map(|(url, token)| format!("    - {{ url: \"{url}\", bearer: \"{token}\" }}\n"))
        .collect();
    format!(
        "listen: 127.0.0.1:0\nengine: {{ listen: 127.0.0.1:0 }}\nfunctions: {{ demo: true }}\n\
         delegation:\n  allow-loopback: true\n  agents:\n{entries}"
    )
}

#[cfg(unix)]
#[tokio::test]
async fn an_agent_gets_the_token_that_the_file_has_for_it() {
    let home = Home::new();
    let there = guarded(&home).await;
    let file = home.file("here.yml", &showing(&[("https://other.example.com", TOKEN)]));
    let (here, _, mut log) =
        Program::watched(&["serve", "--config", &file], &[("ATTACHE_STORE", "memory:")]).await;
    let task = json!({"agentUrl": there.url, "message": "hello"});
    let (status, refused) = post(&here, "/api/a2a/send", task.clone()).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::BAD_GATEWAY, &json!("agent_denied")));
    let help = format!(
        "the agent at `{0}/.well-known/agent-card.json` requires authentication: list a credential for `{0}` in `delegation.agents`",
        there.url
    );
    assert_eq!(refused["error"]["message"], help);

    home.file("here.yml", &showing(&[(&there.url, TOKEN)]));
    here.hang_up().await;
    let line = log.line_with("read the settings again").await;
    assert!(line.contains("delegation.agents") && !line.contains(TOKEN), "{line}");
    for agent in [there.url.clone(), format!("{}/a2a/rpc", there.url)] {
        let (status, done) =
            post(&here, "/api/a2a/send", json!({"agentUrl": agent, "message": "hello"})).await;
        assert_eq!(status, StatusCode::OK, "{done}");
    }
    let (status, found) = post(&here, "/api/a2a/discover", json!({"url": there.url})).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let (_, cards) = get(&here, "/api/a2a/cards").await;
    assert!(!format!("{found}{cards}").contains(TOKEN));
}

#[tokio::test]
async fn what_other_agents_are_shown_is_shown_to_nobody_else() {
    let home = Home::new();
    let file = home.file("here.yml", &showing(&[("https://other.example.com", TOKEN)]));
    let ran = home.run(&["config", "show", "--config", &file]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let line =
        ran.stdout.lines().find(|line| line.starts_with("delegation.agents[0].bearer")).expect("it is shown");
    assert!(line.contains("********") && !ran.stdout.contains(TOKEN), "{line}");
    let file = home.file("here.yml", &showing(&[("http://other.example.com", TOKEN)]));
    let ran = home.run(&["config", "check", "--config", &file]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(
        ran.stderr.contains("`delegation.agents[0].url`: `http://other.example.com` is not an address"),
        "{ran}"
    );
    assert!(!ran.stderr.contains(TOKEN), "{ran}");
}

#[tokio::test]
async fn the_functions_of_an_agent_that_wants_a_token_are_imported_with_the_one_for_it() {
    let home = Home::new();
    let there = guarded(&home).await;
    let file = home.file("here.yml", &showing(&[(&there.url, TOKEN)]));
    let arguments = ["serve", "--config", &file, "--connect", &there.url];
    let (_here, said, mut log) = Program::watched(&arguments, &[("ATTACHE_STORE", "memory:")]).await;
    // It may be told before or after where the server listens.
    let line = said.lines().find(|line| line.contains("remote agent")).map(str::to_owned);
    let line = match line {
        Some(line) => line,
        None => log.line_with("remote agent").await,
    };
    assert!(line.contains("importing the skills of a remote agent"), "{line}");
}

#[tokio::test]
async fn a_question_of_an_agent_is_answered_in_the_same_task() {
    let (here, tables) =
        (serve(&["--allow-loopback-agents"]).await, Program::example("multi_turn", &[]).await);
    let settled = async |task: Value| {
        let id = task["id"].as_str().expect("an id").to_owned();
        let path = format!("/api/a2a/task?taskId={id}");
        crate::support::until("the agent has said something", async || {
            !matches!(get(&here, &path).await.1["status"]["state"].as_str(), Some("submitted" | "working"))
        })
        .await;
        get(&here, &path).await.1
    };
    let said =
        |task: &Value| task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
    let (_, sent) =
        post(&here, "/api/a2a/send", json!({"agentUrl": tables.url, "message": "a table please"})).await;
    let asked = settled(sent).await;
    assert_eq!(said(&asked), "For how many people?");
    let (_, sent) = post(&here, "/api/a2a/send", json!({"taskId": asked["id"], "message": "4"})).await;
    let asked = settled(sent).await;
    assert_eq!(
        (said(&asked).as_str(), &asked["status"]["state"]),
        ("At what time?", &json!("input-required"))
    );
    let (_, sent) = post(&here, "/api/a2a/send", json!({"taskId": asked["id"], "message": "19:00"})).await;
    let done = settled(sent).await;
    assert_eq!((said(&done).as_str(), &done["id"]), ("A table for 4 at 19:00.", &asked["id"]));
    let (status, refused) =
        post(&here, "/api/a2a/send", json!({"taskId": done["id"], "message": "more"})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["error"]["message"], "Cannot continue task in state: completed");
}
