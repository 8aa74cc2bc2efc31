//! `attache task list`: the tasks of an agent, once or again and again.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use attache::core::{Clock, SystemClock};
use attache::protocol::{Content, ListTasksRequest, Message, Part, Role, Task, TaskId, TaskState, Timestamp};
use clap::Args;
use serde::Serialize;

use super::connect::{Agent, AgentArgs};
use super::show::{self, line};
use crate::command::{Failure, Output, print, printed, say, terminal};
use crate::config::age;
use crate::platform::signals::interrupted;

/// The arguments of `attache task list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those of this conversation
    #[arg(long, value_name = "ID")]
    context: Option<String>,

    /// Only those in this state, such as `working`
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<TaskState>,

    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,

    /// Show the list again whenever it changes, until Ctrl-C is pressed; it is looked at this often
    ///
    /// On a terminal the list is shown in place. Elsewhere each task that is new or has changed is a line.
    #[arg(long, value_name = "TIME", value_parser = age, num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    watch: Option<Duration>,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

fn state(text: &str) -> Result<TaskState, String> {
    let named = TaskState::ALL.iter().copied().filter(|state| *state != TaskState::Unspecified);
    named
        .clone()
        .find(|state| show::state(*state) == text)
        .ok_or_else(|| format!("expected one of: {}", named.map(show::state).collect::<Vec<_>>().join(", ")))
}

/// How many messages of a task are requested, to find out what was asked. Tasks with longer histories show a later message.
const HISTORY: i32 = 20;

/// The largest page that a server must give.
const LARGEST_PAGE: usize = 100;

/// A list of tasks.
#[derive(Serialize)]
struct Listed {
    tasks: Vec<Task>,
    /// Whether the agent has more than the limit.
    #[serde(rename = "hasMore")]
    has_more: bool,
}

impl List {
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        let query = ListTasksRequest {
            context_id: self.context.take().map(Into::into),
            status: self.state.unwrap_or_default(),
            page_size: i32::try_from(self.limit.clamp(1, LARGEST_PAGE)).ok(),
            history_length: Some(if self.output.json { 0 } else { HISTORY }),
            ..ListTasksRequest::default()
        };
        let agent = self.target.connect().await?;
        let page = Page { agent, query, limit: self.limit };
        match self.watch {
            Some(every) if std::io::stdout().is_terminal() && !self.output.json => {
                page.show_in_place(every).await
            }
            Some(every) => page.print_changes(every, &self.output).await,
            None if self.output.json => print(&show::json_lines(&page.read().await?)?),
            None => page.print(&page.read().await?),
        }
    }
}

/// What is listed.
struct Page {
    agent: Agent,
    query: ListTasksRequest,
    limit: usize,
}

impl Page {
    async fn read(&self) -> Result<Listed, Failure> {
        let mut listing = self.agent.client.tasks(self.query.clone());
        let mut tasks = Vec::new();
        while let Some(task) = listing.next().await {
            let task = task.map_err(|error| self.agent.failed(&error))?;
            if tasks.len() == self.limit {
                return Ok(Listed { tasks, has_more: true });
            }
            tasks.push(task);
        }
        Ok(Listed { tasks, has_more: false })
    }

    fn print(&self, listed: &Listed) -> Result<(), Failure> {
        if listed.tasks.is_empty() {
            return print("no tasks\n");
        }
        let columns = terminal::size().map(|(columns, _)| columns);
        print(&table(&listed.tasks, SystemClock.now(), columns))?;
        if listed.has_more {
            say(format_args!("{}", self.more()));
        }
        Ok(())
    }

    fn more(&self) -> String {
        format!("there are more: `--limit {}` shows twice as many", self.limit.saturating_mul(2).max(2))
    }

