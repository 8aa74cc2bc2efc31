//! How a call ended, as a client reads it.

use attache_protocol::{ErrorKind, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use prost::Message;
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::pb;

use crate::v0_3;

/// A call that was refused, or failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The number of the status.
    pub code: i32,
    /// What went wrong, for people.
    pub message: String,
    /// The details as they are in JSON, with their `@type`. Of those that are not known here the bytes are the `value`.
    pub details: Vec<Json>,
}

/// How a call ended, by its trailers or by the headers of an answer that has nothing else; nothing if they do not say.
pub fn ending(trailers: &HeaderMap) -> Option<Result<(), Refusal>> {
    let status = Status::from_header_map(trailers)?;
    if status.code() == Code::Ok {
        return Some(Ok(()));
    }
    let details = pb::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    Some(Err(Refusal {
        code: status.code() as i32,
        message: status.message().to_owned(),
        details: details.into_iter().filter_map(|it| detail(&it.type_url, &it.value)).collect(),
    }))
}

/// A detail as it is in JSON.
fn detail(of: &str, value: &[u8]) -> Option<Json> {
    let name = of.rsplit('/').next();
    let known = match name {
        Some("google.rpc.ErrorInfo") => pb::ErrorInfo::decode(value).ok().map(|info| {
            json!({"@type": of, "reason": info.reason, "domain": info.domain, "metadata": info.metadata})
        }),
        Some("google.rpc.BadRequest") => pb::BadRequest::decode(value).ok().map(|wrong| {
            let violations = wrong.field_violations.into_iter();
            let violations = violations.map(|it| json!({"field": it.field, "description": it.description}));
            json!({"@type": of, "fieldViolations": violations.collect::<Vec<_>>()})
        }),
        Some("google.rpc.RetryInfo") => pb::RetryInfo::decode(value).ok().map(|retry| {
            let wait = retry.retry_delay.unwrap_or_default();
            json!({"@type": of, "retryDelay": format!("{}.{:03}s", wait.seconds, wait.nanos / 1_000_000)})
        }),
        Some(_) | None => None,
    };
    Json::new(&known.unwrap_or_else(|| json!({"@type": of, "value": STANDARD.encode(value)}))).ok()
}

impl Refusal {
    /// What it is where its details do not say: by the name before the message, which servers of 0.3 write there, and otherwise
    /// by the number, where that can mean one thing only.
    pub fn kind(&self) -> Option<ErrorKind> {
        v0_3::named(&self.message).or_else(|| match Code::from_i32(self.code) {
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

    fn refused(package: Package, error: &Error) -> Refusal {
        let headers = package.status(error).into_http::<()>().into_parts().0.headers;
        ending(&headers).unwrap().unwrap_err()
    }

    #[test]
    fn a_refusal_is_what_the_server_said() {
        let refusal = refused(Package::V1_0, &Error::task_not_found("T9"));
        assert_eq!((refusal.code, refusal.kind()), (5, Some(ErrorKind::TaskNotFound)));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"a2a-protocol.org","metadata":{"taskId":"T9"},"reason":"TASK_NOT_FOUND"}"#;
        assert_eq!(refusal.details.iter().map(Json::as_str).collect::<Vec<_>>(), [detail]);
        let wrong = refused(Package::V1_0, &Error::invalid_params("pageSize", "0 is not between 1 and 100"));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"0 is not between 1 and 100","field":"pageSize"}]}"#;
        assert!(wrong.details.iter().any(|it| it.as_str() == detail), "{:?}", wrong.details);
    }

    #[test]
    fn when_to_come_back_reads_as_it_does_in_json() {
        let wait = std::time::Duration::from_millis(1_050);
        let refusal = refused(Package::V1_0, &Error::new(ErrorKind::ResourceExhausted, "no").retry_in(wait));
        let detail = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.050s"}"#;
        assert!(refusal.details.iter().any(|it| it.as_str() == detail), "{:?}", refusal.details);
    }

    #[test]
    fn every_kind_that_0_3_has_a_name_for_is_known_by_it() {
        for kind in ErrorKind::ALL {
            let mut refusal = refused(Package::V0_3, &Error::new(*kind, "no"));
            refusal.details.clear();
            if refusal.message != "no" {
                assert_eq!(refusal.kind(), Some(*kind), "{}", refusal.message);
            }
        }
    }

    #[test]
    fn a_call_that_went_well_is_no_refusal_and_silence_is_neither() {
        let headers = |value: &'static str| {
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), value.parse().unwrap())])
        };
        assert_eq!(ending(&headers("0")), Some(Ok(())));
        assert_eq!(ending(&HeaderMap::new()), None);
        // What is no number at all.
        assert_eq!(ending(&headers("none")).unwrap().unwrap_err().code, Code::Unknown as i32);
    }

    #[test]
    fn details_that_are_not_known_are_kept() {
        let shown = detail("type.googleapis.com/x.Y", b"\x08\x01").unwrap();
        assert_eq!(shown.as_str(), r#"{"@type":"type.googleapis.com/x.Y","value":"CAE="}"#);
        let broken = detail("type.googleapis.com/google.rpc.ErrorInfo", b"\xff").unwrap();
        assert!(broken.as_str().contains("\"value\":\"/w==\""), "{}", broken.as_str());
    }
}
