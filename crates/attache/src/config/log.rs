//! The section `log` of the file: what is logged, and how.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use attache::server::RequestLog;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::tree::{Entry, Node, Value};
use super::units::{Described, Time};

/// How the lines of the log are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// The name of standard output as the file of the log.
pub(crate) const STANDARD_OUTPUT: &str = "/dev/stdout";

/// Which requests are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoggedRequests(pub(crate) RequestLog);

/// What the text for slow requests begins with.
const SLOWER_THAN: &str = "slower-than ";

impl FromStr for LoggedRequests {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "expected `true`, `false` or a time such as `slower-than 1s`";
        match text {
            "true" => Ok(Self(RequestLog::All)),
            "false" => Ok(Self(RequestLog::Off)),
            text => {
                let time = text.strip_prefix(SLOWER_THAN).and_then(|time| time.trim().parse::<Time>().ok());
                match time {
                    Some(Time(time)) if time > Duration::ZERO => Ok(Self(RequestLog::SlowerThan(time))),
                    Some(_) | None => Err(bad),
                }
            }
        }
    }
}

impl fmt::Display for LoggedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RequestLog::All => f.write_str("true"),
            RequestLog::Off => f.write_str("false"),
            RequestLog::SlowerThan(time) => write!(f, "{SLOWER_THAN}{}", Time(time)),
        }
    }
}

impl Described for LoggedRequests {
    const NAME: &'static str = "LoggedRequests";
    const PATTERN: &'static str = "^(true|false|slower-than +[0-9]+(ms|s|m|h|d))$";
    const EXAMPLE: &'static str = "slower-than 1s";
    const TYPES: [&'static str; 2] = ["string", "boolean"];
}

/// Reads `log: FILTER` as `log: { filter: FILTER }`.
pub(super) fn expand(root: &mut Node) {
    let Value::Map(entries) = &mut root.value else { return };
    let Some(Entry { node, position, .. }) = entries.iter_mut().find(|entry| entry.key == "log") else {
        return;
    };
    if !matches!(node.value, Value::Text { .. }) {
        return;
    }
    let filter = Node { path: format!("{}.filter", node.path), ..node.clone() };
    node.value = Value::Map(vec![Entry { key: "filter".to_owned(), position: *position, node: filter }]);
}

/// Adds the short form to the schema of the file, and that YAML reads `true` and `false` as Booleans.
pub(super) fn describe(schema: &mut Json) {
    let Some(log) = schema.pointer_mut("/properties/log") else { return };
    let section = log.take();
    let description = section["description"].clone();
    *log = json!({"description": description, "anyOf": [{"$ref": "#/$defs/Filter"}, section]});
    if let Some(requests) = schema.pointer_mut("/$defs/LoggedRequests/type") {
        *requests = json!(["boolean", "string"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_to_log_are_written_as_they_were_read() {
        for text in ["true", "false", "slower-than 1s", "slower-than 250ms"] {
            assert_eq!(text.parse::<LoggedRequests>().unwrap().to_string(), text);
        }
        for text in ["", "yes", "1s", "slower-than", "slower-than 0s", "slower-than 1", "slower-than1s"] {
            assert!(text.parse::<LoggedRequests>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_filter_alone_is_short_for_the_section() {
        let read = |text: &str| {
            let root = Node::read(text, &|_| None, &|_| true, &mut Vec::new()).unwrap();
            (root.to_json(), root.at("log.filter").map(|node| node.position.line))
        };
        assert_eq!(read("\nlog: debug"), (json!({"log": {"filter": "debug"}}), Some(2)));
        let section = "log:\n  filter: debug\n  requests: slower-than 1s";
        let read_section = json!({"log": {"filter": "debug", "requests": "slower-than 1s"}});
        assert_eq!(read(section), (read_section, Some(2)));
    }
}
