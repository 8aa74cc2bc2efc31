//! TLS: every binding over it, a certificate that changes while the server runs, and certificates of clients.

use std::time::Duration;

use attache_core::Identity;
use attache_server::auth::{AllOf, AnyOf, CertificateCallers, CertificateName, KnownCallers};
use attache_server::{Server, ServerError};
use rcgen::{CertificateParams, DnType, SanType};
use reqwest::tls::TlsInfo;
use reqwest::{Method, Version};
use serde_json::{Value, json};
use tonic::transport::ClientTlsConfig;

use crate::support::pki::{Authority, Certified, Files};
use crate::support::{Raw, Running, Sse, card, connect_tls, fetch, player, send, serve_tls, soon, stage};

fn grpc_config(authority: &Authority) -> ClientTlsConfig {
    let root = tonic::transport::Certificate::from_pem(authority.pem());
    ClientTlsConfig::new().ca_certificate(root).domain_name("localhost")
}

fn grpc_identity(certified: &Certified) -> tonic::transport::Identity {
    tonic::transport::Identity::from_pem(&certified.certificate, &certified.key)
}

/// A server that speaks TLS, and its authority.
async fn playing() -> (Running, Authority) {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server("first"));
    let server = serve_tls(player().tls(files.tls()), authority.trusting().build().unwrap()).await;
    (server, authority)
}

#[tokio::test]
async fn every_binding_is_there_over_tls() {
    let (server, authority) = playing().await;
    let older = authority.trusting().http1_only().build().unwrap();
    for (client, version) in [(server.http.clone(), Version::HTTP_2), (older, Version::HTTP_11)] {
        let url = format!("{}/v1/message:send", server.base);
        let response = soon(client.post(url).header("A2A-Version", "1.0").json(&send("hi")).send()).await;
        let response = response.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
    }
    assert_eq!(server.task("hi").await["status"]["state"], "TASK_STATE_COMPLETED");
    let mut grpc = connect_tls(&server.base, grpc_config(&authority)).await.unwrap();
    let (sent, _) = grpc.call("SendMessage", send("hi"), &[]).await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let (events, _) = grpc.call("SendStreamingMessage", send("hi"), &[]).await.unwrap();
    assert!(events.as_array().unwrap().len() > 1, "{events}");
}

