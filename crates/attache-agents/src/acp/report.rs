//! Reports to the caller about what the agent does: tool calls, plans, thoughts.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::metadata::{self, DIFF, PLAN, THOUGHT, TOOL, USAGE, cut, cut_value, tool};
use super::wire::{ContentBlock, Plan, ToolCall, ToolContent};
use super::workspace::Workspace;

/// How many tool calls are remembered until they end.
const MAX_TOOLS: usize = 1_000;

/// How many entries of a plan are reported.
const MAX_ENTRIES: usize = 100;

/// A report: a text for people, and members of the metadata for machines.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    /// Empty if there is nothing to say to people.
    pub(super) text: String,
    pub(super) members: Map<String, Value>,
}

/// What is known about a prompt from its earlier events.
#[derive(Default)]
pub(super) struct Progress {
    tools: HashMap<String, KnownTool>,
    /// The last usage that the agent reported.
    pub(super) usage: Option<Value>,
    /// Whether the agent has answered anything.
    pub(super) has_output: bool,
    /// Whether the answer has text from earlier prompts.
    pub(super) follows_text: bool,
    /// Whether the next text is a new paragraph of the answer.
    pub(super) new_paragraph: bool,
    /// The message that the last text belongs to.
    pub(super) message_id: Option<String>,
}

/// A tool call that has not ended. Updates contain only what has changed.
#[derive(Default)]
struct KnownTool {
    title: Option<String>,
    name: Option<String>,
    kind: Option<String>,
    status: Option<String>,
}

impl Progress {
    /// The report about a new or a changed tool call. `None` if nothing has changed that is worth a report.
    pub(super) fn tool(&mut self, call: ToolCall, workspace: &Workspace) -> Option<Report> {
        let is_full = self.tools.len() >= MAX_TOOLS && !self.tools.contains_key(&call.tool_call_id);
        let mut spare = KnownTool::default();
        let known =
            if is_full { &mut spare } else { self.tools.entry(call.tool_call_id.clone()).or_default() };
        let is_new = known.status.is_none();
        let keep = |known: &mut Option<String>, new: Option<String>| {
            if let Some(new) = new {
                *known = Some(cut(&new).to_owned());
            }
        };
        keep(&mut known.title, call.title);
        keep(&mut known.name, call.name);
        keep(&mut known.kind, call.kind);
        let status = call.status.or_else(|| known.status.clone()).unwrap_or_else(|| "pending".to_owned());
        let has_changed = known.status.as_deref() != Some(&*status);
        known.status = Some(status.clone());
        let content = call.content.unwrap_or_default();
        if !is_new
            && !has_changed
            && content.is_empty()
            && call.raw_input.is_none()
            && call.raw_output.is_none()
        {
            return None;
        }
        let status = match status.as_str() {
            "pending" => "started",
            "in_progress" => "running",
            other => cut(other),
        };
        let title = known.title.as_deref().or(known.name.as_deref()).unwrap_or("a tool");
        let text = format!("{title}: {status}");
        let mut members = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        set(tool::STATUS, Some(status.into()));
        set(tool::ID, Some(cut(&call.tool_call_id).into()));
        set(tool::NAME, known.name.clone().map(Value::from));
        set(tool::TITLE, known.title.clone().map(Value::from));
        set(tool::KIND, known.kind.clone().map(Value::from));
        set(tool::INPUT, call.raw_input.as_ref().map(cut_value));
        let output = call.raw_output.as_ref().map(cut_value);
        set(tool::RESULT, output.or_else(|| content_text(&content).map(Value::from)));
        if matches!(status, "completed" | "failed") {
            self.tools.remove(&call.tool_call_id);
        }
        let mut report = Report { text, members: Map::new() };
        report.members.insert(TOOL.to_owned(), Value::Object(members));
        let diffs = diffs(&content, workspace);
        if !diffs.is_empty() {
            report.members.insert(DIFF.to_owned(), Value::Array(diffs));
        }
        Some(report)
    }
}

