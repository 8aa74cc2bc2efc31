//! Credentials stay with the origin that the user gave them for.

use super::fake::{guarded, leading_to, redirecting_to};
use crate::home::{Home, Ran};

/// Neither sent nor shown, and what would send it.
fn assert_withheld(ran: &Ran, other: &str) {
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stderr.contains(&format!("--trust-origin {other}")), "{ran}");
    assert!(!ran.to_string().contains("t-1"), "{ran}");
}

fn assert_let_in(ran: &Ran) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "come in\n"), "{ran}");
}

#[tokio::test]
async fn a_token_does_not_go_to_another_origin_that_a_card_names() {
    let (other, home) = (guarded().await, Home::new());
    let url = leading_to(&other).await;
    let withheld = home.run(&["send", &url, "hi", "--token", "t-1"]).await;
    assert_withheld(&withheld, &other);
    let shown = withheld.to_string().replace(&url, "HOME").replace(&other, "OTHER");
    insta::assert_snapshot!("withheld", shown);
    let token = home.file("token", "t-1");
    for more in [&["--token-file", &token][..], &["--token", "t-1", "--binding", "jsonrpc"]] {
        assert_withheld(&home.run(&[&["send", &url, "hi"], more].concat()).await, &other);
    }
    let mut with_variable = home.command(&["send", &url, "hi"]);
    let ran = with_variable.env("ATTACHE_TOKEN", "t-1").output().await.expect("it runs");
    assert_eq!(ran.status.code(), Some(4), "{ran:?}");
    for command in [&["task", "list", &url][..], &["task", "get", &url, "t"], &["task", "cancel", &url, "t"]]
    {
        assert_withheld(&home.run(&[command, &["--token", "t-1"]].concat()).await, &other);
    }
    let trusting = ["send", &url, "hi", "--token", "t-1", "--trust-origin", &other];
    assert_let_in(&home.run(&trusting).await);
    // Without credentials, the agent is asked, and requires some.
    assert_eq!(home.run(&["send", &url, "hi"]).await.code, Some(4));
}

#[tokio::test]
async fn a_token_does_not_go_to_another_origin_that_a_redirect_names() {
    let (other, home) = (guarded().await, Home::new());
    let url = redirecting_to(&other).await;
    assert_withheld(&home.run(&["send", &url, "hi", "--token", "t-1"]).await, &other);
    let trusting = ["send", &url, "hi", "--token", "t-1", "--trust-origin", &other];
    assert_let_in(&home.run(&trusting).await);
}

#[tokio::test]
async fn a_stored_credential_does_not_either_and_trust_is_stored_with_it() {
    let (other, home) = (guarded().await, Home::new());
    let url = leading_to(&other).await;
    home.run(&["agents", "add", "plain", &url, "--token", "t-1"]).await;
    assert_withheld(&home.run(&["send", "plain", "hi"]).await, &other);
    home.run(&["agents", "add", "trusting", &url, "--token", "t-1", "--trust-origin", &other]).await;
    assert_let_in(&home.run(&["send", "trusting", "hi"]).await);

    home.run_with_input(&["login", &url, "--token-stdin"], "t-1\n").await;
    assert_withheld(&home.run(&["send", &url, "hi"]).await, &other);
    assert_let_in(&home.run(&["send", &url, "hi", "--trust-origin", &other]).await);
    home.run_with_input(&["login", &url, "--token-stdin", "--trust-origin", &other], "t-1\n").await;
    assert_let_in(&home.run(&["send", &url, "hi"]).await);
}

#[tokio::test]
async fn the_names_of_this_machine_are_one_origin() {
    let (url, home) = (guarded().await, Home::new());
    let named = url.replace("127.0.0.1", "localhost");
    assert_let_in(&home.run(&["send", &named, "hi", "--token", "t-1"]).await);
}

#[tokio::test]
async fn what_is_trusted_is_an_origin() {
    let home = Home::new();
    let ran =
        home.run(&["send", "http://127.0.0.1:1", "hi", "--trust-origin", "https://a.example/agents"]).await;
    insta::assert_snapshot!("bad_trust_origin", ran);
}
