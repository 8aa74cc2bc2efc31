//! The authentication schemes of an agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::lenient;

/// Schemes that a caller must satisfy together. In a list of requirements, one entry suffices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecurityRequirement {
    /// The names of the schemes, each with the required scopes.
    #[serde(deserialize_with = "lenient::named_objects")]
    pub schemes: BTreeMap<String, StringList>,
}

impl SecurityRequirement {
    /// A placeholder for all schemes of a server. The server replaces it with their names.
    pub const ANY_SCHEME: &str = "*";
}

/// A list of strings, as the value of a map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StringList {
    /// The strings.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<String>,
}

oneof! {
    /// An authentication scheme.
    #[derive(Debug, Clone, PartialEq)]
    pub enum SecurityScheme {
        /// A key in a header, the query or a cookie.
        ApiKey(ApiKeySecurityScheme) = "apiKeySecurityScheme" / "api_key_security_scheme",
        /// An HTTP authentication scheme, such as `Bearer`.
        HttpAuth(HttpAuthSecurityScheme) = "httpAuthSecurityScheme" / "http_auth_security_scheme",
        /// OAuth 2.0.
        OAuth2(OAuth2SecurityScheme) = "oauth2SecurityScheme" / "oauth2_security_scheme",
        /// OpenID Connect.
        OpenIdConnect(OpenIdConnectSecurityScheme) = "openIdConnectSecurityScheme" / "open_id_connect_security_scheme",
        /// A client certificate.
        MutualTls(MutualTlsSecurityScheme) = "mtlsSecurityScheme" / "mtls_security_scheme",
    }
}

/// A key in a header, the query or a cookie.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiKeySecurityScheme {
    /// A description for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `query`, `header` or `cookie`.
    #[serde(deserialize_with = "lenient::null")]
    pub location: String,
    /// The name of the header, parameter or cookie.
    #[serde(deserialize_with = "lenient::null")]
    pub name: String,
}

/// An HTTP authentication scheme.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpAuthSecurityScheme {
    /// A description for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The name of the scheme, such as `Bearer`.
    #[serde(deserialize_with = "lenient::null")]
    pub scheme: String,
    /// The format of a bearer token, such as `JWT`.
    #[serde(
        alias = "bearer_format",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub bearer_format: Option<String>,
}

/// OAuth 2.0 with one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2SecurityScheme {
    /// A description for people.
    #[serde(default, deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The flow.
    pub flows: OAuthFlows,
    /// The URL of the authorization server's metadata (RFC 8414).
    #[serde(
        default,
        rename = "oauth2MetadataUrl",
        alias = "oauth2_metadata_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub oauth2_metadata_url: Option<String>,
}

/// OpenID Connect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenIdConnectSecurityScheme {
    /// A description for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The URL of the provider's metadata.
    #[serde(alias = "open_id_connect_url", deserialize_with = "lenient::null")]
    pub open_id_connect_url: String,
}

/// A client certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutualTlsSecurityScheme {
    /// A description for people.
    #[serde(deserialize_with = "lenient::string", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

oneof! {
    /// One OAuth 2.0 flow.
    #[derive(Debug, Clone, PartialEq)]
    pub enum OAuthFlows {
        /// Authorization code, for a person with a browser.
        AuthorizationCode(AuthorizationCodeOAuthFlow) = "authorizationCode" / "authorization_code",
        /// Client credentials, for a program.
        ClientCredentials(ClientCredentialsOAuthFlow) = "clientCredentials" / "client_credentials",
        /// Implicit. Deprecated.
        Implicit(ImplicitOAuthFlow) = "implicit",
        /// Resource owner password. Deprecated.
        Password(PasswordOAuthFlow) = "password",
        /// Device code, for a person with another device (RFC 8628).
        DeviceCode(DeviceCodeOAuthFlow) = "deviceCode" / "device_code",
    }
}

/// The authorization code flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationCodeOAuthFlow {
    /// The authorization endpoint.
    #[serde(alias = "authorization_url", deserialize_with = "lenient::null")]
    pub authorization_url: String,
    /// The token endpoint.
    #[serde(alias = "token_url", deserialize_with = "lenient::null")]
    pub token_url: String,
    /// The endpoint that renews a token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh_url: Option<String>,
    /// The available scopes, with a description of each.
    #[serde(deserialize_with = "lenient::null")]
    pub scopes: BTreeMap<String, String>,
    /// Whether PKCE must be used.
    #[serde(
        alias = "pkce_required",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub pkce_required: bool,
}

/// The client credentials flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientCredentialsOAuthFlow {
    /// The token endpoint.
    #[serde(alias = "token_url", deserialize_with = "lenient::null")]
    pub token_url: String,
    /// The endpoint that renews a token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh_url: Option<String>,
    /// The available scopes, with a description of each.
    #[serde(deserialize_with = "lenient::null")]
    pub scopes: BTreeMap<String, String>,
}

/// The device code flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceCodeOAuthFlow {
    /// The endpoint that issues the device code.
    #[serde(alias = "device_authorization_url", deserialize_with = "lenient::null")]
    pub device_authorization_url: String,
    /// The token endpoint.
    #[serde(alias = "token_url", deserialize_with = "lenient::null")]
    pub token_url: String,
    /// The endpoint that renews a token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh_url: Option<String>,
    /// The available scopes, with a description of each.
    #[serde(deserialize_with = "lenient::null")]
    pub scopes: BTreeMap<String, String>,
}

/// The implicit flow. Deprecated, but still supported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImplicitOAuthFlow {
    /// The authorization endpoint.
    #[serde(
        alias = "authorization_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub authorization_url: Option<String>,
    /// The endpoint that renews a token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh_url: Option<String>,
    /// The available scopes, with a description of each.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes: BTreeMap<String, String>,
}

/// The resource owner password flow. Deprecated, but still supported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PasswordOAuthFlow {
    /// The token endpoint.
    #[serde(
        alias = "token_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub token_url: Option<String>,
    /// The endpoint that renews a token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "lenient::string",
        skip_serializing_if = "Option::is_none"
    )]
    pub refresh_url: Option<String>,
    /// The available scopes, with a description of each.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes: BTreeMap<String, String>,
}
