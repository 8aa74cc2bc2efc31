//! OpenCode, a coding agent that people work with, and a model endpoint that replies from a script.
//!
//! It is large, so other test runs leave this test out: `cargo xtask interop --coding-agents` installs OpenCode and runs it. Only the
//! package with the program itself is installed, which there is for each system. The tests use the one for Linux on x86-64.
#![cfg(target_arch = "x86_64")]

use std::path::Path;

use attache_agents::acp::AcpOptions;
use attache_protocol::TaskState;
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::peers::{absent, home, keep};
use crate::support::{answer, serve};

/// Starts the endpoint and returns the URL of its API.
///
/// A prompt `run COMMAND` makes the model call the tool that runs commands. To the result of a tool, and to any other prompt, it
/// replies with the number of prompts in the conversation and with the text.
async fn endpoint() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/chat/completions", post(complete));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn complete(axum::Json(request): axum::Json<Value>) -> Response {
    let messages = request["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    let text = text_of(&last["content"]);
    let prompts = messages.iter().filter(|message| message["role"] == "user").count();
    let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let command = text.strip_prefix("run ").filter(|_| has_tools && last["role"] == "user");
    let (delta, finish) = match command {
        Some(command) => {
            let arguments = json!({"command": command, "description": "Runs a command"}).to_string();
            let call = json!({"index": 0, "id": "call-1", "type": "function",
                "function": {"name": "bash", "arguments": arguments}});
            (json!({"tool_calls": [call]}), "tool_calls")
        }
        None => (json!({"content": format!("{prompts}: {}", text.trim())}), "stop"),
    };
    let chunk = |delta: Value, finish: Option<&str>| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "small",
            "choices": choices});
        format!("data: {chunk}\n\n")
    };
    let body = format!("{}{}data: [DONE]\n\n", chunk(delta, None), chunk(json!({}), Some(finish)));
    ([("content-type", "text/event-stream")], body).into_response()
}

/// The text of a message, which is a text or a list of parts.
fn text_of(content: &Value) -> String {
    match content.as_array() {
        Some(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        None => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// OpenCode with the scripted model. Its own files are in `private`, and it asks before it runs commands.
fn opencode<'a>(url: &str, private: &'a Path) -> impl Fn(&mut AcpOptions) + 'a {
    let settings = json!({
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": url, "apiKey": "none"},
            "models": {"small": {"name": "Small"}},
        }},
        "enabled_providers": ["scripted"],
        "model": "scripted/small",
        "small_model": "scripted/small",
        "permission": {"bash": "ask", "edit": "ask"},
        "autoupdate": false,
        "share": "disabled",
    })
    .to_string();
    move |options| {
        let program = home("opencode-1.18.33").join("node_modules/opencode-linux-x64/bin/opencode");
        options.command = vec![program.display().to_string(), "acp".to_owned()];
        let variables = [
            ("HOME", private.display().to_string()),
            ("OPENCODE_CONFIG_CONTENT", settings.clone()),
            // It needs nothing from elsewhere.
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
        ];
        options.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    }
}

#[test]
#[ignore = "it installs 180 MB: run `cargo xtask interop --coding-agents`"]
fn a_real_coding_agent_answers_asks_and_remembers_after_a_restart() {
    keep("a_real_coding_agent_answers_asks_and_remembers_after_a_restart", absent("node"), async {
        let private = tempfile::tempdir().unwrap();
        let url = endpoint().await;
        let agent = serve(&[], opencode(&url, private.path())).await;
        assert_eq!(answer(&agent.say("c", "hello there").await), "1: hello there");
        assert_eq!(answer(&agent.say("d", "someone else").await), "1: someone else");

        let asked = agent.say("c", "run pwd && echo made > made.txt").await;
        assert_eq!(asked.status.state, TaskState::InputRequired, "{asked:?}");
        let done = answer(&agent.answer(&asked, "yes").await);
        // The tool ran in the private directory of the conversation, and its output went to the model.
        let directory = done.strip_prefix("2: ").unwrap_or_else(|| panic!("{done}"));
        let made = std::fs::read_to_string(Path::new(directory).join("made.txt")).unwrap();
        assert_eq!(made, "made\n");
        assert!(Path::new(directory).starts_with(agent.path("data").canonicalize().unwrap()), "{directory}");

        let asked = agent.say("c", "run echo no > denied.txt").await;
        assert_eq!(asked.status.state, TaskState::InputRequired, "{asked:?}");
        agent.answer(&asked, "no").await;
        assert!(!Path::new(directory).join("denied.txt").exists());

        let agent = agent.restart_with(&[], opencode(&url, private.path())).await;
        let after = answer(&agent.say("c", "still there?").await);
        assert_eq!(after, "4: still there?");
    });
}
