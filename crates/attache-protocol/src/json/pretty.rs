//! Indented JSON.

/// Indents a JSON text: one member per line, two spaces for each level. Numbers, the order of members, and escapes stay
/// unchanged.
///
/// ```
/// # use attache_protocol::json::pretty;
/// assert_eq!(pretty(r#"{"price":42,"tags":[]}"#), "{\n  \"price\": 42,\n  \"tags\": []\n}");
/// ```
pub fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut rest = json.char_indices().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => {
                let mut end = json.len();
                while let Some((at, c)) = rest.next() {
                    match c {
                        '\\' => drop(rest.next()),
                        '"' => {
                            end = at + 1;
                            break;
                        }
                        _ => {}
                    }
                }
                out.push_str(&json[at..end]);
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
                if let Some((_, end)) = rest.next_if(|(_, c)| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn indents_like_serde_json(value in any_json()) {
            prop_assert_eq!(pretty(&value.to_string()), serde_json::to_string_pretty(&value).unwrap());
        }
    }

    #[test]
    fn digits_and_order_are_kept_and_whitespace_is_not() {
        assert_eq!(
            pretty("{ \"b\" : 12345678901234567890123 ,\n \"a\":[ ] , \"c\":{ } }"),
            "{\n  \"b\": 12345678901234567890123,\n  \"a\": [],\n  \"c\": {}\n}"
        );
    }
}
