//! `attache chat`: a conversation.
//!
//! Every line is a message in the same conversation. If the task asks something, the next line is the answer. On a terminal, lines
//! can be edited and are remembered.

use std::io::IsTerminal;
use std::path::PathBuf;

use attache::client::Outgoing;
use attache::protocol::{ContextId, Message, Part, Role, TaskId, TaskState};
use clap::Args;

use super::connect::{Agent, AgentArgs};
use super::editor::{self, Input, Typed};
use super::live::{Followed, Form, Live};
use super::permission;
use super::{send, show};
use crate::command::{Exit, Failure, say};

/// The arguments of `attache chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
While you talk:
  /file PATH  send a file with the next message; `/file -` forgets those chosen
  /new        begin a new conversation
  /task       show the ids of the conversation and of the last task
  /help       show this list
  /quit       leave, as Ctrl-D does
  Ctrl-C      cancel the task that is running; a second time, leave

A line that begins with `//` is sent with one slash. On a terminal, Alt-Enter or a `\\` at the end begins another line of the same message, the arrow keys and Ctrl-R find earlier messages, and Tab completes. Lines can also come from a file or a pipe; the exit code is then that of the last one.")]
pub(crate) struct Chat {
    /// Go on with this conversation
    #[arg(long, value_name = "ID")]
    context: Option<String>,

    /// Neither read nor write the file that remembers what you type
    #[arg(long)]
    no_history: bool,

    #[command(flatten)]
    target: AgentArgs,
}

/// The commands, for completion.
const COMMANDS: [&str; 5] = ["/file", "/help", "/new", "/quit", "/task"];

/// The commands with what they do.
const HELP: &str = "\
/file PATH  send a file with the next message; `/file -` forgets those chosen
/new        begin a new conversation
/task       show the ids of the conversation and of the last task
/quit       leave, as Ctrl-D does
Alt-Enter, or `\\` at the end, begins another line of the same message.";

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    New,
    Task,
    Quit,
    Help,
    /// Attach this file; without a path, list those attached.
    File(&'a str),
    Unknown(&'a str),
    Say(&'a str),
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        let line = line.trim();
        match line {
            "" => Self::Nothing,
            "/new" => Self::New,
            "/task" => Self::Task,
            "/quit" | "/exit" => Self::Quit,
            "/help" | "/?" => Self::Help,
            "/file" => Self::File(""),
            line if line.starts_with("/file ") => Self::File(line[5..].trim()),
            line if line.starts_with("//") => Self::Say(&line[1..]),
            line if line.starts_with('/') => Self::Unknown(line),
            line => Self::Say(line),
        }
    }
}

/// The path that was typed: completion puts a `\` before spaces, and people use quotes.
fn typed_path(text: &str) -> PathBuf {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    let text = match quoted('"').or_else(|| quoted('\'')) {
        Some(inner) => inner.to_owned(),
        None if cfg!(windows) => text.to_owned(),
        None => text.replace("\\ ", " "),
    };
    match (text.strip_prefix("~/"), dirs::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        (Some(_) | None, _) => PathBuf::from(text),
    }
}

impl Chat {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.target.connect().await?;
        let is_for_people = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let history = editor::history_file().filter(|_| !self.no_history);
        let conversation = Conversation {
            live: Live::new(Form::Text).rendered(),
            context: self.context.map(ContextId::from),
            asked: None,
            last: None,
            files: Vec::new(),
            agent,
            is_for_people,
        };
        let input = match is_for_people {
            true => Input::edited(&COMMANDS, history)?,
            false => Input::plain(),
        };
        conversation.run(input).await
    }
}

struct Conversation {
    agent: Agent,
    /// What was printed of the current task.
    live: Live,
    context: Option<ContextId>,
    /// The task that waits for input.
    asked: Option<TaskId>,
    last: Option<TaskId>,
    /// The files that go with the next message.
    files: Vec<Part>,
    is_for_people: bool,
}

