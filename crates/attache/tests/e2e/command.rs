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
    insta::assert_snapshot!("config_help", attache(&["config", "--help"]).await);
    insta::assert_snapshot!("task_list_help", attache(&["task", "list", "--help"]).await);
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

#[tokio::test]
async fn every_command_has_a_manual_page_and_completions_have_a_place() {
    let home = Home::new();
    let folder = home.path("man/man1");
    let ran = home.run(&["man", &folder.display().to_string()]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran}");
    for name in ["attache.1", "attache-serve.1", "attache-task-list.1", "attache-config-init.1"] {
        let page =
            std::fs::read_to_string(folder.join(name)).unwrap_or_else(|_| panic!("there is no {name}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(!folder.join("attache-reference.1").exists(), "a hidden command has no page");
    let refused = home.run(&["man", &home.file("taken", "")]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("cannot be written to"), "{refused}");
    insta::assert_snapshot!("completions_help", attache(&["completions", "--help"]).await);
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_signal_ends_the_server_at_once() {
    let demo = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let (program, _, mut log) =
        Program::watched(&demo, &[("ATTACHE_STORE", "memory:"), ("NO_COLOR", "1")]).await;
    let home = Home::new();
    home.run(&["send", &program.url, r#"demo::wait {"seconds": 600}"#, "--no-wait"]).await;
    program.interrupt().await;
    let line = log.line_with("waiting for 1 turn").await;
    assert!(line.contains("a second signal stops at once") && line.contains("seconds="), "{line}");
    program.interrupt().await;
    log.line_with("error: stopped by a second signal").await;
    assert_eq!(program.end().await.code(), Some(130));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_a_server_says_what_it_waits_for() {
    let home = Home::new();
    let demo =
        ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0", "--store", "memory"];
    let mut serve = crate::terminal::Terminal::start(home.command(&demo));
    let screen = serve.wait_for("Ctrl-C stops the server.");
    let url =
        screen.split("attache chat ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a URL");
    home.run(&["send", url, r#"demo::wait {"seconds": 600}"#, "--no-wait"]).await;
    let pid = serve.pid().to_string();
    let interrupt = async || {
        tokio::process::Command::new("kill").args(["-INT", &pid]).status().await.expect("kill works");
    };
    interrupt().await;
    let screen = serve.wait_for(" s more");
    assert!(screen.contains("Ctrl-C again stops at once"), "{screen}");
    assert!(screen.contains("waiting for 1 turn, at most "), "{screen}");
    interrupt().await;
    let (status, screen) = serve.end();
    assert_eq!(status.code(), Some(130), "{screen}");
    assert!(screen.contains("error: stopped by a second signal") && !screen.contains("at most"), "{screen}");
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
            json!("https://agents.example.com/grpc"),
            // The same for clients of 0.3.
            json!("https://agents.example.com/a2a"),
            json!("https://agents.example.com/0.3"),
            json!("https://agents.example.com/grpc"),
        ]
    );
}

#[tokio::test]
async fn a_termination_signal_ends_it_well() {
    let (program, _) = Program::command(&ECHO).await;
    program.send("Hello", None).await;
    assert!(program.stop().await.success());
}
