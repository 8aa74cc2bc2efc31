//! `attache push add`, `list`, `rm` and `listen`.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{LONG, demo};
use crate::home::Home;
use crate::support::{Program, until};

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
    insta::assert_snapshot!("push_rm_again", home.run(&["push", "rm", url, task, "h1"]).await.masked(url));
    let refused = home.run(&["push", "add", url, task, "ftp://files"]).await;
    insta::assert_snapshot!("push_add_refused", refused.masked(url));
}

#[tokio::test]
async fn deliveries_that_are_still_to_be_made_are_listed() {
    let home = Home::new();
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let demo = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    let more = ["--allow-loopback-webhooks", "--store", &store, "--keyring"];
    let keyring = home.path("keyring.json").display().to_string();
    let (agent, _) = Program::command_with(&[&demo[..], &more, &[&keyring]].concat(), &[]).await;
    let url = agent.url.as_str();
    let pending =
        async |more: &[&str]| home.run(&[&["push", "pending", "--store", &store], more].concat()).await;
    assert_eq!(pending(&[]).await.stdout, "no delivery is pending\n");
    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    // No program listens there.
    home.run(&["push", "add", url, task.trim(), "http://127.0.0.1:1/hook", "--id", "h1"]).await;
    home.run(&["task", "cancel", url, task.trim()]).await;
    let listed =
        async || -> Value { serde_json::from_str(&pending(&["--json"]).await.stdout).expect("JSON") };
    until("an attempt has failed", async || listed().await["deliveries"][0]["attempts"].as_u64() >= Some(1))
        .await;
    let listed = listed().await;
    let first = &listed["deliveries"][0];
    assert_eq!(
        (&first["url"], &first["configId"]),
        (&"http://127.0.0.1:1/hook".into(), &"h1".into()),
        "{listed}"
    );
    assert!(first["nextAttemptAt"].is_string() && first["since"].is_string(), "{listed}");
    assert_eq!(listed["hasMore"], false);
    let shown = pending(&[]).await.stdout;
    assert!(shown.contains(" failed, next attempt "), "{shown}");
}
