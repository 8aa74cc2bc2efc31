//! Which process has what, if several processes with a store each share the requests of one stream.
//!
//! A *member* of the group is a store, with the processes that use it. Redis has, each with an expiry:
//!
//! - which members there are, and which of them have a process that runs;
//! - which member has a task or a context. This is written only while there are other members;
//! - which member has begun to process a send, until it is answered. This is written before it begins, so a process that takes over the
//!   request knows that the agent may have run, and in which store the outcome is;
//! - an inbox of each member: the requests that other members leave to it.
//!
//! A request that is left to another member stays delivered and unacknowledged in the request stream, as every other one. The inbox has only
//! its id, so nothing is lost with an inbox: after `claim-after` a process takes the request over again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_core::Store;
use attache_protocol::Json;
use attache_redis::redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, cmd, pipe};
use attache_redis::{Backoff, Connection, Outage, connect, is_transient};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::subject::{Named, Subject};
use super::{ANSWER, CONNECT, RedisStreams};

/// The name of a member.
pub(super) type MemberId = Arc<str>;

/// How long a member is known after its last process was there.
const KNOWN: Duration = Duration::from_secs(60 * 60);

/// How long it is known that a send has begun, if it is never answered.
const BEGUN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many other members are looked at, and how many ids an inbox has.
const MAX_MEMBERS: isize = 256;
const MAX_INBOX: isize = 10_000;

/// How often a member that is out of reach is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// What the names of members with a volatile store begin with.
const VOLATILE: &str = "memory-";

/// Where in the store its name is.
const SCOPE: &str = "redis-streams";
const NAME: &str = "member";

/// The members of a group, as one of their processes sees them.
pub(super) struct Members {
    options: RedisStreams,
    pub(super) own: MemberId,
    /// The others that were there lately.
    others: Mutex<Vec<MemberId>>,
    connection: tokio::sync::Mutex<Option<Connection>>,
    outage: Outage,
    /// How many requests may wait for members that are out of reach.
    waiting: Semaphore,
}

/// Whether a member can get a request.
pub(super) enum Reach {
    Now,
    /// It did not come back in time. Its tasks are lost with it, or it still has them.
    Gone {
        is_lost: bool,
    },
    /// This process stops.
    Stopped,
}

/// What a request has to do with the members: which names it has in Redis.
pub(super) struct Marks {
    task: Option<String>,
    context: Option<String>,
    /// The mark of the send, if it is one.
    pub(super) begun: Option<Mark>,
}

/// The mark of a send that has begun.
#[derive(Clone)]
pub(super) struct Mark {
    name: String,
    /// Whether the client may send it again with the same key.
    is_of_client: bool,
}

/// What a response changes, in the same transaction.
#[derive(Default)]
pub(super) struct Notes {
    /// The names of what this member has.
    has: Vec<String>,
    member: Option<MemberId>,
    /// How long that is known, and the key of a client after its answer.
    expire: Duration,
    ended: Option<Mark>,
}

