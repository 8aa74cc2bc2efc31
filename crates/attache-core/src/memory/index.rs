//! What keeps a listing's cost at the page: tasks sorted by status time within their owner, context and state.
//!
//! A task is filed under its state in two orders, by owner and by context; a listing of all states merges the nine.
//! Tasks are filed in batches: between two listings a task passes through several states, and only the last one counts.

use std::hash::BuildHasher;
use std::sync::Arc;

use attache_protocol::{ContextId, TaskState};
use foldhash::fast::RandomState;

use super::cell::Cell;
use super::ranked::{Place, RankedSet};
use crate::{Cursor, ListQuery};

/// Where a task is filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The owner, or the owner's context.
    group: u64,
    state: u8,
    nanos: i64,
    slot: u32,
}

#[derive(Debug)]
pub(super) struct Index {
    by_owner: RankedSet<Key>,
    by_context: RankedSet<Key>,
    cells: Vec<Option<Arc<Cell>>>,
    hasher: RandomState,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            by_owner: RankedSet::new(),
            by_context: RankedSet::new(),
            cells: Vec::new(),
            hasher: RandomState::default(),
        }
    }

    fn context_group(&self, owner: u32, context: &ContextId) -> u64 {
        self.hasher.hash_one((owner, context))
    }

    /// Files a task where it belongs now.
    pub(super) fn file(&mut self, cell: &Arc<Cell>) {
        let (old, new) = cell.refile();
        let (owner, slot) = (u64::from(cell.owner), cell.slot);
        let context = self.context_group(cell.owner, &cell.context);
        if let Some((state, nanos)) = old {
            self.by_owner.remove(&Key { group: owner, state, nanos, slot });
            self.by_context.remove(&Key { group: context, state, nanos, slot });
        } else {
            let at = slot as usize;
            if self.cells.len() <= at {
                self.cells.resize(at + 1, None);
            }
            self.cells[at] = Some(cell.clone());
        }
        let (state, nanos) = new;
        self.by_owner.insert(Key { group: owner, state, nanos, slot });
        self.by_context.insert(Key { group: context, state, nanos, slot });
    }

    /// A page of cells with their places in the order, whether there are more, and how many match altogether.
    pub(super) fn page(&self, owner: u32, query: &ListQuery) -> (Vec<(Arc<Cell>, Cursor)>, bool, usize) {
        let (set, group) = match &query.context {
            None => (&self.by_owner, u64::from(owner)),
            Some(context) => (&self.by_context, self.context_group(owner, context)),
        };
        let since = query.since.map_or(i64::MIN, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        let states = TaskState::ALL.iter().filter(|state| query.state.is_none_or(|wanted| wanted == **state));

        let mut total = 0;
        let mut heads: Vec<Head> = Vec::new();
        for state in states {
            let state = *state as u8;
            let floor = set.lower_bound(&Key { group, state, nanos: since, slot: 0 });
            let ceiling = set.lower_bound(&Key { group, state: state + 1, nanos: i64::MIN, slot: 0 });
            total += set.count(floor, ceiling);
            let top = match query.after {
                None => ceiling,
                Some(Cursor { nanos, tie }) => {
                    let slot = u32::try_from(tie).unwrap_or(u32::MAX);
                    set.lower_bound(&Key { group, state, nanos, slot }).min(ceiling)
                }
            };
            heads.extend(Head::below(set, top, floor));
        }

        let mut page = Vec::with_capacity(query.limit);
        while let Some(at) = (0..heads.len()).max_by_key(|i| (heads[*i].key.nanos, heads[*i].key.slot)) {
            if page.len() == query.limit {
                return (page, true, total);
            }
            let Head { key, place, floor } = heads.swap_remove(at);
            heads.extend(Head::below(set, place, floor));
            if let Some(Some(cell)) = self.cells.get(key.slot as usize) {
                page.push((cell.clone(), Cursor { nanos: key.nanos, tie: u64::from(key.slot) }));
            }
        }
        (page, false, total)
    }
}

/// The next task of one state.
struct Head {
    key: Key,
    place: Place,
    floor: Place,
}

impl Head {
    fn below(set: &RankedSet<Key>, place: Place, floor: Place) -> Option<Self> {
        if place <= floor {
            return None;
        }
        set.before(place).map(|(key, place)| Self { key, place, floor })
    }
}
