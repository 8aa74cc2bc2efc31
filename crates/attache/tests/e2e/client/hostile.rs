//! What an agent says is shown and does nothing.

use serde_json::{Value, json};

use super::fake::fake;
use crate::home::{Home, Ran};

/// Retitles the window, clears the screen in two ways, goes back in the line, and turns the direction of writing.
const NASTY: &str = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{9b}2Jd\re\u{202e}f\u{8}";

fn task(state: &str) -> Value {
    let part = json!({"text": NASTY});
    json!({"task": {
        "id": format!("t {NASTY}"),
        "contextId": NASTY,
        "status": {"state": state, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [part]}},
        "artifacts": [{"artifactId": NASTY, "name": NASTY, "parts": [
            part,
            {"data": {NASTY: NASTY}},
            {"raw": "AAAA", "filename": NASTY, "mediaType": NASTY},
            {"url": NASTY},
        ]}],
    }})
}

fn card() -> Value {
    json!({
        "name": NASTY,
        "description": format!("{NASTY}\nerror: nothing is wrong"),
        "version": NASTY,
        "documentationUrl": NASTY,
        "provider": {"organization": NASTY, "url": NASTY},
        "skills": [{"id": NASTY, "name": NASTY, "description": NASTY, "tags": [NASTY], "examples": [NASTY]}],
    })
}

/// What the command itself has in colour.
const OURS: [&str; 2] = ["\x1b[1;31merror:\x1b[0m", "\x1b[1;36mhint:\x1b[0m"];

fn is_harmless(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let text = OURS.iter().fold(text.clone(), |text, ours| text.replace(ours, ""));
        let harmful = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert_eq!(text.find(harmful), None, "{text:?}");
    }
}

#[tokio::test]
async fn nothing_that_an_agent_says_commands_the_terminal() {
    let home = Home::new();
    for state in ["COMPLETED", "FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED"] {
        let url = fake(card(), task(&format!("TASK_STATE_{state}"))).await;
        for arguments in
            [&["send", &url, "hi"][..], &["send", &url, "hi", "--json"], &["send", &url, "hi", "--no-wait"]]
        {
            let ran = home.command(arguments).env("CLICOLOR_FORCE", "1").output().await.expect("it runs");
            is_harmless(&crate::home::ran(ran));
        }
        is_harmless(&home.run_with_input(&["chat", &url], "hi\n/task\n").await);
    }
}

#[tokio::test]
async fn a_card_cannot_pretend_to_be_the_command() {
    let home = Home::new();
    let url = fake(card(), task("TASK_STATE_COMPLETED")).await;
    let ran = home.run(&["card", &url]).await;
    is_harmless(&ran);
    insta::assert_snapshot!("hostile_card", ran.masked(&url));
    is_harmless(&home.run(&["card", &url, "--json"]).await);
    is_harmless(&home.run(&["agents", "ping", &url]).await);
}

#[tokio::test]
async fn json_says_exactly_what_the_agent_said() {
    let url = fake(json!({}), task("TASK_STATE_COMPLETED")).await;
    let ran = Home::new().run(&["send", &url, "hi", "--json"]).await;
    let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(value["task"]["artifacts"][0]["parts"][0]["text"], NASTY);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_an_error() {
    let url = fake(json!({}), json!({"task": 7})).await;
    let ran = Home::new().run(&["send", &url, "hi"]).await;
    insta::assert_snapshot!("senseless_answer", ran.masked(&url));
}
