//! Messages between a client and an agent.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::task::wire_enum;
use crate::{ContextId, JsonObject, Part, TaskId};

wire_enum! {
    /// The author of a message.
    pub enum Role {
        /// Not stated.
        #[default]
        Unspecified = 0 / "ROLE_UNSPECIFIED",
        /// The client.
        User = 1 / "ROLE_USER",
        /// The agent.
        Agent = 2 / "ROLE_AGENT",
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Message {
    /// The id, which the author of the message chooses.
    #[serde(alias = "message_id", deserialize_with = "lenient::null")]
    pub message_id: String,
    /// The context of the message.
    #[serde(alias = "context_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// The task that the message is about.
    #[serde(alias = "task_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The author.
    #[serde(deserialize_with = "lenient::null")]
    pub role: Role,
    /// The content. It has at least one part.
    #[serde(deserialize_with = "lenient::null")]
    pub parts: Vec<Part>,
    /// Additional data about the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The URIs of the extensions that contributed to the message.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that the message refers to.
    #[serde(
        alias = "reference_task_ids",
        deserialize_with = "lenient::null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reference_task_ids: Vec<TaskId>,
}

impl Message {
    /// A client's message with the given id and content.
    pub fn user(message_id: impl Into<String>, part: impl Into<Part>) -> Self {
        Self::with_role(Role::User, message_id, part)
    }

    /// An agent's message with the given id and content.
    pub fn agent(message_id: impl Into<String>, part: impl Into<Part>) -> Self {
        Self::with_role(Role::Agent, message_id, part)
    }

    fn with_role(role: Role, message_id: impl Into<String>, part: impl Into<Part>) -> Self {
        Self { message_id: message_id.into(), role, parts: vec![part.into()], ..Self::default() }
    }

    /// Adds a part.
    pub fn part(mut self, part: impl Into<Part>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// The text parts, joined by line breaks.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in self.parts.iter().filter_map(Part::as_text) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(part);
        }
        text
    }
}
