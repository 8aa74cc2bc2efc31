//! Limits on how much goes on at once, with a queue of bounded length and bounded waiting time.
//!
//! Permits are given out in the order of the requests for them. The queue is never longer than the limit itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Counts the permits that are in use. The limit is an argument of each request, because it can change at run time.
#[derive(Debug, Default)]
pub struct Limiter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    limit: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

/// One unit of what a [`Limiter`] limits. Dropping it releases it.
#[derive(Debug)]
#[must_use = "a permit is released when it is dropped"]
pub struct Permit(Option<Arc<Limiter>>);

/// All permits are in use, and none was released in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all permits are in use, and none was released in time")]
pub struct NoPermit;

/// A limiter with the limit and the waiting time that hold for one caller.
#[derive(Debug, Clone)]
pub struct Quota {
    /// Counts the permits.
    pub limiter: Arc<Limiter>,
    /// How many permits may be in use at once.
    pub limit: usize,
    /// How long a request waits for a permit.
    pub max_wait: Duration,
}

/// Quotas are equal if they share a limiter, the limit and the waiting time.
impl PartialEq for Quota {
    fn eq(&self, other: &Self) -> bool {
        let same_limiter = Arc::ptr_eq(&self.limiter, &other.limiter);
        same_limiter && (self.limit, self.max_wait) == (other.limit, other.max_wait)
    }
}

impl Eq for Quota {}

impl State {
    /// Takes a permit if one is free and the queue is empty.
    fn take(&mut self, limit: usize) -> bool {
        self.limit = limit;
        let free = self.in_use < limit && self.waiting.is_empty();
        self.in_use += usize::from(free);
        free
    }
}

impl Limiter {
    /// Whether no permit is in use and the queue is empty.
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.in_use == 0 && state.waiting.is_empty()
    }

    /// Takes a permit, or joins the queue for one. `Err(None)` if the queue is full.
    fn take_or_queue(self: &Arc<Self>, limit: usize) -> Result<Permit, Option<oneshot::Receiver<Permit>>> {
        let mut state = self.0.lock();
        if state.take(limit) {
            return Ok(Permit(Some(self.clone())));
        }
        if state.waiting.len() >= limit {
            // Requests that were given up do not count towards the length of the queue.
            state.waiting.retain(|request| !request.is_closed());
        }
        if state.waiting.len() >= limit {
            return Err(None);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        Err(Some(receiver))
    }

    /// Passes a released permit to the request that has waited longest.
    fn release(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                // If the limit was lowered meanwhile, more permits than that may be in use.
                let next = if state.in_use > state.limit { None } else { state.waiting.pop_front() };
                match next {
                    Some(next) => next,
                    None => {
                        state.in_use -= 1;
                        return;
                    }
                }
            };
            match next.send(Permit(Some(self.clone()))) {
                Ok(()) => return,
                // The request was given up. The permit stays in use and goes to the next one in the queue.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
    }
}

impl Quota {
    /// Takes a permit if one is free and the queue is empty.
    pub fn try_acquire(&self) -> Option<Permit> {
        let taken = self.limiter.0.lock().take(self.limit);
        taken.then(|| Permit(Some(self.limiter.clone())))
    }

    /// Takes a permit, and waits for one if necessary.
    pub async fn acquire(&self) -> Result<Permit, NoPermit> {
        match self.limiter.take_or_queue(self.limit) {
            Ok(permit) => Ok(permit),
            Err(None) => Err(NoPermit),
            Err(Some(receiver)) => match tokio::time::timeout(self.max_wait, receiver).await {
                Ok(Ok(permit)) => Ok(permit),
                Ok(Err(_)) | Err(_) => Err(NoPermit),
            },
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.take() {
            limiter.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn quota(limit: usize) -> Quota {
        Quota { limiter: Arc::default(), limit, max_wait: Duration::from_secs(2) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_request_that_waited_longest_gets_the_next_permit() {
        let quota = quota(2);
        let (first, second) = (quota.acquire().await.unwrap(), quota.acquire().await.unwrap());
        let (mut third, mut fourth) = (Box::pin(quota.acquire()), Box::pin(quota.acquire()));
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(first);
        assert!((&mut fourth).now_or_never().is_none());
        let third = (&mut third).now_or_never().unwrap().unwrap();
        drop((second, third));
        drop(fourth.await.unwrap());
        assert!(quota.limiter.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_no_longer_than_its_maximum() {
        let quota = quota(1);
        let in_use = quota.acquire().await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(quota.acquire().await.unwrap_err(), NoPermit);
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        drop(in_use);
        assert!(quota.limiter.is_idle(), "a request that timed out leaves nothing behind");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_no_longer_than_the_limit() {
        let quota = quota(1);
        let _in_use = quota.acquire().await.unwrap();
        let mut waiting = Box::pin(quota.acquire());
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(quota.acquire().now_or_never().unwrap().unwrap_err(), NoPermit);
        drop(waiting);
        assert!(
            quota.acquire().now_or_never().is_none(),
            "a request that was given up frees its position in the queue"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_given_up_is_passed_over() {
        let quota = quota(3);
        let in_use: Vec<_> =
            [quota.try_acquire(), quota.try_acquire(), quota.try_acquire()].into_iter().collect();
        let (mut gone, mut stays) = (Box::pin(quota.acquire()), Box::pin(quota.acquire()));
        assert!((&mut gone).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(gone);
        drop(in_use);
        drop(stays.await.unwrap());
        assert!(quota.limiter.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_was_granted_too_late_is_not_lost() {
        let quota = quota(1);
        let in_use = quota.acquire().await.unwrap();
        let mut waiting = Box::pin(quota.acquire());
        assert!((&mut waiting).now_or_never().is_none());
        drop(in_use);
        // The permit was sent, and the request is given up before it receives it.
        drop(waiting);
        assert!(quota.try_acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lower_limit_holds_as_soon_as_enough_permits_are_released() {
        let mut quota = quota(2);
        let (first, second) = (quota.acquire().await.unwrap(), quota.acquire().await.unwrap());
        quota.limit = 1;
        assert!(quota.try_acquire().is_none());
        drop(first);
        assert!(quota.try_acquire().is_none());
        drop(second);
        assert!(quota.try_acquire().is_some());
    }
}
