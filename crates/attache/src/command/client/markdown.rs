//! Renders the text of an agent for a terminal as it arrives: wraps it, and renders the most common Markdown.
//!
//! Words are printed as soon as they are complete. Text is held back only while its meaning is open: the beginning of a line, and a
//! span whose end has not arrived. Text that is not Markdown stays as it is, apart from wrapping. The input must be
//! [clean](super::show::clean): escape sequences in the output are this module's own.

use unicode_width::UnicodeWidthChar;

/// A span that is longer than this is not held back any more.
const LONGEST_SPAN: usize = 300;

const BOLD: &str = "\x1b[1m";
const ITALIC: &str = "\x1b[3m";
const CODE: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The style of a character, as escape sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    bold: bool,
    italic: bool,
    code: bool,
}

impl Style {
    fn write(self, out: &mut String) {
        let parts = [(self.bold, BOLD), (self.italic, ITALIC), (self.code, CODE)];
        parts.into_iter().filter(|(is_on, _)| *is_on).for_each(|(_, sequence)| out.push_str(sequence));
    }
}

/// What the next text is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The beginning of a line.
    LineStart,
    /// Text within a line.
    Inline,
    /// Lines of a code block, which ends with this many of this character.
    Code(char, usize),
}

/// What a line begins with.
enum Start {
    /// More text is needed to decide.
    Open,
    Blank,
    Fence(char, usize),
    Heading(usize),
    /// A row of a table, which is not wrapped.
    Row,
    /// A list item: the length of its marker in bytes, and what is printed instead.
    Item(usize, String),
    Quote(usize),
    Text,
}

/// A renderer.
#[derive(Debug)]
pub(crate) struct Markdown {
    /// The columns of the terminal.
    columns: usize,
    /// Text that is not rendered yet.
    pending: String,
    state: State,
    /// The column of the cursor.
    column: usize,
    /// What a wrapped line begins with.
    hang: String,
    /// The white space before the next word.
    spaces: usize,
    word: Vec<(char, Style)>,
    /// The style of the whole line.
    base: Style,
    /// The last character of this line.
    last: Option<char>,
    out: String,
}

