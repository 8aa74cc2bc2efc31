//! The messages of the chat completion API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::reply::{Reply, ToolCall};
use super::tool::Tool;

/// The body of a request.
#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) messages: &'a [ChatMessage],
    pub(super) stream: bool,
    pub(super) stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ToolEntry<'a>>,
    #[serde(flatten)]
    pub(super) parameters: &'a Map<String, Value>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

/// A tool, as the request lists it.
#[derive(Serialize)]
pub(super) struct ToolEntry<'a> {
    r#type: &'static str,
    function: ToolFunction<'a>,
}

#[derive(Serialize)]
struct ToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl<'a> From<&'a Tool> for ToolEntry<'a> {
    fn from(tool: &'a Tool) -> Self {
        let function =
            ToolFunction { name: &tool.name, description: &tool.description, parameters: &tool.parameters };
        Self { r#type: "function", function }
    }
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ChatMessage {
    pub(super) role: &'static str,
    pub(super) content: Option<ChatContent>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

/// The content of a message: text alone, or text with images.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPart {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ImageUrl {
    pub(super) url: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CallEntry {
    id: String,
    r#type: &'static str,
    function: CallFunction,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CallFunction {
    name: String,
    arguments: String,
}

impl ChatMessage {
    fn new(role: &'static str, content: Option<ChatContent>) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }

    pub(super) fn system(text: &str) -> Self {
        Self::new("system", Some(ChatContent::Text(text.to_owned())))
    }

    pub(super) fn user(content: ChatContent) -> Self {
        Self::new("user", Some(content))
    }

    /// What the model said in an earlier turn.
    pub(super) fn said(text: String) -> Self {
        Self::new("assistant", Some(ChatContent::Text(text)))
    }

    /// What the model said before its tools ran.
    pub(super) fn assistant(reply: Reply) -> Self {
        let content = (!reply.text.is_empty()).then_some(ChatContent::Text(reply.text));
        let tool_calls = reply.calls.into_iter().map(CallEntry::from).collect();
        Self { tool_calls, ..Self::new("assistant", content) }
    }

    /// The result of a tool.
    pub(super) fn tool(call: String, result: String) -> Self {
        Self { tool_call_id: Some(call), ..Self::new("tool", Some(ChatContent::Text(result))) }
    }

    /// How much the message counts against the size of the conversation.
    pub(super) fn size(&self) -> usize {
        match &self.content {
            None => 0,
            Some(ChatContent::Text(text)) => text.len(),
            Some(ChatContent::Parts(parts)) => parts.iter().map(ChatPart::size).sum(),
        }
    }
}

impl ChatPart {
    fn size(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ImageUrl { image_url } => image_url.url.len(),
        }
    }
}

impl From<ToolCall> for CallEntry {
    fn from(ToolCall { id, name, arguments }: ToolCall) -> Self {
        Self { id, r#type: "function", function: CallFunction { name, arguments } }
    }
}

/// An event of a streamed response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    pub(super) choices: Vec<Choice>,
    pub(super) usage: Option<Usage>,
    /// Some endpoints report an error inside the stream.
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    pub(super) delta: Delta,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    pub(super) content: Option<String>,
    pub(super) tool_calls: Option<Vec<CallDelta>>,
    /// The thoughts of the model. Endpoints call them by two names.
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
}

impl Chunk {
    /// The next piece of the thoughts of the model.
    pub(super) fn thought(&self) -> Option<&str> {
        let delta = &self.choices.first()?.delta;
        let texts = [&delta.reasoning_content, &delta.reasoning];
        texts.into_iter().flatten().find_map(Value::as_str).filter(|text| !text.is_empty())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta {
    pub(super) index: usize,
    pub(super) id: Option<String>,
    pub(super) function: FunctionDelta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
}

/// How many tokens a request took.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}
