//! Contexts against a model: random messages, questions, follow-ups, cancels, pauses and restarts.
//!
//! The model of a context has the message that runs and those that wait. The agent writes down what it gets, so its notes are the
//! conversation that must survive everything. It also counts what it gets while the context lives: an idle context is put away in time
//! or for another one, and not before. A task that has asked a question keeps its context until the answer. The first message that
//! names a directory binds the context to it for ever.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Agent, AgentResult, BoxAgent, Busy, ContextHold, Conversation, EndState, MemoryStore, Turn, Workspaces,
};
use attache_protocol::{JsonObject, Message, TaskId, TaskState};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::{Host, host_on, in_virtual_time, say, settle_down};

const IDLE: Duration = Duration::from_secs(60);
const CONTEXTS: usize = 3;
const CALLERS: usize = 2;
const QUEUE: usize = 2;
const MAX: usize = 4;
/// How many contexts of a caller may be held, and how many of its own live before it gives way to itself.
const SHARE: usize = 2;
/// What the text of a message begins with whose turn ends with a question.
const ASK: &str = "ask";

#[derive(Debug, Clone)]
enum Action {
    Send {
        caller: usize,
        context: usize,
        /// Whether its turn ends with a question, which keeps the context.
        asks: bool,
        /// The directory that it names.
        directory: Option<usize>,
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
        24 => (place(), prop::bool::weighted(0.3), prop_oneof![4 => Just(None), 1 => (0..2_usize).prop_map(Some)])
            .prop_map(|((caller, context), asks, directory)| Action::Send { caller, context, asks, directory }),
        8 => place().prop_map(|(caller, context)| Action::FollowUp { caller, context }),
        16 => place().prop_map(|(caller, context)| Action::Finish { caller, context }),
        4 => (place(), 0..3_usize)
            .prop_map(|((caller, context), position)| Action::Cancel { caller, context, position }),
        // Rare enough that contexts become many and hold each other up in between.
        3 => prop::sample::select(vec![1, 61, 200]).prop_map(|seconds| Action::Pause(Duration::from_secs(seconds))),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 1..100)
}

type Key = (usize, usize);

/// What the agent does, as the test sees it.
#[derive(Default)]
struct Watch {
    /// The contexts that have a running turn.
    active: Mutex<HashSet<String>>,
    /// Lets the running turn of a context end.
    ends: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The contexts that wait for an answer, by their tasks.
    holds: Mutex<HashMap<TaskId, ContextHold>>,
}

/// The agent of the test.
struct Notes {
    watch: Arc<Watch>,
    rules: Arc<Conversation>,
}

impl Agent for Notes {
    async fn run(&self, turn: Turn) -> AgentResult {
        note(turn, &self.watch).await
    }

    fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
        Some(self.rules.clone())
    }

    fn task_ended(&self, task: &TaskId) {
        let hold = self.watch.holds.lock().remove(task);
        drop(hold);
    }
}

async fn note(turn: Turn, watch: &Watch) -> AgentResult {
    let context = turn.context();
    // The answer has arrived.
    let hold = watch.holds.lock().remove(turn.task_id());
    drop(hold);
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
    if turn.text().starts_with(ASK) {
        if let Some(hold) = context.hold() {
            watch.holds.lock().insert(turn.task_id().clone(), hold);
        }
        return turn.ask("go on?").await;
    }
    turn.complete().await
}

fn agent(watch: &Arc<Watch>, busy: Busy, folder: &Path) -> BoxAgent {
    let rules = Conversation::default().with(|rules| {
        (rules.contexts.busy, rules.contexts.idle, rules.contexts.queue_limit) = (busy, IDLE, QUEUE);
        rules.contexts.max = MAX;
        rules.contexts.end_state = EndState::InputRequired;
        rules.workspaces = Workspaces::default().allow([folder]);
    });
    Notes { watch: watch.clone(), rules: Arc::new(rules) }.boxed()
}

/// A context in the model.
#[derive(Default)]
struct Model {
    running: Option<(String, TaskId)>,
    waiting: VecDeque<(String, TaskId)>,
    /// The task that waits for an answer. Others wait for it.
    held: Option<TaskId>,
    /// What the agent has got.
    notes: Vec<String>,
    /// The task whose turn has ended last. It takes follow-ups.
    last: Option<TaskId>,
    /// How many messages the agent has got in this life of the context.
    seen: usize,
    /// Whether it was used since the last restart, and not put away for another one.
    began: bool,
    /// Since when it is not in use.
    idle_since: Option<Instant>,
    /// The directory that it is bound to.
    directory: Option<usize>,
}

