//! The outbox: deliveries to webhooks, one at a time and in order, until each is delivered or dead.

use attache_core::{Delivery, DeliveryId, DueReceivers, Outcome, Owner, Principal, PushEvents, Seq};
use attache_protocol::TaskState;

use crate::support::{TestStore, at, chunk, id, message, more, soon, status, task, webhook};

/// Creates a task `t` with a webhook, and makes the delivery of its creation.
async fn create_and_deliver(store: &TestStore, events: PushEvents) {
    store.make(task("t").webhook(webhook("t", "w", "one", events))).await;
    assert_eq!(store.deliver_all("one", 0).await.len(), 1);
}

fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.id.seq.0).collect()
}

async fn due(store: &TestStore, now: i64) -> DueReceivers {
    store.outbox().due_receivers(at(now)).await.unwrap()
}

fn given_up(now: i64, error: &str) -> Outcome {
    Outcome::GivenUp { at: at(now), error: error.to_owned() }
}

pub async fn a_webhook_gets_the_events_it_subscribed_to_in_order(store: TestStore) {
    for (name, events) in [("states", PushEvents::States), ("everything", PushEvents::Everything)] {
        let draft = task(name).webhook(webhook(name, "w", name, events));
        store.make(draft.then(chunk(name, "a", "x")).then(status(name, TaskState::Working, 1))).await;
        let events = [message("x"), status(name, TaskState::InputRequired, 2), chunk(name, "a", "y")];
        store.add(name, more(3, events)).await.unwrap();
        store.add(name, more(6, [message("y")])).await.unwrap();
        store
            .add(name, more(7, [chunk(name, "b", "z"), status(name, TaskState::Completed, 3)]))
            .await
            .unwrap();
    }
    assert_eq!(seqs(&store.deliver_all("states", 9).await), [1, 3, 5, 9]);
    assert_eq!(seqs(&store.deliver_all("everything", 9).await), [1, 2, 3, 5, 6, 8, 9]);
    assert_eq!(due(&store, 1_000_000).await, DueReceivers::default());
}

pub async fn a_webhook_gets_only_events_after_its_registration(store: TestStore) {
    store.make(task("t")).await;
    store.add("t", more(1, [status("t", TaskState::Working, 1)])).await.unwrap();
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    assert!(store.take("one", 9).await.is_empty());
    store.add("t", more(2, [status("t", TaskState::Working, 2)])).await.unwrap();
    assert_eq!(seqs(&store.deliver_all("one", 9).await), [3]);
}

pub async fn a_refused_append_creates_no_delivery(store: TestStore) {
    create_and_deliver(&store, PushEvents::Everything).await;
    let conflict = store.add("t", more(9, [chunk("t", "a", "x")])).await;
    let late = store.add("t", more(1, [status("t", TaskState::Failed, 1), chunk("t", "a", "x")])).await;
    assert!(conflict.is_err() && late.is_err());
    assert!(store.take("one", 9).await.is_empty());
}

pub async fn the_next_delivery_is_due_after_the_previous_one_is_settled(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::Everything))).await;
    store.add("t", more(1, [chunk("t", "a", "x"), chunk("t", "a", "y")])).await.unwrap();
    for seq in 1..=3 {
        let taken = store.take("one", 1).await;
        assert_eq!(seqs(&taken), [seq]);
        assert!(store.take("one", 1).await.is_empty(), "two at a time");
        assert!(due(&store, 1).await.now.is_empty());
        store.settle(&taken[0].id, Outcome::Delivered).await;
    }
    assert!(store.take("one", 1).await.is_empty());
}

