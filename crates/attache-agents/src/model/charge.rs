//! The tokens of one request to a model, charged to the budget of its caller.

use std::time::Duration;

use attache_core::{Principal, StoreError, Turn};

use super::wire::{ChatMessage, Usage};
use crate::budget::Budget;

/// The usual estimate, for endpoints that do not count tokens and for replies that are cut off.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens of one request. They are charged also if the reply is cut off or the turn is canceled.
pub(super) struct Charge {
    budget: Budget,
    principal: Principal,
    /// What was sent.
    sent: u64,
    /// What was received so far.
    received: u64,
    /// What the endpoint counted.
    counted: Option<u64>,
    settled: bool,
}

impl Charge {
    pub(super) fn new(budget: &Budget, turn: &Turn, messages: &[ChatMessage]) -> Self {
        let sent = serde_json::to_vec(messages).map_or(0, |json| json.len() as u64);
        let principal = turn.caller().principal().clone();
        Self { budget: budget.clone(), principal, sent, received: 0, counted: None, settled: false }
    }

    /// Notes how many bytes of the reply have arrived.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received = bytes as u64;
    }

    /// Notes what the endpoint counted.
    pub(super) fn count(&mut self, usage: &Usage) {
        self.counted = Some(usage.prompt_tokens.saturating_add(usage.completion_tokens));
    }

    fn tokens(&self) -> u64 {
        self.counted.unwrap_or((self.sent + self.received) / BYTES_PER_TOKEN)
    }

    /// Charges the tokens of a complete reply. Returns whether the caller has some budget left.
    pub(super) async fn settle(mut self) -> Result<bool, StoreError> {
        self.settled = true;
        self.budget.spend(&self.principal, self.tokens(), Duration::ZERO).await
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let (budget, principal, tokens) = (self.budget.clone(), self.principal.clone(), self.tokens());
        tokio::spawn(async move {
            if let Err(error) = budget.spend(&principal, tokens, Duration::ZERO).await {
                tracing::warn!(target: "attache::budget", %error, "tokens could not be added to a budget");
            }
        });
    }
}
