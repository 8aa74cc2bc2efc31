//! Registration of a client at an authorization server that lets clients register themselves (RFC 7591).

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::Flow;
use super::error::LoginError;
use super::login_method::Server;
use super::token_request::parse_error;
use crate::ClientError;
use crate::credentials::Secret;
use crate::http::{Http, with_timeout};

/// The name that the person who logs in reads.
const NAME: &str = "Attaché";

/// A client that an authorization server has registered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RegisteredClient {
    /// Its id.
    #[serde(rename = "client_id")]
    pub id: String,
    /// Its secret, if the server gave it one.
    #[serde(default, rename = "client_secret", deserialize_with = "secret")]
    pub secret: Option<Secret>,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(Into::into))
}

/// Registers a client for a login of a person.
pub(super) async fn register(
    http: &Http,
    server: &Server,
    flow: Flow,
    redirect: &str,
) -> Result<RegisteredClient, ClientError> {
    let Some(url) = &server.registration else {
        let why = "it registers no clients by itself: ask its operator for a client id".to_owned();
        return Err(LoginError::Unsupported(why).at(&server.name));
    };
    let grant = match flow {
        Flow::Browser => "authorization_code",
        Flow::Device => "urn:ietf:params:oauth:grant-type:device_code",
        Flow::ClientCredentials => {
            let why = "a program with a secret cannot register itself".to_owned();
            return Err(LoginError::Unsupported(why).at(&server.name));
        }
    };
    let (redirects, responses) = match flow {
        Flow::Browser => (vec![redirect], vec!["code"]),
        Flow::Device | Flow::ClientCredentials => (Vec::new(), Vec::new()),
    };
    let client = json!({
        "client_name": NAME,
        "application_type": "native",
        "redirect_uris": redirects,
        "grant_types": [grant, "refresh_token"],
        "response_types": responses,
        "token_endpoint_auth_method": "none",
    });
    let (status, body) = with_timeout(http.options.call_timeout, async {
        let request = http.request(Method::POST, url).header(ACCEPT, "application/json");
        let request = request.header(CONTENT_TYPE, "application/json").body(client.to_string());
        let response = http.send(url, request).await?;
        let status = response.status();
        Ok((status, http.body(url, response).await?))
    })
    .await?;
    read_client(status, &body).map_err(|error| error.at(&server.name))
}

/// Parses the response to a registration. Errors do not repeat it, because it has a secret.
pub(super) fn read_client(status: StatusCode, body: &[u8]) -> Result<RegisteredClient, LoginError> {
    if !status.is_success() {
        return Err(parse_error(status, body));
    }
    let invalid = || LoginError::InvalidResponse("the registered client has no `client_id`".to_owned());
    let client: RegisteredClient = serde_json::from_slice(body).map_err(|_| invalid())?;
    match client.id.is_empty() {
        true => Err(invalid()),
        false => Ok(client),
    }
}
