use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::super::{OpenError, SqliteOptions, SqliteStore, schema};
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
        Ok(store) => {
            use attache_core::Store;
            store.load(&super::owner(), &"t7".into()).await.unwrap_err().to_string()
        }
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