impl Markdown {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns: columns.max(20),
            pending: String::new(),
            state: State::LineStart,
            column: 0,
            hang: String::new(),
            spaces: 0,
            word: Vec::new(),
            base: Style::default(),
            last: None,
            out: String::new(),
        }
    }

    /// Adds text. Returns what can be printed.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.pending.push_str(text);
        self.render(false);
        std::mem::take(&mut self.out)
    }

    /// Returns the rest. The next text begins a line.
    pub(crate) fn finish(&mut self) -> String {
        self.render(true);
        self.end_word();
        self.begin_line();
        std::mem::take(&mut self.out)
    }

    /// Begins another text, in which no code block is open.
    pub(crate) fn restart(&mut self) {
        self.state = State::LineStart;
    }

    fn begin_line(&mut self) {
        if self.state == State::Inline {
            self.state = State::LineStart;
        }
        (self.column, self.spaces, self.last, self.base) = (0, 0, None, Style::default());
        self.hang.clear();
    }

    fn end_line(&mut self) {
        self.end_word();
        self.out.push('\n');
        self.begin_line();
    }

    /// Renders pending text. `is_last` says that no more text follows, so that nothing is held back.
    fn render(&mut self, is_last: bool) {
        loop {
            let goes_on = match self.state {
                State::LineStart => self.line_start(is_last),
                State::Inline => self.inline(is_last),
                State::Code(mark, length) => self.code_line(mark, length, is_last),
            };
            if !goes_on || self.pending.is_empty() {
                return;
            }
        }
    }

    /// Takes the rest of the line, with its line break if there is one. `None` if it is not complete.
    fn take_line(&mut self, is_last: bool) -> Option<(String, bool)> {
        match self.pending.find('\n') {
            Some(end) => {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                Some((line, true))
            }
            None if is_last => Some((std::mem::take(&mut self.pending), false)),
            None => None,
        }
    }

    fn code_line(&mut self, mark: char, length: usize, is_last: bool) -> bool {
        let Some((line, is_ended)) = self.take_line(is_last) else { return false };
        let trimmed = line.trim();
        if trimmed.chars().count() >= length && trimmed.chars().all(|c| c == mark) {
            self.state = State::LineStart;
        } else {
            self.raw(&line, CODE, is_ended);
        }
        true
    }

    /// Prints a line as it is.
    fn raw(&mut self, line: &str, style: &str, is_ended: bool) {
        if !line.is_empty() {
            self.out.push_str(style);
            self.out.push_str(line);
            self.out.push_str(if style.is_empty() { "" } else { RESET });
        }
        if is_ended {
            self.out.push('\n');
        }
    }

    fn line_start(&mut self, is_last: bool) -> bool {
        let indent = self.pending.len() - self.pending.trim_start_matches(' ').len();
        match start(&self.pending, is_last) {
            Start::Open => return false,
            Start::Blank => {
                if let Some((_, is_ended)) = self.take_line(is_last) {
                    self.raw("", "", is_ended);
                }
            }
            Start::Fence(mark, length) => {
                let Some(_) = self.take_line(is_last) else { return false };
                self.state = State::Code(mark, length);
            }
            Start::Row => {
                let Some((line, is_ended)) = self.take_line(is_last) else { return false };
                self.raw(&line, "", is_ended);
            }
            Start::Heading(length) => {
                self.pending.drain(..length);
                self.base = Style { bold: true, ..Style::default() };
                self.state = State::Inline;
            }
            Start::Item(length, shown) => {
                self.pending.drain(..length);
                self.out.push_str(&shown);
                self.column = shown.chars().count();
                self.hang = " ".repeat(self.column);
                self.state = State::Inline;
            }
            Start::Quote(length) => {
                self.pending.drain(..length);
                self.hang = format!("{DIM}│{RESET} ");
                self.out.push_str(&self.hang);
                self.column = 2;
                self.state = State::Inline;
            }
            Start::Text => {
                self.pending.drain(..indent);
                self.spaces = indent;
                self.hang = " ".repeat(indent);
                self.state = State::Inline;
            }
        }
        true
    }

    fn inline(&mut self, is_last: bool) -> bool {
        while let Some(c) = self.pending.chars().next() {
            let taken = match c {
                '\n' => {
                    self.pending.drain(..1);
                    self.end_line();
                    return true;
                }
                '`' | '*' => match span(&self.pending, self.last, is_last) {
                    Span::Open => return false,
                    Span::None(length) => {
                        let text = self.pending[..length].to_owned();
                        self.plain(&text, self.base);
                        length
                    }
                    Span::Styled { style, mark, text } => {
                        let inner = self.pending[mark..mark + text].to_owned();
                        let base = self.base;
                        self.styled(
                            &inner,
                            Style {
                                bold: base.bold || style.bold,
                                italic: base.italic || style.italic,
                                code: style.code,
                            },
                        );
                        mark + text + mark
                    }
                },
                c => {
                    self.plain(c.encode_utf8(&mut [0; 4]), self.base);
                    c.len_utf8()
                }
            };
            self.pending.drain(..taken);
        }
        false
    }

    /// Adds the text of a span, in which there may be code.
    fn styled(&mut self, text: &str, style: Style) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('`').filter(|_| !style.code) {
            let Some((code, after)) = after.split_once('`') else { break };
            self.plain(before, style);
            self.plain(code, Style { code: true, ..style });
            rest = after;
        }
        self.plain(rest, style);
    }

    fn plain(&mut self, text: &str, style: Style) {
        for c in text.chars() {
            self.last = Some(c);
            match c {
                ' ' => {
                    self.end_word();
                    self.spaces += 1;
                }
                '\t' => {
                    self.end_word();
                    self.spaces += 4;
                }
                c => {
                    self.word.push((c, style));
                    // Scripts with wide characters have no spaces between words.
                    if c.width() == Some(2) {
                        self.end_word();
                    }
                }
            }
        }
    }

    /// Prints the current word, on a new line if this one has no room for it.
    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let width: usize = self.word.iter().map(|(c, _)| c.width().unwrap_or(0)).sum();
        let hang = if self.hang.contains('│') { 2 } else { self.hang.len() };
        if self.column > hang && self.column + self.spaces + width > self.columns {
            self.out.push('\n');
            self.out.push_str(&self.hang);
            (self.column, self.spaces) = (hang, 0);
        }
        self.out.extend(std::iter::repeat_n(' ', self.spaces));
        let mut current = Style::default();
        for (c, style) in self.word.drain(..) {
            if style != current {
                if current != Style::default() {
                    self.out.push_str(RESET);
                }
                style.write(&mut self.out);
                current = style;
            }
            self.out.push(c);
        }
        if current != Style::default() {
            self.out.push_str(RESET);
        }
        self.column = (self.column + self.spaces + width) % self.columns.max(1);
        // The cursor of a full line is behind its last column.
        if self.column == 0 {
            self.column = self.columns;
        }
        self.spaces = 0;
    }
}

