//! `state::update`: changes parts of a value. An operation that cannot be applied is skipped and reported. The others are
//! applied.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

const MAX_PATH: usize = 32;
const MAX_SEGMENT: usize = 256;
const MAX_VALUE_DEPTH: usize = 16;
const MAX_VALUE_KEYS: usize = 1024;

/// Names with a special meaning in JavaScript, where workers may read the value.
const RESERVED_NAMES: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// A change to a part of a value.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Op {
    /// Sets a member, or the whole value if the path is empty.
    Set { path: String, value: Value },
    /// Merges the members of an object into the object at the path.
    Merge {
        #[serde(default)]
        path: Path,
        value: Value,
    },
    /// Adds to a number.
    Increment { path: String, by: Number },
    /// Subtracts from a number.
    Decrement { path: String, by: Number },
    /// Appends an element to an array, or text to a string.
    Append {
        #[serde(default)]
        path: Path,
        value: Value,
    },
    /// Removes a member.
    Remove { path: String },
}

/// The path to a part of a value: one member, or nested members.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
pub(super) enum Path {
    #[default]
    Root,
    Member(String),
    Nested(Vec<String>),
}

impl Path {
    fn segments(self) -> Vec<String> {
        match self {
            Self::Root => Vec::new(),
            Self::Member(name) if name.is_empty() => Vec::new(),
            Self::Member(name) => vec![name],
            Self::Nested(names) => names,
        }
    }
}

/// Why an operation was skipped.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct OpError {
    op_index: usize,
    code: String,
    message: String,
    doc_url: &'static str,
}

type OpFailure = (String, String);

fn failure(op: &str, why: &str, message: impl Into<String>) -> OpFailure {
    (format!("{op}.{why}"), message.into())
}

/// Applies operations in order. A missing value is `null`, and becomes an object where an object is needed.
pub(super) fn apply(mut value: Value, ops: Vec<Op>) -> (Value, Vec<OpError>) {
    let mut errors = Vec::new();
    for (op_index, op) in ops.into_iter().enumerate() {
        if let Err((code, message)) = apply_one(&mut value, op) {
            let doc_url = "https://iii.dev/docs/workers/iii-state#error-codes";
            errors.push(OpError { op_index, code, message, doc_url });
        }
    }
    (value, errors)
}

fn apply_one(root: &mut Value, op: Op) -> Result<(), OpFailure> {
    match op {
        Op::Set { path, value } if path.is_empty() => *root = value,
        Op::Set { path, value } => {
            members(root, "set")?.insert(path, value);
        }
        Op::Increment { path, by } => add(root, "increment", path, by)?,
        Op::Decrement { path, by } => {
            let by = match by.as_i64().and_then(i64::checked_neg) {
                Some(by) => by.into(),
                None => by.as_f64().and_then(|by| Number::from_f64(-by)).unwrap_or(by),
            };
            add(root, "decrement", path, by)?;
        }
        Op::Remove { path } => {
            if !root.is_null() {
                members(root, "remove")?.remove(&path);
            }
        }
        Op::Merge { path, value } => {
            let path = checked_path(path)?;
            let Value::Object(new) = value else {
                return Err(failure("merge", "value.not_an_object", "the merged value must be an object"));
            };
            check_merged(&new)?;
            let target = descend(root, &path);
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            if let Value::Object(target) = target {
                target.extend(new);
            }
        }
        Op::Append { path, value } => {
            let path = checked_path(path)?;
            if !path.is_empty() {
                members(root, "append")?;
            }
            append(descend(root, &path), value)?;
        }
    }
    Ok(())
}

/// The members of the value. `null` becomes an empty object.
fn members<'a>(root: &'a mut Value, op: &str) -> Result<&'a mut Map<String, Value>, OpFailure> {
    if root.is_null() {
        *root = Value::Object(Map::new());
    }
    match root {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(failure(op, "target_not_object", "the value is not an object"))
        }
    }
}

fn add(root: &mut Value, op: &str, path: String, by: Number) -> Result<(), OpFailure> {
    let member = members(root, op)?.entry(path.clone()).or_insert_with(|| Value::from(0));
    let Value::Number(number) = member else {
        return Err(failure(op, "not_number", format!("`{path}` is not a number")));
    };
    let sum = match (number.as_i64(), by.as_i64()) {
        (Some(a), Some(b)) => a.checked_add(b).map(Number::from),
        (Some(_) | None, _) => None,
    };
    let sum = sum.or_else(|| Number::from_f64(number.as_f64()? + by.as_f64()?));
    *number = sum.ok_or_else(|| failure(op, "not_number", format!("`{path}` would not be a number")))?;
    Ok(())
}

fn append(target: &mut Value, value: Value) -> Result<(), OpFailure> {
    match (&mut *target, value) {
        (Value::Null, Value::String(text)) => *target = Value::String(text),
        (Value::Null, value) => *target = Value::Array(vec![value]),
        (Value::Array(elements), value) => elements.push(value),
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::String(_), _) => {
            return Err(failure("append", "type_mismatch", "only a string can be appended to a string"));
        }
        (Value::Bool(_) | Value::Number(_) | Value::Object(_), _) => {
            return Err(failure("append", "type_mismatch", "the value is neither an array nor a string"));
        }
    }
    Ok(())
}

/// The value at a path. Parts of the path that are missing or no object become objects.
fn descend<'a>(root: &'a mut Value, path: &[String]) -> &'a mut Value {
    let mut value = root;
    for name in path {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value = &mut value[name.as_str()];
    }
    value
}

