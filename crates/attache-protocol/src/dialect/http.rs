//! Protocol 0.3 over HTTP+JSON: which requests are in it, and how they are read and answered.
//!
//! A request that says which version it speaks has decided. Where it says nothing, what only one of the generations has tells:
//! a path, a media type, a member of the body. What is left looks the same in both, such as reading a task, and is answered as
//! 0.3 had it, since that is what a version that is not stated means. Refusals are then written so that both can read them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::v0_3::{self, Manner, proto_json};
use super::{Answer, Dialect, Numbers, cards, error, has_kinds, put};
use crate::json::lenient::Object;
use crate::{Error, Operation, Request, StreamResponse};

/// How a request over HTTP+JSON is written that is not in 1.0, and how it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HttpDialect {
    /// The ProtoJSON of 0.3's proto. The SDKs wrote so.
    Proto,
    /// The same from the Python SDK, which encodes the bytes of files twice. Only its `User-Agent` tells.
    PythonProto,
    /// The JSON of 0.3's schema, where everything says what `kind` it is. Its specification reads so.
    Kinds,
    /// The request does not tell which generation it is of. Answers are those of [`Proto`](Self::Proto), refusals are for both.
    Either,
}

/// What leads to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPath {
    /// The operation's own path.
    Own,
    /// The same after the name of a tenant.
    Tenant,
    /// `/card`, where the extended card was.
    Card,
}

/// A request over HTTP+JSON, as far as it can be understood without knowing which generation it is of.
#[derive(Debug, Clone, Copy)]
pub struct HttpRequest<'a> {
    /// What is asked for.
    pub operation: Operation,
    /// What leads there.
    pub path: HttpPath,
    /// The task in the path.
    pub task: Option<&'a str>,
    /// The webhook in the path.
    pub config: Option<&'a str>,
    /// The query, decoded.
    pub query: &'a [(String, String)],
    /// Whether it is written, or wants its answer, in [`MEDIA_TYPE`](crate::MEDIA_TYPE).
    pub own_media_type: bool,
    /// What the client says that it is.
    pub user_agent: Option<&'a str>,
    /// The body; empty if there is none.
    pub body: &'a [u8],
}

impl HttpRequest<'_> {
    /// An argument in the query, under one of its two names. One that is empty is not given.
    pub(super) fn argument(&self, name: &str, snake: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, value)| (key == name || key == snake) && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

/// What a body looks like.
enum Look {
    Older(HttpDialect),
    Current,
    Neither,
}

