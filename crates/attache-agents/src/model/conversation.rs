//! The conversation that the model gets, from the tasks of the context.

use attache_core::{AgentError, Input, InputPiece, Turn, referenced_content};
use attache_protocol::{Content, Message, Part, Role, Task};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ModelOptions;
use super::wire::{ChatContent, ChatMessage, ChatPart, ImageUrl};

/// What stands for messages that were left out.
const LEFT_OUT: &str = "(Earlier messages of this conversation were left out.)";

/// The messages for the model: the system prompt, the conversation so far, and the message of this turn.
pub(super) async fn messages(turn: &Turn, options: &ModelOptions) -> Result<Vec<ChatMessage>, AgentError> {
    let mut earlier: Vec<ChatMessage> =
        turn.earlier_tasks(options.max_tasks).await?.iter().flat_map(messages_of).collect();
    if let Some(mut task) = turn.task() {
        task.history.retain(|message| message.message_id != turn.message().message_id);
        earlier.extend(messages_of(&task));
    }
    let system = options.system.as_deref().map(ChatMessage::system);
    let last = ChatMessage::user(input_content(&turn.input().await?));
    let fixed = last.size() + system.as_ref().map_or(0, ChatMessage::size);
    let earlier = shorten(earlier, options.max_context.saturating_sub(fixed));
    Ok(system.into_iter().chain(earlier).chain([last]).collect())
}

/// Leaves out the oldest messages until the rest fits. The rest begins with a message of the user, since some endpoints require it.
fn shorten(messages: Vec<ChatMessage>, limit: usize) -> Vec<ChatMessage> {
    let mut size = 0;
    let fits = messages.iter().rev().take_while(|message| {
        size += message.size();
        size <= limit
    });
    let mut kept = messages.len() - fits.count();
    if kept == 0 {
        return messages;
    }
    while messages.get(kept).is_some_and(|message| message.role != "user") {
        kept += 1;
    }
    let mut shortened = vec![ChatMessage::system(LEFT_OUT)];
    shortened.extend(messages.into_iter().skip(kept));
    shortened
}

/// The messages of a task, followed by what the model replied.
fn messages_of(task: &Task) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = task
        .history
        .iter()
        .filter(|message| message.role == Role::User)
        .map(|message| ChatMessage::user(content(message)))
        .collect();
    let reply: String =
        task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect();
    if !reply.is_empty() {
        messages.push(ChatMessage::said(reply));
    }
    messages
}

/// The content of the message of this turn. Images go with their manifest, other media as their manifest alone.
fn input_content(input: &Input) -> ChatContent {
    let is_image = |piece: &InputPiece| matches!(piece, InputPiece::Media(media) if media.media_type.starts_with("image/"));
    if !input.pieces.iter().any(is_image) {
        return ChatContent::Text(input.text());
    }
    let mut parts = Vec::with_capacity(input.pieces.len() + 1);
    for piece in &input.pieces {
        parts.push(ChatPart::Text { text: piece.text().into_owned() });
        if let InputPiece::Media(media) = piece
            && is_image(piece)
        {
            let url = format!("data:{};base64,{}", media.media_type, STANDARD.encode(&media.bytes));
            parts.push(ChatPart::ImageUrl { image_url: ImageUrl { url } });
        }
    }
    ChatContent::Parts(parts)
}

/// The content of an earlier message. Images go as they are, other content as text.
fn content(message: &Message) -> ChatContent {
    let has_images = message.parts.iter().any(|part| image(part).is_some());
    if !has_images {
        let texts: Vec<String> = message.parts.iter().map(text).collect();
        return ChatContent::Text(texts.join("\n"));
    }
    let parts = message.parts.iter().map(|part| match image(part) {
        Some(url) => ChatPart::ImageUrl { image_url: ImageUrl { url } },
        None => ChatPart::Text { text: text(part) },
    });
    ChatContent::Parts(parts.collect())
}

/// The URL of an image.
fn image(part: &Part) -> Option<String> {
    let media_type = part.media_type.as_deref().filter(|media_type| media_type.starts_with("image/"))?;
    match &part.content {
        Content::Raw(bytes) => Some(format!("data:{media_type};base64,{}", STANDARD.encode(bytes))),
        // The endpoint cannot read what this server has stored.
        Content::Url(url) if referenced_content(part).is_none() => Some(url.clone()),
        Content::Url(_) | Content::Text(_) | Content::Data(_) => None,
    }
}

/// A part as text.
fn text(part: &Part) -> String {
    match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.as_str().to_owned(),
        Content::Url(_) if referenced_content(part).is_some() => {
            format!("({}, cannot be shown)", part.filename.as_deref().unwrap_or("a file"))
        }
        Content::Url(url) => url.clone(),
        Content::Raw(bytes) => {
            let name = part.filename.as_deref().unwrap_or("a file");
            match std::str::from_utf8(bytes) {
                Ok(text) => format!("{name}:\n{text}"),
                Err(_) => format!("({name}, {} bytes, cannot be shown)", bytes.len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(ChatContent::Text(text.to_owned()))
    }

    #[test]
    fn the_oldest_messages_are_left_out_and_the_model_is_told() {
        let messages = vec![
            user("one"),
            ChatMessage::said("two".into()),
            user("three"),
            ChatMessage::said("four".into()),
        ];
        assert_eq!(shorten(messages.clone(), 100), messages);
        let rest = [ChatMessage::system(LEFT_OUT), user("three"), ChatMessage::said("four".into())];
        assert_eq!(shorten(messages.clone(), 12), rest);
        assert_eq!(shorten(messages.clone(), 9), rest);
        assert_eq!(shorten(messages, 5), [ChatMessage::system(LEFT_OUT)]);
    }

    #[test]
    fn images_are_passed_on_and_other_files_as_text() {
        let message = Message::user("m", "look")
            .part(Part::raw([1, 2]).media_type("image/png"))
            .part(Part::raw("a,b").filename("a.csv"))
            .part(Part::raw([0xff]).filename("x"));
        let ChatContent::Parts(parts) = content(&message) else { panic!("there is an image") };
        let image = ImageUrl { url: "data:image/png;base64,AQI=".into() };
        assert_eq!(parts[1], ChatPart::ImageUrl { image_url: image });
        assert_eq!(parts[2], ChatPart::Text { text: "a.csv:\na,b".into() });
        assert_eq!(parts[3], ChatPart::Text { text: "(x, 1 bytes, cannot be shown)".into() });
    }
}
