//! Agents at work, with the command: reports, permissions, required extensions and safe mode.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::programs::has_python;
use crate::support::Program;

/// A folder with a configuration file.
fn configured(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("attache.yml");
    std::fs::write(&path, text).expect("the file is written");
    (folder, path.display().to_string())
}

async fn serve(config: &str, environment: &[(&str, &str)]) -> Program {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", config];
    let all = [&[("ATTACHE_STORE", "memory:")], environment].concat();
    Program::command_with(&arguments, &all).await.0
}

/// The scripted coding agent of the tests of `attache-agents`.
fn coder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../attache-agents/tests/acp/agent.py")
}

async fn card(server: &Program) -> Value {
    let url = format!("{}/.well-known/agent-card.json", server.url);
    reqwest::get(url).await.expect("a card").json().await.expect("JSON")
}

#[tokio::test]
async fn what_leaves_the_server_has_no_secret_and_no_path() {
    let script = r#"
        read -r message
        echo "{\"type\":\"status\",\"text\":\"in $PWD with $KEY\"}"
        echo "{\"type\":\"tool\",\"status\":\"completed\",\"id\":\"t\",\"result\":{\"file\":\"$PWD/a.txt\",\"token\":\"caller-token-0123456789\"}}"
        echo "{\"type\":\"chunk\",\"text\":\"the value is named-vari\"}"
        echo "{\"type\":\"chunk\",\"text\":\"able-value and the file is $PW\"}"
        echo "{\"type\":\"chunk\",\"text\":\" is $PWD/b.txt\",\"last\":true}"
        echo "{\"type\":\"fail\",\"text\":\"cannot open $PWD/c.txt with $KEY\"}"
    "#;
    let folder = tempfile::tempdir().expect("a folder");
    let (_kept, config) = configured(&format!(
        "safe-mode: always\nmetadata-namespace: iac_code\nmask: {{ variables: [NAMED] }}\n\
         auth: {{ bearer: [{{ name: alice, token: caller-token-0123456789 }}] }}\n\
         program:\n  command: [/bin/sh, -c, {}]\n  protocol: json\n  directory: {}\n  environment: {{ KEY: key-of-the-program }}\n",
        json!(script.replace('$', "$$")),
        folder.path().display()
    ));
    let server = serve(&config, &[("NAMED", "named-variable-value")]).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
        "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}});
    let call = |request: Value| {
        let client = reqwest::Client::new();
        let request = client.post(format!("{}/a2a", server.url)).header("A2A-Version", "1.0").json(&request);
        async move {
            let sent = request.bearer_auth("caller-token-0123456789").send().await.expect("an answer");
            sent.text().await.expect("a text")
        }
    };
    let stream = call(request).await;
    let listed =
        call(json!({"jsonrpc": "2.0", "id": 2, "method": "ListTasks", "params": {"includeArtifacts": true}}))
            .await;
    for text in [&stream, &listed] {
        let local = folder.path().display().to_string();
        for hidden in
            [local.as_str(), "key-of-the-program", "named-variable-value", "caller-token-0123456789"]
        {
            assert!(!text.contains(hidden), "{hidden} is in {text}");
        }
        assert!(text.contains("cannot open <workspace>/c.txt with ********"), "{text}");
    }
    assert!(stream.contains("in <workspace> with ********"), "{stream}");
    assert!(stream.contains(r#""file":"<workspace>/a.txt","token":"********""#), "{stream}");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let parts = listed["result"]["tasks"][0]["artifacts"][0]["parts"].as_array().expect("parts").clone();
    let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(text, "the value is ******** and the file is  is <workspace>/b.txt");
}

#[tokio::test]
async fn on_this_machine_paths_are_shown_and_secrets_are_not() {
    let (_kept, config) = configured(
        "program: { command: [/bin/sh, -c, 'echo /tmp/a $$KEY'], environment: { KEY: key-of-the-program } }\n",
    );
    let server = serve(&config, &[]).await;
    let answer = server.send("go", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "/tmp/a ********\n", "{answer}");
    let (_kept, config) = configured(
        "safe-mode: off\nprogram: { command: [/bin/sh, -c, 'echo /tmp/a $$KEY'], environment: { KEY: key-of-the-program } }\n",
    );
    let server = serve(&config, &[]).await;
    let answer = server.send("go", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "/tmp/a key-of-the-program\n", "{answer}");
}

#[tokio::test]
async fn extensions_of_the_settings_are_required_and_in_every_card() {
    let (_kept, config) = configured(
        "agent: echo\nrequired-extensions: [\"urn:example:ext:v1\"]\nagents: { other: { echo: true } }\n",
    );
    let server = serve(&config, &[]).await;
    let extensions = &card(&server).await["capabilities"]["extensions"];
    assert_eq!(extensions[0], json!({"uri": "urn:example:ext:v1", "required": true}));
    let http = reqwest::Client::new();
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message});
    for (path, body) in [("/a2a", &rpc), ("/v1/message:send", &message), ("/agents/other/a2a", &rpc)] {
        let request = || http.post(format!("{}{path}", server.url)).header("A2A-Version", "1.0").json(body);
        let refused = request().send().await.unwrap().text().await.unwrap();
        assert!(
            refused.contains("EXTENSION_SUPPORT_REQUIRED") && refused.contains("urn:example:ext:v1"),
            "{refused}"
        );
        if path != "/v1/message:send" {
            assert!(refused.contains("-32008"), "{refused}");
        }
        let accepted = request().header("A2A-Extensions", "urn:example:ext:v1").send().await.unwrap();
        let accepted = accepted.text().await.unwrap();
        assert!(accepted.contains("TASK_STATE_COMPLETED"), "{accepted}");
    }
}

