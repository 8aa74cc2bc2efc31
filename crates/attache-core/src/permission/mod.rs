//! Permissions: what an agent may do by the rules of the operator, and what the caller has to decide.
//!
//! An agent asks with [`Turn::permission`]. The rules allow the request, deny it, or say that the caller is asked. Then the agent
//! asks with [`Turn::ask_permission`], which sets the task to `input-required`, and reads the answer in its next turn with
//! [`Turn::permission_answer`]. Only the owner of a task can send messages to it, so the answer comes from the same caller.
//!
//! Each decision is recorded, by default as a line of the audit log. A decision that cannot be recorded is a denial.

mod answer;
mod audit;
mod pattern;
mod question;
mod rules;

use attache_protocol::{Part, TaskState};
use serde_json::{Map, Value, json};

pub use self::answer::PermissionAnswer;
pub use self::audit::{PermissionAudit, PermissionRecord};
pub use self::pattern::{NotAPattern, PermissionPattern};
pub use self::rules::{PermissionAction, PermissionPolicy, PermissionRule};

pub(crate) use self::answer::check_answer;
pub(crate) use self::question::waits_for_answer;

use self::audit::Recorder;
use self::rules::Match;
use crate::report::{Section, cut, cut_value};
use crate::{AgentError, AgentResult, Namespace, Report, Turn, new_id};

/// How many options the caller can choose from.
const MAX_OPTIONS: usize = 32;

/// How many paths a request names.
const MAX_PATHS: usize = 32;

/// What an agent wants to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PermissionRequest {
    /// The id of the tool call.
    pub id: String,
    /// The name of the tool. Rules match it.
    pub tool: String,
    /// The kind of the tool, such as `edit`. Rules match it too.
    pub kind: Option<String>,
    /// What the tool would do, for people. The name of the tool, if it is empty.
    pub title: String,
    /// Why, if the agent says so.
    pub purpose: Option<String>,
    /// The files that it is about, relative to the workspace if they are inside.
    pub paths: Vec<String>,
    /// The input of the tool.
    pub input: Option<Value>,
    /// What the caller can choose from. Yes and no, if it is empty.
    pub options: Vec<PermissionOption>,
}

/// An option of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionOption {
    /// The id of the option.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// What it means.
    pub kind: PermissionOptionKind,
}

/// What an option means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionOptionKind {
    /// Allow it this time.
    AllowOnce,
    /// Allow it now and in future.
    AllowAlways,
    /// Deny it this time.
    RejectOnce,
    /// Deny it now and in future.
    RejectAlways,
    /// Something else, which counts as a denial in the audit log.
    Other,
}

impl PermissionOptionKind {
    /// Reads the name of a kind, as the Agent Client Protocol has them.
    pub fn named(name: &str) -> Self {
        match name {
            "allow_once" => Self::AllowOnce,
            "allow_always" => Self::AllowAlways,
            "reject_once" => Self::RejectOnce,
            "reject_always" => Self::RejectAlways,
            _ => Self::Other,
        }
    }

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
            Self::Other => "other",
        }
    }

    fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

impl PermissionRequest {
    /// A request for a call of a tool.
    pub fn new(id: impl Into<String>, tool: impl Into<String>) -> Self {
        Self { id: id.into(), tool: tool.into(), ..Self::default() }
    }

    /// Sets the input of the tool, and the paths that it names.
    pub fn input(mut self, input: Value) -> Self {
        self.paths = paths_in(&input);
        self.input = Some(input);
        self
    }

    fn title(&self) -> &str {
        cut(if self.title.is_empty() { &self.tool } else { &self.title })
    }

    fn shown_options(&self) -> impl Iterator<Item = &PermissionOption> {
        self.options.iter().take(MAX_OPTIONS)
    }

    /// The members of a decision in the metadata.
    fn members(&self, auto_approved: bool) -> Map<String, Value> {
        let mut members = Map::from_iter([
            ("autoApproved".to_owned(), auto_approved.into()),
            ("toolName".to_owned(), cut(&self.tool).into()),
            ("toolUseId".to_owned(), cut(&self.id).into()),
        ]);
        members.extend(self.input.as_ref().map(|input| ("toolInput".to_owned(), cut_value(input))));
        members
    }
}

