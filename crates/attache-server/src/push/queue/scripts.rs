//! What happens to a job in Redis, each step as one script: Redis does all of it or nothing, and two processes do not mix.
//!
//! Jobs of one webhook are delivered one after another. The first one is in the stream or waits for its next attempt, and has the turn of
//! the webhook. The others are in a list, in the order of the events. Whatever ends the first one puts the next one into the stream.

use attache_redis::redis::{Cmd, cmd};

use super::PushQueue;
use super::job::Job;

/// How long a webhook may have a turn without an attempt, in milliseconds. After that the job with the turn is lost, for example because
/// another program has deleted the stream, and the next one gets the turn. It is longer than the longest wait between attempts.
const TURN_MS: u64 = 3 * 24 * 60 * 60 * 1000;

/// The length of the ids of jobs of this server, with which entries of the list begin.
const ID_LENGTH: usize = 32;

/// How many jobs that are due go into the stream at once.
const MAX_DUE: usize = 64;

/// Gives the turn of a webhook to the next job of its list, if there is one.
const ADVANCE: &str = "
local function advance(stream, turn, list, ttl)
  local next = redis.call('LPOP', list)
  if not next then
    redis.call('DEL', turn)
    return
  end
  redis.call('XADD', stream, '*', 'job', string.sub(next, 33))
  redis.call('SET', turn, string.sub(next, 1, 32), 'PX', ttl)
end
";

/// Adds a job, unless it is there already. KEYS: stream, turn, list. ARGV: id, job, ttl.
const HAND_OVER: &str = "
local holder = redis.call('GET', KEYS[2])
local last = redis.call('LINDEX', KEYS[3], -1)
if holder == ARGV[1] or (last and string.sub(last, 1, 32) == ARGV[1]) then return 0 end
if not holder and not last then
  redis.call('XADD', KEYS[1], '*', 'job', ARGV[2])
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
  return 1
end
redis.call('RPUSH', KEYS[3], ARGV[1] .. ARGV[2])
if not holder then advance(KEYS[1], KEYS[2], KEYS[3], ARGV[3]) end
return 1
";

/// Ends the work on an entry, unless another process has ended it. KEYS: stream, turn, list, retry or dead. ARGV: group, entry, id, ttl,
/// what (`done`, `retry`, `dead`), job, and the time or the reason and the length. Without an id the job has no order.
const FINISH: &str = "
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
if ARGV[5] == 'retry' then
  redis.call('ZADD', KEYS[4], ARGV[7], ARGV[6])
  if ARGV[3] ~= '' and redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
  return 1
end
if ARGV[5] == 'dead' then
  redis.call('XADD', KEYS[4], 'MAXLEN', ARGV[8], '*', 'job', ARGV[6], 'reason', ARGV[7], 'entry_id', ARGV[2])
end
if ARGV[3] ~= '' then
  local holder = redis.call('GET', KEYS[2])
  if not holder or holder == ARGV[3] then advance(KEYS[1], KEYS[2], KEYS[3], ARGV[4]) end
end
return 1
";

/// Puts jobs that are due into the stream, and returns the time of the next one. KEYS: retry, stream. ARGV: now, limit.
const PROMOTE: &str = "
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, job in ipairs(due) do
  redis.call('ZREM', KEYS[1], job)
  redis.call('XADD', KEYS[2], '*', 'job', job)
end
return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
";

/// Puts a job that was given up back, unless another process has done so. KEYS: dead, stream. ARGV: entry, job.
const REVIVE: &str = "
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', 'job', ARGV[2])
return 1
";

/// How the work on an entry ends.
#[derive(Debug)]
pub(super) enum End {
    /// The receiver has it, or its webhook was deleted.
    Done,
    /// It is tried again at a time in seconds since 1970.
    Retry { job: Job, at: f64 },
    /// It goes to the dead stream.
    Dead { job: String, reason: String },
}

