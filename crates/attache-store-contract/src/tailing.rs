//! Tails: every event once and in order, at the pace of the reader.

use attache_core::{Retention, Seq, TailItem, fold};
use attache_protocol::TaskState;
use futures::{StreamExt, poll};

use crate::support::{
    TestStore, assert_same, at, chunk, entries, id, message, more, rest, seqs, soon, status, task,
};

async fn end(store: &TestStore, name: &str) {
    store.add_anywhere(name, vec![status(name, TaskState::Completed, 9)], 0).await;
}

pub async fn a_tail_after_a_snapshot_has_exactly_the_missing_events(store: TestStore) {
    store.make(task("t")).await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..150 {
                let events = (0..=number % 3).map(|part| match part {
                    2 => message(&number.to_string()),
                    _ => chunk("t", "a", &format!("{number}.{part} ")),
                });
                store.add_anywhere("t", events.collect(), 0).await;
                tokio::task::yield_now().await;
            }
            end(&store, "t").await;
        })
    };
    let readers = (0..12).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..number * 7 {
                tokio::task::yield_now().await;
            }
            let snapshot = store.get("t").await;
            let (mut folded, mut last) = (snapshot.task().into_owned(), snapshot.seq);
            for entry in store.read_on("t", last.0).await {
                assert_eq!(entry.seq, last.plus(1));
                last = entry.seq;
                fold(&mut folded, entry.event.clone()).unwrap();
            }
            (folded, last)
        })
    });
    let readers: Vec<_> = readers.collect();
    soon(writer).await.unwrap();
    let after = store.get("t").await;
    for reader in readers {
        let (folded, last) = soon(reader).await.unwrap();
        assert_eq!(last, after.seq);
        assert_eq!(folded, *after.task());
    }
}

pub async fn all_readers_of_a_task_get_the_same_events(store: TestStore) {
    store.make(task("t")).await;
    let readers: Vec<_> = (0..8).map(|_| tokio::spawn(rest(store.tail(&id("t"), Seq::START)))).collect();
    for number in 0..60 {
        store.add_anywhere("t", vec![chunk("t", "a", &number.to_string())], 0).await;
    }
    end(&store, "t").await;
    let expected: Vec<_> = store.read_on("t", 0).await.iter().map(|entry| entry.event.clone()).collect();
    for reader in readers {
        let read = soon(reader).await.unwrap();
        assert_eq!(seqs(&read), (1..=62).collect::<Vec<_>>());
        assert!(read.iter().map(|entry| &entry.event).eq(&expected));
    }
}

pub async fn a_long_log_is_read_from_its_beginning(store: TestStore) {
    let made = store.make(task("t")).await;
    for batch in 0..30 {
        let events = (0..100).map(|number| chunk("t", "a", &format!("{batch}.{number} ")));
        store.add("t", more(1 + batch * 100, events).by(made.lease)).await.unwrap();
    }
    assert_eq!(seqs(&store.read("t", 0, 3_001).await), (1..=3_001).collect::<Vec<_>>());
    assert_eq!(seqs(&store.read("t", 2_500, 501).await), (2_501..=3_001).collect::<Vec<_>>());
    end(&store, "t").await;
    assert_eq!(seqs(&store.read_on("t", 0).await), (1..=3_002).collect::<Vec<_>>());
    assert_eq!(store.get("t").await.task().artifacts[0].parts.len(), 3_000);
}

pub async fn a_slow_reader_misses_no_event(store: TestStore) {
    store.make(task("t")).await;
    let mut tail = store.tail(&id("t"), Seq::START);
    let mut read = entries(soon(tail.next()).await.unwrap());
    for batch in 0..50 {
        let events = (0..20).map(|number| chunk("t", "a", &format!("{batch}.{number}")));
        store.add("t", more(1 + batch * 20, events)).await.unwrap();
    }
    read.extend(entries(soon(tail.next()).await.unwrap()));
    end(&store, "t").await;
    read.extend(rest(tail).await);
    assert_eq!(seqs(&read), (1..=1_002).collect::<Vec<_>>());
}

pub async fn a_tail_waits_for_the_next_event(store: TestStore) {
    store.make(task("t")).await;
    let mut tail = store.tail(&id("t"), Seq(1));
    for after in 1..20 {
        assert!(poll!(tail.next()).is_pending());
        store.add("t", more(after, [message("x")])).await.unwrap();
        assert_eq!(seqs(&entries(soon(tail.next()).await.unwrap())), [after + 1]);
    }
}

