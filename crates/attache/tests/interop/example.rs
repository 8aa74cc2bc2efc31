//! The example of an agent of 0.3 behind a gateway, with its own files.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::Command;

use crate::peers::{PATIENCE, Process, home, keep};
use crate::sdk::Sdk;

/// The folder of the example.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agents");

/// The port that the files name.
const PORT: &str = "9999";

/// Our command, with nothing of the tests' environment.
fn attache(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    command.args(arguments).current_dir(folder).env_clear().env("HOME", folder);
    command
}

#[test]
fn the_example_of_an_old_agent_answers_behind_the_gateway() {
    let name = "example::the_example_of_an_old_agent_answers_behind_the_gateway";
    keep(name, Sdk::Python0.absent(), async {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        drop(listener);
        let port = address.port().to_string();
        for file in ["old_agent.py", "old_agent.yml"] {
            let text = std::fs::read_to_string(Path::new(EXAMPLES).join(file)).expect("it is there");
            assert!(text.contains(PORT), "{text}");
            std::fs::write(folder.path().join(file), text.replace(PORT, &port)).expect("it can be written");
        }
        let mut python = Command::new(home("a2a-python-0.3.26").join("bin/python"));
        python.arg("old_agent.py").current_dir(folder.path());
        let _agent = Process::start("the old agent", python);
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, listens).await.expect("the old agent listens");
        let arguments =
            ["serve", "--config", "old_agent.yml", "--listen", "127.0.0.1:0", "--store", "memory:"];
        let mut server = Process::start("attache serve", attache(folder.path(), &arguments));
        let url = server
            .heard("where it listens", |line| line.strip_prefix("Listening on ").map(str::to_owned))
            .await;
        let sent = attache(folder.path(), &["send", &url, "hello"]).output().await.expect("it runs");
        let (out, error) = (String::from_utf8_lossy(&sent.stdout), String::from_utf8_lossy(&sent.stderr));
        assert!(sent.status.success() && out.contains("HELLO"), "{out}{error}");
    });
}
