//! Payloads are checked against what their function says it takes.

use std::collections::HashMap;
use std::sync::Arc;

use attache_protocol::Json;
use jsonschema::Validator;
use parking_lot::Mutex;

use crate::FunctionInfo;

/// What is wrong with a payload is told for this many places at most.
const MAX_FAULTS: usize = 5;

/// The schemas of functions, made ready for use once each.
#[derive(Default)]
pub(crate) struct Schemas(Mutex<HashMap<Arc<str>, Ready>>);

struct Ready {
    /// What the schema was read from. Another one under the same id makes it worthless.
    function: Arc<FunctionInfo>,
    /// Nothing, if the schema is none.
    validator: Option<Arc<Validator>>,
}

impl Schemas {
    /// What is wrong with a payload, for people: which member, and what would be right.
    pub(crate) fn check(&self, function: &Arc<FunctionInfo>, payload: &Json) -> Result<(), String> {
        let Some(validator) = self.validator(function) else { return Ok(()) };
        let Ok(payload) = payload.read::<serde_json::Value>() else { return Ok(()) };
        let faults: Vec<String> = validator
            .iter_errors(&payload)
            .take(MAX_FAULTS)
            .map(|fault| {
                let place = fault.instance_path().to_string().replace('/', ".");
                format!("`payload{place}`: {fault}")
            })
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    fn validator(&self, function: &Arc<FunctionInfo>) -> Option<Arc<Validator>> {
        let schema = function.request_format.as_ref().filter(|schema| schema.is_object())?;
        if let Some(ready) = self.0.lock().get(&function.id)
            && Arc::ptr_eq(&ready.function, function)
        {
            return ready.validator.clone();
        }
        let validator = match jsonschema::validator_for(schema) {
            Ok(validator) => Some(Arc::new(validator)),
            Err(error) => {
                tracing::warn!(function = %function.id, %error, "a schema cannot be used, so payloads go unchecked");
                None
            }
        };
        let ready = Ready { function: function.clone(), validator: validator.clone() };
        self.0.lock().insert(function.id.clone(), ready);
        validator
    }

    /// Forgets the schemas of functions that are gone.
    pub(crate) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| is_there(id));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: serde_json::Value, payload: serde_json::Value) -> Result<(), String> {
        let function = FunctionInfo { request_format: Some(schema), ..FunctionInfo::new("a::b") };
        Schemas::default().check(&Arc::new(function), &Json::new(&payload).unwrap())
    }

    fn quote() -> serde_json::Value {
        json!({
            "type": "object",
            "required": ["sku"],
            "properties": {
                "sku": {"type": "string"},
                "lines": {"type": "array", "items": {"type": "object", "properties": {"quantity": {"type": "integer"}}}},
            },
        })
    }

    #[test]
    fn a_payload_that_fits_passes() {
        assert_eq!(check(quote(), json!({"sku": "A-1", "lines": [{"quantity": 2}]})), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(check(quote(), json!({})).unwrap_err(), "`payload`: \"sku\" is a required property");
        assert_eq!(
            check(quote(), json!({"sku": "A", "lines": [{"quantity": "two"}]})).unwrap_err(),
            "`payload.lines.0.quantity`: \"two\" is not of type \"integer\""
        );
    }

    #[test]
    fn a_schema_that_is_none_checks_nothing() {
        for schema in
            [json!({"type": 7}), json!("string"), json!(true), json!({"$ref": "http://example.invalid/x"})]
        {
            assert_eq!(check(schema, json!({"x": 1})), Ok(()));
        }
    }

    #[test]
    fn a_function_that_was_registered_anew_is_checked_anew() {
        let schemas = Schemas::default();
        let function =
            |schema| Arc::new(FunctionInfo { request_format: Some(schema), ..FunctionInfo::new("a::b") });
        let payload = Json::new(&json!({"n": "x"})).unwrap();
        assert!(
            schemas.check(&function(json!({"properties": {"n": {"type": "integer"}}})), &payload).is_err()
        );
        assert!(schemas.check(&function(json!({"properties": {"n": {"type": "string"}}})), &payload).is_ok());
    }
}
