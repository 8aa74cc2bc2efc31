//! Answering one request entry: admission, the operation, and its responses.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::jsonrpc::{Call, Id, error_response};
use attache_protocol::{Error, ErrorKind};
use attache_redis::field;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use super::members::{MemberId, Notes};
use super::request::{Refused, ReplyTo, RequestEntry, Rules, parse};
use super::route::{Route, Routed};
use super::subject::Subject;
use super::writer::{Response, Written};
use super::{EntryId, Shared};
use crate::transport::exchange::{Additions, Answer};

/// What an entry occupies while it is processed.
pub(super) struct Slot {
    /// Nothing while it waits for another process.
    pub(super) request: Option<OwnedSemaphorePermit>,
    pub(super) _memory: OwnedSemaphorePermit,
}

/// Answers one entry and acknowledges it, or leaves it to another process. `visited` are the members that have had it. If the server stops
/// before that, the entry stays for another process.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    id: &EntryId,
    mut fields: Vec<(Vec<u8>, Vec<u8>)>,
    slot: Slot,
    visited: Vec<MemberId>,
) {
    match parse(&mut fields, &rules(shared)) {
        Ok(request) => {
            drop(fields);
            answer_request(shared, id, request, slot, visited).await;
        }
        Err(Refused { reason, reply }) => {
            tracing::warn!(entry = %id, reason, "an entry was refused");
            if let Some(reply) = reply {
                let error = Error::new(ErrorKind::InvalidRequest, reason.clone());
                let body = error_response(&Id::NULL, &error);
                let _ = shared.writer.respond(Response::last(&reply, body, None)).await;
            }
            shared.writer.dead(id, reason, fields).await;
        }
    }
}

fn rules(shared: &Shared) -> Rules<'_> {
    Rules {
        response_stream: &shared.options.response_stream,
        prefix: &shared.prefix,
        max_entry: shared.max_entry,
        max_headers: shared.channel.http.options().max_headers,
    }
}

/// Refuses an entry that was delivered too often: its client gets an error if it can be told, and the entry goes to the dead stream.
pub(super) async fn give_up(
    shared: &Shared,
    id: &EntryId,
    mut fields: Vec<(Vec<u8>, Vec<u8>)>,
    reason: String,
) {
    let (reply, payload) = match parse(&mut fields, &rules(shared)) {
        Ok(RequestEntry { reply, payload, .. }) => (Some(reply), Some(payload)),
        Err(Refused { reply, .. }) => (reply, None),
    };
    if let Some(reply) = reply {
        let rpc_id = payload.as_deref().map_or(Id::NULL, Call::peek_id);
        let body = error_response(&rpc_id, &Error::new(ErrorKind::Internal, reason.clone()));
        let _ = shared.writer.respond(Response::last(&reply, body, None)).await;
    }
    // The payload was taken out of its field.
    if let Some(payload) = payload
        && let Some((_, value)) = fields.iter_mut().find(|(name, _)| name == field::PAYLOAD.as_bytes())
    {
        *value = payload;
    }
    shared.writer.dead(id, reason, fields).await;
}

async fn answer_request(
    shared: &Arc<Shared>,
    id: &EntryId,
    request: RequestEntry,
    mut slot: Slot,
    visited: Vec<MemberId>,
) {
    let RequestEntry { reply, payload, headers } = request;
    let subject = Subject::read(&payload, &headers, shared.channel.http.options().max_headers);
    let key = delivery_key(&shared.options.request_stream, id, &reply);
    let mut route = Route::new(shared, id, subject, &key, visited);
    let refuse = async |route: &Route<'_>, error: &Error| {
        let body = error_response(&Call::peek_id(&payload), error);
        let response = Response::last(&reply, body, Some(id.clone())).with(route.refusal());
        let _ = shared.writer.respond(response).await;
    };
    match route.find(&mut slot).await {
        Routed::Here => {}
        Routed::Elsewhere => return,
        Routed::Refused(error) => return refuse(&route, &error).await,
    }
    let place = tokio::select! {
        biased;
        place = place(shared, &route.subject) => place,
        // Another process answers it.
        () = shared.stop.cancelled() => return,
    };
    match route.begin(&mut slot).await {
        Routed::Here => {}
        Routed::Elsewhere => return,
        Routed::Refused(error) => return refuse(&route, &error).await,
    }
    // The message would be refused now. Nothing of it has been processed.
    if shared.stop.is_cancelled() {
        return route.forget().await;
    }
    let additions = Additions { delivery_key: Some(key), streams: Some(shared.streams.clone()) };
    let mut answer = shared.channel.answer_with(&payload, &headers, additions).await;
    drop(payload);
    if answer.is_stream() {
        // A stream counts against the streams, no longer against the requests.
        drop((place, slot));
        return write_events(&route, shared, id, &reply, answer).await;
    }
    let response = answer.next().await;
    // Another process answers what this one could not finish.
    if is_interrupted(shared, answer.failure()) {
        return;
    }
    if answer.failure() == Some(ErrorKind::TaskNotFound) && route.pass_on().await {
        return;
    }
    match response {
        None => shared.writer.acknowledge(id).await,
        Some(frame) => {
            let notes = route.notes(Some(&frame.payload), true);
            let response = Response::last(&reply, frame.payload, Some(id.clone())).with(notes);
            let _ = shared.writer.respond(response).await;
        }
    }
}

