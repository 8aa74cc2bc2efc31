//! An error as a gRPC status.

use std::collections::HashMap;

use attache_protocol::{ERROR_DOMAIN, Error};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// The status of an error in 1.0.
pub(crate) fn status(error: &Error) -> Status {
    detailed(error, Code::from_i32(error.kind().grpc_code() as i32), error.message())
}

/// A status with the details of an error: the reason, the invalid fields if any, and the retry delay if any.
pub(crate) fn detailed(error: &Error, code: Code, message: impl Into<String>) -> Status {
    let metadata: HashMap<_, _> =
        error.metadata().iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let mut details = ErrorDetails::with_error_info(error.kind().reason(), ERROR_DOMAIN, metadata);
    let violations = error.field_violations();
    if !violations.is_empty() {
        let violations: Vec<_> = violations
            .iter()
            .map(|v| FieldViolation::new(v.field.as_str(), v.description.as_str()))
            .collect();
        details.set_bad_request(violations);
    }
    if let Some(wait) = error.retry_after() {
        details.set_retry_info(Some(wait));
    }
    Status::with_error_details(code, message, details)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use attache_protocol::ErrorKind;

    use super::*;

    #[test]
    fn every_kind_keeps_its_code_and_its_reason() {
        for kind in ErrorKind::ALL {
            let status = status(&Error::new(*kind, "no"));
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!(status.code() as i32, kind.grpc_code() as i32);
            assert_eq!(status.message(), "no");
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (kind.reason(), "a2a-protocol.org"));
            assert!(info.metadata.is_empty());
            assert!(details.bad_request().is_none());
        }
    }

    #[test]
    fn metadata_is_part_of_the_details() {
        let status = status(&Error::task_not_found("T9"));
        let details = status.check_error_details().unwrap();
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(details.error_info().unwrap().metadata, HashMap::from([("taskId".into(), "T9".into())]));
    }

    #[test]
    fn the_retry_delay_is_a_detail() {
        let wait = Duration::from_millis(1_050);
        let error = Error::new(ErrorKind::ResourceExhausted, "too fast").retry_in(wait);
        let details = status(&error).check_error_details().unwrap();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(wait));
    }

    #[test]
    fn every_invalid_field_is_named() {
        let invalid = [("pageSize", "0 is not between 1 and 100"), ("historyLength", "-1 is negative")];
        let violations = invalid.map(|(field, description)| attache_protocol::FieldViolation {
            field: field.into(),
            description: description.into(),
        });
        let details = status(&Error::violations(violations.into())).check_error_details().unwrap();
        let named = &details.bad_request().unwrap().field_violations;
        assert!(named.iter().map(|v| (v.field.as_str(), v.description.as_str())).eq(invalid));
        assert_eq!(details.error_info().unwrap().reason, "INVALID_PARAMS");
    }
}
