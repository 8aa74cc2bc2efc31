//! Consumer groups.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisError, Value, cmd};

/// Makes a group and its stream, if there are none. Entries that were added before the group was made belong to it too.
pub async fn create_group(
    connection: &mut impl ConnectionLike,
    stream: &str,
    group: &str,
) -> Result<(), RedisError> {
    let mut create = cmd("XGROUP");
    create.arg("CREATE").arg(stream).arg(group).arg("0-0").arg("MKSTREAM");
    match create.query_async::<()>(connection).await {
        Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
        created => created,
    }
}

/// Removes the consumers of a group that were idle for longer than this and have no pending entries, except `own`.
pub async fn remove_abandoned(
    connection: &mut impl ConnectionLike,
    stream: &str,
    group: &str,
    own: &str,
    idle: Duration,
) -> Result<(), RedisError> {
    let consumers: Vec<HashMap<String, Value>> =
        cmd("XINFO").arg("CONSUMERS").arg(stream).arg(group).query_async(connection).await?;
    for consumer in consumers {
        let number = |name| match consumer.get(name) {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            Some(_) | None => None,
        };
        let Some(Value::BulkString(name)) = consumer.get("name") else { continue };
        let is_gone = number("idle").is_some_and(|millis| u128::from(millis) > idle.as_millis());
        if is_gone && number("pending") == Some(0) && *name != own.as_bytes() {
            let mut remove = cmd("XGROUP");
            remove.arg("DELCONSUMER").arg(stream).arg(group).arg(name);
            remove.query_async::<()>(connection).await?;
        }
    }
    Ok(())
}
