//! Where callers of an agent log in: what its card offers, and the metadata of the authorization server.

use attache_protocol::{AgentCard, OAuthFlows, SecurityScheme};
use reqwest::header::ACCEPT;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use url::Origin;

use super::error::LoginError;
use super::token_request::place;
use crate::ClientError;
use crate::http::{Http, display_url, is_local, with_timeout};

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
pub struct LoginMethod {
    scheme: String,
    flow: Option<Flow>,
    /// The URL of the server's metadata.
    metadata: Option<String>,
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

impl LoginMethod {
    /// The login methods of a card, those that it requires first.
    pub fn from_card(card: &AgentCard) -> Vec<Self> {
        let mut methods: Vec<Self> = Vec::new();
        let required = card.security_requirements.iter().flat_map(|requirement| &requirement.schemes);
        let required = required.map(|(name, scopes)| (name, scopes.list.as_slice()));
        let others = card.security_schemes.keys().map(|name| (name, [].as_slice()));
        for (name, scopes) in required.chain(others) {
            let scheme = card.security_schemes.get(name);
            let is_new = !methods.iter().any(|method| method.scheme == *name);
            methods
                .extend(scheme.filter(|_| is_new).and_then(|scheme| Self::from_scheme(name, scheme, scopes)));
        }
        methods
    }