fn checked_path(path: Path) -> Result<Vec<String>, OpFailure> {
    let path = path.segments();
    if path.len() > MAX_PATH {
        let text = format!("Path depth {} exceeds maximum of {MAX_PATH}", path.len());
        return Err(failure("merge", "path.too_deep", text));
    }
    for name in &path {
        if name.is_empty() {
            return Err(failure("merge", "path.empty_segment", "a segment of the path is empty"));
        }
        if name.len() > MAX_SEGMENT {
            let text = format!("a segment of the path has more than {MAX_SEGMENT} bytes");
            return Err(failure("merge", "path.segment_too_long", text));
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            let text = format!("`{name}` cannot be a segment of the path");
            return Err(failure("merge", "path.proto_polluted", text));
        }
    }
    Ok(path)
}

fn check_merged(new: &Map<String, Value>) -> Result<(), OpFailure> {
    if new.len() > MAX_VALUE_KEYS {
        let text = format!("the merged value has more than {MAX_VALUE_KEYS} members");
        return Err(failure("merge", "value.too_many_keys", text));
    }
    if let Some(name) = new.keys().find(|name| RESERVED_NAMES.contains(&name.as_str())) {
        return Err(failure("merge", "value.proto_polluted", format!("`{name}` cannot be merged")));
    }
    if new.values().any(|value| is_deeper_than(value, MAX_VALUE_DEPTH - 1)) {
        let text = format!("the merged value nests deeper than {MAX_VALUE_DEPTH}");
        return Err(failure("merge", "value.too_deep", text));
    }
    Ok(())
}

fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let mut inner: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(elements) => Box::new(elements.iter()),
        Value::Object(members) => Box::new(members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    limit == 0 || inner.any(|value| is_deeper_than(value, limit - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(value: Value, ops: Value) -> (Value, Vec<String>) {
        let (value, errors) = apply(value, serde_json::from_value(ops).unwrap());
        (value, errors.into_iter().map(|error| format!("{} {}", error.op_index, error.code)).collect())
    }

    #[test]
    fn operations_are_applied_in_order() {
        let ops = json!([
            { "type": "set", "path": "a", "value": 1 },
            { "type": "increment", "path": "a", "by": 2 },
            { "type": "decrement", "path": "b", "by": 2 },
            { "type": "append", "path": "list", "value": { "x": 1 } },
            { "type": "append", "path": "text", "value": "he" },
            { "type": "append", "path": ["text"], "value": "llo" },
            { "type": "merge", "value": { "c": 1, "d": 2 } },
            { "type": "merge", "path": ["deep", "er"], "value": { "e": 3 } },
            { "type": "remove", "path": "d" },
        ]);
        let expected = json!({
            "a": 3, "b": -2, "c": 1, "list": [{ "x": 1 }], "text": "hello", "deep": { "er": { "e": 3 } },
        });
        assert_eq!(applied(Value::Null, ops), (expected, vec![]));
    }

    #[test]
    fn an_operation_that_cannot_be_applied_is_reported_and_the_others_are_applied() {
        let ops = json!([
            { "type": "increment", "path": "text", "by": 1 },
            { "type": "merge", "value": 7 },
            { "type": "append", "path": "number", "value": 1 },
            { "type": "merge", "path": ["__proto__"], "value": {} },
            { "type": "increment", "path": "number", "by": 1 },
        ]);
        let (value, errors) = applied(json!({ "text": "x", "number": 1 }), ops);
        assert_eq!(value, json!({ "text": "x", "number": 2 }));
        let expected = [
            "0 increment.not_number",
            "1 merge.value.not_an_object",
            "2 append.type_mismatch",
            "3 merge.path.proto_polluted",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn the_empty_path_is_the_whole_value() {
        let set = json!([{ "type": "set", "path": "", "value": [1] }]);
        assert_eq!(applied(json!({ "a": 1 }), set).0, json!([1]));
    }

    #[test]
    fn paths_have_up_to_32_names_of_256_bytes() {
        let names = |count: usize| vec!["n"; count];
        let long = |length: usize| "n".repeat(length);
        for kind in ["merge", "append"] {
            let errors = |path: Value| {
                applied(Value::Null, json!([{ "type": kind, "path": path, "value": { "a": 1 } }])).1
            };
            assert_eq!(errors(json!(names(32))), Vec::<String>::new());
            assert_eq!(errors(json!(names(33))), ["0 merge.path.too_deep"]);
            assert_eq!(errors(json!([long(256)])), Vec::<String>::new());
            assert_eq!(errors(json!([long(257)])), ["0 merge.path.segment_too_long"]);
        }
    }

    #[test]
    fn merges_have_up_to_1024_members_and_16_levels() {
        let errors = |value: Value| applied(Value::Null, json!([{ "type": "merge", "value": value }])).1;
        let members = |count: usize| -> Value {
            Value::Object((0..count).map(|number| (number.to_string(), json!(number))).collect())
        };
        assert_eq!(errors(members(1024)), Vec::<String>::new());
        assert_eq!(errors(members(1025)), ["0 merge.value.too_many_keys"]);
        let nested = |levels: usize| (0..levels).fold(json!(0), |inner, _| json!({ "a": inner }));
        assert_eq!(errors(nested(16)), Vec::<String>::new());
        assert_eq!(errors(nested(17)), ["0 merge.value.too_deep"]);
    }
}
