//! Programs as agents, with the command.
#![cfg(unix)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::home::Home;
use crate::support::Program;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether there is Python. If not, the test counts as skipped.
pub(crate) fn has_python(test: &str) -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        writeln!(std::io::stdout(), "\nskipped {test}: python is not installed").expect("there is an output");
    }
    found
}

fn state(answer: &Value) -> &str {
    answer["task"]["status"]["state"].as_str().expect("a task has a state")
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn the_example_counts_words() {
    if !has_python("programs::the_example_counts_words") {
        return;
    }
    let program = root().join("examples/agents/count_words.py").display().to_string();
    let (server, _) = Program::command(&["serve", "--listen", "127.0.0.1:0", "--program", &program]).await;
    let answer = server.send("to be or not to be", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "6 words, 4 different ones\n", "{answer}");
    let card: Value = reqwest::get(format!("{}/.well-known/agent-card.json", server.url))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(card["name"], "count_words");
}

#[tokio::test]
async fn the_example_asks_and_books_a_table() {
    if !has_python("programs::the_example_asks_and_books_a_table") {
        return;
    }
    let home = Home::new();
    let settings =
        std::fs::read_to_string(root().join("examples/agents/book_table.yml")).expect("it is there");
    let directory = format!("{settings}  directory: {}\n", root().display());
    let file = home.file("attache.yml", &directory);
    let (server, _) = Program::command(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]).await;
    let asked = server.send("a table please", None).await;
    assert_eq!(state(&asked), "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert_eq!(asked["task"]["status"]["message"]["parts"][0]["text"], "For how many people?");
    let booked = server.send("4", asked["task"]["id"].as_str()).await;
    assert_eq!(state(&booked), "TASK_STATE_COMPLETED", "{booked}");
    let booking = &booked["task"]["artifacts"][0]["parts"][0]["data"];
    assert_eq!(booking, &serde_json::json!({"people": 4, "request": "a table please"}));
}

#[tokio::test]
async fn a_program_does_not_outlive_a_server_that_is_killed() {
    let home = Home::new();
    let note = home.path("pid");
    // The second process leaves the group of the first.
    let script =
        format!("setsid sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; sleep 1000", note.display());
    let program = home.file("agent.sh", &script);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--program", &format!("/bin/sh {program}")];
    let (server, _) = Program::command(&arguments).await;
    let body = serde_json::json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]},
        "configuration": {"returnImmediately": true}});
    server.call("SendMessage", body).await;
    until("the program runs", || note.exists()).await;
    let pids = std::fs::read_to_string(&note).expect("it is there");
    let runs = || pids.split_whitespace().any(|pid| Path::new(&format!("/proc/{pid}")).exists());
    assert!(runs(), "{pids}");
    server.kill().await;
    until("all processes are gone", || !runs()).await;
}

/// The processes whose command line has this text.
#[cfg(target_os = "linux")]
fn processes_with(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("there are processes").flatten();
    let has_text = |path: &Path| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    all.map(|entry| entry.path())
        .filter(|path| has_text(path))
        .map(|path| path.display().to_string())
        .collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_that_keeps_starting_others_does_not_outlive_a_server_that_is_killed() {
    let home = Home::new();
    let (next, note) = (home.path("next.sh"), home.path("note"));
    // Each process starts its successor in a session of its own, and ends.
    let chain =
        format!("echo $$ >> {1}; sleep 0.1; setsid /bin/sh {0} & exit", next.display(), note.display());
    let next = home.file("next.sh", &chain);
    let program = home.file("agent.sh", &format!("setsid /bin/sh {next} & sleep 1000"));
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--program", &format!("/bin/sh {program}")];
    let (server, _) = Program::command(&arguments).await;
    let body = serde_json::json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]},
        "configuration": {"returnImmediately": true}});
    server.call("SendMessage", body).await;
    let started = || std::fs::read_to_string(&note).unwrap_or_default().lines().count();
    until("the program has successors", || started() > 2).await;
    let parent = server.pid();
    let is_child = |path: &String| {
        let stat = std::fs::read_to_string(format!("{path}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1).map(str::to_owned);
        fields == Some(parent.to_string())
    };
    let watchdog =
        processes_with("attache-watchdog").into_iter().find(is_child).expect("there is a watchdog");
    server.kill().await;
    until("the watchdog has done its work", || !Path::new(&watchdog).exists()).await;
    let mut looks = 0;
    until("no process is left", || {
        // One look can miss a process that is replaced by another one.
        assert!(processes_with(&next).is_empty(), "a process was left after {looks} looks");
        looks += 1;
        looks > 20
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_zombie_is_left_after_many_turns() {
    // The second process is left behind, and the third one has left the group.
    let script = "sleep 1000 & setsid sleep 1000 & exit 0";
    let home = Home::new();
    let program = home.file("agent.sh", script);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--program", &format!("/bin/sh {program}")];
    let (server, _) = Program::command(&arguments).await;
    for _ in 0..50 {
        assert_eq!(state(&server.send("x", None).await), "TASK_STATE_COMPLETED");
    }
    let parent = server.pid().to_string();
    // The process of `stat` is followed by its name in parentheses, its state and its parent.
    let is_zombie = |stat: String| {
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        (fields.next(), fields.next()) == (Some("Z"), Some(parent.as_str()))
    };
    let zombies = || {
        let all = std::fs::read_dir("/proc").expect("there are processes").flatten();
        let states = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        states.filter(|stat| is_zombie(stat.clone())).count()
    };
    until("no zombie is left", || zombies() == 0).await;
}

#[tokio::test]
async fn a_program_gets_the_variables_that_a_flag_names_and_secrets_are_masked() {
    let home = Home::new();
    let program = home.file("agent.sh", "echo \"$GREETING.$OTHER.$SOME_API_KEY\"");
    let program = format!("/bin/sh {program}");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--program", &program];
    let flags = ["--pass-env", "GREETING", "--pass-env", "SOME_API_KEY"];
    let environment = [
        ("ATTACHE_STORE", "memory:"),
        ("GREETING", "hello"),
        ("OTHER", "nothing"),
        ("SOME_API_KEY", "a-secret-of-the-provider"),
    ];
    let (server, _) = Program::command_with(&[&arguments[..], &flags].concat(), &environment).await;
    let answer = server.send("x", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "hello..********\n", "{answer}");
}

#[tokio::test]
async fn a_program_and_another_kind_of_agent_are_refused() {
    let home = Home::new();
    let both = home.run(&["serve", "--agent", "echo", "--program", "cat"]).await;
    assert_eq!(both.code, Some(2), "{both}");
    assert!(both.stderr.contains("`agent` and `program` name different agents"), "{both}");
    let none = home.run(&["serve", "--agent", "program"]).await;
    assert_eq!(none.code, Some(2), "{none}");
    assert!(none.stderr.contains("no program is named"), "{none}");
    let wrong = home.run(&["serve", "--program", "'cat"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong}");
    assert!(wrong.stderr.contains("a quote is not closed"), "{wrong}");
}
