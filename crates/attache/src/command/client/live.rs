//! Follows a task: prints its output to standard output as it arrives, and its progress to standard error.

use std::hash::{DefaultHasher, Hasher};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

use attache::client::{Events, Reply};
use attache::protocol::{
    Artifact, ContextId, JsonObject, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus,
};

use super::connect::Agent;
use super::markdown::Markdown;
use super::permission::{Question, is_acknowledgement};
use super::show;
use crate::command::{Exit, Failure, printed, say, terminal};
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
    /// The agent's messages while the task ran: those after the last message of the user.
    answers: Vec<Message>,
    /// Whether the task waits for input or authorization.
    has_asked: bool,
    /// The permission that the agent asks for.
    pub(crate) question: Option<Question>,
}

impl Outcome {
    fn note(&mut self, status: &TaskStatus, metadata: Option<&JsonObject>) {
        self.state = Some(status.state);
        self.has_asked = false;
        self.said = status.message.as_deref().cloned();
        let asks = status.state == TaskState::InputRequired;
        self.question = asks.then(|| Question::read(self.said.as_ref(), metadata)).flatten();
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
    /// Whether anything of an artifact was printed since the last message of the user.
    has_output: bool,
    is_line_fresh: bool,
    /// Renders text, on a terminal.
    markdown: Option<Markdown>,
    /// When to stop waiting.
    deadline: Option<Instant>,
    /// Whether the deadline has passed.
    is_late: bool,
    /// Whether standard output is still open.
    is_read: bool,
    spinner: Spinner,
    /// How many unreadable events have been reported.
    unreadable: usize,
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
            has_output: false,
            is_line_fresh: true,
            markdown: None,
            deadline: None,
            is_late: false,
            is_read: true,
            spinner: Spinner::new(form),
            unreadable: 0,
        }
    }

    /// Wraps text and renders Markdown, if standard output is a terminal.
    pub(crate) fn rendered(mut self) -> Self {
        self.markdown = terminal::size().map(|(columns, _)| Markdown::new(columns.min(WIDEST)));
        self
    }

    /// Stops waiting at this time.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Prints events until there are no more, standard output is closed, or Ctrl-C is pressed.
    pub(crate) async fn follow(&mut self, agent: &Agent, events: &mut Events) -> Result<Followed, Failure> {
        // The message answers the earlier question, so it no longer counts.
        self.outcome.has_asked = false;
        // So do the answers to earlier messages.
        self.outcome.answers.clear();
        self.has_output = false;
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
            self.report_unreadable(events)?;
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
        let followed = self.settle(agent).await?;
        if let (Followed::Ended, Some(task)) = (&followed, self.outcome.task.clone())
            && self.unreadable > 0
            && self.is_read
        {
            // The task has what the unreadable events said.
            if let Some(Ok(task)) = self.watch(agent.client.get(task)).await {
                self.note(&StreamResponse::Task(task))?;
                self.end_line()?;
            }
        }
        Ok(followed)
    }

    /// Warns about events that could not be read.
    fn report_unreadable(&mut self, events: &Events) -> Result<(), Failure> {
        for event in events.unreadable().iter().skip(self.unreadable) {
            self.end_line()?;
            say(format_args!(
                "\x1b[1;33mwarning:\x1b[0m an event of the agent is left out: {}",
                show::line(&event.why)
            ));
        }
        self.unreadable = events.unreadable().len();
        Ok(())
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

    /// Waits for a future while the spinner turns. Returns `None` if Ctrl-C is pressed or the deadline passes.
    /// [`Self::interrupted`] is the failure for both.
    pub(crate) async fn watch<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = std::pin::pin!(what);
        let mut interrupted = std::pin::pin!(interrupted());
        let turns = self.is_line_fresh && self.spinner.is_on;
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut late = std::pin::pin!(late);
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
                () = &mut late => {
                    self.spinner.clear();
                    self.is_late = true;
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
                self.restart();
                self.text(&show::message(message))?;
                self.end_text()
            }
            StreamResponse::StatusUpdate(update) => {
                self.about(&update.task_id, &update.context_id);
                self.outcome.note(&update.status, update.metadata.as_ref());
                self.outcome.has_asked = asks(update.status.state);
                if let (false, Some(message)) = (update.status.state.is_settled(), &update.status.message)
                    && !is_acknowledgement(message)
                {
                    self.outcome.answers.push((**message).clone());
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
        self.outcome.note(&task.status, None);
        self.outcome.has_asked = !is_known && asks(task.status.state);
        if !task.history.is_empty() {
            self.outcome.answers =
                task.last_answers().filter(|it| !is_acknowledgement(it)).cloned().collect();
        }
        task.artifacts.iter().try_for_each(|artifact| self.whole(artifact))
    }

    fn piece(&mut self, artifact: &Artifact, append: bool) -> Result<(), Failure> {
        match append {
            true => self.more(&artifact.artifact_id, &show::artifact(artifact)),
            false => self.whole(artifact),
        }
    }

    /// Prints an artifact as a whole. Some agents send the whole artifact after its chunks: what is on the screen is not repeated.
    fn whole(&mut self, artifact: &Artifact) -> Result<(), Failure> {
        let (id, text) = (&artifact.artifact_id, show::artifact(artifact));
        let shown = self.shown.iter().find(|shown| shown.id == *id);
        match shown.filter(|shown| shown.begins(&text)).map(|shown| shown.length) {
            Some(length) if length == text.len() => Ok(()),
            Some(length) => self.more(id, &text[length..]),
            None => {
                self.shown.retain(|shown| shown.id != *id);
                self.current = None;
                self.more(id, &text)
            }
        }
    }

    /// Prints the next piece of an artifact.
    fn more(&mut self, id: &str, text: &str) -> Result<(), Failure> {
        if self.current.as_deref() != Some(id) {
            self.end_text()?;
            self.restart();
            self.current = Some(id.to_owned());
        }
        self.text(text)?;
        self.has_output = true;
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
        let (mut rest, mut is_verbatim) = (text, false);
        loop {
            let at = rest.find([show::FRESH, show::VERBATIM]).unwrap_or(rest.len());
            match &mut self.markdown {
                Some(markdown) if !is_verbatim => {
                    let rendered = markdown.push(&rest[..at]);
                    self.write(&rendered)?;
                }
                Some(_) | None => self.write(&rest[..at])?,
            }
            match rest[at..].chars().next() {
                None => return Ok(()),
                Some(show::FRESH) => self.end_line()?,
                Some(_) => is_verbatim = !is_verbatim,
            }
            // Both marks are one byte long.
            rest = &rest[at + 1..];
        }
    }

    /// Begins a text of its own.
    fn restart(&mut self) {
        if let Some(markdown) = &mut self.markdown {
            markdown.restart();
        }
    }

    fn end_text(&mut self) -> Result<(), Failure> {
        if self.form == Form::Text { self.end_line() } else { Ok(()) }
    }

    pub(crate) fn end_line(&mut self) -> Result<(), Failure> {
        if let Some(markdown) = &mut self.markdown {
            let rest = markdown.finish();
            self.write(&rest)?;
        }
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
        // Some agents answer in messages that the final status does not repeat.
        let said = said.or_else(|| {
            let is_answer = self.outcome.state.is_some_and(|state| match state.is_terminal() {
                // Beside an artifact, they are about the work.
                true => !self.has_output,
                // Nothing is asked, so they are why the agent waits.
                false => state == TaskState::InputRequired,
            });
            let answers: Vec<_> = self.outcome.answers.iter().map(show::lines).collect();
            (is_answer && !answers.is_empty()).then(|| answers.join("\n"))
        });
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
                    Some(said) if !self.has_output => self.text(&said)?,
                    Some(said) => self.remark(&said)?,
                    None => {}
                }
                self.end_line()
            }
            TaskState::Failed => Err(because("the task failed")),
            TaskState::Rejected => Err(because("the agent rejected the task")),
            TaskState::Canceled => Err(because("the task was canceled")),
            TaskState::InputRequired => {
                let question = self.outcome.question.clone();
                let verbatim =
                    |question: &Question| format!("{}{}{}", show::VERBATIM, question.shown(), show::VERBATIM);
                self.text(&question.as_ref().map(verbatim).or(said).unwrap_or_default())?;
                self.end_line()?;
                let hint = match &question {
                    Some(question) => question.hint(&agent.word(), &task),
                    None => format!(
                        "answer with `attache send {} --task {} \"…\"`",
                        agent.word(),
                        show::word(task.as_str())
                    ),
                };
                Err(Failure::new("the task needs an answer").exit(Exit::NeedsInput).hint(hint))
            }
            TaskState::AuthRequired => Err(because("the task needs authorization")
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

    /// The failure after Ctrl-C or after the deadline. The task continues.
    pub(crate) fn interrupted(&self, agent: &Agent) -> Failure {
        if self.is_late {
            return self.late(agent);
        }
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

    fn late(&self, agent: &Agent) -> Failure {
        match &self.outcome.task {
            Some(task) => Failure::new("the task has not ended yet")
                .exit(Exit::TimedOut)
                .hint(format!("it goes on: `{}`", agent.about("task wait", task))),
            None => Failure::new("the agent has not answered in time").exit(Exit::TimedOut).hint(format!(
                "a task may have begun: `attache task list {}` shows those that are yours",
                agent.word()
            )),
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

/// The widest lines of rendered text. Longer ones are hard to read.
const WIDEST: usize = 100;

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
