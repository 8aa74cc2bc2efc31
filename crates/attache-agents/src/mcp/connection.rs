//! A connection to a server: the handshake, the list of tools, and calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, PaginatedRequestParams, ServerResult, Tool,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError,
    serve_client,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::calls::{CallSlot, Calls, Progress};
use super::content::ToolOutput;
use super::error::excerpt;
use super::handler::Handler;
use super::http::{Http, HttpError};
use super::lines::{Lines, TOO_LARGE, UNREADABLE};
use super::process::Process;
use super::question::Question;
use super::tap::Tap;
use super::tools::{About, MAX_SIZE, MAX_TOOLS, ToolInfo, collect};
use super::{CallError, McpError, McpOptions, McpServer};

/// The largest message that is not the result of a call, in bytes. The list of tools must fit.
const MAX_MESSAGE: usize = 2 * MAX_SIZE;

/// The shortest time between two requests for the list of tools.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// What a server offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Catalog {
    pub(super) about: About,
    pub(super) tools: Vec<ToolInfo>,
}

/// A connection to a server. The server is stopped when this is dropped.
pub(super) struct Connection {
    options: Arc<McpOptions>,
    service: RunningService<RoleClient, Handler>,
    calls: Arc<Calls>,
    ended: CancellationToken,
    /// Ends everything that belongs to the connection.
    _end: DropGuard,
}

/// A connection that is ready, and what comes with it.
struct Opened {
    connection: Connection,
    catalog: Catalog,
    /// Notified when the list of tools has changed.
    changed: Arc<Notify>,
    process: Option<Process>,
}

impl Connection {
    /// Connects, and lists the tools. The list is kept up to date as long as the connection lasts.
    pub(super) async fn open(
        options: Arc<McpOptions>,
        catalog: &watch::Sender<Arc<Catalog>>,
        asks: &Arc<AtomicBool>,
    ) -> Result<Self, McpError> {
        let limit = options.start_timeout;
        let opening = Self::handshake(options.clone(), asks.clone());
        let late = || McpError::Connect {
            server: options.server.to_string(),
            why: format!("it was not ready within {} s", limit.as_secs_f64()),
        };
        let opened = tokio::time::timeout(limit, opening).await.map_err(|_| late())??;
        let Opened { connection, catalog: first, changed, process } = opened;
        let about = first.about.clone();
        publish(catalog, first);
        let (peer, catalog) = (connection.service.peer().clone(), catalog.clone());
        let ended = connection.ended.clone();
        tokio::spawn(async move {
            let refresh = follow_changes(&peer, &options, &about, &changed, &catalog);
            tokio::select! {
                () = refresh => {}
                () = ended.cancelled() => {}
            }
            // A process whose connection has ended is of no use.
            drop(process);
        });
        Ok(connection)
    }

    async fn handshake(options: Arc<McpOptions>, asks: Arc<AtomicBool>) -> Result<Opened, McpError> {
        let (calls, changed, ended) =
            (Arc::new(Calls::default()), Arc::new(Notify::new()), CancellationToken::new());
        let handler = Handler::new(options.clone(), calls.clone(), changed.clone(), ended.clone(), asks);
        let server = options.server.to_string();
        let failed = |why: String| McpError::Connect { server: server.clone(), why };
        let max_message = options.max_output.max(MAX_MESSAGE);
        let (service, process) = match &options.server {
            McpServer::Program(command) => {
                let started = Process::start(command, &options);
                let (process, (output, input)) =
                    started.map_err(|source| McpError::Start { program: server.clone(), source })?;
                let lines = Lines::new(output, input, max_message, server.clone());
                let tap = Tap::new(lines, calls.clone(), ended.clone(), server.clone());
                let service = serve_client(handler, tap).await.map_err(|error| failed(explain(&error)))?;
                (service, Some(process))
            }
            McpServer::Url(url) => {
                let http = Http::new(url, &options, max_message)?;
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(options.max_calls);
                config.max_sse_event_size = max_message;
                let transport = StreamableHttpClientTransport::with_client(http.clone(), config);
                let tap = Tap::new(transport, calls.clone(), ended.clone(), server.clone());
                let service = serve_client(handler, tap).await.map_err(|error| match http.failure() {
                    Some(HttpError::Login(why)) => McpError::Login { server: server.clone(), why },
                    Some(failure) => failed(failure.to_string()),
                    None => failed(explain(&error)),
                })?;
                (service, None)
            }
        };
        let info = service.peer().peer_info();
        let about = About::new(info.as_deref());
        if info.is_some_and(|info| info.capabilities.tools.is_none()) {
            return Err(failed("it has no tools".to_owned()));
        }
        let listed = list(service.peer())
            .await
            .map_err(|error| failed(format!("its tools cannot be listed: {error}")))?;
        let catalog = Catalog { about, tools: collect(listed, &options) };
        let end = ended.clone().drop_guard();
        let connection = Self { options, service, calls, ended, _end: end };
        Ok(Opened { connection, catalog, changed, process })
    }

