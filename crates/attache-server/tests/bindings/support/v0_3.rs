//! gRPC as a peer of protocol 0.3 speaks it: messages of the package `a2a.v1`, as far as tests look at them.

use prost::{Message as ProstMessage, Oneof};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::grpc::request;
use super::{Running, soon};

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Task {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) context_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) status: Option<TaskStatus>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) artifacts: Vec<Artifact>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) history: Vec<Message>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct TaskStatus {
    #[prost(int32, tag = "1")]
    pub(crate) state: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) update: Option<Message>,
    #[prost(message, optional, tag = "3")]
    pub(crate) timestamp: Option<prost_types::Timestamp>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Message {
    #[prost(string, tag = "1")]
    pub(crate) message_id: String,
    #[prost(string, tag = "2")]
    pub(crate) context_id: String,
    #[prost(string, tag = "3")]
    pub(crate) task_id: String,
    #[prost(int32, tag = "4")]
    pub(crate) role: i32,
    #[prost(message, repeated, tag = "5")]
    pub(crate) content: Vec<Part>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3")]
    pub(crate) part: Option<Content>,
    #[prost(message, optional, tag = "4")]
    pub(crate) metadata: Option<prost_types::Struct>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(message, tag = "2")]
    File(FilePart),
    #[prost(message, tag = "3")]
    Data(DataPart),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct FilePart {
    #[prost(string, optional, tag = "1")]
    pub(crate) file_with_uri: Option<String>,
    #[prost(bytes, optional, tag = "2")]
    pub(crate) file_with_bytes: Option<Vec<u8>>,
    #[prost(string, tag = "3")]
    pub(crate) mime_type: String,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct DataPart {
    #[prost(message, optional, tag = "1")]
    pub(crate) data: Option<prost_types::Struct>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Artifact {
    #[prost(string, tag = "1")]
    pub(crate) artifact_id: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Sending {
    #[prost(message, optional, tag = "1")]
    pub(crate) request: Option<Message>,
    #[prost(message, optional, tag = "2")]
    pub(crate) configuration: Option<Configuration>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Configuration {
    #[prost(message, optional, tag = "2")]
    pub(crate) push_notification: Option<Webhook>,
    #[prost(int32, tag = "3")]
    pub(crate) history_length: i32,
    #[prost(bool, tag = "4")]
    pub(crate) blocking: bool,
}

/// An event, or the answer to a message.
#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Event {
    #[prost(oneof = "Payload", tags = "1, 2, 3, 4")]
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Payload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
    #[prost(message, tag = "3")]
    Status(StatusUpdate),
    #[prost(message, tag = "4")]
    Artifact(ArtifactUpdate),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct StatusUpdate {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) status: Option<TaskStatus>,
    #[prost(bool, tag = "4")]
    pub(crate) r#final: bool,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct ArtifactUpdate {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) artifact: Option<Artifact>,
    #[prost(bool, tag = "4")]
    pub(crate) append: bool,
    #[prost(bool, tag = "5")]
    pub(crate) last_chunk: bool,
}

/// A request that says a resource's name and perhaps a number.
#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Named {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(int32, tag = "2")]
    pub(crate) number: i32,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Creating {
    #[prost(string, tag = "1")]
    pub(crate) parent: String,
    #[prost(string, tag = "2")]
    pub(crate) config_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) config: Option<NamedWebhook>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct NamedWebhook {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) push_notification_config: Option<Webhook>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Webhook {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Webhooks {
    #[prost(message, repeated, tag = "1")]
    pub(crate) configs: Vec<NamedWebhook>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub(crate) struct Card {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) url: String,
    #[prost(string, tag = "5")]
    pub(crate) version: String,
    #[prost(bool, tag = "13")]
    pub(crate) supports_authenticated_extended_card: bool,
    #[prost(string, tag = "14")]
    pub(crate) preferred_transport: String,
    #[prost(string, tag = "16")]
    pub(crate) protocol_version: String,
}

/// A peer, with the metadata that it sends along.
pub(crate) struct Peer {
    inner: Grpc<Channel>,
    metadata: Vec<(String, String)>,
}

impl Peer {
    /// A peer that says nothing about itself, as they did then.
    pub(crate) async fn of(server: &Running) -> Self {
        let channel = soon(Endpoint::from_shared(server.base.clone()).unwrap().connect()).await.unwrap();
        Self { inner: Grpc::new(channel), metadata: Vec::new() }
    }

    pub(crate) fn saying(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Makes a call, and gives back the response with its metadata.
    pub(crate) async fn respond<Req, Res>(
        &mut self,
        call: &str,
        message: Req,
    ) -> Result<Response<Res>, Status>
    where
        Req: ProstMessage + 'static,
        Res: ProstMessage + Default + 'static,
    {
        soon(self.inner.ready()).await.unwrap();
        let codec = ProstCodec::<Req, Res>::default();
        soon(self.inner.unary(request(message, &self.metadata), path(call), codec)).await
    }

    /// Makes a call.
    pub(crate) async fn call<Req, Res>(&mut self, call: &str, message: Req) -> Result<Res, Status>
    where
        Req: ProstMessage + 'static,
        Res: ProstMessage + Default + 'static,
    {
        self.respond(call, message).await.map(Response::into_inner)
    }

    /// Opens a stream.
    pub(crate) async fn open<Req>(&mut self, call: &str, message: Req) -> Result<Streaming<Event>, Status>
    where
        Req: ProstMessage + 'static,
    {
        soon(self.inner.ready()).await.unwrap();
        let codec = ProstCodec::<Req, Event>::default();
        let opened = self.inner.server_streaming(request(message, &self.metadata), path(call), codec);
        soon(opened).await.map(Response::into_inner)
    }

    /// All events of a stream.
    pub(crate) async fn events<Req>(&mut self, call: &str, message: Req) -> Result<Vec<Payload>, Status>
    where
        Req: ProstMessage + 'static,
    {
        let mut stream = self.open(call, message).await?;
        let mut events = Vec::new();
        while let Some(event) = soon(stream.message()).await? {
            events.push(event.payload.unwrap());
        }
        Ok(events)
    }

    /// Sends a text, blocking, and gives back the task that it led to.
    pub(crate) async fn task(&mut self, text: &str) -> Task {
        let answer: Event = self.call("SendMessage", sending(text, Some(true))).await.unwrap();
        let Some(Payload::Task(task)) = answer.payload else { panic!("{answer:?}") };
        task
    }
}

fn path(call: &str) -> PathAndQuery {
    format!("/a2a.v1.A2AService/{call}").parse().unwrap()
}

/// A message of the user's with one part.
pub(crate) fn message(part: Content) -> Message {
    let content = vec![Part { part: Some(part), metadata: None }];
    Message { message_id: "m1".into(), role: 1, content, ..Default::default() }
}

/// A text to send; with a configuration that says whether to block, or with none.
pub(crate) fn sending(text: &str, blocking: Option<bool>) -> Sending {
    let configuration = blocking.map(|blocking| Configuration { blocking, ..Default::default() });
    Sending { request: Some(message(Content::Text(text.to_owned()))), configuration }
}

/// The name of a task.
pub(crate) fn named(task: &Task) -> Named {
    Named { name: format!("tasks/{}", task.id), number: 0 }
}

impl Task {
    pub(crate) fn state(&self) -> i32 {
        self.status.as_ref().unwrap().state
    }
}
