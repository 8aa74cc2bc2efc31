//! Several agents on one server, from one settings file.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::home::Home;
use crate::model;
use crate::support::{Program, until};

/// A program that says its name, a model, an agent for alice only, and a router to the first two at the root.
fn settings(model: &str, greeting: &str) -> String {
    format!(
        r#"
listen: 127.0.0.1:0
store: memory
agent: router
router:
  default: chat
  rules: [{{ agent: greeter, keywords: [hello] }}]
agents:
  greeter:
    program: {{ command: [/bin/sh, -c, 'echo "{greeting}"'] }}
    card: {{ name: The Greeter, description: Greets people }}
  chat:
    model: {{ url: {model}, name: small, key: {key} }}
  private:
    echo: true
    auth: {{ bearer: [{{ name: alice, token: the-token-of-alice-is-long }}] }}
"#,
        key = model::KEY
    )
}

async fn send(url: &str, text: &str, metadata: Value) -> Value {
    let message =
        json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], "metadata": metadata});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = reqwest::Client::new().post(url).header("A2A-Version", "1.0").json(&body);
    request.send().await.expect("the server answers").json().await.unwrap_or_default()
}

fn answer(response: &Value) -> String {
    let parts = response["result"]["task"]["artifacts"][0]["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn one_file_has_agents_of_several_kinds_and_a_router_in_front_of_them() {
    let home = Home::new();
    let file = home.file("attache.yml", &settings(&model::start().await, "good morning"));
    let (server, said) = Program::command(&["serve", "--config", &file]).await;
    let url = &server.url;
    assert!(said.contains(&format!("{url}/agents/greeter")), "{said}");
    let root = format!("{url}/a2a");
    assert_eq!(answer(&send(&root, "Hello there", json!({})).await), "good morning\n");
    assert_eq!(answer(&send(&root, "what now?", json!({})).await), "user: what now?");
    assert_eq!(answer(&send(&root, "what now?", json!({"agent": "greeter"})).await), "good morning\n");
    assert_eq!(answer(&send(&format!("{url}/agents/chat/a2a"), "hi", json!({})).await), "user: hi");
    let refused = send(&format!("{url}/agents/private/a2a"), "hi", json!({})).await;
    assert!(refused.get("result").is_none(), "{refused}");

    let listed = home.run(&["agents", "import", url, "--prefix", "our-"]).await;
    assert_eq!(listed.code, Some(0), "{listed}");
    let card = home.run(&["card", "our-greeter"]).await;
    assert!(card.stdout.contains("The Greeter"), "{card}");
    let sent = home.run(&["send", "our-greeter", "hi"]).await;
    assert_eq!(sent.stdout, "good morning\n", "{sent}");
    let alice = ["send", "our-private", "hi", "--token", "the-token-of-alice-is-long"];
    assert_eq!(home.run(&alice).await.stdout, "hi\n");
    let again = home.run(&["agents", "import", url, "--prefix", "our-"]).await;
    assert!(again.stderr.contains("there are no new agents"), "{again}");
}

#[tokio::test]
async fn a_reload_adds_changes_and_removes_agents_and_follows_at_the_root() {
    let home = Home::new();
    let model = model::start().await;
    let file = home.file("attache.yml", &settings(&model, "good morning"));
    let (server, _) = Program::command(&["serve", "--config", &file]).await;
    let greeter = format!("{}/agents/greeter/a2a", server.url);
    let new = format!("{}/agents/new/a2a", server.url);
    let private = format!("{}/agents/private/.well-known/agent-card.json", server.url);
    let changed = settings(&model, "good evening")
        .replace("private:", "new:")
        .replace("    auth: { bearer: [{ name: alice, token: the-token-of-alice-is-long }] }\n", "");
    home.file("attache.yml", &changed);
    server.hang_up().await;
    until("the greeter has changed", async || {
        answer(&send(&greeter, "hi", json!({})).await) == "good evening\n"
    })
    .await;
    assert_eq!(answer(&send(&format!("{}/a2a", server.url), "hello", json!({})).await), "good evening\n");
    assert_eq!(answer(&send(&new, "hi", json!({})).await), "hi");
    assert_eq!(reqwest::get(&private).await.unwrap().status(), 404);
    // A file with an error changes nothing.
    home.file("attache.yml", &changed.replace("echo: true", "program: {}"));
    server.hang_up().await;
    home.file("attache.yml", &changed.replace("good evening", "good night"));
    server.hang_up().await;
    until("the greeter has changed", async || {
        answer(&send(&greeter, "hi", json!({})).await) == "good night\n"
    })
    .await;
    assert_eq!(answer(&send(&new, "hi", json!({})).await), "hi");
}

#[tokio::test]
async fn a_named_agent_can_be_at_the_root() {
    let home = Home::new();
    let file = home.file("attache.yml", &settings(&model::start().await, "good morning"));
    let arguments = ["serve", "--config", &file, "--agent", "greeter"];
    let (server, _) = Program::command(&arguments).await;
    assert_eq!(answer(&send(&format!("{}/a2a", server.url), "hi", json!({})).await), "good morning\n");
    let card = home.run(&["card", &server.url]).await;
    assert!(card.stdout.contains("The Greeter"), "{card}");
}

#[tokio::test]
async fn errors_of_named_agents_are_all_reported_with_their_lines() {
    let home = Home::new();
    let file = home.file(
        "attache.yml",
        "agent: nothing\nagents:\n  echo: { echo: true }\n  a b: { echo: true }\n  empty: {}\n  two: { echo: true, program: { command: cat } }\n  lost: { router: { default: nowhere } }\n  mute: { model: { url: 'http://127.0.0.1:9' } }\n  wide: { echo: true, limits: { body: 1MiB } }\n  open: { echo: true, auth: {} }\n",
    );
    let checked = home.run(&["config", "check", "--config", &file]).await;
    insta::assert_snapshot!("named_agents", checked.to_string().replace(&file, "FILE"));
}

#[tokio::test]
async fn a_model_calls_functions_and_other_agents_in_the_name_of_its_caller() {
    let home = Home::new();
    let model = model::start().await;
    let settings = format!(
        r#"
listen: 127.0.0.1:0
store: memory
engine: {{ listen: 127.0.0.1:0 }}
agents:
  greeter: {{ program: {{ command: [/bin/sh, -c, 'echo "hello $ATTACHE_CALLER"'] }} }}
  chat: {{ model: {{ url: {model}, name: small, key: {key}, tools: [agent:greeter, functions] }} }}
auth: {{ bearer: [{{ name: alice, token: the-token-of-alice-is-long }}] }}
"#,
        key = model::KEY
    );
    let file = home.file("attache.yml", &settings);
    let (server, _) = Program::command(&["serve", "--demo", "--config", &file]).await;
    let chat = format!("{}/agents/chat", server.url);
    let ask =
        async |text: &str| home.run(&["send", &chat, text, "--token", "the-token-of-alice-is-long"]).await;
    let tools = ask("tools").await;
    assert!(tools.stdout.contains("ask_greeter") && tools.stdout.contains("pricing__quote"), "{tools}");
    let greeted = ask(r#"call ask_greeter {"message": "hi"}"#).await;
    assert!(greeted.stdout.contains("tool: hello alice"), "{greeted}");
    let quoted = ask(r#"call pricing__quote {"sku": "A-1"}"#).await;
    assert!(quoted.stdout.contains("A-1"), "{quoted}");
    let wrong = ask(r#"call pricing__quote {"sku": 7}"#).await;
    assert!(wrong.stdout.contains("error:"), "{wrong}");
}

#[tokio::test]
async fn tools_that_do_not_exist_are_refused_at_the_start() {
    let home = Home::new();
    for (tools, expected) in [
        ("[mcp:files]", "needs an agent `files` with a section `mcp`"),
        ("[agent:nothing]", "needs an agent `nothing`"),
        ("[agent:loop]", "is an agent that calls other agents itself"),
        ("[functions]", "needs `agent: functions`"),
        ("[everything]", "expected `mcp:NAME`, `agent:NAME` or `functions`"),
    ] {
        let text = format!(
            "agent: echo\nagents:\n  loop: {{ model: {{ url: 'http://127.0.0.1:9', name: x, tools: [agent:chat] }} }}\n  chat: {{ model: {{ url: 'http://127.0.0.1:9', name: x, tools: {tools} }} }}\n"
        );
        let file = home.file("attache.yml", &text);
        let checked = home.run(&["config", "check", "--config", &file]).await;
        assert!(checked.code == Some(2) && checked.stderr.contains(expected), "{tools}: {checked}");
    }
}