pub async fn webhooks_do_not_wait_for_each_other(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "v", "one", PushEvents::States))).await;
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    store.make(task("u").webhook(webhook("u", "v", "one", PushEvents::States))).await;
    store.add("t", more(1, [status("t", TaskState::Completed, 1)]).now(1)).await.unwrap();
    store.add("u", more(1, [status("u", TaskState::Completed, 2)]).now(2)).await.unwrap();
    let taken = store.take("one", 5).await;
    let name = |delivery: &Delivery| format!("{}", delivery.id);
    let mut names: Vec<_> = taken.iter().map(name).collect();
    names.sort();
    assert_eq!(names, ["t/v/1", "t/w/2", "u/v/1"]);
    // One delivery fails. The others continue.
    let (stuck, rest) = taken.split_first().unwrap();
    store.settle(&stuck.id, Outcome::Failed { again: at(50), error: "no".into() }).await;
    for delivery in rest {
        store.settle(&delivery.id, Outcome::Delivered).await;
    }
    let more: Vec<_> = store.deliver_all("one", 5).await.iter().map(name).collect();
    assert_eq!(more, [["t/v/2", "u/v/2"][usize::from(name(stuck) == "t/v/1")]]);
}

pub async fn a_delivery_has_its_webhook_and_its_event(store: TestStore) {
    let given = webhook("t", "w", "one", PushEvents::Everything);
    store.make(task("t").webhook(given.clone())).await;
    let events = [chunk("t", "a", "ü\"\n"), message("not told"), status("t", TaskState::Completed, 1)];
    store.add("t", more(1, events)).await.unwrap();
    let log = store.read_on("t", 0).await;
    let told: Vec<_> = log.iter().filter(|entry| !entry.json().is_empty()).collect();
    let deliveries = store.deliver_all("one", 1).await;
    assert_eq!(deliveries.len(), told.len());
    for (delivery, entry) in deliveries.iter().zip(told) {
        assert_eq!(delivery.id, DeliveryId { task: id("t"), webhook: "w".into(), seq: entry.seq });
        assert_eq!((&delivery.webhook, delivery.attempts), (&given, 0));
        assert_eq!((delivery.entry.seq, &delivery.entry.event), (entry.seq, &entry.event));
        assert_eq!(delivery.entry.json(), entry.json());
        let streamed = serde_json::to_value(entry.event.to_stream().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(delivery.entry.json()).unwrap(), streamed);
    }
}

pub async fn a_delivery_has_the_owner_of_its_task(store: TestStore) {
    let ann = Owner { tenant: Some("x".into()), principal: Principal::named("ann"), ..Owner::default() };
    store.make(task("t").of(&ann).webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.make(task("u").of(&Owner::default())).await;
    store.make(task("v").of(&ann)).await;
    store.put("v", webhook("v", "w", "two", PushEvents::States)).await;
    store.put("u", webhook("u", "w", "three", PushEvents::States)).await;
    for name in ["u", "v"] {
        store.add(name, more(1, [status(name, TaskState::Working, 1)])).await.unwrap();
    }
    for (receiver, owner) in [("one", &ann), ("two", &ann), ("three", &Owner::default())] {
        let deliveries = store.take(receiver, 9).await;
        assert_eq!(
            deliveries.iter().map(|delivery| &delivery.owner).collect::<Vec<_>>(),
            [owner],
            "{receiver}"
        );
    }
}

pub async fn a_taken_delivery_is_reserved_until_its_time(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    let outbox = store.outbox();
    let first = outbox.take_due("one", at(0), at(100), 9).await.unwrap();
    assert!(outbox.take_due("one", at(99), at(300), 9).await.unwrap().is_empty());
    assert_eq!(due(&store, 99).await, DueReceivers { now: vec![], next: Some(at(100)) });
    // The dispatcher that took it is gone. Another one can take it, and no failed attempt is counted.
    assert_eq!(due(&store, 100).await.now, ["one"]);
    let second = outbox.take_due("one", at(100), at(200), 9).await.unwrap();
    assert_eq!((&first[0].id, second[0].attempts), (&second[0].id, 0));
    assert!(outbox.take_due("one", at(150), at(300), 9).await.unwrap().is_empty());
    store.settle(&second[0].id, Outcome::Delivered).await;
    assert!(outbox.take_due("one", at(500), at(600), 9).await.unwrap().is_empty());
}

pub async fn concurrent_takers_get_different_deliveries(store: TestStore) {
    for number in 0..20 {
        let name = number.to_string();
        store.make(task(&name).webhook(webhook(&name, "w", "one", PushEvents::States))).await;
    }
    let takers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                match store.outbox().take_due("one", at(0), at(100), 3).await.unwrap() {
                    none if none.is_empty() => return taken,
                    some => taken.extend(some.into_iter().map(|delivery| delivery.id)),
                }
            }
        })
    });
    let mut taken = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        taken.extend(taker.await.unwrap());
    }
    taken.sort();
    let count = taken.len();
    taken.dedup();
    assert_eq!((taken.len(), count), (20, 20));
}

