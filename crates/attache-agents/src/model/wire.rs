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

/// The content of a message: text alone, or text with images and files.
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
    InputAudio { input_audio: InputAudio },
    File { file: InputFile },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ImageUrl {
    pub(super) url: String,
}

/// A sound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct InputAudio {
    /// The sound in Base64.
    pub(super) data: String,
    /// Such as `wav`.
    pub(super) format: String,
}

/// Any other file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct InputFile {
    pub(super) filename: String,
    /// A `data` URL.
    pub(super) file_data: String,
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

    /// How many bytes the message has: text, images and files, and the arguments of calls.
    pub(super) fn size(&self) -> usize {
        self.size_of(ChatPart::size)
    }

    /// How many bytes the message has without images and files.
    pub(super) fn text_size(&self) -> usize {
        self.size_of(ChatPart::text_size)
    }

    fn size_of(&self, part: fn(&ChatPart) -> usize) -> usize {
        let content = match &self.content {
            None => 0,
            Some(ChatContent::Text(text)) => text.len(),
            Some(ChatContent::Parts(parts)) => parts.iter().map(part).sum(),
        };
        let calls =
            self.tool_calls.iter().map(|call| call.function.name.len() + call.function.arguments.len());
        content + calls.sum::<usize>()
    }

    /// Leaves out images and files. Returns how much smaller the message is now.
    pub(super) fn leave_out_media(&mut self) -> usize {
        let size = self.size();
        if let Some(ChatContent::Parts(parts)) = &mut self.content {
            parts.retain(|part| matches!(part, ChatPart::Text { .. }));
        }
        size - self.size()
    }

    /// Replaces the content by a short note, if that makes it smaller. Returns how much smaller it is now.
    pub(super) fn leave_out(&mut self, text: &str) -> usize {
        let saved = self.size().saturating_sub(text.len());
        if saved > 0 {
            self.content = Some(ChatContent::Text(text.to_owned()));
        }
        saved
    }
}

impl ChatPart {
    fn size(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ImageUrl { image_url } => image_url.url.len(),
            Self::InputAudio { input_audio } => input_audio.data.len(),
            Self::File { file } => file.file_data.len(),
        }
    }

    fn text_size(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ImageUrl { .. } | Self::InputAudio { .. } | Self::File { .. } => 0,
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

    /// Whether the event adds nothing to the reply.
    pub(super) fn is_empty(&self) -> bool {
        let adds = |choice: &Choice| {
            let delta = &choice.delta;
            choice.finish_reason.is_some()
                || delta.content.as_ref().is_some_and(|text| !text.is_empty())
                || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
        };
        let is_silent = self.error.is_none() && self.usage.is_none() && self.thought().is_none();
        is_silent && !self.choices.first().is_some_and(adds)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta {
    /// Which call this belongs to. Some endpoints leave it out, and some give all calls the same one.
    pub(super) index: Option<usize>,
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
