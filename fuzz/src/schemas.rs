//! Schemas of workers and payloads of callers: every check ends, and its result is that of a check without limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_iii::{FunctionInfo, Schemas};
use attache_protocol::Json;
use serde_json::Value;

/// The time limit of a check, with time for a busy machine.
const LONGEST: Duration = Duration::from_secs(15);

/// The longest description of the faults of a payload, in bytes.
const LARGEST: usize = 64 * 1024;

/// The errors that say nothing about the payload: a limit was reached, or the schema is rejected.
const UNDECIDED: [&str; 4] = ["schema cannot be used", "takes too long", "nested too deep", "try again"];

/// A schema, and after a line break a payload.
pub fn schemas(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (schema, payload) = data.split_at(end);
    let Ok(schema) = serde_json::from_slice::<Value>(schema) else { return };
    let Ok(Ok(payload)) = std::str::from_utf8(&payload[1..]).map(Json::parse) else { return };
    let function = Arc::new(FunctionInfo { request_format: Some(schema.clone()), ..FunctionInfo::new("f") });
    let begun = Instant::now();
    let schemas = Schemas::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs nothing that could be missing");
    let [first, second] = [(), ()].map(|()| runtime.block_on(schemas.check(&function, &payload)));
    assert!(begun.elapsed() < LONGEST * 2, "two checks took {:?}", begun.elapsed());
    assert_eq!(first.is_ok(), second.is_ok(), "a cached schema gives another result");
    if let Err(faults) = &first {
        assert!(faults.len() < LARGEST, "a long description: {} bytes", faults.len());
        if UNDECIDED.iter().any(|undecided| faults.contains(undecided)) {
            return;
        }
    }
    // Without limits, only a schema without references and patterns is known to end.
    let text = schema.to_string();
    if ["$ref", "$dynamicRef", "$recursiveRef", "attern", "ormat"].iter().any(|word| text.contains(word)) {
        return;
    }
    let (Ok(reference), Ok(value)) = (jsonschema::validator_for(&schema), payload.read::<Value>()) else {
        return;
    };
    if schema.is_object() {
        assert_eq!(first.is_ok(), reference.is_valid(&value), "{first:?}");
    }
}
