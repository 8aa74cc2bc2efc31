//! The promises of the directory: content is whole, stored once, and removed with its last task, whatever step is interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    ArtifactError, ArtifactStore, ContentId, ContentPlace, MemoryStore, NewTask, OpenedContent, Owner,
    Principal, Store, StoredContent, Swept, TaskEvent,
};
use attache_files::identity::link_count;
use attache_protocol::{Task, TaskState, TaskStatus, Timestamp};
use bytes::Bytes;
use proptest::prelude::*;

use attache_store::{DirectoryOpenError, DirectoryOptions, DirectoryStore, Steps};

fn options() -> DirectoryOptions {
    DirectoryOptions::default().grace(Duration::ZERO)
}

fn place(task: &str, name: &str) -> ContentPlace {
    ContentPlace {
        owner: Owner { principal: Principal::named("alice"), ..Owner::default() },
        task: task.into(),
        filename: Some(name.to_owned()),
        media_type: Some("text/plain".to_owned()),
    }
}

async fn put(store: &DirectoryStore, task: &str, content: &[u8]) -> Result<StoredContent, ArtifactError> {
    let mut writer = store.create().await?;
    for chunk in content.chunks(7) {
        writer.write(Bytes::copy_from_slice(chunk)).await?;
    }
    writer.commit(place(task, "a.txt")).await
}

async fn get(store: &DirectoryStore, task: &str, id: &ContentId) -> Option<Vec<u8>> {
    match store.open(&task.into(), id, Some("a.txt")).await.unwrap() {
        OpenedContent::Found(mut reader) => {
            let mut all = Vec::new();
            while let chunk = reader.read(all.len() as u64, 5).await.unwrap()
                && !chunk.is_empty()
            {
                all.extend_from_slice(&chunk);
            }
            assert_eq!(all.len() as u64, reader.size());
            Some(all)
        }
        OpenedContent::Expired | OpenedContent::Missing => None,
    }
}

/// A store that has these tasks.
async fn with_tasks<'a>(tasks: impl IntoIterator<Item = &'a str>) -> MemoryStore {
    let store = MemoryStore::new();
    for task in tasks {
        let now = Timestamp::UNIX_EPOCH;
        let status = TaskStatus { state: TaskState::Working, message: None, timestamp: Some(now) };
        let created = Task { id: task.into(), status, ..Task::default() };
        let new = NewTask {
            owner: place(task, "").owner,
            events: vec![TaskEvent::Created(Arc::new(created))],
            now,
            followed: false,
            lease_until: now,
            idempotency: None,
            push: None,
        };
        store.create(new).await.unwrap();
    }
    store
}

/// Every file below a folder, with its number of names.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        match metadata.is_dir() {
            true => found.extend(files(&entry.path())),
            false => {
                let name = entry.file_name().into_string().unwrap();
                found.push((name, link_count(&metadata).unwrap_or_default()));
            }
        }
    }
    found
}

#[tokio::test]
async fn equal_content_is_stored_once_and_removed_with_its_last_task() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), options()).unwrap();
    let content = b"the same in both tasks".repeat(100);
    let one = put(&store, "one", &content).await.unwrap();
    let two = put(&store, "two", &content).await.unwrap();
    assert_eq!((one.size, &one), (content.len() as u64, &two));
    assert_eq!(store.stored_bytes(), one.size);
    let swept = store.sweep(&with_tasks(["two"]).await).await.unwrap();
    assert_eq!((swept.tasks, swept.bytes, store.stored_bytes()), (1, 0, one.size));
    assert_eq!(get(&store, "one", &one.id).await, None);
    assert_eq!(get(&store, "two", &two.id).await, Some(content));
    let swept = store.sweep(&with_tasks([]).await).await.unwrap();
    assert_eq!((swept.tasks, swept.bytes, store.stored_bytes()), (1, one.size, 0));
    assert_eq!(files(&folder.path().join("tasks")), []);
    assert_eq!(files(&folder.path().join("content")), []);
}

