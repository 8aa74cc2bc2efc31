//! Durability: everything that was acknowledged is unchanged after a restart. Leases end with the process.

use std::collections::BTreeSet;
use std::time::Duration;

use attache_core::{AppendError, Created, ListQuery, Outcome, Owner, PushEvents, Retention, Seq, Snapshot};
use attache_protocol::{Part, TaskState};

use crate::StoreFactory;
use crate::support::{
    TestStore, assert_same, at, chunk, id, ids, message, more, named, says, seqs, status, task, webhook,
};
use crate::values;

/// All tasks of an owner, in the order of a listing.
async fn everything(store: &TestStore, owner: &Owner) -> Vec<Snapshot> {
    store.walk(owner, &ListQuery::default(), 7).await
}

pub async fn tasks_are_unchanged_after_a_restart(factory: Box<dyn StoreFactory>) {
    let owners = [
        Owner::default(),
        named("ann"),
        Owner { tenant: Some("x".into()), ..named("ann") },
        Owner { agent: Some("x".into()), ..named("ann") },
    ];
    let store = factory.open_store().await;
    for (number, owner) in owners.iter().enumerate() {
        for state in TaskState::ALL.iter().copied() {
            let name = format!("{number} {state}");
            let made = store.make(task(&name).of(owner).then(chunk(&name, "a", "x"))).await;
            let events = [message("more"), says(&name, TaskState::Working, 1, Some("on it"))];
            store.add(&name, more(2, events).by(made.lease)).await.unwrap();
            let events = [chunk(&name, "a", "y"), says(&name, state, state as i64, Some("so"))];
            store.add(&name, more(4, events).by(made.lease)).await.unwrap();
        }
        let name = format!("large {number}");
        let large = Part::text("x".repeat(200_000));
        let draft = task(&name).of(owner).changed(|task| task.history[0].parts.push(large));
        store.make(draft.then(status(&name, TaskState::Completed, 50))).await;
    }
    let mut before = Vec::new();
    for owner in &owners {
        before.push(everything(&store, owner).await);
    }
    drop(store);
    let store = factory.open_store().await;
    for (owner, before) in owners.iter().zip(&before) {
        let after = everything(&store, owner).await;
        assert_eq!((before.len(), ids(before)), (TaskState::ALL.len() + 1, ids(&after)));
        for (one, other) in before.iter().zip(&after) {
            assert_same(one, other);
            let loaded = store.load(owner, &one.task().id).await.unwrap().unwrap();
            assert_same(one, &loaded);
        }
    }
}

pub async fn logs_continue_from_any_position_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    for (name, followed) in [("live", true), ("ended", true), ("unfollowed", false)] {
        let mut draft = task(name).then(message("1"));
        draft.0.followed = followed;
        store.make(draft).await;
        for after in (2..20).step_by(3) {
            let events = [chunk(name, "a", &after.to_string()), message("x"), chunk(name, "a", "y")];
            store.add(name, more(after, events)).await.unwrap();
        }
    }
    let log = store.read("live", 0, 20).await;
    for name in ["ended", "unfollowed"] {
        store.add(name, more(20, [status(name, TaskState::Completed, 1)])).await.unwrap();
    }
    drop(store);
    let store = factory.open_store().await;
    for seen in 0..=21 {
        for name in ["ended", "unfollowed"] {
            assert_eq!(seqs(&store.read_on(name, seen).await), (seen + 1..=21).collect::<Vec<_>>());
        }
    }
    let again = store.read("live", 0, 20).await;
    assert_eq!(seqs(&again), seqs(&log));
    assert!(
        again.iter().zip(&log).all(|(one, other)| one.event == other.event && one.json() == other.json())
    );
    // A tail continues from old events to new events and to the end, without a gap.
    let reader = tokio::spawn(crate::support::rest(store.tail(&id("live"), Seq(7))));
    store.add("live", more(20, [message("after")])).await.unwrap();
    store.add("live", more(21, [status("live", TaskState::Completed, 2)])).await.unwrap();
    assert_eq!(seqs(&reader.await.unwrap()), (8..=22).collect::<Vec<_>>());
}

