//! JSON values that count every access, so that a validation can be stopped.
//!
//! The validator of the `jsonschema` crate cannot be interrupted. But it reads its instance through the [`Json`] trait, so the
//! instance can stop it: every access is a step, and the step that exceeds a limit unwinds the stack to [`metered`]. Between two
//! accesses the validator does at most the work for one value, which [`bounds`](super::bounds) limits. This needs a build in
//! which panics unwind.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Number, Value};

/// The clock is read after this many steps.
const STEPS_PER_CLOCK_CHECK: u64 = 1024;

/// The limits of a validation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Accesses to the instance. Long strings and comparisons count more than once.
    pub(super) steps: u64,
    /// Errors that are built, including those of alternatives.
    pub(super) errors: u64,
    /// The clock is read only now and then, so this limit may be exceeded by a little.
    pub(super) time: Duration,
    /// Steps for 256 bytes of a member's name. Each name is matched with all patterns for names.
    pub(super) name_rate: u64,
}

/// A validation exceeded a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exceeded;

#[derive(Clone, Copy)]
struct Meter {
    steps: u64,
    /// The clock is read when this many steps remain.
    next_clock_check: u64,
    errors: u64,
    deadline: Instant,
    name_rate: u64,
}

thread_local! {
    /// The limits of the validation on this thread. The crate creates values of its own, so values cannot carry the limits.
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
}

/// Runs a validation with limits.
pub(super) fn metered<T>(limits: Limits, run: impl FnOnce() -> T) -> Result<T, Exceeded> {
    let Limits { steps, errors, time, name_rate } = limits;
    let next_clock_check = steps.saturating_sub(STEPS_PER_CLOCK_CHECK);
    let meter = Meter { steps, next_clock_check, errors, deadline: Instant::now() + time, name_rate };
    METER.set(Some(meter));
    let result = catch_unwind(AssertUnwindSafe(run));
    METER.set(None);
    result.map_err(|payload| match payload.downcast::<Exceeded>() {
        Ok(exceeded) => *exceeded,
        Err(other) => resume_unwind(other),
    })
}

/// Counts steps before they are done.
#[inline]
pub(super) fn step(count: u64) {
    METER.with(|cell| {
        let Some(mut meter) = cell.get() else { return };
        let Some(left) = meter.steps.checked_sub(count) else { exceed() };
        meter.steps = left;
        if left <= meter.next_clock_check {
            meter.next_clock_check = left.saturating_sub(STEPS_PER_CLOCK_CHECK);
            if Instant::now() >= meter.deadline {
                exceed();
            }
        }
        cell.set(Some(meter));
    });
}

/// Counts an error.
fn count_error() {
    METER.with(|cell| {
        let Some(mut meter) = cell.get() else { return };
        let Some(left) = meter.errors.checked_sub(1) else { exceed() };
        meter.errors = left;
        cell.set(Some(meter));
    });
}

/// Counts the steps to match a name with all patterns for names.
fn step_name(name: &str) {
    let rate = METER.with(|cell| cell.get().map_or(0, |meter| meter.name_rate));
    step(1 + ((name.len() as u64).saturating_mul(rate) >> 8));
}

#[cold]
fn exceed() -> ! {
    // This is not a panic: nothing went wrong, so there is no message and no backtrace.
    resume_unwind(Box::new(Exceeded))
}

/// Counts the steps to compare a whole value.
fn step_through(value: &Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => step(1),
        Value::String(text) => step(1 + text.len() as u64 / 64),
        Value::Array(items) => {
            step(1);
            items.iter().for_each(step_through);
        }
        Value::Object(members) => {
            step(1);
            for (name, value) in members {
                step(1 + name.len() as u64 / 64);
                step_through(value);
            }
        }
    }
}

/// The representation of JSON that validators are built for.
pub(super) struct Metered;

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, run: impl FnOnce(MeteredValue<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        run(MeteredValue(buffer))
    }
}

/// A value that counts accesses.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredValue<'a>(pub(super) &'a Value);

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        step(1);
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        step(1);
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        // Formats, encodings and enumerations read the whole text.
        step(1 + text.map_or(0, |text| text.len() as u64 / 4));
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        step(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        step(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        step(1);
        self.0.is_null()
    }

    fn is_number(&self) -> bool {
        step(1);
        self.0.is_number()
    }

    fn is_string(&self) -> bool {
        step(1);
        self.0.is_string()
    }

    fn json_type(&self) -> JsonType {
        step(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str();
        step(1 + text.map_or(0, |text| text.len() as u64 / 16));
        text.map(|text| text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        // The expected value is part of the schema, so its size is limited. The size of the instance may not be.
        step_through(expected);
        cmp::equal(self.0, expected)
    }

    /// The crate calls this only to build an error.
    fn to_value(&self) -> Cow<'a, Value> {
        count_error();
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        step(1);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

/// The members of an object.
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        step(1);
        self.0.get(key).map(MeteredValue)
    }

    fn members(&self) -> MeteredMembers<'a> {
        MeteredMembers(self.0.iter())
    }
}

/// Iterates over the members of an object.
pub(super) struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        step_name(name);
        Some((name, MeteredValue(value)))
    }
}

/// The items of an array.
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = MeteredItems<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredItems<'a> {
        MeteredItems(self.0.iter())
    }

    /// Sorts the items. The crate hashes them, and a caller could choose items with equal hashes.
    fn is_unique(&self) -> bool {
        let mut items: Vec<&Value> = self.0.iter().collect();
        items.sort_unstable_by(|one, other| order(one, other));
        items.windows(2).all(|pair| order(pair[0], pair[1]).is_ne())
    }
}

/// A total order of values. Values are equal if JSON Schema calls them equal.
fn order(one: &Value, other: &Value) -> Ordering {
    step(1);
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => order_numbers(one, other),
        (Value::String(one), Value::String(other)) => {
            step(one.len().min(other.len()) as u64 / 64);
            one.cmp(other)
        }
        (Value::Array(one), Value::Array(other)) => {
            let items = one.iter().zip(other).map(|(one, other)| order(one, other));
            one.len().cmp(&other.len()).then_with(|| first_difference(items))
        }
        // The members are sorted by name.
        (Value::Object(one), Value::Object(other)) => {
            let members = one.iter().zip(other).map(|((name, one), (another, other))| {
                step(name.len().min(another.len()) as u64 / 64);
                name.cmp(another).then_with(|| order(one, other))
            });
            one.len().cmp(&other.len()).then_with(|| first_difference(members))
        }
        _ => kind(one).cmp(&kind(other)),
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn order_numbers(one: &Number, other: &Number) -> Ordering {
    // Every integer up to 2^120 of both kinds fits. Larger numbers are all floats.
    let whole = |number: &Number| {
        let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 2f64.powi(120));
        number.as_i128().or_else(|| float().map(|float| float as i128))
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) | (None, Some(_)) | (None, None) => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(one).total_cmp(&float(other))
        }
    }
}

/// Iterates over the items of an array.
pub(super) struct MeteredItems<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredItems<'a> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        step(1);
        self.0.next().map(MeteredValue)
    }
}
