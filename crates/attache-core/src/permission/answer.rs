//! The answer of the caller.

use attache_protocol::{Error, ErrorKind, Message, Part, Role, Task};
use serde_json::{Map, Value};

use super::{PermissionOptionKind, PermissionRequest, question};

/// What the caller answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionAnswer {
    /// Whether the agent may do it.
    pub allows: bool,
    /// The id of the option, if the request has options and one fits.
    pub option: Option<String>,
}

impl PermissionAnswer {
    /// The answer for yes, to this request alone. If the request has options, one of them must allow it once: an option that allows more
    /// has to be chosen by the caller. Otherwise this is the answer for no.
    pub fn allowed(request: &PermissionRequest) -> Self {
        match find(request, &[PermissionOptionKind::AllowOnce]) {
            None if !request.options.is_empty() => Self::denied(request),
            option => Self { allows: true, option },
        }
    }

    /// The answer for no.
    pub fn denied(request: &PermissionRequest) -> Self {
        let kinds = [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways];
        Self { allows: false, option: find(request, &kinds) }
    }
}

/// The first option of one of these kinds, in their order.
fn find(request: &PermissionRequest, kinds: &[PermissionOptionKind]) -> Option<String> {
    let found = kinds.iter().find_map(|kind| request.shown_options().find(|option| option.kind == *kind))?;
    Some(found.id.clone())
}

/// The answer in a message: the id or the name of an option, a decision, or a word for yes or no. `None` if it is none of these.
pub(super) fn read(request: &PermissionRequest, message: &Message) -> Option<PermissionAnswer> {
    for data in message.parts.iter().filter_map(Part::as_data) {
        let Ok(value) = data.read::<Value>() else { continue };
        let chosen = value.get("permission").filter(|inner| inner.is_object()).unwrap_or(&value);
        if let Some(word) = ["optionId", "decision"].iter().find_map(|name| chosen.get(*name)?.as_str()) {
            return by_word(request, word);
        }
    }
    by_word(request, &message.text())
}

fn by_word(request: &PermissionRequest, word: &str) -> Option<PermissionAnswer> {
    let word = word.trim();
    let by_id = request.shown_options().find(|option| option.id == word);
    let by_name = || request.shown_options().find(|option| option.name.to_lowercase() == word.to_lowercase());
    if let Some(option) = by_id.or_else(by_name) {
        return Some(PermissionAnswer { allows: option.kind.allows(), option: Some(option.id.clone()) });
    }
    match word.to_lowercase().trim_end_matches(['.', '!']) {
        "yes" | "y" | "allow" | "ok" | "allow_once" => {
            Some(PermissionAnswer::allowed(request)).filter(|answer| answer.allows)
        }
        "no" | "n" | "deny" | "reject" => Some(PermissionAnswer::denied(request)),
        _ => None,
    }
}

/// The members of an answer, as clients of iac-code send it.
const MEMBERS: [&str; 6] = ["decision", "inputId", "kind", "requestTaskId", "schemaVersion", "toolUseId"];

