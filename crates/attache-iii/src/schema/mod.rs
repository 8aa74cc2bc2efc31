//! Checks payloads against the schemas of their functions.
//!
//! Both inputs of a check are untrusted: the schema comes from a worker or another agent, the payload from a caller. So the cost
//! of a check is bounded, and no runtime thread runs an expensive check:
//!
//! - A schema that is too expensive for one value is rejected. The embedded engine rejects it when the function is registered
//!   ([`bounds`]).
//! - A check ends after a number of steps and a time, for every schema and payload ([`metered`]).
//! - Only a few errors are built.
//! - An expensive check runs on its own thread. The number of these threads is limited. They end by themselves, and do not keep
//!   the process from ending.

pub(crate) mod bounds;
mod metered;
mod pattern;

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use attache_protocol::Json;
use attache_protocol::json::is_deeper_than;
use jsonschema::{PatternOptions, ValidationError, Validator};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};

use self::bounds::{Bounds, SchemaError};
use self::metered::{Exceeded, Limits, Metered, MeteredValue, metered};
use self::pattern::{MAX_BACKTRACKS, MAX_CACHE, MAX_SIZE, Pattern, PatternError};
use crate::FunctionInfo;

/// How many faults of a payload are reported.
const MAX_FAULTS: usize = 5;

/// The longest description of a fault, in characters.
const MAX_FAULT: usize = 400;

/// How many errors are built for that, including the errors of alternatives.
const MAX_ERRORS: u64 = 500;

/// The limit of steps for a check.
const MAX_STEPS: u64 = 1 << 27;

/// The time limit of a check.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The limit of depth for a check: the levels of the payload, times the levels of the schema at each of them.
const MAX_LEVELS: usize = 2_000;

/// The largest payload that is checked on a runtime thread, in bytes.
const SMALL: usize = 16 * 1024;

/// The limit of steps on a runtime thread.
const FEW_STEPS: u64 = 50_000;

/// The limit of depth on a runtime thread.
const FEW_LEVELS: usize = 100;

/// The largest cost of a schema on a runtime thread.
const LOW_COST: u64 = 500;

/// The limit for all compiled regular expressions of a schema, in bytes.
const MAX_PATTERNS: u64 = 32 * 1024 * 1024;

/// The stack of a checking thread. It is enough for [`MAX_LEVELS`].
const STACK: usize = 16 * 1024 * 1024;

/// How many compiled schemas are cached.
const MAX_CACHED: usize = 1024;

/// A cache of compiled schemas, by function.
#[derive(Default)]
pub struct Schemas(Mutex<HashMap<Arc<str>, CachedSchema>>);

struct CachedSchema {
    /// The function that the schema belongs to. If it is replaced, the entry is invalid.
    function: Arc<FunctionInfo>,
    schema: Arc<CompiledSchema>,
}

impl Schemas {
    /// Checks a payload. The error names the member and the expected value, for people.
    pub async fn check(&self, function: &Arc<FunctionInfo>, payload: &Json) -> Result<(), String> {
        let Some(schema) = function.request_format.as_ref().filter(|schema| schema.is_object()) else {
            return Ok(());
        };
        let schema = match self.cached(function) {
            Some(schema) => schema,
            None => {
                let schema = Arc::new(CompiledSchema::compile(schema, &function.id).await.ok_or_else(busy)?);
                self.cache(CachedSchema { function: function.clone(), schema: schema.clone() });
                schema
            }
        };
        if let Some(outcome) = schema.check_inline(payload) {
            return outcome;
        }
        let payload = payload.clone();
        run_on_thread(move || schema.check(&payload)).await.unwrap_or_else(|| Err(busy()))
    }

    fn cached(&self, function: &Arc<FunctionInfo>) -> Option<Arc<CompiledSchema>> {
        let all = self.0.lock();
        all.get(&function.id)
            .filter(|cached| Arc::ptr_eq(&cached.function, function))
            .map(|cached| cached.schema.clone())
    }

    fn cache(&self, cached: CachedSchema) {
        let mut all = self.0.lock();
        if all.len() >= MAX_CACHED
            && !all.contains_key(&cached.function.id)
            && let Some(any) = all.keys().next().cloned()
        {
            all.remove(&any);
        }
        all.insert(cached.function.id.clone(), cached);
    }

    /// Removes the schemas of functions that no longer exist.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| is_there(id));
    }
}

/// Why the schema of a new function is rejected. `None` if it is accepted.
pub(crate) async fn rejection_reason(schema: &Value) -> Option<String> {
    let examine = |schema: &Value| Bounds::of(schema).and_then(|bounds| name_rate(&bounds));
    let found = if is_small(schema) {
        examine(schema)
    } else {
        let schema = schema.clone();
        run_on_thread(move || examine(&schema))
            .await
            .unwrap_or_else(|| Err(SchemaError::TooExpensive(busy())))
    };
    match found {
        Err(SchemaError::TooExpensive(why)) => Some(why),
        // A schema that cannot be compiled is not used, so it costs nothing.
        Ok(_) | Err(SchemaError::Unusable(_)) => None,
    }
}

