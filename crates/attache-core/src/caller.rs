//! The caller of a request, its rights, and the owner of tasks.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use attache_protocol::dialect::DialectRules;
use attache_protocol::{Dialect, Extensions, Version};
use serde_json::{Map, Value};

use crate::{Quota, TraceParent};

/// The authenticated sender of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// The request carried no credentials. All anonymous callers are one principal.
    #[default]
    Anonymous,
    /// The caller was authenticated under this name.
    Named(Arc<str>),
}

impl Principal {
    /// A principal with a name.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self::Named(name.into())
    }

    /// The name, unless anonymous.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) => Some(name),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("anonymous"))
    }
}

/// The scopes and the tier of a caller. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rights(Option<Arc<Granted>>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Granted {
    scopes: BTreeSet<String>,
    tier: Option<String>,
}

impl Rights {
    /// Whether the caller has this scope.
    pub fn has(&self, scope: &str) -> bool {
        self.0.as_ref().is_some_and(|granted| granted.scopes.contains(scope))
    }

    /// The scopes, sorted.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|granted| granted.scopes.iter().map(String::as_str))
    }

    /// The tier (audience) of the caller.
    pub fn tier(&self) -> Option<&str> {
        self.0.as_ref()?.tier.as_deref()
    }

    fn change(&mut self) -> &mut Granted {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

/// What an authenticator knows about a caller beyond name and rights: a JSON object of its choice. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityMetadata(Option<Arc<Map<String, Value>>>);

impl IdentityMetadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.as_ref()?.get(key)
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().flat_map(|members| members.iter().map(|(key, value)| (key.as_str(), value)))
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|members| members.is_empty())
    }

    fn change(&mut self) -> &mut Map<String, Value> {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

/// What an authenticator finds out about a caller: who it is, what it may do, and any metadata.
///
/// An agent reads all of it from [`Turn::caller`](crate::Turn::caller).
///
/// ```
/// use attache_core::Identity;
///
/// let identity = Identity::named("alice").scope("quote").metadata("plan", "gold").metadata("seats", 5);
/// assert_eq!(identity.metadata.get("seats").and_then(|seats| seats.as_u64()), Some(5));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Who the caller is.
    pub principal: Principal,
    /// What the caller may do.
    pub rights: Rights,
    /// Anything else that the agent should know about the caller. It is not stored: a turn that
    /// [runs again](crate::Turn::is_rerun) after a restart has none.
    pub metadata: IdentityMetadata,
}

impl Identity {
    /// A caller with a name and no rights.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Principal::named(name).into()
    }

    /// Grants a scope.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.rights.change().scopes.insert(scope.into());
        self
    }

    /// Grants several scopes.
    pub fn scopes(self, scopes: impl IntoIterator<Item: Into<String>>) -> Self {
        scopes.into_iter().fold(self, Self::scope)
    }

    /// Sets the tier.
    pub fn tier(mut self, tier: impl Into<String>) -> Self {
        self.rights.change().tier = Some(tier.into());
        self
    }

    /// Sets a member of the metadata.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.change().insert(key.into(), value.into());
        self
    }

    /// Adds the members of other metadata. A key that is already set keeps its value.
    pub fn missing_metadata(mut self, other: &IdentityMetadata) -> Self {
        for (key, value) in other.iter() {
            if self.metadata.get(key).is_none() {
                self.metadata.change().insert(key.to_owned(), value.clone());
            }
        }
        self
    }
}

impl From<Principal> for Identity {
    fn from(principal: Principal) -> Self {
        Self { principal, ..Self::default() }
    }
}

impl From<&str> for Identity {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

/// The owner of a task, a context or a webhook. For all other callers they do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The name of the agent, where a server has several. Each agent has its own tasks, contexts and webhooks.
    pub agent: Option<Arc<str>>,
    /// The tenant of the request.
    pub tenant: Option<Arc<str>>,
    /// The principal that called.
    pub principal: Principal,
}

/// What a request says about itself beside its arguments, from which a [`Caller`] is made.
#[derive(Debug)]
pub struct RequestTerms<'a> {
    /// The protocol version that the request speaks.
    pub version: Version,
    /// The base URL under which the client knows the agent. Replies have URLs below it instead of references to stored content.
    pub base: Option<&'a Arc<str>>,
    /// The extensions that the request names.
    pub extensions: &'a Extensions,
    /// The key under which a send is executed only once.
    pub idempotency_key: Option<String>,
    /// The same for a send without such a key, from a transport that can deliver a request twice.
    pub delivery_key: Option<String>,
    /// The dialect that the request is written in, if it is not 1.0.
    pub dialect: Option<Dialect>,
    /// How many turns the caller may have at once, if that is limited.
    pub turns: Option<Quota>,
    /// The trace that the request belongs to.
    pub trace_parent: Option<TraceParent>,
}

impl<'a> RequestTerms<'a> {
    /// The terms of a request in the current dialect, without idempotency key and without a limit on turns.
    pub fn new(version: Version, extensions: &'a Extensions) -> Self {
        Self {
            version,
            base: None,
            extensions,
            idempotency_key: None,
            delivery_key: None,
            dialect: None,
            turns: None,
            trace_parent: None,
        }
    }
}

/// Everything about a request but its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The owner of the tasks that the request can see.
    pub owner: Owner,
    /// The rights of the caller.
    pub rights: Rights,
    /// What the authenticator has set on the [`Identity`]. It is not stored with the task.
    pub metadata: IdentityMetadata,
    /// The protocol version of the request.
    pub version: Version,
    /// The active extensions: the request asks for them, and the agent supports them.
    pub extensions: Extensions,
    /// Whether the request uses task generations: by protocol 1.1, or by the extension for them.
    pub generations: bool,
    /// The idempotency key of a send.
    pub idempotency_key: Option<String>,
    /// The key of a send whose client gave none, from a transport that can deliver a request twice.
    pub delivery_key: Option<String>,
    /// The dialect of the request, if it is not 1.0.
    pub dialect: Option<Dialect>,
    /// The limit of concurrent turns of the caller, if there is one.
    pub turns: Option<Quota>,
    /// The trace that the request belongs to. It is not stored with the task.
    pub trace_parent: Option<TraceParent>,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            owner: Owner::default(),
            rights: Rights::default(),
            metadata: IdentityMetadata::default(),
            version: Version::V1_0,
            extensions: Extensions::default(),
            generations: false,
            idempotency_key: None,
            delivery_key: None,
            dialect: None,
            turns: None,
            trace_parent: None,
        }
    }
}

impl Caller {
    /// The principal that called.
    pub fn principal(&self) -> &Principal {
        &self.owner.principal
    }

    /// The rules of the dialect of the request.
    pub fn dialect_rules(&self) -> DialectRules {
        self.dialect.map(Dialect::rules).unwrap_or_default()
    }

    /// The tenant of the request.
    pub fn tenant(&self) -> Option<&str> {
        self.owner.tenant.as_deref()
    }
}
