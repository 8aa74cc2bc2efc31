//! A transport that handles notifications in the order in which they arrive, and notices when the server ends.
#![expect(deprecated, reason = "servers still send log messages, although later versions of MCP drop them")]

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, LoggingLevel, LoggingMessageNotificationParam,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

use super::calls::Calls;

/// How much of a log message of the server is logged, in characters.
const MAX_LOG: usize = 1024;

/// A transport with the calls that run on it.
pub(super) struct Tap<T> {
    inner: T,
    calls: Arc<Calls>,
    /// Canceled when the server has ended.
    ended: CancellationToken,
    server: String,
}

impl<T> Tap<T> {
    pub(super) fn new(inner: T, calls: Arc<Calls>, ended: CancellationToken, server: String) -> Self {
        Self { inner, calls, ended, server }
    }

    /// Handles a notification. Returns it if the service has to handle it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the type belongs to the MCP crate, which adds variants"
    )]
    fn handle(&self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let JsonRpcMessage::Notification(notification) = message else { return Some(message) };
        match notification.notification {
            ServerNotification::ProgressNotification(progress) => {
                self.calls.progress(progress.params);
                None
            }
            ServerNotification::LoggingMessageNotification(log) => {
                self.log(&log.params);
                None
            }
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::CancelledNotification(_) => {
                Some(JsonRpcMessage::Notification(notification))
            }
            // The rest is about prompts, resources and other things that are not used.
            _ => None,
        }
    }

    fn log(&self, log: &LoggingMessageNotificationParam) {
        let text = log.data.as_str().map_or_else(|| log.data.to_string(), str::to_owned);
        let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_LOG).collect();
        let (server, logger) = (&self.server, log.logger.as_deref());
        match log.level {
            LoggingLevel::Debug => tracing::debug!(target: "attache::mcp", server, logger, "{text}"),
            LoggingLevel::Info | LoggingLevel::Notice => {
                tracing::info!(target: "attache::mcp", server, logger, "{text}");
            }
            LoggingLevel::Warning
            | LoggingLevel::Error
            | LoggingLevel::Critical
            | LoggingLevel::Alert
            | LoggingLevel::Emergency => {
                tracing::warn!(target: "attache::mcp", server, logger, "{text}");
            }
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.calls.register(&item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.inner.receive().await {
                Some(message) => {
                    if let Some(message) = self.handle(message) {
                        return Some(message);
                    }
                }
                None => {
                    self.ended.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        self.inner.close().await
    }
}

impl<T> Drop for Tap<T> {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}
