//! Logins to MCP servers, for `attache serve --mcp URL`. They are stored apart from those to agents, which can have the same origin.

use attache::client::{ClientError, ClientOptions, Flow, LoginPrompt, ResourceTokens, TokenKey};
use attache_agents::mcp::{LoginPlace, Mcp, McpError, McpOptions, McpServer, StoredLogin};
use serde_json::json;
use url::Url;

use super::login::{self, Login};
use super::logout::give_back;
use super::registry::{self, AgentRecord, McpRecord, Registry, StoredSecret, tokens};
use super::show;
use crate::command::{Exit, Failure, Output, print, say};

/// The account of the tokens for an MCP server. No name of an agent has a space.
fn account(server: &Url) -> String {
    format!("mcp {server}")
}

/// The URL of an MCP server.
fn server(text: &str) -> Result<(Url, McpOptions), Failure> {
    let server = McpServer::url(text).map_err(Failure::usage)?;
    let url = Url::parse(text).map_err(|error| Failure::usage(format!("`{text}` is not a URL: {error}")))?;
    Ok((url, McpOptions::new(server)))
}

/// The stored login to an MCP server, if there is one.
pub(crate) fn stored(server: &Url) -> Result<Option<StoredLogin>, Failure> {
    // A user without a configuration directory has no logins.
    if registry::file_path().is_err() {
        return Ok(None);
    }
    let registry = Registry::read()?;
    let Some(McpRecord { issuer, scopes, login }) = registry.mcp.get(server.as_str()) else {
        return Ok(None);
    };
    let oauth = login.oauth(Some(&account(server))).map_err(Failure::new)?.store(tokens()?);
    Ok(Some(StoredLogin::new(oauth, issuer, scopes.clone())))
}

/// How a user logs in to an MCP server.
pub(crate) fn hint(server: &Url) -> String {
    format!(
        "log in with `attache login --mcp {}`, or set `token`, `headers` or `oauth` of `mcp` in the configuration file",
        show::word(server.as_str())
    )
}

/// Logs in to an MCP server.
pub(super) async fn login(arguments: Login) -> Result<(), Failure> {
    let (url, options) = server(&arguments.agent)?;
    let shown = show::line(url.as_str()).to_string();
    let place = Mcp::login_place(options).await.map_err(|error| {
        if matches!(error, McpError::Invalid(_)) { Failure::usage(error) } else { Failure::new(error) }
    })?;
    let Some(LoginPlace { issuer, scopes, .. }) = place else {
        return Err(Failure::usage(format!("the MCP server `{shown}` asks for no login")));
    };
    let origin = |text: &str| Url::parse(text).map(|url| url.origin().ascii_serialization());
    let issuer_origin = origin(&issuer).map_err(|error| {
        Failure::new(format!(
            "the MCP server names `{}` as its authorization server: {error}",
            show::line(&issuer)
        ))
    })?;
    let before = Registry::read()?.mcp.remove(url.as_str());
    // The stored login of another client, or at another server, is not used.
    let is_same = |record: &McpRecord| {
        record.issuer == issuer && arguments.client_id.as_ref().is_none_or(|id| *id == record.login.client_id)
    };
    let before = before.filter(is_same).map(|record| record.login);
    let known = [&arguments.server[..], before.as_ref().map_or(&[], |login| &login.servers[..])].concat();
    let own = url.origin().ascii_serialization();
    login::agree("the MCP server", &own, std::slice::from_ref(&issuer_origin), &known)?;
    let flow = match (arguments.device, arguments.client_credentials) {
        (true, _) => Flow::Device,
        (_, true) => Flow::ClientCredentials,
        (false, false) => Flow::Browser,
    };
    let earlier = before.as_ref();
    let mut login = registry::Login {
        // Without an id, a client is registered.
        client_id: arguments
            .client_id
            .or_else(|| earlier.map(|login| login.client_id.clone()))
            .unwrap_or_default(),
        client_secret: match login::secret(arguments.client_secret_file.as_deref())? {
            Some(secret) => Some(secret),
            None => earlier.and_then(|login| login.client_secret.clone()),
        },
        secret_in_body: arguments.secret_in_body || earlier.is_some_and(|login| login.secret_in_body),
        program: flow == Flow::ClientCredentials,
        servers: vec![issuer_origin],
        scopes: match arguments.scope.is_empty() {
            true => earlier.map(|login| login.scopes.clone()).unwrap_or_default(),
            false => arguments.scope,
        },
        resource: arguments.resource.or_else(|| earlier.and_then(|login| login.resource.clone())),
    };
    let failed = |error: ClientError| {
        let failure = Failure::new(&error);
        if matches!(error, ClientError::Login { .. }) { failure.exit(Exit::Unauthorized) } else { failure }
    };
    let oauth = login.oauth(Some(&account(&url))).map_err(failed)?.store(tokens()?);
    let resource = ResourceTokens::new(oauth, url.clone(), ClientOptions::default()).map_err(failed)?;
    let no_browser = arguments.no_browser;
    let visit = move |visit: LoginPrompt<'_>| login::show_visit(visit, no_browser);
    let (key, registered) = resource.login(&issuer, &scopes, flow, &visit).await.map_err(failed)?;
    if let Some(client) = registered {
        login.client_id = client.id;
        login.client_secret = client.secret.map(StoredSecret);
    }
    let record = McpRecord { issuer: issuer.clone(), scopes, login };
    Registry::change(|registry| {
        registry.mcp.insert(url.to_string(), record);
        Ok(())
    })?;
    say(format_args!(
        "logged in at {}: try `attache serve --mcp {}`",
        show::line(&issuer),
        show::word(url.as_str())
    ));
    match arguments.output.json {
        true => {
            let value = json!({"mcp": url.as_str(), "servers": [issuer], "flow": login::name_of(flow), "client": key.client, "scopes": key.scopes});
            print(&show::json_lines(&value)?)
        }
        false => Ok(()),
    }
}

/// Removes the login to an MCP server, and revokes its tokens.
pub(super) async fn logout(text: &str, output: &Output) -> Result<(), Failure> {
    let (url, _) = server(text)?;
    let record = Registry::change(|registry| Ok(registry.mcp.remove(url.as_str())))?;
    let own = account(&url);
    let is_its = |key: &TokenKey| key.account.as_ref() == Some(&own);
    let taken = tokens()?.take(is_its).map_err(Failure::new)?;
    let forgotten = record.is_some() || !taken.is_empty();
    let shown = show::line(url.as_str());
    if forgotten {
        say(format_args!("logged out of the MCP server `{shown}`"));
    } else {
        say(format_args!("there was no login to the MCP server `{shown}`"));
    }
    let before = AgentRecord { login: record.map(|record| record.login), ..AgentRecord::at(url.to_string()) };
    let revoked = give_back(&before, taken).await;
    match output.json {
        true => {
            let value = json!({"mcp": url.as_str(), "forgotten": forgotten, "tokens": revoked});
            print(&show::json_lines(&value)?)
        }
        false => Ok(()),
    }
}