fn script(parts: &[&str], keys: &[&str]) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(parts.concat()).arg(keys.len()).arg(keys);
    command
}

/// The keys of the turn and of the list of a webhook.
fn order_keys(queue: &PushQueue, order: Option<&str>) -> [String; 2] {
    let order = order.unwrap_or("none");
    [format!("{}:turn:{order}", queue.stream), format!("{}:waiting:{order}", queue.stream)]
}

/// Adds a job of this server.
pub(super) fn hand_over(queue: &PushQueue, job: &Job) -> Cmd {
    debug_assert_eq!(job.job_id.len(), ID_LENGTH);
    let [turn, list] = order_keys(queue, job.order().as_deref());
    let mut command = script(&[ADVANCE, HAND_OVER], &[&queue.stream, &turn, &list]);
    command.arg(&job.job_id).arg(job.to_json()).arg(TURN_MS);
    command
}

/// Ends the work on an entry. `order` names the webhook, and `id` is the id of the job, if it has an order.
pub(super) fn finish(queue: &PushQueue, entry: &str, order: Option<&str>, id: &str, end: &End) -> Cmd {
    let [turn, list] = order_keys(queue, order);
    let target = match end {
        End::Done | End::Dead { .. } => &queue.dead_stream,
        End::Retry { .. } => &queue.retry_key,
    };
    let mut command = script(&[ADVANCE, FINISH], &[&queue.stream, &turn, &list, target]);
    command.arg(&queue.group).arg(entry).arg(order.map_or("", |_| id)).arg(TURN_MS);
    match end {
        End::Done => command.arg("done"),
        End::Retry { job, at } => command.arg("retry").arg(job.to_json()).arg(*at),
        End::Dead { job, reason } => command.arg("dead").arg(job).arg(reason).arg(queue.keep_dead),
    };
    command
}

/// Puts jobs that are due at `now`, in seconds since 1970, into the stream.
pub(super) fn promote(queue: &PushQueue, now: f64) -> Cmd {
    let mut command = script(&[PROMOTE], &[&queue.retry_key, &queue.stream]);
    command.arg(now).arg(MAX_DUE);
    command
}

/// Puts the job of an entry of the dead stream back.
pub(super) fn revive(queue: &PushQueue, entry: &str, job: &Job) -> Cmd {
    let mut command = script(&[REVIVE], &[&queue.dead_stream, &queue.stream]);
    command.arg(entry).arg(job.to_json());
    command
}

/// Reads the jobs that wait for the first one of a webhook.
pub(super) fn waiting(queue: &PushQueue, order: &str, limit: usize) -> Cmd {
    let [_, list] = order_keys(queue, Some(order));
    let mut command = cmd("LRANGE");
    command.arg(list).arg(0).arg(limit.saturating_sub(1));
    command
}

/// The job in an item of that list.
pub(super) fn job_of_list(item: &[u8]) -> Option<Job> {
    Job::read(item.get(ID_LENGTH..)?).ok()
}

/// Deletes an entry of the dead stream.
pub(super) fn bury(queue: &PushQueue, entry: &str) -> Cmd {
    let mut command = cmd("XDEL");
    command.arg(&queue.dead_stream).arg(entry);
    command
}

#[cfg(test)]
mod tests {
    use super::super::job::FIELD;
    use super::*;

    #[test]
    fn the_scripts_and_the_layout_agree() {
        let added = format!("'*', '{FIELD}', ");
        assert!([ADVANCE, HAND_OVER, FINISH, PROMOTE, REVIVE].iter().all(|script| script.contains(&added)));
        assert!(ADVANCE.contains(&format!("string.sub(next, 1, {ID_LENGTH})")));
        assert!(ADVANCE.contains(&format!("string.sub(next, {})", ID_LENGTH + 1)));
        assert!(HAND_OVER.contains(&format!("string.sub(last, 1, {ID_LENGTH})")));
    }
}
