//! The JSON of the protocol over the wire: what is forgiven, what is not, and what comes back.

use proptest::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Refusal, Running, fetch, message, player, playing, send, serve, without_ids};

/// Sends one part and gives back the artifact's, which is the same.
async fn echo(server: &Running, binding: Binding, part: Value) -> Result<Value, Refusal> {
    let mut params = send("");
    params["message"]["parts"] = json!([part]);
    let answer = server.ask("SendMessage", params).over(binding).await;
    answer.result.map(|mut sent| sent["task"]["artifacts"][0]["parts"][0].take())
}

/// The fields that are wrong with these arguments of a send.
async fn wrong(server: &Running, binding: Binding, params: Value) -> Vec<String> {
    let refusal = server.ask("SendMessage", params).refused(binding).await;
    let expected = if binding == Binding::JsonRpc { -32602 } else { 400 };
    assert_eq!((refusal.code, refusal.reason.as_str()), (expected, "INVALID_PARAMS"), "{refusal:?}");
    refusal.fields
}

#[tokio::test]
async fn a_task_and_an_event_as_they_are_written() {
    let server = playing().await;
    let sent = server.ask("SendMessage", send("chunks")).ok(Binding::HttpJson).await;
    insta::assert_json_snapshot!("task", without_ids(sent));
    let events = server.ask("SendStreamingMessage", send("chunks")).ok(Binding::HttpJson).await;
    insta::assert_json_snapshot!("events", without_ids(events));
}

#[tokio::test]
async fn snake_case_is_read_and_never_written() {
    let server = playing().await;
    for binding in Binding::JSON {
        let message = json!({
            "message_id": "m", "role": "ROLE_USER", "context_id": "c-1", "reference_task_ids": ["x"],
            "parts": [{"text": "hi", "media_type": "text/plain"}],
        });
        let params = json!({"message": message, "configuration": {"history_length": 1, "accepted_output_modes": ["a/b"]}});
        let sent = server.ask("SendMessage", params).ok(binding).await;
        assert_eq!(sent["task"]["contextId"], "c-1");
        assert_eq!(sent["task"]["history"][0]["referenceTaskIds"], json!(["x"]));
        assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["mediaType"], "text/plain");
        assert!(!has_snake_case(&sent), "{sent}");
    }
    let listed = server.rpc("ListTasks", json!({"page_size": 1, "include_artifacts": true})).await;
    assert_eq!(listed["result"]["pageSize"], 1);
    assert!(!has_snake_case(&listed), "{listed}");
    assert_eq!(server.rest("GET", "/tasks?page_size=1", None).await.json()["pageSize"], 1);
}

fn has_snake_case(json: &Value) -> bool {
    match json {
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains('_') || has_snake_case(value))
        }
        Value::Array(items) => items.iter().any(has_snake_case),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[tokio::test]
