//! What callers give: an object, or the same as the body or the query of an HTTP request.

use std::collections::BTreeMap;

use attache_protocol::Json;

use super::DelegationError;

/// The members of an input.
#[derive(Debug, Default)]
pub(super) struct Input(BTreeMap<String, Json>);

impl Input {
    /// Reads an input. Nothing at all is an input without members.
    pub(super) fn read(text: &str) -> Result<Self, DelegationError> {
        if text.trim().is_empty() || text.trim() == "null" {
            return Ok(Self::default());
        }
        let members = serde_json::from_str(text)
            .map_err(|error| DelegationError::Invalid(format!("the input must be a JSON object: {error}")));
        members.map(Self)
    }

    /// Reads what a function gets: the input itself, or an HTTP request of which it is the body, or the query.
    pub(super) fn of_call(text: &str) -> Result<Self, DelegationError> {
        let Self(mut given) = Self::read(text)?;
        let parts: Vec<Json> =
            ["query", "query_params", "body"].iter().filter_map(|part| given.remove(*part)).collect();
        for part in parts {
            let Self(members) = Self::read(part.as_str())?;
            given.extend(members);
        }
        Ok(Self(given))
    }

    /// The input that the query of a URL is.
    pub(super) fn of_query(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        // A string can always be written as JSON.
        Self(pairs.filter_map(|(key, value)| Some((key.into_owned(), Json::new(&*value).ok()?))).collect())
    }

    /// A member; `null` is none.
    pub(super) fn json(&self, key: &str) -> Option<&Json> {
        self.0.get(key).filter(|value| value.as_str() != "null")
    }

    /// A member that is a text, if it is there and says something.
    pub(super) fn text(&self, key: &'static str) -> Result<Option<String>, DelegationError> {
        let Some(value) = self.json(key) else { return Ok(None) };
        let text: String =
            value.read().map_err(|_| DelegationError::Invalid(format!("`{key}` must be a string")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// A member that must be there.
    pub(super) fn need(&self, key: &'static str) -> Result<String, DelegationError> {
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
            assert_eq!(Input::of_call(text).unwrap().need("taskId").unwrap(), "t", "{text}");
        }
        assert_eq!(Input::of_query("taskId=a%20b").need("taskId").unwrap(), "a b");
    }

    #[test]
    fn errors_name_the_missing_or_invalid_member() {
        let error =
            |text: &str| Input::of_call(text).and_then(|input| input.need("taskId")).unwrap_err().to_string();
        assert_eq!(error("null"), "taskId is required");
        assert_eq!(error(r#"{"taskId": ""}"#), "taskId is required");
        assert_eq!(error(r#"{"taskId": null}"#), "taskId is required");
        assert_eq!(error(r#"{"taskId": 7}"#), "`taskId` must be a string");
        assert!(error("[]").starts_with("the input must be a JSON object"));
    }
}
