//! Owners, and their row ids.

use std::collections::HashMap;

use attache_core::{Owner, Principal};
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::Fault;

/// The maximum number of owners in the cache.
const MAX_CACHED: usize = 64 * 1024;

/// A cache of the row ids of owners. The row id of an owner never changes.
#[derive(Default)]
pub(super) struct Owners(RwLock<HashMap<Owner, i64, RandomState>>);

impl Owners {
    pub(super) fn get(&self, owner: &Owner) -> Option<i64> {
        self.0.read().get(owner).copied()
    }

    pub(super) fn remember(&self, owner: Owner, number: i64) {
        let mut cache = self.0.write();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(owner, number);
    }

    /// The row id of an owner, if there is one.
    pub(super) fn find(&self, db: &Connection, owner: &Owner) -> Result<Option<i64>, Fault> {
        if let Some(number) = self.get(owner) {
            return Ok(Some(number));
        }
        let number = find(db, owner)?;
        if let Some(number) = number {
            self.remember(owner.clone(), number);
        }
        Ok(number)
    }
}

pub(super) fn find(db: &Connection, owner: &Owner) -> Result<Option<i64>, Fault> {
    let mut find =
        db.prepare_cached("SELECT id FROM owners WHERE tenant IS ?1 AND principal IS ?2 AND agent IS ?3")?;
    Ok(find
        .query_row(params![owner.tenant, owner.principal.name(), owner.agent], |row| row.get(0))
        .optional()?)
}

pub(super) fn insert(db: &Connection, owner: &Owner) -> Result<i64, Fault> {
    db.prepare_cached("INSERT INTO owners (tenant, principal, agent) VALUES (?1, ?2, ?3)")?
        .execute(params![owner.tenant, owner.principal.name(), owner.agent])?;
    Ok(db.last_insert_rowid())
}

/// Reads an owner from the columns `tenant`, `principal` and `agent`.
pub(super) fn read(row: &Row<'_>, from: usize) -> rusqlite::Result<Owner> {
    let tenant: Option<String> = row.get(from)?;
    let principal: Option<String> = row.get(from + 1)?;
    let agent: Option<String> = row.get(from + 2)?;
    Ok(Owner {
        agent: agent.map(Into::into),
        tenant: tenant.map(Into::into),
        principal: principal.map_or(Principal::Anonymous, Principal::named),
    })
}
