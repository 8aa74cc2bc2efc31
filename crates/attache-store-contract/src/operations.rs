//! Random operations for the test against the memory store.

use attache_protocol::TaskState;
use proptest::prelude::*;
use proptest::sample::Index;

/// An operation on a store. The index of its task is taken modulo the number of tasks.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create {
        owner: usize,
        context: usize,
        state: TaskState,
        key: Option<u8>,
        hook: Option<Hook>,
        more: Vec<Event>,
    },
    Append {
        which: Index,
        whats: Vec<Event>,
        by: LeaseChoice,
        at_wrong_position: bool,
        key: Option<u8>,
    },
    Claim {
        which: Index,
    },
    Renew {
        which: Index,
        by: LeaseChoice,
    },
    Release {
        which: Index,
        by: LeaseChoice,
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
        how: Settlement,
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
pub(crate) enum Event {
    Status(TaskState, bool),
    Chunk(usize),
    Message,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LeaseChoice {
    None,
    Latest,
    Earlier,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Hook {
    pub(crate) receiver: usize,
    pub(crate) everything: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Settlement {
    Delivered,
    Postponed,
    Failed,
    GivenUp,
}

/// A change of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Set(u64),
    Add,
    Keep,
    Remove,
}

fn states() -> impl Strategy<Value = TaskState> {
    let live = [TaskState::Submitted, TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired];
    let ends = [TaskState::Completed, TaskState::Failed, TaskState::Canceled, TaskState::Rejected];
    prop_oneof![2 => prop::sample::select(live.to_vec()), 1 => prop::sample::select(ends.to_vec())]
}

/// Generates operations.
pub(crate) fn operations() -> impl Strategy<Value = Operation> {
    let what = prop_oneof![
        3 => (states(), any::<bool>()).prop_map(|(state, speaks)| Event::Status(state, speaks)),
        2 => (0..2usize).prop_map(Event::Chunk),
        1 => Just(Event::Message),
    ];
    let whats = |count| prop::collection::vec(what.clone(), count);
    let key = || prop::option::weighted(0.2, 0..6u8);
    let which = any::<Index>;
    let by = || {
        prop::sample::select(vec![
            LeaseChoice::None,
            LeaseChoice::None,
            LeaseChoice::Latest,
            LeaseChoice::Latest,
            LeaseChoice::Earlier,
        ])
    };
    let hook = || (0..3usize, any::<bool>()).prop_map(|(receiver, everything)| Hook { receiver, everything });
    let how = prop::sample::select(vec![
        Settlement::Delivered,
        Settlement::Delivered,
        Settlement::Postponed,
        Settlement::Failed,
        Settlement::GivenUp,
    ]);
    let create = (0..3usize, 0..3usize, states(), key(), prop::option::of(hook()), whats(0..3)).prop_map(
        |(owner, context, state, key, hook, more)| Operation::Create {
            owner,
            context,
            state,
            key,
            hook,
            more,
        },
    );
    let append = (which(), whats(1..4), by(), prop::bool::weighted(0.1), key()).prop_map(
        |(which, whats, by, at_wrong_position, key)| Operation::Append {
            which,
            whats,
            by,
            at_wrong_position,
            key,
        },
    );
    let list = (
        0..3usize,
        prop::option::of(0..3usize),
        prop::option::of(states()),
        prop::option::of(0..400i64),
        1..6usize,
    )
        .prop_map(|(owner, context, state, ago, size)| Operation::List {
            owner,
            context,
            state,
            ago,
            size,
        });
    let dead = prop::option::of(which());
    let change = prop_oneof![
        2 => any::<u64>().prop_map(|number| Change::Set(number >> 1)),
        2 => Just(Change::Add),
        1 => Just(Change::Keep),
        2 => Just(Change::Remove),
    ];
    let change_value = (0..3usize, 0..4usize, change).prop_map(|(scope, key, how)| Operation::ChangeValue {
        scope,
        key,
        how,
    });
    prop_oneof![
        8 => create,
        12 => append,
        2 => which().prop_map(|which| Operation::Claim { which }),
        1 => (which(), by()).prop_map(|(which, by)| Operation::Renew { which, by }),
        2 => (which(), by()).prop_map(|(which, by)| Operation::Release { which, by }),
        3 => (which(), 0..6u64).prop_map(|(which, after)| Operation::Tail { which, after }),
        4 => list,
        1 => (0..3usize, 0..6u8).prop_map(|(owner, key)| Operation::FindKey { owner, key }),
        3 => (which(), 0..2usize, hook()).prop_map(|(which, name, hook)| Operation::Put { which, name, hook }),
        1 => (which(), 0..2usize).prop_map(|(which, name)| Operation::Delete { which, name }),
        6 => (0..3usize).prop_map(|receiver| Operation::Take { receiver }),
        8 => (which(), how).prop_map(|(which, how)| Operation::Settle { which, how }),
        1 => dead.clone().prop_map(|which| Operation::RetryDead { which }),
        1 => dead.prop_map(|which| Operation::PurgeDead { which }),
        1 => (prop::option::of(0..400u64), prop::option::of(0..4usize))
            .prop_map(|(ago, keep)| Operation::Prune { ago, keep }),
        8 => change_value,
        1 => (0..3usize).prop_map(|scope| Operation::ListValues { scope }),
        1 => Just(Operation::Reopen),
    ]
}
