//! Requests to the endpoint of a model.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_core::AgentError;
use attache_outbound::{SetupError, build_client, causes, restricted_client, retry_after};
use reqwest::{Client, Response, StatusCode};

use super::ModelOptions;
use super::tool::Tool;
use super::wire::{ChatMessage, Chunk, Request, StreamOptions};

/// The longest pause before a request is repeated. If the endpoint asks for a longer one, the request fails.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The longest line of a stream, in bytes.
const MAX_LINE: usize = 1024 * 1024;

/// How much of an error response is logged, in bytes.
const MAX_ERROR: usize = 64 * 1024;

/// How long the body of an error response may take.
const ERROR_TIME: Duration = Duration::from_secs(10);

/// How much of a response is a part of an error, in characters.
const EXCERPT: usize = 200;

/// The caller reads this if the endpoint is silent.
const SILENT: &str = "the model stopped replying";

/// The caller reads this if there is no connection to the endpoint.
const UNREACHABLE: &str = "the model cannot be reached: try again later";

/// What the caller learns if the key is missing or wrong. What the endpoint said is in the log: it may quote the key.
const UNAUTHORIZED: &str = "the model endpoint did not accept the credentials of this server";

/// The endpoint of a model.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) client: Client,
    pub(super) options: Arc<ModelOptions>,
}

/// Why a request failed.
struct Failed {
    error: AgentError,
    retry: Retry,
}

/// Whether to repeat a request, and when.
enum Retry {
    /// A repetition does not help.
    Never,
    /// After a pause that grows with each repetition.
    Soon,
    /// After this time, which the endpoint has asked for.
    After(Duration),
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
                Ok(response) => return Ok(Events::new(response, options.silence)),
                Err(Failed { error, retry }) => {
                    let pause = match retry {
                        Retry::Never => return Err(error),
                        // 0.5, 1, 2 seconds and so on, with some chance, so that callers do not come back all at once.
                        Retry::Soon => Duration::from_millis(500 << attempt.min(10))
                            .mul_f64(0.75 + fastrand::f64() / 2.0)
                            .min(MAX_PAUSE),
                        Retry::After(pause) => pause,
                    };
                    if attempt >= options.max_retries {
                        return Err(error);
                    }
                    tracing::warn!(target: "attache::model", %error, ?pause, "the model endpoint failed; trying again");
                    tokio::time::sleep(pause).await;
                    attempt += 1;
                }
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
            // The endpoint has the request, and may still be at work on it.
            if error.is_timeout() && !error.is_connect() {
                tracing::warn!(target: "attache::model", silence = ?self.options.silence, "the model endpoint does not respond");
                return Failed { error: AgentError::public(SILENT), retry: Retry::Never };
            }
            let cause = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
            tracing::warn!(target: "attache::model", cause, "the model endpoint cannot be reached");
            Failed { error: AgentError::public(UNREACHABLE), retry: Retry::Soon }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let asked = retry_after(response.headers(), SystemTime::now());
        let is_temporary = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let body = error_body(response).await;
        tracing::warn!(target: "attache::model", status = status.as_u16(), body, "the model endpoint responded with an error");
        if let Some(pause) = asked.filter(|pause| is_temporary && *pause > MAX_PAUSE) {
            let seconds = pause.as_secs();
            let error = AgentError::public(format!("the model is overloaded: try again in {seconds} s"));
            return Err(Failed { error, retry: Retry::Never });
        }
        let error = match status {
            StatusCode::TOO_MANY_REQUESTS => AgentError::public("the model is overloaded: try again later"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AgentError::public(UNAUTHORIZED),
            _ => {
                let excerpt: String = body.chars().take(EXCERPT).collect();
                AgentError::from(format!("the model endpoint responded with {status}: {excerpt}"))
            }
        };
        let retry = match (is_temporary, asked) {
            (false, _) => Retry::Never,
            (true, None) => Retry::Soon,
            (true, Some(pause)) => Retry::After(pause),
        };
        Err(Failed { error, retry })
    }
}

/// The body of an error response, as far as it is logged.
async fn error_body(mut response: Response) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= MAX_ERROR {
                break;
            }
        }
    };
    // What has arrived until then is logged.
    let _ = tokio::time::timeout(ERROR_TIME, read).await;
    body.truncate(MAX_ERROR);
    String::from_utf8_lossy(&body).into_owned()
}

/// The events of a streamed response.
pub(super) struct Events {
    response: Response,
    buffer: Vec<u8>,
    is_over: bool,
    /// The beginning of the response, until its first event. A response without events is no stream.
    before: Option<Vec<u8>>,
    /// How long the endpoint may add nothing to the reply.
    silence: Duration,
}

impl Events {
    fn new(response: Response, silence: Duration) -> Self {
        Self { response, buffer: Vec::new(), is_over: false, before: Some(Vec::new()), silence }
    }

    /// The error for a response that has no events.
    fn no_stream(&self) -> Option<AgentError> {
        let before = self.before.as_ref()?;
        let body: String = String::from_utf8_lossy(before).chars().take(EXCERPT).collect();
        tracing::warn!(target: "attache::model", body, "the model endpoint did not respond with a stream of events");
        Some(AgentError::public("the model endpoint did not respond with a stream"))
    }

    /// The error for a line that does not end.
    fn too_long(&mut self) -> AgentError {
        let line = std::mem::take(&mut self.buffer);
        self.see(&line);
        self.no_stream().unwrap_or_else(|| "the model endpoint sent a line that is too long".into())
    }

    /// Notes whether there are events.
    fn see(&mut self, line: &[u8]) {
        match &mut self.before {
            _ if line.starts_with(b"data:") => self.before = None,
            Some(before) => {
                // A character has at most 4 bytes.
                let space = (4 * EXCERPT).saturating_sub(before.len());
                before.extend_from_slice(&line[..line.len().min(space)]);
            }
            None => {}
        }
    }

    /// Reads a line. Returns the event, if it is one.
    fn read(&mut self, line: &[u8]) -> Result<Option<Chunk>, AgentError> {
        self.see(line);
        parse(line)
    }

    /// The next event that adds something to the reply. Nothing when the stream has ended. Comments and empty events do not extend the
    /// time in which the endpoint may be silent.
    pub(super) async fn next(&mut self) -> Result<Option<Chunk>, AgentError> {
        match tokio::time::timeout(self.silence, self.read_next()).await {
            Ok(next) => next,
            Err(_) => Err(AgentError::public(SILENT)),
        }
    }

    async fn read_next(&mut self) -> Result<Option<Chunk>, AgentError> {
        while !self.is_over {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                if self.buffer.len() > MAX_LINE {
                    return Err(self.too_long());
                }
                match self.response.chunk().await {
                    Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                    Ok(None) => {
                        // The last line can lack its end.
                        self.is_over = true;
                        let rest = std::mem::take(&mut self.buffer);
                        let last = self.read(&rest)?;
                        return self.no_stream().map_or(Ok(last), Err);
                    }
                    Err(error) if error.is_timeout() => return Err(AgentError::public(SILENT)),
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
            if let Some(chunk) = self.read(&line)?.filter(|chunk| !chunk.is_empty()) {
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
        let shown: String = String::from_utf8_lossy(data).chars().take(EXCERPT).collect();
        AgentError::from(format!("the model endpoint sent an invalid event: {error} in `{shown}`"))
    })
}