#[tokio::test]
async fn the_card_says_that_it_is_tls() {
    let (server, _) = playing().await;
    let card = fetch(server.http(Method::GET, "/.well-known/agent-card.json")).await.json();
    let urls: Vec<&str> = card["supportedInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["url"].as_str())
        .collect();
    let base = &server.base;
    assert_eq!(urls[..3], [format!("{base}/a2a"), format!("{base}/v1"), format!("{base}/grpc")]);
}

#[tokio::test]
async fn a_client_without_tls_is_disconnected() {
    let (server, _) = playing().await;
    let mut plain = Raw::connect(server.address).await;
    plain.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    plain.closed().await;
    assert_eq!(fetch(server.http(Method::GET, "/health")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_authority_cannot_connect() {
    let (server, _) = playing().await;
    let other = Authority::new("other").trusting().build().unwrap();
    assert!(soon(other.get(format!("{}/health", server.base)).send()).await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_slow_handshake_delays_no_other_client_and_is_cut_off() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server("first"));
    let server =
        player().tls(files.tls()).options(|options| options.header_timeout = Duration::from_millis(200));
    let mut server = serve_tls(server, authority.trusting().build().unwrap()).await;
    let mut silent = Raw::connect(server.address).await;
    assert_eq!(fetch(server.http(Method::GET, "/health")).await.status, 200);
    silent.closed().await;
    let mut late = Raw::connect(server.address).await;
    server.stop();
    late.closed().await;
    server.stopped().await;
}

/// The organization in the certificate that a new connection is shown.
async fn shown(server: &Running, authority: &Authority) -> String {
    let fresh = authority.trusting().tls_info(true).build().unwrap();
    let response = soon(fresh.get(format!("{}/health", server.base)).send()).await.unwrap();
    let info: &TlsInfo = response.extensions().get().unwrap();
    let certificate = attache_server::ClientCertificate::read(info.peer_certificate().unwrap()).unwrap();
    certificate.subject
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_shown_to_those_who_come_later() {
    let authority = Authority::new("authority");
    let files = Files::new(&authority.server("first"));
    let tls = files.tls();
    let (agent, mut stage) = stage();
    let server = Server::new(agent).card(card()).tls(tls.clone());
    let server = serve_tls(server, authority.trusting().build().unwrap()).await;
    assert_eq!(shown(&server, &authority).await, "O=first");
    let opened = tokio::spawn(Sse::open(server.http(Method::POST, "/v1/message:stream").json(&send("go"))));
    let act = stage.turn().await;
    act.working("before").await;
    let mut stream = soon(opened).await.unwrap();
    let text = |event: &Value| event["statusUpdate"]["status"]["state"].as_str().map(str::to_owned);

    files.replace(&authority.server("second"));
    tls.reload().unwrap();
    assert_eq!(shown(&server, &authority).await, "O=second");

    files.write("server.key", "nonsense");
    let error = tls.reload().unwrap_err().to_string();
    assert!(error.contains("there is no private key in `"), "{error}");
    assert_eq!(shown(&server, &authority).await, "O=second", "the old one stays in use");

    files.replace(&authority.server("third"));
    soon(async { while shown(&server, &authority).await != "O=third" {} }).await;

    act.complete().await;
    drop(act);
    let rest = stream.rest().await;
    let last = rest.last().unwrap().event();
    assert_eq!(
        text(&last).as_deref(),
        Some("TASK_STATE_COMPLETED"),
        "and who was there before is still there"
    );
}

#[tokio::test]
async fn files_that_make_no_sense_keep_a_server_from_starting() {
    let authority = Authority::new("authority");
    let (own, other) = (authority.server("first"), authority.server("second"));
    let files = Files::new(&own);
    let directory = files.path("");
    let mut refusals = Vec::new();
    for (name, text) in [
        ("server.crt", None),
        ("server.crt", Some("")),
        ("server.crt", Some(own.key.as_str())),
        ("server.crt", Some("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")),
        ("server.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
        ("server.key", None),
        ("server.key", Some(own.certificate.as_str())),
        ("server.key", Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")),
        ("server.key", Some(other.key.as_str())),
        ("clients.crt", None),
        ("clients.crt", Some(own.key.as_str())),
    ] {
        files.replace(&own);
        files.write("clients.crt", &authority.pem());
        match text {
            Some(text) => files.write(name, text),
            None => std::fs::remove_file(files.path(name)).unwrap(),
        }
        let tls = files.tls().client_certificates(files.path("clients.crt"), true);
        let error = player().bind("127.0.0.1:0").tls(tls).listen().await.err().expect("it does not start");
        assert!(matches!(error, ServerError::Tls(_)));
        refusals.push(error.to_string().replace(directory.to_str().unwrap(), ""));
    }
    insta::assert_snapshot!(refusals.join("\n"));
}

fn named(name: &'static str) -> impl FnOnce(&mut CertificateParams) {
    move |params| {
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, name);
    }
}

fn uri(uri: &'static str) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())]
}

/// A server that asks its clients for certificates, the authority of both, and a client with a certificate, if it has one.
struct Mutual {
    server: Running,
    authority: Authority,
}

impl Mutual {
    async fn new(required: bool, callers: impl attache_server::auth::Authenticator) -> Self {
        let authority = Authority::new("authority");
        let files = Files::new(&authority.server("server"));
        files.write("clients.crt", &authority.pem());
        let tls = files.tls().client_certificates(files.path("clients.crt"), required);
        let server = player().tls(tls).authenticate(callers);
        let server = serve_tls(server, authority.trusting().build().unwrap()).await;
        Self { server, authority }
    }

    /// The status of a listing for a client with this certificate and this token.
    async fn listing(&self, certified: Option<&Certified>, token: Option<&str>) -> Option<u16> {
        let builder = self.authority.trusting();
        let client = certified.into_iter().fold(builder, |builder, own| builder.identity(own.identity()));
        let request = client.build().unwrap().get(format!("{}/v1/tasks", self.server.base));
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        let response = soon(request.header("A2A-Version", "1.0").send()).await.ok()?;
        Some(response.status().as_u16())
    }

    /// The code of a listing over gRPC.
    async fn grpc_listing(&self, certified: Option<&Certified>) -> Option<tonic::Code> {
        let config = grpc_config(&self.authority);
        let config = certified.into_iter().fold(config, |config, own| config.identity(grpc_identity(own)));
        let mut client = connect_tls(&self.server.base, config).await.ok()?;
        let answer = client.call("ListTasks", json!({}), &[]).await;
        // A server that requires a certificate rejects the connection only after the client believes that it is connected.
        let code = answer.map_or_else(|status| status.code(), |_| tonic::Code::Ok);
        let hung_up =
            [tonic::Code::Unknown, tonic::Code::Unavailable, tonic::Code::Cancelled].contains(&code);
        (!hung_up).then_some(code)
    }
}

fn callers() -> CertificateCallers {
    CertificateCallers::new()
        .caller(CertificateName::Subject("CN=worker,O=Example".to_owned()), "worker")
        .caller(CertificateName::CommonName("ops".to_owned()), "ops")
        .caller(CertificateName::Uri("spiffe://example.com/billing".to_owned()), "billing")
        .caller(CertificateName::Dns("Worker.Example.COM".to_owned()), "dns")
        .caller(CertificateName::Email("a@example.com".to_owned()), "mail")
}

#[tokio::test]
async fn a_certificate_with_a_registered_name_authenticates() {
    let mutual = Mutual::new(true, callers()).await;
    let dns = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("worker.example.com".try_into().unwrap())];
    };
    let mail = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::Rfc822Name("a@example.com".try_into().unwrap())];
    };
    let own = &mutual.authority;
    for (certified, status, code) in [
        (own.client(named("worker")), 200, tonic::Code::Ok),
        (own.client(named("ops")), 200, tonic::Code::Ok),
        (own.client(uri("spiffe://example.com/billing")), 200, tonic::Code::Ok),
        (own.client(dns), 200, tonic::Code::Ok),
        (own.client(mail), 200, tonic::Code::Ok),
        (own.client(named("workers")), 401, tonic::Code::Unauthenticated),
        (own.client(named("worker,O=Example")), 401, tonic::Code::Unauthenticated),
        (own.client(uri("spiffe://example.com/billing/x")), 401, tonic::Code::Unauthenticated),
    ] {
        assert_eq!(mutual.listing(Some(&certified), None).await, Some(status));
        assert_eq!(mutual.grpc_listing(Some(&certified)).await, Some(code));
    }
}

#[tokio::test]
async fn where_a_certificate_is_required_clients_without_a_valid_one_cannot_connect() {
    let mutual = Mutual::new(true, callers()).await;
    let foreign = Authority::new("authority").client(named("worker"));
    let wrong_use = mutual.authority.server("Example");
    for certified in [None, Some(&foreign), Some(&wrong_use)] {
        assert_eq!(mutual.listing(certified, None).await, None);
        assert_eq!(mutual.grpc_listing(certified).await, None);
    }
}

#[tokio::test]
async fn where_a_certificate_is_optional_another_credential_will_do() {
    let callers = AnyOf::new(callers()).or(KnownCallers::new().bearer("alice", "t0ken"));
    let mutual = Mutual::new(false, callers).await;
    let worker = mutual.authority.client(named("worker"));
    let foreign = Authority::new("authority").client(named("worker"));
    for (certified, token, status) in [
        (Some(&worker), None, Some(200)),
        (None, Some("t0ken"), Some(200)),
        (Some(&worker), Some("wrong"), Some(200)),
        (None, None, Some(401)),
        (None, Some("wrong"), Some(401)),
        (Some(&foreign), Some("t0ken"), None),
    ] {
        assert_eq!(mutual.listing(certified, token).await, status, "{token:?}");
    }
    let request = mutual.server.http(Method::GET, "/v1/tasks");
    let challenges = fetch(request).await;
    let challenges: Vec<_> = challenges.headers.get_all("www-authenticate").iter().collect();
    assert_eq!(challenges, ["MutualTLS realm=\"a2a\"", "Bearer realm=\"a2a\""]);
}

#[tokio::test]
async fn where_both_are_needed_neither_alone_will_do_and_the_card_says_so() {
    let gateway = CertificateCallers::new()
        .caller(CertificateName::CommonName("gateway".to_owned()), Identity::named("gateway").scope("relay"));
    let callers = AllOf::new(KnownCallers::new().bearer("alice", "t0ken").basic("ops", "pa55")).and(gateway);
    let mutual = Mutual::new(false, callers).await;
    let gateway = mutual.authority.client(named("gateway"));
    for (certified, token, status) in [
        (Some(&gateway), Some("t0ken"), 200),
        (Some(&gateway), None, 401),
        (Some(&gateway), Some("wrong"), 401),
        (None, Some("t0ken"), 401),
    ] {
        assert_eq!(mutual.listing(certified, token).await, Some(status), "{token:?}");
    }
    let card = fetch(mutual.server.http(Method::GET, "/.well-known/agent-card.json")).await.json();
    let security = json!({"schemes": card["securitySchemes"], "requirements": card["securityRequirements"]});
    insta::assert_json_snapshot!(security);
}
