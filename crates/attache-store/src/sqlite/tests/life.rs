use std::sync::Arc;

use attache_core::{
    Append, AppendError, Created, Idempotency, NewTask, Owner, Seq, Store, TailItem, TaskEvent, View,
};
use attache_protocol::{Message, Part, Task, TaskState};
use futures::{FutureExt, StreamExt};

use super::{StoreFolder, all, at, chunk, created, ended, live, new_task, owner, status};
use crate::sqlite::SqliteOptions;

#[tokio::test]
async fn everything_is_unchanged_after_a_restart() {
    let mut folder = StoreFolder::new();
    folder.put(ended("done", 5)).await;
    let (seq, _) = folder.put(live("open")).await;
    let working = vec![status("open", TaskState::Working, 7), chunk("open", "so far")];
    let seq = folder.add("open", seq, working).await.unwrap().seq;
    let before: Vec<Task> = vec![
        folder.get("done").await.unwrap().task().into_owned(),
        folder.get("open").await.unwrap().task().into_owned(),
    ];
    folder.reopen();
    for task in before {
        let id = task.id.to_string();
        assert_eq!(folder.get(&id).await.unwrap().task().into_owned(), task);
    }
    assert_eq!(folder.get("open").await.unwrap().seq, seq);
    assert_eq!(folder.ids(all()).await, ["open", "done"]);
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().total, 2);
    for after in 0..3 {
        let places: Vec<u64> =
            folder.events("done", after, 9).await.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(places, (after + 1..=3).collect::<Vec<_>>());
        let rest = 3 - after as usize;
        assert_eq!(folder.events("open", after, rest).await.len(), rest);
    }
    assert!(folder.load(&Owner::default(), &"done".into()).await.unwrap().is_none());
    // The lease of the running turn ended with the process.
    let abandoned = folder.abandoned(None, at(1), 10).await.unwrap();
    assert_eq!(abandoned.len(), 1);
    assert_eq!((abandoned[0].task.seq, &abandoned[0].owner), (seq, &owner()));
    assert!(folder.claim(&"open".into(), at(1), at(2)).await.unwrap().is_some());
    assert!(folder.abandoned(None, at(1), 10).await.unwrap().is_empty());
    folder.add("open", seq, vec![status("open", TaskState::Completed, 9)]).await.unwrap();
    folder.reopen();
    assert_eq!(folder.get("open").await.unwrap().state, TaskState::Completed);
    assert_eq!(folder.events("open", 2, 9).await.len(), 2);
}

#[tokio::test]
async fn every_kind_of_content_is_read_as_written() {
    let mut folder = StoreFolder::new();
    let mut message = Message::user("m", "\u{2028} \"quoted\" \n täxt \u{0} 🦀");
    message.parts.push(Part::raw(vec![0, 159, 146, 150]));
    message.parts.push(Part::data(&serde_json::json!({ "a": [1, 2.5, null], "b": { "c": "d" } })).unwrap());
    let first = created("t", 0);
    let TaskEvent::Created(task) = &first else { panic!("not created") };
    let task = Task { history: vec![message.clone()], ..(**task).clone() };
    let events = vec![
        TaskEvent::Created(Arc::new(task)),
        TaskEvent::Message(Arc::new(message)),
        chunk("t", "x"),
        status("t", TaskState::InputRequired, 1),
    ];
    folder.put(new_task(events.clone())).await;
    let before = folder.get("t").await.unwrap();
    folder.reopen();
    assert_eq!(folder.get("t").await.unwrap().task(), before.task());
    let read: Vec<_> = folder.events("t", 0, 4).await.iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(read, events);
}

