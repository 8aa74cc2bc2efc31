//! Budgets: how many tokens and how much time each caller may use in a period.
//!
//! What a caller has used is in the store of the server, so a restart does not renew a budget. A caller that has used up its budget is
//! refused until the next period. Turns of a caller that run at the same time share what is left, and all end when it is used up.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Agent, AgentError, AgentResult, Caller, Clock, Conversation, Principal, Store, StoreError, SystemClock,
    Turn, ValueSubject,
};
use attache_protocol::{Error, ErrorKind, Json, Message, TaskId, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

/// How many times something is added before entries of earlier periods are removed.
const CLEAN_AFTER: usize = 1_000;

/// How much a caller may use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetOptions {
    /// The number of tokens of a language model, in and out. Unlimited unless set.
    pub tokens: Option<u64>,
    /// The time that turns may take together. Unlimited unless set.
    pub time: Option<Duration>,
    /// The period after which the budget is renewed. 1 day unless set. Periods begin at 1970-01-01T00:00:00Z.
    pub period: Duration,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        Self { tokens: None, time: None, period: Duration::from_secs(24 * 60 * 60) }
    }
}

impl BudgetOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The budget of each caller of an agent. Cheap to clone: all clones are one budget.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    options: BudgetOptions,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    scope: String,
    /// The callers that are known to have used up their budget, until the end of the period.
    used_up: Mutex<HashMap<Principal, i64>>,
    /// The callers that have turns.
    callers: Mutex<HashMap<Principal, Usage>>,
    additions: AtomicUsize,
}

/// What a caller with turns has used. All its turns share what is left.
struct Usage {
    /// What the store has, as far as it is known here.
    stored: Used,
    /// The number of running turns.
    turns: u32,
    /// The time of turns that the store does not have: of running ones until `at`, and of ended ones that are being written.
    unsaved: Duration,
    at: Instant,
    /// Notified when one of these changes.
    changed: watch::Sender<()>,
    /// Held while the time of an ended turn is written. Its clones are in use.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            stored: Used::default(),
            turns: 0,
            unsaved: Duration::ZERO,
            at: Instant::now(),
            changed: watch::Sender::new(()),
            writing: Arc::default(),
        }
    }
}

impl Usage {
    /// Notes what the store has. Results of the store can arrive in another order than they were written.
    fn note(&mut self, used: Used) {
        let old = self.stored;
        self.stored = match used.period.cmp(&old.period) {
            std::cmp::Ordering::Greater => used,
            std::cmp::Ordering::Equal => {
                Used { tokens: used.tokens.max(old.tokens), millis: used.millis.max(old.millis), ..used }
            }
            std::cmp::Ordering::Less => old,
        };
    }

    /// The time that the store does not have.
    fn unsaved(&self, now: Instant) -> Duration {
        let running = now.saturating_duration_since(self.at).saturating_mul(self.turns);
        self.unsaved.saturating_add(running)
    }

    /// Counts the time of the running turns until now. Call it before their number changes.
    fn advance(&mut self, now: Instant) {
        (self.unsaved, self.at) = (self.unsaved(now), now);
    }

    /// Notes that the time of an ended turn is in the store.
    fn saved(&mut self, time: Duration) {
        self.unsaved = self.unsaved.saturating_sub(time);
    }

    fn is_idle(&self) -> bool {
        self.turns == 0 && self.unsaved.is_zero() && Arc::strong_count(&self.writing) == 1
    }
}

/// What a caller has used in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    /// The number of the period.
    period: i64,
    tokens: u64,
    millis: u64,
}

impl Budget {
    /// A budget for the callers of an agent, in a server with this store. Agents with different names have different budgets.
    pub fn new(options: BudgetOptions, store: Arc<dyn Store>, agent: &str) -> Self {
        Self::with_clock(options, store, agent, Arc::new(SystemClock))
    }

    /// A budget with another clock.
    pub fn with_clock(
        options: BudgetOptions,
        store: Arc<dyn Store>,
        agent: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (used_up, callers) = (Mutex::default(), Mutex::default());
        let (scope, additions) = (format!("{}{agent}", ValueSubject::BUDGETS), 0.into());
        Self(Arc::new(Inner { options, store, clock, scope, used_up, callers, additions }))
    }

    fn period_millis(&self) -> i64 {
        i64::try_from(self.0.options.period.as_millis()).unwrap_or(i64::MAX).max(1)
    }

    fn period(&self, now: Timestamp) -> i64 {
        now.to_millis().div_euclid(self.period_millis())
    }

    /// How long until the next period.
    fn renewed_in(&self, now: Timestamp) -> Duration {
        let next = (self.period(now) + 1).saturating_mul(self.period_millis());
        Duration::from_millis(u64::try_from(next - now.to_millis()).unwrap_or_default())
    }

    async fn used(&self, principal: &Principal) -> Result<Used, StoreError> {
        let period = self.period(self.0.clock.now());
        let stored = self.0.store.values().get(&self.0.scope, &principal.value_key()).await?;
        Ok(read(stored.as_ref(), period))
    }

