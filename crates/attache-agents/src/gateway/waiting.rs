//! A remote task that needs credentials: they come with a message of the caller, or on another way.

use attache_core::{TailItem, TaskEvent, Turn};
use attache_protocol::{Message, Role, TaskId, TaskState};
use futures::StreamExt;

use super::Inner;
use super::fault::Fault;
use super::outage::Outage;

/// Waits until the remote agent goes on, because it got the credentials on another way. Returns `true` if the caller has sent a message
/// instead: its turn begins when this one is over.
pub(super) async fn is_answered_by_caller(gateway: &Inner, turn: &Turn, id: TaskId) -> Result<bool, Fault> {
    let goes_on = async {
        let mut outage = Outage::new(gateway, turn);
        let goes_on = |task: &attache_protocol::Task| task.status.state != TaskState::AuthRequired;
        loop {
            match gateway.client.wait_until(id.clone(), goes_on).await {
                Ok(_) => return Ok(false),
                Err(error) => outage.pause_after(error).await?,
            }
        }
    };
    tokio::select! {
        answered = next_message(gateway, turn) => answered.map(|()| true),
        goes_on = goes_on => goes_on,
    }
}

/// Waits for the next message of the caller, or the end of the task.
async fn next_message(gateway: &Inner, turn: &Turn) -> Result<(), Fault> {
    let (store, task) = (&gateway.options.store, turn.task_id());
    let Some(now) = store.load(&turn.caller().owner, task).await? else { return Ok(()) };
    let is_later = |message: &Message| message.message_id != turn.message().message_id;
    let last = now.task().history.iter().rev().find(|message| message.role == Role::User).map(is_later);
    if last == Some(true) {
        return Ok(());
    }
    let mut tail = store.tail(task, now.seq);
    while let Some(item) = tail.next().await {
        let TailItem::Entries(entries) = item? else { return Ok(()) };
        if entries.iter().any(|entry| matches!(entry.event, TaskEvent::Message(_))) {
            return Ok(());
        }
    }
    Ok(())
}
