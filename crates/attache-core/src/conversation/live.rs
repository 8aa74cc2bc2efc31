//! The contexts that live in this process: one turn at a time each, at most so many, and put away when they are idle.
//!
//! A turn gets a seat when its message is accepted, and enters the context when it could run. The seats that have entered run in the
//! order in which they were given. A turn that has not entered cannot hold back others, so two queues (of a task and of its context)
//! cannot wait for each other.
//!
//! A seat whose task has settled is about to end: a client that got its result may send the next message at once, and must not be
//! told that the context is busy.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use attache_protocol::{ContextId, TaskId};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::rules::{Busy, ContextRules};
use crate::Owner;

/// The target of the lines about contexts.
const LOG: &str = "attache::context";

/// Why a context ends that an operator has closed.
const CLOSED: &str = "an operator has closed it";

/// A context of one owner. Two owners can use the same id for different contexts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextKey {
    pub(crate) owner: Owner,
    pub(crate) id: ContextId,
}

/// What agents keep for a live context, by their names.
pub(crate) type Runtimes = Mutex<HashMap<String, Arc<dyn Any + Send + Sync>>>;

/// The contexts that live in this process.
#[derive(Default)]
pub(crate) struct LiveContexts(Mutex<Table>);

#[derive(Default)]
struct Table {
    live: HashMap<ContextKey, LiveContext, RandomState>,
    /// Numbers lives of contexts and seats.
    next: u64,
    /// Whether a background task puts idle contexts away.
    reaping: bool,
    /// Whether no more turns may begin.
    stopped: bool,
}

struct LiveContext {
    /// Tells this life of the context from a later one.
    life: u64,
    /// The turns that have a seat, by the number of the seat.
    seats: BTreeMap<u64, SeatState>,
    running: Option<u64>,
    /// The tasks that hold the context between turns.
    held: HashMap<TaskId, usize>,
    /// When the context is put away. `None` while it is in use.
    ends: Option<(Instant, Instant)>,
    idle: std::time::Duration,
    /// Whether an operator has closed the context. It ends as soon as it is not in use.
    closed: bool,
    runtimes: Arc<Runtimes>,
}

struct SeatState {
    task: TaskId,
    /// Set when the turn may run. `None` until the turn has entered.
    granted: Option<Arc<SetOnce<()>>>,
    ending: bool,
}

/// Why a message gets no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// A turn of the context runs, or a task of it waits for an answer.
    Busy,
    /// Too many messages wait for the context.
    QueueFull(usize),
    /// Too many contexts are in use.
    TooMany(usize),
    /// Too many contexts of the caller wait for its answers.
    TooManyHeld(usize),
}

/// The right of a turn to run in a context, in its order. Dropping it gives the right back.
pub(crate) struct Seat {
    table: Arc<LiveContexts>,
    key: ContextKey,
    number: u64,
    life: u64,
    task: TaskId,
    runtimes: Arc<Runtimes>,
}

/// Keeps a context for one task, between its turns.
pub(crate) struct Hold {
    table: Arc<LiveContexts>,
    key: ContextKey,
    life: u64,
    task: TaskId,
}

impl LiveContext {
    fn is_in_use(&self) -> bool {
        !self.seats.is_empty() || !self.held.is_empty()
    }

    fn is_held_for_another(&self, task: &TaskId) -> bool {
        !self.held.is_empty() && !self.held.contains_key(task)
    }

    /// The seats that a message for a task comes after. The answer to a task that holds the context goes before the other tasks, which
    /// wait for it.
    fn seats_before<'a>(&'a self, task: &'a TaskId) -> impl Iterator<Item = &'a SeatState> {
        let goes_first = self.held.contains_key(task);
        self.seats.values().filter(move |seat| !goes_first || seat.task == *task)
    }

    /// Whether no turn runs, because another task waits for an answer.
    fn is_stopped_for(&self, task: &TaskId) -> bool {
        self.running.is_none() && self.is_held_for_another(task)
    }

