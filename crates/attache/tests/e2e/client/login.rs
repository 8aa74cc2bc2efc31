//! `attache login` where there is no authorization server to log in at, and cards that must be signed.

use std::sync::{Arc, Mutex};

use attache_client::{FileTokens, TokenKey, TokenStore, Tokens};
use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::echo;
use super::fake::{guarded, locked};
use crate::home::Home;
use crate::support::Program;

#[tokio::test]
async fn a_secret_need_not_be_on_a_command_line() {
    let (url, home) = (guarded().await, Home::new());
    assert_eq!(home.run(&["send", &url, "hi"]).await.code, Some(4));
    let kept = home.run_with_input(&["login", &url, "--token-stdin"], "t-1\n").await;
    insta::assert_snapshot!("login_token", kept.masked(&url));
    let said = home.run(&["send", &url, "hi"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "come in\n"), "{said}");
    let other = home.run(&["send", &url, "hi", "--token", "t-2"]).await;
    assert_eq!(other.code, Some(4), "what is said now goes before what was kept");
    insta::assert_snapshot!("logout_token", home.run(&["logout", &url]).await.masked(&url));
    assert_eq!(home.run(&["send", &url, "hi"]).await.code, Some(4));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(home.path(".config/attache/agents.json")).expect("it is there");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_key_and_a_password_are_kept_for_a_name_and_shown_to_nobody_else() {
    for (scheme, arguments, secret) in [
        ("key", &["login", "safe", "--api-key-stdin"][..], "k-1"),
        ("basic", &["login", "safe", "--basic", "ann"][..], "s3cret"),
    ] {
        let (url, home) = (locked(scheme).await, Home::new());
        home.run(&["agents", "add", "safe", &url]).await;
        assert_eq!(home.run(&["send", "safe", "hi"]).await.code, Some(4));
        let kept = home.run_with_input(arguments, &format!("{secret}\n")).await;
        assert!(kept.code == Some(0) && !kept.to_string().contains(secret), "{kept}");
        let said = home.run(&["send", "safe", "hi"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "come in\n"), "{said}");
        assert_eq!(home.run(&["send", &url, "hi"]).await.code, Some(4), "the name has it, not the address");
    }
}

#[tokio::test]
async fn a_login_that_cannot_be_says_what_would_be_right() {
    let (url, home) = (guarded().await, Home::new());
    insta::assert_snapshot!("login_no_offer", home.run(&["login", &url]).await.masked(&url));
    insta::assert_snapshot!("login_nothing", home.run(&["login", &url, "--token-stdin"]).await.masked(&url));
    insta::assert_snapshot!("login_two_ways", home.run(&["login", &url, "--device", "--token-stdin"]).await);
    insta::assert_snapshot!(
        "login_bad_name",
        home.run(&["login", &url, "--basic", "a:b"]).await.masked(&url)
    );
    insta::assert_snapshot!("login_no_name", home.run(&["login", "nobody", "--token-stdin"]).await);
    let no_file = home.run(&["card", &url, "--cert", "/nowhere/cert.pem"]).await;
    insta::assert_snapshot!("cert_missing", no_file.masked(&url));
    let text = home.file("cert.pem", "not a certificate");
    let bad = home.run(&["card", &url, "--ca", &text]).await;
    insta::assert_snapshot!("ca_bad", bad.masked(&url).replace(&text, "PATH"));
}

#[tokio::test]
async fn a_card_is_shown_only_if_it_is_signed_by_who_is_trusted() {
    let home = Home::new();
    let keys = |name: &str| home.path(name).display().to_string();
    let (theirs, others) = (keys("theirs.json"), keys("others.json"));
    let mut public = Vec::new();
    for file in [&theirs, &others] {
        home.run(&["keys", "new", "--signing-keys", file]).await;
        public.push(home.run(&["keys", "list", "--jwks", "--signing-keys", file]).await.stdout);
    }
    let kid = |set: &str| {
        let set: Value = serde_json::from_str(set).expect("JSON");
        set["keys"][0]["kid"].as_str().expect("a key has a name").to_owned()
    };
    let (trusted, unknown) = (home.file("trusted.json", &public[0]), home.file("unknown.json", &public[1]));
    let serve = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--signing-keys", &theirs];
    let (agent, _) = Program::command(&serve).await;
    let (url, unsigned) = (agent.url.as_str(), echo().await);
    let masked = |ran: crate::home::Ran| ran.masked(url).replace(&kid(&public[0]), "KID");

    let ran = home.run(&["card", url, "--verify", "--key", &trusted]).await;
    insta::assert_snapshot!("verify_pinned", masked(ran));
    let ran = home.run(&["card", url, "--verify", "--jwks-origin", url]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("jwks.json)"), "{ran}");
    let ran = home.run(&["card", url, "--verify", "--json", "--key", &trusted]).await;
    assert!(
        ran.code == Some(0) && ran.stderr.starts_with("signed by ") && ran.stdout.starts_with('{'),
        "{ran}"
    );
    insta::assert_snapshot!(
        "verify_other",
        masked(home.run(&["card", url, "--verify", "--key", &unknown]).await)
    );
    let ran = home.run(&["card", &unsigned.url, "--verify", "--key", &trusted]).await;
    insta::assert_snapshot!("verify_unsigned", ran.masked(&unsigned.url));
    insta::assert_snapshot!("verify_nobody", masked(home.run(&["card", url, "--verify"]).await));
    let ran = home.run(&["card", url, "--verify", "--jwks-origin", "http://example.com"]).await;
    insta::assert_snapshot!("verify_bad_origin", masked(ran));
    let private = home.run(&["card", url, "--verify", "--key", &theirs]).await;
    assert!(private.code == Some(2), "{private}");

    home.run(&["agents", "add", "good", url, "--key", &trusted]).await;
    home.run(&["agents", "add", "bad", url, "--key", &unknown]).await;
    let said = home.run(&["send", "good", "hi"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "hi\n"), "{said}");
    assert_eq!(home.run(&["card", "good", "--verify"]).await.code, Some(0));
    let said = home.run(&["send", "bad", "hi"]).await;
    assert!(said.code == Some(1) && said.stderr.contains("is not trusted"), "{said}");
}

/// An authorization server that takes tokens back, and remembers which.
async fn authority() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let about = json!({
        "issuer": url, "token_endpoint": format!("{url}/token"), "revocation_endpoint": format!("{url}/revoke"),
    });
    let revoked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = revoked.clone();
    let router = Router::new()
        .route("/.well-known/openid-configuration", get(|| async { axum::Json(about) }))
        .route("/revoke", post(async move |form: String| seen.lock().expect("it is whole").push(form)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, revoked)
}

/// Stores a login for the agent with this name.
async fn logged_in(home: &Home, name: &str, server: &str) {
    let key = TokenKey {
        server: format!("{server}/.well-known/openid-configuration"),
        client: "laptop".to_owned(),
        scopes: Vec::new(),
        resource: None,
        agent: "https://agents.example.com".to_owned(),
        account: Some(name.to_owned()),
    };
    let tokens = Tokens { access: "t-1".into(), refresh: Some("r-1".into()), renew: None };
    let file = FileTokens::new(home.path(".config/attache/tokens.json"));
    file.lock(&key).await.expect("it can be locked").write(Some(&tokens)).expect("it can be written");
}

fn tokens(home: &Home) -> Value {
    let text = std::fs::read_to_string(home.path(".config/attache/tokens.json")).expect("it is there");
    serde_json::from_str::<Value>(&text).expect("it is JSON")["tokens"].clone()
}

#[tokio::test]
async fn who_forgets_or_replaces_an_agent_leaves_no_tokens_that_are_good() {
    let ((server, revoked), home) = (authority().await, Home::new());
    for (name, arguments) in [
        ("agents_rm_revoked", &["agents", "rm", "staff"][..]),
        ("agents_replace_revoked", &["agents", "add", "staff", "https://other.example.com", "--replace"]),
    ] {
        home.run(&["agents", "add", "staff", "https://agents.example.com"]).await;
        logged_in(&home, "staff", &server).await;
        let ran = home.run(arguments).await;
        insta::assert_snapshot!(name, ran.masked(&server));
        assert_eq!(tokens(&home), json!([]));
        let asked = std::mem::take(&mut *revoked.lock().expect("it is whole"));
        assert_eq!(
            asked,
            [
                "token=r-1&token_type_hint=refresh_token&client_id=laptop",
                "token=t-1&token_type_hint=access_token&client_id=laptop",
            ]
        );
    }
}

#[tokio::test]
async fn an_agent_is_forgotten_although_its_authorization_server_is_gone() {
    let home = Home::new();
    home.run(&["agents", "add", "staff", "https://agents.example.com"]).await;
    // No server listens there.
    logged_in(&home, "staff", "http://127.0.0.1:1").await;
    let ran = home.run(&["agents", "rm", "staff"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let warned = "warning: the tokens are forgotten here, but http://127.0.0.1:1 has not revoked them";
    assert!(ran.stderr.starts_with("forgot `staff`\n") && ran.stderr.contains(warned), "{ran}");
    assert_eq!(tokens(&home), json!([]));
    assert!(home.run(&["agents", "list"]).await.stdout.starts_with("no agent has a name"));
}