impl Notes {
    /// Adds the changes to a transaction.
    pub(super) fn write(&self, pipe: &mut Pipeline) {
        if let Some(member) = &self.member {
            for name in &self.has {
                pipe.add_command(set(name, member, self.expire)).ignore();
            }
        }
        match &self.ended {
            Some(Mark { name, is_of_client: true }) => {
                pipe.cmd("PEXPIRE").arg(name).arg(millis(self.expire)).ignore();
            }
            Some(Mark { name, is_of_client: false }) => {
                pipe.cmd("DEL").arg(name).ignore();
            }
            None => {}
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn set(name: &str, member: &str, expire: Duration) -> Cmd {
    let mut set = cmd("SET");
    set.arg(name).arg(member).arg("PX").arg(millis(expire));
    set
}

/// The name of the member whose store this is. A store keeps it, so its next process is the same member.
async fn member_of(store: &dyn Store) -> std::io::Result<MemberId> {
    let prefix = if store.is_volatile() { VOLATILE } else { "store-" };
    let fresh = format!("{prefix}{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let fresh = Json::new(&fresh).map_err(std::io::Error::other)?;
    let keep = move |old: Option<&Json>| Some(old.unwrap_or(&fresh).clone());
    let changed = store.values().change(SCOPE, NAME, Box::new(keep)).await.map_err(std::io::Error::other)?;
    let name = changed.new.and_then(|name| name.read::<String>().ok());
    name.map(Into::into)
        .ok_or_else(|| std::io::Error::other("the store has a name for Redis that is no text"))
}

impl Members {
    /// Connects, and makes this process known. Fails if the user of Redis has no permission for that.
    pub(super) async fn join(options: &RedisStreams, store: &dyn Store) -> std::io::Result<Self> {
        let members = Self {
            own: member_of(store).await?,
            options: options.clone(),
            others: Mutex::default(),
            connection: tokio::sync::Mutex::default(),
            outage: Outage::new("find the process that has a task"),
            waiting: Semaphore::new(options.in_flight.min(Semaphore::MAX_PERMITS)),
        };
        let refused = |error: RedisError| {
            let text = format!(
                "{error}: several servers need GET, SET, DEL, EXISTS, RPUSH, LTRIM, BLPOP, ZADD, ZRANGE, ZREM and ZREMRANGEBYSCORE"
            );
            if error.code() == Some("NOPERM") {
                std::io::Error::other(text)
            } else {
                std::io::Error::other(error)
            }
        };
        members.probe().await.map_err(refused)?;
        members.show().await.map_err(refused)?;
        Ok(members)
    }

    /// Uses each command that is needed later, on names of this member.
    async fn probe(&self) -> Result<(), RedisError> {
        let (name, inbox) = (self.name("probe", &self.own), self.name("probe-inbox", &self.own));
        let mut pipe = pipe();
        pipe.cmd("SET").arg(&name).arg("").arg("NX").arg("PX").arg(1);
        pipe.cmd("GET").arg(&name);
        pipe.cmd("DEL").arg(&name);
        pipe.cmd("EXISTS").arg(&name);
        pipe.cmd("RPUSH").arg(&inbox).arg("");
        pipe.cmd("LTRIM").arg(&inbox).arg(-MAX_INBOX).arg(-1);
        pipe.cmd("PEXPIRE").arg(&inbox).arg(millis(self.options.claim_after));
        pipe.cmd("BLPOP").arg(&inbox).arg(1);
        self.query::<Value>(&pipe).await.map(drop)
    }

    /// Tells the others that this process is there, and finds out which of them are.
    pub(super) async fn show(&self) -> Result<(), RedisError> {
        let (alive, list) = (self.name("alive", &self.own), format!("{}:members", self.prefix()));
        // This is possible while Redis is full. A process must not seem to be gone then.
        let mut pipe = pipe();
        pipe.cmd("PEXPIRE").arg(&alive).arg(millis(self.lease()));
        let (is_shown,): (bool,) = self.query(&pipe).await?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut pipe = attache_redis::redis::pipe();
        if !is_shown {
            pipe.add_command(set(&alive, "", self.lease())).ignore();
        }
        pipe.cmd("ZADD").arg(&list).arg(millis(now)).arg(&*self.own).ignore();
        pipe.cmd("ZREMRANGEBYSCORE").arg(&list).arg("-inf").arg(millis(now.saturating_sub(KNOWN))).ignore();
        pipe.cmd("PEXPIRE").arg(&list).arg(millis(KNOWN)).ignore();
        // This process is one of them.
        pipe.cmd("ZRANGE").arg(&list).arg(-MAX_MEMBERS - 1).arg(-1);
        let (known,): (Vec<String>,) = self.query(&pipe).await?;
        let others = known.into_iter().map(MemberId::from).filter(|member| *member != self.own);
        *self.others.lock() = others.collect();
        Ok(())
    }

    /// Tells the others that this process has ended.
    pub(super) async fn leave(&self) -> Result<(), RedisError> {
        let mut pipe = pipe();
        pipe.cmd("DEL").arg(self.name("alive", &self.own)).ignore();
        if is_volatile(&self.own) {
            pipe.cmd("ZREM").arg(format!("{}:members", self.prefix())).arg(&*self.own).ignore();
        }
        self.query::<Value>(&pipe).await.map(drop)
    }

    /// How long a process counts as running after it was last there.
    pub(super) fn lease(&self) -> Duration {
        self.options.claim_after.min(Duration::from_secs(10))
    }

    /// How often a process tells that it is there.
    pub(super) fn interval(&self) -> Duration {
        self.lease() / 6
    }

    /// Waits until the other processes that run know of this one. From then on they write which tasks and contexts they have.
    pub(super) async fn wait_until_known(&self, stop: &CancellationToken) {
        let others = self.others.lock().clone();
        for member in others {
            if self.is_alive(&member, stop).await == Some(true) {
                let known = tokio::time::sleep(self.interval() * 3 / 2);
                return tokio::select! {
                    () = known => {}
                    () = stop.cancelled() => {}
                };
            }
        }
    }

    fn prefix(&self) -> String {
        self.options.members_prefix()
    }

    fn name(&self, kind: &str, what: &str) -> String {
        format!("{}:{kind}:{what}", self.prefix())
    }

    /// The name for something that clients name, however long that is.
    fn digest(&self, kind: &str, what: &str) -> String {
        let digest: [u8; 32] = Sha256::digest(what).into();
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.name(kind, &hex)
    }

    /// The inbox of this member.
    pub(super) fn inbox(&self) -> String {
        self.name("inbox", &self.own)
    }

    /// The names of what a request is about. A send has the delivery key of its entry, unless its client gave a key.
    pub(super) fn marks(&self, subject: &Subject, delivery_key: &str) -> Marks {
        let begun = subject.is_send().then(|| match &subject.key {
            Some(key) => Mark { name: self.digest("begun", &format!("client:{key}")), is_of_client: true },
            None => Mark { name: self.digest("begun", delivery_key), is_of_client: false },
        });
        Marks {
            task: subject.task.as_ref().map(|task| self.digest("task", task)),
            context: subject.context.as_ref().map(|context| self.digest("context", context)),
            begun,
        }
    }

    /// Runs commands once.
    async fn query<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, RedisError> {
        let mut connection = {
            let mut shared = self.connection.lock().await;
            match &*shared {
                Some(connection) => connection.clone(),
                None => shared.insert(connect(&self.options.url, CONNECT, ANSWER, None).await?).clone(),
            }
        };
        let reply = pipe.query_async(&mut connection).await;
        if let Err(error) = &reply
            && (error.is_io_error() || error.is_unrecoverable_error())
        {
            *self.connection.lock().await = None;
        }
        reply
    }

    /// Runs commands until Redis has done so. `None` if the server stops before.
    async fn ask<T: FromRedisValue>(&self, pipe: &Pipeline, stop: &CancellationToken) -> Option<T> {
        let mut backoff = Backoff::default();
        loop {
            match self.query(pipe).await {
                Ok(reply) => {
                    self.outage.ended();
                    return Some(reply);
                }
                // The reader and the writer report outages.
                Err(error) if is_transient(&error) => {
                    tracing::debug!(%error, "Redis does not tell which process has a task");
                }
                Err(error) => drop(self.outage.failed(&error)),
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.wait()) => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    /// The member that has what a request names, if that is known: its task, or else its context. `None` if the server stops.
    pub(super) async fn find(&self, marks: &Marks, stop: &CancellationToken) -> Option<Option<MemberId>> {
        let names: Vec<_> = marks.task.iter().chain(&marks.context).collect();
        if names.is_empty() || self.others.lock().is_empty() {
            return Some(None);
        }
        let mut pipe = pipe();
        for name in names {
            pipe.cmd("GET").arg(name);
        }
        let found: Vec<Option<String>> = self.ask(&pipe, stop).await?;
        Some(found.into_iter().flatten().next().map(MemberId::from))
    }

    /// Marks that this member begins to process a send, unless another one has. Returns the one that has. `None` if the server stops.
    pub(super) async fn begin(&self, mark: &Mark, stop: &CancellationToken) -> Option<MemberId> {
        let (mut first, mut read) = (pipe(), pipe());
        first.add_command(set(&mark.name, &self.own, BEGUN).arg("NX").clone());
        read.cmd("GET").arg(&mark.name);
        loop {
            // Most sends begin here, and cost one command.
            if let (Some(_),) = self.ask::<(Option<String>,)>(&first, stop).await? {
                return Some(self.own.clone());
            }
            // Nothing if the mark has just been removed.
            if let (Some(begun),) = self.ask::<(Option<String>,)>(&read, stop).await? {
                return Some(begun.into());
            }
        }
    }

    /// Removes the mark of a send that was not processed.
    pub(super) async fn forget(&self, mark: &Mark, stop: &CancellationToken) {
        let mut pipe = pipe();
        pipe.cmd("DEL").arg(&mark.name).ignore();
        let _: Option<()> = self.ask(&pipe, stop).await;
    }

    /// Whether a process of a member runs. `None` if the server stops.
    pub(super) async fn is_alive(&self, member: &str, stop: &CancellationToken) -> Option<bool> {
        let mut pipe = pipe();
        pipe.cmd("EXISTS").arg(self.name("alive", member));
        self.ask(&pipe, stop).await.map(|(is_alive,): (bool,)| is_alive)
    }

    /// How long a process that runs may be out of reach: Redis may have been.
    fn grace(&self) -> Duration {
        self.lease() / 2 + Duration::from_secs(1)
    }

    /// Waits for a process of a member for up to this time, or for a short time if its tasks are gone with its process.
    pub(super) async fn reach(&self, member: &MemberId, limit: Duration, stop: &CancellationToken) -> Reach {
        let permit = self.waiting.try_acquire();
        let limit = match (&permit, is_volatile(member)) {
            (Err(_), _) => Duration::ZERO,
            (Ok(_), true) => self.grace(),
            (Ok(_), false) => limit.max(self.grace()),
        };
        let began = Instant::now();
        loop {
            match self.is_alive(member, stop).await {
                Some(true) => return Reach::Now,
                Some(false) if began.elapsed() >= limit => {
                    return Reach::Gone { is_lost: is_volatile(member) };
                }
                Some(false) => {}
                None => return Reach::Stopped,
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => return Reach::Stopped,
            }
        }
    }

    /// Leaves a request to another member. `visited` are those that have had it.
    pub(super) async fn leave_to(
        &self,
        member: &str,
        entry: &str,
        visited: &[MemberId],
        stop: &CancellationToken,
    ) {
        let inbox = self.name("inbox", member);
        let visited = visited.iter().map(|member| format!(" {member}"));
        let mut pipe = pipe();
        pipe.atomic()
            .cmd("RPUSH")
            .arg(&inbox)
            .arg(format!("{entry}{}", visited.collect::<String>()))
            .ignore();
        pipe.cmd("LTRIM").arg(&inbox).arg(-MAX_INBOX).arg(-1).ignore();
        pipe.cmd("PEXPIRE").arg(&inbox).arg(millis(self.options.claim_after)).ignore();
        let _: Option<()> = self.ask(&pipe, stop).await;
    }

    /// Another member with a process that runs, of those that a request has not visited.
    pub(super) async fn next(&self, visited: &[MemberId], stop: &CancellationToken) -> Option<MemberId> {
        // A process that has just started is among them.
        if let Err(error) = self.show().await {
            tracing::debug!(%error, "the other servers of the group are not known");
        }
        let others = self.others.lock().clone();
        for member in others.into_iter().filter(|member| !visited.contains(member)) {
            if self.is_alive(&member, stop).await? {
                return Some(member);
            }
        }
        None
    }

    /// What the response to a request changes. Its first event names what this member has, and its last one ends the send.
    pub(super) fn notes(&self, marks: &Marks, response: Option<(&Subject, &[u8])>, is_last: bool) -> Notes {
        let is_alone = self.others.lock().is_empty();
        let named = response.filter(|_| !is_alone);
        let named = named.and_then(|(subject, response)| Named::read(subject, response)).unwrap_or_default();
        let task = named.task.map(|task| self.digest("task", &task));
        let context = named.context.map(|context| self.digest("context", &context));
        Notes {
            has: task.into_iter().chain(context).collect(),
            member: Some(self.own.clone()),
            expire: self.options.expire,
            ended: marks.begun.clone().filter(|_| is_last),
        }
    }

    /// What the refusal of a send changes. A client that sends it again with the same key gets the same error.
    pub(super) fn refusal(&self, marks: &Marks) -> Notes {
        Notes { ended: marks.begun.clone(), expire: self.options.expire, ..Notes::default() }
    }
}

/// Whether the tasks of a member are lost when its process ends.
fn is_volatile(member: &str) -> bool {
    member.starts_with(VOLATILE)
}

/// An entry of an inbox: the id of a request, and the members that have had it.
pub fn parse_left(text: &str) -> Option<(&str, Vec<Arc<str>>)> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let id = words.next()?;
    Some((id, words.map(MemberId::from).collect()))
}
