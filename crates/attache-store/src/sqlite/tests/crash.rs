use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_core::{NewTask, Store};
use attache_protocol::TaskState;

use super::{StoreFolder, all, at, chunk, ended, live, owner, status, webhook};
use crate::sqlite::maintenance::Maintenance;
use crate::sqlite::{SqliteOptions, SqliteStore};

/// A crash leaves behind the database file and the write-ahead log of that moment. The test copies both instead, which is the same as
/// long as no checkpoint runs during the copy.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash_at_any_moment() {
    let folder = Arc::new(StoreFolder::new());
    let answered = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (folder, answered) = (folder.clone(), answered.clone());
            tokio::spawn(async move {
                for i in 0..40 {
                    let id = format!("t{writer}-{i}");
                    if i % 2 == 0 {
                        folder.put(ended(&id, i)).await;
                    } else {
                        let push = Some(webhook(&id, "w", "example.com"));
                        let (mut seq, _) = folder.put(NewTask { push, ..live(&id) }).await;
                        seq = folder.add(&id, seq, vec![chunk(&id, "x".repeat(30))]).await.unwrap().seq;
                        let state = if i % 4 == 1 { TaskState::Completed } else { TaskState::Working };
                        folder.add(&id, seq, vec![status(&id, state, i)]).await.unwrap();
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut moments = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let before = answered.load(Ordering::SeqCst);
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("tasks.db");
        fs::copy(folder.path(), &path).unwrap();
        fs::copy(folder.path().with_extension("db-wal"), copy.path().join("tasks.db-wal")).unwrap();
        let store = SqliteStore::open(&path, SqliteOptions::new(folder.keyring())).unwrap();
        let total = store.list(&owner(), &all()).await.unwrap().total;
        assert!(total >= before, "{total} of {before}");
        let report = Maintenance::open(&path).unwrap().check().unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.tasks as usize, total);
        store.abandoned(None, at(1000), 1000).await.unwrap();
        moments += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(moments > 0);
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().total, 320);
}
