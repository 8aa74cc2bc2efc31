//! Appending: one order, no gaps, all or nothing, and only where the log ends.

use std::collections::BTreeSet;

use attache_core::{AppendError, Created, ListQuery, Owner, PushEvents, Seq};
use attache_protocol::TaskState;

use crate::support::{Kept, assert_same, chunk, id, message, more, named, seqs, status, task, webhook};

promises!(
    events_come_back_in_the_order_in_which_they_were_appended,
    a_batch_with_anything_after_the_end_is_refused_whole,
    a_batch_that_creates_its_task_again_is_refused_whole,
    a_task_whose_log_cannot_be_leaves_nothing_behind,
    a_log_begins_with_the_task,
    an_id_that_is_taken_is_refused_and_the_first_task_stays,
    ids_are_told_apart_to_the_letter,
    any_text_can_be_an_id,
    an_append_at_the_wrong_place_is_told_the_right_one,
    nothing_is_appended_to_a_task_that_has_ended,
    many_who_append_and_try_again_all_get_in_exactly_once,
    logs_grow_independently,
    refusals_come_in_a_fixed_order,
);

async fn events_come_back_in_the_order_in_which_they_were_appended(store: Kept) {
    let made = store.make(task("t").then(chunk("t", "a", "0"))).await;
    assert_eq!(made.seq, Seq(2));
    let (mut after, mut expected) = (2, Vec::new());
    for size in [1, 3, 1, 17, 2] {
        let batch: Vec<_> = (0..size)
            .map(|number| match number % 3 {
                0 => chunk("t", "a", &format!("{after}-{number}")),
                1 => message(&format!("{after}-{number}")),
                _ => status("t", TaskState::Working, number),
            })
            .collect();
        let appended = store.add("t", more(after, batch.clone()).by(made.lease)).await.unwrap();
        after += batch.len() as u64;
        assert_eq!(appended.seq, Seq(after));
        expected.extend(batch);
    }
    let read = store.read("t", 0, 26).await;
    assert_eq!(seqs(&read), (1..=26).collect::<Vec<_>>());
    let events: Vec<_> = read[2..].iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(events, expected);
    assert_eq!(store.get("t").await.seq, Seq(26));
}

async fn a_batch_with_anything_after_the_end_is_refused_whole(store: Kept) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::Everything))).await;
    store.deliver_all("one", 0).await;
    let before = store.get("t").await;
    for late in [chunk("t", "a", "late"), message("late"), status("t", TaskState::Failed, 2)] {
        let batch = [chunk("t", "a", "x"), status("t", TaskState::Completed, 1), late];
        let refused = store.add("t", more(1, batch)).await.unwrap_err();
        assert!(matches!(refused, AppendError::Ended(TaskState::Completed)), "{refused}");
        assert_same(&store.get("t").await, &before);
    }
    store.add("t", more(1, [chunk("t", "a", "next")])).await.unwrap();
    let read = store.read("t", 1, 1).await;
    assert_eq!(read[0].event, chunk("t", "a", "next"));
    assert_eq!(store.take_seqs("one", 0).await, [2], "something that did not happen is told");
}

async fn a_batch_that_creates_its_task_again_is_refused_whole(store: Kept) {
    store.make(task("t")).await;
    let before = store.get("t").await;
    let again = task("t").0.events.remove(0);
    assert!(store.add("t", more(1, [chunk("t", "a", "x"), again])).await.is_err());
    assert_same(&store.get("t").await, &before);
    assert_eq!(store.add("t", more(1, [chunk("t", "a", "y")])).await.unwrap().seq, Seq(2));
    assert_eq!(store.get("t").await.task().artifact("a").unwrap().text(), "y");
}

