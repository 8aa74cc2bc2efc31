//! A transport that handles notifications in the order in which they arrive, and notices when the server ends.
#![expect(deprecated, reason = "servers still send log messages, although later versions of MCP drop them")]

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, LoggingLevel, LoggingMessageNotificationParam, RequestId,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

use super::calls::Calls;
use crate::child::LogLimit;

/// How much of a log message of the server is logged, in characters.
const MAX_LOG: usize = 1024;

/// How many requests of the server can wait for our responses. A server that sends more and does not read them is given up.
const MAX_REQUESTS: usize = 1024;

/// A transport with the calls that run on it.
pub(super) struct Tap<T> {
    inner: T,
    calls: Arc<Calls>,
    /// The requests of the server whose responses are not written.
    requests: Arc<Mutex<HashSet<RequestId>>>,
    /// Canceled when the server has ended.
    ended: CancellationToken,
    /// Bounds the log messages of the server.
    limit: LogLimit,
    server: String,
}

impl<T> Tap<T> {
    pub(super) fn new(inner: T, calls: Arc<Calls>, ended: CancellationToken, server: String) -> Self {
        Self { inner, calls, requests: Arc::default(), ended, limit: LogLimit::default(), server }
    }

    /// Counts a request, or the cancellation of one. Returns whether there are too many.
    fn count(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                let mut requests = self.requests.lock();
                requests.insert(request.id.clone());
                requests.len() > MAX_REQUESTS
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(canceled) = &notification.notification
                    && let Some(id) = &canceled.params.request_id
                {
                    self.requests.lock().remove(id);
                }
                false
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => false,
        }
    }

    /// Handles a notification. Returns it if the service has to handle it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the type belongs to the MCP crate, which adds variants"
    )]
    fn handle(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
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

    fn log(&mut self, log: &LoggingMessageNotificationParam) {
        let text = log.data.as_str().map_or_else(|| log.data.to_string(), str::to_owned);
        let visible = |text: &str| text.chars().filter(|c| !c.is_control()).take(MAX_LOG).collect::<String>();
        let (text, logger) = (visible(&text), log.logger.as_deref().map(visible));
        let report = self.limit.report();
        self.log_left_out(report);
        if !self.limit.has_room_for(text.len() + logger.as_ref().map_or(0, String::len)) {
            return;
        }
        let server = &self.server;
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

impl<T> Tap<T> {
    fn log_left_out(&self, report: Option<String>) {
        if let Some(report) = report {
            tracing::warn!(target: "attache::mcp", server = self.server, "log messages: {report}");
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
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (requests, sending) = (self.requests.clone(), self.inner.send(item));
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                requests.lock().remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.inner.receive().await {
                Some(message) if self.count(&message) => {
                    let server = &self.server;
                    tracing::warn!(target: "attache::mcp", server, "an MCP server sends requests and does not read the responses; it is stopped");
                    self.ended.cancel();
                    return None;
                }
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
        let report = self.limit.last_report();
        self.log_left_out(report);
    }
}
