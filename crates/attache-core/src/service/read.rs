//! Reading, listing, canceling and subscribing to tasks.

use std::sync::Arc;

use attache_protocol::{
    CancelTaskRequest, Error, ErrorKind, GetTaskRequest, JsonObject, ListTasksRequest, Message,
    SubscribeToTaskRequest, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use futures::StreamExt;

use super::compatible;
use super::page_token::{self, Filter};
use super::{Reply, Service, internal, run_to_completion};
use crate::Agent;
use crate::permission::has_stopped_to_ask;
use crate::stream::StreamEnd;
use crate::{
    Append, AppendError, Caller, EventStream, ListQuery, Page, PeerRules, Seq, Snapshot, TaskEvent, View,
};

/// The page size if the client does not set one.
const DEFAULT_PAGE_SIZE: i32 = 50;

/// The page size for lists without pages, and the bounds of such a list: tasks, and bytes in their JSON.
const INNER_PAGE_SIZE: usize = 100;
const MAX_WHOLE_LIST: usize = 10_000;
const MAX_WHOLE_BYTES: usize = 32 * 1024 * 1024;

/// How a task is ended from outside its turn.
pub(super) struct Ending {
    pub(super) state: TaskState,
    pub(super) message: Option<Message>,
    pub(super) metadata: Option<JsonObject>,
}

fn get_view(caller: &Caller, request: &GetTaskRequest) -> View {
    View { history: history(request.history_length), artifacts: true, generation: caller.generations }
}

fn history(length: Option<i32>) -> Option<usize> {
    length.map(|length| length.max(0) as usize)
}

impl Service {
    pub(super) async fn get(&self, caller: Caller, mut request: GetTaskRequest) -> Result<Reply, Error> {
        let snapshot = self.resolve(&caller, &mut request.id).await?;
        Ok(Reply::Task(snapshot, get_view(&caller, &request)))
    }

    /// Reads a task. If the client has its current generation, waits for the next one first.
    pub(super) async fn long_poll(
        &self,
        caller: Caller,
        mut request: GetTaskRequest,
    ) -> Result<Reply, Error> {
        let mut snapshot = self.resolve(&caller, &mut request.id).await?;
        if let Some(seen) = request.current_generation.filter(|_| caller.generations) {
            snapshot = self.wait_for_newer(Seq(seen), snapshot, &caller, &request).await?;
        }
        Ok(Reply::Task(snapshot, get_view(&caller, &request)))
    }

    /// Waits until the task has a newer event than `seen`, has ended, or the time for a long poll is over.
    async fn wait_for_newer(
        &self,
        seen: Seq,
        snapshot: Snapshot,
        caller: &Caller,
        request: &GetTaskRequest,
    ) -> Result<Snapshot, Error> {
        if snapshot.seq > seen || snapshot.state.is_terminal() {
            return Ok(snapshot);
        }
        let mut tail = self.0.store.tail(&request.id, seen);
        if let Ok(Some(Err(error))) = tokio::time::timeout(self.0.options.long_poll, tail.next()).await {
            return Err(internal(&error));
        }
        self.find(caller, &request.id).await
    }

    pub(super) async fn list(&self, caller: Caller, request: ListTasksRequest) -> Result<Reply, Error> {
        let is_whole =
            request.page_size.is_none() && request.page_token.is_none() && caller.dialect_rules().whole_lists;
        let mut page_size = request.page_size.unwrap_or(DEFAULT_PAGE_SIZE);
        let state = (request.status != TaskState::Unspecified).then_some(request.status);
        let filter = Filter {
            owner: &caller.owner,
            context: request.context_id.as_ref(),
            state,
            since: request.status_timestamp_after,
        };
        let digest = filter.digest();
        let after = request.page_token.as_deref().map(|token| page_token::read(token, digest)).transpose()?;
        let view = View {
            history: history(request.history_length),
            artifacts: request.include_artifacts,
            generation: caller.generations,
        };
        let mut query = ListQuery {
            context: request.context_id,
            state,
            since: request.status_timestamp_after,
            after,
            limit: if is_whole { INNER_PAGE_SIZE } else { page_size.max(1) as usize },
            view,
        };
        let list = async |query: &ListQuery| {
            self.0.store.list(&caller.owner, query).await.map_err(|error| internal(&error))
        };
        let mut page = list(&query).await?;
        if is_whole {
            let size = |tasks: &[Snapshot]| tasks.iter().map(|task| task.size_hint(view)).sum::<usize>();
            let mut bytes = size(&page.tasks);
            while let Some(next) =
                page.next.take_if(|_| page.tasks.len() < MAX_WHOLE_LIST && bytes < MAX_WHOLE_BYTES)
            {
                query.after = Some(next);
                let more = list(&query).await?;
                bytes += size(&more.tasks);
                page.tasks.extend(more.tasks);
                page.next = more.next;
            }
            page_size = i32::try_from(page.tasks.len()).unwrap_or(i32::MAX);
        }
        Ok(Reply::Tasks(Page {
            tasks: page.tasks,
            view,
            next_page_token: page.next.map(|cursor| page_token::write(cursor, digest)).unwrap_or_default(),
            page_size,
            total_size: i32::try_from(page.total).unwrap_or(i32::MAX),
        }))
    }

    pub(super) async fn cancel(&self, caller: Caller, request: CancelTaskRequest) -> Result<Reply, Error> {
        let view = View { generation: caller.generations, ..View::FULL };
        let ending = Ending { state: TaskState::Canceled, message: None, metadata: request.metadata };
        let (service, mut id) = (self.clone(), request.id.clone());
        let canceled = async move {
            let snapshot = service.resolve(&caller, &mut id).await?;
            let is_held = || service.0.contexts.is_held_by(&id) || has_stopped_to_ask(&snapshot.task());
            compatible::check_cancel(service.0.options.peer, &snapshot, &id, is_held)?;
            service.end(&caller, &id, ending).await
        };
        let snapshot = run_to_completion(canceled).await?;
        if snapshot.state == TaskState::Canceled {
            return Ok(Reply::Task(snapshot, view));
        }
        let text = format!("the task has ended in {} and cannot be canceled", snapshot.state);
        let error = Error::new(ErrorKind::TaskNotCancelable, text);
        Err(error.with("taskId", &request.id).with("state", snapshot.state))
    }

    /// Ends a task from outside its turn, unless it has ended already. Returns the ended task.
    pub(super) async fn end(&self, caller: &Caller, id: &TaskId, ending: Ending) -> Result<Snapshot, Error> {
        loop {
            let snapshot = self.find(caller, id).await?;
            if snapshot.state.is_terminal() {
                return Ok(snapshot);
            }
            let task = snapshot.task();
            let now = self.0.now_after(task.status.timestamp);
            let update = TaskStatusUpdateEvent {
                task_id: id.clone(),
                context_id: task.context_id.clone().unwrap_or_default(),
                status: TaskStatus {
                    state: ending.state,
                    message: ending.message.clone().map(Box::new),
                    timestamp: Some(now),
                },
                metadata: ending.metadata.clone(),
                ..TaskStatusUpdateEvent::default()
            };
            let events = vec![TaskEvent::Status(Arc::new(update))];
            let append =
                Append { after: snapshot.seq, lease: None, idempotency: None, push: None, events, now };
            match self.0.store.append(id, append).await {
                Ok(_) => {
                    let is_canceled = ending.state == TaskState::Canceled;
                    self.0.questions.task_ended(id, if is_canceled { "canceled" } else { "the task ended" });
                    self.0.turns.cancel(id);
                    self.0.agent.task_ended(id);
                    return self.find(caller, id).await;
                }
                // The agent was faster and may have ended the task: load it again.
                Err(AppendError::Conflict(_) | AppendError::Ended(_)) => {}
                Err(AppendError::NotFound) => return Err(Error::task_not_found(id)),
                Err(
                    error @ (AppendError::LeaseLost
                    | AppendError::KeyUsed(_)
                    | AppendError::TooManyWebhooks
                    | AppendError::Store(_)),
                ) => return Err(internal(&error)),
            }
        }
    }

    pub(super) async fn subscribe(
        &self,
        caller: Caller,
        mut request: SubscribeToTaskRequest,
        resume: Option<Seq>,
    ) -> Result<Reply, Error> {
        let snapshot = self.resolve(&caller, &mut request.id).await?;
        let view = View { generation: caller.generations, ..View::FULL };
        compatible::check_subscription(self.0.options.peer, &snapshot, &request.id, resume)?;
        let (first, after) = match resume {
            Some(seen) if seen > snapshot.seq => {
                let text = format!("`{seen}` is ahead of the task, which is at {}", snapshot.seq);
                return Err(Error::invalid_params("Last-Event-ID", text));
            }
            // A reader that has seen everything learns that the task waits for input, and not that nothing happens.
            Some(seen) if seen == snapshot.seq && snapshot.state.is_interrupted() => (Some(snapshot), seen),
            // A resumed stream gets the events that it has missed, even if the task has ended meanwhile.
            Some(seen) => (None, seen),
            None if snapshot.state.is_terminal() && !caller.dialect_rules().ended_subscriptions => {
                let text = format!("the task has ended in {}: read it instead", snapshot.state);
                let error = Error::new(ErrorKind::UnsupportedOperation, text);
                return Err(error.with("taskId", &request.id).with("state", snapshot.state));
            }
            None => {
                let after = snapshot.seq;
                (Some(snapshot), after)
            }
        };
        let tail = self.0.store.tail(&request.id, after);
        let until = match self.0.options.peer {
            PeerRules::Standard => StreamEnd::TaskEnded,
            PeerRules::IacCode => StreamEnd::InputRequired,
        };
        Ok(Reply::Events(EventStream::follow(self.0.clone(), first, tail, until), view))
    }

    pub(super) fn require_streaming(&self) -> Result<(), Error> {
        if self.0.card.load().capabilities.streaming == Some(true) {
            return Ok(());
        }
        Err(Error::streaming_not_supported())
    }
}
