//! Questions to callers that have no answer yet, in this process.
//!
//! A question is open while the agent keeps its [`PendingPermission`](super::PendingPermission). When the time is over, a turn gives the
//! denial to the agent, so that its work goes on. When the agent lets go of the request without an answer, because its work has ended,
//! the task shows the denial and takes other messages again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use attache_protocol::{Task, TaskId};
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::audit::Recorder;
use super::{PermissionAnswer, PermissionRequest, question};
use crate::service::Inner;
use crate::turn_state::TurnState;
use crate::{AgentResult, Caller, Turn};

/// The questions of one service that are open, by their tasks.
#[derive(Default)]
pub(crate) struct OpenQuestions(Mutex<HashMap<TaskId, Weak<OpenQuestion>, RandomState>>);

/// A question to the caller, for as long as the agent waits for the answer.
pub(crate) struct OpenQuestion {
    service: Weak<Inner>,
    pub(crate) caller: Caller,
    pub(crate) task: TaskId,
    /// The id of the question in the task.
    input_id: String,
    request: PermissionRequest,
    recorder: Recorder,
    /// The turn that has asked.
    asked_in: Weak<TurnState>,
    state: Mutex<State>,
}

/// What is known about the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    /// The answer was recorded, or another question stands for this one.
    Settled,
    /// The task has ended, for this reason.
    TaskEnded(&'static str),
    /// No answer has arrived within this time.
    TimedOut(Duration),
}

/// The denial that a turn gives to the agent in the place of the caller.
pub(crate) struct Denial {
    question: Weak<OpenQuestion>,
    limit: Duration,
    /// Set when the turn has begun.
    begun: OnceLock<()>,
}

impl OpenQuestions {
    /// Whether the agent waits for an answer to the question of a task.
    pub(crate) fn is_open(&self, task: &TaskId) -> bool {
        self.0.lock().get(task).is_some_and(|open| open.strong_count() > 0)
    }

    /// How many questions are open.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().values().filter(|open| open.strong_count() > 0).count()
    }

    /// Says why the task of a question has ended. The agent learns it later, and lets go of the request then.
    pub(crate) fn task_ended(&self, task: &TaskId, why: &'static str) {
        // Upgraded under the lock and dropped without it: the drop of a question takes the lock.
        let open = self.0.lock().get(task).and_then(Weak::upgrade);
        if let Some(open) = open {
            open.leave(State::TaskEnded(why));
        }
    }

    fn add(&self, open: &Arc<OpenQuestion>) {
        self.0.lock().insert(open.task.clone(), Arc::downgrade(open));
    }

    /// Removes a question, unless the task has another one by now.
    fn remove(&self, open: &OpenQuestion) {
        let mut questions = self.0.lock();
        if questions.get(&open.task).is_some_and(|known| std::ptr::eq(known.as_ptr(), open)) {
            questions.remove(&open.task);
        }
    }
}

impl OpenQuestion {
    pub(super) fn new(
        turn: &Turn,
        request: PermissionRequest,
        recorder: Recorder,
        input_id: String,
    ) -> Arc<Self> {
        let service = &turn.inner.service;
        let open = Arc::new(Self {
            service: Arc::downgrade(service),
            caller: turn.caller().clone(),
            task: turn.task_id().clone(),
            input_id,
            request,
            recorder,
            asked_in: Arc::downgrade(&turn.inner),
            state: Mutex::new(State::Waits),
        });
        service.questions.add(&open);
        open
    }

    /// Whether the task asks this question, so that it has neither an answer nor another message since.
    pub(crate) fn is_asked_by(&self, task: &Task) -> bool {
        question::pending(task).and_then(|asked| question::id(&asked)).is_some_and(|id| id == self.input_id)
    }

    /// Says that the question needs no answer any more.
    pub(super) fn settle(&self) {
        *self.state.lock() = State::Settled;
    }

