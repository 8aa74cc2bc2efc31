//! Who calls, and what belongs to them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use attache_protocol::dialect::DialectRules;
use attache_protocol::{Dialect, Extensions, Version};

use crate::Quota;

/// Who is behind a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// Nobody said. All anonymous callers are one.
    #[default]
    Anonymous,
    /// Someone who proved to be who they are.
    Named(Arc<str>),
}

impl Principal {
    /// A principal that is known by name.
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

/// What a caller may do beyond being let in. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rights(Option<Arc<Granted>>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Granted {
    scopes: BTreeSet<String>,
    tier: Option<String>,
}

impl Rights {
    /// Whether this scope is among those granted.
    pub fn has(&self, scope: &str) -> bool {
        self.0.as_ref().is_some_and(|granted| granted.scopes.contains(scope))
    }

    /// The scopes that are granted, in the order of their names.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|granted| granted.scopes.iter().map(String::as_str))
    }

    /// The audience that the caller belongs to.
    pub fn tier(&self) -> Option<&str> {
        self.0.as_ref()?.tier.as_deref()
    }

    fn change(&mut self) -> &mut Granted {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

/// What a credential proves: who someone is, and what they may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Who they are.
    pub principal: Principal,
    /// What they may do.
    pub rights: Rights,
}

impl Identity {
    /// Someone who is known by name and has no rights in particular.
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

    /// Says which audience they belong to.
    pub fn tier(mut self, tier: impl Into<String>) -> Self {
        self.rights.change().tier = Some(tier.into());
        self
    }
}

impl From<Principal> for Identity {
    fn from(principal: Principal) -> Self {
        Self { principal, rights: Rights::default() }
    }
}

impl From<&str> for Identity {
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

/// What a task, a context and a webhook belong to. For anyone else they do not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The tenant that the request named.
    pub tenant: Option<Arc<str>>,
    /// Who called.
    pub principal: Principal,
}

/// Everything about a request that is not its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose tasks the request can reach.
    pub owner: Owner,
    /// What the caller may do beyond reaching them.
    pub rights: Rights,
    /// The protocol version that the request speaks.
    pub version: Version,
    /// The extensions that the request asks for and the agent knows.
    pub extensions: Extensions,
    /// Whether task generations are part of the conversation: protocol 1.1, or the extension for it.
    pub generations: bool,
    /// The key under which a send is carried out only once.
    pub idempotency_key: Option<String>,
    /// The dialect that the request is in, if it is not in the words of 1.0.
    pub dialect: Option<Dialect>,
    /// How many turns the caller may have at once, if that is limited.
    pub turns: Option<Quota>,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            owner: Owner::default(),
            rights: Rights::default(),
            version: Version::V1_0,
            extensions: Extensions::default(),
            generations: false,
            idempotency_key: None,
            dialect: None,
            turns: None,
        }
    }
}

impl Caller {
    /// Who called.
    pub fn principal(&self) -> &Principal {
        &self.owner.principal
    }

    /// What the request may do because of the dialect it is in.
    pub fn allowances(&self) -> DialectRules {
        self.dialect.map(Dialect::rules).unwrap_or_default()
    }

    /// The tenant that the request named.
    pub fn tenant(&self) -> Option<&str> {
        self.owner.tenant.as_deref()
    }
}