pub async fn taken_deliveries_are_limited_in_number(store: TestStore) {
    for number in 0..5 {
        let name = number.to_string();
        let draft =
            task(&name).since(i64::from(number)).webhook(webhook(&name, "w", "one", PushEvents::States));
        store.make(draft).await;
        store
            .make(task(&format!("o{name}")).webhook(webhook(
                &format!("o{name}"),
                "w",
                "two",
                PushEvents::States,
            )))
            .await;
    }
    let mut names = Vec::new();
    for (limit, count) in [(0, 0), (2, 2), (9, 3), (9, 0)] {
        let taken = store.outbox().take_due("one", at(9), at(99), limit).await.unwrap();
        assert_eq!(taken.len(), count);
        names.extend(taken.into_iter().map(|delivery| delivery.id.task.as_str().to_owned()));
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"], "not in the order in which they were due");
}

pub async fn receivers_are_listed_by_due_time(store: TestStore) {
    for (name, millis) in [("c", 30), ("a", 10), ("b", 20), ("d", 40)] {
        store.make(task(name).since(millis).webhook(webhook(name, "w", name, PushEvents::States))).await;
    }
    assert_eq!(
        due(&store, 99).await,
        DueReceivers { now: vec!["a".into(), "b".into(), "c".into(), "d".into()], next: None }
    );
    assert_eq!(due(&store, 29).await, DueReceivers { now: vec!["a".into(), "b".into()], next: Some(at(30)) });
    let taken = store.take("a", 99).await.remove(0);
    store.settle(&taken.id, Outcome::Failed { again: at(35), error: "no".into() }).await;
    assert_eq!(due(&store, 99).await.now, ["b", "c", "a", "d"]);
    // A later delivery for the same receiver does not move the receiver.
    store.make(task("late").since(50).webhook(webhook("late", "w", "b", PushEvents::States))).await;
    assert_eq!(due(&store, 99).await.now, ["b", "c", "a", "d"]);
    store.deliver_all("b", 40).await;
    assert_eq!(due(&store, 99).await.now, ["c", "a", "d", "b"]);
}

pub async fn the_next_due_time_is_reported(store: TestStore) {
    assert_eq!(due(&store, 0).await, DueReceivers::default());
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.make(task("u").webhook(webhook("u", "w", "two", PushEvents::States))).await;
    let (one, two) = (store.take("one", 0).await.remove(0), store.take("two", 0).await.remove(0));
    assert_eq!(due(&store, 0).await.next, Some(at(10_000)));
    store.settle(&one.id, Outcome::Failed { again: at(700), error: "no".into() }).await;
    assert_eq!(due(&store, 0).await, DueReceivers { now: vec![], next: Some(at(700)) });
    store.settle(&two.id, Outcome::Postponed(at(300))).await;
    assert_eq!(due(&store, 299).await, DueReceivers { now: vec![], next: Some(at(300)) });
    assert_eq!(due(&store, 300).await, DueReceivers { now: vec!["two".into()], next: Some(at(700)) });
    assert_eq!(due(&store, 700).await, DueReceivers { now: vec!["two".into(), "one".into()], next: None });
    store.deliver_all("two", 700).await;
    store.deliver_all("one", 700).await;
    assert_eq!(due(&store, 0).await, DueReceivers::default());
}

pub async fn a_failed_delivery_is_due_again_and_counts_as_an_attempt(store: TestStore) {
    create_and_deliver(&store, PushEvents::States).await;
    store.add("t", more(1, [status("t", TaskState::Working, 1)])).await.unwrap();
    store.add("t", more(2, [status("t", TaskState::Completed, 2)])).await.unwrap();
    for attempts in 0..3 {
        let now = i64::from(attempts) * 100;
        let taken = store.take("one", now).await;
        assert_eq!((seqs(&taken), taken[0].attempts), (vec![2], attempts));
        let again = at(now + 100);
        store.settle(&taken[0].id, Outcome::Failed { again, error: "no".into() }).await;
        assert!(store.take("one", now + 99).await.is_empty());
    }
    let after = store.deliver_all("one", 300).await;
    assert_eq!(seqs(&after), [2, 3], "what came later did not wait");
    assert_eq!((after[0].attempts, after[1].attempts), (3, 0));
    assert!(store.dead().await.is_empty());
}

pub async fn a_postponed_delivery_is_due_again_and_does_not_count(store: TestStore) {
    create_and_deliver(&store, PushEvents::States).await;
    store.add("t", more(1, [status("t", TaskState::Completed, 1)])).await.unwrap();
    let taken = store.take("one", 0).await;
    store.settle(&taken[0].id, Outcome::Postponed(at(100))).await;
    assert!(store.take("one", 99).await.is_empty());
    let taken = store.take("one", 100).await;
    assert_eq!((seqs(&taken), taken[0].attempts), (vec![2], 0));
}

pub async fn a_dead_delivery_does_not_block_the_next_one(store: TestStore) {
    create_and_deliver(&store, PushEvents::States).await;
    store.add("t", more(1, [status("t", TaskState::Working, 1)])).await.unwrap();
    store.add("t", more(2, [status("t", TaskState::Completed, 2)])).await.unwrap();
    let taken = store.take("one", 5).await;
    store.settle(&taken[0].id, Outcome::Failed { again: at(10), error: "first".into() }).await;
    let taken = store.take("one", 10).await;
    store.settle(&taken[0].id, given_up(12, "second")).await;
    let dead = store.outbox().list_dead(None, 9).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].id, &*dead[0].url), (&taken[0].id, "https://one/w"));
    assert_eq!((dead[0].attempts, dead[0].at, &*dead[0].error), (2, at(12), "second"));
    assert_eq!(seqs(&store.deliver_all("one", 12).await), [3]);
    assert!(store.take("one", 1_000_000).await.is_empty(), "what was given up was tried by itself");
}

