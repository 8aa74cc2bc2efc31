//! Payloads are checked against what their function says it takes.
//!
//! Both sides of a check come from outside: the schema from a worker or another agent, the payload from a caller. So what a check
//! takes is bounded, and no thread of the runtime works on a large one:
//!
//! - a schema that asks for too much of one value is refused, when its function is registered if the engine is ours ([`bounds`]);
//! - a check ends after a number of steps and a time, whatever schema and payload are ([`metered`]);
//! - a few errors are built, and no more;
//! - what is not small is checked on a thread of its own, few at a time. Such a thread ends by itself, and does not keep the process
//!   from ending.

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

use self::bounds::{Bounds, Refused};
use self::metered::{Exceeded, Limits, Metered, MeteredValue, metered};
use self::pattern::{MAX_BACKTRACKS, MAX_CACHE, MAX_SIZE, Pattern, PatternError};
use crate::FunctionInfo;

/// What is wrong with a payload is told for this many places at most.
const MAX_FAULTS: usize = 5;

/// How many characters are said about one of them.
const MAX_FAULT: usize = 400;

/// How many errors are built to tell them, those of alternatives included.
const MAX_ERRORS: u64 = 500;

/// How many steps a check takes.
const MAX_STEPS: u64 = 1 << 27;

/// How long a check takes.
const MAX_TIME: Duration = Duration::from_secs(5);

/// How deep a check goes: the levels of the payload, times those of the schema at each.
const MAX_LEVELS: usize = 2_000;

/// How many bytes are checked, or read, on a thread of the runtime.
const SMALL: usize = 16 * 1024;

/// How many steps are taken there.
const FEW_STEPS: u64 = 50_000;

/// How many levels are gone down there.
const FEW_LEVELS: usize = 100;

/// How much of one value a schema asks there.
const LOW_COST: u64 = 500;

/// How many bytes the regular expressions of a schema take when they are compiled.
const MAX_PATTERNS: u64 = 32 * 1024 * 1024;

/// The stack of a thread that checks: enough for [`MAX_LEVELS`].
const STACK: usize = 16 * 1024 * 1024;

/// How many schemas are kept ready for use.
const MAX_READY: usize = 1024;

/// The schemas of functions, made ready for use once each.
#[derive(Default)]
pub(crate) struct Schemas(Mutex<HashMap<Arc<str>, Ready>>);

struct Ready {
    /// What the schema was read from. Another one under the same id makes it worthless.
    function: Arc<FunctionInfo>,
    rules: Arc<Rules>,
}

impl Schemas {
    /// What is wrong with a payload, for people: which member, and what would be right.
    pub(crate) async fn check(&self, function: &Arc<FunctionInfo>, payload: &Json) -> Result<(), String> {
        let Some(schema) = function.request_format.as_ref().filter(|schema| schema.is_object()) else {
            return Ok(());
        };
        let rules = match self.ready(function) {
            Some(rules) => rules,
            None => {
                let rules = Arc::new(Rules::read(schema, &function.id).await.ok_or_else(busy)?);
                self.keep_ready(Ready { function: function.clone(), rules: rules.clone() });
                rules
            }
        };
        if let Some(outcome) = rules.check_quickly(payload) {
            return outcome;
        }
        let payload = payload.clone();
        elsewhere(move || rules.check(&payload)).await.unwrap_or_else(|| Err(busy()))
    }

    fn ready(&self, function: &Arc<FunctionInfo>) -> Option<Arc<Rules>> {
        let all = self.0.lock();
        all.get(&function.id)
            .filter(|ready| Arc::ptr_eq(&ready.function, function))
            .map(|ready| ready.rules.clone())
    }

    fn keep_ready(&self, ready: Ready) {
        let mut all = self.0.lock();
        if all.len() >= MAX_READY
            && !all.contains_key(&ready.function.id)
            && let Some(any) = all.keys().next().cloned()
        {
            all.remove(&any);
        }
        all.insert(ready.function.id.clone(), ready);
    }

    /// Forgets the schemas of functions that are gone.
    pub(crate) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| is_there(id));
    }
}

/// Why the schema of a function that is to be registered is refused, if it is.
pub(crate) async fn refusal(schema: &Value) -> Option<String> {
    let examine = |schema: &Value| Bounds::of(schema).and_then(|bounds| name_rate(&bounds));
    let found = if is_small(schema) {
        examine(schema)
    } else {
        let schema = schema.clone();
        elsewhere(move || examine(&schema)).await.unwrap_or_else(|| Err(Refused::Costly(busy())))
    };
    match found {
        Err(Refused::Costly(why)) => Some(why),
        // One that cannot be used costs nothing.
        Ok(_) | Err(Refused::Outside(_)) => None,
    }
}

/// Whether it takes no time worth mentioning to read a schema.
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
        // To compile a pattern takes as long as to read some kilobytes of others.
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
    "no thread can be started to check it at the moment: try again".to_owned()
}

/// Runs something on a thread of its own, as soon as few enough others run. Nothing, if there can be no thread.
async fn elsewhere<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(cores.min(4)))
    });
    let place = PLACES.clone().acquire_owned().await.ok()?;
    let (sender, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK);
    let started = thread.spawn(move || {
        // Kept until the work is done, also if the caller has stopped waiting.
        let _place = place;
        let _ = sender.send(run());
    });
    if let Err(error) = started {
        tracing::error!(%error, "cannot start a thread to check a payload");
        return None;
    }
    result.await.ok()
}

/// What is done with the payloads of a function.
enum Rules {
    /// They are checked.
    Checked(Box<Check>),
    /// They are not: there is no schema that could be used.
    Unchecked,
    /// The function cannot be called, for this reason.
    Refused(String),
}

