//! The names of metadata that reports to the caller have.

use attache_protocol::JsonObject;
use serde_json::{Map, Value};

/// The member of the metadata that all others are in.
const NAMESPACE: &str = "attache";
/// A tool call: see [`tool`].
pub(super) const TOOL: &str = "tool";
/// The plan of the agent.
pub(super) const PLAN: &str = "plan";
/// Changes of files.
pub(super) const DIFF: &str = "diff";
/// A thought of the agent.
pub(super) const THOUGHT: &str = "thought";
/// The tokens that were used.
pub(super) const USAGE: &str = "usage";
/// Why the agent stopped, if not because it was done.
pub(super) const STOP_REASON: &str = "stopReason";
/// The request that the caller has to answer.
pub(super) const PERMISSION: &str = "permission";

/// The members of a tool call.
pub(super) mod tool {
    pub(in crate::acp) const STATUS: &str = "status";
    pub(in crate::acp) const ID: &str = "toolUseId";
    pub(in crate::acp) const NAME: &str = "name";
    pub(in crate::acp) const TITLE: &str = "title";
    pub(in crate::acp) const KIND: &str = "kind";
    pub(in crate::acp) const INPUT: &str = "input";
    pub(in crate::acp) const RESULT: &str = "result";
}

/// The most characters of one member.
const MAX_CHARACTERS: usize = 4_000;

/// Members as metadata, within the namespace. `None` if there are no members.
pub(super) fn object(members: Map<String, Value>) -> Option<JsonObject> {
    if members.is_empty() {
        return None;
    }
    JsonObject::new(&Map::from_iter([(NAMESPACE.to_owned(), Value::Object(members))])).ok()
}

/// A text, cut after the most characters that a member may have.
pub(super) fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_CHARACTERS).map_or(text.len(), |(index, _)| index);
    &text[..end]
}

/// A value, as a cut text if it is too large.
pub(super) fn cut_value(value: &Value) -> Value {
    if let Value::String(text) = value {
        return cut(text).into();
    }
    let text = value.to_string();
    let short = cut(&text);
    if short.len() == text.len() { value.clone() } else { short.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_cut_on_a_character() {
        assert_eq!(cut(&"ä".repeat(5_000)), "ä".repeat(4_000));
        assert_eq!(cut("short"), "short");
        assert_eq!(cut_value(&json!({"a": 1})), json!({"a": 1}));
        let large = json!({"a": "ä".repeat(5_000)});
        assert_eq!(cut_value(&large).as_str().unwrap().chars().count(), 4_000);
        assert!(object(Map::new()).is_none());
    }
}