    /// Why a message for a task gets no seat now.
    fn refusal(&self, task: &TaskId, rules: &ContextRules) -> Option<NoSeat> {
        let busy = self.seats_before(task).any(|seat| !seat.ending) || self.is_held_for_another(task);
        let ahead = self.seats_before(task).count();
        // One of them runs, unless all wait for the answer of another task.
        let waiting = if self.is_stopped_for(task) { ahead } else { ahead.saturating_sub(1) };
        match rules.busy {
            Busy::Reject => busy.then_some(NoSeat::Busy),
            Busy::Queue => {
                (ahead > 0 && waiting >= rules.queue_limit).then_some(NoSeat::QueueFull(rules.queue_limit))
            }
        }
    }

    /// Lets the next turn run, if none does.
    fn grant_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        let next = self.seats.iter().find_map(|(number, seat)| {
            let granted = seat.granted.as_ref().filter(|_| !self.is_held_for_another(&seat.task))?;
            Some((*number, granted.clone()))
        });
        if let Some((number, granted)) = next {
            self.running = Some(number);
            let _ = granted.set(());
        }
    }

    /// Starts the time until the context is put away, if it is not in use.
    fn rest(&mut self) {
        self.ends = match self.is_in_use() {
            true => None,
            false => {
                let now = Instant::now();
                // A time that cannot be represented never comes.
                now.checked_add(self.idle).map(|end| (end, now))
            }
        };
    }
}

/// How many contexts of one owner may be held, so that one caller with open questions does not keep out all others. An owner with as
/// many live contexts gives way to itself.
fn share(max: usize) -> usize {
    max.div_ceil(2)
}

impl Table {
    /// How many contexts of an owner are held.
    fn held(&self, owner: &Owner) -> usize {
        self.live.iter().filter(|(key, live)| key.owner == *owner && !live.held.is_empty()).count()
    }

    /// The context that gives way to one more of an owner: the one that is idle for longest, of the owner itself if it has its share.
    fn gives_way(&self, owner: &Owner, share: usize) -> Option<ContextKey> {
        let own = self.live.keys().filter(|key| key.owner == *owner).count();
        let idle = |only_own: bool| {
            let idle = self.live.iter().filter(|(_, live)| !live.is_in_use());
            let idle = idle.filter(|(key, _)| !only_own || key.owner == *owner);
            let oldest = idle.min_by_key(|(_, live)| live.ends.map(|(_, since)| since));
            oldest.map(|(key, _)| key.clone())
        };
        if own >= share { idle(true).or_else(|| idle(false)) } else { idle(false) }
    }
}

impl LiveContexts {
    /// Whether a context lives.
    pub(crate) fn contains(&self, key: &ContextKey) -> bool {
        self.0.lock().live.contains_key(key)
    }

    /// Whether a context that lives refuses a message for a task now.
    pub(crate) fn refuses(&self, key: &ContextKey, task: &TaskId, rules: &ContextRules) -> bool {
        self.0.lock().live.get(key).is_some_and(|live| live.refusal(task, rules).is_some())
    }

