//! A server without a network, and an agent with the tasks of two callers.
//!
//! Alice sends the requests. Bob has a task too, of which Alice must never see anything. Time is virtual, so that waiting takes no time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, AgentResult, Identity, ManualClock, MemoryStore, Store, Turn};
use attache_protocol::{AgentCard, Timestamp};
use attache_server::auth::{KeyPlace, KnownCallers};
use attache_server::{HttpService, Policy, Server};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, split};
use tokio::runtime::Runtime;

/// What Bob's task is about.
pub(crate) const SECRET: &str = "the-combination-of-the-safe";

/// What is good enough for the guarded caller: a token, a name with a password as they are sent, and a key.
pub(crate) const CREDENTIALS: [&str; 3] = ["t0ken-of-alice", "YWxpY2U6cGE1NXdvcmQ=", "k3y-of-alice"];

/// After so many questions everything begins anew, so that what the questions leave behind stays small.
const QUESTIONS: u32 = 64;

/// How much of a stream is read, and how long it may be silent: those that wait for their task to go on never end.
const FRAMES: usize = 16;
const SILENCE: Duration = Duration::from_secs(30);

/// How much may wait in a connection.
const PIPE: usize = 64 * 1024;

/// How often other tasks run before the next piece is sent.
const TURNS: usize = 3;

/// What the body of a request is declared as.
pub(crate) const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

/// The caller of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerKind {
    /// Every request comes from Alice.
    Alice,
    /// Every request comes from Bob.
    Bob,
    /// Credentials are required.
    Guarded,
    /// Nothing names the caller, and no credentials are required.
    Unnamed,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    /// Whether it is of this media type.
    pub(crate) fn is(&self, media_type: &str) -> bool {
        let value = self.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.starts_with(media_type))
    }

    /// The body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the response holds anything that belongs to Bob. A secret that the request itself contains does not count.
    pub(crate) fn leaks_secret(&self, asked: &[u8]) -> bool {
        contains(&self.body, SECRET.as_bytes()) && !contains(asked, SECRET.as_bytes())
    }
}

/// Whether a text holds a credential, as it is or in a string of JSON, where characters can be escaped.
pub(crate) fn has_credential(text: &[u8]) -> bool {
    fn in_json(value: &Value) -> bool {
        match value {
            Value::String(text) => in_text(text.as_bytes()),
            Value::Array(items) => items.iter().any(in_json),
            Value::Object(members) => members.values().any(in_json),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    fn in_text(text: &[u8]) -> bool {
        CREDENTIALS.iter().any(|credential| contains(text, credential.as_bytes()))
    }
    in_text(text) || serde_json::from_slice(text).is_ok_and(|value| in_json(&value))
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Asks, and reads what comes back.
pub(crate) fn ask(caller: CallerKind, request: Request<Bytes>) -> Answer {
    with_server(|server| server.ask(caller, request))
}

/// Sends these pieces over a stream of lines, and reads what comes back. The caller has no name, or needs credentials.
pub(crate) fn ask_in_lines(caller: CallerKind, max_line: usize, pieces: &[&[u8]]) -> Vec<u8> {
    with_server(|server| server.ask_in_lines(caller, max_line, pieces))
}

/// Sends these pieces over a connection that HTTP begins, and reads what comes back.
pub(crate) fn ask_over_connection(caller: CallerKind, pieces: &[&[u8]]) -> Vec<u8> {
    with_server(|server| server.ask_over_connection(caller, pieces))
}

fn with_server<T>(question: impl FnOnce(&TestServer) -> T) -> T {
    thread_local! {
        static SERVER: RefCell<Option<TestServer>> = const { RefCell::new(None) };
    }
    SERVER.with_borrow_mut(|server| {
        if server.as_ref().is_some_and(|server| server.asked == QUESTIONS) {
            *server = None;
        }
        let server = server.get_or_insert_with(TestServer::build);
        server.asked += 1;
        question(server)
    })
}

struct TestServer {
    open: HttpService,
    guarded: HttpService,
    store: Arc<dyn Store>,
    asked: u32,
    /// Dropped last: what runs beside the surfaces runs on it.
    runtime: Runtime,
}

impl TestServer {
    fn build() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing that could be missing");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (open, guarded) = runtime.block_on(async {
            (surface(server().shared_store(store.clone())), surface(server().authenticate(known())))
        });
        let server = Self { open, guarded, store, asked: 0, runtime };
        // Before 1.0, clients chose the ids of tasks: so these can be guessed.
        for (caller, id, text) in [
            (CallerKind::Alice, "ended", "hello"),
            (CallerKind::Alice, "asking", "ask"),
            (CallerKind::Unnamed, "ended", "hello"),
            (CallerKind::Unnamed, "asking", "ask"),
            (CallerKind::Bob, "hidden", SECRET),
            (CallerKind::Bob, "hidden too", SECRET),
        ] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{{"id":"{id}","sessionId":"c-{id}",
                "message":{{"role":"user","parts":[{{"type":"text","text":"{text}"}}]}}}}}}"#
            );
            let mut request = Request::new(Bytes::from(body));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = http::Uri::from_static("/a2a/rpc");
            request.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
            let answer = server.ask(caller, request);
            assert!(contains(&answer.body, id.as_bytes()), "{}", answer.text());
        }
        server
    }

    fn ask(&self, caller: CallerKind, request: Request<Bytes>) -> Answer {
        let mut request = request.map(Full::new);
        let surface = match caller {
            CallerKind::Alice | CallerKind::Bob => {
                let name = if caller == CallerKind::Bob { "bob" } else { "alice" };
                request.extensions_mut().insert(Identity::named(name));
                &self.open
            }
            CallerKind::Unnamed => &self.open,
            CallerKind::Guarded => &self.guarded,
        };
        self.runtime.block_on(async { read(surface.handle(request).await).await })
    }

    fn ask_in_lines(&self, caller: CallerKind, max_line: usize, pieces: &[&[u8]]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            let server = server().push(false).options(|options| options.max_body = max_line).lines(theirs);
            let server = match caller {
                CallerKind::Guarded => server.authenticate(known()),
                CallerKind::Alice | CallerKind::Bob | CallerKind::Unnamed => {
                    server.shared_store(self.store.clone())
                }
            };
            let listening = server.listen().await.expect("a stream is there already");
            let serving = tokio::spawn(listening.run_until(pending()));
            let answer = converse(ours, pieces, After::End).await;
            serving.await.expect("the server does not panic").expect("the server ends with its client");
            answer
        })
    }

    fn ask_over_connection(&self, caller: CallerKind, pieces: &[&[u8]]) -> Vec<u8> {
        let surface = if caller == CallerKind::Guarded { &self.guarded } else { &self.open }.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            if caller == CallerKind::Alice {
                request.extensions_mut().insert(Identity::named("alice"));
            }
            let surface = surface.clone();
            async move { Ok::<_, Infallible>(surface.handle(request).await) }
        });
        self.runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
            let serving = tokio::spawn(connection.with_upgrades());
            let answer = converse(ours, pieces, After::Silence).await;
            serving.abort();
            answer
        })
    }
}

