//! When the engine is away, or does not take what is to be kept.

use std::time::Duration;

use attache_core::{AppendError, Retention, Seq, Store};
use attache_protocol::TaskState;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::{Asked, House, Link, Way, artifact, at, id, nobody, status, task};

fn house() -> (House, Link) {
    let house = House::new();
    let link = Link::to(&house);
    (house, link)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_written_is_not_created() {
    let (house, link) = house();
    let store = link.store();
    for way in [Way::Cut, Way::Refused] {
        link.is(way);
        assert!(store.create(task("t")).await.is_err());
        link.is(Way::Open);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(house.kept("t").await, json!(null));
        assert!(store.load(&nobody(), &id("t")).await.unwrap().is_none());
    }
    // The client may try again.
    store.created(task("t")).await;
    assert_eq!(house.kept("t").await["id"], "t");
}

#[tokio::test(start_paused = true)]
async fn an_append_waits_for_an_engine_that_comes_back() {
    let (house, link) = house();
    let store = link.store();
    store.created(task("t")).await;
    link.is(Way::Cut);
    let back = async {
        sleep(Duration::from_secs(3)).await;
        link.is(Way::Open);
    };
    let event = vec![status("t", TaskState::Completed, 1)];
    let (appended, ()) = tokio::join!(store.add("t", Seq(1), event), back);
    appended.unwrap();
    assert_eq!(house.kept("t").await["status"]["state"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_append_that_waits_in_vain_says_so_and_is_not_lost() {
    let (house, link) = house();
    let store = link.store();
    for name in ["a", "b", "c"] {
        store.created(task(name)).await;
    }
    link.is(Way::Cut);
    let began = Instant::now();
    for name in ["a", "b"] {
        let refused = store.add(name, Seq(1), vec![status(name, TaskState::Completed, 1)]).await;
        assert!(matches!(refused, Err(AppendError::Store(_))), "{refused:?}");
        // Those who read it here see it.
        assert_eq!(store.found(name).await.state, TaskState::Completed);
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(house.kept("a").await["status"]["state"], "working");
    link.is(Way::Open);
    sleep(Duration::from_secs(3)).await;
    for name in ["a", "b"] {
        assert_eq!(house.kept(name).await["status"]["state"], "completed");
    }
    store.add("c", Seq(1), vec![status("c", TaskState::Completed, 1)]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_at_once_and_holds_up_nobody() {
    let (house, link) = house();
    let store = link.store();
    store.created(task("t")).await;
    link.is(Way::Refused);
    let began = Instant::now();
    let refused = store.add("t", Seq(1), vec![artifact("t", "a", "x")]).await;
    assert!(matches!(refused, Err(AppendError::Store(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    link.is(Way::Open);
    store.created(task("u")).await;
    // What comes next carries what was refused.
    store.add("t", Seq(2), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    let kept = house.kept("t").await;
    assert_eq!(
        (&kept["status"]["state"], &kept["artifacts"][0]["artifactId"]),
        (&json!("completed"), &json!("a"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_during_an_outage_is_gone_after_it() {
    let (house, link) = house();
    let store = link.store();
    store.created(task("t")).await;
    store.add("t", Seq(1), vec![status("t", TaskState::Completed, 1)]).await.unwrap();
    assert_eq!(store.listed(&nobody()).await, ["t"]);
    link.is(Way::Cut);
    let retention = Retention::default().max_age(Duration::from_secs(60));
    assert_eq!(store.prune(&retention, at(120), 100).await.unwrap(), 1);
    link.is(Way::Open);
    assert!(store.load(&nobody(), &id("t")).await.unwrap().is_none());
    sleep(Duration::from_secs(3)).await;
    assert_eq!(house.kept("t").await, json!(null));
}

#[tokio::test]
async fn a_task_that_nobody_can_look_for_is_not_said_to_be_missing() {
    let (_house, link) = house();
    let store = link.store();
    link.is(Way::Cut);
    assert!(store.load(&nobody(), &id("t")).await.is_err());
    assert!(store.abandoned(at(0), 10).await.is_err());
    link.is(Way::Open);
    assert!(store.load(&nobody(), &id("t")).await.unwrap().is_none());
    assert!(store.abandoned(at(0), 10).await.unwrap().is_empty());
}