async fn a_task_whose_log_cannot_be_leaves_nothing_behind(store: Kept) {
    let ended = |name| task(name).key("k", 1).then(status(name, TaskState::Completed, 1));
    let draft =
        ended("t").then(chunk("t", "a", "late")).webhook(webhook("t", "w", "one", PushEvents::States));
    assert!(store.create(draft.0).await.is_err());
    assert!(store.find("t").await.is_none());
    assert_eq!(store.page(&Owner::default(), &ListQuery { limit: 9, ..ListQuery::default() }).await.2, 0);
    assert!(store.hooks("t").await.is_empty());
    assert!(store.take("one", 0).await.is_empty());
    assert!(store.find_key(&Owner::default(), "k").await.unwrap().is_none());
    store.make(ended("t")).await;
}

async fn a_log_begins_with_the_task(store: Kept) {
    for events in [vec![], vec![status("t", TaskState::Working, 0)]] {
        let mut draft = task("t");
        draft.0.events = events;
        assert!(store.create(draft.0).await.is_err());
    }
    assert!(store.find("t").await.is_none());
}

async fn an_id_that_is_taken_is_refused_and_the_first_task_stays(store: Kept) {
    let made = store.make(task("t")).await;
    store.add("t", more(1, [chunk("t", "a", "x")])).await.unwrap();
    let before = store.get("t").await;
    for owner in [Owner::default(), named("ann")] {
        let created = store.create(task("t").of(&owner).key("k", 1).0).await.unwrap();
        assert!(matches!(created, Created::Taken));
        assert!(store.find_key(&owner, "k").await.unwrap().is_none());
    }
    assert_same(&store.get("t").await, &before);
    assert!(store.load(&named("ann"), &id("t")).await.unwrap().is_none());
    let query = ListQuery { limit: 9, ..ListQuery::default() };
    let (tasks, next, total) = store.page(&Owner::default(), &query).await;
    assert_eq!((tasks.len(), next, total), (1, None, 1));
    store.add("t", more(2, [chunk("t", "a", "y")]).by(made.lease)).await.unwrap();
}

async fn ids_are_told_apart_to_the_letter(store: Kept) {
    let names = [
        "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        "0190A1B2-C3D4-7E5F-8A9B-0C1D2E3F4A5B",
        "0190a1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "{0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b}",
        "task",
        "Task",
        "task ",
    ];
    for name in names {
        store.make(task(name).in_context(name)).await;
        store.add(name, more(1, [chunk(name, "a", name)])).await.unwrap();
    }
    for name in names {
        let found = store.get(name).await;
        assert_eq!((found.task().id.as_str(), found.task().artifacts[0].text().as_str()), (name, name));
        let query = ListQuery { context: Some(name.into()), limit: 9, ..ListQuery::default() };
        assert_eq!(store.page(&Owner::default(), &query).await.2, 1, "{name}");
    }
}

async fn any_text_can_be_an_id(store: Kept) {
    for name in ["ü", "a\0b", "a", "'; --", "%", "_", "🦀", &"x".repeat(3_000), "1", "01", "1.0"] {
        store.make(task(name).in_context(name).webhook(webhook(name, name, "one", PushEvents::States))).await;
        assert_eq!(store.get(name).await.task().id.as_str(), name);
        assert_eq!(store.hooks(name).await, [webhook(name, name, "one", PushEvents::States)]);
        let query = ListQuery { context: Some(name.into()), limit: 9, ..ListQuery::default() };
        let listed = store.page(&Owner::default(), &query).await;
        assert_eq!((listed.0.len(), listed.2), (1, 1), "{name}");
        assert_eq!(listed.0[0].task().context_id.as_ref().unwrap().as_str(), name);
    }
}

async fn an_append_at_the_wrong_place_is_told_the_right_one(store: Kept) {
    store.make(task("t").then(message("more")).then(message("and more"))).await;
    for wrong in [0, 1, 2, 4, 99, u64::MAX / 2] {
        let refused = store.add("t", more(wrong, [message("x")])).await.unwrap_err();
        assert!(matches!(refused, AppendError::Conflict(Seq(3))), "{refused}");
    }
    assert_eq!(store.add("t", more(3, [message("x")])).await.unwrap().seq, Seq(4));
}

