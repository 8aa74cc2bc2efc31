//! The client side of the command as a user meets it.

mod agents;
#[cfg(unix)]
mod chatting;
#[cfg(unix)]
mod dialing;
mod fake;
mod hostile;
mod login;
mod origins;
mod push;
mod sending;
mod tasks;

use crate::support::Program;

/// An agent that gives back what it gets.
async fn echo() -> Program {
    Program::command(&["serve", "--agent", "echo", "--listen", "127.0.0.1:0"]).await.0
}

/// An agent with a skill that takes its time.
async fn demo(more: &[&str]) -> Program {
    let demo = ["serve", "--demo", "--listen", "127.0.0.1:0", "--engine-listen", "127.0.0.1:0"];
    Program::command(&[&demo[..], more].concat()).await.0
}

/// A call of that skill.
const LONG: &str = r#"demo::wait {"seconds": 600}"#;

/// An agent that asks for how many people and at what time.
async fn tables() -> Program {
    Program::example("multi_turn", &[]).await
}
