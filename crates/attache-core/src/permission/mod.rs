//! Permissions: what an agent may do by the rules of the operator, and what the caller has to decide.
//!
//! An agent asks with [`Turn::permission`]. The rules allow the request, deny it, or say that the caller is asked. Then the agent
//! asks with [`Turn::ask_permission`], which sets the task to `input-required`, and reads the answer in its next turn with
//! [`Turn::permission_answer`]. Only the owner of a task can send messages to it, so the answer comes from the same caller.
//!
//! Each decision is recorded, by default as a line of the audit log. A decision that cannot be recorded is a denial.

mod answer;
mod audit;
mod open;
mod pattern;
mod question;
mod roots;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{JsonObject, Part, Task, TaskState};
use serde_json::{Map, Value, json};

pub use self::answer::PermissionAnswer;
pub use self::audit::{PermissionAudit, PermissionRecord};
pub use self::pattern::{NotAPattern, PermissionPattern};
pub use self::rules::{PermissionAction, PermissionPolicy, PermissionRule};

pub(crate) use self::answer::check_answer;
pub(crate) use self::open::{Denial, OpenQuestion, OpenQuestions};
pub(crate) use self::question::waits_for_answer;
pub(crate) use self::roots::Roots;

use self::audit::Recorder;
use self::rules::Match;
use crate::report::{Section, cut, cut_value};
use crate::{AgentError, AgentResult, Namespace, Report, Turn, new_id};

/// How deep the input of a tool is searched for paths. JSON that was read does not nest deeper.
const MAX_DEPTH: usize = 128;

/// How many options the caller can choose from.
const MAX_OPTIONS: usize = 32;

/// How many paths are shown to the caller. Rules are about all paths of a request.
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
    /// The reason, if the agent gives one.
    pub purpose: Option<String>,
    /// The files that it is about. Callers see those inside of the workspace as relative to it.
    pub paths: Vec<String>,
    /// The names of the directory that relative paths are about, first the one without links. The workspace of the context unless set.
    pub directories: Vec<PathBuf>,
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

    /// Says which directory relative paths are about, where that is not the workspace of the context. Its links are resolved now.
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directories = roots::names_of(directory);
        self
    }

    pub(crate) fn title(&self) -> &str {
        cut(if self.title.is_empty() { &self.tool } else { &self.title })
    }

    fn shown_options(&self) -> impl Iterator<Item = &PermissionOption> {
        self.options.iter().take(MAX_OPTIONS)
    }

    fn shown_paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().take(MAX_PATHS).map(|path| cut(path))
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

