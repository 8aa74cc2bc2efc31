//! The rows of the reference about contexts and ids, and `attache context`.

use reqwest::Client;
use serde_json::{Value, json};

use super::{Server, message, settings_with, start};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::Program;

#[tokio::test]
async fn ids_have_1_to_128_of_the_documented_characters() {
    if !has_python("iac_code::contexts::ids_have_1_to_128_of_the_documented_characters") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let (longest, too_long) = ("x".repeat(128), "x".repeat(129));
    for (id, is_valid) in [
        ("a.b:c_d-9", true),
        (longest.as_str(), true),
        (too_long.as_str(), false),
        ("a b", false),
        ("a/b", false),
        ("ü", false),
        ("a\n", false),
    ] {
        let sent = server.send(message("hello", json!({"contextId": id}))).await;
        match is_valid {
            true => assert_eq!(sent["result"]["task"]["contextId"], id, "{sent}"),
            false => assert_eq!(sent["error"]["code"], -32602, "{id}: {sent}"),
        }
        let code = if is_valid { -32001 } else { -32602 };
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = server.rpc(method, json!({"id": id})).await;
            assert_eq!(refused["error"]["code"], code, "{method} {id}: {refused}");
        }
        let named = server.send(message("hello", json!({"taskId": id}))).await;
        assert_eq!(named["error"]["code"], code, "{id}: {named}");
    }
    let refused = server.rpc("GetTask", json!({"id": ""})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn a_message_without_a_context_begins_a_new_one() {
    if !has_python("iac_code::contexts::a_message_without_a_context_begins_a_new_one") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let mut contexts = Vec::new();
    // An empty id is none.
    for (text, more) in [("one", json!({})), ("two", json!({"contextId": ""}))] {
        let sent = server.send(message(text, more)).await;
        contexts.push(
            sent["result"]["task"]["contextId"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned(),
        );
    }
    assert!(!contexts[0].is_empty() && contexts[0] != contexts[1], "{contexts:?}");
    // A new context knows nothing of another one, and the same one goes on.
    let recall = async |context: &str| {
        let sent = server.send(message("recall", json!({"contextId": context}))).await;
        sent["result"]["task"]["history"].to_string()
    };
    assert!(recall(&contexts[1]).await.contains("You said: two"));
    assert!(recall("another").await.contains("You said: \""));
}

/// A server whose contexts are in a file, with two callers and a named agent.
async fn shared_server(home: &Home) -> (Server, String) {
    let agent = format!("{}/../../examples/iac-code/agent.py", env!("CARGO_MANIFEST_DIR"));
    let more = format!(
        "token: the-token-of-this-test\napi-key: the-key-of-this-test\n\
         agents:\n  other:\n    program: {{ command: [python3, \"{agent}\"], protocol: json }}\n    \
         card: {{ description: Another one }}\n"
    );
    let file = settings_with(home, &more);
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--store", &store];
    let (program, _) = Program::command_with(&arguments, &[]).await;
    (Server { program, http: Client::new() }, store)
}

#[tokio::test]
async fn operators_tell_contexts_with_the_same_id_apart() {
    if !has_python("iac_code::contexts::operators_tell_contexts_with_the_same_id_apart") {
        return;
    }
    let home = Home::new();
    let (server, store) = shared_server(&home).await;
    let send = async |path: &str, header: (&str, &str), tenant: Option<&str>| {
        let mut params = json!({"message": message("hello", json!({"contextId": "c"}))});
        if let Some(tenant) = tenant {
            params["tenant"] = json!(tenant);
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let request = server.http.post(format!("{}{path}", server.program.url)).header("A2A-Version", "1.0");
        let answer: Value =
            request.header(header.0, header.1).json(&body).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{answer}");
    };
    let bearer = ("Authorization", "Bearer the-token-of-this-test");
    let key = ("X-API-Key", "the-key-of-this-test");
    send("/", bearer, None).await;
    send("/", bearer, Some("acme")).await;
    send("/", key, None).await;
    send("/agents/other/", key, None).await;
    let run =
        async |arguments: &[&str]| home.run(&[&["context"], arguments, &["--store", &store]].concat()).await;
    let listed = run(&["list"]).await;
    assert_eq!(listed.code, Some(0), "{listed}");
    assert_eq!(listed.stdout.lines().filter(|line| *line == "c").count(), 4, "{listed}");
    assert_eq!(listed.stdout.matches("  1 turn since ").count(), 4, "{listed}");
    let ambiguous = run(&["show", "c"]).await;
    assert_eq!(ambiguous.code, Some(2), "{ambiguous}");
    assert!(ambiguous.stderr.contains("4 callers, tenants or agents have a context `c`"), "{ambiguous}");
    for (options, owner) in [
        (&["--caller", "bearer", "--tenant", "acme"][..], "  of bearer, tenant acme\n"),
        (&["--of-agent", "other"], "  of api-key:X-API-Key, agent other\n"),
        (&["--tenant", "acme"], "  of bearer, tenant acme\n"),
    ] {
        let shown = run(&[&["show", "c"], options].concat()).await;
        assert!(shown.code == Some(0) && shown.stdout.contains(owner), "{shown}");
    }
    let closed = run(&["close", "c", "--tenant", "acme"]).await;
    assert_eq!((closed.code, closed.stdout.as_str()), (Some(0), "closed c\n"), "{closed}");
    let closed = run(&["close", "c", "--tenant", "acme"]).await;
    assert_eq!(closed.stdout, "c was closed already\n", "{closed}");
    let open = run(&["list", "--open"]).await;
    assert_eq!(open.stdout.lines().filter(|line| *line == "c").count(), 3, "{open}");
    let shown = run(&["show", "c", "--tenant", "acme"]).await;
    assert!(shown.stdout.contains("\n  closed 2"), "{shown}");
    let missing = run(&["show", "d"]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("there is no context `d`"), "{missing}");
}
