//! No input causes a panic, a stack overflow or an internal error.

#[macro_use]
mod arbitrary;

use std::thread;

use attache_protocol::jsonrpc::{Call, error_response, write_response};
use attache_protocol::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use crate::arbitrary::check;

/// Reads `json` as the arguments of every operation, and checks the result.
fn parse_as_every_operation(json: &[u8]) -> Result<(), TestCaseError> {
    for operation in Operation::ALL {
        match operation.parse(json).and_then(|request| request.validate().map(|()| request)) {
            Ok(request) => prop_assert_eq!(request.operation(), *operation),
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidParams);
                prop_assert!(!error.field_violations().is_empty());
                prop_assert!(!error.message().contains(" at line "), "{}", error);
            }
        }
    }
    Ok(())
}

/// Reads `body` as a JSON-RPC request, and checks that a response is possible.
fn parse_as_envelope(body: &[u8]) -> Result<(), TestCaseError> {
    let response = match Call::parse(body) {
        Ok(call) => {
            prop_assert!(!call.method.is_empty());
            prop_assert_eq!((call.params.first(), call.params.last()), (Some(&b'{'), Some(&b'}')));
            let id = call.id.unwrap_or(jsonrpc::Id::NULL);
            prop_assert_eq!(&Call::peek_id(body), &id);
            let mut response = Vec::new();
            write_response(&id, &mut response, |out| out.extend_from_slice(b"null"));
            response
        }
        Err(invalid) => {
            let kind = invalid.error.kind();
            let is_json = serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
            prop_assert!(kind != ErrorKind::Parse || !is_json);
            prop_assert!(matches!(
                kind,
                ErrorKind::Parse | ErrorKind::InvalidRequest | ErrorKind::InvalidParams
            ));
            prop_assert_eq!(&Call::peek_id(body), &invalid.id);
            error_response(&invalid.id, &invalid.error)
        }
    };
    let response: Result<Value, _> = serde_json::from_slice(&response);
    prop_assert!(response.is_ok(), "{:?}", response);
    Ok(())
}

/// Reads `json` as every message.
fn parse_as_every_message(json: &[u8]) {
    macro_rules! read {
        ($($type:ident => $strategy:ident),+ $(,)?) => { $(
            if let Ok(value) = serde_json::from_slice::<$type>(json) {
                assert_eq!(serde_json::from_slice::<$type>(&serde_json::to_vec(&value).unwrap()).unwrap(), value);
            }
        )+ };
    }
    for_every_message!(read);
}

fn takes(bytes: &[u8]) -> Result<(), TestCaseError> {
    prop_assert!(json::depth(bytes) <= bytes.len());
    parse_as_every_message(bytes);
    parse_as_envelope(bytes)?;
    parse_as_every_operation(bytes)
}

#[test]
fn any_bytes_are_handled() {
    check(vec(any::<u8>(), 0..64), |bytes| takes(&bytes));
}

/// Bytes that look like JSON of the protocol but are mostly invalid.
#[test]
fn any_tokens_are_handled() {
    let token = select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "{\"",
        "\":",
        "\"",
        "\\",
        "null",
        "true",
        "0",
        "-1",
        "1e999",
        " ",
        "\n",
        "\\u",
        "\\ud800",
        "d800",
        "\u{2028}",
        "\"jsonrpc\":\"2.0\"",
        "\"id\":",
        "\"method\":\"GetTask\"",
        "\"params\":{",
        "\"message\":{",
        "\"parts\":[{",
        "\"text\":",
        "\"data\":",
        "\"raw\":\"",
        "\"role\":",
        "\"status\":",
        "\"metadata\":{",
        "\"historyLength\":",
        "\"pageSize\":",
    ]);
    check(vec(token, 0..24), |tokens| takes(tokens.concat().as_bytes()));
}

