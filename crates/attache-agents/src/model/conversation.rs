//! The conversation that the model gets, from the tasks of the context.

use attache_core::{AgentError, Input, InputPiece, Namespace, Turn};
use attache_protocol::{Message, Part, Role, Task};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ModelOptions;
use super::earlier::Earlier;
use super::transcript::Transcript;
use super::wire::{ChatContent, ChatMessage, ChatPart, ImageUrl, InputAudio, InputFile};

/// The messages for the model: the system prompt, the conversation so far, and the message of this turn with a note about it.
pub(super) async fn transcript(
    turn: &Turn,
    options: &ModelOptions,
    note: Option<ChatMessage>,
) -> Result<Transcript, AgentError> {
    let files = &options.files;
    let namespace = turn.report_options().namespace;
    let mut tasks = turn.earlier_tasks(options.max_tasks).await?;
    if let Some(mut task) = turn.task() {
        task.history.retain(|message| message.message_id != turn.message().message_id);
        tasks.push(task);
    }
    let mut content = Earlier::new(turn, files, options.max_context);
    let mut earlier = Vec::new();
    // The latest messages come first, since the limit is for them.
    for said in tasks.iter().rev().flat_map(|task| history_of(task, namespace).into_iter().rev()) {
        earlier.push(match said {
            HistoryItem::User(message) => {
                ChatMessage::user(input_content(&content.read(message).await, files))
            }
            HistoryItem::Model(text) => ChatMessage::said(text),
        });
    }
    earlier.reverse();
    let system = options.system.as_deref().map(ChatMessage::system);
    let last = ChatMessage::user(input_content(&turn.input().await?, files));
    Ok(Transcript::new(system, earlier, note.into_iter().chain([last])))
}

/// What was said in a task.
#[derive(Debug, PartialEq)]
enum HistoryItem<'a> {
    User(&'a Message),
    Model(String),
}

/// The messages of a task, and what the model replied: status messages in the namespace `iac_code`, otherwise artifacts.
fn history_of(task: &Task, namespace: Namespace) -> Vec<HistoryItem<'_>> {
    let mut all = Vec::new();
    for message in &task.history {
        match (message.role, namespace) {
            (Role::User, Namespace::Attache | Namespace::IacCode) => all.push(HistoryItem::User(message)),
            // Questions have data. Reports have no texts here.
            (Role::Agent, Namespace::IacCode)
                if message.parts.iter().all(|part| part.as_text().is_some()) =>
            {
                match all.last_mut() {
                    Some(HistoryItem::Model(text)) => text.push_str(&message.text()),
                    Some(HistoryItem::User(_)) | None => all.push(HistoryItem::Model(message.text())),
                }
            }
            (Role::Agent | Role::Unspecified, Namespace::Attache | Namespace::IacCode) => {}
        }
    }
    let reply: String =
        task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect();
    if !reply.is_empty() {
        all.push(HistoryItem::Model(reply));
    }
    all
}

/// The content of a message. Images and the listed files go with their manifest, other media as their manifest alone.
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

/// Whether the model gets content of this media type as it is.
pub(super) fn is_passed(media_type: &str, files: &[String]) -> bool {
    media_part(media_type, None, &[], files).is_some()
}

/// Whether a media type is one like `application/pdf` or `audio/*`.
pub(super) fn is_listed(listed: &str, media_type: &str) -> bool {
    match listed.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => media_type.split('/').next().is_some_and(|given| given.eq_ignore_ascii_case(kind)),
        None => listed.eq_ignore_ascii_case(media_type),
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::TaskState;

    use super::*;

    fn media(media_type: &str, files: &[String]) -> Option<ChatPart> {
        media_part(media_type, Some("a"), &[1, 2], files)
    }

    #[test]
    fn files_of_listed_media_types_are_passed_on() {
        let files = ["application/pdf".to_owned(), "audio/*".to_owned()];
        let image = ImageUrl { url: "data:image/png;base64,AQI=".into() };
        assert_eq!(media("image/png", &[]), Some(ChatPart::ImageUrl { image_url: image }));
        let file_data = "data:application/pdf;base64,AQI=".to_owned();
        let file = InputFile { filename: "a".into(), file_data };
        assert_eq!(media("application/PDF; v=1", &files), Some(ChatPart::File { file }));
        let sound = InputAudio { data: "AQI=".into(), format: "wav".into() };
        assert_eq!(media("audio/x-wav", &files), Some(ChatPart::InputAudio { input_audio: sound }));
        assert_eq!(media("video/mp4", &files), None);
        assert_eq!(media("application/pdf", &[]), None);
    }

    #[test]
    fn status_messages_are_replies_for_clients_of_iac_code_only() {
        let agent = |text: &str| Message { role: Role::Agent, ..Message::user("a", text) };
        let question = agent("May I?").part(Part::data(&1).unwrap());
        let (first, second) = (Message::user("1", "one"), Message::user("2", "two"));
        let history = vec![first.clone(), agent("a\n"), agent("b"), question, second.clone(), agent("c")];
        let mut task = Task { history, ..Task::default() };
        task.status.state = TaskState::Completed;
        let expected = [
            HistoryItem::User(&first),
            HistoryItem::Model("a\nb".into()),
            HistoryItem::User(&second),
            HistoryItem::Model("c".into()),
        ];
        assert_eq!(history_of(&task, Namespace::IacCode), expected);
        assert_eq!(
            history_of(&task, Namespace::Attache),
            [HistoryItem::User(&first), HistoryItem::User(&second)]
        );
    }
}
