//! `attache task`: the tasks of an agent.

use std::time::Duration;

use attache::protocol::{ErrorKind, GetTaskRequest, StreamResponse, Task as Shape, TaskId, TaskState};
use clap::{Args, Subcommand};
use tokio::time::Instant;

use super::connect::{Agent, AgentArgs};
use super::download::Download;
use super::list::List;
use super::live::{Followed, Form, Live};
use super::show::{self, line};
use crate::command::{Failure, Output, print};
use crate::config::age;

/// The subcommands of `attache task`.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Show a task as it is now
    Get {
        /// Show the last messages of its history too, this many at most
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        history: u16,

        #[command(flatten)]
        one: One,
    },
    /// List tasks, last changed first
    List(List),
    /// Follow a task until it has ended or needs something, and print what it produces
    ///
    /// With `--json` every event is a line.
    Watch {
        #[command(flatten)]
        one: One,
    },
    /// Wait until a task has ended or needs something, and print what it has produced
    Wait {
        /// How long to wait at most, such as `90s` or `15m`
        #[arg(long, value_name = "TIME", value_parser = age)]
        timeout: Option<Duration>,

        #[command(flatten)]
        one: One,
    },
    /// Write the files that a task has produced
    ///
    /// A download that was interrupted goes on when the command runs again. The hash is checked, if the agent says what it is.
    Download(Download),
    /// Ask the agent to end a task
    Cancel {
        #[command(flatten)]
        one: One,
    },
}

/// The arguments of subcommands about one task.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The task
    #[arg(value_name = "TASK", index = 2)]
    task: String,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

impl Task {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Get { one: One { task, output, target }, history } => {
                let agent = target.connect().await?;
                let query = GetTaskRequest {
                    id: task.into(),
                    history_length: Some(history.into()),
                    ..GetTaskRequest::default()
                };
                let mut task = agent.client.get_with(query).await.map_err(|error| agent.failed(&error))?;
                let status = &task.status;
                let asks_nothing = status.state == TaskState::InputRequired && status.message.is_none();
                let has_answered = status.state.is_terminal() || asks_nothing;
                if !output.json && has_answered && task.artifacts.is_empty() && task.history.is_empty() {
                    // Some agents answer in messages that are only in the history.
                    let whole =
                        agent.client.get(task.id.clone()).await.map_err(|error| agent.failed(&error))?;
                    task.history = whole.last_answers().cloned().collect();
                }
                show(&task, &output)
            }
            Self::List(list) => list.run().await,
            Self::Watch { one: One { task, output, target } } => {
                watch(&target.connect().await?, task.into(), &output).await
            }
            Self::Wait { one: One { task, output, target }, timeout } => {
                wait(&target.connect().await?, task.into(), &output, timeout).await
            }
            Self::Download(download) => download.run().await,
            Self::Cancel { one: One { task, output, target } } => {
                let agent = target.connect().await?;
                let mut task = agent.client.cancel(task).await.map_err(|error| agent.failed(&error))?;
                if !output.json {
                    task.history.clear();
                }
                show(&task, &output)
            }
        }
    }
}

/// Shows a task as it is.
fn show(task: &Shape, output: &Output) -> Result<(), Failure> {
    if output.json {
        return print(&show::json_lines(task)?);
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![row("task", line(task.id.as_str())), row("state", show::painted(task.status.state))];
    if let Some(context) = &task.context_id {
        rows.push(row("context", line(context.as_str())));
    }
    if let Some(at) = task.status.timestamp {
        rows.push(row("since", at.to_string()));
    }
    if let Some(message) = &task.status.message {
        rows.push(row("says", line(&show::lines(message))));
    }
    let mut text = show::table(&rows);
    for message in &task.history {
        let who = match message.role {
            attache::protocol::Role::User => "you",
            attache::protocol::Role::Agent => "agent",
            attache::protocol::Role::Unspecified => "somebody",
        };
        text.push_str(&format!("\n{}\n{}\n", show::bold(who), show::lines(message)));
    }
    for artifact in &task.artifacts {
        let name = artifact.name.as_deref().unwrap_or(&artifact.artifact_id);
        let shown = show::artifact(artifact).replace(show::VERBATIM, "").replace(show::FRESH, "\n");
        text.push_str(&format!("\n{}\n{}\n", show::bold(&line(name)), shown.trim_matches('\n')));
    }
    print(&text)
}

async fn watch(agent: &Agent, id: TaskId, output: &Output) -> Result<(), Failure> {
    let mut live = Live::new(if output.json { Form::Events } else { Form::Text });
    let task = agent.client.get(id.clone()).await.map_err(|error| agent.failed(&error))?;
    // A task that has ended cannot be followed. A task that waits for input sends no events.
    if task.status.state.is_settled() {
        live.note(&StreamResponse::Task(task))?;
        live.end_line()?;
        return live.conclude(agent);
    }
    let followed = if agent.client.card().capabilities.streaming == Some(true) {
        match agent.client.subscribe(id.clone()).await {
            Ok(mut events) => live.follow_until_settled(agent, &mut events).await?,
            // The task has ended meanwhile.
            Err(error) if error.kind() == Some(ErrorKind::UnsupportedOperation) => {
                let task = agent.client.get(id).await.map_err(|error| agent.failed(&error))?;
                live.note(&StreamResponse::Task(task))?;
                live.end_line()?;
                live.settle(agent).await?
            }
            Err(error) => return Err(agent.failed(&error)),
        }
    } else {
        live.note(&StreamResponse::Task(task))?;
        live.settle(agent).await?
    };
    match followed {
        Followed::Ended => live.conclude(agent),
        Followed::Interrupted => Err(live.interrupted(agent)),
    }
}

async fn wait(agent: &Agent, id: TaskId, output: &Output, timeout: Option<Duration>) -> Result<(), Failure> {
    let deadline = timeout.map(|limit| Instant::now() + limit);
    let mut live = Live::new(if output.json { Form::Nothing } else { Form::Text }).until(deadline);
    live.outcome.task = Some(id.clone());
    let waited = live.watch(agent.client.wait(id)).await;
    let Some(task) = waited else { return Err(live.interrupted(agent)) };
    let task = task.map_err(|error| agent.failed(&error))?;
    if output.json {
        print(&show::json_lines(&task)?)?;
    }
    live.note(&StreamResponse::Task(task))?;
    live.end_line()?;
    live.conclude(agent)
}
