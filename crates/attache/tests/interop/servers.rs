//! The servers of the SDKs, and our client at them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use attache::prelude::*;
use attache::protocol::{ErrorKind, ListTasksRequest, StreamResponse, TaskPushNotificationConfig};
use attache_client::{Client, ClientError, Outgoing, Reply};
use serde_json::json;

use crate::peers::{PATIENCE, Process};
use crate::sdk::{Binding, Sdk};
use crate::table::{Note, Outcome, Outcomes, Row, rows};

rows! { "servers", talk;
    python_1_over_jsonrpc: Python1, JsonRpc, V1_0;
    python_1_over_http_json: Python1, HttpJson, V1_0;
    python_1_over_grpc: Python1, Grpc, V1_0;
    python_0_3_over_jsonrpc: Python0, JsonRpc, V0_3;
    python_0_3_over_http_json: Python0, HttpJson, V0_3;
    python_0_3_over_grpc: Python0, Grpc, V0_3;
    node_1_over_jsonrpc: Node1, JsonRpc, V1_0;
    node_1_over_http_json: Node1, HttpJson, V1_0;
    node_1_over_grpc: Node1, Grpc, V1_0;
    node_0_3_over_jsonrpc: Node0, JsonRpc, V0_3;
    node_0_3_over_http_json: Node0, HttpJson, V0_3;
    node_0_3_over_grpc: Node0, Grpc, V0_3;
    a2a_server_lf_over_jsonrpc: RustLf, JsonRpc, V1_0;
    a2a_server_lf_over_http_json: RustLf, HttpJson, V1_0;
    a2a_server_lf_over_grpc: RustLf, Grpc, V1_0;
    a2a_rs_server_over_jsonrpc: RustRs, JsonRpc, V1_0;
    a2a_rs_server_over_http_json: RustRs, HttpJson, V1_0;
    a2a_protocol_server_over_jsonrpc: RustProtocol, JsonRpc, V1_0;
    a2a_protocol_server_over_http_json: RustProtocol, HttpJson, V1_0;
    a2a_protocol_server_over_grpc: RustProtocol, Grpc, V1_0;
}

/// Nothing is to be said about a whole row.
fn about(_: &Row) -> Option<&'static str> {
    None
}

/// What is to be said about the peers.
fn note(row: &Row, feature: &str) -> Option<Note> {
    match (row.sdk, row.binding, feature) {
        (Sdk::Python0 | Sdk::Node0, _, "list") => Some(Note::Absent(
            "0.3 has no operation to list tasks: the servers of that time answer `tasks/list` with `Method not found`, and the other bindings have no place for it.",
        )),
        (Sdk::Python0, Binding::Grpc, "push configs") => {
            Some(Note::Absent("The server of 0.3.26 answers with `UNIMPLEMENTED` when webhooks are listed."))
        }
        (Sdk::Python0, Binding::HttpJson, "push configs") => Some(Note::Fault {
            symptom: "unknown exception",
            evidence: "The server of 0.3.26 answers with 500 `unknown exception` when webhooks are listed.",
        }),
        (Sdk::Node0, Binding::JsonRpc | Binding::HttpJson, "get") => Some(Note::Fault {
            symptom: "both messages are history",
            evidence: "The server of 0.3.14 keeps no history: a task of two messages is read with `\"history\": []`.",
        }),
        (Sdk::Node0, Binding::HttpJson | Binding::Grpc, "files") => Some(Note::Fault {
            symptom: "filename: None",
            evidence: "The contents arrive, the names do not: the SDK's `FilePart` of 0.3 for this binding has no `name`.",
        }),
        (Sdk::Node0, Binding::Grpc, "data") => {
            Some(Note::Fault { symptom: "2.5,0,true", evidence: "A `null` in data comes back as `0`." })
        }
        (Sdk::Node0, Binding::Grpc, "errors") => Some(Note::Fault {
            symptom: "Task not cancelable",
            evidence: "The server refuses to cancel an ended task with `FAILED_PRECONDITION` and a text, and gives no reason that a program could read.",
        }),
        (Sdk::RustLf, _, "list") => Some(Note::Fault {
            symptom: "latest first",
            evidence: "Tasks are sorted by their ids, so that those of 0.5.3, which grow, come oldest first.",
        }),
        (Sdk::RustRs, Binding::JsonRpc, "push configs") => Some(Note::Fault {
            symptom: "invalid params",
            evidence: "The server of 1.0.26 refuses a webhook that is written as 1.0 has it, with ``missing field `configId` ``.",
        }),
        (Sdk::RustRs, Binding::HttpJson, "push configs") => Some(Note::Fault {
            symptom: r#"url: """#,
            evidence: "The server of 1.0.26 answers with `{\"configId\":\"hook\",\"taskId\":\"…\"}` where the webhook was to be, and lists it as `{\"config\":{\"id\":\"hook\",\"url\":\"…\"},\"configId\":\"hook\"}`.",
        }),
        (Sdk::Python1 | Sdk::Python0 | Sdk::Node1 | Sdk::Node0, _, _)
        | (Sdk::RustLf | Sdk::RustRs | Sdk::RustProtocol, _, _) => None,
    }
}

