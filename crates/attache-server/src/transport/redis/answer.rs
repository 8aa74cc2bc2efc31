//! Answering one request entry: admission, the operation, and its responses.

use std::sync::Arc;
use std::time::Duration;

use attache_protocol::jsonrpc::{self, Call, Id, error_response};
use attache_protocol::{Error, ErrorKind};
use attache_redis::field;
use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use super::request::{Refused, ReplyTo, RequestEntry, Rules, parse};
use super::writer::{Response, Written};
use super::{EntryId, Shared};
use crate::dispatch::{Access, EventEncoder, JsonRpcResponse, RequestHead, ServiceParameters, Target};
use crate::limits::load;
use crate::request_log::{Incoming, RequestLine};
use crate::transport::exchange::{
    CARD_METHOD, asks_for_card, is_streaming, named_agent, numbered, own_headers,
};

/// The name of the transport in the logs.
const BINDING: &str = "redis";

/// What an entry occupies while it is processed.
pub(super) struct Slot {
    pub(super) _request: OwnedSemaphorePermit,
    pub(super) _memory: OwnedSemaphorePermit,
}

/// Answers one entry and acknowledges it. If the server stops before that, the entry stays for another process.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    id: &EntryId,
    mut fields: Vec<(Vec<u8>, Vec<u8>)>,
    slot: Slot,
) {
    match parse(&mut fields, &rules(shared)) {
        Ok(request) => {
            drop(fields);
            answer_request(shared, id, request, slot).await;
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
        max_headers: shared.http.options().max_headers,
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

async fn answer_request(shared: &Arc<Shared>, id: &EntryId, request: RequestEntry, slot: Slot) {
    let RequestEntry { reply, payload, mut headers } = request;
    let http = &shared.http;
    // As on all transports of frames: what the request has itself takes precedence.
    let own = own_headers(&payload, http.options().max_headers)
        .map(|own| headers.extend(own.into_iter().flatten()));
    let named = match own.and_then(|()| named_agent(http, &headers)) {
        Ok(named) => named,
        Err(error) => {
            let body = error_response(&Call::peek_id(&payload), &error);
            let _ = shared.writer.respond(Response::last(&reply, body, Some(id.clone()))).await;
            return;
        }
    };
    let http = named.as_ref().unwrap_or(http);
    let dispatcher = http.dispatcher();
    let incoming = Incoming {
        binding: BINDING,
        target: None,
        headers: &headers,
        is_health: false,
        agent: dispatcher.service().agent_name(),
    };
    let mut log = dispatcher.request_log().begin(&incoming);
    let asks_for_card = asks_for_card(&payload);
    let head = RequestHead {
        binding: Some(BINDING),
        headers: &headers,
        query: None,
        peer: &shared.peer,
        address: None,
        target: Target(BINDING, if asks_for_card { CARD_METHOD } else { "request" }),
        access: match asks_for_card && dispatcher.options().public_card {
            true => Access::Public,
            false => Access::Authenticated,
        },
        record: log.as_ref().map(|log| log.record()),
        base: None,
    };
    let in_flight = dispatcher.begin();
    let admitted = match in_flight.is_some() {
        true => dispatcher.admit(&head).await.map_err(|rejection| rejection.error()),
        false => Err(load::too_many()),
    };
    let mut stream = None;
    let response = match &admitted {
        Ok(admitted) if asks_for_card => {
            let is_local = shared.options.is_for_this_machine();
            let card = http.card_for_frames(&admitted.context.identity, &headers, None, is_local);
            card_response(&Call::peek_id(&payload), &card)
        }
        Ok(admitted) => match stream_permit(shared, &payload) {
            Ok(permit) => {
                stream = permit;
                let parameters = ServiceParameters::read(&headers, None).map(|mut parameters| {
                    parameters.delivery_key = Some(delivery_key(&shared.options.request_stream, id, &reply));
                    parameters
                });
                dispatcher.jsonrpc(&admitted.context, parameters, false, &payload).await
            }
            Err((rpc_id, error)) => {
                if let Some(record) = head.record {
                    record.error(&error);
                }
                JsonRpcResponse::error(&rpc_id, error)
            }
        },
        Err(error) => {
            if let Some(record) = head.record {
                record.denied(error);
            }
            JsonRpcResponse::error(&Call::peek_id(&payload), error.clone())
        }
    };
    // Another process answers what this one could not finish.
    if let JsonRpcResponse::Error { error, .. } = &response
        && is_interrupted(shared, error)
    {
        return;
    }
    log = log.map(|log| log.answered(200));
    match response {
        JsonRpcResponse::None => shared.writer.acknowledge(id).await,
        JsonRpcResponse::Result { body, .. } | JsonRpcResponse::Error { body, .. } => {
            drop(payload);
            count(&mut log, &body);
            let _ = shared.writer.respond(Response::last(&reply, body, Some(id.clone()))).await;
        }
        JsonRpcResponse::Events { id: rpc_id, events, .. } => {
            // A stream counts against the streams, no longer against the requests.
            drop((admitted, in_flight, payload, slot));
            write_events(shared, id, &reply, &rpc_id, events, &mut log).await;
            drop(stream);
        }
    }
}

/// The permit for a stream, if the request asks for one. It is taken before the request is processed, so that a request that is refused
/// has not run and can be repeated.
fn stream_permit(shared: &Shared, payload: &[u8]) -> Result<Option<OwnedSemaphorePermit>, (Id, Error)> {
    // The errors of a request that cannot be parsed are reported when it is processed, and a notification gets no stream.
    let Ok(call) = Call::parse(payload) else { return Ok(None) };
    let is_streaming = is_streaming(&call);
    let Some(rpc_id) = call.id.filter(|_| is_streaming) else { return Ok(None) };
    shared.streams.clone().try_acquire_owned().map(Some).map_err(|_| {
        let text = "too many streams over Redis at once, try again in a moment";
        (rpc_id, Error::new(ErrorKind::Unavailable, text).retry_in(Duration::from_secs(1)))
    })
}

/// The response with the card, for clients that cannot read it over HTTP.
fn card_response(id: &Id, card: &[u8]) -> JsonRpcResponse {
    let mut body = Vec::with_capacity(card.len() + 64);
    jsonrpc::write_result_prefix(id, &mut body);
    body.extend_from_slice(card);
    body.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
    JsonRpcResponse::Result { body, extensions: Default::default() }
}

/// Whether an error only says that this process stops.
fn is_interrupted(shared: &Shared, error: &Error) -> bool {
    shared.stop.is_cancelled() && error.kind() == ErrorKind::Unavailable
}

/// Counts bytes of the response.
fn count(log: &mut Option<Box<RequestLine>>, body: &[u8]) {
    if let Some(log) = log {
        log.written(body.len());
    }
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
    shared: &Arc<Shared>,
    id: &EntryId,
    reply: &ReplyTo,
    rpc_id: &Id,
    mut encoder: EventEncoder,
    log: &mut Option<Box<RequestLine>>,
) {
    let heartbeat = shared.http.options().heartbeat;
    let (mut index, mut silent) = (0, Duration::ZERO);
    loop {
        let batch = match tokio::time::timeout(heartbeat, encoder.events.next()).await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(_) => {
                silent += heartbeat;
                match reply.is_live {
                    true => match shared.writer.respond(Response::heartbeat(reply)).await {
                        Written::Yes => continue,
                        Written::ClientIsGone => break,
                    },
                    // Nothing tells whether such a client is still there.
                    false if silent >= shared.options.expire => break,
                    false => continue,
                }
            }
        };
        silent = Duration::ZERO;
        let items = match batch {
            Ok(items) => items,
            Err(error) if is_interrupted(shared, &error) => return,
            Err(error) => {
                let body = encoder.error(&error);
                count(log, &body);
                let _ = shared.writer.respond(Response::event(reply, body, None, index)).await;
                break;
            }
        };
        let mut last = None;
        for item in items {
            let body = numbered(&mut encoder, &item);
            count(log, &body);
            let event = Response::event(reply, body, item.seq().map(|seq| seq.0), index);
            index += 1;
            last = Some(shared.writer.send(event).await);
        }
        if let Some(written) = last
            && written.wait().await == Written::ClientIsGone
        {
            break;
        }
    }
    let end = format!(r#"{{"jsonrpc":"2.0","id":{}}}"#, rpc_id.as_json()).into_bytes();
    let _ = shared.writer.respond(Response::last(reply, end, Some(id.clone()))).await;
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
