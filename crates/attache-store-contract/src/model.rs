//! The store under test against the memory store: random operations have the same results in both.
//!
//! Stores may differ in some points, so the test avoids them: no two statuses have the same time, due deliveries are compared as a
//! set, and there are no limits.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    AppendError, Created, DeliveryId, Entry, Lease, ListQuery, MemoryStore, Outcome, Owner, Principal,
    PushEvents, Retention, Snapshot, TaskEvent, View,
};
use attache_protocol::{ContextId, Json};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::StoreFactory;
use crate::operations::{Change, Event, Hook, LeaseChoice, Operation, Settlement, operations};
use crate::run::NewFactory;
use crate::support::{
    TaskBuilder, TestStore, at, chunk, id, idempotency, message, more, says, task, webhook,
};

fn owner(number: usize) -> Owner {
    let principal = if number == 0 { Principal::Anonymous } else { Principal::named("ann") };
    Owner { principal, tenant: (number == 2).then(|| "x".into()), ..Owner::default() }
}

const RECEIVERS: [&str; 3] = ["one", "two:8080", "three"];
const CONTEXTS: [&str; 3] = ["c0", "c1", "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"];
const NAMES: [&str; 2] = ["v", "w"];
const SCOPES: [&str; 3] = ["", "s", "ä"];
const KEYS: [&str; 4] = ["", "k", "K", "😀"];

/// A store, and what its client knows.
struct Side<'a> {
    store: TestStore,
    /// Opens the store again. The memory store has none: a restart only releases its leases.
    factory: Option<&'a dyn StoreFactory>,
    tasks: Vec<KnownTask>,
    taken: Vec<DeliveryId>,
}

struct KnownTask {
    name: String,
    owner: Owner,
    leases: Vec<Lease>,
}

