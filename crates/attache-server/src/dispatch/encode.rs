//! Replies and events as the JSON of the JSON bindings.

use attache_core::{EventStream, Reply, StreamItem, View, write_json};
use attache_protocol::dialect::{HttpDialect, Response};
use attache_protocol::{Dialect, Error, ListTasksResponse, dialect, jsonrpc};
use http::StatusCode;

/// A reply that is not a stream, as the value that dialects write.
pub(crate) fn to_dialect(reply: &Reply) -> Response<'_> {
    match reply {
        Reply::Sent(snapshot, view) => Response::Sent(snapshot.viewed(*view)),
        Reply::Message(message) => Response::Message(message),
        Reply::Task(snapshot, view) => Response::Task(snapshot.viewed(*view)),
        Reply::Tasks(page) => Response::Tasks(ListTasksResponse {
            tasks: page.tasks.iter().map(|task| task.viewed(page.view).into_owned()).collect(),
            next_page_token: page.next_page_token.clone(),
            page_size: page.page_size,
            total_size: page.total_size,
        }),
        Reply::Push(config) => Response::Push(config),
        Reply::Pushes(configs) => Response::Pushes(configs),
        Reply::Done | Reply::Events(..) => Response::Done,
        Reply::Card(card) => Response::Card(card),
    }
}

/// What surrounds each event of a stream, and the dialect that it is written in.
pub(crate) enum Envelope {
    /// A JSON-RPC response to this id, in 1.0 or in an older dialect.
    JsonRpc(jsonrpc::Id, Option<(Dialect, dialect::EventWriter)>),
    /// Nothing: the event itself, in 1.0 or in 0.3.
    Plain(Option<HttpDialect>),
}

/// A stream of events with what is needed to write each of them. Transports frame the result.
pub(crate) struct EventEncoder {
    pub(crate) events: EventStream,
    view: View,
    envelope: Envelope,
    prefix: Box<[u8]>,
}

impl EventEncoder {
    pub(crate) fn new(events: EventStream, view: View, envelope: Envelope) -> Self {
        let mut prefix = Vec::new();
        if let Envelope::JsonRpc(id, _) = &envelope {
            jsonrpc::write_result_prefix(id, &mut prefix);
        }
        Self { events, view, envelope, prefix: prefix.into() }
    }

    /// Writes one event.
    pub(crate) fn write(&mut self, item: &StreamItem, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        match &mut self.envelope {
            Envelope::JsonRpc(_, None) => {
                item.write(self.view, out);
                out.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
            }
            Envelope::JsonRpc(_, Some((_, events))) => {
                match item.to_response(self.view) {
                    Some(event) => events.write(&event, out),
                    None => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
            }
            Envelope::Plain(None) => item.write(self.view, out),
            Envelope::Plain(Some(dialect)) => match item.to_response(self.view) {
                Some(event) => dialect.write_event(&event, out),
                None => out.extend_from_slice(b"null"),
            },
        }
    }

    /// The error that ends a stream.
    pub(crate) fn error(&self, error: &Error) -> Vec<u8> {
        match &self.envelope {
            Envelope::JsonRpc(id, None) => jsonrpc::error_response(id, error),
            Envelope::JsonRpc(id, Some((dialect, _))) => dialect.error_response(id, error),
            Envelope::Plain(None) => http_error_body(error),
            Envelope::Plain(Some(dialect)) => dialect.error_response(error).1,
        }
    }
}

/// The body of an HTTP+JSON error response.
pub(crate) fn http_error_body(error: &Error) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_json(&mut out, &error.to_http_json());
    out
}

/// The same for a status that HTTP has and the protocol does not.
pub(crate) fn http_error_body_for(status: StatusCode, error: &Error) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_json(&mut out, &error.to_http_json_as(status.as_u16()));
    out
}
