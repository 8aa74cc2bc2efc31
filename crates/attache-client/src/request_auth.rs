//! The credentials of one request, as the card requires them.

use attache_protocol::{
    AgentCard, ApiKeySecurityScheme, Operation, SecurityRequirement, SecurityScheme, StringList,
};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};

use crate::ClientError;
use crate::credentials::{
    Credential, CredentialRequest, Credentials, PresetCredentials, Secret, basic_pair, is_basic,
    secret_header,
};
use crate::http::{Http, display_url};

/// The agent that credentials are sent to.
#[derive(Clone, Copy)]
pub(crate) struct CredentialTarget<'a> {
    pub(crate) card: &'a AgentCard,
    /// The address of the agent.
    pub(crate) card_url: &'a Url,
    /// The URL that the credentials are sent to.
    pub(crate) url: &'a Url,
}

impl<'a> CredentialTarget<'a> {
    /// The request for the credential of a scheme; nothing if the card does not have the scheme.
    fn request(
        self,
        http: &'a Http,
        name: &'a str,
        scopes: Option<&'a StringList>,
    ) -> Option<CredentialRequest<'a>> {
        let Self { card, card_url, url } = self;
        let scheme = card.security_schemes.get(name)?;
        let is_other_origin = http.options.trusted_origins.check_credentials(card_url, url).is_err();
        Some(CredentialRequest { name, scheme, scopes: &scopes?.list, url, card_url, is_other_origin, http })
    }
}

/// What authenticates one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestAuth {
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) query: Vec<(String, Secret)>,
    cookies: Vec<String>,
    /// The credentials that were used, with the names of their schemes.
    used: Vec<(String, Credential)>,
}

