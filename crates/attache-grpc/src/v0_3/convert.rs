//! Between the model and the messages of `a2a.v1`.
//!
//! What 0.3 cannot say is left out: tenants, generations, references to other tasks, the name and the media type of a text.

use std::collections::BTreeMap;

use attache_protocol::dialect::v0_3_card;
use attache_protocol::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{names, proto};
use crate::wire::{Misfit, Object, Wire, messages, oneofs, required, to_model, to_proto, unwritable};

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

impl Wire<proto::TaskStatusUpdateEvent> for TaskStatusUpdateEvent {
    fn into_proto(self) -> Result<proto::TaskStatusUpdateEvent, Error> {
        let Self { task_id, context_id, status, metadata, generation: _ } = self;
        // As in the other bindings of 0.3: the task has ended or waits for a message.
        let is_final = status.state.is_terminal() || status.state == TaskState::InputRequired;
        Ok(proto::TaskStatusUpdateEvent {
            task_id: task_id.into_proto()?,
            context_id: context_id.into_proto()?,
            status: status.into_proto()?,
            is_final,
            metadata: metadata.into_proto()?,
        })
    }

    fn from_proto(proto: proto::TaskStatusUpdateEvent) -> Result<Self, Misfit> {
        let proto::TaskStatusUpdateEvent { task_id, context_id, status, is_final: _, metadata } = proto;
        Ok(Self {
            task_id: Wire::from_proto(task_id)?,
            context_id: Wire::from_proto(context_id)?,
            status: Wire::from_proto(status).map_err(|m| m.within("status"))?,
            metadata: Wire::from_proto(metadata).map_err(|m| m.within("metadata"))?,
            generation: None,
        })
    }
}

impl Wire<proto::Part> for Part {
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
                let (data, metadata) = wrapped(data, metadata)?;
                (proto::Content::Data(proto::DataPart { data: Some(data.into_proto()?) }), metadata)
            }
        };
        Ok(proto::Part { content: Some(content), metadata: metadata.into_proto()? })
    }

    fn from_proto(proto: proto::Part) -> Result<Self, Misfit> {
        let proto::Part { content, metadata } = proto;
        let metadata = Wire::from_proto(metadata).map_err(|m: Misfit| m.within("metadata"))?;
        match content {
            Some(proto::Content::Text(text)) => Ok(Self { metadata, ..Self::new(Content::Text(text)) }),
            Some(proto::Content::File(proto::FilePart { file, mime_type, name })) => {
                let content = match file {
                    Some(proto::File::Uri(uri)) => Content::Url(uri),
                    Some(proto::File::Bytes(bytes)) => Content::Raw(raw(bytes)),
                    None => {
                        let text = "a file needs exactly one of `fileWithUri` and `fileWithBytes`";
                        return Err(Misfit::new(text).within("file"));
                    }
                };
                let (filename, media_type) = (Wire::from_proto(name)?, Wire::from_proto(mime_type)?);
                Ok(Self { content, filename, media_type, metadata })
            }
            Some(proto::Content::Data(proto::DataPart { data })) => {
                let data = Wire::from_proto(data.unwrap_or_default());
                let data = data.map_err(|m: Misfit| m.within("data").within("data"))?;
                let (data, metadata) = unwrapped(&data, metadata)?;
                Ok(Self { metadata, ..Self::new(Content::Data(data)) })
            }
            None => Err(Misfit::new("a part needs exactly one of `text`, `file` and `data`")),
        }
    }
}

/// The bytes of a file. The SDKs for Python, Go and Java write them in base64, as they stand in JSON, and cannot read
/// anything else; the one for JavaScript writes the bytes themselves, which are taken for that unless they look like base64.
fn raw(bytes: Vec<u8>) -> Vec<u8> {
    STANDARD.decode(&bytes).unwrap_or(bytes)
}

/// The member of the metadata that marks data which is not an object, and was put into one for that reason.
const WRAPPED: &str = "data_part_compat";
const VALUE: &str = "value";

