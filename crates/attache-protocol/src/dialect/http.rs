//! Protocol 0.3 over HTTP+JSON: how its requests are recognized and read, and how its responses are written.
//!
//! A request that states its version is of that version. Otherwise, a path, a media type or a member of the body that only one
//! version has decides. A request that looks the same in both versions, such as reading a task, gets a response of 0.3, since 0.3
//! is the default of the specification. Error responses to such a request can be read by clients of both versions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::v0_3;
use super::v0_3::proto_json::{self, FileEncoding};
use super::write::{self, Format};
use super::{ArtifactNumbers, Dialect, Response, cards, has_kinds, put};
use crate::error::Details;
use crate::json::lenient::Object;
use crate::{Error, Operation, Request, StreamResponse};

/// A JSON format of 0.3 over HTTP+JSON, for requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HttpDialect {
    /// The ProtoJSON of 0.3's proto, as the SDKs write it.
    Proto,
    /// The same from the Python SDK, which encodes the bytes of files twice. Only its `User-Agent` identifies it.
    PythonProto,
    /// The JSON of 0.3's schema, in which every object has a `kind`, as in its specification.
    Kinds,
    /// The request could be of 0.3 or of 1.0. Responses are those of [`Proto`](Self::Proto). Error responses are for both
    /// versions.
    Either,
}

/// The kind of path by which a request reached an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPath {
    /// The operation's own path.
    Own,
    /// The operation's path after the name of a tenant.
    Tenant,
    /// `/card`, the path of the extended card in 0.3.
    Card,
}

/// A request over HTTP+JSON before its version is known.
#[derive(Debug, Clone, Copy)]
pub struct HttpRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// The path.
    pub path: HttpPath,
    /// The task in the path.
    pub task: Option<&'a str>,
    /// The webhook in the path.
    pub config: Option<&'a str>,
    /// The query, decoded.
    pub query: &'a [(String, String)],
    /// Whether the media type of the request, or the accepted one, is [`MEDIA_TYPE`](crate::MEDIA_TYPE).
    pub own_media_type: bool,
    /// The `User-Agent` header.
    pub user_agent: Option<&'a str>,
    /// The body. It may be empty.
    pub body: &'a [u8],
}

impl HttpRequest<'_> {
    /// An argument of the query, by one of its two names. An empty argument counts as missing.
    pub(super) fn argument(&self, name: &str, snake: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, value)| (key == name || key == snake) && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

/// The version that the members of a body indicate.
enum BodyVersion {
    V0_3(HttpDialect),
    V1_0,
    Unknown,
}

impl HttpDialect {
    /// The dialect of a request that does not state its version. `None` means 1.0.
    ///
    /// ```
    /// use attache_protocol::dialect::{HttpDialect, HttpPath, HttpRequest};
    /// use attache_protocol::Operation;
    ///
    /// let request = |operation, body| HttpRequest {
    ///     operation, path: HttpPath::Own, task: None, config: None, query: &[], own_media_type: false, user_agent: None, body,
    /// };
    /// let content = br#"{"message": {"content": [{"text": "hi"}]}}"#;
    /// let parts = br#"{"message": {"parts": [{"text": "hi"}]}}"#;
    /// assert_eq!(HttpDialect::of(&request(Operation::SendMessage, content)), Some(HttpDialect::Proto));
    /// assert_eq!(HttpDialect::of(&request(Operation::SendMessage, parts)), None);
    /// assert_eq!(HttpDialect::of(&request(Operation::GetTask, b"")), Some(HttpDialect::Either));
    /// ```
    pub fn of(request: &HttpRequest<'_>) -> Option<Self> {
        if request.path == HttpPath::Card {
            return Some(Self::Either);
        }
        if request.own_media_type || !exists_in_v0_3(request) {
            return None;
        }
        let v1_0_arguments = ["tenant", "currentGeneration", "current_generation"];
        if request.query.iter().any(|(key, _)| v1_0_arguments.contains(&key.as_str())) {
            return None;
        }
        match body_version(request) {
            BodyVersion::V0_3(dialect) => Some(dialect.for_client(request)),
            BodyVersion::V1_0 => None,
            BodyVersion::Unknown => Some(Self::Either.for_client(request)),
        }
    }

    fn for_client(self, request: &HttpRequest<'_>) -> Self {
        let python = request.user_agent.is_some_and(|agent| agent.starts_with("python-httpx/"));
        match self {
            Self::Proto | Self::Either if python => Self::PythonProto,
            Self::Proto | Self::PythonProto | Self::Kinds | Self::Either => self,
        }
    }

    /// The dialect of a request that states a version before 1.0. `None` if 0.3 has no such operation.
    pub fn stated(request: &HttpRequest<'_>) -> Option<Self> {
        exists_in_v0_3(request).then(|| match body_version(request) {
            BodyVersion::V0_3(dialect) => dialect.for_client(request),
            BodyVersion::V1_0 | BodyVersion::Unknown => Self::Proto.for_client(request),
        })
    }

    /// Reads a request. Errors have the field names of the request's format.
    pub fn read(self, request: &HttpRequest<'_>) -> Result<Request, Error> {
        match (self, request.operation) {
            (Self::Kinds, Operation::SendMessage) => v0_3::read("message/send", request.body),
            (Self::Kinds, Operation::SendStreamingMessage) => v0_3::read("message/stream", request.body),
            (Self::PythonProto, _) => {
                let mut request = proto_json::read(request)?;
                if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = &mut request {
                    FileEncoding::Twice.decode(send.message.parts.iter_mut());
                }
                Ok(request)
            }
            (Self::Proto | Self::Kinds | Self::Either, _) => proto_json::read(request),
        }
    }

