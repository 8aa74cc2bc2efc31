use std::sync::Arc;

use attache_core::{
    Append, AppendError, Created, Idempotency, NewTask, Owner, Seq, Store, TailItem, TaskEvent, View,
};
use attache_protocol::{Message, Part, Task, TaskState};
use futures::{FutureExt, StreamExt};

use super::{Place, all, at, chunk, created, ended, live, new_task, owner, status};
use crate::sqlite::SqliteOptions;

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let mut place = Place::new();
    place.put(ended("done", 5)).await;
    let (seq, _) = place.put(live("open")).await;
    let working = vec![status("open", TaskState::Working, 7), chunk("open", "so far")];
    let seq = place.add("open", seq, working).await.unwrap().seq;
    let before: Vec<Task> = vec![
        place.get("done").await.unwrap().task().into_owned(),
        place.get("open").await.unwrap().task().into_owned(),
    ];
    place.reopen();
    for task in before {
        let id = task.id.to_string();
        assert_eq!(place.get(&id).await.unwrap().task().into_owned(), task);
    }
    assert_eq!(place.get("open").await.unwrap().seq, seq);
    assert_eq!(place.ids(all()).await, ["open", "done"]);
    assert_eq!(place.list(&owner(), &all()).await.unwrap().total, 2);
    for after in 0..3 {
        let places: Vec<u64> = place.events("done", after, 9).await.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(places, (after + 1..=3).collect::<Vec<_>>());
        let rest = 3 - after as usize;
        assert_eq!(place.events("open", after, rest).await.len(), rest);
    }
    assert!(place.load(&Owner::default(), &"done".into()).await.unwrap().is_none());
    // Nobody has the right to run the turn that was under way.
    let abandoned = place.abandoned(at(1), 10).await.unwrap();
    assert_eq!(abandoned.len(), 1);
    assert_eq!((abandoned[0].task.seq, &abandoned[0].owner), (seq, &owner()));
    assert!(place.claim(&"open".into(), at(1), at(2)).await.unwrap().is_some());
    assert!(place.abandoned(at(1), 10).await.unwrap().is_empty());
    place.add("open", seq, vec![status("open", TaskState::Completed, 9)]).await.unwrap();
    place.reopen();
    assert_eq!(place.get("open").await.unwrap().state, TaskState::Completed);
    assert_eq!(place.events("open", 2, 9).await.len(), 2);
}

#[tokio::test]
async fn every_kind_of_content_comes_back_as_it_was() {
    let mut place = Place::new();
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
    place.put(new_task(events.clone())).await;
    let before = place.get("t").await.unwrap();
    place.reopen();
    assert_eq!(place.get("t").await.unwrap().task(), before.task());
    let read: Vec<_> = place.events("t", 0, 4).await.iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(read, events);
}

