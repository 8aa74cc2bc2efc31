//! Steps that requests take together.
//!
//! The code that a request needs is several times as large as what the processor keeps at hand, so that each request has most of it
//! fetched again. Of requests that came together, all can take one step before any takes the next: then a step's code is fetched
//! for the first of them alone. Whoever works on many says so with [`take`]; [`end`] is where one step ends and the next begins, and
//! nothing at all where nobody else waits to take it.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Nobody else waits to take the same step.
    Alone,
    /// Others will take the step that is being taken.
    Among,
    /// It is the others' turn.
    Ended,
}

thread_local! {
    static COMPANY: Cell<Company> = const { Cell::new(Company::Alone) };
}

/// Has `poll` take a step of something that others wait to take, too. Nothing if it came to the end of a step: then it has to be
/// polled again, after the others.
pub fn take<T>(poll: impl FnOnce() -> Poll<T>) -> Option<Poll<T>> {
    let _before = enter(Company::Among);
    let polled = poll();
    (polled.is_ready() || !ended()).then_some(polled)
}

/// Ends a step: comes back when the others have taken it as well.
pub async fn end() {
    let mut waited = false;
    poll_fn(|cx| {
        if COMPANY.get() == Company::Alone || std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        COMPANY.set(Company::Ended);
        // For whatever else may be between here and whoever takes the steps.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Has `work` go as far as it goes without waiting for anything but the others.
pub(crate) async fn without_waiting<T>(work: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    poll_fn(|cx| match Pin::new(&mut *work).poll(cx) {
        Poll::Pending if ended() => Poll::Pending,
        polled @ (Poll::Ready(_) | Poll::Pending) => Poll::Ready(polled),
    })
    .await
}

/// Whether what has just been polled came to the end of a step.
fn ended() -> bool {
    COMPANY.get() == Company::Ended
}

/// Does something in one step, whatever it consists of.
pub(crate) fn alone<T>(work: impl FnOnce() -> T) -> T {
    let _before = enter(Company::Alone);
    work()
}

/// Puts things back as they were.
struct Before(Company);

impl Drop for Before {
    fn drop(&mut self) {
        COMPANY.set(self.0);
    }
}

fn enter(company: Company) -> Before {
    Before(COMPANY.replace(company))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    async fn two_steps() -> &'static str {
        end().await;
        "done"
    }

    #[test]
    fn a_step_ends_where_others_wait_to_take_it() {
        let mut work = pin!(two_steps());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(take(|| work.as_mut().poll(&mut cx)), None);
        assert_eq!(take(|| work.as_mut().poll(&mut cx)), Some(Poll::Ready("done")));
    }

    #[test]
    fn nothing_waits_that_is_worked_on_alone() {
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(pin!(two_steps()).poll(&mut cx), Poll::Ready("done"));
        let within = take(|| alone(|| pin!(two_steps()).poll(&mut cx)));
        assert_eq!(within, Some(Poll::Ready("done")));
    }

    #[test]
    fn what_goes_on_without_waiting_goes_through_all_steps() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut work = Box::pin(async {
            end().await;
            std::future::pending::<()>().await;
        });
        let mut going_on = pin!(without_waiting(&mut work));
        assert_eq!(take(|| going_on.as_mut().poll(&mut cx)), None);
        assert_eq!(take(|| going_on.as_mut().poll(&mut cx)), Some(Poll::Ready(Poll::Pending)));
    }

    #[test]
    fn waiting_for_something_else_is_not_the_end_of_a_step() {
        let mut cx = Context::from_waker(Waker::noop());
        let waiting = take(|| pin!(std::future::pending::<()>()).poll(&mut cx));
        assert_eq!(waiting, Some(Poll::Pending));
    }
}
