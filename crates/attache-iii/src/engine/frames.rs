//! Encodes the frames of calls. Payloads are JSON text already and are copied as they are.

use std::fmt::Write;

use uuid::Uuid;

use crate::wire::ErrorBody;

/// The members of a call besides its payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras<'a> {
    /// JSON: the metadata of the trigger that fired.
    pub(super) metadata: Option<&'a str>,
    pub(super) traceparent: Option<&'a str>,
    pub(super) baggage: Option<&'a str>,
}

/// Encodes a call for the worker that has the function. If `caller` is set and the payload is an object, the object gets its id.
pub(super) fn invoke(
    id: Uuid,
    function: &str,
    data: Option<&str>,
    caller: Option<&str>,
    extras: Extras<'_>,
) -> String {
    let mut frame = String::with_capacity(160 + function.len() + data.map_or(0, str::len));
    frame.push_str(r#"{"type":"invokefunction","invocation_id":""#);
    push_uuid(&mut frame, id);
    frame.push_str(r#"","function_id":"#);
    push_string(&mut frame, function);
    frame.push_str(r#","data":"#);
    push_data(&mut frame, data.unwrap_or("null"), caller);
    if let Some(metadata) = extras.metadata {
        frame.push_str(r#","metadata":"#);
        frame.push_str(metadata);
    }
    if let Some(traceparent) = extras.traceparent {
        frame.push_str(r#","traceparent":"#);
        push_string(&mut frame, traceparent);
    }
    if let Some(baggage) = extras.baggage {
        frame.push_str(r#","baggage":"#);
        push_string(&mut frame, baggage);
    }
    frame.push('}');
    frame
}

/// Encodes the result of a call, for the worker that made the call.
pub(super) fn result(id: Uuid, function: &str, outcome: Result<&str, &ErrorBody>) -> String {
    let mut frame = String::with_capacity(128 + function.len() + outcome.map_or(128, str::len));
    frame.push_str(r#"{"type":"invocationresult","invocation_id":""#);
    push_uuid(&mut frame, id);
    frame.push_str(r#"","function_id":"#);
    push_string(&mut frame, function);
    match outcome {
        Ok(result) => {
            frame.push_str(r#","result":"#);
            frame.push_str(result);
        }
        Err(error) => {
            frame.push_str(r#","error":"#);
            frame.push_str(&serde_json::to_string(error).unwrap_or_default());
        }
    }
    frame.push('}');
    frame
}

/// Appends the payload. The caller comes last, so that it overrides a caller that the payload claims.
fn push_data(frame: &mut String, data: &str, caller: Option<&str>) {
    let members = data.strip_prefix('{').and_then(|data| data.trim_end().strip_suffix('}'));
    let (Some(members), Some(caller)) = (members, caller) else {
        frame.push_str(data);
        return;
    };
    frame.push('{');
    frame.push_str(members);
    if !members.trim_ascii().is_empty() {
        frame.push(',');
    }
    frame.push_str(r#""_caller_worker_id":"#);
    push_string(frame, caller);
    frame.push('}');
}

fn push_uuid(frame: &mut String, id: Uuid) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    frame.push_str(id.hyphenated().encode_lower(&mut text));
}

fn push_string(frame: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        frame.push('"');
        frame.push_str(text);
        frame.push('"');
    } else {
        // Writing to a string cannot fail.
        let _ = write!(frame, "{}", serde_json::Value::from(text));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_caller_overrides_a_caller_that_the_payload_claims() {
        let data = r#"{"_caller_worker_id":"someone else", "a":1 }"#;
        let frame = invoke(Uuid::nil(), "f", Some(data), Some("w"), Extras::default());
        let frame: Value = serde_json::from_str(&frame).unwrap();
        assert_eq!(frame["data"], json!({"a": 1, "_caller_worker_id": "w"}));
    }

    #[test]
    fn a_payload_that_is_no_object_is_not_changed() {
        for data in ["null", "[{}]", "\"{}\"", "7"] {
            let frame = invoke(Uuid::nil(), "f", Some(data), Some("w"), Extras::default());
            assert!(frame.ends_with(&format!(r#""data":{data}}}"#)), "{frame}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_json_for_any_content(function in ".*", trace in ".*", key in ".*", value in ".*") {
            let data = json!({ &key: &value });
            let extras = Extras { traceparent: Some(&trace), metadata: Some("[1]"), baggage: None };
            let frame = invoke(Uuid::nil(), &function, Some(&data.to_string()), None, extras);
            let frame: Value = serde_json::from_str(&frame).unwrap();
            prop_assert_eq!(&frame["function_id"], &json!(function));
            prop_assert_eq!(&frame["traceparent"], &json!(trace));
            prop_assert_eq!(&frame["data"], &data);
        }
    }
}