async fn enums_are_read_as_names_or_numbers_and_unknown_names_are_refused() {
    let server = playing().await;
    server.task("hi").await;
    for binding in Binding::JSON {
        let mut params = send("hi");
        params["message"]["role"] = json!(1);
        let sent = server.ask("SendMessage", params.clone()).ok(binding).await;
        assert_eq!(sent["task"]["history"][0]["role"], "ROLE_USER");
        for role in [json!("user"), json!("USER"), json!("role_user"), json!("ROLE_ROBOT"), json!(true)] {
            params["message"]["role"] = role;
            assert_eq!(wrong(&server, binding, params.clone()).await, ["message.role"]);
        }
        for status in ["completed", "TASK_STATE_RUNNING", "COMPLETED", "task_state_completed"] {
            let refusal = server.ask("ListTasks", json!({"status": status})).refused(binding).await;
            assert_eq!(refusal.fields, ["status"], "{status}");
        }
    }
    let listed = server.ask("ListTasks", json!({"status": 3})).ok(Binding::JsonRpc).await;
    assert_eq!(listed["tasks"][0]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_part_has_exactly_one_content() {
    let server = playing().await;
    for binding in Binding::JSON {
        for part in [
            json!({"text": "a", "url": "https://example.com/"}),
            json!({"text": "a", "data": 1}),
            json!({"raw": "", "data": null}),
            json!({}),
            json!({"mediaType": "text/plain"}),
        ] {
            let mut params = send("");
            params["message"]["parts"] = json!([{"text": "fine"}, part]);
            assert_eq!(wrong(&server, binding, params).await, ["message.parts[1]"], "{part}");
        }
    }
}

#[tokio::test]
async fn every_kind_of_content_comes_back_as_it_was_sent() {
    let server = playing().await;
    for part in [
        json!({"text": ""}),
        json!({"text": "line\nbreak \u{2028} \u{1F980} \" \\ \u{0}"}),
        json!({"url": "https://example.com/a%20b?c=d#e", "filename": "e"}),
        json!({"raw": "aGk=", "mediaType": "application/json", "filename": "a.json"}),
        json!({"raw": ""}),
        json!({"data": null}),
        json!({"data": [1]}),
        json!({"data": "x"}),
        json!({"data": false}),
        json!({"data": {"nested": {"a": [1, 2.5, "three", null]}, "": ""}}),
        json!({"text": "hi", "metadata": {"urn:x": {"deep": [true]}, "n": 1.5}}),
    ] {
        for binding in Binding::JSON {
            assert_eq!(echo(&server, binding, part.clone()).await.unwrap(), part, "{binding:?}");
        }
    }
}

#[tokio::test]
async fn both_alphabets_of_base64_are_read_and_the_standard_one_is_written() {
    let server = playing().await;
    for binding in Binding::JSON {
        for raw in ["+/+/aA==", "-_-_aA==", "+/+/aA", "-_-_aA"] {
            assert_eq!(
                echo(&server, binding, json!({"raw": raw})).await.unwrap(),
                json!({"raw": "+/+/aA=="}),
                "{raw}"
            );
        }
        for raw in ["!!!!", "a", "aGk=aGk=", "a b c d", "====", "\u{e9}"] {
            let refusal = echo(&server, binding, json!({"raw": raw})).await.unwrap_err();
            assert_eq!(refusal.fields, ["message.parts[0].raw"], "{raw}");
        }
    }
}

#[tokio::test]
async fn times_are_written_in_utc_and_read_with_any_offset() {
    let server = playing().await;
    let task = server.task("hi").await;
    let stamp = task["status"]["timestamp"].as_str().unwrap();
    assert!(
        stamp.ends_with('Z') && stamp.contains('T') && stamp.len() >= "2026-01-01T00:00:00.000Z".len(),
        "{stamp}"
    );
    for binding in Binding::JSON {
        for (after, found) in [
            (stamp, 1),
            ("2001-01-01T00:00:00Z", 1),
            ("2001-01-01T00:00:00+02:00", 1),
            ("2001-01-01T00:00:00.123456789-11:30", 1),
            ("2999-12-31T23:59:59Z", 0),
        ] {
            let listed = server.ask("ListTasks", json!({"statusTimestampAfter": after})).ok(binding).await;
            assert_eq!(listed["totalSize"], found, "{after} {binding:?}");
        }
        for after in ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "1767225600"]
        {
            let refusal =
                server.ask("ListTasks", json!({"statusTimestampAfter": after})).refused(binding).await;
            assert_eq!(refusal.fields, ["statusTimestampAfter"], "{after}");
        }
    }
}

#[tokio::test]
async fn null_is_absent_and_metadata_is_an_object() {
    let server = playing().await;
    for binding in Binding::JSON {
        let mut params = send("hi");
        params["metadata"] = Value::Null;
        params["configuration"] = Value::Null;
        params["message"]["metadata"] = Value::Null;
        params["message"]["taskId"] = Value::Null;
        params["message"]["contextId"] = Value::Null;
        params["message"]["extensions"] = Value::Null;
        let sent = server.ask("SendMessage", params).ok(binding).await;
        assert!(sent["task"]["history"][0].get("metadata").is_none(), "{sent}");
        for metadata in [json!([]), json!("x"), json!(1)] {
            let mut params = send("hi");
            params["message"]["metadata"] = metadata.clone();
            assert_eq!(wrong(&server, binding, params).await, ["message.metadata"], "{metadata}");
        }
        let mut params = send("hi");
        params["message"]["parts"] = json!([null]);
        assert_eq!(wrong(&server, binding, params).await, ["message.parts[0]"]);
    }
}

#[tokio::test]
async fn large_integers_survive_the_json_bindings() {
    let server = playing().await;
    for binding in Binding::JSON {
        let part = json!({"data": {"big": 9_007_199_254_740_993_i64, "bigger": u64::MAX, "least": i64::MIN}});
        assert_eq!(echo(&server, binding, part.clone()).await.unwrap(), part);
    }
}

#[tokio::test]
async fn everything_that_a_message_lacks_is_named_at_once() {
    let server = playing().await;
    for binding in Binding::JSON {
        let all = ["message.messageId", "message.role", "message.parts"];
        for params in [json!({"message": {}}), json!({"message": null}), json!({"metadata": {}})] {
            assert_eq!(wrong(&server, binding, params).await, all);
        }
        for (member, value) in [
            ("messageId", json!("")),
            ("messageId", Value::Null),
            ("role", json!("ROLE_UNSPECIFIED")),
            ("role", json!("ROLE_AGENT")),
            ("role", json!(0)),
            ("parts", json!([])),
            ("parts", Value::Null),
        ] {
            let mut message = message("hi");
            message[member] = value;
            assert_eq!(
                wrong(&server, binding, json!({"message": message})).await,
                [format!("message.{member}")]
            );
        }
    }
}

#[tokio::test]
async fn integers_may_be_written_as_strings_and_with_a_zero_fraction() {
    let server = playing().await;
    for size in [json!(2), json!("2"), json!(2.0), json!("2.0")] {
        let listed = server.rpc("ListTasks", json!({"pageSize": size})).await;
        assert_eq!(listed["result"]["pageSize"], 2, "{size}");
    }
    for size in [json!(2.5), json!("2.5"), json!(""), json!(4_294_967_296_i64), json!(true), json!([2])] {
        assert_eq!(
            server.rpc("ListTasks", json!({"pageSize": size})).await["error"]["code"],
            -32602,
            "{size}"
        );
    }
}

#[tokio::test]
async fn deep_nesting_is_refused_without_harm() {
    let server = playing().await;
    for depth in [101, 10_000, 500_000] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let data = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let params = format!(
                r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{data}}}]}}}}"#
            );
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
            assert_eq!(server.post(body).await.code(), -32600, "{depth}");
            let request =
                server.http(Method::POST, "/v1/message:send").header("Content-Type", "application/json");
            let reply = fetch(request.body(params)).await;
            assert_eq!(
                (reply.status.as_u16(), reply.json()["error"]["code"].clone()),
                (400, json!(400)),
                "{depth}"
            );
        }
    }
    let data = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    let part = json!({"data": serde_json::from_str::<Value>(&data).unwrap()});
    assert_eq!(echo(&server, Binding::JsonRpc, part.clone()).await.unwrap(), part);
}

