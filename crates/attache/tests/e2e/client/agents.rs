//! `attache agents`.

use super::echo;
use super::fake::guarded;
use crate::home::Home;

#[tokio::test]
async fn a_name_stands_for_an_address_and_credentials() {
    let (url, home) = (guarded().await, Home::new());
    let added = home.run(&["agents", "add", "partner", &url, "--token", "t-1", "--binding", "jsonrpc"]).await;
    insta::assert_snapshot!("agents_added", added);
    let answer = home.run(&["send", "partner", "hi"]).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), "come in\n"), "{answer}");
    let other = home.run(&["send", "partner", "hi", "--token", "t-2"]).await;
    assert_eq!(other.code, Some(4), "what is said now goes before what was kept");
    let unlike = home.command(&["send", "partner", "hi"]).env("ATTACHE_TOKEN", "t-2").output().await;
    assert!(
        unlike.expect("it runs").status.success(),
        "the environment is for agents without a token of their own"
    );
}

#[tokio::test]
async fn secrets_are_kept_for_the_user_only_and_never_shown() {
    let (agent, home) = (echo().await, Home::new());
    let url = agent.url.as_str();
    let secrets = ["--token", "s3cret-1", "--user", "ann:s3cret-2", "--api-key", "s3cret-3"];
    home.run(&[&["agents", "add", "echo", url], &secrets[..]].concat()).await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &str| {
            std::fs::metadata(home.path(path)).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!((mode(".config/attache"), mode(".config/attache/agents.json")), (0o700, 0o600));
    }
    for arguments in [
        &["agents", "list"][..],
        &["agents", "list", "--json"],
        &["agents", "ping", "--json"],
        &["card", "echo"],
    ] {
        let ran = home.run(arguments).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(!ran.to_string().contains("s3cret"), "{ran}");
    }
    insta::assert_snapshot!("agents_list", home.run(&["agents", "list"]).await.masked(url));
    insta::assert_snapshot!("agents_list_json", home.run(&["agents", "list", "--json"]).await.masked(url));
    home.file(".config/attache/agents.json", r#"{"agents": {"echo": {"token": "s3cret-4", "url": 7}}}"#);
    let broken = home.run(&["agents", "list"]).await;
    assert!(broken.code == Some(1) && !broken.stderr.contains("s3cret"), "{broken}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = home.path(".config/attache/agents.json");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        let open = home.run(&["agents", "list"]).await;
        assert!(open.code == Some(1) && open.stderr.contains("others can read it"), "{open}");
    }
}

#[tokio::test]
async fn names_are_given_once_and_forgotten() {
    let (agent, home) = (echo().await, Home::new());
    let url = agent.url.as_str();
    insta::assert_snapshot!("agents_none", home.run(&["agents", "list"]).await);
    home.run(&["agents", "add", "echo", url]).await;
    insta::assert_snapshot!(
        "agents_twice",
        home.run(&["agents", "add", "echo", "http://elsewhere"]).await.masked(url)
    );
    assert_eq!(home.run(&["agents", "add", "echo", "http://elsewhere", "--replace"]).await.code, Some(0));
    insta::assert_snapshot!("agents_rm", home.run(&["agents", "rm", "echo"]).await);
    insta::assert_snapshot!("agents_rm_again", home.run(&["agents", "rm", "echo"]).await);
    insta::assert_snapshot!(
        "agents_bad_name",
        home.run(&["agents", "add", "my agent", url]).await.masked(url)
    );
    insta::assert_snapshot!("agents_bad_url", home.run(&["agents", "add", "echo", "agents.example"]).await);
    insta::assert_snapshot!("agents_ping_none", home.run(&["agents", "ping"]).await);
}

#[tokio::test]
async fn a_ping_ends_with_3_if_an_agent_does_not_answer() {
    let (agent, home) = (echo().await, Home::new());
    home.run(&["agents", "add", "echo", &agent.url]).await;
    assert_eq!(home.run(&["agents", "ping"]).await.code, Some(0));
    home.run(&["agents", "add", "gone", "http://127.0.0.1:1"]).await;
    let ran = home.run(&["agents", "ping"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), "error: 1 of 2 agents did not answer\n"));
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("echo  ") && lines[0].ends_with("Echo 1.0.0"), "{ran}");
    assert!(lines[1].starts_with("gone  no answer"), "{ran}");
}
