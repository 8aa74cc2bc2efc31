//! Which process answers a request, if several processes with a store each share the requests of one stream.
//!
//! - A request that names a task goes to the process that has it, and one that names a context only as well.
//! - A send that another process has begun to process goes to that one, which has the outcome in its store.
//! - A request for a task that this process does not have, and that Redis knows nothing about, visits the others one after the other.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{Error, ErrorKind};

use super::answer::Slot;
use super::members::{Marks, MemberId, Members, Notes, Reach};
use super::subject::Subject;
use super::{EntryId, Shared};

/// Where a request is answered.
pub(super) enum Routed {
    /// By this process.
    Here,
    /// By another one, which has got it, or which takes it over because this one stops.
    Elsewhere,
    /// By this process, with an error.
    Refused(Error),
}

/// The way of one request through the members.
pub(super) struct Route<'a> {
    shared: &'a Arc<Shared>,
    id: &'a EntryId,
    pub(super) subject: Subject,
    /// `None` if all processes answer alike, because the requests are forwarded.
    group: Option<(&'a Members, Marks)>,
    /// The members that have had the request.
    visited: Vec<MemberId>,
}

impl<'a> Route<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        id: &'a EntryId,
        subject: Subject,
        delivery_key: &str,
        visited: Vec<MemberId>,
    ) -> Self {
        let group = shared.members.as_ref().map(|members| (members, members.marks(&subject, delivery_key)));
        Self { shared, id, subject, group, visited }
    }

    /// Leaves the request to the process that has its task or its context, if that is another one.
    pub(super) async fn find(&mut self, slot: &mut Slot) -> Routed {
        let Some((members, marks)) = &self.group else { return Routed::Here };
        let Some(found) = members.find(marks, &self.shared.stop).await else { return Routed::Elsewhere };
        let Some(member) = found.filter(|member| self.is_other(members, member)) else { return Routed::Here };
        // The client can ask again, so the answer must not take long.
        match self.reach(members, &member, members.lease(), slot).await {
            Reach::Now => self.leave(members, &member).await,
            Reach::Stopped => Routed::Elsewhere,
            // A conversation begins anew, as after a restart of a single process.
            Reach::Gone { is_lost: true } if self.subject.task.is_none() => Routed::Here,
            Reach::Gone { is_lost } => self.refuse(&member, unreachable(is_lost)),
        }
    }

    /// Marks that this process begins to process the request, if it is a send. If another one has, the request is left to that one.
    pub(super) async fn begin(&mut self, slot: &mut Slot) -> Routed {
        let Some((members, marks)) = &self.group else { return Routed::Here };
        let Some(mark) = &marks.begun else { return Routed::Here };
        let Some(begun) = members.begin(mark, &self.shared.stop).await else { return Routed::Elsewhere };
        if !self.is_other(members, &begun) {
            return Routed::Here;
        }
        match self.reach(members, &begun, self.shared.options.claim_after, slot).await {
            Reach::Now => self.leave(members, &begun).await,
            Reach::Stopped => Routed::Elsewhere,
            Reach::Gone { is_lost } => self.refuse(&begun, outcome_unknown(is_lost)),
        }
    }

    /// Leaves a request for a task that this process does not have to the next one that may have it. Returns false if there is none.
    pub(super) async fn pass_on(&mut self) -> bool {
        let Some((members, _)) = self.group.as_ref().filter(|_| self.subject.task.is_some()) else {
            return false;
        };
        let (members, stop) = (*members, &self.shared.stop);
        self.visited.push(members.own.clone());
        let Some(next) = members.next(&self.visited, stop).await else { return false };
        self.forget().await;
        tracing::debug!(entry = %self.id, member = %next, "passed on a request for a task of another process");
        members.leave_to(&next, self.id, &self.visited, stop).await;
        true
    }

    /// Removes the mark of a send that this process has not processed.
    pub(super) async fn forget(&self) {
        if let Some((members, marks)) = &self.group
            && let Some(mark) = &marks.begun
        {
            members.forget(mark, &self.shared.stop).await;
        }
    }

    /// What the response changes: its first event names a task, and its last one ends the send.
    pub(super) fn notes(&self, response: Option<&[u8]>, is_last: bool) -> Notes {
        let Some((members, marks)) = &self.group else { return Notes::default() };
        members.notes(marks, response.map(|response| (&self.subject, response)), is_last)
    }

    /// What a refusal changes.
    pub(super) fn refusal(&self) -> Notes {
        let Some((members, marks)) = &self.group else { return Notes::default() };
        members.refusal(marks)
    }

    fn is_other(&self, members: &Members, member: &MemberId) -> bool {
        *member != members.own && !self.visited.contains(member)
    }

    async fn reach(&self, members: &Members, member: &MemberId, limit: Duration, slot: &mut Slot) -> Reach {
        let stop = &self.shared.stop;
        match members.is_alive(member, stop).await {
            Some(true) => return Reach::Now,
            Some(false) => {}
            None => return Reach::Stopped,
        }
        // Other requests are answered meanwhile. It occupies memory only.
        slot.request = None;
        members.reach(member, limit, stop).await
    }

    async fn leave(&self, members: &Members, member: &MemberId) -> Routed {
        tracing::debug!(entry = %self.id, %member, "left a request to the process that has its task");
        let visited: Vec<_> = self.visited.iter().chain([&members.own]).cloned().collect();
        members.leave_to(member, self.id, &visited, &self.shared.stop).await;
        Routed::Elsewhere
    }

    fn refuse(&self, member: &MemberId, error: Error) -> Routed {
        tracing::warn!(entry = %self.id, %member, reason = error.message(), "a request was refused");
        Routed::Refused(error)
    }
}

/// The error for a task of a process that is gone.
fn unreachable(is_lost: bool) -> Error {
    let text = match is_lost {
        true => {
            "the server process that had this task in memory has ended, and the task is lost: send the message again"
        }
        false => {
            "the server process that has this task does not run: try again when it has been started with its store"
        }
    };
    Error::new(ErrorKind::Unavailable, text)
}

/// The error for a send that a process had begun that is gone. Clients repeat requests that got `Unavailable`, and must not repeat this one.
fn outcome_unknown(is_lost: bool) -> Error {
    let text = match is_lost {
        true => {
            "the outcome is unknown: the server process that had begun to process this message, and had its tasks in memory, has ended before it answered. It is not processed again: check what the agent has done before you send it in a new request"
        }
        false => {
            "the outcome is unknown: the server process that had begun to process this message has ended before it answered, and has not been started again. Its store has the task: start it with that store and list its tasks. The message is not processed again"
        }
    };
    Error::new(ErrorKind::Internal, text)
}