impl Model {
    fn is_in_use(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty() || self.held.is_some()
    }

    fn lives(&self) -> bool {
        self.began && self.idle_since.is_none_or(|since| since.elapsed() < IDLE)
    }

    fn put_away(&mut self) {
        (self.began, self.seen, self.idle_since) = (false, 0, None);
    }

    fn has(&self, task: &TaskId) -> bool {
        self.running.iter().chain(&self.waiting).any(|(_, other)| other == task)
    }

    /// Whether a message is refused because of the others of this context, which lives.
    fn is_busy(&self, answers: bool, busy: Busy) -> bool {
        let is_held = self.held.is_some() && !answers;
        let ahead = match answers {
            true => 0,
            false => usize::from(self.running.is_some()) + self.waiting.len(),
        };
        match busy {
            Busy::Reject => ahead > 0 || is_held,
            Busy::Queue => {
                let waiting = if self.running.is_none() && is_held { ahead } else { ahead.saturating_sub(1) };
                ahead > 0 && waiting >= QUEUE
            }
        }
    }

    /// The next message runs, if one can.
    fn begin_next(&mut self) {
        if self.running.is_none() && self.held.is_none() {
            self.running = self.waiting.pop_front();
            if let Some((text, _)) = &self.running {
                self.notes.push(text.clone());
                self.seen += 1;
            }
        }
        self.idle_since = (!self.is_in_use()).then(Instant::now);
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
    folder: tempfile::TempDir,
}

impl Test {
    fn new(busy: Busy) -> Self {
        let (store, watch) = (Arc::new(MemoryStore::new()), Arc::<Watch>::default());
        let folder = tempfile::tempdir().unwrap();
        for directory in 0..2 {
            std::fs::create_dir(folder.path().join(directory.to_string())).unwrap();
        }
        let host = host_on(store.clone(), agent(&watch, busy, folder.path()), |_, _| {});
        Self { host, store, watch, busy, model: BTreeMap::new(), sent: 0, folder }
    }

    async fn take(&mut self, action: Action) {
        // No two contexts are idle since the same time.
        tokio::time::sleep(Duration::from_millis(1)).await;
        match action {
            Action::Send { caller, context, asks, directory } => {
                self.send(caller, context, asks, directory).await;
            }
            Action::FollowUp { caller, context } => self.follow_up(caller, context).await,
            Action::Finish { caller, context } => self.finish(caller, context).await,
            Action::Cancel { caller, context, position } => self.cancel(caller, context, position).await,
            Action::Pause(time) => tokio::time::sleep(time).await,
            Action::Restart => self.restart().await,
        }
        settle_down().await;
    }

    async fn send(&mut self, caller: usize, context: usize, asks: bool, directory: Option<usize>) {
        self.sent += 1;
        let text = if asks { format!("{ASK}{}", self.sent) } else { self.sent.to_string() };
        let expected = self.makes_room((caller, context), directory);
        let sent = self.try_send((caller, context), &text, None, directory).await;
        assert_eq!(sent.is_some(), expected);
        if let Some(task) = sent {
            let model = self.model.entry((caller, context)).or_default();
            model.directory = model.directory.or(directory);
            model.began = true;
            model.waiting.push_back((text, task));
            model.begin_next();
        }
    }

    /// Sends a message to the task whose turn has ended last. It is the answer, if that task has asked.
    async fn follow_up(&mut self, caller: usize, context: usize) {
        let key = (caller, context);
        let model = self.model.entry(key).or_default();
        let Some(last) = model.last.clone().filter(|last| !model.has(last)) else { return };
        let answers = model.held.as_ref() == Some(&last);
        self.sent += 1;
        let text = self.sent.to_string();
        let expected = match answers {
            true => true,
            false => self.makes_room(key, None),
        };
        let sent = self.try_send(key, &text, Some(&last), None).await;
        assert_eq!(sent.is_some(), expected);
        if let Some(task) = sent {
            assert_eq!(task, last);
            let model = self.model.entry(key).or_default();
            model.began = true;
            match answers {
                // The answer goes before the others.
                true => {
                    model.held = None;
                    model.waiting.push_front((text, task));
                }
                false => model.waiting.push_back((text, task)),
            }
            model.begin_next();
        }
    }

