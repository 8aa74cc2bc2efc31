//! Which values of a store belong to a caller or to a task, so that they can be removed with the other data.

use std::sync::Arc;

use attache_protocol::TaskId;

use crate::{ContextRecord, Owner, Principal};

/// What a value of a store belongs to, by its scope and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSubject {
    /// A caller, in one tenant and at one agent.
    Owner(Owner),
    /// A caller, in all tenants.
    Principal(Principal),
    /// A task.
    Task(TaskId),
}

impl ValueSubject {
    /// The beginning of the scopes of what callers have used of a budget. The rest is the name of the agent.
    pub const BUDGETS: &str = "budget:";
    /// The beginning of the scopes of the remote contexts of a gateway. The rest is the address of the remote agent.
    pub const GATEWAY_CONTEXTS: &str = "a2a_gateway_contexts:";
    /// The beginning of the scopes of the remote tasks of a gateway that are under way.
    pub const GATEWAY_TASKS: &str = "a2a_gateway_tasks:";
    /// The beginning of the scopes of the remote tasks of a gateway that have ended.
    pub const GATEWAY_ENDED: &str = "a2a_gateway_ended:";

    /// The subject of a value. `None` if it belongs to the server as a whole, such as the state of workers.
    pub fn of(scope: &str, key: &str) -> Option<Self> {
        let begins = |beginning: &str| scope.starts_with(beginning);
        if scope == ContextRecord::SCOPE || begins(Self::GATEWAY_CONTEXTS) {
            owner_of(key).map(Self::Owner)
        } else if begins(Self::BUDGETS) {
            Principal::of_value_key(key).map(Self::Principal)
        } else if begins(Self::GATEWAY_TASKS) || begins(Self::GATEWAY_ENDED) {
            Some(Self::Task(key.into()))
        } else {
            None
        }
    }
}

fn owner_of(key: &str) -> Option<Owner> {
    type Part = Option<Arc<str>>;
    let (agent, tenant, principal, _): (Part, Part, Part, String) = serde_json::from_str(key).ok()?;
    let principal = principal.map_or(Principal::Anonymous, Principal::Named);
    Some(Owner { agent, tenant, principal })
}

impl Owner {
    /// The key of a value that belongs to this owner. `name` tells it from the other values of the owner in its scope.
    pub fn value_key(&self, name: &str) -> String {
        let Self { agent, tenant, principal } = self;
        let key = serde_json::to_string(&(agent.as_deref(), tenant.as_deref(), principal.name(), name));
        // Texts can always be written.
        key.unwrap_or_default()
    }
}

impl Principal {
    /// The key of a value that belongs to this principal in all tenants.
    pub fn value_key(&self) -> String {
        // A caller can be called `anonymous`.
        self.name().map_or_else(|| "anonymous".to_owned(), |name| format!("caller:{name}"))
    }

    /// The principal of a key made by [`value_key`](Self::value_key).
    pub fn of_value_key(key: &str) -> Option<Self> {
        match key.strip_prefix("caller:") {
            Some(name) => Some(Self::named(name)),
            None => (key == "anonymous").then_some(Self::Anonymous),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_whose_value_it_is() {
        let ann =
            Owner { tenant: Some("acme".into()), principal: Principal::named("ann"), ..Owner::default() };
        for owner in [ann, Owner { agent: Some("writer".into()), ..Owner::default() }] {
            let key = owner.value_key("c\"1");
            assert_eq!(ValueSubject::of("contexts", &key), Some(ValueSubject::Owner(owner.clone())));
            assert_eq!(ValueSubject::of("a2a_gateway_contexts:x", &key), Some(ValueSubject::Owner(owner)));
        }
        for principal in [Principal::Anonymous, Principal::named("anonymous")] {
            let key = principal.value_key();
            assert_eq!(ValueSubject::of("budget:writer", &key), Some(ValueSubject::Principal(principal)));
        }
        assert_eq!(ValueSubject::of("a2a_gateway_ended:x", "t1"), Some(ValueSubject::Task("t1".into())));
    }

    #[test]
    fn values_of_workers_belong_to_no_caller_whatever_their_keys_are() {
        let key = Owner::default().value_key("c1");
        for key in [&*key, "anonymous", "caller:ann"] {
            assert_eq!(ValueSubject::of("orders", key), None);
        }
    }
}
