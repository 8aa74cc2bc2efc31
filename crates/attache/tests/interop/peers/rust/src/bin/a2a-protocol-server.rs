//! A server of a2a-protocol-server, which speaks 1.0 over one binding.

use std::pin::Pin;
use std::sync::Arc;

use a2a_protocol_server::push::HttpPushSender;
use a2a_protocol_server::streaming::EventQueueWriter;
use a2a_protocol_server::{
    AgentExecutor, CombinedDispatcher, EventEmitter, GrpcConfig, GrpcDispatcher, RequestContext,
    RequestHandlerBuilder, Server,
};
use a2a_protocol_types::error::A2aResult;
use a2a_protocol_types::{
    ContextId, Message, Part, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_servers::{Agent, Listeners, Plan, Step, Turn};
use uuid::Uuid;

struct Executor(Agent);

impl AgentExecutor for Executor {
    fn execute<'a>(
        &'a self,
        context: &'a RequestContext,
        queue: &'a dyn EventQueueWriter,
    ) -> Pin<Box<dyn Future<Output = A2aResult<()>> + Send + 'a>> {
        Box::pin(self.obey(context, queue))
    }
}

impl Executor {
    async fn obey(&self, context: &RequestContext, queue: &dyn EventQueueWriter) -> A2aResult<()> {
        let emit = EventEmitter::new(context, queue);
        let turn = if context.stored_task.is_some() { Turn::Answer } else { Turn::First };
        let steps = match self.0.plan(turn, context.message.text().unwrap_or_default()) {
            Plan::Reply(text) => {
                let reply = said(text).with_context_id(context.context_id.as_str());
                return queue.write(StreamResponse::Message(reply)).await;
            }
            Plan::Task(steps) => steps,
        };
        for step in steps {
            match step {
                Step::Working => emit.status(TaskState::Working).await?,
                Step::Complete => emit.status(TaskState::Completed).await?,
                Step::Ask(question) => status(&emit, TaskState::InputRequired, question).await?,
                Step::Fail(why) => status(&emit, TaskState::Failed, why).await?,
                Step::Answer { text, append, last } => {
                    emit.artifact("answer", vec![Part::text(text)], Some(append), Some(last)).await?;
                }
                Step::Echo => {
                    emit.artifact("echo", context.message.parts[1..].to_vec(), None, Some(true)).await?;
                }
                Step::Hold => {
                    tokio::select! {
                        () = self.0.released(context.task_id.as_ref()) => {}
                        () = context.cancellation_token.cancelled() => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }
}

fn said(text: &str) -> Message {
    Message::agent_text(Uuid::new_v4().to_string(), text)
}

async fn status(emit: &EventEmitter<'_>, state: TaskState, words: &str) -> A2aResult<()> {
    let mut status = TaskStatus::new(state);
    status.message = Some(said(words));
    let update = TaskStatusUpdateEvent {
        task_id: emit.ctx.task_id.clone(),
        context_id: ContextId::new(emit.ctx.context_id.clone()),
        status,
        metadata: None,
    };
    emit.queue.write(StreamResponse::StatusUpdate(update)).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let place = Listeners::find("").await;
    let handler = RequestHandlerBuilder::new(Executor(Agent::default()))
        .with_agent_card(place.card(&["interop"]))
        .with_extended_agent_card(place.card(&["interop", "extended"]))
        .allow_unauthenticated_extended_card()
        .with_push_sender(HttpPushSender::new())
        .build();
    let handler = Arc::new(handler.expect("the card is a good one"));
    let app = CombinedDispatcher::new(handler.clone()).with_jsonrpc_path("/rpc").expect("it is a path");
    place.announce();
    GrpcDispatcher::new(handler, GrpcConfig::default()).serve_with_listener(place.grpc).expect("it serves");
    Server::from_listener(place.http).serve_with_shutdown(app, std::future::pending()).await;
}
