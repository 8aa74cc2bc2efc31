//! The documents in the state, and reading them back.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    AppendError, Created, Idempotency, ListQuery, Retention, Seq, Store, TailItem, TaskEvent, View,
};
use attache_protocol::{Content, Json, Message, Part, TaskState};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::support::{
    Link, LinkState, Setup, StoreExt, ann, anonymous, artifact, at, id, older, status, task,
};

#[tokio::test]
async fn acknowledged_changes_are_in_the_state() {
    let setup = Setup::new();
    let store = setup.store();
    store.created(task("t")).await;
    assert_eq!(setup.stored("t").await["status"]["state"], "working");
    store.add("t", Seq(1), vec![artifact("t", "a", "done")]).await.unwrap();
    assert_eq!(setup.stored("t").await["artifacts"][0]["parts"][0]["text"], "done");
    store.add("t", Seq(2), vec![status("t", TaskState::Completed, 2)]).await.unwrap();
    assert_eq!(setup.stored("t").await["status"]["state"], "completed");
}

#[tokio::test]
async fn documents_have_the_older_workers_format_and_one_more_member() {
    let setup = Setup::new();
    let store = setup.store();
    let mut new = task("t");
    new.owner = ann();
    store.created(new).await;
    let result = Part::data(&json!({ "price": 42 })).unwrap();
    let events = vec![artifact("t", "a", result), status("t", TaskState::Working, 1)];
    store.add("t", Seq(1), events).await.unwrap();
    let mut stored = setup.stored("t").await;
    assert!(stored["attache"]["writer"].is_string());
    stored["attache"]["writer"] = json!("(someone)");
    insta::assert_json_snapshot!(stored, @r#"
    {
      "artifacts": [
        {
          "artifactId": "a",
          "parts": [
            {
              "mediaType": "application/json",
              "text": "{\n  \"price\": 42\n}"
            }
          ]
        }
      ],
      "attache": {
        "artifacts": {
          "0": {
            "artifactId": "a",
            "parts": [
              {
                "data": {
                  "price": 42
                }
              }
            ]
          }
        },
        "generation": 3,
        "leasedUntil": "2026-01-01T20:40:30.000Z",
        "principal": "ann",
        "tenant": "acme",
        "writer": "(someone)"
      },
      "contextId": "c",
      "history": [
        {
          "messageId": "m-1",
          "parts": [
            {
              "text": "hi"
            }
          ],
          "role": "user"
        }
      ],
      "id": "t",
      "status": {
        "message": {
          "messageId": "s-1",
          "parts": [
            {
              "text": "at 1"
            }
          ],
          "role": "agent"
        },
        "state": "working",
        "timestamp": "2026-01-01T20:40:01.000Z"
      }
    }
    "#);
}

#[tokio::test]
async fn another_store_on_the_engine_reads_and_lists_the_task() {
    let setup = Setup::new();
    let store = setup.store();
    store.created(task("t")).await;
    store.add("t", Seq(1), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    let mine = store.found("t").await.task().into_owned();
    let other = setup.store();
    assert_eq!(other.listed(&anonymous()).await, ["t"]);
    assert_eq!(*other.found("t").await.task(), mine);
    assert_eq!(*setup.store().found("t").await.task(), mine);
}

#[tokio::test]
async fn a_task_keeps_its_owner_after_a_restart() {
    let setup = Setup::new();
    let mut new = task("t");
    new.owner = ann();
    setup.store().created(new).await;
    let store = setup.store();
    assert!(store.load(&anonymous(), &id("t")).await.unwrap().is_none());
    assert!(store.load(&ann(), &id("t")).await.unwrap().is_some());
    assert!(store.listed(&anonymous()).await.is_empty());
    assert_eq!(store.listed(&ann()).await, ["t"]);
}

#[tokio::test]
async fn a_result_is_the_same_data_after_a_restart() {
    let setup = Setup::new();
    let store = setup.store();
    store.created(task("t")).await;
    let text = r#"{"n":12345678901234567890,"m":-9007199254740993,"x":[1.10]}"#;
    let data = Part::new(Content::Data(Json::parse(text).unwrap()));
    let events = vec![artifact("t", "a", data), status("t", TaskState::Completed, 1)];
    store.add("t", Seq(1), events).await.unwrap();
    let found = setup.store().found("t").await.task().into_owned();
    assert_eq!(found.artifacts[0].parts[0].as_data().unwrap().as_str(), text);
    assert_eq!(found.artifacts[0].parts[0].media_type, None);
    let shown = setup.stored("t").await;
    let shown = shown["artifacts"][0]["parts"][0]["text"].as_str().unwrap();
    assert!(shown.contains("\"n\": 12345678901234567890"), "{shown}");
}

#[tokio::test]
async fn data_missing_in_the_older_format_survives_a_restart() {
    let setup = Setup::new();
    let mut new = task("t");
    let message = Message {
        extensions: vec!["urn:x".to_owned()],
        reference_task_ids: vec![id("other")],
        ..Message::user("m-2", "again")
    };
    new.events.push(TaskEvent::Message(Arc::new(message)));
    let store = setup.store();
    store.created(new).await;
    assert_eq!(*setup.store().found("t").await.task(), *store.found("t").await.task());
}

#[tokio::test]
async fn a_generation_survives_a_restart() {
    let setup = Setup::new();
    let store = setup.store();
    for name in ["live", "ended"] {
        store.created(task(name)).await;
        for seq in 1..6 {
            store.add(name, Seq(seq), vec![artifact(name, "a", "x")]).await.unwrap();
        }
    }
    store.add("ended", Seq(6), vec![status("ended", TaskState::Completed, 1)]).await.unwrap();
    let again = setup.store();
    assert_eq!(again.found("live").await.seq, Seq(6));
    assert_eq!(again.found("ended").await.seq, Seq(7));
    assert_eq!(*again.found("live").await.task(), *store.found("live").await.task());
    // A reader that knows a part of the log gets everything that is missing.
    let mut tail = again.tail(&id("live"), Seq(3));
    let Some(Ok(TailItem::Entries(entries))) = tail.next().await else { panic!("nothing") };
    assert!(entries.iter().any(|entry| matches!(entry.event, TaskEvent::Artifact(_))));
}

#[tokio::test(start_paused = true)]
async fn writes_are_never_reordered_and_waiting_callers_share_one() {
    let setup = Setup::new();
    let link = Link::to(&setup);
    let store = link.store();
    store.created(task("t")).await;
    link.is(LinkState::Slow("t", Duration::from_millis(20)));
    let add = async |n: usize| {
        let mut after = Seq(1);
        loop {
            match store.add("t", after, vec![artifact("t", &format!("a-{n}"), "x")]).await {
                Ok(_) => break,
                Err(AppendError::Conflict(seq)) => after = seq,
                Err(error) => panic!("{error}"),
            }
            assert_eq!(setup.stored("t").await["id"], "t");
        }
        // Acknowledged changes are in the state.
        let stored = setup.stored("t").await;
        let there = stored["artifacts"].as_array().unwrap();
        assert!(there.iter().any(|artifact| artifact["artifactId"] == format!("a-{n}")));
    };
    join_all((0..100).map(add)).await;
    let stored = setup.stored("t").await;
    assert_eq!(stored["artifacts"].as_array().unwrap().len(), 100);
    assert_eq!(stored["attache"]["generation"], 101);
    assert!(link.writes() < 50, "{}", link.writes());
}

#[tokio::test(start_paused = true)]
async fn different_tasks_do_not_wait_for_each_other() {
    let setup = Setup::new();
    let link = Link::to(&setup);
    let store = link.store();
    store.created(task("slow")).await;
    store.created(task("quick")).await;
    link.is(LinkState::Slow("slow", Duration::from_secs(4)));
    let slow = store.add("slow", Seq(1), vec![artifact("slow", "a", "x")]);
    let quick = store.add("quick", Seq(1), vec![artifact("quick", "a", "x")]);
    tokio::select! {
        biased;
        _ = slow => panic!("the slow one was first"),
        quick = quick => drop(quick.unwrap()),
    }
}

#[tokio::test]
async fn the_same_key_creates_one_task() {
    let setup = Setup::new();
    let store = setup.store();
    let with_key = |name| {
        let mut new = task(name);
        new.idempotency = Some(Idempotency { key: "k".to_owned(), fingerprint: [1; 32] });
        new
    };
    let both = join_all([store.create(with_key("a")), store.create(with_key("b"))]).await;
    let new = both.iter().filter(|created| matches!(created, Ok(Created::New { .. }))).count();
    assert_eq!(new, 1, "{both:?}");
    let known = store.find_key(&anonymous(), "k").await.unwrap().unwrap();
    let other = if known.task == id("a") { "b" } else { "a" };
    assert_eq!(setup.stored(other).await, json!(null));
    assert!(matches!(store.create(with_key("c")).await.unwrap(), Created::KeyUsed(_)));
}

#[tokio::test]
async fn an_id_is_used_once_across_stores() {
    let setup = Setup::new();
    let (here, there) = (setup.store(), setup.store());
    here.created(task("t")).await;
    let before = setup.stored("t").await;
    assert!(matches!(here.create(task("t")).await.unwrap(), Created::Taken));
    assert!(matches!(there.create(task("t")).await.unwrap(), Created::Taken));
    assert_eq!(setup.stored("t").await, before);
    let twice = join_all([here.create(task("u")), here.create(task("u"))]).await;
    assert!(matches!(twice[..], [Ok(Created::New { .. }), Ok(Created::Taken)]), "{twice:?}");
}

#[tokio::test]
async fn values_that_are_no_tasks_are_ignored_and_kept() {
    let setup = Setup::new();
    let mut newer = older("newer", "completed", 0);
    newer["attache"] = json!({ "generation": "not a number" });
    let garbage = [
        ("number", json!(5)),
        ("list", json!([1, 2])),
        ("stateless", json!({ "id": "stateless" })),
        ("nameless", json!({ "id": "", "status": { "state": "completed" } })),
        ("strange", older("strange", "somewhere", 0)),
        ("newer", newer),
    ];
    for (name, value) in &garbage {
        setup.put(name, value.clone()).await;
    }
    setup.put("good", older("good", "completed", 0)).await;
    let store = setup.store();
    assert_eq!(store.listed(&anonymous()).await, ["good"]);
    let all = Retention::default().max_age(Duration::ZERO).max_tasks(0);
    store.prune(&all, at(1_000_000), 100).await.unwrap();
    for (name, value) in &garbage {
        assert!(store.load(&anonymous(), &id(name)).await.unwrap().is_none(), "{name}");
        assert_eq!(setup.stored(name).await, *value);
    }
    // An id cannot be used if another value is stored under it.
    assert!(matches!(store.create(task("number")).await.unwrap(), Created::Taken));
    assert_eq!(setup.stored("number").await, json!(5));
}

#[tokio::test]
async fn pruned_tasks_are_deleted_from_the_state() {
    let setup = Setup::new();
    let store = setup.store();
    for name in ["old", "new", "live"] {
        store.created(task(name)).await;
    }
    setup.put("older", older("older", "failed", 1)).await;
    store.add("old", Seq(1), vec![status("old", TaskState::Completed, 1)]).await.unwrap();
    store.add("new", Seq(1), vec![status("new", TaskState::Completed, 100)]).await.unwrap();
    let retention = Retention::default().max_age(Duration::from_secs(60));
    assert_eq!(store.prune(&retention, at(120), 100).await.unwrap(), 2);
    for name in ["old", "older"] {
        assert_eq!(setup.stored(name).await, json!(null));
        assert!(store.load(&anonymous(), &id(name)).await.unwrap().is_none());
    }
    for name in ["new", "live"] {
        assert_eq!(setup.stored(name).await["id"], name);
    }
}

#[tokio::test]
async fn leases_appends_and_pages_work_as_in_other_stores() {
    let setup = Setup::new();
    let store = setup.store();
    let (seq, lease) = store.created(task("t")).await;
    assert_eq!(seq, Seq(1));
    assert!(store.claim(&id("t"), at(10), at(40)).await.unwrap().is_none());
    store.release(&id("t"), lease).await.unwrap();
    assert!(store.claim(&id("t"), at(10), at(40)).await.unwrap().is_some());
    let wrong = store.add("t", Seq(7), vec![status("t", TaskState::Failed, 1)]).await;
    assert!(matches!(wrong, Err(AppendError::Conflict(Seq(1)))));
    let none = store.add("none", Seq(1), vec![status("none", TaskState::Failed, 1)]).await;
    assert!(matches!(none, Err(AppendError::NotFound)));
    let mut tail = store.tail(&id("t"), Seq(1));
    let appended = store.add("t", Seq(1), vec![status("t", TaskState::Completed, 2)]).await.unwrap();
    assert_eq!(appended.settled.unwrap().state, TaskState::Completed);
    let Some(Ok(TailItem::Entries(entries))) = tail.next().await else { panic!("nothing") };
    assert_eq!(entries[0].seq, Seq(2));
    assert!(tail.next().await.is_none());
    let late = store.add("t", Seq(2), vec![status("t", TaskState::Failed, 3)]).await;
    assert!(matches!(late, Err(AppendError::Ended(TaskState::Completed))));
    for n in 0..5 {
        store.created(task(&format!("t-{n}"))).await;
    }
    let query = ListQuery { limit: 4, view: View::FULL, ..ListQuery::default() };
    let page = store.list(&anonymous(), &query).await.unwrap();
    assert_eq!((page.tasks.len(), page.total, page.next.is_some()), (4, 6, true));
    let mut new = task("u");
    new.events = vec![TaskEvent::Message(Arc::new(Message::user("m", "hi")))];
    assert!(store.create(new).await.is_err());
}
