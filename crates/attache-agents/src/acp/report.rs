//! Reports to the caller about what the agent does: tool calls, plans, thoughts.

use std::collections::HashMap;

use attache_core::{FileDiff, PlanStep, Report, ToolReport, ToolStatus};
use serde_json::Value;

use super::wire::{ContentBlock, Plan, ToolCall, ToolContent};
use super::workspace::Workspace;

/// How many tool calls are remembered until they end.
const MAX_TOOLS: usize = 1_000;

/// How many characters of a name are remembered.
const MAX_NAME: usize = 4_000;

/// How many bytes of the texts of a result are put together. A report shows fewer.
const MAX_RESULT: usize = 64 * 1024;

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

impl KnownTool {
    fn report(&self, id: &str, status: ToolStatus) -> ToolReport {
        let mut report = ToolReport::new(id, status);
        if let Some(name) = &self.name {
            report = report.name(name);
        }
        if let Some(title) = &self.title {
            report = report.title(title);
        }
        match &self.kind {
            Some(kind) => report.kind(kind),
            None => report,
        }
    }

    /// What people read.
    fn text(&self, status: &str) -> String {
        let title = self.title.as_deref().or(self.name.as_deref()).unwrap_or("a tool");
        format!("{title}: {status}")
    }
}

impl Progress {
    /// The reports about a new or a changed tool call. None if nothing has changed that is worth a report.
    pub(super) fn tool(&mut self, call: ToolCall, workspace: &Workspace) -> Vec<Report> {
        let is_full = self.tools.len() >= MAX_TOOLS && !self.tools.contains_key(&call.tool_call_id);
        let mut spare = KnownTool::default();
        let known =
            if is_full { &mut spare } else { self.tools.entry(call.tool_call_id.clone()).or_default() };
        let is_new = known.status.is_none();
        let keep = |known: &mut Option<String>, new: Option<String>| {
            if let Some(new) = new {
                *known = Some(new.chars().take(MAX_NAME).collect());
            }
        };
        keep(&mut known.title, call.title);
        keep(&mut known.name, call.name);
        keep(&mut known.kind, call.kind);
        let status = call.status.or_else(|| known.status.clone()).unwrap_or_else(|| "pending".to_owned());
        let has_changed = known.status.as_deref() != Some(&*status);
        known.status = Some(status.chars().take(MAX_NAME).collect());
        let (id, content) = (call.tool_call_id, call.content.unwrap_or_default());
        let mut reports = Vec::new();
        if is_new {
            let started = known.report(&id, ToolStatus::Started);
            reports.push(Report::tool(started).text(known.text("started")));
        }
        if let Some(input) = call.raw_input {
            reports.push(known.report(&id, ToolStatus::InputComplete).input(input).into());
        }
        let result = call.raw_output.or_else(|| content_text(&content).map(Value::from));
        let (now, shown) = match status.as_str() {
            "completed" => (ToolStatus::Completed, "completed"),
            "failed" => (ToolStatus::Failed, "failed"),
            _ => (ToolStatus::Running, "running"),
        };
        let is_over = now != ToolStatus::Running;
        let runs = has_changed && status != "pending";
        let diffs = diffs(&content, workspace);
        if is_over || runs || result.is_some() || !diffs.is_empty() {
            let mut report = known.report(&id, now);
            if let Some(result) = result {
                report = report.result(result);
            }
            let mut report = Report::tool(report);
            if is_over || runs {
                report = report.text(known.text(shown));
            }
            reports.push(if diffs.is_empty() { report } else { report.and(Report::diffs(diffs)) });
        }
        if is_over {
            self.tools.remove(&id);
        }
        reports
    }
}

/// The text of the result of a tool call.
fn content_text(content: &[ToolContent]) -> Option<String> {
    let mut text = String::new();
    for item in content {
        if let ToolContent::Content { content: ContentBlock::Text { text: piece } } = item
            && text.len() < MAX_RESULT
        {
            text.push_str(piece);
        }
    }
    Some(text).filter(|text| !text.is_empty())
}

fn diffs(content: &[ToolContent], workspace: &Workspace) -> Vec<FileDiff> {
    let diff = |item: &ToolContent| match item {
        ToolContent::Diff { path, old_text, new_text } => Some(FileDiff {
            path: workspace.shown(path).into_owned(),
            old_text: old_text.clone(),
            new_text: new_text.clone(),
        }),
        ToolContent::Content { .. } | ToolContent::Other => None,
    };
    content.iter().filter_map(diff).collect()
}

/// The report about a plan.
pub(super) fn plan(plan: Plan) -> Report {
    let done = plan.entries.iter().filter(|entry| entry.status.as_deref() == Some("completed")).count();
    let text = format!("plan: {done} of {} steps done", plan.entries.len());
    let step = |entry: super::wire::PlanEntry| {
        PlanStep::new(entry.content).status(entry.status).priority(entry.priority)
    };
    Report::plan(plan.entries.into_iter().map(step)).text(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let known = |status| ToolReport::new("t", status).title("Edit main.rs").kind("edit");
        assert_eq!(
            progress.tool(started, &workspace),
            [
                Report::tool(known(ToolStatus::Started)).text("Edit main.rs: started"),
                Report::tool(known(ToolStatus::InputComplete).input(json!({"a": 1}))),
            ]
        );
        let pending = call(json!({"toolCallId": "t", "status": "pending"}));
        assert_eq!(progress.tool(pending, &workspace), []);
        let runs = call(json!({"toolCallId": "t", "status": "in_progress"}));
        let expected = Report::tool(known(ToolStatus::Running)).text("Edit main.rs: running");
        assert_eq!(progress.tool(runs, &workspace), [expected]);
        let path = workspace.root().join("src/main.rs");
        let done = call(json!({"toolCallId": "t", "status": "completed", "content": [
            {"type": "content", "content": {"type": "text", "text": "ok"}},
            {"type": "diff", "path": path, "oldText": null, "newText": "fn main() {}"},
            {"type": "terminal", "terminalId": "x"},
        ]}));
        let diff = FileDiff { path: "src/main.rs".into(), old_text: None, new_text: "fn main() {}".into() };
        let expected = Report::tool(known(ToolStatus::Completed).result("ok"))
            .text("Edit main.rs: completed")
            .and(Report::diffs([diff]));
        assert_eq!(progress.tool(done, &workspace), [expected]);
        assert!(progress.tools.is_empty());
    }

    #[test]
    fn what_an_agent_can_make_us_remember_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path(), 1000).unwrap();
        let mut progress = Progress::default();
        for number in 0..MAX_TOOLS + 10 {
            let reports = progress.tool(call(json!({"toolCallId": number.to_string()})), &workspace);
            assert_eq!(reports.len(), 1);
        }
        assert_eq!(progress.tools.len(), MAX_TOOLS);
    }
}
