//! The size of the terminal, and text that fits it.

use unicode_width::UnicodeWidthStr;

/// The width of output that does not go to a terminal, where it matters.
pub(crate) const USUAL_WIDTH: usize = 80;

/// Columns and lines of the terminal that standard output is. `None` if it is something else.
pub(crate) fn size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    // Some terminals do not know their size.
    (width.0 > 0 && height.0 > 0).then_some((width.0.into(), height.0.into()))
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that fits these columns, with `…` if there is more.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if taken > columns {
            break;
        }
        short.push(c);
    }
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_width() {
        for (text, columns, expected) in [
            ("short", 5, "short"),
            ("a longer text", 9, "a longer…"),
            ("a longer text", 10, "a longer…"),
            ("日本語の文", 7, "日本語…"),
        ] {
            assert_eq!(cut(text, columns), expected);
            assert!(width(&cut(text, columns)) <= columns);
        }
    }
}