/// The paths that the input of a tool names: texts in members such as `path` or `file`.
pub fn paths_in(input: &Value) -> Vec<String> {
    const NAMES: &[&str] = &[
        "path",
        "paths",
        "file",
        "files",
        "file_path",
        "filePath",
        "filepath",
        "filename",
        "directory",
        "dir",
        "cwd",
        "abs_path",
        "absolute_path",
        "notebook_path",
        "source",
        "destination",
        "old_path",
        "new_path",
        "uri",
    ];
    let mut paths = Vec::new();
    let members = input.as_object().into_iter().flatten();
    for value in members.filter(|(name, _)| NAMES.contains(&name.as_str())).map(|(_, value)| value) {
        match value {
            Value::String(path) => paths.push(path.clone()),
            Value::Array(items) => paths.extend(items.iter().filter_map(Value::as_str).map(str::to_owned)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }
    paths.truncate(MAX_PATHS);
    paths
}

/// What is decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// The agent may do it.
    Allowed,
    /// The agent must not do it.
    Denied,
    /// The caller decides: [`Turn::ask_permission`].
    Ask,
}

/// A request that the caller was asked about. Keep it until the answer arrives or the time is over.
#[derive(Debug, Clone)]
pub struct PendingPermission {
    /// What the agent wants to do.
    pub request: PermissionRequest,
    recorder: Recorder,
}

impl PendingPermission {
    /// Records that the request was denied because no answer arrived in time.
    pub fn expired(&self) {
        let _ = self.recorder.record(&self.request, false, "time limit");
    }
}

impl Turn {
    /// Decides about a request by the rules of the operator. `fallback` is what happens if neither a rule nor the default of the
    /// operator says anything. A decision is recorded and reported here.
    pub fn permission(&self, request: &PermissionRequest, fallback: PermissionAction) -> Permission {
        let policy = &self.inner.service.options.permissions;
        let Match { action, rule } = policy.decide(request, fallback);
        let allowed = match action {
            PermissionAction::Ask => return Permission::Ask,
            PermissionAction::Allow => true,
            PermissionAction::Deny => false,
        };
        let recorded = self.recorder().record(request, allowed, &rule);
        let allowed = allowed && recorded;
        let mut members = request.members(allowed);
        if self.report_options().namespace == Namespace::Attache {
            members.insert("decision".to_owned(), if allowed { "allow" } else { "deny" }.into());
        }
        let text = match allowed {
            true => String::new(),
            false => format!("{}: not permitted", request.title()),
        };
        let report = Report::section(Section::Permission(Value::Object(members))).text(text);
        // A turn that is over allows nothing more.
        match self.report(report).into_result() {
            Ok(()) if allowed => Permission::Allowed,
            Ok(()) | Err(_) => Permission::Denied,
        }
    }

    /// Asks the caller about a request: the task is `input-required` until it answers. `again` is whether an earlier answer was not
    /// understood.
    pub async fn ask_permission(
        &self,
        request: PermissionRequest,
        again: bool,
    ) -> Result<PendingPermission, AgentError> {
        let namespace = self.report_options().namespace;
        let input_id = format!("permission-{}", new_id::<String>().replace('-', ""));
        let asked = question::input(&request, self.task_id(), self.context_id(), &input_id);
        let mut pending = request.members(false);
        pending.insert("pending".to_owned(), true.into());
        let pending =
            Report::section(Section::Question { name: "permission", value: Value::Object(pending) });
        let (data, report) = match namespace {
            Namespace::Attache => (question::data(&request, &input_id), pending),
            Namespace::IacCode => {
                let input = Section::Question { name: "input", value: asked.clone() };
                (asked, Report::section(input).and(pending))
            }
        };
        let data = Part::data(&data)?.media_type("application/json");
        let parts = vec![Part::text(question::text(&request, again)), data];
        self.update(TaskState::InputRequired, Some(parts), self.report_metadata(report)).await?;
        Ok(PendingPermission { request, recorder: self.recorder() })
    }

    /// Reads the answer to a request in the message of this turn, records it, and tells the caller that it was understood. `None` if
    /// it was not: the caller can be asked again.
    pub async fn permission_answer(
        &self,
        pending: &PendingPermission,
    ) -> Result<Option<PermissionAnswer>, AgentError> {
        let Some(answer) = answer::read(&pending.request, self.message()) else { return Ok(None) };
        let request = &pending.request;
        let recorded = self.recorder().record(request, answer.allows, "caller");
        let answer = match answer.allows && !recorded {
            true => PermissionAnswer::denied(request),
            false => answer,
        };
        self.acknowledge(request, &answer).await?;
        Ok(Some(answer))
    }

    async fn acknowledge(&self, request: &PermissionRequest, answer: &PermissionAnswer) -> AgentResult {
        let decision = if answer.allows { "allow_once" } else { "deny" };
        let input_id = self.task().as_ref().and_then(question::asked_id);
        let received = json!({
            "kind": "permission", "inputId": input_id, "toolUseId": cut(&request.id), "decision": decision,
        });
        let report = Report::section(Section::Question { name: "inputReceived", value: received });
        match self.report_options().namespace {
            Namespace::Attache => self.report(report).await,
            Namespace::IacCode => {
                let ack = json!({
                    "schemaVersion": 1, "kind": "permission_ack", "inputId": input_id,
                    "toolUseId": cut(&request.id), "decision": decision, "accepted": true,
                });
                let parts = vec![Part::data(&ack)?.media_type("application/json")];
                self.update(TaskState::Working, Some(parts), self.report_metadata(report)).await
            }
        }
    }

    /// The request that the caller was asked about before this turn, if the agent does not wait for its answer any more: the server
    /// was restarted, or the time is over. The request counts as denied, which is recorded here.
    pub fn lost_permission(&self) -> Option<PermissionRequest> {
        let task = self.task()?;
        let request = question::asked(&task, &self.message().message_id)?;
        let _ = self.recorder().record(&request, false, "the agent does not wait any more");
        Some(request)
    }

    /// Whether the operator has said anything about permissions.
    pub fn has_permission_rules(&self) -> bool {
        let policy = &self.inner.service.options.permissions;
        !policy.rules.is_empty() || policy.default.is_some()
    }

    /// How long a request waits for the answer of the caller. `None` if the operator has not set it.
    pub fn permission_timeout(&self) -> Option<std::time::Duration> {
        self.inner.service.options.permissions.timeout
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_a_tool_are_found_in_its_input() {
        let input = json!({"path": "a", "content": "b", "files": ["c", 1, "d"], "file_path": {"x": 1}});
        assert_eq!(paths_in(&input), ["c", "d", "a"]);
        assert_eq!(paths_in(&json!("path")), Vec::<String>::new());
        assert_eq!(paths_in(&json!({"paths": vec!["x"; 100]})).len(), MAX_PATHS);
    }
}
