//! A configuration file as a tree. Each value has its position in the file, for error messages.
//!
//! Underscores in keys are read as dashes. `${NAME}` in a value is replaced by the environment variable of that name.

use std::borrow::Cow;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::error::ConfigError;

/// How deep a file may nest. Every setting needs far less.
const DEEPEST: usize = 16;

/// A position in the file. Lines and columns begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl From<&Marker> for Position {
    fn from(marker: &Marker) -> Self {
        Self { line: marker.line().max(1), column: marker.col() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with its position.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) position: Position,
    /// The keys that lead to it, such as `auth.bearer[0].token`.
    pub(crate) path: String,
    pub(super) value: Value,
}

#[derive(Clone)]
pub(super) enum Value {
    Nothing,
    Text {
        text: String,
        /// The environment variables in the text.
        variables: Vec<String>,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone)]
pub(super) struct Entry {
    /// The key, with dashes.
    pub(super) key: String,
    pub(super) position: Position,
    pub(super) node: Node,
}

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether a section of the file is needed. A section is a key at the top level.
pub(crate) type Sections<'a> = &'a dyn Fn(&str) -> bool;

impl Node {
    /// Parses a file. A section that is not needed is read as empty, so that its environment variables need not be set.
    ///
    /// Values that are wrong by themselves are added to `errors`. The result is an error if the rest of the file cannot be read.
    pub(super) fn read(
        text: &str,
        environment: Environment<'_>,
        matters: Sections<'_>,
        errors: &mut Vec<ConfigError>,
    ) -> Result<Self, ConfigError> {
        let text = without_second_colon(text);
        let mut reader = Reader { events: Parser::new_from_str(&text), environment, matters, errors };
        let mut root = None;
        loop {
            match reader.next()? {
                (Event::StreamEnd, _) => break,
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) if root.is_some() => {
                    return Err(ConfigError::at(Position::from(&span.start), "this is a second document")
                        .hint("a configuration is one document: remove the `---` between them"));
                }
                (event, span) => root = Some(reader.node(event, span, String::new(), 0)?),
            }
        }
        let empty =
            || Self { position: Position { line: 1, column: 1 }, path: String::new(), value: Value::Nothing };
        let mut root = root.unwrap_or_else(empty);
        if matches!(root.value, Value::Nothing) {
            root.value = Value::Map(Vec::new());
        }
        super::log::expand(&mut root);
        Ok(root)
    }

    /// The value at a path.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        if self.path == path {
            return Some(self);
        }
        let children: Vec<&Self> = match &self.value {
            Value::Nothing | Value::Text { .. } => return None,
            Value::List(nodes) => nodes.iter().collect(),
            Value::Map(entries) => entries.iter().map(|entry| &entry.node).collect(),
        };
        let leads_there = |node: &&Self| {
            path.strip_prefix(&node.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        children.into_iter().filter(leads_there).find_map(|node| node.at(path))
    }

    /// Removes the value at a path. Returns whether there was one.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        match &mut self.value {
            Value::Nothing | Value::Text { .. } => false,
            Value::List(nodes) => match nodes.iter().position(|node| node.path == path) {
                Some(at) => {
                    nodes.remove(at);
                    true
                }
                None => nodes.iter_mut().any(|node| node.remove(path)),
            },
            Value::Map(entries) => match entries.iter().position(|entry| entry.node.path == path) {
                Some(at) => {
                    entries.remove(at);
                    true
                }
                None => entries.iter_mut().any(|entry| entry.node.remove(path)),
            },
        }
    }

    /// The tree as JSON. Text that looks like a number or a Boolean becomes one.
    #[cfg(test)]
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Nothing => serde_json::Value::Null,
            Value::Text { text, .. } => match serde_json::from_str(text) {
                Ok(value @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_))) => value,
                Ok(_) | Err(_) => text.as_str().into(),
            },
            Value::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
            }
        }
    }

    /// The environment variables in this value and in all values below it.
    pub(super) fn all_variables(&self) -> Vec<&str> {
        match &self.value {
            Value::Nothing => Vec::new(),
            Value::Text { variables, .. } => variables.iter().map(String::as_str).collect(),
            Value::List(nodes) => nodes.iter().flat_map(Self::all_variables).collect(),
            Value::Map(entries) => entries.iter().flat_map(|entry| entry.node.all_variables()).collect(),
        }
    }

    /// The environment variables in this value.
    pub(crate) fn variables(&self) -> &[String] {
        match &self.value {
            Value::Text { variables, .. } => variables,
            Value::Nothing | Value::List(_) | Value::Map(_) => &[],
        }
    }
}

struct Reader<'a, 'e> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    environment: Environment<'a>,
    matters: Sections<'a>,
    errors: &'e mut Vec<ConfigError>,
}

