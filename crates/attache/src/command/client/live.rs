//! Follows a task: prints its output to standard output as it arrives, and its progress to standard error.

use std::hash::{DefaultHasher, Hasher};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use attache::client::{Events, Reply};
use attache::protocol::{Artifact, ContextId, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus};

use super::connect::Agent;
use super::show;
use crate::command::{Exit, Failure, printed, say};
use crate::platform::signals::interrupted;

/// How events are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As text.
    Text,
    /// Every event as JSON on a line.
    Events,
    /// Not at all: the caller prints something else.
    Nothing,
}

/// The current state of a task, or a direct response.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) task: Option<TaskId>,
    pub(crate) context: Option<ContextId>,
    /// `None` if there is no task.
    pub(crate) state: Option<TaskState>,
    /// The agent's message about the state.
    said: Option<Message>,
    /// Whether the task waits for input or authorization.
    has_asked: bool,
}

impl Outcome {
    fn note(&mut self, status: &TaskStatus) {
        self.state = Some(status.state);
        self.has_asked = false;
        self.said = status.message.as_deref().cloned();
    }
}

/// How much of an artifact has been printed.
struct DisplayValue {
    id: String,
    length: usize,
    hasher: DefaultHasher,
}

impl DisplayValue {
    /// Whether a text begins with the printed text.
    fn begins(&self, text: &str) -> bool {
        let Some(begin) = text.as_bytes().get(..self.length) else { return false };
        let mut hasher = DefaultHasher::new();
        hasher.write(begin);
        text.is_char_boundary(self.length) && hasher.finish() == self.hasher.finish()
    }

    fn add(&mut self, text: &str) {
        self.length += text.len();
        self.hasher.write(text.as_bytes());
    }
}

/// Prints the events of a task.
pub(crate) struct Live {
    form: Form,
    pub(crate) outcome: Outcome,
    shown: Vec<DisplayValue>,
    /// The artifact that was printed last.
    current: Option<String>,
    is_line_fresh: bool,
    /// Whether standard output is still open.
    is_read: bool,
    spinner: Spinner,
}

/// Why following ended.
pub(crate) enum Followed {
    /// There are no more events.
    Ended,
    /// Ctrl-C was pressed.
    Interrupted,
}

