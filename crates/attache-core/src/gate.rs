//! Gates: how many may be at something at once, and who waits in line for how long.
//!
//! Those who wait are let in in the order they came. No more may wait than may be inside, so that a line never grows longer than
//! the place it leads to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Lets a number of comers in at once. How many is said by those who come, since that may change.
#[derive(Debug, Default)]
pub struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    inside: usize,
    limit: usize,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// A place behind a gate; free again when dropped.
#[derive(Debug)]
#[must_use = "a place is given up when it is dropped"]
pub struct Place(Option<Arc<Gate>>);

/// There is no place, and none became free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no place, and none became free in time")]
pub struct Full;

/// The way through a gate: how many may be inside at once, and how long one waits.
#[derive(Debug, Clone)]
pub struct Pass {
    /// The gate.
    pub gate: Arc<Gate>,
    /// How many may be inside at once.
    pub limit: usize,
    /// How long one waits for a place.
    pub patience: Duration,
}

/// Passes are the same if they lead through the same gate on the same terms.
impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.gate, &other.gate) && (self.limit, self.patience) == (other.limit, other.patience)
    }
}

impl Eq for Pass {}

impl State {
    /// Takes a place if one is free and nobody waits for it.
    fn take(&mut self, limit: usize) -> bool {
        self.limit = limit;
        let free = self.inside < limit && self.waiting.is_empty();
        self.inside += usize::from(free);
        free
    }
}

impl Gate {
    /// Whether nobody is inside or waits.
    pub fn is_at_rest(&self) -> bool {
        let state = self.0.lock();
        state.inside == 0 && state.waiting.is_empty()
    }

    /// Takes a place, or gets in line for one.
    fn come(self: &Arc<Self>, limit: usize) -> Result<Place, Option<oneshot::Receiver<Place>>> {
        let mut state = self.0.lock();
        if state.take(limit) {
            return Ok(Place(Some(self.clone())));
        }
        if state.waiting.len() >= limit {
            // Whoever has given up waiting takes up no room in the line.
            state.waiting.retain(|one| !one.is_closed());
        }
        if state.waiting.len() >= limit {
            return Err(None);
        }
        let (give, given) = oneshot::channel();
        state.waiting.push_back(give);
        Err(Some(given))
    }

    /// Gives a place that has become free to whoever has waited longest.
    fn leave(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                // With a limit that was lowered meanwhile, there may be too many inside.
                let next = if state.inside > state.limit { None } else { state.waiting.pop_front() };
                match next {
                    Some(next) => next,
                    None => {
                        state.inside -= 1;
                        return;
                    }
                }
            };
            match next.send(Place(Some(self.clone()))) {
                Ok(()) => return,
                // Nobody is there any more to take it: on to the next, with the place still taken.
                Err(mut place) => drop(place.0.take()),
            }
        }
    }
}

impl Pass {
    /// Takes a place if one is free and nobody waits for it.
    pub fn try_enter(&self) -> Option<Place> {
        let taken = self.gate.0.lock().take(self.limit);
        taken.then(|| Place(Some(self.gate.clone())))
    }

    /// Takes a place, and waits for it if need be.
    pub async fn enter(&self) -> Result<Place, Full> {
        match self.gate.come(self.limit) {
            Ok(place) => Ok(place),
            Err(None) => Err(Full),
            Err(Some(given)) => match tokio::time::timeout(self.patience, given).await {
                Ok(Ok(place)) => Ok(place),
                Ok(Err(_)) | Err(_) => Err(Full),
            },
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn pass(limit: usize) -> Pass {
        Pass { gate: Arc::default(), limit, patience: Duration::from_secs(2) }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_longest_is_let_in_first() {
        let pass = pass(2);
        let (first, second) = (pass.enter().await.unwrap(), pass.enter().await.unwrap());
        let (mut third, mut fourth) = (Box::pin(pass.enter()), Box::pin(pass.enter()));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(first);
        assert!((&mut fourth).now_or_never().is_none());
        let third = (&mut third).now_or_never().unwrap().unwrap();
        drop((second, third));
        drop(fourth.await.unwrap());
        assert!(pass.gate.is_at_rest());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_they_may() {
        let pass = pass(1);
        let inside = pass.enter().await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(pass.enter().await.unwrap_err(), Full);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        drop(inside);
        assert!(pass.gate.is_at_rest(), "whoever gave up leaves nothing behind");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_may_be_inside() {
        let pass = pass(1);
        let _inside = pass.enter().await.unwrap();
        let mut waiting = Box::pin(pass.enter());
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(pass.enter().now_or_never().unwrap().unwrap_err(), Full);
        drop(waiting);
        assert!(pass.enter().now_or_never().is_none(), "one who gave up makes room in the line");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_away_while_waiting_is_passed_over() {
        let pass = pass(3);
        let inside: Vec<_> = [pass.try_enter(), pass.try_enter(), pass.try_enter()].into_iter().collect();
        let (mut gone, mut stays) = (Box::pin(pass.enter()), Box::pin(pass.enter()));
        assert!((&mut gone).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(gone);
        drop(inside);
        drop(stays.await.unwrap());
        assert!(pass.gate.is_at_rest());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_comes_too_late_is_not_lost() {
        let pass = pass(1);
        let inside = pass.enter().await.unwrap();
        let mut waiting = Box::pin(pass.enter());
        assert!((&mut waiting).now_or_never().is_none());
        drop(inside);
        // The place is on its way, and whoever was to have it goes.
        drop(waiting);
        assert!(pass.try_enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lower_limit_holds_as_soon_as_enough_have_left() {
        let mut pass = pass(2);
        let (first, second) = (pass.enter().await.unwrap(), pass.enter().await.unwrap());
        pass.limit = 1;
        assert!(pass.try_enter().is_none());
        drop(first);
        assert!(pass.try_enter().is_none());
        drop(second);
        assert!(pass.try_enter().is_some());
    }
}
