//! Where callers of an agent log in: what its card offers, and the metadata of the authorization server.

use attache_protocol::{AgentCard, OAuthFlows, SecurityScheme};
use reqwest::header::ACCEPT;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use url::Origin;

use super::error::LoginError;
use crate::ClientError;
use crate::http::{Http, is_here, place, within};

/// How a client authenticates at an authorization server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flow {
    /// A person logs in with a browser on this machine.
    Browser,
    /// A person logs in with a browser anywhere and enters a code.
    Device,
    /// A program logs in with its secret.
    ClientCredentials,
}

/// A way to log in that an agent's card offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOffer {
    scheme: String,
    flow: Option<Flow>,
    /// The URL of the server's metadata.
    described: Option<String>,
    endpoints: Endpoints,
    pub(super) scopes: Vec<String>,
}

/// The endpoints that a card names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Endpoints {
    token: Option<String>,
    refresh: Option<String>,
    authorize: Option<String>,
    device: Option<String>,
}

impl LoginOffer {
    /// The login methods of a card, those that it requires first.
    pub fn of(card: &AgentCard) -> Vec<Self> {
        let mut offers: Vec<Self> = Vec::new();
        let asked = card.security_requirements.iter().flat_map(|requirement| &requirement.schemes);
        let asked = asked.map(|(name, scopes)| (name, scopes.list.as_slice()));
        let known = card.security_schemes.keys().map(|name| (name, [].as_slice()));
        for (name, scopes) in asked.chain(known) {
            let scheme = card.security_schemes.get(name);
            let is_new = !offers.iter().any(|offer| offer.scheme == *name);
            offers.extend(scheme.filter(|_| is_new).and_then(|scheme| Self::of_scheme(name, scheme, scopes)));
        }
        offers
    }

    /// The login method of a scheme; nothing if the scheme is not supported.
    pub(super) fn of_scheme(name: &str, scheme: &SecurityScheme, scopes: &[String]) -> Option<Self> {
        let given = |url: &String| Some(url.clone()).filter(|url| !url.is_empty());
        let (flow, described, endpoints) = match scheme {
            SecurityScheme::OpenIdConnect(scheme) => {
                (None, given(&scheme.open_id_connect_url), Endpoints::default())
            }
            SecurityScheme::OAuth2(scheme) => {
                let (flow, endpoints) = match &scheme.flows {
                    OAuthFlows::AuthorizationCode(flow) => {
                        let (token, authorize) = (given(&flow.token_url), given(&flow.authorization_url));
                        let refresh = flow.refresh_url.clone();
                        (Flow::Browser, Endpoints { token, authorize, refresh, device: None })
                    }
                    OAuthFlows::ClientCredentials(flow) => {
                        let (token, refresh) = (given(&flow.token_url), flow.refresh_url.clone());
                        (Flow::ClientCredentials, Endpoints { token, refresh, ..Endpoints::default() })
                    }
                    OAuthFlows::DeviceCode(flow) => {
                        let (token, device) = (given(&flow.token_url), given(&flow.device_authorization_url));
                        let refresh = flow.refresh_url.clone();
                        (Flow::Device, Endpoints { token, device, refresh, authorize: None })
                    }
                    // OAuth has removed both: one shows the token to the browser, the other shows the password to the client.
                    OAuthFlows::Implicit(_) | OAuthFlows::Password(_) => return None,
                };
                (Some(flow), scheme.oauth2_metadata_url.as_ref().and_then(given), endpoints)
            }
            SecurityScheme::ApiKey(_) | SecurityScheme::HttpAuth(_) | SecurityScheme::MutualTls(_) => {
                return None;
            }
        };
        if described.is_none() && endpoints.token.is_none() {
            return None;
        }
        let mut scopes = scopes.to_vec();
        // Without this scope a server does not use OpenID Connect.
        if matches!(scheme, SecurityScheme::OpenIdConnect(_)) {
            scopes.push("openid".to_owned());
        }
        Some(Self { scheme: name.to_owned(), flow, described, endpoints, scopes })
    }

    /// The name of the scheme in the card.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The flow that the card requires. With OpenID Connect the client may choose.
    pub fn flow(&self) -> Option<Flow> {
        self.flow
    }