/// What a client does after its last piece.
enum After {
    /// It ends its half of the stream.
    End,
    /// It sends nothing more, and the server has to notice that.
    Silence,
}

/// Writes pieces, which the other end reads one by one, and reads until the other end is silent or has ended.
async fn converse(stream: DuplexStream, pieces: &[&[u8]], after: After) -> Vec<u8> {
    let (mut reader, mut writer) = split(stream);
    let mut answer = Vec::new();
    let writing = async {
        for piece in pieces {
            // The other end need not read what it does not accept.
            if writer.write_all(piece).await.is_err() {
                return;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
        match after {
            After::End => drop(writer.shutdown().await),
            After::Silence => {}
        }
    };
    let reading = async {
        let mut chunk = [0; 4096];
        while let Ok(Ok(count @ 1..)) = tokio::time::timeout(SILENCE, reader.read(&mut chunk)).await {
            answer.extend_from_slice(&chunk[..count]);
        }
    };
    tokio::join!(writing, reading);
    answer
}

/// Who has which credential.
fn known() -> KnownCallers {
    let [bearer, _, key] = CREDENTIALS;
    KnownCallers::new()
        .bearer("alice", bearer)
        .basic("alice", "pa55word")
        .api_key("alice", KeyPlace::Header("X-API-Key".to_owned()), key)
        .api_key("alice", KeyPlace::Cookie("key".to_owned()), key)
}

pub(crate) async fn read(response: Response<attache_server::Body>) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut answer =
        Answer { status: head.status, headers: head.headers, body: Vec::new(), trailers: HeaderMap::new() };
    for _ in 0..FRAMES {
        let Ok(Some(frame)) = tokio::time::timeout(SILENCE, body.frame()).await else { break };
        let frame = frame.expect("nothing breaks off what is answered in memory");
        match frame.into_data() {
            Ok(data) => answer.body.extend_from_slice(&data),
            Err(frame) => answer.trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    answer
}

pub(crate) fn server() -> Server<Player> {
    Server::new(Player)
        .card(AgentCard::new("Player", "Does what it is told").input_modes(["*/*"]).output_modes(["*/*"]))
        .extended_card(AgentCard::new("Player", "Does what it is told, and more"))
        .clock(ManualClock::new(Timestamp::from_millis(1_800_000_000_000)))
        .service_options(|options| {
            // A webhook that was taken would be called.
            options.webhook_check = attache_core::WebhookCheck::new(|url| {
                Policy::default().check_url(url).map_err(|refused| refused.to_string())?;
                Err("nothing is called from here".to_owned())
            });
            options.long_poll = Duration::from_secs(1);
        })
}

pub(crate) fn surface<A: Agent>(server: Server<A>) -> HttpService {
    server.into_http_service("http://localhost:4600").expect("the system has what requests need")
}

/// Does what the first word of a message says, and gives back what it gets if it does not know the word.
pub(crate) struct Player;

impl Agent for Player {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        match text.split(' ').next().unwrap_or_default() {
            "ask" => turn.ask("what exactly?").await,
            "fail" => turn.fail("it did not work").await,
            "message" => turn.reply(text).await,
            "chunks" => {
                let mut answer = turn.artifact("answer").stream();
                answer.chunk("one ").await?;
                answer.last("two").await?;
                turn.complete_with("that is all").await
            }
            _ => turn.artifact("answer").parts(turn.message().parts.clone()).await,
        }
    }
}
