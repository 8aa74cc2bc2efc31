//! Rules for the secrets of callers and workers.

/// How long a secret is at the least, in bytes. White space does not count.
pub const SHORTEST: usize = 16;

/// What is wrong with a secret that is shown in a request, such as a token or a password. Nothing if it will do.
pub fn flaw(secret: &str) -> Option<String> {
    let counted: usize = secret.chars().filter(|c| !c.is_whitespace()).map(char::len_utf8).sum();
    if secret.len() < SHORTEST {
        Some(format!("is shorter than {SHORTEST} bytes"))
    } else if secret.chars().any(char::is_control) {
        Some("has control characters in it, such as tabs or the ends of lines".to_owned())
    } else if counted < SHORTEST {
        Some(format!("is shorter than {SHORTEST} bytes without its white space"))
    } else if secret.trim() != secret {
        // HTTP takes it off, and then the secret is never right.
        Some("begins or ends with white space".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_enough_without_its_white_space_and_can_be_sent() {
        for good in
            ["0123456789abcdef", "the token of alice!", "ключ-ключ", "a b c d e f g h i j k l m n o p"]
        {
            assert_eq!(flaw(good), None, "{good:?}");
        }
        for (bad, said) in [
            ("", "shorter than 16 bytes"),
            ("0123456789abcde", "shorter than 16 bytes"),
            ("                ", "without its white space"),
            ("\u{3000}\u{3000}\u{3000}\u{3000}\u{3000}\u{3000}", "without its white space"),
            ("a              b", "without its white space"),
            ("0123456 89abcdef", "without its white space"),
            ("\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t", "control characters"),
            ("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "control characters"),
            ("0123456789abcdef\n0123456789abcdef", "control characters"),
            ("0123456789abcdef ", "begins or ends"),
            (" 0123456789abcdef", "begins or ends"),
        ] {
            assert!(flaw(bad).is_some_and(|flaw| flaw.contains(said)), "{bad:?}: {:?}", flaw(bad));
        }
    }
}
