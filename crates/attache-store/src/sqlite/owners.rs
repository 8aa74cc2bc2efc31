//! The numbers of owners.

use std::collections::HashMap;

use attache_core::{Owner, Principal};
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::Fault;

/// How many owners are remembered at most.
const MAX: usize = 64 * 1024;

/// The numbers of owners that were met lately. Numbers never change.
#[derive(Default)]
pub(super) struct Owners(RwLock<HashMap<Owner, i64, RandomState>>);

impl Owners {
    pub(super) fn get(&self, owner: &Owner) -> Option<i64> {
        self.0.read().get(owner).copied()
    }

    pub(super) fn remember(&self, owner: Owner, number: i64) {
        let mut known = self.0.write();
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(owner, number);
    }

    /// The number of an owner, if they have one.
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
    let mut find = db.prepare_cached("SELECT id FROM owners WHERE tenant IS ?1 AND principal IS ?2")?;
    Ok(find.query_row(params![owner.tenant, owner.principal.name()], |row| row.get(0)).optional()?)
}

pub(super) fn insert(db: &Connection, owner: &Owner) -> Result<i64, Fault> {
    db.prepare_cached("INSERT INTO owners (tenant, principal) VALUES (?1, ?2)")?
        .execute(params![owner.tenant, owner.principal.name()])?;
    Ok(db.last_insert_rowid())
}

/// An owner from two columns.
pub(super) fn read(row: &Row<'_>, from: usize) -> rusqlite::Result<Owner> {
    let tenant: Option<String> = row.get(from)?;
    let principal: Option<String> = row.get(from + 1)?;
    Ok(Owner {
        tenant: tenant.map(Into::into),
        principal: principal.map_or(Principal::Anonymous, Principal::named),
    })
}