impl HttpDialect {
    /// The dialect of a request that does not say which version it speaks; none if it is in 1.0.
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
        if request.own_media_type || !existed(request) {
            return None;
        }
        let current = ["tenant", "currentGeneration", "current_generation"];
        if request.query.iter().any(|(key, _)| current.contains(&key.as_str())) {
            return None;
        }
        match look(request) {
            Look::Older(dialect) => Some(dialect.of_client(request)),
            Look::Current => None,
            Look::Neither => Some(Self::Either.of_client(request)),
        }
    }

    fn of_client(self, request: &HttpRequest<'_>) -> Self {
        let python = request.user_agent.is_some_and(|agent| agent.starts_with("python-httpx/"));
        match self {
            Self::Proto | Self::Either if python => Self::PythonProto,
            Self::Proto | Self::PythonProto | Self::Kinds | Self::Either => self,
        }
    }

    /// The dialect of a request that says that it speaks a version before 1.0; none if that had nothing of the kind.
    pub fn stated(request: &HttpRequest<'_>) -> Option<Self> {
        existed(request).then(|| match look(request) {
            Look::Older(dialect) => dialect.of_client(request),
            Look::Current | Look::Neither => Self::Proto.of_client(request),
        })
    }

    /// Reads a request. What is wrong is told in the words it was written in.
    pub fn read(self, request: &HttpRequest<'_>) -> Result<Request, Error> {
        match (self, request.operation) {
            (Self::Kinds, Operation::SendMessage) => v0_3::read("message/send", request.body),
            (Self::Kinds, Operation::SendStreamingMessage) => v0_3::read("message/stream", request.body),
            (Self::PythonProto, _) => {
                let mut request = proto_json::read(request)?;
                proto_json::twice::decode(&mut request);
                Ok(request)
            }
            (Self::Proto | Self::Kinds | Self::Either, _) => proto_json::read(request),
        }
    }

    /// The dialect whose rules hold for the request, whatever it is written in.
    pub fn dialect(self) -> Dialect {
        Dialect::V0_3
    }

    /// Writes an answer as the body of a response.
    pub fn write(self, answer: &Answer<'_>, out: &mut Vec<u8>) {
        match (self, answer) {
            // SDKs of the time disagree on how the card's security is written. This card has both.
            (Self::Either, Answer::Card(card)) => put(out, &cards::dual_card(card)),
            (Self::PythonProto, Answer::Sent(task)) => {
                proto_json::write(&Answer::Sent(proto_json::twice::encode_task(task)), out);
            }
            (Self::PythonProto, Answer::Task(task)) => {
                proto_json::write(&Answer::Task(proto_json::twice::encode_task(task)), out);
            }
            (Self::PythonProto, Answer::Message(message)) => {
                let mut message = (*message).clone();
                proto_json::twice::encode_parts(message.parts.iter_mut());
                proto_json::write(&Answer::Message(&message), out);
            }
            (Self::Proto | Self::PythonProto | Self::Either, _) => proto_json::write(answer, out),
            (Self::Kinds, _) => v0_3::write(answer, Manner::Exact, out),
        }
    }

    /// Writes an event of a stream.
    pub fn write_event(self, event: &StreamResponse, out: &mut Vec<u8>) {
        match self {
            Self::PythonProto => proto_json::write_event(&proto_json::twice::encode_event(event), out),
            Self::Proto | Self::Either => proto_json::write_event(event, out),
            Self::Kinds => v0_3::write_event(event, Manner::Exact, &mut Numbers::default(), out),
        }
    }

    /// The HTTP status and the body of a response that refuses a request.
    ///
    /// Only `message` was promised. The code is there for the JavaScript SDK and the type for the Python one, which make
    /// errors of their own from them.
    pub fn refusal(self, error: &Error) -> (u16, Vec<u8>) {
        #[derive(Serialize)]
        struct Form<'a, E> {
            code: i32,
            #[serde(rename = "type")]
            name: &'static str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            data: Option<Box<RawValue>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<E>,
        }
        let kind = error.kind();
        let status = error::v0_3_http_status(kind);
        let mut out = Vec::new();
        let form = Form {
            code: error::v0_3_code(kind),
            name: error::v0_3_type(kind),
            message: error.message(),
            data: error::details(error),
            error: (self == Self::Either).then(|| error.to_status(status)),
        };
        put(&mut out, &form);
        (status, out)
    }
}

/// Whether 0.3 had such an operation at such a path.
fn existed(request: &HttpRequest<'_>) -> bool {
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

fn look(request: &HttpRequest<'_>) -> Look {
    match request.operation {
        Operation::SendMessage | Operation::SendStreamingMessage => look_of_message(request.body),
        Operation::CancelTask => look_of_cancel(request.body),
        Operation::CreateTaskPushNotificationConfig => look_of_webhook(request.body),
        Operation::GetTask
        | Operation::ListTasks
        | Operation::SubscribeToTask
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => Look::Neither,
    }
}

/// The members of an object. What is none has none, and is refused when it is read.
fn members<'a, T: Default + Deserialize<'a>>(json: &'a [u8]) -> T {
    serde_json::from_slice(json).map(|Object(members)| members).unwrap_or_default()
}

fn look_of_message(body: &[u8]) -> Look {
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
    struct Said<'a> {
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    match members(body) {
        Send { request: Some(_), .. } => Look::Older(HttpDialect::Proto),
        Send { message: Some(message), .. }
            if members::<Said<'_>>(message.get().as_bytes()).content.is_some() =>
        {
            Look::Older(HttpDialect::Proto)
        }
        Send { .. } if has_kinds(body) => Look::Older(HttpDialect::Kinds),
        Send { .. } => Look::Current,
    }
}

fn look_of_cancel(body: &[u8]) -> Look {
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
        Cancel { name: Some(_), .. } => Look::Older(HttpDialect::Proto),
        Cancel { name: None, id: None, metadata: None, tenant: None } => Look::Neither,
        Cancel { .. } => Look::Current,
    }
}

fn look_of_webhook(body: &[u8]) -> Look {
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
        } => Look::Older(HttpDialect::Kinds),
        Create { parent: None, config: None, name: None, push_notification_config: None, .. }
            if authentication.is_none_or(|authentication| authentication.schemes.is_none()) =>
        {
            Look::Current
        }
        Create { .. } => Look::Older(HttpDialect::Proto),
    }
}
