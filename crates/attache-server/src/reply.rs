//! What the service answers, as the JSON of the two JSON bindings.

use attache_core::{Page, Reply};
use attache_protocol::dialect::Response;
use attache_protocol::{Error, ListTasksResponse};
use http::StatusCode;
use serde::Serialize;

/// Writes an answer that is not a stream. Tasks that have ended are copied, not built.
pub(crate) fn write(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Sent(snapshot, view) => {
            out.extend_from_slice(b"{\"task\":");
            snapshot.write(*view, out);
            out.push(b'}');
        }
        Reply::Message(message) => {
            out.extend_from_slice(b"{\"message\":");
            json(out, message);
            out.push(b'}');
        }
        Reply::Task(snapshot, view) => snapshot.write(*view, out),
        Reply::Tasks(page) => write_page(page, out),
        Reply::Push(config) => json(out, config),
        Reply::Pushes(configs) => json(out, configs),
        Reply::Done | Reply::Events(..) => out.extend_from_slice(b"{}"),
        Reply::Card(card) => json(out, card),
    }
}

/// An answer that is not a stream, as a value to be written in a dialect.
pub(crate) fn answer(reply: &Reply) -> Response<'_> {
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

fn write_page(page: &Page, out: &mut Vec<u8>) {
    // Growing on the way would copy the page several times over.
    out.reserve(page.tasks.iter().map(|task| task.size_hint(page.view) + 1).sum::<usize>() + 256);
    out.extend_from_slice(b"{\"tasks\":[");
    for (i, task) in page.tasks.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        task.write(page.view, out);
    }
    out.extend_from_slice(b"],\"nextPageToken\":");
    json(out, &page.next_page_token);
    out.extend_from_slice(b",\"pageSize\":");
    json(out, &page.page_size);
    out.extend_from_slice(b",\"totalSize\":");
    json(out, &page.total_size);
    out.push(b'}');
}

/// The body of an HTTP+JSON response that refuses a request.
pub(crate) fn http_error_body(error: &Error) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    json(&mut out, &error.to_http_json());
    out
}

/// The same for a status that HTTP has and the protocol does not.
pub(crate) fn http_error_body_for(status: StatusCode, error: &Error) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    json(&mut out, &error.to_http_json_as(status.as_u16()));
    out
}

/// Writes a value of the protocol; those cannot fail to be written into memory.
pub(crate) fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if let Err(error) = attache_protocol::json::write(out, value) {
        tracing::error!(%error, "a value of the protocol could not be written as JSON");
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
