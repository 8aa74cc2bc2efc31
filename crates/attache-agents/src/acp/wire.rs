//! The messages of the Agent Client Protocol, version 1, as far as this client uses them.
//!
//! Unknown members and unknown kinds of updates are ignored, so that a newer agent still works.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The version of the protocol that this client speaks.
pub(super) const VERSION: u16 = 1;

/// The name of a method.
pub(super) mod method {
    pub(in crate::acp) const INITIALIZE: &str = "initialize";
    pub(in crate::acp) const AUTHENTICATE: &str = "authenticate";
    pub(in crate::acp) const NEW: &str = "session/new";
    pub(in crate::acp) const LOAD: &str = "session/load";
    pub(in crate::acp) const CLOSE: &str = "session/close";
    pub(in crate::acp) const PROMPT: &str = "session/prompt";
    pub(in crate::acp) const CANCEL: &str = "session/cancel";
    pub(in crate::acp) const UPDATE: &str = "session/update";
    pub(in crate::acp) const PERMISSION: &str = "session/request_permission";
    pub(in crate::acp) const READ_FILE: &str = "fs/read_text_file";
    pub(in crate::acp) const WRITE_FILE: &str = "fs/write_text_file";
    pub(in crate::acp) const TERMINAL_CREATE: &str = "terminal/create";
    pub(in crate::acp) const TERMINAL_OUTPUT: &str = "terminal/output";
    pub(in crate::acp) const TERMINAL_WAIT: &str = "terminal/wait_for_exit";
    pub(in crate::acp) const TERMINAL_KILL: &str = "terminal/kill";
    pub(in crate::acp) const TERMINAL_RELEASE: &str = "terminal/release";
}

/// The codes of errors.
pub(super) mod code {
    pub(in crate::acp) const INVALID_REQUEST: i64 = -32600;
    pub(in crate::acp) const METHOD_NOT_FOUND: i64 = -32601;
    pub(in crate::acp) const INVALID_PARAMS: i64 = -32602;
    pub(in crate::acp) const INTERNAL: i64 = -32603;
    pub(in crate::acp) const AUTH_REQUIRED: i64 = -32000;
    pub(in crate::acp) const NOT_FOUND: i64 = -32002;
}

/// Any message from the agent.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming {
    pub(super) id: Option<Value>,
    pub(super) method: Option<String>,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<RpcError>,
}

/// An error of either side.
#[derive(Debug, Clone, Deserialize, Serialize, thiserror::Error)]
#[error("{message} ({code})")]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// A value that may be `null` or missing.
fn lenient<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialized {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) protocol_version: u16,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) agent_capabilities: AgentCapabilities,
    #[serde(default)]
    pub(super) agent_info: Option<AgentInfo>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) auth_methods: Vec<AuthMethod>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentCapabilities {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) load_session: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) prompt_capabilities: PromptCapabilities,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_capabilities: SessionCapabilities,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptCapabilities {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) image: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) audio: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) embedded_context: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct SessionCapabilities {
    #[serde(default)]
    pub(super) close: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AgentInfo {
    pub(super) name: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) version: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AuthMethod {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSession {
    pub(super) session_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompted {
    pub(super) stop_reason: StopReason,
    #[serde(default)]
    pub(super) usage: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionNotification {
    pub(super) session_id: String,
    pub(super) update: SessionUpdate,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case")]
pub(super) enum SessionUpdate {
    AgentMessageChunk(ContentChunk),
    AgentThoughtChunk(ContentChunk),
    ToolCall(ToolCall),
    ToolCallUpdate(ToolCall),
    Plan(Plan),
    UsageUpdate(Value),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentChunk {
    pub(super) content: ContentBlock,
    #[serde(default)]
    pub(super) message_id: Option<String>,
}

/// Content from the agent, and of prompts.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    Audio {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    ResourceLink {
        name: String,
        uri: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<i64>,
    },
    Resource {
        resource: Resource,
    },
    #[serde(other)]
    Other,
}

/// An embedded resource: text or bytes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource {
    pub(super) uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// The bytes in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blob: Option<String>,
}

/// A tool call, or the members of it that have changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
    pub(super) tool_call_id: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) content: Option<Vec<ToolContent>>,
    #[serde(default)]
    pub(super) raw_input: Option<Value>,
    #[serde(default)]
    pub(super) raw_output: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) locations: Vec<Location>,
}

/// A file that a tool call is about.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Location {
    pub(super) path: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToolContent {
    Content {
        content: ContentBlock,
    },
    #[serde(rename_all = "camelCase")]
    Diff {
        path: String,
        #[serde(default)]
        old_text: Option<String>,
        new_text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Plan {
    pub(super) entries: Vec<PlanEntry>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PlanEntry {
    pub(super) content: String,
    #[serde(default)]
    pub(super) priority: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionParams {
    pub(super) tool_call: ToolCall,
    pub(super) options: Vec<PermissionOption>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionOption {
    pub(super) option_id: String,
    pub(super) name: String,
    pub(super) kind: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadFile {
    pub(super) path: std::path::PathBuf,
    #[serde(default)]
    pub(super) line: Option<u32>,
    #[serde(default)]
    pub(super) limit: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WriteFile {
    pub(super) path: std::path::PathBuf,
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateTerminal {
    pub(super) command: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) args: Vec<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) env: Vec<Variable>,
    #[serde(default)]
    pub(super) cwd: Option<std::path::PathBuf>,
    #[serde(default)]
    pub(super) output_byte_limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TerminalParams {
    pub(super) terminal_id: String,
}

/// The session that a request or a notification belongs to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionParams {
    pub(super) session_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_ignored_and_null_means_missing() {
        let update = r#"{"sessionId":"s","update":{"sessionUpdate":"weather_update","sky":"clear"}}"#;
        let read: SessionNotification = serde_json::from_str(update).unwrap();
        assert!(matches!(read.update, SessionUpdate::Other));
        let block: ContentBlock = serde_json::from_str(r#"{"type":"hologram","data":1}"#).unwrap();
        assert_eq!(block, ContentBlock::Other);
        let stop: Prompted = serde_json::from_str(r#"{"stopReason":"bored"}"#).unwrap();
        assert_eq!(stop.stop_reason, StopReason::Unknown);
        let text = r#"{"protocolVersion":1,"agentCapabilities":{"promptCapabilities":null},"agentInfo":null,"authMethods":null}"#;
        let read: Initialized = serde_json::from_str(text).unwrap();
        assert!(!read.agent_capabilities.load_session && read.auth_methods.is_empty());
    }
}
