//! All errors in one table: the JSON-RPC code, HTTP status, gRPC status and reason of each, and what older versions have instead.

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
    ($(
        $(#[$meta:meta])*
        $name:ident: $rpc:literal, $http:literal, $grpc:ident, $reason:literal;
        v0_3: $rpc_0_3:literal, $http_0_3:literal, $name_0_3:literal; v0_1: $rpc_0_1:literal; $class:ident;
    )+) => {
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

            /// The JSON-RPC error code in 0.3. Errors that were added in 1.0 are internal errors there.
            pub(crate) const fn v0_3_code(self) -> i32 {
                match self { $( Self::$name => $rpc_0_3 ),+ }
            }

            /// The HTTP status in 0.3 over HTTP+JSON. Errors that 0.3 does not have keep the status of 1.0.
            pub(crate) const fn v0_3_http_status(self) -> u16 {
                match self { $( Self::$name => $http_0_3 ),+ }
            }

            /// The name in 0.3. The error about the extended card has the name that current readers expect.
            pub const fn v0_3_name(self) -> &'static str {
                match self { $( Self::$name => $name_0_3 ),+ }
            }

            /// The JSON-RPC error code in 0.1, which has its own codes for authentication, permissions and limits.
            pub(crate) const fn v0_1_code(self) -> i32 {
                match self { $( Self::$name => $rpc_0_1 ),+ }
            }

            /// What the error is about.
            pub const fn class(self) -> ErrorClass {
                match self { $( Self::$name => ErrorClass::$class ),+ }
            }
        }
    };
}

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The request, the task or the agent. Over JSON-RPC the HTTP response is successful.
    Protocol,
    /// The caller: another caller might get what was asked for. HTTP has a status for it.
    Denied,
    /// The exchange as a whole: the request is too large, or the server cannot process any. HTTP has a status for it.
    Transport,
}

error_kinds! {
    /// This caller has no such task.
    TaskNotFound: -32001, 404, NotFound, "TASK_NOT_FOUND";
        v0_3: -32001, 404, "TaskNotFoundError"; v0_1: -32001; Protocol;
    /// The task has ended.
    TaskNotCancelable: -32002, 400, FailedPrecondition, "TASK_NOT_CANCELABLE";
        v0_3: -32002, 409, "TaskNotCancelableError"; v0_1: -32002; Protocol;
    /// The agent sends no push notifications.
    PushNotificationNotSupported: -32003, 400, FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED";
        v0_3: -32003, 501, "PushNotificationNotSupportedError"; v0_1: -32003; Protocol;
    /// The agent, or the state of the task, does not allow this.
    UnsupportedOperation: -32004, 400, FailedPrecondition, "UNSUPPORTED_OPERATION";
        v0_3: -32004, 501, "UnsupportedOperationError"; v0_1: -32004; Protocol;
    /// The agent does not accept this media type.
    ContentTypeNotSupported: -32005, 400, InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED";
        v0_3: -32005, 415, "ContentTypeNotSupportedError"; v0_1: -32005; Protocol;
    /// The response of the agent is invalid.
    InvalidAgentResponse: -32006, 500, Internal, "INVALID_AGENT_RESPONSE";
        v0_3: -32006, 502, "InvalidAgentResponseError"; v0_1: -32603; Protocol;
    /// The card says that there is an extended card, but none is configured.
    ExtendedAgentCardNotConfigured: -32007, 400, FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED";
        v0_3: -32007, 404, "ExtendedAgentCardNotConfiguredError"; v0_1: -32603; Protocol;
    /// The agent requires an extension that the request does not ask for.
    ExtensionSupportRequired: -32008, 400, FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED";
        v0_3: -32603, 400, "ExtensionSupportRequiredError"; v0_1: -32603; Protocol;
    /// The server does not support this protocol version.
    VersionNotSupported: -32009, 400, FailedPrecondition, "VERSION_NOT_SUPPORTED";
        v0_3: -32603, 400, "VersionNotSupportedError"; v0_1: -32603; Protocol;
    /// The task has changed since the caller read it. Part of protocol 1.1.
    TaskGenerationMismatch: -32010, 409, Aborted, "TASK_GENERATION_MISMATCH";
        v0_3: -32603, 409, "InvalidRequestError"; v0_1: -32603; Protocol;
    /// The body is not JSON.
    Parse: -32700, 400, InvalidArgument, "PARSE_ERROR";
        v0_3: -32700, 400, "JSONParseError"; v0_1: -32700; Protocol;
    /// The body is JSON, but not a request.
    InvalidRequest: -32600, 400, InvalidArgument, "INVALID_REQUEST";
        v0_3: -32600, 400, "InvalidRequestError"; v0_1: -32600; Protocol;
    /// There is no such operation.
    MethodNotFound: -32601, 404, Unimplemented, "METHOD_NOT_FOUND";
        v0_3: -32601, 404, "MethodNotFoundError"; v0_1: -32601; Protocol;
    /// The arguments of the operation are invalid.
    InvalidParams: -32602, 400, InvalidArgument, "INVALID_PARAMS";
        v0_3: -32602, 422, "InvalidParamsError"; v0_1: -32602; Protocol;
    /// The server failed.
    Internal: -32603, 500, Internal, "INTERNAL_ERROR";
        v0_3: -32603, 500, "InternalError"; v0_1: -32603; Protocol;
    /// The caller is not authenticated.
    Unauthenticated: -32050, 401, Unauthenticated, "UNAUTHENTICATED";
        v0_3: -32050, 401, "InvalidRequestError"; v0_1: -32007; Denied;
    /// The caller has no permission for this.
    PermissionDenied: -32051, 403, PermissionDenied, "PERMISSION_DENIED";
        v0_3: -32051, 403, "InvalidRequestError"; v0_1: -32008; Denied;
    /// The caller, or one request, exceeds a limit.
    ResourceExhausted: -32052, 429, ResourceExhausted, "RESOURCE_EXHAUSTED";
        v0_3: -32052, 429, "InvalidRequestError"; v0_1: -32010; Denied;
    /// The body of the request is larger than the server accepts.
    PayloadTooLarge: -32053, 413, ResourceExhausted, "PAYLOAD_TOO_LARGE";
        v0_3: -32053, 413, "InvalidRequestError"; v0_1: -32053; Transport;
    /// The server is overloaded or is stopping.
    Unavailable: -32054, 503, Unavailable, "UNAVAILABLE";
        v0_3: -32054, 503, "InternalError"; v0_1: -32011; Transport;
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
