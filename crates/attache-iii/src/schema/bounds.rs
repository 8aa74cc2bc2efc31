//! What a schema can cost, found out before anything is validated with it.
//!
//! Applicators like `allOf` and `$ref` apply further schemas to the same value. Counted with every repetition, those are the cost of
//! a schema: what is done for one value, before the next one is looked at. Forty schemas that each refer twice to the next one cost
//! 2^40. Applicators like `properties` and `items` lead to other values and do not count: [`metered`](super::metered) counts those.
//!
//! Each schema is looked at once, so this takes time in proportion to the text of the schema. A reference whose target depends on
//! `$id` or on what has been applied before counts with every target that it might have.

use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The schemas, each with its keywords, that may be applied to one value.
pub(crate) const MAX_COST: u64 = 20_000;

/// The same for every schema in the document together: what it takes to compile it.
const MAX_TOTAL: u64 = 2_000_000;

/// How many schemas may be applied to one value, each because of the one before.
pub(crate) const MAX_HEIGHT: usize = 64;

/// How many regular expressions there may be.
const MAX_PATTERNS: usize = 256;

/// How many bytes a regular expression may have.
const MAX_PATTERN: usize = 4096;

/// How many parts of a schema may have an `$id`.
const MAX_RESOURCES: usize = 64;

/// Why a schema is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It costs too much, for this reason.
    Costly(String),
    /// It refers to what is not in it.
    Outside(String),
}

/// What a schema can cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The schemas, each with its keywords, that are applied to one value, at most.
    pub(crate) cost: u64,
    /// The schemas that are applied to one value, each because of the one before, at most.
    pub(crate) height: usize,
    /// The regular expressions of `pattern`.
    pub(crate) patterns: Vec<String>,
    /// The regular expressions of `patternProperties`.
    pub(crate) name_patterns: Vec<String>,
}

impl Bounds {
    /// The bounds of a schema, if they are small enough.
    pub(crate) fn of(schema: &Value) -> Result<Self, Refused> {
        let mut survey = Survey::default();
        survey.index(schema);
        if survey.resources.len() > MAX_RESOURCES {
            let text = format!("more than {MAX_RESOURCES} of its parts have an `$id`");
            return Err(Refused::Costly(text));
        }
        survey.resources.push(schema);
        let mut bounds = Self { cost: 0, height: 0, patterns: Vec::new(), name_patterns: Vec::new() };
        let mut total = 0_u64;
        survey.ahead.push(schema);
        while let Some(next) = survey.ahead.pop() {
            if survey.known.contains_key(&address(next)) {
                continue;
            }
            let Size { cost, height } = survey.measure(next, 0)?;
            total = total.saturating_add(cost);
            bounds.cost = bounds.cost.max(cost);
            bounds.height = bounds.height.max(height);
            if total > MAX_TOTAL {
                let text = format!("all its parts together ask for more than {MAX_TOTAL} steps");
                return Err(Refused::Costly(text));
            }
        }
        let too_long =
            survey.patterns.iter().chain(&survey.name_patterns).find(|text| text.len() > MAX_PATTERN);
        if too_long.is_some() {
            let text = format!("one of its regular expressions is longer than {MAX_PATTERN} bytes");
            return Err(Refused::Costly(text));
        }
        if survey.patterns.len() + survey.name_patterns.len() > MAX_PATTERNS {
            let text = format!("it has more than {MAX_PATTERNS} regular expressions");
            return Err(Refused::Costly(text));
        }
        let owned = |texts: HashSet<&str>| texts.into_iter().map(str::to_owned).collect();
        bounds.patterns = owned(survey.patterns);
        bounds.name_patterns = owned(survey.name_patterns);
        Ok(bounds)
    }
}

/// What is applied to one value.
#[derive(Debug, Clone, Copy)]
struct Size {
    cost: u64,
    height: usize,
}

/// A look at a schema and all its parts.
#[derive(Default)]
struct Survey<'a> {
    /// The parts that have an `$id`, and the whole.
    resources: Vec<&'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Where `$dynamicRef` and `$recursiveRef` might lead.
    dynamic: Vec<&'a Value>,
    /// What has been measured. Nothing stands for what is being measured.
    known: HashMap<usize, Option<Size>>,
    /// Parts that are applied to other values than the ones they are found in.
    ahead: Vec<&'a Value>,
    patterns: HashSet<&'a str>,
    name_patterns: HashSet<&'a str>,
}

/// What tells parts of a schema from each other.
fn address(part: &Value) -> usize {
    std::ptr::from_ref(part) as usize
}

impl<'a> Survey<'a> {
    /// Finds what references may lead to, whatever it is a part of.
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