    /// Whether a context accepts a message. If it has to begin for that, another one may be put away.
    fn makes_room(&mut self, key: Key, directory: Option<usize>) -> bool {
        let model = self.model.entry(key).or_default();
        let is_bound_elsewhere =
            directory.is_some() && model.directory.is_some() && model.directory != directory;
        if model.lives() {
            let is_busy = model.is_busy(false, self.busy);
            if !is_busy && !model.is_in_use() {
                // Also a message that is refused later was a use of the context.
                model.idle_since = Some(Instant::now());
            }
            return !is_busy && !is_bound_elsewhere;
        }
        model.put_away();
        if is_bound_elsewhere {
            return false;
        }
        let own = |(other, _): &(&Key, &Model)| other.0 == key.0;
        if self.model.iter().filter(own).filter(|(_, model)| model.held.is_some()).count() >= SHARE {
            return false;
        }
        let living: Vec<_> = self.model.iter().filter(|(_, model)| model.lives()).collect();
        if living.len() < MAX {
            return true;
        }
        let gives_way_to_itself = living.iter().filter(|entry| own(entry)).count() >= SHARE;
        let oldest = |only_own: bool| {
            let idle = living.iter().filter(|entry| !entry.1.is_in_use() && (!only_own || own(entry)));
            idle.min_by_key(|(_, model)| model.idle_since).map(|(key, _)| **key)
        };
        let oldest = oldest(gives_way_to_itself).or_else(|| oldest(false));
        let Some(oldest) = oldest else { return false };
        self.model.entry(oldest).or_default().put_away();
        true
    }

    /// Sends a message. Returns its task, if it was accepted.
    async fn try_send(
        &self,
        (caller, context): Key,
        text: &str,
        task: Option<&TaskId>,
        directory: Option<usize>,
    ) -> Option<TaskId> {
        let mut said = say(text).in_context(&format!("c{context}")).with_id(text).at_once();
        said.0.message.task_id = task.cloned();
        said.0.message.metadata = directory.map(|directory| {
            let path = self.folder.path().join(directory.to_string());
            JsonObject::new(&serde_json::json!({"attache": {"workspace": path}})).unwrap()
        });
        let sent = self.host.user(&format!("u{caller}")).try_send(said).await;
        sent.ok().map(|sent| sent.task().id)
    }

    async fn finish(&mut self, caller: usize, context: usize) {
        let Some(model) = self.model.get_mut(&(caller, context)) else { return };
        let Some((text, task)) = model.running.take() else { return };
        settle_down().await;
        let end = self.watch.ends.lock().get(&format!("u{caller} c{context}")).cloned();
        end.expect("the turn runs").add_permits(1);
        settle_down().await;
        let done = self.host.user(&format!("u{caller}")).get(&task).await;
        assert_eq!(done.status.state, TaskState::InputRequired);
        model.held = text.starts_with(ASK).then(|| task.clone());
        model.last = Some(task);
        // The result is that of its own turn.
        assert_eq!(done.artifacts[0].text(), model.answer());
        model.begin_next();
    }

    /// Cancels the message that runs, or one that waits, or the task that has asked.
    async fn cancel(&mut self, caller: usize, context: usize, position: usize) {
        let Some(model) = self.model.get_mut(&(caller, context)) else { return };
        let found = match (position, &model.held) {
            (0, Some(held)) => Some(held.clone()),
            (0, None) => model.running.as_ref().map(|(_, task)| task.clone()),
            (_, _) => model.waiting.get(position - 1).map(|(_, task)| task.clone()),
        };
        let Some(task) = found else { return };
        let canceled = self.host.user(&format!("u{caller}")).cancel(&task).await.expect("it runs or waits");
        assert_eq!(canceled.status.state, TaskState::Canceled);
        model.last.take_if(|last| *last == task);
        model.held.take_if(|held| *held == task);
        model.running.take_if(|(_, running)| *running == task);
        model.waiting.retain(|(_, waiting)| *waiting != task);
        settle_down().await;
        model.begin_next();
    }

    async fn restart(&mut self) {
        self.host.service.shutdown(Duration::ZERO).await;
        settle_down().await;
        self.watch = Arc::default();
        let agent = agent(&self.watch, self.busy, self.folder.path());
        self.host = host_on(self.store.clone(), agent, |_, _| {});
        for model in self.model.values_mut() {
            model.put_away();
            model.held = None;
            for (_, task) in model.running.take().into_iter().chain(model.waiting.drain(..)) {
                model.last.take_if(|last| *last == task);
            }
        }
    }

    /// Every context still has its conversation, and its directory.
    async fn check(mut self) {
        self.restart().await;
        let keys: Vec<Key> = self.model.keys().copied().collect();
        for (caller, context) in keys {
            let bound = self.model[&(caller, context)].directory;
            for directory in [bound.map(|bound| 1 - bound), bound] {
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.send(caller, context, false, directory).await;
                settle_down().await;
                self.finish(caller, context).await;
                settle_down().await;
            }
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
