//! The index for listings: tasks sorted by status time within their owner, context and state. The cost of a listing depends on the
//! page, not on the number of tasks.
//!
//! A task is indexed under its state, once for its owner and once for its context. A listing of all states merges the nine states.
//! Tasks are indexed in batches: between two listings a task goes through several states, and only the last one matters.

use std::hash::BuildHasher;
use std::sync::Arc;

use attache_protocol::TaskState;
use foldhash::fast::RandomState;

use super::cell::{Cell, IndexEntry, nanos_of};
use super::id::{Id, Uuid};
use super::ranked::{Position, RankedSet};
use crate::{Cursor, ListQuery, Snapshot};

/// The key of a task in its group. A group is an owner, or a context of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key<G> {
    group: G,
    state: u8,
    nanos: i64,
    slot: u32,
}

impl<G> Key<G> {
    fn new(group: G, IndexEntry { state, nanos }: IndexEntry, slot: u32) -> Self {
        Self { group, state: state as u8, nanos, slot }
    }

    /// The lower bound of the keys in a state that are not older than `nanos`.
    fn first(group: G, state: u8, nanos: i64) -> Self {
        Self { group, state, nanos, slot: 0 }
    }

    /// The upper bound of the keys in a state.
    fn end(group: G, state: u8) -> Self {
        Self::first(group, state + 1, i64::MIN)
    }
}

/// A context of an owner. New contexts come last if their ids are sorted by creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Context {
    id: Uuid,
    owner: u32,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    by_owner: RankedSet<Key<u32>>,
    by_context: RankedSet<Key<Context>>,
    cells: Vec<Option<Arc<Cell>>>,
    hasher: RandomState,
}

impl Index {
    /// The group of a context. An id that is no UUID is hashed.
    fn context(&self, owner: u32, id: &Id) -> Context {
        let id = match id {
            Id::Uuid(uuid) => *uuid,
            Id::Other(text) => [self.hasher.hash_one(text), 0],
        };
        Context { id, owner }
    }

    /// Indexes a task under its current state and status time.
    pub(super) fn update(&mut self, cell: &Arc<Cell>) {
        let (old, new) = cell.reindex();
        let (owner, context, slot) = (cell.owner, self.context(cell.owner, &cell.context), cell.slot);
        if let Some(old) = old {
            self.by_owner.remove(&Key::new(owner, old, slot));
            self.by_context.remove(&Key::new(context, old, slot));
        } else {
            let at = slot as usize;
            if self.cells.len() <= at {
                self.cells.resize(at + 1, None);
            }
            self.cells[at] = Some(cell.clone());
        }
        self.by_owner.insert(Key::new(owner, new, slot), ());
        self.by_context.insert(Key::new(context, new, slot), ());
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, cell: &Cell) {
        let Some(indexed) = cell.indexed() else { return };
        let context = self.context(cell.owner, &cell.context);
        self.by_owner.remove(&Key::new(cell.owner, indexed, cell.slot));
        self.by_context.remove(&Key::new(context, indexed, cell.slot));
        if let Some(slot) = self.cells.get_mut(cell.slot as usize) {
            *slot = None;
        }
    }

    /// A page of tasks.
    pub(super) fn page(&self, owner: u32, query: &ListQuery) -> IndexPage {
        let Some(context) = &query.context else {
            return self.page_of(&self.by_owner, owner, query, |cell| cell.owner == owner);
        };
        let id = Id::read(context.as_str());
        let group = self.context(owner, &id);
        // Two contexts could have the same hash. Each listing shows only tasks of its own context.
        self.page_of(&self.by_context, group, query, |cell| cell.owner == owner && cell.context == id)
    }

