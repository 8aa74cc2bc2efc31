//! Idempotency keys: a key of an owner creates one task or makes one append, also under concurrency.

use attache_core::{AppendError, Created, Lease, ListQuery, Owner, Seq, UsedKey};
use attache_protocol::TaskState;

use crate::support::{TestStore, chunk, id, message, more, named, status, task};

fn known(task: &str, fingerprint: u8) -> UsedKey {
    UsedKey { task: id(task), fingerprint: [fingerprint; 32] }
}

#[track_caller]
fn refused_as(result: Result<attache_core::Appended, AppendError>, expected: &UsedKey) {
    match result {
        Err(AppendError::KeyUsed(known)) => assert_eq!(&known, expected),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("appended twice"),
    }
}

pub async fn a_key_creates_one_task(store: TestStore) {
    let me = Owner::default();
    assert!(store.find_key(&me, "k").await.unwrap().is_none());
    store.make(task("first").key("k", 1)).await;
    for fingerprint in [1, 2] {
        let again = store.create(task("second").key("k", fingerprint).0).await.unwrap();
        assert!(matches!(again, Created::KeyUsed(first) if first == known("first", 1)));
    }
    assert!(store.find("second").await.is_none());
    assert_eq!(store.page(&me, &ListQuery { limit: 9, ..ListQuery::default() }).await.2, 1);
    assert_eq!(store.find_key(&me, "k").await.unwrap(), Some(known("first", 1)));
    // The key stays used after the task has ended.
    store.add("first", more(1, [status("first", TaskState::Completed, 1)])).await.unwrap();
    assert!(matches!(store.create(task("third").key("k", 1).0).await.unwrap(), Created::KeyUsed(_)));
}

pub async fn concurrent_creates_with_one_key_make_one_task(store: TestStore) {
    let creators = (0..64).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let name = format!("t{number}");
            match store.create(task(&name).key("k", number).0).await.unwrap() {
                Created::New { .. } => (true, known(&name, number)),
                Created::KeyUsed(known) => (false, known),
                Created::Taken => panic!("the id is taken"),
            }
        })
    });
    let mut answers = Vec::new();
    for creator in creators.collect::<Vec<_>>() {
        answers.push(creator.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(new, _)| *new).count(), 1);
    assert!(answers.iter().all(|(_, known)| *known == answers[0].1), "{answers:?}");
    assert_eq!(store.page(&Owner::default(), &ListQuery { limit: 99, ..ListQuery::default() }).await.2, 1);
}

pub async fn a_task_found_by_its_key_can_be_read(store: TestStore) {
    for round in 0..20 {
        let key = format!("k{round}");
        let creators = (0..4).map(|number| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                let draft = task(&format!("{round}-{number}")).key(&key, 1);
                if let Created::KeyUsed(known) = store.create(draft.0).await.unwrap() {
                    assert!(store.load(&Owner::default(), &known.task).await.unwrap().is_some());
                }
            })
        });
        for creator in creators.collect::<Vec<_>>() {
            creator.await.unwrap();
        }
    }
}

pub async fn keys_of_different_owners_are_independent(store: TestStore) {
    let tenant = |name: &str| Owner { tenant: Some(name.into()), ..named("ann") };
    let owners = [Owner::default(), named("ann"), named("bob"), tenant("x"), tenant("y")];
    for (number, owner) in (0..).zip(&owners) {
        store.make(task(&number.to_string()).of(owner).key("k", number)).await;
    }
    for (number, owner) in (0..).zip(&owners) {
        assert_eq!(store.find_key(owner, "k").await.unwrap(), Some(known(&number.to_string(), number)));
    }
    assert!(store.find_key(&named("eve"), "k").await.unwrap().is_none());
    assert!(store.find_key(&tenant("z"), "k").await.unwrap().is_none());
}

