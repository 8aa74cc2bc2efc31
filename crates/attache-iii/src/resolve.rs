//! Resolves the function that a message requests, and its payload.

use attache_protocol::{Json, Message, Part};
use serde::{Deserialize, Serialize};

/// What a message requests.
#[derive(Debug, PartialEq)]
pub(crate) enum Resolved {
    /// A function, by its id.
    Function {
        /// The function's id.
        id: String,
        /// The payload.
        payload: Json,
    },
    /// No function: text in plain language, files, or other data.
    Plain,
}

/// Why a message cannot be resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// The message names no function.
    #[error(
        "No function_id found. Send a data part with {{\"function_id\": \"...\", \"payload\": {{...}}}} or use :: notation in text."
    )]
    NoFunction,
    /// The function id is not a string.
    #[error("`function_id` must be a string such as \"pricing::quote\"")]
    NotAString,
}

/// Resolves a message: the first data part with a `function_id`, otherwise the first text.
pub(crate) fn resolve(message: &Message) -> Result<Resolved, Unresolved> {
    #[derive(Deserialize)]
    struct Direct {
        function_id: Json,
        #[serde(default)]
        payload: Option<Json>,
    }
    for data in message.parts.iter().filter_map(Part::as_data) {
        // Other data parts are ignored.
        let Ok(Direct { function_id, payload }) = data.read::<Direct>() else { continue };
        let Ok(id) = function_id.read::<String>() else { return Err(Unresolved::NotAString) };
        return Ok(Resolved::Function { id, payload: payload.unwrap_or_else(empty) });
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
        return Ok(Resolved::Function { id: first.to_owned(), payload });
    }
    // Files and data are for the default function, too.
    let is_empty = |part: &Part| part.as_text().is_some_and(|text| text.trim().is_empty());
    if message.parts.iter().all(is_empty) { Err(Unresolved::NoFunction) } else { Ok(Resolved::Plain) }
}

/// Whether a part is data with a `function_id`.
pub(crate) fn names_function(part: &Part) -> bool {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "function_id")]
        _function_id: Json,
    }
    part.as_data().is_some_and(|data| data.read::<Named>().is_ok())
}

#[derive(Serialize)]
struct Input<'a> {
    input: &'a str,
}

fn empty() -> Json {
    object(&serde_json::Map::new())
}

/// Strings can always be encoded as JSON.
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

    fn function(id: &str, payload: serde_json::Value) -> Result<Resolved, Unresolved> {
        Ok(Resolved::Function { id: id.to_owned(), payload: Json::new(&payload).unwrap() })
    }

    #[test]
    fn data_names_a_function_and_its_payload() {
        let resolved = |value| resolve(&message([data(value)]));
        assert_eq!(
            resolved(json!({"function_id": "a::b", "payload": {"x": 1}})),
            function("a::b", json!({"x": 1}))
        );
        assert_eq!(resolved(json!({"function_id": "a::b"})), function("a::b", json!({})));
        assert_eq!(resolved(json!({"function_id": "a::b", "payload": [1]})), function("a::b", json!([1])));
        assert_eq!(resolved(json!({"function_id": 7})), Err(Unresolved::NotAString));
        assert_eq!(resolved(json!({"payload": {}})), Ok(Resolved::Plain));
        assert_eq!(resolved(json!([])), Ok(Resolved::Plain));
    }

    #[test]
    fn data_comes_before_text() {
        let parts = [Part::text("c::d {}"), data(json!({"x": 1})), data(json!({"function_id": "a::b"}))];
        assert_eq!(resolve(&message(parts)), function("a::b", json!({})));
    }

    #[test]
    fn text_names_a_function_and_its_payload() {
        let resolved = |text: &str| resolve(&message([Part::text(text)]));
        assert_eq!(resolved("a::b {}"), function("a::b", json!({})));
        assert_eq!(resolved("a::b"), function("a::b", json!({})));
        assert_eq!(resolved(" a::b \n {\"x\": [1, 2]} "), function("a::b", json!({"x": [1, 2]})));
        assert_eq!(resolved("a::b 7"), function("a::b", json!(7)));
        assert_eq!(resolved("a::b hello there"), function("a::b", json!({"input": "hello there"})));
        assert_eq!(resolved("a::b {broken"), function("a::b", json!({"input": "{broken"})));
    }

    #[test]
    fn everything_else_is_for_the_default_function() {
        let resolved = |text: &str| resolve(&message([Part::text(text)]));
        assert_eq!(resolved("call a::b for me"), Ok(Resolved::Plain));
        assert_eq!(resolved("  "), Err(Unresolved::NoFunction));
        assert_eq!(resolve(&message([])), Err(Unresolved::NoFunction));
        assert_eq!(resolve(&message([Part::raw("bytes")])), Ok(Resolved::Plain));
        assert_eq!(resolve(&message([Part::text(" "), Part::url("https://a.example")])), Ok(Resolved::Plain));
    }

    #[test]
    fn numbers_keep_their_digits() {
        let resolved = resolve(&message([Part::text("a::b {\"n\": 123456789012345678901234567890}")]));
        let Ok(Resolved::Function { payload, .. }) = resolved else { panic!("{resolved:?}") };
        assert_eq!(payload.as_str(), "{\"n\": 123456789012345678901234567890}");
    }
}