    fn page_of<G: Ord + Copy>(
        &self,
        set: &RankedSet<Key<G>>,
        group: G,
        query: &ListQuery,
        is_wanted: impl Fn(&Cell) -> bool,
    ) -> IndexPage {
        let wanted = query.state.map(|state| state as u8);
        let (mut heads, mut total) = (Vec::<StateCursor<G>>::new(), 0);
        // Goes from each state with tasks to the next one.
        let mut from = set.lower_bound(&Key::first(group, wanted.unwrap_or_default(), i64::MIN));
        while let Some((Key { state, .. }, _)) = set
            .after(from)
            .filter(|(key, _)| key.group == group && wanted.is_none_or(|wanted| wanted == key.state))
        {
            let ceiling = set.lower_bound(&Key::end(group, state));
            let floor = match query.since {
                None => from,
                Some(since) => set.lower_bound(&Key::first(group, state, nanos_of(since))),
            };
            total += set.count(floor, ceiling);
            let top = match query.after {
                None => ceiling,
                Some(Cursor { nanos, tie }) => {
                    let slot = u32::try_from(tie).unwrap_or(u32::MAX);
                    set.lower_bound(&Key { group, state, nanos, slot }).min(ceiling)
                }
            };
            heads.extend(StateCursor::below(set, top, floor));
            from = ceiling;
        }

        let mut found = IndexPage { tasks: Vec::with_capacity(query.limit), next: None, total };
        let mut last = None;
        while let Some(at) = (0..heads.len()).max_by_key(|i| heads[*i].moment()) {
            let mut head = heads.swap_remove(at);
            let next_of_others = heads.iter().map(StateCursor::moment).max();
            // Takes tasks of one state until another state has a later one.
            loop {
                if found.tasks.len() == query.limit {
                    return IndexPage { next: last, ..found };
                }
                let Key { nanos, slot, .. } = head.key;
                if let Some(Some(cell)) = self.cells.get(slot as usize)
                    && is_wanted(cell)
                {
                    found.tasks.push(cell.ended().ok_or_else(|| cell.clone()));
                    last = Some(Cursor { nanos, tie: u64::from(slot) });
                }
                match StateCursor::below(set, head.position, head.floor) {
                    None => break,
                    Some(next) if Some(next.moment()) < next_of_others => {
                        heads.push(next);
                        break;
                    }
                    Some(next) => head = next,
                }
            }
        }
        found
    }

    /// Tasks of an owner that have ended, oldest first: those from before `since`, and those beyond the number `keep`.
    pub(super) fn expired(&self, owner: u32, since: Option<i64>, keep: Option<usize>) -> Vec<Arc<Cell>> {
        let mut heads = Vec::new();
        let mut count = 0;
        for state in TaskState::ALL.iter().filter(|state| state.is_terminal()) {
            let state = *state as u8;
            let from = self.by_owner.lower_bound(&Key::first(owner, state, i64::MIN));
            let to = self.by_owner.lower_bound(&Key::end(owner, state));
            count += self.by_owner.count(from, to);
            heads.push((from, to));
        }
        let mut beyond = keep.map_or(0, |keep| count.saturating_sub(keep));
        let mut expired = Vec::new();
        loop {
            let firsts = heads.iter().enumerate().filter(|(_, (from, to))| from < to);
            let oldest = firsts
                .filter_map(|(i, (from, _))| self.by_owner.after(*from).map(|(key, next)| (key, next, i)))
                .min_by_key(|(key, ..)| (key.nanos, key.slot));
            let Some((key, next, i)) = oldest else { break };
            if beyond == 0 && since.is_none_or(|since| key.nanos >= since) {
                break;
            }
            beyond = beyond.saturating_sub(1);
            heads[i].0 = next;
            expired.extend(self.cells.get(key.slot as usize).cloned().flatten());
        }
        expired
    }
}

/// A page of tasks.
pub(super) struct IndexPage {
    /// Snapshots of tasks that have ended, and the cells of the others. Copying a live task takes too long under the lock of the index.
    pub(super) tasks: Vec<Result<Snapshot, Arc<Cell>>>,
    /// The position of the next page, if there is one.
    pub(super) next: Option<Cursor>,
    /// The number of matching tasks on all pages.
    pub(super) total: usize,
}

/// The next task of one state.
struct StateCursor<G> {
    key: Key<G>,
    position: Position,
    floor: Position,
}

impl<G: Ord + Copy> StateCursor<G> {
    /// The sort key of listings. The latest comes first.
    fn moment(&self) -> (i64, u32) {
        (self.key.nanos, self.key.slot)
    }

    /// The last task before `position`, but not before `floor`.
    fn below(set: &RankedSet<Key<G>>, position: Position, floor: Position) -> Option<Self> {
        if position <= floor {
            return None;
        }
        set.before(position).map(|(key, position)| Self { key, position, floor })
    }
}