impl<'a> Reader<'a, '_> {
    fn next(&mut self) -> Result<(Event<'a>, Span), ConfigError> {
        match self.events.next() {
            Some(event) => event.map_err(|error| malformed(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        path: String,
        depth: usize,
    ) -> Result<Node, ConfigError> {
        let position = Position::from(&span.start);
        if depth > DEEPEST {
            return Err(ConfigError::at(position, format!("this is more than {DEEPEST} levels deep")));
        }
        let unsupported = match &event {
            Event::Alias(_) => Some("anchors and aliases (`&`, `*`)"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if *anchor > 0 =>
            {
                Some("anchors and aliases (`&`, `*`)")
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Some("tags (`!`)"),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Scalar(_, _, _, None)
            | Event::SequenceStart(_, None)
            | Event::SequenceEnd
            | Event::MappingStart(_, None)
            | Event::MappingEnd => None,
        };
        if let Some(what) = unsupported {
            let error = ConfigError::at(position, format!("{what} mean nothing here"));
            self.errors.push(error.hint("write the value out").blame(&path));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, _, _)
                if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
            {
                Value::Nothing
            }
            Event::Scalar(text, _, _, _) => match expand(&text, self.environment) {
                Ok((text, variables)) => Value::Text { text, variables },
                Err(error) => {
                    self.errors.push(error.or_at(position, &path));
                    Value::Nothing
                }
            },
            Event::SequenceStart(_, _) => {
                let mut nodes = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd | Event::StreamEnd, _) => break Value::List(nodes),
                        (event, span) => {
                            let path = format!("{path}[{}]", nodes.len());
                            nodes.push(self.node(event, span, path, depth + 1)?);
                        }
                    }
                }
            }
            Event::MappingStart(_, _) => self.map(&path, depth)?,
            Event::Alias(_)
            | Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Value::Nothing,
        };
        Ok(Node { position, path, value })
    }

    fn map(&mut self, path: &str, depth: usize) -> Result<Value, ConfigError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (key, position) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(Value::Map(entries)),
                (Event::Scalar(key, _, _, _), span) => (key, Position::from(&span.start)),
                (_, span) => {
                    return Err(ConfigError::at(Position::from(&span.start), "a key must be a word"));
                }
            };
            let key = key.replace('_', "-");
            let first = entries.iter().find(|entry| entry.key == key).map(|entry| entry.position.line);
            let (event, span) = self.next()?;
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if let Some(line) = first {
                let error = ConfigError::at(position, format!("`{key}` is set a second time"));
                self.errors.push(error.hint(format!("it is set in line {line} already")).blame(&below));
            }
            let mut node = match path.is_empty() && !(self.matters)(&key) {
                false => self.node(event, span, below, depth + 1)?,
                true => {
                    let environment = std::mem::replace(&mut self.environment, &|_| Some(String::new()));
                    let node = self.node(event, span, below, depth + 1)?;
                    self.environment = environment;
                    Node { value: Value::Nothing, ..node }
                }
            };
            // Error messages name the line of the key.
            if !matches!(node.value, Value::Text { .. }) {
                node.position = position;
            }
            if first.is_none() {
                entries.push(Entry { key, position, node });
            }
        }
    }
}

/// The text with `store: memory` instead of `store: memory:`, in which YAML takes the second colon for that of a key.
fn without_second_colon(text: &str) -> Cow<'_, str> {
    let is_meant = |line: &str| {
        let value = line.strip_prefix("store:").map(|rest| rest.split(" #").next().unwrap_or_default());
        value.is_some_and(|value| value.trim() == "memory:")
    };
    if !text.lines().any(is_meant) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive('\n').map(|line| match is_meant(line) {
        true => line.replacen("memory:", "memory", 1),
        false => line.to_owned(),
    });
    Cow::Owned(lines.collect())
}

fn malformed(error: &ScanError) -> ConfigError {
    ConfigError::at(Position::from(error.marker()), format!("this is not YAML: {}", error.info()))
}

/// Replaces `${NAME}` by the environment variable, and `$$` by `$`.
fn expand(text: &str, environment: Environment<'_>) -> Result<(String, Vec<String>), ConfigError> {
    let (mut out, mut variables, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(
                    ConfigError::new("a `${` has no `}`").hint("for the characters themselves write `$${`")
                );
            };
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err(ConfigError::new(format!("`${{{name}}}` is not a variable of the environment"))
                    .hint("such as `${TOKEN}`; for the characters themselves write `$${`"));
            }
            let Some(value) = environment(name) else {
                return Err(ConfigError::new(format!("the environment has no variable `{name}`"))
                    .hint(format!("set `{name}`, or write the value out")));
            };
            out.push_str(&value);
            variables.push(name.to_owned());
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok((out, variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("s3cret".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_and_two_dollars_are_one() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${TOKEN}", "s3cret"),
            ("a${TOKEN}b${TOKEN}", "as3cretbs3cret"),
            ("$${TOKEN}", "${TOKEN}"),
            ("$$$$", "$$"),
            ("pa$word$", "pa$word$"),
        ] {
            assert_eq!(expand(text, &environment).unwrap().0, expected, "{text}");
        }
        for text in ["${NONE}", "${TOKEN", "${}", "${a b}"] {
            assert!(expand(text, &environment).is_err(), "{text}");
        }
    }

    fn read(text: &str) -> Node {
        let mut errors = Vec::new();
        let root = Node::read(text, &environment, &|_| true, &mut errors).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        root
    }

    #[test]
    fn a_store_in_memory_needs_no_quotes() {
        for text in [
            "store: memory:",
            "store: \"memory:\"",
            "log: info\r\nstore:  memory:  # a comment\r\n",
            "store: memory",
        ] {
            let root = read(text);
            let value = &root.at("store").unwrap().value;
            assert!(
                matches!(value, Value::Text { text, .. } if text.trim_end_matches(':') == "memory"),
                "{text}"
            );
        }
        let mut errors = Vec::new();
        assert!(Node::read("listen: memory:", &environment, &|_| true, &mut errors).is_err());
    }

    #[test]
    fn each_value_has_its_position() {
        let root = read("a: 1\nb_c:\n  - d: x\n    e: '${TOKEN}'\n  - f\n");
        let position = |path: &str| root.at(path).map(|node| node.position.to_string());
        assert_eq!(position("a").as_deref(), Some("1:4"));
        assert_eq!(position("b-c").as_deref(), Some("2:1"));
        assert_eq!(position("b-c[0].e").as_deref(), Some("4:8"));
        assert_eq!(position("b-c[1]").as_deref(), Some("5:5"));
        assert_eq!(position("b-c[2]"), None);
        assert_eq!(root.at("b-c[0].e").map(Node::variables), Some(&["TOKEN".to_owned()][..]));
    }
}
