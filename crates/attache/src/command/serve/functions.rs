//! The functions of iii workers as an agent, with an engine of our own for the workers to join.

use std::sync::Arc;

use attache::client::AddressBook;
use attache::core::Store;
use attache_iii::delegation::Delegation;
use attache_iii::engine::{Engine, EngineError, EngineListening, EngineOptions, Token};
use attache_iii::remote::{RemoteOptions, import};
use attache_iii::{AgentCredentials, DelegationArgs, Gateway, GatewayArgs};
use clap::Args;

use super::super::Failure;
use super::{demo, is_http, secret_in};
use crate::config::{AGENTS, DemoArgs, EngineArgs, Secret, Settled};

/// Which functions are skills, and where workers join.
#[derive(Debug, Args)]
pub(super) struct FunctionArgs {
    #[command(flatten)]
    pub(super) demo: DemoArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    delegation: DelegationArgs,
}

/// What workers and callers of the API of delegation show.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    engine: Option<Token>,
    api: Option<Token>,
}

impl FunctionArgs {
    /// Whether the functions of one tier alone are skills.
    pub(super) fn has_tier(&self) -> bool {
        self.gateway.options().exposure.tier.is_some()
    }

    /// The tokens, and whether everything else is in order.
    pub(super) fn check(&self, settled: &Settled) -> Result<Tokens, Failure> {
        if let Some(url) = self.engine.connect.iter().find(|url| !is_http(url)) {
            return Err(Failure::usage(format!("`--connect {url}` is not an `http` or `https` URL"))
                .hint("try `--connect https://agents.example.com`"));
        }
        let engine_file = secret_in(self.engine.engine_token_file.as_deref(), "--engine-token-file")?;
        let engine_file = engine_file.map(|secret| Token::new(&String::from_utf8_lossy(&secret)));
        let engine = settled.secret("engine.token", |settings| {
            (settings.engine.token.as_ref(), settings.engine.token_file.as_ref())
        })?;
        let api_flag = self.delegation.token();
        let api_flag =
            api_flag.map_err(|error| Failure::usage(error).hint("make one with `openssl rand -hex 32`"))?;
        let api = settled.secret("delegation.api-token", |settings| {
            (settings.delegation.api_token.as_ref(), settings.delegation.api_token_file.as_ref())
        })?;
        let token = |secret: Secret| Token::new(secret.reveal());
        Ok(Tokens { engine: engine_file.or(engine.map(token)), api: api_flag.or(api.map(token)) })
    }

    /// Starts an engine and the gateway to its functions. `own_url` is where the agent will be, and `agents` what others are shown.
    pub(super) async fn start(
        &self,
        store: Arc<dyn Store>,
        own_url: String,
        tokens: Tokens,
        agents: AddressBook,
    ) -> Result<Started, Failure> {
        let options = EngineOptions {
            listen: self.engine.engine_listen.clone(),
            token: tokens.engine,
            ..EngineOptions::default()
        };
        let credentials = AgentCredentials::new(agents, AGENTS);
        let delegation = self.delegation.start(store.clone(), credentials.clone()).map_err(Failure::new)?;
        let engine = Engine::new(store, options);
        let mut settings = self.gateway.options();
        if self.demo.demo {
            demo::register(&engine);
            settings.default_function.get_or_insert_with(|| demo::DEFAULT_FUNCTION.to_owned());
        }
        let listening = engine.listen().await.map_err(|error| {
            let hint = match &error {
                EngineError::Open(_) => {
                    "make a token with `openssl rand -hex 32 > token` and name it with `--engine-token-file token`"
                }
                EngineError::Address(_) | EngineError::Taken { .. } => {
                    "choose another address with `--engine-listen`, such as `--engine-listen 127.0.0.1:0`"
                }
            };
            Failure::new(error).hint(hint)
        })?;
        let remote = RemoteOptions { own_url: Some(own_url), credentials, ..RemoteOptions::default() };
        let imports = import(engine.clone(), self.engine.connect.clone(), remote);
        let gateway = Gateway::with_imports(Arc::new(engine.clone()), settings, imports);
        Ok(Started { engine, listening, gateway, delegation, api_token: tokens.api })
    }
}

/// An engine that has its port, and the gateway to its functions.
pub(super) struct Started {
    pub(super) engine: Engine,
    pub(super) listening: EngineListening,
    pub(super) gateway: Gateway,
    /// Nothing, if it is switched off.
    pub(super) delegation: Option<Delegation>,
    /// What callers of the API of delegation show.
    pub(super) api_token: Option<Token>,
}
