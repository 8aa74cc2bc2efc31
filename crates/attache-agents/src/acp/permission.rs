//! Requests for permission: the question to the caller, and the answer.

use attache_protocol::{Message, Part};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Responder;
use super::metadata::{self, PERMISSION};
use super::wire::{PermissionOption, PermissionParams, ToolCall};

/// How many options the caller can choose from.
const MAX_OPTIONS: usize = 32;

/// A request for permission that has no answer yet. If it is dropped, it is answered as canceled.
pub(super) struct PermissionRequest {
    pub(super) tool: ToolCall,
    pub(super) options: Vec<PermissionOption>,
    responder: Option<Responder>,
}

/// What the caller answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The option with this id.
    Option(String),
    /// No, but the agent offers no option for that.
    No,
}

impl PermissionRequest {
    pub(super) fn new(params: PermissionParams, responder: Responder) -> Self {
        let mut options = params.options;
        options.truncate(MAX_OPTIONS);
        for option in &mut options {
            option.name = metadata::cut(&option.name).to_owned();
        }
        Self { tool: params.tool_call, options, responder: Some(responder) }
    }

    /// What the agent wants to do.
    pub(super) fn title(&self) -> &str {
        let tool = &self.tool;
        metadata::cut(tool.title.as_deref().or(tool.name.as_deref()).unwrap_or("use a tool"))
    }

    /// Allows it, if there is an option for that.
    pub(super) fn allow(self) {
        let answer = find(&self.options, true).unwrap_or(Answer::No);
        self.answer(answer);
    }

    /// Denies it.
    pub(super) fn deny(self) {
        let answer = find(&self.options, false).unwrap_or(Answer::No);
        self.answer(answer);
    }

    /// Gives the answer to the agent.
    pub(super) fn answer(mut self, answer: Answer) {
        // Dropping the request says no.
        if let Answer::Option(id) = answer
            && let Some(responder) = self.responder.take()
        {
            responder.respond(Ok(json!({"outcome": {"outcome": "selected", "optionId": id}})));
        }
    }

    /// The question to the caller: a text for people, and data for machines.
    pub(super) fn question(&self, again: bool) -> Result<Vec<Part>, serde_json::Error> {
        let names: Vec<String> = self.options.iter().map(|option| format!("`{}`", option.name)).collect();
        let before = if again { "The answer was not understood. " } else { "" };
        let text = format!(
            "{before}The agent asks for permission: {}. Answer yes, no, or one of: {}.",
            self.title(),
            names.join(", ")
        );
        let permission = json!({
            "tool": self.tool.name.as_deref().or(self.tool.kind.as_deref()),
            "title": self.title(),
            "options": self.options,
        });
        let data = Part::data(&json!({PERMISSION: permission}))?.media_type("application/json");
        Ok(vec![Part::text(text), data])
    }

    /// The answer in a message: the id or the name of an option, or a word for yes or no. `None` if it is none of these.
    pub(super) fn read_answer(&self, message: &Message) -> Option<Answer> {
        read_answer(&self.options, message)
    }
}

impl Drop for PermissionRequest {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.take() {
            responder.respond(Ok(json!({"outcome": {"outcome": "cancelled"}})));
        }
    }
}

/// The option for yes or no. The one that holds only once comes first.
fn find(options: &[PermissionOption], is_yes: bool) -> Option<Answer> {
    let kinds = if is_yes { ["allow_once", "allow_always"] } else { ["reject_once", "reject_always"] };
    let found = kinds.iter().find_map(|kind| options.iter().find(|option| option.kind == *kind))?;
    Some(Answer::Option(found.option_id.clone()))
}

fn read_answer(options: &[PermissionOption], message: &Message) -> Option<Answer> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Chosen {
        option_id: String,
    }
    let by_id = |id: &str| options.iter().find(|option| option.option_id == id);
    for data in message.parts.iter().filter_map(Part::as_data) {
        let value: Value = data.read().ok()?;
        let chosen = value.get(PERMISSION).unwrap_or(&value);
        if let Ok(Chosen { option_id }) = Chosen::deserialize(chosen) {
            return by_id(&option_id).map(|option| Answer::Option(option.option_id.clone()));
        }
    }
    let text = message.text();
    let text = text.trim();
    let by_name = || options.iter().find(|option| option.name.to_lowercase() == text.to_lowercase());
    if let Some(option) = by_id(text).or_else(by_name) {
        return Some(Answer::Option(option.option_id.clone()));
    }
    match text.to_lowercase().trim_end_matches(['.', '!']) {
        "yes" | "y" | "allow" | "ok" => find(options, true),
        "no" | "n" | "deny" | "reject" => Some(find(options, false).unwrap_or(Answer::No)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Vec<PermissionOption> {
        let option = |id: &str, name: &str, kind: &str| PermissionOption {
            option_id: id.into(),
            name: name.into(),
            kind: kind.into(),
        };
        vec![
            option("a2", "Always allow", "allow_always"),
            option("a1", "Allow", "allow_once"),
            option("r1", "Reject", "reject_once"),
        ]
    }

    fn read(text: &str) -> Option<Answer> {
        read_answer(&options(), &Message::user("m", text))
    }

    #[test]
    fn an_answer_is_an_option_or_a_word_for_yes_or_no() {
        let option = |id: &str| Some(Answer::Option(id.to_owned()));
        for (text, expected) in [
            ("a2", option("a2")),
            (" always ALLOW ", option("a2")),
            ("yes", option("a1")),
            ("Y", option("a1")),
            ("allow", option("a1")),
            ("No.", option("r1")),
            ("deny", option("r1")),
            ("reject", option("r1")),
            ("perhaps", None),
            ("", None),
            ("yes, but first tell me why", None),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert_eq!(read_answer(&[], &Message::user("m", "no")), Some(Answer::No));
        assert_eq!(read_answer(&[], &Message::user("m", "yes")), None);
    }

    #[test]
    fn an_option_can_be_chosen_with_data() {
        for data in [json!({"optionId": "a2"}), json!({"permission": {"optionId": "a2"}})] {
            let message = Message::user("m", Part::data(&data).unwrap());
            assert_eq!(read_answer(&options(), &message), Some(Answer::Option("a2".into())));
        }
        let message = Message::user("m", Part::data(&json!({"optionId": "other"})).unwrap());
        assert_eq!(read_answer(&options(), &message), None);
    }
}
