//! Random values of every message of the protocol.
//!
//! They are values that parsing can return: an optional string is never empty, since JSON cannot distinguish that from an absent
//! one. Data and metadata only have values that a protobuf `Value` can hold exactly. The data of a part is never `null`, which
//! the oracle loses.

use std::collections::BTreeMap;

use attache_protocol::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

/// Expands `$each!` with every message of the protocol and the name of its strategy.
macro_rules! for_every_message {
    ($each:ident) => {
        $each! {
            AgentCapabilities => agent_capabilities,
            AgentCard => agent_card,
            AgentCardSignature => agent_card_signature,
            AgentExtension => agent_extension,
            AgentInterface => agent_interface,
            AgentProvider => agent_provider,
            AgentSkill => agent_skill,
            ApiKeySecurityScheme => api_key_security_scheme,
            Artifact => artifact,
            AuthenticationInfo => authentication_info,
            AuthorizationCodeOAuthFlow => authorization_code_flow,
            CancelTaskRequest => cancel_task_request,
            ClientCredentialsOAuthFlow => client_credentials_flow,
            DeleteTaskPushNotificationConfigRequest => delete_push_config_request,
            DeviceCodeOAuthFlow => device_code_flow,
            GetExtendedAgentCardRequest => get_extended_agent_card_request,
            GetTaskPushNotificationConfigRequest => get_push_config_request,
            GetTaskRequest => get_task_request,
            HttpAuthSecurityScheme => http_auth_security_scheme,
            ImplicitOAuthFlow => implicit_flow,
            ListTaskPushNotificationConfigsRequest => list_push_configs_request,
            ListTaskPushNotificationConfigsResponse => list_push_configs_response,
            ListTasksRequest => list_tasks_request,
            ListTasksResponse => list_tasks_response,
            Message => message,
            MutualTlsSecurityScheme => mutual_tls_security_scheme,
            OAuth2SecurityScheme => oauth2_security_scheme,
            OAuthFlows => oauth_flows,
            OpenIdConnectSecurityScheme => open_id_connect_security_scheme,
            Part => part,
            PasswordOAuthFlow => password_flow,
            SecurityRequirement => security_requirement,
            SecurityScheme => security_scheme,
            SendMessageConfiguration => send_message_configuration,
            SendMessageRequest => send_message_request,
            SendMessageResponse => send_message_response,
            StreamResponse => stream_response,
            StringList => string_list,
            SubscribeToTaskRequest => subscribe_to_task_request,
            Task => task,
            TaskArtifactUpdateEvent => task_artifact_update_event,
            TaskPushNotificationConfig => push_config,
            TaskStatus => task_status,
            TaskStatusUpdateEvent => task_status_update_event,
        }
    };
}

/// A strategy for a struct, from one for each of its fields.
macro_rules! fields {
    (@nest) => { Just(()) };
    (@nest $first:expr $(, $rest:expr)*) => { ($first, fields!(@nest $($rest),*)) };
    (@pattern) => { () };
    (@pattern $first:ident $(, $rest:ident)*) => { ($first, fields!(@pattern $($rest),*)) };
    ($type:ident { $( $field:ident: $strategy:expr ),+ $(,)? }) => {
        fields!(@nest $($strategy),+).prop_map(|fields!(@pattern $($field),+)| $type { $($field),+ }).boxed()
    };
}

/// Checks a property for random values. `PROPTEST_CASES` sets their number.
pub(crate) fn check<S: Strategy>(strategy: S, promise: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(broken) = TestRunner::new(config).run(&strategy, promise) {
        panic!("{broken}");
    }
}

/// Text with characters that JSON or an event stream must escape.
pub(crate) fn text() -> BoxedStrategy<String> {
    let letters =
        prop_oneof![prop::char::range('a', 'z'), prop::char::range('0', '9'), select(vec!['-', '_', ' '])];
    let hard = select(vec![
        "\"",
        "\\",
        "\\u0041",
        "/",
        "\0",
        "\u{1}\u{1f}\u{7f}",
        "line\nline\r\nline\r",
        "\t\u{8}\u{c}",
        "\u{85}\u{2028}\u{2029}",
        "\u{feff}\u{fffd}\u{ffff}",
        "é \u{301} 漢字 🦀 \u{10ffff}",
        "{\"data\":null}",
        "ROLE_USER",
        "2026-01-02T03:04:05Z",
    ]);
    prop_oneof![
        4 => vec(letters, 0..12).prop_map(String::from_iter),
        2 => vec(any::<char>(), 0..6).prop_map(String::from_iter),
        1 => hard.prop_map(str::to_owned),
    ]
    .boxed()
}