    /// The servers that a login uses, according to the card: scheme, host and port of each. The user
    /// [agrees](crate::OAuth::server) to these.
    pub fn servers(&self) -> Vec<String> {
        let mut servers: Vec<String> = Vec::new();
        for url in self.addresses().filter_map(|url| Url::parse(url).ok()) {
            let server = url.origin().ascii_serialization();
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }

    /// The URL of the metadata, or all endpoints if there is none.
    fn addresses(&self) -> impl Iterator<Item = &String> {
        let Endpoints { token, refresh, authorize, device } = &self.endpoints;
        let endpoints = [token, authorize, device, refresh].into_iter().flatten();
        let described = self.described.iter();
        described.chain(endpoints.filter(|_| self.described.is_none()))
    }

    /// Identifies the server in the key of its tokens.
    pub(super) fn place(&self) -> String {
        self.described.clone().or_else(|| self.endpoints.token.clone()).unwrap_or_default()
    }

    /// Whether the user has agreed to every server that the card names.
    pub(super) fn is_agreed(&self, agreed: &[Origin]) -> bool {
        let parsed: Vec<_> = self.addresses().map(|url| Url::parse(url)).collect();
        parsed.iter().all(|url| url.as_ref().is_ok_and(|url| agreed.contains(&url.origin())))
    }

    /// Determines the endpoints of the server.
    pub(super) async fn resolve(&self, http: &Http, agreed: &[Origin]) -> Result<Server, ClientError> {
        let name = self.servers().into_iter().next().unwrap_or_else(|| self.place());
        if !self.is_agreed(agreed) {
            let is_agreed =
                |server: &&String| Url::parse(server).is_ok_and(|server| agreed.contains(&server.origin()));
            let servers = self.servers();
            let other = servers.iter().find(|server| !is_agreed(server)).unwrap_or(&name);
            return Err(LoginError::NotAgreed.at(other));
        }
        match &self.described {
            Some(url) => {
                let described = describe(http, &name, url).await?;
                Server::from_description(http, name, described)
            }
            None => Server::from_card(http, name, &self.endpoints),
        }
    }
}

/// An authorization server and its endpoints.
#[derive(Debug)]
pub(super) struct Server {
    /// Its name in errors.
    pub(super) name: String,
    pub(super) token: Url,
    pub(super) refresh: Url,
    pub(super) authorize: Option<Url>,
    pub(super) device: Option<Url>,
    pub(super) revoke: Option<Url>,
    /// Its issuer, if its metadata states one.
    pub(super) issuer: Option<String>,
    /// Whether it sends its issuer with redirects.
    pub(super) names_itself: bool,
    /// Whether it supports the scope that requests refresh tokens.
    pub(super) offline: bool,
    /// Whether it requires the secret in the request body.
    pub(super) secret_in_body: bool,
}

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Deserialize)]
struct Description {
    issuer: String,
    token_endpoint: String,
    authorization_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Finds the server that issued tokens, by the [server key](LoginMethod::server_key) of the tokens. Its metadata is at that
/// URL, or at the well-known URLs of a server with that token endpoint.
pub(super) async fn server_of(
    http: &Http,
    place: &str,
    agreed: &[Origin],
) -> Result<Option<Server>, ClientError> {
    let url = checked(http, place, place)?;
    let name = url.origin().ascii_serialization();
    if !agreed.contains(&url.origin()) {
        return Err(LoginError::NotAgreed.at(&name));
    }
    if url.path().contains("/.well-known/") {
        let described = describe(http, &name, place).await?;
        return Server::from_description(http, name, described).map(Some);
    }
    for usual in WELL_KNOWN {
        let described = match describe(http, &name, &format!("{name}/.well-known/{usual}")).await {
            Ok(described) => described,
            Err(ClientError::Login { why: LoginError::Answer(_), .. }) => continue,
            Err(error) => return Err(error),
        };
        if Url::parse(&described.token_endpoint).is_ok_and(|token| token == url) {
            return Server::from_description(http, name, described).map(Some);
        }
    }
    Ok(None)
}

/// The last segments of the well-known metadata URLs.
const WELL_KNOWN: [&str; 2] = ["oauth-authorization-server", "openid-configuration"];

async fn describe(http: &Http, server: &str, address: &str) -> Result<Description, ClientError> {
    let url = checked(http, server, address)?;
    let (status, body) = within(http.options.call_timeout, async {
        let request = http.request(Method::GET, &url).header(ACCEPT, "application/json");
        let response = http.send(&url, request).await?;
        let status = response.status();
        Ok((status, http.body(&url, response).await?))
    })
    .await?;
    let wrong = |why: String| LoginError::Answer(why).at(server);
    // Redirects are not followed: one could lead to the metadata of another server.
    if status != StatusCode::OK {
        return Err(wrong(format!("`{}` answered with HTTP status {}", place(&url), status.as_u16())));
    }
    let described: Description = serde_json::from_slice(&body)
        .map_err(|error| wrong(format!("`{}` does not describe a server: {error}", place(&url))))?;
    if !is_described_at(&described.issuer, &url) {
        let shown: String = described.issuer.chars().take(200).collect();
        return Err(wrong(format!("`{}` describes `{shown}`, which is another server", place(&url))));
    }
    Ok(described)
}

/// Whether this is the metadata URL of that issuer. The well-known part goes before its path (RFC 8414) or after it (OpenID
/// Connect).
fn is_described_at(issuer: &str, url: &Url) -> bool {
    let Ok(mut issuer) = Url::parse(issuer) else { return false };
    if issuer.query().is_some() || issuer.fragment().is_some() {
        return false;
    }
    let path = issuer.path().trim_end_matches('/').to_owned();
    WELL_KNOWN.iter().any(|name| {
        [format!("/.well-known/{name}{path}"), format!("{path}/.well-known/{name}")].iter().any(|path| {
            issuer.set_path(path);
            issuer == *url
        })
    })
}

impl Server {
    fn from_description(http: &Http, name: String, described: Description) -> Result<Self, ClientError> {
        let optional = |url: Option<String>| url.map(|url| checked(http, &name, &url)).transpose();
        let token = checked(http, &name, &described.token_endpoint)?;
        let methods = described.token_endpoint_auth_methods_supported.unwrap_or_default();
        let has = |method: &str| methods.iter().any(|it| it == method);
        Ok(Self {
            refresh: token.clone(),
            token,
            authorize: optional(described.authorization_endpoint)?,
            device: optional(described.device_authorization_endpoint)?,
            revoke: optional(described.revocation_endpoint)?,
            issuer: Some(described.issuer),
            names_itself: described.authorization_response_iss_parameter_supported,
            offline: described.scopes_supported.iter().any(|scope| scope == super::OFFLINE),
            secret_in_body: has("client_secret_post") && !has("client_secret_basic"),
            name,
        })
    }

