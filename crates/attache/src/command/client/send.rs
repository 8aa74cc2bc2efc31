//! `attache send`: sends one message and prints the result.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::client::{ClientError, Outgoing, Reply};
use attache::protocol::{ErrorKind, Json, Message, Part, Role, TaskId, TaskState};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::connect::{Agent, AgentArgs};
use super::live::{Followed, Form, Live};
use super::permission::Question;
use super::show;
use crate::command::{Exit, Failure, Output, print, say};
use crate::config::age;

/// The arguments of `attache send`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  attache send http://localhost:3111 \"Hello\"
  echo \"Hello\" | attache send recipes
  attache send recipes \"What is this?\" --file leek.png
  attache send shop --skill pricing::quote '{\"sku\": \"A-1\", \"quantity\": 3}'
  attache send recipes --task 0199… \"Four people\"      answers a question")]
pub(crate) struct Send {
    /// What to say; `-` is what comes from standard input, which is also read if nothing else is to be sent
    #[arg(value_name = "TEXT", index = 2)]
    text: Option<String>,

    /// Send data: JSON, or the name of a file of JSON after `@`; may be repeated
    #[arg(long, value_name = "JSON", value_parser = data)]
    data: Vec<Data>,

    /// Send a file; may be repeated
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,

    /// Call this skill of an agent whose skills are functions, with the text or the data as its payload
    ///
    /// A text that is a JSON object or list is the payload itself. Another text is the payload `{"input": TEXT}`.
    #[arg(long, value_name = "ID", visible_alias = "function", conflicts_with = "file")]
    skill: Option<String>,

    /// Go on with a conversation
    #[arg(long, value_name = "ID")]
    context: Option<String>,

    /// Go on with a task that has not ended, such as one that asked something
    #[arg(long, value_name = "ID")]
    task: Option<String>,

    /// Do not wait for the task to end; its id is printed
    #[arg(long, conflicts_with = "stream")]
    no_wait: bool,

    /// How long to wait at most, such as `90s` or `15m`; the task goes on after that, and the exit code is 6
    #[arg(long, value_name = "TIME", value_parser = age)]
    timeout: Option<Duration>,

    /// Print what the task produces as it comes, which is the rule on a terminal
    #[arg(long)]
    stream: bool,

    /// Print what the task has produced when it has ended, which is the rule elsewhere
    #[arg(long, conflicts_with = "stream")]
    no_stream: bool,

    /// Repeat the message if the connection breaks; an agent that knows such keys carries out one message with this key only
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

/// JSON from the command line or from a file.
#[derive(Debug, Clone)]
enum Data {
    Here(Json),
    In(PathBuf),
}

fn data(text: &str) -> Result<Data, String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(Data::In(path.into())),
        None => Json::parse(text).map(Data::Here).map_err(|error| format!("not JSON: {error}")),
    }
}

impl Data {
    fn read(self) -> Result<Json, Failure> {
        match self {
            Self::Here(json) => Ok(json),
            Self::In(path) => {
                let text = read(&path, "--data @")?;
                let text = String::from_utf8_lossy(&text);
                Json::parse(&text)
                    .map_err(|error| Failure::usage(format!("`{}` is not JSON: {error}", path.display())))
            }
        }
    }
}

fn read(path: &Path, flag: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`{flag}{}` cannot be read: {error}", path.display())))
}

impl Send {
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        let parts = self.parts()?;
        let message = Message { role: Role::User, parts, ..Message::default() };
        let mut outgoing = Outgoing::new(message);
        if let Some(context) = self.context {
            outgoing = outgoing.context(context);
        }
        let task = self.task.map(TaskId::from);
        if let Some(task) = &task {
            outgoing = outgoing.task(task.clone());
        }
        if let Some(key) = self.idempotency_key {
            outgoing = outgoing.idempotency_key(key);
        }
        let deadline = self.timeout.map(|limit| Instant::now() + limit);
        let agent = match deadline {
            None => self.target.connect().await?,
            Some(deadline) => tokio::time::timeout_at(deadline, self.target.connect())
                .await
                .map_err(|_| Failure::new("could not connect to the agent in time").exit(Exit::TimedOut))??,
        };
        let json = self.output.json;
        if self.no_wait {
            let mut live = Live::new(Form::Nothing).until(deadline);
            live.outcome.task = task;
            let submitted = live.watch(agent.client.send(outgoing.return_immediately())).await;
            let Some(reply) = submitted else { return Err(live.interrupted(&agent)) };
            return match reply {
                Ok(reply) => submitted_as(&agent, reply, json),
                Err(error) => Err(refused(&agent, &live, &error).await),
            };
        }
        let on_terminal = !json && std::io::stdout().is_terminal();
        if self.stream || (on_terminal && !self.no_stream) {
            let mut live = Live::new(if json { Form::Events } else { Form::Text }).until(deadline);
            live.outcome.task = task;
            return stream(&agent, outgoing, live).await;
        }
        // The id of the task is needed to say how to go on.
        let outgoing = if deadline.is_some() { outgoing.return_immediately() } else { outgoing };
        let mut live = Live::new(if json { Form::Nothing } else { Form::Text }).until(deadline);
        live.outcome.task = task;
        wait(&agent, outgoing, live, json).await
    }

    /// The message to send.
    fn parts(&mut self) -> Result<Vec<Part>, Failure> {
        let has_more = !self.data.is_empty() || !self.file.is_empty() || self.skill.is_some();
        let text = match self.text.take().as_deref() {
            Some("-") => Some(standard_input()?),
            Some(text) => Some(text.to_owned()),
            None if has_more => None,
            None if std::io::stdin().is_terminal() => {
                return Err(Failure::usage("there is nothing to send").hint(
                    "say something, as in `attache send AGENT \"Hello\"`, or use `attache chat AGENT`",
                ));
            }
            None => Some(standard_input()?),
        };
        let data =
            std::mem::take(&mut self.data).into_iter().map(Data::read).collect::<Result<Vec<_>, _>>()?;
        if let Some(skill) = &self.skill {
            return call(skill, text, data).map(|part| vec![part]);
        }
        let mut parts: Vec<_> = text.into_iter().map(Part::text).collect();
        for value in &data {
            parts.push(Part::data(value).map_err(Failure::usage)?);
        }
        for path in &self.file {
            parts.push(file(path, "--file ")?);
        }
        Ok(parts)
    }
}

