//! What keeps a listing's cost at the page: tasks sorted by status time within their owner, context and state.
//!
//! A task is filed under its state, among its owner's tasks and among those of its context; a listing of all states merges
//! the nine. Tasks are filed in batches: between two listings a task passes through several states, and only the last one
//! counts. Most contexts have a single task, which needs no order.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;

use attache_protocol::{ContextId, TaskState};
use foldhash::fast::RandomState;

use super::cell::{Cell, nanos_of};
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
    by_context: HashMap<u64, ContextTasks, BuildHasherDefault<AlreadyHashed>>,
    cells: Vec<Option<Arc<Cell>>>,
    hasher: RandomState,
}

/// The tasks of a context.
#[derive(Debug)]
enum ContextTasks {
    One(u32),
    Many(Box<RankedSet<Key>>),
}

/// Takes the keys of `by_context` as they are: they are hashes.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            by_owner: RankedSet::new(),
            by_context: HashMap::default(),
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
        let key = |group, (state, nanos)| Key { group, state, nanos, slot };
        if let Some(old) = old {
            self.by_owner.remove(&key(owner, old));
        } else {
            let at = slot as usize;
            if self.cells.len() <= at {
                self.cells.resize(at + 1, None);
            }
            self.cells[at] = Some(cell.clone());
        }
        self.by_owner.insert(key(owner, new));

        let context = self.context_group(cell.owner, &cell.context);
        match self.by_context.entry(context) {
            MapEntry::Vacant(vacant) => {
                vacant.insert(ContextTasks::One(slot));
            }
            MapEntry::Occupied(mut occupied) => match occupied.get_mut() {
                ContextTasks::One(only) if *only == slot => {}
                ContextTasks::One(first) => {
                    let mut tasks = RankedSet::new();
                    if let Some(Some(first)) = self.cells.get(*first as usize)
                        && let Some((state, nanos)) = first.filed()
                    {
                        tasks.insert(Key { group: context, state, nanos, slot: first.slot });
                    }
                    tasks.insert(key(context, new));
                    occupied.insert(ContextTasks::Many(Box::new(tasks)));
                }
                ContextTasks::Many(tasks) => {
                    if let Some(old) = old {
                        tasks.remove(&key(context, old));
                    }
                    tasks.insert(key(context, new));
                }
            },
        }
    }

    /// A page of cells with their places in the order, whether there are more, and how many match altogether.
    pub(super) fn page(&self, owner: u32, query: &ListQuery) -> (Vec<(Arc<Cell>, Cursor)>, bool, usize) {
        let mut alone = RankedSet::new();
        let (set, group) = match &query.context {
            None => (&self.by_owner, u64::from(owner)),
            Some(context) => {
                let group = self.context_group(owner, context);
                match self.by_context.get(&group) {
                    Some(ContextTasks::Many(tasks)) => (&**tasks, group),
                    Some(ContextTasks::One(slot)) => {
                        if let Some(Some(cell)) = self.cells.get(*slot as usize)
                            && let Some((state, nanos)) = cell.filed()
                        {
                            alone.insert(Key { group, state, nanos, slot: *slot });
                        }
                        (&alone, group)
                    }
                    None => (&alone, group),
                }
            }
        };
        let since = query.since.map_or(i64::MIN, nanos_of);
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
            // Contexts are told apart by hashes. Should two ever share one, each still sees only its own tasks.
            if let Some(Some(cell)) = self.cells.get(key.slot as usize)
                && cell.owner == owner
                && query.context.as_ref().is_none_or(|context| *context == cell.context)
            {
                page.push((cell.clone(), Cursor { nanos: key.nanos, tie: u64::from(key.slot) }));
            }
        }
        (page, false, total)
    }
}

impl Index {
    /// Takes a task out.
    pub(super) fn remove(&mut self, cell: &Cell) {
        let Some((state, nanos)) = cell.filed() else { return };
        let key = |group| Key { group, state, nanos, slot: cell.slot };
        self.by_owner.remove(&key(u64::from(cell.owner)));
        let context = self.context_group(cell.owner, &cell.context);
        if let MapEntry::Occupied(mut occupied) = self.by_context.entry(context) {
            let empty = match occupied.get_mut() {
                ContextTasks::One(slot) => *slot == cell.slot,
                ContextTasks::Many(tasks) => {
                    tasks.remove(&key(context));
                    tasks.is_empty()
                }
            };
            if empty {
                occupied.remove();
            }
        }
        if let Some(place) = self.cells.get_mut(cell.slot as usize) {
            *place = None;
        }
    }

    /// Tasks of an owner's that have ended, oldest first: those of before `since`, and those beyond `keep`.
    pub(super) fn expired(&self, owner: u32, since: Option<i64>, keep: Option<usize>) -> Vec<Arc<Cell>> {
        let group = u64::from(owner);
        let mut heads = Vec::new();
        let mut count = 0;
        for state in TaskState::ALL.iter().filter(|state| state.is_terminal()) {
            let state = *state as u8;
            let from = self.by_owner.lower_bound(&Key { group, state, nanos: i64::MIN, slot: 0 });
            let to = self.by_owner.lower_bound(&Key { group, state: state + 1, nanos: i64::MIN, slot: 0 });
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
