//! Random values of the model that every version can send.

use std::collections::BTreeMap;
use std::fmt::Debug;

use attache_protocol::*;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

/// A text that is not empty, so that protobuf can distinguish it from an absent one.
pub(crate) fn non_empty() -> impl Strategy<Value = String> {
    "[a-z é\"\n]{1,4}"
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), non_empty()]
}

pub(crate) fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

pub(crate) fn id<T: From<String> + Debug>() -> impl Strategy<Value = T> {
    non_empty().prop_map(T::from)
}

/// Any JSON value except `null`, which the JSON of `a2a-pb` reads as a value without a kind.
pub(crate) fn value() -> impl Strategy<Value = serde_json::Value> {
    const EXACT: i64 = 1 << 53;
    let number = any::<f64>().prop_filter("neither finite nor a fraction", |n| n.fract() != 0.0);
    let leaf = prop_oneof![
        any::<bool>().prop_map(|v| json!(v)),
        number.prop_map(|v| json!(v)),
        (-EXACT..=EXACT).prop_map(|v| json!(v)),
        text().prop_map(|v| json!(v)),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|v| json!(v)),
            btree_map(text(), inner, 0..3).prop_map(|v| json!(v)),
        ]
    })
}

pub(crate) fn object() -> impl Strategy<Value = Option<JsonObject>> {
    of(btree_map(text(), value(), 0..3).prop_map(|members| JsonObject::new(&members).unwrap()))
}

pub(crate) fn time() -> impl Strategy<Value = Timestamp> {
    let seconds = -62_135_596_800..=253_402_207_199_i64;
    (seconds, 0..1_000_000_000).prop_map(|(s, n)| Timestamp::new(s, n).unwrap())
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        text().prop_map(Content::Text),
        vec(any::<u8>(), 0..4).prop_map(Content::Raw),
        text().prop_map(Content::Url),
        value().prop_map(|v| Content::Data(Json::new(&v).unwrap())),
    ];
    (content, of(non_empty()), of(non_empty()), object()).prop_map(
        |(content, filename, media_type, metadata)| Part { content, filename, media_type, metadata },
    )
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let ids = (text(), of(id()), of(id()), vec(id(), 0..3));
    (ids, select(Role::ALL), vec(part(), 0..3), object(), texts()).prop_map(
        |((message_id, context_id, task_id, reference_task_ids), role, parts, metadata, extensions)| {
            Message { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids }
        },
    )
}

pub(crate) fn status() -> impl Strategy<Value = TaskStatus> {
    (select(TaskState::ALL), of(message().prop_map(Box::new)), of(time()))
        .prop_map(|(state, message, timestamp)| TaskStatus { state, message, timestamp })
}

pub(crate) fn artifact() -> impl Strategy<Value = Artifact> {
    (text(), of(non_empty()), of(non_empty()), vec(part(), 0..3), object(), texts()).prop_map(
        |(artifact_id, name, description, parts, metadata, extensions)| Artifact {
            artifact_id,
            name,
            description,
            parts,
            metadata,
            extensions,
        },
    )
}

/// Tasks and events have no generation, since `a2a-pb` only has protocol 1.0.
pub(crate) fn task() -> impl Strategy<Value = Task> {
    (id(), of(id()), status(), vec(artifact(), 0..3), vec(message(), 0..3), object()).prop_map(
        |(id, context_id, status, artifacts, history, metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
            generation: None,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = StreamResponse> {
    let status_update =
        (id(), id(), status(), object()).prop_map(|(task_id, context_id, status, metadata)| {
            TaskStatusUpdateEvent { task_id, context_id, status, metadata, generation: None }
        });
    let artifact_update = (id(), id(), artifact(), any::<[bool; 2]>(), object()).prop_map(
        |(task_id, context_id, artifact, [append, last_chunk], metadata)| TaskArtifactUpdateEvent {
            task_id,
            context_id,
            artifact,
            append,
            last_chunk,
            metadata,
            generation: None,
        },
    );
    prop_oneof![
        task().prop_map(StreamResponse::Task),
        message().prop_map(StreamResponse::Message),
        status_update.prop_map(StreamResponse::StatusUpdate),
        artifact_update.prop_map(StreamResponse::ArtifactUpdate),
    ]
}

pub(crate) fn webhook() -> impl Strategy<Value = TaskPushNotificationConfig> {
    let authentication = (text(), of(non_empty()))
        .prop_map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials });
    (of(non_empty()), of(non_empty()), of(id()), text(), of(non_empty()), of(authentication)).prop_map(
        |(tenant, id, task_id, url, token, authentication)| TaskPushNotificationConfig {
            tenant,
            id,
            task_id,
            url,
            token,
            authentication,
        },
    )
}

pub(crate) fn send() -> impl Strategy<Value = SendMessageRequest> {
    let configuration = (texts(), of(webhook()), of(any::<i32>()), any::<bool>()).prop_map(
        |(accepted_output_modes, task_push_notification_config, history_length, return_immediately)| {
            SendMessageConfiguration {
                accepted_output_modes,
                task_push_notification_config: task_push_notification_config.map(Box::new),
                history_length,
                return_immediately,
                if_generation_match: None,
            }
        },
    );
    (of(non_empty()), message(), of(configuration), object()).prop_map(
        |(tenant, message, configuration, metadata)| SendMessageRequest {
            tenant,
            message,
            configuration,
            metadata,
        },
    )
}

pub(crate) fn list() -> impl Strategy<Value = ListTasksRequest> {
    let page = (of(any::<i32>()), of(non_empty()), of(any::<i32>()));
    (of(non_empty()), of(id()), select(TaskState::ALL), page, of(time()), any::<bool>()).prop_map(
        |(tenant, context_id, status, page, status_timestamp_after, include_artifacts)| {
            let (page_size, page_token, history_length) = page;
            ListTasksRequest {
                tenant,
                context_id,
                status,
                page_size,
                page_token,
                history_length,
                status_timestamp_after,
                include_artifacts,
            }
        },
    )
}

pub(crate) fn scopes() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

pub(crate) fn flows() -> impl Strategy<Value = OAuthFlows> {
    (0..5, text(), text(), of(non_empty()), of(non_empty()), scopes(), any::<bool>()).prop_map(
        |(flow, authorization_url, token_url, optional_url, refresh_url, scopes, pkce_required)| match flow {
            0 => OAuthFlows::AuthorizationCode(AuthorizationCodeOAuthFlow {
                authorization_url,
                token_url,
                refresh_url,
                scopes,
                pkce_required,
            }),
            1 => OAuthFlows::ClientCredentials(ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }),
            2 => OAuthFlows::Implicit(ImplicitOAuthFlow {
                authorization_url: optional_url,
                refresh_url,
                scopes,
            }),
            3 => OAuthFlows::Password(PasswordOAuthFlow { token_url: optional_url, refresh_url, scopes }),
            _ => OAuthFlows::DeviceCode(DeviceCodeOAuthFlow {
                device_authorization_url: authorization_url,
                token_url,
                refresh_url,
                scopes,
            }),
        },
    )
}