    /// Says that no answer has arrived in time, and that no turn can tell the agent. Returns whether the question was open.
    pub(crate) fn time_out(&self, limit: Duration) -> bool {
        self.leave(State::TimedOut(limit))
    }

    fn leave(&self, why: State) -> bool {
        let mut state = self.state.lock();
        let was_open = *state == State::Waits;
        if was_open {
            *state = why;
        }
        was_open
    }

    /// Denies the request after a time, if there is no answer until then. `self` is not kept: only the agent keeps a question open.
    pub(super) fn deny_after(self: &Arc<Self>, limit: Duration) {
        let (service, open) = (self.service.clone(), Arc::downgrade(self));
        let asked_in = self.asked_in.clone();
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            written(asked_in).await;
            if let Some(service) = service.upgrade() {
                service.deny(open, limit).await;
            }
        });
    }
}

/// Waits until the question of a turn is in the log.
async fn written(asked_in: Weak<TurnState>) {
    if let Some(turn) = asked_in.upgrade() {
        turn.signal.settled().await;
    }
}

/// The agent has let go of the request.
impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let service = self.service.upgrade();
        if let Some(service) = &service {
            service.questions.remove(self);
        }
        let is_stopping = service.as_ref().is_none_or(|service| service.is_closing());
        let (rule, why) = match *self.state.get_mut() {
            State::Settled => return,
            State::TaskEnded(why) => (why, None),
            State::TimedOut(limit) => ("time limit", Some(no_answer(limit))),
            State::Waits if is_stopping => ("the server stopped", None),
            State::Waits => ("the agent ended", Some("the agent does not wait any more".to_owned())),
        };
        let _ = self.recorder.record(&self.request, false, rule);
        if let (Some(service), Some(why), Ok(runtime)) = (service, why, tokio::runtime::Handle::try_current())
        {
            let (caller, task, input_id) = (self.caller.clone(), self.task.clone(), self.input_id.clone());
            let asked_in = self.asked_in.clone();
            runtime.spawn(async move {
                written(asked_in).await;
                service.void_question(&caller, &task, &input_id, &why).await;
            });
        }
    }
}

impl fmt::Debug for OpenQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenQuestion")
            .field("task", &self.task)
            .field("id", &self.input_id)
            .finish_non_exhaustive()
    }
}

impl Denial {
    pub(crate) fn new(question: Weak<OpenQuestion>, limit: Duration) -> Self {
        Self { question, limit, begun: OnceLock::new() }
    }

    /// Begins the turn that gives the denial: the task says what was denied, and works again. Returns `false` if the agent does not
    /// wait any more, or if the task has an answer. Then the turn must not run.
    pub(crate) fn begin(&self, turn: &Turn) -> bool {
        let Some(open) = self.question.upgrade() else { return false };
        let is_asked = turn.inner.before().is_some_and(|before| open.is_asked_by(&before.task()));
        if !is_asked || *open.state.lock() != State::Waits {
            return false;
        }
        let told = turn.tell_denial(&open.request, &no_answer(self.limit));
        told.is_ok() && self.begun.set(()).is_ok()
    }

    /// The answer in the place of the caller, if this denial is about the question.
    pub(super) fn answer(&self, open: &Arc<OpenQuestion>) -> Option<PermissionAnswer> {
        let is_same = std::ptr::eq(self.question.as_ptr(), Arc::as_ptr(open));
        (is_same && self.begun.get().is_some()).then(|| {
            open.settle();
            let _ = open.recorder.record(&open.request, false, "time limit");
            PermissionAnswer::denied(&open.request)
        })
    }
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

impl Turn {
    /// Fails in a turn that has no message of its own: it gives a denial to work that waits for it, and that work has ended. An agent
    /// calls this where it begins new work for a message.
    pub fn require_message(&self) -> AgentResult {
        match &self.inner.denial {
            None => Ok(()),
            Some(_) => Err(crate::AgentError::public("the agent ended while it waited for a permission")),
        }
    }
}
