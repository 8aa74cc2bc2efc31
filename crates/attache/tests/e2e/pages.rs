//! Web pages against the command as a user starts it, on this machine and without credentials.

use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Invocation, Worker, WorkerOptions};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::home::Home;
use crate::support::{Program, until};

const SERVE: [&str; 6] = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
const EVIL: [(&str, &str); 2] = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
const APP: [(&str, &str); 2] = [("Origin", "https://app.example.com"), ("Sec-Fetch-Site", "cross-site")];

async fn ask(
    program: &Program,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (StatusCode, Response) {
    let method: Method = method.parse().expect("a method");
    let request = Client::new().request(method, format!("{}{path}", program.url)).body(body.to_owned());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.expect("an answer");
    (response.status(), response)
}

/// What a function answers to a request.
fn answer() -> Box<RawValue> {
    to_raw_value(&json!({"status_code": 200})).expect("JSON")
}

/// A message that calls a function, as the body of a request.
fn call() -> String {
    let message =
        json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "demo::add {\"a\": 1, \"b\": 2}"}]});
    json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).to_string()
}

#[tokio::test]
async fn a_page_runs_no_function_and_reads_no_task() {
    let program = Program::command(&SERVE).await.0;
    let json = ("Content-Type", "application/json");
    for headers in [
        // What a page sends without asking first: a Blob, a text, a form.
        &[EVIL[0], EVIL[1]][..],
        &[EVIL[0], EVIL[1], ("Content-Type", "text/plain;charset=UTF-8")],
        &[EVIL[0], EVIL[1], ("Content-Type", "application/x-www-form-urlencoded")],
        &[("Origin", "null"), json],
        &[EVIL[1]],
        // A name of the page's own that leads to this machine.
        &[("Host", "evil.example"), ("Sec-Fetch-Site", "same-origin"), json],
        &[("Host", "evil.example"), json],
    ] {
        for path in ["/a2a", "/v1/message:send", "/api/a2a/discover", "/no/trigger"] {
            let (status, _) = ask(&program, "POST", path, headers, &call()).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
        for path in ["/v1/tasks", "/v1/extendedAgentCard", "/api/a2a/cards"] {
            let (status, _) = ask(&program, "GET", path, headers, "").await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
    }
    let (status, _) = ask(&program, "POST", "/a2a", &[], &call()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "a Blob of a browser that says nothing else");
    let tasks = program.call("ListTasks", json!({})).await;
    assert_eq!(tasks["totalSize"], 0, "{tasks}");
    assert_eq!(ask(&program, "GET", "/health", &[("Host", "evil.example")], "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn origins_and_hosts_are_allowed_in_the_file_by_flags_and_in_the_environment() {
    let home = Home::new();
    let text = "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\n";
    let file = |more: &str| home.file("some.yml", &format!("{text}{more}"));
    let listed = file("allowed-hosts: [agents.test]\ncors: { origins: [\"https://app.example.com\"] }\n");
    let flags = ["--allowed-host", "agents.test", "--cors-origin", "https://app.example.com"];
    let echo = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0"];
    let environment = [
        ("ATTACHE_STORE", "memory:"),
        ("ATTACHE_ALLOWED_HOST", "other.test agents.test"),
        ("ATTACHE_CORS_ORIGIN", "https://app.example.com"),
    ];
    let programs = [
        Program::command(&["serve", "--config", &listed]).await.0,
        Program::command(&[&echo[..], &flags].concat()).await.0,
        Program::command_with(&echo, &environment).await.0,
    ];
    for program in programs {
        let (status, answer) = ask(&program, "GET", "/v1/tasks", &APP, "").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example.com");
        assert_eq!(ask(&program, "GET", "/v1/tasks", &EVIL, "").await.0, StatusCode::FORBIDDEN);
        for (host, expected) in [("agents.test", StatusCode::OK), ("evil.example", StatusCode::FORBIDDEN)] {
            assert_eq!(ask(&program, "GET", "/v1/tasks", &[("Host", host)], "").await.0, expected, "{host}");
        }
    }
}

#[tokio::test]
async fn every_page_is_not_let_in_by_mistake() {
    let home = Home::new();
    let echo = ["serve", "--agent", "echo", "--store", "memory:"];
    let mut said = String::new();
    for more in [
        &["--base-url", "https://agents.example.com"][..],
        &["--allowed-host", "*"],
        &["--cors-origin", "*"],
        &["--insecure", "--listen", "0.0.0.0:0"],
    ] {
        said += &format!("{}\n{}\n", more.join(" "), home.run(&[&echo[..], more].concat()).await);
    }
    insta::assert_snapshot!("every_page", said);
    let base = ["--base-url", "https://agents.example.com", "--insecure", "--listen", "127.0.0.1:0"];
    let (program, said) = Program::command(&[&echo[..], &base].concat()).await;
    assert!(said.contains("everyone who reaches this server through its base URL can use it"), "{said}");
    assert_eq!(
        ask(&program, "GET", "/v1/tasks", &[("Host", "agents.example.com")], "").await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn where_callers_are_authenticated_the_api_of_delegation_trusts_no_program_on_this_machine() {
    let home = Home::new();
    let settings = "listen: 127.0.0.1:0\nstore: \"memory:\"\nengine: { listen: 127.0.0.1:0 }\n";
    let auth = "auth:\n  bearer:\n    - { name: alice, token: 0123456789abcdef0123456789abcdef }\n";
    let file = home.file("some.yml", settings);
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    assert_eq!(ask(&program, "GET", "/api/a2a/cards", &[], "").await.0, StatusCode::OK);
    home.file("some.yml", &format!("{settings}{auth}"));
    program.hang_up().await;
    log.line_with("read the settings again").await;
    assert_eq!(ask(&program, "GET", "/api/a2a/cards", &[], "").await.0, StatusCode::FORBIDDEN);
    let program = Program::command(&["serve", "--config", &file]).await.0;
    assert_eq!(ask(&program, "GET", "/api/a2a/cards", &[], "").await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn pages_call_http_triggers_only_if_the_author_or_the_operator_says_so() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let (program, said) = Program::command(&arguments).await;
    let engine = said.lines().find_map(|line| line.trim().strip_prefix("workers    ")).expect("an engine");
    let worker = Worker::connect(WorkerOptions::new(engine)).expect("a worker");
    let mut registered = Vec::new();
    for (id, metadata) in [
        ("t::closed", json!({})),
        ("t::shared", json!({"a2a.origins": ["https://app.example.com"]})),
        ("t::open", json!({"a2a.origins": ["*"]})),
    ] {
        let function =
            RegisterFunction { id: id.to_owned(), metadata: Some(metadata), ..RegisterFunction::default() };
        registered.push(worker.register(function, async |_: Invocation| Ok(answer())));
        let config = json!({"api_path": id.replace("::", "/"), "http_method": "POST"});
        registered.push(worker.register_trigger("http", id, config));
    }
    for path in ["/t/closed", "/t/shared", "/t/open"] {
        until("there is a trigger", async || ask(&program, "POST", path, &[], "").await.0 == StatusCode::OK)
            .await;
    }
    let plain = ask(&program, "POST", "/t/closed", &[], "").await.1;
    assert!(!plain.headers().contains_key("access-control-allow-origin"));
    for (path, origin, expected) in [
        ("/t/closed", APP, None),
        ("/t/closed", EVIL, None),
        ("/t/shared", APP, Some("https://app.example.com")),
        ("/t/shared", EVIL, None),
        ("/t/open", EVIL, Some("*")),
    ] {
        let status = |fine: StatusCode| if expected.is_some() { fine } else { StatusCode::FORBIDDEN };
        let (found, answer) = ask(&program, "POST", path, &origin, "").await;
        assert_eq!(found, status(StatusCode::OK), "{path} {origin:?}");
        let header = answer.headers().get("access-control-allow-origin").map(|value| value.to_str().unwrap());
        assert_eq!(header, expected, "{path} {origin:?}");
        let preflight = [origin[0], origin[1], ("Access-Control-Request-Method", "POST")];
        let (found, _) = ask(&program, "OPTIONS", path, &preflight, "").await;
        assert_eq!(found, status(StatusCode::NO_CONTENT), "{path} {origin:?}");
    }
}