    /// Whether the server has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Calls a tool. The call goes on until it is dropped.
    pub(super) fn call(self: Arc<Self>, tool: &str, arguments: Map<String, Value>) -> OpenCall {
        let (progress, progress_seen) = watch::channel(None);
        let (ask, questions) = mpsc::channel(4);
        let (sender, result) = oneshot::channel();
        let stop = CancellationToken::new();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(CallSlot::new(progress, ask));
        let (stopped, name) = (stop.clone(), tool.to_owned());
        tokio::spawn(async move {
            let result = self.drive(&name, request, &stopped).await;
            let _ = sender.send(result);
        });
        OpenCall {
            id: String::new(),
            tool: tool.to_owned(),
            result,
            questions,
            progress: progress_seen,
            _stop: stop.drop_guard(),
        }
    }

    async fn drive(
        &self,
        tool: &str,
        request: CallToolRequest,
        stop: &CancellationToken,
    ) -> Result<ToolOutput, CallError> {
        let request = ClientRequest::CallToolRequest(request);
        let sent =
            self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut handle = sent.map_err(|error| self.failure(tool, error))?;
        let id = handle.id.clone();
        let result = tokio::select! {
            biased;
            response = &mut handle.rx => response.unwrap_or(Err(ServiceError::TransportClosed)),
            () = self.ended.cancelled() => Err(ServiceError::TransportClosed),
            () = stop.cancelled() => {
                self.calls.remove(&id);
                self.cancel(handle).await;
                return Err(CallError::Canceled);
            }
        };
        self.calls.remove(&id);
        let ServerResult::CallToolResult(result) = result.map_err(|error| self.failure(tool, error))? else {
            let text = "The MCP server sent a response that is not the result of a tool";
            return Err(CallError::Refused(text.to_owned()));
        };
        let (output, limit) = (ToolOutput::new(result), self.options.max_output);
        if output.size() > limit {
            return Err(CallError::TooLarge { tool: tool.to_owned(), limit });
        }
        Ok(output)
    }

    /// Tells the server that a call is canceled. A server that does not read is given up.
    async fn cancel(&self, handle: RequestHandle<RoleClient>) {
        let reason = Some("the caller canceled the call".to_owned());
        if tokio::time::timeout(self.options.grace, handle.cancel(reason)).await.is_err() {
            let server = &self.options.server;
            tracing::warn!(target: "attache::mcp", %server, "an MCP server does not read its input; the connection is closed");
            self.ended.cancel();
            self.service.cancellation_token().cancel();
        }
    }