pub(crate) fn scheme() -> impl Strategy<Value = SecurityScheme> {
    (0..5, of(non_empty()), text(), text(), of(non_empty()), flows()).prop_map(
        |(scheme, description, one, other, optional, flows)| match scheme {
            0 => SecurityScheme::ApiKey(ApiKeySecurityScheme { description, location: one, name: other }),
            1 => SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                description,
                scheme: one,
                bearer_format: optional,
            }),
            2 => SecurityScheme::OAuth2(OAuth2SecurityScheme {
                description,
                flows,
                oauth2_metadata_url: optional,
            }),
            3 => SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                description,
                open_id_connect_url: one,
            }),
            _ => SecurityScheme::MutualTls(MutualTlsSecurityScheme { description }),
        },
    )
}

pub(crate) fn requirements() -> impl Strategy<Value = Vec<SecurityRequirement>> {
    let scopes = texts().prop_map(|list| StringList { list });
    vec(btree_map(text(), scopes, 0..3).prop_map(|schemes| SecurityRequirement { schemes }), 0..3)
}

pub(crate) fn skill() -> impl Strategy<Value = AgentSkill> {
    (text(), text(), text(), texts(), texts(), texts(), texts(), requirements()).prop_map(
        |(id, name, description, tags, examples, input_modes, output_modes, security_requirements)| {
            AgentSkill {
                id,
                name,
                description,
                tags,
                examples,
                input_modes,
                output_modes,
                security_requirements,
            }
        },
    )
}

pub(crate) fn capabilities() -> impl Strategy<Value = AgentCapabilities> {
    let extension = (text(), of(non_empty()), any::<bool>(), object()).prop_map(
        |(uri, description, required, params)| AgentExtension { uri, description, required, params },
    );
    (any::<[Option<bool>; 3]>(), vec(extension, 0..3)).prop_map(
        |([streaming, push_notifications, extended_agent_card], extensions)| AgentCapabilities {
            streaming,
            push_notifications,
            extensions,
            extended_agent_card,
        },
    )
}

pub(crate) fn card() -> impl Strategy<Value = AgentCard> {
    let interface = (text(), text(), of(non_empty()), text()).prop_map(
        |(url, protocol_binding, tenant, protocol_version)| AgentInterface {
            url,
            protocol_binding,
            tenant,
            protocol_version,
        },
    );
    let provider = (text(), text()).prop_map(|(url, organization)| AgentProvider { url, organization });
    let signature = (text(), text(), object())
        .prop_map(|(protected, signature, header)| AgentCardSignature { protected, signature, header });
    let about = (text(), text(), text(), of(text()), of(text()), of(provider));
    let use_of_it = (vec(interface, 0..3), capabilities(), texts(), texts(), vec(skill(), 0..3));
    let security = (btree_map(text(), scheme(), 0..4), requirements(), vec(signature, 0..3));
    (about, use_of_it, security).prop_map(|(about, use_of_it, security)| {
        let (name, description, version, documentation_url, icon_url, provider) = about;
        let (supported_interfaces, capabilities, default_input_modes, default_output_modes, skills) =
            use_of_it;
        let (security_schemes, security_requirements, signatures) = security;
        AgentCard {
            name,
            description,
            supported_interfaces,
            provider,
            version,
            documentation_url,
            capabilities,
            security_schemes,
            security_requirements,
            default_input_modes,
            default_output_modes,
            skills,
            signatures,
            icon_url,
        }
    })
}
