//! Small values by scope and key, kept beside the tasks and as safely as they are.

use attache_protocol::Json;

use crate::{BoxFuture, StoreError};

/// What becomes of a value: given what is kept now, says what is to be kept. Nothing means that nothing is.
///
/// It runs while nobody else changes the value, so it must be quick, and it may run for a change that is then not kept. Should it
/// panic, nothing is changed, and whoever asked for the change panics.
pub type ValueChange = Box<dyn FnOnce(Option<&Json>) -> Option<Json> + Send>;

/// A value before and after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedValue {
    /// What was kept.
    pub old: Option<Json>,
    /// What is.
    pub new: Option<Json>,
}

/// Keeps values by scope and key.
pub trait Values: Send + Sync {
    /// The value of a key.
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, StoreError>>;

    /// The keys of a scope with their values, in the order in which the keys were first used. A key that had lost its value comes
    /// last when it has one again.
    fn list<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Vec<(String, Json)>, StoreError>>;

    /// The scopes that have values, in the order of their names.
    fn scopes(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;

    /// Changes a value. Changes of one key happen one after the other, and what is answered is kept.
    fn change<'a>(
        &'a self,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, StoreError>>;
}
