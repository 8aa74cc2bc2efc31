//! The `attache` command as a user meets it.

use crate::home::Home;
use crate::support::Program;
use serde_json::json;

/// The smallest agent, on a free port.
const ECHO: [&str; 5] = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0"];

/// Runs the command in a home of its own.
async fn attache(arguments: &[&str]) -> String {
    Home::new().run(arguments).await.to_string()
}

#[tokio::test]
async fn help_teaches() {
    insta::assert_snapshot!("help", attache(&["--help"]).await);
    insta::assert_snapshot!("serve_help", attache(&["serve", "--help"]).await);
    insta::assert_snapshot!("store_help", attache(&["store", "--help"]).await);
    insta::assert_snapshot!("store_compact_help", attache(&["store", "compact", "--help"]).await);
    insta::assert_snapshot!("push_dead_help", attache(&["push", "dead", "--help"]).await);
    insta::assert_snapshot!("send_help", attache(&["send", "--help"]).await);
    insta::assert_snapshot!("chat_help", attache(&["chat", "--help"]).await);
    insta::assert_snapshot!("task_help", attache(&["task", "--help"]).await);
    insta::assert_snapshot!("push_help", attache(&["push", "--help"]).await);
    insta::assert_snapshot!("agents_help", attache(&["agents", "--help"]).await);
}

#[tokio::test]
async fn mistakes_get_an_error_and_a_hint() {
    insta::assert_snapshot!("unknown_agent", attache(&["serve", "--agent", "parrot"]).await);
    insta::assert_snapshot!("bad_base_url", attache(&["serve", "--base-url", "agents.example.com"]).await);
    insta::assert_snapshot!("bad_log", attache(&["serve", "--log", "a=b=c"]).await);
    insta::assert_snapshot!(
        "bad_listen",
        attache(&["serve", "--agent", "echo", "--listen", "nowhere", "--store", "memory:"]).await
    );
    insta::assert_snapshot!("bad_store", attache(&["serve", "--store", "postgres://user:s3cret@x/y"]).await);
    insta::assert_snapshot!("bad_age", attache(&["serve", "--keep-for", "30"]).await);
    insta::assert_snapshot!("bad_network", attache(&["serve", "--allow-webhook-network", "10.0.0"]).await);
    insta::assert_snapshot!(
        "bad_secret_file",
        attache(&["serve", "--agent", "echo", "--store", "memory:", "--push-secret-file", "/nowhere/secret"])
            .await
    );
    insta::assert_snapshot!("check_memory", attache(&["store", "check", "--store", "memory:"]).await);
    insta::assert_snapshot!(
        "check_nothing",
        attache(&["store", "check", "--store", "sqlite:/nowhere/at/all.db"]).await
    );
    insta::assert_snapshot!(
        "engine_for_everyone",
        attache(&["serve", "--engine-listen", "0.0.0.0:0", "--store", "memory:"]).await
    );
    insta::assert_snapshot!(
        "bad_engine_listen",
        attache(&["serve", "--engine-listen", "nowhere", "--store", "memory:"]).await
    );
    insta::assert_snapshot!(
        "bad_token_file",
        attache(&["serve", "--engine-token-file", "/nowhere/token", "--store", "memory:"]).await
    );
    insta::assert_snapshot!("echo_with_demo", attache(&["serve", "--agent", "echo", "--demo"]).await);
    insta::assert_snapshot!("bad_delivery", attache(&["push", "dead", "retry", "x"]).await);
}

#[tokio::test]
async fn the_reference_is_what_the_command_says_about_itself() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/command.md");
    let page =
        std::fs::read_to_string(path).expect("`cargo xtask docs` has written docs/reference/command.md");
    let reference = Home::new().run(&["reference"]).await.stdout;
    assert!(page == reference, "docs/reference/command.md is not up to date: run `cargo xtask docs`");
}

#[tokio::test]
async fn every_shell_can_complete() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = Home::new().run(&["completions", shell]).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stdout.contains("completions") && ran.stdout.contains("no-wait"), "{shell}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn tasks_are_kept_below_the_users_directories_and_for_the_user_only() {
    use std::os::unix::fs::PermissionsExt;

    let home = tempfile::tempdir().expect("a folder");
    let place = |below: &str| home.path().join(below).display().to_string();
    let places = [("XDG_DATA_HOME", place("data")), ("XDG_CONFIG_HOME", place("config"))];
    let environment = places.each_ref().map(|(name, value)| (*name, value.as_str()));
    let (program, said) = Program::command_with(&ECHO, &environment).await;
    let file = home.path().join("data/attache/attache.db");
    assert!(said.contains(&format!("sqlite:{}", file.display())), "{said}");
    program.send("Hello", None).await;
    assert!(program.stop().await.success());
    for path in [file, home.path().join("config/attache/keyring.json")] {
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let (first, _) = Program::command(&ECHO).await;
    let address = first.url.trim_start_matches("http://");
    let second = attache(&["serve", "--agent", "echo", "--listen", address, "--store", "memory:"]).await;
    insta::assert_snapshot!("port_in_use", second.replace(address, "ADDR"));
}

#[tokio::test]
async fn serve_says_where_it_is_and_what_to_try() {
    let (program, said) = Program::command(&ECHO).await;
    let address = program.url.trim_start_matches("http://");
    insta::assert_snapshot!("serve", said.replace(address, "ADDR"));
    let answer = program.send("Hello", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "Hello");
}

#[tokio::test]
async fn the_card_advertises_the_base_url() {
    let base = ["--base-url", "https://agents.example.com/", "--insecure"];
    let (program, _) = Program::command(&[&ECHO[..], &base].concat()).await;
    let card =
        reqwest::get(format!("{}/.well-known/agent-card.json", program.url)).await.expect("there is a card");
    let card: serde_json::Value = card.json().await.expect("a card is JSON");
    let urls: Vec<_> =
        card["supportedInterfaces"].as_array().into_iter().flatten().map(|i| i["url"].clone()).collect();
    assert_eq!(
        urls,
        [
            json!("https://agents.example.com/a2a"),
            json!("https://agents.example.com/v1"),
            json!("agents.example.com:443"),
            // The same for clients of 0.3.
            json!("https://agents.example.com/a2a"),
            json!("https://agents.example.com"),
            json!("agents.example.com:443"),
        ]
    );
}

#[tokio::test]
async fn a_termination_signal_ends_it_well() {
    let (program, _) = Program::command(&ECHO).await;
    program.send("Hello", None).await;
    assert!(program.stop().await.success());
}