/// JSON of any shape whose names are those of the protocol.
fn shapeless() -> impl Strategy<Value = Value> {
    let name = select(vec![
        "id",
        "taskId",
        "task_id",
        "contextId",
        "tenant",
        "message",
        "messageId",
        "role",
        "parts",
        "text",
        "raw",
        "url",
        "data",
        "filename",
        "mediaType",
        "metadata",
        "extensions",
        "referenceTaskIds",
        "configuration",
        "status",
        "state",
        "timestamp",
        "historyLength",
        "pageSize",
        "pageToken",
        "statusTimestampAfter",
        "includeArtifacts",
        "taskPushNotificationConfig",
        "authentication",
        "scheme",
        "token",
        "acceptedOutputModes",
        "generation",
        "currentGeneration",
        "task",
        "statusUpdate",
        "artifactUpdate",
        "artifact",
        "artifacts",
        "history",
        "skills",
        "capabilities",
        "securitySchemes",
        "oauth2SecurityScheme",
        "flows",
        "implicit",
        "scopes",
        "schemes",
        "list",
        "jsonrpc",
        "method",
        "params",
    ]);
    let leaf = prop_oneof![
        arbitrary::json(),
        select(vec![
            "ROLE_USER",
            "TASK_STATE_WORKING",
            "2026-01-02T03:04:05Z",
            "https://é",
            "http://",
            "2.0",
            "aGk="
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 4, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => vec((name.clone(), inner), 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

#[test]
fn any_json_is_handled() {
    check(shapeless(), |json| takes(json.to_string().as_bytes()));
}

/// Changes one byte, or cuts the end.
#[derive(Debug, Clone)]
enum Damage {
    Byte(Index, u8),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![any::<u8>(), select(b"{}[]\",:\\0-9n\n".to_vec())];
    prop_oneof![
        3 => (any::<Index>(), byte).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

fn damaged(value: &impl serde::Serialize, damages: &[Damage]) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("a value that can be written");
    for damage in damages {
        match damage {
            Damage::Byte(at, byte) if !text.is_empty() => {
                let at = at.index(text.len());
                text[at] = *byte;
            }
            Damage::Cut(at) if !text.is_empty() => text.truncate(at.index(text.len())),
            Damage::Byte(..) | Damage::Cut(_) => {}
        }
    }
    text
}

mod damaged_messages_are_taken {
    use super::*;

    macro_rules! promises {
        ($($type:ident => $strategy:ident),+ $(,)?) => { $(
            #[test]
            fn $strategy() {
                check((arbitrary::$strategy(), vec(damage(), 1..4)), |(value, damages)| takes(&damaged(&value, &damages)));
            }
        )+ };
    }

    for_every_message!(promises);
}

#[test]
fn the_depth_is_the_depth_of_the_value() {
    fn depth(json: &Value) -> usize {
        match json {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    check(shapeless(), |value| {
        prop_assert_eq!(json::depth(value.to_string().as_bytes()), depth(&value));
        Ok(())
    });
}

#[test]
fn a_parsed_timestamp_is_formatted_and_parsed_to_the_same_value() {
    let digits =
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,10})?(Z|[+-][0-9]{2}:[0-9]{2})";
    let plausible = "[0-9]{4}-0[1-9]-[12][0-9]T[01][0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-9]:[0-5][0-9])";
    check(prop_oneof![arbitrary::text(), any::<String>(), digits, plausible], |text| {
        match text.parse::<Timestamp>() {
            Ok(time) => {
                prop_assert!(time.to_string().ends_with('Z'));
                prop_assert_eq!(time.to_string().parse(), Ok(time));
                prop_assert_eq!(Timestamp::new(time.seconds(), time.subsec_nanos()), Some(time));
            }
            Err(error) => prop_assert!(error.to_string().chars().count() < 160),
        }
        Ok(())
    });
}

#[test]
fn any_number_of_seconds_is_handled() {
    check((any::<i64>(), any::<i32>(), any::<i64>()), |(seconds, nanos, millis)| {
        for time in Timestamp::new(seconds, nanos).into_iter().chain([Timestamp::from_millis(millis)]) {
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
        Ok(())
    });
    for end in [i64::MIN, i64::MAX] {
        let time = Timestamp::from_millis(end);
        assert_eq!(time.to_string().parse(), Ok(time));
    }
}

#[test]
fn a_parsed_version_is_formatted_and_parsed_to_the_same_value() {
    check(
        prop_oneof![any::<String>(), "[ 0-9.v+-]{0,12}", " ?[0-9]{1,6}\\.[0-9]{1,6}(\\.[0-9]{1,6})? ?"],
        |text| {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string().parse(), Ok(version));
            }
            Ok(())
        },
    );
}

#[test]
fn any_text_is_handled_as_a_list_of_extensions() {
    check(vec(any::<String>(), 0..4), |fields| {
        let extensions = Extensions::parse(fields.iter().map(String::as_str));
        prop_assert!(
            extensions.iter().all(|uri| !uri.is_empty() && !uri.contains(',') && extensions.contains(uri))
        );
        Ok(())
    });
}

#[test]
fn an_error_is_short_however_long_the_input_is() {
    let long = "é".repeat(100_000);
    for (operation, text) in [
        (Operation::SendMessage, format!(r#""{long}""#)),
        (Operation::SendMessage, format!(r#"{{"message":"{long}"}}"#)),
        (Operation::SendMessage, format!(r#"{{"message":{{"role":"{long}"}}}}"#)),
        (Operation::SendMessage, format!(r#"{{"message":{{"parts":["{long}"]}}}}"#)),
        (Operation::SendMessage, format!(r#"{{"message":{{"parts":[{{"raw":"{long}"}}]}}}}"#)),
        (Operation::SendMessage, format!(r#"{{"message":{{"metadata":"{long}"}}}}"#)),
        (Operation::SendMessage, format!(r#"{{"configuration":{{"returnImmediately":"{long}"}}}}"#)),
        (Operation::ListTasks, format!(r#"{{"pageSize":"{long}"}}"#)),
        (Operation::ListTasks, format!(r#"{{"status":"{long}"}}"#)),
        (Operation::ListTasks, format!(r#"{{"statusTimestampAfter":"{long}"}}"#)),
    ] {
        let error = operation.parse(text.as_bytes()).unwrap_err();
        assert!(error.message().chars().count() < 500, "{operation:?}");
    }
    let invalid = Call::parse(format!(r#"{{"jsonrpc":"{long}","id":1}}"#).as_bytes()).unwrap_err();
    assert!(invalid.error.message().len() < 500);
}

/// Runs `test` with a stack that is too small for a recursion over its input.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(256 * 1024).spawn(test).unwrap().join().unwrap();
}

const DEEP: usize = 200_000;

fn handle_deep_input(text: &str) {
    assert!(json::depth(text.as_bytes()) >= DEEP);
    parse_as_envelope(text.as_bytes()).unwrap();
    parse_as_every_operation(text.as_bytes()).unwrap();
}

#[test]
fn unlimited_depth_is_rejected_on_a_small_stack() {
    on_a_small_stack(|| {
        for open in ["[", "{\"a\":", "{\"message\":", "{\"metadata\":", "{\"params\":"] {
            handle_deep_input(&open.repeat(DEEP));
        }
        handle_deep_input(&"{\"message\":{\"parts\":[".repeat(DEEP / 3 + 1));
        parse_as_every_message("[".repeat(DEEP).as_bytes());
    });
}

#[test]
fn deep_json_is_rejected_or_left_unparsed_on_a_small_stack() {
    on_a_small_stack(|| {
        let deep = "[".repeat(DEEP) + &"]".repeat(DEEP);
        for text in [
            format!(r#"{{"message":{deep}}}"#),
            format!(r#"{{"message":{{"parts":{deep}}}}}"#),
            format!(r#"{{"message":{{"role":{deep}}}}}"#),
            format!(r#"{{"historyLength":{deep}}}"#),
            format!(r#"{{"statusTimestampAfter":{deep}}}"#),
            format!(r#"{{"id":{deep}}}"#),
        ] {
            handle_deep_input(&text);
        }
        for text in [
            format!(r#"{{"jsonrpc":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{deep}}}}}"#),
        ] {
            parse_as_envelope(text.as_bytes()).unwrap();
        }
    });
}

#[test]
fn deep_data_stays_unparsed() {
    on_a_small_stack(|| {
        let deep = "[".repeat(DEEP) + &"]".repeat(DEEP);
        let text =
            format!(r#"{{"x":{deep},"message":{{"metadata":{{"a":{deep}}},"parts":[{{"data":{deep}}}]}}}}"#);
        let request = Operation::SendMessage.parse(text.as_bytes()).unwrap();
        assert_eq!(request, Operation::SendMessage.parse(text.as_bytes()).unwrap());
        let Request::SendMessage(request) = request else { panic!("not a send") };
        assert!(serde_json::to_string(&request).unwrap().contains(&deep));
        let data = request.message.parts[0].as_data().unwrap();
        assert!(data.read::<Value>().is_err());
        assert_eq!(request.message.metadata.unwrap().get::<Value>("a"), None);
    });
}
