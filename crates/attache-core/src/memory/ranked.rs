//! A sorted map that also counts the keys between two positions without visiting them.
//!
//! Keys are in sorted chunks. A lookup, an insertion and a removal touch one chunk. Counting adds up the sizes of the chunks in
//! between. New keys mostly belong at the end or shortly before it. They are searched there first, and the chunks before stay full.

const CHUNK: usize = 256;

/// A position between two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    chunk: usize,
    offset: usize,
}

#[derive(Debug)]
pub(super) struct RankedMap<K, V> {
    /// No chunk is empty.
    chunks: Vec<Vec<(K, V)>>,
    /// The last key of each chunk. They are in one vector, so that finding a chunk reads little memory.
    lasts: Vec<K>,
    /// The number of keys of each chunk. They are in one vector, so that counting reads little memory.
    sizes: Vec<u16>,
}

/// A sorted set that counts.
pub(super) type RankedSet<K> = RankedMap<K, ()>;

impl<K, V> Default for RankedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), lasts: Vec::new(), sizes: Vec::new() }
    }
}

impl<K: Ord + Copy, V> RankedMap<K, V> {
    /// The position before the first key that is not less than `key`.
    pub(super) fn lower_bound(&self, key: &K) -> Position {
        let chunk = match self.lasts.as_slice() {
            lasts @ [.., last] if last < key => lasts.len(),
            lasts @ [.., before, _] if before < key => lasts.len() - 1,
            lasts => lasts.partition_point(|last| last < key),
        };
        let offset =
            self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(|(known, _)| known < key));
        Position { chunk, offset }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let Position { chunk, offset } = self.lower_bound(key);
        self.chunks.get(chunk)?.get(offset).filter(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The position for a new key. `None` if the map has the key.
    pub(super) fn insert_position(&self, key: &K) -> Option<Position> {
        let position = self.lower_bound(key);
        let taken = self
            .chunks
            .get(position.chunk)
            .and_then(|chunk| chunk.get(position.offset))
            .is_some_and(|(known, _)| known == key);
        (!taken).then_some(position)
    }

    /// Inserts a key, unless the map has it.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some(position) = self.insert_position(&key) {
            self.insert_at(position, key, value);
        }
    }

    /// Inserts a key at its position.
    pub(super) fn insert_at(&mut self, position: Position, key: K, value: V) {
        let Position { mut chunk, mut offset } = position;
        if chunk == self.chunks.len() {
            match self.chunks.last() {
                Some(last) if last.len() < CHUNK => {
                    chunk -= 1;
                    offset = last.len();
                }
                Some(_) | None => {
                    self.chunks.push(Vec::with_capacity(8));
                    self.lasts.push(key);
                    self.sizes.push(0);
                    offset = 0;
                }
            }
        }
        let (here, after) = self.chunks.split_at_mut(chunk + 1);
        let target = &mut here[chunk];
        match after.first_mut() {
            _ if target.len() < CHUNK => {
                target.insert(offset, (key, value));
                self.sizes[chunk] += 1;
            }
            Some(next) if next.len() < CHUNK => {
                let spilled = target.pop();
                target.insert(offset, (key, value));
                next.splice(..0, spilled);
                self.sizes[chunk + 1] += 1;
            }
            next => {
                // New keys come after the last chunk, so that chunk is not left half empty.
                let half = if next.is_none() { offset.max(CHUNK / 2) } else { CHUNK / 2 };
                let mut upper = target.split_off(half);
                if offset <= half {
                    target.insert(offset, (key, value));
                } else {
                    upper.insert(offset - half, (key, value));
                }
                self.sizes[chunk] = target.len() as u16;
                self.sizes.insert(chunk + 1, upper.len() as u16);
                self.lasts.insert(chunk + 1, upper[upper.len() - 1].0);
                self.chunks.insert(chunk + 1, upper);
            }
        }
        let target = &self.chunks[chunk];
        self.lasts[chunk] = target[target.len() - 1].0;
    }

    pub(super) fn remove(&mut self, key: &K) {
        let Position { chunk, offset } = self.lower_bound(key);
        let Some(target) = self.chunks.get_mut(chunk) else { return };
        if target.get(offset).is_none_or(|(known, _)| known != key) {
            return;
        }
        target.remove(offset);
        match target.last() {
            Some((last, _)) => {
                self.lasts[chunk] = *last;
                self.sizes[chunk] -= 1;
            }
            None => {
                self.chunks.remove(chunk);
                self.lasts.remove(chunk);
                self.sizes.remove(chunk);
            }
        }
    }

    /// The number of keys between two positions.
    pub(super) fn count(&self, from: Position, to: Position) -> usize {
        if from >= to {
            return 0;
        }
        if from.chunk == to.chunk {
            return to.offset - from.offset;
        }
        let between = self.sizes[from.chunk..to.chunk].iter().fold(0u32, |sum, size| sum + u32::from(*size));
        between as usize - from.offset + to.offset
    }

    /// The key before a position, and the position before it.
    pub(super) fn before(&self, position: Position) -> Option<(K, Position)> {
        let Position { mut chunk, mut offset } = position;
        if offset == 0 {
            chunk = chunk.checked_sub(1)?;
            offset = self.chunks[chunk].len();
        }
        Some((self.chunks[chunk][offset - 1].0, Position { chunk, offset: offset - 1 }))
    }

    /// The key after a position, and the position after it.
    pub(super) fn after(&self, position: Position) -> Option<(K, Position)> {
        let Position { mut chunk, mut offset } = position;
        if self.chunks.get(chunk).is_some_and(|known| offset == known.len()) {
            (chunk, offset) = (chunk + 1, 0);
        }
        let key = self.chunks.get(chunk)?.get(offset)?.0;
        Some((key, Position { chunk, offset: offset + 1 }))
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
            let (mut set, mut model) = (RankedSet::default(), BTreeSet::new());
            for (add, key) in steps {
                if add { set.insert(key, ()); model.insert(key); } else { set.remove(&key); model.remove(&key); }
            }
            for (a, b) in ranges {
                let (from, to) = (a.min(b), a.max(b));
                let counted = set.count(set.lower_bound(&from), set.lower_bound(&to));
                prop_assert_eq!(counted, model.range(from..to).count());
            }
            let (mut position, mut walked) = (set.lower_bound(&u16::MAX), Vec::new());
            while let Some((key, before)) = set.before(position) { walked.push(key); position = before; }
            prop_assert_eq!(walked, model.into_iter().rev().collect::<Vec<_>>());
        }

        #[test]
        fn every_value_is_found_under_its_key(keys in prop::collection::hash_map(any::<u16>(), any::<u8>(), 0..2000)) {
            let mut map = RankedMap::default();
            for (key, value) in &keys {
                map.insert(*key, *value);
            }
            for key in 0..=u16::MAX {
                prop_assert_eq!(map.get(&key), keys.get(&key));
            }
        }
    }

    #[test]
    fn keys_that_arrive_almost_in_order_leave_chunks_almost_full() {
        let mut set = RankedSet::default();
        for tick in 0..1000u32 {
            for key in (0..40).map(|i| tick * 40 + i * 7 % 40) {
                set.insert(key, ());
            }
        }
        let full = 40_000usize.div_ceil(CHUNK);
        assert!(set.chunks.len() <= full * 5 / 4, "{} chunks, at best {full}", set.chunks.len());
    }
}
