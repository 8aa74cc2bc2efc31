//! `attache task`.

use super::{LONG, demo, echo, tables};
use crate::home::Home;
#[cfg(unix)]
use crate::terminal::Terminal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

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
    insta::assert_snapshot!("task_list", list.masked(url).replace("  1s ", "  0s "));
    let task = list.stdout.lines().nth(1).and_then(|line| line.split(' ').next()).expect("an id");
    insta::assert_snapshot!(
        "task_get",
        home.run(&["task", "get", url, task, "--history", "9"]).await.masked(url)
    );
    assert_eq!(home.run(&["task", "list", url, "--state", "failed"]).await.stdout, "no tasks\n");
    insta::assert_snapshot!("bad_state", home.run(&["task", "list", url, "--state", "done"]).await);
}

#[tokio::test]
async fn a_list_says_that_there_are_more() {
    let (agent, home) = (echo().await, Home::new());
    let url = agent.url.as_str();
    for text in ["one", "two", "three"] {
        home.run(&["send", url, text]).await;
    }
    let list = home.run(&["task", "list", url, "--limit", "2"]).await;
    assert_eq!(list.stderr, "there are more: `--limit 4` shows twice as many\n");
    let asked: Vec<_> = list.stdout.lines().skip(1).filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(asked, ["three", "two"], "{list}");
    let all = home.run(&["task", "list", url, "--limit", "3"]).await;
    assert_eq!((all.stderr.as_str(), all.stdout.lines().count()), ("", 4), "{all}");
    for (limit, has_more) in [("2", true), ("3", false)] {
        let listed = home.run(&["task", "list", url, "--limit", limit, "--json"]).await.stdout;
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        assert_eq!(listed["hasMore"], has_more);
    }
}

#[tokio::test]
async fn a_list_that_is_watched_tells_of_each_change() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let url = agent.url.as_str();
    let mut watch = home.command(&["task", "list", url, "--watch=20ms"]).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is ours")).lines();
    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    let mut line_with = async |text: &str| loop {
        let line = lines.next_line().await.expect("text").expect("it goes on");
        if line.contains(text) {
            return line;
        }
    };
    line_with("TASK").await;
    let line = line_with("working").await;
    assert!(line.starts_with(task.trim()) && line.ends_with(LONG), "{line}");
    home.run(&["task", "cancel", url, task.trim()]).await;
    assert!(line_with("canceled").await.starts_with(task.trim()));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_list_fits_a_terminal_and_changes_in_place() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let url = agent.url.as_str();
    let mut watch = Terminal::start(home.command(&["task", "list", url, "--watch=20ms"]));
    watch.wait_for("no tasks\nCtrl-C ends");
    let task = home.run(&["send", url, LONG, "--no-wait"]).await.stdout;
    // A line of the table is on the screen before the next one. The last line is below all of them.
    let shows = |state: &'static str| {
        move |screen: &vt100::Screen| {
            let text = screen.contents();
            text.contains(state) && text.trim_end().ends_with("Ctrl-C ends")
        }
    };
    let screen = watch.wait_until("the running task", shows("working"));
    assert!(screen.starts_with("TASK ") && screen.contains(&format!("  {LONG}\n")), "{screen}");
    home.run(&["task", "cancel", url, task.trim()]).await;
    let screen = watch.wait_until("the canceled task", shows("canceled"));
    assert_eq!((screen.matches("TASK").count(), screen.matches(task.trim()).count()), (1, 1), "{screen}");
}

#[tokio::test]
async fn a_task_that_is_not_there_is_named() {
    let (agent, home) = (echo().await, Home::new());
    let missing = home.run(&["task", "get", &agent.url, "nothing"]).await;
    insta::assert_snapshot!("task_missing", missing.masked(&agent.url));
}
