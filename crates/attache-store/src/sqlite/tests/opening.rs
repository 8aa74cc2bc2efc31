use std::fs;
use std::path::{Path, PathBuf};

use attache_core::{Seq, Store};
use attache_protocol::{Json, TaskState};
use rusqlite::Connection;

use super::super::{CompactOptions, Maintenance, OpenError, SqliteOptions, SqliteStore, schema};
use super::{Place, ended};
use crate::Keyring;

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, SqliteOptions::new(Keyring::ephemeral().unwrap()))
}

/// Everything in a directory with its content.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap())
        .filter(|file| file.file_type().unwrap().is_file())
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// The message with which a file is refused, after which everything is as it was.
fn refusal(path: &Path) -> String {
    let before = contents(path.parent().unwrap());
    let message = open(path).unwrap_err().to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert_eq!(contents(path.parent().unwrap()), before);
    message
}

#[test]
fn what_is_not_a_store_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    fs::write(&path, "Dear diary, ".repeat(100)).unwrap();
    assert!(refusal(&path).contains("a file of another kind"));

    fs::remove_file(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE recipes (name); PRAGMA user_version = 1")
        .unwrap();
    assert!(refusal(&path).contains("another program"));

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(refusal(&path).contains("a directory"));
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_untouched() {
    let mut place = Place::new();
    place.close();
    let path = place.path();
    let newer = schema::VERSION + 1;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", newer).unwrap();
    let message = refusal(&path);
    assert!(message.contains(&format!("schema {newer}, this one knows {}", schema::VERSION)), "{message}");
}

#[tokio::test]
async fn a_torn_file_is_refused_untouched() {
    let mut place = Place::new();
    for i in 0..100 {
        place.put(ended(&format!("t{i}"), i)).await;
    }
    place.close();
    let (path, whole) = (place.path(), fs::read(place.path()).unwrap());
    fs::remove_file(place.path().with_extension("db.lock")).unwrap();
    for length in [50, 99, 100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let message = refusal(&path);
        assert!(message.contains("damaged"), "{length}: {message}");
    }
    fs::write(&path, &whole).unwrap();
    place.reopen();
    assert!(place.get("t99").await.is_some());
}

#[tokio::test]
async fn a_damaged_page_is_an_error_and_not_a_wrong_answer() {
    let mut place = Place::new();
    for i in 0..500 {
        place.put(ended(&format!("t{i}"), i)).await;
    }
    place.close();
    let mut bytes = fs::read(place.path()).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..2000].fill(0xAA);
    }
    fs::write(place.path(), &bytes).unwrap();
    let message = match SqliteStore::open(place.path(), place.options()) {
        Err(error) => error.to_string(),
        Ok(store) => store.load(&super::owner(), &"t7".into()).await.unwrap_err().to_string(),
    };
    assert!(message.contains("damaged") && message.contains("attache store check"), "{message}");
    assert_eq!(fs::read(place.path()).unwrap(), bytes);
}

#[test]
fn two_servers_do_not_share_a_file() {
    let place = Place::new();
    let message = open(&place.path()).unwrap_err().to_string();
    assert!(message.contains("in use") && message.contains(&std::process::id().to_string()), "{message}");
}

#[cfg(unix)]
#[test]
fn a_file_has_one_lock_whatever_it_is_called() {
    let place = Place::new();
    let link = place.dir.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    assert!(matches!(open(&link), Err(OpenError::InUse { .. })));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    // Nobody can write there, not even the superuser.
    let message = open(Path::new("/proc/attache/tasks.db")).unwrap_err().to_string();
    assert!(message.contains("`/proc/attache` could not be created"), "{message}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.put(ended("t", 0)).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.path().parent().unwrap()), 0o700);
    for (name, _) in contents(place.path().parent().unwrap()) {
        assert_eq!(mode(&place.path().with_file_name(&name)), 0o600, "{name}");
    }
}

#[test]
fn an_empty_file_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    fs::write(&path, "").unwrap();
    drop(open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    assert_eq!(schema::version(&db).unwrap(), schema::VERSION);
    drop(open(&path).unwrap());
}

/// A file as version 1 of the schema had it, with a task that has ended and one that has not.
fn file_of_version_1(dir: &Path) -> PathBuf {
    let path = dir.join("tasks.db");
    Connection::open(&path).unwrap().execute_batch(include_str!("version_1.sql")).unwrap();
    assert_eq!(schema::version(&Connection::open(&path).unwrap()).unwrap(), 1);
    path
}

#[tokio::test]
async fn a_file_of_an_older_version_becomes_a_newer_one_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of_version_1(dir.path());
    for first in [true, false] {
        let store = open(&path).unwrap();
        let done = store.load(&super::owner(), &"done".into()).await.unwrap().unwrap();
        assert_eq!((done.seq, done.state), (Seq(3), TaskState::Completed));
        let open = store.load(&super::owner(), &"open".into()).await.unwrap().unwrap();
        assert_eq!((open.seq, open.state), (Seq(2), TaskState::Working));
        assert_eq!(store.find_key(&super::owner(), "k").await.unwrap().unwrap().task, "done".into());
        let change = Box::new(|old: Option<&Json>| old.cloned().or_else(|| Json::parse("1").ok()));
        let changed = store.values().change("s", "k", change).await.unwrap();
        assert_eq!(changed.old.is_none(), first);
    }
    let db = Connection::open(&path).unwrap();
    assert_eq!(schema::version(&db).unwrap(), schema::VERSION);
    let report = Maintenance::open(&path).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.events, report.values, report.problems), (2, 5, 1, vec![]));
}

#[test]
fn a_file_of_an_older_version_has_the_same_tables_as_a_new_one() {
    let (old, new) = (tempfile::tempdir().unwrap(), Place::new());
    let tables = |path: &Path| -> Vec<(String, String)> {
        let db = Connection::open(path).unwrap();
        let mut read =
            db.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        let tables = read.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        tables.map(Result::unwrap).collect()
    };
    let path = file_of_version_1(old.path());
    drop(open(&path).unwrap());
    assert_eq!(tables(&path), tables(&new.path()));
}

#[test]
fn looking_after_a_file_of_an_older_version_brings_it_up_to_date() {
    for look in [
        |path: &Path| Maintenance::open(path).unwrap().check().unwrap().tasks,
        |path: &Path| Maintenance::open(path).unwrap().export(&mut Vec::new()).unwrap().tasks,
        |path: &Path| Maintenance::compact(path, CompactOptions::default()).map(|_| 2).unwrap(),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of_version_1(dir.path());
        assert_eq!(look(&path), 2);
        assert_eq!(schema::version(&Connection::open(&path).unwrap()).unwrap(), schema::VERSION);
    }
}