/// An identifier: text without control characters.
pub(crate) fn identifier() -> BoxedStrategy<String> {
    text().prop_map(|text| text.replace(char::is_control, "¶")).boxed()
}

/// An arbitrary name. Sometimes it is also the name of a member of the protocol.
pub(crate) fn key() -> BoxedStrategy<String> {
    let taken = select(vec!["data", "metadata", "schemes", "state", "generation", "snake_case", "camelCase"]);
    prop_oneof![3 => text(), 1 => taken.prop_map(str::to_owned)].boxed()
}

/// Any JSON value that protobuf can hold exactly.
pub(crate) fn json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        // Fifteen digits: with more, serde_json may be wrong by one unit in the last place.
        (-999_999_999_999_999..=999_999_999_999_999_i64).prop_map(Value::from),
        (any::<i32>(), 0..6).prop_map(|(n, digits)| Value::from(f64::from(n) / 10_f64.powi(digits))),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(key(), inner, 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Any JSON object that protobuf can hold exactly.
pub(crate) fn object() -> BoxedStrategy<Value> {
    btree_map(key(), json(), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())).boxed()
}

pub(crate) fn list<S: Strategy>(item: S) -> impl Strategy<Value = Vec<S::Value>> {
    vec(item, 0..3)
}

/// Seconds and nanoseconds since 1970, within the years that both sides support.
pub(crate) fn instant() -> impl Strategy<Value = (i64, i32)> {
    let seconds = prop_oneof![-62_135_596_800..=253_402_207_199_i64, 0..=2_000_000_000_i64];
    let nanos = prop_oneof![
        Just(0),
        (0..1_000).prop_map(|millis| millis * 1_000_000),
        (0..1_000_000).prop_map(|micros| micros * 1_000),
        (0..10_000_000).prop_map(|tenths| tenths * 100),
        0..1_000_000_000,
    ];
    (seconds, nanos)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    instant().prop_map(|(seconds, nanos)| Timestamp::new(seconds, nanos).expect("a time in range"))
}

fn optional<S: Strategy>(value: S) -> impl Strategy<Value = Option<S::Value>> {
    prop::option::of(value)
}

/// An optional string that is not empty.
fn filled() -> impl Strategy<Value = Option<String>> {
    optional(text()).prop_map(|text| text.filter(|text| !text.is_empty()))
}

fn map<S: Strategy>(value: S) -> impl Strategy<Value = BTreeMap<String, S::Value>> {
    btree_map(key(), value, 0..3)
}

fn task_id() -> impl Strategy<Value = TaskId> {
    identifier().prop_map(TaskId::from)
}

fn context_id() -> impl Strategy<Value = ContextId> {
    identifier().prop_map(ContextId::from)
}

fn filled_task_id() -> impl Strategy<Value = Option<TaskId>> {
    optional(task_id()).prop_map(|id| id.filter(|id| !id.is_empty()))
}

fn filled_context_id() -> impl Strategy<Value = Option<ContextId>> {
    optional(context_id()).prop_map(|id| id.filter(|id| !id.is_empty()))
}

fn metadata() -> impl Strategy<Value = Option<JsonObject>> {
    optional(object()).prop_map(|object| object.map(|object| JsonObject::new(&object).expect("an object")))
}

fn generation() -> impl Strategy<Value = Option<u64>> {
    optional(prop_oneof![0..1_000_u64, 0..=i64::MAX.cast_unsigned()])
}

fn state() -> impl Strategy<Value = TaskState> {
    select(TaskState::ALL)
}

fn role() -> impl Strategy<Value = Role> {
    select(Role::ALL)
}

fn content() -> impl Strategy<Value = Content> {
    let data = json().prop_filter("the oracle loses a null", |data| !data.is_null());
    prop_oneof![
        text().prop_map(Content::Text),
        vec(any::<u8>(), 0..9).prop_map(Content::Raw),
        text().prop_map(Content::Url),
        data.prop_map(|data| Content::Data(Json::new(&data).expect("a value"))),
    ]
}

pub(crate) fn part() -> BoxedStrategy<Part> {
    fields!(Part { content: content(), filename: filled(), media_type: filled(), metadata: metadata() })
}

pub(crate) fn message() -> BoxedStrategy<Message> {
    fields!(Message {
        message_id: identifier(),
        context_id: filled_context_id(),
        task_id: filled_task_id(),
        role: role(),
        parts: list(part()),
        metadata: metadata(),
        extensions: list(identifier()),
        reference_task_ids: list(task_id()),
    })
}

pub(crate) fn task_status() -> BoxedStrategy<TaskStatus> {
    fields!(TaskStatus {
        state: state(),
        message: optional(message().prop_map(Box::new)),
        timestamp: optional(timestamp()),
    })
}

