//! The file that `attache serve` keeps its tasks in, as a user meets it: it outlives the server, and what is not a store is refused
//! and left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Program, attache};

/// A directory with room for a store and its keys.
struct TestStore {
    directory: TempDir,
}

impl TestStore {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("there is a directory for temporary files") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn arguments(&self, store: &Path) -> Vec<String> {
        let keyring = self.path("keyring.json").display().to_string();
        [
            "serve",
            "--agent",
            "echo",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &format!("sqlite:{}", store.display()),
            "--keyring",
            &keyring,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Starts a server that keeps its tasks in this file.
    async fn serve(&self, store: &Path) -> Program {
        let arguments = self.arguments(store);
        let (program, _) = Program::command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
        program
    }

    /// Starts a server that must not start, and shows what it says about it.
    async fn refused(&self, store: &Path) -> String {
        let mut command = attache();
        command.args(self.arguments(store)).kill_on_drop(true);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), command.output()).await;
        let Output { status, stdout, stderr } = ended.expect("it does not start").expect("the command runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let said = format!(
            "exit code: {:?}\n----- stdout\n{}----- stderr\n{}",
            status.code(),
            text(stdout),
            text(stderr)
        );
        said.replace(&self.directory.path().display().to_string(), "DIRECTORY")
    }

    /// A store with a task, without a running server.
    async fn used_store(&self) -> PathBuf {
        let store = self.path("tasks.db");
        let server = self.serve(&store).await;
        server.send("Hello", None).await;
        assert!(server.stop().await.success());
        store
    }

    /// Every file here, with its content.
    fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(self.directory.path()).expect("it is there");
        let files = files.map(|file| file.expect("it can be read").path());
        // The keys are made before the store is opened, and the lock says who tried last.
        let ours = ["keyring.json", "keyring.lock", "tasks.db.lock"];
        let files = files.filter(|path| path.is_file() && !ours.iter().any(|name| path.ends_with(name)));
        let mut content: Vec<_> =
            files.map(|path| (path.clone(), fs::read(path).expect("it can be read"))).collect();
        content.sort();
        content
    }
}

#[tokio::test]
async fn a_task_is_there_after_a_restart() {
    let place = TestStore::new();
    let store = place.path("new/directory/tasks.db");
    let first = place.serve(&store).await;
    let sent = first.send("Hello", None).await;
    assert!(first.stop().await.success());

    let second = place.serve(&store).await;
    let task = second.call("GetTask", json!({"id": sent["task"]["id"]})).await;
    assert_eq!(task, sent["task"]);
    let list = second.call("ListTasks", json!({"includeArtifacts": true})).await;
    assert_eq!(list["tasks"], json!([sent["task"]]));
    assert_eq!(list["totalSize"], 1);
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused_and_the_first_goes_on() {
    let place = TestStore::new();
    let store = place.path("tasks.db");
    let first = place.serve(&store).await;
    let pid = format!("pid {}", first.pid());
    insta::assert_snapshot!("store_in_use", place.refused(&store).await.replace(&pid, "pid PID"));
    let answer = first.send("Hello", None).await;
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "Hello");
    assert!(first.stop().await.success());
    place.serve(&store).await;
}

/// What a person with `sqlite3`, a backup script or a monitoring tool does.
#[cfg(unix)]
#[tokio::test]
async fn reading_the_file_from_another_program_loses_nothing() {
    use std::os::unix::fs::MetadataExt;
    let place = TestStore::new();
    let store = place.path("tasks.db");
    let log = place.path("tasks.db-wal");
    let server = place.serve(&store).await;
    let mut sent = vec![server.send("Hello", None).await["task"]["id"].clone()];
    let inode = fs::metadata(&log).expect("there is a write-ahead log").ino();
    for _ in 0..3 {
        // This process is the other program: closing its connection is what deletes the log if it is the last.
        let other = Connection::open(&store).expect("it can be opened");
        let count: i64 =
            other.query_row("SELECT count(*) FROM tasks", (), |row| row.get(0)).expect("it can be read");
        assert_eq!(count, sent.len() as i64);
        other.close().expect("it can be closed");
        assert_eq!(fs::metadata(&log).expect("the log is still there").ino(), inode);
        for _ in 0..5 {
            sent.push(server.send("Hello", None).await["task"]["id"].clone());
        }
    }
    server.kill().await;
    let server = place.serve(&store).await;
    for id in sent {
        assert_eq!(server.call("GetTask", json!({"id": id})).await["id"], id);
    }
}

