//! Explains that a caller cannot call a function: to the caller with the functions that it can call, to the operator with the reason.

use std::collections::VecDeque;
use std::sync::Arc;

use attache_core::{TraceParent, Turn};
use parking_lot::Mutex;

use crate::exposure::{Exposure, Hidden, HiddenReason};
use crate::{Catalog, FunctionInfo};

/// How many functions a text lists.
const MAX_LISTED: usize = 10;

/// The longest id that a text or the log repeats, in characters.
const MAX_ID: usize = 100;

/// How many functions of workers that have left are remembered.
const MAX_DEPARTED: usize = 256;

/// How many functions are compared with an unknown id.
const MAX_COMPARED: usize = 200;

/// The functions that were registered and are not any more.
#[derive(Default)]
pub(crate) struct Departed(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Arc<Catalog>>,
    departed: VecDeque<Arc<FunctionInfo>>,
}

impl Departed {
    /// Compares a list of functions with the previous one.
    pub(crate) fn observe(&self, catalog: Option<&Arc<Catalog>>) {
        // While the list is not available, nothing is known to have left.
        let Some(catalog) = catalog else { return };
        let mut state = self.0.lock();
        if state.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, catalog)) {
            return;
        }
        state.departed.retain(|function| !catalog.contains_key(&function.id));
        let last = state.last.replace(catalog.clone());
        let left = last.iter().flat_map(|last| last.values()).filter(|gone| !catalog.contains_key(&gone.id));
        state.departed.extend(left.cloned());
        let surplus = state.departed.len().saturating_sub(MAX_DEPARTED);
        state.departed.drain(..surplus);
    }

    fn find(&self, id: &str) -> Option<Arc<FunctionInfo>> {
        self.0.lock().departed.iter().rev().find(|function| &*function.id == id).cloned()
    }
}

/// The text for a caller that cannot call a function. Logs the reason.
pub(crate) fn explain(
    turn: &Turn,
    hidden: &Hidden,
    exposure: &Exposure,
    catalog: Option<&Catalog>,
    departed: &Departed,
) -> String {
    let (id, reason) = match hidden {
        Hidden::Internal(id) => (id, "its namespace is never exposed".to_owned()),
        Hidden::Unverified(id) => (id, "the list of functions is not available".to_owned()),
        Hidden::Unavailable { id, reason: HiddenReason::Unknown } => (id, unknown(id, catalog, departed)),
        Hidden::Unavailable { id, reason } => (id, reason.to_string()),
    };
    let shown: String = id.chars().take(MAX_ID).collect();
    let (caller, task) = (turn.caller().principal(), turn.task_id());
    let trace_parent = turn.trace_parent();
    let traceparent = trace_parent.as_ref().map(TraceParent::as_str);
    tracing::info!(function = shown, %caller, %task, reason, traceparent, "a caller cannot call this function");
    match hidden {
        Hidden::Internal(_) | Hidden::Unverified(_) => hidden.to_string(),
        Hidden::Unavailable { .. } => {
            format!("There is no function '{shown}'. {}", callable(exposure, catalog))
        }
    }
}

/// Lists the functions that a caller can call.
pub(crate) fn callable(exposure: &Exposure, catalog: Option<&Catalog>) -> String {
    let mut ids =
        exposure.exposed(catalog).map(|function| function.id.chars().take(MAX_ID).collect::<String>());
    let listed: Vec<String> = ids.by_ref().take(MAX_LISTED).collect();
    match (listed.is_empty(), ids.count()) {
        (true, _) => "At the moment there are no functions that you can call.".to_owned(),
        (false, 0) => format!("You can call: {}.", listed.join(", ")),
        (false, more) => {
            format!("You can call: {} and {more} more, which the card lists.", listed.join(", "))
        }
    }
}

/// Why there is no function with this id.
fn unknown(id: &str, catalog: Option<&Catalog>, departed: &Departed) -> String {
    if let Some(function) = departed.find(id) {
        let worker = function.worker.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
        return format!("its worker{worker} has disconnected, or has unregistered it");
    }
    let is_close = |known: &&Arc<str>| known.len().abs_diff(id.len()) <= 2 && distance(known, id) <= 2;
    let similar = catalog.and_then(|catalog| catalog.keys().take(MAX_COMPARED).find(is_close));
    match similar {
        Some(similar) => format!("no worker has registered it; `{similar}` is similar"),
        None => HiddenReason::Unknown.to_string(),
    }
}

/// The number of characters to change, add or remove. Long ids are not compared.
fn distance(one: &str, other: &str) -> usize {
    if one.len() > MAX_ID || other.len() > MAX_ID {
        return usize::MAX;
    }
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog(ids: &[&str]) -> Arc<Catalog> {
        let function = |id: &&str| {
            let info = FunctionInfo {
                worker: Some("pricing".into()),
                metadata: Some(json!({"a2a.expose": true})),
                ..FunctionInfo::new(*id)
            };
            (info.id.clone(), Arc::new(info))
        };
        Arc::new(ids.iter().map(function).collect())
    }

    #[test]
    fn the_reason_names_a_worker_that_has_left_and_a_similar_function() {
        let departed = Departed::default();
        departed.observe(Some(&catalog(&["pricing::quote", "pricing::cost"])));
        departed.observe(None);
        let now = catalog(&["pricing::cost"]);
        departed.observe(Some(&now));
        let why = |id: &str| unknown(id, Some(&now), &departed);
        assert_eq!(why("pricing::quote"), "its worker `pricing` has disconnected, or has unregistered it");
        assert_eq!(why("pricing::Csot"), "no worker has registered it; `pricing::cost` is similar");
        assert_eq!(why("other::f"), "no worker has registered it");
        departed.observe(Some(&catalog(&["pricing::quote"])));
        assert!(departed.find("pricing::quote").is_none(), "it is back");
    }

    #[test]
    fn the_list_for_the_caller_is_bounded() {
        let exposure = Exposure::default();
        let ids: Vec<String> = (0..13).map(|n| format!("f::{n:02}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(callable(&exposure, Some(&catalog(&ids[..2]))), "You can call: f::00, f::01.");
        let text = callable(&exposure, Some(&catalog(&ids)));
        assert!(text.ends_with("f::09 and 3 more, which the card lists."), "{text}");
        assert_eq!(callable(&exposure, None), "At the moment there are no functions that you can call.");
    }

    #[test]
    fn departed_functions_are_bounded() {
        let departed = Departed::default();
        let ids: Vec<String> = (0..MAX_DEPARTED + 9).map(|n| format!("f::{n}")).collect();
        departed.observe(Some(&catalog(&ids.iter().map(String::as_str).collect::<Vec<_>>())));
        departed.observe(Some(&catalog(&[])));
        assert_eq!(departed.0.lock().departed.len(), MAX_DEPARTED);
    }
}