/// Creates tasks whose only delivery is dead, in this order.
async fn dead(store: &TestStore, names: &[&str]) -> Vec<DeliveryId> {
    for name in names {
        store.make(task(name).webhook(webhook(name, "w", "one", PushEvents::States))).await;
    }
    let taken = store.take("one", 0).await;
    let mut ids = Vec::new();
    for (millis, name) in (0..).zip(names) {
        let delivery = taken.iter().find(|delivery| delivery.id.task == id(name)).unwrap();
        store.settle(&delivery.id, given_up(millis, name)).await;
        ids.push(delivery.id.clone());
    }
    ids
}

pub async fn dead_deliveries_are_listed_oldest_first_in_pages(store: TestStore) {
    let all = dead(&store, &["c", "a", "d", "b"]).await;
    assert_eq!(store.dead().await, all);
    let (mut walked, mut after) = (Vec::new(), None);
    loop {
        let page = store.outbox().list_dead(after.as_ref(), 3).await.unwrap();
        assert!(page.len() <= 3);
        walked.extend(page.iter().map(|dead| dead.id.clone()));
        match page.last() {
            Some(last) => after = Some(last.id.clone()),
            None => break,
        }
    }
    assert_eq!(walked, all);
}

pub async fn one_dead_delivery_can_be_retried(store: TestStore) {
    let all = dead(&store, &["a", "b", "c"]).await;
    let outbox = store.outbox();
    assert_eq!(outbox.retry_dead(Some(&all[1]), at(50)).await.unwrap(), 1);
    assert_eq!(outbox.retry_dead(Some(&all[1]), at(50)).await.unwrap(), 0);
    assert_eq!(store.dead().await, [all[0].clone(), all[2].clone()]);
    assert!(store.take("one", 49).await.is_empty());
    let taken = store.take("one", 50).await;
    assert_eq!((taken.len(), &taken[0].id, taken[0].attempts), (1, &all[1], 0));
    // It can become dead again, and is then the last in the list.
    store.settle(&all[1], given_up(60, "again")).await;
    assert_eq!(store.dead().await, [all[0].clone(), all[2].clone(), all[1].clone()]);
}