#[tokio::test]
async fn a_turn_that_runs_again_stores_the_same_content_under_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), options()).unwrap();
    let first = put(&store, "task", b"content").await.unwrap();
    assert_eq!(put(&store, "task", b"content").await.unwrap(), first);
    assert_eq!(store.stored_bytes(), 7);
}

#[tokio::test]
async fn content_beyond_a_limit_is_refused_and_nothing_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), options().max_size(20).max_total(30)).unwrap();
    assert!(matches!(put(&store, "a", &[1; 21]).await, Err(ArtifactError::TooLarge { limit: 20 })));
    put(&store, "a", &[1; 20]).await.unwrap();
    assert!(matches!(put(&store, "b", &[2; 11]).await, Err(ArtifactError::Full { limit: 30 })));
    put(&store, "b", &[2; 10]).await.unwrap();
    assert_eq!((store.stored_bytes(), files(&folder.path().join("temporary"))), (30, vec![]));
    // Content that is there already needs no space, but may be written only where there is some.
    assert!(matches!(put(&store, "c", &[2; 10]).await, Err(ArtifactError::Full { .. })));
    store.sweep(&with_tasks(["b"]).await).await.unwrap();
    put(&store, "c", &[2; 10]).await.unwrap();
    assert_eq!(store.stored_bytes(), 10);
}

#[test]
fn the_default_limits_are_the_documented_ones() {
    const DOCUMENT: &str = include_str!("../../../docs/limits.md");
    let (options, gib) = (DirectoryOptions::default(), 1024 * 1024 * 1024);
    assert_eq!((options.max_size, options.max_total), (gib, 10 * gib));
    let row = "| `artifacts.max-size`, `artifacts.max-total` (`DirectoryOptions`) | 1 GiB for one file, 10 GiB for all";
    assert!(DOCUMENT.contains(row));
}

#[tokio::test]
async fn content_that_is_too_old_is_removed_and_known_to_have_been_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), options().keep(Some(Duration::ZERO))).unwrap();
    let stored = put(&store, "task", b"old").await.unwrap();
    let swept = store.sweep(&with_tasks(["task"]).await).await.unwrap();
    assert_eq!((swept.expired, swept.bytes), (1, 3));
    let opened = store.open(&"task".into(), &stored.id, Some("a.txt")).await.unwrap();
    assert!(matches!(opened, OpenedContent::Expired));
    assert_eq!(store.sweep(&with_tasks(["task"]).await).await.unwrap(), Swept::default());
    put(&store, "task", b"old").await.unwrap();
    assert_eq!(get(&store, "task", &stored.id).await, Some(b"old".to_vec()));
}

#[tokio::test]
async fn content_is_left_alone_for_a_while_before_its_task_exists() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), DirectoryOptions::default()).unwrap();
    let stored = put(&store, "new", b"content").await.unwrap();
    assert_eq!(store.sweep(&with_tasks([]).await).await.unwrap(), Swept::default());
    assert!(get(&store, "new", &stored.id).await.is_some());
}

#[tokio::test]
async fn content_that_is_being_written_survives_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(folder.path(), options()).unwrap();
    let mut writer = store.create().await.unwrap();
    writer.write(Bytes::from_static(b"half")).await.unwrap();
    store.sweep(&with_tasks([]).await).await.unwrap();
    writer.write(Bytes::from_static(b" and half")).await.unwrap();
    let stored = writer.commit(place("task", "a.txt")).await.unwrap();
    assert_eq!(get(&store, "task", &stored.id).await, Some(b"half and half".to_vec()));
}

#[cfg(unix)]
#[tokio::test]
async fn everything_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    fn check(path: &Path) {
        let metadata = fs::symlink_metadata(path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
        if metadata.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| check(&entry.unwrap().path()));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/artifacts");
    let named = options().store_name(Some("sqlite:x".to_owned()));
    let store = DirectoryStore::open(&path, named).unwrap();
    put(&store, "../hostile", b"content").await.unwrap();
    check(&folder.path().join("deep"));
}

