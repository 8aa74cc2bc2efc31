//! A configuration file as a tree in which everything knows its place.
//!
//! Keys with underscores are those with dashes, and `${NAME}` in a value is what the environment has under that name.

use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::wrong::Wrong;

/// How deep a file may nest. No setting comes near it.
const DEEPEST: usize = 16;

/// Where something stands in the file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl From<&Marker> for Place {
    fn from(marker: &Marker) -> Self {
        Self { line: marker.line().max(1), column: marker.col() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value, and where it is.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    /// The keys that lead to it, such as `auth.bearer[0].token`.
    pub(crate) path: String,
    pub(super) value: Value,
}

#[derive(Clone)]
pub(super) enum Value {
    Nothing,
    Text {
        text: String,
        /// The variables that are part of it.
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
    pub(super) place: Place,
    pub(super) node: Node,
}

/// What the environment has under a name.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether a section of the file, which is a key that stands at its left edge, matters.
pub(crate) type Sections<'a> = &'a dyn Fn(&str) -> bool;

impl Node {
    /// Reads a file. A section that does not matter is as if nothing were below it, so that nobody needs its variables.
    pub(super) fn read(
        text: &str,
        environment: Environment<'_>,
        matters: Sections<'_>,
    ) -> Result<Self, Wrong> {
        let mut reader = Reader { events: Parser::new_from_str(text), environment, matters };
        let mut root = None;
        loop {
            match reader.next()? {
                (Event::StreamEnd, _) => break,
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) if root.is_some() => {
                    return Err(Wrong::at(Place::from(&span.start), "this is a second document")
                        .hint("a configuration is one document: remove the `---` between them"));
                }
                (event, span) => root = Some(reader.node(event, span, String::new(), 0)?),
            }
        }
        let empty =
            || Self { place: Place { line: 1, column: 1 }, path: String::new(), value: Value::Nothing };
        let mut root = root.unwrap_or_else(empty);
        if matches!(root.value, Value::Nothing) {
            root.value = Value::Map(Vec::new());
        }
        Ok(root)
    }

    /// What stands at a path.
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

    /// The same as JSON, in which what looks like a number or a switch is one.
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

    /// The variables of the environment that are part of it or of anything below it.
    pub(super) fn all_variables(&self) -> Vec<&str> {
        match &self.value {
            Value::Nothing => Vec::new(),
            Value::Text { variables, .. } => variables.iter().map(String::as_str).collect(),
            Value::List(nodes) => nodes.iter().flat_map(Self::all_variables).collect(),
            Value::Map(entries) => entries.iter().flat_map(|entry| entry.node.all_variables()).collect(),
        }
    }

    /// The variables of the environment that are part of it.
    pub(crate) fn variables(&self) -> &[String] {
        match &self.value {
            Value::Text { variables, .. } => variables,
            Value::Nothing | Value::List(_) | Value::Map(_) => &[],
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    environment: Environment<'a>,
    matters: Sections<'a>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Wrong> {
        match self.events.next() {
            Some(event) => event.map_err(|error| malformed(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, path: String, depth: usize) -> Result<Node, Wrong> {
        let place = Place::from(&span.start);
        let refused = |what: &str| {
            Err(Wrong::at(place, format!("{what} mean nothing here")).hint("write the value out"))
        };
        if depth > DEEPEST {
            return Err(Wrong::at(place, format!("this is more than {DEEPEST} levels deep")));
        }
        let value = match event {
            Event::Alias(_) => return refused("anchors and aliases (`&`, `*`)"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return refused("anchors and aliases (`&`, `*`)");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => return refused("tags (`!`)"),
            Event::Scalar(text, ScalarStyle::Plain, _, _)
                if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
            {
                Value::Nothing
            }
            Event::Scalar(text, _, _, _) => {
                let (text, variables) =
                    expand(&text, self.environment).map_err(|wrong| wrong.or_at(place, &path))?;
                Value::Text { text, variables }
            }
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
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Value::Nothing,
        };
        Ok(Node { place, path, value })
    }

    fn map(&mut self, path: &str, depth: usize) -> Result<Value, Wrong> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (key, place) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(Value::Map(entries)),
                (Event::Scalar(key, _, _, _), span) => (key, Place::from(&span.start)),
                (_, span) => return Err(Wrong::at(Place::from(&span.start), "a key must be a word")),
            };
            let key = key.replace('_', "-");
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let line = first.place.line;
                return Err(Wrong::at(place, format!("`{key}` is set a second time"))
                    .hint(format!("it is set in line {line} already")));
            }
            let (event, span) = self.next()?;
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let mut node = match path.is_empty() && !(self.matters)(&key) {
                false => self.node(event, span, below, depth + 1)?,
                true => {
                    let environment = std::mem::replace(&mut self.environment, &|_| Some(String::new()));
                    let node = self.node(event, span, below, depth + 1)?;
                    self.environment = environment;
                    Node { value: Value::Nothing, ..node }
                }
            };
            // The line that is named for a value is that of its key.
            if !matches!(node.value, Value::Text { .. }) {
                node.place = place;
            }
            entries.push(Entry { key, place, node });
        }
    }
}

fn malformed(error: &ScanError) -> Wrong {
    Wrong::at(Place::from(error.marker()), format!("this is not YAML: {}", error.info()))
}

/// Puts in what the environment has for `${NAME}`, and `$` for `$$`.
fn expand(text: &str, environment: Environment<'_>) -> Result<(String, Vec<String>), Wrong> {
    let (mut out, mut variables, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(Wrong::new("a `${` has no `}`").hint("for the characters themselves write `$${`"));
            };
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err(Wrong::new(format!("`${{{name}}}` is not a variable of the environment"))
                    .hint("such as `${TOKEN}`; for the characters themselves write `$${`"));
            }
            let Some(value) = environment(name) else {
                return Err(Wrong::new(format!("the environment has no variable `{name}`"))
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

    #[test]
    fn each_value_has_its_position() {
        let root =
            Node::read("a: 1\nb_c:\n  - d: x\n    e: '${TOKEN}'\n  - f\n", &environment, &|_| true).unwrap();
        let place = |path: &str| root.at(path).map(|node| node.place.to_string());
        assert_eq!(place("a").as_deref(), Some("1:4"));
        assert_eq!(place("b-c").as_deref(), Some("2:1"));
        assert_eq!(place("b-c[0].e").as_deref(), Some("4:8"));
        assert_eq!(place("b-c[1]").as_deref(), Some("5:5"));
        assert_eq!(place("b-c[2]"), None);
        assert_eq!(root.at("b-c[0].e").map(Node::variables), Some(&["TOKEN".to_owned()][..]));
    }
}
