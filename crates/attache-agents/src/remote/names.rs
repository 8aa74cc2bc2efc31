//! Names that can be part of a function's id.

/// The longest name, in bytes. An id with two such names is well below the limits of engines.
const MAX_LENGTH: usize = 64;

/// A name of lower-case letters, digits, `_` and `-`. A run of other characters becomes one `_`, or nothing at the start and the end.
/// Returns `fallback` if no character is left.
pub(super) fn sanitize(text: &str, fallback: &str) -> String {
    let mut name = String::new();
    let mut gap = false;
    for character in text.chars().map(|character| character.to_ascii_lowercase()) {
        if !matches!(character, 'a'..='z' | '0'..='9' | '_' | '-') {
            gap = !name.is_empty();
            continue;
        }
        if std::mem::take(&mut gap) {
            name.push('_');
        }
        name.push(character);
    }
    name.truncate(MAX_LENGTH);
    if name.is_empty() { fallback.to_owned() } else { name }
}

/// The name, with the lowest number from 2 that makes it unique if it is taken.
pub(super) fn unique(name: String, is_taken: impl Fn(&str) -> bool) -> String {
    let mut number = 1_u32;
    let mut unique = name.clone();
    while is_taken(&unique) {
        number += 1;
        unique = format!("{name}_{number}");
    }
    unique
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_stays_readable() {
        for (text, name) in [
            ("Recipes", "recipes"),
            ("Recipe Agent (beta)", "recipe_agent_beta"),
            ("pricing::quote", "pricing_quote"),
            ("a.b/c", "a_b_c"),
            ("snake_case-and-dash", "snake_case-and-dash"),
            ("Über uns", "ber_uns"),
            ("料理", "agent"),
            ("", "agent"),
        ] {
            assert_eq!(sanitize(text, "agent"), name);
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let taken = ["a", "a_2"];
        assert_eq!(unique("a".to_owned(), |name| taken.contains(&name)), "a_3");
        assert_eq!(unique("b".to_owned(), |name| taken.contains(&name)), "b");
    }

    proptest! {
        #[test]
        fn every_name_can_be_part_of_an_id(text in ".{0,200}") {
            let name = sanitize(&text, "agent");
            prop_assert!(!name.is_empty() && name.len() <= MAX_LENGTH);
            prop_assert!(name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || "_-".contains(it)));
        }
    }
}
