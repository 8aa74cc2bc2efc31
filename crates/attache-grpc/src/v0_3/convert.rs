//! Converts the messages of `a2a.v1`.
//!
//! Fields that 0.3 does not have are left out: tenants, generations, references to other tasks, the name and the media type of a
//! text.

use std::collections::BTreeMap;

use attache_protocol::dialect::v0_3_card;
use attache_protocol::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{names, proto};
use crate::convert::{
    ConvertError, Object, ProtoConvert, messages, oneofs, required, to_model, to_proto, unwritable,
};

messages! {
    Task { id, context_id, status, artifacts, history, metadata } - { generation }
    TaskStatus { state, message, timestamp }
    Message { message_id, context_id, task_id, role, parts = "content", metadata, extensions }
        - { reference_task_ids }
    Artifact { artifact_id, name, description, parts, metadata, extensions }
    TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk, metadata } - { generation }
    SendMessageRequest { message, configuration, metadata } - { tenant }
    ListTaskPushNotificationConfigsResponse { configs, next_page_token }
}

oneofs! {
    StreamResponse {
        payload: StreamPayload {
            Task = "task", Message = "message", StatusUpdate = "statusUpdate", ArtifactUpdate = "artifactUpdate"
        }
    }
    SendMessageResponse { payload: SendPayload { Task = "task", Message = "message" } }
}

required!(Message, TaskStatus, Artifact);

impl ProtoConvert<proto::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn into_proto(self) -> Result<proto::TaskStatusUpdateEvent, Error> {
        let Self { task_id, context_id, status, metadata, generation: _ } = self;
        // The same rule as in the other bindings of 0.3: the task has ended or waits for a message.
        let is_final = status.state.is_terminal() || status.state == TaskState::InputRequired;
        Ok(proto::TaskStatusUpdateEvent {
            task_id: task_id.into_proto()?,
            context_id: context_id.into_proto()?,
            status: status.into_proto()?,
            is_final,
            metadata: metadata.into_proto()?,
        })
    }

    fn from_proto(proto: proto::TaskStatusUpdateEvent) -> Result<Self, ConvertError> {
        let proto::TaskStatusUpdateEvent { task_id, context_id, status, is_final: _, metadata } = proto;
        Ok(Self {
            task_id: ProtoConvert::from_proto(task_id)?,
            context_id: ProtoConvert::from_proto(context_id)?,
            status: ProtoConvert::from_proto(status).map_err(|e| e.within("status"))?,
            metadata: ProtoConvert::from_proto(metadata).map_err(|e| e.within("metadata"))?,
            generation: None,
        })
    }
}

impl ProtoConvert<proto::Part> for Part {
    fn into_proto(self) -> Result<proto::Part, Error> {
        let Self { content, filename, media_type, metadata } = self;
        let file = |file| {
            let (mime_type, name) = (media_type.into_proto()?, filename.into_proto()?);
            Ok(proto::Content::File(proto::FilePart { file: Some(file), mime_type, name }))
        };
        let (content, metadata) = match content {
            Content::Text(text) => (proto::Content::Text(text), metadata),
            Content::Raw(bytes) => (file(proto::File::Bytes(STANDARD.encode(bytes).into_bytes()))?, metadata),
            Content::Url(url) => (file(proto::File::Uri(url))?, metadata),
            Content::Data(data) => {
                let (data, metadata) = wrap(data, metadata)?;
                (proto::Content::Data(proto::DataPart { data: Some(data.into_proto()?) }), metadata)
            }
        };
        Ok(proto::Part { content: Some(content), metadata: metadata.into_proto()? })
    }

    fn from_proto(proto: proto::Part) -> Result<Self, ConvertError> {
        let proto::Part { content, metadata } = proto;
        let metadata = ProtoConvert::from_proto(metadata).map_err(|e: ConvertError| e.within("metadata"))?;
        match content {
            Some(proto::Content::Text(text)) => Ok(Self { metadata, ..Self::new(Content::Text(text)) }),
            Some(proto::Content::File(proto::FilePart { file, mime_type, name })) => {
                let content = match file {
                    Some(proto::File::Uri(uri)) => Content::Url(uri),
                    Some(proto::File::Bytes(bytes)) => Content::Raw(file_bytes(bytes)),
                    None => {
                        let text = "a file needs exactly one of `fileWithUri` and `fileWithBytes`";
                        return Err(ConvertError::new(text).within("file"));
                    }
                };
                let (filename, media_type) =
                    (ProtoConvert::from_proto(name)?, ProtoConvert::from_proto(mime_type)?);
                Ok(Self { content, filename, media_type, metadata })
            }
            Some(proto::Content::Data(proto::DataPart { data })) => {
                let data = ProtoConvert::from_proto(data.unwrap_or_default());
                let data = data.map_err(|e: ConvertError| e.within("data").within("data"))?;
                let (data, metadata) = unwrap(&data, metadata)?;
                Ok(Self { metadata, ..Self::new(Content::Data(data)) })
            }
            None => Err(ConvertError::new("a part needs exactly one of `text`, `file` and `data`")),
        }
    }
}