#[tokio::test]
async fn a_backup_is_made_while_the_server_runs_and_can_be_served() {
    let place = TestStore::new();
    let (store, copy) = (place.path("tasks.db"), place.path("copy.db"));
    let server = place.serve(&store).await;
    let sent = server.send("Hello", None).await;
    let backup = async |json: bool| {
        let mut command = attache();
        command.args(["store", "backup", "--store", &format!("sqlite:{}", store.display())]).arg(&copy);
        command.args(json.then_some("--json")).output().await.expect("the command runs")
    };
    let made = backup(true).await;
    assert!(made.status.success(), "{made:?}");
    let report: serde_json::Value = serde_json::from_slice(&made.stdout).expect("it is JSON");
    let length = fs::metadata(&copy).expect("it is there").len();
    assert_eq!((report["backup"].as_str(), report["bytes"].as_u64()), (copy.to_str(), Some(length)));
    assert_eq!(made.stderr, b"", "no progress where nobody watches");

    let again = backup(false).await;
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8(again.stderr).expect("output is UTF-8");
    assert!(said.contains("copy.db") && said.contains("does not exist yet"), "{said}");

    assert!(server.stop().await.success());
    let restored = place.serve(&copy).await;
    assert_eq!(restored.call("GetTask", json!({"id": sent["task"]["id"]})).await, sent["task"]);
}

#[tokio::test]
async fn a_directory_is_refused() {
    let place = TestStore::new();
    let store = place.path("tasks.db");
    fs::create_dir(&store).expect("a directory is made");
    insta::assert_snapshot!("store_is_a_directory", place.refused(&store).await);
    assert_eq!(fs::read_dir(&store).expect("it is there").count(), 0);
}

#[tokio::test]
async fn a_place_where_nothing_can_be_made_is_refused() {
    let place = TestStore::new();
    fs::write(place.path("file"), "not a directory").expect("a file is made");
    insta::assert_snapshot!("store_below_a_file", place.refused(&place.path("file/tasks.db")).await);
    assert_eq!(place.content(), [(place.path("file"), b"not a directory".to_vec())]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestStore::new();
    let closed = place.path("closed");
    fs::create_dir(&closed).expect("a directory is made");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("it is ours");
    if fs::write(closed.join("probe"), "").is_ok() {
        // The superuser cannot be kept out.
        return;
    }
    insta::assert_snapshot!("store_in_a_closed_directory", place.refused(&closed.join("tasks.db")).await);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let place = TestStore::new();
    let store = place.path("tasks.db");
    fs::write(&store, "Dear diary,\n".repeat(100)).expect("a file is made");
    let before = place.content();
    insta::assert_snapshot!("store_is_a_text", place.refused(&store).await);
    assert_eq!(place.content(), before);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let place = TestStore::new();
    let store = place.path("tasks.db");
    let other = Connection::open(&store).expect("a database is made");
    other.execute_batch("CREATE TABLE songs (title TEXT); INSERT INTO songs VALUES ('Blue');").expect("SQL");
    other.close().expect("it closes");
    let before = place.content();
    insta::assert_snapshot!("store_of_another_program", place.refused(&store).await);
    assert_eq!(place.content(), before);
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let place = TestStore::new();
    let store = place.used_store().await;
    let newer = Connection::open(&store).expect("it is a database");
    newer.pragma_update(None, "user_version", 99_999).expect("it can be written");
    newer.close().expect("it closes");
    let before = place.content();
    insta::assert_snapshot!("store_of_a_newer_version", place.refused(&store).await);
    assert_eq!(place.content(), before);
}

#[tokio::test]
async fn a_store_that_lacks_its_end_is_refused_and_left_alone() {
    let place = TestStore::new();
    let store = place.used_store().await;
    let whole = fs::read(&store).expect("it can be read");
    fs::write(&store, &whole[..whole.len() / 2]).expect("it can be written");
    let before = place.content();
    let said = place.refused(&store).await.replace(&whole.len().to_string(), "WHOLE");
    insta::assert_snapshot!("store_is_cut_off", said.replace(&(whole.len() / 2).to_string(), "HALF"));
    assert_eq!(place.content(), before);
}

#[tokio::test]
async fn a_store_with_a_broken_page_is_refused_and_left_alone() {
    let place = TestStore::new();
    let store = place.used_store().await;
    let mut bytes = fs::read(&store).expect("it can be read");
    // The first page has the header, which is looked at, and the schema, which is what breaks here.
    bytes[100..4000].fill(0xff);
    fs::write(&store, &bytes).expect("it can be written");
    let before = place.content();
    insta::assert_snapshot!("store_is_broken", place.refused(&store).await);
    assert_eq!(place.content(), before);
}

#[tokio::test]
async fn a_check_finds_what_broke_where_nobody_looks_at_first() {
    let place = TestStore::new();
    let store = place.used_store().await;
    let url = format!("sqlite:{}", store.display());
    let check = async || {
        let mut command = attache();
        command.args(["store", "check", "--store", &url]).output().await.expect("the command runs")
    };
    assert!(check().await.status.success());
    let mut bytes = fs::read(&store).expect("it can be read");
    let page_size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let last_page = bytes.len() - page_size;
    bytes[last_page..].fill(0xff);
    fs::write(&store, &bytes).expect("it can be written");
    let Output { status, stderr, .. } = check().await;
    assert_eq!(status.code(), Some(1));
    let said = String::from_utf8(stderr).expect("output is UTF-8");
    assert!(said.contains(&*store.to_string_lossy()) && said.contains("damaged"), "{said}");
}