/// Whether compiling the schema takes negligible time.
fn is_small(schema: &Value) -> bool {
    fn fits(part: &Value, left: &mut usize) -> bool {
        let (own, patterns) = match part {
            Value::String(text) => (text.len(), 0),
            Value::Array(items) => (items.len(), 0),
            Value::Object(members) => {
                let names = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
                let keys: usize = members.keys().map(String::len).sum();
                (keys, names + usize::from(members.contains_key("pattern")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (0, 0),
        };
        // Compiling a pattern takes as long as parsing some kilobytes of schema.
        let Some(rest) = left.checked_sub(8 + own + 4096 * patterns) else { return false };
        *left = rest;
        match part {
            Value::Array(items) => items.iter().all(|item| fits(item, left)),
            Value::Object(members) => members.values().all(|member| fits(member, left)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    fits(schema, &mut (8 * 1024))
}

fn busy() -> String {
    "cannot start a thread for the check: try again".to_owned()
}

/// Runs a closure on its own thread, when there is a permit. Returns `None` if no thread can be started.
async fn run_on_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(cores.min(4)))
    });
    let permit = PERMITS.clone().acquire_owned().await.ok()?;
    let (sender, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK);
    let started = thread.spawn(move || {
        // The permit is held until the work is done, even if the caller stopped waiting.
        let _permit = permit;
        let _ = sender.send(run());
    });
    if let Err(error) = started {
        tracing::error!(%error, "cannot start a thread to check a payload or a schema");
        return None;
    }
    result.await.ok()
}

/// What happens with the payloads of a function.
enum CompiledSchema {
    /// They are checked.
    Checked(Box<Check>),
    /// They are not checked: the schema cannot be used.
    Unchecked,
    /// The function cannot be called, for this reason.
    Rejected(String),
}

struct Check {
    validator: Validator<Metered>,
    bounds: Bounds,
    name_rate: u64,
}

impl CompiledSchema {
    /// Compiles a schema. Returns `None` if no thread can be started for it.
    async fn compile(schema: &Value, function: &Arc<str>) -> Option<Self> {
        if is_small(schema) {
            return Some(Self::new(schema, function));
        }
        let (schema, function) = (schema.clone(), function.clone());
        run_on_thread(move || Self::new(&schema, &function)).await
    }

    fn new(schema: &Value, function: &str) -> Self {
        match Check::new(schema) {
            Ok(check) => Self::Checked(Box::new(check)),
            Err(SchemaError::TooExpensive(why)) => {
                tracing::warn!(function, why, "a schema is too expensive; the function cannot be called");
                Self::Rejected(why)
            }
            Err(SchemaError::Unusable(why)) => {
                tracing::warn!(function, error = why, "a schema cannot be used; payloads are not checked");
                Self::Unchecked
            }
        }
    }

    /// Checks a small payload on this thread. Returns `None` if the check is too expensive for that.
    fn check_inline(&self, payload: &Json) -> Option<Result<(), String>> {
        let Self::Checked(check) = self else { return Some(self.check(payload)) };
        let small = payload.as_str().len() <= SMALL
            && check.bounds.cost <= LOW_COST
            && !check.is_too_deep(payload, FEW_LEVELS);
        let limits = Limits { steps: FEW_STEPS, time: Duration::from_millis(50), ..check.limits(MAX_TIME) };
        small.then(|| check.run(payload, limits).ok()).flatten()
    }

    fn check(&self, payload: &Json) -> Result<(), String> {
        match self {
            Self::Checked(check) if check.is_too_deep(payload, MAX_LEVELS) => Err(format!(
                "`payload` is nested too deep for the schema: the levels of both, multiplied, may be {MAX_LEVELS}"
            )),
            Self::Checked(check) => check.run(payload, check.limits(MAX_TIME)).unwrap_or_else(|Exceeded| {
                Err(format!(
                    "`payload` takes too long to check: more than {MAX_STEPS} steps, or {} seconds",
                    MAX_TIME.as_secs()
                ))
            }),
            Self::Unchecked => Ok(()),
            Self::Rejected(why) => Err(format!("its schema cannot be used: {why}")),
        }
    }
}

/// The number of steps for 256 bytes of a member's name. Fails if a pattern cannot be used.
fn name_rate(bounds: &Bounds) -> Result<u64, SchemaError> {
    let size = |text: &String| match Pattern::new(text) {
        Ok(pattern) => Ok(pattern.size()),
        Err(PatternError::TooLarge(why)) => Err(SchemaError::TooExpensive(why)),
        Err(PatternError::Invalid(why)) => Err(SchemaError::Unusable(why)),
    };
    let sum = |texts: &[String], before: u64| {
        texts.iter().try_fold(before, |sum, text| match size(text)?.saturating_add(sum) {
            sum if sum > MAX_PATTERNS => Err(SchemaError::TooExpensive(format!(
                "its regular expressions take more than {MAX_PATTERNS} bytes when compiled"
            ))),
            sum => Ok(sum),
        })
    };
    let rate = sum(&bounds.name_patterns, 0)?;
    sum(&bounds.patterns, rate)?;
    Ok(rate)
}

impl Check {
    fn new(schema: &Value) -> Result<Self, SchemaError> {
        let bounds = Bounds::of(schema)?;
        let name_rate = name_rate(&bounds)?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
        let validator = jsonschema::options_for::<Metered>()
            .with_pattern_options(patterns.size_limit(MAX_SIZE).dfa_size_limit(MAX_CACHE))
            .with_keyword("pattern", |_, value, _| {
                let text = value.as_str().ok_or_else(|| ValidationError::custom("a pattern is a string"))?;
                match Pattern::new(text) {
                    Ok(pattern) => Ok(Box::new(pattern)),
                    Err(PatternError::TooLarge(why) | PatternError::Invalid(why)) => {
                        Err(ValidationError::custom(why))
                    }
                }
            })
            // This format compiles a text of the caller, which may take arbitrarily long.
            .with_format("regex", |_: &str| true)
            .build(schema)
            .map_err(|error| SchemaError::Unusable(describe_fault(&error)))?;
        Ok(Self { validator, bounds, name_rate })
    }

    fn limits(&self, time: Duration) -> Limits {
        Limits { steps: MAX_STEPS, errors: MAX_ERRORS, time, name_rate: self.name_rate }
    }

    fn is_too_deep(&self, payload: &Json, levels: usize) -> bool {
        is_deeper_than(payload.as_str().as_bytes(), levels / self.bounds.height.max(1))
    }

    /// Checks a payload and describes its faults.
    fn run(&self, payload: &Json, limits: Limits) -> Result<Result<(), String>, Exceeded> {
        let begun = Instant::now();
        let payload = match payload.read::<Value>() {
            Ok(payload) => payload,
            // It nests too deep, or has a number that is too large.
            Err(error) => return Ok(Err(format!("`payload` cannot be parsed: {error}"))),
        };
        let left = || Limits { time: limits.time.saturating_sub(begun.elapsed()), ..limits };
        // Most payloads are valid, and this check builds no errors.
        if metered(left(), || self.validator.is_valid(MeteredValue(&payload)))? {
            return Ok(Ok(()));
        }
        let few = metered(left(), || {
            let errors = self.validator.iter_errors(MeteredValue(&payload));
            errors.take(MAX_FAULTS).map(|fault| describe_fault(&fault)).collect::<Vec<_>>()
        });
        let faults = few.or_else(|Exceeded| {
            metered(left(), || {
                let first = self.validator.validate(MeteredValue(&payload)).err();
                first.map(|fault| describe_fault(&fault)).into_iter().collect()
            })
        });
        let Ok(faults) = faults else {
            return Ok(Err("`payload` does not match the schema, in too many places to list".to_owned()));
        };
        Ok(Err(faults.join("; ")))
    }
}

/// Describes a fault and its place.
fn describe_fault(fault: &ValidationError<'_>) -> String {
    let permit = truncate(&fault.instance_path().to_string().replace('/', "."), MAX_FAULT / 4);
    // A long value would hide the description.
    let is_long = truncate(fault.instance(), MAX_FAULT / 4).ends_with('…');
    let text =
        if is_long { truncate(&fault.masked_with("this"), MAX_FAULT) } else { truncate(fault, MAX_FAULT) };
    format!("`payload{permit}`: {text}")
}

/// The beginning of a text. The rest is never formatted.
fn truncate(value: &dyn fmt::Display, characters: usize) -> String {
    struct Truncated {
        text: String,
        left: usize,
    }
    impl Write for Truncated {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            match text.char_indices().nth(self.left) {
                None => {
                    self.left -= text.chars().count();
                    self.text.push_str(text);
                    Ok(())
                }
                Some((end, _)) => {
                    self.text.push_str(&text[..end]);
                    self.text.push('…');
                    Err(fmt::Error)
                }
            }
        }
    }
    let mut truncated = Truncated { text: String::new(), left: characters };
    // Formatting stops with an error when enough is written.
    let _ = write!(truncated, "{value}");
    truncated.text
}

#[cfg(test)]
mod tests;
