//! The messages about an agent that are the same in every version. Later versions added fields, which readers of earlier versions
//! ignore.

use std::collections::BTreeMap;

use prost::{Message as ProstMessage, Oneof};

use crate::convert::Encoded;

// The card of an agent.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentProvider {
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(string, tag = "2")]
    pub organization: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentCapabilities {
    #[prost(bool, optional, tag = "1")]
    pub streaming: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub push_notifications: Option<bool>,
    #[prost(message, repeated, tag = "3")]
    pub extensions: Vec<AgentExtension>,
    #[prost(bool, optional, tag = "4")]
    pub extended_agent_card: Option<bool>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentExtension {
    #[prost(string, tag = "1")]
    pub uri: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(bool, tag = "3")]
    pub required: bool,
    #[prost(bytes, optional, tag = "4")]
    pub params: Option<Encoded>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentSkill {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub description: String,
    #[prost(string, repeated, tag = "4")]
    pub tags: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub examples: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub input_modes: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub output_modes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    pub security_requirements: Vec<SecurityRequirement>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AgentCardSignature {
    #[prost(string, tag = "1")]
    pub protected: String,
    #[prost(string, tag = "2")]
    pub signature: String,
    #[prost(bytes, optional, tag = "3")]
    pub header: Option<Encoded>,
}

// The authentication schemes of an agent.

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SecurityRequirement {
    #[prost(btree_map = "string, message", tag = "1")]
    pub schemes: BTreeMap<String, StringList>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub list: Vec<String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct SecurityScheme {
    #[prost(oneof = "Scheme", tags = "1, 2, 3, 4, 5")]
    pub scheme: Option<Scheme>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Scheme {
    #[prost(message, tag = "1")]
    ApiKey(ApiKeySecurityScheme),
    #[prost(message, tag = "2")]
    HttpAuth(HttpAuthSecurityScheme),
    #[prost(message, tag = "3")]
    OAuth2(OAuth2SecurityScheme),
    #[prost(message, tag = "4")]
    OpenIdConnect(OpenIdConnectSecurityScheme),
    #[prost(message, tag = "5")]
    MutualTls(MutualTlsSecurityScheme),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ApiKeySecurityScheme {
    #[prost(string, tag = "1")]
    pub description: String,
    #[prost(string, tag = "2")]
    pub location: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct HttpAuthSecurityScheme {
    #[prost(string, tag = "1")]
    pub description: String,
    #[prost(string, tag = "2")]
    pub scheme: String,
    #[prost(string, tag = "3")]
    pub bearer_format: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct OAuth2SecurityScheme {
    #[prost(string, tag = "1")]
    pub description: String,
    #[prost(message, optional, tag = "2")]
    pub flows: Option<OAuthFlows>,
    #[prost(string, tag = "3")]
    pub oauth2_metadata_url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct OpenIdConnectSecurityScheme {
    #[prost(string, tag = "1")]
    pub description: String,
    #[prost(string, tag = "2")]
    pub open_id_connect_url: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct MutualTlsSecurityScheme {
    #[prost(string, tag = "1")]
    pub description: String,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct OAuthFlows {
    #[prost(oneof = "Flow", tags = "1, 2, 3, 4, 5")]
    pub flow: Option<Flow>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Flow {
    #[prost(message, tag = "1")]
    AuthorizationCode(AuthorizationCodeOAuthFlow),
    #[prost(message, tag = "2")]
    ClientCredentials(ClientCredentialsOAuthFlow),
    /// Deprecated.
    #[prost(message, tag = "3")]
    Implicit(ImplicitOAuthFlow),
    /// Deprecated.
    #[prost(message, tag = "4")]
    Password(PasswordOAuthFlow),
    #[prost(message, tag = "5")]
    DeviceCode(DeviceCodeOAuthFlow),
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct AuthorizationCodeOAuthFlow {
    #[prost(string, tag = "1")]
    pub authorization_url: String,
    #[prost(string, tag = "2")]
    pub token_url: String,
    #[prost(string, tag = "3")]
    pub refresh_url: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub scopes: BTreeMap<String, String>,
    #[prost(bool, tag = "5")]
    pub pkce_required: bool,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ClientCredentialsOAuthFlow {
    #[prost(string, tag = "1")]
    pub token_url: String,
    #[prost(string, tag = "2")]
    pub refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct ImplicitOAuthFlow {
    #[prost(string, tag = "1")]
    pub authorization_url: String,
    #[prost(string, tag = "2")]
    pub refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct PasswordOAuthFlow {
    #[prost(string, tag = "1")]
    pub token_url: String,
    #[prost(string, tag = "2")]
    pub refresh_url: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub scopes: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, ProstMessage)]
pub struct DeviceCodeOAuthFlow {
    #[prost(string, tag = "1")]
    pub device_authorization_url: String,
    #[prost(string, tag = "2")]
    pub token_url: String,
    #[prost(string, tag = "3")]
    pub refresh_url: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub scopes: BTreeMap<String, String>,
}
