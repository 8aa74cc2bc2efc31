//! The earlier conversation as text, for a session that does not know it.

use attache_core::{AgentError, Namespace, Turn};
use attache_protocol::{Content, Message, Part, Role, Task};

/// How many earlier tasks are looked at.
const MAX_TASKS: usize = 100;

/// What stands for messages that were left out.
const LEFT_OUT: &str = "(Earlier messages were left out.)";

/// The messages of the conversation before this turn, at most so many bytes. `None` if there are none.
pub(super) async fn earlier(turn: &Turn, limit: usize) -> Result<Option<String>, AgentError> {
    let answers = turn.report_options().namespace;
    let earlier = turn.earlier_tasks(MAX_TASKS).await?;
    let mut messages: Vec<String> = earlier.iter().flat_map(|task| messages_of(task, answers)).collect();
    if let Some(mut task) = turn.task() {
        task.history.retain(|message| message.message_id != turn.message().message_id);
        messages.extend(messages_of(&task, answers));
    }
    Ok(join(&messages, limit))
}

fn join(messages: &[String], limit: usize) -> Option<String> {
    let mut size = 0;
    let kept = messages.iter().rev().take_while(|message| {
        size += message.len();
        size <= limit
    });
    let kept = kept.count();
    let (left_out, kept) = messages.split_at(messages.len() - kept);
    if messages.is_empty() {
        return None;
    }
    let mut text = String::from("The conversation so far:\n\n");
    if !left_out.is_empty() {
        text.push_str(LEFT_OUT);
        text.push_str("\n\n");
    }
    for message in kept {
        text.push_str(message);
        text.push_str("\n\n");
    }
    text.push_str("The new message of the user follows.");
    Some(text)
}

/// The messages of a task, followed by what the agent answered. In the namespace of iac-code the answers are among the messages.
fn messages_of(task: &Task, answers: Namespace) -> Vec<String> {
    let is_answer = |message: &Message| match answers {
        Namespace::Attache => false,
        // Others, such as questions, have data too.
        Namespace::IacCode => message.parts.iter().all(|part| part.as_data().is_none()),
    };
    let all = task.history.iter().chain(task.status.message.as_deref());
    let mut messages: Vec<String> = all
        .filter_map(|message| match message.role {
            Role::User => Some(format!("User: {}", text(message))),
            Role::Agent => is_answer(message).then(|| format!("Agent: {}", text(message))),
            Role::Unspecified => None,
        })
        .collect();
    let answers = task.artifacts.iter().filter(|artifact| artifact.artifact_id == super::ANSWER);
    let answer: String = answers.flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect();
    if !answer.is_empty() {
        messages.push(format!("Agent: {answer}"));
    }
    messages
}

fn text(message: &Message) -> String {
    let part = |part: &Part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.as_str().to_owned(),
        Content::Url(url) => url.clone(),
        Content::Raw(_) => format!("(a file: {})", part.filename.as_deref().unwrap_or("without a name")),
    };
    message.parts.iter().map(part).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_messages_are_left_out() {
        let messages = ["User: one".to_owned(), "Agent: two".to_owned(), "User: three".to_owned()];
        assert_eq!(join(&[], 100), None);
        let all = join(&messages, 100).unwrap();
        assert!(all.contains("User: one\n\nAgent: two\n\nUser: three") && !all.contains(LEFT_OUT), "{all}");
        let some = join(&messages, 22).unwrap();
        assert!(!some.contains("one") && some.contains("two") && some.contains(LEFT_OUT), "{some}");
    }
}
