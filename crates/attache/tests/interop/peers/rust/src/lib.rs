//! The agent of the servers here. It is that of our own server in these tests: a plan, which each server carries out with its own types.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What becomes of a message.
pub enum Plan {
    /// A message, and no task.
    Reply(&'static str),
    /// A task that goes through these.
    Task(Vec<Step>),
}

/// A thing that happens to a task.
pub enum Step {
    Working,
    /// Text for the artifact `answer`.
    Answer {
        text: String,
        append: bool,
        last: bool,
    },
    /// An artifact of everything in the message but its first part.
    Echo,
    /// Nothing, until the task is released.
    Hold,
    Ask(&'static str),
    Fail(&'static str),
    Complete,
}

impl Step {
    fn answer(text: impl Into<String>) -> Self {
        Self::Answer { text: text.into(), append: false, last: true }
    }
}

/// Whether a message begins something, or answers the question of a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    First,
    Answer,
}

/// The agent, which does what the first word of a message says.
#[derive(Default)]
pub struct Agent {
    released: watch::Sender<HashSet<String>>,
}

impl Agent {
    pub fn plan(&self, turn: Turn, text: &str) -> Plan {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        if turn == Turn::Answer {
            return Plan::Task(vec![Step::answer(format!("{word} it is")), Step::Complete]);
        }
        let steps = match word {
            "direct" => return Plan::Reply("a direct answer"),
            "release" => {
                self.released.send_modify(|tasks| {
                    tasks.insert(rest.to_owned());
                });
                return Plan::Reply("released");
            }
            "say" => vec![Step::Working, Step::answer(rest), Step::Complete],
            "stream" => {
                let chunk = |text: &str, append, last| Step::Answer { text: text.to_owned(), append, last };
                let chunks = [("one ", false, false), ("two ", true, false), ("three", true, true)];
                let chunks = chunks.map(|(text, append, last)| chunk(text, append, last));
                [Step::Working].into_iter().chain(chunks).chain([Step::Complete]).collect()
            }
            "ask" => vec![Step::Ask("Which colour?")],
            "hold" => vec![Step::Working, Step::Hold, Step::answer("released"), Step::Complete],
            "echo" => vec![Step::Working, Step::Echo, Step::Complete],
            _ => vec![Step::Fail("it broke")],
        };
        Plan::Task(steps)
    }

    /// Waits until a message says `release` and the id of the task.
    pub async fn released(&self, task: &str) {
        let mut released = self.released.subscribe();
        released.wait_for(|tasks| tasks.contains(task)).await.expect("the agent is still there");
    }
}

/// The listeners of a server, and the one binding that its card has.
pub struct Listeners {
    pub binding: String,
    /// Where the card says that the binding is.
    pub address: String,
    pub http: TcpListener,
    pub grpc: TcpListener,
    url: String,
}

impl Listeners {
    /// Two free ports, and the binding that the program was started with. The server has HTTP+JSON below a path.
    pub async fn find(rest: &str) -> Self {
        let binding = std::env::args().nth(1).expect("usage: server JSONRPC|HTTP+JSON|GRPC");
        let http = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let grpc = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", http.local_addr().expect("it has one"));
        let address = match binding.as_str() {
            "JSONRPC" => format!("{url}/rpc"),
            "HTTP+JSON" => format!("{url}{rest}"),
            "GRPC" => grpc.local_addr().expect("it has one").to_string(),
            other => panic!("`{other}` is no binding"),
        };
        Self { binding, address, http, grpc, url }
    }

    /// The card of the agent with some skills, which every server reads into its own type.
    pub fn card<T: serde::de::DeserializeOwned>(&self, skills: &[&str]) -> T {
        let skill = |id: &&str| json!({"id": id, "name": id, "description": id, "tags": ["test"]});
        let skills: Vec<Value> = skills.iter().map(skill).collect();
        let card = json!({
            "name": "Interop",
            "description": "Does what it is told",
            "version": "1",
            "supportedInterfaces": [{
                "url": self.address,
                "protocolBinding": self.binding,
                "protocolVersion": "1.0",
            }],
            "capabilities": {"streaming": true, "pushNotifications": true, "extendedAgentCard": true},
            "defaultInputModes": ["*/*"],
            "defaultOutputModes": ["*/*"],
            "skills": skills,
        });
        serde_json::from_value(card).expect("it is a card")
    }

    /// Says that requests are answered from now on.
    pub fn announce(&self) {
        println!("Listening on {}", self.url);
    }
}