pub async fn all_dead_deliveries_can_be_retried(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store
        .add("t", more(1, [status("t", TaskState::Working, 1), status("t", TaskState::Completed, 2)]))
        .await
        .unwrap();
    for _ in 0..3 {
        let taken = store.take("one", 5).await.remove(0);
        store.settle(&taken.id, given_up(5, "no")).await;
    }
    assert_eq!(store.dead().await.len(), 3);
    assert_eq!(store.outbox().retry_dead(None, at(9)).await.unwrap(), 3);
    assert!(store.dead().await.is_empty());
    assert_eq!(seqs(&store.deliver_all("one", 9).await), [1, 2, 3], "not in the order of the log");
}

pub async fn dead_deliveries_can_be_purged_one_or_all(store: TestStore) {
    let all = dead(&store, &["a", "b", "c"]).await;
    let outbox = store.outbox();
    assert_eq!(outbox.purge_dead(Some(&all[0])).await.unwrap(), 1);
    assert_eq!(outbox.purge_dead(Some(&all[0])).await.unwrap(), 0);
    assert_eq!(store.dead().await, all[1..]);
    assert_eq!(outbox.purge_dead(None).await.unwrap(), 2);
    assert!(store.dead().await.is_empty());
    assert_eq!(outbox.retry_dead(None, at(9)).await.unwrap(), 0);
    assert!(store.take("one", 99).await.is_empty());
}

pub async fn a_deleted_webhook_gets_no_more_deliveries(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.put("t", webhook("t", "v", "two", PushEvents::States)).await;
    let taken = store.take("one", 0).await.remove(0);
    store.settle(&taken.id, given_up(0, "no")).await;
    store.add("t", more(1, [status("t", TaskState::Working, 1)])).await.unwrap();
    store.add("t", more(2, [status("t", TaskState::Working, 2)])).await.unwrap();
    let taken = store.take("one", 5).await.remove(0);
    store.outbox().delete_webhook(&id("t"), "w").await.unwrap();
    assert!(store.dead().await.is_empty());
    store.settle(&taken.id, Outcome::Failed { again: at(6), error: "no".into() }).await;
    store.add("t", more(3, [status("t", TaskState::Completed, 3)])).await.unwrap();
    assert!(store.take("one", 1_000_000).await.is_empty());
    assert_eq!(due(&store, 1_000_000).await.now, ["two"]);
    assert_eq!(seqs(&store.deliver_all("two", 9).await), [2, 3, 4]);
    // A new webhook with the same id is independent of the deleted one.
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    assert!(store.take("one", 1_000_000).await.is_empty());
}

pub async fn a_webhook_with_a_new_url_keeps_its_queue(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    let end = [status("t", TaskState::Working, 1), status("t", TaskState::Completed, 2)];
    store.add("t", more(1, end)).await.unwrap();
    let failed = store.take("one", 0).await.remove(0);
    store.settle(&failed.id, Outcome::Failed { again: at(50), error: "no".into() }).await;
    let moved = webhook("t", "w", "two", PushEvents::States);
    store.put("t", moved.clone()).await;
    assert_eq!(due(&store, 49).await, DueReceivers { now: vec![], next: Some(at(50)) });
    assert_eq!(due(&store, 50).await.now, ["two"]);
    assert!(store.take("one", 99).await.is_empty());
    let told = store.deliver_all("two", 50).await;
    assert_eq!((seqs(&told), told[0].attempts), (vec![1, 2, 3], 1));
    assert!(told.iter().all(|delivery| delivery.webhook == moved));
}

