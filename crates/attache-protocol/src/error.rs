//! All errors in one table: the JSON-RPC code, HTTP status, gRPC status and reason of each.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::ser::SerializeSeq;

use crate::limits;

/// The `domain` of every error detail.
pub const ERROR_DOMAIN: &str = "a2a-protocol.org";

macro_rules! grpc_codes {
    ($( $name:ident = $number:literal $text:literal ),+ $(,)?) => {
        /// A gRPC status code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the gRPC specification")]
        pub enum GrpcCode { $( $name = $number ),+ }

        impl GrpcCode {
            /// The name, as HTTP+JSON error bodies carry it.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$name => $text ),+ }
            }
        }
    };
}

grpc_codes! {
    InvalidArgument = 3 "INVALID_ARGUMENT",
    NotFound = 5 "NOT_FOUND",
    PermissionDenied = 7 "PERMISSION_DENIED",
    ResourceExhausted = 8 "RESOURCE_EXHAUSTED",
    FailedPrecondition = 9 "FAILED_PRECONDITION",
    Aborted = 10 "ABORTED",
    Unimplemented = 12 "UNIMPLEMENTED",
    Internal = 13 "INTERNAL",
    Unavailable = 14 "UNAVAILABLE",
    Unauthenticated = 16 "UNAUTHENTICATED",
}

macro_rules! error_kinds {
    ($( $(#[$meta:meta])* $name:ident: $rpc:literal, $http:literal, $grpc:ident, $reason:literal; )+) => {
        /// The kind of an error. Each kind is one row of the error table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $( $(#[$meta])* $name ),+ }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$( Self::$name ),+];

            /// The JSON-RPC error code.
            pub const fn jsonrpc_code(self) -> i32 {
                match self { $( Self::$name => $rpc ),+ }
            }

            /// The HTTP status.
            pub const fn http_status(self) -> u16 {
                match self { $( Self::$name => $http ),+ }
            }

            /// The gRPC status.
            pub const fn grpc_code(self) -> GrpcCode {
                match self { $( Self::$name => GrpcCode::$grpc ),+ }
            }

            /// The machine-readable reason.
            pub const fn reason(self) -> &'static str {
                match self { $( Self::$name => $reason ),+ }
            }
        }
    };
}

error_kinds! {
    /// This caller has no such task.
    TaskNotFound: -32001, 404, NotFound, "TASK_NOT_FOUND";
    /// The task has ended.
    TaskNotCancelable: -32002, 400, FailedPrecondition, "TASK_NOT_CANCELABLE";
    /// The agent sends no push notifications.
    PushNotificationNotSupported: -32003, 400, FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED";
    /// The agent, or the state of the task, does not allow this.
    UnsupportedOperation: -32004, 400, FailedPrecondition, "UNSUPPORTED_OPERATION";
    /// The agent does not accept this media type.
    ContentTypeNotSupported: -32005, 400, InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED";
    /// The response of the agent is invalid.
    InvalidAgentResponse: -32006, 500, Internal, "INVALID_AGENT_RESPONSE";
    /// The card says that there is an extended card, but none is configured.
    ExtendedAgentCardNotConfigured: -32007, 400, FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED";
    /// The agent requires an extension that the request does not ask for.
    ExtensionSupportRequired: -32008, 400, FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED";
    /// The server does not support this protocol version.
    VersionNotSupported: -32009, 400, FailedPrecondition, "VERSION_NOT_SUPPORTED";
    /// The task has changed since the caller read it. Part of protocol 1.1.
    TaskGenerationMismatch: -32010, 409, Aborted, "TASK_GENERATION_MISMATCH";
    /// The body is not JSON.
    Parse: -32700, 400, InvalidArgument, "PARSE_ERROR";
    /// The body is JSON, but not a request.
    InvalidRequest: -32600, 400, InvalidArgument, "INVALID_REQUEST";
    /// There is no such operation.
    MethodNotFound: -32601, 404, Unimplemented, "METHOD_NOT_FOUND";
    /// The arguments of the operation are invalid.
    InvalidParams: -32602, 400, InvalidArgument, "INVALID_PARAMS";
    /// The server failed.
    Internal: -32603, 500, Internal, "INTERNAL_ERROR";
    /// The caller is not authenticated.
    Unauthenticated: -32050, 401, Unauthenticated, "UNAUTHENTICATED";
    /// The caller has no permission for this.
    PermissionDenied: -32051, 403, PermissionDenied, "PERMISSION_DENIED";
    /// The caller, or one request, exceeds a limit.
    ResourceExhausted: -32052, 429, ResourceExhausted, "RESOURCE_EXHAUSTED";
    /// The body of the request is larger than the server accepts.
    PayloadTooLarge: -32053, 413, ResourceExhausted, "PAYLOAD_TOO_LARGE";
    /// The server is overloaded or is stopping.
    Unavailable: -32054, 503, Unavailable, "UNAVAILABLE";
}