/// The bytes of a file. Bytes that are valid base64 are decoded, and all others stay as they are: see [`FileForm`](super::FileForm).
fn file_bytes(bytes: Vec<u8>) -> Vec<u8> {
    STANDARD.decode(&bytes).unwrap_or(bytes)
}

/// The member of the metadata that marks wrapped data: data that is not an object is wrapped in one.
const WRAPPED: &str = "data_part_compat";
const VALUE: &str = "value";

/// Wraps data that is not an object, and marks it in the metadata of its part.
fn wrap(data: Json, metadata: Option<JsonObject>) -> Result<(JsonObject, Option<JsonObject>), Error> {
    if let Ok(object) = data.read() {
        return Ok((object, metadata));
    }
    let object = JsonObject::new(&BTreeMap::from([(VALUE, data)]));
    let members = metadata.map(|metadata| metadata.read::<Object>()).transpose();
    let mut members = members.map_err(|error| unwritable(&error))?.unwrap_or_default();
    members.insert(WRAPPED.to_owned(), true.into());
    let metadata = JsonObject::new(&members);
    match (object, metadata) {
        (Ok(object), Ok(metadata)) => Ok((object, Some(metadata))),
        (Err(error), _) | (_, Err(error)) => Err(unwritable(&error)),
    }
}

/// Unwraps data that is marked in the metadata, and removes the mark.
fn unwrap(
    data: &JsonObject,
    metadata: Option<JsonObject>,
) -> Result<(Json, Option<JsonObject>), ConvertError> {
    let unreadable = |error: serde_json::Error| ConvertError::new(error.to_string());
    let members: Object = data.read().map_err(unreadable)?;
    let marked = metadata.as_ref().is_some_and(|metadata| metadata.get::<bool>(WRAPPED) == Some(true));
    let (Some(value), 1, true) = (members.get(VALUE), members.len(), marked) else {
        return Ok((Json::new(&members).map_err(unreadable)?, metadata));
    };
    let mut rest: Object = metadata.map_or(Ok(Object::default()), |m| m.read()).map_err(unreadable)?;
    rest.remove(WRAPPED);
    let rest = if rest.is_empty() { None } else { Some(JsonObject::new(&rest).map_err(unreadable)?) };
    Ok((Json::new(value).map_err(unreadable)?, rest))
}

/// In a configuration, an absent `blocking` means false, since protobuf cannot distinguish the two. Without a configuration a
/// message blocks, as in the other bindings.
impl ProtoConvert<proto::SendMessageConfiguration> for SendMessageConfiguration {
    fn into_proto(self) -> Result<proto::SendMessageConfiguration, Error> {
        Ok(proto::SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            push_notification: self.task_push_notification_config.into_proto()?,
            history_length: self.history_length.into_proto()?,
            blocking: !self.return_immediately,
        })
    }

    fn from_proto(proto: proto::SendMessageConfiguration) -> Result<Self, ConvertError> {
        let proto::SendMessageConfiguration {
            accepted_output_modes,
            push_notification,
            history_length,
            blocking,
        } = proto;
        Ok(Self {
            accepted_output_modes,
            task_push_notification_config: ProtoConvert::from_proto(push_notification)?,
            history_length: ProtoConvert::from_proto(history_length)?,
            return_immediately: !blocking,
            if_generation_match: None,
        })
    }
}

/// Requests with the name of a task.
macro_rules! task_requests {
    ($( $name:ident as $message:ident { $( $field:ident ),* } without { $( $absent:ident ),+ } )+) => { $(
        impl ProtoConvert<proto::$message> for $name {
            fn into_proto(self) -> Result<proto::$message, Error> {
                let Self { id, $( $field, )* $( $absent: _ ),+ } = self;
                Ok(proto::$message { name: names::of_task(&id), $( $field: $field.into_proto()? ),* })
            }

            fn from_proto(proto: proto::$message) -> Result<Self, ConvertError> {
                let proto::$message { name, $( $field ),* } = proto;
                let id = names::task(&name).map_err(|e| e.within("name"))?;
                Ok(Self { id, $( $field: ProtoConvert::from_proto($field)?, )* $( $absent: None ),+ })
            }
        }
    )+ };
}