pub async fn a_changed_subscription_applies_to_later_events(store: TestStore) {
    create_and_deliver(&store, PushEvents::States).await;
    store.add("t", more(1, [chunk("t", "a", "x"), status("t", TaskState::Working, 1)])).await.unwrap();
    store.put("t", webhook("t", "w", "one", PushEvents::Everything)).await;
    store.add("t", more(3, [chunk("t", "a", "y"), status("t", TaskState::Working, 1)])).await.unwrap();
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    store.add("t", more(5, [chunk("t", "a", "z"), status("t", TaskState::Completed, 1)])).await.unwrap();
    assert_eq!(seqs(&store.deliver_all("one", 9).await), [3, 4, 5, 7]);
}

pub async fn a_late_outcome_changes_nothing(store: TestStore) {
    create_and_deliver(&store, PushEvents::States).await;
    store
        .add("t", more(1, [status("t", TaskState::Working, 1), status("t", TaskState::Completed, 2)]))
        .await
        .unwrap();
    let slow = store.take("one", 0).await.remove(0);
    let quick = store.take("one", 20_000).await.remove(0);
    assert_eq!(slow.id, quick.id);
    store.settle(&quick.id, Outcome::Delivered).await;
    let next = store.take("one", 20_000).await.remove(0);
    for outcome in [
        Outcome::Delivered,
        Outcome::Postponed(at(20_001)),
        Outcome::Failed { again: at(20_001), error: "late".into() },
        given_up(20_001, "late"),
    ] {
        store.settle(&slow.id, outcome).await;
        assert!(store.take("one", 20_002).await.is_empty(), "what is being told was given to another");
    }
    assert!(store.dead().await.is_empty());
    store.settle(&next.id, Outcome::Failed { again: at(20_100), error: "no".into() }).await;
    let again = store.take("one", 20_100).await.remove(0);
    assert_eq!((again.id, again.attempts), (next.id, 1));
    let nothing = DeliveryId { task: id("gone"), webhook: "w".into(), seq: Seq(1) };
    store.settle(&nothing, given_up(1, "late")).await;
    assert!(store.dead().await.is_empty());
}

pub async fn a_waiting_dispatcher_is_woken_by_a_new_delivery(store: TestStore) {
    store.make(task("t")).await;
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    let grown = tokio::spawn(store.outbox().grown());
    tokio::task::yield_now().await;
    store.add("t", more(1, [status("t", TaskState::Working, 1)])).await.unwrap();
    soon(grown).await.unwrap();
    let taken = store.take("one", 1).await.remove(0);
    // Woken by a new task, by a settled delivery with a successor, and by a retry.
    let grown = store.outbox().grown();
    store.make(task("u").webhook(webhook("u", "w", "two", PushEvents::States))).await;
    soon(grown).await;
    store.add("t", more(2, [status("t", TaskState::Working, 2)])).await.unwrap();
    let grown = store.outbox().grown();
    store.settle(&taken.id, given_up(2, "no")).await;
    soon(grown).await;
    let grown = store.outbox().grown();
    assert_eq!(store.outbox().retry_dead(None, at(3)).await.unwrap(), 1);
    soon(grown).await;
}

pub async fn a_delivery_before_the_first_wait_is_not_missed(store: TestStore) {
    store.make(task("t")).await;
    store.put("t", webhook("t", "w", "one", PushEvents::States)).await;
    for after in 1..=20 {
        let grown = store.outbox().grown();
        store.add("t", more(after, [status("t", TaskState::Working, 1)])).await.unwrap();
        soon(grown).await;
        assert_eq!(seqs(&store.deliver_all("one", 9).await), [after + 1]);
    }
}
