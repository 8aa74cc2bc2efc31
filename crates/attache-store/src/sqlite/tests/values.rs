use std::fs;

use attache_core::{ChangedValue, StoreError, Values};
use attache_protocol::Json;
use rusqlite::Connection;

use super::super::fault::Fault;
use super::super::values::QUERIES;
use super::Place;
use super::full::leave_room;

async fn set(place: &Place, scope: &str, key: &str, text: &str) -> Result<ChangedValue, StoreError> {
    let value = Json::parse(text).unwrap();
    place.change(scope, key, Box::new(move |_| Some(value.clone()))).await
}

async fn count(place: &Place, key: &str) -> Result<u64, StoreError> {
    let next = |old: Option<&Json>| old.map_or(0, |old| old.read::<u64>().unwrap()) + 1;
    let change = Box::new(move |old: Option<&Json>| Some(Json::new(&next(old)).unwrap()));
    Ok(place.change("s", key, change).await?.new.unwrap().read().unwrap())
}

async fn get(place: &Place, key: &str) -> Option<String> {
    Values::get(&**place, "s", key).await.unwrap().map(|value| value.as_str().to_owned())
}

/// Has everything that `rest` writes first written in one transaction.
async fn together<T>(place: &Place, rest: impl Future<Output = T>) -> T {
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let mut begun = Some(begun);
    let hold = place.inner.change(
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

/// Spoils the first transaction that it is in.
async fn spoil(place: &Place) {
    let mut spoilt = false;
    let work = move |db: &Connection| match std::mem::replace(&mut spoilt, true) {
        true => Ok(()),
        false => Err(Fault::from(db.execute("no SQL", ()).unwrap_err())),
    };
    place.inner.change(work, |()| {}).await.unwrap();
}

#[tokio::test]
async fn a_change_is_made_once_however_often_it_is_written() {
    let place = Place::new();
    let all =
        async { futures::join!(count(&place, "k"), count(&place, "k"), spoil(&place), count(&place, "k")) };
    let (first, second, (), third) = together(&place, all).await;
    assert_eq!([first.unwrap(), second.unwrap(), third.unwrap()], [1, 2, 3]);
    assert_eq!(get(&place, "k").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_change_runs_again_on_the_value_that_was_written_in_the_end() {
    let place = Place::new();
    let mut again = false;
    // Takes the place of a change that was written the first time and could not be written the second.
    let other = place.inner.change(
        move |db| {
            let value = if std::mem::replace(&mut again, true) { "40" } else { "1" };
            db.execute("INSERT INTO kept_values (scope, key, value) VALUES ('s', 'k', ?1)", [value])?;
            Ok(())
        },
        |()| {},
    );
    let all = async { futures::join!(other, count(&place, "k"), spoil(&place), count(&place, "other")) };
    let (other, counted, (), unrelated) = together(&place, all).await;
    other.unwrap();
    assert_eq!((counted.unwrap(), unrelated.unwrap()), (41, 1));
    assert_eq!(get(&place, "k").await.as_deref(), Some("41"));
}

#[tokio::test]
async fn a_value_for_which_there_is_no_room_changes_nothing() {
    let place = Place::new();
    count(&place, "k").await.unwrap();
    leave_room(&place, 2).await;
    let big = format!("\"{}\"", "x".repeat(100_000));
    let all = async { futures::join!(count(&place, "k"), set(&place, "s", "big", &big), count(&place, "k")) };
    let (first, big_one, second) = together(&place, all).await;
    let error = big_one.unwrap_err().to_string();
    assert!(error.contains("no room") && error.contains("tasks.db"), "{error}");
    assert_eq!([first.unwrap(), second.unwrap()], [2, 3]);
    let error = set(&place, "s", "k", &big).await.unwrap_err().to_string();
    assert!(error.contains("no room"), "{error}");
    assert_eq!((get(&place, "k").await.as_deref(), get(&place, "big").await), (Some("3"), None));
    leave_room(&place, 1000).await;
    set(&place, "s", "big", &big).await.unwrap();
    assert_eq!(get(&place, "big").await, Some(big));
}

#[tokio::test]
async fn a_change_that_leaves_a_value_as_it_was_writes_nothing() {
    let place = Place::new();
    set(&place, "s", "k", "[1, 2]").await.unwrap();
    let log = place.path().with_extension("db-wal");
    let before = fs::read(&log).unwrap();
    set(&place, "s", "k", "[1, 2]").await.unwrap();
    place.change("s", "k", Box::new(|old| old.cloned())).await.unwrap();
    place.change("s", "other", Box::new(|_| None)).await.unwrap();
    assert!(fs::read(&log).unwrap() == before);
    set(&place, "s", "k", "[1,2]").await.unwrap();
    assert!(fs::read(&log).unwrap() != before);
}

#[tokio::test]
async fn a_value_that_is_not_json_is_an_error_and_not_a_wrong_answer() {
    let place = Place::new();
    set(&place, "s", "k", "1").await.unwrap();
    set(&place, "s", "other", "2").await.unwrap();
    let damage = |db: &Connection| Ok(db.execute("UPDATE kept_values SET value = '{' WHERE key = 'k'", ())?);
    place.inner.change(damage, |_| {}).await.unwrap();
    let errors = [
        Values::get(&*place, "s", "k").await.unwrap_err(),
        Values::list(&*place, "s").await.unwrap_err(),
        count(&place, "k").await.unwrap_err(),
    ];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("the value of `k` in `s`") && error.contains("store check"), "{error}");
    }
    assert_eq!(count(&place, "other").await.unwrap(), 3);
}

#[tokio::test]
async fn looking_for_values_reads_no_others() {
    let place = Place::new();
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
        let plan = place.inner.read(|db| plan(db, query)).unwrap();
        let kept: Vec<_> = plan.iter().filter(|step| step.contains("kept_values")).collect();
        assert!(!kept.is_empty() && kept.iter().all(|step| step.starts_with("SEARCH")), "{query}: {plan:?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{query}: {plan:?}");
    }
}

#[tokio::test]
async fn large_values_do_not_pile_up_in_the_write_ahead_log() {
    let place = Place::new();
    let large = "x".repeat(4 * 1024 * 1024);
    for i in 0..60 {
        set(&place, "s", "k", &format!("\"{i}{large}\"")).await.unwrap();
    }
    let length = fs::metadata(place.path().with_extension("db-wal")).unwrap().len();
    assert!(length < 160 * 1024 * 1024, "{length}");
}
