use attache_core::{Created, Idempotency, NewTask, Owner, Principal, Seq, Store};
use attache_protocol::TaskState;

use super::{Place, all, chunk, ended, live, owner, status};
use crate::sqlite::maintenance::Maintenance;

/// Lets the file have only this many more pages.
pub(super) async fn leave_room(place: &Place, pages: i64) {
    let limit = move |db: &rusqlite::Connection| {
        let used: i64 = db.pragma_query_value(None, "page_count", |row| row.get(0))?;
        db.pragma_update_and_check(None, "max_page_count", used + pages, |_| Ok(()))?;
        Ok(())
    };
    place.inner.change(limit, |()| {}).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_an_error_for_each_and_the_end_of_nothing() {
    let place = Place::new();
    let (seq, lease) = place.put(live("open")).await;
    place.put(ended("done", 0)).await;
    leave_room(&place, 0).await;

    let big = "x".repeat(100_000);
    let other = Owner { tenant: None, principal: Principal::named("bob") };
    let idempotency = Some(Idempotency { key: "k".to_owned(), fingerprint: [0; 32] });
    let mut long = ended("big", 1);
    long.events.insert(1, chunk("big", big.as_str()));
    let results = futures::join!(
        place.create(NewTask { idempotency: idempotency.clone(), owner: other.clone(), ..long }),
        place.create(NewTask {
            events: vec![super::created("big2", 0), chunk("big2", big.as_str())],
            ..live("big2")
        }),
        place.add("open", seq, vec![chunk("open", big.as_str())]),
    );
    let errors = [
        results.0.unwrap_err().to_string(),
        results.1.unwrap_err().to_string(),
        results.2.unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("no room") && error.contains("tasks.db"), "{error}");
    }
    assert!(place.get("big").await.is_none() && place.get("big2").await.is_none());
    assert_eq!(place.get("open").await.unwrap().seq, seq);
    assert!(place.find_key(&other, "k").await.unwrap().is_none());
    assert_eq!(place.list(&owner(), &all()).await.unwrap().total, 2);

    leave_room(&place, 100_000).await;
    let created = place.create(NewTask { idempotency, owner: other, ..ended("big", 1) }).await.unwrap();
    assert!(matches!(created, Created::New { .. }));
    place.put(live("big2")).await;
    let append = attache_core::Append {
        after: seq,
        lease: Some(lease),
        idempotency: None,
        push: None,
        events: vec![chunk("open", big), status("open", TaskState::Completed, 1)],
        now: super::at(0),
    };
    assert_eq!(place.append(&"open".into(), append).await.unwrap().seq, Seq(3));
    assert_eq!(Maintenance::open(place.path()).unwrap().check().unwrap().problems, [""; 0]);
}

#[tokio::test]
async fn what_is_too_big_does_not_spoil_what_is_not() {
    let place = Place::new();
    leave_room(&place, 8).await;
    let mut big = ended("big", 1);
    big.events.insert(1, chunk("big", "x".repeat(100_000)));
    let (first, second, third) =
        futures::join!(place.create(ended("a", 0)), place.create(big), place.create(ended("b", 0)));
    assert!(first.is_ok() && second.is_err() && third.is_ok());
    assert_eq!(place.ids(all()).await, ["b", "a"]);
}
