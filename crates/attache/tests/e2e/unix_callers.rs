//! Callers that a server on a Unix socket knows by their user, on every binding that the socket speaks.

use tokio::net::{TcpListener, UnixStream};

use crate::home::Home;
use crate::support::Program;

/// Passes connections to a port of this machine on to a socket, for clients that only know ports. Returns the port.
async fn relay(socket: std::path::PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it has one").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                let mut server = UnixStream::connect(socket).await.expect("the server listens");
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_user_of_the_settings_is_the_caller_over_every_binding_of_a_unix_socket() {
    let own = rustix::process::getuid().as_raw();
    for (uid, is_known) in [(own, true), (own + 1, false)] {
        let home = Home::new();
        let socket = home.path("agent.sock");
        let port = relay(socket.clone()).await;
        let (url, lines) = (format!("http://127.0.0.1:{port}"), format!("unix:{}", socket.display()));
        let settings = format!(
            "agent: echo\nstore: memory\nlisten: {lines}\nbase-url: {url}\nlog: {{ requests: true }}\nauth: {{ unix: [{{ name: ops, uid: {uid} }}] }}\n"
        );
        let file = home.file("attache.yml", &settings);
        let (_server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        for (prefer, binding) in [
            ("jsonrpc", "JSONRPC"),
            ("http-json", "HTTP+JSON"),
            ("grpc", "GRPC"),
            ("websocket", "JSONRPC-WEBSOCKET"),
            ("grpc-jsonrpc", "JSONRPC-GRPC"),
            ("unix", "JSONRPC-LINES"),
        ] {
            let sent = match prefer {
                "unix" => home.run(&["send", &lines, "Hello"]).await,
                _ => home.run(&["send", &url, "Hello", "--prefer", prefer]).await,
            };
            if !is_known {
                assert!(sent.code != Some(0) && !sent.stdout.contains("Hello"), "{prefer}: {sent}");
                continue;
            }
            assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "Hello\n"), "{prefer}: {sent}");
            let line = log.line_with(&format!("binding=\"{binding}\" operation=\"SendMessage\"")).await;
            assert!(line.contains("caller=\"ops\""), "{prefer}: {line}");
        }
    }
}
