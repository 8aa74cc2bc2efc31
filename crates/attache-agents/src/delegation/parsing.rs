//! Parsers of what other agents, callers and the store give to delegation, for fuzzing. Not part of the public API.

use std::time::Duration;

use attache_protocol::Json;
use serde_json::Value;
use url::Url;

use super::DelegationError;
use super::cards::{CardProtocol, FoundCard};
use super::input::Input;
use super::record::Record;

/// A card that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadCard {
    /// The card with the members that callers expect.
    pub documented: Value,
    /// The JSON-RPC endpoint, if the card is one of protocol 0.1.
    pub v0_1_endpoint: Option<Url>,
    /// Whether it has signatures.
    pub is_signed: bool,
}

/// What an input of a function says.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadInput {
    /// The member `taskId`.
    pub task: Option<String>,
    /// How long the caller waits.
    pub wait: Option<Duration>,
}

/// Parses the card at a URL.
pub fn card(url: Url, body: &[u8]) -> Result<ReadCard, String> {
    let found = FoundCard::parse(url, body)?;
    let v0_1_endpoint = match &found.protocol {
        CardProtocol::Current => None,
        CardProtocol::V0_1(endpoint) => Some(endpoint.clone()),
    };
    Ok(ReadCard { v0_1_endpoint, is_signed: found.is_signed(), documented: found.into_documented() })
}

/// Parses a stored record, and writes it as it is stored and as callers get it. `None` if the value is not a record.
pub fn record(stored: &Json) -> Option<Result<[Json; 2], DelegationError>> {
    let record = Record::from_stored(stored)?;
    let both = || Ok([record.to_stored()?, record.to_output()?]);
    Some(both())
}

/// Parses the payload of a function.
pub fn payload(text: &str) -> Result<ReadInput, DelegationError> {
    read(&Input::from_payload(text)?)
}

/// Parses the query of a URL.
pub fn query(text: &str) -> Result<ReadInput, DelegationError> {
    read(&Input::from_query(text))
}

fn read(input: &Input) -> Result<ReadInput, DelegationError> {
    Ok(ReadInput { task: input.text("taskId")?, wait: input.wait()? })
}
