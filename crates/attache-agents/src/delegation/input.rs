//! The input of a function or of the HTTP API: an object, or the body or the query of an HTTP request.

use std::collections::BTreeMap;
use std::time::Duration;

use attache_core::TraceParent;
use attache_protocol::Json;

use super::DelegationError;

/// The longest time that a caller can wait, in seconds.
const MAX_WAIT: f64 = 600.0;

/// The members of an input.
#[derive(Debug, Default)]
pub(super) struct Input {
    members: BTreeMap<String, Json>,
    /// The trace that the call belongs to.
    pub(super) trace_parent: Option<TraceParent>,
}

impl Input {
    /// Parses an input. An empty text and `null` are inputs without members.
    pub(super) fn parse(text: &str) -> Result<Self, DelegationError> {
        if text.trim().is_empty() || text.trim() == "null" {
            return Ok(Self::default());
        }
        let members = serde_json::from_str(text)
            .map_err(|error| DelegationError::Invalid(format!("the input must be a JSON object: {error}")));
        Ok(Self { members: members?, trace_parent: None })
    }

    /// The same input, as part of a trace.
    pub(super) fn with_trace_parent(self, trace_parent: Option<TraceParent>) -> Self {
        Self { trace_parent, ..self }
    }

    /// Parses the payload of a function: the input itself, or an HTTP request with the input as body or query.
    pub(super) fn from_payload(text: &str) -> Result<Self, DelegationError> {
        let Self { mut members, .. } = Self::parse(text)?;
        let parts: Vec<Json> =
            ["query", "query_params", "body"].iter().filter_map(|part| members.remove(*part)).collect();
        for part in parts {
            members.extend(Self::parse(part.as_str())?.members);
        }
        Ok(Self { members, trace_parent: None })
    }

    /// Parses the query of a URL.
    pub(super) fn from_query(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        // A string can always be encoded as JSON.
        let members =
            pairs.filter_map(|(key, value)| Some((key.into_owned(), Json::new(&*value).ok()?))).collect();
        Self { members, trace_parent: None }
    }

    /// A member. `None` if it is missing or `null`.
    pub(super) fn json(&self, key: &str) -> Option<&Json> {
        self.members.get(key).filter(|value| value.as_str() != "null")
    }

    /// A member that is a string. `None` if it is missing, `null` or empty.
    pub(super) fn text(&self, key: &'static str) -> Result<Option<String>, DelegationError> {
        let Some(value) = self.json(key) else { return Ok(None) };
        let text: String =
            value.read().map_err(|_| DelegationError::Invalid(format!("`{key}` must be a string")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// How long the caller waits for the end of a task: `wait` in seconds. `None` if it is missing.
    pub(super) fn wait(&self) -> Result<Option<Duration>, DelegationError> {
        let Some(value) = self.json("wait") else { return Ok(None) };
        // In a query every value is a string.
        let seconds =
            value.read::<f64>().ok().or_else(|| value.read::<String>().ok()?.trim().parse::<f64>().ok());
        match seconds {
            Some(seconds) if (0.0..=MAX_WAIT).contains(&seconds) => {
                Ok(Some(Duration::from_secs_f64(seconds)))
            }
            Some(_) | None => {
                let text = format!("`wait` must be a number of seconds from 0 to {MAX_WAIT}");
                Err(DelegationError::Invalid(text))
            }
        }
    }

    /// A string that is required.
    pub(super) fn required(&self, key: &'static str) -> Result<String, DelegationError> {
        self.text(key)?.ok_or(DelegationError::Required(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_an_object_or_a_part_of_a_request() {
        for text in [
            r#"{"taskId": "t"}"#,
            r#"{"body": {"taskId": "t"}}"#,
            r#"{"query": {"taskId": "t"}}"#,
            r#"{"query_params": {"taskId": "t"}, "body": null, "path": "x"}"#,
        ] {
            assert_eq!(Input::from_payload(text).unwrap().required("taskId").unwrap(), "t", "{text}");
        }
        assert_eq!(Input::from_query("taskId=a%20b").required("taskId").unwrap(), "a b");
    }

    #[test]
    fn the_time_to_wait_is_a_number_of_seconds() {
        let wait = |text: &str| Input::from_payload(text).unwrap().wait();
        assert_eq!(wait("{}").unwrap(), None);
        assert_eq!(wait(r#"{"wait": 0}"#).unwrap(), Some(Duration::ZERO));
        assert_eq!(wait(r#"{"wait": 1.5}"#).unwrap(), Some(Duration::from_millis(1500)));
        assert_eq!(Input::from_query("wait=5").wait().unwrap(), Some(Duration::from_secs(5)));
        for wrong in [r#"{"wait": -1}"#, r#"{"wait": 601}"#, r#"{"wait": "soon"}"#, r#"{"wait": true}"#] {
            assert_eq!(
                wait(wrong).unwrap_err().to_string(),
                "`wait` must be a number of seconds from 0 to 600"
            );
        }
    }

    #[test]
    fn errors_name_the_missing_or_invalid_member() {
        let error = |text: &str| {
            Input::from_payload(text).and_then(|input| input.required("taskId")).unwrap_err().to_string()
        };
        assert_eq!(error("null"), "taskId is required");
        assert_eq!(error(r#"{"taskId": ""}"#), "taskId is required");
        assert_eq!(error(r#"{"taskId": null}"#), "taskId is required");
        assert_eq!(error(r#"{"taskId": 7}"#), "`taskId` must be a string");
        assert!(error("[]").starts_with("the input must be a JSON object"));
    }
}
