//! Random values of every message of the oracle.
//!
//! A required message is always present, since we write it even if it is empty. The same holds for the member of a required
//! oneof. `includeArtifacts: false` is the default and is never written.

use std::collections::HashMap;

use a2a_pb::protojson::*;
use proptest::collection::hash_map;
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::DeserializeOwned;

use crate::arbitrary::{instant, json, key, list, object, text};

fn optional<S: Strategy>(value: S) -> impl Strategy<Value = Option<S::Value>> {
    prop::option::of(value)
}

fn always<S: Strategy>(value: S) -> impl Strategy<Value = Option<S::Value>> {
    value.prop_map(Some)
}

fn map<S: Strategy>(value: S) -> impl Strategy<Value = HashMap<String, S::Value>> {
    hash_map(key(), value, 0..3)
}

fn metadata<T: DeserializeOwned + std::fmt::Debug>() -> impl Strategy<Value = Option<T>> {
    optional(object().prop_map(|object| serde_json::from_value(object).expect("an object")))
}

fn state() -> impl Strategy<Value = i32> {
    (TaskState::Unspecified as i32)..=(TaskState::AuthRequired as i32)
}

fn role() -> impl Strategy<Value = i32> {
    (Role::Unspecified as i32)..=(Role::Agent as i32)
}

fn content() -> impl Strategy<Value = part::Content> {
    let data = json().prop_filter("is lost when read", |data| !data.is_null());
    prop_oneof![
        text().prop_map(part::Content::Text),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(part::Content::Raw),
        text().prop_map(part::Content::Url),
        data.prop_map(|data| part::Content::Data(serde_json::from_value(data).expect("a value"))),
    ]
}

pub(crate) fn part() -> BoxedStrategy<Part> {
    fields!(Part { content: always(content()), filename: text(), media_type: text(), metadata: metadata() })
}

pub(crate) fn message() -> BoxedStrategy<Message> {
    fields!(Message {
        message_id: text(),
        context_id: text(),
        task_id: text(),
        role: role(),
        parts: list(part()),
        metadata: metadata(),
        extensions: list(text()),
        reference_task_ids: list(text()),
    })
}

pub(crate) fn task_status() -> BoxedStrategy<TaskStatus> {
    (state(), optional(message()), optional(instant()))
        .prop_map(|(state, message, instant)| {
            let mut status = TaskStatus { state, message, timestamp: instant.map(|_| Default::default()) };
            if let (Some(timestamp), Some((seconds, nanos))) = (&mut status.timestamp, instant) {
                (timestamp.seconds, timestamp.nanos) = (seconds, nanos);
            }
            status
        })
        .boxed()
}

pub(crate) fn artifact() -> BoxedStrategy<Artifact> {
    fields!(Artifact {
        artifact_id: text(),
        name: text(),
        description: text(),
        parts: list(part()),
        metadata: metadata(),
        extensions: list(text()),
    })
}

pub(crate) fn task() -> BoxedStrategy<Task> {
    fields!(Task {
        id: text(),
        context_id: text(),
        status: always(task_status()),
        artifacts: list(artifact()),
        history: list(message()),
        metadata: metadata(),
    })
}

pub(crate) fn task_status_update_event() -> BoxedStrategy<TaskStatusUpdateEvent> {
    fields!(TaskStatusUpdateEvent {
        task_id: text(),
        context_id: text(),
        status: always(task_status()),
        metadata: metadata(),
    })
}

pub(crate) fn task_artifact_update_event() -> BoxedStrategy<TaskArtifactUpdateEvent> {
    fields!(TaskArtifactUpdateEvent {
        task_id: text(),
        context_id: text(),
        artifact: always(artifact()),
        append: any::<bool>(),
        last_chunk: any::<bool>(),
        metadata: metadata(),
    })
}

pub(crate) fn stream_response() -> BoxedStrategy<StreamResponse> {
    use stream_response::Payload;
    let payload = prop_oneof![
        task().prop_map(Payload::Task),
        message().prop_map(Payload::Message),
        task_status_update_event().prop_map(Payload::StatusUpdate),
        task_artifact_update_event().prop_map(Payload::ArtifactUpdate),
    ];
    fields!(StreamResponse { payload: always(payload) })
}

pub(crate) fn send_message_response() -> BoxedStrategy<SendMessageResponse> {
    use send_message_response::Payload;
    let payload = prop_oneof![task().prop_map(Payload::Task), message().prop_map(Payload::Message)];
    fields!(SendMessageResponse { payload: always(payload) })
}

pub(crate) fn authentication_info() -> BoxedStrategy<AuthenticationInfo> {
    fields!(AuthenticationInfo { scheme: text(), credentials: text() })
}