#[tokio::test]
async fn a_key_is_known_after_a_restart() {
    let mut place = Place::new();
    let idempotency = |n| Some(Idempotency { key: "k".to_owned(), fingerprint: [n; 32] });
    place.put(NewTask { idempotency: idempotency(1), ..ended("first", 0) }).await;
    place.reopen();
    let again = place.create(NewTask { idempotency: idempotency(2), ..ended("second", 0) }).await.unwrap();
    let Created::KeyUsed(known) = again else { panic!("kept twice") };
    assert_eq!((known.task.as_str(), known.fingerprint), ("first", [1; 32]));
    assert!(place.get("second").await.is_none());
    assert!(place.find_key(&Owner::default(), "k").await.unwrap().is_none());
    let (after, _) = place.put(live("third")).await;
    let key = Idempotency { key: "k".to_owned(), fingerprint: [3; 32] };
    let append = Append {
        after,
        lease: None,
        idempotency: Some((owner(), key)),
        push: None,
        events: vec![],
        now: at(0),
    };
    assert!(matches!(place.append(&"third".into(), append).await, Err(AppendError::KeyUsed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_with_the_same_key_is_kept() {
    let place = Arc::new(Place::new());
    let sends: Vec<_> = (0..50u8)
        .map(|i| {
            let place = place.clone();
            tokio::spawn(async move {
                let idempotency = Some(Idempotency { key: "k".to_owned(), fingerprint: [i; 32] });
                let new = NewTask { idempotency, ..ended(&format!("t{i}"), 0) };
                matches!(place.create(new).await.unwrap(), Created::New { .. })
            })
        })
        .collect();
    let mut kept = 0;
    for send in sends {
        kept += usize::from(send.await.unwrap());
    }
    assert_eq!(kept, 1);
    assert_eq!(place.list(&owner(), &all()).await.unwrap().total, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_every_event_once_however_far_behind_it_is() {
    let place = Arc::new(Place::new());
    let (mut seq, _) = place.put(live("t")).await;
    let follow = |after: u64| {
        let mut tail = place.tail(&"t".into(), Seq(after));
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
    // More than is kept at hand, so that some is read from the file.
    for i in 0..300 {
        let events = (0..10).map(|_| chunk("t", "x".repeat(100))).collect();
        seq = place.add("t", seq, events).await.unwrap().seq;
        if i % 60 == 0 {
            readers.extend([(0, follow(0)), (seq.0, follow(seq.0))]);
        }
    }
    seq = place.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap().seq;
    readers.push((5, follow(5)));
    for (after, reader) in readers {
        assert_eq!(reader.await.unwrap(), (after + 1..=seq.0).collect::<Vec<_>>());
    }
    assert_eq!(place.inner.live.len(), 0);
}

#[tokio::test]
async fn opening_a_long_task_is_not_a_replay_of_its_life() {
    let mut place = Place::new();
    let (mut seq, _) = place.put(live("t")).await;
    for _ in 0..200 {
        seq = place.add("t", seq, vec![chunk("t", "x".repeat(4000))]).await.unwrap().seq;
    }
    let before = place.get("t").await.unwrap();
    let (snapshot, size): (i64, i64) = place
        .inner
        .readers
        .get()
        .query_row("SELECT seq, length(body) FROM snapshots", (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(snapshot > 50 && size > 200_000, "{snapshot} {size}");
    place.reopen();
    let after = place.get("t").await.unwrap();
    assert_eq!((after.seq, after.task()), (before.seq, before.task()));
    place.add("t", seq, vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    let left: i64 =
        place.inner.readers.get().query_row("SELECT count(*) FROM snapshots", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn tasks_that_wait_do_not_stay_in_memory() {
    let mut place = Place::new();
    place.reopen_with(SqliteOptions { live_tasks: 64, ..place.options() });
    let mut last = None;
    for i in 0..1000 {
        let id = format!("t{i}");
        let (seq, lease) = place.put(live(&id)).await;
        place.release(&id.as_str().into(), lease).await.unwrap();
        last = Some((id, seq));
    }
    assert!(place.inner.live.len() < 200, "{}", place.inner.live.len());
    let (id, seq) = last.unwrap();
    place.add("t0", seq, vec![chunk("t0", "x")]).await.unwrap();
    assert_eq!(place.get("t0").await.unwrap().seq, seq.plus(1));
    assert_eq!(place.get(&id).await.unwrap().seq, seq);
    assert_eq!(place.list(&owner(), &all()).await.unwrap().tasks.len(), 100);
}

#[tokio::test]
async fn what_is_not_shown_is_not_read() {
    let place = Place::new();
    place.put(ended("t", 0)).await;
    place.put(live("u")).await;
    for (history, artifacts) in [(None, true), (Some(0), false), (Some(1), true), (Some(0), true)] {
        let view = View { history, artifacts, generation: false };
        let query = attache_core::ListQuery { view, ..all() };
        for task in place.list(&owner(), &query).await.unwrap().tasks {
            let id = task.task().id.to_string();
            let (mut listed, mut read) = (Vec::new(), Vec::new());
            task.write(view, &mut listed);
            place.get(&id).await.unwrap().write(view, &mut read);
            assert_eq!(String::from_utf8(listed).unwrap(), String::from_utf8(read).unwrap());
        }
    }
}

#[tokio::test]
async fn an_id_is_used_once() {
    let place = Place::new();
    place.put(ended("t", 0)).await;
    place.put(live("u")).await;
    for (id, other) in [("t", live("t")), ("u", ended("u", 1)), ("u", live("u"))] {
        assert!(matches!(place.create(other).await.unwrap(), Created::Taken), "{id}");
    }
    assert_eq!(place.list(&owner(), &all()).await.unwrap().total, 2);
    place.add("u", Seq(1), vec![chunk("u", "x")]).await.unwrap();
}

#[tokio::test]
async fn an_answer_does_not_wait_for_others_who_do_not_listen() {
    let place = Place::new();
    let mut idle: Vec<_> = (0..5).map(|i| place.create(ended(&format!("t{i}"), 0))).collect();
    for create in &mut idle {
        assert!(create.now_or_never().is_none());
    }
    place.put(ended("t", 0)).await;
    place.put(live("u")).await;
    for create in idle {
        create.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_takes_nothing_along() {
    let place = Arc::new(Place::new());
    let sends: Vec<_> = (0..200)
        .map(|i| {
            let place = place.clone();
            tokio::spawn(async move { place.create(ended(&format!("t{i}"), 0)).await })
        })
        .collect();
    for (i, send) in sends.into_iter().enumerate() {
        if i % 3 == 0 {
            send.abort();
        } else {
            send.await.unwrap().unwrap();
        }
    }
    let (seq, _) = place.put(live("u")).await;
    let add = place.clone();
    let mut append = Box::pin(async move { add.add("u", seq, vec![chunk("u", "x")]).await });
    assert!((&mut append).now_or_never().is_none());
    drop(append);
    // It was on its way and is written, or was not and is not; either way the task goes on.
    let next = match place.add("u", seq, vec![chunk("u", "y")]).await {
        Ok(appended) => appended.seq,
        Err(AppendError::Conflict(seq)) => seq,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(next, seq.plus(1));
}