pub async fn a_long_task_continues_after_each_restart(factory: Box<dyn StoreFactory>) {
    let mut store = factory.open_store().await;
    store.make(task("t")).await;
    let (mut after, mut text) = (1, String::new());
    for round in 0..4 {
        for batch in 0..25 {
            let piece = format!("{round}.{batch} ").repeat(200);
            store.add("t", more(after, [chunk("t", "a", &piece), message("x")])).await.unwrap();
            (after, text) = (after + 2, text + &piece);
        }
        let before = store.get("t").await;
        drop(store);
        store = factory.open_store().await;
        assert_same(&store.get("t").await, &before);
        assert_eq!(store.get("t").await.task().artifact("a").unwrap().text(), text);
        assert_eq!(seqs(&store.read("t", 0, after as usize).await), (1..=after).collect::<Vec<_>>());
    }
    store.add("t", more(after, [status("t", TaskState::Completed, 1)])).await.unwrap();
    let before = store.get("t").await;
    drop(store);
    assert_same(&factory.open_store().await.get("t").await, &before);
}

pub async fn used_keys_stay_used_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    let me = Owner::default();
    store.make(task("t").key("k", 1)).await;
    store.make(task("u").of(&named("ann")).key("k", 2)).await;
    store.add("t", more(1, [message("x")]).key(&me, "m", 3)).await.unwrap();
    assert!(store.add("t", more(9, [message("x")]).key(&me, "refused", 4)).await.is_err());
    drop(store);
    let store = factory.open_store().await;
    let known = store.find_key(&me, "k").await.unwrap().unwrap();
    assert_eq!((known.task, known.fingerprint), (id("t"), [1; 32]));
    assert_eq!(store.find_key(&named("ann"), "k").await.unwrap().unwrap().task, id("u"));
    assert!(store.find_key(&me, "refused").await.unwrap().is_none());
    assert!(matches!(store.create(task("v").key("k", 1).0).await.unwrap(), Created::KeyUsed(_)));
    let repeated = store.add("t", more(2, [message("x")]).key(&me, "m", 3)).await.unwrap_err();
    assert!(matches!(repeated, AppendError::KeyUsed(known) if known.fingerprint == [3; 32]));
}

pub async fn webhooks_keep_their_secrets_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    store.make(task("t").webhook(webhook("t", "z", "one", PushEvents::States))).await;
    for name in ["b", "a"] {
        store.put("t", webhook("t", name, "two", PushEvents::Everything)).await;
    }
    store.put("t", webhook("t", "z", "three", PushEvents::Everything)).await;
    store.outbox().delete_webhook(&id("t"), "b").await.unwrap();
    let before = store.hooks("t").await;
    drop(store);
    let store = factory.open_store().await;
    assert_eq!(store.hooks("t").await, before);
    assert_eq!(before[0].config.token.as_deref(), Some("token of z"));
    // They still get deliveries.
    store.deliver_all("three", 0).await;
    store.add("t", more(1, [chunk("t", "a", "x")])).await.unwrap();
    for receiver in ["two", "three"] {
        assert_eq!(store.take_seqs(receiver, 0).await, [2], "{receiver}");
    }
}

pub async fn pending_deliveries_stay_in_order_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store
        .add("t", more(1, [status("t", TaskState::Working, 1), status("t", TaskState::Completed, 2)]))
        .await
        .unwrap();
    store.make(task("u").since(5).webhook(webhook("u", "w", "two", PushEvents::States))).await;
    for again in [100, 200] {
        let taken = store.take("one", again - 100).await.remove(0);
        store.settle(&taken.id, Outcome::Failed { again: at(again), error: "no".into() }).await;
    }
    let before = store.outbox().due_receivers(at(10)).await.unwrap();
    drop(store);
    let store = factory.open_store().await;
    let after = store.outbox().due_receivers(at(10)).await.unwrap();
    assert_eq!(after, before);
    assert_eq!((after.now, after.next), (vec!["two".to_owned()], Some(at(200))));
    assert!(store.take("one", 199).await.is_empty());
    let told = store.deliver_all("one", 200).await;
    let told: Vec<_> = told.iter().map(|delivery| (delivery.id.seq.0, delivery.attempts)).collect();
    assert_eq!(told, [(1, 2), (2, 0), (3, 0)]);
}

pub async fn a_taken_delivery_is_due_again_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    let taken = store.take("one", 0).await.remove(0);
    drop(store);
    let store = factory.open_store().await;
    let again = store.take("one", 10_000).await.remove(0);
    assert_eq!((again.id.token(), again.entry.json()), (taken.id.token(), taken.entry.json()));
    assert_eq!(again.webhook, taken.webhook);
    store.settle(&again.id, Outcome::Delivered).await;
    drop(store);
    assert!(factory.open_store().await.take("one", 99_000).await.is_empty());
}