/// Checks the answer of a client of iac-code before the message is accepted. Messages that have nothing to do with a permission pass.
/// `is_open` is whether the agent waits for an answer: otherwise the question of the task is void.
pub(crate) fn check_answer(task: &Task, message: &Message, is_open: bool) -> Result<(), Error> {
    // The texts are those that clients of iac-code know.
    let refuse = |text: &'static str| Err(Error::new(ErrorKind::InvalidParams, text));
    let object = |part: &Part| part.as_data().and_then(|data| data.read::<Map<String, Value>>().ok());
    let Some(asked) = question::pending(task).filter(|_| is_open) else {
        let answers = |members: Map<String, Value>| {
            members.get("kind").and_then(Value::as_str) == Some("permission")
                && members.contains_key("inputId")
        };
        return match message.parts.iter().filter_map(object).any(answers) {
            true => refuse("permission_resume_invalid: the task does not wait for a permission."),
            false => Ok(()),
        };
    };
    if message.role != Role::User {
        return refuse("Permission responses must use ROLE_USER.");
    }
    let is_json = |part: &&Part| {
        let essence =
            |media_type: &str| media_type.split(';').next().map(|it| it.trim().to_ascii_lowercase());
        part.media_type.as_deref().and_then(essence).is_none_or(|media_type| media_type == "application/json")
    };
    let members = match message.parts.as_slice() {
        [part] => Some(part).filter(is_json).and_then(object),
        _ => None,
    };
    let Some(members) = members else {
        return refuse("Permission responses must contain exactly one application/json DataPart.");
    };
    let is_version = members.get("schemaVersion").and_then(Value::as_f64) == Some(1.0);
    let is_kind = members.get("kind").and_then(Value::as_str) == Some("permission");
    if !members.keys().map(String::as_str).eq(MEMBERS) || !is_version || !is_kind {
        return refuse("Permission response payload fields do not match schemaVersion 1.");
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    if !matches!(text("decision"), "allow_once" | "deny") {
        return refuse("Permission decision must be allow_once or deny.");
    }
    if ["requestTaskId", "inputId", "toolUseId"].iter().any(|name| text(name).is_empty()) {
        return refuse("Permission response correlation fields are required.");
    }
    if text("requestTaskId") != task.id.as_str() {
        return refuse("Permission response taskId does not match requestTaskId.");
    }
    if ["inputId", "toolUseId"]
        .iter()
        .any(|name| asked.get(*name).and_then(Value::as_str) != Some(text(name)))
    {
        return refuse("input_response_mismatch: permission correlation does not match.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use attache_protocol::{TaskState, TaskStatus};
    use serde_json::json;

    use super::super::PermissionOption;
    use super::*;

    fn request() -> PermissionRequest {
        let option = |id: &str, name: &str, kind| PermissionOption { id: id.into(), name: name.into(), kind };
        PermissionRequest {
            options: vec![
                option("a2", "Always allow", PermissionOptionKind::AllowAlways),
                option("a1", "Allow", PermissionOptionKind::AllowOnce),
                option("r1", "Reject", PermissionOptionKind::RejectOnce),
            ],
            ..PermissionRequest::new("call-1", "edit")
        }
    }

    fn answer(allows: bool, option: Option<&str>) -> Option<PermissionAnswer> {
        Some(PermissionAnswer { allows, option: option.map(str::to_owned) })
    }

    #[test]
    fn an_answer_is_an_option_or_a_word_for_yes_or_no() {
        let read = |text: &str| read(&request(), &Message::user("m", text));
        for (text, expected) in [
            ("a2", answer(true, Some("a2"))),
            (" always ALLOW ", answer(true, Some("a2"))),
            ("yes", answer(true, Some("a1"))),
            ("Y", answer(true, Some("a1"))),
            ("allow", answer(true, Some("a1"))),
            ("No.", answer(false, Some("r1"))),
            ("deny", answer(false, Some("r1"))),
            ("reject", answer(false, Some("r1"))),
            ("perhaps", None),
            ("", None),
            ("yes, but first tell me why", None),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_request_without_options_takes_yes_and_no() {
        let request = PermissionRequest::new("c", "edit");
        let read = |text: &str| read(&request, &Message::user("m", text));
        assert_eq!(read("yes"), answer(true, None));
        assert_eq!(read("no"), answer(false, None));
        let mut only_no = self::request();
        only_no.options.retain(|option| !option.kind.allows());
        assert_eq!(super::read(&only_no, &Message::user("m", "yes")), None);
    }

    #[test]
    fn yes_never_chooses_an_option_that_allows_more_than_this_request() {
        let mut always = self::request();
        always.options.retain(|option| option.kind != PermissionOptionKind::AllowOnce);
        assert_eq!(Some(PermissionAnswer::allowed(&always)), answer(false, Some("r1")));
        let read = |text: &str| super::read(&always, &Message::user("m", text));
        assert_eq!((read("yes"), read("allow_once")), (None, None));
        // The caller itself may choose it.
        assert_eq!(read("a2"), answer(true, Some("a2")));
    }

    #[test]
    fn an_option_can_be_chosen_with_data() {
        for data in [json!({"optionId": "a2"}), json!({"permission": {"optionId": "a2"}})] {
            let message = Message::user("m", Part::data(&data).unwrap());
            assert_eq!(read(&request(), &message), answer(true, Some("a2")));
        }
        let message = Message::user("m", Part::data(&json!({"optionId": "other"})).unwrap());
        assert_eq!(read(&request(), &message), None);
        let message = Message::user("m", Part::data(&json!({"decision": "deny"})).unwrap());
        assert_eq!(read(&request(), &message), answer(false, Some("r1")));
    }

    fn waiting() -> Task {
        let asked = question::input(&request(), &"task-1".into(), &"context".into(), "permission-1");
        let message =
            Message { role: Role::Agent, parts: vec![Part::data(&asked).unwrap()], ..Message::default() };
        let status =
            TaskStatus { state: TaskState::InputRequired, message: Some(Box::new(message)), timestamp: None };
        Task { id: "task-1".into(), status, ..Task::default() }
    }

    #[test]
    fn a_strict_answer_is_checked_field_by_field() {
        let good = json!({"schemaVersion": 1, "kind": "permission", "requestTaskId": "task-1",
            "inputId": "permission-1", "toolUseId": "call-1", "decision": "allow_once"});
        let check = |message: Message| match check_answer(&waiting(), &message, true) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let data = |value: &Value| Part::data(value).unwrap().media_type("application/json");
        assert_eq!(check(Message::user("m", data(&good))), "");
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            check(Message::user("m", data(&changed)))
        };
        for (error, expected) in [
            (check(Message { role: Role::Agent, ..Message::user("m", data(&good)) }), "must use ROLE_USER."),
            (check(Message::user("m", "yes")), "must contain exactly one application/json DataPart."),
            (
                check(Message::user("m", data(&good)).part(Part::text("x"))),
                "must contain exactly one application/json DataPart.",
            ),
            (
                check(Message::user("m", data(&good).media_type("text/plain"))),
                "must contain exactly one application/json DataPart.",
            ),
            (with("extra", json!(1)), "payload fields do not match schemaVersion 1."),
            (with("schemaVersion", json!(2)), "payload fields do not match schemaVersion 1."),
            (with("kind", json!("other")), "payload fields do not match schemaVersion 1."),
            (with("decision", json!("perhaps")), "Permission decision must be allow_once or deny."),
            (with("inputId", json!("")), "Permission response correlation fields are required."),
            (
                with("requestTaskId", json!("task-2")),
                "Permission response taskId does not match requestTaskId.",
            ),
            (
                with("toolUseId", json!("x")),
                "input_response_mismatch: permission correlation does not match.",
            ),
            (with("inputId", json!("x")), "input_response_mismatch: permission correlation does not match."),
        ] {
            assert!(error.contains(expected), "{error} is not {expected}");
        }
        let idle = Task::default();
        for (task, is_open) in [(&idle, true), (&idle, false), (&waiting(), false)] {
            let late = check_answer(task, &Message::user("m", data(&good)), is_open).unwrap_err();
            assert!(late.to_string().contains("permission_resume_invalid"), "{late}");
            assert!(check_answer(task, &Message::user("m", "hello"), is_open).is_ok());
        }
    }
}
