//! Converts the messages of `lf.a2a.v1`.

use attache_protocol::*;

use super::proto;
use crate::convert::{ConvertError, ProtoConvert, messages, oneofs, required};

messages! {
    Task { id, context_id, status, artifacts, history, metadata, generation }
    TaskStatus { state, message, timestamp }
    Message { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids }
    Artifact { artifact_id, name, description, parts, metadata, extensions }
    TaskStatusUpdateEvent { task_id, context_id, status, metadata, generation }
    TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk, metadata, generation }

    SendMessageRequest { tenant, message, configuration, metadata }
    SendMessageConfiguration {
        accepted_output_modes, task_push_notification_config, history_length, return_immediately, if_generation_match
    }
    GetTaskRequest { tenant, id, history_length, current_generation }
    ListTasksRequest {
        tenant, context_id, status, page_size, page_token, history_length, status_timestamp_after, include_artifacts
    }
    ListTasksResponse { tasks, next_page_token, page_size, total_size }
    CancelTaskRequest { tenant, id, metadata }
    SubscribeToTaskRequest { tenant, id }
    GetTaskPushNotificationConfigRequest { tenant, task_id, id }
    DeleteTaskPushNotificationConfigRequest { tenant, task_id, id }
    ListTaskPushNotificationConfigsRequest { tenant, task_id, page_size, page_token }
    ListTaskPushNotificationConfigsResponse { configs, next_page_token }
    GetExtendedAgentCardRequest { tenant }

    TaskPushNotificationConfig { tenant, id, task_id, url, token, authentication }
    AuthenticationInfo { scheme, credentials }

    AgentCard {
        name, description, supported_interfaces, provider, version, documentation_url, capabilities, security_schemes,
        security_requirements, default_input_modes, default_output_modes, skills, signatures, icon_url
    }
    AgentInterface { url, protocol_binding, tenant, protocol_version }
}

oneofs! {
    StreamResponse {
        payload: StreamPayload {
            Task = "task", Message = "message", StatusUpdate = "statusUpdate", ArtifactUpdate = "artifactUpdate"
        }
    }
    SendMessageResponse { payload: SendPayload { Task = "task", Message = "message" } }
}

impl ProtoConvert<proto::Part> for Part {
    fn into_proto(self) -> Result<proto::Part, Error> {
        let Self { content, filename, media_type, metadata } = self;
        let content = match content {
            Content::Text(text) => proto::Content::Text(text),
            Content::Raw(bytes) => proto::Content::Raw(bytes),
            Content::Url(url) => proto::Content::Url(url),
            Content::Data(data) => proto::Content::Data(data.into_proto()?),
        };
        Ok(proto::Part {
            content: Some(content),
            filename: filename.into_proto()?,
            media_type: media_type.into_proto()?,
            metadata: metadata.into_proto()?,
        })
    }

    fn from_proto(proto: proto::Part) -> Result<Self, ConvertError> {
        let proto::Part { content, filename, media_type, metadata } = proto;
        let content = match content {
            Some(proto::Content::Text(text)) => Content::Text(text),
            Some(proto::Content::Raw(bytes)) => Content::Raw(bytes),
            Some(proto::Content::Url(url)) => Content::Url(url),
            Some(proto::Content::Data(data)) => {
                Content::Data(ProtoConvert::from_proto(data).map_err(|e| e.within("data"))?)
            }
            None => {
                return Err(ConvertError::new("a part needs exactly one of `text`, `raw`, `url` and `data`"));
            }
        };
        Ok(Self {
            content,
            filename: ProtoConvert::from_proto(filename)?,
            media_type: ProtoConvert::from_proto(media_type)?,
            metadata: ProtoConvert::from_proto(metadata).map_err(|e| e.within("metadata"))?,
        })
    }
}

required!(Message, TaskStatus, Artifact);

#[cfg(test)]
mod tests;
