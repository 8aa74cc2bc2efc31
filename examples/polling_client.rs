//! Starts a task, polls it until it ends, and answers the questions of the agent.
//!
//! Start an agent, such as `cargo run --example multi_turn`, then
//! `cargo run --example polling_client http://127.0.0.1:8080 "a table please" 4 eight`.

use std::io::Write;
use std::time::Duration;

use attache::client::{ClientError, Pace};
use attache::prelude::*;

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let first = arguments.next().unwrap_or_else(|| "Hello".to_owned());

    // `wait` uses a long poll if the agent supports it. Otherwise it polls at growing intervals.
    let pace = Pace::default().first(Duration::from_millis(100)).longest(Duration::from_secs(5));
    let options = ClientOptions::default().pace(pace).deadline(Duration::from_secs(60));
    let agent = Client::connect_with(&address, options).await?;

    // The agent responds as soon as the task exists. The client needs only the id of the task to continue.
    let mut reply = agent.send(Outgoing::new(first).return_immediately()).await?;
    while let Reply::Task(task) = reply {
        let task = agent.wait(task.id).await?;
        eprintln!("{}: {}", task.id, task.status.state);
        reply = match arguments.next() {
            Some(answer) if task.status.state == TaskState::InputRequired => {
                agent.answer(&task, answer).await?
            }
            Some(_) | None => {
                finish(&Texts::from(&task));
                return Ok(());
            }
        };
    }
    finish(&Texts::from(&reply));
    Ok(())
}

fn finish(texts: &Texts) {
    // An error means that the reader has closed the pipe. It is ignored.
    let _ = writeln!(std::io::stdout(), "{}", texts.all());
}
