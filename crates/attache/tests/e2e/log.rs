//! What the operator sees in the log, and what the operator says about the agent.

use reqwest::Client;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::Program;

const TOKEN: &str = "the token of alice, who may come in";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const SERVER: &str = r#"
listen: 127.0.0.1:0
agent: echo
store: "memory:"
auth:
  bearer:
    - { name: alice, token: "the token of alice, who may come in" }
"#;

/// Sends text that only the agent should see.
async fn send(url: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "s3cret words"}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = Client::new().post(format!("{url}/a2a?key=s3cret")).bearer_auth(TOKEN);
    let request = request.header("A2A-Version", "1.0").header("traceparent", TRACE).json(&body);
    let reply = request.send().await.expect("the server answers").json::<Value>().await.expect("JSON");
    reply["result"]["task"].clone()
}

#[tokio::test]
async fn requests_and_turns_are_lines_of_json_without_what_was_said() {
    let home = Home::new();
    let file = home.file("some.yml", &format!("log: {{ filter: info, format: json }}\n{SERVER}"));
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let task = send(&program.url).await;
    let turn = log.line_with("attache::turn").await;
    let request = log.line_with("attache::request").await;
    for line in [&turn, &request] {
        assert!(!line.contains("s3cret") && !line.contains(TOKEN), "{line}");
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        assert_eq!((&line["caller"], &line["task"]), (&json!("alice"), &task["id"]), "{line}");
        assert_eq!((&line["level"], &line["traceparent"]), (&json!("INFO"), &json!(TRACE)), "{line}");
        assert!(line["duration_ms"].is_f64(), "{line}");
    }
    let turn: Value = serde_json::from_str(&turn).expect("a line is JSON");
    assert_eq!((&turn["agent"], &turn["outcome"]), (&json!("Echo"), &json!("completed")));
    let request: Value = serde_json::from_str(&request).expect("a line is JSON");
    assert_eq!(
        (&request["binding"], &request["operation"], &request["status"], &request["state"]),
        (&json!("JSONRPC"), &json!("SendMessage"), &json!(200), &json!("completed"))
    );
}

#[cfg(unix)]
#[tokio::test]
async fn the_log_is_appended_to_a_file_that_only_its_owner_can_read() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    let path = home.path("server.log");
    let file = home.file("some.yml", &format!("log: {{ file: \"{}\" }}\n{SERVER}", path.display()));
    for lines in [1, 2] {
        let (program, said) = Program::command(&["serve", "--config", &file]).await;
        assert!(!said.contains("INFO"), "{said}");
        send(&program.url).await;
        assert!(program.stop().await.success());
        let log = std::fs::read_to_string(&path).expect("there is a log");
        assert_eq!(log.matches("attache::turn").count(), lines, "{log}");
        assert!(!log.contains('\u{1b}'), "there are no colours in a file: {log}");
    }
    let mode = std::fs::metadata(&path).expect("there is a log").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let missing = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--log-file", "/nowhere/a.log"];
    let refused = home.run(&missing).await;
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("cannot open the log file `/nowhere/a.log`"), "{refused}");
}

#[cfg(unix)]
#[tokio::test]
async fn which_requests_are_logged_changes_at_once() {
    let home = Home::new();
    let file = home.file("some.yml", &format!("log: {{ requests: slower-than 1h }}\n{SERVER}"));
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    send(&program.url).await;
    home.file("some.yml", &format!("log: {{ requests: true }}\n{SERVER}"));
    program.hang_up().await;
    let line = log.line_with("read the settings again").await;
    assert!(line.contains("changed=\"log.requests\""), "{line}");
    let task = send(&program.url).await;
    // The first line is that of the second request.
    let line = log.line_with("attache::request").await;
    assert!(line.contains(task["id"].as_str().expect("an id")), "{line}");
}

#[tokio::test]
async fn the_operator_describes_the_agent_in_the_file() {
    let home = Home::new();
    let card = r#"
card:
  name: Travel desk
  version: 2.1.0
  provider: Example Travel
  icon-url: https://example.com/icon.png
  input-modes: [text/plain]
  skills:
    - { id: echo, description: Says it again }
    - { id: trips, name: Trips, tags: [travel] }
  schemes: { bearer: token }
  grpc: hidden
"#;
    let file = home.file("some.yml", &format!("{SERVER}{card}"));
    let (program, ..) = Program::watched(&["serve", "--config", &file], &[]).await;
    let read = |request: reqwest::RequestBuilder| async {
        let request = request.header("A2A-Version", "1.0");
        request.send().await.expect("the server answers").json::<Value>().await.expect("JSON")
    };
    let url = format!("{}/.well-known/agent-card.json", program.url);
    let public = read(Client::new().get(url)).await;
    let extended =
        read(Client::new().get(format!("{}/v1/extendedAgentCard", program.url)).bearer_auth(TOKEN));
    let extended = extended.await;
    for card in [&public, &extended] {
        assert_eq!(card["name"], "Travel desk");
        assert_eq!(
            (&card["version"], &card["iconUrl"]),
            (&json!("2.1.0"), &json!("https://example.com/icon.png"))
        );
        assert_eq!(card["provider"]["organization"], "Example Travel");
        assert_eq!(
            (&card["defaultInputModes"], &card["defaultOutputModes"]),
            (&json!(["text/plain"]), &json!(["*/*"]))
        );
        assert_eq!(
            (&card["skills"][0]["name"], &card["skills"][0]["description"]),
            (&json!("Echo"), &json!("Says it again"))
        );
        assert_eq!(card["skills"][1]["name"], "Trips");
        assert!(card["securitySchemes"]["token"].is_object(), "{card}");
        assert!(!card["supportedInterfaces"].to_string().contains("GRPC"), "{card}");
    }
    assert!(!public.to_string().contains("runtime"), "{public}");
    let runtime = &extended["capabilities"]["extensions"][0];
    assert_eq!(
        (&runtime["uri"], &runtime["params"]["store"]),
        (&json!("urn:attache:extension:runtime:v1"), &json!("memory"))
    );
}

#[tokio::test]
async fn a_wrong_setting_of_the_card_or_the_log_is_named_with_its_line() {
    let home = Home::new();
    for (text, said) in [
        ("card:\n  schemes: { basic: bearerAuth }\n", "two kinds of schemes are called `bearerAuth`"),
        ("card:\n  skills: [{ id: a }, { id: a }]\n", "expected an id that no other skill in this list has"),
        ("log:\n  requests: slower\n", "expected `true`, `false` or a time such as `slower-than 1s`"),
        ("log:\n  format: yaml\n", "yaml"),
    ] {
        let file = home.file("some.yml", text);
        let ran = home.run(&["config", "check", "--config", &file]).await.to_string();
        assert!(ran.contains(said) && ran.contains("some.yml:2:"), "{ran}");
    }
}
