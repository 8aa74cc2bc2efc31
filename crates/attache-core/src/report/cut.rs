//! Limits of what a report can hold.

use serde_json::{Map, Value};

/// The most characters of one field.
const MAX_CHARACTERS: usize = 4_000;

/// How deep values may nest.
const MAX_DEPTH: usize = 32;

/// The most bytes of one value with all its fields, after each of them was cut.
const MAX_BYTES: usize = 64 * 1024;

/// A text, cut after the most characters that a field may have.
pub(crate) fn cut(text: &str) -> &str {
    // Most texts are short: no character is shorter than a byte.
    if text.len() <= MAX_CHARACTERS {
        return text;
    }
    let end = text.char_indices().nth(MAX_CHARACTERS).map_or(text.len(), |(index, _)| index);
    &text[..end]
}

/// A value whose texts are cut. A value that is too large all the same becomes a cut text.
pub(crate) fn cut_value(value: &Value) -> Value {
    let value = fields(value, 0);
    if matches!(value, Value::String(_)) {
        return value;
    }
    let text = value.to_string();
    if text.len() <= MAX_BYTES { value } else { cut(&text).into() }
}

fn fields(value: &Value, depth: usize) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => "[truncated-depth]".into(),
        Value::String(text) => cut(text).into(),
        Value::Array(items) => items.iter().map(|item| fields(item, depth + 1)).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| (cut(name).to_owned(), fields(value, depth + 1));
            Value::Object(members.iter().map(member).collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_cut_on_a_character() {
        assert_eq!(cut(&"ä".repeat(5_000)), "ä".repeat(4_000));
        assert_eq!(cut(&"ä".repeat(3_000)), "ä".repeat(3_000));
        assert_eq!(cut("short"), "short");
        let value = json!({"a": "ä".repeat(5_000), "b": [1, "ö".repeat(5_000)]});
        assert_eq!(cut_value(&value), json!({"a": "ä".repeat(4_000), "b": [1, "ö".repeat(4_000)]}));
    }

    #[test]
    fn a_value_is_neither_deep_nor_large() {
        let mut deep = json!("x");
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(cut_value(&deep).to_string().contains("[truncated-depth]"));
        let large = json!(vec!["x".repeat(3_000); 100]);
        assert_eq!(cut_value(&large).as_str().map(|text| text.chars().count()), Some(4_000));
    }

    #[test]
    fn a_text_is_whole_up_to_4000_characters() {
        assert_eq!(cut(&"ä".repeat(4_000)), "ä".repeat(4_000));
        assert_eq!(cut(&"ä".repeat(4_001)), "ä".repeat(4_000));
    }

    #[test]
    fn a_value_is_whole_up_to_32_levels_and_64_kib() {
        let nested = |levels: usize| (0..levels).fold(json!("x"), |inner, _| json!([inner]));
        assert_eq!(cut_value(&nested(32)), nested(32));
        let cut_off = (0..32).fold(json!("[truncated-depth]"), |inner, _| json!([inner]));
        assert_eq!(cut_value(&nested(33)), cut_off);
        // Of 1,000 bytes each in JSON, but for the last one.
        let sized = |bytes: usize| {
            let mut texts = vec!["x".repeat(997); 65];
            texts.push(String::new());
            let rest = bytes - json!(texts).to_string().len();
            texts[65] = "x".repeat(rest);
            json!(texts)
        };
        let (within, past) = (sized(64 * 1024), sized(64 * 1024 + 1));
        assert_eq!((within.to_string().len(), cut_value(&within)), (65_536, within.clone()));
        assert_eq!(cut_value(&past).as_str(), Some(&past.to_string()[..4_000]));
    }
}