pub async fn keys_are_compared_exactly(store: TestStore) {
    let long = "x".repeat(255);
    let keys = ["k", "K", "k ", " k", "", "%", "k%", "1", "01", "1.0", &long];
    for (number, key) in (0..).zip(keys) {
        store.make(task(&number.to_string()).key(key, number)).await;
    }
    for (number, key) in (0..).zip(keys) {
        let found = store.find_key(&Owner::default(), key).await.unwrap();
        assert_eq!(found, Some(known(&number.to_string(), number)), "{key}");
    }
}

pub async fn a_key_makes_one_append(store: TestStore) {
    let me = Owner::default();
    store.make(task("t")).await;
    let keyed = |after, text: &str| more(after, [message(text)]).key(&me, "k", 1);
    assert_eq!(store.add("t", keyed(1, "once")).await.unwrap().seq, Seq(2));
    for after in [1, 2] {
        refused_as(store.add("t", keyed(after, "twice")).await, &known("t", 1));
    }
    assert_eq!(store.find_key(&me, "k").await.unwrap(), Some(known("t", 1)));
    assert_eq!(store.get("t").await.task().history.len(), 2);
    // The same key of another owner is independent.
    let other = more(2, [message("more")]).key(&named("ann"), "k", 2);
    assert_eq!(store.add("t", other).await.unwrap().seq, Seq(3));
}

pub async fn concurrent_appends_with_one_key_make_one_append(store: TestStore) {
    store.make(task("t")).await;
    let appenders = (0..32).map(|number: u8| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut after = 1;
            loop {
                let events = [message(&number.to_string())];
                match store.add("t", more(after, events).key(&Owner::default(), "k", number)).await {
                    Ok(_) => return (true, known("t", number)),
                    Err(AppendError::KeyUsed(known)) => return (false, known),
                    Err(AppendError::Conflict(seq)) => after = seq.0,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let mut answers = Vec::new();
    for appender in appenders.collect::<Vec<_>>() {
        answers.push(appender.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|(new, _)| *new).count(), 1);
    assert!(answers.iter().all(|(_, known)| *known == answers[0].1), "{answers:?}");
    assert_eq!(store.get("t").await.seq, Seq(2));
}

pub async fn a_key_is_used_by_a_task_or_an_append_but_not_by_both(store: TestStore) {
    let me = Owner::default();
    store.make(task("t").key("of a task", 1)).await;
    refused_as(store.add("t", more(1, [message("x")]).key(&me, "of a task", 1)).await, &known("t", 1));
    store.add("t", more(1, [message("x")]).key(&me, "of an append", 2)).await.unwrap();
    let created = store.create(task("u").key("of an append", 2).0).await.unwrap();
    assert!(matches!(created, Created::KeyUsed(first) if first == known("t", 2)));
    store.make(task("u")).await;
    refused_as(store.add("u", more(1, [message("x")]).key(&me, "of an append", 2)).await, &known("t", 2));
}

pub async fn an_append_that_is_refused_leaves_its_key_unused(store: TestStore) {
    let me = Owner::default();
    let made = store.make(task("t")).await;
    let keyed = |after| more(after, [message("x")]).key(&me, "k", 1);
    let ends_early = [status("t", TaskState::Completed, 1), chunk("t", "a", "x")];
    let refusals = [
        store.add("missing", keyed(1)).await,
        store.add("t", keyed(7)).await,
        store.add("t", keyed(1).by(Lease(made.lease.0 + 1_000))).await,
        store.add("t", more(1, ends_early).key(&me, "k", 1)).await,
    ];
    assert!(refusals.iter().all(Result::is_err));
    assert!(store.find_key(&me, "k").await.unwrap().is_none());
    assert_eq!(store.add("t", keyed(1).by(made.lease)).await.unwrap().seq, Seq(2));

    store.add("t", more(2, [status("t", TaskState::Completed, 1)])).await.unwrap();
    let late = store.add("t", more(3, [message("x")]).key(&me, "late", 1)).await.unwrap_err();
    assert!(matches!(late, AppendError::Ended(_)));
    assert!(store.find_key(&me, "late").await.unwrap().is_none());
}