/// A field of a request that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldViolation {
    /// The path of the field, such as `message.parts[0].raw`.
    pub field: String,
    /// The problem, and what the server expects.
    pub description: String,
}

/// An error of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    metadata: Vec<(&'static str, String)>,
    violations: Vec<FieldViolation>,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error of a kind, with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        let (metadata, violations) = (Vec::new(), Vec::new());
        Self(Box::new(Inner { kind, message, metadata, violations, retry_after: None }))
    }

    /// There is no method with this name. `known` lists the methods that exist.
    pub fn method_not_found<'a>(method: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let method: String = method.chars().take(64).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        Self::new(
            ErrorKind::MethodNotFound,
            format!("there is no method `{method}`, expected one of: {known}"),
        )
    }

    /// There is no such task. The message is the same for a task that belongs to another caller.
    pub fn task_not_found(id: impl fmt::Display) -> Self {
        Self::new(ErrorKind::TaskNotFound, "the task does not exist, or is not yours").with("taskId", id)
    }

    /// The agent has no streams.
    pub fn streaming_not_supported() -> Self {
        Self::new(ErrorKind::UnsupportedOperation, "this agent does not stream")
    }

    /// One field of the arguments is invalid.
    pub fn invalid_params(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::violations(vec![FieldViolation { field: field.into(), description: description.into() }])
    }

    /// These fields of the arguments are invalid.
    pub fn violations(violations: Vec<FieldViolation>) -> Self {
        let message = match violations.as_slice() {
            [one] if one.field.is_empty() => format!("invalid parameters: {}", one.description),
            [one] => format!("invalid parameters: `{}`: {}", one.field, one.description),
            many => {
                let fields: Vec<_> = many.iter().map(|violation| format!("`{}`", violation.field)).collect();
                format!("invalid parameters: {}", fields.join(", "))
            }
        };
        let mut error = Self::new(ErrorKind::InvalidParams, message);
        error.0.violations = violations;
        error
    }

    /// Adds metadata, which programs can read. A long value is cut: the caller may have sent it, and over gRPC it is part of a
    /// header.
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        let mut value = value.to_string();
        if value.len() > limits::ERROR_VALUE {
            value.truncate(value.floor_char_boundary(limits::ERROR_VALUE));
            value.push('…');
        }
        self.0.metadata.push((key, value));
        self
    }

    /// The same error with another message.
    pub(crate) fn reworded(mut self, message: Cow<'static, str>) -> Self {
        self.0.message = message;
        self
    }

    /// Sets the time after which the caller may retry.
    pub fn retry_in(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The metadata, for programs.
    pub fn metadata(&self) -> &[(&'static str, String)] {
        &self.0.metadata
    }

    /// The invalid fields.
    pub fn field_violations(&self) -> &[FieldViolation] {
        &self.0.violations
    }

    /// The time after which the caller may retry, if it was [set](Self::retry_in).
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The error as the `error` member of a JSON-RPC response.
    pub fn to_jsonrpc(&self) -> impl Serialize {
        self.to_jsonrpc_as(self.kind().jsonrpc_code())
    }

    /// The same with another code.
    pub(crate) fn to_jsonrpc_as(&self, code: i32) -> impl Serialize {
        #[derive(Serialize)]
        struct JsonRpcError<'a> {
            code: i32,
            message: &'a str,
            data: Details<'a>,
        }
        JsonRpcError { code, message: self.message(), data: self.details() }
    }

    /// The details of the error, as ProtoJSON.
    pub(crate) const fn details(&self) -> Details<'_> {
        Details(self)
    }

    /// The error as the body of an HTTP+JSON response.
    pub fn to_http_json(&self) -> impl Serialize {
        self.to_http_json_as(self.kind().http_status())
    }

    /// The same for a response whose status is not the one of the error.
    pub fn to_http_json_as(&self, status: u16) -> impl Serialize {
        #[derive(Serialize)]
        struct HttpBody<'a> {
            error: Status<'a>,
        }
        HttpBody { error: self.to_status(status) }
    }

    /// The member `error` of such a body, with `code` as its code.
    pub(crate) fn to_status(&self, code: u16) -> Status<'_> {
        let status = self.kind().grpc_code().as_str();
        Status { code, status, message: self.message(), details: self.details() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

/// The `google.rpc.Status` of an error, with the status of the response as its code.
#[derive(Serialize)]
pub(crate) struct Status<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: Details<'a>,
}

