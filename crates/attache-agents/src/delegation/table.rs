//! The table of delegated tasks. It is in the store, has a limit, and never removes a task that has not ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use attache_core::Store;
use attache_protocol::Json;
use tokio::sync::Mutex;

use super::DelegationError;
use super::record::Record;

/// The scope of records in the store.
const SCOPE: &str = "a2a_tasks";

/// The age of a record: the time of its creation, then its id.
type Age = (i64, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    UnderWay,
    Ended,
}

/// The records of delegated tasks.
pub(super) struct Table {
    store: Arc<dyn Store>,
    limit: usize,
    /// All records, oldest first. `None` until they have been loaded from the store.
    index: Mutex<Option<BTreeMap<Age, Progress>>>,
}

fn age(record: &Record) -> Age {
    (record.created_at.to_millis(), record.task.id.as_str().to_owned())
}

fn progress(record: &Record) -> Progress {
    if record.ended() { Progress::Ended } else { Progress::UnderWay }
}

impl Table {
    pub(super) fn new(store: Arc<dyn Store>, limit: usize) -> Self {
        Self { store, limit: limit.max(1), index: Mutex::default() }
    }

    pub(super) async fn get(&self, id: &str) -> Result<Option<Record>, DelegationError> {
        let stored = self.store.values().get(SCOPE, id).await?;
        Ok(stored.as_ref().and_then(Record::from_stored))
    }

    /// Adds a record. If the table is full, removes the oldest record of a task that has ended.
    pub(super) async fn add(&self, record: &Record) -> Result<(), DelegationError> {
        let kept = record.to_stored()?;
        let mut index = self.index.lock().await;
        let index = match &mut *index {
            Some(index) => index,
            empty @ None => empty.insert(self.load().await?),
        };
        while index.len() >= self.limit {
            let ended = index.iter().find(|(_, progress)| **progress == Progress::Ended);
            let Some(oldest) = ended.map(|(age, _)| age.clone()) else {
                return Err(DelegationError::TooManyTasks(index.len()));
            };
            self.store.values().change(SCOPE, &oldest.1, Box::new(|_| None)).await?;
            index.remove(&oldest);
        }
        let id = record.task.id.as_str();
        self.store.values().change(SCOPE, id, Box::new(move |_| Some(kept.clone()))).await?;
        index.insert(age(record), progress(record));
        Ok(())
    }

    async fn load(&self) -> Result<BTreeMap<Age, Progress>, DelegationError> {
        let stored = self.store.values().list(SCOPE).await?;
        let records = stored.iter().filter_map(|(_, stored)| Record::from_stored(stored));
        Ok(records.map(|record| (age(&record), progress(&record))).collect())
    }

    /// Updates a record, and returns the stored one. The record of an ended task does not change, and a removed record is not added
    /// again.
    pub(super) async fn save(&self, record: Record) -> Result<Record, DelegationError> {
        let new = record.to_stored()?;
        let change = move |old: Option<&Json>| {
            let old = old?;
            let ended = Record::from_stored(old).is_some_and(|old| old.ended());
            Some(if ended { old.clone() } else { new.clone() })
        };
        let id = record.task.id.as_str().to_owned();
        let changed = self.store.values().change(SCOPE, &id, Box::new(change)).await?;
        let stored = changed.new.as_ref().and_then(Record::from_stored).unwrap_or(record);
        if let Some(entry) = self.index.lock().await.as_mut().and_then(|index| index.get_mut(&age(&stored))) {
            *entry = progress(&stored);
        }
        Ok(stored)
    }

    /// The oldest records of tasks that have not ended.
    pub(super) async fn oldest(&self, count: usize) -> Result<Vec<Record>, DelegationError> {
        let ids: Vec<String> = {
            let index = self.index.lock().await;
            let under_way = index.iter().flatten().filter(|(_, progress)| **progress == Progress::UnderWay);
            under_way.take(count).map(|((_, id), _)| id.clone()).collect()
        };
        let mut records = Vec::new();
        for id in ids {
            records.extend(self.get(&id).await?);
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use attache_core::MemoryStore;
    use attache_protocol::{Task, TaskState, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn record(number: usize, ended: bool) -> Record {
        let mut task = Task { id: format!("t{number}").into(), ..Task::default() };
        task.status.state = if ended { TaskState::Completed } else { TaskState::Working };
        Record {
            task,
            agent_url: "https://a.example".to_owned(),
            remote_id: None,
            created_at: Timestamp::from_millis(i64::try_from(number).unwrap()),
        }
    }

    async fn ids(table: &Table) -> Vec<String> {
        let stored = table.store.values().list(SCOPE).await.unwrap();
        stored.into_iter().map(|(id, _)| id).collect()
    }

    #[tokio::test]
    async fn a_full_table_removes_the_oldest_task_that_has_ended() {
        let table = Table::new(Arc::new(MemoryStore::new()), 3);
        for (number, ended) in [(1, false), (2, true), (3, true), (4, false)] {
            table.add(&record(number, ended)).await.unwrap();
        }
        assert_eq!(ids(&table).await, ["t1", "t3", "t4"]);
        table.add(&record(5, false)).await.unwrap();
        assert_eq!(ids(&table).await, ["t1", "t4", "t5"]);
        assert!(matches!(table.add(&record(6, false)).await, Err(DelegationError::TooManyTasks(3))));
        table.save(record(4, true)).await.unwrap();
        table.add(&record(6, false)).await.unwrap();
        assert_eq!(ids(&table).await, ["t1", "t5", "t6"]);
    }

    #[tokio::test]
    async fn a_table_that_is_opened_again_has_the_same_records() {
        let store = Arc::new(MemoryStore::new());
        for (number, ended) in [(1, false), (2, true), (3, false)] {
            Table::new(store.clone(), 3).add(&record(number, ended)).await.unwrap();
        }
        let again = Table::new(store, 3);
        assert_eq!(again.get("t3").await.unwrap(), Some(record(3, false)).map(|record| read_back(&record)));
        again.add(&record(4, false)).await.unwrap();
        assert_eq!(ids(&again).await, ["t1", "t3", "t4"]);
    }

    fn read_back(record: &Record) -> Record {
        Record::from_stored(&record.to_stored().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn the_record_of_an_ended_task_does_not_change() {
        let table = Table::new(Arc::new(MemoryStore::new()), 3);
        table.add(&record(1, true)).await.unwrap();
        assert!(table.save(record(1, false)).await.unwrap().ended());
        assert!(table.get("t1").await.unwrap().unwrap().ended());
        table.save(record(2, true)).await.unwrap();
        assert_eq!(table.get("t2").await.unwrap(), None, "an evicted record is not added again");
    }

    proptest! {
        #[test]
        fn a_task_under_way_is_never_evicted(ended in prop::collection::vec(any::<bool>(), 0..40), limit in 1_usize..8) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let table = Table::new(Arc::new(MemoryStore::new()), limit);
                let mut under_way = Vec::new();
                for (number, ended) in ended.into_iter().enumerate() {
                    let added = table.add(&record(number, ended)).await;
                    if added.is_ok() && !ended {
                        under_way.push(format!("t{number}"));
                    }
                    let ids = ids(&table).await;
                    prop_assert!(ids.len() <= limit);
                    prop_assert!(under_way.iter().all(|id| ids.contains(id)));
                    prop_assert!(added.is_ok() || under_way.len() == limit);
                }
                Ok(())
            })?;
        }
    }
}
