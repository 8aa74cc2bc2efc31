//! The environment changes the trusted roots and nothing else.

use std::io::ErrorKind;
use std::sync::Arc;

use attache_outbound::OutboundError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{answer, listen, local, request, with_environment};

#[test]
fn a_proxy_in_the_environment_is_not_used() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let variables = names.map(|name| (name, address.clone()));
    if with_environment("environment::a_proxy_in_the_environment_is_not_used", &variables) {
        block_on(async {
            let (listener, port) = listen().await;
            answer(listener, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(
                local().post(request(format!("http://hooks.example.com:{port}/"))).await.unwrap().status,
                200
            );
        });
    }
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

// On other systems the trusted roots do not come from a file.
#[cfg(target_os = "linux")]
#[test]
fn the_certificate_must_be_for_the_name_in_the_url() {
    let roots = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outbound/tls/root.pem").to_owned();
    let test = "environment::the_certificate_must_be_for_the_name_in_the_url";
    if with_environment(test, &[("SSL_CERT_FILE", roots)]) {
        block_on(async {
            let port = serve_tls().await;
            let post = async |host: &str| local().post(request(format!("https://{host}:{port}/"))).await;
            let answer = post("hooks.example.com").await.unwrap();
            assert_eq!(answer.body, "hooks.example.com", "TLS names the host, not the address");
            for host in ["other.example.com", "127.0.0.1"] {
                let error = post(host).await.unwrap_err();
                assert!(
                    matches!(&error, OutboundError::Failed(text) if text.contains("certificate")),
                    "{host}: {error}"
                );
            }
        });
    }
}

#[tokio::test]
async fn a_certificate_of_an_unknown_root_is_refused() {
    let port = serve_tls().await;
    let error = local().post(request(format!("https://hooks.example.com:{port}/"))).await.unwrap_err();
    assert!(matches!(&error, OutboundError::Failed(text) if text.contains("certificate")), "{error}");
}

#[test]
fn a_machine_without_roots_can_still_send() {
    let nowhere = [("SSL_CERT_FILE", "/dev/null".to_owned()), ("SSL_CERT_DIR", "/nonexistent".to_owned())];
    if with_environment("environment::a_machine_without_roots_can_still_send", &nowhere) {
        block_on(async {
            let (listener, port) = listen().await;
            answer(listener, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(
                local().post(request(format!("http://hooks.example.com:{port}/"))).await.unwrap().status,
                200
            );
        });
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

/// A receiver with a certificate for `hooks.example.com`. It responds with the name that the client requested.
async fn serve_tls() -> u16 {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
            let mut read = Vec::new();
            while !read.ends_with(b"{}") && stream.read_buf(&mut read).await.unwrap() > 0 {}
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}
