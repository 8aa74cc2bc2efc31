//! Several listeners in one process.

use attache_server::auth::{AnyOf, KnownCallers, UnixCallers};
use attache_server::{LocalAddress, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::{Transport, ask, everywhere, request};
use crate::support::{player, send, soon};

#[tokio::test]
async fn all_addresses_answer_and_the_card_describes_the_first_tcp_address() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
    let server = Server::echo()
        .bind(format!("unix:{}", sockets[0].display()))
        .bind("127.0.0.1:0")
        .bind("127.0.0.1:0")
        .bind(format!("unix:{}", sockets[1].display()));
    let listening = server.listen().await.unwrap();
    let tcp: Vec<_> = listening
        .local_addresses()
        .unwrap()
        .into_iter()
        .filter_map(|address| match address {
            LocalAddress::Tcp(address) => Some(address),
            LocalAddress::Unix(_) => None,
        })
        .collect();
    assert_eq!(listening.address().unwrap(), tcp[0]);
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(listening.run_until(async {
        let _ = stopped.await;
    }));
    let card = async |host: &str| -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{host}/.well-known/agent-card.json");
        soon(client.get(url).send()).await.unwrap().json().await.unwrap()
    };
    for address in &tcp {
        let card = card(&address.to_string()).await;
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("http://{address}/a2a"));
    }
    for socket in &sockets {
        let mut stream = soon(UnixStream::connect(socket)).await.unwrap();
        let head =
            "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        soon(stream.read_to_string(&mut response)).await.unwrap();
        assert!(response.contains("http://localhost/a2a"), "{response}");
    }
    stop.send(()).unwrap();
    soon(served).await.unwrap().unwrap();
    assert!(sockets.iter().all(|socket| !socket.exists()));
}

#[tokio::test]
async fn an_address_that_cannot_be_bound_is_named_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = Server::echo().bind(format!("unix:{}", socket.display())).bind(&address);
    let error = server.listen().await.err().unwrap().to_string();
    assert!(error.contains(&address), "{error}");
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_process_is_known_by_its_user_over_a_unix_socket_alone() {
    let own = rustix::process::getuid().as_raw();
    for (uid, is_known) in [(own, true), (own + 1, false)] {
        let callers = UnixCallers::new().caller(uid, "ops");
        let callers = AnyOf::new(callers).or(KnownCallers::new().bearer("ann", "t0ken-of-ann-for-the-tests"));
        let mut server = everywhere(player().authenticate(callers)).await;
        for (transport, has_user) in [(Transport::Unix, true), (Transport::WebSocket, false)] {
            let mut wire = server.wire(transport).await;
            let answer = ask(&mut *wire, request("1", "SendMessage", send("hello"))).await;
            let answered = answer["result"]["task"].is_object();
            assert_eq!(answered, is_known && has_user, "{transport:?} {uid}: {answer}");
            let mut with_token = request("2", "SendMessage", send("hello"));
            with_token["headers"]["Authorization"] = json!("Bearer t0ken-of-ann-for-the-tests");
            let answer = ask(&mut *wire, with_token).await;
            assert!(answer["result"]["task"].is_object(), "{transport:?} {uid}: {answer}");
        }
    }
}
