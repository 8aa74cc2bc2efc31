//! Requests to the endpoint of a model.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_core::AgentError;
use attache_outbound::{SetupError, build_client, causes, restricted_client, retry_after};
use reqwest::{Client, Response, StatusCode};

use super::ModelOptions;
use super::tool::Tool;
use super::wire::{ChatMessage, Chunk, Request, StreamOptions};

/// The longest pause before a request is repeated.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The longest line of a stream, in bytes.
const MAX_LINE: usize = 1024 * 1024;

/// How much of an error response is logged, in bytes.
const EXCERPT: usize = 2048;

/// The endpoint of a model.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) client: Client,
    pub(super) options: Arc<ModelOptions>,
}

/// Why a request failed.
struct Failed {
    error: AgentError,
    /// How long to wait before the request is repeated, if that can help.
    retry: Option<Option<Duration>>,
}

impl Endpoint {
    pub(super) fn new(options: Arc<ModelOptions>) -> Result<Self, SetupError> {
        let client = build_client(|| {
            restricted_client().connect_timeout(Duration::from_secs(10)).read_timeout(options.silence)
        })?;
        Ok(Self { client, options })
    }

    /// Sends the conversation. Repeats the request while the endpoint is overloaded or does not respond.
    pub(super) async fn complete(
        &self,
        messages: &[ChatMessage],
        tools: &[Tool],
    ) -> Result<Events, AgentError> {
        let options = &self.options;
        let request = Request {
            model: &options.model,
            messages,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            tools: tools.iter().map(Into::into).collect(),
            parameters: &options.parameters,
        };
        let mut attempt = 0;
        loop {
            match self.send(&request).await {
                Ok(response) => return Ok(Events { response, buffer: Vec::new(), is_over: false }),
                Err(Failed { error, retry: Some(pause) }) if attempt < options.max_retries => {
                    // 0.5, 1, 2 seconds and so on, with some chance, so that callers do not come back all at once.
                    let grown = Duration::from_millis(500 << attempt.min(10));
                    let pause =
                        pause.unwrap_or_else(|| grown.mul_f64(0.75 + fastrand::f64() / 2.0)).min(MAX_PAUSE);
                    tracing::warn!(target: "attache::model", %error, ?pause, "the model endpoint failed; trying again");
                    tokio::time::sleep(pause).await;
                    attempt += 1;
                }
                Err(Failed { error, .. }) => return Err(error),
            }
        }
    }

    async fn send(&self, request: &Request<'_>) -> Result<Response, Failed> {
        let url = format!("{}/chat/completions", self.options.url.trim_end_matches('/'));
        let mut builder = self.client.post(url).json(request);
        if let Some(key) = &self.options.key {
            builder = builder.bearer_auth(key.reveal());
        }
        let response = builder.send().await.map_err(|error| {
            let cause = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
            Failed {
                error: format!("the model endpoint cannot be reached: {cause}").into(),
                retry: Some(None),
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let pause = retry_after(response.headers(), SystemTime::now());
        let is_temporary = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let body = excerpt(response).await;
        let text = format!("the model endpoint responded with {status}: {body}");
        tracing::warn!(target: "attache::model", status = status.as_u16(), body, "the model endpoint responded with an error");
        let error = match status {
            StatusCode::TOO_MANY_REQUESTS => AgentError::public("the model is overloaded: try again later"),
            _ => AgentError::from(text),
        };
        Err(Failed { error, retry: is_temporary.then_some(pause) })
    }
}

/// The beginning of a response body.
async fn excerpt(mut response: Response) -> String {
    let mut body = Vec::new();
    while body.len() < EXCERPT {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(EXCERPT);
    String::from_utf8_lossy(&body).into_owned()
}

/// The events of a streamed response.
pub(super) struct Events {
    response: Response,
    buffer: Vec<u8>,
    is_over: bool,
}

impl Events {
    /// The next event. Nothing when the stream has ended.
    pub(super) async fn next(&mut self) -> Result<Option<Chunk>, AgentError> {
        while !self.is_over {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                if self.buffer.len() > MAX_LINE {
                    return Err(AgentError::from("the model endpoint sent a line that is too long"));
                }
                match self.response.chunk().await {
                    Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                    Ok(None) => {
                        // The last line can lack its end.
                        self.is_over = true;
                        let rest = std::mem::take(&mut self.buffer);
                        return parse(&rest);
                    }
                    Err(error) if error.is_timeout() => {
                        return Err(AgentError::public("the model stopped replying"));
                    }
                    Err(error) => {
                        tracing::warn!(target: "attache::model", %error, "the stream of the model endpoint broke off");
                        return Err(AgentError::public("the reply of the model broke off"));
                    }
                }
                continue;
            };
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            if line.trim_ascii() == b"data: [DONE]" || line.trim_ascii() == b"data:[DONE]" {
                self.is_over = true;
                break;
            }
            if let Some(chunk) = parse(&line)? {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// Reads a line of the stream. Other lines than `data` are empty or comments.
fn parse(line: &[u8]) -> Result<Option<Chunk>, AgentError> {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { return Ok(None) };
    serde_json::from_slice(data).map(Some).map_err(|error| {
        let shown: String = String::from_utf8_lossy(data).chars().take(200).collect();
        AgentError::from(format!("the model endpoint sent an invalid event: {error} in `{shown}`"))
    })
}
