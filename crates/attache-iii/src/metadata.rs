//! Checks the metadata of functions, and warns about values that have no effect.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::input::{INPUT, MESSAGE};
use crate::{Catalog, FunctionInfo};

/// The faults that were logged.
#[derive(Default)]
pub(crate) struct MetadataCheck(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Arc<Catalog>>,
    faults: HashMap<Arc<str>, Vec<String>>,
}

impl MetadataCheck {
    /// Logs the faults in the metadata of new and changed functions. Returns their number.
    pub(crate) fn observe(&self, catalog: Option<&Arc<Catalog>>) -> usize {
        let Some(catalog) = catalog else { return 0 };
        let mut state = self.0.lock();
        if state.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, catalog)) {
            return 0;
        }
        state.last = Some(catalog.clone());
        let mut logged = 0;
        let mut current = HashMap::new();
        for (id, function) in catalog.iter() {
            let faults = faults(function);
            if faults.is_empty() {
                continue;
            }
            let known = state.faults.get(id).map(Vec::as_slice).unwrap_or_default();
            for fault in faults.iter().filter(|fault| !known.contains(fault)) {
                let (function, worker) = (&**id, function.worker.as_deref());
                tracing::warn!(function, worker, fault, "the metadata of a function has no effect");
                logged += 1;
            }
            current.insert(id.clone(), faults);
        }
        state.faults = current;
        logged
    }
}

/// What a value must be.
#[derive(Clone, Copy)]
enum Expected {
    Flag,
    Text,
    TextOrTexts,
    Texts,
    Millis,
    Input,
}

const KEYS: [(&str, Expected); 13] = [
    ("a2a.expose", Expected::Flag),
    ("a2a.tier", Expected::TextOrTexts),
    ("a2a.scopes", Expected::TextOrTexts),
    ("a2a.name", Expected::Text),
    ("a2a.tags", Expected::Texts),
    ("a2a.examples", Expected::Texts),
    ("a2a.inputModes", Expected::Texts),
    ("a2a.outputModes", Expected::Texts),
    ("a2a.timeoutMs", Expected::Millis),
    ("a2a.stream", Expected::Flag),
    ("a2a.public", Expected::Flag),
    ("a2a.origins", Expected::Texts),
    (INPUT, Expected::Input),
];

impl Expected {
    fn is_met(self, value: &Value) -> bool {
        let is_texts = || value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        match self {
            Self::Flag => value.is_boolean(),
            Self::Text => value.is_string(),
            Self::TextOrTexts => value.is_string() || is_texts(),
            Self::Texts => is_texts(),
            Self::Millis => value.as_u64().is_some_and(|millis| millis > 0),
            Self::Input => value.as_str() == Some(MESSAGE),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Flag => "true or false",
            Self::Text => "a string",
            Self::TextOrTexts => "a string or a list of strings",
            Self::Texts => "a list of strings",
            Self::Millis => "a number of milliseconds",
            Self::Input => "\"message\"",
        }
    }
}

/// The faults in the metadata of a function.
fn faults(function: &FunctionInfo) -> Vec<String> {
    let values =
        KEYS.iter().filter_map(|(key, expected)| Some((key, expected, function.metadata_value(key)?)));
    let wrong = values.filter(|(_, expected, value)| !value.is_null() && !expected.is_met(value));
    let texts = wrong.map(|(key, expected, value)| {
        let value: String = value.to_string().chars().take(40).collect();
        format!("`{key}` is `{value}`, expected {}", expected.text())
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn function(metadata: Value) -> FunctionInfo {
        FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new("a::b") }
    }

    #[test]
    fn a_fault_names_the_key_the_value_and_what_is_expected() {
        let metadata = json!({"a2a.expose": "true", "a2a.tier": 7, "a2a.timeoutMs": 0, "a2a.input": "text"});
        assert_eq!(
            faults(&function(metadata)),
            [
                r#"`a2a.expose` is `"true"`, expected true or false"#,
                "`a2a.tier` is `7`, expected a string or a list of strings",
                "`a2a.timeoutMs` is `0`, expected a number of milliseconds",
                r#"`a2a.input` is `"text"`, expected "message""#,
            ]
        );
        assert_eq!(
            faults(&function(json!({"a2a.origins": "https://app.example.com"}))),
            [r#"`a2a.origins` is `"https://app.example.com"`, expected a list of strings"#]
        );
        let right =
            json!({"a2a.expose": true, "a2a.tier": ["a"], "a2a.scopes": "x y", "other": 1, "a2a.name": null});
        assert!(faults(&function(right)).is_empty());
    }

    #[test]
    fn a_fault_is_logged_once_until_it_changes() {
        let check = MetadataCheck::default();
        let catalog = |expose: Value| {
            let function = function(json!({"a2a.expose": expose}));
            Arc::new(Catalog::from([(function.id.clone(), Arc::new(function))]))
        };
        assert_eq!(check.observe(Some(&catalog(json!("true")))), 1);
        assert_eq!(check.observe(Some(&catalog(json!("true")))), 0);
        assert_eq!(check.observe(None), 0);
        assert_eq!(check.observe(Some(&catalog(json!(1)))), 1);
        assert_eq!(check.observe(Some(&catalog(json!(true)))), 0);
        assert_eq!(check.observe(Some(&catalog(json!(1)))), 1, "it is new again");
    }
}
