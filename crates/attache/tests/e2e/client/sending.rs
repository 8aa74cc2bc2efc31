//! `attache card`, `attache send` and `attache chat`.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::fake::{fake, guarded, mixed, patient, repeating, slow};
use super::{LONG, demo, echo, tables};
use crate::home::{Home, ran};
use crate::support::Program;

#[tokio::test]
async fn a_card_is_summed_up() {
    let (agent, home) = (demo(&[]).await, Home::new());
    insta::assert_snapshot!("card", home.run(&["card", &agent.url]).await.masked(&agent.url));
    let card: Value =
        serde_json::from_str(&home.run(&["card", &agent.url, "--json"]).await.stdout).expect("JSON");
    assert_eq!(card["skills"][0]["id"], "demo::chat");
}

#[tokio::test]
async fn an_answer_is_text_or_json() {
    let (agent, home) = (echo().await, Home::new());
    let url = agent.url.as_str();
    insta::assert_snapshot!("send", home.run(&["send", url, "Hello"]).await.masked(url));
    insta::assert_snapshot!("send_json", home.run(&["send", url, "Hello", "--json"]).await.masked(url));
    let events = home.run(&["send", url, "Hello", "--stream", "--json"]).await;
    insta::assert_snapshot!("send_events", events.masked(url));
    let piped = home.run_with_input(&["send", url], "from a pipe\n").await;
    assert_eq!(piped.stdout, "from a pipe\n");
    let over_http = home.run(&["send", url, "Hello", "--binding", "http-json"]).await;
    assert_eq!((over_http.code, over_http.stdout.as_str()), (Some(0), "Hello\n"));
}

#[tokio::test]
async fn an_agent_that_answers_before_it_is_done_is_waited_for() {
    for how in ["--stream", "--no-stream"] {
        let ran = Home::new().run(&["send", &slow().await, "hi", how]).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "at last\n", ""), "{how}");
    }
}

#[tokio::test]
async fn data_and_files_go_along() {
    let (agent, home) = (echo().await, Home::new());
    let (csv, json) =
        (home.file("visitors.csv", "a,b\n"), home.file("order.json", "{\"n\":12345678901234567890123}"));
    let arguments = [
        "send",
        &agent.url,
        "all of this",
        "--data",
        "[1.50]",
        "--data",
        &format!("@{json}"),
        "--file",
        &csv,
    ];
    insta::assert_snapshot!("send_parts", home.run(&arguments).await.masked(&agent.url));
}

#[tokio::test]
async fn a_file_that_is_too_large_for_the_server_ends_with_its_refusal_and_its_limit() {
    let (agent, home) = (echo().await, Home::new());
    let file = home.path("large.bin");
    std::fs::write(&file, vec![0_u8; 9_000_000]).expect("it can be written");
    let file = file.display().to_string();
    for binding in ["jsonrpc", "http-json", "grpc"] {
        for how in ["--stream", "--no-stream"] {
            let send = ["send", &agent.url, "look", "--file", &file, "--binding", binding, how];
            let ran = home.run(&send).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{binding} {how}: {ran}");
            insta::allow_duplicates! {
                insta::assert_snapshot!("send_too_large", ran.masked(&agent.url));
            }
        }
    }
}

