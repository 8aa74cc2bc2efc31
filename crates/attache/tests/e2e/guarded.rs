//! What the file says about tokens of others, certificates and limits, at the real command.

use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SigningKey,
};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Program, until};

/// A list of tasks over JSON-RPC.
fn list(client: &reqwest::Client, url: &str) -> RequestBuilder {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    client.post(format!("{url}/a2a")).header("A2A-Version", "1.0").json(&body)
}

/// An identity provider with one key.
struct Issuer {
    key: KeyPair,
    url: String,
}

impl Issuer {
    async fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let x = URL_SAFE_NO_PAD.encode(key.der_bytes());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "k", "x": x}]});
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let about = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
        let answer = |json: Value| get(move || async move { axum::Json(json) });
        let router = Router::new()
            .route("/.well-known/openid-configuration", answer(about))
            .route("/keys", answer(keys));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { key, url }
    }

    /// A token for someone, good for this many seconds.
    fn token(&self, subject: &str, audience: &str, seconds: i64) -> String {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970");
        let expires = i64::try_from(now.as_secs()).expect("the time fits") + seconds;
        let claims = json!({"iss": self.url, "sub": subject, "aud": audience, "exp": expires});
        let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(json!({"alg": "EdDSA", "kid": "k"})), part(claims));
        let signature = self.key.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[tokio::test]
async fn who_an_identity_provider_vouches_for_comes_in() {
    let (home, issuer) = (Home::new(), Issuer::new().await);
    let file = home.file(
        "some.yml",
        &format!(
            "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\nauth:\n  jwt:\n    - {{ issuer: \"{}\", name: staff, audience: attache }}\n",
            issuer.url
        ),
    );
    let (program, _) = Program::command(&["serve", "--config", &file]).await;
    let client = reqwest::Client::new();
    let status = async |token: &str| {
        list(&client, &program.url).bearer_auth(token).send().await.expect("an answer").status()
    };
    assert_eq!(status(&issuer.token("ann", "attache", 60)).await, StatusCode::OK);
    for wrong in [
        issuer.token("ann", "others", 60),
        issuer.token("ann", "attache", -3600),
        Issuer { key: KeyPair::generate_for(&PKCS_ED25519).expect("a key"), url: issuer.url.clone() }
            .token("ann", "attache", 60),
    ] {
        assert_eq!(status(&wrong).await, StatusCode::UNAUTHORIZED);
    }
    let card =
        client.get(format!("{}/.well-known/agent-card.json", program.url)).send().await.expect("a card");
    let card: Value = card.json().await.expect("JSON");
    let schemes = card["securitySchemes"].as_object().cloned().unwrap_or_default();
    let discovered = format!("{}/.well-known/openid-configuration", issuer.url);
    assert_eq!(schemes.len(), 1, "{schemes:?}");
    assert!(
        schemes
            .values()
            .all(|scheme| scheme["openIdConnectSecurityScheme"]["openIdConnectUrl"] == discovered)
    );
}