impl Conversation {
    async fn run(mut self, mut input: Input) -> Result<(), Failure> {
        let card = self.agent.client.card();
        self.tell(&format!("talking with {}; Ctrl-D leaves, /help helps", show::line(&card.name)));
        let mut last = Ok(());
        loop {
            let prompt = if self.asked.is_some() { "answer> " } else { "> " };
            let line = match input.next(prompt).await? {
                Typed::Text(line) => line,
                Typed::Interrupted => {
                    self.tell("Ctrl-D or /quit leaves");
                    continue;
                }
                Typed::End => return if self.is_for_people { Ok(()) } else { last },
            };
            match Line::read(&line) {
                Line::Nothing => {}
                Line::Quit => return if self.is_for_people { Ok(()) } else { last },
                Line::New => {
                    (self.context, self.asked, self.last) = (None, None, None);
                    self.files.clear();
                    self.tell("a new conversation begins");
                }
                Line::Task => self.ids(),
                Line::Help => say(format_args!("{HELP}")),
                Line::File(path) => {
                    let attached = self.attach(path);
                    if attached.is_err() || last.is_err() {
                        last = self.ended(attached)?;
                    }
                }
                Line::Unknown(command) => {
                    let text = format!("there is no `{command}`");
                    let failure = Failure::usage(text)
                        .hint("there are /file, /new, /task and /quit; `//` begins a line with a slash");
                    last = self.ended(Err(failure))?;
                }
                Line::Say(text) => {
                    if let Err(failure) = &last
                        && !self.is_for_people
                        && failure.exit != Exit::NeedsInput
                    {
                        failure.say();
                    }
                    let said = self.say(text).await;
                    last = self.ended(said)?;
                }
            }
        }
    }

    /// Chooses a file for the next message, lists those that are chosen, or forgets them.
    fn attach(&mut self, path: &str) -> Result<(), Failure> {
        match path {
            "" => {}
            "-" => self.files.clear(),
            path => self.files.push(send::file(&typed_path(path), "/file ")?),
        }
        let names: Vec<_> =
            self.files.iter().map(|file| show::line(file.filename.as_deref().unwrap_or("a file"))).collect();
        match names.is_empty() {
            true => self.tell("no file goes with the next message"),
            false => self.tell(&format!("with the next message: {}", names.join(", "))),
        }
        Ok(())
    }

    /// Handles the result of a line. On a terminal the chat continues after a failure. A program cannot read the failure, so there
    /// the chat ends if the agent is gone or Ctrl-C was pressed. The exit code is that of the last line.
    fn ended(&self, result: Result<(), Failure>) -> Result<Result<(), Failure>, Failure> {
        let Err(failure) = result else { return Ok(Ok(())) };
        let is_over = match failure.exit {
            Exit::Interrupted => true,
            Exit::Unreachable | Exit::Unauthorized | Exit::Usage => !self.is_for_people,
            Exit::Failed | Exit::NeedsInput | Exit::TimedOut => false,
        };
        if is_over {
            return Err(failure);
        }
        // A task that asks something has answered this line.
        if failure.exit != Exit::NeedsInput && self.is_for_people {
            failure.say();
        }
        Ok(Err(failure))
    }

