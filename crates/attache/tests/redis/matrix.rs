//! The conformance suite over Redis Streams.

use std::collections::VecDeque;

use attache_core::BoxFuture;
use attache_server::{Listening, RedisStreams};
use serde_json::{Value, json};

use crate::conformance::{self, Case, Got, HttpWire, Side, Wire, matrix, server, split_headers};
use crate::support::{Peer, RESPONSES, Redis, Response, has_redis};

/// HTTP with an idempotency key in each request, because sends over Redis get one from their entries. With it, an agent that replies
/// with a message is answered by a task.
struct KeyedHttp(HttpWire);

impl Wire for KeyedHttp {
    fn send(&mut self, mut request: Value) -> BoxFuture<'_, ()> {
        request["headers"]["Idempotency-Key"] = request["id"].clone();
        self.0.send(request)
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        self.0.next()
    }
}

/// A reply stream, and the stream of requests.
struct RedisWire {
    peer: Peer,
    read: VecDeque<Response>,
}

impl Wire for RedisWire {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()> {
        let (payload, headers) = split_headers(request);
        Box::pin(async move {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            self.peer.add("c", &payload, &headers).await;
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        Box::pin(async move {
            loop {
                if let Some(response) = self.read.pop_front() {
                    let Response { mut payload, is_final: last, event, .. } = response;
                    if let Some(event) = event {
                        payload["eventId"] = json!(event);
                    }
                    return Some(Got { payload, last });
                }
                self.read.extend(self.peer.read().await);
            }
        })
    }
}

/// Runs a server, and gives its address.
fn run(listening: Listening) -> String {
    let address = listening.address().expect("it listens on a port").to_string();
    tokio::spawn(listening.run());
    address
}

async fn compare(case: Case) {
    if !has_redis(&format!("matrix::redis, {case:?}")) {
        return;
    }
    let redis = Redis::start().await;
    let own = run(server(case.access).bind("127.0.0.1:0").listen().await.unwrap());
    let streams = RedisStreams::new(&redis.url()).unwrap();
    let other = run(server(case.access).bind("127.0.0.1:0").redis(streams).listen().await.unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut http = KeyedHttp(HttpWire::new(client, format!("http://{own}/a2a")));
    let peer = Peer::with_reply(&redis, &format!("{RESPONSES}:suite")).await;
    let mut wire = RedisWire { peer, read: VecDeque::new() };
    let http = Side { wire: &mut http, server: own };
    let other = Side { wire: &mut wire, server: other };
    conformance::compare(http, other, case).await;
}

matrix! { redis: compare }