impl RequestAuth {
    /// Collects what the card requires for an operation. Without any credentials it is empty: the agent decides whether it
    /// accepts that.
    pub(crate) async fn collect(
        http: &Http,
        target: CredentialTarget<'_>,
        operation: Operation,
    ) -> Result<Self, ClientError> {
        let Some(credentials) = http.options.credentials.as_deref() else { return Ok(Self::default()) };
        match credentials.preset(target.url) {
            PresetCredentials::FromCard => {}
            PresetCredentials::Anonymous => return Ok(Self::default()),
            PresetCredentials::Headers(headers) => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                return Ok(Self { headers, ..Self::default() });
            }
        }
        let sufficient = sufficient(target.card, operation);
        if sufficient.is_empty() {
            return Ok(Self::default());
        }
        for requirement in &sufficient {
            if let Some(auth) = Self::satisfy(http, credentials, target, requirement).await? {
                return Ok(auth);
            }
        }
        http.options.trusted_origins.check_credentials(target.card_url, target.url)?;
        Err(ClientError::Credentials {
            agent: target.card.name.clone(),
            wanted: sufficient.iter().map(names).collect(),
        })
    }

    /// Whether other credentials are available after the agent refused these.
    pub(crate) async fn refused(
        &self,
        http: &Http,
        target: CredentialTarget<'_>,
        operation: Operation,
    ) -> Result<bool, ClientError> {
        let Some(credentials) = http.options.credentials.as_deref() else { return Ok(false) };
        let sufficient = sufficient(target.card, operation);
        let is_used = |requirement: &&SecurityRequirement| {
            self.used.iter().all(|(name, _)| requirement.schemes.contains_key(name))
        };
        let Some(requirement) = sufficient.iter().find(is_used) else { return Ok(false) };
        let mut changed = false;
        for (name, credential) in &self.used {
            let Some(request) = target.request(http, name, requirement.schemes.get(name)) else { continue };
            changed |= credentials.refused(request, credential).await?;
        }
        Ok(changed)
    }

    async fn satisfy(
        http: &Http,
        credentials: &dyn Credentials,
        target: CredentialTarget<'_>,
        requirement: &SecurityRequirement,
    ) -> Result<Option<Self>, ClientError> {
        let mut auth = Self::default();
        for (name, scopes) in &requirement.schemes {
            let Some(request) = target.request(http, name, Some(scopes)) else { return Ok(None) };
            // The certificate was sent with the TLS handshake.
            if matches!(request.scheme, SecurityScheme::MutualTls(_)) && http.options.identity.is_some() {
                continue;
            }
            let Some(credential) = request.resolve(credentials).await? else { return Ok(None) };
            auth.add(request, &credential)?;
            auth.used.push((name.clone(), credential));
        }
        if !auth.cookies.is_empty() {
            let value = scheme_header(&auth.cookies.join("; "), "cookie")?;
            auth.headers.push((COOKIE, value));
        }
        Ok(Some(auth))
    }

    fn add(&mut self, request: CredentialRequest<'_>, credential: &Credential) -> Result<(), ClientError> {
        let authorization = |scheme: &str, value: &str| {
            let text = format!("{scheme} {value}");
            scheme_header(&text, request.name).map(|value| (AUTHORIZATION, value))
        };
        match (request.scheme, credential) {
            (SecurityScheme::HttpAuth(http), Credential::Basic { user, password })
                if is_basic(&http.scheme) =>
            {
                self.headers.push(authorization("Basic", &basic_pair(user, password.reveal()))?);
            }
            (SecurityScheme::HttpAuth(http), Credential::Token(token)) if !is_basic(&http.scheme) => {
                let bearer = http.scheme.is_empty() || http.scheme.eq_ignore_ascii_case("bearer");
                let scheme = if bearer { "Bearer" } else { http.scheme.as_str() };
                self.headers.push(authorization(scheme, token.reveal())?);
            }
            (SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_), Credential::Token(token)) => {
                self.headers.push(authorization("Bearer", token.reveal())?);
            }
            (SecurityScheme::ApiKey(scheme), Credential::ApiKey(key)) => {
                self.add_key(request, scheme, key)?
            }
            (
                SecurityScheme::HttpAuth(_)
                | SecurityScheme::OAuth2(_)
                | SecurityScheme::OpenIdConnect(_)
                | SecurityScheme::ApiKey(_)
                | SecurityScheme::MutualTls(_),
                _,
            ) => {
                let text = format!(
                    "the credential for the scheme `{}` has another type than the scheme",
                    request.name
                );
                return Err(ClientError::Invalid(text));
            }
        }
        Ok(())
    }

    fn add_key(
        &mut self,
        request: CredentialRequest<'_>,
        scheme: &ApiKeySecurityScheme,
        key: &Secret,
    ) -> Result<(), ClientError> {
        let unclear = |why: String| {
            let text =
                format!("the scheme `{}` of the card at `{}` {why}", request.name, display_url(request.url));
            ClientError::Protocol(text)
        };
        match scheme.location.to_ascii_lowercase().as_str() {
            _ if scheme.name.is_empty() => return Err(unclear("does not name its parameter".to_owned())),
            "header" => {
                let name = HeaderName::from_bytes(scheme.name.as_bytes())
                    .map_err(|_| unclear("has a name that is not a valid header name".to_owned()))?;
                self.headers.push((name, scheme_header(key.reveal(), request.name)?));
            }
            "query" => self.query.push((scheme.name.clone(), key.clone())),
            "cookie" => {
                // Either character would end the cookie and start another one.
                if scheme.name.contains(['=', ';']) || key.reveal().contains(';') {
                    return Err(unclear("has a name or key that is not valid in a cookie".to_owned()));
                }
                self.cookies.push(format!("{}={}", scheme.name, key.reveal()));
            }
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(unclear(format!(
                    "has its key in `{other}`, expected one of: header, query, cookie"
                )));
            }
        }
        Ok(())
    }
}

/// The sufficient requirements for an operation. The extended card requires an authenticated caller, even if other operations
/// do not.
fn sufficient(card: &AgentCard, operation: Operation) -> Vec<SecurityRequirement> {
    if operation != Operation::GetExtendedAgentCard || !card.security_requirements.is_empty() {
        return card.security_requirements.clone();
    }
    let alone = |name: &String| SecurityRequirement { schemes: [(name.clone(), Default::default())].into() };
    card.security_schemes.keys().map(alone).collect()
}

fn names(requirement: &SecurityRequirement) -> String {
    requirement.schemes.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" with ")
}

fn scheme_header(text: &str, scheme: &str) -> Result<HeaderValue, ClientError> {
    secret_header(text, format_args!("credential for the scheme `{scheme}`"))
}

#[cfg(test)]
mod tests {
    use attache_protocol::dialect::read_card;
    use serde_json::{Value, json};

    use super::*;
    use crate::{ClientOptions, SchemeCredentials};