/// Tries everything with a server of a peer's that offers one binding.
async fn talk(row: &Row) -> Outcomes {
    let mut command = row.sdk.program("server");
    command.arg(row.binding.name());
    let mut server = Process::start(&row.title(), command);
    let url =
        server.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned)).await;
    let agent = Client::connect(&url).await;
    let agent = agent.unwrap_or_else(|error| panic!("{}: cannot connect: {error}", row.title()));
    let mut outcomes = Outcomes::new();
    let mut note = |feature, result: Result<()>| {
        outcomes.push((
            feature,
            match result {
                Ok(()) => Outcome::Works,
                Err(error) if is_unknown_method(&error) => Outcome::Absent,
                Err(error) => Outcome::Fails(format!("{error:#}")),
            },
        ));
    };
    note("card", within(card(&agent)).await);
    note("extended card", within(extended_card(&agent)).await);
    note("send", within(send(&agent)).await);
    note("direct message", within(direct_message(&agent)).await);
    note("stream", within(stream(&agent)).await);
    note("multi-turn", within(multi_turn(&agent)).await);
    note("get", within(get(&agent)).await);
    note("list", within(list(&agent)).await);
    note("cancel", within(cancel(&agent)).await);
    note("resubscribe", within(resubscribe(&agent)).await);
    note("push configs", within(webhooks(&agent)).await);
    note("files", within(files(&agent)).await);
    note("data", within(data(&agent)).await);
    note("errors", within(errors(&agent)).await);
    outcomes
}

/// Whether the server has no such operation, or the protocol has none over this binding.
fn is_unknown_method(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<ClientError>();
    refused.is_some_and(|error| {
        error.kind() == Some(ErrorKind::MethodNotFound) || error.to_string().contains("cannot be listed")
    })
}

async fn within(attempt: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::time::timeout(PATIENCE, attempt).await.context("it takes too long")?
}

async fn card(agent: &Client) -> Result<()> {
    let card = agent.card();
    let skills: Vec<&str> = card.skills.iter().map(|skill| skill.id.as_str()).collect();
    ensure!((card.name.as_str(), skills.as_slice()) == ("Interop", &["interop"]), "{card:?}");
    Ok(())
}

async fn extended_card(agent: &Client) -> Result<()> {
    let card = agent.extended_card().await?;
    ensure!(card.skills.iter().any(|skill| skill.id == "extended"), "{card:?}");
    Ok(())
}

/// Sends something that leads to a task.
async fn sent(agent: &Client, message: impl Into<Outgoing>) -> Result<Task> {
    match agent.send(message).await? {
        Reply::Task(task) => Ok(task),
        Reply::Message(message) => bail!("a message, where a task was to be: {message:?}"),
    }
}

/// Begins a task that goes on until it is released or canceled.
async fn held(agent: &Client) -> Result<Task> {
    sent(agent, Outgoing::new("hold").return_immediately()).await
}

fn text(task: &Task) -> String {
    task.artifacts.iter().map(Artifact::text).collect()
}

fn expect(task: &Task, state: TaskState, words: &str) -> Result<()> {
    ensure!(task.status.state == state && text(task) == words, "expected {state} with `{words}`: {task:?}");
    Ok(())
}

async fn send(agent: &Client) -> Result<()> {
    expect(&sent(agent, "say hello").await?, TaskState::Completed, "hello")
}

async fn direct_message(agent: &Client) -> Result<()> {
    match agent.send("direct").await? {
        Reply::Message(message) => {
            ensure!(message.text() == "a direct answer", "{message:?}");
            Ok(())
        }
        Reply::Task(task) => bail!("a task, where a message was to be: {task:?}"),
    }
}

