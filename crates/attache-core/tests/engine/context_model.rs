//! Contexts against a model: random messages, follow-ups, cancels, pauses and restarts.
//!
//! The model of a context is a queue of texts. Its first one runs. The agent writes down what it gets, so its notes are the
//! conversation that must survive everything. It also counts what it gets while the context lives: an idle context is put away in time,
//! and not before.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Agent, AgentResult, BoxAgent, Busy, Conversation, EndState, MemoryStore, Turn, agent_fn, conversational,
};
use attache_protocol::{TaskId, TaskState};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::{Host, host_on, in_virtual_time, say, settle_down};

const IDLE: Duration = Duration::from_secs(60);
const CONTEXTS: usize = 3;
const CALLERS: usize = 2;
const QUEUE: usize = 2;

#[derive(Debug, Clone)]
enum Action {
    Send {
        caller: usize,
        context: usize,
    },
    /// A message to the task whose turn has ended last.
    FollowUp {
        caller: usize,
        context: usize,
    },
    /// The running turn of a context ends.
    Finish {
        caller: usize,
        context: usize,
    },
    /// A message is canceled: the running one, or one in the queue.
    Cancel {
        caller: usize,
        context: usize,
        position: usize,
    },
    Pause(Duration),
    Restart,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let place = || (0..CALLERS, 0..CONTEXTS);
    let action = prop_oneof![
        6 => place().prop_map(|(caller, context)| Action::Send { caller, context }),
        3 => place().prop_map(|(caller, context)| Action::FollowUp { caller, context }),
        4 => place().prop_map(|(caller, context)| Action::Finish { caller, context }),
        2 => (place(), 0..3_usize)
            .prop_map(|((caller, context), position)| Action::Cancel { caller, context, position }),
        2 => prop::sample::select(vec![1, 61, 200]).prop_map(|seconds| Action::Pause(Duration::from_secs(seconds))),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 1..40)
}

type Key = (usize, usize);

/// What the agent does, as the test sees it.
#[derive(Default)]
struct Watch {
    /// The contexts that have a running turn.
    active: Mutex<HashSet<String>>,
    /// Lets the running turn of a context end.
    ends: Mutex<HashMap<String, Arc<Semaphore>>>,
}

async fn note(turn: Turn, watch: Arc<Watch>) -> AgentResult {
    let context = turn.context();
    let key = format!("{} {}", context.owner().principal, context.id());
    assert!(watch.active.lock().insert(key.clone()), "two turns of `{key}` run at once");
    let seen = context.runtime::<AtomicUsize>("seen").unwrap_or_default();
    context.keep("seen", seen.clone());
    let seen = seen.fetch_add(1, Ordering::Relaxed) + 1;
    let mut notes = context.state::<Vec<String>>("notes").await?.unwrap_or_default();
    notes.push(turn.text());
    context.set_state("notes", &notes).await?;
    let end = watch.ends.lock().entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(0))).clone();
    tokio::select! {
        permit = end.acquire() => permit?.forget(),
        () = turn.cancelled() => {}
    }
    watch.active.lock().remove(&key);
    turn.artifact("notes").text(format!("{seen}: {}", notes.join(" "))).await?;
    turn.complete().await
}

fn agent(watch: &Arc<Watch>, busy: Busy) -> BoxAgent {
    let watch = watch.clone();
    let rules = Conversation::default().with(|rules| {
        (rules.contexts.busy, rules.contexts.idle, rules.contexts.queue_limit) = (busy, IDLE, QUEUE);
        rules.contexts.end_state = EndState::InputRequired;
    });
    conversational(agent_fn(move |turn: Turn| note(turn, watch.clone())), rules).boxed()
}

/// A context in the model.
#[derive(Default)]
struct Model {
    /// Messages that run (the first one) or wait.
    queue: VecDeque<(String, TaskId)>,
    /// What the agent has got.
    notes: Vec<String>,
    /// The task whose turn has ended last. It takes follow-ups.
    last: Option<TaskId>,
    /// How many messages the agent has got in this life of the context.
    seen: usize,
    /// Since when nothing runs or waits.
    idle_since: Option<Instant>,
}

impl Model {
    /// The first message of the queue runs.
    fn begin_first(&mut self) {
        match self.queue.front() {
            Some((text, _)) => {
                self.notes.push(text.clone());
                if self.idle_since.take().is_some_and(|since| since.elapsed() >= IDLE) {
                    // The context was put away.
                    self.seen = 0;
                }
                self.seen += 1;
            }
            None => self.idle_since = Some(Instant::now()),
        }
    }