    /// Gives a seat in a context, and lets the context live if it does not. `forced` is for turns that run again after a restart:
    /// their messages were accepted before.
    pub(crate) fn seat(
        self: &Arc<Self>,
        key: &ContextKey,
        task: &TaskId,
        rules: &ContextRules,
        forced: bool,
    ) -> Result<Seat, NoSeat> {
        let mut guard = self.0.lock();
        let table = &mut *guard;
        let mut evicted = None;
        if let Some(live) = table.live.get(key) {
            match live.refusal(task, rules) {
                Some(no) if !forced => return Err(no),
                Some(_) | None => {}
            }
        } else if !forced {
            let share = share(rules.max);
            if table.held(&key.owner) >= share {
                return Err(NoSeat::TooManyHeld(share));
            }
            if table.live.len() >= rules.max {
                let Some(oldest) = table.gives_way(&key.owner, share) else {
                    return Err(NoSeat::TooMany(rules.max));
                };
                evicted = table.live.remove(&oldest);
                log_end(&oldest, "another context needed its place");
            }
        }
        table.next += 1;
        let (life, idle) = (table.next, rules.idle);
        let live = table.live.entry(key.clone()).or_insert_with(|| {
            log_start(key);
            LiveContext {
                life,
                seats: BTreeMap::new(),
                running: None,
                held: HashMap::new(),
                ends: None,
                idle,
                closed: false,
                runtimes: Arc::default(),
            }
        });
        live.idle = idle;
        live.ends = None;
        table.next += 1;
        let number = table.next;
        live.seats.insert(number, SeatState { task: task.clone(), granted: None, ending: false });
        let (life, runtimes) = (live.life, live.runtimes.clone());
        drop(guard);
        // What the agent kept ends outside of the lock.
        drop(evicted);
        Ok(Seat { table: self.clone(), key: key.clone(), number, life, task: task.clone(), runtimes })
    }

    /// The contexts that live, except those that are known to be closed.
    pub(crate) fn open_keys(&self) -> Vec<ContextKey> {
        let table = self.0.lock();
        table.live.iter().filter(|(_, live)| !live.closed).map(|(key, _)| key.clone()).collect()
    }

    /// Ends a context that an operator has closed: now, or when its turns have ended and no task of it waits for an answer.
    pub(crate) fn close(&self, key: &ContextKey) {
        let mut table = self.0.lock();
        let Some(live) = table.live.get_mut(key) else { return };
        live.closed = true;
        let ended = if live.is_in_use() { None } else { table.live.remove(key) };
        drop(table);
        if ended.is_some() {
            log_end(key, CLOSED);
        }
        // What the agent kept ends outside of the lock.
        drop(ended);
    }

    /// Lets no more turns begin. Those that run go on.
    pub(crate) fn stop(&self) {
        self.0.lock().stopped = true;
    }

    /// Whether a task holds its context, so that it goes on with an answer.
    pub(crate) fn is_held_by(&self, task: &TaskId) -> bool {
        self.0.lock().live.values().any(|live| live.held.contains_key(task))
    }

    /// Whether turns of other tasks have begun to wait until this task, which holds its context, has got an answer.
    pub(crate) fn is_awaited(&self, task: &TaskId) -> bool {
        let waits = |seat: &SeatState| seat.task != *task && seat.granted.is_some();
        let held = |live: &&LiveContext| live.held.contains_key(task);
        self.0.lock().live.values().filter(held).any(|live| live.seats.values().any(waits))
    }

    /// Changes a context in the life that a seat or a hold belongs to.
    fn change(self: &Arc<Self>, key: &ContextKey, life: u64, change: impl FnOnce(&mut LiveContext)) {
        let mut table = self.0.lock();
        let stopped = table.stopped;
        let Some(live) = table.live.get_mut(key).filter(|live| live.life == life) else { return };
        change(live);
        if !stopped {
            live.grant_next();
        }
        live.rest();
        if live.closed && !live.is_in_use() {
            let ended = table.live.remove(key);
            drop(table);
            log_end(key, CLOSED);
            // What the agent kept ends outside of the lock.
            drop(ended);
        } else if live.ends.is_some() && !table.reaping {
            table.reaping = self.reap();
        }
    }