/// Finds out what a line begins with.
fn start(pending: &str, is_last: bool) -> Start {
    let line = pending.split('\n').next().unwrap_or_default();
    let is_complete = is_last || line.len() < pending.len();
    let trimmed = line.trim_start_matches(' ');
    let indent = line.len() - trimmed.len();
    let open_unless = |is_known: bool| if is_known || is_complete { Start::Text } else { Start::Open };
    let Some(first) = trimmed.chars().next() else {
        return if is_complete { Start::Blank } else { Start::Open };
    };
    let run = trimmed.chars().take_while(|c| *c == first).count();
    // The marks are single bytes.
    let after = trimmed.get(run..).unwrap_or_default();
    let next = after.chars().next();
    match first {
        '`' | '~' if run >= 3 => Start::Fence(first, run),
        '`' | '~' => open_unless(next.is_some()),
        '|' => Start::Row,
        '#' if run <= 6 && next == Some(' ') => Start::Heading(indent + run + 1),
        '#' => open_unless(next.is_some()),
        '>' if run == 1 => match next {
            Some(' ') => Start::Quote(indent + 2),
            Some(_) => Start::Quote(indent + 1),
            None => open_unless(false),
        },
        '-' | '*' | '+' if run == 1 && next == Some(' ') => {
            Start::Item(indent + 2, format!("{}• ", " ".repeat(indent)))
        }
        '-' | '*' | '+' => open_unless(next.is_some() || run > 1),
        '0'..='9' => {
            let digits = trimmed.chars().take_while(char::is_ascii_digit).count();
            let mut after = trimmed[digits..].chars();
            match (after.next(), after.next()) {
                (Some('.' | ')'), Some(' ')) if digits <= 3 => {
                    let marker = &line[..indent + digits + 2];
                    Start::Item(marker.len(), marker.to_owned())
                }
                (None, _) | (Some('.' | ')'), None) => open_unless(false),
                (Some(_), _) => Start::Text,
            }
        }
        _ => Start::Text,
    }
}

/// A span with a style.
enum Span {
    /// More text is needed to decide.
    Open,
    /// There is no span: these bytes are text.
    None(usize),
    /// The lengths of the mark on either side and of the text between, in bytes.
    Styled { style: Style, mark: usize, text: usize },
}

