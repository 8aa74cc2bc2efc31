//! Reads the status of a call, for a client.

use attache_protocol::{ErrorKind, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use prost::Message;
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::pb;

use crate::v0_3;

/// The status of a failed call.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorStatus {
    /// The code of the status.
    pub code: i32,
    /// The message, for people.
    pub message: String,
    /// The details as JSON, with their `@type`. Details of an unknown type have their bytes as `value`.
    pub details: Vec<Json>,
}

/// Reads the result of a call from its trailers, or from the headers of a response without a body. `None` if there is no status.
pub fn call_result(trailers: &HeaderMap) -> Option<Result<(), ErrorStatus>> {
    let status = Status::from_header_map(trailers)?;
    if status.code() == Code::Ok {
        return Some(Ok(()));
    }
    let details = pb::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    Some(Err(ErrorStatus {
        code: status.code() as i32,
        message: status.message().to_owned(),
        details: details.into_iter().filter_map(|it| detail(&it.type_url, &it.value)).collect(),
    }))
}

/// A detail as JSON.
fn detail(type_url: &str, value: &[u8]) -> Option<Json> {
    let name = type_url.rsplit('/').next();
    let known = match name {
        Some("google.rpc.ErrorInfo") => pb::ErrorInfo::decode(value).ok().map(|info| {
            json!({"@type": type_url, "reason": info.reason, "domain": info.domain, "metadata": info.metadata})
        }),
        Some("google.rpc.BadRequest") => pb::BadRequest::decode(value).ok().map(|request| {
            let violations = request.field_violations.into_iter();
            let violations = violations.map(|it| json!({"field": it.field, "description": it.description}));
            json!({"@type": type_url, "fieldViolations": violations.collect::<Vec<_>>()})
        }),
        Some("google.rpc.RetryInfo") => pb::RetryInfo::decode(value).ok().map(|retry| {
            let wait = retry.retry_delay.unwrap_or_default();
            json!({"@type": type_url, "retryDelay": format!("{}.{:03}s", wait.seconds, wait.nanos / 1_000_000)})
        }),
        Some(_) | None => None,
    };
    Json::new(&known.unwrap_or_else(|| json!({"@type": type_url, "value": STANDARD.encode(value)}))).ok()
}

impl ErrorStatus {
    /// The kind of the error, if the details do not have it. Servers of 0.3 write its name before the message. Otherwise the code
    /// decides, if it has only one meaning.
    pub fn kind(&self) -> Option<ErrorKind> {
        v0_3::kind_in(&self.message).or_else(|| match Code::from_i32(self.code) {
            Code::NotFound => Some(ErrorKind::TaskNotFound),
            Code::PermissionDenied => Some(ErrorKind::PermissionDenied),
            Code::ResourceExhausted => Some(ErrorKind::ResourceExhausted),
            Code::Unimplemented => Some(ErrorKind::MethodNotFound),
            Code::Internal => Some(ErrorKind::Internal),
            Code::Unavailable => Some(ErrorKind::Unavailable),
            Code::Unauthenticated => Some(ErrorKind::Unauthenticated),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::InvalidArgument
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::DataLoss => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Error;

    use super::*;
    use crate::Package;

    fn error_status(package: Package, error: &Error) -> ErrorStatus {
        let headers = package.status(error).into_http::<()>().into_parts().0.headers;
        call_result(&headers).unwrap().unwrap_err()
    }

    #[test]
    fn the_status_of_a_server_is_read() {
        let status = error_status(Package::V1_0, &Error::task_not_found("T9"));
        assert_eq!((status.code, status.kind()), (5, Some(ErrorKind::TaskNotFound)));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"a2a-protocol.org","metadata":{"taskId":"T9"},"reason":"TASK_NOT_FOUND"}"#;
        assert_eq!(status.details.iter().map(Json::as_str).collect::<Vec<_>>(), [detail]);
        let status =
            error_status(Package::V1_0, &Error::invalid_params("pageSize", "0 is not between 1 and 100"));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"0 is not between 1 and 100","field":"pageSize"}]}"#;
        assert!(status.details.iter().any(|it| it.as_str() == detail), "{:?}", status.details);
    }

    #[test]
    fn the_retry_delay_is_read_as_json() {
        let wait = std::time::Duration::from_millis(1_050);
        let status =
            error_status(Package::V1_0, &Error::new(ErrorKind::ResourceExhausted, "no").retry_in(wait));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.050s"}"#;
        assert!(status.details.iter().any(|it| it.as_str() == detail), "{:?}", status.details);
    }

    #[test]
    fn the_name_of_an_error_of_0_3_determines_its_kind() {
        for kind in ErrorKind::ALL {
            let mut status = error_status(Package::V0_3, &Error::new(*kind, "no"));
            status.details.clear();
            if status.message != "no" {
                assert_eq!(status.kind(), Some(*kind), "{}", status.message);
            }
        }
    }

    #[test]
    fn a_successful_call_and_a_missing_status_are_no_errors() {
        let headers = |value: &'static str| {
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), value.parse().unwrap())])
        };
        assert_eq!(call_result(&headers("0")), Some(Ok(())));
        assert_eq!(call_result(&HeaderMap::new()), None);
        // The status is not a number.
        assert_eq!(call_result(&headers("none")).unwrap().unwrap_err().code, Code::Unknown as i32);
    }

    #[test]
    fn unknown_details_are_kept() {
        let unknown = detail("type.googleapis.com/x.Y", b"\x08\x01").unwrap();
        assert_eq!(unknown.as_str(), r#"{"@type":"type.googleapis.com/x.Y","value":"CAE="}"#);
        let broken = detail("type.googleapis.com/google.rpc.ErrorInfo", b"\xff").unwrap();
        assert!(broken.as_str().contains("\"value\":\"/w==\""), "{}", broken.as_str());
    }
}
