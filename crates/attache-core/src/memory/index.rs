//! What keeps a listing's cost at the page: tasks sorted by status time within their owner, context and state.
//!
//! A task is filed under its state, among its owner's tasks and among those of its context; a listing of all states merges
//! the nine. Tasks are filed in batches: between two listings a task passes through several states, and only the last one
//! counts.

use std::hash::BuildHasher;
use std::sync::Arc;

use attache_protocol::TaskState;
use foldhash::fast::RandomState;

use super::cell::{Cell, Filed, nanos_of};
use super::id::{Id, Uuid};
use super::ranked::{Place, RankedSet};
use crate::{Cursor, ListQuery, Snapshot};

/// Where a task is filed among those of its group: an owner, or an owner's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key<G> {
    group: G,
    state: u8,
    nanos: i64,
    slot: u32,
}

impl<G> Key<G> {
    fn new(group: G, Filed { state, nanos }: Filed, slot: u32) -> Self {
        Self { group, state: state as u8, nanos, slot }
    }

    /// What comes before all those in a state that are not older than that.
    fn first(group: G, state: u8, nanos: i64) -> Self {
        Self { group, state, nanos, slot: 0 }
    }

    /// What comes after all those in a state.
    fn end(group: G, state: u8) -> Self {
        Self::first(group, state + 1, i64::MIN)
    }
}

/// An owner's context. New ones come last, if their ids are in the order of time.
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
    /// The group of a context. One that is called otherwise than by a UUID is known by a hash.
    fn context(&self, owner: u32, id: &Id) -> Context {
        let id = match id {
            Id::Uuid(uuid) => *uuid,
            Id::Other(text) => [self.hasher.hash_one(text), 0],
        };
        Context { id, owner }
    }

    /// Files a task where it belongs now.
    pub(super) fn file(&mut self, cell: &Arc<Cell>) {
        let (old, new) = cell.refile();
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

    /// Takes a task out.
    pub(super) fn remove(&mut self, cell: &Cell) {
        let Some(filed) = cell.filed() else { return };
        let context = self.context(cell.owner, &cell.context);
        self.by_owner.remove(&Key::new(cell.owner, filed, cell.slot));
        self.by_context.remove(&Key::new(context, filed, cell.slot));
        if let Some(place) = self.cells.get_mut(cell.slot as usize) {
            *place = None;
        }
    }

    /// A page of tasks.
    pub(super) fn page(&self, owner: u32, query: &ListQuery) -> Found {
        let Some(context) = &query.context else {
            return self.page_of(&self.by_owner, owner, query, |cell| cell.owner == owner);
        };
        let id = Id::read(context.as_str());
        let group = self.context(owner, &id);
        // Should two contexts ever share a hash, each still sees only its own tasks.
        self.page_of(&self.by_context, group, query, |cell| cell.owner == owner && cell.context == id)
    }

    fn page_of<G: Ord + Copy>(
        &self,
        set: &RankedSet<Key<G>>,
        group: G,
        query: &ListQuery,
        is_wanted: impl Fn(&Cell) -> bool,
    ) -> Found {
        let wanted = query.state.map(|state| state as u8);
        let (mut heads, mut total) = (Vec::<Head<G>>::new(), 0);
        // Goes from each state that there are tasks in to the next.
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
            heads.extend(Head::below(set, top, floor));
            from = ceiling;
        }

        let mut found = Found { tasks: Vec::with_capacity(query.limit), next: None, total };
        let mut last = None;
        while let Some(at) = (0..heads.len()).max_by_key(|i| heads[*i].moment()) {
            let mut head = heads.swap_remove(at);
            let next_of_others = heads.iter().map(Head::moment).max();
            // From one state, for as long as no other has a later one.
            loop {
                if found.tasks.len() == query.limit {
                    return Found { next: last, ..found };
                }
                let Key { nanos, slot, .. } = head.key;
                if let Some(Some(cell)) = self.cells.get(slot as usize)
                    && is_wanted(cell)
                {
                    found.tasks.push(cell.ended().ok_or_else(|| cell.clone()));
                    last = Some(Cursor { nanos, tie: u64::from(slot) });
                }
                match Head::below(set, head.place, head.floor) {
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

    /// Tasks of an owner's that have ended, oldest first: those of before `since`, and those beyond `keep`.
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
pub(super) struct Found {
    /// Those that have ended, and the cells of those that have not: a copy of such a task takes longer than the index can wait.
    pub(super) tasks: Vec<Result<Snapshot, Arc<Cell>>>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<Cursor>,
    /// How many match altogether.
    pub(super) total: usize,
}

/// The next task of one state.
struct Head<G> {
    key: Key<G>,
    place: Place,
    floor: Place,
}

impl<G: Ord + Copy> Head<G> {
    /// What tasks are listed by, the latest first.
    fn moment(&self) -> (i64, u32) {
        (self.key.nanos, self.key.slot)
    }

    fn below(set: &RankedSet<Key<G>>, place: Place, floor: Place) -> Option<Self> {
        if place <= floor {
            return None;
        }
        set.before(place).map(|(key, place)| Self { key, place, floor })
    }
}
