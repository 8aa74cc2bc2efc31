//! `attache health`, as containers and scripts use it.

use crate::home::Home;
use crate::support::{Program, free_address};

#[tokio::test]
async fn health_finds_the_server_of_the_settings() {
    let home = Home::new();
    let address = free_address();
    let file = home.file("attache.yml", &format!("listen: {address}\nagent: echo\nstore: \"memory:\"\n"));
    let before = home.run(&["health", "--config", &file]).await;
    assert_eq!(before.code, Some(3), "{before}");
    assert!(before.stderr.contains(&format!("`http://{address}/health` cannot be reached")), "{before}");

    let (_server, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
    let healthy = home.run(&["health", "--config", &file]).await;
    assert_eq!((healthy.code, healthy.stdout.as_str()), (Some(0), "healthy\n"), "{healthy}");
    let ready = home.run(&["health", "--ready", "--config", &file, "--json"]).await;
    assert!(ready.stdout.contains("\"status\": \"ready\""), "{ready}");
    let url = home.run(&["health", &format!("http://{address}/")]).await;
    assert_eq!(url.code, Some(0), "{url}");
    let nothing = home.run(&["health", &format!("http://{address}/elsewhere")]).await;
    assert_eq!(nothing.code, Some(1), "{nothing}");
    assert!(nothing.stderr.contains("404"), "{nothing}");
}

#[cfg(unix)]
#[tokio::test]
async fn health_finds_a_server_on_a_unix_socket() {
    let home = Home::new();
    let socket = format!("unix:{}", home.path("socket").display());
    let arguments = ["--agent", "echo", "--store", "memory:", "--listen", &socket];
    let (_server, _) = Program::command_with(&[&["serve"], arguments.as_slice()].concat(), &[]).await;
    let healthy = home.run(&["health", "--listen", &socket]).await;
    assert_eq!((healthy.code, healthy.stdout.as_str()), (Some(0), "healthy\n"), "{healthy}");
}

#[tokio::test]
async fn health_asks_an_encrypted_server_that_wants_credentials() {
    let home = Home::new();
    let address = free_address();
    let pair = rcgen::generate_simple_self_signed(["agents.example.com".to_owned()]).expect("a certificate");
    let certificate = home.file("server.pem", &pair.cert.pem());
    let key = home.file("server.key", &pair.signing_key.serialize_pem());
    let settings = format!(
        "listen: {address}\nagent: echo\nstore: \"memory:\"\npublic-health: false\n\
         tls: {{ certificate: {certificate}, key: {key} }}\n\
         auth: {{ bearer: [{{ name: alice, token: a token of sixteen bytes }}] }}\n"
    );
    let file = home.file("attache.yml", &settings);
    let (_server, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
    let healthy = home.run(&["health", "--config", &file]).await;
    assert_eq!((healthy.code, healthy.stdout.as_str()), (Some(0), "healthy\n"), "{healthy}");
}
