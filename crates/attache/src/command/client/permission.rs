//! A request of an agent for a permission, as a person reads it, and the answer in the form that the agent expects.
//!
//! Two forms are known: that of this project, and that of iac-code, which accepts nothing but its own form. Texts of the request come
//! from the agent and are not trusted.

use attache::protocol::{JsonObject, Message, Part, TaskId};
use serde_json::{Value, json};

use super::show;

/// How many characters of the input of a tool are shown.
const MAX_INPUT: usize = 500;

/// A request for a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    title: String,
    /// What else is known about the request: names and values.
    about: Vec<(&'static str, String)>,
    options: Vec<Choice>,
    form: Form,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    id: String,
    name: String,
    meaning: Meaning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    AllowOnce,
    Deny,
    Other,
}

/// How the agent expects the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Attache,
    IacCode { task: String, input: String, tool_use: String },
}

/// An answer that was typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// It is one of those that can be given.
    Answer(Value),
    /// It is none. The agent can be sent the text, which repeats its question.
    Text,
    /// It is none, and the agent refuses anything else. The text says what can be typed.
    Refused(String),
}

impl Question {
    /// What a message or the metadata of its status ask.
    pub(crate) fn read(message: Option<&Message>, metadata: Option<&JsonObject>) -> Option<Self> {
        let parts = message.into_iter().flat_map(|message| &message.parts);
        let data: Vec<Value> = parts.filter_map(Part::as_data).filter_map(|data| data.read().ok()).collect();
        let metadata = [message.and_then(|message| message.metadata.as_ref()), metadata];
        let inputs = metadata.into_iter().flatten().filter_map(|it| it.get::<Value>("iac_code"));
        let inputs: Vec<Value> = inputs.filter_map(|mut own| own.get_mut("input").map(Value::take)).collect();
        let ours = || data.iter().find_map(|data| Self::ours(data.get("permission")?));
        data.iter().chain(&inputs).find_map(Self::of_iac_code).or_else(ours)
    }

    fn ours(asked: &Value) -> Option<Self> {
        let options = asked.get("options")?.as_array()?;
        let choice = |option: &Value| {
            let meaning = match option.get("kind").and_then(Value::as_str) {
                Some("allow_once") => Meaning::AllowOnce,
                Some("reject_once" | "reject_always") => Meaning::Deny,
                Some(_) | None => Meaning::Other,
            };
            Some(Choice { id: exact(option, "optionId")?, name: text(option, "name"), meaning })
        };
        let paths = asked.get("paths").and_then(Value::as_array).into_iter().flatten();
        let paths: Vec<String> = paths.filter_map(Value::as_str).map(show::line).collect();
        let input = asked.get("input").filter(|input| !input.is_null()).map(Value::to_string);
        let about = vec![
            ("why", text(asked, "why")),
            ("tool", text(asked, "tool")),
            ("files", paths.join(", ")),
            ("input", cut(&show::line(&input.unwrap_or_default()))),
        ];
        let title = text(asked, "title");
        Some(Self {
            title: if title.is_empty() { text(asked, "tool") } else { title },
            about: about.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            options: options.iter().map(choice).collect::<Option<_>>()?,
            form: Form::Attache,
        })
    }

    fn of_iac_code(asked: &Value) -> Option<Self> {
        if asked.get("kind").and_then(Value::as_str) != Some("permission") {
            return None;
        }
        let form = Form::IacCode {
            task: exact(asked, "requestTaskId")?,
            input: exact(asked, "inputId")?,
            tool_use: exact(asked, "toolUseId")?,
        };
        // It accepts these two decisions and no other, whatever its options are called.
        let names = asked.get("options").and_then(Value::as_array);
        let choice = |id: &str, name: &str, meaning| {
            let named =
                names.into_iter().flatten().find(|it| it.get("id").and_then(Value::as_str) == Some(id));
            let name =
                named.map(|it| text(it, "label")).filter(|it| !it.is_empty()).unwrap_or(name.to_owned());
            Choice { id: id.to_owned(), name, meaning }
        };
        let about = vec![
            ("why", text(asked, "purpose")),
            ("tool", text(asked, "toolName")),
            ("effect", text(asked, "effect")),
            ("target", text(asked, "target")),
        ];
        let title = ["title", "safeSummary", "toolName"].map(|name| text(asked, name));
        Some(Self {
            title: title.into_iter().find(|title| !title.is_empty()).unwrap_or_default(),
            about: about.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            options: vec![
                choice("allow_once", "Allow once", Meaning::AllowOnce),
                choice("deny", "Deny", Meaning::Deny),
            ],
            form,
        })
    }

