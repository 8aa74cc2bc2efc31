//! What an engine offers, whichever side of the wire it is on: functions to call, and the list of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::BoxFuture;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::wire::ChannelRef;

/// A function that someone has registered.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionInfo {
    /// Its id, such as `pricing::quote`.
    pub id: Arc<str>,
    /// The worker that has it, as that one calls itself.
    pub worker: Option<Arc<str>>,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its payload.
    pub request_format: Option<Value>,
    /// The JSON Schema of its result.
    pub response_format: Option<Value>,
    /// What else its author says about it. The keys that begin with `a2a.` are for us.
    pub metadata: Option<Value>,
}

impl FunctionInfo {
    /// A function about which nothing but its id is known.
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

    /// What its author says about it under this key.
    pub fn said(&self, key: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(key)
    }
}

/// The functions of an engine, by id.
pub type Catalog = BTreeMap<Arc<str>, Arc<FunctionInfo>>;

/// The functions of an engine as they come and go. Nothing for as long as they cannot be had.
pub type Updates = watch::Receiver<Option<Arc<Catalog>>>;

/// A call of a function.
#[derive(Debug)]
pub struct FunctionCall<'a> {
    /// The function.
    pub function: &'a str,
    /// What it gets.
    pub payload: &'a RawValue,
    /// How long it may take.
    pub timeout: Duration,
}

/// Why a call brought no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The engine or the function said no.
    #[error("remote error ({code}): {message}")]
    Remote {
        /// Which kind of no, such as `function_not_found` or `invocation_failed`.
        code: String,
        /// What it said.
        message: String,
    },
    /// It took too long.
    #[error("invocation timed out")]
    TimedOut,
    /// The engine cannot be reached.
    #[error("not connected to the engine")]
    Disconnected,
}

impl CallError {
    /// An error that came over the wire.
    pub fn remote(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Remote { code: code.into(), message: message.into() }
    }
}

/// Something that came through a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelItem {
    /// A text message.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

/// The reading end of a channel, with the reference that makes a function its writer. It ends when the writer closes it;
/// dropping it closes the channel.
#[derive(Debug)]
pub struct Channel {
    /// What to give to the function that is to write.
    pub writer: ChannelRef,
    /// What it writes.
    pub items: mpsc::Receiver<ChannelItem>,
}

/// What an engine offers.
pub trait Functions: Send + Sync + 'static {
    /// Calls a function and waits for its result.
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>>;

    /// Opens a channel for a function to write to.
    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>>;

    /// The functions there are, as they come and go.
    fn updates(&self) -> Updates;
}