/// Finds out whether a span begins here, after the character `last`.
fn span(pending: &str, last: Option<char>, is_last: bool) -> Span {
    let line = pending.split('\n').next().unwrap_or_default();
    let is_complete = is_last || line.len() < pending.len() || line.len() > LONGEST_SPAN;
    let Some(first) = line.chars().next() else { return Span::None(0) };
    let mark = line.chars().take_while(|c| *c == first).count();
    let rest = &line[mark..];
    // The mark may go on.
    if rest.is_empty() && !is_complete {
        return Span::Open;
    }
    let style = match (first, mark) {
        ('`', 1) => Style { code: true, ..Style::default() },
        ('*', 1) => Style { italic: true, ..Style::default() },
        ('*', 2) => Style { bold: true, ..Style::default() },
        ('*', 3) => Style { bold: true, italic: true, ..Style::default() },
        _ => return Span::None(mark),
    };
    let is_text_before = last.is_some_and(char::is_alphanumeric) && first == '*';
    match rest.chars().next() {
        None => return Span::None(mark),
        Some(next) if is_text_before || (next.is_whitespace() && first == '*') => return Span::None(mark),
        Some(_) => {}
    }
    let closing = &line[..mark];
    let mut from = 0;
    while let Some(found) = rest[from..].find(closing) {
        let at = from + found;
        let run = rest[at..].chars().take_while(|c| *c == first).count();
        let before = rest[..at].chars().next_back();
        let after = rest[at + run..].chars().next();
        // What follows the mark decides, and has not arrived.
        if after.is_none() && !is_complete {
            return Span::Open;
        }
        let closes = match first {
            '`' => run == mark && at > 0,
            _ => {
                run == mark
                    && before.is_some_and(|before| !before.is_whitespace())
                    && !after.is_some_and(char::is_alphanumeric)
            }
        };
        if closes {
            return Span::Styled { style, mark, text: at };
        }
        from = at + run;
    }
    if is_complete { Span::None(mark) } else { Span::Open }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use proptest::prelude::*;

    use super::*;

    fn rendered(columns: usize, text: &str) -> String {
        let mut markdown = Markdown::new(columns);
        let begin = markdown.push(text);
        begin + &markdown.finish()
    }

    /// The same, with a sign for each escape sequence.
    fn shown(text: &str) -> String {
        rendered(40, text)
            .replace(BOLD, "‹b›")
            .replace(ITALIC, "‹i›")
            .replace(CODE, "‹c›")
            .replace(DIM, "‹d›")
            .replace(RESET, "‹›")
    }

    #[test]
    fn common_markdown_is_rendered() {
        for (text, expected) in [
            ("# Title\ntext", "‹b›Title‹›\ntext"),
            ("**two words** end", "‹b›two‹› ‹b›words‹› end"),
            ("*one*, `code`.", "‹i›one‹›, ‹c›code‹›."),
            ("- a\n  * b\n1. c", "• a\n  • b\n1. c"),
            ("> said", "‹d›│‹› said"),
            ("```rust\nlet **a** = 1;\n```\nend", "‹c›let **a** = 1;‹›\nend"),
            ("**use `x`**", "‹b›use‹› ‹b›‹c›x‹›"),
            ("| a | *b* |\n", "| a | *b* |\n"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_markdown_stays_as_it_is() {
        for text in [
            "2 * 3 * 4",
            "a*b*c",
            "f(*args, **kwargs)",
            "__init__ and snake_case_name",
            "#tag and #1",
            "-5 degrees\n3.14 and 10.",
            "an *open mark\nand `another",
            "a  b   c",
            "**",
            "1\n2\n3\n",
            "    indented",
        ] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn long_lines_are_wrapped_between_words_and_items_are_indented() {
        assert_eq!(rendered(20, "one two three four five six"), "one two three four\nfive six");
        assert_eq!(rendered(20, "- one two three four five"), "• one two three four\n  five");
        assert_eq!(rendered(20, "日本語日本語日本語日本語"), "日本語日本語日本語日\n本語");
        let address = "https://example.com/a/very/long/path";
        assert_eq!(rendered(20, &format!("see {address} there")), format!("see\n{address}\nthere"));
    }

    #[test]
    fn a_word_is_printed_when_it_is_complete() {
        let mut markdown = Markdown::new(40);
        assert_eq!(markdown.push("Hel"), "");
        assert_eq!(markdown.push("lo wor"), "Hello");
        assert_eq!(markdown.push("ld **bo"), " world");
        assert_eq!(markdown.push("ld** x"), format!(" {BOLD}bold{RESET}"));
        assert_eq!(markdown.finish(), " x");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_text_arrives(text in "[a-c*`#\n 1.>|-]{0,60}", at in 0usize..60) {
            let at = at.min(text.len());
            let mut markdown = Markdown::new(30);
            let parts = markdown.push(&text[..at]) + &markdown.push(&text[at..]) + &markdown.finish();
            prop_assert_eq!(parts, rendered(30, &text));
        }

        #[test]
        fn no_letter_is_lost_and_no_line_is_too_long(text in "[a-z*`# \n]{0,200}") {
            let out = strip_str(&rendered(30, &text)).to_string();
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
            // The line that opens a code block names a language.
            if !text.contains("```") {
                prop_assert_eq!(letters(&out), letters(&text));
            }
            for line in out.lines().filter(|line| line.contains(' ') && !text.contains("```")) {
                let longest = line.split(' ').map(|word| word.chars().count()).max().unwrap_or_default();
                // White space at the beginning of a line is kept.
                let is_indented = line.starts_with(' ');
                prop_assert!(line.chars().count() <= 30 || longest > 20 || is_indented, "{:?}", line);
            }
        }
    }
}