task_requests! {
    GetTaskRequest as GetTaskRequest { history_length } without { tenant, current_generation }
    CancelTaskRequest as CancelTaskRequest {} without { tenant, metadata }
    SubscribeToTaskRequest as TaskSubscriptionRequest {} without { tenant }
}

/// Requests with the name of a webhook.
macro_rules! webhook_requests {
    ($( $name:ident ),+) => { $(
        impl ProtoConvert<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                Ok(proto::$name { name: names::of_webhook(&self.task_id, &self.id) })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, ConvertError> {
                let (task_id, id) = names::webhook(&proto.name).map_err(|e| e.within("name"))?;
                Ok(Self { tenant: None, task_id, id })
            }
        }
    )+ };
}

webhook_requests!(GetTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest);

impl ProtoConvert<proto::ListTaskPushNotificationConfigsRequest> for ListTaskPushNotificationConfigsRequest {
    fn into_proto(self) -> Result<proto::ListTaskPushNotificationConfigsRequest, Error> {
        Ok(proto::ListTaskPushNotificationConfigsRequest {
            parent: names::of_task(&self.task_id),
            page_size: self.page_size.into_proto()?,
            page_token: self.page_token.into_proto()?,
        })
    }

    fn from_proto(proto: proto::ListTaskPushNotificationConfigsRequest) -> Result<Self, ConvertError> {
        let proto::ListTaskPushNotificationConfigsRequest { parent, page_size, page_token } = proto;
        let task_id = names::parent(&parent).map_err(|e| e.within("parent"))?;
        let (page_size, page_token) =
            (ProtoConvert::from_proto(page_size)?, ProtoConvert::from_proto(page_token)?);
        Ok(Self { tenant: None, task_id, page_size, page_token })
    }
}

/// A webhook without its task, as in the configuration of a message.
impl ProtoConvert<proto::PushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::PushNotificationConfig, Error> {
        Ok(proto::PushNotificationConfig {
            id: self.id.into_proto()?,
            url: self.url,
            token: self.token.into_proto()?,
            authentication: self.authentication.into_proto()?,
        })
    }

    fn from_proto(proto: proto::PushNotificationConfig) -> Result<Self, ConvertError> {
        let proto::PushNotificationConfig { id, url, token, authentication } = proto;
        // An empty message means that there are no credentials.
        let authentication = authentication.filter(|it| *it != proto::AuthenticationInfo::default());
        let (token, authentication) =
            (ProtoConvert::from_proto(token)?, ProtoConvert::from_proto(authentication)?);
        let id = names::given(&id).map(str::to_owned);
        Ok(Self { tenant: None, id, task_id: None, url, token, authentication })
    }
}

/// Only the first of several schemes is used.
impl ProtoConvert<proto::AuthenticationInfo> for AuthenticationInfo {
    fn into_proto(self) -> Result<proto::AuthenticationInfo, Error> {
        let Self { scheme, credentials } = self;
        Ok(proto::AuthenticationInfo { schemes: vec![scheme], credentials: credentials.into_proto()? })
    }

    fn from_proto(proto: proto::AuthenticationInfo) -> Result<Self, ConvertError> {
        let proto::AuthenticationInfo { schemes, credentials } = proto;
        let scheme = schemes.into_iter().next().unwrap_or_default();
        Ok(Self { scheme, credentials: ProtoConvert::from_proto(credentials)? })
    }
}

/// A webhook of a task.
impl ProtoConvert<proto::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::TaskPushNotificationConfig, Error> {
        let (task, own) = (self.task_id.clone().unwrap_or_default(), self.id.as_deref().unwrap_or_default());
        let name = names::of_webhook(&task, own);
        Ok(proto::TaskPushNotificationConfig { name, push_notification_config: Some(self.into_proto()?) })
    }

    fn from_proto(proto: proto::TaskPushNotificationConfig) -> Result<Self, ConvertError> {
        let proto::TaskPushNotificationConfig { name, push_notification_config } = proto;
        let (task_id, id) = names::webhook(&name).map_err(|e| e.within("name"))?;
        let config: Self = ProtoConvert::from_proto(push_notification_config.unwrap_or_default())?;
        Ok(Self { id: Some(id), task_id: Some(task_id), ..config })
    }
}

