//! The authorization server, and what tests ask it for.

use serde_json::Value;
use tokio::process::Command;

use crate::peers::{self, Process, place};

/// A running authorization server; stopped when dropped.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    process: Process,
}

/// Why it cannot be run, if it cannot.
pub(crate) fn absent() -> Option<String> {
    peers::absent("node")
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let home = peers::home("oidc-provider-8.8.1");
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oauth/peers/node/provider.mjs");
        // Packages are looked for beside the file that imports them.
        let placed = home.join("provider.mjs");
        place(program.as_ref(), &placed);
        let mut command = Command::new("node");
        command.arg(placed);
        let mut process = Process::start("the authorization server", command);
        let issuer =
            process.heard("where it is", |line| line.strip_prefix("issuer ").map(str::to_owned)).await;
        Self { issuer, process }
    }

    /// Where it describes itself.
    pub(crate) fn description(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.issuer)
    }

    /// Ends it, and says where it was.
    pub(crate) async fn stop(mut self) -> String {
        self.process.child.kill().await.expect("it is ours");
        self.issuer
    }

    /// The response to a request for other tokens with a refresh token.
    pub(crate) async fn refresh(&self, token: &str) -> (u16, String) {
        let form = format!("client_id=laptop&grant_type=refresh_token&refresh_token={token}");
        post(&format!("{}/token", self.issuer), None, form).await
    }

    /// Makes a token one that is good no longer.
    pub(crate) async fn revoke(&self, token: &str) {
        let form = format!("client_id=laptop&token={token}");
        let (status, said) = post(&format!("{}/token/revocation", self.issuer), None, form).await;
        assert_eq!(status, 200, "{said}");
    }
}

/// What the server knows about a token.
pub(crate) async fn introspect(issuer: &str, token: &str) -> Value {
    let form = format!("token={token}");
    let agent = Some(("agent", "secret+of+the+agent"));
    let (status, said) = post(&format!("{issuer}/token/introspection"), agent, form).await;
    assert_eq!(status, 200, "{said}");
    serde_json::from_str(&said).expect("it is JSON")
}

async fn post(url: &str, client: Option<(&str, &str)>, form: String) -> (u16, String) {
    let mut request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    if let Some((name, secret)) = client {
        request = request.basic_auth(name, Some(secret));
    }
    let response = request.send().await.expect("it answers");
    (response.status().as_u16(), response.text().await.expect("it says everything"))
}
