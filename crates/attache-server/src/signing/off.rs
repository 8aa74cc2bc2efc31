//! The types of signed cards for a server that was built without them. They have no values, so that none of this code runs.

use std::sync::Arc;

use attache_protocol::AgentCard;

/// No keys.
#[derive(Clone)]
pub(crate) enum Keys {}

/// No keys that sign.
pub(crate) enum CurrentKeys {}

/// No signatures.
#[derive(Clone)]
pub(crate) enum Signing {}

impl Signing {
    pub(crate) fn new(keys: Keys, _: &str) -> Self {
        match keys {}
    }

    pub(crate) fn keys(&self) -> Arc<CurrentKeys> {
        match *self {}
    }

    pub(crate) fn publishes_keys(&self) -> bool {
        match *self {}
    }

    pub(crate) fn published(_: &CurrentKeys) -> serde_json::Value {
        serde_json::Value::Null
    }

    pub(crate) fn sign(&self, _: &CurrentKeys, _: &AgentCard, _: &str) -> AgentCard {
        match *self {}
    }

    pub(crate) fn repeatedly(self) -> fn(Arc<AgentCard>) -> Arc<AgentCard> {
        match self {}
    }
}