/// The `google.rpc` details of an error, as ProtoJSON.
pub(crate) struct Details<'a>(&'a Error);

impl Serialize for Details<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ErrorInfo<'a> {
            #[serde(rename = "@type")]
            kind: &'static str,
            reason: &'static str,
            domain: &'static str,
            #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "as_map")]
            metadata: &'a [(&'static str, String)],
        }

        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct BadRequest<'a> {
            #[serde(rename = "@type")]
            kind: &'static str,
            field_violations: &'a [FieldViolation],
        }

        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct RetryInfo {
            #[serde(rename = "@type")]
            kind: &'static str,
            retry_delay: String,
        }

        fn as_map<S: serde::Serializer>(pairs: &[(&'static str, String)], s: S) -> Result<S::Ok, S::Error> {
            s.collect_map(pairs.iter().map(|(key, value)| (key, value)))
        }

        let info = ErrorInfo {
            kind: "type.googleapis.com/google.rpc.ErrorInfo",
            reason: self.0.kind().reason(),
            domain: ERROR_DOMAIN,
            metadata: self.0.metadata(),
        };
        let fields = BadRequest {
            kind: "type.googleapis.com/google.rpc.BadRequest",
            field_violations: self.0.field_violations(),
        };
        let retry = self.0.retry_after().map(|wait| RetryInfo {
            kind: "type.googleapis.com/google.rpc.RetryInfo",
            retry_delay: format!("{}.{:03}s", wait.as_secs(), wait.subsec_millis()),
        });
        let mut details = serializer.serialize_seq(None)?;
        details.serialize_element(&info)?;
        if !fields.field_violations.is_empty() {
            details.serialize_element(&fields)?;
        }
        if let Some(retry) = &retry {
            details.serialize_element(retry)?;
        }
        details.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_code_and_reason() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.jsonrpc_code()).collect();
        let mut reasons: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.reason()).collect();
        codes.sort_unstable();
        codes.dedup();
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!((codes.len(), reasons.len()), (ErrorKind::ALL.len(), ErrorKind::ALL.len()));
    }

    #[test]
    fn both_json_bindings_write_the_same_error() {
        let error = Error::task_not_found("T9");
        insta::assert_json_snapshot!("task_not_found_jsonrpc", error.to_jsonrpc());
        insta::assert_json_snapshot!("task_not_found_http", error.to_http_json());
        let error = Error::violations(vec![
            FieldViolation { field: "pageSize".into(), description: "0 is not between 1 and 100".into() },
            FieldViolation { field: "historyLength".into(), description: "-1 is negative".into() },
        ]);
        insta::assert_json_snapshot!("violations_http", error.to_http_json());
    }

    #[test]
    fn the_retry_delay_is_in_the_details() {
        let error =
            Error::new(ErrorKind::ResourceExhausted, "too fast").retry_in(Duration::from_millis(1_050));
        insta::assert_json_snapshot!("retry_jsonrpc", error.to_jsonrpc());
    }

    #[test]
    fn a_value_in_the_details_is_repeated_up_to_its_limit() {
        let shown = |id: &str| Error::task_not_found(id).metadata()[0].1.clone();
        let whole = "t".repeat(limits::ERROR_VALUE);
        assert_eq!((limits::ERROR_VALUE, shown(&whole)), (256, whole.clone()));
        assert_eq!(shown(&format!("{whole}t")), format!("{whole}…"));
        assert_eq!(shown(&format!("x{}", "ä".repeat(128))), format!("x{}…", "ä".repeat(127)));
    }
}
