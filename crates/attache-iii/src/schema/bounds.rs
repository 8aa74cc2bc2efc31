//! Bounds the cost of a schema before it is used.
//!
//! Keywords like `allOf` and `$ref` apply further schemas to the same value. The cost of a schema is the number of these schemas,
//! with repetitions: the work for one value, before the next value is read. Forty schemas that each refer twice to the next one
//! cost 2^40. Keywords like `properties` and `items` lead to other values. They do not count here: [`metered`](super::metered)
//! counts them.
//!
//! Each schema is visited once, so the time is proportional to the text of the schema. If the target of a reference depends on
//! `$id` or on schemas that were applied before, every possible target counts.

use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The largest cost for one value.
pub(crate) const MAX_COST: u64 = 20_000;

/// The largest sum of the costs of all schemas in the document, which bounds the time to compile it.
const MAX_TOTAL: u64 = 2_000_000;

/// The longest chain of schemas that are applied to one value.
pub(crate) const MAX_HEIGHT: usize = 64;

/// The largest number of regular expressions.
const MAX_PATTERNS: usize = 256;

/// The longest regular expression, in bytes.
const MAX_PATTERN: usize = 4096;

/// How many parts of a schema may have an `$id`.
const MAX_RESOURCES: usize = 64;

/// Why a schema is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaError {
    /// It is too expensive, for this reason.
    TooExpensive(String),
    /// It cannot be used, for example because it refers to something outside of itself.
    Unusable(String),
}

/// The bounds of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The largest cost for one value.
    pub(crate) cost: u64,
    /// The longest chain of schemas for one value.
    pub(crate) height: usize,
    /// The regular expressions of `pattern`.
    pub(crate) patterns: Vec<String>,
    /// The regular expressions of `patternProperties`.
    pub(crate) name_patterns: Vec<String>,
}

impl Bounds {
    /// Computes the bounds of a schema. Fails if they are too large.
    pub(crate) fn of(schema: &Value) -> Result<Self, SchemaError> {
        let mut survey = Survey::default();
        survey.index(schema);
        if survey.resources.len() > MAX_RESOURCES {
            let text = format!("more than {MAX_RESOURCES} of its parts have an `$id`");
            return Err(SchemaError::TooExpensive(text));
        }
        survey.resources.push(schema);
        let mut bounds = Self { cost: 0, height: 0, patterns: Vec::new(), name_patterns: Vec::new() };
        let mut total = 0_u64;
        survey.queue.push(schema);
        while let Some(next) = survey.queue.pop() {
            if survey.measured.contains_key(&address(next)) {
                continue;
            }
            let Size { cost, height } = survey.measure(next, 0)?;
            total = total.saturating_add(cost);
            bounds.cost = bounds.cost.max(cost);
            bounds.height = bounds.height.max(height);
            if total > MAX_TOTAL {
                let text = format!("all its parts together need more than {MAX_TOTAL} steps");
                return Err(SchemaError::TooExpensive(text));
            }
        }
        let too_long =
            survey.patterns.iter().chain(&survey.name_patterns).find(|text| text.len() > MAX_PATTERN);
        if too_long.is_some() {
            let text = format!("one of its regular expressions is longer than {MAX_PATTERN} bytes");
            return Err(SchemaError::TooExpensive(text));
        }
        if survey.patterns.len() + survey.name_patterns.len() > MAX_PATTERNS {
            let text = format!("it has more than {MAX_PATTERNS} regular expressions");
            return Err(SchemaError::TooExpensive(text));
        }
        let owned = |texts: HashSet<&str>| texts.into_iter().map(str::to_owned).collect();
        bounds.patterns = owned(survey.patterns);
        bounds.name_patterns = owned(survey.name_patterns);
        Ok(bounds)
    }
}

/// The cost and the height of a part.
#[derive(Debug, Clone, Copy)]
struct Size {
    cost: u64,
    height: usize,
}

/// The traversal of a schema and all its parts.
#[derive(Default)]
struct Survey<'a> {
    /// The schema itself, and all parts with an `$id`.
    resources: Vec<&'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Possible targets of `$dynamicRef` and `$recursiveRef`.
    dynamic: Vec<&'a Value>,
    /// The parts that have been measured. `None` for a part that is being measured.
    measured: HashMap<usize, Option<Size>>,
    /// Parts that are applied to other values, and are still to be measured.
    queue: Vec<&'a Value>,
    patterns: HashSet<&'a str>,
    name_patterns: HashSet<&'a str>,
}

/// The identity of a part.
fn address(part: &Value) -> usize {
    std::ptr::from_ref(part) as usize
}

