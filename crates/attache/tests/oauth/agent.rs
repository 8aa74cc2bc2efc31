//! An agent that says who it talks to, and lets in those whom the authorization server knows.

use std::sync::{Arc, Mutex};

use attache::core::Identity;
use attache::prelude::*;
use attache::protocol::{
    ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, SecurityScheme,
};
use attache::server::auth::{Authenticator, Denied, Head, Verdict};

use crate::provider::{Provider, introspect};

/// What the card of the agent asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asks {
    ClientCredentials,
    DeviceCode,
    OpenIdConnect,
}

/// A running agent.
pub(crate) struct Running {
    pub(crate) url: String,
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// The tokens that it was shown, each once.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().expect("nobody panics with it").clone()
    }
}

pub(crate) async fn start(provider: &Provider, asks: Asks) -> Running {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let door = TokenCheck { issuer: provider.issuer.clone(), asks, tokens: tokens.clone() };
    let agent = agent_fn(|turn: Turn| async move {
        let name = turn.caller().principal().name().unwrap_or("stranger").to_owned();
        turn.reply(format!("hello {name}")).await
    });
    let listening = Server::new(agent)
        .authenticate(door)
        .bind("127.0.0.1:0")
        .listen()
        .await
        .expect("there is a free port");
    let url = format!("http://{}", listening.address().expect("it has an address"));
    tokio::spawn(listening.run_until(std::future::pending()));
    Running { url, tokens }
}

struct TokenCheck {
    issuer: String,
    asks: Asks,
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Authenticator for TokenCheck {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let value = head.headers.get("authorization").and_then(|value| value.to_str().ok());
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Verdict::Denied(Denied::Missing);
        };
        {
            let mut tokens = self.tokens.lock().expect("nobody panics with it");
            if !tokens.iter().any(|seen| seen == token) {
                tokens.push(token.to_owned());
            }
        }
        Verdict::Later(Box::pin(async move {
            let known = introspect(&self.issuer, token).await;
            if known["active"] != true {
                return Err(Denied::Wrong("the token is not active".to_owned()));
            }
            let who = known["sub"].as_str().or(known["client_id"].as_str()).unwrap_or_default();
            Ok(Identity::from(who))
        }))
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        let token_url = format!("{}/token", self.issuer);
        let oauth = |flows| {
            SecurityScheme::OAuth2(OAuth2SecurityScheme {
                description: None,
                flows,
                oauth2_metadata_url: None,
            })
        };
        let scheme = match self.asks {
            Asks::ClientCredentials => oauth(OAuthFlows::ClientCredentials(ClientCredentialsOAuthFlow {
                token_url,
                ..ClientCredentialsOAuthFlow::default()
            })),
            Asks::DeviceCode => oauth(OAuthFlows::DeviceCode(DeviceCodeOAuthFlow {
                token_url,
                device_authorization_url: format!("{}/device/auth", self.issuer),
                ..DeviceCodeOAuthFlow::default()
            })),
            Asks::OpenIdConnect => SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                description: None,
                open_id_connect_url: format!("{}/.well-known/openid-configuration", self.issuer),
            }),
        };
        vec![("staff".to_owned(), scheme)]
    }

    fn challenges(&self) -> Vec<String> {
        vec!["Bearer".to_owned()]
    }
}