    /// Starts the background task that puts idle contexts away. It ends when no context is idle.
    fn reap(self: &Arc<Self>) -> bool {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return false };
        let contexts = Arc::downgrade(self);
        runtime.spawn(async move {
            while let Some(next) = Self::put_away(&contexts) {
                tokio::time::sleep_until(next).await;
            }
        });
        true
    }

    /// Puts contexts away whose time is over. Returns when to look again.
    fn put_away(contexts: &Weak<Self>) -> Option<Instant> {
        let contexts = contexts.upgrade()?;
        let now = Instant::now();
        let mut table = contexts.0.lock();
        let over = |live: &LiveContext| live.ends.is_some_and(|(end, _)| end <= now);
        let ended: Vec<_> = table.live.extract_if(|_, live| over(live)).collect();
        let next = table.live.values().filter_map(|live| live.ends).map(|(end, _)| end).min();
        table.reaping = next.is_some();
        drop(table);
        for (key, live) in ended {
            log_end(&key, "idle");
            drop(live);
        }
        next
    }
}

impl Drop for LiveContexts {
    fn drop(&mut self) {
        for key in self.0.get_mut().live.keys() {
            log_end(key, "the server stopped");
        }
    }
}

fn log_start(key: &ContextKey) {
    tracing::info!(
        target: LOG, agent = key.owner.agent.as_deref(), caller = %key.owner.principal, context = %key.id, "context started"
    );
}

fn log_end(key: &ContextKey, reason: &str) {
    tracing::info!(
        target: LOG, agent = key.owner.agent.as_deref(), caller = %key.owner.principal, context = %key.id, reason, "context ended"
    );
}

impl Seat {
    /// Joins the turns that could run. The result is set when this one may. Further calls return the same.
    pub(crate) fn enter(&self) -> Arc<SetOnce<()>> {
        let granted = Arc::<SetOnce<()>>::default();
        let mut entered = granted.clone();
        self.table.change(&self.key, self.life, |live| {
            if let Some(seat) = live.seats.get_mut(&self.number) {
                entered = seat.granted.get_or_insert(granted).clone();
            }
        });
        entered
    }

    /// Says whether the task has settled, so that the turn is about to end.
    pub(crate) fn set_ending(&self, ending: bool) {
        let mut table = self.table.0.lock();
        let live = table.live.get_mut(&self.key).filter(|live| live.life == self.life);
        if let Some(seat) = live.and_then(|live| live.seats.get_mut(&self.number)) {
            seat.ending = ending;
        }
    }

    /// Gives the seat back.
    pub(crate) fn leave(&self) {
        self.table.change(&self.key, self.life, |live| {
            live.seats.remove(&self.number);
            live.running.take_if(|running| *running == self.number);
        });
    }

    /// Keeps the context for the task of this turn.
    pub(crate) fn hold(&self) -> Hold {
        self.table.change(&self.key, self.life, |live| {
            *live.held.entry(self.task.clone()).or_default() += 1;
        });
        let (table, key) = (self.table.clone(), self.key.clone());
        Hold { table, key, life: self.life, task: self.task.clone() }
    }

    pub(crate) fn key(&self) -> &ContextKey {
        &self.key
    }

