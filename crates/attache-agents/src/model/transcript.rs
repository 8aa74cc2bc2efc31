//! The messages that the model gets, within the limit of their size.
//!
//! The limit is kept before each request. First the oldest images and files of the conversation are left out, then its oldest turns. Then the
//! oldest results of tools are replaced by a short note. A call and its result stay together, since endpoints refuse one without the other. The system
//! prompt, the message of the turn and what the model says in it are never left out.

use super::wire::ChatMessage;

/// What stands for messages that were left out.
const LEFT_OUT: &str = "(Earlier messages of this conversation were left out.)";

/// What stands for the result of a tool that was left out.
const RESULT_LEFT_OUT: &str = "(left out)";

/// The messages of a turn: the system prompt, the conversation so far, the message of the turn, and what followed.
#[derive(Debug)]
pub(super) struct Transcript {
    messages: Vec<ChatMessage>,
    /// Where the earlier turns begin.
    start: usize,
    /// Where this turn begins.
    current: usize,
    /// Whether the model was told that messages were left out.
    is_shortened: bool,
}

/// What cannot be left out is larger than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    /// The size of what cannot be left out.
    pub(super) size: usize,
}

impl Transcript {
    /// `current` is the message of this turn, with notes about it before it.
    pub(super) fn new(
        system: Option<ChatMessage>,
        earlier: Vec<ChatMessage>,
        current: impl IntoIterator<Item = ChatMessage>,
    ) -> Self {
        let start = usize::from(system.is_some());
        let mut messages: Vec<ChatMessage> = system.into_iter().chain(earlier).collect();
        let length = messages.len();
        messages.extend(current);
        Self { messages, start, current: length, is_shortened: false }
    }

    pub(super) fn push(&mut self, message: ChatMessage) {
        self.messages.push(message);
    }

    pub(super) fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// Images and files of the message of the turn do not count: the rules for messages limit them.
    fn size(&self) -> usize {
        let (earlier, current) = self.messages.split_at(self.current);
        let earlier: usize = earlier.iter().map(ChatMessage::size).sum();
        let current: usize = current.iter().map(ChatMessage::text_size).sum();
        let note = if self.is_shortened { LEFT_OUT.len() } else { 0 };
        earlier + current - note
    }

    /// Leaves out so much that the messages have at most `limit` bytes.
    pub(super) fn fit(&mut self, limit: usize) -> Result<(), TooLarge> {
        let mut size = self.size();
        // What describes an image stays.
        for message in &mut self.messages[self.start..self.current] {
            if size > limit {
                size -= message.leave_out_media();
            }
        }
        // What is left begins with a message of the user, since some endpoints require it.
        let mut kept = self.start;
        while kept < self.current && size > limit
            || kept > self.start && kept < self.current && self.messages[kept].role != "user"
        {
            size -= self.messages[kept].size();
            kept += 1;
        }
        self.leave_out_until(kept);
        for message in &mut self.messages[self.current..] {
            if size > limit && message.role == "tool" {
                size -= message.leave_out(RESULT_LEFT_OUT);
            }
        }
        if size > limit { Err(TooLarge { size }) } else { Ok(()) }
    }

    fn leave_out_until(&mut self, kept: usize) {
        if kept == self.start {
            return;
        }
        self.messages.drain(self.start..kept);
        self.current -= kept - self.start;
        if !self.is_shortened {
            self.is_shortened = true;
            self.messages.insert(self.start, ChatMessage::system(LEFT_OUT));
            self.start += 1;
            self.current += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::{Reply, ToolCall};
    use super::super::wire::{ChatContent, ChatPart, ImageUrl};
    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(ChatContent::Text(text.to_owned()))
    }

    fn said(text: &str) -> ChatMessage {
        ChatMessage::said(text.to_owned())
    }

    fn call(id: &str, arguments: &str) -> ChatMessage {
        let call = ToolCall { id: id.to_owned(), name: String::new(), arguments: arguments.to_owned() };
        let mut reply = Reply::default();
        reply.calls.push(call);
        ChatMessage::assistant(reply)
    }

    fn result(id: &str, text: &str) -> ChatMessage {
        ChatMessage::tool(id.to_owned(), text.to_owned())
    }

    #[test]
    fn the_oldest_turns_are_left_out_and_the_model_is_told() {
        let earlier = || vec![user("one"), said("two"), user("three"), said("four")];
        let fitted = |limit| {
            let mut transcript = Transcript::new(Some(ChatMessage::system("S")), earlier(), [user("now")]);
            transcript.fit(limit).unwrap();
            transcript.messages
        };
        let rest = |rest: &[ChatMessage]| [&[ChatMessage::system("S")], rest].concat();
        assert_eq!(fitted(100), rest(&[earlier(), vec![user("now")]].concat()));
        let note = ChatMessage::system(LEFT_OUT);
        for limit in [18, 13] {
            assert_eq!(fitted(limit), rest(&[note.clone(), user("three"), said("four"), user("now")]));
        }
        assert_eq!(fitted(12), rest(&[note, user("now")]));
    }

    #[test]
    fn the_oldest_results_of_tools_are_left_out_after_the_earlier_turns() {
        let long = "x".repeat(30);
        let mut transcript = Transcript::new(None, vec![user("one"), said("two")], [user("now")]);
        for id in ["1", "2"] {
            transcript.push(call(id, "{}"));
            transcript.push(result(id, &long));
        }
        transcript.fit(70).unwrap();
        let note = ChatMessage::system(LEFT_OUT);
        let begin = [note, user("now"), call("1", "{}")];
        let end = [call("2", "{}"), result("2", &long)];
        assert_eq!(transcript.messages, [&begin[..], &[result("1", &long)], &end].concat());
        transcript.fit(60).unwrap();
        assert_eq!(transcript.messages, [&begin[..], &[result("1", RESULT_LEFT_OUT)], &end].concat());
        assert_eq!(transcript.fit(20), Err(TooLarge { size: 27 }));
    }

    #[test]
    fn images_of_the_message_of_the_turn_do_not_count() {
        let image = ChatPart::ImageUrl { image_url: ImageUrl { url: "x".repeat(100) } };
        let message = ChatMessage::user(ChatContent::Parts(vec![image]));
        assert_eq!(Transcript::new(None, Vec::new(), [message]).fit(10), Ok(()));
    }

    #[test]
    fn images_of_earlier_turns_are_left_out_before_the_turns_and_the_oldest_first() {
        let text = || ChatPart::Text { text: "look".to_owned() };
        let image = || ChatPart::ImageUrl { image_url: ImageUrl { url: "x".repeat(100) } };
        let message = |parts: Vec<ChatPart>| ChatMessage::user(ChatContent::Parts(parts));
        let whole = || message(vec![text(), image()]);
        let fitted = |limit| {
            let mut transcript = Transcript::new(None, vec![whole(), said("a"), whole()], [user("now")]);
            transcript.fit(limit).unwrap();
            transcript.messages
        };
        let short = || message(vec![text()]);
        assert_eq!(fitted(212), [whole(), said("a"), whole(), user("now")]);
        assert_eq!(fitted(211), [short(), said("a"), whole(), user("now")]);
        assert_eq!(fitted(12), [short(), said("a"), short(), user("now")]);
        assert_eq!(fitted(11), [ChatMessage::system(LEFT_OUT), short(), user("now")]);
    }
}