impl<'a> Survey<'a> {
    /// Collects the possible targets of references.
    fn index(&mut self, part: &'a Value) {
        match part {
            Value::Object(members) => {
                let text = |key: &str| members.get(key).and_then(Value::as_str);
                for id in [text("$id"), text("id")].into_iter().flatten() {
                    self.resources.push(part);
                    if let Some((_, name)) = id.split_once('#') {
                        self.anchors.entry(name).or_default().push(part);
                    }
                }
                for name in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
                    self.anchors.entry(name).or_default().push(part);
                }
                if members.contains_key("$dynamicAnchor") || members.contains_key("$recursiveAnchor") {
                    self.dynamic.push(part);
                }
                members.values().for_each(|value| self.index(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.index(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Measures everything that is applied to the same value as this part.
    fn measure(&mut self, part: &'a Value, depth: usize) -> Result<Size, SchemaError> {
        match self.measured.get(&address(part)) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                let text = "one of its parts applies itself to the same value again, through `$ref`";
                return Err(SchemaError::TooExpensive(text.to_owned()));
            }
            None => {}
        }
        if depth >= MAX_HEIGHT {
            return Err(too_high());
        }
        self.measured.insert(address(part), None);
        let mut size = Size { cost: 1, height: 1 };
        if let Value::Object(members) = part {
            let mut further = Vec::new();
            size.cost += self.read(members, &mut further)?;
            let mut applied = 0_u64;
            for part in further {
                let next = self.measure(part, depth + 1)?;
                applied = applied.saturating_add(next.cost);
                size.height = size.height.max(next.height + 1);
            }
            // These keywords apply all parts again, with their own repetitions, to find unevaluated members.
            let again =
                ["unevaluatedProperties", "unevaluatedItems"].iter().any(|key| members.contains_key(*key));
            let times = if again { 2 + size.height as u64 } else { 1 };
            size.cost = size.cost.saturating_add(applied.saturating_mul(times));
        }
        if size.height > MAX_HEIGHT {
            return Err(too_high());
        }
        if size.cost > MAX_COST {
            return Err(SchemaError::TooExpensive(format!(
                "it needs more than {MAX_COST} steps for one value: `allOf`, `anyOf`, `oneOf` or `$ref` lead to the same parts too \
                 often"
            )));
        }
        self.measured.insert(address(part), Some(size));
        Ok(size)
    }

    /// Collects the parts that the keywords of a schema lead to, and counts the keywords. Parts for the same value go to
    /// `further`.
    fn read(
        &mut self,
        members: &'a Map<String, Value>,
        further: &mut Vec<&'a Value>,
    ) -> Result<u64, SchemaError> {
        let mut cost = 0_u64;
        for (keyword, value) in members {
            let length = match value {
                Value::Array(items) => items.len(),
                Value::Object(members) => members.len(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
            };
            cost += length as u64;
            match (keyword.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => further.extend(parts),
                ("not" | "if" | "then" | "else" | "contentSchema" | "extends", part) => further.push(part),
                ("dependentSchemas" | "dependencies", Value::Object(parts)) => further.extend(parts.values()),
                ("$ref", Value::String(reference)) => further.extend(self.targets(reference)?),
                ("$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    further.extend(self.targets(reference)?);
                    further.extend(self.dynamic.iter().copied());
                }
                ("properties", Value::Object(parts)) => self.queue.extend(parts.values()),
                ("patternProperties", Value::Object(parts)) => {
                    self.queue.extend(parts.values());
                    self.name_patterns.extend(parts.keys().map(String::as_str));
                }
                ("prefixItems" | "items", Value::Array(parts)) => self.queue.extend(parts),
                (
                    "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames",
                    part,
                ) => self.queue.push(part),
                ("pattern", Value::String(pattern)) => {
                    self.patterns.insert(pattern);
                }
                (_, _) => {}
            }
        }
        Ok(cost)
    }

    /// Every possible target of a reference.
    fn targets(&self, reference: &str) -> Result<Vec<&'a Value>, SchemaError> {
        let (_, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        let mut targets: Vec<&Value> = match &*fragment {
            "" => self.resources.clone(),
            pointer if pointer.starts_with('/') => {
                self.resources.iter().filter_map(|resource| resource.pointer(pointer)).collect()
            }
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        };
        targets.sort_unstable_by_key(|target| address(target));
        targets.dedup_by_key(|target| address(target));
        let (document, _) = reference.split_once('#').unwrap_or((reference, ""));
        let named = |part: &&Value| {
            let id = |key: &str| part.get(key).and_then(Value::as_str);
            let own = |id: &str| {
                let id = id.trim_end_matches('#');
                id == document || id.ends_with(document) || document.ends_with(id)
            };
            [id("$id"), id("id")].into_iter().flatten().any(own)
        };
        if targets.is_empty() || !document.is_empty() && !self.resources.iter().any(named) {
            return Err(SchemaError::Unusable(format!(
                "it refers to `{}`, which it does not contain",
                super::pattern::truncated(reference)
            )));
        }
        Ok(targets)
    }
}

fn too_high() -> SchemaError {
    SchemaError::TooExpensive(format!(
        "more than {MAX_HEIGHT} of its parts are applied to one value, one inside the other"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A chain of schemas, each of which applies the next one once.
    fn chain(parts: usize) -> Value {
        (1..parts).fold(json!({}), |inner, _| json!({"allOf": [inner]}))
    }

    fn assert_rejected(schema: &Value, because: &str) {
        match Bounds::of(schema) {
            Err(SchemaError::TooExpensive(why)) if why.contains(because) => {}
            found => panic!("{schema}: {found:?}"),
        }
    }

    #[test]
    fn the_cost_for_one_value_is_limited() {
        // One for the schema, and one for each member of its keywords.
        let of = |entries: u64| json!({"enum": (0..entries).collect::<Vec<_>>()});
        assert_eq!(Bounds::of(&of(MAX_COST - 1)).unwrap().cost, MAX_COST);
        assert_rejected(&of(MAX_COST), "more than 20000 steps");
        let doubled = |name: &str| {
            let mut defs = Map::new();
            for level in 0..20 {
                let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
                defs.insert(format!("l{level}"), json!({name: [next, next]}));
            }
            defs.insert("l20".to_owned(), json!(true));
            json!({"$ref": "#/$defs/l0", "$defs": defs})
        };
        for name in ["allOf", "anyOf", "oneOf"] {
            assert_rejected(&doubled(name), "more than 20000 steps");
        }
        let nots = (0..13)
            .fold(json!({"type": "null"}), |inner, _| json!({"not": inner, "if": inner, "then": true}));
        assert_rejected(&json!({"items": {"properties": {"a": nots}}}), "more than");
    }

    #[test]
    fn repetitions_for_unevaluated_members_count() {
        let layer = |inner: Value| json!({"allOf": [inner], "unevaluatedProperties": false});
        assert!(Bounds::of(&(0..4).fold(json!({}), |inner, _| layer(inner))).is_ok());
        assert_rejected(&(0..30).fold(json!({}), |inner, _| layer(inner)), "more than 20000 steps");
    }

    #[test]
    fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}),
            json!({"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}]}),
            json!({"$id": "https://example.com/a", "if": {"$ref": "https://example.com/a#/if"}}),
        ] {
            assert_rejected(&schema, "applies itself");
        }
        for schema in [
            json!({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}}),
            json!({"$dynamicAnchor": "a", "additionalProperties": {"$dynamicRef": "#a"}}),
            json!({"$defs": {"a": {"$anchor": "x", "items": {"$ref": "#x"}}}, "$ref": "#x"}),
        ] {
            assert!(Bounds::of(&schema).is_ok(), "{schema}");
        }
    }

    #[test]
    fn the_length_of_a_chain_is_limited() {
        assert_eq!(Bounds::of(&chain(MAX_HEIGHT)).unwrap().height, MAX_HEIGHT);
        assert_rejected(&chain(MAX_HEIGHT + 1), "more than 64 of its parts");
        let mut defs = Map::new();
        for level in 0..5_000 {
            defs.insert(level.to_string(), json!({"$ref": format!("#/$defs/{}", level + 1)}));
        }
        defs.insert("5000".to_owned(), json!(true));
        assert_rejected(&json!({"$ref": "#/$defs/0", "$defs": defs}), "more than 64 of its parts");
    }

    #[test]
    fn the_cost_of_all_parts_is_limited() {
        let costs = |cost: u64| json!({"enum": (0..cost - 1).collect::<Vec<_>>()});
        // The schema itself costs one for each of its 200 parts, and one more.
        let of = |last: u64| {
            let mut parts = vec![costs(10_000); 199];
            parts.push(costs(last));
            json!({"prefixItems": parts})
        };
        let last = MAX_TOTAL - 199 * 10_000 - 201;
        assert!(Bounds::of(&of(last)).is_ok());
        assert_rejected(&of(last + 1), "all its parts together need more than 2000000 steps");
    }

    #[test]
    fn regular_expressions_are_limited_in_number_and_length() {
        let of = |count: usize| {
            let names: Map<String, Value> =
                (0..count).map(|number| (format!("^{number}$"), json!(true))).collect();
            json!({"patternProperties": names})
        };
        assert_eq!(Bounds::of(&of(MAX_PATTERNS)).unwrap().name_patterns.len(), MAX_PATTERNS);
        assert_rejected(&of(MAX_PATTERNS + 1), "more than 256 regular expressions");
        assert!(Bounds::of(&json!({"pattern": "x".repeat(MAX_PATTERN)})).is_ok());
        assert_rejected(&json!({"pattern": "x".repeat(MAX_PATTERN + 1)}), "longer than 4096 bytes");
    }

    #[test]
    fn the_number_of_parts_with_ids_is_limited() {
        let of = |count: usize| {
            let parts: Vec<_> = (0..count).map(|number| json!({"$id": format!("p{number}")})).collect();
            json!({"prefixItems": parts, "items": {"$ref": "p0"}})
        };
        assert!(Bounds::of(&of(MAX_RESOURCES)).is_ok());
        assert_rejected(&of(MAX_RESOURCES + 1), "have an `$id`");
    }

    #[test]
    fn references_to_the_outside_are_not_resolved() {
        for reference in ["http://example.invalid/x", "other.json#/a", "#/nowhere", "#missing"] {
            let found = Bounds::of(&json!({"items": {"$ref": reference}}));
            assert!(matches!(found, Err(SchemaError::Unusable(_))), "{reference}: {found:?}");
        }
    }
}
