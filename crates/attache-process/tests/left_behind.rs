//! Processes that a program leaves behind in sessions of their own, with real processes.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use attache_process::ProcessGroup;
use rustix::process::{getpid, set_child_subreaper};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdout, Command};

/// Starts a script, and waits until it has ended. Returns what it wrote.
async fn run(script: &str) -> String {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
    let (group, mut child) = ProcessGroup::spawn(command).unwrap();
    let pipe: ChildStdout = child.stdout.take().unwrap();
    let mut output = group.output(pipe);
    let mut text = String::new();
    let handle = group.clone_handle();
    let (status, read) = tokio::join!(handle.wait(&mut child), output.read_to_string(&mut text));
    assert!(status.unwrap().success());
    read.unwrap();
    text
}

fn exists(pid: &str) -> bool {
    Path::new(&format!("/proc/{}", pid.trim())).exists()
}

/// Whether a process runs. One that has ended stays until its parent has read its status.
fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    status.is_ok_and(|status| !status.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits in a script until the last process that it started runs `sleep`.
const SLEEPS: &str = "until grep -q ^sleep /proc/$!/cmdline; do sleep 0.01; done";

#[tokio::test]
async fn a_process_that_starts_a_session_is_killed_when_its_program_has_ended() {
    let pid = run(&format!("setsid sleep 1000 > /dev/null & echo $!; {SLEEPS}")).await;
    until("the process is gone", || !runs(&pid)).await;
}

#[tokio::test]
async fn the_processes_of_other_programs_go_on() {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let (_group, child) = ProcessGroup::spawn(command).unwrap();
    run(&format!("setsid sleep 1000 > /dev/null & {SLEEPS}")).await;
    assert!(runs(&child.id().unwrap().to_string()));
}

#[tokio::test]
async fn a_process_that_hides_its_mark_does_not_keep_the_output_open() {
    let script = format!("setsid env -i sleep 1000 & echo $!; {SLEEPS}");
    let pid = tokio::time::timeout(Duration::from_secs(30), run(&script)).await.expect("the output ends");
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success(), "it still runs: {pid}");
}

#[tokio::test]
async fn no_killed_process_is_left_as_a_zombie_if_this_process_inherits_orphans() {
    set_child_subreaper(Some(getpid())).unwrap();
    let script =
        format!("sleep 1000 > /dev/null & echo $!; setsid sleep 1000 > /dev/null & echo $!; {SLEEPS}");
    let pids = run(&script).await;
    assert_eq!(pids.lines().count(), 2);
    until("the system has forgotten both", || !pids.lines().any(exists)).await;
}