    /// What the agent answers to the message that runs.
    fn answer(&self) -> String {
        format!("{}: {}", self.seen, self.notes.join(" "))
    }
}

struct Test {
    host: Host,
    store: Arc<MemoryStore>,
    watch: Arc<Watch>,
    busy: Busy,
    model: BTreeMap<Key, Model>,
    sent: usize,
}

impl Test {
    fn new(busy: Busy) -> Self {
        let (store, watch) = (Arc::new(MemoryStore::new()), Arc::<Watch>::default());
        let host = host_on(store.clone(), agent(&watch, busy), |_, _| {});
        Self { host, store, watch, busy, model: BTreeMap::new(), sent: 0 }
    }

    async fn take(&mut self, action: Action) {
        match action {
            Action::Send { caller, context } => self.send(caller, context, false).await,
            Action::FollowUp { caller, context } => self.send(caller, context, true).await,
            Action::Finish { caller, context } => self.finish(caller, context).await,
            Action::Cancel { caller, context, position } => self.cancel(caller, context, position).await,
            Action::Pause(time) => tokio::time::sleep(time).await,
            Action::Restart => self.restart().await,
        }
        settle_down().await;
    }

    async fn send(&mut self, caller: usize, context: usize, follows: bool) {
        let model = self.model.entry((caller, context)).or_default();
        let is_queued = |last: &TaskId| model.queue.iter().any(|(_, task)| task == last);
        let last = model.last.clone().filter(|last| follows && !is_queued(last));
        if follows && last.is_none() {
            return;
        }
        self.sent += 1;
        let text = self.sent.to_string();
        let mut said = say(&text).in_context(&format!("c{context}")).with_id(&text).at_once();
        said.0.message.task_id.clone_from(&last);
        let sent = self.host.user(&format!("u{caller}")).try_send(said).await;
        let limit = match self.busy {
            Busy::Reject => 0,
            Busy::Queue => QUEUE,
        };
        assert_eq!(sent.is_ok(), model.queue.len() <= limit, "{:?}", sent.as_ref().err());
        if let Ok(sent) = sent {
            let task = sent.task().id;
            assert!(last.is_none_or(|last| last == task));
            model.queue.push_back((text, task));
            if model.queue.len() == 1 {
                model.begin_first();
            }
        }
    }

    async fn finish(&mut self, caller: usize, context: usize) {
        let Some(model) = self.model.get_mut(&(caller, context)) else { return };
        let Some((_, task)) = model.queue.pop_front() else { return };
        settle_down().await;
        let end = self.watch.ends.lock().get(&format!("u{caller} c{context}")).cloned();
        end.expect("the turn runs").add_permits(1);
        settle_down().await;
        let done = self.host.user(&format!("u{caller}")).get(&task).await;
        assert_eq!(done.status.state, TaskState::InputRequired);
        model.last = Some(task);
        // The result is that of its own turn.
        assert_eq!(done.artifacts[0].text(), model.answer());
        model.begin_first();
    }

    async fn cancel(&mut self, caller: usize, context: usize, position: usize) {
        let Some(model) = self.model.get_mut(&(caller, context)) else { return };
        let Some((_, task)) = model.queue.remove(position) else { return };
        let canceled = self.host.user(&format!("u{caller}")).cancel(&task).await.expect("it runs or waits");
        assert_eq!(canceled.status.state, TaskState::Canceled);
        model.last.take_if(|last| *last == task);
        settle_down().await;
        if position == 0 {
            model.begin_first();
        }
    }

    async fn restart(&mut self) {
        self.host.service.shutdown(Duration::ZERO).await;
        settle_down().await;
        self.watch = Arc::default();
        self.host = host_on(self.store.clone(), agent(&self.watch, self.busy), |_, _| {});
        for model in self.model.values_mut() {
            (model.seen, model.idle_since) = (0, None);
            for (_, task) in model.queue.drain(..) {
                model.last.take_if(|last| *last == task);
            }
        }
    }

    /// Every context still has its conversation.
    async fn check(mut self) {
        self.restart().await;
        let keys: Vec<Key> = self.model.keys().copied().collect();
        for (caller, context) in keys {
            self.send(caller, context, false).await;
            self.finish(caller, context).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn conversations_survive_whatever_happens(actions in actions(), rejects in any::<bool>()) {
        in_virtual_time(async {
            let mut test = Test::new(if rejects { Busy::Reject } else { Busy::Queue });
            for action in actions {
                test.take(action).await;
            }
            test.check().await;
        });
    }
}