/// A certificate with its key below it, as PEM, signed by an authority.
fn certified(
    authority: &CertifiedIssuer<'static, KeyPair>,
    usage: ExtendedKeyUsagePurpose,
    name: &str,
) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    params.subject_alt_names = vec![
        SanType::DnsName(name.try_into().expect("a name")),
        SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()),
    ];
    let key = KeyPair::generate().expect("a key");
    (params.signed_by(&key, authority).expect("a certificate").pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_certificate_says_who_calls_over_an_encrypted_connection() {
    let home = Home::new();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let (certificate, key) = certified(&authority, ExtendedKeyUsagePurpose::ServerAuth, "localhost");
    let (certificate, key) = (home.file("server.crt", &certificate), home.file("server.key", &key));
    let ca = home.file("ca.crt", &authority.pem());
    let file = home.file(
        "some.yml",
        &format!(
            "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\ntls: {{ certificate: {certificate}, key: {key}, client-ca: {ca}, client-certificates: optional }}\nauth:\n  mtls:\n    - {{ name: billing, san: billing.internal }}\n"
        ),
    );
    let (program, said) = Program::command(&["serve", "--config", &file]).await;
    assert!(program.url.starts_with("https://127.0.0.1:"), "{said}");
    let own = |name: &str| {
        let (certificate, key) = certified(&authority, ExtendedKeyUsagePurpose::ClientAuth, name);
        home.file(&format!("{name}.pem"), &format!("{certificate}{key}"))
    };
    let (known, other) = (own("billing.internal"), own("other.internal"));
    for binding in ["jsonrpc", "http-json", "grpc"] {
        let send = ["send", &program.url, "Hello", "--ca", &ca, "--binding", binding];
        let ran = home.run(&[&send[..], &["--cert", &known]].concat()).await;
        assert_eq!(ran.code, Some(0), "{binding}: {ran}");
        assert!(ran.stdout.contains("Hello"), "{ran}");
        assert_eq!(home.run(&[&send[..], &["--cert", &other]].concat()).await.code, Some(4), "{binding}");
        assert_eq!(home.run(&send).await.code, Some(4), "{binding}");
    }
    let ran = home.run(&["send", &program.url, "Hello"]).await;
    assert_eq!(ran.code, Some(3), "an authority that nobody has named vouches for nothing: {ran}");
}

#[cfg(unix)]
#[tokio::test]
async fn connections_stay_encrypted_while_the_server_runs() {
    let home = Home::new();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let (certificate, key) = certified(&authority, ExtendedKeyUsagePurpose::ServerAuth, "localhost");
    let (certificate, key) = (home.file("server.crt", &certificate), home.file("server.key", &key));
    let ca = home.file("ca.crt", &authority.pem());
    let text = |tls: &str| {
        format!(
            "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\n{tls}auth:\n  bearer:\n    - {{ name: alice, token: 0123456789abcdef }}\n"
        )
    };
    let tls = |more: &str| format!("tls: {{ certificate: {certificate}, key: {key}{more} }}\n");
    let asking = |whether: &str| tls(&format!(", client-ca: {ca}, client-certificates: {whether}"));
    let file = home.file("some.yml", &text(&asking("required")));
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let required = "TLS with required client certificates";
    for (tls, said) in [
        (String::new(), format!("there would be no TLS instead of {required}")),
        (tls(""), format!("there would be TLS instead of {required}")),
        (
            asking("optional"),
            format!("there would be TLS with optional client certificates instead of {required}"),
        ),
    ] {
        home.file("some.yml", &text(&tls));
        program.hang_up().await;
        let line = log.line_with("the settings stay as they were").await;
        assert!(line.contains(&said), "{line}");
    }
    // What is wrong with the certificate keeps everything else from changing, too.
    home.file("some.yml", &text(&asking("required")).replace("0123456789abcdef", "fedcba9876543210"));
    std::fs::write(&certificate, "nonsense").expect("it can be written");
    program.hang_up().await;
    log.line_with("the settings stay as they were").await;
    let (shown, own) = certified(&authority, ExtendedKeyUsagePurpose::ClientAuth, "alice");
    let shown = home.file("alice.pem", &format!("{shown}{own}"));
    for (token, code) in [("0123456789abcdef", 0), ("fedcba9876543210", 4)] {
        let send = ["send", &program.url, "Hello", "--ca", &ca, "--cert", &shown, "--token", token];
        let ran = home.run(&send).await;
        assert_eq!(ran.code, Some(code), "{ran}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn limits_of_the_file_hold_and_can_be_changed_while_the_server_runs() {
    let home = Home::new();
    let token = "the token of alice, who is in a hurry";
    let text = |limits: &str| {
        format!(
            "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\nlimits: {{ {limits} }}\nauth:\n  bearer:\n    - {{ name: alice, token: \"{token}\" }}\n"
        )
    };
    let file = home.file("some.yml", &text("requests-per-second: 1, burst: 1"));
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let client = reqwest::Client::new();
    let ask = async || list(&client, &program.url).bearer_auth(token).send().await.expect("an answer");
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(ask().await);
    }
    let refused = answers.iter().find(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.expect("one is too many").headers()["retry-after"], "1");
    home.file("some.yml", &text("requests-per-second: 10000"));
    program.hang_up().await;
    log.line_with("read the settings again").await;
    for _ in 0..50 {
        assert_eq!(ask().await.status(), StatusCode::OK);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn strangers_on_this_machine_are_limited_where_the_file_says_so() {
    let home = Home::new();
    let text = |limits: &str| {
        format!("agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\nlimits: {{ {limits} }}\n")
    };
    let file = home.file("some.yml", &text("requests-per-second-per-address: 1, burst-per-address: 1"));
    let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let client = reqwest::Client::new();
    let ask = async || list(&client, &program.url).send().await.expect("an answer").status();
    let mut change = async |limits: &str| {
        home.file("some.yml", &text(limits));
        program.hang_up().await;
        log.line_with("read the settings again").await
    };
    for _ in 0..20 {
        assert_eq!(ask().await, StatusCode::OK);
    }
    let line = change("requests-per-second-per-address: 1, burst-per-address: 1, loopback: true").await;
    assert!(line.contains("changed=\"limits.loopback\""), "{line}");
    until("one is too many", async || ask().await == StatusCode::TOO_MANY_REQUESTS).await;
    let line = change("requests-per-second-per-address: 1, burst-per-address: 1000, loopback: true").await;
    assert!(line.contains("changed=\"limits.burst-per-address\""), "{line}");
    for _ in 0..20 {
        assert_eq!(ask().await, StatusCode::OK);
    }
}

#[tokio::test]
async fn who_gives_callers_tiers_says_which_one_the_others_are_in() {
    let home = Home::new();
    let token = "the token of alice, who is a partner";
    let text = format!("auth:\n  bearer:\n    - {{ name: alice, token: \"{token}\", tier: partner }}\n");
    let file = home.file("some.yml", &text);
    let ran = home.run(&["config", "check", "--config", &file]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("hint: set it with `functions.tier` or `--tier`"), "{ran}");
    let ran = home.run(&["config", "check", "--config", &file, "--tier", "public"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
}
