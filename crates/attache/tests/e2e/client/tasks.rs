//! `attache task`.

use super::{LONG, demo, echo, tables};
use crate::home::Home;
use serde_json::Value;

#[tokio::test]
async fn a_task_is_sent_off_waited_for_and_ended() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let url = agent.url.as_str();
    let sent = home.run(&["send", url, LONG, "--no-wait"]).await;
    assert_eq!((sent.code, sent.stderr.as_str()), (Some(0), ""));
    let task = sent.stdout.trim();
    let late = home.run(&["task", "wait", url, task, "--timeout", "0s"]).await;
    assert_eq!(late.code, Some(6));
    insta::assert_snapshot!("task_late", late.masked(url));
    insta::assert_snapshot!("task_cancel", home.run(&["task", "cancel", url, task]).await.masked(url));
    insta::assert_snapshot!("task_canceled", home.run(&["task", "wait", url, task]).await.masked(url));
    let watched = home.run(&["task", "watch", url, task]).await;
    assert_eq!(watched.code, Some(1), "{watched}");
    insta::assert_snapshot!("task_cancel_again", home.run(&["task", "cancel", url, task]).await.masked(url));
}

#[tokio::test]
async fn a_task_is_followed_until_it_ends() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let url = agent.url.as_str();
    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    let watch = home.command(&["task", "watch", url, task.trim(), "--json"]).spawn().expect("it starts");
    home.run(&["task", "cancel", url, task.trim()]).await;
    let watched = crate::home::ran(watch.wait_with_output().await.expect("it ends"));
    let last =
        watched.stdout.lines().last().map(serde_json::from_str::<Value>).expect("an event").expect("JSON");
    // Whether the task had ended before it could be followed is up to chance.
    let status =
        if last["task"].is_null() { &last["statusUpdate"]["status"] } else { &last["task"]["status"] };
    assert_eq!((status["state"].as_str(), watched.code), (Some("TASK_STATE_CANCELED"), Some(1)), "{watched}");
}

#[tokio::test]
async fn a_task_is_shown_with_as_much_as_is_asked_for() {
    let (agent, home) = (tables().await, Home::new());
    let url = agent.url.as_str();
    home.run_with_input(&["chat", url], "a table please\n4\neight\n").await;
    let list = home.run(&["task", "list", url]).await;
    insta::assert_snapshot!("task_list", list.masked(url));
    let task = list.stdout.split(' ').next().expect("an id");
    insta::assert_snapshot!(
        "task_get",
        home.run(&["task", "get", url, task, "--history", "9"]).await.masked(url)
    );
    assert_eq!(home.run(&["task", "list", url, "--state", "failed"]).await.stdout, "no tasks\n");
    insta::assert_snapshot!("bad_state", home.run(&["task", "list", url, "--state", "done"]).await);
}

#[tokio::test]
async fn a_task_that_is_not_there_is_named() {
    let (agent, home) = (echo().await, Home::new());
    let missing = home.run(&["task", "get", &agent.url, "nothing"]).await;
    insta::assert_snapshot!("task_missing", missing.masked(&agent.url));
}
