//! TLS, with certificates on either side.

use std::net::SocketAddr;
use std::sync::Arc;

use attache_client::{
    Binding, Client, ClientError, RootCertificates, SchemeCredentials, TlsIdentity, TrustedOrigins,
};
use attache_protocol::{
    AgentCard, HttpAuthSecurityScheme, MutualTlsSecurityScheme, SecurityRequirement, SecurityScheme,
};
use attache_server::Server;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::support::{Fake, quick, rpc_result, soon};

/// A certificate authority. Its certificates are trusted by a client or server that has its root.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a name, and its key, as PEM.
    fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn identity(&self) -> TlsIdentity {
        let (certificate, key) = self.certify("client");
        TlsIdentity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap()
    }

    fn roots(&self) -> RootCertificates {
        RootCertificates::from_pem(self.pem.as_bytes()).unwrap()
    }

    fn config(&self, wants_certificate: bool) -> ServerConfig {
        let (certificate, key) = self.certify("localhost");
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if wants_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

/// Serves an agent over TLS until the test ends.
async fn serve(config: ServerConfig, card: AgentCard) -> String {
    serve_leading_to(config, card, None).await
}

/// The same, with a card that names another address.
async fn serve_leading_to(config: ServerConfig, card: AgentCard, to: Option<&str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let server = Server::echo().card(card).base_url(to.unwrap_or(&url)).bind("127.0.0.1:0");
    let listening = server.listen().await.unwrap();
    let behind: SocketAddr = listening.address().unwrap();
    tokio::spawn(listening.run_until(std::future::pending()));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut outside) = acceptor.accept(socket).await {
                    let mut inside = TcpStream::connect(behind).await.unwrap();
                    let _ = copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    });
    url
}

fn card() -> AgentCard {
    AgentCard::new("Safe", "Behind TLS")
}

/// A card that requires a client certificate.
fn asking() -> AgentCard {
    let mut card = card();
    let scheme = SecurityScheme::MutualTls(MutualTlsSecurityScheme::default());
    card.security_schemes.insert("certificate".to_owned(), scheme);
    let schemes = [("certificate".to_owned(), Default::default())].into();
    card.security_requirements.push(SecurityRequirement { schemes });
    card
}

const BINDINGS: [Binding; 5] =
    [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc, Binding::WebSocket, Binding::GrpcJsonRpc];

#[tokio::test]
async fn a_private_authority_is_trusted_if_it_is_named_over_every_binding() {
    let authority = Authority::new();
    let url = serve(authority.config(false), card()).await;
    for binding in BINDINGS {
        let options = quick().roots(vec![authority.roots()]).prefer(binding);
        let agent = soon(Client::connect_with(&url, options)).await.unwrap();
        soon(agent.send("hi")).await.unwrap();
    }
    for roots in [vec![], vec![Authority::new().roots()]] {
        let error = soon(Client::connect_with(&url, quick().roots(roots))).await.unwrap_err();
        let why = "the certificate of the server is not trusted: ";
        assert!(matches!(error, ClientError::Connect { .. }) && error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn an_agent_that_wants_a_certificate_is_shown_it_over_every_binding() {
    let authority = Authority::new();
    let url = serve(authority.config(true), asking()).await;
    let options = |identity| {
        let mut options = quick().roots(vec![authority.roots()]).with_credentials(SchemeCredentials::new());
        options.identity = identity;
        options
    };
    for binding in BINDINGS {
        let options = options(Some(authority.identity())).prefer(binding);
        let agent = soon(Client::connect_with(&url, options)).await.unwrap();
        soon(agent.send("hi")).await.unwrap();
    }
    for identity in [None, Some(Authority::new().identity())] {
        assert!(soon(Client::connect_with(&url, options(identity))).await.is_err());
    }
}

#[tokio::test]
async fn a_missing_client_certificate_is_reported_before_anything_is_sent() {
    let authority = Authority::new();
    let url = serve(authority.config(false), asking()).await;
    let options = quick().roots(vec![authority.roots()]).with_credentials(SchemeCredentials::new());
    let agent = soon(Client::connect_with(&url, options)).await.unwrap();
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Credentials { wanted, .. } if *wanted == ["`certificate`"]),
        "{error}"
    );
}

#[tokio::test]
async fn credentials_for_https_go_to_http_only_on_this_machine_and_only_if_trusted() {
    let authority = Authority::new();
    let mut card = card();
    card.security_schemes.insert(
        "bearer".to_owned(),
        SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
            scheme: "Bearer".to_owned(),
            ..Default::default()
        }),
    );
    card.security_requirements
        .push(SecurityRequirement { schemes: [("bearer".to_owned(), Default::default())].into() });
    let plain = Fake::server(|asked| rpc_result(asked, &json!({"task": {"id": "t"}}))).await;
    for (to, can_be_trusted) in [("http://agents.example", false), (plain.url.as_str(), true)] {
        let url = serve_leading_to(authority.config(false), card.clone(), Some(to)).await;
        let options = quick().roots(vec![authority.roots()]);
        let options =
            options.with_credentials(SchemeCredentials::new().token("s3cret")).prefer(Binding::JsonRpc);
        let agent = soon(Client::connect_with(&url, options.clone())).await.unwrap();
        let error = soon(agent.send("hi")).await.unwrap_err();
        let ClientError::Withheld { can_be_trusted: can, .. } = error else { panic!("{error}") };
        assert_eq!(can, can_be_trusted, "{to}");

        let trusted_origins = TrustedOrigins::new().trust(to).unwrap();
        let options = options.trusted_origins(trusted_origins);
        let agent = soon(Client::connect_with(&url, options)).await.unwrap();
        let sent = soon(agent.send("hi")).await;
        if can_be_trusted {
            sent.unwrap();
            let calls = plain.calls();
            assert_eq!((calls.len(), calls[0].header("authorization")), (1, Some("Bearer s3cret")));
            continue;
        }
        assert!(matches!(sent, Err(ClientError::Withheld { .. })), "{sent:?}");
    }
}
