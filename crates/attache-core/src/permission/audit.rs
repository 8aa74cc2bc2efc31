//! Records of decisions about permissions.

use std::fmt;
use std::sync::Arc;

use attache_protocol::TaskId;

use super::PermissionRequest;
use crate::Turn;

/// A decision. It never has the input of the tool.
#[derive(Debug)]
#[non_exhaustive]
pub struct PermissionRecord<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// The id of the tool call.
    pub tool_use_id: &'a str,
    /// What decided: `rule` with its number, `default`, `agent`, `caller`, or why there was no answer.
    pub rule: &'a str,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The caller. `None` for an anonymous one.
    pub caller: Option<&'a str>,
    /// The task.
    pub task: &'a TaskId,
    /// The named agent.
    pub agent: Option<&'a str>,
}

/// Where decisions are recorded. If that fails, a request is denied.
#[derive(Clone)]
pub struct PermissionAudit(Arc<Audit>);

type Audit = dyn Fn(&PermissionRecord<'_>) -> Result<(), String> + Send + Sync;

impl PermissionAudit {
    /// Records decisions with this function. Its error goes to the log.
    pub fn new(audit: impl Fn(&PermissionRecord<'_>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(audit))
    }
}

/// The audit log: lines with the target `attache::audit`.
impl Default for PermissionAudit {
    fn default() -> Self {
        Self::new(|record| {
            log(record);
            Ok(())
        })
    }
}

impl fmt::Debug for PermissionAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermissionAudit")
    }
}

/// How many characters of a name from an agent are logged.
const MAX_LOGGED: usize = 128;

fn short(text: &str) -> &str {
    text.char_indices().nth(MAX_LOGGED).map_or(text, |(end, _)| &text[..end])
}

fn log(record: &PermissionRecord<'_>) {
    let PermissionRecord { tool, tool_use_id, rule, allowed, caller, task, agent } = record;
    let decision = if *allowed { "allow" } else { "deny" };
    tracing::info!(
        target: "attache::audit",
        tool = short(tool),
        call = short(tool_use_id),
        rule,
        decision,
        caller = short(caller.unwrap_or("anonymous")),
        %task,
        agent,
        "permission"
    );
}

/// Records the decisions of one task, also after its turn.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    audit: PermissionAudit,
    caller: Option<String>,
    task: TaskId,
    agent: Option<Arc<str>>,
}

impl Recorder {
    pub(super) fn new(turn: &Turn) -> Self {
        let options = &turn.inner.service.options;
        Self {
            audit: options.permissions.audit.clone(),
            caller: turn.caller().principal().name().map(str::to_owned),
            task: turn.task_id().clone(),
            agent: options.agent_name.clone(),
        }
    }

    /// Records a decision. Returns whether it was recorded.
    pub(super) fn record(&self, request: &PermissionRequest, allowed: bool, rule: &str) -> bool {
        let record = PermissionRecord {
            tool: &request.tool,
            tool_use_id: &request.id,
            rule,
            allowed,
            caller: self.caller.as_deref(),
            task: &self.task,
            agent: self.agent.as_deref(),
        };
        match (self.audit.0)(&record) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(task = %self.task, error, "a decision about a permission could not be recorded, so it is a denial");
                false
            }
        }
    }
}
