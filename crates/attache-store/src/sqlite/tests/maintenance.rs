use attache_core::{NewTask, Seq, Store, TailItem};
use attache_protocol::TaskState;
use futures::StreamExt;
use rusqlite::Connection;

use super::super::{CompactOptions, Maintenance, OpenError};
use super::{Place, at, chunk, ended, live, status, webhook};

async fn some_tasks(place: &Place) {
    for i in 0..20 {
        place.put(ended(&format!("t{i}"), i)).await;
    }
    let push = Some(webhook("open", "w", "example.com"));
    let (seq, _) = place.put(NewTask { push, ..live("open") }).await;
    place.add("open", seq, vec![chunk("open", "x"), status("open", TaskState::Working, 1)]).await.unwrap();
}

#[tokio::test]
async fn a_check_finds_nothing_wrong_in_a_sound_store_while_it_is_in_use() {
    let place = Place::new();
    some_tasks(&place).await;
    let report = Maintenance::open(place.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.events, report.problems), (21, 63, vec![]));
}

#[tokio::test]
async fn a_check_finds_what_is_wrong() {
    for (damage, expected) in [
        ("DELETE FROM log WHERE id = 1 << 26 | 1", ""),
        ("DELETE FROM log WHERE id = 21 << 26 | 1", "task `open`: its log has a gap after event 0"),
        ("UPDATE tasks SET seq = 9 WHERE id = 3", "task `t2`: its log ends at 3 where the task ends at 9"),
        ("UPDATE tasks SET head = x'7b7b' WHERE id = 3", "task `t2`: it cannot be read"),
        ("UPDATE log SET events = x'5b' WHERE id >> 26 = 5", "the log of task `t4` cannot be read"),
        ("UPDATE tasks SET state = 5 WHERE id = 3", "the number of tasks"),
        ("DELETE FROM counts WHERE level = 42", "at level 42"),
        ("DELETE FROM tasks WHERE id = 21", "webhooks without a task"),
        ("DELETE FROM queues", "deliveries that are never due"),
        ("INSERT INTO log VALUES (99 << 26, '[]')", "parts of logs without a task"),
        ("DELETE FROM owners", "tasks without an owner"),
    ] {
        let mut place = Place::new();
        some_tasks(&place).await;
        place.close();
        Connection::open(place.path()).unwrap().execute_batch(damage).unwrap();
        let problems = Maintenance::open(place.path()).unwrap().check().unwrap().problems.join("\n");
        assert!(
            problems.contains(expected) && problems.is_empty() == expected.is_empty(),
            "{damage}: {problems}"
        );
    }
}

#[tokio::test]
async fn an_export_has_everything_but_the_secrets() {
    let place = Place::new();
    some_tasks(&place).await;
    let mut out = Vec::new();
    assert_eq!(Maintenance::open(place.path()).unwrap().export(&mut out).unwrap(), 21);
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("t0ken") && !text.contains("cr3dentials"));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 21);
    let open = &lines[20];
    assert_eq!(open["owner"], serde_json::json!({ "tenant": "acme", "principal": "ann" }));
    assert_eq!(open["task"]["id"], "open");
    assert_eq!(open["events"].as_array().unwrap().len(), 3);
    assert_eq!(open["webhooks"][0]["url"], "https://example.com/hook");
}

#[tokio::test]
async fn compacting_needs_the_store_for_itself() {
    let place = Place::new();
    let error = Maintenance::compact(place.path(), CompactOptions::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn dropped_events_leave_the_task() {
    let mut place = Place::new();
    for i in 0..200 {
        place.put(ended(&format!("t{i}"), i)).await;
    }
    place.put(NewTask { push: Some(webhook("told", "w", "a.com")), ..ended("told", 0) }).await;
    place.close();
    let options = CompactOptions { drop_events_before: Some(at(100)) };
    let report = Maintenance::compact(place.path(), options).unwrap();
    assert!(report.dropped == 100 && report.after < report.before, "{report:?}");
    place.reopen();
    let first = place.tail(&"t5".into(), Seq(1)).collect::<Vec<_>>().await;
    let [Ok(TailItem::Reset(snapshot))] = &first[..] else { panic!("{first:?}") };
    assert_eq!((snapshot.seq, snapshot.task().artifacts.len()), (Seq(3), 1));
    assert!(place.tail(&"t5".into(), Seq(3)).next().await.is_none());
    assert_eq!(place.events("t150", 0, 9).await.len(), 3);
    assert_eq!(place.events("told", 0, 9).await.len(), 3);
    let report = Maintenance::open(place.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.problems), (201, vec![]));
}

#[test]
fn what_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    assert!(matches!(Maintenance::open(&path), Err(OpenError::Missing { .. })));
    assert!(Maintenance::compact(&path, CompactOptions::default()).is_err());
    assert!(!path.exists());
}