/// Data as an object, and the metadata of its part, which tells whether the data was one already.
fn wrapped(data: Json, metadata: Option<JsonObject>) -> Result<(JsonObject, Option<JsonObject>), Error> {
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

/// The other way round.
fn unwrapped(data: &JsonObject, metadata: Option<JsonObject>) -> Result<(Json, Option<JsonObject>), Misfit> {
    let unreadable = |error: serde_json::Error| Misfit::new(error.to_string());
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

/// Where there is a configuration, `blocking` counts as it stands, since protobuf cannot tell false from nothing. Where there
/// is none nothing is said, and a message blocks as it does elsewhere.
impl Wire<proto::SendMessageConfiguration> for SendMessageConfiguration {
    fn into_proto(self) -> Result<proto::SendMessageConfiguration, Error> {
        Ok(proto::SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            push_notification: self.task_push_notification_config.into_proto()?,
            history_length: self.history_length.into_proto()?,
            blocking: !self.return_immediately,
        })
    }

    fn from_proto(proto: proto::SendMessageConfiguration) -> Result<Self, Misfit> {
        let proto::SendMessageConfiguration {
            accepted_output_modes,
            push_notification,
            history_length,
            blocking,
        } = proto;
        Ok(Self {
            accepted_output_modes,
            task_push_notification_config: Wire::from_proto(push_notification)?,
            history_length: Wire::from_proto(history_length)?,
            return_immediately: !blocking,
            if_generation_match: None,
        })
    }
}

/// Requests that name a task and have little else to say.
macro_rules! of_a_task {
    ($( $name:ident as $message:ident { $( $field:ident ),* } without { $( $absent:ident ),+ } )+) => { $(
        impl Wire<proto::$message> for $name {
            fn into_proto(self) -> Result<proto::$message, Error> {
                let Self { id, $( $field, )* $( $absent: _ ),+ } = self;
                Ok(proto::$message { name: names::of_task(&id), $( $field: $field.into_proto()? ),* })
            }

            fn from_proto(proto: proto::$message) -> Result<Self, Misfit> {
                let proto::$message { name, $( $field ),* } = proto;
                let id = names::task(&name).map_err(|m| m.within("name"))?;
                Ok(Self { id, $( $field: Wire::from_proto($field)?, )* $( $absent: None ),+ })
            }
        }
    )+ };
}

of_a_task! {
    GetTaskRequest as GetTaskRequest { history_length } without { tenant, current_generation }
    CancelTaskRequest as CancelTaskRequest {} without { tenant, metadata }
    SubscribeToTaskRequest as TaskSubscriptionRequest {} without { tenant }
}

/// Requests that name a webhook.
macro_rules! of_a_webhook {
    ($( $name:ident ),+) => { $(
        impl Wire<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                Ok(proto::$name { name: names::of_webhook(&self.task_id, &self.id) })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, Misfit> {
                let (task_id, id) = names::webhook(&proto.name).map_err(|m| m.within("name"))?;
                Ok(Self { tenant: None, task_id, id })
            }
        }
    )+ };
}

of_a_webhook!(GetTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest);

impl Wire<proto::ListTaskPushNotificationConfigsRequest> for ListTaskPushNotificationConfigsRequest {
    fn into_proto(self) -> Result<proto::ListTaskPushNotificationConfigsRequest, Error> {
        Ok(proto::ListTaskPushNotificationConfigsRequest {
            parent: names::of_task(&self.task_id),
            page_size: self.page_size.into_proto()?,
            page_token: self.page_token.into_proto()?,
        })
    }

    fn from_proto(proto: proto::ListTaskPushNotificationConfigsRequest) -> Result<Self, Misfit> {
        let proto::ListTaskPushNotificationConfigsRequest { parent, page_size, page_token } = proto;
        let task_id = names::parent(&parent).map_err(|m| m.within("parent"))?;
        let (page_size, page_token) = (Wire::from_proto(page_size)?, Wire::from_proto(page_token)?);
        Ok(Self { tenant: None, task_id, page_size, page_token })
    }
}

/// A webhook by itself, as one that a message brings along.
impl Wire<proto::PushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::PushNotificationConfig, Error> {
        Ok(proto::PushNotificationConfig {
            id: self.id.into_proto()?,
            url: self.url,
            token: self.token.into_proto()?,
            authentication: self.authentication.into_proto()?,
        })
    }

    fn from_proto(proto: proto::PushNotificationConfig) -> Result<Self, Misfit> {
        let proto::PushNotificationConfig { id, url, token, authentication } = proto;
        let (token, authentication) = (Wire::from_proto(token)?, Wire::from_proto(authentication)?);
        let id = names::given(&id).map(str::to_owned);
        Ok(Self { tenant: None, id, task_id: None, url, token, authentication })
    }
}