/// What a stream showed: the pieces of artifacts, and the last state.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    task: String,
    pieces: Vec<String>,
    state: TaskState,
}

impl Shown {
    fn see(&mut self, event: StreamResponse) -> Result<()> {
        let (task, state) = match event {
            StreamResponse::Task(task) => {
                // Some show a task only when it has ended.
                if self.pieces.is_empty() {
                    self.pieces.extend(task.artifacts.iter().map(Artifact::text));
                }
                (task.id, Some(task.status.state))
            }
            StreamResponse::StatusUpdate(update) => (update.task_id, Some(update.status.state)),
            StreamResponse::ArtifactUpdate(update) => {
                self.pieces.push(update.artifact.text());
                (update.task_id, None)
            }
            StreamResponse::Message(message) => bail!("a message in the stream of a task: {message:?}"),
        };
        ensure!(self.task.is_empty() || self.task == task.as_str(), "events of two tasks");
        self.task = task.to_string();
        self.state = state.unwrap_or(self.state);
        Ok(())
    }

    fn expect(&self, pieces: &[&str], state: TaskState) -> Result<()> {
        ensure!(self.pieces == pieces && self.state == state, "expected {pieces:?} and {state}: {self:?}");
        Ok(())
    }
}

/// Follows what comes of a message, up to a question: some servers keep the stream open then, and others do not.
async fn streamed(agent: &Client, message: impl Into<Outgoing>, what: Sent) -> Result<Shown> {
    let mut events = agent.stream(message).await?;
    let mut shown = Shown::default();
    while let Some(event) = events.next().await {
        shown.see(event?)?;
        if what == Sent::First && shown.state == TaskState::InputRequired {
            break;
        }
    }
    Ok(shown)
}

/// Whether a message begins a task, or goes on with one, whose question is then shown once more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    First,
    Answer,
}

async fn stream(agent: &Client) -> Result<()> {
    let shown = streamed(agent, "stream", Sent::First).await?;
    shown.expect(&["one ", "two ", "three"], TaskState::Completed)?;
    expect(&agent.get(shown.task).await?, TaskState::Completed, "one two three")
}

async fn asked(agent: &Client) -> Result<Task> {
    let task = sent(agent, "ask").await?;
    let question = task.status.message.as_deref().map(Message::text).unwrap_or_default();
    let asks = task.status.state == TaskState::InputRequired && question == "Which colour?";
    ensure!(asks, "{task:?}");
    let answered = sent(agent, Outgoing::new("blue").task(task.id.clone())).await?;
    ensure!((&answered.id, &answered.context_id) == (&task.id, &task.context_id), "{answered:?}");
    expect(&answered, TaskState::Completed, "blue it is")?;
    Ok(answered)
}

async fn multi_turn(agent: &Client) -> Result<()> {
    asked(agent).await?;
    let shown = streamed(agent, "ask", Sent::First).await?;
    shown.expect(&[], TaskState::InputRequired)?;
    let shown = streamed(agent, Outgoing::new("red").task(shown.task), Sent::Answer).await?;
    shown.expect(&["red it is"], TaskState::Completed)
}

async fn get(agent: &Client) -> Result<()> {
    let task = asked(agent).await?;
    let whole = agent.get(task.id.clone()).await?;
    ensure!((&whole.id, &whole.context_id) == (&task.id, &task.context_id), "{whole:?}");
    ensure!(whole.history.len() >= 2, "both messages are history: {whole:?}");
    expect(&whole, TaskState::Completed, "blue it is")
}

async fn list(agent: &Client) -> Result<()> {
    let context = fastrand::u64(..).to_string();
    let first = sent(agent, Outgoing::new("say first").context(context.as_str())).await?;
    let second = sent(agent, Outgoing::new("say second").context(context.as_str())).await?;
    sent(agent, "say elsewhere").await?;
    let query = ListTasksRequest { context_id: Some(context.into()), ..ListTasksRequest::default() };
    let listed: Vec<_> = agent.list(query).await?.tasks.into_iter().map(|task| task.id).collect();
    ensure!(listed == [second.id, first.id], "latest first: {listed:?}");
    Ok(())
}