    /// Reads which callers have used up their budget, so that they are refused from the first message on. Without it, the first message
    /// of such a caller after a restart becomes a task that is rejected.
    pub async fn load(&self) -> Result<(), StoreError> {
        let period = self.period(self.0.clock.now());
        let values = self.0.store.values().list(&self.0.scope).await?;
        let used_up = values.iter().filter_map(|(key, value)| {
            let has_left = self.time_left(read(Some(value), period), Duration::ZERO).is_some();
            if has_left { None } else { Principal::of_value_key(key) }
        });
        self.0.used_up.lock().extend(used_up.map(|principal| (principal, period)));
        Ok(())
    }

    /// Begins a turn of a caller. `None` if the caller has used up its budget.
    async fn begin(&self, principal: &Principal) -> Result<Option<RunningTurn>, StoreError> {
        let writing = self.0.callers.lock().entry(principal.clone()).or_default().writing.clone();
        // While the time of a turn that has ended is written, it would count twice.
        let guard = writing.lock().await;
        let used = self.used(principal).await;
        let begun = used.map(|used| {
            let (mut callers, now) = (self.0.callers.lock(), Instant::now());
            let usage = callers.entry(principal.clone()).or_default();
            usage.note(used);
            if self.time_left(usage.stored, usage.unsaved(now)).is_none() {
                self.0.used_up.lock().insert(principal.clone(), used.period);
                return None;
            }
            usage.advance(now);
            usage.turns += 1;
            usage.changed.send_replace(());
            let (budget, principal, changed) = (self.clone(), principal.clone(), usage.changed.subscribe());
            Some(RunningTurn { budget, principal, began: now, changed })
        });
        drop(guard);
        drop(writing);
        self.forget_idle(principal);
        begun
    }

    /// Forgets what is known of a caller that has no turns.
    fn forget_idle(&self, principal: &Principal) {
        let mut callers = self.0.callers.lock();
        if callers.get(principal).is_some_and(Usage::is_idle) {
            callers.remove(principal);
        }
    }

    /// The time that is left. `None` if the budget is used up. `unsaved` is time that is not part of `used`.
    fn time_left(&self, used: Used, unsaved: Duration) -> Option<Duration> {
        let BudgetOptions { tokens, time, .. } = &self.0.options;
        if tokens.is_some_and(|tokens| used.tokens >= tokens) {
            return None;
        }
        match time {
            None => Some(Duration::MAX),
            Some(time) => {
                let used = Duration::from_millis(used.millis).saturating_add(unsaved);
                time.checked_sub(used).filter(|left| !left.is_zero())
            }
        }
    }

    /// Adds what a caller has used. Returns whether the caller has some budget left. Running turns of a caller that has none left are
    /// ended.
    pub async fn spend(
        &self,
        principal: &Principal,
        tokens: u64,
        time: Duration,
    ) -> Result<bool, StoreError> {
        self.add(principal, tokens, time, Duration::ZERO).await
    }

    /// Adds what a caller has used. `saved` is the part of the time that counts as used already.
    async fn add(
        &self,
        principal: &Principal,
        tokens: u64,
        time: Duration,
        saved: Duration,
    ) -> Result<bool, StoreError> {
        let period = self.period(self.0.clock.now());
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let add = move |stored: Option<&Json>| {
            let used = read(stored, period);
            let (tokens, millis) = (used.tokens.saturating_add(tokens), used.millis.saturating_add(millis));
            Json::new(&Used { period, tokens, millis }).ok()
        };
        let values = self.0.store.values();
        let changed = values.change(&self.0.scope, &principal.value_key(), Box::new(add)).await;
        let used = changed.as_ref().ok().map(|changed| read(changed.new.as_ref(), period));
        let has_left = {
            let mut callers = self.0.callers.lock();
            match (callers.get_mut(principal), used) {
                (Some(usage), used) => {
                    usage.saved(saved);
                    usage.note(used.unwrap_or(usage.stored));
                    usage.changed.send_replace(());
                    self.time_left(usage.stored, usage.unsaved(Instant::now())).is_some()
                }
                (None, Some(used)) => self.time_left(used, Duration::ZERO).is_some(),
                (None, None) => true,
            }
        };
        changed?;
        if !has_left {
            self.0.used_up.lock().insert(principal.clone(), period);
        }
        if self.0.additions.fetch_add(1, Ordering::Relaxed) % CLEAN_AFTER == CLEAN_AFTER - 1 {
            self.remove_old(period).await?;
        }
        Ok(has_left)
    }

    /// Removes entries of earlier periods, so that callers that are gone leave nothing behind.
    async fn remove_old(&self, period: i64) -> Result<(), StoreError> {
        self.0.used_up.lock().retain(|_, of| *of == period);
        let values = self.0.store.values();
        for (key, value) in values.list(&self.0.scope).await? {
            if value.read::<Used>().is_ok_and(|used| used.period < period) {
                let is_old = move |value: Option<&Json>| {
                    value
                        .filter(|value| value.read::<Used>().is_ok_and(|used| used.period >= period))
                        .cloned()
                };
                values.change(&self.0.scope, &key, Box::new(is_old)).await?;
            }
        }
        Ok(())
    }