    /// The request for people: what is asked, why, and the options with their numbers.
    pub(crate) fn shown(&self) -> String {
        let mut lines = vec![format!("The agent asks for permission: {}", self.title)];
        let width = self.about.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        lines.extend(self.about.iter().map(|(name, value)| format!("  {name:width$}  {value}")));
        for (number, option) in (1..).zip(&self.options) {
            let id = show::line(&option.id);
            let id = if id == option.name { String::new() } else { format!(" ({id})") };
            lines.push(format!("  {number}. {}{id}", option.name));
        }
        lines.join("\n")
    }

    /// What can be typed.
    pub(crate) fn help(&self) -> String {
        let once = self.of(Meaning::AllowOnce).map_or("", |_| "yes, ");
        format!("answer {once}no, or the number or the name of an option (1 to {})", self.options.len())
    }

    fn of(&self, meaning: Meaning) -> Option<&Choice> {
        self.options.iter().find(|option| option.meaning == meaning)
    }

    /// Reads what was typed: a number, an id or a name of an option, or a word for yes or no. The words come before the names, which the
    /// agent chooses.
    pub(crate) fn answer(&self, typed: &str) -> Typed {
        let typed = typed.trim();
        let lower = typed.to_lowercase();
        let is_same = |text: &str| show::line(text).to_lowercase() == lower;
        let chosen = match lower.trim_end_matches(['.', '!']) {
            "yes" | "y" | "ok" | "allow" => self.of(Meaning::AllowOnce),
            "no" | "n" | "deny" | "reject" => match self.of(Meaning::Deny) {
                None => return Typed::Answer(json!({"decision": "deny"})),
                deny => deny,
            },
            number => match number.parse::<usize>() {
                Ok(number) => number.checked_sub(1).and_then(|at| self.options.get(at)),
                Err(_) => self.options.iter().find(|option| is_same(&option.id) || is_same(&option.name)),
            },
        };
        match (&self.form, chosen) {
            (Form::Attache, Some(option)) => Typed::Answer(json!({"optionId": option.id})),
            (Form::Attache, None) => Typed::Text,
            (Form::IacCode { .. }, Some(option)) => Typed::Answer(self.decision(&option.id)),
            (Form::IacCode { .. }, None) => Typed::Refused(self.help()),
        }
    }

    /// A decision in the form of iac-code.
    fn decision(&self, decision: &str) -> Value {
        match &self.form {
            Form::Attache => json!({"decision": decision}),
            Form::IacCode { task, input, tool_use } => json!({
                "schemaVersion": 1, "kind": "permission", "requestTaskId": task, "inputId": input,
                "toolUseId": tool_use, "decision": decision,
            }),
        }
    }

    /// How to answer with `attache send`. `agent` is the address as a word.
    pub(crate) fn hint(&self, agent: &str, task: &TaskId) -> String {
        let send = format!("attache send {agent} --task {}", show::word(task.as_str()));
        match &self.form {
            Form::Attache => {
                format!("answer with `{send} yes`, or `no` or the name of an option instead of `yes`")
            }
            Form::IacCode { .. } => {
                let data = show::word(&self.decision("allow_once").to_string());
                format!(
                    "answer with `{send} --data {data}`, or with `deny` as the decision; `attache chat` does this"
                )
            }
        }
    }
}

/// Whether a message only says that the answer to a request was understood.
pub(crate) fn is_acknowledgement(message: &Message) -> bool {
    let kind = |part: &Part| part.as_data().and_then(|data| exact(&data.read().ok()?, "kind"));
    !message.parts.is_empty()
        && message.parts.iter().all(|part| kind(part).as_deref() == Some("permission_ack"))
}

/// A text on one line.
fn text(value: &Value, name: &str) -> String {
    cut(&show::line(value.get(name).and_then(Value::as_str).unwrap_or_default()))
}

