//! Following a remote task whose response has ended early: by a subscription, or by polling.

use attache_client::ClientError;
use attache_protocol::StreamResponse;

use super::fault::{Fault, is_temporary};
use super::fingerprint::of_task;
use super::outage::Outage;
use super::session::{Next, Session, Source};

impl Session<'_> {
    /// Reads the task, and follows it if it has not settled. Waits while the agent cannot be reached.
    pub(super) async fn follow(&mut self) -> Result<Next, Fault> {
        let Some(id) = self.link.task.clone() else {
            return Err(Fault::Invalid("the stream ended without an event"));
        };
        let client = &self.gateway.client;
        let mut outage = Outage::new(self.gateway, self.turn);
        let mut streams = client.card().capabilities.streaming == Some(true);
        let mut seen = None;
        loop {
            let read = match seen {
                // An agent that streams is asked once, and then followed by a stream.
                Some(seen) if !streams => {
                    client
                        .wait_until(id.clone(), |task| {
                            task.status.state.is_settled() || of_task(task) != seen
                        })
                        .await
                }
                Some(_) | None => client.get(id.clone()).await,
            };
            let task = match read {
                Ok(task) => task,
                Err(error) => {
                    outage.pause_after(error).await?;
                    continue;
                }
            };
            let fingerprint = of_task(&task);
            let is_progress = seen.replace(fingerprint) != Some(fingerprint);
            if self.apply_task(task, true).await? == Next::Settled {
                return Ok(Next::Settled);
            }
            if is_progress {
                outage.end();
            }
            if !streams {
                continue;
            }
            match client.subscribe(id.clone()).await {
                Ok(events) => {
                    self.source = Source::Events(Box::new(events));
                    if self.read_subscription().await? == Next::Settled {
                        return Ok(Next::Settled);
                    }
                    // A stream that always ends at once must not be opened in a loop.
                    outage.pause().await;
                }
                Err(error) if is_temporary(&error) => outage.pause_after(error).await?,
                // Some agents stream their answers, but have no subscription.
                Err(error) => {
                    tracing::debug!(target: super::LOG, %error, "polling a task that cannot be subscribed to");
                    streams = false;
                }
            }
        }
    }

    /// Reads a subscription. The task can have changed between its last read and the subscription, so it is read again unless the
    /// stream begins with it.
    async fn read_subscription(&mut self) -> Result<Next, Fault> {
        let Source::Events(events) = &mut self.source else { return Ok(Next::Reread) };
        let first = match events.next().await {
            None => None,
            Some(Ok(event @ StreamResponse::Task(_))) => Some(event),
            Some(Ok(_)) => {
                let Some(id) = self.link.task.clone() else { return Ok(Next::Reread) };
                match self.gateway.client.get(id).await {
                    Ok(task) => Some(StreamResponse::Task(task)),
                    Err(error) if is_temporary(&error) => None,
                    Err(error) => return Err(error.into()),
                }
            }
            Some(Err(error)) if is_temporary(&error) => None,
            // The task may have ended in the meantime. The next read shows that.
            Some(Err(ClientError::Remote(_))) => None,
            Some(Err(error)) => return Err(error.into()),
        };
        let Some(first) = first else {
            self.source = Source::Read;
            return Ok(Next::Reread);
        };
        match self.apply_event(first, false).await? {
            Next::Settled => {
                self.end_stream();
                Ok(Next::Settled)
            }
            Next::Continue | Next::Reread => {
                let continues = std::mem::take(&mut self.continues);
                let next = self.read_events().await;
                self.continues = continues;
                next
            }
        }
    }
}
