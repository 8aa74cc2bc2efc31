//! Faults of the agents behind a router, with the real command: a killed server, a killed process, a flood of output.
#![cfg(target_os = "linux")]

use serde_json::json;
use tokio::process::Command;

use crate::killed::{INTERRUPTED, Killable, answer, begin, ended, gone, reason, say};

/// A router in front of a program. The program says its number, and then does what the message says.
fn router() -> Killable {
    Killable::new(|home| {
        let script = "read -r word; echo $$\n\
            case \"$word\" in *hang*) sleep 1000 ;; *flood*) exec yes ;; esac\n";
        let script = home.file("agent.sh", script);
        format!(
            r#"
agent: router
router: {{ default: other, rules: [{{ agent: worker, keywords: [work] }}] }}
agents:
  worker: {{ program: {{ command: [/bin/sh, {script}], max-output: 64KiB }} }}
  other: {{ echo: true }}
"#
        )
    })
}

#[tokio::test]
async fn a_killed_server_fails_the_task_behind_its_router_and_the_next_message_works() {
    let killable = router();
    let server = killable.start().await;
    let id = begin(&server, "c", "work and hang").await;
    let pid = answer(&server.call("GetTask", json!({"id": id})).await);
    server.kill().await;
    gone(&pid).await;
    let server = killable.start().await;
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains(INTERRUPTED), "{task}");
    assert_eq!(answer(&task), pid, "what arrived is kept");
    assert_eq!(say(&server, "c", "work").await["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(answer(&say(&server, "c", "hi").await), "hi", "the router passes on to the others, too");
}

#[tokio::test]
async fn a_killed_process_behind_a_router_fails_its_task_and_is_started_again() {
    let killable = router();
    let server = killable.start().await;
    let id = begin(&server, "c", "work and hang").await;
    let pid = answer(&server.call("GetTask", json!({"id": id})).await);
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status().await.expect("kill works");
    assert!(killed.success());
    let task = ended(&server, &id).await;
    assert!(reason(&task).contains("signal"), "{task}");
    assert_eq!(answer(&task), pid, "what arrived is kept");
    let next = say(&server, "c", "work").await;
    assert_eq!(next["status"]["state"], "TASK_STATE_COMPLETED", "{next}");
    assert_ne!(answer(&next), pid);
}

#[tokio::test]
async fn a_flood_of_output_behind_a_router_fails_its_task_and_ends_the_process() {
    let killable = router();
    let server = killable.start().await;
    let task = say(&server, "c", "work and flood").await;
    assert!(reason(&task).contains("more than"), "{task}");
    let text = answer(&task);
    assert!(text.len() <= 64 * 1024, "{}", text.len());
    gone(text.lines().next().expect("it said its number")).await;
    assert_eq!(answer(&say(&server, "c", "hi").await), "hi");
}
