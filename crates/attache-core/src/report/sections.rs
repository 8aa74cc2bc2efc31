//! The sections of a report, and their members in the metadata.

use serde_json::{Map, Value, json};

use super::{Exposed, Namespace, cut, cut_value};

/// How many entries a list in a report has.
const MAX_ENTRIES: usize = 100;

/// Where a tool call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolStatus {
    /// The agent has decided to call the tool.
    Started,
    /// More of the input has arrived.
    InputDelta,
    /// The input is complete.
    InputComplete,
    /// The tool runs. Clients of iac-code do not know this status and do not get it.
    Running,
    /// The tool has succeeded.
    Completed,
    /// The tool has failed, or was not allowed to run.
    Failed,
}

impl ToolStatus {
    /// The name of the status in the metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::InputDelta => "input_delta",
            Self::InputComplete => "input_complete",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// A report about a tool call. The reports about one call have the same id.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReport {
    status: ToolStatus,
    id: String,
    name: Option<String>,
    title: Option<String>,
    kind: Option<String>,
    input: Option<Value>,
    result: Option<Value>,
    partial_length: Option<usize>,
}

impl Section {
    /// The result of a tool call.
    pub(super) fn result(&mut self) -> Option<&mut Value> {
        match self {
            Self::Tool(tool) => tool.result.as_mut(),
            Self::Usage(_)
            | Self::Thinking(_)
            | Self::Plan(_)
            | Self::Diff(_)
            | Self::Permission(_)
            | Self::Question { .. }
            | Self::Progress { .. }
            | Self::StopReason(_) => None,
        }
    }
}

impl ToolReport {
    /// A report with any status.
    pub fn new(id: impl Into<String>, status: ToolStatus) -> Self {
        let (name, title, kind) = (None, None, None);
        let (input, result, partial_length) = (None, None, None);
        Self { status, id: id.into(), name, title, kind, input, result, partial_length }
    }

    /// The agent has decided to call the tool.
    pub fn started(id: impl Into<String>) -> Self {
        Self::new(id, ToolStatus::Started)
    }

    /// More of the input has arrived: it has this many bytes now.
    pub fn input_delta(id: impl Into<String>, length: usize) -> Self {
        Self { partial_length: Some(length), ..Self::new(id, ToolStatus::InputDelta) }
    }

    /// The input is complete.
    pub fn input_complete(id: impl Into<String>) -> Self {
        Self::new(id, ToolStatus::InputComplete)
    }

    /// The tool runs.
    pub fn running(id: impl Into<String>) -> Self {
        Self::new(id, ToolStatus::Running)
    }

    /// The tool has succeeded.
    pub fn completed(id: impl Into<String>) -> Self {
        Self::new(id, ToolStatus::Completed)
    }

    /// The tool has failed.
    pub fn failed(id: impl Into<String>) -> Self {
        Self::new(id, ToolStatus::Failed)
    }

    /// Sets the name of the tool.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets what the call does, for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the kind of the tool, such as `edit`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Sets the input of the tool.
    pub fn input(mut self, input: impl Into<Value>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Sets the result of the tool.
    pub fn result(mut self, result: impl Into<Value>) -> Self {
        self.result = Some(result.into());
        self
    }

    fn member(&self, namespace: Namespace) -> Option<Value> {
        let ours = match namespace {
            Namespace::Attache => true,
            Namespace::IacCode if self.status == ToolStatus::Running => return None,
            Namespace::IacCode => false,
        };
        let mut members = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        let text = |text: &Option<String>| text.as_deref().map(|text| cut(text).into());
        set("status", Some(self.status.name().into()));
        set("toolUseId", Some(cut(&self.id).into()));
        // Some agents have no names for tools, and clients of iac-code have no other members.
        let name = self.name.clone().or_else(|| self.kind.clone().filter(|_| !ours));
        set("name", text(&name));
        if ours {
            set("title", text(&self.title));
            set("kind", text(&self.kind));
        }
        set("partialJsonLength", self.partial_length.map(Value::from));
        set("input", self.input.as_ref().map(cut_value));
        set("result", self.result.as_ref().map(cut_value));
        Some(Value::Object(members))
    }
}

/// The tokens that a turn has used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    other: Map<String, Value>,
}

impl Usage {
    /// Tokens that were read, and tokens that were written.
    pub fn new(input: u64, output: u64) -> Self {
        let total = Some(input.saturating_add(output));
        Self { input: Some(input), output: Some(output), total, other: Map::new() }
    }

    /// Reads the members `inputTokens`, `outputTokens` and `totalTokens` of an object. Its other members are kept.
    pub fn from_value(value: &Value) -> Self {
        let mut other = value.as_object().cloned().unwrap_or_default();
        let mut count = |name: &str| other.remove(name).and_then(|count| count.as_u64());
        let (input, output, total) = (count("inputTokens"), count("outputTokens"), count("totalTokens"));
        let sum = || Some(input?.saturating_add(output?));
        Self { input, output, total: total.or_else(sum), other }
    }