/// The paths that the input of a tool names: texts in members such as `path` or `file`, at any depth that JSON can have.
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
    // Each value with its depth, and whether its texts are paths. Texts in lists belong to the member that has the list.
    let mut rest = vec![(input, 0_usize, false)];
    while let Some((value, depth, is_path)) = rest.pop() {
        if depth > MAX_DEPTH {
            continue;
        }
        match value {
            Value::String(path) if is_path => paths.push(path.clone()),
            Value::Array(items) => rest.extend(items.iter().rev().map(|item| (item, depth + 1, is_path))),
            Value::Object(members) => {
                let named = |name: &str| NAMES.contains(&name);
                rest.extend(members.iter().rev().map(|(name, value)| (value, depth + 1, named(name))));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
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

/// A request that the caller was asked about. The question is open for as long as this is kept. If it is dropped without an
/// [answer](Turn::permission_answer), the request is denied, which is recorded, and the task shows the denial.
#[derive(Debug, Clone)]
pub struct PendingPermission {
    /// What the agent wants to do.
    pub request: PermissionRequest,
    open: Arc<OpenQuestion>,
}

impl PendingPermission {
    /// Denies the request after this time, if the caller has not answered. Then the agent gets another turn, in which
    /// [`Turn::permission_answer`] gives the denial, so that its work can go on. Keep what waits for the answer until then.
    pub fn deny_after(&self, limit: Duration) {
        self.open.deny_after(limit);
    }
}

/// Whether a task has stopped in the middle of its work: it asks for a permission, or says that one was denied.
pub(crate) fn has_stopped_to_ask(task: &Task) -> bool {
    question::pending(task).is_some()
        || task.status.state.is_interrupted() && question::denied(task, "").is_some()
}

/// The report of a denial without an answer. Callers see it whatever else they may see.
pub(crate) fn denial_report(request: &PermissionRequest) -> Report {
    let mut members = request.members(false);
    members.insert("decision".to_owned(), "deny".into());
    members.insert("title".to_owned(), request.title().into());
    Report::section(Section::Question { name: "permission", value: Value::Object(members) })
}

/// The text and the metadata that tell readers of a denial without an answer.
pub(crate) fn denial_part(title: &str, why: &str, metadata: Option<JsonObject>) -> Part {
    Part { metadata, ..Part::text(format!("The request `{title}` was denied: {why}")) }
}

/// The request that a task asks about, if the question has this id.
pub(crate) fn asked_request(task: &Task, input_id: &str) -> Option<PermissionRequest> {
    let is_asked = question::pending(task).and_then(|asked| question::id(&asked))? == input_id;
    is_asked.then(|| question::asked(task, ""))?
}

impl Turn {
    /// Decides about a request by the rules of the operator. `fallback` is what happens if neither a rule nor the default of the
    /// operator says anything. A decision is recorded and reported here.
    pub fn permission(&self, request: &PermissionRequest, fallback: PermissionAction) -> Permission {
        let roots = self.roots_of(request);
        let policy = &self.inner.service.options.permissions;
        let Match { action, mut rule } = policy.decide(request, &roots, fallback);
        let request = &roots.shown(request.clone());
        let mut why = "not permitted";
        let allowed = match action {
            PermissionAction::Ask => return Permission::Ask,
            // A rule decides about one request. It does not allow all later ones, which other rules may be about.
            PermissionAction::Allow if !PermissionAnswer::allowed(request).allows => {
                "no option for once".clone_into(&mut rule);
                why = "not permitted, because it can only be allowed for ever";
                false
            }
            PermissionAction::Allow => true,
            PermissionAction::Deny => false,
        };
        let recorded = self.recorder().record(request, allowed, &rule);
        let allowed = allowed && recorded;
        let request = &self.shown_request(request);
        let mut members = request.members(allowed);
        if self.report_options().namespace == Namespace::Attache {
            members.insert("decision".to_owned(), if allowed { "allow" } else { "deny" }.into());
        }
        let text = match allowed {
            true => String::new(),
            false => format!("{}: {why}", request.title()),
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
        let request = self.roots_of(&request).shown(request);
        let shown = &self.shown_request(&request);
        let namespace = self.report_options().namespace;
        let input_id = format!("permission-{}", new_id::<String>().replace('-', ""));
        let asked = question::input(shown, self.task_id(), self.context_id(), &input_id);
        let mut pending = shown.members(false);
        pending.insert("pending".to_owned(), true.into());
        let pending =
            Report::section(Section::Question { name: "permission", value: Value::Object(pending) });
        let (data, report) = match namespace {
            Namespace::Attache => (question::data(shown, &input_id), pending),
            Namespace::IacCode => {
                let input = Section::Question { name: "input", value: asked.clone() };
                (asked, Report::section(input).and(pending))
            }
        };
        let data = Part::data(&data)?.media_type("application/json");
        let parts = vec![Part::text(question::text(shown, again)), data];
        self.update(TaskState::InputRequired, Some(parts), self.report_metadata(report)).await?;
        let open = OpenQuestion::new(self, request.clone(), self.recorder(), input_id);
        Ok(PendingPermission { request, open })
    }

    /// Reads the answer to a request in the message of this turn, records it, and tells the caller that it was understood. `None` if
    /// it was not: the caller can be asked again. In the turn after the [time limit](PendingPermission::deny_after) this is the denial.
    pub async fn permission_answer(
        &self,
        pending: &PendingPermission,
    ) -> Result<Option<PermissionAnswer>, AgentError> {
        if let Some(denied) = self.inner.denial.as_ref().and_then(|denial| denial.answer(&pending.open)) {
            return Ok(Some(denied));
        }
        // This question has had its message. If that is no answer, another question follows.
        pending.open.settle();
        let request = &pending.request;
        let answer = match answer::read(request, self.message()) {
            Some(answer) => answer,
            // The form of the answer was checked before: it allows the request once, and there is no option for that.
            None if self.report_options().namespace == Namespace::IacCode => {
                PermissionAnswer::denied(request)
            }
            None => return Ok(None),
        };
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

    /// Tells readers that a request was denied without an answer. The task works again.
    fn tell_denial(&self, request: &PermissionRequest, why: &str) -> AgentResult {
        let request = &self.shown_request(request);
        let metadata = self.report_metadata(denial_report(request));
        let part = denial_part(request.title(), why, metadata.clone());
        self.update(TaskState::Working, Some(vec![part]), metadata).into_result()
    }

    /// The request that the caller was asked about before this turn, if the agent does not wait for its answer any more: the server
    /// was restarted, or the work of the agent has ended. The request counts as denied, which is recorded.
    pub fn lost_permission(&self) -> Option<PermissionRequest> {
        let task = self.task()?;
        let own = &self.message().message_id;
        // A denial that the task tells of was recorded before.
        if let Some(denied) = question::denied(&task, own) {
            return Some(denied);
        }
        let request = question::asked(&task, own)?;
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

    /// The directory that the relative paths of a request are about.
    fn roots_of(&self, request: &PermissionRequest) -> Roots {
        Roots::of(request).unwrap_or_else(|| self.inner.workspace_roots())
    }

    /// The request as callers may see it, before its texts are cut. The ids of options stay, since answers have them.
    fn shown_request(&self, request: &PermissionRequest) -> PermissionRequest {
        let mut shown = request.clone();
        let PermissionRequest { id, tool, kind, title, purpose, paths, input, options, directories: _ } =
            &mut shown;
        let texts = [id, tool, title].into_iter().chain(kind).chain(purpose).chain(paths);
        for text in texts.chain(options.iter_mut().map(|option| &mut option.name)) {
            let mut value = Value::String(std::mem::take(text));
            self.inner.redact_value(&mut value);
            if let Value::String(hidden) = value {
                *text = hidden;
            }
        }
        input.iter_mut().for_each(|input| self.inner.redact_value(input));
        shown
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
        let nested = json!({"edits": [{"path": "a", "text": "x"}, {"to": {"files": [["b"], {"uri": "c", "d": "e"}]}}]});
        assert_eq!(paths_in(&nested), ["a", "b", "c"]);
        let mut deep = json!({"path": "deep"});
        for _ in 0..120 {
            deep = json!({"a": deep});
        }
        assert_eq!(paths_in(&deep), ["deep"]);
        for _ in 0..10_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(paths_in(&deep), Vec::<String>::new(), "the search ends");
        // Dropping it would nest as deep.
        while let Value::Array(mut items) = deep {
            deep = items.pop().unwrap();
        }
        assert_eq!(paths_in(&json!({"paths": vec!["x"; 100]})).len(), 100);
    }

    #[test]
    fn the_caller_is_told_32_options_and_32_paths_and_rules_know_all_paths() {
        let request = |count: usize| {
            let option = |number: usize| PermissionOption {
                id: number.to_string(),
                name: format!("option {number}"),
                kind: PermissionOptionKind::AllowOnce,
            };
            let mut paths = vec!["src/a.rs"; count - 1];
            paths.push(".env");
            let request = PermissionRequest::new("t", "edit").input(json!({"paths": paths}));
            PermissionRequest { options: (0..count).map(option).collect(), ..request }
        };
        for count in [32, 33] {
            let request = request(count);
            let data = question::data(&request, "id");
            let shown = |member: &str| data["permission"][member].as_array().unwrap().len();
            assert_eq!((shown("options"), shown("paths")), (32, 32));
            assert_eq!(question::text(&request, false).matches("`option ").count(), 32);
            let deny = PermissionRule::new(PermissionPattern::any(), PermissionAction::Deny)
                .path("**/.env".parse().unwrap());
            let decided = PermissionPolicy::default().rule(deny).decide(
                &request,
                &Roots::default(),
                PermissionAction::Allow,
            );
            assert_eq!(decided.action, PermissionAction::Deny, "{count} paths");
        }
    }
}
