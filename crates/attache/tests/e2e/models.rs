//! Language models as agents, with the command.

use serde_json::json;

use crate::home::Home;
use crate::model;
use crate::support::Program;

#[tokio::test]
async fn a_model_is_served_with_one_flag_and_remembers_after_a_crash() {
    let home = Home::new();
    let url = model::start().await;
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let keyring = home.path("keyring.json").display().to_string();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--model",
        &url,
        "--model-name",
        "small",
        "--store",
        &store,
        "--keyring",
        &keyring,
    ];
    let environment = [("ATTACHE_MODEL_KEY", model::KEY)];
    let (server, said) = Program::command_with(&arguments, &environment).await;
    assert!(!said.contains(model::KEY), "{said}");
    let first = server.send("good morning", None).await;
    assert_eq!(model::reply(&first["task"]), "user: good morning", "{first}");
    server.kill().await;

    let (server, _) = Program::command_with(&arguments, &environment).await;
    let message = json!({
        "messageId": "second", "role": "ROLE_USER", "parts": [{"text": "and again"}],
        "contextId": first["task"]["contextId"],
    });
    let second = server.call("SendMessage", json!({"message": message})).await;
    assert_eq!(model::reply(&second["task"]), "user,assistant,user: and again", "{second}");
}

#[tokio::test]
async fn the_settings_of_a_model_reach_the_endpoint() {
    let home = Home::new();
    let url = model::start().await;
    let key = home.file("key", &format!("{}\n", model::KEY));
    let settings = format!(
        "model:\n  url: {url}\n  name: small\n  system: Be brief.\n  parameters: {{ temperature: 0.5 }}\n  key-file: {key}\n"
    );
    let file = home.file("attache.yml", &settings);
    let (server, _) = Program::command(&["serve", "--listen", "127.0.0.1:0", "--config", &file]).await;
    let first = server.send("good morning", None).await;
    assert_eq!(model::reply(&first["task"]), "system,user: good morning", "{first}");
    let shown = home.run(&["config", "show", "--config", &file]).await;
    assert!(shown.stdout.contains("model.parameters.temperature"), "{shown}");
    assert!(!shown.stdout.contains(model::KEY), "{shown}");
}

#[tokio::test]
async fn a_model_without_a_name_or_with_a_wrong_url_is_refused() {
    let home = Home::new();
    for (arguments, expected) in [
        (vec!["--model", "http://127.0.0.1:9/v1"], "the name of the model is missing"),
        (vec!["--model", "api.example.com", "--model-name", "x"], "is not an `http` or `https` URL"),
        (vec!["--agent", "model"], "no endpoint is named"),
        (
            vec!["--model", "http://127.0.0.1:9/v1", "--model-name", "x", "--program", "cat"],
            "name different agents",
        ),
        (
            vec!["--model", "http://127.0.0.1:9/v1", "--model-name", "x", "--model-key-file", "/nothing"],
            "cannot be read",
        ),
    ] {
        let refused = home.run(&[vec!["serve"], arguments].concat()).await;
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn a_response_that_is_no_stream_is_in_the_log() {
    let page = "<html><body>please log in</body></html>";
    let app = axum::Router::new().route("/v1/chat/completions", axum::routing::post(async move || page));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--model", &url, "--model-name", "small"];
    let (server, _, mut log) = Program::watched(&arguments, &[("ATTACHE_STORE", "memory:")]).await;
    let failed = server.send("hello", None).await;
    assert_eq!(failed["task"]["status"]["state"], "TASK_STATE_FAILED", "{failed}");
    log.line_with("please log in").await;
}
