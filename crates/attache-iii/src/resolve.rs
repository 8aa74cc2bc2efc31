//! Which function a message means, and what to give it.

use attache_protocol::{ContextId, Json, Message, Part};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a message asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    /// A function by its id.
    Function {
        /// Its id.
        id: String,
        /// What to give it.
        payload: Json,
    },
    /// Something in plain language.
    Plain(String),
}

/// A message from which it cannot be told what it asks for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// It names no function.
    #[error(
        "No function_id found. Send a data part with {{\"function_id\": \"...\", \"payload\": {{...}}}} or use :: notation in text."
    )]
    NoFunction,
    /// It names one in a way that cannot be understood.
    #[error("`function_id` must be a string such as \"pricing::quote\"")]
    NotAString,
}

/// Reads what a message asks for: the first data part with a `function_id`, or else the first text.
pub(crate) fn resolve(message: &Message) -> Result<Asked, Unresolved> {
    #[derive(Deserialize)]
    struct Direct {
        function_id: Json,
        #[serde(default)]
        payload: Option<Json>,
    }
    for data in message.parts.iter().filter_map(Part::as_data) {
        // Data of another shape is not for us to read.
        let Ok(Direct { function_id, payload }) = data.read::<Direct>() else { continue };
        let Ok(id) = function_id.read::<String>() else { return Err(Unresolved::NotAString) };
        return Ok(Asked::Function { id, payload: payload.unwrap_or_else(empty) });
    }
    let text = message.parts.iter().find_map(Part::as_text).map(str::trim).unwrap_or_default();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if first.contains("::") {
        let rest = rest.trim();
        let payload = match Json::parse(rest) {
            Ok(payload) => payload,
            Err(_) if rest.is_empty() => empty(),
            Err(_) => object(&Input { input: rest }),
        };
        return Ok(Asked::Function { id: first.to_owned(), payload });
    }
    let text = message.text();
    if text.trim().is_empty() { Err(Unresolved::NoFunction) } else { Ok(Asked::Plain(text)) }
}

#[derive(Serialize)]
struct Input<'a> {
    input: &'a str,
}

/// What an agent among the functions gets of a message in plain language: agents differ in what they call it. With it comes what
/// was said before in the same conversation.
pub(crate) fn plain_payload(text: &str, context: &ContextId, history: &RawValue) -> Json {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Plain<'a> {
        agent_id: &'static str,
        message: &'a str,
        input: &'a str,
        session_id: &'a str,
        history: &'a RawValue,
    }
    object(&Plain { agent_id: "default", message: text, input: text, session_id: context.as_str(), history })
}

fn empty() -> Json {
    object(&serde_json::Map::new())
}

/// Strings can always be written as JSON.
fn object<T: Serialize>(value: &T) -> Json {
    Json::new(value).unwrap_or_else(|_| empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(parts: impl IntoIterator<Item = Part>) -> Message {
        Message { parts: parts.into_iter().collect(), ..Message::default() }
    }

    fn data(value: serde_json::Value) -> Part {
        Part::data(&value).unwrap()
    }

    fn function(id: &str, payload: serde_json::Value) -> Result<Asked, Unresolved> {
        Ok(Asked::Function { id: id.to_owned(), payload: Json::new(&payload).unwrap() })
    }

    #[test]
    fn data_names_a_function_and_its_payload() {
        let asked = |value| resolve(&message([data(value)]));
        assert_eq!(
            asked(json!({"function_id": "a::b", "payload": {"x": 1}})),
            function("a::b", json!({"x": 1}))
        );
        assert_eq!(asked(json!({"function_id": "a::b"})), function("a::b", json!({})));
        assert_eq!(asked(json!({"function_id": "a::b", "payload": [1]})), function("a::b", json!([1])));
        assert_eq!(asked(json!({"function_id": 7})), Err(Unresolved::NotAString));
        assert_eq!(asked(json!({"payload": {}})), Err(Unresolved::NoFunction));
        assert_eq!(asked(json!([])), Err(Unresolved::NoFunction));
    }

    #[test]
    fn data_comes_before_text() {
        let parts = [Part::text("c::d {}"), data(json!({"x": 1})), data(json!({"function_id": "a::b"}))];
        assert_eq!(resolve(&message(parts)), function("a::b", json!({})));
    }

    #[test]
    fn text_names_a_function_and_its_payload() {
        let asked = |text: &str| resolve(&message([Part::text(text)]));
        assert_eq!(asked("a::b {}"), function("a::b", json!({})));
        assert_eq!(asked("a::b"), function("a::b", json!({})));
        assert_eq!(asked(" a::b \n {\"x\": [1, 2]} "), function("a::b", json!({"x": [1, 2]})));
        assert_eq!(asked("a::b 7"), function("a::b", json!(7)));
        assert_eq!(asked("a::b hello there"), function("a::b", json!({"input": "hello there"})));
        assert_eq!(asked("a::b {broken"), function("a::b", json!({"input": "{broken"})));
    }

    #[test]
    fn other_text_is_plain_language() {
        let asked = |text: &str| resolve(&message([Part::text(text)]));
        assert_eq!(asked("call a::b for me"), Ok(Asked::Plain("call a::b for me".to_owned())));
        assert_eq!(asked("  "), Err(Unresolved::NoFunction));
        assert_eq!(resolve(&message([Part::raw("bytes")])), Err(Unresolved::NoFunction));
    }

    #[test]
    fn numbers_keep_their_digits() {
        let asked = resolve(&message([Part::text("a::b {\"n\": 123456789012345678901234567890}")]));
        let Ok(Asked::Function { payload, .. }) = asked else { panic!("{asked:?}") };
        assert_eq!(payload.as_str(), "{\"n\": 123456789012345678901234567890}");
    }
}
