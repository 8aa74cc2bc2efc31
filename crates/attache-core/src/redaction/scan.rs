//! Replaces texts in a stream of text, also where they cross the borders of its pieces.
//!
//! Of each piece only as much is held back as can be the beginning of a text to replace. The rest follows with the next piece, or at
//! the end.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

/// Texts to replace, each with its replacement.
#[derive(Debug)]
pub(super) struct Patterns {
    automaton: AhoCorasick,
    /// In the order of the automaton.
    texts: Vec<(String, String)>,
    borders: Borders,
}

/// Where a text counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Borders {
    /// Everywhere.
    Any,
    /// Where a path begins, and where the name of a directory ends.
    Path,
}

impl Patterns {
    /// `None` if there is nothing to replace.
    pub(super) fn new(mut texts: Vec<(String, String)>, borders: Borders) -> Option<Self> {
        texts.retain(|(text, _)| !text.is_empty());
        texts.sort();
        texts.dedup_by(|one, other| one.0 == other.0);
        if texts.is_empty() {
            return None;
        }
        let mut builder = AhoCorasick::builder();
        let automaton =
            builder.match_kind(MatchKind::LeftmostLongest).build(texts.iter().map(|(text, _)| text));
        // Building fails only for more bytes of patterns than an address space has.
        automaton.ok().map(|automaton| Self { automaton, texts, borders })
    }

    /// Whether a text needs no change at all.
    pub(super) fn is_clean(&self, text: &str) -> bool {
        !self.automaton.is_match(text)
    }

    /// Whether bytes need no change at all.
    pub(super) fn is_clean_bytes(&self, bytes: &[u8]) -> bool {
        !self.automaton.is_match(bytes)
    }

    /// Overwrites all texts in bytes that are not text. Their length stays, so that formats with offsets can still be read.
    pub(super) fn overwrite(&self, bytes: &mut [u8]) {
        let found: Vec<_> = self.automaton.find_iter(&*bytes).map(|found| found.range()).collect();
        for range in found {
            bytes[range].fill(b'*');
        }
    }

    /// The length of the longest text, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.texts.iter().map(|(text, _)| text.len()).max().unwrap_or(0)
    }

    /// The length of the longest end of a text that a pattern begins with, and is not the whole pattern.
    fn possible_beginning(&self, text: &str) -> usize {
        let longest = |pattern: &str| {
            let most = pattern.len().saturating_sub(1).min(text.len());
            (1..=most).rev().find(|length| {
                pattern.is_char_boundary(*length) && text.as_bytes().ends_with(&pattern.as_bytes()[..*length])
            })
        };
        self.texts.iter().filter_map(|(pattern, _)| longest(pattern)).max().unwrap_or(0)
    }
}

/// Replaces texts in one stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Scanner {
    held: String,
    /// The last character before the text that is held back.
    before: Option<char>,
    /// The characters of a path before the text that is held back.
    run: Run,
}

/// Characters that follow each other and can be part of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// The character before them.
    before: Option<char>,
    first: Option<char>,
    has_slash: bool,
}

impl Run {
    fn add(&mut self, c: char) {
        if is_in_path(c) {
            self.first.get_or_insert(c);
            self.has_slash |= c == '/';
        } else {
            *self = Self { before: Some(c), first: None, has_slash: false };
        }
    }

    /// Whether a path that follows directly is a path of its own, such as in `-I/home/me`, behind a colour of a terminal, or behind a
    /// line break in JSON. A short path is more likely to be the end of a relative one, such as `build/tmp`.
    fn ends_before(self, path: &str) -> bool {
        let is_long = path.matches('/').count() > 1;
        !self.has_slash && (is_long || self.first == Some('-') || matches!(self.before, Some('\\' | '[')))
    }
}

/// What is known about the text after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// More text may follow.
    More,
    /// Nothing follows.
    End,
}

impl Scanner {
    /// Whether no text was added yet.
    pub(super) fn is_new(&self) -> bool {
        self.held.is_empty() && self.before.is_none()
    }

    /// Adds a piece of text. Returns what can be shown now.
    pub(super) fn push(&mut self, patterns: &Arc<Patterns>, piece: &str, follow: Follow) -> String {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        loop {
            let hold = match follow {
                Follow::More => rest.len() - patterns.possible_beginning(rest),
                Follow::End => rest.len(),
            };
            let found = patterns.automaton.find(rest).filter(|found| found.start() < hold);
            let Some(found) = found else {
                self.show(&mut out, &rest[..hold]);
                rest = &rest[hold..];
                break;
            };
            let after = rest[found.end()..].chars().next();
            self.show(&mut out, &rest[..found.start()]);
            let (own, replacement) =
                patterns.texts.get(found.pattern().as_usize()).map_or(("", ""), |(text, by)| (text, by));
            if patterns.borders == Borders::Path {
                if after.is_none() && follow == Follow::More {
                    // The next character decides whether the name of the directory ends here.
                    rest = &rest[found.start()..];
                    break;
                }
                let goes_on = self.before.is_some_and(is_in_name) && !self.run.ends_before(own);
                if goes_on || after.is_some_and(is_in_name) {
                    // Another path, which only contains this text.
                    let first = rest[found.start()..].chars().next().map_or(1, char::len_utf8);
                    self.show(&mut out, &rest[found.start()..found.start() + first]);
                    rest = &rest[found.start() + first..];
                    continue;
                }
            }
            out.push_str(replacement);
            self.before = own.chars().next_back();
            own.chars().for_each(|c| self.run.add(c));
            rest = &rest[found.end()..];
        }
        self.held = rest.to_owned();
        out
    }

