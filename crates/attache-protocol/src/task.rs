//! Tasks, with their status, artifacts and history.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{ContextId, JsonObject, Message, Part, Role, TaskId, Timestamp};

/// An enum that is written by name and read by name or number. An unknown name or number is an error that lists the valid ones.
/// It must not count as unspecified: a filter would then silently match everything.
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $number:literal / $text:literal ),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[$vmeta])* $variant = $number ),+ }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &[Self] = &[$( Self::$variant ),+];

            /// The name in JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text ),+ }
            }

            /// The number in protobuf.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// The value with this number in protobuf.
            pub fn from_number(number: i64) -> Option<Self> {
                match number { $( $number => Some(Self::$variant), )+ _ => None }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $( $text => Ok(Self::$variant), )+
                    _ => Err(format!(concat!("unknown value `{}`, expected one of:", $(" `", $text, "`"),+),
                        text.chars().take(64).collect::<String>())),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of:", $(" `", $text, "`"),+))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$name, E> {
                        $name::from_number(number)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
                    }
                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$name, E> {
                        i64::try_from(number).ok().and_then($name::from_number)
                            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// The state of a task.
    pub enum TaskState {
        /// Unknown.
        #[default]
        Unspecified = 0 / "TASK_STATE_UNSPECIFIED",
        /// Accepted, but not started.
        Submitted = 1 / "TASK_STATE_SUBMITTED",
        /// In progress.
        Working = 2 / "TASK_STATE_WORKING",
        /// Completed. Terminal.
        Completed = 3 / "TASK_STATE_COMPLETED",
        /// Failed. Terminal.
        Failed = 4 / "TASK_STATE_FAILED",
        /// Canceled by the client. Terminal.
        Canceled = 5 / "TASK_STATE_CANCELED",
        /// Waiting for a message from the client.
        InputRequired = 6 / "TASK_STATE_INPUT_REQUIRED",
        /// Rejected by the agent. Terminal.
        Rejected = 7 / "TASK_STATE_REJECTED",
        /// Waiting for credentials.
        AuthRequired = 8 / "TASK_STATE_AUTH_REQUIRED",
    }
}

impl TaskState {
    /// Whether the task has ended.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Unspecified
            | Self::Submitted
            | Self::Working
            | Self::InputRequired
            | Self::AuthRequired => false,
        }
    }

    /// Whether the task waits for the client.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether the task has ended or waits for the client. A blocking request returns then.
    pub const fn is_settled(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }
}

/// The status of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskStatus {
    /// The state.
    #[serde(deserialize_with = "lenient::null")]
    pub state: TaskState,
    /// A message of the agent about the state.
    #[serde(deserialize_with = "lenient::optional_object", skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<Message>>,
    /// The time at which the state was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// A result of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Artifact {
    /// The id, which is unique within the task.
    #[serde(alias = "artifact_id", deserialize_with = "lenient::null")]
    pub artifact_id: String,
    /// A name for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A description for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content. It has at least one part.
    #[serde(deserialize_with = "lenient::null")]
    pub parts: Vec<Part>,
    /// Additional data about the artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The URIs of the extensions that contributed to the artifact.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

impl Artifact {
    /// The text parts, joined without a separator, since streamed chunks have none.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}

/// A unit of work with its status, results and history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Task {
    /// The id, which the agent issued.
    #[serde(deserialize_with = "lenient::null")]
    pub id: TaskId,
    /// The context of the task.
    #[serde(alias = "context_id", deserialize_with = "lenient::id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// The status.
    #[serde(deserialize_with = "lenient::object")]
    pub status: TaskStatus,
    /// Additional data about the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The number of events that have changed the task. Part of protocol 1.1, and absent in earlier versions.
    #[serde(
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub generation: Option<u64>,
    /// The results.
    #[serde(deserialize_with = "lenient::objects", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The messages, oldest first.
    #[serde(deserialize_with = "lenient::objects", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
}

impl Task {
    /// The artifact with this id.
    pub fn artifact(&self, artifact_id: &str) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| artifact.artifact_id == artifact_id)
    }

    /// The messages of the agent after the last one of the user, from the history.
    pub fn last_answers(&self) -> impl Iterator<Item = &Message> {
        let asked = self.history.iter().rposition(|message| message.role == Role::User);
        let after = asked.map_or(0, |at| at + 1);
        self.history[after..].iter().filter(|message| message.role == Role::Agent)
    }

    /// All parts of its status message, artifacts and history.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let message = self.status.message.iter_mut().flat_map(|message| &mut message.parts);
        let artifacts = self.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts);
        message.chain(artifacts).chain(self.history.iter_mut().flat_map(|message| &mut message.parts))
    }
}