    /// The error of a call, for the caller. The details go to the log.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the type belongs to the MCP crate, which adds variants"
    )]
    fn failure(&self, tool: &str, error: ServiceError) -> CallError {
        let server = &self.options.server;
        let tool = tool.to_owned();
        let limit = self.options.max_output;
        match error {
            ServiceError::McpError(error) if error.code == TOO_LARGE => CallError::TooLarge { tool, limit },
            ServiceError::McpError(error) if error.code == UNREADABLE => {
                CallError::Refused("The MCP server sent an invalid response".to_owned())
            }
            ServiceError::McpError(error) => match excerpt(&error.message) {
                text if text.is_empty() => {
                    CallError::Refused(format!("The MCP server refused the call ({})", error.code.0))
                }
                text => CallError::Refused(text),
            },
            ServiceError::TransportClosed => CallError::Ended(tool),
            ServiceError::Cancelled { .. } => CallError::Canceled,
            ServiceError::TransportSend(error) => {
                tracing::warn!(target: "attache::mcp", %server, tool, %error, "a call could not be sent to an MCP server");
                match error.error.downcast_ref::<StreamableHttpError<HttpError>>() {
                    Some(StreamableHttpError::Client(HttpError::TooLarge(_))) => {
                        CallError::TooLarge { tool, limit }
                    }
                    Some(_) => CallError::Unavailable,
                    None => CallError::Ended(tool),
                }
            }
            error => {
                tracing::warn!(target: "attache::mcp", %server, tool, %error, "a call of an MCP server failed");
                CallError::Refused("The MCP server sent an invalid response".to_owned())
            }
        }
    }
}

/// Replaces the catalog, if it differs.
fn publish(catalog: &watch::Sender<Arc<Catalog>>, new: Catalog) {
    catalog.send_if_modified(|current| {
        let has_changed = **current != new;
        if has_changed {
            *current = Arc::new(new);
        }
        has_changed
    });
}

/// Lists the tools again each time that the server says that they have changed.
async fn follow_changes(
    peer: &Peer<RoleClient>,
    options: &McpOptions,
    about: &About,
    changed: &Notify,
    catalog: &watch::Sender<Arc<Catalog>>,
) {
    loop {
        changed.notified().await;
        let server = &options.server;
        match tokio::time::timeout(options.start_timeout, list(peer)).await {
            Ok(Ok(listed)) => {
                let new = Catalog { about: about.clone(), tools: collect(listed, options) };
                tracing::info!(target: "attache::mcp", %server, tools = new.tools.len(), "the tools of an MCP server have changed");
                publish(catalog, new);
            }
            Ok(Err(error)) => {
                tracing::warn!(target: "attache::mcp", %server, error, "the tools of an MCP server cannot be listed");
            }
            Err(_) => {
                tracing::warn!(target: "attache::mcp", %server, "an MCP server did not list its tools in time");
            }
        }
        tokio::time::sleep(REFRESH_PAUSE).await;
    }
}

/// Lists the tools, page by page. It ends when there are more than can be used.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut size = 0;
    let mut cursor: Option<String> = None;
    for _ in 0..=MAX_TOOLS {
        let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let page = peer.list_tools(Some(params)).await.map_err(|error| {
            let is_large = matches!(&error, ServiceError::McpError(error) if error.code == TOO_LARGE);
            if is_large { "the list is too large".to_owned() } else { excerpt(&error.to_string()) }
        })?;
        for tool in page.tools {
            size += serde_json::to_vec(&tool).map_or(0, |text| text.len());
            tools.push(tool);
        }
        // A server that returns the same page again would never end.
        if page.next_cursor.is_none()
            || page.next_cursor == cursor
            || tools.len() > MAX_TOOLS
            || size > MAX_MESSAGE
        {
            break;
        }
        cursor = page.next_cursor;
    }
    Ok(tools)
}

/// Why the handshake failed.
#[expect(clippy::wildcard_enum_match_arm, reason = "the type belongs to the MCP crate, which adds variants")]
fn explain(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => {
            "it ended before it was ready; its standard error is in the log".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the connection: {}", excerpt(&error.message))
        }
        other => excerpt(&other.to_string()),
    }
}

/// A call that runs. It is canceled when this is dropped.
pub(super) struct OpenCall {
    /// The id of the call in reports.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) result: oneshot::Receiver<Result<ToolOutput, CallError>>,
    pub(super) questions: mpsc::Receiver<Question>,
    pub(super) progress: watch::Receiver<Option<Progress>>,
    _stop: DropGuard,
}

impl OpenCall {
    /// Waits for the result.
    pub(super) async fn result(&mut self) -> Result<ToolOutput, CallError> {
        (&mut self.result).await.unwrap_or_else(|_| Err(CallError::Ended(self.tool.clone())))
    }
}
