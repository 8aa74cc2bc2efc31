//! A sorted map that can also count: how many keys lie between two, without walking them.
//!
//! Keys lie in sorted chunks. Finding, inserting and removing touch one chunk; counting adds up the sizes of the chunks in
//! between. New keys mostly arrive at the end or shortly before it: they are looked for there first, and the chunks that they leave
//! behind are full.

const CHUNK: usize = 256;

/// A place between two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    chunk: usize,
    offset: usize,
}

#[derive(Debug)]
pub(super) struct RankedMap<K, V> {
    /// Never empty chunks.
    chunks: Vec<Vec<(K, V)>>,
    /// The last key of each chunk, side by side so that finding a chunk touches little memory.
    lasts: Vec<K>,
    /// How many keys each chunk has, side by side as well, so that counting is adding up.
    sizes: Vec<u16>,
}

/// A sorted set that can count.
pub(super) type RankedSet<K> = RankedMap<K, ()>;

impl<K, V> Default for RankedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), lasts: Vec::new(), sizes: Vec::new() }
    }
}

impl<K: Ord + Copy, V> RankedMap<K, V> {
    /// The place before the first key that is not less than `key`.
    pub(super) fn lower_bound(&self, key: &K) -> Place {
        let chunk = match self.lasts.as_slice() {
            lasts @ [.., last] if last < key => lasts.len(),
            lasts @ [.., before, _] if before < key => lasts.len() - 1,
            lasts => lasts.partition_point(|last| last < key),
        };
        let offset =
            self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(|(known, _)| known < key));
        Place { chunk, offset }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let Place { chunk, offset } = self.lower_bound(key);
        self.chunks.get(chunk)?.get(offset).filter(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Where a key belongs that is not there yet.
    pub(super) fn vacancy(&self, key: &K) -> Option<Place> {
        let place = self.lower_bound(key);
        let taken = self
            .chunks
            .get(place.chunk)
            .and_then(|chunk| chunk.get(place.offset))
            .is_some_and(|(known, _)| known == key);
        (!taken).then_some(place)
    }

    /// Puts a key in, unless it is there.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some(place) = self.vacancy(&key) {
            self.insert_at(place, key, value);
        }
    }

    /// Puts a key in where it belongs.
    pub(super) fn insert_at(&mut self, place: Place, key: K, value: V) {
        let Place { mut chunk, mut offset } = place;
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
                // After the end of the last chunk comes what is new: that one is not left half empty.
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
        let Place { chunk, offset } = self.lower_bound(key);
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

    /// How many keys lie from one place up to another.
    pub(super) fn count(&self, from: Place, to: Place) -> usize {
        if from >= to {
            return 0;
        }
        if from.chunk == to.chunk {
            return to.offset - from.offset;
        }
        let between = self.sizes[from.chunk..to.chunk].iter().fold(0u32, |sum, size| sum + u32::from(*size));
        between as usize - from.offset + to.offset
    }

    /// The key before a place, and the place before it.
    pub(super) fn before(&self, place: Place) -> Option<(K, Place)> {
        let Place { mut chunk, mut offset } = place;
        if offset == 0 {
            chunk = chunk.checked_sub(1)?;
            offset = self.chunks[chunk].len();
        }
        Some((self.chunks[chunk][offset - 1].0, Place { chunk, offset: offset - 1 }))
    }

    /// The key after a place, and the place after it.
    pub(super) fn after(&self, place: Place) -> Option<(K, Place)> {
        let Place { mut chunk, mut offset } = place;
        if self.chunks.get(chunk).is_some_and(|known| offset == known.len()) {
            (chunk, offset) = (chunk + 1, 0);
        }
        let key = self.chunks.get(chunk)?.get(offset)?.0;
        Some((key, Place { chunk, offset: offset + 1 }))
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
            let (mut place, mut walked) = (set.lower_bound(&u16::MAX), Vec::new());
            while let Some((key, before)) = set.before(place) { walked.push(key); place = before; }
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
