//! `attache chat`: a conversation.
//!
//! Every line is a message in the same conversation. If the task asks something, the next line is the answer.

use std::io::{BufRead, IsTerminal, Write};

use attache::client::Outgoing;
use attache::protocol::{ContextId, TaskId, TaskState};
use clap::Args;
use tokio::sync::mpsc;

use super::connect::{Agent, AgentArgs};
use super::live::{Followed, Form, Live};
use super::show;
use crate::command::{Exit, Failure, say};
use crate::platform::signals::interrupted;

/// The arguments of `attache chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
While you talk:
  /new     begin a new conversation
  /task    show the ids of the conversation and of the last task
  /quit    leave, as Ctrl-D does
  Ctrl-C   cancel the task that is running; a second time, leave

A line that begins with `//` is sent with one slash. Lines can also come from a file or a pipe; the exit code is then that of the last one.")]
pub(crate) struct Chat {
    /// Go on with this conversation
    #[arg(long, value_name = "ID")]
    context: Option<String>,

    #[command(flatten)]
    target: AgentArgs,
}

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    New,
    Task,
    Quit,
    Help,
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
            line if line.starts_with("//") => Self::Say(&line[1..]),
            line if line.starts_with('/') => Self::Unknown(line),
            line => Self::Say(line),
        }
    }
}

impl Chat {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.target.connect().await?;
        let is_for_people = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let conversation = Conversation {
            live: Live::new(Form::Text),
            context: self.context.map(ContextId::from),
            asked: None,
            last: None,
            agent,
            is_for_people,
        };
        conversation.run().await
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
    is_for_people: bool,
}

impl Conversation {
    async fn run(mut self) -> Result<(), Failure> {
        let card = self.agent.client.card();
        self.tell(&format!("talking with {}; Ctrl-D leaves, /help helps", show::line(&card.name)));
        let mut lines = lines();
        let mut last = Ok(());
        loop {
            self.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                () = interrupted(), if self.is_for_people => {
                    self.tell("\nCtrl-D or /quit leaves");
                    continue;
                }
            };
            let Some(line) = line else {
                // The prompt is still on the line.
                self.tell("");
                return if self.is_for_people { Ok(()) } else { last };
            };
            let line =
                line.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
            match Line::read(&line) {
                Line::Nothing => {}
                Line::Quit => return if self.is_for_people { Ok(()) } else { last },
                Line::New => {
                    (self.context, self.asked, self.last) = (None, None, None);
                    self.tell("a new conversation begins");
                }
                Line::Task => self.ids(),
                Line::Help => {
                    say(format_args!("/new begins a new conversation, /task shows ids, /quit leaves"))
                }
                Line::Unknown(command) => {
                    let text = format!("there is no `{command}`");
                    let failure = Failure::usage(text)
                        .hint("there are /new, /task and /quit; `//` begins a line with a slash");
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
        let mut outgoing = Outgoing::new(text);
        if let Some(context) = &self.context {
            outgoing = outgoing.context(context.clone());
        }
        match self.asked.take() {
            // Earlier output of the task has been printed.
            Some(task) => outgoing = outgoing.task(task),
            None => self.live = Live::new(Form::Text),
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
        self.live.conclude(&self.agent)
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

    fn prompt(&self) {
        if self.is_for_people {
            let mut out = anstream::stderr().lock();
            let sign = if self.asked.is_some() { "answer> " } else { "> " };
            // A closed standard error is ignored.
            let _ = write!(out, "{}", show::bold(sign)).and_then(|()| out.flush());
        }
    }
}

/// The lines of standard input. A thread reads them; it ends with the process.
fn lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
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
            ("/nwe", Line::Unknown("/nwe")),
            ("//etc is a directory", Line::Say("/etc is a directory")),
            (" hello ", Line::Say("hello")),
        ] {
            assert_eq!(Line::read(line), read);
        }
    }
}
