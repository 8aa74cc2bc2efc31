//! The conversation that the model gets, from the tasks of the context.

use attache_core::{AgentError, Input, InputPiece, Turn, referenced_content};
use attache_protocol::{Content, Message, Part, Role, Task};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ModelOptions;
use super::transcript::Transcript;
use super::wire::{ChatContent, ChatMessage, ChatPart, ImageUrl, InputAudio, InputFile};

/// The messages for the model: the system prompt, the conversation so far, and the message of this turn with a note about it.
pub(super) async fn transcript(
    turn: &Turn,
    options: &ModelOptions,
    note: Option<ChatMessage>,
) -> Result<Transcript, AgentError> {
    let files = &options.files;
    let tasks = turn.earlier_tasks(options.max_tasks).await?;
    let mut earlier: Vec<ChatMessage> = tasks.iter().flat_map(|task| messages_of(task, files)).collect();
    if let Some(mut task) = turn.task() {
        task.history.retain(|message| message.message_id != turn.message().message_id);
        earlier.extend(messages_of(&task, files));
    }
    let system = options.system.as_deref().map(ChatMessage::system);
    let last = ChatMessage::user(input_content(&turn.input().await?, files));
    Ok(Transcript::new(system, earlier, note.into_iter().chain([last])))
}

/// The messages of a task, followed by what the model replied.
fn messages_of(task: &Task, files: &[String]) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = task
        .history
        .iter()
        .filter(|message| message.role == Role::User)
        .map(|message| ChatMessage::user(content(message, files)))
        .collect();
    let reply: String =
        task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect();
    if !reply.is_empty() {
        messages.push(ChatMessage::said(reply));
    }
    messages
}

/// The content of the message of this turn. Images and the listed files go with their manifest, other media as their manifest alone.
fn input_content(input: &Input, files: &[String]) -> ChatContent {
    let passed = |piece: &InputPiece| match piece {
        InputPiece::Media(media) => media_part(&media.media_type, Some(&media.filename), &media.bytes, files),
        InputPiece::Text(_) | InputPiece::TextFile { .. } => None,
    };
    let mut parts = Vec::with_capacity(input.pieces.len() + 1);
    let mut has_media = false;
    for piece in &input.pieces {
        parts.push(ChatPart::Text { text: piece.text().into_owned() });
        if let Some(part) = passed(piece) {
            has_media = true;
            parts.push(part);
        }
    }
    if has_media { ChatContent::Parts(parts) } else { ChatContent::Text(input.text()) }
}

/// The content of an earlier message. Images and the listed files go as they are, other content as text.
fn content(message: &Message, files: &[String]) -> ChatContent {
    let media: Vec<Option<ChatPart>> = message.parts.iter().map(|part| media(part, files)).collect();
    if media.iter().all(Option::is_none) {
        let texts: Vec<String> = message.parts.iter().map(text).collect();
        return ChatContent::Text(texts.join("\n"));
    }
    let parts = message.parts.iter().zip(media);
    let parts = parts.map(|(part, media)| media.unwrap_or_else(|| ChatPart::Text { text: text(part) }));
    ChatContent::Parts(parts.collect())
}

/// An image or a file of an earlier message.
fn media(part: &Part, files: &[String]) -> Option<ChatPart> {
    let media_type = part.media_type.as_deref()?;
    match &part.content {
        Content::Raw(bytes) => media_part(media_type, part.filename.as_deref(), bytes, files),
        // The endpoint cannot read what this server has stored.
        Content::Url(url) if media_type.starts_with("image/") && referenced_content(part).is_none() => {
            Some(ChatPart::ImageUrl { image_url: ImageUrl { url: url.clone() } })
        }
        Content::Url(_) | Content::Text(_) | Content::Data(_) => None,
    }
}

/// An image, or a file of a listed media type.
fn media_part(media_type: &str, filename: Option<&str>, bytes: &[u8], files: &[String]) -> Option<ChatPart> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let data = || STANDARD.encode(bytes);
    if essence.starts_with("image/") {
        let url = format!("data:{media_type};base64,{}", data());
        return Some(ChatPart::ImageUrl { image_url: ImageUrl { url } });
    }
    if !files.iter().any(|file| is_listed(file, &essence)) {
        return None;
    }
    Some(match essence.strip_prefix("audio/") {
        Some(format) => {
            let format = match format {
                "wave" | "x-wav" | "vnd.wave" => "wav",
                "mpeg" => "mp3",
                format => format,
            };
            ChatPart::InputAudio { input_audio: InputAudio { data: data(), format: format.to_owned() } }
        }
        None => {
            let filename = filename.unwrap_or("attachment").to_owned();
            let file_data = format!("data:{essence};base64,{}", data());
            ChatPart::File { file: InputFile { filename, file_data } }
        }
    })
}

/// Whether a media type is one like `application/pdf` or `audio/*`.
fn is_listed(listed: &str, media_type: &str) -> bool {
    match listed.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => media_type.split('/').next().is_some_and(|given| given.eq_ignore_ascii_case(kind)),
        None => listed.eq_ignore_ascii_case(media_type),
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

    #[test]
    fn images_are_passed_on_and_other_files_as_text() {
        let message = Message::user("m", "look")
            .part(Part::raw([1, 2]).media_type("image/png"))
            .part(Part::raw("a,b").filename("a.csv"))
            .part(Part::raw([0xff]).filename("x"));
        let ChatContent::Parts(parts) = content(&message, &[]) else { panic!("there is an image") };
        let image = ImageUrl { url: "data:image/png;base64,AQI=".into() };
        assert_eq!(parts[1], ChatPart::ImageUrl { image_url: image });
        assert_eq!(parts[2], ChatPart::Text { text: "a.csv:\na,b".into() });
        assert_eq!(parts[3], ChatPart::Text { text: "(x, 1 bytes, cannot be shown)".into() });
    }

    #[test]
    fn files_of_listed_media_types_are_passed_on() {
        let files = ["application/pdf".to_owned(), "audio/*".to_owned()];
        let message = Message::user("m", "read")
            .part(Part::raw([1, 2]).media_type("application/PDF; v=1").filename("a.pdf"))
            .part(Part::raw([1, 2]).media_type("audio/x-wav"))
            .part(Part::raw([0xff]).media_type("video/mp4").filename("v"));
        let ChatContent::Parts(parts) = content(&message, &files) else { panic!("there are files") };
        let file_data = "data:application/pdf;base64,AQI=".to_owned();
        assert_eq!(parts[1], ChatPart::File { file: InputFile { filename: "a.pdf".into(), file_data } });
        let sound = InputAudio { data: "AQI=".into(), format: "wav".into() };
        assert_eq!(parts[2], ChatPart::InputAudio { input_audio: sound });
        assert_eq!(parts[3], ChatPart::Text { text: "(v, 1 bytes, cannot be shown)".into() });
    }
}