    /// What a caller reads whose budget is used up.
    pub fn explain(&self) -> String {
        let BudgetOptions { tokens, time, period } = &self.0.options;
        let parts = [tokens.map(|tokens| format!("{tokens} tokens")), time.map(in_words)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let wait = in_words(self.renewed_in(self.0.clock.now()));
        format!(
            "your budget for this agent is used up ({} in {}): it is renewed in {wait}",
            parts.join(" and "),
            in_words(*period)
        )
    }

    /// Limits an agent to this budget.
    pub fn limit(&self, agent: impl Agent) -> impl Agent {
        Budgeted { agent, budget: self.clone() }
    }
}

/// A time for people, in its two largest units.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds == 0 {
        return format!("{} ms", time.as_millis());
    }
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
    let shown = units.iter().skip(first).take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

/// What was used in a period. An entry of another period counts as none.
fn read(stored: Option<&Json>, period: i64) -> Used {
    let used = stored.and_then(|value| value.read::<Used>().ok()).filter(|used| used.period == period);
    used.unwrap_or(Used { period, ..Used::default() })
}

/// An agent whose callers have a budget.
struct Budgeted<A> {
    agent: A,
    budget: Budget,
}

/// A turn that runs. When it ends, however it ends, its time is added to what its caller has used.
struct RunningTurn {
    budget: Budget,
    principal: Principal,
    began: Instant,
    changed: watch::Receiver<()>,
}

impl RunningTurn {
    /// How long this turn can go on if no turn of the caller begins or ends. `None` if the budget is used up.
    fn left(&self) -> Option<Duration> {
        let callers = self.budget.0.callers.lock();
        let Some(usage) = callers.get(&self.principal) else { return Some(Duration::MAX) };
        let left = self.budget.time_left(usage.stored, usage.unsaved(Instant::now()))?;
        Some(left / usage.turns.max(1))
    }

    /// Does the work of the turn. `None` if the budget is used up before it is done.
    async fn limit<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            // Not longer than any turn, and not shorter than the timer can measure.
            let left = self.left()?.clamp(Duration::from_millis(1), Duration::from_secs(365 * 24 * 60 * 60));
            tokio::select! {
                biased;
                result = &mut work => return Some(result),
                () = tokio::time::sleep(left) => {}
                // The sender is kept for as long as this turn runs.
                _ = self.changed.changed() => {}
            }
        }
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        let (budget, principal, now) = (self.budget.clone(), self.principal.clone(), Instant::now());
        let time = now.saturating_duration_since(self.began);
        let writing = {
            let mut callers = budget.0.callers.lock();
            let Some(usage) = callers.get_mut(&principal) else { return };
            usage.advance(now);
            usage.turns = usage.turns.saturating_sub(1);
            usage.changed.send_replace(());
            usage.writing.clone()
        };
        tokio::spawn(async move {
            let guard = writing.lock().await;
            if let Err(error) = budget.add(&principal, 0, time, time).await {
                tracing::warn!(target: "attache::budget", %error, "the time of a turn could not be added to a budget");
            }
            drop(guard);
            drop(writing);
            budget.forget_idle(&principal);
        });
    }
}

impl<A: Agent> Agent for Budgeted<A> {
    async fn run(&self, turn: Turn) -> AgentResult {
        let principal = turn.caller().principal().clone();
        let Some(mut running) = self.budget.begin(&principal).await? else {
            return turn.reject(self.budget.explain()).await;
        };
        match running.limit(self.agent.run(turn)).await {
            Some(result) => result,
            None => Err(AgentError::public(self.budget.explain())),
        }
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        let now = self.budget.0.clock.now();
        let used_up = self.budget.0.used_up.lock().get(caller.principal()) == Some(&self.budget.period(now));
        if used_up {
            let error = Error::new(ErrorKind::ResourceExhausted, self.budget.explain());
            return Err(error.retry_in(self.budget.renewed_in(now)));
        }
        self.agent.admits(caller, message)
    }

    fn prepare(&self, first: &mut Message) {
        self.agent.prepare(first);
    }

    fn restartable(&self) -> bool {
        self.agent.restartable()
    }

    fn restarts(&self, first: &Message) -> bool {
        self.agent.restarts(first)
    }

    fn reports(&self) -> bool {
        self.agent.reports()
    }

    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        self.agent.conversation(first)
    }

    fn task_ended(&self, task: &TaskId) {
        self.agent.task_ended(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_its_two_largest_units() {
        for (millis, words) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_600_000, "1 h"),
            (3_601_000, "1 h"),
            (90_000_000, "1 d 1 h"),
            (86_400_000_000, "1000 d"),
        ] {
            assert_eq!(in_words(Duration::from_millis(millis)), words);
        }
    }
}
