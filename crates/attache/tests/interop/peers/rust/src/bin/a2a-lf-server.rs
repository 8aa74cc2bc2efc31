//! A server of a2a-server-lf, which speaks 1.0 over one binding.

use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Message, Part, Role, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::agent_card::agent_card_router;
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryPushConfigStore, InMemoryTaskStore,
    StaticAgentCard,
};
use a2a_servers::{Agent, Listeners, Plan, Step, Turn};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_stream::wrappers::TcpListenerStream;

struct Executor(Arc<Agent>);

#[async_trait::async_trait]
impl AgentExecutor for Executor {
    fn execute(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let agent = self.0.clone();
        let message = context.message.clone().expect("it is about a message");
        // A task that has just begun is given, too, unless it is to be streamed.
        let asked = context.stored_task.as_ref().map(|task| task.status.state.clone());
        let turn = if asked == Some(TaskState::InputRequired) { Turn::Answer } else { Turn::First };
        let steps = match agent.plan(turn, message.text().unwrap_or_default()) {
            Plan::Reply(text) => {
                let mut reply = said(text);
                reply.context_id = Some(context.context_id);
                return futures::stream::iter([Ok(StreamResponse::Message(reply))]).boxed();
            }
            Plan::Task(steps) => steps,
        };
        let context = Arc::new(context);
        let event = move |step| {
            let (agent, message, context) = (agent.clone(), message.clone(), context.clone());
            async move {
                match step {
                    Step::Working => Some(status(&context, TaskState::Working, None)),
                    Step::Ask(question) => Some(status(&context, TaskState::InputRequired, Some(question))),
                    Step::Fail(why) => Some(status(&context, TaskState::Failed, Some(why))),
                    Step::Complete => Some(status(&context, TaskState::Completed, None)),
                    Step::Answer { text, append, last } => {
                        Some(artifact(&context, "answer", vec![Part::text(text)], (append, last)))
                    }
                    Step::Echo => {
                        Some(artifact(&context, "echo", message.parts[1..].to_vec(), (false, true)))
                    }
                    Step::Hold => {
                        agent.released(&context.task_id).await;
                        None
                    }
                }
            }
        };
        futures::stream::iter(steps).then(event).filter_map(|event| async move { event.map(Ok) }).boxed()
    }

    fn cancel(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        futures::stream::iter([Ok(status(&context, TaskState::Canceled, None))]).boxed()
    }
}

fn said(text: &str) -> Message {
    Message::new(Role::Agent, vec![Part::text(text)])
}

fn status(context: &ExecutorContext, state: TaskState, words: Option<&str>) -> StreamResponse {
    let (task_id, context_id) = context.task_info();
    let status = TaskStatus { state, message: words.map(said), timestamp: None };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, metadata: None })
}

fn artifact(
    context: &ExecutorContext,
    id: &str,
    parts: Vec<Part>,
    (append, last): (bool, bool),
) -> StreamResponse {
    let (task_id, context_id) = context.task_info();
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id,
        context_id,
        artifact: Artifact {
            artifact_id: id.to_owned(),
            name: Some(id.to_owned()),
            description: None,
            parts,
            metadata: None,
            extensions: None,
        },
        append: Some(append),
        last_chunk: Some(last),
        metadata: None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let place = Listeners::find("").await;
    let handler = DefaultRequestHandler::new(Executor(Arc::default()), InMemoryTaskStore::new())
        .with_push_config_store(InMemoryPushConfigStore::new())
        .with_extended_agent_card(place.card(&["interop", "extended"]));
    let handler = Arc::new(handler);
    let app = axum::Router::new()
        .nest("/rpc", jsonrpc_router(handler.clone()))
        .merge(rest_router(handler.clone()))
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(place.card(&["interop"])))));
    let service = A2aServiceServer::new(GrpcHandler::new(handler));
    place.announce();
    let grpc = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(place.grpc));
    tokio::spawn(grpc);
    axum::serve(place.http, app).await.expect("it serves");
}
