use std::fs;

use attache_core::{ChangedValue, StoreError, Values};
use attache_protocol::Json;
use rusqlite::Connection;

use super::super::fault::Fault;
use super::super::values::QUERIES;
use super::StoreFolder;
use super::full::leave_room;

async fn set(folder: &StoreFolder, scope: &str, key: &str, text: &str) -> Result<ChangedValue, StoreError> {
    let value = Json::parse(text).unwrap();
    folder.change(scope, key, Box::new(move |_| Some(value.clone()))).await
}

async fn count(folder: &StoreFolder, key: &str) -> Result<u64, StoreError> {
    let next = |old: Option<&Json>| old.map_or(0, |old| old.read::<u64>().unwrap()) + 1;
    let change = Box::new(move |old: Option<&Json>| Some(Json::new(&next(old)).unwrap()));
    Ok(folder.change("s", key, change).await?.new.unwrap().read().unwrap())
}

async fn get(folder: &StoreFolder, key: &str) -> Option<String> {
    Values::get(&**folder, "s", key).await.unwrap().map(|value| value.as_str().to_owned())
}

/// Runs the first writes of `rest` in one transaction.
async fn together<T>(folder: &StoreFolder, rest: impl Future<Output = T>) -> T {
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let mut begun = Some(begun);
    let hold = folder.inner.change(
        move |_| {
            begun.take().map(|begun| begun.send(()));
            let _ = goes.recv();
            Ok(())
        },
        |()| {},
    );
    let rest = async {
        begins.await.unwrap();
        let release = async { drop(go) };
        futures::join!(rest, release).0
    };
    let (held, done) = futures::join!(hold, rest);
    held.unwrap();
    done
}

/// A write that fails the first transaction that contains it.
async fn spoil(folder: &StoreFolder) {
    let mut spoilt = false;
    let work = move |db: &Connection| match std::mem::replace(&mut spoilt, true) {
        true => Ok(()),
        false => Err(Fault::from(db.execute("no SQL", ()).unwrap_err())),
    };
    folder.inner.change(work, |()| {}).await.unwrap();
}

#[tokio::test]
async fn a_change_is_applied_once_although_its_transaction_is_repeated() {
    let folder = StoreFolder::new();
    let all = async {
        futures::join!(count(&folder, "k"), count(&folder, "k"), spoil(&folder), count(&folder, "k"))
    };
    let (first, second, (), third) = together(&folder, all).await;
    assert_eq!([first.unwrap(), second.unwrap(), third.unwrap()], [1, 2, 3]);
    assert_eq!(get(&folder, "k").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_change_runs_again_on_the_value_that_was_written_in_the_end() {
    let folder = StoreFolder::new();
    let mut again = false;
    // Stands for a change that was written the first time and could not be written the second.
    let other = folder.inner.change(
        move |db| {
            let value = if std::mem::replace(&mut again, true) { "40" } else { "1" };
            db.execute("INSERT INTO kept_values (scope, key, value) VALUES ('s', 'k', ?1)", [value])?;
            Ok(())
        },
        |()| {},
    );
    let all = async { futures::join!(other, count(&folder, "k"), spoil(&folder), count(&folder, "other")) };
    let (other, counted, (), unrelated) = together(&folder, all).await;
    other.unwrap();
    assert_eq!((counted.unwrap(), unrelated.unwrap()), (41, 1));
    assert_eq!(get(&folder, "k").await.as_deref(), Some("41"));
}

#[tokio::test]
async fn a_value_that_does_not_fit_on_the_disk_changes_nothing() {
    let folder = StoreFolder::new();
    count(&folder, "k").await.unwrap();
    leave_room(&folder, 2).await;
    let big = format!("\"{}\"", "x".repeat(100_000));
    let all =
        async { futures::join!(count(&folder, "k"), set(&folder, "s", "big", &big), count(&folder, "k")) };
    let (first, big_one, second) = together(&folder, all).await;
    let error = big_one.unwrap_err().to_string();
    assert!(error.contains("no space") && error.contains("tasks.db"), "{error}");
    assert_eq!([first.unwrap(), second.unwrap()], [2, 3]);
    let error = set(&folder, "s", "k", &big).await.unwrap_err().to_string();
    assert!(error.contains("no space"), "{error}");
    assert_eq!((get(&folder, "k").await.as_deref(), get(&folder, "big").await), (Some("3"), None));
    leave_room(&folder, 1000).await;
    set(&folder, "s", "big", &big).await.unwrap();
    assert_eq!(get(&folder, "big").await, Some(big));
}

#[tokio::test]
async fn a_change_that_returns_the_same_value_writes_nothing() {
    let folder = StoreFolder::new();
    set(&folder, "s", "k", "[1, 2]").await.unwrap();
    let log = folder.path().with_extension("db-wal");
    let before = fs::read(&log).unwrap();
    set(&folder, "s", "k", "[1, 2]").await.unwrap();
    folder.change("s", "k", Box::new(|old| old.cloned())).await.unwrap();
    folder.change("s", "other", Box::new(|_| None)).await.unwrap();
    assert!(fs::read(&log).unwrap() == before);
    set(&folder, "s", "k", "[1,2]").await.unwrap();
    assert!(fs::read(&log).unwrap() != before);
}

#[tokio::test]
async fn a_value_that_is_not_json_is_an_error_and_not_a_wrong_result() {
    let folder = StoreFolder::new();
    set(&folder, "s", "k", "1").await.unwrap();
    set(&folder, "s", "other", "2").await.unwrap();
    let damage = |db: &Connection| Ok(db.execute("UPDATE kept_values SET value = '{' WHERE key = 'k'", ())?);
    folder.inner.change(damage, |_| {}).await.unwrap();
    let errors = [
        Values::get(&*folder, "s", "k").await.unwrap_err(),
        Values::list(&*folder, "s").await.unwrap_err(),
        count(&folder, "k").await.unwrap_err(),
    ];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("the value of `k` in `s`") && error.contains("store check"), "{error}");
    }
    assert_eq!(count(&folder, "other").await.unwrap(), 3);
}

#[tokio::test]
async fn value_queries_read_no_other_rows() {
    let folder = StoreFolder::new();
    let plan = |db: &Connection, query: &str| -> Result<Vec<String>, Fault> {
        let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {query}"))?;
        let mut rows = explain.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            steps.push(row.get(3)?);
        }
        Ok(steps)
    };
    for query in QUERIES {
        let plan = folder.inner.read(|db| plan(db, query)).unwrap();
        let kept: Vec<_> = plan.iter().filter(|step| step.contains("kept_values")).collect();
        assert!(!kept.is_empty() && kept.iter().all(|step| step.starts_with("SEARCH")), "{query}: {plan:?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{query}: {plan:?}");
    }
}

#[tokio::test]
async fn large_values_do_not_accumulate_in_the_write_ahead_log() {
    let folder = StoreFolder::new();
    let large = "x".repeat(4 * 1024 * 1024);
    for i in 0..60 {
        set(&folder, "s", "k", &format!("\"{i}{large}\"")).await.unwrap();
    }
    let length = fs::metadata(folder.path().with_extension("db-wal")).unwrap().len();
    assert!(length < 160 * 1024 * 1024, "{length}");
}
