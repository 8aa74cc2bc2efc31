//! A scripted endpoint of a language model: it waits, and then streams a few tokens as the chat completion API of OpenAI does.
//!
//! Real models take much longer to their first token. The shorter the wait is, the more the agent in front of it weighs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures::stream;
use tokio::net::TcpListener;

/// Occurs in the first token and in nothing else that is on the way to it.
pub(crate) const FIRST_TOKEN: &str = "Certainly";

/// The path of the API, below which the completions are.
pub(crate) const API: &str = "/v1";

/// More than the runtime's timer can be late.
const TIMER_STEPS: Duration = Duration::from_millis(2);

const CHUNKS: [&str; 4] = [
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Certainly"},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":", here it is."},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "[DONE]",
];

/// Serves on `listen` until the process is killed.
pub(crate) async fn serve(listen: SocketAddr, wait: Duration) -> Result<()> {
    let router = Router::new().route("/v1/chat/completions", post(move |_: Bytes| complete(wait)));
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let listener = listener.tap_io(|socket| {
        // A socket that is already gone is found out by reading from it.
        let _ = socket.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

/// Waits without the coarse steps of the runtime's timer, which are as long as what the agent in front of the endpoint may add: whether a
/// request has to wait for one more step would depend on when it arrives.
async fn wait_exactly(wait: Duration) {
    let due = Instant::now() + wait;
    tokio::time::sleep(wait.saturating_sub(TIMER_STEPS)).await;
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}

/// The head of the response comes at once, as with most providers; the first token after the wait.
async fn complete(wait: Duration) -> Response {
    let tokens = stream::unfold(0, move |next| async move {
        if next == 0 {
            wait_exactly(wait).await;
        }
        let chunk = CHUNKS.get(next)?;
        Some((Ok::<_, Infallible>(Bytes::from(format!("data: {chunk}\n\n"))), next + 1))
    });
    let events = (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    ([events], Body::from_stream(tokens)).into_response()
}