pub(crate) fn artifact() -> BoxedStrategy<Artifact> {
    fields!(Artifact {
        artifact_id: text(),
        name: filled(),
        description: filled(),
        parts: list(part()),
        metadata: metadata(),
        extensions: list(text()),
    })
}

pub(crate) fn task() -> BoxedStrategy<Task> {
    fields!(Task {
        id: task_id(),
        context_id: filled_context_id(),
        status: task_status(),
        metadata: metadata(),
        generation: generation(),
        artifacts: list(artifact()),
        history: list(message()),
    })
}

pub(crate) fn task_status_update_event() -> BoxedStrategy<TaskStatusUpdateEvent> {
    fields!(TaskStatusUpdateEvent {
        task_id: task_id(),
        context_id: context_id(),
        status: task_status(),
        metadata: metadata(),
        generation: generation(),
    })
}

pub(crate) fn task_artifact_update_event() -> BoxedStrategy<TaskArtifactUpdateEvent> {
    fields!(TaskArtifactUpdateEvent {
        task_id: task_id(),
        context_id: context_id(),
        artifact: artifact(),
        append: any::<bool>(),
        last_chunk: any::<bool>(),
        metadata: metadata(),
        generation: generation(),
    })
}

pub(crate) fn stream_response() -> BoxedStrategy<StreamResponse> {
    prop_oneof![
        task().prop_map(StreamResponse::Task),
        message().prop_map(StreamResponse::Message),
        task_status_update_event().prop_map(StreamResponse::StatusUpdate),
        task_artifact_update_event().prop_map(StreamResponse::ArtifactUpdate),
    ]
    .boxed()
}

pub(crate) fn send_message_response() -> BoxedStrategy<SendMessageResponse> {
    prop_oneof![task().prop_map(SendMessageResponse::Task), message().prop_map(SendMessageResponse::Message)]
        .boxed()
}

pub(crate) fn authentication_info() -> BoxedStrategy<AuthenticationInfo> {
    fields!(AuthenticationInfo { scheme: text(), credentials: filled() })
}

pub(crate) fn push_config() -> BoxedStrategy<TaskPushNotificationConfig> {
    fields!(TaskPushNotificationConfig {
        tenant: filled(),
        id: filled(),
        task_id: filled_task_id(),
        url: text(),
        token: filled(),
        authentication: optional(authentication_info()),
    })
}

pub(crate) fn send_message_configuration() -> BoxedStrategy<SendMessageConfiguration> {
    fields!(SendMessageConfiguration {
        accepted_output_modes: list(text()),
        task_push_notification_config: optional(push_config().prop_map(Box::new)),
        history_length: optional(any::<i32>()),
        return_immediately: any::<bool>(),
        if_generation_match: generation(),
    })
}

pub(crate) fn send_message_request() -> BoxedStrategy<SendMessageRequest> {
    fields!(SendMessageRequest {
        tenant: filled(),
        message: message(),
        configuration: optional(send_message_configuration()),
        metadata: metadata(),
    })
}

pub(crate) fn get_task_request() -> BoxedStrategy<GetTaskRequest> {
    fields!(GetTaskRequest {
        tenant: filled(),
        id: task_id(),
        history_length: optional(any::<i32>()),
        current_generation: generation(),
    })
}

pub(crate) fn list_tasks_request() -> BoxedStrategy<ListTasksRequest> {
    fields!(ListTasksRequest {
        tenant: filled(),
        context_id: filled_context_id(),
        status: state(),
        page_size: optional(any::<i32>()),
        page_token: filled(),
        history_length: optional(any::<i32>()),
        status_timestamp_after: optional(timestamp()),
        include_artifacts: any::<bool>(),
    })
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
    fields!(CancelTaskRequest { tenant: filled(), id: task_id(), metadata: metadata() })
}

pub(crate) fn subscribe_to_task_request() -> BoxedStrategy<SubscribeToTaskRequest> {
    fields!(SubscribeToTaskRequest { tenant: filled(), id: task_id() })
}

pub(crate) fn get_push_config_request() -> BoxedStrategy<GetTaskPushNotificationConfigRequest> {
    fields!(GetTaskPushNotificationConfigRequest { tenant: filled(), task_id: task_id(), id: text() })
}

pub(crate) fn delete_push_config_request() -> BoxedStrategy<DeleteTaskPushNotificationConfigRequest> {
    fields!(DeleteTaskPushNotificationConfigRequest { tenant: filled(), task_id: task_id(), id: text() })
}

pub(crate) fn list_push_configs_request() -> BoxedStrategy<ListTaskPushNotificationConfigsRequest> {
    // Protobuf cannot distinguish zero from absent here.
    let page_size = optional(any::<i32>()).prop_map(|size| size.filter(|size| *size != 0));
    fields!(ListTaskPushNotificationConfigsRequest {
        tenant: filled(),
        task_id: task_id(),
        page_size: page_size,
        page_token: filled(),
    })
}

