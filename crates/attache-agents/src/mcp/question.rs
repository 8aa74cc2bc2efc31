//! Questions of a server to the caller (elicitation), and their answers.

use attache_iii::{FunctionInfo, Schemas};
use attache_protocol::{Json, Message, Part};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::oneshot;

use super::error::excerpt;
use super::tools::text_member;

/// What a server wants to know while a call runs.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) text: String,
    /// The JSON Schema of the answer.
    pub(super) schema: Value,
    /// Where the answer goes. If it is dropped, the question is canceled.
    pub(super) reply: oneshot::Sender<Answer>,
}

/// The answer of the caller.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Accept(Value),
    /// The caller does not tell, and the call goes on.
    Decline,
    /// The caller wants to end the call.
    Cancel,
}

impl Question {
    /// The question as parts: the text, and the schema as data.
    pub(super) fn parts(&self) -> Vec<Part> {
        let text = match excerpt(&self.text) {
            text if text.is_empty() => "The tool needs input".to_owned(),
            text => text,
        };
        let schema = Part::data(&json!({ "requestedSchema": self.schema })).ok();
        let schema = schema.map(|part| part.media_type("application/json"));
        [Some(Part::text(text)), schema].into_iter().flatten().collect()
    }
}

/// Reads the answer in a message: a data part, JSON as text, or a plain text if the schema has one field. The words `decline` and
/// `cancel` are answers too. The error is for the caller, who can answer again.
pub(super) async fn read(message: &Message, schema: &Value, schemas: &Schemas) -> Result<Answer, String> {
    let data = message.parts.iter().find_map(Part::as_data).and_then(|data| data.read::<Value>().ok());
    let text = message.text();
    let text = text.trim();
    let content = match data {
        Some(data) => data,
        None => match text.to_ascii_lowercase().as_str() {
            "decline" => return Ok(Answer::Decline),
            "cancel" => return Ok(Answer::Cancel),
            _ => from_text(text, schema)?,
        },
    };
    let content = match action(content)? {
        Action::Accept(content) => content,
        Action::Decline => return Ok(Answer::Decline),
        Action::Cancel => return Ok(Answer::Cancel),
    };
    let function = FunctionInfo { request_format: Some(schema.clone()), ..FunctionInfo::new("question") };
    let payload = Json::new(&content).map_err(|error| error.to_string())?;
    match schemas.check(&Arc::new(function), &payload).await {
        Ok(()) => Ok(Answer::Accept(content)),
        Err(faults) => {
            let faults = faults.replace("`payload", "`answer");
            Err(format!("The answer does not match the schema: {faults}"))
        }
    }
}

enum Action {
    Accept(Value),
    Decline,
    Cancel,
}

/// Reads an answer in the form of MCP: `{"action": "accept", "content": {…}}`. Everything else is the content.
fn action(value: Value) -> Result<Action, String> {
    let Some(Value::String(action)) = value.get("action") else { return Ok(Action::Accept(value)) };
    let is_form =
        value.as_object().is_some_and(|it| it.keys().all(|key| key == "action" || key == "content"));
    match action.as_str() {
        _ if !is_form => Ok(Action::Accept(value)),
        "accept" => Ok(Action::Accept(value.get("content").cloned().unwrap_or_else(|| json!({})))),
        "decline" => Ok(Action::Decline),
        "cancel" => Ok(Action::Cancel),
        // The schema may have a field of this name.
        _ => Ok(Action::Accept(value)),
    }
}

/// An answer from a text.
fn from_text(text: &str, schema: &Value) -> Result<Value, String> {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
        return Ok(object);
    }
    let fields = schema.get("properties").and_then(Value::as_object);
    let only = match fields.map(|fields| (fields.len(), fields.iter().next())) {
        Some((1, Some((name, field)))) => Some((name.as_str(), field)),
        Some(_) | None => text_member(schema).and_then(|name| Some((name, fields?.get(name)?))),
    };
    let Some((name, field)) = only else {
        let names: Vec<&str> = fields.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        return Err(format!(
            "The answer must be JSON with these members: {}. Or answer `decline` or `cancel`.",
            names.join(", ")
        ));
    };
    let value = match field.get("type").and_then(Value::as_str) {
        Some("boolean") => match text.to_ascii_lowercase().as_str() {
            "yes" | "y" | "true" | "on" => json!(true),
            "no" | "n" | "false" | "off" => json!(false),
            _ => return Err(format!("`{name}` must be `yes` or `no`")),
        },
        Some("number" | "integer") => match serde_json::from_str::<Value>(text) {
            Ok(number @ Value::Number(_)) => number,
            Ok(_) | Err(_) => return Err(format!("`{name}` must be a number")),
        },
        Some(_) | None => json!(text),
    };
    Ok(json!({ name: value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(message: Message, schema: Value) -> Result<Answer, String> {
        read(&message, &schema, &Schemas::default()).await
    }

    async fn text(text: &str, schema: Value) -> Result<Answer, String> {
        answer(Message::user("m", text), schema).await
    }

    fn accept(value: Value) -> Result<Answer, String> {
        Ok(Answer::Accept(value))
    }

    fn two() -> Value {
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city", "days"]})
    }

    fn one(kind: &str) -> Value {
        json!({"type": "object", "properties": {"it": {"type": kind}}, "required": ["it"]})
    }

    #[tokio::test]
    async fn data_and_json_answer_every_schema() {
        let full = json!({"city": "Oslo", "days": 2});
        let data = Message { parts: vec![Part::data(&full).unwrap()], ..Message::default() };
        assert_eq!(answer(data, two()).await, accept(full.clone()));
        assert_eq!(text(&full.to_string(), two()).await, accept(full.clone()));
        let form = json!({"action": "accept", "content": full});
        assert_eq!(text(&form.to_string(), two()).await, accept(full));
    }

    #[tokio::test]
    async fn plain_text_answers_one_field_of_any_type() {
        assert_eq!(text("Oslo", one("string")).await, accept(json!({"it": "Oslo"})));
        assert_eq!(text(" 7 ", one("integer")).await, accept(json!({"it": 7})));
        assert_eq!(text("Yes", one("boolean")).await, accept(json!({"it": true})));
        assert_eq!(text("seven", one("integer")).await.unwrap_err(), "`it` must be a number");
        assert_eq!(text("maybe", one("boolean")).await.unwrap_err(), "`it` must be `yes` or `no`");
    }

    #[tokio::test]
    async fn words_decline_and_cancel() {
        assert_eq!(text("decline", two()).await, Ok(Answer::Decline));
        assert_eq!(text(" Cancel ", two()).await, Ok(Answer::Cancel));
        assert_eq!(text(r#"{"action": "decline"}"#, two()).await, Ok(Answer::Decline));
        assert_eq!(text(r#"{"action": "cancel"}"#, two()).await, Ok(Answer::Cancel));
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_says_what_would_be_right() {
        let error = text("Oslo", two()).await.unwrap_err();
        assert!(error.contains("city, days"), "{error}");
        let error = text(r#"{"city": "Oslo", "days": 0}"#, two()).await.unwrap_err();
        assert!(error.starts_with("The answer does not match the schema: `answer.days`"), "{error}");
    }
}
