//! The keys of an issuer, kept for as long as they are good.
//!
//! They are fetched when they are first needed, again before they go out of use while requests come in, and again for a token whose
//! key is not among them. However many requests need them at once, they are fetched once. While the issuer cannot be reached, the keys
//! that are known stay in use, for a day.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use attache_core::{BoxFuture, Clock};
use attache_signing::KeySet;
use futures::FutureExt;
use futures::future::Shared;
use parking_lot::Mutex;
use reqwest::Client;

use super::fetch::{Fetched, Place, fetch};

/// How long after one attempt to fetch keys the next one may be, while there are some.
const AGAIN: i64 = 10_000;

/// The same while there are none.
const AGAIN_WITHOUT: i64 = 1_000;

/// For how long keys that should have been replaced stay in use while the issuer cannot be reached.
const STALE: i64 = 24 * 60 * 60 * 1000;

/// Keys that are being fetched. Done when they have been, or could not be.
pub(super) type Flight = Shared<BoxFuture<'static, ()>>;

/// The keys of one issuer.
pub(super) struct Keys {
    place: Option<(Client, Place)>,
    clock: Arc<dyn Clock>,
    /// Goes up whenever the keys are others than before.
    generation: AtomicU64,
    /// When something is to be done about the keys, in milliseconds.
    look_at: AtomicI64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    flight: Option<Flight>,
    /// When keys were last asked for.
    asked: Option<i64>,
    /// Why they could not be fetched, the last time.
    problem: Option<String>,
}

struct Held {
    keys: Arc<KeySet>,
    /// When they are replaced beside the requests that use them.
    refresh: i64,
    /// When they are replaced before the next request.
    expire: i64,
}

impl Held {
    /// When they are of no use any more.
    fn dead(&self) -> i64 {
        self.expire.saturating_add(STALE)
    }
}

/// What there is to check a token with.
pub(super) enum Hand {
    Keys(Arc<KeySet>, u64),
    /// They are on their way.
    Wait(Flight),
    /// They cannot be had, and why.
    Unavailable(String),
}

/// What becomes of a token whose key is not there.
pub(super) enum Unknown {
    /// Perhaps it is there after this.
    Wait(Flight),
    /// It is nobody's.
    Nobodys,
    /// Nobody can say, and why.
    Unavailable(String),
}

impl Keys {
    /// Keys that are always the same.
    pub(super) fn pinned(keys: KeySet, clock: Arc<dyn Clock>) -> Self {
        let held = Held { keys: Arc::new(keys), refresh: i64::MAX, expire: i64::MAX };
        let state = Mutex::new(State { held: Some(held), ..State::default() });
        Self { place: None, clock, generation: AtomicU64::new(0), look_at: AtomicI64::new(i64::MAX), state }
    }

    /// Keys that are fetched.
    pub(super) fn published(client: Client, place: Place, clock: Arc<dyn Clock>) -> Self {
        let (generation, look_at) = (AtomicU64::new(0), AtomicI64::new(i64::MIN));
        Self { place: Some((client, place)), clock, generation, look_at, state: Mutex::default() }
    }

    /// Whether what was found with keys of this generation holds without a further look.
    pub(super) fn stand(&self, generation: u64, now: i64) -> bool {
        now < self.look_at.load(Ordering::Acquire) && generation == self.generation.load(Ordering::Acquire)
    }

    /// What there is to check a token with.
    pub(super) fn at_hand(self: &Arc<Self>, now: i64) -> Hand {
        let mut state = self.state.lock();
        let (held, expired) = match &state.held {
            Some(held) if now < held.refresh => {
                return Hand::Keys(held.keys.clone(), self.generation.load(Ordering::Acquire));
            }
            Some(held) if now < held.dead() => (Some(held.keys.clone()), now >= held.expire),
            Some(_) | None => (None, true),
        };
        let pause = if held.is_some() { AGAIN } else { AGAIN_WITHOUT };
        let flight = self.ask(&mut state, now, pause);
        match (held, flight) {
            (Some(keys), flight) if !expired || flight.is_none() => {
                Hand::Keys(keys, self.generation.load(Ordering::Acquire))
            }
            (_, Some(flight)) => Hand::Wait(flight),
            (_, None) => Hand::Unavailable(state.problem.clone().unwrap_or_default()),
        }
    }

    /// What becomes of a token whose key is not there.
    pub(super) fn unknown(self: &Arc<Self>, now: i64) -> Unknown {
        let mut state = self.state.lock();
        match (self.ask(&mut state, now, AGAIN), &state.problem) {
            (Some(flight), _) => Unknown::Wait(flight),
            (None, Some(problem)) => Unknown::Unavailable(problem.clone()),
            (None, None) => Unknown::Nobodys,
        }
    }

    /// Fetches the keys, unless that is being done, or was done within `pause`.
    fn ask(self: &Arc<Self>, state: &mut State, now: i64, pause: i64) -> Option<Flight> {
        // One that is over and still there was cut off, and nothing will come of it.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.peek().is_none()) {
            return Some(flight.clone());
        }
        let (client, place) = self.place.as_ref()?;
        // A clock that was set back must not keep anyone waiting.
        if state.asked.is_some_and(|asked| (asked..asked.saturating_add(pause)).contains(&now)) {
            return None;
        }
        state.asked = Some(now);
        self.look_at.store(now.saturating_add(AGAIN), Ordering::Release);
        let (keys, client, place) = (self.clone(), client.clone(), place.clone());
        // Whoever asked first may hang up; the others still need the keys.
        let fetching = tokio::spawn(async move {
            let fetched = fetch(&client, &place).await;
            keys.take(fetched);
        });
        let flight = async move { drop(fetching.await) }.boxed().shared();
        state.flight = Some(flight.clone());
        Some(flight)
    }

    fn take(&self, fetched: Result<Fetched, String>) {
        let now = self.clock.now().to_millis();
        let mut state = self.state.lock();
        state.flight = None;
        // It may have taken as long as the pause before the next attempt.
        state.asked = Some(now);
        match fetched {
            Ok(Fetched { keys, good_for }) => {
                let good_for = duration(good_for);
                let (refresh, expire) = (now.saturating_add(good_for / 5 * 4), now.saturating_add(good_for));
                let same = state.held.as_ref().is_some_and(|held| *held.keys == keys);
                if !same {
                    tracing::info!(keys = keys.iter().count(), "the issuer's keys are others than before");
                    self.generation.fetch_add(1, Ordering::AcqRel);
                }
                state.held = Some(Held { keys: Arc::new(keys), refresh, expire });
                state.problem = None;
                self.look_at.store(refresh, Ordering::Release);
            }
            Err(problem) => {
                tracing::warn!(problem, "the issuer's keys cannot be fetched");
                let dead = state.held.as_ref().map_or(i64::MIN, Held::dead);
                self.look_at.store(now.saturating_add(AGAIN).min(dead), Ordering::Release);
                state.problem = Some(problem);
            }
        }
    }
}

fn duration(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
