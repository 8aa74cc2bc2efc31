//! Several agents on one server, from one settings file.
#![cfg(unix)]

use std::path::Path;

use serde_json::{Value, json};

use crate::home::Home;
use crate::model;
use crate::support::{Program, free_address, until};

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
    for metadata in [json!({"agent": "private"}), json!({"skill": "private/echo"}), json!({"skill": "echo"})]
    {
        let refused = send(&root, "hi", metadata.clone()).await;
        assert!(refused.get("result").is_none(), "{metadata}: {refused}");
    }
    let card = home.run(&["card", url]).await;
    assert!(card.stdout.contains("greeter/") && !card.stdout.contains("private"), "{card}");

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

const ALICE: &str = "the-token-of-alice-is-long";
const BOB: &str = "the-token-of-bob-is-longer";

/// An agent for one caller at the root, and another one for the callers of the server, who are not the same.
fn private_at_the_root(token: &str, limits: &str) -> String {
    format!(
        r#"
listen: 127.0.0.1:0
store: memory
agent: private
agents:
  private:
    echo: true
    auth: {{ bearer: [{{ name: alice, token: {token} }}] }}
    limits: {{ {limits} }}
  other: {{ echo: true }}
auth: {{ basic: [{{ name: bob, password: {BOB} }}] }}
"#
    )
}

/// The status of a message with these credentials, over JSON-RPC.
async fn status(url: &str, authorization: &str) -> u16 {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message":
        {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}});
    let request = reqwest::Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0").json(&body);
    let response = request.header("Authorization", authorization).send().await.expect("the server answers");
    response.status().as_u16()
}

/// The header of Bob, who has a password.
fn bob() -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("bob:{BOB}")))
}

#[tokio::test]
async fn a_named_agent_at_the_root_lets_in_its_own_callers_only() {
    let home = Home::new();
    let file = home.file("attache.yml", &private_at_the_root(ALICE, ""));
    let (server, said) = Program::command(&["serve", "--config", &file]).await;
    assert!(said.contains("alice (bearer)") && !said.contains("bob"), "{said}");
    let (root, other) = (server.url.clone(), format!("{}/agents/other", server.url));
    for binding in ["jsonrpc", "http-json", "grpc"] {
        let send = async |credentials: &[&str]| {
            home.run(&[&["send", &root, "hi", "--binding", binding], credentials].concat()).await
        };
        let ran = send(&["--token", ALICE]).await;
        assert!(ran.code == Some(0) && ran.stdout == "hi\n", "{binding}: {ran}");
        for credentials in [&[][..], &["--token", "the-token-of-nobody-at-all"]] {
            let ran = send(credentials).await;
            assert_eq!(ran.code, Some(4), "{binding} {credentials:?}: {ran}");
        }
    }
    let (alice, bob) = (format!("Bearer {ALICE}"), bob());
    let each = [(&root, &alice, 200), (&root, &bob, 401), (&other, &alice, 401), (&other, &bob, 200)];
    for (url, credentials, expected) in each {
        assert_eq!(status(url, credentials).await, expected, "{url} {credentials}");
    }
    for (url, expected) in [(&root, "bearerAuth"), (&other, "basicAuth")] {
        let card = reqwest::get(format!("{url}/.well-known/agent-card.json")).await.unwrap();
        let card: Value = card.json().await.unwrap();
        let schemes = card["securitySchemes"].as_object().cloned().unwrap_or_default();
        assert_eq!(schemes.keys().collect::<Vec<_>>(), [expected], "{card}");
    }
}

#[tokio::test]
async fn a_named_agent_at_the_root_has_its_own_limits() {
    let home = Home::new();
    let file = home.file("attache.yml", &private_at_the_root(ALICE, "requests-per-second: 1, burst: 2"));
    let (server, _) = Program::command(&["serve", "--config", &file]).await;
    let (alice, bob) = (format!("Bearer {ALICE}"), bob());
    until("alice is at her limit", async || status(&server.url, &alice).await == 429).await;
    let other = format!("{}/agents/other", server.url);
    for _ in 0..5 {
        assert_eq!(status(&other, &bob).await, 200);
    }
    // A reload changes the limits of the agent, at the root too.
    home.file("attache.yml", &private_at_the_root(ALICE, "requests-per-second: 1000"));
    server.hang_up().await;
    until("alice has other limits", async || {
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(status(&server.url, &alice).await);
        }
        all == [200; 5]
    })
    .await;
}