pub async fn events_before_the_first_poll_are_not_missed(store: TestStore) {
    store.make(task("t")).await;
    let tail = store.tail(&id("t"), Seq(1));
    store.add("t", more(1, [message("x"), message("y")])).await.unwrap();
    end(&store, "t").await;
    assert_eq!(seqs(&rest(tail).await), [2, 3, 4]);
}

pub async fn a_tail_ends_with_the_task(store: TestStore) {
    for state in TaskState::ALL.iter().filter(|state| state.is_terminal()) {
        let name = state.as_str();
        store.make(task(name)).await;
        let waiting = tokio::spawn(rest(store.tail(&id(name), Seq(1))));
        let asks = [status(name, TaskState::InputRequired, 1), status(name, TaskState::AuthRequired, 2)];
        store.add(name, more(1, asks)).await.unwrap();
        store.add(name, more(3, [chunk(name, "a", "x"), status(name, *state, 3)])).await.unwrap();
        assert_eq!(seqs(&soon(waiting).await.unwrap()), [2, 3, 4, 5]);
    }
}

pub async fn a_resumed_tail_has_exactly_the_rest(store: TestStore) {
    store.make(task("t")).await;
    store.add("t", more(1, [message("x"), chunk("t", "a", "y")])).await.unwrap();
    drop(store.tail(&id("t"), Seq(2)));
    end(&store, "t").await;
    store
        .make(task("short").then(chunk("short", "a", "x")).then(status("short", TaskState::Completed, 1)))
        .await;
    for (name, last) in [("t", 4), ("short", 3)] {
        for seen in 0..=last {
            let read = store.read_on(name, seen).await;
            assert_eq!(seqs(&read), (seen + 1..=last).collect::<Vec<_>>());
        }
    }
}

pub async fn a_late_tail_of_an_unfollowed_task_has_the_rest_or_the_task(store: TestStore) {
    store.make(task("t").unfollowed().then(message("x"))).await;
    end(&store, "t").await;
    for seen in 0..=3 {
        let items: Vec<_> = soon(store.tail(&id("t"), Seq(seen)).collect()).await;
        let mut items = items.into_iter().map(Result::unwrap);
        match items.next() {
            None => assert_eq!(seen, 3),
            Some(TailItem::Reset(snapshot)) => {
                assert_same(&snapshot, &store.get("t").await);
                assert!(items.next().is_none(), "an item came after the task");
            }
            Some(TailItem::Entries(first)) => {
                let more = items.flat_map(|item| entries(Ok(item)));
                let all: Vec<_> = first.into_iter().chain(more).collect();
                assert_eq!(seqs(&all), (seen + 1..=3).collect::<Vec<_>>());
            }
        }
    }
}

pub async fn a_missing_task_has_no_events(store: TestStore) {
    for after in [0, 7] {
        assert!(soon(store.tail(&id("t"), Seq(after)).next()).await.is_none());
    }
}

pub async fn a_dropped_tail_does_not_affect_others(store: TestStore) {
    store.make(task("t")).await;
    let stays = tokio::spawn(rest(store.tail(&id("t"), Seq::START)));
    for after in 1..40 {
        let mut leaves = store.tail(&id("t"), Seq(after));
        assert!(poll!(leaves.next()).is_pending());
        let never_looks = store.tail(&id("t"), Seq::START);
        store.add("t", more(after, [message("x")])).await.unwrap();
        drop((leaves, never_looks));
    }
    end(&store, "t").await;
    assert_eq!(seqs(&soon(stays).await.unwrap()), (1..=41).collect::<Vec<_>>());
}

pub async fn a_tail_of_a_pruned_task_ends(store: TestStore) {
    store.make(task("t")).await;
    end(&store, "t").await;
    let tail = store.tail(&id("t"), Seq(1));
    let retention = Retention::default().max_tasks(0);
    assert_eq!(store.prune(&retention, at(10), 9).await.unwrap(), 1);
    // The tail can still return the rest of the events, or nothing.
    let items: Vec<_> = soon(tail.collect()).await;
    let read: Vec<_> = items.into_iter().flat_map(entries).collect();
    assert!(read.is_empty() || seqs(&read) == [2]);
    assert!(soon(store.tail(&id("t"), Seq(1)).next()).await.is_none());
}
