//! The bare server: what axum and serde_json cost when there is nothing else to do.
//!
//! It parses each request into the types a server would need, looks up a constant answer and sends it. No store, no task, no
//! agent. Streams send their events one by one, giving way to the runtime between them as an agent would.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::serve::ListenerExt;
use bytes::Bytes;
use clap::ValueEnum;
use futures::stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::answers::{Answer, Answers, CARD, Ending};
use crate::requests::CARD_PATH;

/// What data parts are parsed into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataAs {
    /// A tree of values, as a server does that may look into them
    Tree,
    /// The bytes they came in, checked to be JSON
    Raw,
}

/// Serves on `listen` until the process is killed.
pub(crate) async fn serve(listen: SocketAddr, data: DataAs) -> Result<()> {
    let answering = match data {
        DataAs::Tree => post(answer::<Value>),
        DataAs::Raw => post(answer::<Box<RawValue>>),
    };
    let router = Router::new()
        .route("/a2a", answering)
        .route(CARD_PATH, get(card))
        .route("/__answer/{work}", put(learn))
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(Answers::default()));
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let listener = listener.tap_io(|socket| {
        // A socket that is already gone is found out by reading from it.
        let _ = socket.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

async fn learn(State(answers): State<Arc<Answers>>, Path(work): Path<String>, body: Bytes) -> StatusCode {
    answers.learn(&work, body);
    StatusCode::OK
}

async fn answer<D: DeserializeOwned>(State(answers): State<Arc<Answers>>, body: Bytes) -> Response {
    let request: Request<D> = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return refusal(-32700, &error.to_string()),
    };
    let Some(work) = request.work() else { return refusal(-32601, &request.method) };
    match answers.to(work) {
        Some(Answer::Complete(body)) => ([CONTENT_TYPE_JSON], body).into_response(),
        Some(Answer::Stream { frames, ending }) => {
            ([CONTENT_TYPE_EVENTS], events(frames, ending)).into_response()
        }
        None => refusal(-32602, work),
    }
}

/// A card is there once it has been taught: what it costs depends on its size.
async fn card(State(answers): State<Arc<Answers>>) -> Response {
    match answers.to(CARD) {
        Some(Answer::Complete(body)) => ([CONTENT_TYPE_JSON], body).into_response(),
        Some(Answer::Stream { .. }) | None => StatusCode::NOT_FOUND.into_response(),
    }
}

const CONTENT_TYPE_JSON: (header::HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
const CONTENT_TYPE_EVENTS: (header::HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));

fn events(frames: Arc<[Bytes]>, ending: Ending) -> Body {
    Body::from_stream(stream::unfold(0, move |next| {
        let frame = frames.get(next).cloned();
        async move {
            if next > 0 {
                tokio::task::yield_now().await;
            }
            match (frame, ending) {
                (Some(frame), _) => Some((Ok::<_, std::convert::Infallible>(frame), next + 1)),
                (None, Ending::Close) => None,
                (None, Ending::Never) => std::future::pending().await,
            }
        }
    }))
}

fn refusal(code: i32, about: &str) -> Response {
    let body = serde_json::json!({
        "jsonrpc": "2.0",
        "id": null,
        "error": { "code": code, "message": format!("the bare server cannot answer this: {about}") },
    });
    ([CONTENT_TYPE_JSON], body.to_string()).into_response()
}

/// What a server has to take out of a request before it can begin.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed because any server must, not because the answer depends on it")]
struct Request<D> {
    jsonrpc: String,
    id: Value,
    method: String,
    params: Params<D>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed because any server must, not because the answer depends on it")]
struct Params<D> {
    message: Option<Message<D>>,
    id: Option<String>,
    page_size: Option<u32>,
    page_token: Option<String>,
    history_length: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed because any server must, not because the answer depends on it")]
struct Message<D> {
    message_id: String,
    role: String,
    parts: Vec<Part<D>>,
    task_id: Option<String>,
    context_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed because any server must, not because the answer depends on it")]
struct Part<D> {
    text: Option<String>,
    data: Option<D>,
}

impl<D> Request<D> {
    /// Which constant answers this; `None` for a method that is no part of any work.
    fn work(&self) -> Option<&str> {
        match self.method.as_str() {
            "SendMessage" if self.first_text() == Some("data") => Some("data"),
            "SendMessage" => Some("send"),
            "SendStreamingMessage" => self.first_text(),
            "GetTask" => Some("get"),
            "ListTasks" => Some("list"),
            _ => None,
        }
    }

    fn first_text(&self) -> Option<&str> {
        self.params.message.as_ref()?.parts.iter().find_map(|part| part.text.as_deref())
    }
}