impl Side<'_> {
    fn known(&self, which: Index) -> Option<&KnownTask> {
        (!self.tasks.is_empty()).then(|| which.get(&self.tasks))
    }

    fn lease(&self, which: Index, by: LeaseChoice) -> Option<Lease> {
        let leases = &self.known(which)?.leases;
        match by {
            LeaseChoice::None => None,
            LeaseChoice::Latest => leases.last().copied(),
            LeaseChoice::Earlier => leases.iter().rev().nth(1).copied(),
        }
    }

    async fn snapshot(&self, which: Index) -> Option<Snapshot> {
        let known = self.known(which)?;
        self.store.load(&known.owner, &id(&known.name)).await.expect("an answer")
    }

    fn hook(name: &str, hook: Hook, number: usize) -> attache_core::Webhook {
        let events = if hook.everything { PushEvents::Everything } else { PushEvents::States };
        webhook(name, NAMES[number], RECEIVERS[hook.receiver], events)
    }

    /// Runs an operation. Returns its result as text.
    async fn act(&mut self, operation: &Operation, now: i64) -> String {
        match operation.clone() {
            Operation::Create { owner: number, context, state, key, hook, more } => {
                // All ids have the same end, so that a store with shards by the end of the id has all tasks in one shard.
                let name = format!("{}-task", self.tasks.len());
                let mut draft = task(&name).of(&owner(number)).in_context(CONTEXTS[context]).since(now);
                draft = draft.state(state).lease(now + 60);
                draft.0.idempotency = key.map(|key| idempotency(&key.to_string(), key));
                draft.0.push = hook.map(|hook| Self::hook(&name, hook, 0));
                draft.0.events.extend(events(&name, &more, now + 1));
                self.create(name, owner(number), draft).await
            }
            Operation::Append { which, whats, by, at_wrong_position, key } => {
                let Some(known) = self.known(which) else { return String::new() };
                let seq = self.snapshot(which).await.map_or(1, |snapshot| snapshot.seq.0);
                let mut more =
                    more(seq + u64::from(at_wrong_position), events(&known.name, &whats, now)).now(now);
                more.0.lease = self.lease(which, by);
                more.0.idempotency = key.map(|key| (known.owner.clone(), idempotency(&key.to_string(), key)));
                match self.store.add(&known.name, more).await {
                    Ok(appended) => format!("{} {}", appended.seq, shown(appended.settled.as_ref())),
                    Err(AppendError::Store(error)) => panic!("{error}"),
                    Err(AppendError::KeyUsed(known)) => format!("{known:?}"),
                    Err(error) => error.to_string(),
                }
            }
            Operation::Claim { which } => {
                let Some(known) = self.known(which) else { return String::new() };
                let lease = self.store.can_claim(&known.name, now, now + 60).await;
                let at = which.index(self.tasks.len());
                self.tasks[at].leases.extend(lease);
                format!("claimed: {}", lease.is_some())
            }
            Operation::Renew { which, by } => {
                if let (Some(known), Some(lease)) = (self.known(which), self.lease(which, by)) {
                    self.store.renew(&[(id(&known.name), lease)], at(now + 120)).await.expect("an answer");
                }
                String::new()
            }
            Operation::Release { which, by } => {
                if let (Some(known), Some(lease)) = (self.known(which), self.lease(which, by)) {
                    self.store.release(&id(&known.name), lease).await.expect("an answer");
                }
                String::new()
            }
            Operation::Tail { which, after } => {
                let Some(known) = self.known(which) else { return String::new() };
                let Some(snapshot) = self.snapshot(which).await else { return "gone".to_owned() };
                let count = snapshot.seq.0.saturating_sub(after) as usize;
                let read = match snapshot.state.is_terminal() {
                    true => self.store.read_on(&known.name, after).await,
                    false => self.store.read(&known.name, after, count).await,
                };
                read.iter().map(|entry| entry_text(entry)).collect()
            }
            Operation::List { owner: number, context, state, ago, size } => {
                let context = context.map(|number| ContextId::from(CONTEXTS[number]));
                let since = ago.map(|ago| at(now - ago));
                let query = ListQuery { context, state, since, limit: size, ..ListQuery::default() };
                let (page, next, total) = self.store.page(&owner(number), &query).await;
                let walked = self.store.walk(&owner(number), &query, size).await;
                let mut text = format!("{} {} {total}:", page.len(), next.is_some());
                walked.iter().for_each(|snapshot| text.push_str(&shown(Some(snapshot))));
                text
            }
            Operation::FindKey { owner: number, key } => {
                format!(
                    "{:?}",
                    self.store.find_key(&owner(number), &key.to_string()).await.expect("an answer")
                )
            }
            Operation::Put { which, name, hook } => {
                if let Some(known) = self.known(which) {
                    self.store.put(&known.name, Self::hook(&known.name, hook, name)).await;
                }
                String::new()
            }
            Operation::Delete { which, name } => {
                if let Some(known) = self.known(which) {
                    let outbox = self.store.outbox();
                    outbox.delete_webhook(&id(&known.name), NAMES[name]).await.expect("an answer");
                }
                String::new()
            }
            Operation::Take { receiver } => {
                let outbox = self.store.outbox();
                let mut taken = outbox
                    .take_due(RECEIVERS[receiver], at(now), at(now + 300), 1_000)
                    .await
                    .expect("deliveries");
                taken.sort_by(|one, other| one.id.cmp(&other.id));
                let mut text = String::new();
                for delivery in &taken {
                    let _ = write!(text, "{} {}", delivery.id, delivery.attempts);
                    let _ = write!(text, "{:?} {}", delivery.webhook, entry_text(&delivery.entry));
                }
                self.taken.extend(taken.into_iter().map(|delivery| delivery.id));
                text
            }
            Operation::Settle { which, how } => {
                if !self.taken.is_empty() {
                    let at_place = which.index(self.taken.len());
                    let delivery = self.taken.swap_remove(at_place);
                    let (again, error) = (at(now + 50), format!("at {now}"));
                    let outcome = match how {
                        Settlement::Delivered => Outcome::Delivered,
                        Settlement::Postponed => Outcome::Postponed(again),
                        Settlement::Failed => Outcome::Failed { again, error },
                        Settlement::GivenUp => Outcome::GivenUp { at: at(now), error },
                    };
                    self.store.settle(&delivery, outcome).await;
                }
                String::new()
            }
            Operation::RetryDead { which } => {
                let dead = self.store.dead().await;
                let one = which.filter(|_| !dead.is_empty()).map(|which| which.get(&dead));
                format!("{}", self.store.outbox().retry_dead(one, at(now)).await.expect("an answer"))
            }
            Operation::PurgeDead { which } => {
                let dead = self.store.dead().await;
                let one = which.filter(|_| !dead.is_empty()).map(|which| which.get(&dead));
                format!("{}", self.store.outbox().purge_dead(one).await.expect("an answer"))
            }
            Operation::Prune { ago, keep } => {
                let retention = Retention::default().max_age(ago.map(Duration::from_millis)).max_tasks(keep);
                format!("{}", self.store.prune(&retention, at(now), 10_000).await.expect("an answer"))
            }
            Operation::ChangeValue { scope, key, how } => {
                let change = move |old: Option<&Json>| match how {
                    Change::Set(number) => Json::new(&number).ok(),
                    Change::Add => Json::new(&(old.map_or(0, |old| old.read().unwrap_or(0)) + 1_u64)).ok(),
                    Change::Keep => old.cloned(),
                    Change::Remove => None,
                };
                let (scope, key) = (SCOPES[scope], KEYS[key]);
                let changed = self.store.values().change(scope, key, Box::new(change)).await;
                let kept = self.store.values().get(scope, key).await;
                format!("{:?} {:?}", changed.expect("a change"), kept.expect("an answer"))
            }
            Operation::ListValues { scope } => self.values(SCOPES[scope]).await,
            Operation::Reopen => {
                match self.factory {
                    Some(factory) => {
                        // Closes the store before it is opened again.
                        self.store = memory();
                        self.store = factory.open_store().await;
                    }
                    None => {
                        for known in &self.tasks {
                            for lease in &known.leases {
                                self.store.release(&id(&known.name), *lease).await.expect("an answer");
                            }
                        }
                    }
                }
                self.tasks.iter_mut().for_each(|known| known.leases.clear());
                self.visible_state(now).await
            }
        }
    }

    async fn create(&mut self, name: String, owner: Owner, draft: TaskBuilder) -> String {
        match self.store.create(draft.0).await {
            Ok(Created::New { seq, lease, settled }) => {
                self.tasks.push(KnownTask { name, owner, leases: vec![lease] });
                format!("{seq} {}", shown(settled.as_ref()))
            }
            Ok(Created::KeyUsed(known)) => format!("{known:?}"),
            Ok(Created::Taken) => "taken".to_owned(),
            // The events do not make a valid log.
            Err(_) => "refused".to_owned(),
        }
    }

    async fn values(&self, scope: &str) -> String {
        format!("{:?}", self.store.values().list(scope).await.expect("values"))
    }

    /// The whole visible state of the store as text.
    async fn visible_state(&self, now: i64) -> String {
        let mut text = String::new();
        for known in &self.tasks {
            let loaded = self.store.load(&known.owner, &id(&known.name)).await.expect("an answer");
            let _ = writeln!(text, "{} {}", known.name, shown(loaded.as_ref()));
            if let Some(loaded) = loaded {
                for entry in self.store.read(&known.name, 0, loaded.seq.0 as usize).await {
                    let _ = writeln!(text, "{}", entry_text(&entry));
                }
            }
            let _ = writeln!(text, "{:?}", self.store.hooks(&known.name).await);
        }
        for number in 0..3 {
            let listed = self.store.walk(&owner(number), &ListQuery::default(), 7).await;
            let total =
                self.store.page(&owner(number), &ListQuery { limit: 1, ..ListQuery::default() }).await.2;
            let _ = writeln!(text, "{total} of {number}: {:?}", crate::support::ids(&listed));
        }
        let mut due = self.store.outbox().due_receivers(at(now)).await.expect("an answer");
        due.now.sort();
        let mut dead = self.store.outbox().list_dead(None, 1_000).await.expect("an answer");
        // After a change of the webhook, stores may report its new URL or the old one.
        dead.iter_mut().for_each(|dead| dead.url.clear());
        let left = self.store.abandoned(None, at(now), 1_000).await.expect("an answer");
        let mut left: Vec<_> =
            left.iter().map(|left| format!("{:?} {}", left.owner, shown(Some(&left.task)))).collect();
        left.sort();
        let _ = writeln!(text, "{due:?}\n{dead:?}\n{left:?}");
        for scope in self.store.values().scopes().await.expect("scopes") {
            let _ = writeln!(text, "{scope:?}: {}", self.values(&scope).await);
        }
        text
    }
}