    /// Measures what is applied to the value that this part is applied to.
    fn measure(&mut self, part: &'a Value, depth: usize) -> Result<Size, Refused> {
        match self.known.get(&address(part)) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                let text = "one of its parts applies itself to the same value again, through `$ref`";
                return Err(Refused::Costly(text.to_owned()));
            }
            None => {}
        }
        if depth >= MAX_HEIGHT {
            return Err(too_high());
        }
        self.known.insert(address(part), None);
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
            // To find what has not been looked at, everything is applied again, and what that applies again as well.
            let again =
                ["unevaluatedProperties", "unevaluatedItems"].iter().any(|key| members.contains_key(*key));
            let times = if again { 2 + size.height as u64 } else { 1 };
            size.cost = size.cost.saturating_add(applied.saturating_mul(times));
        }
        if size.height > MAX_HEIGHT {
            return Err(too_high());
        }
        if size.cost > MAX_COST {
            return Err(Refused::Costly(format!(
                "it asks for more than {MAX_COST} steps for one value: `allOf`, `anyOf`, `oneOf` or `$ref` lead to the same parts too \
                 often"
            )));
        }
        self.known.insert(address(part), Some(size));
        Ok(size)
    }

    /// Takes note of what the keywords of a schema lead to, and counts them. What is applied to the same value goes to `further`.
    fn read(
        &mut self,
        members: &'a Map<String, Value>,
        further: &mut Vec<&'a Value>,
    ) -> Result<u64, Refused> {
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
                ("properties", Value::Object(parts)) => self.ahead.extend(parts.values()),
                ("patternProperties", Value::Object(parts)) => {
                    self.ahead.extend(parts.values());
                    self.name_patterns.extend(parts.keys().map(String::as_str));
                }
                ("prefixItems" | "items", Value::Array(parts)) => self.ahead.extend(parts),
                (
                    "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames",
                    part,
                ) => self.ahead.push(part),
                ("pattern", Value::String(pattern)) => {
                    self.patterns.insert(pattern);
                }
                (_, _) => {}
            }
        }
        Ok(cost)
    }

    /// Everything that a reference might lead to.
    fn targets(&self, reference: &str) -> Result<Vec<&'a Value>, Refused> {
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
            return Err(Refused::Outside(format!(
                "it refers to `{}`, which is not in it",
                super::pattern::shortened(reference)
            )));
        }
        Ok(targets)
    }
}

fn too_high() -> Refused {
    Refused::Costly(format!(
        "more than {MAX_HEIGHT} of its parts are applied to one value, each because of the one before"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Schemas of which each applies the next one once.
    fn chain(parts: usize) -> Value {
        (1..parts).fold(json!({}), |inner, _| json!({"allOf": [inner]}))
    }

    fn refused(schema: &Value, because: &str) {
        match Bounds::of(schema) {
            Err(Refused::Costly(why)) if why.contains(because) => {}
            found => panic!("{schema}: {found:?}"),
        }
    }

    #[test]
    fn what_is_applied_to_one_value_has_a_limit() {
        // One for the schema and one for each of its keywords' members.
        let of = |entries: u64| json!({"enum": (0..entries).collect::<Vec<_>>()});
        assert_eq!(Bounds::of(&of(MAX_COST - 1)).unwrap().cost, MAX_COST);
        refused(&of(MAX_COST), "more than 20000 steps");
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
            refused(&doubled(name), "more than 20000 steps");
        }
        let nots = (0..13)
            .fold(json!({"type": "null"}), |inner, _| json!({"not": inner, "if": inner, "then": true}));
        refused(&json!({"items": {"properties": {"a": nots}}}), "more than");
    }

    #[test]
    fn what_is_applied_again_for_what_was_not_looked_at_counts() {
        let layer = |inner: Value| json!({"allOf": [inner], "unevaluatedProperties": false});
        assert!(Bounds::of(&(0..4).fold(json!({}), |inner, _| layer(inner))).is_ok());
        refused(&(0..30).fold(json!({}), |inner, _| layer(inner)), "more than 20000 steps");
    }

    #[test]
    fn what_leads_to_itself_without_another_value_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}),
            json!({"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}]}),
            json!({"$id": "https://example.com/a", "if": {"$ref": "https://example.com/a#/if"}}),
        ] {
            refused(&schema, "applies itself");
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
    fn what_is_applied_because_of_another_has_a_limit() {
        assert_eq!(Bounds::of(&chain(MAX_HEIGHT)).unwrap().height, MAX_HEIGHT);
        refused(&chain(MAX_HEIGHT + 1), "more than 64 of its parts");
        let mut defs = Map::new();
        for level in 0..5_000 {
            defs.insert(level.to_string(), json!({"$ref": format!("#/$defs/{}", level + 1)}));
        }
        defs.insert("5000".to_owned(), json!(true));
        refused(&json!({"$ref": "#/$defs/0", "$defs": defs}), "more than 64 of its parts");
    }

    #[test]
    fn all_parts_together_have_a_limit() {
        let entries: Vec<u64> = (0..9_999).collect();
        let of = |parts: usize| json!({"prefixItems": vec![json!({"enum": entries}); parts]});
        assert!(Bounds::of(&of(199)).is_ok());
        refused(&of(200), "all its parts together");
    }

    #[test]
    fn regular_expressions_have_a_limit_in_number_and_length() {
        let of = |count: usize| {
            let names: Map<String, Value> =
                (0..count).map(|number| (format!("^{number}$"), json!(true))).collect();
            json!({"patternProperties": names})
        };
        assert_eq!(Bounds::of(&of(MAX_PATTERNS)).unwrap().name_patterns.len(), MAX_PATTERNS);
        refused(&of(MAX_PATTERNS + 1), "more than 256 regular expressions");
        assert!(Bounds::of(&json!({"pattern": "x".repeat(MAX_PATTERN)})).is_ok());
        refused(&json!({"pattern": "x".repeat(MAX_PATTERN + 1)}), "longer than 4096 bytes");
    }

    #[test]
    fn parts_with_ids_have_a_limit() {
        let of = |count: usize| {
            let parts: Vec<_> = (0..count).map(|number| json!({"$id": format!("p{number}")})).collect();
            json!({"prefixItems": parts, "items": {"$ref": "p0"}})
        };
        assert!(Bounds::of(&of(MAX_RESOURCES)).is_ok());
        refused(&of(MAX_RESOURCES + 1), "have an `$id`");
    }

    #[test]
    fn what_is_outside_of_a_schema_is_not_looked_for() {
        for reference in ["http://example.invalid/x", "other.json#/a", "#/nowhere", "#nobody"] {
            let found = Bounds::of(&json!({"items": {"$ref": reference}}));
            assert!(matches!(found, Err(Refused::Outside(_))), "{reference}: {found:?}");
        }
    }
}
