//! Refusals, as agents write them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

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
    /// How long the agent asks to be left alone.
    pub retry_after: Option<Duration>,
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
    /// Reads the body of an HTTP+JSON response that refuses; nothing if it is something else. Without a reason the name of the
    /// status decides, where there is only one thing it can mean.
    pub fn from_http_json(status: u16, body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Form<'a> {
            #[serde(borrow)]
            error: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Status<'a> {
            #[serde(default)]
            code: Option<i64>,
            #[serde(default, borrow)]
            status: Option<Cow<'a, str>>,
            #[serde(default, borrow)]
            message: Cow<'a, str>,
            #[serde(default)]
            details: Vec<Json>,
        }
        let Form { error } = serde_json::from_slice(body).ok()?;
        let Status { code, status: name, message, details } = serde_json::from_str(error.get()).ok()?;
        let mut read = Self::new(code.unwrap_or_else(|| status.into()), message.into_owned());
        read.look_into(details);
        read.kind = read.kind.or_else(|| by_status(name.as_deref(), read.code));
        Some(read)
    }

    /// Reads the body of an HTTP+JSON response of 0.3 that refuses; nothing if it is something else. Only a `message` was promised,
    /// but some write what they do over JSON-RPC, or as 1.0 has it. Otherwise the status decides.
    pub(crate) fn from_http_json_0_3(status: u16, body: &[u8]) -> Option<Self> {
        let mut read = Self::from_http_json(status, body).or_else(|| {
            let read = std::str::from_utf8(body).ok().and_then(|body| Self::from_jsonrpc(body).ok());
            read.filter(|read| !read.message.is_empty())
        })?;
        if read.code == 0 {
            read.code = status.into();
        }
        read.kind = read.kind.or_else(|| by_older_status(status));
        Some(read)
    }

    /// Reads how a call of gRPC's ended.
    pub(crate) fn from_grpc(refusal: attache_grpc::ErrorStatus) -> Self {
        let kind = refusal.kind();
        let mut read = Self::new(refusal.code.into(), refusal.message);
        read.look_into(refusal.details);
        read.kind = read.kind.or(kind);
        read
    }

    fn new(code: i64, message: String) -> Self {
        Self {
            kind: None,
            code,
            reason: None,
            message,
            metadata: BTreeMap::new(),
            field_violations: Vec::new(),
            details: Vec::new(),
            retry_after: None,
        }
    }

    /// Details that make no sense are kept and not looked into.
    fn look_into(&mut self, details: Vec<Json>) {
        for detail in details.iter().filter_map(|detail| detail.read::<Detail>().ok()) {
            self.note(detail);
        }
        self.details = details;
    }

    /// Reads the `error` member of a JSON-RPC response. Details that make no sense are kept and not looked into.
    pub fn from_jsonrpc(error: &str) -> Result<Self, serde_json::Error> {
        let Refusal { code, message, data } = serde_json::from_str(error)?;
        // The protocol wants an array; older agents send whatever they like.
        let data = data.map_or("[]", RawValue::get);
        let details = match serde_json::from_str::<Vec<Json>>(data) {
            Ok(details) => details,
            Err(_) => vec![Json::parse(data)?],
        };
        let mut read = Self::new(code, message.into_owned());
        read.look_into(details);
        read.kind = read.kind.or_else(|| by_code(code));
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

/// The kind of a refusal over HTTP+JSON. What several kinds share is none of them.
fn by_status(name: Option<&str>, code: i64) -> Option<ErrorKind> {
    match (name, code) {
        (Some("NOT_FOUND"), _) | (None, 404) => Some(ErrorKind::TaskNotFound),
        (Some("UNAUTHENTICATED"), _) | (None, 401) => Some(ErrorKind::Unauthenticated),
        (Some("PERMISSION_DENIED"), _) | (None, 403) => Some(ErrorKind::PermissionDenied),
        (Some("RESOURCE_EXHAUSTED"), _) | (None, 429) => Some(ErrorKind::ResourceExhausted),
        // As 1.0.0 had it. Later it shares its status with others.
        (Some("FAILED_PRECONDITION"), 409) => Some(ErrorKind::TaskNotCancelable),
        (Some("UNAVAILABLE"), _) | (None, 503) => Some(ErrorKind::Unavailable),
        (Some("UNIMPLEMENTED"), _) => Some(ErrorKind::MethodNotFound),
        (Some("INTERNAL"), _) => Some(ErrorKind::Internal),
        (Some(_) | None, _) => None,
    }
}

/// The kind of a refusal over HTTP+JSON in 0.3.
fn by_older_status(status: u16) -> Option<ErrorKind> {
    match status {
        409 => Some(ErrorKind::TaskNotCancelable),
        415 => Some(ErrorKind::ContentTypeNotSupported),
        422 => Some(ErrorKind::InvalidParams),
        500 => Some(ErrorKind::Internal),
        501 => Some(ErrorKind::UnsupportedOperation),
        502 => Some(ErrorKind::InvalidAgentResponse),
        status => by_status(None, status.into()),
    }
}

#[cfg(test)]
mod tests {
    use attache_grpc::{Package, call_result};
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
            let body = serde_json::to_vec(&error.to_http_json()).unwrap();
            let http = RemoteError::from_http_json(kind.http_status(), &body).unwrap();
            assert_eq!((http.code, http.kind), (i64::from(kind.http_status()), Some(*kind)));
            assert_eq!((&http.message, &http.metadata), (&remote.message, &remote.metadata));
            let trailers = Package::V1_0.status(&error).into_http::<()>().into_parts().0.headers;
            let called = RemoteError::from_grpc(call_result(&trailers).unwrap().unwrap_err());
            assert_eq!((called.code, called.kind), (kind.grpc_code() as i64, Some(*kind)));
            assert_eq!((called.message, called.metadata), (remote.message, remote.metadata));
        }
    }

    #[test]
    fn over_http_in_0_3_a_message_and_the_status_are_enough() {
        for (status, kind) in [(404, ErrorKind::TaskNotFound), (409, ErrorKind::TaskNotCancelable)] {
            let read = RemoteError::from_http_json_0_3(status, br#"{"message": "no"}"#).unwrap();
            assert_eq!((read.kind, read.code, read.message.as_str()), (Some(kind), status.into(), "no"));
        }
        for body in ["", "{}", "[]", r#"{"detail": "Not Found"}"#, r#"{"message": ""}"#, "<html>"] {
            assert_eq!(RemoteError::from_http_json_0_3(404, body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn over_http_the_status_decides_where_it_can_mean_one_thing_only() {
        for (body, kind) in [
            (r#"{"error":{"code":404,"status":"NOT_FOUND","message":"m"}}"#, Some(ErrorKind::TaskNotFound)),
            (r#"{"error":{"message":"m"}}"#, Some(ErrorKind::Unavailable)),
            (r#"{"error":{"status":"FAILED_PRECONDITION","message":"m","details":[7]}}"#, None),
            (
                r#"{"error":{"code":409,"status":"FAILED_PRECONDITION","message":"m"}}"#,
                Some(ErrorKind::TaskNotCancelable),
            ),
            (r#"{"error":{"code":409,"status":"ABORTED","message":"m"}}"#, None),
        ] {
            assert_eq!(RemoteError::from_http_json(503, body.as_bytes()).unwrap().kind, kind, "{body}");
        }
        for body in
            ["", "[]", "{}", r#"{"error":"no"}"#, r#"{"detail":"Not Found"}"#, r#"{"task":{"id":"t"}}"#]
        {
            assert_eq!(RemoteError::from_http_json(404, body.as_bytes()), None, "{body}");
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
