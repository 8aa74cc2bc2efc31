//! A sorted set that can also count: how many elements lie between two, without walking them.
//!
//! Elements lie in sorted chunks. Finding, inserting and removing touch one chunk; counting adds up the sizes of the chunks in
//! between. New elements mostly arrive at the end, where a full chunk is left full and a new one begun.

const CHUNK: usize = 256;

/// A place between two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    chunk: usize,
    offset: usize,
}

#[derive(Debug)]
pub(super) struct RankedSet<K> {
    /// Never empty chunks.
    chunks: Vec<Vec<K>>,
    /// The last element of each chunk, side by side so that finding a chunk touches little memory.
    lasts: Vec<K>,
}

impl<K: Ord + Copy> RankedSet<K> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), lasts: Vec::new() }
    }

    /// The place before the first element that is not less than `key`.
    pub(super) fn lower_bound(&self, key: &K) -> Place {
        let chunk = self.lasts.partition_point(|last| last < key);
        let offset = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(|known| known < key));
        Place { chunk, offset }
    }

    pub(super) fn insert(&mut self, key: K) {
        let Place { mut chunk, mut offset } = self.lower_bound(&key);
        if chunk == self.chunks.len() {
            match self.chunks.last() {
                Some(last) if last.len() < CHUNK => {
                    chunk -= 1;
                    offset = last.len();
                }
                Some(_) | None => {
                    self.chunks.push(Vec::with_capacity(8));
                    self.lasts.push(key);
                    offset = 0;
                }
            }
        }
        let target = &mut self.chunks[chunk];
        if target.get(offset) == Some(&key) {
            return;
        }
        if target.len() < CHUNK {
            target.insert(offset, key);
            self.lasts[chunk] = target[target.len() - 1];
            return;
        }
        let mut upper = target.split_off(CHUNK / 2);
        if offset <= CHUNK / 2 {
            target.insert(offset, key);
        } else {
            upper.insert(offset - CHUNK / 2, key);
        }
        self.lasts[chunk] = target[target.len() - 1];
        self.lasts.insert(chunk + 1, upper[upper.len() - 1]);
        self.chunks.insert(chunk + 1, upper);
    }

    pub(super) fn remove(&mut self, key: &K) {
        let Place { chunk, offset } = self.lower_bound(key);
        let Some(target) = self.chunks.get_mut(chunk) else { return };
        if target.get(offset) != Some(key) {
            return;
        }
        target.remove(offset);
        match target.last() {
            Some(last) => self.lasts[chunk] = *last,
            None => {
                self.chunks.remove(chunk);
                self.lasts.remove(chunk);
            }
        }
    }

    /// How many elements lie from one place up to another.
    pub(super) fn count(&self, from: Place, to: Place) -> usize {
        if from >= to {
            return 0;
        }
        if from.chunk == to.chunk {
            return to.offset - from.offset;
        }
        let between: usize = self.chunks[from.chunk + 1..to.chunk].iter().map(Vec::len).sum();
        self.chunks[from.chunk].len() - from.offset + between + to.offset
    }

    /// The element before a place, and the place before it.
    pub(super) fn before(&self, place: Place) -> Option<(K, Place)> {
        let Place { mut chunk, mut offset } = place;
        if offset == 0 {
            chunk = chunk.checked_sub(1)?;
            offset = self.chunks[chunk].len();
        }
        Some((self.chunks[chunk][offset - 1], Place { chunk, offset: offset - 1 }))
    }
}

impl<K: Ord + Copy> RankedSet<K> {
    /// The element after a place, and the place after it.
    pub(super) fn after(&self, place: Place) -> Option<(K, Place)> {
        let Place { mut chunk, mut offset } = place;
        if self.chunks.get(chunk).is_some_and(|known| offset == known.len()) {
            (chunk, offset) = (chunk + 1, 0);
        }
        let key = *self.chunks.get(chunk)?.get(offset)?;
        Some((key, Place { chunk, offset: offset + 1 }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn behaves_as_a_sorted_set_that_counts(
            steps in prop::collection::vec((any::<bool>(), 0u16..4000), 0..4000),
            ranges in prop::collection::vec((0u16..4000, 0u16..4000), 20),
        ) {
            let (mut set, mut model) = (RankedSet::new(), BTreeSet::new());
            for (add, key) in steps {
                if add { set.insert(key); model.insert(key); } else { set.remove(&key); model.remove(&key); }
            }
            for (a, b) in ranges {
                let (from, to) = (a.min(b), a.max(b));
                let counted = set.count(set.lower_bound(&from), set.lower_bound(&to));
                prop_assert_eq!(counted, model.range(from..to).count());
            }
            let (mut place, mut walked) = (set.lower_bound(&u16::MAX), Vec::new());
            while let Some((key, before)) = set.before(place) { walked.push(key); place = before; }
            prop_assert_eq!(walked, model.into_iter().rev().collect::<Vec<_>>());
        }
    }
}
