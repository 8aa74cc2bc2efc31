use std::fs;
use std::path::{Path, PathBuf};

use attache_core::{Owner, Principal, Seq, Store};
use attache_protocol::{Json, TaskState};
use rusqlite::Connection;

use super::super::{CompactOptions, Maintenance, SqliteOpenError, SqliteOptions, SqliteStore, schema};
use super::{StoreFolder, ended};
use crate::Keyring;

fn open(path: &Path) -> Result<SqliteStore, SqliteOpenError> {
    SqliteStore::open(path, SqliteOptions::new(Keyring::ephemeral().unwrap()))
}

/// The files in a directory with their content.
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

/// The error of opening a file. Checks that no file was changed.
fn refusal(path: &Path) -> String {
    let before = contents(path.parent().unwrap());
    let message = open(path).unwrap_err().to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert_eq!(contents(path.parent().unwrap()), before);
    message
}

#[test]
fn a_file_that_is_not_a_store_is_refused_and_not_changed() {
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
async fn a_store_of_a_newer_version_is_refused_and_not_changed() {
    let mut folder = StoreFolder::new();
    folder.close();
    let path = folder.path();
    let newer = schema::VERSION + 1;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", newer).unwrap();
    let message = refusal(&path);
    assert!(message.contains(&format!("schema {newer}, this one knows {}", schema::VERSION)), "{message}");
}

#[tokio::test]
async fn a_truncated_file_is_refused_and_not_changed() {
    let mut folder = StoreFolder::new();
    for i in 0..100 {
        folder.put(ended(&format!("t{i}"), i)).await;
    }
    folder.close();
    let (path, whole) = (folder.path(), fs::read(folder.path()).unwrap());
    fs::remove_file(folder.path().with_extension("db.lock")).unwrap();
    for length in [50, 99, 100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let message = refusal(&path);
        assert!(message.contains("damaged"), "{length}: {message}");
    }
    fs::write(&path, &whole).unwrap();
    folder.reopen();
    assert!(folder.get("t99").await.is_some());
}

#[tokio::test]
async fn a_damaged_page_is_an_error_and_not_a_wrong_result() {
    let mut folder = StoreFolder::new();
    for i in 0..500 {
        folder.put(ended(&format!("t{i}"), i)).await;
    }
    folder.close();
    let mut bytes = fs::read(folder.path()).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..2000].fill(0xAA);
    }
    fs::write(folder.path(), &bytes).unwrap();
    let message = match SqliteStore::open(folder.path(), folder.options()) {
        Err(error) => error.to_string(),
        Ok(store) => store.load(&super::owner(), &"t7".into()).await.unwrap_err().to_string(),
    };
    assert!(message.contains("damaged") && message.contains("attache store check"), "{message}");
    assert_eq!(fs::read(folder.path()).unwrap(), bytes);
}

/// A file with sound pages and damaged content, which SQLite does not detect.
#[tokio::test]
async fn damaged_content_is_an_error_that_names_the_task_and_hides_no_other() {
    let letter = |i: i64| char::from(b'a' + i as u8).to_string();
    let mut folder = StoreFolder::new();
    for i in 0..20 {
        let mut new = ended(&format!("t{i}"), i);
        let text = letter(i).repeat(80_000);
        new.events.insert(1, super::chunk(&format!("t{i}"), text));
        folder.put(new).await;
    }
    folder.close();
    let whole = fs::read(folder.path()).unwrap();
    let mut bytes = whole.clone();
    // Damages the text of every second task in all tables.
    let mut damaged = 0;
    for i in (0..20).step_by(2) {
        let text = letter(i).repeat(2000);
        let mut from = 0;
        while let Some(at) = bytes[from..].windows(2000).position(|window| window == text.as_bytes()) {
            bytes[from + at] = 0xFF;
            from += at + 2000;
            damaged += 1;
        }
    }
    assert!(damaged >= 20, "{damaged}");
    fs::write(folder.path(), &bytes).unwrap();
    folder.reopen();
    for i in 0..20 {
        let id = format!("t{i}");
        match folder.load(&super::owner(), &id.as_str().into()).await {
            Ok(task) => assert!(i % 2 == 1 && task.is_some(), "{id}"),
            Err(error) => {
                let message = error.to_string();
                assert!(i % 2 == 0 && message.contains(&format!("task `{id}`")), "{id}: {message}");
                assert!(message.contains("attache store check"), "{message}");
            }
        }
    }
    let listed = folder.ids(super::all()).await;
    assert_eq!(listed.len(), 10, "{listed:?}");
    let problems = Maintenance::open(folder.path()).unwrap().check().unwrap().problems;
    assert_eq!(problems.len(), 10, "{problems:?}");
    folder.close();
    assert_eq!(fs::read(folder.path()).unwrap(), bytes, "it was left as it is");
}