#[tokio::test]
async fn a_reload_changes_the_callers_of_the_agent_at_the_root_and_never_weakens_them() {
    let home = Home::new();
    let settings = |auth: &str| {
        format!(
            "listen: 127.0.0.1:0\nstore: memory\nagent: private\nagents:\n  private: {{ echo: true{auth} }}\n  other: {{ echo: true }}\n"
        )
    };
    let auth = |token: &str| format!(", auth: {{ bearer: [{{ name: alice, token: {token} }}] }}");
    let file = home.file("attache.yml", &settings(&auth(ALICE)));
    let (server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let (old, new) = (format!("Bearer {ALICE}"), "Bearer another-token-of-alice".to_owned());
    assert_eq!(status(&server.url, &old).await, 200);
    home.file("attache.yml", &settings(&auth("another-token-of-alice")));
    server.hang_up().await;
    until("the new token is known", async || status(&server.url, &new).await == 200).await;
    assert_eq!(status(&server.url, &old).await, 401);
    // Without `auth`, the agent would have the callers of the server, which does not authenticate any.
    home.file("attache.yml", &settings(""));
    server.hang_up().await;
    log.line_with("callers of the agent `private` would no longer be authenticated").await;
    assert_eq!(status(&server.url, &old).await, 401);
    // Another agent at the root needs a restart. Until then the old one stays there, with its callers, also if it is removed.
    let other = "listen: 127.0.0.1:0\nstore: memory\nagent: other\nagents: { other: { echo: true } }\n";
    home.file("attache.yml", other);
    server.hang_up().await;
    log.line_with("removed an agent").await;
    log.line_with("these settings need a restart").await;
    assert_eq!((status(&server.url, "").await, status(&server.url, &new).await), (401, 200));
    home.file("attache.yml", &settings(""));
    server.hang_up().await;
    log.line_with("callers of the agent `private` would no longer be authenticated").await;
}

#[tokio::test]
async fn a_router_loses_an_agent_that_gets_callers_of_its_own() {
    let home = Home::new();
    let settings = |kind: &str, default: &str, auth: &str| {
        format!(
            "listen: 127.0.0.1:0\nstore: memory\nagent: {kind}\nrouter: {{ default: {default} }}\nagents:\n  one: {{ echo: true{auth} }}\n  two: {{ echo: true }}\n"
        )
    };
    let auth = format!(", auth: {{ bearer: [{{ name: alice, token: {ALICE} }}] }}");
    let file = home.file("attache.yml", &settings("router", "one", ""));
    let (server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let root = format!("{}/a2a", server.url);
    assert_eq!(answer(&send(&root, "hi", json!({})).await), "hi");
    // The router at the root goes on with its settings, although the file has another agent for the root.
    for kind in ["router", "two"] {
        home.file("attache.yml", &settings(kind, "one", &auth));
        server.hang_up().await;
        let line = log.line_with("the settings stay as they were").await;
        assert!(line.contains("the agent `one` has `auth` of its own"), "{kind}: {line}");
        assert_eq!(answer(&send(&root, "hi", json!({"agent": "one"})).await), "hi");
    }
    home.file("attache.yml", &settings("router", "two", &auth));
    server.hang_up().await;
    until("the router has lost the agent", async || {
        send(&root, "hi", json!({"agent": "one"})).await.get("result").is_none()
    })
    .await;
    assert_eq!(answer(&send(&root, "hi", json!({})).await), "hi");
}

#[tokio::test]
async fn settings_that_would_open_an_agent_or_have_no_effect_are_refused_at_the_start() {
    let home = Home::new();
    let private =
        format!("private: {{ echo: true, auth: {{ bearer: [{{ name: alice, token: {ALICE} }}] }} }}");
    let sampling = |url: &str, rest: &str| {
        format!("agent: mcp\nmcp: {{ command: cat, sampling: {{ url: '{url}', name: x, {rest} }} }}")
    };
    let here = "http://127.0.0.1:9";
    let model = |url: &str| {
        format!("agent: echo\nagents: {{ m: {{ model: {{ url: '{url}', name: x, key: secret }} }} }}")
    };
    let router = |rest: &str| {
        format!("agent: router\nrouter: {{ {rest} }}\nagents: {{ one: {{ echo: true }}, {private} }}")
    };
    let of_its_own = "the agent `private` has `auth` of its own";
    let in_transit = "without TLS it could be read in transit";
    for (text, expected) in [
        (router("default: private"), of_its_own),
        (router("rules: [{ agent: private, keywords: [x] }]"), of_its_own),
        (
            format!("agent: echo\nagents: {{ {private}, r: {{ router: {{ default: private }} }} }}"),
            of_its_own,
        ),
        (format!("agent: router\nagents: {{ {private} }}"), "there are no agents to pass messages to"),
        ("agent: echo\nagents:\n  open:\n    echo: true\n    auth:\n".to_owned(), "agents.open.auth"),
        (sampling(here, "tools: [functions]"), "`sampling.tools` has no effect"),
        (sampling(here, "budget: { tokens: 5 }"), "`sampling.budget` has no effect"),
        (sampling(here, "images: true"), "`sampling.images` has no effect"),
        (sampling("http://192.0.2.1", "key: secret"), in_transit),
        (
            format!("agent: mcp\nmcp: {{ url: '{here}', token: one, token-file: two }}"),
            "there is both a `token` and a `token-file`",
        ),
        (model("http://192.0.2.1/v1"), in_transit),
        (model("http://models.example.com/v1?version=1"), in_transit),
    ] {
        let file = home.file("attache.yml", &format!("{text}\n"));
        let checked = home.run(&["config", "check", "--config", &file]).await;
        assert!(checked.code == Some(2) && checked.stderr.contains(expected), "{text}: {checked}");
    }
    for url in ["http://127.0.0.1:9/v1", "http://localhost:9", "https://models.example.com/v1?version=1"] {
        let file = home.file("attache.yml", &format!("{}\n", model(url)));
        let checked = home.run(&["config", "check", "--config", &file]).await;
        assert_eq!(checked.code, Some(0), "{url}: {checked}");
    }
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

/// The folder of the examples.
fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents").display().to_string()
}

/// Whether there is Python. If not, the test counts as skipped.
fn has_python(test: &str) -> bool {
    crate::programs::has_python(&format!("agents::{test}"))
}

#[tokio::test]
async fn the_example_of_three_agents_routes_by_words() {
    if !has_python("the_example_of_three_agents_routes_by_words") {
        return;
    }
    let folder = examples();
    let arguments = ["serve", "--config", "three_agents.yml", "--listen", "127.0.0.1:0", "--store", "memory"];
    let (server, _) = Program::command_in(&folder, &arguments, &[]).await;
    let root = format!("{}/a2a", server.url);
    assert_eq!(answer(&send(&root, "to be or not to be", json!({})).await), "6 words, 4 different ones\n");
    let asked = send(&root, "a table please", json!({})).await;
    assert_eq!(asked["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let converted = send(&root, r#"convert {"value": 10, "from": "km", "to": "mi"}"#, json!({})).await;
    assert!(answer(&converted).contains("6.21"), "{converted}");
}

#[tokio::test]
async fn the_example_of_a_model_with_tools_calls_them() {
    if !has_python("the_example_of_a_model_with_tools_calls_them") {
        return;
    }
    let (folder, model) = (examples(), model::start().await);
    let environment = [("MODEL_URL", model.as_str()), ("MODEL_NAME", "small"), ("MODEL_KEY", model::KEY)];
    let arguments =
        ["serve", "--config", "model_with_tools.yml", "--listen", "127.0.0.1:0", "--store", "memory"];
    let (server, _) = Program::command_in(&folder, &arguments, &environment).await;
    let root = format!("{}/a2a", server.url);
    let converted = send(&root, r#"call convert {"value": 10, "from": "km", "to": "mi"}"#, json!({})).await;
    assert!(answer(&converted).contains("6.21"), "{converted}");
    let counted = send(&root, r#"call ask_words {"message": "to be or not"}"#, json!({})).await;
    assert!(answer(&counted).contains("4 words"), "{counted}");
}

#[tokio::test]
async fn an_mcp_server_is_served_with_one_flag() {
    if !has_python("an_mcp_server_is_served_with_one_flag") {
        return;
    }
    let command = format!("python3 {}/units.py", examples());
    let arguments = ["serve", "--mcp", &command, "--listen", "127.0.0.1:0", "--store", "memory"];
    let (server, _) = Program::command(&arguments).await;
    let home = Home::new();
    let skill = ["send", &server.url, "--skill", "convert", r#"{"value": 10, "from": "km", "to": "mi"}"#];
    let sent = home.run(&skill).await;
    assert!(sent.stdout.contains("6.21"), "{sent}");
    let card = home.run(&["card", &server.url]).await;
    assert!(card.stdout.contains("convert"), "{card}");
}

#[tokio::test]
async fn a_coding_agent_is_served_with_one_flag() {
    if !has_python("a_coding_agent_is_served_with_one_flag") {
        return;
    }
    let home = Home::new();
    let workspace = home.path("").display().to_string();
    let command = format!("python3 {}/note_taker.py", examples());
    let arguments = [
        "serve",
        "--acp",
        &command,
        "--workspace",
        &workspace,
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory",
    ];
    let (server, _) = Program::command(&arguments).await;
    let asked = send(&format!("{}/a2a", server.url), "buy milk", json!({})).await;
    let task = &asked["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let message =
        json!({"messageId": "y", "role": "ROLE_USER", "parts": [{"text": "yes"}], "taskId": task["id"]});
    let done = server.call("SendMessage", json!({"message": message})).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    let missing = home.run(&["serve", "--acp", &command, "--workspace", "/nowhere/at/all"]).await;
    assert!(missing.stderr.contains("`/nowhere/at/all` is not a directory"), "{missing}");
}

#[tokio::test]
async fn a_remote_agent_is_served_with_one_flag_and_the_task_is_kept_here() {
    let (remote, _) =
        Program::command(&["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--store", "memory"]).await;
    let arguments = ["serve", "--remote", &remote.url, "--listen", "127.0.0.1:0", "--store", "memory"];
    let (server, _) = Program::command(&arguments).await;
    let sent = send(&format!("{}/a2a", server.url), "hello", json!({})).await;
    assert_eq!(answer(&sent), "hello", "{sent}");
    let id = sent["result"]["task"]["id"].clone();
    remote.kill().await;
    let kept = server.call("GetTask", json!({"id": id})).await;
    assert_eq!(kept["status"]["state"], "TASK_STATE_COMPLETED", "{kept}");
    let home = Home::new();
    let gone = home.run(&["serve", "--remote", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("cannot connect to the remote agent"), "{gone}");
}

#[tokio::test]
async fn a_named_agent_that_is_down_keeps_no_others_from_starting_and_answers_when_it_is_up() {
    let (home, address) = (Home::new(), free_address());
    let settings = format!(
        "listen: 127.0.0.1:0\nstore: memory\nagent: near\nagents:\n  near: {{ echo: true }}\n  far: {{ remote: {{ url: \"http://{address}\" }} }}\n"
    );
    let file = home.file("attache.yml", &settings);
    let (server, said, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    assert!(said.contains("an agent is not available"), "{said}");
    let (near, far) = (format!("{}/a2a", server.url), format!("{}/agents/far/a2a", server.url));
    assert_eq!(answer(&send(&near, "hello", json!({})).await), "hello");
    let refused = send(&far, "hello", json!({})).await;
    assert_eq!(refused["error"]["code"], -32054, "{refused}");
    let echo = ["serve", "--agent", "echo", "--listen", &address, "--store", "memory"];
    let (_remote, _) = Program::command(&echo).await;
    log.line_with("an agent is connected").await;
    assert_eq!(answer(&send(&far, "hello", json!({})).await), "hello");
}

#[cfg(unix)]
#[tokio::test]
async fn a_remote_agent_can_be_reached_over_every_transport() {
    let home = Home::new();
    let socket = home.path("agent.sock").display().to_string();
    let echo = ["serve", "--agent", "echo", "--store", "memory", "--log-requests", "true"];
    let listen = ["--listen", "127.0.0.1:0", "--listen", &format!("unix:{socket}")];
    let (remote, _, mut log) = Program::watched(&[&echo[..], &listen[..]].concat(), &[]).await;
    let command =
        format!("stdio:{} serve --agent echo --stdio --store memory", env!("CARGO_BIN_EXE_attache"));
    // The text names the socket too.
    let authority = remote.url.trim_start_matches("http://").split(' ').next().unwrap_or_default();
    for (settings, binding) in [
        (format!("url: unix:{socket}"), Some("JSONRPC-LINES")),
        (format!("url: ws://{authority}/ws"), Some("JSONRPC-WEBSOCKET")),
        (format!("url: grpc-jsonrpc://{authority}"), Some("JSONRPC-GRPC")),
        (format!("url: http://{authority}\n  prefer: [redis-streams, websocket]"), Some("JSONRPC-WEBSOCKET")),
        (format!("url: \"{command}\""), None),
    ] {
        let settings = format!("listen: 127.0.0.1:0\nstore: memory\nremote:\n  {settings}\n");
        let file = home.file("attache.yml", &settings);
        let (server, _) = Program::command(&["serve", "--config", &file]).await;
        let sent = send(&format!("{}/a2a", server.url), "hello", json!({})).await;
        assert_eq!(answer(&sent), "hello", "{settings}: {sent}");
        if let Some(binding) = binding {
            log.line_with(&format!("binding=\"{binding}\" operation=\"SendStreamingMessage\"")).await;
        }
        assert!(server.stop().await.success(), "{settings}");
    }
    let wrong = home.run(&["serve", "--remote", "ftp://127.0.0.1:9"]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("is not the address of an agent"), "{wrong}");
}

#[tokio::test]
async fn a_budget_holds_after_a_restart_and_for_each_caller() {
    let home = Home::new();
    let settings = format!(
        r#"
listen: 127.0.0.1:0
model: {{ url: {model}, name: small, key: {key}, budget: {{ tokens: 20, per: 1000d }} }}
auth: {{ bearer: [{{ name: alice, token: the-token-of-alice-is-long }}, {{ name: bob, token: the-token-of-bob-is-longer }}] }}
"#,
        model = model::start().await,
        key = model::KEY
    );
    let file = home.file("attache.yml", &settings);
    let send = async |url: &str, token: &str| {
        home.run(&["send", url, "a long text, more than enough", "--token", token]).await
    };
    // The environment of the tests names another store.
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let keyring = home.path("keyring.json").display().to_string();
    let arguments = ["serve", "--config", &file, "--store", &store, "--keyring", &keyring];
    let (server, _) = Program::command(&arguments).await;
    let first = send(&server.url, "the-token-of-alice-is-long").await;
    assert_eq!(first.code, Some(0), "{first}");
    let refused = send(&server.url, "the-token-of-alice-is-long").await;
    assert!(
        refused.stderr.contains("your budget for this agent is used up (20 tokens in 1000 d)"),
        "{refused}"
    );
    let other = send(&server.url, "the-token-of-bob-is-longer").await;
    assert_eq!(other.code, Some(0), "{other}");
    server.kill().await;
    let (server, _) = Program::command(&arguments).await;
    let refused = send(&server.url, "the-token-of-alice-is-long").await;
    assert!(
        refused.stderr.contains("your budget for this agent is used up (20 tokens in 1000 d)"),
        "{refused}"
    );
    let wrong = home.file("wrong.yml", "program: { command: cat, budget: { tokens: 5 } }");
    let checked = home.run(&["config", "check", "--config", &wrong]).await;
    assert!(checked.stderr.contains("a program uses no tokens"), "{checked}");
}

#[cfg(unix)]
#[tokio::test]
async fn the_first_named_agent_needs_a_restart_and_the_log_says_that() {
    let home = Home::new();
    let file = home.file("attache.yml", "listen: 127.0.0.1:0\nagent: echo\n");
    let (server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    home.file("attache.yml", "listen: 127.0.0.1:0\nagent: echo\nagents: { one: { echo: true } }\n");
    server.hang_up().await;
    log.line_with("the first named agents need a restart").await;
    assert_eq!(reqwest::get(format!("{}/agents", server.url)).await.unwrap().status(), 404);
}