pub(crate) fn list_push_configs_response() -> BoxedStrategy<ListTaskPushNotificationConfigsResponse> {
    fields!(ListTaskPushNotificationConfigsResponse { configs: list(push_config()), next_page_token: text() })
}

pub(crate) fn get_extended_agent_card_request() -> BoxedStrategy<GetExtendedAgentCardRequest> {
    fields!(GetExtendedAgentCardRequest { tenant: filled() })
}

pub(crate) fn agent_interface() -> BoxedStrategy<AgentInterface> {
    fields!(AgentInterface {
        url: text(),
        protocol_binding: text(),
        tenant: filled(),
        protocol_version: text(),
    })
}

pub(crate) fn agent_provider() -> BoxedStrategy<AgentProvider> {
    fields!(AgentProvider { url: text(), organization: text() })
}

pub(crate) fn agent_extension() -> BoxedStrategy<AgentExtension> {
    fields!(AgentExtension {
        uri: text(),
        description: filled(),
        required: any::<bool>(),
        params: metadata(),
    })
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
        capabilities: agent_capabilities(),
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
    prop_oneof![
        api_key_security_scheme().prop_map(SecurityScheme::ApiKey),
        http_auth_security_scheme().prop_map(SecurityScheme::HttpAuth),
        oauth2_security_scheme().prop_map(SecurityScheme::OAuth2),
        open_id_connect_security_scheme().prop_map(SecurityScheme::OpenIdConnect),
        mutual_tls_security_scheme().prop_map(SecurityScheme::MutualTls),
    ]
    .boxed()
}

pub(crate) fn api_key_security_scheme() -> BoxedStrategy<ApiKeySecurityScheme> {
    fields!(ApiKeySecurityScheme { description: filled(), location: text(), name: text() })
}

pub(crate) fn http_auth_security_scheme() -> BoxedStrategy<HttpAuthSecurityScheme> {
    fields!(HttpAuthSecurityScheme { description: filled(), scheme: text(), bearer_format: filled() })
}

pub(crate) fn oauth2_security_scheme() -> BoxedStrategy<OAuth2SecurityScheme> {
    fields!(OAuth2SecurityScheme {
        description: filled(),
        flows: oauth_flows(),
        oauth2_metadata_url: filled()
    })
}

pub(crate) fn open_id_connect_security_scheme() -> BoxedStrategy<OpenIdConnectSecurityScheme> {
    fields!(OpenIdConnectSecurityScheme { description: filled(), open_id_connect_url: text() })
}

pub(crate) fn mutual_tls_security_scheme() -> BoxedStrategy<MutualTlsSecurityScheme> {
    fields!(MutualTlsSecurityScheme { description: filled() })
}

pub(crate) fn oauth_flows() -> BoxedStrategy<OAuthFlows> {
    prop_oneof![
        authorization_code_flow().prop_map(OAuthFlows::AuthorizationCode),
        client_credentials_flow().prop_map(OAuthFlows::ClientCredentials),
        implicit_flow().prop_map(OAuthFlows::Implicit),
        password_flow().prop_map(OAuthFlows::Password),
        device_code_flow().prop_map(OAuthFlows::DeviceCode),
    ]
    .boxed()
}

pub(crate) fn authorization_code_flow() -> BoxedStrategy<AuthorizationCodeOAuthFlow> {
    fields!(AuthorizationCodeOAuthFlow {
        authorization_url: text(),
        token_url: text(),
        refresh_url: filled(),
        scopes: map(text()),
        pkce_required: any::<bool>(),
    })
}

pub(crate) fn client_credentials_flow() -> BoxedStrategy<ClientCredentialsOAuthFlow> {
    fields!(ClientCredentialsOAuthFlow { token_url: text(), refresh_url: filled(), scopes: map(text()) })
}

pub(crate) fn device_code_flow() -> BoxedStrategy<DeviceCodeOAuthFlow> {
    fields!(DeviceCodeOAuthFlow {
        device_authorization_url: text(),
        token_url: text(),
        refresh_url: filled(),
        scopes: map(text()),
    })
}

pub(crate) fn implicit_flow() -> BoxedStrategy<ImplicitOAuthFlow> {
    fields!(ImplicitOAuthFlow { authorization_url: filled(), refresh_url: filled(), scopes: map(text()) })
}

pub(crate) fn password_flow() -> BoxedStrategy<PasswordOAuthFlow> {
    fields!(PasswordOAuthFlow { token_url: filled(), refresh_url: filled(), scopes: map(text()) })
}
