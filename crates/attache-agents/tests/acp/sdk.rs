//! An agent that is written with the SDK of the protocol for Node.js.
//!
//! `cargo xtask test` installs the SDK and says where it is. Without that these tests are skipped with a message.

use attache_client::Outgoing;
use attache_protocol::TaskState;

use crate::peers::{absent, home, keep, place};
use crate::support::{Served, answer, serve, text};

/// Serves the agent that uses the SDK, in a directory.
async fn serve_sdk(workspace: &std::path::Path) -> Served {
    let script = home("acp-node-2.4.0").join("agent.mjs");
    place(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acp/peers/node/agent.mjs").as_ref(), &script);
    serve(&[], |options| {
        options.command = vec!["node".into(), script.display().to_string()];
        options.workspace = Some(workspace.to_owned());
    })
    .await
}

#[test]
fn an_agent_of_the_sdk_answers_asks_and_writes_files() {
    keep("an_agent_of_the_sdk_answers_asks_and_writes_files", absent("node"), async {
        let folder = tempfile::tempdir().unwrap();
        let agent = serve_sdk(folder.path()).await;
        assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
        let path = folder.path().canonicalize().unwrap().join("a.txt");
        let command = format!("write {}", path.display());
        let asked = agent.say("c", &command).await;
        assert_eq!(asked.status.state, TaskState::InputRequired);
        assert_eq!(answer(&agent.answer(&asked, "no").await), "not written");
        assert!(!path.exists());
        let asked = agent.say("c", &command).await;
        assert_eq!(answer(&agent.answer(&asked, "yes").await), "written: from the SDK");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "from the SDK");
        // A path outside is an error that the agent reports as its own.
        let asked = agent.say("c", "write /etc/attache-test").await;
        assert_eq!(agent.answer(&asked, "yes").await.status.state, TaskState::Failed);
    });
}

#[test]
fn a_cancel_reaches_an_agent_of_the_sdk() {
    keep("a_cancel_reaches_an_agent_of_the_sdk", absent("node"), async {
        let folder = tempfile::tempdir().unwrap();
        let agent = serve_sdk(folder.path()).await;
        let (_events, first) = agent.begin(Outgoing::from("hang").context("c")).await;
        assert_eq!(first, "hanging");
        let id = agent.latest().await.id;
        let canceled = agent.client.cancel(id).await.unwrap();
        assert_eq!((canceled.status.state, text(&canceled).as_str()), (TaskState::Canceled, "hanging"));
        // The session is free again only if the agent has ended the prompt.
        assert_eq!(answer(&agent.say("c", "hello").await), "you said: hello");
    });
}