    fn from_card(http: &Http, name: String, endpoints: &Endpoints) -> Result<Self, ClientError> {
        let optional = |url: &Option<String>| url.as_ref().map(|url| checked(http, &name, url)).transpose();
        let missing =
            || LoginError::Unsupported("the card does not say where it gives out tokens".to_owned());
        let token = optional(&endpoints.token)?.ok_or_else(|| missing().at(&name))?;
        Ok(Self {
            refresh: optional(&endpoints.refresh)?.unwrap_or_else(|| token.clone()),
            token,
            authorize: optional(&endpoints.authorize)?,
            device: optional(&endpoints.device)?,
            // A card cannot name this endpoint.
            revoke: None,
            issuer: None,
            names_itself: false,
            offline: false,
            secret_in_body: false,
            name,
        })
    }
}

/// Checks that a URL may be called and that secrets may be sent to it.
fn checked(http: &Http, server: &str, address: &str) -> Result<Url, ClientError> {
    let mut url = http.check(address).map_err(|error| {
        if let ClientError::Invalid(_) = error {
            let shown: String = address.chars().filter(|c| !c.is_control()).take(200).collect();
            return LoginError::Answer(format!("`{shown}` is not an address that can be called")).at(server);
        }
        error
    })?;
    url.set_fragment(None);
    secure(url).map_err(|error| error.at(server))
}

/// Requires TLS, except on this machine.
pub(super) fn secure(url: Url) -> Result<Url, LoginError> {
    if url.scheme() == "https" || url.scheme() == "http" && is_here(&url) {
        Ok(url)
    } else {
        Err(LoginError::Insecure(place(&url)))
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::dialect::read_card;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_card_offers_what_it_asks_for_before_what_it_merely_knows() {
        let flow =
            json!({"tokenUrl": "https://t.example/token", "authorizationUrl": "https://t.example/auth"});
        let card = json!({
            "name": "Safe",
            "supportedInterfaces": [{}],
            "securitySchemes": {
                "a-openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o.example/.well-known/openid-configuration"}},
                "b-key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
                "c-oauth": {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}}},
                "d-password": {"oauth2SecurityScheme": {"flows": {"password": {"tokenUrl": "https://t.example/token"}}}},
            },
            "securityRequirements": [{"schemes": {"c-oauth": {"list": ["read"]}, "b-key": {}}}],
        });
        let offers = LoginOffer::of(&read_card(card.to_string().as_bytes()).unwrap());
        let seen: Vec<_> =
            offers.iter().map(|it| (it.scheme(), it.flow(), it.servers(), it.scopes.clone())).collect();
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                ("c-oauth", Some(Flow::Browser), strings(&["https://t.example"]), strings(&["read"])),
                ("a-openid", None, strings(&["https://o.example"]), strings(&["openid"])),
            ]
        );
    }

    #[test]
    fn a_server_is_described_where_its_name_says_and_nowhere_else() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (issuer, at) in [
            ("https://a.example", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/", "https://a.example/.well-known/oauth-authorization-server"),
            ("https://a.example/x", "https://a.example/.well-known/oauth-authorization-server/x"),
            ("https://a.example/x", "https://a.example/x/.well-known/openid-configuration"),
        ] {
            assert!(is_described_at(issuer, &url(at)), "{issuer} {at}");
        }
        for (issuer, at) in [
            ("https://b.example", "https://a.example/.well-known/openid-configuration"),
            ("http://a.example", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/y", "https://a.example/x/.well-known/openid-configuration"),
            ("https://a.example?x", "https://a.example/.well-known/openid-configuration"),
            ("a.example", "https://a.example/.well-known/openid-configuration"),
        ] {
            assert!(!is_described_at(issuer, &url(at)), "{issuer} {at}");
        }
    }

    #[test]
    fn secrets_go_over_tls_or_nowhere_else_than_to_this_machine() {
        for url in ["https://a.example/t", "http://localhost:1/t", "http://127.0.0.1/t", "http://[::1]:9/t"] {
            assert!(secure(Url::parse(url).unwrap()).is_ok(), "{url}");
        }
        for url in
            ["http://a.example/t", "http://localhost.example/t", "ftp://localhost/t", "http://10.0.0.1/t"]
        {
            assert!(secure(Url::parse(url).unwrap()).is_err(), "{url}");
        }
    }
}
