//! Listings compared with a simple model, over random changes of a store.

use std::collections::HashSet;
use std::sync::Arc;

use attache_core::{Append, MemoryStore, NewTask, Owner, Principal, Seq, Store, TaskEvent};
use attache_protocol::{
    ContextId, ListTasksRequest, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use proptest::prelude::*;

use crate::support::{Client, Script, host_on, in_virtual_time};

/// A change of the store. Numbers are taken modulo the number of tasks.
#[derive(Debug, Clone)]
enum Change {
    Create { owner: usize, context: usize, state: TaskState, at: i64 },
    Restate { which: usize, state: TaskState, at: i64 },
}

#[derive(Debug, Clone, Copy)]
struct Query {
    owner: usize,
    context: Option<usize>,
    state: Option<TaskState>,
    since: Option<i64>,
    size: i32,
}

#[derive(Debug, Clone)]
struct Known {
    id: TaskId,
    seq: Seq,
    owner: usize,
    context: usize,
    state: TaskState,
    at: i64,
}

/// The store and the model.
struct Both {
    store: Arc<dyn Store>,
    clients: Vec<Client>,
    tasks: Vec<Known>,
}

fn owner(number: usize) -> Owner {
    let principal = if number == 0 { Principal::Anonymous } else { Principal::named("ann") };
    Owner { principal, tenant: (number == 2).then(|| "t".into()), ..Owner::default() }
}

fn time(at: i64) -> Timestamp {
    Timestamp::from_millis(1_767_300_000_000 + at)
}

impl Both {
    fn new() -> Self {
        let host = host_on(Arc::new(MemoryStore::new()), Script(vec![]), |_, _| {});
        let clients = (0..3).map(|number| {
            let mut client = host.client();
            client.caller.owner = owner(number);
            client
        });
        Self { store: host.store.clone(), clients: clients.collect(), tasks: Vec::new() }
    }

    async fn change(&mut self, change: &Change) {
        match *change {
            Change::Create { owner: number, context, state, at } => {
                let id = TaskId::from(format!("task-{}", self.tasks.len()));
                let task = Task {
                    id: id.clone(),
                    context_id: Some(ContextId::from(format!("context-{context}"))),
                    status: TaskStatus { state, timestamp: Some(time(at)), ..TaskStatus::default() },
                    ..Task::default()
                };
                let new = NewTask {
                    owner: owner(number),
                    events: vec![TaskEvent::Created(Arc::new(task))],
                    now: time(0),
                    followed: false,
                    lease_until: time(0),
                    idempotency: None,
                    push: None,
                };
                self.store.create(new).await.expect("a new task");
                self.tasks.push(Known { id, seq: Seq(1), owner: number, context, state, at });
            }
            Change::Restate { which, state, at } => {
                let count = self.tasks.len().max(1);
                let Some(known) = self.tasks.get_mut(which % count) else { return };
                let update = TaskStatusUpdateEvent {
                    task_id: known.id.clone(),
                    status: TaskStatus { state, timestamp: Some(time(at)), ..TaskStatus::default() },
                    ..TaskStatusUpdateEvent::default()
                };
                let events = vec![TaskEvent::Status(Arc::new(update))];
                let append = Append {
                    after: known.seq,
                    lease: None,
                    idempotency: None,
                    push: None,
                    events,
                    now: time(0),
                };
                let appended = self.store.append(&known.id, append).await;
                assert_eq!(appended.is_ok(), !known.state.is_terminal());
                if let Ok(seq) = appended {
                    *known = Known { seq: seq.seq, state, at, ..known.clone() };
                }
            }
        }
    }

    fn matching(&self, query: &Query) -> Vec<&Known> {
        let matches = |known: &&Known| {
            known.owner == query.owner
                && query.context.is_none_or(|context| known.context == context)
                && query.state.is_none_or(|state| known.state == state)
                && query.since.is_none_or(|since| known.at >= since)
        };
        self.tasks.iter().filter(matches).collect()
    }

    fn request(query: &Query) -> ListTasksRequest {
        ListTasksRequest {
            context_id: query.context.map(|context| ContextId::from(format!("context-{context}"))),
            status: query.state.unwrap_or_default(),
            status_timestamp_after: query.since.map(time),
            page_size: Some(query.size),
            ..ListTasksRequest::default()
        }
    }

    /// Reads all pages, with one change after each page.
    async fn walk(&mut self, query: &Query, mut between: impl Iterator<Item = Change>) -> Vec<Task> {
        let (client, mut request, mut seen) =
            (self.clients[query.owner].clone(), Self::request(query), Vec::new());
        loop {
            let total = self.matching(query).len();
            let page = client.list(request.clone()).await.expect("a page");
            assert_eq!((page.total_size as usize, page.page_size), (total, query.size));
            assert!(page.tasks.len() == query.size as usize || page.next_page_token.is_empty());
            seen.extend(page.tasks);
            if page.next_page_token.is_empty() {
                return seen;
            }
            request.page_token = Some(page.next_page_token);
            if let Some(change) = between.next() {
                self.change(&change).await;
            }
        }
    }
}

fn states() -> impl Strategy<Value = TaskState> {
    prop::sample::select(TaskState::ALL[1..].to_vec())
}

fn changes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Change>> {
    let create = (0..3usize, 0..3usize, states(), 0..40i64)
        .prop_map(|(owner, context, state, at)| Change::Create { owner, context, state, at });
    let restate = (any::<usize>(), states(), 0..40i64).prop_map(|(which, state, at)| Change::Restate {
        which,
        state,
        at,
    });
    prop::collection::vec(prop_oneof![create, restate], count)
}

fn queries() -> impl Strategy<Value = Query> {
    let context = prop::option::weighted(0.4, 0..4usize);
    let (state, since) = (prop::option::weighted(0.3, states()), prop::option::weighted(0.4, -1..42i64));
    (0..3usize, context, state, since, 1..=100i32).prop_map(|(owner, context, state, since, size)| Query {
        owner,
        context,
        state,
        since,
        size,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_list_equals_that_of_the_model(
        rounds in prop::collection::vec((changes(0..120), queries()), 1..6),
        size in 1..8i32,
    ) {
        in_virtual_time(async {
            let mut both = Both::new();
            for (changes, query) in &rounds {
                for change in changes {
                    both.change(change).await;
                }
                let listed = both.walk(query, std::iter::empty()).await;
                let expected: HashSet<_> = both.matching(query).iter().map(|known| known.id.clone()).collect();
                let times: Vec<_> = listed.iter().map(|task| task.status.timestamp).collect();
                prop_assert!(times.is_sorted_by(|a, b| a >= b), "not latest first: {:?}", times);
                prop_assert_eq!(listed.len(), expected.len());
                prop_assert_eq!(listed.iter().map(|task| task.id.clone()).collect::<HashSet<_>>(), expected);
                for task in &listed {
                    let known = both.tasks.iter().find(|known| known.id == task.id).unwrap();
                    prop_assert_eq!((task.status.state, task.status.timestamp), (known.state, Some(time(known.at))));
                }
                // The order is the same for all page sizes.
                let again = both.walk(&Query { size, ..*query }, std::iter::empty()).await;
                prop_assert_eq!(again, listed);
            }
            Ok(())
        })?;
    }

    #[test]
    fn unchanged_tasks_are_listed_once_while_others_move_between_pages(
        setup in changes(20..200),
        moves in prop::collection::vec((any::<usize>(), states()), 0..40),
        query in queries(),
        size in 1..8i32,
    ) {
        in_virtual_time(async {
            let query = Query { state: None, size, ..query };
            let mut both = Both::new();
            for change in &setup {
                both.change(change).await;
            }
            let before: HashSet<_> = both.matching(&query).iter().map(|known| known.id.clone()).collect();
            // The time is later, so that changed tasks move to the front.
            let moves: Vec<_> = moves.iter().zip(100..).map(|((which, state), at)| Change::Restate { which: *which, state: *state, at }).collect();
            let seen = both.walk(&query, moves.into_iter()).await;
            let unique: HashSet<_> = seen.iter().map(|task| task.id.clone()).collect();
            prop_assert_eq!(unique.len(), seen.len());
            let moved: HashSet<_> = both.tasks.iter().filter(|known| known.at >= 100).map(|known| known.id.clone()).collect();
            prop_assert!(before.difference(&moved).all(|id| unique.contains(id)));
            Ok(())
        })?;
    }
}
