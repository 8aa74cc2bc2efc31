//! Names that can be part of a function's id.

/// The longest name, in bytes. Two of them and the rest of an id are well within what engines take.
const LONGEST: usize = 64;

/// A name of lower-case letters, digits, `_` and `-`. A run of other characters is one `_`, and none at either end.
pub(super) fn safe(text: &str, if_nothing_is_left: &str) -> String {
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
    name.truncate(LONGEST);
    if name.is_empty() { if_nothing_is_left.to_owned() } else { name }
}

/// The name, or the name with the lowest number that makes it one nobody has.
pub(super) fn free(name: String, is_taken: impl Fn(&str) -> bool) -> String {
    let mut number = 1_u32;
    let mut free = name.clone();
    while is_taken(&free) {
        number += 1;
        free = format!("{name}_{number}");
    }
    free
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
            assert_eq!(safe(text, "agent"), name);
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let taken = ["a", "a_2"];
        assert_eq!(free("a".to_owned(), |name| taken.contains(&name)), "a_3");
        assert_eq!(free("b".to_owned(), |name| taken.contains(&name)), "b");
    }

    proptest! {
        #[test]
        fn every_name_is_safe(text in ".{0,200}") {
            let name = safe(&text, "agent");
            prop_assert!(!name.is_empty() && name.len() <= LONGEST);
            prop_assert!(name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || "_-".contains(it)));
        }
    }
}
