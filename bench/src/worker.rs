//! The other side of a gateway: iii workers whose functions give back their payload.
//!
//! Many workers are one process with a connection for each, which is all that an engine sees of them.

use anyhow::{Context, Result, bail};
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Connection, Invocation, Worker, WorkerOptions};
use clap::Args;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub(crate) struct Crowd {
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) workers: usize,
    /// How many functions they have together
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) functions: usize,
}

/// The id of the `nth` function of any crowd.
pub(crate) fn function_id(nth: usize) -> String {
    if nth == 0 { "bench::echo".to_owned() } else { format!("bench::echo-{nth}") }
}

/// Joins the engine at `url` and stays. Ends, with an error, when any worker has lost it.
pub(crate) async fn serve(url: &str, crowd: Crowd) -> Result<()> {
    if crowd.workers == 0 {
        bail!("`--workers 0` leaves nobody to join the engine");
    }
    let mut workers = Vec::with_capacity(crowd.workers);
    for nth in 0..crowd.workers {
        let worker =
            Worker::connect(WorkerOptions::new(url).with(|options| options.name = format!("bench-{nth}")))?;
        for function in (nth..crowd.functions).step_by(crowd.workers) {
            worker.register(echo(function), |call: Invocation| async move { Ok(call.payload()) });
        }
        workers.push(worker);
    }
    let mut watched: JoinSet<Result<()>> =
        workers.iter().enumerate().map(|(nth, worker)| left(nth, worker.state())).collect();
    watched.join_next().await.context("there is no worker")??
}

fn echo(nth: usize) -> RegisterFunction {
    RegisterFunction {
        id: function_id(nth),
        description: Some("Gives back what it gets, for as long as the benchmark takes".to_owned()),
        metadata: Some(json!({ "a2a.expose": true })),
        ..RegisterFunction::default()
    }
}

/// Waits until a worker that has joined is out again, or is not let in.
async fn left(nth: usize, mut state: watch::Receiver<Connection>) -> Result<()> {
    let mut joined = false;
    loop {
        match &*state.borrow_and_update() {
            Connection::Connected { .. } => joined = true,
            Connection::Connecting if !joined => {}
            Connection::Connecting | Connection::Closed => bail!("worker {nth} has lost the engine"),
            Connection::Rejected(refusal) => {
                bail!("the engine refuses worker {nth}: {} ({})", refusal.message, refusal.code)
            }
        }
        state.changed().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_loses_the_engine_says_so() {
        let (state, watched) = watch::channel(Connection::Connecting);
        let left = tokio::spawn(left(7, watched));
        for next in [Connection::Connected { worker_id: "w".to_owned() }, Connection::Connecting] {
            tokio::task::yield_now().await;
            state.send_replace(next);
        }
        let error = left.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "worker 7 has lost the engine");
    }
}
