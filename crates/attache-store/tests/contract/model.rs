//! Every store against the one in memory: whatever happens to both, they give the same answers.
//!
//! Where stores may differ they are not asked: statuses have different times, what is due is compared as a set, and nothing is
//! limited.

use std::fmt::Write as _;
use std::time::Duration;

use attache_core::{
    AppendError, Created, DeliveryId, Entry, Lease, ListQuery, Outcome, Owner, Principal, PushEvents,
    Retention, Snapshot, TaskEvent, View,
};
use attache_protocol::{ContextId, Json, TaskState};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::bench::{Bench, Memory};
use crate::support::{Draft, Kept, at, chunk, id, idempotency, message, more, says, task, webhook};

durable_promises!(does_whatever_the_store_in_memory_does);

/// Something that is done to a store. Which task it is about is taken modulo how many there are.
#[derive(Debug, Clone)]
enum Deed {
    Create {
        owner: usize,
        context: usize,
        state: TaskState,
        key: Option<u8>,
        hook: Option<Hook>,
        more: Vec<What>,
    },
    Append {
        which: Index,
        whats: Vec<What>,
        by: By,
        astray: bool,
        key: Option<u8>,
    },
    Claim {
        which: Index,
    },
    Renew {
        which: Index,
        by: By,
    },
    Release {
        which: Index,
        by: By,
    },
    Tail {
        which: Index,
        after: u64,
    },
    List {
        owner: usize,
        context: Option<usize>,
        state: Option<TaskState>,
        ago: Option<i64>,
        size: usize,
    },
    FindKey {
        owner: usize,
        key: u8,
    },
    Put {
        which: Index,
        name: usize,
        hook: Hook,
    },
    Delete {
        which: Index,
        name: usize,
    },
    Take {
        receiver: usize,
    },
    Settle {
        which: Index,
        how: How,
    },
    RetryDead {
        which: Option<Index>,
    },
    PurgeDead {
        which: Option<Index>,
    },
    Prune {
        ago: Option<u64>,
        keep: Option<usize>,
    },
    ChangeValue {
        scope: usize,
        key: usize,
        how: Change,
    },
    ListValues {
        scope: usize,
    },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Status(TaskState, bool),
    Chunk(usize),
    Message,
}

#[derive(Debug, Clone, Copy)]
enum By {
    Anyone,
    Latest,
    Earlier,
}

#[derive(Debug, Clone, Copy)]
struct Hook {
    receiver: usize,
    everything: bool,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Delivered,
    Postponed,
    Failed,
    GivenUp,
}

/// What becomes of a value.
#[derive(Debug, Clone, Copy)]
enum Change {
    Set(u64),
    Add,
    Keep,
    Remove,
}

fn owner(number: usize) -> Owner {
    let principal = if number == 0 { Principal::Anonymous } else { Principal::named("ann") };
    Owner { principal, tenant: (number == 2).then(|| "x".into()) }
}

const RECEIVERS: [&str; 3] = ["one", "two:8080", "three"];
const CONTEXTS: [&str; 3] = ["c0", "c1", "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"];
const NAMES: [&str; 2] = ["v", "w"];
const SCOPES: [&str; 3] = ["", "s", "ä"];
const KEYS: [&str; 4] = ["", "k", "K", "😀"];

/// A store, and what those who use it know.
struct Side<'a> {
    store: Kept,
    /// How to open it again; one that cannot be only forgets who holds what.
    bench: Option<&'a dyn Bench>,
    tasks: Vec<Known>,
    taken: Vec<DeliveryId>,
}

struct Known {
    name: String,
    owner: Owner,
    leases: Vec<Lease>,
}