struct Check {
    validator: Validator<Metered>,
    bounds: Bounds,
    name_rate: u64,
}

impl Rules {
    /// Reads a schema. Nothing, if there can be no thread to do so.
    async fn read(schema: &Value, function: &Arc<str>) -> Option<Self> {
        if is_small(schema) {
            return Some(Self::new(schema, function));
        }
        let (schema, function) = (schema.clone(), function.clone());
        elsewhere(move || Self::new(&schema, &function)).await
    }

    fn new(schema: &Value, function: &str) -> Self {
        match Check::new(schema) {
            Ok(check) => Self::Checked(Box::new(check)),
            Err(Refused::Costly(why)) => {
                tracing::warn!(function, why, "a schema asks for too much, so the function cannot be called");
                Self::Refused(why)
            }
            Err(Refused::Outside(why)) => {
                tracing::warn!(function, error = why, "a schema cannot be used, so payloads go unchecked");
                Self::Unchecked
            }
        }
    }

    /// Checks a small payload. Nothing, if that takes a while.
    fn check_quickly(&self, payload: &Json) -> Option<Result<(), String>> {
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
            Self::Refused(why) => Err(format!("its schema cannot be used: {why}")),
        }
    }
}

/// Steps for 256 bytes of a member's name, if all patterns can be used.
fn name_rate(bounds: &Bounds) -> Result<u64, Refused> {
    let size = |text: &String| match Pattern::new(text) {
        Ok(pattern) => Ok(pattern.size()),
        Err(PatternError::TooLarge(why)) => Err(Refused::Costly(why)),
        Err(PatternError::Unusable(why)) => Err(Refused::Outside(why)),
    };
    let sum = |texts: &[String], before: u64| {
        texts.iter().try_fold(before, |sum, text| match size(text)?.saturating_add(sum) {
            sum if sum > MAX_PATTERNS => Err(Refused::Costly(format!(
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
    fn new(schema: &Value) -> Result<Self, Refused> {
        let bounds = Bounds::of(schema)?;
        let name_rate = name_rate(&bounds)?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
        let validator = jsonschema::options_for::<Metered>()
            .with_pattern_options(patterns.size_limit(MAX_SIZE).dfa_size_limit(MAX_CACHE))
            .with_keyword("pattern", |_, value, _| {
                let text = value.as_str().ok_or_else(|| ValidationError::custom("a pattern is a string"))?;
                match Pattern::new(text) {
                    Ok(pattern) => Ok(Box::new(pattern)),
                    Err(PatternError::TooLarge(why) | PatternError::Unusable(why)) => {
                        Err(ValidationError::custom(why))
                    }
                }
            })
            // Compiles what a caller sends, which takes as long as the caller likes.
            .with_format("regex", |_: &str| true)
            .build(schema)
            .map_err(|error| Refused::Outside(told(&error)))?;
        Ok(Self { validator, bounds, name_rate })
    }

    fn limits(&self, time: Duration) -> Limits {
        Limits { steps: MAX_STEPS, errors: MAX_ERRORS, time, name_rate: self.name_rate }
    }

    fn is_too_deep(&self, payload: &Json, levels: usize) -> bool {
        is_deeper_than(payload.as_str().as_bytes(), levels / self.bounds.height.max(1))
    }

    /// Checks a payload, and tells what is wrong with it.
    fn run(&self, payload: &Json, limits: Limits) -> Result<Result<(), String>, Exceeded> {
        let begun = Instant::now();
        let payload = match payload.read::<Value>() {
            Ok(payload) => payload,
            // It nests too deep, or has a number that is too large.
            Err(error) => return Ok(Err(format!("`payload` cannot be read: {error}"))),
        };
        let left = || Limits { time: limits.time.saturating_sub(begun.elapsed()), ..limits };
        // Most payloads are right, and to find that out builds nothing.
        if metered(left(), || self.validator.is_valid(MeteredValue(&payload)))? {
            return Ok(Ok(()));
        }
        let few = metered(left(), || {
            let errors = self.validator.iter_errors(MeteredValue(&payload));
            errors.take(MAX_FAULTS).map(|fault| told(&fault)).collect::<Vec<_>>()
        });
        let faults = few.or_else(|Exceeded| {
            metered(left(), || {
                let first = self.validator.validate(MeteredValue(&payload)).err();
                first.map(|fault| told(&fault)).into_iter().collect()
            })
        });
        let Ok(faults) = faults else {
            return Ok(Err("`payload` does not fit the schema, in more places than can be told".to_owned()));
        };
        Ok(Err(faults.join("; ")))
    }
}

/// What is wrong, and where.
fn told(fault: &ValidationError<'_>) -> String {
    let place = short(&fault.instance_path().to_string().replace('/', "."), MAX_FAULT / 4);
    // A long value would hide what is said about it.
    let is_long = short(fault.instance(), MAX_FAULT / 4).ends_with('…');
    let text = if is_long { short(&fault.masked_with("this"), MAX_FAULT) } else { short(fault, MAX_FAULT) };
    format!("`payload{place}`: {text}")
}

/// The beginning of something, without writing the rest of it first.
fn short(shown: &dyn fmt::Display, characters: usize) -> String {
    struct Beginning {
        text: String,
        left: usize,
    }
    impl Write for Beginning {
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
    let mut beginning = Beginning { text: String::new(), left: characters };
    // It breaks off where enough is written.
    let _ = write!(beginning, "{shown}");
    beginning.text
}

#[cfg(test)]
mod tests;
