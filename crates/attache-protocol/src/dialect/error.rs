//! Errors with the codes and statuses that the versions before 1.0 had. What came later is an internal error there.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::put;
use crate::jsonrpc::Id;
use crate::{Error, ErrorKind, json};

const INTERNAL: i32 = ErrorKind::Internal.jsonrpc_code();

/// The code in 0.3.
pub(super) const fn v0_3_code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch => INTERNAL,
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::PayloadTooLarge
        | ErrorKind::Unavailable => kind.jsonrpc_code(),
    }
}

/// The HTTP status in 0.3 over HTTP+JSON. What it did not know keeps the status of 1.0.
pub(super) const fn v0_3_http_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::InvalidParams => 422,
        ErrorKind::TaskNotCancelable => 409,
        ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation => 501,
        ErrorKind::ContentTypeNotSupported => 415,
        ErrorKind::InvalidAgentResponse => 502,
        ErrorKind::ExtendedAgentCardNotConfigured => 404,
        ErrorKind::TaskNotFound
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::PayloadTooLarge
        | ErrorKind::Unavailable => kind.http_status(),
    }
}

/// The name of the error in 0.3. The extended card has the name that readers of today look for.
pub(super) const fn v0_3_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TaskNotFound => "TaskNotFoundError",
        ErrorKind::TaskNotCancelable => "TaskNotCancelableError",
        ErrorKind::PushNotificationNotSupported => "PushNotificationNotSupportedError",
        ErrorKind::UnsupportedOperation => "UnsupportedOperationError",
        ErrorKind::ContentTypeNotSupported => "ContentTypeNotSupportedError",
        ErrorKind::InvalidAgentResponse => "InvalidAgentResponseError",
        ErrorKind::ExtendedAgentCardNotConfigured => "ExtendedAgentCardNotConfiguredError",
        ErrorKind::ExtensionSupportRequired => "ExtensionSupportRequiredError",
        ErrorKind::VersionNotSupported => "VersionNotSupportedError",
        ErrorKind::Parse => "JSONParseError",
        ErrorKind::InvalidRequest
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::PayloadTooLarge
        | ErrorKind::TaskGenerationMismatch => "InvalidRequestError",
        ErrorKind::MethodNotFound => "MethodNotFoundError",
        ErrorKind::InvalidParams => "InvalidParamsError",
        ErrorKind::Internal | ErrorKind::Unavailable => "InternalError",
    }
}

/// The code in 0.1, which had others for who may call and how often.
pub(super) const fn v0_1_code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Unauthenticated => -32007,
        ErrorKind::PermissionDenied => -32008,
        ErrorKind::ResourceExhausted => -32010,
        ErrorKind::Unavailable => -32011,
        ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch => INTERNAL,
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::Internal
        | ErrorKind::PayloadTooLarge => kind.jsonrpc_code(),
    }
}

/// The details of an error. They stay as they are: what `data` holds was left open.
pub(super) fn details(error: &Error) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Details {
        data: Box<RawValue>,
    }
    let mut form = Vec::new();
    json::write(&mut form, &error.to_jsonrpc()).ok()?;
    serde_json::from_slice(&form).ok().map(|Details { data }| data)
}

/// A response that refuses `id`.
pub(super) fn response(id: &Id, error: &Error, code: impl Fn(ErrorKind) -> i32) -> Vec<u8> {
    #[derive(Serialize)]
    struct Form<'a> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    }
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{},"error":"#, id.as_json()).into_bytes();
    put(&mut out, &Form { code: code(error.kind()), message: error.message(), data: details(error) });
    out.push(b'}');
    out
}