impl Live {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            outcome: Outcome::default(),
            shown: Vec::new(),
            current: None,
            is_line_fresh: true,
            is_read: true,
            spinner: Spinner::new(form),
        }
    }

    /// Prints events until there are no more, standard output is closed, or Ctrl-C is pressed.
    pub(crate) async fn follow(&mut self, agent: &Agent, events: &mut Events) -> Result<Followed, Failure> {
        // The message answers the earlier question, so it no longer counts.
        self.outcome.has_asked = false;
        // Some agents leave the stream open when they ask. Without this, user and agent would wait for each other.
        self.follow_while(agent, events, |outcome| !outcome.has_asked).await
    }

    /// Follows a subscription. It stops when the task waits for input, since a subscription stays open then.
    pub(crate) async fn follow_until_settled(
        &mut self,
        agent: &Agent,
        events: &mut Events,
    ) -> Result<Followed, Failure> {
        self.follow_while(agent, events, |outcome| outcome.state.is_none_or(|state| !state.is_settled()))
            .await
    }

    async fn follow_while(
        &mut self,
        agent: &Agent,
        events: &mut Events,
        goes_on: impl Fn(&Outcome) -> bool,
    ) -> Result<Followed, Failure> {
        while self.is_read && goes_on(&self.outcome) {
            let next = self.watch(events.next()).await;
            match next {
                Some(Some(Ok(event))) => self.note(&event)?,
                Some(Some(Err(error))) => {
                    self.end_line()?;
                    return Err(self.lost(agent, agent.failed(&error)));
                }
                Some(None) => break,
                None => {
                    self.end_line()?;
                    return Ok(Followed::Interrupted);
                }
            }
        }
        self.end_line()?;
        self.settle(agent).await
    }

    /// Waits for the end of a task by polling, for agents without streams.
    pub(crate) async fn settle(&mut self, agent: &Agent) -> Result<Followed, Failure> {
        let (Some(state), Some(task)) = (self.outcome.state, self.outcome.task.clone()) else {
            return Ok(Followed::Ended);
        };
        if state.is_settled() || !self.is_read {
            return Ok(Followed::Ended);
        }
        match self.watch(agent.client.wait(task)).await {
            None => Ok(Followed::Interrupted),
            Some(Err(error)) => Err(self.lost(agent, agent.failed(&error))),
            Some(Ok(task)) => {
                self.note(&StreamResponse::Task(task))?;
                self.end_line()?;
                Ok(Followed::Ended)
            }
        }
    }

    /// Waits for a future while the spinner turns. Returns `None` if Ctrl-C is pressed.
    pub(crate) async fn watch<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = std::pin::pin!(what);
        let mut interrupted = std::pin::pin!(interrupted());
        let turns = self.is_line_fresh && self.spinner.is_on;
        loop {
            tokio::select! {
                result = &mut what => {
                    self.spinner.clear();
                    return Some(result);
                }
                () = &mut interrupted => {
                    self.spinner.clear();
                    return None;
                }
                () = tokio::time::sleep(TURN), if turns => self.spinner.turn(),
            }
        }
    }

    /// Prints a complete response.
    pub(crate) fn reply(&mut self, reply: Reply) -> Result<(), Failure> {
        self.note(&match reply {
            Reply::Task(task) => StreamResponse::Task(task),
            Reply::Message(message) => StreamResponse::Message(message),
        })?;
        self.end_line()
    }

    /// Prints an event.
    pub(crate) fn note(&mut self, event: &StreamResponse) -> Result<(), Failure> {
        if self.form == Form::Events {
            let line = show::json(event)?;
            self.write(&line)?;
            self.end_line()?;
        }
        match event {
            StreamResponse::Task(task) => self.task(task),
            StreamResponse::Message(message) => {
                self.outcome.context = message.context_id.clone().or(self.outcome.context.take());
                self.text(&show::message(message))?;
                self.end_text()
            }
            StreamResponse::StatusUpdate(update) => {
                self.about(&update.task_id, &update.context_id);
                self.outcome.note(&update.status);
                self.outcome.has_asked = asks(update.status.state);
                if let (false, Some(message)) = (update.status.state.is_settled(), &update.status.message) {
                    self.remark(&show::lines(message))?;
                }
                Ok(())
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.about(&update.task_id, &update.context_id);
                self.piece(&update.artifact, update.append)
            }
        }
    }

    fn about(&mut self, task: &TaskId, context: &ContextId) {
        self.outcome.task = Some(task.clone());
        if !context.is_empty() {
            self.outcome.context = Some(context.clone());
        }
    }

    fn task(&mut self, task: &Task) -> Result<(), Failure> {
        // A known task repeats the question that the message answers, so the question is read before the state is updated.
        let is_known = self.outcome.task.as_ref() == Some(&task.id);
        self.about(&task.id, &task.context_id.clone().unwrap_or_default());
        self.outcome.note(&task.status);
        self.outcome.has_asked = !is_known && asks(task.status.state);
        for artifact in &task.artifacts {
            let text = show::artifact(artifact);
            let shown = self.shown.iter().find(|shown| shown.id == artifact.artifact_id);
            match shown.filter(|shown| shown.begins(&text)).map(|shown| shown.length) {
                Some(length) if length == text.len() => {}
                Some(length) => self.more(&artifact.artifact_id, &text[length..])?,
                None => self.piece(artifact, false)?,
            }
        }
        Ok(())
    }

    fn piece(&mut self, artifact: &Artifact, append: bool) -> Result<(), Failure> {
        if !append {
            self.shown.retain(|shown| shown.id != artifact.artifact_id);
            self.current = None;
        }
        self.more(&artifact.artifact_id, &show::artifact(artifact))
    }

    /// Prints the next piece of an artifact.
    fn more(&mut self, id: &str, text: &str) -> Result<(), Failure> {
        if self.current.as_deref() != Some(id) {
            self.end_text()?;
            self.current = Some(id.to_owned());
        }
        self.text(text)?;
        match self.shown.iter_mut().find(|shown| shown.id == id) {
            Some(shown) => shown.add(text),
            None => {
                let mut shown = DisplayValue { id: id.to_owned(), length: 0, hasher: DefaultHasher::new() };
                shown.add(text);
                self.shown.push(shown);
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.form != Form::Text {
            return Ok(());
        }
        for (number, block) in text.split(show::FRESH).enumerate() {
            if number > 0 {
                self.end_line()?;
            }
            self.write(block)?;
        }
        Ok(())
    }

    fn end_text(&mut self) -> Result<(), Failure> {
        if self.form == Form::Text { self.end_line() } else { Ok(()) }
    }

    pub(crate) fn end_line(&mut self) -> Result<(), Failure> {
        if self.is_line_fresh { Ok(()) } else { self.write("\n") }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() || !self.is_read {
            return Ok(());
        }
        self.is_line_fresh = text.ends_with('\n');
        let mut out = anstream::stdout().lock();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.is_read = result.is_ok();
        printed(result)
    }

    /// Prints a progress message of the agent to a terminal.
    fn remark(&mut self, text: &str) -> Result<(), Failure> {
        if self.form == Form::Text && std::io::stderr().is_terminal() && !text.is_empty() {
            self.end_line()?;
            say(format_args!("{}", show::dim(text)));
        }
        Ok(())
    }

    /// Prints how the task ended, and returns the result of the command.
    pub(crate) fn conclude(&mut self, agent: &Agent) -> Result<(), Failure> {
        let said = self.outcome.said.as_ref().map(show::lines).filter(|said| !said.is_empty());
        let (Some(state), Some(task)) = (self.outcome.state, self.outcome.task.clone()) else {
            return Ok(());
        };
        let because = |what: &str| match &said {
            Some(said) => Failure::new(format!("{what}: {said}")),
            None => Failure::new(what),
        };
        match state {
            TaskState::Completed => {
                // Some agents put their output into the last status message only.
                match said {
                    Some(said) if self.shown.is_empty() => self.text(&said)?,
                    Some(said) => self.remark(&said)?,
                    None => {}
                }
                self.end_line()
            }
            TaskState::Failed => Err(because("the task failed")),
            TaskState::Rejected => Err(because("the agent rejected the task")),
            TaskState::Canceled => Err(because("the task was canceled")),
            TaskState::InputRequired => {
                self.text(&said.unwrap_or_default())?;
                self.end_line()?;
                let hint = format!(
                    "answer with `attache send {} --task {} \"…\"`",
                    agent.word(),
                    show::word(task.as_str())
                );
                Err(Failure::new("the task needs an answer").exit(Exit::NeedsInput).hint(hint))
            }
            TaskState::AuthRequired => Err(because("the task needs somebody to be authorized")
                .exit(Exit::Unauthorized)
                .hint(format!("do what it says, then `{}`", agent.about("task wait", &task)))),
            TaskState::Working | TaskState::Submitted | TaskState::Unspecified => {
                if self.is_read {
                    say(format_args!("the task goes on: `{}`", agent.about("task watch", &task)));
                }
                Ok(())
            }
        }
    }

    /// The failure after Ctrl-C. The task continues.
    pub(crate) fn interrupted(&self, agent: &Agent) -> Failure {
        let failure = Failure::new("interrupted").exit(Exit::Interrupted);
        match &self.outcome.task {
            Some(task) => failure.hint(format!(
                "the task goes on: `{}` follows it, `{}` ends it",
                agent.about("task watch", task),
                agent.about("task cancel", task)
            )),
            None => failure,
        }
    }

    /// Adds a hint that the task may continue.
    fn lost(&self, agent: &Agent, failure: Failure) -> Failure {
        match &self.outcome.task {
            Some(task) => {
                failure.hint(format!("the task may go on: `{}` follows it", agent.about("task watch", task)))
            }
            None => failure,
        }
    }
}

/// Whether a task in this state waits for input or authorization.
const fn asks(state: TaskState) -> bool {
    match state {
        TaskState::InputRequired | TaskState::AuthRequired => true,
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::Rejected => false,
    }
}

/// The time between two frames of the spinner.
const TURN: Duration = Duration::from_millis(120);

/// A spinner on a terminal, while the command waits.
struct Spinner {
    is_on: bool,
    turns: usize,
}

impl Spinner {
    fn new(form: Form) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_on: form == Form::Text && !dumb && std::io::stderr().is_terminal(), turns: 0 }
    }

    fn turn(&mut self) {
        const PICTURES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];
        self.turns += 1;
        let mut out = std::io::stderr().lock();
        // A closed standard error is ignored.
        let _ = write!(out, "\r{} ", PICTURES[self.turns % PICTURES.len()]).and_then(|()| out.flush());
    }

    fn clear(&mut self) {
        if self.turns > 0 {
            self.turns = 0;
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}