#[test]
fn no_body_is_our_fault() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(serve(player()));
    let json = any::<Vec<u8>>().prop_map(|bytes| {
        // Pieces of a request in no particular order, so that some get far.
        const PIECES: [&str; 16] = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"jsonrpc\":\"2.0\"",
            "\"id\":1",
            "\"method\":\"SendMessage\"",
            "\"params\":",
            "\"message\":",
            "\"parts\":[{\"text\":\"hi\"}]",
            "\"role\":\"ROLE_USER\"",
            "\"messageId\":\"m\"",
            "null",
            "\u{e9}",
        ];
        bytes.iter().map(|byte| PIECES[usize::from(byte % 16)]).collect::<String>().into_bytes()
    });
    proptest!(ProptestConfig::with_cases(200), |(body in prop_oneof![any::<Vec<u8>>(), json])| {
        runtime.block_on(async {
            let reply = server.post(body.clone()).await;
            assert!(reply.status == 200 || reply.status == 204, "{reply:?}");
            if reply.status == 200 {
                assert_ne!(reply.json()["error"]["code"], json!(-32603));
            }
            for path in ["/v1/message:send", "/v1/tasks/t:cancel"] {
                let request = server.http(Method::POST, path).header("Content-Type", "application/json");
                let reply = fetch(request.body(body.clone())).await;
                assert!(reply.status.as_u16() < 500, "{reply:?}");
                assert!(reply.json().is_object());
            }
        });
    });
}