/// Waits for a place among the sends, if the request is one. Other requests are processed also if there is none.
async fn place(shared: &Shared, subject: &Subject) -> Option<OwnedSemaphorePermit> {
    match shared.sends.clone().try_acquire_owned() {
        Ok(permit) => Some(permit),
        Err(_) if subject.is_send() => shared.sends.clone().acquire_owned().await.ok(),
        Err(_) => None,
    }
}

/// Whether an error only says that this process stops.
fn is_interrupted(shared: &Shared, failure: Option<ErrorKind>) -> bool {
    shared.stop.is_cancelled() && failure == Some(ErrorKind::Unavailable)
}

/// The idempotency key of a send whose client gave none: the same for each delivery of the entry, and another one for every other
/// entry. The correlation id tells entries of different Redis servers apart.
fn delivery_key(stream: &str, id: &str, reply: &ReplyTo) -> String {
    let mut digest = Sha256::new();
    for part in [stream.as_bytes(), id.as_bytes(), &reply.correlation] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    format!("redis-streams:{:032x}", u128::from_be_bytes(half))
}

/// Writes the events of a stream, and the response that ends it and acknowledges the request.
///
/// The events that are ready together are written together. A client that is gone ends the stream; its task goes on.
async fn write_events(
    route: &Route<'_>,
    shared: &Arc<Shared>,
    id: &EntryId,
    reply: &ReplyTo,
    mut answer: Answer,
) {
    let heartbeat = shared.channel.http.options().heartbeat;
    let (mut index, mut silent) = (0, Duration::ZERO);
    let last = loop {
        let frame = match tokio::time::timeout(heartbeat, answer.next()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(_) => {
                silent += heartbeat;
                match reply.is_live {
                    true => match shared.writer.respond(Response::heartbeat(reply)).await {
                        Written::Yes => continue,
                        Written::ClientIsGone => break answer.end(),
                    },
                    // Nothing tells whether such a client is still there.
                    false if silent >= shared.options.expire => break answer.end(),
                    false => continue,
                }
            }
        };
        silent = Duration::ZERO;
        if frame.is_last() {
            break Some(frame);
        }
        // The first event names the task.
        let notes = if index == 0 { route.notes(Some(&frame.payload), false) } else { Notes::default() };
        let event = Response::event(reply, frame.payload, frame.event, index).with(notes);
        let written = shared.writer.send(event).await;
        index += 1;
        if !answer.has_next() && written.wait().await == Written::ClientIsGone {
            break answer.end();
        }
    };
    // Another process answers what this one could not finish.
    if is_interrupted(shared, answer.failure()) {
        return;
    }
    if let Some(frame) = last {
        let response = Response::last(reply, frame.payload, Some(id.clone())).with(route.notes(None, true));
        let _ = shared.writer.respond(response).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_a_key_of_its_own() {
        let reply = |correlation: &str| ReplyTo {
            stream: (*b"responses").into(),
            correlation: correlation.as_bytes().into(),
            is_live: false,
        };
        let key = delivery_key("requests", "1-0", &reply("c"));
        assert_eq!(key, delivery_key("requests", "1-0", &reply("c")));
        for other in [
            delivery_key("requests", "1-1", &reply("c")),
            delivery_key("requests2", "1-0", &reply("c")),
            delivery_key("requests", "1-0", &reply("d")),
            delivery_key("requests1", "-0", &reply("c")),
        ] {
            assert_ne!(key, other);
        }
        assert!(key.is_ascii() && key.len() < 255);
    }
}
