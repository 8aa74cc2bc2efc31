//! Errors that agents return.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use attache_protocol::{ERROR_DOMAIN, ErrorKind, FieldViolation, Json};
use serde::Deserialize;
use serde_json::value::RawValue;

/// An error that an agent returned.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteError {
    /// Its kind in the protocol, by its reason or else by its code; nothing if it has none.
    pub kind: Option<ErrorKind>,
    /// The error code of the binding.
    pub code: i64,
    /// The machine-readable reason.
    pub reason: Option<String>,
    /// The message, for people.
    pub message: String,
    /// Metadata, for programs.
    pub metadata: BTreeMap<String, String>,
    /// The invalid fields of the request.
    pub field_violations: Vec<FieldViolation>,
    /// All details as received, including unknown ones.
    pub details: Vec<Json>,
    /// How long the agent asks the client to wait.
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
struct JsonRpcError<'a> {
    #[serde(default)]
    code: i64,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

/// The members of all detail types that are read.
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
    /// Parses the error body of an HTTP+JSON response; nothing if it is not one. Without a reason the status decides, if it is
    /// unambiguous.
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
        read.read_details(details);
        read.kind = read.kind.or_else(|| kind_by_status(name.as_deref(), read.code));
        Some(read)
    }

    /// Parses the error body of an HTTP+JSON response of 0.3; nothing if it is not one. 0.3 requires only a `message`, but some
    /// agents send the form of JSON-RPC or of 1.0. Otherwise the status decides.
    pub(crate) fn from_http_json_0_3(status: u16, body: &[u8]) -> Option<Self> {
        let mut read = Self::from_http_json(status, body).or_else(|| {
            let read = std::str::from_utf8(body).ok().and_then(|body| Self::from_jsonrpc(body).ok());
            read.filter(|read| !read.message.is_empty())
        })?;
        if read.code == 0 {
            read.code = status.into();
        }
        read.kind = read.kind.or_else(|| kind_by_status_0_3(status));
        Some(read)
    }

    /// Converts the error status of a gRPC call.
    #[cfg(feature = "grpc")]
    pub(crate) fn from_grpc(refusal: attache_grpc::ErrorStatus) -> Self {
        let kind = refusal.kind();
        let mut read = Self::new(refusal.code.into(), refusal.message);
        read.read_details(refusal.details);
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

    /// Reads the details that are valid. All of them are kept.
    fn read_details(&mut self, details: Vec<Json>) {
        for detail in details.iter().filter_map(|detail| detail.read::<Detail>().ok()) {
            self.read_detail(detail);
        }
        self.details = details;
    }

    /// Parses the `error` member of a JSON-RPC response. Invalid details are kept but not read.
    pub fn from_jsonrpc(error: &str) -> Result<Self, serde_json::Error> {
        let JsonRpcError { code, message, data } = serde_json::from_str(error)?;
        // The protocol requires an array. Older agents send other values.
        let data = data.map_or("[]", RawValue::get);
        let details = match serde_json::from_str::<Vec<Json>>(data) {
            Ok(details) => details,
            Err(_) => vec![Json::parse(data)?],
        };
        let mut read = Self::new(code, message.into_owned());
        read.read_details(details);
        read.kind = read.kind.or_else(|| kind_by_code(code));
        Ok(read)
    }

    fn read_detail(&mut self, detail: Detail) {
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

/// The kind with this code, if the code has the same meaning in all versions.
fn kind_by_code(code: i64) -> Option<ErrorKind> {
    let everywhere = (-32009..=-32001).contains(&code) || (-32700..=-32600).contains(&code);
    ErrorKind::ALL.iter().copied().find(|kind| everywhere && i64::from(kind.jsonrpc_code()) == code)
}

/// The kind for an HTTP+JSON error. A status that several kinds share gives none.
fn kind_by_status(name: Option<&str>, code: i64) -> Option<ErrorKind> {
    match (name, code) {
        (Some("NOT_FOUND"), _) | (None, 404) => Some(ErrorKind::TaskNotFound),
        (Some("UNAUTHENTICATED"), _) | (None, 401) => Some(ErrorKind::Unauthenticated),
        (Some("PERMISSION_DENIED"), _) | (None, 403) => Some(ErrorKind::PermissionDenied),
        (Some("RESOURCE_EXHAUSTED"), _) | (None, 429) => Some(ErrorKind::ResourceExhausted),
        // As in 1.0.0. In later versions other kinds share the status.
        (Some("FAILED_PRECONDITION"), 409) => Some(ErrorKind::TaskNotCancelable),
        (Some("UNAVAILABLE"), _) | (None, 503) => Some(ErrorKind::Unavailable),
        (Some("UNIMPLEMENTED"), _) => Some(ErrorKind::MethodNotFound),
        (Some("INTERNAL"), _) => Some(ErrorKind::Internal),
        (Some(_) | None, _) => None,
    }
}

/// The kind for an HTTP+JSON error of 0.3.
fn kind_by_status_0_3(status: u16) -> Option<ErrorKind> {
    match status {
        409 => Some(ErrorKind::TaskNotCancelable),
        415 => Some(ErrorKind::ContentTypeNotSupported),
        422 => Some(ErrorKind::InvalidParams),
        500 => Some(ErrorKind::Internal),
        501 => Some(ErrorKind::UnsupportedOperation),
        502 => Some(ErrorKind::InvalidAgentResponse),
        status => kind_by_status(None, status.into()),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "grpc")]
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
            #[cfg(feature = "grpc")]
            {
                let trailers = Package::V1_0.status(&error).into_http::<()>().into_parts().0.headers;
                let called = RemoteError::from_grpc(call_result(&trailers).unwrap().unwrap_err());
                assert_eq!((called.code, called.kind), (kind.grpc_code() as i64, Some(*kind)));
                assert_eq!((called.message, called.metadata), (remote.message, remote.metadata));
            }
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
