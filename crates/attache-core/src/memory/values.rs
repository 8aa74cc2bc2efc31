//! Values in memory.

use std::collections::{BTreeMap, HashMap};

use attache_protocol::Json;
use parking_lot::Mutex;

use crate::{BoxFuture, ChangedValue, StoreError, ValueChange, Values};

/// Stores values in memory.
#[derive(Default)]
pub(super) struct MemoryValues(Mutex<ValueMap>);

#[derive(Default)]
struct ValueMap {
    scopes: BTreeMap<String, Scope>,
    next: u64,
}

/// The values of a scope. They are sorted by the number that a key gets when it is added.
#[derive(Default)]
struct Scope {
    numbers: HashMap<String, u64>,
    values: BTreeMap<u64, (String, Json)>,
}

impl std::fmt::Debug for MemoryValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryValues").finish_non_exhaustive()
    }
}

impl ValueMap {
    fn get(&self, scope: &str, key: &str) -> Option<Json> {
        let scope = self.scopes.get(scope)?;
        scope.values.get(scope.numbers.get(key)?).map(|(_, value)| value.clone())
    }

    fn put(&mut self, scope: &str, key: &str, value: Json) {
        if let Some(scope) = self.scopes.get_mut(scope)
            && let Some((_, old)) = scope.numbers.get(key).and_then(|number| scope.values.get_mut(number))
        {
            *old = value;
            return;
        }
        let scope = self.scopes.entry(scope.to_owned()).or_default();
        self.next += 1;
        scope.numbers.insert(key.to_owned(), self.next);
        scope.values.insert(self.next, (key.to_owned(), value));
    }

    fn remove(&mut self, name: &str, key: &str) {
        let Some(scope) = self.scopes.get_mut(name) else { return };
        if let Some(number) = scope.numbers.remove(key) {
            scope.values.remove(&number);
        }
        if scope.numbers.is_empty() {
            self.scopes.remove(name);
        }
    }
}

impl Values for MemoryValues {
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, StoreError>> {
        Box::pin(async move { Ok(self.0.lock().get(scope, key)) })
    }

    fn list<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Vec<(String, Json)>, StoreError>> {
        Box::pin(async move {
            let values = self.0.lock();
            Ok(values
                .scopes
                .get(scope)
                .map(|scope| scope.values.values().cloned().collect())
                .unwrap_or_default())
        })
    }

    fn scopes(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(async move { Ok(self.0.lock().scopes.keys().cloned().collect()) })
    }

    fn change<'a>(
        &'a self,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, StoreError>> {
        Box::pin(async move {
            let mut values = self.0.lock();
            let old = values.get(scope, key);
            let new = change(old.as_ref());
            match &new {
                Some(value) => values.put(scope, key, value.clone()),
                None => values.remove(scope, key),
            }
            Ok(ChangedValue { old, new })
        })
    }
}