pub async fn dead_deliveries_stay_dead_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    for name in ["b", "a", "c"] {
        store.make(task(name).webhook(webhook(name, "w", name, PushEvents::States))).await;
        let taken = store.take(name, 0).await.remove(0);
        store.settle(&taken.id, Outcome::GivenUp { at: at(3), error: format!("no {name}") }).await;
    }
    let before = store.outbox().list_dead(None, 9).await.unwrap();
    drop(store);
    let store = factory.open_store().await;
    let after = store.outbox().list_dead(None, 9).await.unwrap();
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    assert_eq!(after.iter().map(|dead| &*dead.error).collect::<Vec<_>>(), ["no b", "no a", "no c"]);
    assert_eq!(store.outbox().retry_dead(Some(&after[1].id), at(9)).await.unwrap(), 1);
    drop(store);
    let store = factory.open_store().await;
    assert_eq!(store.dead().await, [after[0].id.clone(), after[2].id.clone()]);
    assert_eq!(store.take_seqs("a", 9).await, [1]);
}

pub async fn listings_and_totals_are_unchanged_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    let states = [TaskState::Working, TaskState::Completed, TaskState::InputRequired, TaskState::Failed];
    for number in 0..50_usize {
        let name = number.to_string();
        let context = ["c0", "c1"][number % 2];
        store.make(task(&name).in_context(context).since(number as i64)).await;
        if number % 3 != 0 {
            let event = status(&name, states[number % 4], 1_000 - number as i64);
            store.add(&name, more(1, [event])).await.unwrap();
        }
    }
    let mut queries = Vec::new();
    for state in [None].into_iter().chain(states.map(Some)) {
        for context in [None, Some("c1".into())] {
            for since in [None, Some(at(20)), Some(at(970))] {
                queries.push(ListQuery {
                    context: context.clone(),
                    state,
                    since,
                    limit: 5,
                    ..ListQuery::default()
                });
            }
        }
    }
    let me = Owner::default();
    let mut before = Vec::new();
    for query in &queries {
        let (page, next, total) = store.page(&me, query).await;
        before.push((ids(&page), next, total, ids(&store.walk(&me, query, 4).await)));
    }
    drop(store);
    let store = factory.open_store().await;
    for (query, before) in queries.iter().zip(&before) {
        let (page, next, total) = store.page(&me, query).await;
        assert_eq!(&(ids(&page), next, total, ids(&store.walk(&me, query, 4).await)), before, "{query:?}");
    }
    // A cursor from before the restart is still valid.
    let query = ListQuery { limit: 50, after: before[0].1, ..ListQuery::default() };
    let (rest, ..) = store.page(&me, &query).await;
    assert_eq!(ids(&rest), before[0].3[5..]);
}

pub async fn leases_end_with_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    let old = store.make(task("t").lease(1_000_000)).await.lease;
    store.make(task("asking").state(TaskState::InputRequired).lease(1_000_000)).await;
    store.make(task("ended").state(TaskState::Completed)).await;
    store.make(task("moved").of(&named("ann")).state(TaskState::InputRequired)).await;
    store.add("moved", more(1, [status("moved", TaskState::Working, 1)])).await.unwrap();
    assert!(store.abandoned(None, at(0), 9).await.unwrap().is_empty());
    drop(store);
    let store = factory.open_store().await;
    let abandoned = store.abandoned(None, at(0), 9).await.unwrap();
    let left: BTreeSet<_> = abandoned.iter().map(|left| left.task.task().id.as_str().to_owned()).collect();
    assert_eq!(left, ["moved".to_owned(), "t".to_owned()].into());
    assert!(abandoned.iter().any(|left| left.owner == named("ann") && left.task.seq == Seq(2)));
    let refused = store.add("t", more(1, [message("x")]).by(old)).await.unwrap_err();
    assert!(matches!(refused, AppendError::LeaseLost), "{refused}");
    let new = store.can_claim("t", 0, 1_000).await.unwrap();
    store.add("t", more(1, [message("x")]).by(new)).await.unwrap();
    assert_eq!(store.abandoned(None, at(0), 9).await.unwrap().len(), 1);
}

