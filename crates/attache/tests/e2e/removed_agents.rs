//! What a removed agent was connected to ends with it.
#![cfg(unix)]

use std::path::Path;

use crate::home::Home;
use crate::programs::has_python;
use crate::support::{Program, until};

/// A script that writes its process id to a file and becomes a command.
fn script(home: &Home, name: &str, command: &str) -> String {
    let pid = home.path(&format!("{name}.pid"));
    home.file(&format!("{name}.sh"), &format!("echo $$ > '{}'\nexec {command}\n", pid.display()))
}

/// The process of a script.
fn process(home: &Home, name: &str) -> String {
    let pid = std::fs::read_to_string(home.path(&format!("{name}.pid"))).expect("the script runs");
    format!("/proc/{}", pid.trim())
}

/// Starts a server with these agents and `kept`, removes all others with a reload, and waits until their processes are gone.
async fn ends_with_a_reload(home: &Home, agents: &str, processes: &[&str]) {
    let settings = |agents: &str| {
        format!(
            "listen: 127.0.0.1:0\nstore: memory\nagent: kept\nagents:\n  kept: {{ echo: true }}\n{agents}"
        )
    };
    let file = home.file("attache.yml", &settings(agents));
    let (server, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
    let processes: Vec<_> = processes.iter().map(|name| process(home, name)).collect();
    assert!(processes.iter().all(|path| Path::new(path).exists()), "{processes:?}");
    home.file("attache.yml", &settings(""));
    server.hang_up().await;
    log.line_with("removed an agent").await;
    tokio::spawn(log.skip());
    for path in &processes {
        until("the process is gone", async || !Path::new(path).exists()).await;
    }
}

#[tokio::test]
async fn a_removed_remote_agent_is_not_connected_any_more() {
    let home = Home::new();
    let command = format!("'{}' serve --stdio --agent echo", env!("CARGO_BIN_EXE_attache"));
    let remote = script(&home, "remote", &command);
    let agents = format!("  old: {{ remote: {{ url: 'stdio:/bin/sh {remote}' }} }}\n");
    ends_with_a_reload(&home, &agents, &["remote"]).await;
}

#[tokio::test]
async fn a_reload_that_removes_a_router_ends_the_mcp_process_behind_it() {
    if !has_python("removed_agents::a_reload_that_removes_a_router_ends_the_mcp_process_behind_it") {
        return;
    }
    let home = Home::new();
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../attache-agents/tests/mcp/server.py");
    let tools = script(&home, "tools", &format!("python3 '{}'", server.display()));
    let agents = format!(
        "  tools: {{ mcp: {{ command: [/bin/sh, {tools}] }} }}\n  desk: {{ router: {{ default: tools }} }}\n"
    );
    ends_with_a_reload(&home, &agents, &["tools"]).await;
}