/// The message that calls a function.
#[derive(Serialize)]
struct Call<'a> {
    function_id: &'a str,
    payload: Json,
}

/// A part that calls a function.
fn call(skill: &str, text: Option<String>, data: Vec<Json>) -> Result<Part, Failure> {
    let mut data = data.into_iter();
    let payload = match (text, data.next(), data.next()) {
        (None, None, _) => Json::new(&json!({})),
        (Some(text), None, _) if text.trim_start().starts_with(['{', '[']) => {
            return Json::parse(&text)
                .and_then(|payload| Part::data(&Call { function_id: skill, payload }))
                .map_err(|error| {
                    Failure::usage(format!("the payload of `{skill}` begins like JSON and is not: {error}"))
                        .hint("for a text that begins so, use `--data '{\"input\": \"…\"}'`")
                });
        }
        (Some(text), None, _) => Json::new(&json!({ "input": text })),
        (None, Some(payload), None) => Ok(payload),
        (Some(_), Some(_), _) | (None, Some(_), Some(_)) => {
            return Err(Failure::usage("a skill that is called with `--skill` has one payload")
                .hint("give it either a text or `--data`, once"));
        }
    };
    payload.and_then(|payload| Part::data(&Call { function_id: skill, payload })).map_err(Failure::usage)
}

fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::usage("standard input is not text").hint("send other things with `--file PATH`")
    })?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(Failure::usage("there is nothing to send: standard input is empty")),
        text => Ok(text.to_owned()),
    }
}

/// A part with the content of a file. `flag` is how the user named the file.
pub(super) fn file(path: &Path, flag: &str) -> Result<Part, Failure> {
    let mut part = Part::raw(read(path, flag)?);
    if let Some(name) = path.file_name() {
        part = part.filename(name.to_string_lossy());
    }
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_ref().and_then(|extension| extension.to_str()).and_then(media_type) {
        Some(media_type) => Ok(part.media_type(media_type)),
        None => Ok(part.media_type("application/octet-stream")),
    }
}

/// The media type of common files.
fn media_type(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}

/// Prints the id of a task that was sent off.
fn submitted_as(agent: &Agent, reply: Reply, json: bool) -> Result<(), Failure> {
    if json {
        return print(&show::json_lines(&reply)?);
    }
    match reply {
        Reply::Message(_) => Live::new(Form::Text).reply(reply),
        Reply::Task(task) => {
            print(&format!("{}\n", show::line(task.id.as_str())))?;
            if std::io::stderr().is_terminal() {
                say(format_args!("wait for it with `{}`", agent.about("task wait", &task.id)));
            }
            Ok(())
        }
    }
}

/// The failure of a message that was not accepted. Some agents accept nothing but an answer to what they ask.
async fn refused(agent: &Agent, live: &Live, error: &ClientError) -> Failure {
    let failure = agent.failed(error);
    let Some(task) = live.outcome.task.clone().filter(|_| error.kind() == Some(ErrorKind::InvalidParams))
    else {
        return failure;
    };
    let Ok(task) = agent.client.get(task).await else { return failure };
    let question = Question::read(task.status.message.as_deref(), None);
    match question.filter(|_| task.status.state == TaskState::InputRequired) {
        Some(question) => failure.hint(question.hint(&agent.word(), &task.id)),
        None => failure,
    }
}

async fn stream(agent: &Agent, outgoing: Outgoing, mut live: Live) -> Result<(), Failure> {
    let opened = live.watch(agent.client.stream(outgoing)).await;
    let Some(opened) = opened else { return Err(live.interrupted(agent)) };
    let mut events = match opened {
        Ok(events) => events,
        Err(error) => return Err(refused(agent, &live, &error).await),
    };
    match live.follow(agent, &mut events).await? {
        Followed::Ended => live.conclude(agent),
        Followed::Interrupted => Err(live.interrupted(agent)),
    }
}

async fn wait(agent: &Agent, outgoing: Outgoing, mut live: Live, json: bool) -> Result<(), Failure> {
    let sent = live.watch(agent.client.send(outgoing)).await;
    let Some(sent) = sent else { return Err(live.interrupted(agent)) };
    let mut reply = match sent {
        Ok(reply) => reply,
        Err(error) => return Err(refused(agent, &live, &error).await),
    };
    // Some agents answer before the task has ended.
    if let Reply::Task(task) = &reply
        && !task.status.state.is_settled()
    {
        live.outcome.task = Some(task.id.clone());
        let ended = live.watch(agent.client.wait(task.id.clone())).await;
        let Some(ended) = ended else { return Err(live.interrupted(agent)) };
        reply = Reply::Task(ended.map_err(|error| agent.failed(&error))?);
    }
    if json {
        print(&show::json_lines(&reply)?)?;
    }
    live.reply(reply)?;
    live.conclude(agent)
}
