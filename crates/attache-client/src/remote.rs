//! Refusals, as agents write them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use attache_protocol::{ERROR_DOMAIN, ErrorKind, FieldViolation, Json};
use serde::Deserialize;
use serde_json::value::RawValue;

/// An agent's refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteError {
    /// What it is in the protocol's table of errors, by its reason or else by its code; nothing if it is not in there.
    pub kind: Option<ErrorKind>,
    /// The code of the binding.
    pub code: i64,
    /// The machine-readable reason.
    pub reason: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// Facts that programs can read.
    pub metadata: BTreeMap<String, String>,
    /// The fields of the request that are wrong.
    pub field_violations: Vec<FieldViolation>,
    /// All details as they came, also those that are not known here.
    pub details: Vec<Json>,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.kind) {
            (Some(reason), _) => write!(f, "{} ({reason})", self.message),
            (None, Some(kind)) => write!(f, "{} ({})", self.message, kind.reason()),
            (None, None) => write!(f, "{} (code {})", self.message, self.code),
        }
    }
}

impl std::error::Error for RemoteError {}

#[derive(Deserialize)]
struct Refusal<'a> {
    #[serde(default)]
    code: i64,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

/// The members of all details that are looked into.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(rename = "@type")]
    of: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default, alias = "field_violations")]
    field_violations: Option<Vec<Violation>>,
}

#[derive(Deserialize)]
struct Violation {
    #[serde(default)]
    field: String,
    #[serde(default)]
    description: String,
}

impl RemoteError {
    /// Reads the `error` member of a JSON-RPC response. Details that make no sense are kept and not looked into.
    pub fn from_jsonrpc(error: &str) -> Result<Self, serde_json::Error> {
        let Refusal { code, message, data } = serde_json::from_str(error)?;
        // The protocol wants an array; older agents send whatever they like.
        let data = data.map_or("[]", RawValue::get);
        let details = match serde_json::from_str::<Vec<Json>>(data) {
            Ok(details) => details,
            Err(_) => vec![Json::parse(data)?],
        };
        let mut read = Self {
            kind: None,
            code,
            reason: None,
            message: message.into_owned(),
            metadata: BTreeMap::new(),
            field_violations: Vec::new(),
            details: Vec::new(),
        };
        for detail in details.iter().filter_map(|detail| detail.read::<Detail>().ok()) {
            read.note(detail);
        }
        read.kind = read.kind.or_else(|| by_code(code));
        read.details = details;
        Ok(read)
    }

    fn note(&mut self, detail: Detail) {
        match detail.of.rsplit('/').next() {
            Some("google.rpc.ErrorInfo") => {
                if detail.domain.as_deref().is_none_or(|domain| domain.is_empty() || domain == ERROR_DOMAIN) {
                    let reason = detail.reason.as_deref();
                    self.kind = ErrorKind::ALL.iter().copied().find(|kind| Some(kind.reason()) == reason);
                }
                self.reason = detail.reason;
                self.metadata.extend(detail.metadata.unwrap_or_default());
            }
            Some("google.rpc.BadRequest") => {
                let violations = detail.field_violations.unwrap_or_default().into_iter();
                self.field_violations.extend(
                    violations.map(|Violation { field, description }| FieldViolation { field, description }),
                );
            }
            Some(_) | None => {}
        }
    }
}

/// The kind with this code, of those codes that mean the same everywhere.
fn by_code(code: i64) -> Option<ErrorKind> {
    let everywhere = (-32009..=-32001).contains(&code) || (-32700..=-32600).contains(&code);
    ErrorKind::ALL.iter().copied().find(|kind| everywhere && i64::from(kind.jsonrpc_code()) == code)
}

#[cfg(test)]
mod tests {
    use attache_protocol::Error;

    use super::*;

    fn read(error: &str) -> RemoteError {
        RemoteError::from_jsonrpc(error).unwrap()
    }

    #[test]
    fn every_kind_survives_the_wire() {
        for kind in ErrorKind::ALL {
            let error = Error::new(*kind, "no").with("taskId", "T9");
            let remote = read(&serde_json::to_string(&error.to_jsonrpc()).unwrap());
            assert_eq!(remote.kind, Some(*kind));
            assert_eq!((remote.reason.as_deref(), remote.message.as_str()), (Some(kind.reason()), "no"));
            assert_eq!(remote.metadata["taskId"], "T9");
        }
    }

    #[test]
    fn the_fields_that_are_wrong_are_named() {
        let violation = |field: &str| FieldViolation { field: field.into(), description: "is wrong".into() };
        let error = Error::violations(vec![violation("pageSize"), violation("message.parts")]);
        let remote = read(&serde_json::to_string(&error.to_jsonrpc()).unwrap());
        assert_eq!(remote.field_violations, [violation("pageSize"), violation("message.parts")]);
        assert_eq!(remote.details.len(), 2);
    }

    #[test]
    fn without_a_reason_the_code_decides_if_it_means_the_same_everywhere() {
        for (error, kind) in [
            (r#"{"code":-32001,"message":"m"}"#, Some(ErrorKind::TaskNotFound)),
            (r#"{"code":-32603,"message":"m","data":null}"#, Some(ErrorKind::Internal)),
            (r#"{"code":-32002,"message":"m","data":"text"}"#, Some(ErrorKind::TaskNotCancelable)),
            (r#"{"code":-32050,"message":"m","data":{"a":[1]}}"#, None),
            (r#"{"code":-32077,"message":"m"}"#, None),
            (r#"{"code":7}"#, None),
        ] {
            assert_eq!(read(error).kind, kind, "{error}");
        }
    }

    #[test]
    fn a_reason_beats_the_code_unless_it_is_of_another_domain() {
        let error = |domain: &str| {
            let info = r#""@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND""#;
            read(&format!(r#"{{"code":-32603,"message":"m","data":[7,{{{info}{domain}}}]}}"#))
        };
        assert_eq!(error("").kind, Some(ErrorKind::TaskNotFound));
        assert_eq!(error(r#","domain":"a2a-protocol.org""#).kind, Some(ErrorKind::TaskNotFound));
        let other = error(r#","domain":"example.com""#);
        assert_eq!(
            (other.kind, other.reason.as_deref()),
            (Some(ErrorKind::Internal), Some("TASK_NOT_FOUND"))
        );
    }
}
