//! Contexts that an operator closes while the server has them in memory.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Clock, ContextRecords, Conversation, Turn, agent_fn, conversational};
use attache_protocol::{ErrorKind, TaskState};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::{Host, Latch, Say, host, say, soon};

/// What an agent keeps for a context. It tells of its end.
struct Runtime(UnboundedSender<()>);

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

struct Setup {
    host: Host,
    latch: Latch,
    ended: UnboundedReceiver<()>,
}

/// An agent that keeps something, and waits at `wait`. Contexts are idle for an hour before they are put away.
fn setup() -> Setup {
    let (latch, (sender, ended)) = (Latch::new(), unbounded_channel());
    let passed = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let (latch, sender) = (passed.clone(), sender.clone());
        async move {
            let context = turn.context();
            context.keep("runtime", context.runtime("runtime").unwrap_or_else(|| Arc::new(Runtime(sender))));
            if turn.text() == "wait" {
                latch.pass().await;
            }
            turn.complete_with("done").await
        }
    });
    let rules = Conversation::default().with(|rules| rules.contexts.idle = Duration::from_secs(3600));
    Setup { host: host(conversational(agent, rules)), latch, ended }
}

impl Setup {
    /// Closes the context as another process does: in the store.
    async fn close(&self) {
        let records = ContextRecords::new(self.host.store.clone());
        let record = records.list().await.expect("records").remove(0);
        let closed = records.close(&record.owner(), &record.context_id, self.host.clock.now()).await;
        assert!(closed.expect("it is changed").is_some());
    }

    async fn sweep(&self) {
        // The first round of maintenance is at once. It yields to the pause after it.
        let maintenance = self.host.service.clone().run_maintenance();
        let _ = tokio::time::timeout(Duration::from_millis(1), maintenance).await;
    }
}

fn c(text: &str) -> Say {
    say(text).in_context("c")
}

#[tokio::test(start_paused = true)]
async fn maintenance_ends_what_the_agent_keeps_for_a_closed_context() {
    let mut setup = setup();
    setup.host.client().send(c("one")).await;
    setup.sweep().await;
    assert!(setup.ended.is_empty(), "a context that is open goes on");
    setup.close().await;
    assert!(setup.ended.is_empty());
    setup.sweep().await;
    assert_eq!(setup.ended.try_recv(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn the_next_message_ends_what_the_agent_keeps_for_a_closed_context() {
    let mut setup = setup();
    setup.host.client().send(c("one")).await;
    setup.close().await;
    let refused = setup.host.client().try_send(c("two")).await.expect_err("it takes no message");
    assert_eq!(refused.kind(), ErrorKind::UnsupportedOperation);
    // The seat of the message is gone with it.
    let limit = tokio::time::timeout(Duration::from_secs(1), setup.ended.recv()).await;
    assert_eq!(limit, Ok(Some(())));
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_a_closed_context_goes_on_and_its_runtime_ends_after_it() {
    let mut setup = setup();
    let running = setup.host.client().send_meanwhile(c("wait"));
    setup.latch.reached().await;
    setup.close().await;
    setup.sweep().await;
    assert!(setup.ended.is_empty(), "the turn runs");
    setup.latch.open();
    let done = soon(running).await.expect("it ends");
    assert_eq!(done.status.state, TaskState::Completed);
    let limit = tokio::time::timeout(Duration::from_secs(1), setup.ended.recv()).await;
    assert_eq!(limit, Ok(Some(())));
}