/// A text as it is.
fn exact(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_INPUT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use attache::protocol::Role;

    use super::*;

    fn message(data: &Value) -> Message {
        let parts = vec![Part::text("May I?"), Part::data(data).unwrap()];
        Message { role: Role::Agent, parts, ..Message::default() }
    }

    fn ours() -> Question {
        let option = |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
        let asked = json!({"permission": {
            "id": "permission-1", "toolUseId": "c", "tool": "edit", "title": "Edit\nmain.rs", "why": "to fix it",
            "paths": ["src/main.rs"], "input": {"path": "src/main.rs"}, "options": [
                option("a1", "Always allow", "allow_always"), option("a2", "No", "allow_once"),
                option("r", "Reject", "reject_once"),
            ],
        }});
        Question::read(Some(&message(&asked)), None).unwrap()
    }

    fn theirs() -> Value {
        json!({
            "schemaVersion": 1, "kind": "permission", "requestTaskId": "t", "contextId": "c", "inputId": "permission-1",
            "toolUseId": "call-3", "toolName": "aliyun_ros", "title": "Create the stack", "purpose": "",
            "effect": "execute", "target": "vpc.yml", "options": [{"id": "allow_once", "label": "Allow once"}],
        })
    }

    #[test]
    fn a_request_is_shown_with_its_reason_and_its_options_by_number() {
        let shown = "The agent asks for permission: Edit main.rs\n  why    to fix it\n  tool   edit\n  files  src/main.rs\n  \
            input  {\"path\":\"src/main.rs\"}\n  1. Always allow (a1)\n  2. No (a2)\n  3. Reject (r)";
        assert_eq!(ours().shown(), shown);
        let shown = "The agent asks for permission: Create the stack\n  tool    aliyun_ros\n  effect  execute\n  \
            target  vpc.yml\n  1. Allow once (allow_once)\n  2. Deny (deny)";
        let question = Question::read(Some(&message(&theirs())), None).unwrap();
        assert_eq!(question.shown(), shown);
        // That system has it in the metadata.
        let metadata = JsonObject::new(&json!({"iac_code": {"input": theirs()}})).unwrap();
        assert_eq!(Question::read(None, Some(&metadata)), Some(question));
        assert_eq!(Question::read(Some(&message(&json!({"permission": "granted"}))), None), None);
        assert_eq!(Question::read(Some(&message(&json!({"kind": "permission"}))), None), None);
    }

    #[test]
    fn an_answer_is_a_number_a_name_or_a_word_and_no_is_never_the_name_of_an_option_that_allows() {
        let question = ours();
        for (typed, id) in [
            ("1", "a1"),
            ("always ALLOW", "a1"),
            ("a2", "a2"),
            ("yes", "a2"),
            ("y", "a2"),
            ("no", "r"),
            ("No.", "r"),
            ("3", "r"),
            ("reject", "r"),
        ] {
            assert_eq!(question.answer(typed), Typed::Answer(json!({"optionId": id})), "{typed}");
        }
        for typed in ["0", "4", "perhaps", ""] {
            assert_eq!(question.answer(typed), Typed::Text, "{typed}");
        }
    }

    #[test]
    fn iac_code_gets_exactly_the_members_that_it_accepts() {
        let question = Question::read(Some(&message(&theirs())), None).unwrap();
        for (typed, decision) in [("yes", "allow_once"), ("1", "allow_once"), ("2", "deny"), ("deny", "deny")]
        {
            let expected = json!({
                "schemaVersion": 1, "kind": "permission", "requestTaskId": "t", "inputId": "permission-1",
                "toolUseId": "call-3", "decision": decision,
            });
            assert_eq!(question.answer(typed), Typed::Answer(expected), "{typed}");
        }
        assert!(matches!(question.answer("perhaps"), Typed::Refused(_)));
        let acknowledgement = Message {
            parts: vec![Part::data(&json!({"kind": "permission_ack"})).unwrap()],
            ..Message::default()
        };
        assert!(is_acknowledgement(&acknowledgement) && !is_acknowledgement(&message(&theirs())));
        let hint = question.hint("http://localhost:41242", &TaskId::from("t"));
        assert!(hint.contains("--task t --data '{\"decision\":\"allow_once\""), "{hint}");
    }
}
