//! Which addresses the client connects to.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use attache_outbound::{OutboundError, OutboundRequest, Policy, Refused, Resolver};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::support::{Scripted, answer, client, is_untouched, listen, local, request};

const DONE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const DONE_AND_CLOSED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Allows `127.0.0.1` but not `127.0.0.2`.
fn one_address() -> Policy {
    Policy::default().allow(["127.0.0.1/32".parse().unwrap()])
}

fn is_address(error: &OutboundError, expected: &str) -> bool {
    matches!(error, OutboundError::Refused(Refused::Address { address, .. }) if address.to_string() == expected)
}

#[tokio::test]
async fn a_name_that_moves_to_a_private_address_is_refused_when_dialled() {
    let (listener, port) = listen().await;
    answer(listener, DONE_AND_CLOSED);
    let url = format!("http://hooks.example.com:{port}/");
    let resolver = Scripted::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let client = client(one_address(), resolver.clone());
    assert_eq!(client.post(request(&url)).await.unwrap().status, 200);
    let error = client.post(request(&url)).await.unwrap_err();
    assert!(is_address(&error, "127.0.0.2"), "{error}");
    assert_eq!(resolver.asked(), 2);
}

#[tokio::test]
async fn the_answer_that_was_checked_is_the_one_that_is_dialled() {
    let (listener, port) = listen().await;
    answer(listener, DONE);
    let resolver = Scripted::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let client = client(one_address(), resolver.clone());
    for _ in 0..3 {
        assert_eq!(
            client.post(request(format!("http://hooks.example.com:{port}/"))).await.unwrap().status,
            200
        );
    }
    assert_eq!(resolver.asked(), 1, "a connection that is kept is not resolved again");
}

#[tokio::test]
async fn one_bad_address_among_good_ones_refuses_all() {
    let (listener, port) = listen().await;
    for answer in [["127.0.0.1", "10.0.0.1"], ["fe80::1", "127.0.0.1"]] {
        let client = client(one_address(), Scripted::new(&[&answer]));
        let error = client.post(request(format!("http://hooks.example.com:{port}/"))).await.unwrap_err();
        assert!(matches!(error, OutboundError::Refused(Refused::Address { .. })), "{error}");
    }
    assert!(is_untouched(listener));
}

#[tokio::test]
async fn a_public_name_with_a_private_address_is_not_connected_to() {
    let (listener, port) = listen().await;
    for name in ["127.0.0.1.nip.io", "localtest.me", "hooks.example.com"] {
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0", "::"] {
            let client = client(Policy::default(), Scripted::new(&[&[address]]));
            let error = client.post(request(format!("http://{name}:{port}/"))).await.unwrap_err();
            assert!(
                matches!(error, OutboundError::Refused(Refused::Address { .. })),
                "{name} {address}: {error}"
            );
        }
    }
    assert!(is_untouched(listener));
}

#[tokio::test]
async fn a_literal_address_is_checked_on_every_request() {
    let (listener, port) = listen().await;
    let resolver = Scripted::new(&[&["8.8.8.8"]]);
    let client = client(Policy::default(), resolver.clone());
    for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "0"] {
        let error = client.post(request(format!("http://{host}:{port}/"))).await.unwrap_err();
        assert!(matches!(error, OutboundError::Refused(Refused::Address { .. })), "{host}: {error}");
    }
    assert!(is_untouched(listener));
    assert_eq!(resolver.asked(), 0);
}

#[tokio::test]
async fn a_literal_address_that_is_allowed_is_connected_to() {
    let (listener, port) = listen().await;
    answer(listener, DONE);
    assert_eq!(local().post(request(format!("http://127.0.0.1:{port}/"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let (elsewhere, other) = listen().await;
    for status in [301, 302, 303, 307, 308] {
        let (listener, port) = listen().await;
        let bytes = format!(
            "HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n"
        );
        answer(listener, bytes.leak());
        let answer = local().post(request(format!("http://hooks.example.com:{port}/"))).await.unwrap();
        assert_eq!(answer.status, status);
    }
    assert!(is_untouched(elsewhere));
}

#[tokio::test]
async fn a_resolver_that_never_answers_is_cut_off() {
    let limit = Duration::from_millis(50);
    let client = client(Policy::default(), Arc::new(Silent));
    let result =
        client.post(OutboundRequest { timeout: limit, ..request("http://hooks.example.com/") }).await;
    assert_eq!(result.unwrap_err(), OutboundError::TimedOut { limit });
}

struct Silent;

impl Resolver for Silent {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn a_name_without_addresses_and_a_closed_port_are_failures_not_refusals() {
    let client = client(Policy::default(), Scripted::new(&[&[]]));
    let error = client.post(request("http://hooks.example.com/?token=s3cret")).await.unwrap_err();
    let OutboundError::Failed(text) = error else { panic!("{error:?}") };
    assert!(text.contains("the name has no address") && !text.contains("s3cret"), "{text}");

    let (listener, port) = listen().await;
    drop(listener);
    let error =
        local().post(request(format!("http://hooks.example.com:{port}/?token=s3cret"))).await.unwrap_err();
    let OutboundError::Failed(text) = error else { panic!("{error:?}") };
    assert!(!text.contains("s3cret"), "{text}");
}