    /// The dialect whose rules apply to the request.
    pub fn dialect(self) -> Dialect {
        Dialect::V0_3
    }

    /// Writes the body of a response.
    pub fn write(self, response: &Response<'_>, out: &mut Vec<u8>) {
        match (self, response) {
            // SDKs of 0.3 disagree on the format of the card's security. This card has both formats.
            (Self::Either, Response::Card(card)) => put(out, &cards::dual_card(card)),
            (Self::Proto | Self::PythonProto | Self::Kinds | Self::Either, _) => {
                write::write_response(response, self.format(), out);
            }
        }
    }

    /// Writes an event of a stream.
    pub fn write_event(self, event: &StreamResponse, out: &mut Vec<u8>) {
        write::write_event(event, self.format(), &mut ArtifactNumbers::default(), out);
    }

    fn format(self) -> Format {
        match self {
            Self::Proto | Self::Either => Format::Proto,
            Self::PythonProto => Format::PythonProto,
            Self::Kinds => Format::V0_3,
        }
    }

    /// The HTTP status and the body of an error response.
    ///
    /// 0.3 only specifies `message`. The JavaScript SDK reads the code and the Python SDK reads the type, to create their own errors.
    pub fn error_response(self, error: &Error) -> (u16, Vec<u8>) {
        #[derive(Serialize)]
        struct ErrorBody<'a, E> {
            code: i32,
            #[serde(rename = "type")]
            name: &'static str,
            message: &'a str,
            data: Details<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<E>,
        }
        let kind = error.kind();
        let status = kind.v0_3_http_status();
        let body = ErrorBody {
            code: kind.v0_3_code(),
            name: kind.v0_3_name(),
            message: error.message(),
            data: error.details(),
            error: (self == Self::Either).then(|| error.to_status(status)),
        };
        let mut out = Vec::new();
        put(&mut out, &body);
        (status, out)
    }
}

/// Whether 0.3 has the operation at this path.
fn exists_in_v0_3(request: &HttpRequest<'_>) -> bool {
    match (request.path, request.operation) {
        (HttpPath::Card, _) => true,
        (HttpPath::Tenant, _) | (HttpPath::Own, Operation::ListTasks | Operation::GetExtendedAgentCard) => {
            false
        }
        (
            HttpPath::Own,
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::GetTask
            | Operation::CancelTask
            | Operation::SubscribeToTask
            | Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig,
        ) => true,
    }
}

fn body_version(request: &HttpRequest<'_>) -> BodyVersion {
    match request.operation {
        Operation::SendMessage | Operation::SendStreamingMessage => message_version(request.body),
        Operation::CancelTask => cancel_version(request.body),
        Operation::CreateTaskPushNotificationConfig => webhook_version(request.body),
        Operation::GetTask
        | Operation::ListTasks
        | Operation::SubscribeToTask
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => BodyVersion::Unknown,
    }
}

/// The members of an object. Invalid JSON has none; it is rejected later, when it is read.
fn members<'a, T: Default + Deserialize<'a>>(json: &'a [u8]) -> T {
    serde_json::from_slice(json).map(|Object(members)| members).unwrap_or_default()
}

fn message_version(body: &[u8]) -> BodyVersion {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Send<'a> {
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        request: Option<&'a RawValue>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct MessageMembers<'a> {
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    match members(body) {
        Send { request: Some(_), .. } => BodyVersion::V0_3(HttpDialect::Proto),
        Send { message: Some(message), .. }
            if members::<MessageMembers<'_>>(message.get().as_bytes()).content.is_some() =>
        {
            BodyVersion::V0_3(HttpDialect::Proto)
        }
        Send { .. } if has_kinds(body) => BodyVersion::V0_3(HttpDialect::Kinds),
        Send { .. } => BodyVersion::V1_0,
    }
}

fn cancel_version(body: &[u8]) -> BodyVersion {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Cancel<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
        #[serde(borrow)]
        tenant: Option<&'a RawValue>,
    }
    match members(body) {
        Cancel { name: Some(_), .. } => BodyVersion::V0_3(HttpDialect::Proto),
        Cancel { name: None, id: None, metadata: None, tenant: None } => BodyVersion::Unknown,
        Cancel { .. } => BodyVersion::V1_0,
    }
}

fn webhook_version(body: &[u8]) -> BodyVersion {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Create<'a> {
        #[serde(borrow)]
        parent: Option<&'a RawValue>,
        #[serde(borrow)]
        config: Option<&'a RawValue>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow, alias = "task_id")]
        task_id: Option<&'a RawValue>,
        #[serde(borrow, alias = "push_notification_config")]
        push_notification_config: Option<&'a RawValue>,
        #[serde(borrow)]
        authentication: Option<&'a RawValue>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Authentication<'a> {
        #[serde(borrow)]
        schemes: Option<&'a RawValue>,
    }
    let create: Create<'_> = members(body);
    let authentication =
        create.authentication.map(|json| members::<Authentication<'_>>(json.get().as_bytes()));
    match create {
        Create {
            parent: None,
            config: None,
            name: None,
            task_id: Some(_),
            push_notification_config: Some(_),
            ..
        } => BodyVersion::V0_3(HttpDialect::Kinds),
        Create { parent: None, config: None, name: None, push_notification_config: None, .. }
            if authentication.is_none_or(|authentication| authentication.schemes.is_none()) =>
        {
            BodyVersion::V1_0
        }
        Create { .. } => BodyVersion::V0_3(HttpDialect::Proto),
    }
}
