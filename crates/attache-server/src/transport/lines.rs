//! JSON-RPC in lines: one JSON object per line in, one per line out.
//!
//! A stream is one line per event, and then `{"jsonrpc":"2.0","id":ID,"final":true}`. Requests on one connection are processed at the
//! same time, so that a task can be canceled while another request waits for it. A request can carry service parameters and credentials
//! in the member `headers`, an object of strings, because a line has no headers of its own.

use std::collections::BTreeMap;
use std::pin::pin;

use attache_protocol::jsonrpc::{Call, Id, error_response};
use attache_protocol::{Error, ErrorKind};
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::sync::mpsc;

use super::idle::{Busy, Member};
use crate::agents;
use crate::dispatch::{Access, EventEncoder, JsonRpcResponse, RequestHead, ServiceParameters, Target};
use crate::limits::load;
use crate::request_log::{Incoming, RequestLine};
use crate::{HttpService, Peer};

/// The name of the transport in the audit log.
const BINDING: &str = "JSONRPC-LINES";

/// How many requests of one connection are processed at once. Further ones are not read until one of them ends.
const MAX_CONCURRENT: usize = 64;

/// How many lines may wait to be written. A client that does not read holds up its own requests only.
const MAX_UNWRITTEN: usize = 16;

/// Serves one connection until the client closes it or the server stops.
pub(super) async fn serve<S>(stream: S, peer: Peer, http: &HttpService, member: &Member)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(stream);
    let (lines, unwritten) = mpsc::channel(MAX_UNWRITTEN);
    let mut writing = pin!(write(writer, unwritten));
    tokio::select! {
        () = process(reader, &peer, http, member, lines) => {}
        // The client does not read any more: its requests and streams end. Tasks go on.
        () = &mut writing => return,
    }
    if !member.is_evicted() {
        tokio::select! {
            () = writing => {}
            () = member.closing() => {}
        }
    }
}

