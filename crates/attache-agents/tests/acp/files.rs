//! Files and terminals of the agent.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Served, answer, runs, serve, skip, until};

/// Serves an agent whose workspace is the folder `work`, beside the file `secret`.
async fn serve_workspace(terminal: bool) -> Served {
    let work = tempfile::tempdir().unwrap().keep();
    let agent = serve(&[], |options| {
        options.workspace = Some(work.clone());
        options.terminal = terminal;
    })
    .await;
    std::fs::write(agent.path("secret"), "secret").unwrap();
    symlink(&work, agent.path("work")).unwrap();
    agent
}

fn work(agent: &Served) -> std::path::PathBuf {
    agent.path("work").canonicalize().unwrap()
}

#[tokio::test]
async fn the_agent_reads_and_writes_files_of_its_workspace() {
    if skip("the_agent_reads_and_writes_files_of_its_workspace") {
        return;
    }
    let agent = serve_workspace(false).await;
    let path = work(&agent).join("new/a.txt");
    assert_eq!(answer(&agent.send(format!("write {}", path.display())).await), "done");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "written");
    assert_eq!(answer(&agent.send(format!("read {}", path.display())).await), "written");
    std::fs::remove_dir_all(work(&agent)).unwrap();
}

#[tokio::test]
async fn the_agent_gets_no_file_outside_of_its_workspace() {
    if skip("the_agent_gets_no_file_outside_of_its_workspace") {
        return;
    }
    let agent = serve_workspace(true).await;
    let work = work(&agent);
    symlink(agent.path("secret"), work.join("link")).unwrap();
    symlink(agent.folder.path(), work.join("folder")).unwrap();
    let outside = agent.path("secret");
    let parent = work.join("..").join("secret");
    for (path, rule) in [
        (outside.as_path(), "only paths below the workspace"),
        (&parent, "`..` is not allowed in paths"),
        (&work.join("link"), "links that lead out of the workspace are not followed"),
        (&work.join("folder/secret"), "links that lead out of the workspace are not followed"),
        (Path::new("/etc/passwd"), "only paths below the workspace"),
    ] {
        for word in ["read", "write"] {
            let said = answer(&agent.send(format!("{word} {}", path.display())).await);
            assert!(said.contains("is refused") && said.contains(rule), "{}: {said}", path.display());
        }
    }
    let said = answer(&agent.send("outside /").await);
    assert!(said.contains("only paths below the workspace"), "{said}");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
    std::fs::remove_dir_all(work).unwrap();
}

#[tokio::test]
async fn a_terminal_runs_in_the_workspace() {
    if skip("a_terminal_runs_in_the_workspace") {
        return;
    }
    let agent = serve_workspace(true).await;
    let said = answer(&agent.send("terminal pwd; echo $MODE >&2; exit 4").await);
    let said: Value = serde_json::from_str(&said).unwrap();
    let output = said["output"].as_str().unwrap();
    assert!(
        output.contains(&format!("{}\n", work(&agent).display())) && output.contains("test\n"),
        "{output}"
    );
    assert_eq!(said["status"], json!({"exitCode": 4, "signal": null}));
    std::fs::remove_dir_all(work(&agent)).unwrap();
}

#[tokio::test]
async fn terminals_are_off_unless_switched_on() {
    if skip("terminals_are_off_unless_switched_on") {
        return;
    }
    let agent = serve_workspace(false).await;
    assert_eq!(answer(&agent.send("terminal pwd").await), "terminals are switched off on this server");
    let received = agent.received();
    assert_eq!(received[1]["params"]["clientCapabilities"]["terminal"], false);
    std::fs::remove_dir_all(work(&agent)).unwrap();
}

#[tokio::test]
async fn a_terminal_that_is_not_released_ends_with_the_prompt() {
    if skip("a_terminal_that_is_not_released_ends_with_the_prompt") {
        return;
    }
    let agent = serve_workspace(true).await;
    let pid = answer(&agent.send("leave").await);
    until("the process is gone", || !runs(&pid)).await;
    std::fs::remove_dir_all(work(&agent)).unwrap();
}

#[tokio::test]
async fn conversations_have_private_directories() {
    if skip("conversations_have_private_directories") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let agent = serve(&[], |_| {}).await;
    let directory = |said: String| std::path::PathBuf::from(said.split(' ').nth(2).unwrap());
    let first = directory(answer(&agent.say("c", "session").await));
    let second = directory(answer(&agent.say("d", "session").await));
    assert_ne!(first, second);
    assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o700);
    let said = answer(&agent.say("c", &format!("read {}", second.join("x").display())).await);
    assert!(said.contains("only paths below the workspace"), "{said}");
}

#[tokio::test]
async fn the_example_asks_and_writes_notes() {
    if skip("the_example_asks_and_writes_notes") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agents/note_taker.py");
    let work = tempfile::tempdir().unwrap();
    let agent = serve(&[], |options| {
        options.command = vec!["python3".into(), script.into()];
        options.workspace = Some(work.path().to_owned());
    })
    .await;
    for (said, answered, expected) in [
        ("milk", "yes", "I have 1 notes."),
        ("wine", "no", "I wrote nothing."),
        ("bread", "yes", "I have 2 notes."),
    ] {
        let asked = agent.say("c", said).await;
        assert_eq!(answer(&agent.answer(&asked, answered).await), expected);
    }
    assert_eq!(std::fs::read_to_string(work.path().join("notes.txt")).unwrap(), "milk\nbread\n");
}