#[tokio::test]
async fn the_card_lists_the_extensions_of_the_namespace() {
    let uris = |card: &Value| -> Vec<String> {
        let all = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
        all.iter().map(|it| it["uri"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let program = "program: { command: [/bin/sh, -c, 'cat'], protocol: json }\n";
    let (_kept, config) = configured(program);
    assert_eq!(uris(&card(&serve(&config, &[]).await).await), ["urn:attache:extension:reports:v1"]);
    let (_kept, config) = configured(&format!(
        "{program}metadata-namespace: iac_code\nthinking-exposure: [tool-trace, raw-thinking]\n"
    ));
    let card = card(&serve(&config, &[]).await).await;
    assert_eq!(
        uris(&card),
        ["urn:iac-code:a2a:artifact-metadata:v1", "urn:iac-code:a2a:thinking-exposure:v1"]
    );
    let params = &card["capabilities"]["extensions"][1]["params"];
    assert_eq!(params["enabledTypes"], json!(["raw_thinking", "tool_trace"]));
}

/// A server for the scripted coding agent, with settings.
fn coding(folder: &Path, settings: &str) -> (TempDir, String) {
    configured(&format!(
        "{settings}acp:\n  command: [python3, {:?}]\n  data-directory: {}\n",
        coder(),
        folder.join("data").display()
    ))
}

#[tokio::test]
async fn a_rule_denies_a_coding_agent_and_the_audit_log_says_so() {
    if !has_python("work::a_rule_denies_a_coding_agent_and_the_audit_log_says_so") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (_kept, config) = coding(
        folder.path(),
        "metadata-namespace: iac_code\npermissions: [{ tool: read, action: allow }, { tool: \"del*\", action: deny }]\n",
    );
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", &config];
    let (server, _, mut log) = Program::watched(&arguments, &[("ATTACHE_STORE", "memory:")]).await;
    let events = server.stream("ask").await;
    let permission =
        events.iter().find_map(|event| event["statusUpdate"]["metadata"]["iac_code"].get("permission"));
    let permission = permission.unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(permission["autoApproved"], false);
    assert_eq!((&permission["toolName"], &permission["toolUseId"]), (&json!("delete"), &json!("t1")));
    let line = log.line_with("attache::audit").await;
    for field in ["tool=\"delete\"", "rule=\"rule 2\"", "decision=\"deny\"", "caller=\"anonymous\"", "task="]
    {
        assert!(line.contains(field), "{field} is not in {line}");
    }
    assert!(!line.contains("Delete everything"), "{line}");
    let text = format!("{events:?}");
    assert!(text.contains("no-1"), "{text}");
}

#[tokio::test]
async fn a_permission_that_waits_during_a_restart_is_denied() {
    if !has_python("work::a_permission_that_waits_during_a_restart_is_denied") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (_kept, config) = coding(folder.path(), "");
    let store = format!("sqlite:{}", folder.path().join("tasks.db").display());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", &config];
    let environment = [("ATTACHE_STORE", store.as_str()), ("ATTACHE_KEYRING_FILE", "")];
    let keyring = folder.path().join("keyring.json").display().to_string();
    let environment = [environment[0], ("ATTACHE_KEYRING_FILE", keyring.as_str())];
    let (server, _) = Program::command_with(&arguments, &environment).await;
    let asked = server.send("ask", None).await;
    assert_eq!(asked["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let id = asked["task"]["id"].as_str().expect("an id").to_owned();
    server.kill().await;
    let (server, _, mut log) = Program::watched(&arguments, &environment).await;
    let params = json!({"message": {"messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{"text": "blocks"}]}});
    let done = server.call("SendMessage", params).await;
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    let text = done["task"]["artifacts"].to_string();
    assert!(text.contains("The request for permission `Delete everything` was denied"), "{done}");
    let line = log.line_with("attache::audit").await;
    assert!(line.contains("decision=\"deny\"") && line.contains("does not wait any more"), "{line}");
}

#[tokio::test]
async fn the_namespace_of_iac_code_comes_with_its_rules() {
    let script = r#"
        read -r message
        case "$message" in
            *'"text":"edit","type"'*)
                echo '{"type":"permission","id":"t","tool":"edit"}'
                read -r decision
                echo '{"type":"complete","text":"decided"}' ;;
            *) echo '{"type":"complete","text":"hello"}' ;;
        esac
    "#;
    let (_kept, config) = configured(&format!(
        "metadata-namespace: iac_code\ncontexts: {{ busy: reject }}\n\
         program: {{ command: [/bin/sh, -c, {}], protocol: json }}\n",
        json!(script.replace('$', "$$"))
    ));
    let server = serve(&config, &[]).await;
    let rpc = async |method: &str, params: Value| -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let http = reqwest::Client::new();
        let request = http.post(format!("{}/a2a", server.url)).header("A2A-Version", "1.0").json(&body);
        request.send().await.expect("an answer").json().await.expect("JSON")
    };
    let send = async |text: &str| {
        let message =
            json!({"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": text}]});
        rpc("SendMessage", json!({"message": message})).await["result"]["task"].clone()
    };
    // A task that waits in the middle of its work keeps its context, and can be canceled.
    let asked = send("edit").await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let refused = send("hello").await;
    assert_eq!(refused["status"]["message"]["parts"][0]["text"], "Task is already working.", "{refused}");
    let canceled = rpc("CancelTask", json!({"id": asked["id"]})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    // A task that does not run is neither canceled nor followed.
    let done = send("hello").await;
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(rpc("CancelTask", json!({"id": done["id"]})).await["error"]["code"], -32002);
    assert_eq!(rpc("SubscribeToTask", json!({"id": done["id"]})).await["error"]["code"], -32001);
    assert_eq!(rpc("GetTask", json!({"id": "a b"})).await["error"]["code"], -32602);
}