/// Writes lines until there are no more, or the client does not accept them.
async fn write(mut writer: impl AsyncWrite + Unpin, mut unwritten: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = unwritten.recv().await {
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// Reads requests and answers them, until the client sends no more, the server stops, or it needs the connection for another client.
async fn process(
    reader: impl AsyncRead + Unpin,
    peer: &Peer,
    http: &HttpService,
    member: &Member,
    lines: mpsc::Sender<Vec<u8>>,
) {
    let limit = http.options().max_body;
    let activity = member.activity();
    // A stream keeps the part of a line that has arrived, which a future that is dropped would lose.
    let requests = stream::unfold(BufReader::new(reader), |mut reader| async move {
        read_line(&mut reader, limit).await.map(|line| (line, reader))
    });
    let mut requests = pin!(requests.fuse());
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !running.is_empty() {
        tokio::select! {
            request = requests.next(), if is_open && running.len() < MAX_CONCURRENT => match request {
                Some(Ok(line)) if line.trim_ascii().is_empty() => {}
                Some(Ok(line)) => {
                    let (busy, lines) = (Busy::new(&activity), lines.clone());
                    running.push(async move {
                        answer(http, peer, &line, &lines).await;
                        drop(busy);
                    });
                }
                // What follows a line that is too long cannot be told from the rest of it.
                Some(Err(error)) => {
                    let _ = lines.send(error_response(&Id::NULL, &error)).await;
                    is_open = false;
                }
                // The client may go on reading. Requests that were read are answered.
                None => is_open = false,
            },
            Some(()) = running.next(), if !running.is_empty() => {}
            () = member.closing() => {
                if member.is_evicted() {
                    return;
                }
                is_open = false;
            }
        }
    }
}

/// Reads one line of at most `limit` bytes. `None` at the end of the stream.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), limit: usize) -> Option<Result<Vec<u8>, Error>> {
    let mut line = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(most).read_until(b'\n', &mut line).await.ok()?;
    if line.len() > limit && !line.ends_with(b"\n") {
        let text = format!("the line is longer than {limit} bytes");
        return Some(Err(Error::new(ErrorKind::PayloadTooLarge, text).with("limit", limit)));
    }
    (!line.is_empty()).then_some(Ok(line))
}

/// Answers one request.
async fn answer(http: &HttpService, peer: &Peer, line: &[u8], lines: &mpsc::Sender<Vec<u8>>) {
    let headers = headers(line);
    let named = match (http.agents(), headers.get(agents::HEADER)) {
        (Some(agents), Some(name)) => match name.to_str().ok().and_then(|name| agents.get(name)) {
            Some(named) => Some(named),
            None => {
                let error = agents::no_such_agent(name);
                let _ = lines.send(error_response(&Call::peek_id(line), &error)).await;
                return;
            }
        },
        (Some(_), None) | (None, _) => None,
    };
    let dispatcher = named.as_ref().unwrap_or(http).dispatcher();
    let incoming = Incoming {
        binding: BINDING,
        target: None,
        headers: &headers,
        is_health: false,
        agent: dispatcher.service().agent_name(),
    };
    let mut log = dispatcher.request_log().begin(&incoming);
    let head = RequestHead {
        binding: Some(BINDING),
        headers: &headers,
        query: None,
        peer,
        address: None,
        target: Target("line", "request"),
        access: Access::Authenticated,
        record: log.as_ref().map(|log| log.record()),
        base: None,
    };
    let in_flight = dispatcher.begin();
    let admitted = match in_flight.is_some() {
        true => dispatcher.admit(&head).await.map_err(|rejection| rejection.error()),
        false => Err(load::too_many()),
    };
    let response = match &admitted {
        Ok(admitted) => {
            let parameters = ServiceParameters::read(&headers, None);
            dispatcher.jsonrpc(&admitted.context, parameters, false, line).await
        }
        Err(error) => {
            if let Some(record) = head.record {
                record.denied(error);
            }
            JsonRpcResponse::error(&Call::peek_id(line), error.clone())
        }
    };
    log = log.map(|log| log.answered(200));
    match response {
        JsonRpcResponse::None => {}
        JsonRpcResponse::Result { body, .. } | JsonRpcResponse::Error { body, .. } => {
            count(&mut log, &body);
            let _ = lines.send(body).await;
        }
        JsonRpcResponse::Events { id, events, .. } => {
            // A stream counts against the caller's streams, no longer against its requests.
            drop((admitted, in_flight));
            write_events(&id, events, lines, &mut log).await;
        }
    }
}

/// Counts a line of the response, with its line break.
fn count(log: &mut Option<Box<RequestLine>>, line: &[u8]) {
    if let Some(log) = log {
        log.written(line.len() + 1);
    }
}

/// Writes the events of a stream, and the line that ends it.
async fn write_events(
    id: &Id,
    mut encoder: EventEncoder,
    lines: &mpsc::Sender<Vec<u8>>,
    log: &mut Option<Box<RequestLine>>,
) {
    while let Some(batch) = encoder.events.next().await {
        let items = match batch {
            Ok(items) => items,
            Err(error) => {
                let _ = lines.send(encoder.error(&error)).await;
                break;
            }
        };
        for item in items {
            let mut line = Vec::with_capacity(512);
            encoder.write(&item, &mut line);
            count(log, &line);
            if lines.send(line).await.is_err() {
                return;
            }
        }
    }
    let end = format!(r#"{{"jsonrpc":"2.0","id":{},"final":true}}"#, id.as_json());
    let _ = lines.send(end.into_bytes()).await;
}

/// The service parameters and credentials that a request carries. Names and values that are not valid in a header are ignored, as unknown
/// headers are. If the member `headers` has another form, or names a header twice, the request has none: one request has one credential.
fn headers(line: &[u8]) -> HeaderMap {
    #[derive(Deserialize)]
    struct WithHeaders {
        #[serde(default)]
        headers: BTreeMap<String, String>,
    }
    let Ok(WithHeaders { headers }) = serde_json::from_slice(line) else { return HeaderMap::new() };
    let mut valid = HeaderMap::new();
    for (name, value) in headers {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let Ok(value) = HeaderValue::from_str(&value) else { continue };
        if valid.insert(name, value).is_some() {
            return HeaderMap::new();
        }
    }
    valid
}