impl Side<'_> {
    fn known(&self, which: Index) -> Option<&Known> {
        (!self.tasks.is_empty()).then(|| which.get(&self.tasks))
    }

    fn lease(&self, which: Index, by: By) -> Option<Lease> {
        let leases = &self.known(which)?.leases;
        match by {
            By::Anyone => None,
            By::Latest => leases.last().copied(),
            By::Earlier => leases.iter().rev().nth(1).copied(),
        }
    }

    async fn snapshot(&self, which: Index) -> Option<Snapshot> {
        let known = self.known(which)?;
        self.store.load(&known.owner, &id(&known.name)).await.expect("an answer")
    }

    fn hook(name: &str, hook: Hook, number: usize) -> attache_core::Webhook {
        let news = if hook.everything { PushEvents::Everything } else { PushEvents::States };
        webhook(name, NAMES[number], RECEIVERS[hook.receiver], news)
    }

    /// Does it, and says what came of it.
    async fn act(&mut self, deed: &Deed, now: i64) -> String {
        match deed.clone() {
            Deed::Create { owner: number, context, state, key, hook, more } => {
                // Names that end alike: a store that sorts tasks by the end of their ids has all of them in one place.
                let name = format!("{}-task", self.tasks.len());
                let mut draft = task(&name).of(&owner(number)).in_context(CONTEXTS[context]).since(now);
                draft = draft.state(state).lease(now + 60);
                draft.0.idempotency = key.map(|key| idempotency(&key.to_string(), key));
                draft.0.push = hook.map(|hook| Self::hook(&name, hook, 0));
                draft.0.events.extend(events(&name, &more, now + 1));
                self.create(name, owner(number), draft).await
            }
            Deed::Append { which, whats, by, astray, key } => {
                let Some(known) = self.known(which) else { return String::new() };
                let seq = self.snapshot(which).await.map_or(1, |snapshot| snapshot.seq.0);
                let mut more = more(seq + u64::from(astray), events(&known.name, &whats, now)).now(now);
                more.0.lease = self.lease(which, by);
                more.0.idempotency = key.map(|key| (known.owner.clone(), idempotency(&key.to_string(), key)));
                match self.store.add(&known.name, more).await {
                    Ok(appended) => format!("{} {}", appended.seq, shown(appended.settled.as_ref())),
                    Err(AppendError::Store(error)) => panic!("{error}"),
                    Err(AppendError::KeyUsed(known)) => format!("{known:?}"),
                    Err(error) => error.to_string(),
                }
            }
            Deed::Claim { which } => {
                let Some(known) = self.known(which) else { return String::new() };
                let lease = self.store.can_claim(&known.name, now, now + 60).await;
                let at = which.index(self.tasks.len());
                self.tasks[at].leases.extend(lease);
                format!("claimed: {}", lease.is_some())
            }
            Deed::Renew { which, by } => {
                if let (Some(known), Some(lease)) = (self.known(which), self.lease(which, by)) {
                    self.store.renew(&[(id(&known.name), lease)], at(now + 120)).await.expect("an answer");
                }
                String::new()
            }
            Deed::Release { which, by } => {
                if let (Some(known), Some(lease)) = (self.known(which), self.lease(which, by)) {
                    self.store.release(&id(&known.name), lease).await.expect("an answer");
                }
                String::new()
            }
            Deed::Tail { which, after } => {
                let Some(known) = self.known(which) else { return String::new() };
                let Some(snapshot) = self.snapshot(which).await else { return "gone".to_owned() };
                let count = snapshot.seq.0.saturating_sub(after) as usize;
                let read = match snapshot.state.is_terminal() {
                    true => self.store.read_on(&known.name, after).await,
                    false => self.store.read(&known.name, after, count).await,
                };
                read.iter().map(|entry| entry_text(entry)).collect()
            }
            Deed::List { owner: number, context, state, ago, size } => {
                let context = context.map(|number| ContextId::from(CONTEXTS[number]));
                let since = ago.map(|ago| at(now - ago));
                let query = ListQuery { context, state, since, limit: size, ..ListQuery::default() };
                let (page, next, total) = self.store.page(&owner(number), &query).await;
                let walked = self.store.walk(&owner(number), &query, size).await;
                let mut text = format!("{} {} {total}:", page.len(), next.is_some());
                walked.iter().for_each(|snapshot| text.push_str(&shown(Some(snapshot))));
                text
            }
            Deed::FindKey { owner: number, key } => {
                format!(
                    "{:?}",
                    self.store.find_key(&owner(number), &key.to_string()).await.expect("an answer")
                )
            }
            Deed::Put { which, name, hook } => {
                if let Some(known) = self.known(which) {
                    self.store.put(&known.name, Self::hook(&known.name, hook, name)).await;
                }
                String::new()
            }
            Deed::Delete { which, name } => {
                if let Some(known) = self.known(which) {
                    let outbox = self.store.outbox();
                    outbox.delete_webhook(&id(&known.name), NAMES[name]).await.expect("an answer");
                }
                String::new()
            }
            Deed::Take { receiver } => {
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
            Deed::Settle { which, how } => {
                if !self.taken.is_empty() {
                    let at_place = which.index(self.taken.len());
                    let delivery = self.taken.swap_remove(at_place);
                    let (again, error) = (at(now + 50), format!("at {now}"));
                    let outcome = match how {
                        How::Delivered => Outcome::Delivered,
                        How::Postponed => Outcome::Postponed(again),
                        How::Failed => Outcome::Failed { again, error },
                        How::GivenUp => Outcome::GivenUp { at: at(now), error },
                    };
                    self.store.settle(&delivery, outcome).await;
                }
                String::new()
            }
            Deed::RetryDead { which } => {
                let dead = self.store.dead().await;
                let one = which.filter(|_| !dead.is_empty()).map(|which| which.get(&dead));
                format!("{}", self.store.outbox().retry_dead(one, at(now)).await.expect("an answer"))
            }
            Deed::PurgeDead { which } => {
                let dead = self.store.dead().await;
                let one = which.filter(|_| !dead.is_empty()).map(|which| which.get(&dead));
                format!("{}", self.store.outbox().purge_dead(one).await.expect("an answer"))
            }
            Deed::Prune { ago, keep } => {
                let retention = Retention::default().max_age(ago.map(Duration::from_millis)).max_tasks(keep);
                format!("{}", self.store.prune(&retention, at(now), 10_000).await.expect("an answer"))
            }
            Deed::ChangeValue { scope, key, how } => {
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
            Deed::ListValues { scope } => self.values(SCOPES[scope]).await,
            Deed::Reopen => {
                match self.bench {
                    Some(bench) => {
                        // Closed before it is opened.
                        self.store = Memory::new().open().await;
                        self.store = bench.open().await;
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
                self.look(now).await
            }
        }
    }

    async fn create(&mut self, name: String, owner: Owner, draft: Draft) -> String {
        match self.store.create(draft.0).await {
            Ok(Created::New { seq, lease, settled }) => {
                self.tasks.push(Known { name, owner, leases: vec![lease] });
                format!("{seq} {}", shown(settled.as_ref()))
            }
            Ok(Created::KeyUsed(known)) => format!("{known:?}"),
            Ok(Created::Taken) => "taken".to_owned(),
            // What was to happen to it cannot happen.
            Err(_) => "refused".to_owned(),
        }
    }

    async fn values(&self, scope: &str) -> String {
        format!("{:?}", self.store.values().list(scope).await.expect("values"))
    }

    /// Everything that can be seen.
    async fn look(&self, now: i64) -> String {
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
        // A webhook may have moved since: then it is the new URL for some stores, and the old one for others.
        dead.iter_mut().for_each(|dead| dead.url.clear());
        let left = self.store.abandoned(at(now), 1_000).await.expect("an answer");
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

fn events(name: &str, whats: &[What], now: i64) -> Vec<TaskEvent> {
    let event = |(millis, what): (i64, &What)| match what {
        What::Status(state, speaks) => says(name, *state, millis, speaks.then_some("so")),
        What::Chunk(number) => chunk(name, ["a", "b"][*number], &millis.to_string()),
        What::Message => message(&millis.to_string()),
    };
    (now..).zip(whats).map(event).collect()
}

fn states() -> impl Strategy<Value = TaskState> {
    let live = [TaskState::Submitted, TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired];
    let ends = [TaskState::Completed, TaskState::Failed, TaskState::Canceled, TaskState::Rejected];
    prop_oneof![2 => prop::sample::select(live.to_vec()), 1 => prop::sample::select(ends.to_vec())]
}

fn deeds() -> impl Strategy<Value = Deed> {
    let what = prop_oneof![
        3 => (states(), any::<bool>()).prop_map(|(state, speaks)| What::Status(state, speaks)),
        2 => (0..2usize).prop_map(What::Chunk),
        1 => Just(What::Message),
    ];
    let whats = |count| prop::collection::vec(what.clone(), count);
    let key = || prop::option::weighted(0.2, 0..6u8);
    let which = any::<Index>;
    let by = || prop::sample::select(vec![By::Anyone, By::Anyone, By::Latest, By::Latest, By::Earlier]);
    let hook = || (0..3usize, any::<bool>()).prop_map(|(receiver, everything)| Hook { receiver, everything });
    let how =
        prop::sample::select(vec![How::Delivered, How::Delivered, How::Postponed, How::Failed, How::GivenUp]);
    let create = (0..3usize, 0..3usize, states(), key(), prop::option::of(hook()), whats(0..3)).prop_map(
        |(owner, context, state, key, hook, more)| Deed::Create { owner, context, state, key, hook, more },
    );
    let append = (which(), whats(1..4), by(), prop::bool::weighted(0.1), key())
        .prop_map(|(which, whats, by, astray, key)| Deed::Append { which, whats, by, astray, key });
    let list = (
        0..3usize,
        prop::option::of(0..3usize),
        prop::option::of(states()),
        prop::option::of(0..400i64),
        1..6usize,
    )
        .prop_map(|(owner, context, state, ago, size)| Deed::List { owner, context, state, ago, size });
    let dead = prop::option::of(which());
    let change = prop_oneof![
        2 => any::<u64>().prop_map(|number| Change::Set(number >> 1)),
        2 => Just(Change::Add),
        1 => Just(Change::Keep),
        2 => Just(Change::Remove),
    ];
    let change_value =
        (0..3usize, 0..4usize, change).prop_map(|(scope, key, how)| Deed::ChangeValue { scope, key, how });
    prop_oneof![
        8 => create,
        12 => append,
        2 => which().prop_map(|which| Deed::Claim { which }),
        1 => (which(), by()).prop_map(|(which, by)| Deed::Renew { which, by }),
        2 => (which(), by()).prop_map(|(which, by)| Deed::Release { which, by }),
        3 => (which(), 0..6u64).prop_map(|(which, after)| Deed::Tail { which, after }),
        4 => list,
        1 => (0..3usize, 0..6u8).prop_map(|(owner, key)| Deed::FindKey { owner, key }),
        3 => (which(), 0..2usize, hook()).prop_map(|(which, name, hook)| Deed::Put { which, name, hook }),
        1 => (which(), 0..2usize).prop_map(|(which, name)| Deed::Delete { which, name }),
        6 => (0..3usize).prop_map(|receiver| Deed::Take { receiver }),
        8 => (which(), how).prop_map(|(which, how)| Deed::Settle { which, how }),
        1 => dead.clone().prop_map(|which| Deed::RetryDead { which }),
        1 => dead.prop_map(|which| Deed::PurgeDead { which }),
        1 => (prop::option::of(0..400u64), prop::option::of(0..4usize))
            .prop_map(|(ago, keep)| Deed::Prune { ago, keep }),
        8 => change_value,
        1 => (0..3usize).prop_map(|scope| Deed::ListValues { scope }),
        1 => Just(Deed::Reopen),
    ]
}

/// Does everything to both, and compares what they answer.
async fn compare(deeds: &[Deed], bench: &dyn Bench) -> Result<(), TestCaseError> {
    let side = |store, bench| Side { store, bench, tasks: Vec::new(), taken: Vec::new() };
    let (mut model, mut real) =
        (side(Memory::new().open().await, None), side(bench.open().await, Some(bench)));
    let mut now = 0;
    for (step, deed) in deeds.iter().enumerate() {
        // After a restart, what was being told is due again, at once or when its time is up.
        now += if matches!(deed, Deed::Reopen) { 1_000 } else { 10 };
        let (expected, got) = (model.act(deed, now).await, real.act(deed, now).await);
        same(&got, &expected, &format!("step {step}, {deed:?}"))?;
    }
    now += 1_000;
    same(&real.look(now).await, &model.look(now).await, "the end")?;
    let (expected, got) = (model.act(&Deed::Reopen, now).await, real.act(&Deed::Reopen, now).await);
    same(&got, &expected, "the last restart")
}

/// Says where two answers differ first.
fn same(got: &str, expected: &str, when: &str) -> Result<(), TestCaseError> {
    for (got, expected) in got.lines().zip(expected.lines()) {
        prop_assert_eq!(got, expected, "at {}", when);
    }
    prop_assert_eq!(got.lines().count(), expected.lines().count(), "at {}", when);
    Ok(())
}

async fn does_whatever_the_store_in_memory_does(bench: &dyn Bench) {
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let outcome = TestRunner::new(config).run(&prop::collection::vec(deeds(), 1..90), |deeds| {
            let bench = bench.another();
            runtime.block_on(compare(&deeds, &*bench))
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}