    pub(crate) fn runtimes(&self) -> &Arc<Runtimes> {
        &self.runtimes
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.table.change(&self.key, self.life, |live| {
            let rest = live.held.get_mut(&self.task).map(|count| {
                *count -= 1;
                *count
            });
            if rest == Some(0) {
                live.held.remove(&self.task);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(id: &str) -> ContextKey {
        ContextKey { owner: Owner::default(), id: id.into() }
    }

    fn rules(change: impl FnOnce(&mut ContextRules)) -> ContextRules {
        let mut rules = ContextRules::default();
        change(&mut rules);
        rules
    }

    fn seat(table: &Arc<LiveContexts>, id: &str, task: &str, rules: &ContextRules) -> Result<Seat, NoSeat> {
        table.seat(&key(id), &task.into(), rules, false)
    }

    fn is_set(granted: &SetOnce<()>) -> bool {
        granted.get().is_some()
    }

    #[tokio::test]
    async fn turns_of_a_context_run_in_order_and_contexts_at_the_same_time() {
        let (table, rules) = (Arc::<LiveContexts>::default(), ContextRules::default());
        let one = seat(&table, "a", "1", &rules).unwrap();
        let two = seat(&table, "a", "2", &rules).unwrap();
        let three = seat(&table, "a", "3", &rules).unwrap();
        let other = seat(&table, "b", "4", &rules).unwrap();
        let (first, third) = (one.enter(), three.enter());
        assert!(is_set(&first) && is_set(&one.enter()) && is_set(&other.enter()) && !is_set(&third));
        // The second one was accepted before the third, and enters before the first one leaves.
        let second = two.enter();
        one.leave();
        assert!(is_set(&second) && !is_set(&third));
        drop(two);
        assert!(is_set(&third));
    }

    #[tokio::test]
    async fn a_turn_that_has_not_entered_holds_back_no_other() {
        let (table, rules) = (Arc::<LiveContexts>::default(), ContextRules::default());
        let (_one, two) = (seat(&table, "a", "1", &rules).unwrap(), seat(&table, "a", "2", &rules).unwrap());
        assert!(is_set(&two.enter()));
    }

    #[tokio::test]
    async fn a_busy_context_refuses_until_the_task_has_settled() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.busy = Busy::Reject));
        let one = seat(&table, "a", "1", &rules).unwrap();
        assert_eq!(seat(&table, "a", "2", &rules).err(), Some(NoSeat::Busy));
        assert_eq!(seat(&table, "a", "1", &rules).err(), Some(NoSeat::Busy));
        one.enter();
        one.set_ending(true);
        let two = seat(&table, "a", "2", &rules).unwrap();
        assert_eq!(seat(&table, "a", "3", &rules).err(), Some(NoSeat::Busy));
        let second = two.enter();
        assert!(!is_set(&second));
        drop(one);
        assert!(is_set(&second));
    }

    #[tokio::test]
    async fn the_queue_of_a_context_has_a_bound() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.queue_limit = 1));
        let one = seat(&table, "a", "1", &rules).unwrap();
        let _two = seat(&table, "a", "2", &rules).unwrap();
        assert_eq!(seat(&table, "a", "3", &rules).err(), Some(NoSeat::QueueFull(1)));
        drop(one);
        assert!(seat(&table, "a", "3", &rules).is_ok());
    }

    #[tokio::test]
    async fn a_task_that_holds_its_context_goes_first() {
        let (table, rules) = (Arc::<LiveContexts>::default(), ContextRules::default());
        let one = seat(&table, "a", "1", &rules).unwrap();
        one.enter();
        let hold = one.hold();
        assert!(table.is_held_by(&"1".into()));
        drop(one);
        let other = seat(&table, "a", "2", &rules).unwrap();
        let waits = other.enter();
        assert!(!is_set(&waits));
        let answer = seat(&table, "a", "1", &rules).unwrap();
        assert!(is_set(&answer.enter()));
        drop(answer);
        assert!(!is_set(&waits));
        drop(hold);
        assert!(is_set(&waits));
    }

    #[tokio::test]
    async fn the_answer_to_a_task_that_holds_its_context_passes_a_full_queue() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.queue_limit = 1));
        let one = seat(&table, "a", "1", &rules).unwrap();
        one.enter();
        let _hold = one.hold();
        drop(one);
        assert!(!table.is_awaited(&"1".into()));
        let two = seat(&table, "a", "2", &rules).unwrap();
        assert!(!table.is_awaited(&"1".into()));
        two.enter();
        assert!(table.is_awaited(&"1".into()) && !table.is_awaited(&"2".into()));
        assert_eq!(seat(&table, "a", "3", &rules).err(), Some(NoSeat::QueueFull(1)));
        let answer = seat(&table, "a", "1", &rules).unwrap();
        assert!(is_set(&answer.enter()));
        let _second = seat(&table, "a", "1", &rules).unwrap();
        assert_eq!(seat(&table, "a", "1", &rules).err(), Some(NoSeat::QueueFull(1)));
    }

    #[tokio::test]
    async fn a_held_context_refuses_other_tasks_and_takes_one_answer() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.busy = Busy::Reject));
        let one = seat(&table, "a", "1", &rules).unwrap();
        one.enter();
        let hold = one.hold();
        one.set_ending(true);
        assert_eq!(seat(&table, "a", "2", &rules).err(), Some(NoSeat::Busy));
        drop(one);
        assert_eq!(seat(&table, "a", "2", &rules).err(), Some(NoSeat::Busy));
        let answer = seat(&table, "a", "1", &rules).unwrap();
        assert_eq!(seat(&table, "a", "1", &rules).err(), Some(NoSeat::Busy));
        drop((answer, hold));
        assert!(seat(&table, "a", "2", &rules).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_context_that_is_held_is_not_put_away() {
        let (table, rules) = (
            Arc::<LiveContexts>::default(),
            rules(|rules| (rules.idle, rules.max) = (Duration::from_secs(60), 1)),
        );
        let one = seat(&table, "a", "1", &rules).unwrap();
        one.enter();
        let hold = one.hold();
        drop(one);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(table.is_held_by(&"1".into()));
        assert_eq!(seat(&table, "b", "2", &rules).err(), Some(NoSeat::TooManyHeld(1)));
        drop(hold);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(table.0.lock().live.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_holds_half_of_the_contexts_and_gives_way_to_itself() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.max = 4));
        let seat_of = |owner: &str, id: &str| {
            let owner = Owner { principal: crate::Principal::named(owner), ..Owner::default() };
            table.seat(&ContextKey { owner, id: id.into() }, &id.into(), &rules, false)
        };
        let hold = |id: &str| seat_of("greedy", id).map(|seat| seat.hold());
        let holds = [hold("1").unwrap(), hold("2").unwrap()];
        assert_eq!(hold("3").err(), Some(NoSeat::TooManyHeld(2)));
        // Others have the rest, and a context that lives goes on.
        drop(seat_of("quiet", "4").unwrap());
        assert!(seat_of("greedy", "1").is_ok());
        drop(holds);
        tokio::time::sleep(Duration::from_secs(1)).await;
        for id in 5..20 {
            drop(seat_of("greedy", &id.to_string()).unwrap());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let owners: Vec<_> = table.0.lock().live.keys().map(|key| key.owner.principal.to_string()).collect();
        assert!(owners.contains(&"quiet".to_owned()), "{owners:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_context_is_put_away_with_what_the_agent_kept() {
        let (table, rules) =
            (Arc::<LiveContexts>::default(), rules(|rules| rules.idle = Duration::from_secs(60)));
        let one = seat(&table, "a", "1", &rules).unwrap();
        let kept = Arc::new(());
        one.runtimes().lock().insert("x".to_owned(), kept.clone());
        drop(one);
        tokio::time::sleep(Duration::from_secs(59)).await;
        // Used again: the time starts anew.
        drop(seat(&table, "a", "2", &rules).unwrap());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(Arc::strong_count(&kept), 2);
        let busy = seat(&table, "b", "3", &rules).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(Arc::strong_count(&kept), 1);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(table.0.lock().live.len(), 1);
        drop(busy);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(table.0.lock().live.is_empty() && !table.0.lock().reaping);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_context_makes_room_and_busy_ones_stay() {
        let (table, rules) = (Arc::<LiveContexts>::default(), rules(|rules| rules.max = 2));
        drop(seat(&table, "a", "1", &rules).unwrap());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(seat(&table, "b", "2", &rules).unwrap());
        let c = seat(&table, "c", "3", &rules).unwrap();
        assert!(table.0.lock().live.contains_key(&key("b")) && !table.0.lock().live.contains_key(&key("a")));
        let b = seat(&table, "b", "4", &rules).unwrap();
        assert_eq!(seat(&table, "a", "5", &rules).err(), Some(NoSeat::TooMany(2)));
        drop((b, c));
        assert!(seat(&table, "a", "5", &rules).is_ok());
    }
}
