//! Small values by scope and key, stored with the same durability as tasks.

use attache_protocol::Json;

use crate::{BoxFuture, StoreError};

/// Computes the new value of a key from the current one. `None` means that the key has no value.
///
/// A store may run it more than once: after a conflict with another process, or after a transaction that failed. Only the result
/// of the last run is stored, so it must have no effect but its result. A store may hold a lock while it runs, so it must be
/// quick. If it panics, nothing is changed, and the call to [`Values::change`] panics.
pub type ValueChange = Box<dyn Fn(Option<&Json>) -> Option<Json> + Send + Sync>;

/// A value before and after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedValue {
    /// The value before the change.
    pub old: Option<Json>,
    /// The value after the change.
    pub new: Option<Json>,
}

/// Stores values by scope and key.
pub trait Values: Send + Sync {
    /// The value of a key.
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, StoreError>>;

    /// The keys of a scope with their values, in the order in which the keys got a value. A key that was deleted and set again comes
    /// last.
    fn list<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Vec<(String, Json)>, StoreError>>;

    /// The names of scopes that have values, sorted.
    fn scopes(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;

    /// Changes a value. Changes of one key happen one after the other. The result is stored when this returns.
    fn change<'a>(
        &'a self,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, StoreError>>;
}
