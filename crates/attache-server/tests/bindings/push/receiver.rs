//! A receiver of notifications that the test plays itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use http::{HeaderMap, Method, Response, Uri};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::support::soon;

/// A receiver on a port of its own. It hands each call to the test, and answers what the test says.
pub(super) struct Receiver {
    address: SocketAddr,
    calls: mpsc::UnboundedReceiver<Call>,
    crowd: Arc<Crowd>,
    served: JoinHandle<()>,
}

/// A call that waits for its answer. Dropped without one, it waits for as long as the caller does.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Bytes,
    answer: Option<oneshot::Sender<Response<Body>>>,
}

/// How many calls wait for an answer at once.
#[derive(Debug, Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Waiting(Arc<Crowd>);

impl Waiting {
    fn new(crowd: &Arc<Crowd>) -> Self {
        let now = crowd.now.fetch_add(1, Ordering::Relaxed) + 1;
        crowd.most.fetch_max(now, Ordering::Relaxed);
        Self(crowd.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

type Desk = (mpsc::UnboundedSender<Call>, Arc<Crowd>);

async fn take(
    State((calls, crowd)): State<Desk>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response<Body> {
    let waiting = Waiting::new(&crowd);
    let (answer, answered) = oneshot::channel();
    let call = Call { method, path: uri.to_string(), headers, bytes, answer: Some(answer) };
    // A test that is over wants no calls.
    let _ = calls.send(call);
    let Ok(response) = answered.await else { std::future::pending().await };
    drop(waiting);
    response
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (enter, calls) = mpsc::unbounded_channel();
        let crowd = Arc::new(Crowd::default());
        let app = Router::new().fallback(take).with_state((enter, crowd.clone()));
        let served = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, calls, crowd, served }
    }

    /// A URL that leads here.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for a call and leaves it without an answer.
    pub(super) async fn call(&mut self) -> Call {
        soon(self.calls.recv()).await.expect("the receiver runs")
    }

    /// Waits for a call and answers it with a status.
    pub(super) async fn answer(&mut self, status: u16) -> Call {
        let mut call = self.call().await;
        call.answer(status);
        call
    }

    /// Waits for a call and takes it.
    pub(super) async fn told(&mut self) -> Call {
        self.answer(200).await
    }

    /// Waits for so many calls, takes them, and says what they told.
    pub(super) async fn news(&mut self, count: usize) -> Vec<String> {
        let mut news = Vec::new();
        for _ in 0..count {
            news.push(self.told().await.news());
        }
        news
    }

    /// Whether no call has come that was not looked at.
    pub(super) fn is_quiet(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many calls waited for an answer at once, at most.
    pub(super) fn most_at_once(&self) -> usize {
        self.crowd.most.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Call {
    pub(super) fn answer(&mut self, status: u16) {
        self.answer_with(status, &[]);
    }

    pub(super) fn answer_with(&mut self, status: u16, headers: &[(&str, &str)]) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let answer = self.answer.take().expect("one answer only");
        // A caller that has gone away needs none.
        let _ = answer.send(response.body(Body::empty()).unwrap());
    }

    /// A header, empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body, which is JSON.
    pub(super) fn body(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.bytes))
    }

    /// What it tells, in a word: the name of a state, or of an artifact.
    pub(super) fn news(&self) -> String {
        let body = self.body();
        let members = body.as_object().expect("an object");
        let (kind, event) = members.iter().next().expect("an event");
        assert_eq!(members.len(), 1, "one event: {body}");
        let word = match kind.as_str() {
            "task" | "statusUpdate" => event["status"]["state"].as_str(),
            "artifactUpdate" => event["artifact"]["name"].as_str(),
            other => panic!("no event is called {other}: {body}"),
        };
        let word = word.unwrap_or_else(|| panic!("nothing is told: {body}"));
        word.strip_prefix("TASK_STATE_").unwrap_or(word).to_owned()
    }

    /// The number of the event, and the number of the attempt to tell it.
    pub(super) fn numbers(&self) -> (u64, u64) {
        let number = |name| self.header(name).parse().unwrap_or_else(|_| panic!("a number in `{name}`"));
        (number("x-a2a-event-number"), number("x-a2a-delivery-attempt"))
    }

    /// What the delivery is known by.
    pub(super) fn id(&self) -> &str {
        self.header("x-a2a-delivery-id")
    }
}
