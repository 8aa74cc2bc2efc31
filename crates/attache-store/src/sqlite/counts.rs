//! The number of tasks since a time, without counting all of them.
//!
//! The table `counts` has the number of tasks for spans of time of several lengths. A count since a time adds the largest spans that
//! fit, at most 64 of each length. Only the tasks between that time and the end of its shortest span are counted one by one.

use std::collections::BTreeMap;

use attache_protocol::TaskState;
use rusqlite::{Connection, params};

use super::fault::Fault;

/// The lengths of the spans, as exponents of 2 in nanoseconds: from about 17 milliseconds to about half a year.
const LEVELS: [u32; 6] = [24, 30, 36, 42, 48, 54];

/// The level that has one number for all tasks of a state.
const ALL: u32 = 0;

/// The changes of the numbers in one transaction, by owner, state and shortest span.
#[derive(Debug, Default)]
pub(super) struct Deltas(BTreeMap<(i64, u8, i64), i64>);

impl Deltas {
    pub(super) fn add(&mut self, owner: i64, state: TaskState, nanos: i64) {
        self.change(owner, state, nanos, 1);
    }

    pub(super) fn remove(&mut self, owner: i64, state: TaskState, nanos: i64) {
        self.change(owner, state, nanos, -1);
    }

    fn change(&mut self, owner: i64, state: TaskState, nanos: i64, by: i64) {
        *self.0.entry((owner, state as u8, nanos >> LEVELS[0])).or_default() += by;
    }

    pub(super) fn write(self, db: &Connection) -> Result<(), Fault> {
        let mut all = BTreeMap::<_, i64>::new();
        for ((owner, state, shortest), by) in self.0 {
            *all.entry((owner, ALL, state, 0)).or_default() += by;
            for level in LEVELS {
                *all.entry((owner, level, state, shortest >> (level - LEVELS[0]))).or_default() += by;
            }
        }
        for ((owner, level, state, bucket), by) in all.into_iter().filter(|(_, by)| *by != 0) {
            db.prepare_cached(
                "INSERT INTO counts (owner, level, state, bucket, n) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET n = n + excluded.n",
            )?
            .execute(params![owner, level, state, bucket, by])?;
            if by < 0 {
                db.prepare_cached(
                    "DELETE FROM counts WHERE owner = ?1 AND level = ?2 AND state = ?3 AND bucket = ?4 AND n = 0",
                )?
                .execute(params![owner, level, state, bucket])?;
            }
        }
        Ok(())
    }
}

/// The number of tasks of an owner in each state.
pub(super) fn by_state(db: &Connection, owner: i64) -> Result<Vec<(u8, i64)>, Fault> {
    let mut read =
        db.prepare_cached("SELECT state, n FROM counts WHERE owner = ?1 AND level = ?2 AND n > 0")?;
    let rows = read.query_map(params![owner, ALL], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The number of tasks of an owner and state whose status time is `since` or later.
pub(super) fn since(db: &Connection, owner: i64, state: u8, since: i64) -> Result<i64, Fault> {
    let mut next = (since >> LEVELS[0]) + 1;
    let last = since | ((1 << LEVELS[0]) - 1);
    let mut total: i64 = db
        .prepare_cached(
            "SELECT count(*) FROM tasks INDEXED BY tasks_by_state
             WHERE owner = ?1 AND state = ?2 AND nanos >= ?3 AND nanos <= ?4",
        )?
        .query_row(params![owner, state, since, last], |row| row.get(0))?;
    let mut sum = db.prepare_cached(
        "SELECT ifnull(sum(n), 0) FROM counts
         WHERE owner = ?1 AND level = ?2 AND state = ?3 AND bucket >= ?4 AND bucket < ?5",
    )?;
    for (i, level) in LEVELS.iter().enumerate() {
        // Up to the begin of the next longer span. The longest level has no end.
        let (longer, end) = match LEVELS.get(i + 1) {
            Some(above) => {
                let span = above - level;
                let longer = (next + (1 << span) - 1) >> span;
                (longer, longer << span)
            }
            None => (0, i64::MAX),
        };
        total += sum.query_row(params![owner, level, state, next, end], |row| row.get::<_, i64>(0))?;
        next = longer;
    }
    Ok(total)
}

/// Compares the numbers with the tasks themselves. Returns a sentence for each difference.
pub(super) fn check(db: &Connection) -> Result<Vec<String>, Fault> {
    let mut problems = Vec::new();
    for level in std::iter::once(ALL).chain(LEVELS) {
        let bucket = if level == ALL { "0".to_owned() } else { format!("nanos >> {level}") };
        let mut read = db.prepare(&format!(
            "WITH real AS (SELECT owner, state, {bucket} AS bucket, count(*) AS n FROM tasks GROUP BY 1, 2, 3),
                  kept AS (SELECT owner, state, bucket, n FROM counts WHERE level = {level} AND n != 0)
             SELECT * FROM (SELECT * FROM real EXCEPT SELECT * FROM kept) UNION
             SELECT * FROM (SELECT * FROM kept EXCEPT SELECT * FROM real) LIMIT 10"
        ))?;
        let mut rows = read.query(())?;
        while let Some(row) = rows.next()? {
            let (owner, state): (i64, i64) = (row.get(0)?, row.get(1)?);
            problems.push(format!(
                "the number of tasks of owner {owner} in state {state} is wrong at level {level}"
            ));
        }
    }
    problems.dedup();
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sqlite::schema;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
        #[test]
        fn counts_by_time_span_equal_a_full_count(
            times in prop::collection::vec(
                prop_oneof![any::<i64>(), 0..1i64 << 40, -(1i64 << 32)..1 << 32, Just(i64::MIN), Just(i64::MAX)],
                0..60,
            ),
            gone in prop::collection::vec(any::<bool>(), 60),
            asked in prop::collection::vec(prop_oneof![any::<i64>(), 0..1i64 << 40, Just(i64::MIN), Just(i64::MAX)], 10),
        ) {
            let mut db = Connection::open_in_memory().unwrap();
            schema::migrate(&mut db).unwrap();
            let state = TaskState::Completed;
            let mut deltas = Deltas::default();
            for (id, nanos) in times.iter().enumerate() {
                db.execute(
                    "INSERT INTO tasks (id, task_id, owner, context, state, nanos) VALUES (?1, ?1, 1, '', ?2, ?3)",
                    params![id as i64, state as u8, nanos],
                )
                .unwrap();
                deltas.add(1, state, *nanos);
            }
            deltas.write(&db).unwrap();
            let mut deltas = Deltas::default();
            let mut left = Vec::new();
            for ((id, nanos), gone) in times.iter().enumerate().zip(gone) {
                if gone {
                    db.execute("DELETE FROM tasks WHERE id = ?1", [id as i64]).unwrap();
                    deltas.remove(1, state, *nanos);
                } else {
                    left.push(*nanos);
                }
            }
            deltas.write(&db).unwrap();
            prop_assert_eq!(check(&db).unwrap(), Vec::<String>::new());
            let all = by_state(&db, 1).unwrap().iter().map(|(_, n)| *n as usize).sum::<usize>();
            prop_assert_eq!(all, left.len());
            for from in asked.into_iter().chain(times) {
                let expected = left.iter().filter(|nanos| **nanos >= from).count() as i64;
                prop_assert_eq!(since(&db, 1, state as u8, from).unwrap(), expected, "{}", from);
            }
        }
    }
}