fn shown(snapshot: Option<&Snapshot>) -> String {
    let Some(snapshot) = snapshot else { return "nothing".to_owned() };
    let mut json = Vec::new();
    snapshot.write(View { generation: true, ..View::FULL }, &mut json);
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    format!("{} {} {json};", snapshot.seq, snapshot.state)
}

fn entry_text(entry: &Entry) -> String {
    let mut json = Vec::new();
    entry.event.write(&mut json);
    format!("{} {};", entry.seq, String::from_utf8_lossy(&json))
}

fn events(name: &str, whats: &[Event], now: i64) -> Vec<TaskEvent> {
    let event = |(millis, what): (i64, &Event)| match what {
        Event::Status(state, speaks) => says(name, *state, millis, speaks.then_some("so")),
        Event::Chunk(number) => chunk(name, ["a", "b"][*number], &millis.to_string()),
        Event::Message => message(&millis.to_string()),
    };
    (now..).zip(whats).map(event).collect()
}

fn memory() -> TestStore {
    TestStore::new(Arc::new(MemoryStore::new()))
}

/// Runs all operations on both stores, and compares the results.
async fn compare(operations: &[Operation], factory: &dyn StoreFactory) -> Result<(), TestCaseError> {
    let side = |store, factory| Side { store, factory, tasks: Vec::new(), taken: Vec::new() };
    let (mut model, mut real) = (side(memory(), None), side(factory.open_store().await, Some(factory)));
    let mut now = 0;
    for (step, operation) in operations.iter().enumerate() {
        // After a restart, taken deliveries are due at once or when their reservation ends. Both is the case after this time.
        now += if matches!(operation, Operation::Reopen) { 1_000 } else { 10 };
        let (expected, got) = (model.act(operation, now).await, real.act(operation, now).await);
        same(&got, &expected, &format!("step {step}, {operation:?}"))?;
    }
    now += 1_000;
    same(&real.visible_state(now).await, &model.visible_state(now).await, "the end")?;
    let (expected, got) = (model.act(&Operation::Reopen, now).await, real.act(&Operation::Reopen, now).await);
    same(&got, &expected, "the last restart")
}

/// Reports the first line in which two results differ.
fn same(got: &str, expected: &str, when: &str) -> Result<(), TestCaseError> {
    for (got, expected) in got.lines().zip(expected.lines()) {
        prop_assert_eq!(got, expected, "at {}", when);
    }
    prop_assert_eq!(got.lines().count(), expected.lines().count(), "at {}", when);
    Ok(())
}

pub async fn behaves_like_the_memory_store(new_factory: NewFactory) {
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let outcome = TestRunner::new(config)
            .run(&prop::collection::vec(operations(), 1..90), |operations| {
                runtime.block_on(compare(&operations, &*new_factory()))
            });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}
