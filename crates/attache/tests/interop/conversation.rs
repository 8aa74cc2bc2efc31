//! The clients of both generations of the official SDK in Python hold a conversation: two turns, a request for permission, and the
//! download of a file that the agent made.

use std::path::Path;

use tokio::process::Command;

use crate::peers::{PATIENCE, Process, keep};
use crate::sdk::Sdk;

/// Lets the client talk to the scripted agent of the example behind our command.
async fn converse(sdk: Sdk) {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iac-code/agent.py");
    let settings = format!(
        "store: \"memory:\"\nprogram: {{ command: [python3, \"{}\"], protocol: json }}\nartifacts: {{ inline-limit: 1B }}\n",
        agent.display()
    );
    std::fs::write(folder.path().join("attache.yml"), settings).expect("it can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    command.env_clear().env("HOME", folder.path()).envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let mut server = Process::start("attache serve", command);
    let url =
        server.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned)).await;
    let mut program = sdk.program("conversation");
    program.arg(&url);
    let mut client = Process::start(&sdk.title(), program);
    client.heard("that everything passed", |line| (line == "passed").then_some(())).await;
    let ended = tokio::time::timeout(PATIENCE, client.child.wait()).await.expect("it ends");
    assert!(ended.expect("it can be waited for").success());
}

#[test]
fn python_1_holds_a_conversation_with_a_permission_and_a_download() {
    let name = "conversation::python_1_holds_a_conversation_with_a_permission_and_a_download";
    keep(name, Sdk::Python1.absent(), converse(Sdk::Python1));
}

#[test]
fn python_0_3_holds_a_conversation_with_a_permission_and_a_download() {
    let name = "conversation::python_0_3_holds_a_conversation_with_a_permission_and_a_download";
    keep(name, Sdk::Python0.absent(), converse(Sdk::Python0));
}