/// The text of the result of a tool call.
fn content_text(content: &[ToolContent]) -> Option<String> {
    let mut text = String::new();
    for item in content {
        if let ToolContent::Content { content: ContentBlock::Text { text: piece } } = item {
            text.push_str(cut(piece));
        }
    }
    if text.is_empty() { None } else { Some(cut(&text).to_owned()) }
}

fn diffs(content: &[ToolContent], workspace: &Workspace) -> Vec<Value> {
    let diff = |item: &ToolContent| match item {
        ToolContent::Diff { path, old_text, new_text } => Some(json!({
            "path": cut(&workspace.shown(path)),
            "oldText": old_text.as_deref().map(cut),
            "newText": cut(new_text),
        })),
        ToolContent::Content { .. } | ToolContent::Other => None,
    };
    content.iter().filter_map(diff).take(MAX_ENTRIES).collect()
}

/// The report about a plan.
pub(super) fn plan(plan: &Plan) -> Report {
    let done = plan.entries.iter().filter(|entry| entry.status.as_deref() == Some("completed")).count();
    let entries: Vec<Value> = plan
        .entries
        .iter()
        .take(MAX_ENTRIES)
        .map(|entry| {
            json!({
                "content": cut(&entry.content),
                "status": entry.status.as_deref().map(cut),
                "priority": entry.priority.as_deref().map(cut),
            })
        })
        .collect();
    let text = format!("plan: {done} of {} steps done", plan.entries.len());
    Report { text, members: Map::from_iter([(PLAN.to_owned(), Value::Array(entries))]) }
}

/// The report about a thought.
pub(super) fn thought(text: &str) -> Report {
    let text = metadata::cut(text);
    Report { text: text.to_owned(), members: Map::from_iter([(THOUGHT.to_owned(), text.into())]) }
}

/// The report about the tokens that were used.
pub(super) fn usage(usage: &Value) -> Report {
    Report { text: String::new(), members: Map::from_iter([(USAGE.to_owned(), cut_value(usage))]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(json: Value) -> ToolCall {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_update_of_a_tool_call_is_reported_with_what_is_known_about_it() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path(), 1000).unwrap();
        let mut progress = Progress::default();
        let started =
            call(json!({"toolCallId": "t", "title": "Edit main.rs", "kind": "edit", "rawInput": {"a": 1}}));
        let report = progress.tool(started, &workspace).unwrap();
        assert_eq!(report.text, "Edit main.rs: started");
        let expected = json!({"status": "started", "toolUseId": "t", "title": "Edit main.rs", "kind": "edit", "input": {"a": 1}});
        assert_eq!(report.members["tool"], expected);
        assert_eq!(progress.tool(call(json!({"toolCallId": "t", "status": "pending"})), &workspace), None);
        let path = workspace.root().join("src/main.rs");
        let done = call(json!({"toolCallId": "t", "status": "completed", "content": [
            {"type": "content", "content": {"type": "text", "text": "ä".repeat(5_000)}},
            {"type": "diff", "path": path, "oldText": null, "newText": "fn main() {}"},
            {"type": "terminal", "terminalId": "x"},
        ]}));
        let report = progress.tool(done, &workspace).unwrap();
        assert_eq!(report.text, "Edit main.rs: completed");
        assert_eq!(report.members["tool"]["result"], "ä".repeat(4_000));
        assert_eq!(
            report.members["diff"],
            json!([{"path": "src/main.rs", "oldText": null, "newText": "fn main() {}"}])
        );
        assert!(progress.tools.is_empty());
    }

    #[test]
    fn what_an_agent_can_make_us_remember_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path(), 1000).unwrap();
        let mut progress = Progress::default();
        for number in 0..MAX_TOOLS + 10 {
            assert!(progress.tool(call(json!({"toolCallId": number.to_string()})), &workspace).is_some());
        }
        assert_eq!(progress.tools.len(), MAX_TOOLS);
    }
}
