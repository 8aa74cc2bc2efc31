//! The gRPC status of an error in 0.3.

use attache_protocol::{Error, ErrorClass, ErrorKind};
use tonic::{Code, Status};

use crate::status::detailed;

/// The status of an error, with the details of 1.0, which clients of 0.3 ignore.
///
/// The Python SDK reads the name before the message. The JavaScript SDK reads the code.
pub(crate) fn status(error: &Error) -> Status {
    let kind = error.kind();
    let code = if matches!(kind, ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation) {
        Code::Unimplemented
    } else {
        Code::from_i32(kind.grpc_code() as i32)
    };
    let message = match name(kind) {
        Some(name) => format!("{name}: {}", error.message()),
        None => error.message().to_owned(),
    };
    detailed(error, code, message)
}

/// The name of an error that is specific to the protocol. Errors with their own gRPC code have none.
fn name(kind: ErrorKind) -> Option<&'static str> {
    let has_own_code = kind.class() != ErrorClass::Protocol;
    let is_unnamed = [ErrorKind::TaskGenerationMismatch, ErrorKind::Parse, ErrorKind::MethodNotFound];
    (!has_own_code && !is_unnamed.contains(&kind)).then(|| kind.v0_3_name())
}

/// The kind of the error whose name is before the message.
pub(crate) fn kind_in(message: &str) -> Option<ErrorKind> {
    let (before, _) = message.split_once(':')?;
    ErrorKind::ALL.iter().copied().find(|kind| name(*kind) == Some(before))
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt;

    use super::*;

    #[test]
    fn the_name_of_an_error_is_before_its_message() {
        let status = status(&Error::task_not_found("T9"));
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().starts_with("TaskNotFoundError: "), "{status:?}");
        let details = status.check_error_details().unwrap();
        assert_eq!(details.error_info().unwrap().reason, "TASK_NOT_FOUND");
    }

    #[test]
    fn unsupported_operations_are_unimplemented() {
        for (kind, code) in [
            (ErrorKind::PushNotificationNotSupported, Code::Unimplemented),
            (ErrorKind::UnsupportedOperation, Code::Unimplemented),
            (ErrorKind::TaskNotCancelable, Code::FailedPrecondition),
            (ErrorKind::ExtendedAgentCardNotConfigured, Code::FailedPrecondition),
            (ErrorKind::InvalidParams, Code::InvalidArgument),
            (ErrorKind::Unauthenticated, Code::Unauthenticated),
        ] {
            assert_eq!(status(&Error::new(kind, "no")).code(), code, "{kind:?}");
        }
    }

    #[test]
    fn errors_with_a_grpc_code_have_no_name() {
        for kind in [ErrorKind::MethodNotFound, ErrorKind::Unavailable, ErrorKind::Unauthenticated] {
            assert_eq!(status(&Error::new(kind, "no")).message(), "no");
        }
    }
}
