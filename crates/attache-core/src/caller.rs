//! Who calls, and what belongs to them.

use std::fmt;
use std::sync::Arc;

use attache_protocol::dialect::Allowances;
use attache_protocol::{Dialect, Extensions, Version};

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
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            owner: Owner::default(),
            version: Version::V1_0,
            extensions: Extensions::default(),
            generations: false,
            idempotency_key: None,
            dialect: None,
        }
    }
}

impl Caller {
    /// Who called.
    pub fn principal(&self) -> &Principal {
        &self.owner.principal
    }

    /// What the request may do because of the dialect it is in.
    pub fn allowances(&self) -> Allowances {
        self.dialect.map(Dialect::allowances).unwrap_or_default()
    }

    /// The tenant that the request named.
    pub fn tenant(&self) -> Option<&str> {
        self.owner.tenant.as_deref()
    }
}