pub(crate) fn push_config() -> BoxedStrategy<TaskPushNotificationConfig> {
    fields!(TaskPushNotificationConfig {
        tenant: text(),
        id: text(),
        task_id: text(),
        url: text(),
        token: text(),
        authentication: optional(authentication_info()),
    })
}

pub(crate) fn send_message_configuration() -> BoxedStrategy<SendMessageConfiguration> {
    fields!(SendMessageConfiguration {
        accepted_output_modes: list(text()),
        task_push_notification_config: optional(push_config()),
        history_length: optional(any::<i32>()),
        return_immediately: any::<bool>(),
    })
}

pub(crate) fn send_message_request() -> BoxedStrategy<SendMessageRequest> {
    fields!(SendMessageRequest {
        tenant: text(),
        message: always(message()),
        configuration: optional(send_message_configuration()),
        metadata: metadata(),
    })
}

pub(crate) fn get_task_request() -> BoxedStrategy<GetTaskRequest> {
    fields!(GetTaskRequest { tenant: text(), id: text(), history_length: optional(any::<i32>()) })
}

pub(crate) fn list_tasks_request() -> BoxedStrategy<ListTasksRequest> {
    let untimed = fields!(ListTasksRequest {
        tenant: text(),
        context_id: text(),
        status: state(),
        page_size: optional(any::<i32>()),
        page_token: text(),
        history_length: optional(any::<i32>()),
        status_timestamp_after: Just(None),
        include_artifacts: select(vec![None, Some(true)]),
    });
    // The type of a timestamp is not exported, so the timestamp of a status is used.
    (untimed, task_status())
        .prop_map(|(request, status)| ListTasksRequest {
            status_timestamp_after: status.timestamp,
            ..request
        })
        .boxed()
}

pub(crate) fn list_tasks_response() -> BoxedStrategy<ListTasksResponse> {
    fields!(ListTasksResponse {
        tasks: list(task()),
        next_page_token: text(),
        page_size: any::<i32>(),
        total_size: any::<i32>(),
    })
}

pub(crate) fn cancel_task_request() -> BoxedStrategy<CancelTaskRequest> {
    fields!(CancelTaskRequest { tenant: text(), id: text(), metadata: metadata() })
}

pub(crate) fn subscribe_to_task_request() -> BoxedStrategy<SubscribeToTaskRequest> {
    fields!(SubscribeToTaskRequest { tenant: text(), id: text() })
}

pub(crate) fn get_push_config_request() -> BoxedStrategy<GetTaskPushNotificationConfigRequest> {
    fields!(GetTaskPushNotificationConfigRequest { tenant: text(), task_id: text(), id: text() })
}

pub(crate) fn delete_push_config_request() -> BoxedStrategy<DeleteTaskPushNotificationConfigRequest> {
    fields!(DeleteTaskPushNotificationConfigRequest { tenant: text(), task_id: text(), id: text() })
}

pub(crate) fn list_push_configs_request() -> BoxedStrategy<ListTaskPushNotificationConfigsRequest> {
    fields!(ListTaskPushNotificationConfigsRequest {
        tenant: text(),
        task_id: text(),
        page_size: any::<i32>(),
        page_token: text(),
    })
}

pub(crate) fn list_push_configs_response() -> BoxedStrategy<ListTaskPushNotificationConfigsResponse> {
    fields!(ListTaskPushNotificationConfigsResponse { configs: list(push_config()), next_page_token: text() })
}

pub(crate) fn get_extended_agent_card_request() -> BoxedStrategy<GetExtendedAgentCardRequest> {
    fields!(GetExtendedAgentCardRequest { tenant: text() })
}

pub(crate) fn agent_interface() -> BoxedStrategy<AgentInterface> {
    fields!(AgentInterface {
        url: text(),
        protocol_binding: text(),
        tenant: text(),
        protocol_version: text(),
    })
}

pub(crate) fn agent_provider() -> BoxedStrategy<AgentProvider> {
    fields!(AgentProvider { url: text(), organization: text() })
}

pub(crate) fn agent_extension() -> BoxedStrategy<AgentExtension> {
    fields!(AgentExtension { uri: text(), description: text(), required: any::<bool>(), params: metadata() })
}

pub(crate) fn agent_capabilities() -> BoxedStrategy<AgentCapabilities> {
    fields!(AgentCapabilities {
        streaming: optional(any::<bool>()),
        push_notifications: optional(any::<bool>()),
        extensions: list(agent_extension()),
        extended_agent_card: optional(any::<bool>()),
    })
}

pub(crate) fn agent_skill() -> BoxedStrategy<AgentSkill> {
    fields!(AgentSkill {
        id: text(),
        name: text(),
        description: text(),
        tags: list(text()),
        examples: list(text()),
        input_modes: list(text()),
        output_modes: list(text()),
        security_requirements: list(security_requirement()),
    })
}

