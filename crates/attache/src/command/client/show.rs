//! Makes text from agents safe for a terminal.
//!
//! Text from an agent is not trusted. Characters that would move the cursor, change colours, retitle the window or change the
//! direction of writing are printed as `�`.

use std::borrow::Cow;

use anstream::adapter::strip_str;
use attache::core::state_name;
use attache::protocol::json::pretty;
use attache::protocol::{Artifact, Content, Message, Part, TaskState};
use serde::Serialize;

use crate::command::{Failure, terminal};

/// Marks the start of a new line, unless a line has just begun. Clean text does not contain it.
pub(crate) const FRESH: char = '\0';

/// Marks the start and the end of text that is not Markdown, such as JSON. Clean text does not contain it.
pub(crate) const VERBATIM: char = '\u{1}';

/// Whether a character controls the terminal instead of being printed.
fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Text of several lines, without control characters.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_harmful(c) && !matches!(c, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", "\n");
    let clean = text.chars().map(|c| match c {
        '\n' | '\t' => c,
        c if is_harmful(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    Cow::Owned(clean.collect())
}

/// Text on one line, so that an agent cannot forge lines of this command.
pub(crate) fn line(text: &str) -> String {
    clean(text.trim()).split(['\n', '\t']).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A word, quoted for a shell.
pub(crate) fn word(text: &str) -> String {
    let text = line(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// JSON without control characters: they occur only in strings, where they are escaped.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(format!("the result cannot be written as JSON: {error}")))?;
    Ok(escaped(&text))
}

/// JSON with one member per line.
pub(crate) fn json_lines<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    Ok(format!("{}\n", pretty(&json(value)?)))
}

fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_harmful(c) && !c.is_ascii_whitespace() {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// The text of an artifact, or of a chunk. Further chunks do not change the text before them.
pub(crate) fn artifact(artifact: &Artifact) -> String {
    artifact.parts.iter().map(part).collect()
}

/// The text of a message: each part on lines of its own.
pub(crate) fn message(message: &Message) -> String {
    message.parts.iter().map(part).collect::<Vec<_>>().join("\0")
}

/// The parts of a message on lines of their own.
pub(crate) fn lines(message: &Message) -> String {
    let text = self::message(message).replace(VERBATIM, "");
    text.split(FRESH).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn part(part: &Part) -> String {
    let about = || {
        let known = [part.filename.as_deref(), part.media_type.as_deref()];
        known.into_iter().flatten().map(|text| format!(" {}", line(text))).collect::<Vec<_>>().join(",")
    };
    match &part.content {
        Content::Text(text) => clean(text).into_owned(),
        Content::Data(data) => format!("\0\u{1}{}\u{1}\0", clean(&pretty(data.as_str()))),
        Content::Raw(bytes) => format!("\0\u{1}[file{}: {} bytes]\u{1}\0", about(), bytes.len()),
        Content::Url(url) => format!("\0\u{1}[file{}: {}]\u{1}\0", about(), line(url)),
    }
}

/// A state in words.
pub(crate) fn state(state: TaskState) -> &'static str {
    if state == TaskState::Unspecified { "unknown" } else { state_name(state) }
}

/// A state in its colour: green for completed, red for failed, yellow for waiting.
pub(crate) fn painted(state: TaskState) -> String {
    let colour = match state {
        TaskState::Completed => 32,
        TaskState::Failed | TaskState::Rejected => 31,
        TaskState::InputRequired | TaskState::AuthRequired => 33,
        TaskState::Submitted | TaskState::Working => 36,
        // Dim.
        TaskState::Canceled | TaskState::Unspecified => 2,
    };
    format!("\x1b[{colour}m{}\x1b[0m", self::state(state))
}

/// Bold on a terminal. `anstream` removes it elsewhere.
pub(crate) fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// Dim on a terminal.
pub(crate) fn dim(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

/// Rows under each other, columns aligned.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    // Colour codes have no width.
    let width = |cell: &String| terminal::width(&strip_str(cell).to_string());
    let mut widest: Vec<usize> = Vec::new();
    for row in rows {
        widest.resize(widest.len().max(row.len()), 0);
        for (widest, cell) in widest.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let mut out = String::new();
    for row in rows {
        let padded = |(column, cell): (usize, &String)| {
            let room = widest[column] - width(cell);
            format!("{cell}{:room$}", "")
        };
        let cells: Vec<_> = row.iter().enumerate().map(padded).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_cannot_command_the_terminal() {
        assert_eq!(clean("plain\ttext\r\nhere"), "plain\ttext\nhere");
        assert_eq!(clean("\x1b[31mred\x1b]0;title\x07"), "�[31mred�]0;title�");
        assert_eq!(clean("a\rb\u{9b}2Jc\u{7f}\0\u{202e}"), "a�b�2Jc���");
        assert_eq!(line("one\n  hint: two\x1b"), "one hint: two�");
        assert_eq!(json(&["\u{9b}2J\x1b\u{202e}é"]).unwrap(), r#"["\u009b2J\u001b\u202eé"]"#);
    }

    #[test]
    fn colours_take_no_room_in_a_table() {
        let rows =
            [TaskState::Working, TaskState::InputRequired].map(|state| vec![painted(state), "x".to_owned()]);
        let table = table(&rows);
        assert_eq!(strip_str(&table).to_string(), "working         x\ninput-required  x\n");
        assert!(table.starts_with("\x1b[36mworking\x1b[0m "), "{table:?}");
    }

    #[test]
    fn a_word_means_itself_in_a_shell() {
        assert_eq!(word("http://localhost:3111/a"), "http://localhost:3111/a");
        assert_eq!(word("x; rm -rf 'y'"), r"'x; rm -rf '\''y'\'''");
        assert_eq!(word(""), "''");
    }
}
