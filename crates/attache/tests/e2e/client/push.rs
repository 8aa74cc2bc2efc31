//! `attache push add`, `list`, `rm` and `listen`.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{LONG, demo};
use crate::home::Home;

#[tokio::test]
async fn news_is_received_if_it_is_signed_and_brings_the_token_back() {
    let home = Home::new();
    let secret = home.file("secret", "0123456789abcdef0123456789abcdef");
    let agent = demo(&["--allow-loopback-webhooks", "--push-secret-file", &secret]).await;
    let url = agent.url.as_str();
    let listen =
        ["push", "listen", "--listen", "127.0.0.1:0", "--secret-file", &secret, "--count", "1", "--json"];
    let mut listening =
        home.command(&[&listen[..], &["--notification-token", "t0k"]].concat()).spawn().expect("it starts");
    let mut said = BufReader::new(listening.stderr.take().expect("it is ours")).lines();
    let first = said.next_line().await.expect("text").expect("it says where it listens");
    let webhook = first.strip_prefix("Listening on ").expect("an address").to_owned();

    let forged = reqwest::Client::new().post(&webhook).header("x-a2a-notification-token", "t0k").body("{}");
    assert_eq!(forged.send().await.expect("an answer").status(), 401);
    let refused = said.next_line().await.expect("text").expect("it says so");
    assert_eq!(refused, "refused a notification: it is not signed (no `X-A2A-Signature` with `t` and `v1`)");

    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    let task = task.trim();
    let added =
        home.run(&["push", "add", url, task, &webhook, "--notification-token", "t0k", "--id", "h1"]).await;
    assert_eq!((added.code, added.stdout.as_str()), (Some(0), "h1\n"), "{added}");
    home.run(&["task", "cancel", url, task]).await;
    let output = listening.wait_with_output().await.expect("it leaves after one");
    let line: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!((&line["verified"], &line["attempt"]), (&true.into(), &1.into()), "{line}");
    let update = &line["event"]["statusUpdate"];
    assert_eq!(
        (update["taskId"].as_str(), &update["status"]["state"]),
        (Some(task), &"TASK_STATE_CANCELED".into())
    );
    assert!(output.status.success());
}

#[tokio::test]
async fn webhooks_are_added_listed_and_removed_without_their_secrets() {
    let (agent, home) = (demo(&["--allow-loopback-webhooks"]).await, Home::new());
    let url = agent.url.as_str();
    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    let task = task.trim();
    let secrets =
        ["--id", "h1", "--notification-token", "s3cret", "--authorization", "Bearer s3cret", "--json"];
    let added =
        home.run(&[&["push", "add", url, task, "http://127.0.0.1:1/hook"], &secrets[..]].concat()).await;
    insta::assert_snapshot!("push_add", added.masked(url));
    insta::assert_snapshot!("push_list", home.run(&["push", "list", url, task]).await.masked(url));
    insta::assert_snapshot!(
        "push_list_json",
        home.run(&["push", "list", url, task, "--json"]).await.masked(url)
    );
    insta::assert_snapshot!("push_rm", home.run(&["push", "rm", url, task, "h1"]).await.masked(url));
    assert_eq!(home.run(&["push", "list", url, task]).await.stdout, "no webhooks\n");
    let refused = home.run(&["push", "add", url, task, "ftp://files"]).await;
    insta::assert_snapshot!("push_add_refused", refused.masked(url));
}