#[tokio::test]
async fn a_skill_is_called_with_a_payload() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let call =
        ["send", &agent.url, "--skill", "pricing::quote", "--data", r#"{"sku": "A-1", "quantity": 3}"#];
    let ran = home.run(&call).await;
    let quote: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &quote["quantity"]), (Some(0), &json!(3)), "{ran}");
    let as_text = ["send", &agent.url, "--skill", "pricing::quote", r#"{"sku": "A-1", "quantity": 4}"#];
    let ran = home.run(&as_text).await;
    let quote: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &quote["quantity"]), (Some(0), &json!(4)), "{ran}");
    let broken = home.run(&["send", &agent.url, "--skill", "pricing::quote", "{sku: A-1}"]).await;
    insta::assert_snapshot!("send_bad_payload", broken.masked(&agent.url));
    let wrong = home.run(&["send", &agent.url, "--function", "demo::wait", r#"{"seconds": "many"}"#]).await;
    assert_eq!(wrong.code, Some(1));
    insta::assert_snapshot!("send_failed", wrong.masked(&agent.url));
}

#[tokio::test]
async fn a_message_is_waited_for_as_long_as_is_said() {
    let (agent, home) = (demo(&[]).await, Home::new());
    for more in [&[][..], &["--stream"], &["--json"]] {
        let ran = home.run(&[&["send", &agent.url, LONG, "--timeout", "4s"], more].concat()).await;
        assert_eq!(ran.code, Some(6), "{ran}");
        assert!(
            ran.stderr
                .starts_with("error: the task has not ended yet\nhint: it goes on: `attache task wait "),
            "{ran}"
        );
    }
    let in_time = home.run(&["send", &agent.url, r#"demo::count {"to": 2}"#, "--timeout", "30s"]).await;
    assert_eq!((in_time.code, in_time.stdout.as_str()), (Some(0), "1\n2\n"), "{in_time}");
}

#[tokio::test]
async fn a_file_from_a_pipe_goes_with_the_next_line() {
    let (agent, home) = (echo().await, Home::new());
    let csv = home.file("visitors.csv", "a,b\n");
    let ran = home.run_with_input(&["chat", &agent.url], &format!("/file {csv}\nhere\nwithout\n")).await;
    assert_eq!(ran.stdout, "here\n[file visitors.csv, text/csv: 4 bytes]\nwithout\n", "{ran}");
    let ran = home.run_with_input(&["chat", &agent.url], "/file /nowhere\nhere\n").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran}");
}

#[tokio::test]
async fn a_question_ends_with_5_and_is_answered_with_the_task() {
    let (agent, home) = (tables().await, Home::new());
    let url = agent.url.as_str();
    insta::assert_snapshot!("send_asked", home.run(&["send", url, "a table please"]).await.masked(url));
    let asked = home.run(&["send", url, "a table please", "--json"]).await;
    let task = serde_json::from_str::<Value>(&asked.stdout).expect("JSON")["task"]["id"].clone();
    let task = task.as_str().expect("an id");
    assert_eq!((asked.code, home.run(&["send", url, "--task", task, "4"]).await.code), (Some(5), Some(5)));
    let booked = home.run(&["send", url, "--task", task, "eight", "--stream"]).await;
    assert_eq!((booked.code, booked.stdout.as_str()), (Some(0), "A table for 4 at eight.\n"));
}

#[tokio::test]
async fn a_chat_answers_questions_and_keeps_the_conversation() {
    let (agent, home) = (tables().await, Home::new());
    let talk = "a table please\n4\neight\n\nanother one\n/task\n/new\na third\n2\nnine\n";
    let ran = home.run_with_input(&["chat", &agent.url], talk).await;
    insta::assert_snapshot!("chat", ran.masked(&agent.url));
    let listed = home.run(&["task", "list", &agent.url, "--json"]).await.stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut contexts: Vec<_> =
        listed["tasks"].as_array().into_iter().flatten().map(|task| task["contextId"].to_string()).collect();
    assert_eq!(contexts.len(), 3);
    contexts.sort();
    contexts.dedup();
    assert_eq!(contexts.len(), 2, "the third task is in a conversation of its own");
}

#[tokio::test]
async fn a_chat_from_a_pipe_ends_as_its_last_line_does() {
    let (agent, home) = (tables().await, Home::new());
    let url = agent.url.as_str();
    let chat = async |lines: &str| home.run_with_input(&["chat", url], lines).await;
    insta::assert_snapshot!("chat_failed", chat("a table please\nfour\n").await.masked(url));
    assert_eq!(chat("a table please\nfour\na table please\n").await.code, Some(5));
    insta::assert_snapshot!("chat_unknown", chat("/nwe\nhello\n").await.masked(url));
}

#[tokio::test]
async fn who_has_nothing_to_say_is_told_what_to_do() {
    let (agent, home) = (echo().await, Home::new());
    let url = agent.url.as_str();
    insta::assert_snapshot!("send_nothing", home.run(&["send", url]).await.masked(url));
    insta::assert_snapshot!("send_bad_data", home.run(&["send", url, "--data", "{"]).await.masked(url));
    insta::assert_snapshot!("send_no_file", home.run(&["send", url, "--file", "/nowhere"]).await.masked(url));
    insta::assert_snapshot!("bad_user", home.run(&["send", url, "hi", "--user", "ann"]).await.masked(url));
    let two = ["send", url, "hi", "--skill", "a::b", "--data", "1"];
    insta::assert_snapshot!("send_two_payloads", home.run(&two).await.masked(url));
}

#[tokio::test]
async fn a_question_is_not_waited_for_where_the_stream_stays_open() {
    let (url, home) = (patient().await, Home::new());
    insta::assert_snapshot!(
        "asked_in_open_stream",
        home.run(&["send", &url, "hi", "--stream"]).await.masked(&url)
    );
    let answered = home.run(&["send", &url, "four", "--task", "t", "--stream"]).await;
    assert_eq!((answered.code, answered.stdout.as_str()), (Some(0), "four\n"), "{answered}");
}

#[tokio::test]
async fn an_answer_in_the_history_is_shown_and_an_unreadable_event_is_reported() {
    let (url, home) = (mixed().await, Home::new());
    let sent = home.run(&["send", &url, "hi"]).await;
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "the answer\n"), "{sent}");
    insta::assert_snapshot!(
        "unreadable_event",
        home.run(&["send", &url, "hi", "--stream"]).await.masked(&url)
    );
}

