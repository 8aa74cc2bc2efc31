//! A conversation that another module leads with the model, such as an MCP server that asks for a sample.

use std::sync::Arc;

use attache_core::AgentError;
use serde_json::Value;

use super::reply::{Finish, Reply};
use super::wire::{ChatContent, ChatMessage, ChatPart, ImageUrl};
use super::{Endpoint, Model};

/// A conversation, and what is wanted of the reply.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) system: Option<String>,
    pub(crate) messages: Vec<SampleMessage>,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: Option<f32>,
    pub(crate) stop: Vec<String>,
}

/// A message of the conversation.
#[derive(Debug)]
pub(crate) struct SampleMessage {
    pub(crate) is_user: bool,
    pub(crate) parts: Vec<SamplePart>,
}

/// A part of a message.
#[derive(Debug)]
pub(crate) enum SamplePart {
    Text(String),
    /// The URL of an image, which can be a `data` URL.
    Image(String),
}

/// The reply of the model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sampled {
    pub(crate) text: String,
    pub(crate) model: String,
    /// Whether the reply reached its length limit.
    pub(crate) is_cut: bool,
}

impl Model {
    /// Replies to a conversation, without tools. The system prompt of the operator comes first, and the operator's limit of tokens
    /// is not exceeded.
    pub(crate) async fn sample(&self, sample: Sample) -> Result<Sampled, AgentError> {
        let mut options = (*self.options).clone();
        let tokens = options.parameters.get("max_tokens").and_then(Value::as_u64);
        let tokens = tokens.map_or(sample.max_tokens.into(), |limit| limit.min(sample.max_tokens.into()));
        options.parameters.insert("max_tokens".to_owned(), tokens.into());
        if let Some(temperature) = sample.temperature {
            options.parameters.entry("temperature").or_insert_with(|| temperature.into());
        }
        if !sample.stop.is_empty() {
            options.parameters.insert("stop".to_owned(), sample.stop.into());
        }
        let system = self.options.system.iter().chain(&sample.system).map(|text| ChatMessage::system(text));
        let messages: Vec<ChatMessage> = system.chain(sample.messages.into_iter().map(message)).collect();
        let size: usize = messages.iter().map(ChatMessage::size).sum();
        if size > options.max_context {
            let limit = options.max_context;
            return Err(AgentError::public(format!("the conversation is larger than {limit} bytes")));
        }
        let endpoint = Endpoint { options: Arc::new(options), ..self.endpoint.clone() };
        let mut events = endpoint.complete(&messages, &[]).await?;
        let mut reply = Reply::default();
        while let Some(chunk) = events.next().await? {
            reply.add(chunk)?;
        }
        reply.check_complete()?;
        let is_cut = match reply.finish {
            Finish::Stop => false,
            Finish::Length => true,
            Finish::Filtered => {
                return Err(AgentError::public("the model's provider filtered the reply"));
            }
            Finish::ToolCalls => {
                return Err(AgentError::public("the model called a tool that does not exist"));
            }
        };
        Ok(Sampled { text: reply.text, model: self.options.model.clone(), is_cut })
    }
}

fn message(message: SampleMessage) -> ChatMessage {
    let has_images = message.parts.iter().any(|part| matches!(part, SamplePart::Image(_)));
    if message.is_user && has_images {
        let parts = message.parts.into_iter().map(|part| match part {
            SamplePart::Text(text) => ChatPart::Text { text },
            SamplePart::Image(url) => ChatPart::ImageUrl { image_url: ImageUrl { url } },
        });
        return ChatMessage::user(ChatContent::Parts(parts.collect()));
    }
    let texts: Vec<String> = message
        .parts
        .into_iter()
        .map(|part| match part {
            SamplePart::Text(text) | SamplePart::Image(text) => text,
        })
        .collect();
    let text = texts.join("\n");
    if message.is_user { ChatMessage::user(ChatContent::Text(text)) } else { ChatMessage::said(text) }
}