    /// Adds a member that readers of the namespace `attache` get.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.other.insert(name.into(), value.into());
        self
    }

    /// Adds the tokens of another usage.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
        };
        self.input = sum(self.input, other.input);
        self.output = sum(self.output, other.output);
        self.total = sum(self.total, other.total);
    }

    fn member(&self, namespace: Namespace) -> Option<Value> {
        let mut members = Map::new();
        if namespace == Namespace::Attache
            && let Value::Object(other) = cut_value(&Value::Object(self.other.clone()))
        {
            members = other;
        }
        for (name, count) in
            [("inputTokens", self.input), ("outputTokens", self.output), ("totalTokens", self.total)]
        {
            members.extend(count.map(|count| (name.to_owned(), count.into())));
        }
        (!members.is_empty()).then_some(Value::Object(members))
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanStep {
    /// What is to be done.
    pub content: String,
    /// Where the step is, such as `pending`, `in_progress` or `completed`.
    pub status: Option<String>,
    /// How important it is, such as `high`.
    pub priority: Option<String>,
}

impl PlanStep {
    /// A step.
    pub fn new(content: impl Into<String>) -> Self {
        Self { content: content.into(), status: None, priority: None }
    }

    /// Sets where the step is.
    pub fn status(mut self, status: Option<String>) -> Self {
        self.status = status;
        self
    }

    /// Sets how important it is.
    pub fn priority(mut self, priority: Option<String>) -> Self {
        self.priority = priority;
        self
    }
}

/// A change of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileDiff {
    /// The path of the file, relative to the workspace if it is inside.
    pub path: String,
    /// The text before the change. `None` for a new file.
    pub old_text: Option<String>,
    /// The text after the change.
    pub new_text: String,
}

/// A section of a report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Section {
    Tool(Box<ToolReport>),
    Usage(Usage),
    Thinking(String),
    Plan(Vec<PlanStep>),
    Diff(Vec<FileDiff>),
    Progress {
        progress: f64,
        total: Option<f64>,
    },
    StopReason(String),
    /// A decision that was made without the caller.
    Permission(Value),
    /// A request that the caller has to answer, or the answer. The caller always sees it.
    Question {
        name: &'static str,
        value: Value,
    },
}

impl Section {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tool",
            Self::Usage(_) => "usage",
            Self::Thinking(_) => "thinking",
            Self::Plan(_) => "plan",
            Self::Diff(_) => "diff",
            Self::Progress { .. } => "progress",
            Self::StopReason(_) => "stopReason",
            Self::Permission(_) => "permission",
            Self::Question { name, .. } => name,
        }
    }

    /// What has to be exposed for this section. `None` if it always is.
    pub(super) fn exposed_with(&self) -> Option<Exposed> {
        match self {
            Self::Tool(_) | Self::Plan(_) | Self::Diff(_) | Self::Permission(_) => Some(Exposed::ToolTrace),
            Self::Thinking(_) => Some(Exposed::RawThinking),
            Self::Usage(_) | Self::Progress { .. } | Self::StopReason(_) | Self::Question { .. } => None,
        }
    }

    /// Changes all texts, but for thoughts, which come in pieces.
    pub(super) fn change_texts(&mut self, change: &dyn Fn(&mut String)) {
        let optional = |text: &mut Option<String>| text.iter_mut().for_each(change);
        match self {
            Self::Tool(tool) => {
                let ToolReport { status: _, id, name, title, kind, input, result, partial_length: _ } =
                    &mut **tool;
                change(id);
                [name, title, kind].into_iter().for_each(optional);
                input.iter_mut().chain(result).for_each(|value| change_value(value, change));
            }
            Self::Usage(usage) => usage.other.values_mut().for_each(|value| change_value(value, change)),
            Self::Thinking(_) | Self::Progress { .. } => {}
            Self::Plan(steps) => {
                for PlanStep { content, status, priority } in steps {
                    change(content);
                    [status, priority].into_iter().for_each(optional);
                }
            }
            Self::Diff(diffs) => {
                for FileDiff { path, old_text, new_text } in diffs {
                    change(path);
                    optional(old_text);
                    change(new_text);
                }
            }
            Self::StopReason(reason) => change(reason),
            Self::Permission(value) | Self::Question { value, .. } => change_value(value, change),
        }
    }

    /// The member of the metadata.
    pub(super) fn member(&self, namespace: Namespace) -> Option<(&'static str, Value)> {
        let value = match self {
            Self::Tool(tool) => tool.member(namespace)?,
            Self::Usage(usage) => usage.member(namespace)?,
            Self::Thinking(text) => json!({"type": "raw_thinking", "text": cut(text)}),
            Self::Plan(steps) => {
                let step = |step: &PlanStep| {
                    json!({
                        "content": cut(&step.content),
                        "status": step.status.as_deref().map(cut),
                        "priority": step.priority.as_deref().map(cut),
                    })
                };
                steps.iter().take(MAX_ENTRIES).map(step).collect()
            }
            Self::Diff(diffs) => {
                let diff = |diff: &FileDiff| {
                    json!({
                        "path": cut(&diff.path),
                        "oldText": diff.old_text.as_deref().map(cut),
                        "newText": cut(&diff.new_text),
                    })
                };
                diffs.iter().take(MAX_ENTRIES).map(diff).collect()
            }
            Self::Progress { progress, total } => json!({"progress": progress, "total": total}),
            Self::StopReason(reason) => cut(reason).into(),
            Self::Permission(value) | Self::Question { value, .. } => cut_value(value),
        };
        Some((self.name(), value))
    }
}

/// Changes the texts of a value, and the names of its members.
fn change_value(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change_value(item, change)),
        Value::Object(members) => {
            let changed = std::mem::take(members).into_iter().map(|(mut name, mut value)| {
                change(&mut name);
                change_value(&mut value, change);
                (name, value)
            });
            *members = changed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