#[tokio::test]
async fn a_directory_belongs_to_one_server_and_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| options().store_name(Some(name.to_owned()));
    let first = DirectoryStore::open(folder.path(), named("sqlite:a")).unwrap();
    let second = DirectoryStore::open(folder.path(), named("sqlite:a"));
    assert!(matches!(second, Err(DirectoryOpenError::InUse { .. })));
    drop(first);
    let other = DirectoryStore::open(folder.path(), named("sqlite:b")).unwrap_err().to_string();
    assert!(other.contains("sqlite:a") && other.contains("sqlite:b"), "{other}");
    drop(DirectoryStore::open(folder.path(), named("sqlite:a")).unwrap());
    let shared = [(); 2].map(|()| DirectoryStore::open(folder.path(), options().shared(true)).unwrap());
    assert!(shared.iter().all(|store| store.is_shared()));
}

/// Stops at the step of this number, as a crash would.
#[derive(Debug)]
struct CrashAt {
    step: usize,
    done: AtomicUsize,
    crashed: AtomicBool,
}

impl Steps for CrashAt {
    fn before(&self, step: &'static str) -> io::Result<()> {
        if self.has_crashed() || self.done.fetch_add(1, Ordering::Relaxed) == self.step {
            self.crashed.store(true, Ordering::Relaxed);
            return Err(io::Error::other(step));
        }
        Ok(())
    }

    fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone)]
enum Action {
    Store { task: u8, content: u8 },
    Delete { task: u8 },
    Sweep,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3u8, 0..3u8).prop_map(|(task, content)| Action::Store { task, content }),
        2 => (0..3u8).prop_map(|task| Action::Delete { task }),
        2 => Just(Action::Sweep),
    ]
}

fn name(task: u8) -> String {
    format!("task-{task}")
}

fn content_of(content: u8) -> Vec<u8> {
    vec![content; 10 + usize::from(content)]
}

/// The tasks that exist, with the content that their events refer to.
type Model = BTreeMap<String, BTreeSet<(u8, String)>>;

async fn run(store: &DirectoryStore, actions: &[Action], model: &mut Model) -> Result<(), ArtifactError> {
    for action in actions {
        match action {
            Action::Store { task, content } => {
                let stored = put(store, &name(*task), &content_of(*content)).await?;
                model.entry(name(*task)).or_default().insert((*content, stored.id.to_string()));
            }
            Action::Delete { task } => {
                model.remove(&name(*task));
            }
            Action::Sweep => {
                let tasks = with_tasks(model.keys().map(String::as_str)).await;
                store.sweep(&tasks).await?;
            }
        }
    }
    Ok(())
}

async fn check_content(store: &DirectoryStore, model: &Model) {
    for (task, contents) in model {
        for (content, id) in contents {
            let id = ContentId::parse(id).unwrap();
            assert_eq!(get(store, task, &id).await, Some(content_of(*content)), "{task} {content}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_crash_at_any_step_loses_no_acknowledged_content_and_leaves_nothing_for_good(
        actions in proptest::collection::vec(action(), 1..12),
        step in 0..120usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let crash = Arc::new(CrashAt { step, done: AtomicUsize::new(0), crashed: AtomicBool::new(false) });
            let store = DirectoryStore::open_with(folder.path().to_owned(), options(), crash.clone()).unwrap();
            let mut model = Model::new();
            let ran = run(&store, &actions, &mut model).await;
            assert_eq!(ran.is_err(), crash.has_crashed());
            drop(store);

            let store = DirectoryStore::open(folder.path(), options()).unwrap();
            check_content(&store, &model).await;
            store.sweep(&with_tasks(model.keys().map(String::as_str)).await).await.unwrap();
            check_content(&store, &model).await;
            assert_eq!(files(&folder.path().join("temporary")), []);
            let folders = fs::read_dir(folder.path().join("tasks")).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(folders.into_iter().all(|folder| model.contains_key(folder.to_str().unwrap())));
            assert!(files(&folder.path().join("content")).iter().all(|(_, names)| *names > 1));
            // All tasks go, and so does everything else.
            store.sweep(&with_tasks([]).await).await.unwrap();
            assert_eq!(store.stored_bytes(), 0);
            for below in ["tasks", "content", "temporary"] {
                assert_eq!(files(&folder.path().join(below)), []);
            }
        });
    }
}
