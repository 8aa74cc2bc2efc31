//! The events of the JSON protocol about a program at work, and its requests for permission.

use attache_core::{
    FileDiff, PermissionOption, PermissionOptionKind, PermissionRequest, PlanStep, ToolReport, ToolStatus,
    paths_in,
};
use attache_protocol::Part;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool_artifact;

/// A tool call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolEvent {
    status: StatusName,
    #[serde(alias = "toolUseId")]
    id: String,
    name: Option<String>,
    title: Option<String>,
    kind: Option<String>,
    input: Option<Value>,
    result: Option<Value>,
    /// How much of the input has arrived.
    length: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatusName {
    Started,
    InputDelta,
    InputComplete,
    Running,
    Completed,
    Failed,
}

impl ToolEvent {
    /// The report, and the file that the result contains.
    pub(super) fn report(mut self) -> (ToolReport, Option<Part>) {
        let file = self.result.as_mut().and_then(tool_artifact::take);
        (self.without_file(), file)
    }

    fn without_file(self) -> ToolReport {
        let status = match self.status {
            StatusName::Started => ToolStatus::Started,
            StatusName::InputDelta => ToolStatus::InputDelta,
            StatusName::InputComplete => ToolStatus::InputComplete,
            StatusName::Running => ToolStatus::Running,
            StatusName::Completed => ToolStatus::Completed,
            StatusName::Failed => ToolStatus::Failed,
        };
        let mut report = match self.length {
            Some(length) if status == ToolStatus::InputDelta => ToolReport::input_delta(self.id, length),
            Some(_) | None => ToolReport::new(self.id, status),
        };
        if let Some(name) = self.name {
            report = report.name(name);
        }
        if let Some(title) = self.title {
            report = report.title(title);
        }
        if let Some(kind) = self.kind {
            report = report.kind(kind);
        }
        if let Some(input) = self.input {
            report = report.input(input);
        }
        match self.result {
            Some(result) => report.result(result),
            None => report,
        }
    }
}

/// A step of a plan.
#[derive(Debug, Deserialize)]
pub(super) struct StepEvent {
    content: String,
    status: Option<String>,
    priority: Option<String>,
}

impl StepEvent {
    pub(super) fn step(self) -> PlanStep {
        PlanStep::new(self.content).status(self.status).priority(self.priority)
    }
}

/// A change of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffEvent {
    path: String,
    old_text: Option<String>,
    new_text: String,
}

impl DiffEvent {
    pub(super) fn diff(self) -> FileDiff {
        FileDiff { path: self.path, old_text: self.old_text, new_text: self.new_text }
    }
}

/// A request for permission.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionEvent {
    id: String,
    tool: String,
    kind: Option<String>,
    title: Option<String>,
    why: Option<String>,
    path: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
    input: Option<Value>,
    #[serde(default)]
    options: Vec<OptionEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OptionEvent {
    option_id: String,
    name: String,
    kind: String,
}

impl PermissionEvent {
    pub(super) fn request(self) -> PermissionRequest {
        let mut paths: Vec<String> = self.path.into_iter().chain(self.paths).collect();
        paths.extend(self.input.iter().flat_map(paths_in));
        let option = |option: OptionEvent| PermissionOption {
            kind: PermissionOptionKind::named(&option.kind),
            id: option.option_id,
            name: option.name,
        };
        PermissionRequest {
            kind: self.kind,
            title: self.title.unwrap_or_default(),
            purpose: self.why,
            paths,
            input: self.input,
            options: self.options.into_iter().map(option).collect(),
            ..PermissionRequest::new(self.id, self.tool)
        }
    }
}

/// What the program reads when it is decided.
pub(super) fn decision(request: &PermissionRequest, allows: bool, option: Option<String>) -> Value {
    let decision = if allows { "allow" } else { "deny" };
    json!({"type": "permission", "id": request.id, "decision": decision, "optionId": option})
}
