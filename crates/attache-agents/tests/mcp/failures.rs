//! Servers that die, hang, flood or write nonsense.

use std::time::Duration;

use attache_agents::mcp::CallError;
use serde_json::json;

use crate::support::{agent, connect, failure, json, run, runs, serve, start, text, until};

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_and_is_started_again_for_the_next_message() {
    let mcp = connect(|_| {}).await;
    let agent = serve(&mcp).await;
    let first = json(&run(&agent, "process", json!({})).await)["pid"].clone();
    let (hanging, mut events) = start(&agent, "hang").await;
    let failed = failure(&run(&agent, "die", json!({})).await);
    assert_eq!(failed, "The MCP server ended before the tool 'die' returned a result");
    while events.next().await.is_some() {}
    let failed = failure(&agent.get(hanging.id).await.unwrap());
    assert_eq!(failed, "The MCP server ended before the tool 'hang' returned a result");
    let second = json(&run(&agent, "process", json!({})).await)["pid"].clone();
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_death_is_noticed_also_if_another_process_keeps_the_pipes_open() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("daemon");
    let mcp = connect(|options| {
        options.environment.insert("DAEMON".into(), note.to_str().unwrap().into());
    })
    .await;
    let agent = serve(&mcp).await;
    let call = run(&agent, "abandon", json!({}));
    let failed = tokio::time::timeout(Duration::from_secs(30), call).await.expect("the call fails");
    assert_eq!(failure(&failed), "The MCP server ended before the tool 'abandon' returned a result");
    let pid = std::fs::read_to_string(&note).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    assert_eq!(text(&run(&agent, "echo", json!({"text": "again"})).await), "again");
}

#[tokio::test]
async fn a_server_that_does_not_start_again_disturbs_no_call_that_has_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("silent");
    let mcp = connect(|options| {
        options.exclusive = true;
        options.start_timeout = Duration::from_secs(600);
        options.environment.insert("SILENT_IF".into(), signal.to_str().unwrap().into());
    })
    .await;
    let agent = serve(&mcp).await;
    let (hanging, _events) = start(&agent, "hang").await;
    std::fs::write(&signal, "").unwrap();
    // This call needs a process of its own, which does not become ready.
    let stuck = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.call("echo", json!({"text": "stuck"})).await }
    });
    let silent = || {
        let children = std::fs::read_dir("/proc").unwrap().flatten();
        let environments = children.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
        let wanted = format!("SILENT_IF={}", signal.display());
        let is_ours = |all: &Vec<u8>| all.split(|byte| *byte == 0).any(|text| text == wanted.as_bytes());
        environments.filter(is_ours).count()
    };
    until("the second process runs", || silent() == 2).await;
    agent.cancel(hanging.id).await.unwrap();
    // The connection of the first call is free when the server has read the cancellation.
    let answered = async {
        loop {
            let call = mcp.call("process", json!({}));
            if let Ok(Ok(output)) = tokio::time::timeout(Duration::from_secs(1), call).await {
                return output;
            }
        }
    };
    let output = tokio::time::timeout(Duration::from_secs(30), answered).await.expect("the call is answered");
    assert!(!output.is_error && !stuck.is_finished());
    stuck.abort();
}

#[tokio::test]
async fn calls_that_need_a_server_that_does_not_start_fail_together() {
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("silent");
    let mcp = connect(|options| {
        options.start_timeout = Duration::from_secs(1);
        options.environment.insert("SILENT_IF".into(), signal.to_str().unwrap().into());
    })
    .await;
    let died = mcp.call("die", json!({})).await.unwrap_err();
    assert_eq!(died, CallError::Ended("die".into()));
    std::fs::write(&signal, "").unwrap();
    // One after the other they would take more than a minute.
    let calls = futures::future::join_all((0..64).map(|_| mcp.call("echo", json!({"text": "x"}))));
    let failed = tokio::time::timeout(Duration::from_secs(30), calls).await.expect("they fail together");
    assert!(failed.iter().all(|result| *result == Err(CallError::Unavailable)), "{failed:?}");
    std::fs::remove_file(&signal).unwrap();
    assert_eq!(mcp.call("echo", json!({"text": "again"})).await.unwrap().text(), "again");
}

