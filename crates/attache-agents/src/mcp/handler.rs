//! What the server asks of us: answers of the caller, samples of a model, directories.
#![expect(
    deprecated,
    reason = "servers still ask for samples and roots, although later versions of MCP drop them"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorData, FormElicitationCapability,
    Implementation, ListRootsResult, ProtocolVersion, RequestId, Root, RootsCapabilities, SamplingCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData as McpErrorData};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::McpOptions;
use super::calls::{Calls, QuestionOwner};
use super::question::{Answer, Question};
use super::sampling;

/// How many samples the model writes at once for one server. More are refused.
const MAX_SAMPLES: usize = 16;

/// The side of the client in a connection.
pub(super) struct Handler {
    options: Arc<McpOptions>,
    calls: Arc<Calls>,
    /// Notified when the list of tools has changed.
    changed: Arc<Notify>,
    ended: CancellationToken,
    /// Set when the server has asked a question that does not say which call it belongs to.
    asks: Arc<AtomicBool>,
    samples: Semaphore,
}

impl Handler {
    pub(super) fn new(
        options: Arc<McpOptions>,
        calls: Arc<Calls>,
        changed: Arc<Notify>,
        ended: CancellationToken,
        asks: Arc<AtomicBool>,
    ) -> Self {
        Self { options, calls, changed, ended, asks, samples: Semaphore::new(MAX_SAMPLES) }
    }

    /// Passes a question to the caller of the call that it belongs to, and waits for the answer.
    async fn ask(
        &self,
        text: String,
        schema: serde_json::Value,
        context: &RequestContext<RoleClient>,
    ) -> ElicitResult {
        let declined = || ElicitResult::new(ElicitationAction::Decline);
        let server = &self.options.server;
        let origin = origin(context);
        if origin.is_none() {
            self.asks.store(true, Ordering::Relaxed);
        }
        let slot = match self.calls.asked(origin) {
            QuestionOwner::Call(slot) => slot,
            QuestionOwner::NoCall => {
                tracing::warn!(target: "attache::mcp", %server, "a question of an MCP server is declined: no call is running that it can belong to");
                return declined();
            }
            QuestionOwner::Ambiguous => {
                tracing::warn!(
                    target: "attache::mcp", %server,
                    "a question of an MCP server is declined: several calls are running, and it does not say which one it belongs to; from now on every call has a process for itself"
                );
                return declined();
            }
        };
        let (reply, answer) = oneshot::channel();
        if slot.ask(Question { text, schema, reply }).is_err() {
            tracing::warn!(target: "attache::mcp", %server, "a question of an MCP server is declined: its caller cannot be asked");
            return declined();
        }
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or(Answer::Cancel),
            () = context.ct.cancelled() => Answer::Cancel,
            () = self.ended.cancelled() => Answer::Cancel,
        };
        match answer {
            Answer::Accept(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Answer::Decline => declined(),
            Answer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        }
    }
}

/// The call whose response stream brought a request, if the transport has such streams.
fn origin(context: &RequestContext<RoleClient>) -> Option<&RequestId> {
    match context.extensions.get::<InboundStreamOrigin>() {
        Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
        Some(InboundStreamOrigin::Unassociated) | None => None,
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let form = FormElicitationCapability::new().with_schema_validation(true);
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        if !self.options.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        if self.options.sampling.is_some() {
            capabilities.sampling = Some(SamplingCapability::default());
        }
        ClientConfig::new(capabilities, Implementation::new("attache", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, McpErrorData> {
        // The client does not offer other forms. A caller must not be sent to an address that a server names.
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let schema = serde_json::to_value(&requested_schema)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        Ok(self.ask(message, schema, &context).await)
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, McpErrorData> {
        let Some(model) = &self.options.sampling else {
            return Err(ErrorData::new(
                rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                "this client has no model for sampling",
                None,
            ));
        };
        let Ok(_permit) = self.samples.try_acquire() else {
            return Err(ErrorData::internal_error("too many samples at once: try again later", None));
        };
        tokio::select! {
            sampled = sampling::sample(model, params) => sampled,
            () = context.ct.cancelled() => Err(ErrorData::internal_error("canceled", None)),
            () = self.ended.cancelled() => Err(ErrorData::internal_error("the connection has ended", None)),
        }
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, McpErrorData> {
        Ok(ListRootsResult::new(self.options.roots.iter().filter_map(root).collect()))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

/// A directory as a root.
fn root(path: &PathBuf) -> Option<Root> {
    let absolute = std::path::absolute(path).ok()?;
    let root = Root::new(Url::from_directory_path(&absolute).ok()?.to_string().trim_end_matches('/'));
    Some(match absolute.file_name() {
        Some(name) => root.with_name(name.to_string_lossy()),
        None => root,
    })
}
