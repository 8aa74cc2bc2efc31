//! Settling: the call that settles a task returns it, unchanged by later events.

use attache_core::{Seq, Snapshot};
use attache_protocol::TaskState;

use crate::support::{TestStore, assert_same, chunk, message, more, says, status, task};

#[track_caller]
fn settled(given: Option<&Snapshot>, state: TaskState, now: &Snapshot) {
    assert_eq!(given.is_some(), state.is_settled(), "{state}");
    if let Some(given) = given {
        assert_same(given, now);
    }
}

pub async fn a_task_that_is_created_settled_is_returned(store: TestStore) {
    for state in TaskState::ALL.iter().copied() {
        for (followed, events) in [(true, 0), (false, 0), (true, 3), (false, 3)] {
            let name = format!("{state} {followed} {events}");
            let mut draft = task(&name);
            draft.0.followed = followed;
            let draft = match events {
                0 => draft.state(state),
                _ => draft
                    .then(chunk(&name, "a", "x"))
                    .then(says(&name, TaskState::Working, 1, Some("on it")))
                    .then(says(&name, state, 2, Some("so"))),
            };
            let made = store.make(draft).await;
            assert_eq!(made.seq, Seq(1 + events));
            settled(made.settled.as_ref(), state, &store.get(&name).await);
        }
    }
}

pub async fn an_append_that_settles_a_task_returns_it(store: TestStore) {
    for state in TaskState::ALL.iter().copied() {
        let name = state.as_str();
        let made = store.make(task(name)).await;
        let events =
            [says(name, TaskState::InputRequired, 1, Some("?")), message("!"), chunk(name, "a", "x")];
        let first = store.add(name, more(1, events).by(made.lease)).await.unwrap();
        settled(first.settled.as_ref(), TaskState::InputRequired, &store.get(name).await);
        let events = [chunk(name, "a", "y"), says(name, state, 2, Some("so"))];
        let second = store.add(name, more(4, events).by(made.lease)).await.unwrap();
        settled(second.settled.as_ref(), state, &store.get(name).await);
    }
}

pub async fn a_returned_task_does_not_change_later(store: TestStore) {
    store.make(task("t")).await;
    let asked = store.add("t", more(1, [says("t", TaskState::InputRequired, 1, Some("?"))])).await.unwrap();
    let asked = asked.settled.unwrap();
    let before = asked.task().into_owned();
    store.add("t", more(2, [status("t", TaskState::Working, 2), message("!")])).await.unwrap();
    store.add("t", more(4, [status("t", TaskState::Completed, 3)])).await.unwrap();
    assert_eq!(
        (asked.seq, asked.state, asked.task().into_owned()),
        (Seq(2), TaskState::InputRequired, before)
    );
}