/// Closing any descriptor of a file drops the POSIX locks of the process on it. Without them, another program that closes the database
/// takes itself for the last user and deletes the write-ahead log.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn nothing_in_the_process_drops_the_locks_of_sqlite() {
    use std::os::unix::fs::MetadataExt;
    let folder = StoreFolder::new();
    folder.put(ended("t", 0)).await;
    let locks = || {
        let inode = format!(":{} ", fs::metadata(folder.path()).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|line| line.contains("POSIX") && line.contains(&inode)).count()
    };
    let held = locks();
    assert!(held > 0);
    assert!(open(&folder.path()).is_err());
    assert_eq!(locks(), held, "a second server is refused");
    assert!(Maintenance::compact(folder.path(), CompactOptions::default()).is_err());
    assert_eq!(locks(), held, "compacting is refused");
    let beside = Maintenance::open(folder.path()).unwrap();
    beside.check().unwrap();
    beside.export(&mut Vec::new()).unwrap();
    beside.backup(folder.dir.path().join("copy.db"), |_| {}).unwrap();
    assert!(beside.exclusive().is_err());
    drop(beside);
    assert_eq!(locks(), held, "maintenance is over");
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_acknowledged_after_the_files_were_deleted_or_replaced() {
    for name in ["tasks.db", "tasks.db-wal"] {
        for replace in [false, true] {
            let folder = StoreFolder::new();
            folder.put(ended("before", 0)).await;
            let path = folder.path().with_file_name(name);
            let content = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            if replace {
                // A copy under the same name is another file.
                fs::write(path.with_extension("new"), content).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            }
            let error = folder.create(ended("after", 1)).await.unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("restart the server"), "{error}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_other_users_can_access_becomes_private() {
    use std::os::unix::fs::PermissionsExt;
    let mut folder = StoreFolder::new();
    folder.put(ended("t", 0)).await;
    folder.close();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for open in [0o666, 0o640, 0o602] {
        for name in ["tasks.db", "tasks.db.lock"] {
            let path = folder.path().with_file_name(name);
            fs::set_permissions(path, fs::Permissions::from_mode(open)).unwrap();
        }
        folder.reopen();
        for (name, _) in contents(folder.path().parent().unwrap()) {
            assert_eq!(mode(&folder.path().with_file_name(&name)), 0o600, "{name} was {open:o}");
        }
        assert!(folder.get("t").await.is_some());
        folder.close();
    }
}

#[tokio::test]
async fn a_path_can_contain_special_characters_of_a_uri() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("50%41?mode=memory#x ä.db");
    for _ in 0..2 {
        drop(open(&path).unwrap());
        assert_eq!(Maintenance::open(&path).unwrap().check().unwrap().tasks, 0);
    }
    fs::write(&path, "Dear diary, ".repeat(100)).unwrap();
    assert!(refusal(&path).contains("a file of another kind"));
}

#[test]
fn two_servers_do_not_share_a_file() {
    let folder = StoreFolder::new();
    let message = open(&folder.path()).unwrap_err().to_string();
    assert!(message.contains("in use") && message.contains(&std::process::id().to_string()), "{message}");
}

#[cfg(unix)]
#[test]
fn a_file_has_one_lock_under_all_its_names() {
    let folder = StoreFolder::new();
    let link = folder.dir.path().join("link.db");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert!(matches!(open(&link), Err(SqliteOpenError::InUse { .. })));
}

#[test]
fn the_error_names_a_directory_that_cannot_be_written() {
    // No user can write there, not even the superuser.
    let message = open(Path::new("/proc/attache/tasks.db")).unwrap_err().to_string();
    assert!(message.contains("`/proc/attache` could not be created"), "{message}");
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_created_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = StoreFolder::new();
    folder.put(ended("t", 0)).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path().parent().unwrap()), 0o700);
    for (name, _) in contents(folder.path().parent().unwrap()) {
        assert_eq!(mode(&folder.path().with_file_name(&name)), 0o600, "{name}");
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

/// A file with version 1 of the schema, with a task that has ended and one that has not.
fn file_of_version_1(dir: &Path) -> PathBuf {
    let path = dir.join("tasks.db");
    Connection::open(&path).unwrap().execute_batch(include_str!("version_1.sql")).unwrap();
    assert_eq!(schema::version(&Connection::open(&path).unwrap()).unwrap(), 1);
    path
}

#[tokio::test]
async fn a_file_of_an_older_version_is_migrated_without_loss() {
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

/// A file from before the ids of clients were scoped by owner, with its keyring.
#[tokio::test]
async fn a_file_that_version_0_1_0_wrote_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let (path, keys) = (dir.path().join("tasks.db"), dir.path().join("keyring.json"));
    fs::copy(fixtures.join("store-0.1.0.db"), &path).unwrap();
    // Private, as that version wrote it.
    let keyring = fs::read(fixtures.join("keyring-0.1.0.json")).unwrap();
    attache_files::write(&keys, &keyring).unwrap();
    let options = || SqliteOptions::new(Keyring::from_file(&keys).unwrap());
    let (ann, bob) = (owned_by("ann"), owned_by("bob"));
    for _ in 0..2 {
        let store = SqliteStore::open(&path, options()).unwrap();
        let hello = attache_protocol::TaskId::from("01a1eaf5-a441-7b32-93fb-f2962a7d156b");
        let task = store.load(&ann, &hello).await.unwrap().unwrap();
        assert_eq!((task.seq, task.state), (Seq(3), TaskState::Completed));
        assert_eq!(task.task().history.len(), 1);
        assert_eq!(store.find_key(&ann, "key-1").await.unwrap().unwrap().task, hello);
        // An id that the client chose. In that version such ids were shared by all owners.
        assert!(store.load(&ann, &"report".into()).await.unwrap().is_some());
        assert!(store.load(&bob, &"report".into()).await.unwrap().is_none());
        let listed = store.list(&bob, &super::all()).await.unwrap();
        let webhooks = store.outbox().webhooks(&listed.tasks[0].task().id).await.unwrap();
        assert_eq!(webhooks[0].config.token.as_deref(), Some("s3cret-of-bob"));
    }
    let report = Maintenance::open(&path).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.problems), (3, vec![]));
}

fn owned_by(name: &str) -> Owner {
    Owner { principal: Principal::named(name), ..Owner::default() }
}

#[test]
fn a_file_of_an_older_version_has_the_same_tables_as_a_new_one() {
    let (old, new) = (tempfile::tempdir().unwrap(), StoreFolder::new());
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
fn maintenance_migrates_a_file_of_an_older_version() {
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
