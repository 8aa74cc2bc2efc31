//! Consumer groups, and the consumers in them.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value, cmd};

use crate::entry::{Entry, claimed, entries, pending_ids};

/// A consumer in a group: one process among those that share the entries of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Consumer<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The group.
    pub group: &'a str,
    /// The name of the process within the group.
    pub name: &'a str,
}

/// An entry that was delivered and is not acknowledged: its id, and how often it was delivered.
pub type Pending = (String, u64);

impl Consumer<'_> {
    fn command(self, name: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(self.stream).arg(self.group);
        command
    }

    /// Makes the group and its stream, if there are none. Entries that were added before the group was made belong to it too.
    pub async fn create_group(self, connection: &mut impl ConnectionLike) -> Result<(), RedisError> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(self.stream).arg(self.group).arg("0-0").arg("MKSTREAM");
        match create.exec_async(connection).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            created => created,
        }
    }

    /// New entries, at most `count`, or none after this time.
    pub async fn new_entries(
        self,
        connection: &mut impl ConnectionLike,
        count: usize,
        block: Duration,
    ) -> Result<Vec<Entry>, RedisError> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(self.group).arg(self.name).arg("COUNT").arg(count);
        // 0 would mean to wait forever.
        read.arg("BLOCK").arg(millis(block).max(1));
        read.arg("STREAMS").arg(self.stream).arg(">");
        entries(read.query_async::<Value>(connection).await?)
    }

    /// Entries that were delivered and are not acknowledged, at most `count`, with ids after this one: those of this consumer, or those
    /// of all consumers that have been idle for some time. Also the last id that was looked at, if there are further ones.
    pub async fn pending(
        self,
        connection: &mut impl ConnectionLike,
        whose: Whose,
        after: Option<String>,
        count: usize,
    ) -> Result<(Vec<Pending>, Option<String>), RedisError> {
        let mut pending = self.command("XPENDING");
        pending.arg("IDLE").arg(whose.idle());
        pending.arg(after.map_or_else(|| "-".to_owned(), |after| format!("({after}"))).arg("+").arg(count);
        match whose {
            Whose::Own => {
                pending.arg(self.name);
            }
            Whose::Idle(_) => {}
        }
        let found = pending_ids(pending.query_async::<Value>(connection).await?)?;
        let next = (found.len() == count).then(|| found.last().map(|(id, _)| id.clone())).flatten();
        Ok((found, next))
    }

    /// The entries of this consumer that are not acknowledged, at most `count`.
    pub async fn own(
        self,
        connection: &mut impl ConnectionLike,
        count: usize,
    ) -> Result<Vec<Pending>, RedisError> {
        let mut pending = self.command("XPENDING");
        pending.arg("-").arg("+").arg(count).arg(self.name);
        pending_ids(pending.query_async::<Value>(connection).await?)
    }

    /// Whether an entry belongs to this consumer.
    pub async fn owns(self, connection: &mut impl ConnectionLike, id: &str) -> Result<bool, RedisError> {
        let mut pending = self.command("XPENDING");
        pending.arg(id).arg(id).arg(1).arg(self.name);
        Ok(!pending_ids(pending.query_async::<Value>(connection).await?)?.is_empty())
    }

    /// Takes entries over, with their fields. An entry that another consumer has taken over meanwhile is not among them.
    pub async fn claim(
        self,
        connection: &mut impl ConnectionLike,
        whose: Whose,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<Vec<Entry>, RedisError> {
        claimed(self.claiming(whose.idle(), ids).query_async(connection).await?)
    }

    /// The same for one entry, without its fields. Returns whether it was taken over.
    pub async fn claim_id(
        self,
        connection: &mut impl ConnectionLike,
        whose: Whose,
        id: &str,
    ) -> Result<bool, RedisError> {
        let mut claim = self.claiming(whose.idle(), [id]);
        let ids: Vec<String> = claim.arg("JUSTID").query_async(connection).await?;
        Ok(!ids.is_empty())
    }

    /// Takes over an entry from the consumer that has it, as the same delivery. `None` if it is acknowledged or deleted.
    pub async fn take_delivery(
        self,
        connection: &mut impl ConnectionLike,
        id: &str,
    ) -> Result<Option<Entry>, RedisError> {
        let mut pending = self.command("XPENDING");
        pending.arg(id).arg(id).arg(1);
        let found = pending_ids(pending.query_async::<Value>(connection).await?)?;
        let Some((_, deliveries)) = found.first() else { return Ok(None) };
        let mut claim = self.claiming(0, [id]);
        claim.arg("RETRYCOUNT").arg(*deliveries);
        Ok(claimed(claim.query_async(connection).await?)?.into_iter().next())
    }

    /// Refreshes the claim on entries of this consumer.
    pub async fn refresh(
        self,
        connection: &mut impl ConnectionLike,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<(), RedisError> {
        self.claiming(0, ids).arg("JUSTID").exec_async(connection).await
    }

    /// Lets others take entries over at once that are taken over after this idle time. Their deliveries so far do not count.
    pub async fn give_back(
        self,
        connection: &mut impl ConnectionLike,
        after: Duration,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<(), RedisError> {
        let mut claim = self.claiming(0, ids);
        claim.arg("IDLE").arg(millis(after).saturating_add(1)).arg("RETRYCOUNT").arg(0).arg("JUSTID");
        claim.exec_async(connection).await
    }

    /// A command that claims entries that have been idle for so many milliseconds.
    fn claiming<'i>(self, idle: u64, ids: impl IntoIterator<Item = &'i str>) -> Cmd {
        let mut claim = self.command("XCLAIM");
        claim.arg(self.name).arg(idle);
        for id in ids {
            claim.arg(id);
        }
        claim
    }

    /// Removes this consumer from the group. Redis forgets its entries that are not acknowledged.
    pub async fn leave(self, connection: &mut impl ConnectionLike) -> Result<(), RedisError> {
        self.remove(connection, self.name.as_bytes()).await
    }

    /// Removes the consumers of the group that were idle for longer than this and have no pending entries, except this one.
    pub async fn remove_abandoned(
        self,
        connection: &mut impl ConnectionLike,
        idle: Duration,
    ) -> Result<(), RedisError> {
        let mut list = cmd("XINFO");
        list.arg("CONSUMERS").arg(self.stream).arg(self.group);
        let consumers: Vec<HashMap<String, Value>> = list.query_async(connection).await?;
        for consumer in consumers {
            let number = |name| match consumer.get(name) {
                Some(Value::Int(number)) => u64::try_from(*number).ok(),
                Some(_) | None => None,
            };
            let Some(Value::BulkString(name)) = consumer.get("name") else { continue };
            let is_gone = number("idle").is_some_and(|millis| u128::from(millis) > idle.as_millis());
            if is_gone && number("pending") == Some(0) && *name != self.name.as_bytes() {
                self.remove(connection, name).await?;
            }
        }
        Ok(())
    }

    async fn remove(self, connection: &mut impl ConnectionLike, name: &[u8]) -> Result<(), RedisError> {
        let mut remove = cmd("XGROUP");
        remove.arg("DELCONSUMER").arg(self.stream).arg(self.group).arg(name);
        remove.query_async(connection).await
    }
}

/// Whose entries a consumer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Its own.
    Own,
    /// Those of all consumers that did nothing about them for this time.
    Idle(Duration),
}

impl Whose {
    /// How long the entries must have been idle, in milliseconds.
    fn idle(self) -> u64 {
        match self {
            Self::Own => 0,
            Self::Idle(time) => millis(time),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
