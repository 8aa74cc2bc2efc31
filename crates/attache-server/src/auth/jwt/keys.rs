//! The keys of an issuer, cached for as long as they are valid.
//!
//! They are fetched when they are first needed, again before they expire while requests arrive, and again for a token whose key is
//! unknown. Requests that need them at the same time share one fetch. While the issuer cannot be reached, the cached keys stay in use
//! for a day.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use attache_core::{BoxFuture, Clock};
use attache_signing::KeySet;
use futures::FutureExt;
use futures::future::Shared;
use parking_lot::Mutex;
use reqwest::Client;

use super::fetch::{Fetched, KeyLocation, fetch};

/// The shortest time between two fetches while there are cached keys.
const AGAIN: i64 = 10_000;

/// The same while there are none.
const AGAIN_WITHOUT: i64 = 1_000;

/// How long expired keys stay in use while the issuer cannot be reached.
const STALE: i64 = 24 * 60 * 60 * 1000;

/// A running fetch. It completes when the fetch has succeeded or failed.
pub(super) type Flight = Shared<BoxFuture<'static, ()>>;

/// The keys of one issuer.
pub(super) struct Keys {
    place: Option<(Client, KeyLocation)>,
    clock: Arc<dyn Clock>,
    /// Increases whenever the keys change.
    generation: AtomicU64,
    /// When the keys need attention, in milliseconds.
    look_at: AtomicI64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    flight: Option<Flight>,
    /// When the last fetch began.
    asked: Option<i64>,
    /// Why the last fetch failed.
    problem: Option<String>,
}

struct Held {
    keys: Arc<KeySet>,
    /// From when they are refreshed in the background.
    refresh: i64,
    /// From when they are refreshed before the next request is answered.
    expire: i64,
}

impl Held {
    /// From when they must not be used.
    fn dead(&self) -> i64 {
        self.expire.saturating_add(STALE)
    }
}

/// The keys for verifying a token.
pub(super) enum Hand {
    Keys(Arc<KeySet>, u64),
    /// They are being fetched.
    Wait(Flight),
    /// They cannot be fetched, and why.
    Unavailable(String),
}

/// What to do about a token with an unknown key.
pub(super) enum Unknown {
    /// Try again after this fetch.
    Wait(Flight),
    /// Reject it.
    Reject,
    /// The keys cannot be fetched, and why.
    Unavailable(String),
}

impl Keys {
    /// Keys that never change.
    pub(super) fn pinned(keys: KeySet, clock: Arc<dyn Clock>) -> Self {
        let held = Held { keys: Arc::new(keys), refresh: i64::MAX, expire: i64::MAX };
        let state = Mutex::new(State { held: Some(held), ..State::default() });
        Self { place: None, clock, generation: AtomicU64::new(0), look_at: AtomicI64::new(i64::MAX), state }
    }

    /// Keys that are fetched.
    pub(super) fn published(client: Client, place: KeyLocation, clock: Arc<dyn Clock>) -> Self {
        let (generation, look_at) = (AtomicU64::new(0), AtomicI64::new(i64::MIN));
        Self { place: Some((client, place)), clock, generation, look_at, state: Mutex::default() }
    }

    /// Whether a result with keys of this generation is still valid.
    pub(super) fn stand(&self, generation: u64, now: i64) -> bool {
        now < self.look_at.load(Ordering::Acquire) && generation == self.generation.load(Ordering::Acquire)
    }

    /// The keys for verifying a token.
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

    /// What to do about a token with an unknown key.
    pub(super) fn unknown(self: &Arc<Self>, now: i64) -> Unknown {
        let mut state = self.state.lock();
        match (self.ask(&mut state, now, AGAIN), &state.problem) {
            (Some(flight), _) => Unknown::Wait(flight),
            (None, Some(problem)) => Unknown::Unavailable(problem.clone()),
            (None, None) => Unknown::Reject,
        }
    }

    /// Starts a fetch, unless one is running or was started within `pause`.
    fn ask(self: &Arc<Self>, state: &mut State, now: i64, pause: i64) -> Option<Flight> {
        // A fetch that has ended but is still registered was aborted.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.peek().is_none()) {
            return Some(flight.clone());
        }
        let (client, place) = self.place.as_ref()?;
        // A clock that was set back must not delay requests.
        if state.asked.is_some_and(|asked| (asked..asked.saturating_add(pause)).contains(&now)) {
            return None;
        }
        state.asked = Some(now);
        self.look_at.store(now.saturating_add(AGAIN), Ordering::Release);
        let (keys, client, place) = (self.clone(), client.clone(), place.clone());
        // Spawned: the first client may disconnect while others still need the keys.
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
        // The fetch may have taken as long as the pause before the next one.
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