    fn card(requirements: &Value) -> AgentCard {
        let card = json!({
            "name": "Safe",
            "supportedInterfaces": [{}],
            "securitySchemes": {
                "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
                "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
                "custom": {"httpAuthSecurityScheme": {"scheme": "DPoP"}},
                "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
                "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
                "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}},
                "cookie2": {"apiKeySecurityScheme": {"location": "cookie", "name": "second"}},
                "nowhere": {"apiKeySecurityScheme": {"location": "body", "name": "k"}},
                "oauth": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://t"}}}},
                "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o"}},
                "tls": {"mtlsSecurityScheme": {}},
            },
            "securityRequirements": requirements,
        });
        read_card(card.to_string().as_bytes()).unwrap()
    }

    /// What is sent to an agent with these requirements, one line each.
    async fn sent(
        keys: &SchemeCredentials,
        requirements: Value,
        operation: Operation,
    ) -> Result<Vec<String>, ClientError> {
        let url = "https://a.example/rpc".parse().unwrap();
        let http = Http::new(ClientOptions::default().with_credentials(keys.clone())).unwrap();
        let target = CredentialTarget { card: &card(&requirements), card_url: &url, url: &url };
        let auth = RequestAuth::collect(&http, target, operation).await?;
        let headers = auth.headers.iter().map(|(name, value)| {
            assert!(value.is_sensitive());
            format!("{name}: {}", value.to_str().unwrap())
        });
        let query = auth.query.iter().map(|(name, value)| format!("?{name}={}", value.reveal()));
        Ok(headers.chain(query).collect())
    }

    fn all(names: &[&str]) -> Value {
        let schemes: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({ "schemes": schemes })
    }

    fn keys() -> SchemeCredentials {
        SchemeCredentials::new().token("t-1").basic("ann", "p:w").api_key("k-1")
    }

    #[tokio::test]
    async fn a_credential_goes_where_its_scheme_says() {
        for (scheme, expected) in [
            ("bearer", "authorization: Bearer t-1"),
            ("custom", "authorization: DPoP t-1"),
            ("oauth", "authorization: Bearer t-1"),
            ("openid", "authorization: Bearer t-1"),
            ("basic", "authorization: Basic YW5uOnA6dw=="),
            ("header", "x-key: k-1"),
            ("query", "?key=k-1"),
            ("cookie", "cookie: session=k-1"),
        ] {
            let sent = sent(&keys(), json!([all(&[scheme])]), Operation::SendMessage).await.unwrap();
            assert_eq!(sent, [expected], "{scheme}");
        }
        let both =
            sent(&keys(), json!([all(&["cookie", "cookie2", "bearer"])]), Operation::GetTask).await.unwrap();
        assert_eq!(both, ["authorization: Bearer t-1", "cookie: session=k-1; second=k-1"]);
    }

    #[tokio::test]
    async fn the_first_requirement_that_can_be_met_is_met_and_nothing_else_is_sent() {
        let key = SchemeCredentials::new().api_key("k-1");
        let requirements =
            json!([all(&["tls"]), all(&["header", "bearer"]), all(&["query"]), all(&["cookie"])]);
        assert_eq!(sent(&key, requirements, Operation::SendMessage).await.unwrap(), ["?key=k-1"]);
        assert!(sent(&keys(), json!([]), Operation::SendMessage).await.unwrap().is_empty());
        assert!(sent(&keys(), json!([all(&[])]), Operation::SendMessage).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_asked_for_and_not_there_is_named() {
        let requirements = json!([all(&["basic", "header"]), all(&["unheard-of"])]);
        let error = sent(&SchemeCredentials::new().token("t-1"), requirements, Operation::SendMessage)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the agent `Safe` requires credentials that are not configured: `basic` with `header`, or `unheard-of`"
        );
        let error = sent(&keys(), json!([all(&["nowhere"])]), Operation::SendMessage).await.unwrap_err();
        assert!(error.to_string().contains("expected one of: header, query, cookie"), "{error}");
    }

    #[tokio::test]
    async fn a_credential_for_one_scheme_is_for_no_other() {
        let keys = keys().named("bearer", Credential::Token("t-2".into()));
        let bearer = sent(&keys, json!([all(&["bearer"])]), Operation::SendMessage).await.unwrap();
        assert_eq!(bearer, ["authorization: Bearer t-2"]);
        let oauth = sent(&keys, json!([all(&["oauth"])]), Operation::SendMessage).await.unwrap();
        assert_eq!(oauth, ["authorization: Bearer t-1"]);
    }

    #[tokio::test]
    async fn the_extended_card_is_requested_with_credentials_even_if_other_operations_need_none() {
        let extended = Operation::GetExtendedAgentCard;
        assert_eq!(
            sent(&SchemeCredentials::new().api_key("k-1"), json!([]), extended).await.unwrap(),
            ["cookie: session=k-1"]
        );
    }

    #[tokio::test]
    async fn secrets_are_not_shown() {
        let shown = format!("{:?}", keys().named("a", Credential::ApiKey("k-2".into())));
        for secret in ["t-1", "p:w", "k-1", "k-2"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let error =
            sent(&SchemeCredentials::new().token("t\n1"), json!([all(&["bearer"])]), Operation::GetTask)
                .await;
        assert!(!error.unwrap_err().to_string().contains("t\n1"));
    }
}