    /// The login method of a scheme; nothing if the scheme is not supported.
    pub(super) fn from_scheme(name: &str, scheme: &SecurityScheme, scopes: &[String]) -> Option<Self> {
        let given = |url: &String| Some(url.clone()).filter(|url| !url.is_empty());
        let (flow, metadata, endpoints) = match scheme {
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
        if metadata.is_none() && endpoints.token.is_none() {
            return None;
        }
        let mut scopes = scopes.to_vec();
        // Without this scope a server does not use OpenID Connect.
        if matches!(scheme, SecurityScheme::OpenIdConnect(_)) {
            scopes.push("openid".to_owned());
        }
        Some(Self { scheme: name.to_owned(), flow, metadata, endpoints, scopes })
    }

    /// The login methods at an issuer, one for each URL that can have its metadata. For servers that have no card.
    pub(super) fn at_issuer(issuer: &Url, scopes: &[String]) -> Vec<Self> {
        let path = issuer.path().trim_end_matches('/').to_owned();
        let paths = WELL_KNOWN.iter().flat_map(|name| {
            let before = format!("/.well-known/{name}{path}");
            let after = (!path.is_empty()).then(|| format!("{path}/.well-known/{name}"));
            [Some(before), after].into_iter().flatten()
        });
        let method = |path: String| {
            let mut metadata = issuer.clone();
            metadata.set_query(None);
            metadata.set_fragment(None);
            metadata.set_path(&path);
            Self {
                scheme: "oauth2".to_owned(),
                flow: None,
                metadata: Some(metadata.into()),
                endpoints: Endpoints::default(),
                scopes: scopes.to_vec(),
            }
        };
        paths.map(method).collect()
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
        let metadata = self.metadata.iter();
        metadata.chain(endpoints.filter(|_| self.metadata.is_none()))
    }

    /// Identifies the server in the key of its tokens.
    pub(super) fn server_key(&self) -> String {
        self.metadata.clone().or_else(|| self.endpoints.token.clone()).unwrap_or_default()
    }

    /// Whether the user has agreed to every server that the card names.
    pub(super) fn is_agreed(&self, agreed: &[Origin]) -> bool {
        let parsed: Vec<_> = self.addresses().map(|url| Url::parse(url)).collect();
        parsed.iter().all(|url| url.as_ref().is_ok_and(|url| agreed.contains(&url.origin())))
    }

    /// Determines the endpoints of the server.
    pub(super) async fn resolve(&self, http: &Http, agreed: &[Origin]) -> Result<Server, ClientError> {
        let name = self.servers().into_iter().next().unwrap_or_else(|| self.server_key());
        if !self.is_agreed(agreed) {
            let is_agreed =
                |server: &&String| Url::parse(server).is_ok_and(|server| agreed.contains(&server.origin()));
            let servers = self.servers();
            let other = servers.iter().find(|server| !is_agreed(server)).unwrap_or(&name);
            return Err(LoginError::NotAgreed.at(other));
        }
        match &self.metadata {
            Some(url) => {
                let metadata = fetch_metadata(http, &name, url).await?;
                Server::from_metadata(http, name, metadata)
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
    /// Where clients register themselves.
    pub(super) registration: Option<Url>,
    /// Its issuer, if its metadata states one.
    pub(super) issuer: Option<String>,
    /// Whether it sends its issuer with redirects.
    pub(super) sends_issuer: bool,
    /// Whether it supports the scope that requests refresh tokens.
    pub(super) offline_access: bool,
    /// Whether it requires the secret in the request body.
    pub(super) secret_in_body: bool,
}

/// The metadata of an authorization server (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Deserialize)]
pub(super) struct ServerMetadata {
    issuer: String,
    token_endpoint: String,
    authorization_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    scopes_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Finds the server that issued tokens, by the [server key](LoginMethod::server_key) of the tokens. Its metadata is at that
/// URL, or at the well-known URLs of a server with that token endpoint.
pub(super) async fn find_server(
    http: &Http,
    server_key: &str,
    agreed: &[Origin],
) -> Result<Option<Server>, ClientError> {
    let url = check_url(http, server_key, server_key)?;
    let name = url.origin().ascii_serialization();
    if !agreed.contains(&url.origin()) {
        return Err(LoginError::NotAgreed.at(&name));
    }
    if url.path().contains("/.well-known/") {
        let metadata = fetch_metadata(http, &name, server_key).await?;
        return Server::from_metadata(http, name, metadata).map(Some);
    }
    for usual in WELL_KNOWN {
        let metadata = match fetch_metadata(http, &name, &format!("{name}/.well-known/{usual}")).await {
            Ok(metadata) => metadata,
            Err(ClientError::Login { why: LoginError::InvalidResponse(_), .. }) => continue,
            Err(error) => return Err(error),
        };
        if Url::parse(&metadata.token_endpoint).is_ok_and(|token| token == url) {
            return Server::from_metadata(http, name, metadata).map(Some);
        }
    }
    Ok(None)
}

/// The last segments of the well-known metadata URLs.
const WELL_KNOWN: [&str; 2] = ["oauth-authorization-server", "openid-configuration"];

async fn fetch_metadata(http: &Http, server: &str, address: &str) -> Result<ServerMetadata, ClientError> {
    let url = check_url(http, server, address)?;
    let (status, body) = with_timeout(http.options.call_timeout, async {
        let request = http.request(Method::GET, &url).header(ACCEPT, "application/json");
        let response = http.send(&url, request).await?;
        let status = response.status();
        Ok((status, http.body(&url, response).await?))
    })
    .await?;
    read_metadata(&url, status, &body).map_err(|error| error.at(server))
}

/// Parses the metadata at a URL.
pub(super) fn read_metadata(
    url: &Url,
    status: StatusCode,
    body: &[u8],
) -> Result<ServerMetadata, LoginError> {
    let wrong = |why: String| LoginError::InvalidResponse(format!("`{}` {why}", display_url(url)));
    // Redirects are not followed: one could lead to the metadata of another server.
    if status != StatusCode::OK {
        return Err(wrong(format!("answered with HTTP status {}", status.as_u16())));
    }
    let metadata: ServerMetadata = serde_json::from_slice(body)
        .map_err(|error| wrong(format!("does not describe a server: {}", place(&error))))?;
    if !is_metadata_url(&metadata.issuer, url) {
        let shown: String = metadata.issuer.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(wrong(format!("describes `{shown}`, which is another server")));
    }
    Ok(metadata)
}

/// Whether this is the metadata URL of that issuer. The well-known part goes before its path (RFC 8414) or after it (OpenID
/// Connect).
fn is_metadata_url(issuer: &str, url: &Url) -> bool {
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
    pub(super) fn from_metadata(
        http: &Http,
        name: String,
        metadata: ServerMetadata,
    ) -> Result<Self, ClientError> {
        let optional = |url: Option<String>| url.map(|url| check_url(http, &name, &url)).transpose();
        let token = check_url(http, &name, &metadata.token_endpoint)?;
        let methods = metadata.token_endpoint_auth_methods_supported.unwrap_or_default();
        let has = |method: &str| methods.iter().any(|it| it == method);
        Ok(Self {
            refresh: token.clone(),
            token,
            authorize: optional(metadata.authorization_endpoint)?,
            device: optional(metadata.device_authorization_endpoint)?,
            revoke: optional(metadata.revocation_endpoint)?,
            registration: optional(metadata.registration_endpoint)?,
            issuer: Some(metadata.issuer),
            sends_issuer: metadata.authorization_response_iss_parameter_supported,
            offline_access: metadata.scopes_supported.iter().any(|scope| scope == super::OFFLINE),
            secret_in_body: has("client_secret_post") && !has("client_secret_basic"),
            name,
        })
    }

    fn from_card(http: &Http, name: String, endpoints: &Endpoints) -> Result<Self, ClientError> {
        let optional = |url: &Option<String>| url.as_ref().map(|url| check_url(http, &name, url)).transpose();
        let missing = || LoginError::Unsupported("the card names no token endpoint".to_owned());
        let token = optional(&endpoints.token)?.ok_or_else(|| missing().at(&name))?;
        Ok(Self {
            refresh: optional(&endpoints.refresh)?.unwrap_or_else(|| token.clone()),
            token,
            authorize: optional(&endpoints.authorize)?,
            device: optional(&endpoints.device)?,
            // A card cannot name this endpoint.
            revoke: None,
            registration: None,
            issuer: None,
            sends_issuer: false,
            offline_access: false,
            secret_in_body: false,
            name,
        })
    }
}

/// Checks that a URL may be called and that secrets may be sent to it.
fn check_url(http: &Http, server: &str, address: &str) -> Result<Url, ClientError> {
    let mut url = http.check(address).map_err(|error| {
        if let ClientError::Invalid(_) = error {
            let shown: String = address.chars().filter(|c| !c.is_control()).take(200).collect();
            return LoginError::InvalidResponse(format!("`{shown}` is not a URL that can be called"))
                .at(server);
        }
        error
    })?;
    url.set_fragment(None);
    require_secure(url).map_err(|error| error.at(server))
}

/// Requires TLS, except on this machine.
pub(super) fn require_secure(url: Url) -> Result<Url, LoginError> {
    if url.scheme() == "https" || url.scheme() == "http" && is_local(&url) {
        Ok(url)
    } else {
        Err(LoginError::Insecure(display_url(&url).chars().take(200).collect()))
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::dialect::read_card;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_metadata_url_of_an_issuer_is_tried() {
        for (issuer, expected) in [
            (
                "https://a.example",
                vec![
                    "https://a.example/.well-known/oauth-authorization-server",
                    "https://a.example/.well-known/openid-configuration",
                ],
            ),
            (
                "https://a.example/t/1/?x=y",
                vec![
                    "https://a.example/.well-known/oauth-authorization-server/t/1",
                    "https://a.example/t/1/.well-known/oauth-authorization-server",
                    "https://a.example/.well-known/openid-configuration/t/1",
                    "https://a.example/t/1/.well-known/openid-configuration",
                ],
            ),
        ] {
            let methods = LoginMethod::at_issuer(&issuer.parse().unwrap(), &["a".to_owned()]);
            let urls: Vec<&str> = methods.iter().filter_map(|method| method.metadata.as_deref()).collect();
            assert_eq!(urls, expected);
            let plain = issuer.split('?').next().unwrap();
            assert!(urls.iter().all(|url| is_metadata_url(plain, &url.parse().unwrap())), "{urls:?}");
        }
    }

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
        let offers = LoginMethod::from_card(&read_card(card.to_string().as_bytes()).unwrap());
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
            assert!(is_metadata_url(issuer, &url(at)), "{issuer} {at}");
        }
        for (issuer, at) in [
            ("https://b.example", "https://a.example/.well-known/openid-configuration"),
            ("http://a.example", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/y", "https://a.example/x/.well-known/openid-configuration"),
            ("https://a.example?x", "https://a.example/.well-known/openid-configuration"),
            ("a.example", "https://a.example/.well-known/openid-configuration"),
        ] {
            assert!(!is_metadata_url(issuer, &url(at)), "{issuer} {at}");
        }
    }

    #[test]
    fn secrets_go_over_tls_or_nowhere_else_than_to_this_machine() {
        for url in ["https://a.example/t", "http://localhost:1/t", "http://127.0.0.1/t", "http://[::1]:9/t"] {
            assert!(require_secure(Url::parse(url).unwrap()).is_ok(), "{url}");
        }
        for url in
            ["http://a.example/t", "http://localhost.example/t", "ftp://localhost/t", "http://10.0.0.1/t"]
        {
            assert!(require_secure(Url::parse(url).unwrap()).is_err(), "{url}");
        }
    }
}
