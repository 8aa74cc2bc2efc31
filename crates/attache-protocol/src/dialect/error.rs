//! The codes, statuses and names of errors before 1.0. Errors that were added in 1.0 are internal errors there.

use crate::ErrorKind;

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

/// The HTTP status in 0.3 over HTTP+JSON. Errors that 0.3 does not have keep the status of 1.0.
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

/// The name of the error in 0.3. The error about the extended card has the name that current readers expect.
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

/// The code in 0.1, which has its own codes for authentication, permissions and limits.
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
