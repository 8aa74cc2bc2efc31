//! The engine is not reachable, or rejects writes.

use std::time::Duration;

use attache_core::{AppendError, Retention, Seq, Store};
use attache_protocol::TaskState;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Link, LinkState, Setup, StoreExt, anonymous, artifact, at, id, status, task};

fn setup() -> (Setup, Link) {
    let setup = Setup::new();
    let link = Link::to(&setup);
    (setup, link)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_written_is_not_created() {
    let (setup, link) = setup();
    let store = link.store();
    for state in [LinkState::Cut, LinkState::Refused] {
        link.is(state);
        assert!(store.create(task("t")).await.is_err());
        link.is(LinkState::Open);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(setup.stored("t").await, json!(null));
        assert!(store.load(&anonymous(), &id("t")).await.unwrap().is_none());
    }
    // The client may retry.
    store.created(task("t")).await;
    assert_eq!(setup.stored("t").await["id"], "t");
}

#[tokio::test(start_paused = true)]
async fn an_append_waits_for_an_engine_that_comes_back() {
    let (setup, link) = setup();
    let store = link.store();
    store.created(task("t")).await;
    link.is(LinkState::Cut);
    let back = async {
        sleep(Duration::from_secs(3)).await;
        link.is(LinkState::Open);
    };
    let event = vec![status("t", TaskState::Completed, 1)];
    let (appended, ()) = tokio::join!(store.add("t", Seq(1), event), back);
    appended.unwrap();
    assert_eq!(setup.stored("t").await["status"]["state"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_append_that_times_out_fails_and_is_not_lost() {
    let (setup, link) = setup();
    let store = link.store();
    for name in ["a", "b", "c"] {
        store.created(task(name)).await;
    }
    link.is(LinkState::Cut);
    let began = Instant::now();
    for name in ["a", "b"] {
        let refused = store.add(name, Seq(1), vec![status(name, TaskState::Completed, 1)]).await;
        assert!(matches!(refused, Err(AppendError::Store(_))), "{refused:?}");
        // Readers in this process see it.
        assert_eq!(store.found(name).await.state, TaskState::Completed);
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(setup.stored("a").await["status"]["state"], "working");
    link.is(LinkState::Open);
    sleep(Duration::from_secs(3)).await;
    for name in ["a", "b"] {
        assert_eq!(setup.stored(name).await["status"]["state"], "completed");
    }
    store.add("c", Seq(1), vec![status("c", TaskState::Completed, 1)]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rejected_write_fails_at_once_and_delays_no_other() {
    let (setup, link) = setup();
    let store = link.store();
    store.created(task("t")).await;
    link.is(LinkState::Refused);
    let began = Instant::now();
    let refused = store.add("t", Seq(1), vec![artifact("t", "a", "x")]).await;
    assert!(matches!(refused, Err(AppendError::Store(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    link.is(LinkState::Open);
    store.created(task("u")).await;
    // The next write includes the rejected changes.
    store.add("t", Seq(2), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    let stored = setup.stored("t").await;
    assert_eq!(
        (&stored["status"]["state"], &stored["artifacts"][0]["artifactId"]),
        (&json!("completed"), &json!("a"))
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_pruned_during_an_outage_are_deleted_after_it() {
    let (setup, link) = setup();
    let store = link.store();
    store.created(task("t")).await;
    store.add("t", Seq(1), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(store.listed(&anonymous()).await, ["t"]);
    link.is(LinkState::Cut);
    let retention = Retention::default().max_age(Duration::from_secs(60));
    assert_eq!(store.prune(&retention, at(120), 100).await.unwrap(), 1);
    link.is(LinkState::Open);
    assert!(store.load(&anonymous(), &id("t")).await.unwrap().is_none());
    sleep(Duration::from_secs(3)).await;
    assert_eq!(setup.stored("t").await, json!(null));
}

#[tokio::test]
async fn during_an_outage_an_unknown_task_is_an_error_and_not_missing() {
    let (_house, link) = setup();
    let store = link.store();
    link.is(LinkState::Cut);
    assert!(store.load(&anonymous(), &id("t")).await.is_err());
    assert!(store.abandoned(None, at(0), 10).await.is_err());
    link.is(LinkState::Open);
    assert!(store.load(&anonymous(), &id("t")).await.unwrap().is_none());
    assert!(store.abandoned(None, at(0), 10).await.unwrap().is_empty());
}