#[tokio::test]
async fn an_address_on_this_machine_needs_no_scheme_and_https_needs_tls() {
    let (agent, home) = (echo().await, Home::new());
    let address = agent.url.strip_prefix("http://").expect("it has no TLS");
    assert_eq!(home.run(&["send", address, "hi"]).await.stdout, "hi\n");
    let secure = format!("https://{address}");
    insta::assert_snapshot!("not_tls", home.run(&["send", &secure, "hi"]).await.masked(&agent.url));
}

#[tokio::test]
async fn an_agent_that_is_not_there_ends_with_3() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    drop(listener);
    insta::assert_snapshot!("not_there", home.run(&["send", &url, "hi"]).await.masked(&url));
    let agent = echo().await;
    let elsewhere = home.run(&["card", &format!("{}/nothing", agent.url)]).await;
    assert_eq!(elsewhere.code, Some(3), "{elsewhere}");
    insta::assert_snapshot!("no_name", home.run(&["card", "recipes"]).await);
    insta::assert_snapshot!("no_scheme", home.run(&["card", "agents.example"]).await);
}

#[tokio::test]
async fn an_agent_that_asks_for_credentials_ends_with_4_until_it_gets_them() {
    let (url, home) = (guarded().await, Home::new());
    let token = home.file("token", "t-1\n");
    insta::assert_snapshot!("unauthorized", home.run(&["send", &url, "hi"]).await.masked(&url));
    insta::assert_snapshot!(
        "no_fitting",
        home.run(&["send", &url, "hi", "--api-key", "k"]).await.masked(&url)
    );
    let refused = home.run(&["send", &url, "hi", "--token", "t-2"]).await;
    assert_eq!(refused.code, Some(4));
    assert!(!refused.stderr.contains("t-2"), "{refused}");
    for more in [["--token", "t-1"], ["--token-file", &token]] {
        let ran = home.run(&[&["send", &url, "hi"], &more[..]].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "come in\n"), "{ran}");
    }
    let known = home.command(&["send", &url, "hi"]).env("ATTACHE_TOKEN", "t-1").output().await;
    assert_eq!(ran(known.expect("it runs")).stdout, "come in\n");
    let card = home.run(&["card", &url]).await.stdout;
    assert!(card.contains("`--token` (partners)"), "{card}");
    let asks = json!({"task": {"id": "t", "status": {"state": "TASK_STATE_AUTH_REQUIRED"}}});
    assert_eq!(home.run(&["send", &fake(json!({}), asks).await, "hi"]).await.code, Some(4));
}

/// Starts a message that takes its time, and waits until the task has begun.
async fn begun(
    home: &Home,
    agent: &Program,
) -> (tokio::process::Child, impl AsyncBufReadExt + Unpin + use<>) {
    let mut child =
        home.command(&["send", &agent.url, LONG, "--stream", "--json"]).spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is ours"));
    let mut line = String::new();
    out.read_line(&mut line).await.expect("it says something");
    assert!(line.contains("TASK_STATE_SUBMITTED"), "{line}");
    (child, out)
}

#[cfg(unix)]
#[tokio::test]
async fn whoever_presses_ctrl_c_is_told_that_the_task_goes_on() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let (child, _out) = begun(&home, &agent).await;
    let pid = child.id().expect("it runs").to_string();
    Command::new("kill").args(["-INT", &pid]).status().await.expect("kill works");
    let ran = ran(child.wait_with_output().await.expect("it ends"));
    insta::assert_snapshot!("interrupted", ran.masked(&agent.url));
}

#[tokio::test]
async fn a_reader_who_has_read_enough_is_no_error() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let (child, out) = begun(&home, &agent).await;
    drop(out);
    let tasks = home.run(&["task", "list", &agent.url, "--json"]).await.stdout;
    let tasks: Value = serde_json::from_str(&tasks).expect("JSON");
    home.run(&["task", "cancel", &agent.url, tasks["tasks"][0]["id"].as_str().expect("an id")]).await;
    let ran = ran(child.wait_with_output().await.expect("it ends"));
    assert!(!ran.stderr.contains("panicked") && !ran.stderr.contains("cannot print"), "{ran}");
    let mut long = home.command(&["send", &agent.url, r#"demo::count {"to": 3}"#]);
    let mut child = long.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().await.expect("it ends").code(), Some(0));
}

#[tokio::test]
async fn an_artifact_that_is_sent_again_as_a_whole_is_printed_once() {
    let url = repeating().await;
    let ran = Home::new().run(&["send", &url, "hi", "--stream"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "good morning\n"), "{ran}");
}

#[tokio::test]
async fn an_answer_in_the_history_only_is_shown_by_task_get() {
    let url = mixed().await;
    let ran = Home::new().run(&["task", "get", &url, "t"]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("agent\n"), "{ran}");
}