pub(crate) fn agent_card_signature() -> BoxedStrategy<AgentCardSignature> {
    fields!(AgentCardSignature { protected: text(), signature: text(), header: metadata() })
}

pub(crate) fn agent_card() -> BoxedStrategy<AgentCard> {
    fields!(AgentCard {
        name: text(),
        description: text(),
        supported_interfaces: list(agent_interface()),
        provider: optional(agent_provider()),
        version: text(),
        documentation_url: optional(text()),
        capabilities: always(agent_capabilities()),
        security_schemes: map(security_scheme()),
        security_requirements: list(security_requirement()),
        default_input_modes: list(text()),
        default_output_modes: list(text()),
        skills: list(agent_skill()),
        signatures: list(agent_card_signature()),
        icon_url: optional(text()),
    })
}

pub(crate) fn string_list() -> BoxedStrategy<StringList> {
    fields!(StringList { list: list(text()) })
}

pub(crate) fn security_requirement() -> BoxedStrategy<SecurityRequirement> {
    fields!(SecurityRequirement { schemes: map(string_list()) })
}

pub(crate) fn security_scheme() -> BoxedStrategy<SecurityScheme> {
    use security_scheme::Scheme;
    let scheme = prop_oneof![
        api_key_security_scheme().prop_map(Scheme::ApiKeySecurityScheme),
        http_auth_security_scheme().prop_map(Scheme::HttpAuthSecurityScheme),
        oauth2_security_scheme().prop_map(Scheme::Oauth2SecurityScheme),
        open_id_connect_security_scheme().prop_map(Scheme::OpenIdConnectSecurityScheme),
        mutual_tls_security_scheme().prop_map(Scheme::MtlsSecurityScheme),
    ];
    fields!(SecurityScheme { scheme: always(scheme) })
}

pub(crate) fn api_key_security_scheme() -> BoxedStrategy<ApiKeySecurityScheme> {
    fields!(ApiKeySecurityScheme { description: text(), location: text(), name: text() })
}

pub(crate) fn http_auth_security_scheme() -> BoxedStrategy<HttpAuthSecurityScheme> {
    fields!(HttpAuthSecurityScheme { description: text(), scheme: text(), bearer_format: text() })
}

pub(crate) fn oauth2_security_scheme() -> BoxedStrategy<OAuth2SecurityScheme> {
    fields!(OAuth2SecurityScheme {
        description: text(),
        flows: always(oauth_flows()),
        oauth2_metadata_url: text(),
    })
}

pub(crate) fn open_id_connect_security_scheme() -> BoxedStrategy<OpenIdConnectSecurityScheme> {
    fields!(OpenIdConnectSecurityScheme { description: text(), open_id_connect_url: text() })
}

pub(crate) fn mutual_tls_security_scheme() -> BoxedStrategy<MutualTlsSecurityScheme> {
    fields!(MutualTlsSecurityScheme { description: text() })
}

#[expect(deprecated, reason = "the protocol still has the implicit and password flows")]
pub(crate) fn oauth_flows() -> BoxedStrategy<OAuthFlows> {
    use o_auth_flows::Flow;
    let flow = prop_oneof![
        authorization_code_flow().prop_map(Flow::AuthorizationCode),
        client_credentials_flow().prop_map(Flow::ClientCredentials),
        implicit_flow().prop_map(Flow::Implicit),
        password_flow().prop_map(Flow::Password),
        device_code_flow().prop_map(Flow::DeviceCode),
    ];
    fields!(OAuthFlows { flow: always(flow) })
}

pub(crate) fn authorization_code_flow() -> BoxedStrategy<AuthorizationCodeOAuthFlow> {
    fields!(AuthorizationCodeOAuthFlow {
        authorization_url: text(),
        token_url: text(),
        refresh_url: text(),
        scopes: map(text()),
        pkce_required: any::<bool>(),
    })
}

pub(crate) fn client_credentials_flow() -> BoxedStrategy<ClientCredentialsOAuthFlow> {
    fields!(ClientCredentialsOAuthFlow { token_url: text(), refresh_url: text(), scopes: map(text()) })
}

pub(crate) fn device_code_flow() -> BoxedStrategy<DeviceCodeOAuthFlow> {
    fields!(DeviceCodeOAuthFlow {
        device_authorization_url: text(),
        token_url: text(),
        refresh_url: text(),
        scopes: map(text()),
    })
}

pub(crate) fn implicit_flow() -> BoxedStrategy<ImplicitOAuthFlow> {
    fields!(ImplicitOAuthFlow { authorization_url: text(), refresh_url: text(), scopes: map(text()) })
}

pub(crate) fn password_flow() -> BoxedStrategy<PasswordOAuthFlow> {
    fields!(PasswordOAuthFlow { token_url: text(), refresh_url: text(), scopes: map(text()) })
}
