//! The question to the caller.

use attache_protocol::{ContextId, Message, Part, Role, Task, TaskId};
use serde_json::{Value, json};

use super::{PermissionOptionKind, PermissionRequest};
use crate::Namespace;
use crate::report::{cut, cut_value};

/// The question for people.
pub(super) fn text(request: &PermissionRequest, again: bool) -> String {
    let before = if again { "The answer was not understood. " } else { "" };
    let names: Vec<String> =
        request.shown_options().map(|option| format!("`{}`", cut(&option.name))).collect();
    let purpose = request.purpose.as_deref().map(|why| format!(" ({})", cut(why))).unwrap_or_default();
    let choice = match names.is_empty() {
        true => "Answer yes or no.".to_owned(),
        false => format!("Answer yes, no, or one of: {}.", names.join(", ")),
    };
    format!("{before}The agent asks for permission: {}{purpose}. {choice}", request.title())
}

/// The question for programs, in our form.
pub(super) fn data(request: &PermissionRequest, id: &str) -> Value {
    let options: Vec<Value> = match request.options.is_empty() {
        true => [("allow", "Allow", PermissionOptionKind::AllowOnce), ("deny", "Deny", PermissionOptionKind::RejectOnce)]
            .map(|(id, name, kind)| json!({"optionId": id, "name": name, "kind": kind.name()}))
            .to_vec(),
        false => request
            .shown_options()
            .map(|option| json!({"optionId": option.id, "name": cut(&option.name), "kind": option.kind.name()}))
            .collect(),
    };
    json!({"permission": {
        "id": id,
        "toolUseId": cut(&request.id),
        "tool": cut(&request.tool),
        "title": request.title(),
        "why": request.purpose.as_deref().map(cut),
        "paths": request.shown_paths().collect::<Vec<_>>(),
        "input": request.input.as_ref().map(cut_value),
        "options": options,
    }})
}

/// The question for programs, as clients of iac-code expect it.
pub(super) fn input(request: &PermissionRequest, task: &TaskId, context: &ContextId, id: &str) -> Value {
    json!({
        "schemaVersion": 1,
        "kind": "permission",
        "requestTaskId": task,
        "contextId": context,
        "inputId": id,
        "toolUseId": cut(&request.id),
        "toolName": cut(&request.tool),
        "title": request.title(),
        "purpose": request.purpose.as_deref().map(cut).unwrap_or_default(),
        "effect": request.kind.as_deref().map(cut).unwrap_or_default(),
        "target": request.paths.first().map(|path| cut(path)).unwrap_or_default(),
        "isReadOnly": request.kind.as_deref() == Some("read"),
        "prompt": text(request, false),
        "safeSummary": request.title(),
        "options": [{"id": "allow_once", "label": "Allow once"}, {"id": "deny", "label": "Deny"}],
        "language": "en",
        "required": true,
    })
}

/// What a message asks, if it asks for a permission. The object has the form of either namespace.
fn question_in(message: &Message) -> Option<Value> {
    let data = message.parts.iter().filter(|_| message.role == Role::Agent).find_map(Part::as_data)?;
    let mut data: Value = data.read().ok()?;
    match data.get("kind").and_then(Value::as_str) {
        Some("permission") => Some(data),
        Some(_) | None => data.get_mut("permission").map(Value::take).filter(Value::is_object),
    }
}

/// What the task waits for, if that is a permission.
pub(super) fn pending(task: &Task) -> Option<Value> {
    task.status.message.as_deref().filter(|_| task.status.state.is_interrupted()).and_then(question_in)
}

/// The id of a question.
pub(super) fn id(question: &Value) -> Option<String> {
    let id = question.get("inputId").or(question.get("id"))?;
    id.as_str().map(str::to_owned)
}

/// Whether the task waits for an answer about a permission.
pub(crate) fn waits_for_answer(task: &Task) -> bool {
    pending(task).is_some()
}

/// What the agent has said last, before a message of the caller.
fn last_said<'a>(task: &'a Task, own_message: &str) -> Option<&'a Message> {
    let mut earlier = task.history.iter().filter(|message| message.message_id != own_message);
    task.status.message.as_deref().or(earlier.next_back()).filter(|message| message.role == Role::Agent)
}

/// The request that was denied without an answer, if that is what the agent has said last.
pub(super) fn denied(task: &Task, own_message: &str) -> Option<PermissionRequest> {
    let metadata = last_said(task, own_message)?.parts.iter().find_map(|part| part.metadata.as_ref())?;
    let names = [Namespace::Attache, Namespace::IacCode].map(Namespace::name);
    let sections = names.into_iter().find_map(|name| metadata.get::<Value>(name))?;
    let members = sections.get("permission").filter(|members| members["decision"] == "deny")?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(PermissionRequest {
        title: text("title"),
        ..PermissionRequest::new(text("toolUseId"), text("toolName"))
    })
}

/// The id of the last question of a task.
pub(super) fn asked_id(task: &Task) -> Option<String> {
    let agents = task.history.iter().rev().filter(|message| message.role == Role::Agent);
    let question = task.status.message.as_deref().into_iter().chain(agents).find_map(question_in)?;
    id(&question)
}

/// The request that the caller was asked about before its message.
pub(super) fn asked(task: &Task, own_message: &str) -> Option<PermissionRequest> {
    let question = question_in(last_said(task, own_message)?)?;
    let text = |name: &str| question.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let tool = if question.get("toolName").is_some() { text("toolName") } else { text("tool") };
    Some(PermissionRequest { title: text("title"), ..PermissionRequest::new(text("toolUseId"), tool) })
}
