//! Converts the messages about an agent that are the same in every version.

#[expect(missing_docs, reason = "a message and its fields are what those of the same name in the model are")]
pub(crate) mod proto;

use attache_protocol::*;

use super::convert::{ConvertError, ProtoConvert, messages, oneofs, required};

messages! {
    AgentProvider { url, organization }
    AgentCapabilities { streaming, push_notifications, extensions, extended_agent_card }
    AgentExtension { uri, description, required, params }
    AgentSkill { id, name, description, tags, examples, input_modes, output_modes, security_requirements }
    AgentCardSignature { protected, signature, header }

    SecurityRequirement { schemes }
    StringList { list }
    ApiKeySecurityScheme { description, location, name }
    HttpAuthSecurityScheme { description, scheme, bearer_format }
    OAuth2SecurityScheme { description, flows, oauth2_metadata_url }
    OpenIdConnectSecurityScheme { description, open_id_connect_url }
    MutualTlsSecurityScheme { description }
    AuthorizationCodeOAuthFlow { authorization_url, token_url, refresh_url, scopes, pkce_required }
    ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }
    DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes }
    ImplicitOAuthFlow { authorization_url, refresh_url, scopes }
    PasswordOAuthFlow { token_url, refresh_url, scopes }
}

oneofs! {
    SecurityScheme {
        scheme: Scheme {
            ApiKey = "apiKeySecurityScheme",
            HttpAuth = "httpAuthSecurityScheme",
            OAuth2 = "oauth2SecurityScheme",
            OpenIdConnect = "openIdConnectSecurityScheme",
            MutualTls = "mtlsSecurityScheme"
        }
    }
    OAuthFlows {
        flow: Flow {
            AuthorizationCode = "authorizationCode",
            ClientCredentials = "clientCredentials",
            Implicit = "implicit",
            Password = "password",
            DeviceCode = "deviceCode"
        }
    }
}

required!(AgentCapabilities, OAuthFlows);
