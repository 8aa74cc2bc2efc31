//! The payload of functions that take whole messages: the default function, functions whose metadata asks for it, and functions that
//! have asked a question.

use std::collections::BTreeMap;

use attache_core::Turn;
use attache_protocol::{Content, Json, Message, Role};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::FunctionInfo;
use crate::resolve::{Resolved, names_function, resolve};

/// The metadata key with which a function asks for whole messages.
pub(crate) const INPUT: &str = "a2a.input";

/// The value of [`INPUT`].
pub(crate) const MESSAGE: &str = "message";

/// Whether the metadata of a function asks for whole messages.
pub(crate) fn takes_messages(function: &FunctionInfo) -> bool {
    function.metadata_value(INPUT).and_then(Value::as_str) == Some(MESSAGE)
}

/// The function and the payload of the latest earlier message of the task that names a function. An answer to a question of that
/// function names none.
pub(crate) fn asking_function(turn: &Turn) -> Option<(String, Json)> {
    let task = turn.task()?;
    let own = &turn.message().message_id;
    let earlier =
        task.history.iter().rev().filter(|message| message.role == Role::User && message.message_id != *own);
    earlier.into_iter().find_map(|message| match resolve(message) {
        Ok(Resolved::Function { id, payload }) => Some((id, payload)),
        Ok(Resolved::Plain) | Err(_) => None,
    })
}

/// The payload for a whole message. Agents use different names for the text, so it has several of them. `payload` is what the
/// message gives to the function itself, if it names the function.
pub(crate) fn message_payload(
    turn: &Turn,
    function: &FunctionInfo,
    payload: Option<&Json>,
    history: &RawValue,
) -> Result<Json, serde_json::Error> {
    #[derive(Serialize)]
    struct Caller<'a> {
        name: Option<&'a str>,
        scopes: Vec<&'a str>,
    }
    let (message, caller) = (turn.message(), turn.caller());
    let text = Json::new(&message.text())?;
    let context = Json::new(turn.context_id())?;
    let mut members = BTreeMap::from([
        ("agentId", Json::new("default")?),
        ("message", text.clone()),
        ("input", text),
        ("sessionId", context.clone()),
        ("history", Json::new(history)?),
    ]);
    let caller = Caller { name: caller.principal().name(), scopes: caller.rights.scopes().collect() };
    let more = [
        ("taskId", Json::new(turn.task_id())?),
        ("contextId", context),
        ("caller", Json::new(&caller)?),
        ("parts", Json::new(&message.parts)?),
        ("metadata", Json::new(&message.metadata)?),
        ("payload", Json::new(&payload)?),
    ];
    members.extend(more.into_iter().filter(|(name, _)| accepts(function, name)));
    Json::new(&members)
}

/// What a function gets of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The payload that the message has for it.
    Payload,
    /// The whole message.
    Message,
}

/// Why a function cannot get the files and the data of a message, if it cannot. Text beside a payload is a note for people.
pub(crate) fn left_out(message: &Message, function: &FunctionInfo, scope: Scope) -> Option<String> {
    let is_content = |content: &Content| match content {
        Content::Text(_) => false,
        Content::Raw(_) | Content::Url(_) | Content::Data(_) => true,
    };
    // The first data part that names a function is the call itself.
    let call = message.parts.iter().position(names_function);
    let mut parts = message.parts.iter().enumerate();
    if !parts.any(|(at, part)| is_content(&part.content) && Some(at) != call) {
        return None;
    }
    let id = &function.id;
    match scope {
        Scope::Payload => Some(format!(
            "The function '{id}' gets its payload only, and the message has a file or other data: send the payload alone. For whole messages the function needs `\"{INPUT}\": \"{MESSAGE}\"` in its metadata"
        )),
        Scope::Message if accepts(function, "parts") => None,
        Scope::Message => Some(format!(
            "The function '{id}' cannot get the files and the data of the message: its schema lists no member `parts` and allows no others"
        )),
    }
}

/// Whether the schema of a function allows a member. A function with a strict schema gets only the members that it lists.
fn accepts(function: &FunctionInfo, member: &str) -> bool {
    let Some(schema) = &function.request_format else { return true };
    let is_listed = schema.get("properties").is_some_and(|properties| properties.get(member).is_some());
    is_listed || schema.get("additionalProperties") != Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use attache_protocol::Part;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_strict_schema_gets_only_what_it_lists() {
        let function =
            |schema: Value| FunctionInfo { request_format: Some(schema), ..FunctionInfo::new("a::b") };
        let strict = function(json!({"properties": {"taskId": {}}, "additionalProperties": false}));
        assert!(accepts(&strict, "taskId") && !accepts(&strict, "parts"));
        assert!(accepts(&function(json!({"properties": {"taskId": {}}})), "parts"));
        assert!(accepts(&FunctionInfo::new("a::b"), "parts"));
    }

    #[test]
    fn files_and_data_that_a_function_cannot_get_are_noticed() {
        let call = || Part::data(&json!({"function_id": "a::b"})).unwrap();
        let other = || Part::data(&json!({"x": 1})).unwrap();
        let message = |parts: Vec<Part>| Message { parts, ..Message::default() };
        let function = FunctionInfo::new("a::b");
        let strict = FunctionInfo {
            request_format: Some(json!({"properties": {"input": {}}, "additionalProperties": false})),
            ..FunctionInfo::new("a::b")
        };
        for (parts, is_whole) in [
            (vec![call()], true),
            (vec![Part::text("please"), call(), Part::text("now")], true),
            (vec![Part::text("a::b {}")], true),
            (vec![call(), call()], false),
            (vec![other(), call()], false),
            (vec![Part::text("a::b {}"), Part::raw("bytes")], false),
            (vec![call(), Part::url("https://a.example")], false),
        ] {
            let message = message(parts);
            assert_eq!(left_out(&message, &function, Scope::Payload).is_none(), is_whole, "{message:?}");
            assert_eq!(left_out(&message, &strict, Scope::Message).is_none(), is_whole, "{message:?}");
            assert_eq!(left_out(&message, &function, Scope::Message), None, "{message:?}");
        }
    }

    #[test]
    fn only_the_value_message_asks_for_messages() {
        let function = |value: Value| FunctionInfo {
            metadata: Some(json!({"a2a.input": value})),
            ..FunctionInfo::new("a::b")
        };
        assert!(takes_messages(&function(json!("message"))));
        assert!(!takes_messages(&function(json!("payload"))) && !takes_messages(&function(json!(true))));
    }
}
