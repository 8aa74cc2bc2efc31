//! A server of a2a-rs-server, which speaks 1.0 over one binding.
//!
//! A handler gives the task back at once, and what happens to it later is put into the store and sent to everybody by whoever lets it
//! happen. Requests are not waited for unless they say so: what needs no time has happened when the task is given back.

use std::sync::{Arc, OnceLock};

use a2a_rs_core::{
    AgentCard, Artifact, Message, Part, Role, SendMessageResponse, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, new_message, now_iso8601,
};
use a2a_rs_server::{A2aServer, AuthContext, HandlerResult, MessageHandler, TaskStore};
use a2a_servers::{Agent, Listeners, Plan, Step, Turn};
use tokio::sync::broadcast;
use uuid::Uuid;

#[derive(Clone)]
struct Handler {
    agent: Arc<Agent>,
    tasks: TaskStore,
    events: Arc<OnceLock<broadcast::Sender<StreamResponse>>>,
    card: AgentCard,
    extended: AgentCard,
}

#[async_trait::async_trait]
impl MessageHandler for Handler {
    async fn handle_message(
        &self,
        message: Message,
        _: Option<AuthContext>,
    ) -> HandlerResult<SendMessageResponse> {
        let asked = match &message.task_id {
            Some(id) => self.tasks.get(id).await,
            None => None,
        };
        let turn = if asked.is_some() { Turn::Answer } else { Turn::First };
        let text = message.parts.first().and_then(Part::as_text).unwrap_or_default();
        let steps = match self.agent.plan(turn, text) {
            Plan::Reply(text) => {
                let reply = new_message(Role::Agent, text, message.context_id);
                return Ok(SendMessageResponse::Message(reply));
            }
            Plan::Task(steps) => steps,
        };
        let mut task = asked.unwrap_or_else(|| begun(&message));
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next_if(|step| !takes_time(step)) {
            happen(&mut task, step, &message);
        }
        task.history.get_or_insert_default().push(message.clone());
        if steps.peek().is_some() {
            tokio::spawn(self.clone().go_on(task.id.clone(), steps.collect(), message));
        }
        Ok(SendMessageResponse::Task(task))
    }

    fn agent_card(&self, _: &str) -> AgentCard {
        self.card.clone()
    }

    async fn extended_agent_card(&self, _: &str, _: &AuthContext) -> Option<AgentCard> {
        Some(self.extended.clone())
    }
}

impl Handler {
    /// Lets the rest happen to a task that has been given back. There is one thread, so that the server has it in its store and listens
    /// for events when this begins.
    async fn go_on(self, id: String, steps: Vec<Step>, message: Message) {
        for step in steps {
            if matches!(step, Step::Hold) {
                self.agent.released(&id).await;
                continue;
            }
            let mut event = None;
            let changed = self.tasks.update(&id, |task| {
                if !task.status.state.is_terminal() {
                    event = Some(happen(task, step, &message));
                }
            });
            changed.await;
            // A task that has been canceled has ended.
            let Some(event) = event else { return };
            // There may be no listener.
            let _ = self.events.get().expect("the server has one").send(event);
        }
    }
}

fn begun(message: &Message) -> Task {
    Task {
        kind: "task".to_owned(),
        id: Uuid::new_v4().to_string(),
        context_id: message.context_id.clone().unwrap_or_else(|| Uuid::new_v4().to_string()),
        status: status(TaskState::Submitted, None),
        artifacts: None,
        history: None,
        metadata: None,
    }
}

/// Whether it cannot have happened when a task is given back: a stream begins only then.
fn takes_time(step: &Step) -> bool {
    matches!(step, Step::Hold | Step::Answer { last: false, .. })
}

fn status(state: TaskState, words: Option<&str>) -> TaskStatus {
    let message = words.map(|words| new_message(Role::Agent, words, None));
    TaskStatus { state, message, timestamp: Some(now_iso8601()) }
}

/// Changes a task, and gives the event of it.
fn happen(task: &mut Task, step: Step, message: &Message) -> StreamResponse {
    match step {
        Step::Working => moved(task, TaskState::Working, None),
        Step::Ask(question) => moved(task, TaskState::InputRequired, Some(question)),
        Step::Fail(why) => moved(task, TaskState::Failed, Some(why)),
        Step::Complete => moved(task, TaskState::Completed, None),
        Step::Answer { text, append, last } => grown(task, "answer", vec![Part::text(text)], (append, last)),
        Step::Echo => grown(task, "echo", message.parts[1..].to_vec(), (false, true)),
        Step::Hold => unreachable!("it is waited for"),
    }
}

fn moved(task: &mut Task, state: TaskState, words: Option<&str>) -> StreamResponse {
    task.status = status(state, words);
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        kind: "status-update".to_owned(),
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        metadata: None,
    })
}

fn grown(task: &mut Task, name: &str, parts: Vec<Part>, (append, last): (bool, bool)) -> StreamResponse {
    let artifacts = task.artifacts.get_or_insert_default();
    let artifact = Artifact {
        artifact_id: name.to_owned(),
        name: Some(name.to_owned()),
        description: None,
        parts,
        metadata: None,
        extensions: Vec::new(),
    };
    match artifacts.iter_mut().find(|known| append && known.artifact_id == name) {
        Some(known) => known.parts.extend(artifact.parts.iter().cloned()),
        None => artifacts.push(artifact.clone()),
    }
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        kind: "artifact-update".to_owned(),
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        artifact,
        append: Some(append),
        last_chunk: Some(last),
        metadata: None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let place = Listeners::find("/rest").await;
    let handler = Handler {
        agent: Arc::default(),
        tasks: TaskStore::new(),
        events: Arc::default(),
        card: place.card(&["interop"]),
        extended: place.card(&["interop", "extended"]),
    };
    let address = place.http.local_addr().expect("it has one").to_string();
    // Callers are not told apart here, but the extended card needs an authenticated one.
    let somebody =
        AuthContext { user_id: "somebody".to_owned(), access_token: String::new(), metadata: None };
    let server = A2aServer::new(handler.clone())
        .bind(&address)
        .expect("it is an address")
        .rpc_path("/rpc")
        .rest_prefix((place.binding == "HTTP+JSON").then_some("/rest"))
        .task_store(handler.tasks.clone())
        .auth_extractor(move |_| Some(somebody.clone()));
    handler.events.set(server.get_event_sender()).expect("it is the first");
    place.announce();
    axum_0_7::serve(place.http, server.build_router()).await.expect("it serves");
}