pub async fn pruned_tasks_stay_pruned_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    for number in 0..6 {
        let name = number.to_string();
        store.make(task(&name).key(&name, 1).then(status(&name, TaskState::Completed, number))).await;
    }
    store.make(task("live")).await;
    assert_eq!(store.prune(&Retention::default().max_tasks(2), at(9), 9).await.unwrap(), 4);
    drop(store);
    let store = factory.open_store().await;
    let (tasks, _, total) =
        store.page(&Owner::default(), &ListQuery { limit: 9, ..ListQuery::default() }).await;
    assert_eq!((ids(&tasks), total), (vec!["5".into(), "4".into(), "live".into()], 3));
    assert!(store.find("3").await.is_none());
    assert!(store.find_key(&Owner::default(), "3").await.unwrap().is_none());
    assert!(store.read_on("3", 0).await.is_empty());
    // A new task with a pruned id is independent of the old one.
    store.make(task("3").then(message("new"))).await;
    assert_eq!(store.get("3").await.task().history.len(), 2);
    let age = Retention::default().max_age(Duration::ZERO);
    assert_eq!(store.prune(&age, at(9), 9).await.unwrap(), 2);
}

pub async fn a_store_can_be_opened_many_times(factory: Box<dyn StoreFactory>) {
    for round in 0..6 {
        let store = factory.open_store().await;
        assert_eq!(everything(&store, &Owner::default()).await.len(), round);
        // A tail does not keep the store open.
        let name = round.to_string();
        let tail = store.tail(&id(&name), Seq::START);
        store.make(task(&name)).await;
        let following = store.tail(&id(&name), Seq::START);
        drop((store, tail));
        drop(following);
    }
}

pub async fn readers_never_see_a_task_go_back(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    let names: Vec<_> = (0..6).map(|number| format!("{number}-task")).collect();
    for name in &names {
        let made = store.make(task(name)).await;
        store.release(&id(name), made.lease).await.unwrap();
    }
    let tails: Vec<_> = names.iter().map(|name| store.tail(&id(name), Seq::START)).collect();
    let tails: Vec<_> = tails.into_iter().map(|tail| tokio::spawn(crate::support::rest(tail))).collect();
    let readers = (0..3).map(|_| {
        let (store, names) = (store.clone(), names.clone());
        tokio::spawn(async move {
            let mut seen = vec![0; names.len()];
            for _ in 0..40 {
                for (name, seen) in names.iter().zip(&mut seen) {
                    let snapshot = store.get(name).await;
                    // The task was created with one message, and every event adds one.
                    assert_eq!(snapshot.task().history.len() as u64, snapshot.seq.0);
                    assert!(snapshot.seq.0 >= *seen, "`{name}` went back to {}", snapshot.seq);
                    *seen = snapshot.seq.0;
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    let writers = (0..4).map(|writer| {
        let (store, names) = (store.clone(), names.clone());
        tokio::spawn(async move {
            for number in 0..24 {
                let name = &names[(writer + number) % names.len()];
                store.add_anywhere(name, vec![message(&format!("{writer}.{number}"))], 0).await;
            }
        })
    });
    for worker in readers.chain(writers).collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    for name in &names {
        store.add_anywhere(name, vec![status(name, TaskState::Completed, 1)], 0).await;
    }
    for tail in tails {
        assert_eq!(seqs(&tail.await.unwrap()), (1..=18).collect::<Vec<_>>());
    }
}

pub async fn values_and_their_order_are_unchanged_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    for text in values::ODD.iter().rev() {
        values::set(&store, "odd", text, text).await;
    }
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    for scope in ["", "ä", "z"] {
        for key in ["b", "a", "c"] {
            values::set(&store, scope, key, "0").await;
        }
        values::remove(&store, scope, "b").await;
        values::set(&store, scope, "b", &large).await;
    }
    let mut before = Vec::new();
    for scope in values::scopes(&store).await {
        before.push((scope.clone(), values::list(&store, &scope).await));
    }
    drop(store);
    let store = factory.open_store().await;
    assert_eq!(values::scopes(&store).await.len(), before.len());
    for (scope, expected) in &before {
        assert_eq!(&values::list(&store, scope).await, expected);
    }
    // New keys are listed after old ones.
    values::set(&store, "z", "0", "1").await;
    assert_eq!(values::keys(&store, "z").await, ["a", "c", "b", "0"]);
    assert_eq!(values::count(&store, "z", "a").await, 1);
}

pub async fn a_removed_value_stays_removed_after_a_restart(factory: Box<dyn StoreFactory>) {
    let store = factory.open_store().await;
    for key in ["a", "b"] {
        values::set(&store, "s", key, "1").await;
    }
    values::set(&store, "t", "a", "1").await;
    values::remove(&store, "s", "b").await;
    values::remove(&store, "t", "a").await;
    drop(store);
    let store = factory.open_store().await;
    assert_eq!(
        (values::scopes(&store).await, values::keys(&store, "s").await),
        (vec!["s".into()], vec!["a".into()])
    );
    assert_eq!(values::get(&store, "t", "a").await, None);
}