/// Of several schemes the first one counts.
impl Wire<proto::AuthenticationInfo> for AuthenticationInfo {
    fn into_proto(self) -> Result<proto::AuthenticationInfo, Error> {
        let Self { scheme, credentials } = self;
        Ok(proto::AuthenticationInfo { schemes: vec![scheme], credentials: credentials.into_proto()? })
    }

    fn from_proto(proto: proto::AuthenticationInfo) -> Result<Self, Misfit> {
        let proto::AuthenticationInfo { schemes, credentials } = proto;
        let scheme = schemes.into_iter().next().unwrap_or_default();
        Ok(Self { scheme, credentials: Wire::from_proto(credentials)? })
    }
}

/// A webhook of a task.
impl Wire<proto::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::TaskPushNotificationConfig, Error> {
        let (task, own) = (self.task_id.clone().unwrap_or_default(), self.id.as_deref().unwrap_or_default());
        let name = names::of_webhook(&task, own);
        Ok(proto::TaskPushNotificationConfig { name, push_notification_config: Some(self.into_proto()?) })
    }

    fn from_proto(proto: proto::TaskPushNotificationConfig) -> Result<Self, Misfit> {
        let proto::TaskPushNotificationConfig { name, push_notification_config } = proto;
        let (task_id, id) = names::webhook(&name).map_err(|m| m.within("name"))?;
        let config: Self = Wire::from_proto(push_notification_config.unwrap_or_default())?;
        Ok(Self { id: Some(id), task_id: Some(task_id), ..config })
    }
}

/// A webhook that is to be created. Without a name of its own it bears the id of its task.
impl Wire<proto::CreateTaskPushNotificationConfigRequest> for TaskPushNotificationConfig {
    fn into_proto(self) -> Result<proto::CreateTaskPushNotificationConfigRequest, Error> {
        Ok(proto::CreateTaskPushNotificationConfigRequest {
            parent: names::of_task(&self.task_id.clone().unwrap_or_default()),
            config_id: self.id.clone().into_proto()?,
            config: Some(self.into_proto()?),
        })
    }

    fn from_proto(proto: proto::CreateTaskPushNotificationConfigRequest) -> Result<Self, Misfit> {
        let proto::CreateTaskPushNotificationConfigRequest { parent, config_id, config } = proto;
        let task_id = names::parent(&parent).map_err(|m| m.within("parent"))?;
        // What the configuration says of its own name is for answers; here, the other two fields tell it.
        let config = config.and_then(|config| config.push_notification_config).unwrap_or_default();
        let config: Self = Wire::from_proto(config)?;
        let id = match (names::given(&config_id), config.id) {
            (Some(one), Some(other)) if one != other => {
                let text =
                    "is not the same as `config.pushNotificationConfig.id`: expected one id, or two alike";
                return Err(Misfit::new(text).within("configId"));
            }
            (Some(id), _) => id.to_owned(),
            (None, Some(id)) => id,
            (None, None) => task_id.as_str().to_owned(),
        };
        Ok(Self { id: Some(id), task_id: Some(task_id), ..config })
    }
}

/// The card. It has no signatures: they are over the card of 1.0.
pub fn card(card: AgentCard) -> Result<proto::AgentCard, Error> {
    /// What only cards of 0.3 have, in the words of the one in JSON.
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Older {
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
    let older = serde_json::to_value(v0_3_card(&card)).and_then(serde_json::from_value::<Older>);
    let older = older.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let interface = |Interface { url, transport }| proto::AgentInterface { url, transport };
    Ok(proto::AgentCard {
        name: card.name,
        description: card.description,
        url: older.url,
        provider: card.provider.into_proto()?,
        version: card.version,
        documentation_url: card.documentation_url.unwrap_or_default(),
        capabilities: Some(to_proto(AgentCapabilities { extended_agent_card: None, ..card.capabilities })?),
        security_schemes: card.security_schemes.into_proto()?,
        security: card.security_requirements.into_proto()?,
        default_input_modes: card.default_input_modes,
        default_output_modes: card.default_output_modes,
        skills: card.skills.into_proto()?,
        supports_authenticated_extended_card: older.supports_authenticated_extended_card,
        preferred_transport: older.preferred_transport,
        additional_interfaces: older.additional_interfaces.into_iter().map(interface).collect(),
        protocol_version: older.protocol_version,
        signatures: Vec::new(),
        icon_url: card.icon_url.unwrap_or_default(),
    })
}

/// The card of 1.0 that says the same. What it prefers comes first among its interfaces, and schemes that are not known are left
/// out, and so can satisfy nobody.
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
