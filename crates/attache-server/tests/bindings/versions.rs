//! Protocol versions and extensions: which requests are let in, over every binding.

use attache_protocol::{AgentExtension, Operation};
use attache_server::Server;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Player, Running, card, fetch, player, playing, send, serve};

/// The code of a refused version or extension: JSON-RPC, HTTP, gRPC.
fn code(binding: Binding, jsonrpc: i64) -> i64 {
    match binding {
        Binding::JsonRpc => jsonrpc,
        Binding::HttpJson => 400,
        Binding::Grpc => tonic::Code::FailedPrecondition as i64,
    }
}

async fn strict() -> Running {
    serve(player().options(|options| options.strict_version = true)).await
}

async fn assert_version(server: &Running, binding: Binding, version: Option<&str>, spoken: bool) {
    let answer = server.ask("ListTasks", json!({})).version(version).over(binding).await;
    match answer.result {
        Ok(_) => assert!(spoken, "{version:?} was let in over {binding:?}"),
        Err(refusal) => {
            assert!(!spoken, "{version:?} over {binding:?}: {refusal:?}");
            assert_eq!(
                (refusal.code, refusal.reason.as_str()),
                (code(binding, -32009), "VERSION_NOT_SUPPORTED")
            );
            assert_eq!(refusal.metadata["supportedVersions"], "1.0, 1.1");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_version_speaks_0_3_to_a_strict_server() {
    let server = strict().await;
    for binding in Binding::ALL {
        assert_version(&server, binding, None, false).await;
        assert_version(&server, binding, Some(""), false).await;
        assert_version(&server, binding, Some("1.0"), true).await;
    }
}

#[tokio::test]
async fn a_request_without_a_version_is_judged_by_its_shape_otherwise() {
    let server = playing().await;
    for binding in Binding::ALL {
        assert_version(&server, binding, None, true).await;
        assert_version(&server, binding, Some(""), true).await;
    }
    for method in ["message/sends", "tasks/what", "a/b"] {
        let refusal = server.ask(method, send("hi")).version(None).refused(Binding::JsonRpc).await;
        assert_eq!(refusal.code, -32601, "{method}");
    }
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_told_so_in_every_version() {
    let server = playing().await;
    for (method, version, known) in [
        ("tasks/what", None, "tasks/resubscribe"),
        ("tasks/what", Some("0.3"), "tasks/resubscribe"),
        ("What", Some("0.3"), "tasks/resubscribe"),
        ("What", None, "SubscribeToTask"),
        ("What", Some("1.0"), "SubscribeToTask"),
        ("tasks/what", Some("1.0"), "SubscribeToTask"),
    ] {
        let refusal = server.ask(method, json!({})).version(version).refused(Binding::JsonRpc).await;
        assert_eq!(refusal.code, -32601, "{method} {version:?}");
        assert!(refusal.message.contains(known), "{method} {version:?}: {}", refusal.message);
    }
}

#[tokio::test]
async fn only_the_first_two_numbers_of_a_version_matter() {
    let server = strict().await;
    for binding in Binding::ALL {
        for version in ["1.0", "1.0.0", "1.0.7", " 1.0 ", "1.1", "1.1.3"] {
            assert_version(&server, binding, Some(version), true).await;
        }
        for version in
            ["99.0", "0.5", "0.3", "0.3.0", "1.7", "2.0", "abc", "v1.0", "1", "1.x", "1.0, 1.1", "-1.0"]
        {
            assert_version(&server, binding, Some(version), false).await;
        }
    }
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_refused_by_a_lenient_server_too() {
    let server = playing().await;
    for binding in Binding::ALL {
        for version in ["0.3", "1.7", "abc"] {
            assert_version(&server, binding, Some(version), false).await;
        }
    }
}

#[tokio::test]
async fn the_version_may_stand_in_the_query_and_the_header_wins() {
    let server = strict().await;
    for binding in Binding::JSON {
        let ask = |query: &str, header: Option<&str>| {
            server.ask("ListTasks", json!({})).query(query).version(header)
        };
        for query in ["A2A-Version=1.0", "a2a-version=1.0", "A2A-Version=1%2E0", "x=1&A2A-Version=1.0.2"] {
            ask(query, None).ok(binding).await;
        }
        ask("A2A-Version=0.3", Some("1.0")).ok(binding).await;
        for (query, header) in [
            ("A2A-Version=1.0", Some("0.3")),
            ("A2A-Version=0.3", None),
            ("A2A-Version=", None),
            ("A2A-Version=1.0", Some("")),
        ] {
            let refusal = ask(query, header).refused(binding).await;
            assert_eq!(refusal.reason, "VERSION_NOT_SUPPORTED", "{query} {header:?} {binding:?}");
        }
    }
}

#[tokio::test]
async fn the_name_of_the_header_may_be_written_in_any_case() {
    let server = strict().await;
    for name in ["a2a-version", "A2A-VERSION", "A2a-Version"] {
        let request = server.bare(Method::GET, "/v1/tasks").header(name, "1.0");
        assert_eq!(fetch(request).await.status, 200, "{name}");
    }
}

#[tokio::test]
async fn a_method_is_never_read_with_the_schema_of_another_version() {
    let server = playing().await;
    let old = json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text"}]}});
    let refusal = server.ask("message/send", old).refused(Binding::JsonRpc).await;
    assert_eq!((refusal.code, refusal.reason.as_str()), (-32601, "METHOD_NOT_FOUND"));
    for version in ["0.3", "0.2.6"] {
        let refusal =
            server.ask("SendMessage", send("hi")).version(Some(version)).refused(Binding::JsonRpc).await;
        assert_eq!((refusal.code, refusal.reason.as_str()), (-32009, "VERSION_NOT_SUPPORTED"));
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0);
}

#[tokio::test]
async fn the_version_is_looked_at_before_the_body() {
    for (server, version) in
        [(playing().await, Some("1.7")), (strict().await, Some("9.9")), (strict().await, None)]
    {
        let with_version = |path: &str| {
            let request = server.bare(Method::POST, path).header("Content-Type", "application/json");
            match version {
                Some(version) => request.header("A2A-Version", version),
                None => request,
            }
        };
        for (body, id) in [
            ("{broken", Value::Null),
            (r#"{"jsonrpc":"2.0","id":"v","method":"SendMessage","params":{"message":5}}"#, json!("v")),
        ] {
            let json = fetch(with_version("/a2a").body(body)).await.json();
            assert_eq!((&json["error"]["code"], &json["id"]), (&json!(-32009), &id), "{version:?} {json}");
        }
        let rest = fetch(with_version("/v1/message:send").body("{broken")).await;
        assert_eq!(rest.json()["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
    }
    let refusal = strict().await.ask("GetTask", json!({})).version(Some("0.3")).refused(Binding::Grpc).await;
    assert_eq!(refusal.reason, "VERSION_NOT_SUPPORTED");
}

/// A server whose card declares extensions.
fn extended(extensions: impl IntoIterator<Item = AgentExtension>) -> Server<Player> {
    player().card(extensions.into_iter().fold(card(), |card, extension| card.extension(extension)))
}

/// Arguments that would do for each operation.
fn arguments(operation: Operation) -> Value {
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => send("hi"),
        Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => json!({"id": "t"}),
        Operation::CreateTaskPushNotificationConfig => json!({"taskId": "t", "url": "https://example.com/"}),
        Operation::GetTaskPushNotificationConfig | Operation::DeleteTaskPushNotificationConfig => {
            json!({"taskId": "t", "id": "c"})
        }
        Operation::ListTaskPushNotificationConfigs => json!({"taskId": "t"}),
        Operation::ListTasks | Operation::GetExtendedAgentCard => json!({}),
    }
}

#[tokio::test]
async fn a_required_extension_must_be_asked_for_with_every_operation() {
    let server = serve(extended([AgentExtension::new("urn:x:audit").required()])).await;
    for &operation in Operation::ALL {
        for binding in Binding::ALL {
            let ask = server.ask(operation.name(), arguments(operation));
            let refusal = ask.clone().header("A2A-Extensions", "urn:x:other").refused(binding).await;
            assert_eq!(
                (refusal.code, refusal.reason.as_str()),
                (code(binding, -32008), "EXTENSION_SUPPORT_REQUIRED"),
                "{operation:?} {binding:?}"
            );
            assert_eq!(refusal.metadata["extension"], "urn:x:audit");
            assert_eq!(ask.clone().refused(binding).await, refusal, "{operation:?} {binding:?}");

            let answer = ask.header("A2A-Extensions", "urn:x:audit").over(binding).await;
            if let Err(refusal) = answer.result {
                assert_ne!(refusal.reason, "EXTENSION_SUPPORT_REQUIRED", "{operation:?} {binding:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_stream_without_a_required_extension_is_refused_before_its_first_byte() {
    let server = serve(extended([AgentExtension::new("urn:x:audit").required()])).await;
    let rest = server.rest("POST", "/message:stream", Some(send("hi"))).await;
    assert_eq!((rest.status.as_u16(), rest.header("content-type")), (400, "application/a2a+json"));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send("hi")});
    let rpc = server.post(body.to_string()).await;
    assert_eq!((rpc.status.as_u16(), rpc.header("content-type")), (200, "application/json"));
    assert_eq!(rpc.code(), -32008);
}

#[tokio::test]
async fn the_response_lists_the_extensions_that_are_active_and_no_others() {
    let server = serve(extended([AgentExtension::new("urn:x:a"), AgentExtension::new("urn:x:b/v1")])).await;
    for (asked, active) in [
        (vec!["urn:x:a"], Some("urn:x:a")),
        (vec!["urn:x:unknown"], None),
        (vec![""], None),
        (vec!["urn:x:unknown, urn:x:b/v1 ,, urn:x:a"], Some("urn:x:b/v1, urn:x:a")),
        (vec!["urn:x:a", "urn:x:b/v1,urn:x:a"], Some("urn:x:a, urn:x:b/v1")),
        (vec!["urn:x:b/v2"], None),
        (vec!["urn:x:b"], None),
        (vec!["URN:X:A"], None),
    ] {
        for binding in Binding::ALL {
            for (operation, params) in
                [("ListTasks", json!({})), ("SendMessage", send("hi")), ("SendStreamingMessage", send("hi"))]
            {
                let mut ask = server.ask(operation, params);
                for value in &asked {
                    ask = ask.header("A2A-Extensions", value);
                }
                let answer = ask.over(binding).await;
                assert_eq!(answer.extensions.as_deref(), active, "{asked:?} {operation} {binding:?}");
                answer.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn generations_are_shown_to_those_who_speak_1_1_or_ask_for_them() {
    let server = playing().await;
    let task = server.task("hi").await;
    assert!(task.get("generation").is_none(), "{task}");
    for binding in Binding::JSON {
        let ask = server.ask("GetTask", json!({"id": task["id"]}));
        let extension = attache_protocol::GENERATION_EXTENSION;
        let asked = ask.clone().header("A2A-Extensions", extension).over(binding).await;
        assert_eq!(asked.extensions.as_deref(), Some(extension));
        assert_eq!(asked.unwrap()["generation"], "3", "created, artifact, completed");
        assert_eq!(ask.clone().version(Some("1.1")).ok(binding).await["generation"], "3");

        let events = server.ask("SendStreamingMessage", send("hi")).version(Some("1.1")).ok(binding).await;
        let generations: Vec<_> = events.as_array().unwrap().iter().map(generation).collect();
        assert_eq!(generations, ["1", "2", "3"], "{events}");
    }
}

fn generation(event: &Value) -> &str {
    let inner = event.as_object().unwrap().values().next().unwrap();
    inner["generation"].as_str().expect("a generation")
}

#[tokio::test]
async fn a_message_for_another_generation_is_refused_in_1_1_and_taken_in_1_0() {
    let server = playing().await;
    let task = server.task("ask").await;
    let mut params = send("answer");
    params["message"]["taskId"] = task["id"].clone();
    params["configuration"] = json!({"ifGenerationMatch": "1"});
    for (binding, code) in [(Binding::JsonRpc, -32010), (Binding::HttpJson, 409)] {
        let refusal = server.ask("SendMessage", params.clone()).version(Some("1.1")).refused(binding).await;
        assert_eq!((refusal.code, refusal.reason.as_str()), (code, "TASK_GENERATION_MISMATCH"));
        assert_eq!(refusal.metadata["generation"], "2");
    }
    let sent = server.ask("SendMessage", params).ok(Binding::JsonRpc).await;
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}
