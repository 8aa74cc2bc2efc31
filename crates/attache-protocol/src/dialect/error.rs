//! Errors with the codes that the versions before 1.0 had. What came later is an internal error there.

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

/// A response that refuses `id`.
pub(super) fn response(id: &Id, error: &Error, code: impl Fn(ErrorKind) -> i32) -> Vec<u8> {
    /// The details stay as they are: what `data` holds was left open.
    #[derive(Serialize, Deserialize)]
    struct Details {
        data: Box<RawValue>,
    }
    #[derive(Serialize)]
    struct Form<'a> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    }
    let mut form = Vec::new();
    let details = json::write(&mut form, &error.to_jsonrpc()).ok();
    let details = details.and_then(|()| serde_json::from_slice::<Details>(&form).ok());
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{},"error":"#, id.as_json()).into_bytes();
    let data = details.map(|Details { data }| data);
    put(&mut out, &Form { code: code(error.kind()), message: error.message(), data });
    out.push(b'}');
    out
}