    /// Sends a line and prints the response.
    async fn say(&mut self, text: &str) -> Result<(), Failure> {
        let parts = match self.decision(text)? {
            // Nothing else may be in the message. The files go with the next one.
            Some(decision) => vec![decision],
            None => std::iter::once(Part::text(text)).chain(std::mem::take(&mut self.files)).collect(),
        };
        let mut outgoing = Outgoing::new(Message { role: Role::User, parts, ..Message::default() });
        if let Some(context) = &self.context {
            outgoing = outgoing.context(context.clone());
        }
        match self.asked.take() {
            // Earlier output of the task has been printed.
            Some(task) => outgoing = outgoing.task(task),
            None => self.live = Live::new(Form::Text).rendered(),
        }
        let opened = self.live.watch(self.agent.client.stream(outgoing)).await;
        let Some(opened) = opened else { return Err(self.live.interrupted(&self.agent)) };
        let mut events = opened.map_err(|error| self.agent.failed(&error))?;
        let mut is_canceled = false;
        while let Followed::Interrupted = self.live.follow(&self.agent, &mut events).await? {
            let task = self.live.outcome.task.clone();
            let Some(task) = task.filter(|_| !is_canceled) else {
                return Err(self.live.interrupted(&self.agent));
            };
            is_canceled = true;
            self.tell("canceling the task; Ctrl-C again leaves");
            let canceled = self.live.watch(self.agent.client.cancel(task)).await;
            match canceled {
                None => return Err(self.live.interrupted(&self.agent)),
                // The task may have ended before the cancel arrived.
                Some(Err(error)) if error.kind() != Some(attache::protocol::ErrorKind::TaskNotCancelable) => {
                    return Err(self.agent.failed(&error));
                }
                Some(Ok(_) | Err(_)) => {}
            }
        }
        let outcome = &self.live.outcome;
        self.context = outcome.context.clone().or(self.context.take());
        self.last = outcome.task.clone().or(self.last.take());
        self.asked = outcome.task.clone().filter(|_| outcome.state == Some(TaskState::InputRequired));
        let concluded = self.live.conclude(&self.agent);
        if let Some(question) = &self.live.outcome.question {
            self.tell(&question.help());
        }
        concluded
    }

    /// The answer to a request for a permission, if the agent waits for one.
    fn decision(&self, text: &str) -> Result<Option<Part>, Failure> {
        let Some(question) = self.live.outcome.question.as_ref().filter(|_| self.asked.is_some()) else {
            return Ok(None);
        };
        match question.answer(text) {
            permission::Typed::Text => Ok(None),
            permission::Typed::Answer(answer) => {
                let data = Part::data(&answer)
                    .map_err(|error| Failure::new(format!("the answer cannot be written: {error}")))?;
                Ok(Some(data.media_type("application/json")))
            }
            permission::Typed::Refused(help) => {
                // Nothing was sent, so the question stays.
                say(format_args!("{}", show::dim(&help)));
                Err(Failure::new("the agent waits for a decision").exit(Exit::NeedsInput))
            }
        }
    }

    fn ids(&self) {
        let shown = |id: Option<&str>| id.map_or_else(|| "none yet".to_owned(), show::line);
        say(format_args!("conversation  {}", shown(self.context.as_ref().map(ContextId::as_str))));
        say(format_args!("task          {}", shown(self.last.as_ref().map(TaskId::as_str))));
        if self.asked.is_some() {
            say(format_args!("The next line answers its question."));
        }
    }

    /// Prints a note to a terminal.
    fn tell(&self, text: &str) {
        if self.is_for_people {
            say(format_args!("{}", show::dim(text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_commands_and_two_are_one_slash() {
        for (line, read) in [
            ("  ", Line::Nothing),
            (" /new ", Line::New),
            ("/task", Line::Task),
            ("/quit", Line::Quit),
            ("/file", Line::File("")),
            ("/file  a b.txt ", Line::File("a b.txt")),
            ("/filename", Line::Unknown("/filename")),
            ("/nwe", Line::Unknown("/nwe")),
            ("//etc is a directory", Line::Say("/etc is a directory")),
            (" hello ", Line::Say("hello")),
            ("two\nlines", Line::Say("two\nlines")),
        ] {
            assert_eq!(Line::read(line), read);
        }
        for command in COMMANDS {
            assert!(!matches!(Line::read(command), Line::Unknown(_)), "{command}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_may_be_quoted_or_escaped() {
        for (typed, path) in
            [("a\\ b.txt", "a b.txt"), ("\"a b.txt\"", "a b.txt"), ("'a b.txt'", "a b.txt"), ("a", "a")]
        {
            assert_eq!(typed_path(typed), PathBuf::from(path));
        }
    }
}
