//! Load that may be refused, and what became of each request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail};
use memchr::memmem;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connection::{Connection, excerpt};
use crate::requests::Request;

/// How long an answer may take before the connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers texts, so that an answer to another request is seen to be one.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A load.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    connections: usize,
    /// The time from one request of a connection to its next, whether or not it was answered; none if the next is sent as soon
    /// as the last is answered.
    every: Option<Duration>,
    takes: Duration,
}

/// What became of the requests of a load.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) unavailable: u64,
    pub(super) exhausted: u64,
    pub(super) wrong: u64,
    pub(super) lost: u64,
    /// How long each refusal took, in microseconds.
    pub(super) refusals: Vec<u32>,
    pub(super) first_wrong: Option<String>,
}

impl Counts {
    pub(super) fn refused(&self) -> u64 {
        self.unavailable + self.exhausted
    }

    pub(super) fn sent(&self) -> u64 {
        self.answered + self.refused() + self.wrong + self.lost
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.unavailable += other.unavailable;
        self.exhausted += other.exhausted;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.refusals.extend(other.refusals);
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }
}

impl Offer {
    /// Each connection sends its next request when the last one is answered; the agent `takes` so long for each.
    pub(super) fn closed(connections: usize, takes: Duration) -> Self {
        Self { connections, every: None, takes }
    }

    /// The connections together send `rate` requests a second.
    pub(super) fn open(connections: usize, rate: f64, takes: Duration) -> Self {
        let every = Duration::from_secs_f64(connections as f64 / rate.max(1.0));
        Self { connections, every: Some(every), takes }
    }

    /// Offers the load for a while, and waits for the last answers.
    pub(super) async fn run(self, address: SocketAddr, length: Duration) -> Result<Counts> {
        let mut open = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            open.push(Connection::open(address).await?);
        }
        let begin = Instant::now();
        let mut clients = JoinSet::new();
        for (nth, connection) in open.into_iter().enumerate() {
            // Spread over the time from one request to the next.
            let first = self
                .every
                .map_or(Duration::ZERO, |every| every.mul_f64(nth as f64 / self.connections as f64));
            clients.spawn(self.drive(address, connection, begin + first, begin + length));
        }
        let mut counts = Counts::default();
        while let Some(ended) = clients.join_next().await {
            counts.add(ended??);
        }
        if counts.sent() == 0 {
            bail!("not one request was sent");
        }
        Ok(counts)
    }

    async fn drive(
        self,
        address: SocketAddr,
        connection: Connection,
        mut next: Instant,
        end: Instant,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut connection = Some(connection);
        let (mut request, mut body) = (Vec::new(), Vec::new());
        while next < end && Instant::now() < end {
            sleep_until(next).await;
            let mut open = match connection.take() {
                Some(open) => open,
                None => Connection::open(address).await?,
            };
            let text = format!("number {}", NEXT.fetch_add(1, Relaxed));
            Request::send(&format!("later:{}:{text}", self.takes.as_millis())).write(&mut request);
            body.clear();
            let began = Instant::now();
            match timeout(PATIENCE, open.answer(&request, |piece| body.extend_from_slice(piece))).await {
                Ok(Ok(answer)) => {
                    connection = Some(open);
                    match judge(answer.status, answer.says_when, &body, &text) {
                        Verdict::Answered => counts.answered += 1,
                        Verdict::Refused => {
                            counts
                                .refusals
                                .push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
                            *if answer.status == 503 {
                                &mut counts.unavailable
                            } else {
                                &mut counts.exhausted
                            } += 1;
                        }
                        Verdict::Wrong => {
                            counts.wrong += 1;
                            counts
                                .first_wrong
                                .get_or_insert_with(|| format!("{} {}", answer.status, excerpt(&body)));
                        }
                    }
                }
                Ok(Err(_)) | Err(_) => counts.lost += 1,
            }
            next = match self.every {
                // What would have been sent meanwhile is not made up for: others send theirs.
                Some(every) => (next + every).max(Instant::now()),
                None => Instant::now(),
            };
        }
        Ok(counts)
    }
}

/// Whether a response is what it should be.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Answered,
    Refused,
    Wrong,
}

/// An answer gives back the text of its own request; a refusal has the shape of an error, says why and when to try again.
fn judge(status: u16, says_when: bool, body: &[u8], text: &str) -> Verdict {
    let code = match status {
        // Ended by the quote, so that a longer number is not taken for it.
        200 if memmem::find(body, format!("\"{text}\"").as_bytes()).is_some() => return Verdict::Answered,
        503 => -32054,
        429 => -32052,
        _ => return Verdict::Wrong,
    };
    let refusal: Value = serde_json::from_slice(body).unwrap_or_default();
    let clear = says_when && refusal["error"]["code"] == code && refusal["jsonrpc"] == "2.0";
    if clear { Verdict::Refused } else { Verdict::Wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_request_is_wrong() {
        let body = br#"{"jsonrpc":"2.0","id":1,"result":{"message":{"parts":[{"text":"number 12"}]}}}"#;
        assert_eq!(judge(200, false, body, "number 12"), Verdict::Answered);
        assert_eq!(judge(200, false, body, "number 1"), Verdict::Wrong);
    }

    #[test]
    fn a_refusal_must_be_clear() {
        let body = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32054,"message":"too many"}}"#;
        assert_eq!(judge(503, true, body, "x"), Verdict::Refused);
        assert_eq!(judge(503, false, body, "x"), Verdict::Wrong, "it does not say when to try again");
        assert_eq!(judge(429, true, body, "x"), Verdict::Wrong, "the code is another one's");
        assert_eq!(judge(503, true, b"", "x"), Verdict::Wrong);
        assert_eq!(judge(500, true, body, "x"), Verdict::Wrong);
    }
}