#[tokio::test]
async fn a_used_key_is_found_after_a_restart() {
    let mut folder = StoreFolder::new();
    let idempotency = |n| Some(Idempotency { key: "k".to_owned(), fingerprint: [n; 32] });
    folder.put(NewTask { idempotency: idempotency(1), ..ended("first", 0) }).await;
    folder.reopen();
    let again = folder.create(NewTask { idempotency: idempotency(2), ..ended("second", 0) }).await.unwrap();
    let Created::KeyUsed(known) = again else { panic!("kept twice") };
    assert_eq!((known.task.as_str(), known.fingerprint), ("first", [1; 32]));
    assert!(folder.get("second").await.is_none());
    assert!(folder.find_key(&Owner::default(), "k").await.unwrap().is_none());
    let (after, _) = folder.put(live("third")).await;
    let key = Idempotency { key: "k".to_owned(), fingerprint: [3; 32] };
    let append = Append {
        after,
        lease: None,
        idempotency: Some((owner(), key)),
        push: None,
        events: vec![],
        now: at(0),
    };
    assert!(matches!(folder.append(&"third".into(), append).await, Err(AppendError::KeyUsed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_creates_with_the_same_key_succeeds() {
    let folder = Arc::new(StoreFolder::new());
    let sends: Vec<_> = (0..50u8)
        .map(|i| {
            let folder = folder.clone();
            tokio::spawn(async move {
                let idempotency = Some(Idempotency { key: "k".to_owned(), fingerprint: [i; 32] });
                let new = NewTask { idempotency, ..ended(&format!("t{i}"), 0) };
                matches!(folder.create(new).await.unwrap(), Created::New { .. })
            })
        })
        .collect();
    let mut kept = 0;
    for send in sends {
        kept += usize::from(send.await.unwrap());
    }
    assert_eq!(kept, 1);
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().total, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_every_event_once_however_far_behind_it_is() {
    let folder = Arc::new(StoreFolder::new());
    let (mut seq, _) = folder.put(live("t")).await;
    let follow = |after: u64| {
        let mut tail = folder.tail(&"t".into(), Seq(after));
        tokio::spawn(async move {
            let mut places = Vec::new();
            while let Some(item) = tail.next().await {
                let TailItem::Entries(entries) = item.unwrap() else { panic!("reset") };
                places.extend(entries.iter().map(|entry| entry.seq.0));
                if places.len() % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            places
        })
    };
    let mut readers = vec![(0, follow(0)), (1, follow(1))];
    // More events than the window in memory, so that some are read from the file.
    for i in 0..300 {
        let events = (0..10).map(|_| chunk("t", "x".repeat(100))).collect();
        seq = folder.add("t", seq, events).await.unwrap().seq;
        if i % 60 == 0 {
            readers.extend([(0, follow(0)), (seq.0, follow(seq.0))]);
        }
    }
    seq = folder.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap().seq;
    readers.push((5, follow(5)));
    for (after, reader) in readers {
        assert_eq!(reader.await.unwrap(), (after + 1..=seq.0).collect::<Vec<_>>());
    }
    assert_eq!(folder.inner.live.len(), 0);
}

#[tokio::test]
async fn opening_a_long_task_starts_from_its_snapshot() {
    let mut folder = StoreFolder::new();
    let (mut seq, _) = folder.put(live("t")).await;
    for _ in 0..200 {
        seq = folder.add("t", seq, vec![chunk("t", "x".repeat(4000))]).await.unwrap().seq;
    }
    let before = folder.get("t").await.unwrap();
    let (snapshot, size): (i64, i64) = folder
        .inner
        .readers
        .get()
        .query_row("SELECT seq, length(body) FROM snapshots", (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(snapshot > 50 && size > 200_000, "{snapshot} {size}");
    folder.reopen();
    let after = folder.get("t").await.unwrap();
    assert_eq!((after.seq, after.task()), (before.seq, before.task()));
    folder.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    let left: i64 =
        folder.inner.readers.get().query_row("SELECT count(*) FROM snapshots", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn idle_tasks_are_evicted_from_memory() {
    let mut folder = StoreFolder::new();
    folder.reopen_with(SqliteOptions { live_tasks: 64, ..folder.options() });
    let mut last = None;
    for i in 0..1000 {
        let id = format!("t{i}");
        let (seq, lease) = folder.put(live(&id)).await;
        folder.release(&id.as_str().into(), lease).await.unwrap();
        last = Some((id, seq));
    }
    assert!(folder.inner.live.len() < 200, "{}", folder.inner.live.len());
    let (id, seq) = last.unwrap();
    folder.add("t0", seq, vec![chunk("t0", "x")]).await.unwrap();
    assert_eq!(folder.get("t0").await.unwrap().seq, seq.plus(1));
    assert_eq!(folder.get(&id).await.unwrap().seq, seq);
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().tasks.len(), 100);
}

#[tokio::test]
async fn columns_outside_the_view_are_not_read() {
    let folder = StoreFolder::new();
    folder.put(ended("t", 0)).await;
    folder.put(live("u")).await;
    for (history, artifacts) in [(None, true), (Some(0), false), (Some(1), true), (Some(0), true)] {
        let view = View { history, artifacts, generation: false };
        let query = attache_core::ListQuery { view, ..all() };
        for task in folder.list(&owner(), &query).await.unwrap().tasks {
            let id = task.task().id.to_string();
            let (mut listed, mut read) = (Vec::new(), Vec::new());
            task.write(view, &mut listed);
            folder.get(&id).await.unwrap().write(view, &mut read);
            assert_eq!(String::from_utf8(listed).unwrap(), String::from_utf8(read).unwrap());
        }
    }
}

#[tokio::test]
async fn an_id_is_used_once() {
    let folder = StoreFolder::new();
    folder.put(ended("t", 0)).await;
    folder.put(live("u")).await;
    for (id, other) in [("t", live("t")), ("u", ended("u", 1)), ("u", live("u"))] {
        assert!(matches!(folder.create(other).await.unwrap(), Created::Taken), "{id}");
    }
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().total, 2);
    folder.add("u", Seq(1), vec![chunk("u", "x")]).await.unwrap();
}

#[tokio::test]
async fn a_result_does_not_wait_for_callers_that_do_not_poll() {
    let folder = StoreFolder::new();
    let mut idle: Vec<_> = (0..5).map(|i| folder.create(ended(&format!("t{i}"), 0))).collect();
    for create in &mut idle {
        assert!(create.now_or_never().is_none());
    }
    folder.put(ended("t", 0)).await;
    folder.put(live("u")).await;
    for create in idle {
        create.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_does_not_affect_others() {
    let folder = Arc::new(StoreFolder::new());
    let sends: Vec<_> = (0..200)
        .map(|i| {
            let folder = folder.clone();
            tokio::spawn(async move { folder.create(ended(&format!("t{i}"), 0)).await })
        })
        .collect();
    for (i, send) in sends.into_iter().enumerate() {
        if i % 3 == 0 {
            send.abort();
        } else {
            send.await.unwrap().unwrap();
        }
    }
    let (seq, _) = folder.put(live("u")).await;
    let add = folder.clone();
    let mut append = Box::pin(async move { add.add("u", seq, vec![chunk("u", "x")]).await });
    assert!((&mut append).now_or_never().is_none());
    drop(append);
    // The append was written or not, depending on when its call was dropped. In both cases the task continues.
    let next = match folder.add("u", seq, vec![chunk("u", "y")]).await {
        Ok(appended) => appended.seq,
        Err(AppendError::Conflict(seq)) => seq,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(next, seq.plus(1));
}
