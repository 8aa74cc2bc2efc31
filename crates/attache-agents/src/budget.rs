//! Budgets: how many tokens and how much time each caller may use in a period.
//!
//! What a caller has used is in the store of the server, so a restart does not renew a budget. A caller that has used up its budget is
//! refused until the next period. A turn that uses it up is ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Agent, AgentError, AgentResult, Caller, Clock, Conversation, Principal, Store, StoreError, SystemClock,
    Turn,
};
use attache_protocol::{Error, ErrorKind, Json, Message, TaskId, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
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
    additions: AtomicUsize,
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
        let (scope, used_up, additions) = (format!("budget:{agent}"), Mutex::default(), 0.into());
        Self(Arc::new(Inner { options, store, clock, scope, used_up, additions }))
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
        let stored = self.0.store.values().get(&self.0.scope, &key(principal)).await?;
        Ok(read(stored.as_ref(), period))
    }

    /// The time that a caller has left. `None` if it has used up its budget.
    async fn left(&self, principal: &Principal) -> Result<Option<Duration>, StoreError> {
        let used = self.used(principal).await?;
        let left = self.time_left(used);
        if left.is_none() {
            self.0.used_up.lock().insert(principal.clone(), used.period);
        }
        Ok(left)
    }

    fn time_left(&self, used: Used) -> Option<Duration> {
        let BudgetOptions { tokens, time, .. } = &self.0.options;
        if tokens.is_some_and(|tokens| used.tokens >= tokens) {
            return None;
        }
        match time {
            None => Some(Duration::MAX),
            Some(time) => time.checked_sub(Duration::from_millis(used.millis)).filter(|left| !left.is_zero()),
        }
    }

    /// Adds what a caller has used. Returns whether the caller has some budget left.
    pub async fn spend(
        &self,
        principal: &Principal,
        tokens: u64,
        time: Duration,
    ) -> Result<bool, StoreError> {
        let period = self.period(self.0.clock.now());
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let add = move |stored: Option<&Json>| {
            let used = read(stored, period);
            let (tokens, millis) = (used.tokens.saturating_add(tokens), used.millis.saturating_add(millis));
            Json::new(&Used { period, tokens, millis }).ok()
        };
        let values = self.0.store.values();
        let changed = values.change(&self.0.scope, &key(principal), Box::new(add)).await?;
        if self.0.additions.fetch_add(1, Ordering::Relaxed) % CLEAN_AFTER == CLEAN_AFTER - 1 {
            self.remove_old(period).await?;
        }
        let has_left = self.time_left(read(changed.new.as_ref(), period)).is_some();
        if !has_left {
            self.0.used_up.lock().insert(principal.clone(), period);
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

/// The key of a caller. A caller can be called `anonymous`.
fn key(principal: &Principal) -> String {
    principal.name().map_or_else(|| "anonymous".to_owned(), |name| format!("caller:{name}"))
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

/// Adds the time of a turn when the turn ends, however it ends.
struct Timer {
    budget: Budget,
    principal: Principal,
    began: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let (budget, principal, time) = (self.budget.clone(), self.principal.clone(), self.began.elapsed());
        tokio::spawn(async move {
            if let Err(error) = budget.spend(&principal, 0, time).await {
                tracing::warn!(target: "attache::budget", %error, "the time of a turn could not be added to a budget");
            }
        });
    }
}

impl<A: Agent> Agent for Budgeted<A> {
    async fn run(&self, turn: Turn) -> AgentResult {
        let principal = turn.caller().principal().clone();
        let Some(left) = self.budget.left(&principal).await? else {
            return turn.reject(self.budget.explain()).await;
        };
        let _timer = Timer { budget: self.budget.clone(), principal, began: Instant::now() };
        // Longer than any turn.
        let left = left.min(Duration::from_secs(365 * 24 * 60 * 60));
        match tokio::time::timeout(left, self.agent.run(turn)).await {
            Ok(result) => result,
            Err(_) => Err(AgentError::public(self.budget.explain())),
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

    fn restartable(&self) -> bool {
        self.agent.restartable()
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
