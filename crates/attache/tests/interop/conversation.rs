//! The clients of both generations of the official SDK in Python hold a conversation: two turns, a request for permission, and the
//! download of a file that the agent made. They do so with a server that behaves as the specification says, and with the one of
//! `examples/iac-code`.

use std::path::Path;

use tokio::process::Command;

use crate::peers::{PATIENCE, Process, keep};
use crate::sdk::Sdk;

/// How the server behaves.
#[derive(Clone, Copy)]
enum Mode {
    /// As the specification says: a turn ends with a completed task.
    Own,
    /// Like iac-code: a turn ends with a task that waits for the next message.
    IacCode,
}

impl Mode {
    /// The settings of a server with the scripted agent of the example. Files have a URL of HTTP, and callers are asked for permission.
    fn settings(self) -> String {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iac-code");
        let agent = examples.join("agent.py").display().to_string();
        match self {
            Self::Own => format!(
                "store: \"memory:\"\nprogram: {{ command: [python3, \"{agent}\"], protocol: json }}\n\
                 artifacts: {{ inline-limit: 1B }}\n"
            ),
            Self::IacCode => {
                let example = std::fs::read_to_string(examples.join("attache.yml")).expect("it is there");
                example.replace("examples/iac-code/agent.py", &agent)
                    + "permission-default: ask\nartifacts: { urls: http }\n"
            }
        }
    }
}

/// Lets the client talk to the scripted agent of the example behind our command.
async fn converse(sdk: Sdk, mode: Mode) {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = mode.settings();
    std::fs::write(folder.path().join("attache.yml"), settings).expect("it can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    command.env_clear().env("HOME", folder.path()).envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let mut server = Process::start("attache serve", command);
    let url =
        server.heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned)).await;
    let mut program = sdk.program("conversation");
    program.arg(&url);
    match mode {
        Mode::Own => {}
        Mode::IacCode => {
            program.arg("iac-code");
        }
    }
    let mut client = Process::start(&sdk.title(), program);
    client.heard("that everything passed", |line| (line == "passed").then_some(())).await;
    let ended = tokio::time::timeout(PATIENCE, client.child.wait()).await.expect("it ends");
    assert!(ended.expect("it can be waited for").success());
}

#[test]
fn python_1_holds_a_conversation_with_a_permission_and_a_download() {
    let name = "conversation::python_1_holds_a_conversation_with_a_permission_and_a_download";
    keep(name, Sdk::Python1.absent(), converse(Sdk::Python1, Mode::Own));
}

#[test]
fn python_0_3_holds_a_conversation_with_a_permission_and_a_download() {
    let name = "conversation::python_0_3_holds_a_conversation_with_a_permission_and_a_download";
    keep(name, Sdk::Python0.absent(), converse(Sdk::Python0, Mode::Own));
}

#[test]
fn python_1_holds_a_conversation_with_the_example_of_iac_code() {
    let name = "conversation::python_1_holds_a_conversation_with_the_example_of_iac_code";
    keep(name, Sdk::Python1.absent(), converse(Sdk::Python1, Mode::IacCode));
}

#[test]
fn python_0_3_holds_a_conversation_with_the_example_of_iac_code() {
    let name = "conversation::python_0_3_holds_a_conversation_with_the_example_of_iac_code";
    keep(name, Sdk::Python0.absent(), converse(Sdk::Python0, Mode::IacCode));
}