async fn cancel(agent: &Client) -> Result<()> {
    let task = held(agent).await?;
    let canceled = agent.cancel(task.id.clone()).await?;
    expect(&canceled, TaskState::Canceled, "")?;
    expect(&agent.get(task.id).await?, TaskState::Canceled, "")
}

async fn resubscribe(agent: &Client) -> Result<()> {
    /// How long a server may take to show the task. Those before 1.0 show nothing until something happens.
    const QUIET: Duration = Duration::from_secs(2);
    let task = held(agent).await?;
    let mut events = agent.subscribe(task.id.clone()).await?;
    let mut shown = Shown::default();
    if let Ok(Some(event)) = tokio::time::timeout(QUIET, events.next()).await {
        shown.see(event?)?;
    }
    agent.send(format!("release {}", task.id)).await?;
    while let Some(event) = events.next().await {
        shown.see(event?)?;
    }
    ensure!(shown.task == task.id.as_str(), "events of another task");
    shown.expect(&["released"], TaskState::Completed)
}

async fn webhooks(agent: &Client) -> Result<()> {
    let task = held(agent).await?;
    let webhook = TaskPushNotificationConfig {
        id: Some("hook".to_owned()),
        url: "https://hooks.example/x".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let kept = agent.create_webhook(task.id.clone(), webhook).await?;
    ensure!(kept.url == "https://hooks.example/x", "{kept:?}");
    let read = agent.webhook(task.id.clone(), "hook").await?;
    ensure!((read.id.as_deref(), &read.url) == (Some("hook"), &kept.url), "{read:?}");
    let mut listed = agent.webhooks(task.id.clone());
    let first = listed.next().await.context("there is none in the list")??;
    ensure!(first.id.as_deref() == Some("hook") && listed.next().await.is_none(), "{first:?}");
    agent.delete_webhook(task.id.clone(), "hook").await?;
    let left = agent.webhooks(task.id.clone()).next().await.transpose()?;
    ensure!(left.is_none(), "it is still there: {left:?}");
    agent.cancel(task.id).await?;
    Ok(())
}

async fn echoed(agent: &Client, parts: Vec<Part>) -> Result<()> {
    let sending = [vec![Part::text("echo")], parts.clone()].concat();
    let task = sent(agent, sending).await?;
    let back: Vec<&Part> = task.artifacts.iter().flat_map(|artifact| &artifact.parts).collect();
    ensure!(back == parts.iter().collect::<Vec<_>>(), "something else came back: {back:?}");
    Ok(())
}

async fn files(agent: &Client) -> Result<()> {
    let bytes = Part::raw(*b"\x00\xffbytes").filename("a.bin").media_type("application/octet-stream");
    let url = Part::url("https://files.example/b.pdf").filename("b.pdf").media_type("application/pdf");
    echoed(agent, vec![bytes, url]).await
}

async fn data(agent: &Client) -> Result<()> {
    let value = json!({"list": [-1.5, 2.5, null, true], "name": "Zoë", "nested": {"empty": {}}});
    let task = sent(agent, vec![Part::text("echo"), Part::data(&value)?]).await?;
    let back = task.artifacts.first().and_then(|artifact| artifact.parts.first()?.as_data());
    let back: serde_json::Value = back.context("no data came back")?.read()?;
    ensure!(back == value, "something else came back: {back}");
    Ok(())
}

async fn errors(agent: &Client) -> Result<()> {
    fn refused<T>(answer: Result<T, ClientError>, kind: ErrorKind) -> Result<()> {
        let error = answer.err().with_context(|| format!("it was to be refused as {kind:?}"))?;
        ensure!(error.kind() == Some(kind), "expected {kind:?}: {error}");
        Ok(())
    }
    let unknown = "00000000-0000-7000-8000-000000000000";
    refused(agent.get(unknown).await, ErrorKind::TaskNotFound)?;
    refused(agent.cancel(unknown).await, ErrorKind::TaskNotFound)?;
    refused(agent.send(Outgoing::new("on").task(unknown)).await, ErrorKind::TaskNotFound)?;
    let task = sent(agent, "say done").await?;
    refused(agent.cancel(task.id).await, ErrorKind::TaskNotCancelable)?;
    let broken = sent(agent, "fail").await?;
    let said = broken.status.message.as_deref().map(Message::text);
    ensure!(broken.status.state == TaskState::Failed && said.as_deref() == Some("it broke"), "{broken:?}");
    Ok(())
}
