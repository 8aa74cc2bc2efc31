//! The functions of an engine: calls, and the list of functions. The embedded engine and a connected worker both implement it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{BoxFuture, TraceParent};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::wire::{ChannelRef, ErrorBody};

/// A registered function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionInfo {
    /// Its id, such as `pricing::quote`.
    pub id: Arc<str>,
    /// The name of the worker that registered it.
    pub worker: Option<Arc<str>>,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its payload.
    pub request_format: Option<Value>,
    /// The JSON Schema of its result.
    pub response_format: Option<Value>,
    /// Free metadata. The keys that begin with `a2a.` are for Attaché.
    pub metadata: Option<Value>,
}

impl FunctionInfo {
    /// A function with only an id.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            worker: None,
            description: None,
            request_format: None,
            response_format: None,
            metadata: None,
        }
    }

    /// The value of a metadata key.
    pub fn metadata_value(&self, key: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(key)
    }
}

/// The functions of an engine, by id.
pub type Catalog = BTreeMap<Arc<str>, Arc<FunctionInfo>>;

/// The functions of an engine, updated when they change. `None` while the list is not available.
pub type Updates = watch::Receiver<Option<Arc<Catalog>>>;

/// A call of a function.
#[derive(Debug)]
pub struct FunctionCall<'a> {
    /// The function.
    pub function: &'a str,
    /// The payload.
    pub payload: &'a RawValue,
    /// The longest time that the call may take.
    pub timeout: Duration,
    /// The trace that the call belongs to.
    pub trace_parent: Option<TraceParent>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The engine or the function returned an error.
    #[error("remote error ({code}): {message}")]
    Remote {
        /// The error code, such as `function_not_found` or `invocation_failed`.
        code: String,
        /// The description of the error.
        message: String,
    },
    /// The call timed out.
    #[error("invocation timed out")]
    TimedOut,
    /// The engine is not connected.
    #[error("not connected to the engine")]
    Disconnected,
}

impl CallError {
    /// An error of the engine or the function.
    pub fn remote(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Remote { code: code.into(), message: message.into() }
    }

    /// The error as it is sent over the wire. `disconnected` is the code for [`Disconnected`](Self::Disconnected).
    pub(crate) fn to_body(&self, disconnected: &str) -> ErrorBody {
        let (code, message) = match self {
            Self::Remote { code, message } => (code.clone(), message.clone()),
            Self::TimedOut => ("TIMEOUT".to_owned(), self.to_string()),
            Self::Disconnected => (disconnected.to_owned(), self.to_string()),
        };
        ErrorBody { code, message, stacktrace: None }
    }
}

/// An item that was read from a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelItem {
    /// A text message.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

/// The reading end of a channel, and the reference to its writing end. It ends when the writer closes it. Dropping it closes the
/// channel.
#[derive(Debug)]
pub struct Channel {
    /// The reference for the function that writes.
    pub writer: ChannelRef,
    /// The items that the function writes.
    pub items: mpsc::Receiver<ChannelItem>,
}

/// The functions of an engine.
pub trait Functions: Send + Sync + 'static {
    /// Calls a function and waits for its result.
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>>;

    /// Opens a channel for a function to write to.
    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>>;

    /// The list of functions, updated when it changes.
    fn updates(&self) -> Updates;
}