async fn nothing_is_appended_to_a_task_that_has_ended(store: Kept) {
    for state in TaskState::ALL.iter().filter(|state| state.is_terminal()) {
        let name = state.as_str();
        store.make(task(name)).await;
        store.add(name, more(1, [status(name, *state, 1)])).await.unwrap();
        let before = store.get(name).await;
        for late in [chunk(name, "a", "x"), message("x"), status(name, TaskState::Working, 2)] {
            let refused = store.add(name, more(2, [late])).await.unwrap_err();
            assert!(matches!(refused, AppendError::Ended(ended) if ended == *state), "{refused}");
        }
        assert_same(&store.get(name).await, &before);
    }
}

async fn many_who_append_and_try_again_all_get_in_exactly_once(store: Kept) {
    store.make(task("t")).await;
    let appenders = (0..24).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let events = vec![message(&format!("{number}a")), message(&format!("{number}b"))];
            store.add_anywhere("t", events, 0).await
        })
    });
    let mut ends = BTreeSet::new();
    for appender in appenders.collect::<Vec<_>>() {
        ends.insert(appender.await.unwrap());
    }
    assert_eq!(ends, (0..24).map(|number| 3 + 2 * number).collect());
    let said: Vec<_> = store.get("t").await.task().history.iter().skip(1).map(|said| said.text()).collect();
    for pair in said.chunks(2) {
        assert_eq!(pair[0].trim_end_matches('a'), pair[1].trim_end_matches('b'), "a batch was torn apart");
    }
    assert_eq!(said.iter().collect::<BTreeSet<_>>().len(), 48);
    assert_eq!(seqs(&store.read("t", 0, 49).await), (1..=49).collect::<Vec<_>>());
}

async fn logs_grow_independently(store: Kept) {
    let writers = (0..8).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let name = format!("t{number}");
            let made = store.make(task(&name)).await;
            for after in 1..=20 {
                let events = [chunk(&name, "a", &after.to_string())];
                store.add(&name, more(after, events).by(made.lease)).await.unwrap();
            }
            store.add(&name, more(21, [status(&name, TaskState::Completed, number)])).await.unwrap();
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let expected: String = (1..=20).map(|number| number.to_string()).collect();
    for number in 0..8 {
        let snapshot = store.get(&format!("t{number}")).await;
        assert_eq!((snapshot.seq, snapshot.state), (Seq(22), TaskState::Completed));
        assert_eq!(snapshot.task().artifact("a").unwrap().text(), expected);
    }
}

async fn refusals_come_in_a_fixed_order(store: Kept) {
    let me = Owner::default();
    let known = store.make(task("known").key("used", 7)).await;
    let wrong = store.make(task("other")).await.lease;
    store.make(task("ended").then(status("ended", TaskState::Canceled, 1))).await;

    // A task that is not there has no log, no lease and no use for keys.
    let refused = store.add("missing", more(9, []).by(wrong).key(&me, "used", 7)).await.unwrap_err();
    assert!(matches!(refused, AppendError::NotFound), "{refused}");
    // A repeat is a repeat, whatever has become of the task since.
    for name in ["known", "ended"] {
        let refused = store.add(name, more(9, []).by(wrong).key(&me, "used", 7)).await.unwrap_err();
        assert!(matches!(&refused, AppendError::KeyUsed(known) if known.task == id("known")), "{refused}");
    }
    let refused = store.add("ended", more(9, [message("x")]).by(wrong)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Ended(TaskState::Canceled)), "{refused}");
    let refused = store.add("known", more(9, [message("x")]).by(wrong)).await.unwrap_err();
    assert!(matches!(refused, AppendError::LeaseLost), "{refused}");
    let ends_early = [status("known", TaskState::Failed, 1), message("x")];
    let refused = store.add("known", more(9, ends_early).by(known.lease)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Conflict(Seq(1))), "{refused}");
    assert_eq!(store.get("known").await.seq, Seq(1));
}