/// A webhook to create. Without an id it gets the id of its task.
impl ProtoConvert<proto::CreateTaskPushNotificationConfigRequest> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::CreateTaskPushNotificationConfigRequest, Error> {
        Ok(proto::CreateTaskPushNotificationConfigRequest {
            parent: names::of_task(&self.task_id.clone().unwrap_or_default()),
            config_id: self.id.clone().into_proto()?,
            config: Some(self.into_proto()?),
        })
    }

    fn from_proto(proto: proto::CreateTaskPushNotificationConfigRequest) -> Result<Self, ConvertError> {
        let proto::CreateTaskPushNotificationConfigRequest { parent, config_id, config } = proto;
        let task_id = names::parent(&parent).map_err(|e| e.within("parent"))?;
        // `config.name` is for responses. Here `configId` and the id of the configuration have the id.
        let config = config.and_then(|config| config.push_notification_config).unwrap_or_default();
        let config: Self = ProtoConvert::from_proto(config)?;
        let id = match (names::given(&config_id), config.id) {
            (Some(one), Some(other)) if one != other => {
                let text =
                    "is not the same as `config.pushNotificationConfig.id`: expected one id, or two alike";
                return Err(ConvertError::new(text).within("configId"));
            }
            (Some(id), _) => id.to_owned(),
            (None, Some(id)) => id,
            (None, None) => task_id.as_str().to_owned(),
        };
        Ok(Self { id: Some(id), task_id: Some(task_id), ..config })
    }
}

/// The card of 0.3. It has no signatures, since they cover the card of 1.0.
pub fn card(card: AgentCard) -> Result<proto::AgentCard, Error> {
    /// The members that only cards of 0.3 have, with their JSON names.
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct MembersV0_3 {
        protocol_version: String,
        url: String,
        preferred_transport: String,
        additional_interfaces: Vec<Interface>,
        supports_authenticated_extended_card: bool,
    }
    #[derive(Deserialize)]
    struct Interface {
        url: String,
        transport: String,
    }
    let v0_3 = serde_json::to_value(v0_3_card(&card)).and_then(serde_json::from_value::<MembersV0_3>);
    let v0_3 = v0_3.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let interface = |Interface { url, transport }| proto::AgentInterface { url, transport };
    Ok(proto::AgentCard {
        name: card.name,
        description: card.description,
        url: v0_3.url,
        provider: card.provider.into_proto()?,
        version: card.version,
        documentation_url: card.documentation_url.unwrap_or_default(),
        capabilities: Some(to_proto(AgentCapabilities { extended_agent_card: None, ..card.capabilities })?),
        security_schemes: card.security_schemes.into_proto()?,
        security: card.security_requirements.into_proto()?,
        default_input_modes: card.default_input_modes,
        default_output_modes: card.default_output_modes,
        skills: card.skills.into_proto()?,
        supports_authenticated_extended_card: v0_3.supports_authenticated_extended_card,
        preferred_transport: v0_3.preferred_transport,
        additional_interfaces: v0_3.additional_interfaces.into_iter().map(interface).collect(),
        protocol_version: v0_3.protocol_version,
        signatures: Vec::new(),
        icon_url: card.icon_url.unwrap_or_default(),
    })
}

/// Converts a card of 0.3 to 1.0. The preferred interface comes first. Unknown security schemes are left out, so a requirement
/// that names one cannot be satisfied.
pub fn read_card(card: proto::AgentCard) -> Result<AgentCard, Error> {
    let version = if card.protocol_version.is_empty() { "0.3" } else { card.protocol_version.as_str() };
    let interface = |url: &str, transport: &str| AgentInterface {
        protocol_version: version.to_owned(),
        ..AgentInterface::new(url, if transport.is_empty() { binding::GRPC } else { transport })
    };
    let mut supported_interfaces = vec![interface(&card.url, &card.preferred_transport)];
    for proto::AgentInterface { url, transport } in &card.additional_interfaces {
        let other = interface(url, transport);
        if !supported_interfaces.contains(&other) {
            supported_interfaces.push(other);
        }
    }
    let scheme = |(name, scheme)| Some((name, SecurityScheme::from_proto(scheme).ok()?));
    let extended = card.supports_authenticated_extended_card;
    Ok(AgentCard {
        name: card.name,
        description: card.description,
        supported_interfaces,
        provider: to_model(card.provider)?,
        version: card.version,
        documentation_url: to_model(card.documentation_url)?,
        capabilities: AgentCapabilities {
            extended_agent_card: extended.then_some(true),
            ..to_model(card.capabilities)?
        },
        security_schemes: card.security_schemes.into_iter().filter_map(scheme).collect(),
        security_requirements: to_model(card.security)?,
        default_input_modes: card.default_input_modes,
        default_output_modes: card.default_output_modes,
        skills: to_model(card.skills)?,
        signatures: Vec::new(),
        icon_url: to_model(card.icon_url)?,
    })
}

#[cfg(test)]
mod tests;
