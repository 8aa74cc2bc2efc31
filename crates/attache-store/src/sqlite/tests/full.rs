use attache_core::{Created, Idempotency, NewTask, Owner, Principal, Seq, Store};
use attache_protocol::TaskState;

use super::{StoreFolder, all, chunk, ended, live, owner, status};
use crate::sqlite::maintenance::Maintenance;

/// Limits the file to this many more pages.
pub(super) async fn leave_room(folder: &StoreFolder, pages: i64) {
    let limit = move |db: &rusqlite::Connection| {
        let used: i64 = db.pragma_query_value(None, "page_count", |row| row.get(0))?;
        db.pragma_update_and_check(None, "max_page_count", used + pages, |_| Ok(()))?;
        Ok(())
    };
    folder.inner.change(limit, |()| {}).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_fails_each_write_and_the_store_recovers() {
    let folder = StoreFolder::new();
    let (seq, lease) = folder.put(live("open")).await;
    folder.put(ended("done", 0)).await;
    leave_room(&folder, 0).await;

    let big = "x".repeat(100_000);
    let other = Owner { principal: Principal::named("bob"), ..Owner::default() };
    let idempotency = Some(Idempotency { key: "k".to_owned(), fingerprint: [0; 32] });
    let mut long = ended("big", 1);
    long.events.insert(1, chunk("big", big.as_str()));
    let results = futures::join!(
        folder.create(NewTask { idempotency: idempotency.clone(), owner: other.clone(), ..long }),
        folder.create(NewTask {
            events: vec![super::created("big2", 0), chunk("big2", big.as_str())],
            ..live("big2")
        }),
        folder.add("open", seq, vec![chunk("open", big.as_str())]),
    );
    let errors = [
        results.0.unwrap_err().to_string(),
        results.1.unwrap_err().to_string(),
        results.2.unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("no space") && error.contains("tasks.db"), "{error}");
    }
    assert!(folder.get("big").await.is_none() && folder.get("big2").await.is_none());
    assert_eq!(folder.get("open").await.unwrap().seq, seq);
    assert!(folder.find_key(&other, "k").await.unwrap().is_none());
    assert_eq!(folder.list(&owner(), &all()).await.unwrap().total, 2);

    leave_room(&folder, 100_000).await;
    let created = folder.create(NewTask { idempotency, owner: other, ..ended("big", 1) }).await.unwrap();
    assert!(matches!(created, Created::New { .. }));
    folder.put(live("big2")).await;
    let append = attache_core::Append {
        after: seq,
        lease: Some(lease),
        idempotency: None,
        push: None,
        events: vec![chunk("open", big), status("open", TaskState::Completed, 1)],
        now: super::at(0),
    };
    assert_eq!(folder.append(&"open".into(), append).await.unwrap().seq, Seq(3));
    assert_eq!(Maintenance::open(folder.path()).unwrap().check().unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn a_write_that_is_too_large_does_not_fail_the_others() {
    let folder = StoreFolder::new();
    leave_room(&folder, 8).await;
    let mut big = ended("big", 1);
    big.events.insert(1, chunk("big", "x".repeat(100_000)));
    let (first, second, third) =
        futures::join!(folder.create(ended("a", 0)), folder.create(big), folder.create(ended("b", 0)));
    assert!(first.is_ok() && second.is_err() && third.is_ok());
    assert_eq!(folder.ids(all()).await, ["b", "a"]);
}