    fn show(&mut self, out: &mut String, text: &str) {
        out.push_str(text);
        self.before = text.chars().next_back().or(self.before);
        text.chars().for_each(|c| self.run.add(c));
    }
}

/// Whether a character can be part of a path.
fn is_in_path(c: char) -> bool {
    is_in_name(c) || matches!(c, '/' | '.' | '~' | '+' | '%' | '@')
}

/// Whether a character can be part of the name of a file next to the others.
fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secrets(texts: &[&str]) -> Arc<Patterns> {
        let texts = texts.iter().map(|text| ((*text).to_owned(), "***".to_owned())).collect();
        Arc::new(Patterns::new(texts, Borders::Any).unwrap())
    }

    fn paths(texts: &[(&str, &str)]) -> Arc<Patterns> {
        let texts = texts.iter().map(|(text, name)| ((*text).to_owned(), (*name).to_owned())).collect();
        Arc::new(Patterns::new(texts, Borders::Path).unwrap())
    }

    fn joined(patterns: &Arc<Patterns>, pieces: &[&str]) -> String {
        let mut scanner = Scanner::default();
        let mut out: String =
            pieces.iter().map(|piece| scanner.push(patterns, piece, Follow::More)).collect();
        out.push_str(&scanner.push(patterns, "", Follow::End));
        out
    }

    /// The text in pieces, cut at these positions.
    fn pieces<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(*cut)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn no_secret_survives_any_split_of_the_text(
            text in "[abcä]{0,60}",
            secrets_given in prop::collection::vec("[abcä]{2,6}", 1..4),
            cuts in prop::collection::vec(0usize..80, 0..12),
        ) {
            let all: Vec<&str> = secrets_given.iter().map(String::as_str).collect();
            let patterns = secrets(&all);
            let out = joined(&patterns, &pieces(&text, &cuts));
            for secret in &all {
                prop_assert!(!out.contains(secret), "{secret:?} is in {out:?}");
            }
            // The split makes no difference.
            prop_assert_eq!(&out, &joined(&patterns, &[&text]));
            if !all.iter().any(|secret| text.contains(secret)) {
                prop_assert_eq!(&out, &text);
            }
        }

        #[test]
        fn a_path_is_replaced_wherever_the_text_is_split(
            text in "[/hm. -]{0,40}",
            cuts in prop::collection::vec(0usize..40, 0..10),
        ) {
            let patterns = paths(&[("/h", "<home>"), ("/h/m", "<work>")]);
            prop_assert_eq!(joined(&patterns, &pieces(&text, &cuts)), joined(&patterns, &[&text]));
        }
    }

    #[test]
    fn every_split_of_a_text_with_a_secret_hides_it() {
        let patterns = secrets(&["hunter22hunter", "hunter2x"]);
        let text = "the key hunter22hunter2x and hunter22hunter.";
        for one in 0..=text.len() {
            for other in one..=text.len() {
                let out = joined(&patterns, &[&text[..one], &text[one..other], &text[other..]]);
                assert_eq!(out, "the key ***2x and ***.");
            }
        }
    }

    #[test]
    fn only_a_possible_beginning_is_held_back() {
        let patterns = secrets(&["secret-value"]);
        let mut scanner = Scanner::default();
        assert_eq!(scanner.push(&patterns, "a plain text", Follow::More), "a plain text");
        assert_eq!(scanner.push(&patterns, "the sec", Follow::More), "the ");
        assert_eq!(scanner.push(&patterns, "ond", Follow::More), "second");
        assert_eq!(scanner.push(&patterns, "secret-", Follow::More), "");
        assert_eq!(scanner.push(&patterns, "", Follow::End), "secret-");
    }

    #[test]
    fn the_longest_path_counts_and_other_paths_stay() {
        let patterns = paths(&[("/home/me", "<home>"), ("/home/me/work", "<workspace>"), ("/tmp", "<tmp>")]);
        for (text, expected) in [
            ("/home/me/work/src/a.rs", "<workspace>/src/a.rs"),
            ("/home/me/other", "<home>/other"),
            ("/home/me2/other", "/home/me2/other"),
            ("/home/me", "<home>"),
            ("cd /home/me.", "cd <home>."),
            ("(/tmp/x) `/tmp`", "(<tmp>/x) `<tmp>`"),
            ("/var/tmp/x", "/var/tmp/x"),
            ("file:///tmp/x", "file://<tmp>/x"),
            ("https://example.com/tmp/x", "https://example.com/tmp/x"),
            ("a=/home/me/work:/tmp", "a=<workspace>:<tmp>"),
            ("cc -I/home/me/x -L/tmp/y", "cc -I<home>/x -L<tmp>/y"),
            ("\u{1b}[32m/home/me/x\u{1b}[0m/tmp", "\u{1b}[32m<home>/x\u{1b}[0m<tmp>"),
            (r#"{"a": "x\n/home/me/b\t/tmp/c"}"#, r#"{"a": "x\n<home>/b\t<tmp>/c"}"#),
            (r"src/a.rs\n/home/me/b", r"src/a.rs\n<home>/b"),
            ("build/tmp/x", "build/tmp/x"),
            ("/srv/home/me/x", "/srv/home/me/x"),
            ("/home/me/a/home/me", "<home>/a/home/me"),
        ] {
            assert_eq!(joined(&patterns, &[text]), expected, "{text}");
        }
    }
}
