//! The clients in Python that the documentation shows.

use tokio::process::Command;

use crate::peers::{PATIENCE, absent, home, keep};
use crate::{attache, serve};

/// The programs in Python on the page.
fn programs() -> Vec<String> {
    let page = include_str!("../../../../docs/transports.md");
    let blocks = page.split("```python\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_python_client_of_the_documentation_works() {
    keep("the clients of docs/transports.md", absent("python"), async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("agent.sock").display().to_string();
        let server = serve(&["--agent", "echo", "--listen", &format!("unix:{socket}")]).await;
        let programs = programs();
        // A Unix socket, standard input and output, WebSocket, and gRPC.
        assert_eq!(programs.len(), 4, "{programs:?}");
        for program in programs {
            let here = program
                .replace("/run/user/1000/agent.sock", &socket)
                .replace("127.0.0.1:3111", &server.address)
                .replace("[\"attache\", ", &format!("[{:?}, ", env!("CARGO_BIN_EXE_attache")));
            assert_ne!(here, program, "it names an address of the documentation");
            let mut python = Command::new(home("transports-python").join("bin/python"));
            python.args(["-c", &here]).env("ATTACHE_STORE", "memory:").kill_on_drop(true);
            for (name, value) in attache(&[]).as_std().get_envs() {
                match value {
                    Some(value) => python.env(name, value),
                    None => python.env_remove(name),
                };
            }
            let output = tokio::time::timeout(PATIENCE, python.output()).await.expect("it ends").unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("Hello"), "{program}\n{output:?}");
        }
    });
}
