//! A receiver of webhooks that does not always want to.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use fastrand::Rng;
use serde_json::Value;

use super::Tally;
use super::api::task_of;

/// How often the same delivery is refused at most, so that the waits between attempts stay short.
const MAX_REFUSALS: usize = 2;

/// A notification that was taken.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// The number of the event.
    pub(super) seq: u64,
    /// What the delivery is known by.
    pub(super) delivery: String,
    /// The secret that the webhook came with.
    pub(super) token: String,
    /// The event.
    pub(super) what: Value,
}

/// Answers every tenth notification with 503, more or less, and keeps the others.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) url: String,
    state: Arc<Mutex<Inner>>,
}

struct Inner {
    random: Rng,
    tally: Arc<Tally>,
    /// What was taken, for each task in the order in which it came.
    arrivals: HashMap<String, Vec<Arrival>>,
    refusals: HashMap<String, usize>,
    /// How many tasks have been told to the end.
    ended: usize,
    relents: bool,
}

impl Receiver {
    pub(super) async fn start(random: Rng, tally: Arc<Tally>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("it has an address"));
        let (arrivals, refusals) = (HashMap::new(), HashMap::new());
        let inner = Inner { random, tally, arrivals, refusals, ended: 0, relents: false };
        let receiver = Self { url, state: Arc::new(Mutex::new(inner)) };
        let router = Router::new().route("/hook", post(take)).with_state(receiver.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        receiver
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.state.lock().expect("nobody panicked")
    }

    /// Everything that was taken so far, by task.
    pub(super) fn arrivals(&self) -> HashMap<String, Vec<Arrival>> {
        self.lock().arrivals.clone()
    }

    /// How many tasks have been told to the end.
    pub(super) fn ended(&self) -> usize {
        self.lock().ended
    }

    /// Takes everything from now on, so that what is left arrives soon.
    pub(super) fn relent(&self) {
        self.lock().relents = true;
    }
}

async fn take(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let what: Value = serde_json::from_slice(&body).unwrap_or_default();
    let arrival = Arrival {
        seq: header("x-a2a-event-number").parse().unwrap_or_default(),
        delivery: header("x-a2a-delivery-id").to_owned(),
        token: header("x-a2a-notification-token").to_owned(),
        what,
    };
    let mut inner = receiver.lock();
    if !inner.relents && inner.random.u8(..10) == 0 {
        let refusals = inner.refusals.entry(arrival.delivery.clone()).or_default();
        *refusals += 1;
        if *refusals <= MAX_REFUSALS {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
    }
    let event = super::api::Event { seq: arrival.seq, what: arrival.what.clone() };
    let known = inner.arrivals.entry(task_of(&arrival.what).to_owned()).or_default();
    let is_new = !known.iter().any(|other| other.seq == arrival.seq);
    known.push(arrival);
    inner.ended += usize::from(is_new && event.ends_the_task());
    inner.tally.webhooks.fetch_add(1, Relaxed);
    StatusCode::NO_CONTENT
}