#[tokio::test]
async fn a_tool_that_hangs_is_given_up_and_canceled() {
    let mcp = connect(|options| options.call_timeout = Duration::from_secs(2)).await;
    let agent = serve(&mcp).await;
    let failed = failure(&run(&agent, "hang", json!({})).await);
    assert_eq!(failed, "The tool 'hang' did not return within 2 s");
    let output = mcp.call("cancelled", json!({"count": 1})).await.unwrap();
    assert!(output.text().starts_with('['), "{}", output.text());
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_its_call_and_no_other() {
    let mcp = connect(|options| options.max_output = 3 * 1024 * 1024).await;
    let agent = serve(&mcp).await;
    let (hanging, _events) = start(&agent, "hang").await;
    // As one line that is too long, and as a result that is too large.
    for count in [10_000_000, 3 * 1024 * 1024 + 1] {
        let failed = failure(&run(&agent, "flood", json!({"count": count})).await);
        assert_eq!(failed, "The result of the tool 'flood' is larger than 3145728 bytes", "{count}");
    }
    assert_eq!(text(&run(&agent, "flood", json!({"count": 2_500_000})).await).len(), 2_500_000);
    agent.cancel(hanging.id).await.unwrap();
}

#[tokio::test]
async fn a_small_limit_holds_for_results_and_not_for_the_list_of_tools() {
    let mcp = connect(|options| options.max_output = 10).await;
    assert!(mcp.call("echo", json!({"text": "0123456789"})).await.is_ok());
    let error = mcp.call("echo", json!({"text": "0123456789a"})).await.unwrap_err();
    assert_eq!(error, CallError::TooLarge { tool: "echo".into(), limit: 10 });
}

#[tokio::test]
async fn garbage_between_messages_is_skipped() {
    assert_eq!(text(&run(&agent(|_| {}).await, "garbage", json!({})).await), "still here");
}

#[tokio::test]
async fn a_response_that_is_no_result_fails_the_task_at_once() {
    let agent = agent(|_| {}).await;
    for wrong in ["result", "error", "both"] {
        let failed = failure(&run(&agent, "wrong", json!({"text": wrong})).await);
        assert!(failed.starts_with("The MCP server sent a"), "{wrong}: {failed}");
    }
}

#[tokio::test]
async fn a_server_that_stops_reading_is_replaced() {
    let mcp = connect(|options| {
        options.call_timeout = Duration::from_secs(2);
        options.grace = Duration::from_millis(100);
    })
    .await;
    let agent = serve(&mcp).await;
    let pid = json(&run(&agent, "process", json!({})).await)["pid"].as_i64().unwrap();
    let (_deaf, _events) = start(&agent, "deaf").await;
    // The arguments are more than a pipe holds, so the cancellation of this call cannot be written either.
    let stuck = mcp.call("echo", json!({"text": "x".repeat(1_000_000)})).await;
    assert!(stuck.is_err(), "{stuck:?}");
    until("the process is gone", || !runs(pid)).await;
    assert_eq!(text(&run(&agent, "echo", json!({"text": "again"})).await), "again");
}

#[tokio::test]
async fn a_server_that_floods_us_with_requests_and_reads_no_response_is_stopped() {
    let mcp = connect(|options| options.grace = Duration::from_millis(100)).await;
    assert_eq!(mcp.call("pings", json!({"count": 100})).await.unwrap().text(), "sent");
    let output = mcp.call("process", json!({})).await.unwrap();
    let process: serde_json::Value = serde_json::from_str(&output.text()).unwrap();
    let error = mcp.call("pings", json!({"count": 1_000_000})).await.unwrap_err();
    assert_eq!(error, CallError::Ended("pings".into()));
    let pid = process["pid"].as_i64().unwrap();
    until("the process is gone", || !runs(pid)).await;
}

#[tokio::test]
async fn the_server_ends_with_the_agent() {
    let mcp = connect(|options| options.grace = Duration::from_millis(100)).await;
    let output = mcp.call("process", json!({})).await.unwrap();
    let process: serde_json::Value = serde_json::from_str(&output.text()).unwrap();
    let pid = process["pid"].as_i64().unwrap();
    assert!(runs(pid));
    drop(mcp);
    until("the process is gone", || !runs(pid)).await;
}

#[tokio::test]
async fn a_server_gets_only_the_environment_that_it_may_have() {
    // Cargo sets this for tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().canonicalize().unwrap();
    let mcp = connect(|options| {
        options.directory = Some(directory.clone());
        options.environment.insert("MODE".into(), "test".into());
        options.pass_environment.push("CARGO_PKG_NAME".into());
    })
    .await;
    let output = mcp.call("process", json!({})).await.unwrap();
    let process: serde_json::Value = serde_json::from_str(&output.text()).unwrap();
    let names: Vec<&str> =
        process["environment"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    for name in ["CARGO_PKG_NAME", "MODE", "PATH"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
    assert_eq!(process["directory"], directory.to_str().unwrap());
}

#[tokio::test]
async fn log_messages_and_standard_error_do_not_disturb_a_call() {
    assert_eq!(text(&run(&agent(|_| {}).await, "log", json!({"text": "careful"})).await), "logged");
}