    /// Shows the list, and shows it again in the same place, until Ctrl-C is pressed.
    async fn show_in_place(&self, every: Duration) -> Result<(), Failure> {
        let mut shown = 0;
        loop {
            let listed = self.read().await?;
            let (columns, lines) = terminal::size().unwrap_or((terminal::USUAL_WIDTH, 24));
            let mut text = match listed.tasks.is_empty() {
                true => "no tasks\n".to_owned(),
                false => table(&listed.tasks, SystemClock.now(), Some(columns)),
            };
            // A line that has left the screen cannot be written again. The last line is for the cursor.
            let room = lines.saturating_sub(2).max(1);
            let total = text.lines().count();
            let kept: Vec<_> = text.lines().take(room).map(str::to_owned).collect();
            text = kept.join("\n");
            let note = match total > room || listed.has_more {
                true => "there are more; Ctrl-C ends",
                false => "Ctrl-C ends",
            };
            let back = if shown > 0 { format!("\x1b[{shown}A\r") } else { String::new() };
            shown = kept.len() + 1;
            // Standard output writes at each line end. One write of the whole list does not flicker.
            let screen = format!("{back}\x1b[J{text}\n{}\n", show::dim(note));
            let mut out = std::io::stdout().lock();
            printed(out.write_all(screen.as_bytes()).and_then(|()| out.flush()))?;
            drop(out);
            tokio::select! {
                () = interrupted() => return Ok(()),
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    /// Prints each task that is new or has changed, until Ctrl-C is pressed.
    async fn print_changes(&self, every: Duration, output: &Output) -> Result<(), Failure> {
        let mut known: HashMap<TaskId, (TaskState, Option<Timestamp>)> = HashMap::new();
        let mut is_first = true;
        loop {
            let mut tasks = self.read().await?.tasks;
            // The latest comes first in a list, and last in a log.
            tasks.reverse();
            tasks.retain(|task| {
                let now = (task.status.state, task.status.timestamp);
                known.insert(task.id.clone(), now) != Some(now)
            });
            let now = SystemClock.now();
            for task in &tasks {
                match output.json {
                    true => print(&format!("{}\n", show::json(task)?))?,
                    false => print(&line_of(task, now, ASKED, is_first))?,
                }
                is_first = false;
            }
            tokio::select! {
                () = interrupted() => return Ok(()),
                () = tokio::time::sleep(every) => {}
            }
        }
    }
}

/// The widths of the columns with ids, states and ages.
const ID: usize = 36;
const STATE: usize = 14;
const AGE: usize = 5;

/// How much of what was asked is shown if there is no terminal.
const ASKED: usize = 60;

/// The least of it that is shown on the same line as the ids.
const NARROWEST: usize = 20;

/// The heading of a line with everything.
fn heading() -> String {
    format!("{:ID$}  {:STATE$}  {:AGE$}  {:ID$}  ASKED", "TASK", "STATE", "AGE", "CONTEXT")
}

/// A task on a line. What was asked has this much room.
fn line_of(task: &Task, now: Timestamp, room: usize, with_heading: bool) -> String {
    let row = [
        padded(&line(task.id.as_str()), ID),
        padded(&show::painted(task.status.state), STATE),
        padded(&age_of(task, now), AGE),
        padded(&context(task), ID),
        terminal::cut(&asked(task), room),
    ];
    let row = row.join("  ");
    match with_heading {
        true => format!("{}\n{}\n", heading(), row.trim_end()),
        false => format!("{}\n", row.trim_end()),
    }
}

/// A text with spaces after it, so that it fills these columns. Colour codes have no width.
fn padded(text: &str, columns: usize) -> String {
    let width = terminal::width(&anstream::adapter::strip_str(text).to_string());
    format!("{text}{}", " ".repeat(columns.saturating_sub(width)))
}

/// Tasks with a heading. On a narrow terminal a task has two lines, so that its ids can be copied.
fn table(tasks: &[Task], now: Timestamp, columns: Option<usize>) -> String {
    let before = heading().len() - "ASKED".len();
    let room = columns.map_or(ASKED, |columns| columns.saturating_sub(before));
    if room >= NARROWEST {
        return tasks.iter().enumerate().map(|(at, task)| line_of(task, now, room, at == 0)).collect();
    }
    let columns = columns.unwrap_or(terminal::USUAL_WIDTH);
    let first = |task: &str, state: &str, age: &str| {
        format!("{}  {}  {age}", padded(task, ID + 2), padded(state, STATE)).trim_end().to_owned()
    };
    let second = |context: &str, asked: &str| {
        let room = columns.saturating_sub(ID + 4);
        format!("  {}  {}", padded(context, ID), terminal::cut(asked, room)).trim_end().to_owned()
    };
    let mut out = format!("{}\n{}\n", first("TASK", "STATE", "AGE"), second("CONTEXT", "ASKED"));
    for task in tasks {
        let state = show::painted(task.status.state);
        out.push_str(&format!("{}\n", first(&line(task.id.as_str()), &state, &age_of(task, now))));
        out.push_str(&format!("{}\n", show::dim(&second(&context(task), &asked(task)))));
    }
    out
}

fn context(task: &Task) -> String {
    task.context_id.as_ref().map(|context| line(context.as_str())).unwrap_or_default()
}

/// How long ago the status changed.
fn age_of(task: &Task, now: Timestamp) -> String {
    let Some(at) = task.status.timestamp else { return String::new() };
    let seconds = now.seconds().saturating_sub(at.seconds()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// What was asked, on one line: the first message of the user.
fn asked(task: &Task) -> String {
    let message = task.history.iter().find(|message| message.role == Role::User);
    message.map(in_short).unwrap_or_default()
}

fn in_short(message: &Message) -> String {
    message.parts.iter().map(part_in_short).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn part_in_short(part: &Part) -> String {
    match &part.content {
        Content::Text(text) => line(text),
        Content::Data(data) => {
            let call = serde_json::from_str::<serde_json::Value>(data.as_str()).ok();
            let called = call
                .as_ref()
                .and_then(|call| Some((call.get("function_id")?.as_str()?, call.get("payload")?)));
            match called {
                Some((function, payload)) => line(&format!("{function} {payload}")),
                None => line(data.as_str()),
            }
        }
        Content::Raw(_) | Content::Url(_) => {
            format!("[{}]", line(part.filename.as_deref().unwrap_or("file")))
        }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use attache::protocol::TaskStatus;
    use serde_json::json;

    use super::*;

    fn tasks() -> Vec<Task> {
        let task = |number: u32, state: TaskState, at: &str, part: Part| Task {
            id: format!("01a1e387-04e4-7628-a86b-00000000000{number}").into(),
            context_id: Some("01a1e387-04e4-7628-a86b-81cc87fd6c11".into()),
            status: TaskStatus { state, timestamp: at.parse().ok(), ..TaskStatus::default() },
            history: vec![Message { role: Role::User, parts: vec![part], ..Message::default() }],
            ..Task::default()
        };
        let call = json!({"function_id": "pricing::quote", "payload": {"sku": "A-1"}});
        vec![
            task(
                1,
                TaskState::Working,
                "2026-11-16T08:43:59Z",
                Part::text("Plan a dinner for four people,\nwith leeks\u{1b}[2J and without meat, please"),
            ),
            task(2, TaskState::InputRequired, "2026-11-16T07:30:00Z", Part::data(&call).unwrap()),
            task(3, TaskState::Completed, "2026-11-01T07:30:00Z", Part::raw(vec![1]).filename("leek.png")),
        ]
    }

    #[test]
    fn a_list_fits_the_terminal_and_keeps_its_ids_whole() {
        let now = "2026-11-16T08:44:20Z".parse().unwrap();
        for (name, columns) in [("list_80", Some(80)), ("list_140", Some(140)), ("list_in_a_pipe", None)] {
            let table = strip_str(&table(&tasks(), now, columns)).to_string();
            assert!(
                table.lines().all(|line| terminal::width(line) <= columns.unwrap_or(usize::MAX)),
                "{table}"
            );
            insta::assert_snapshot!(name, table);
        }
    }
}
