//! The caller's message, as the remote agent gets it.

use std::collections::BTreeMap;

use attache_client::{Client, Outgoing};
use attache_core::Turn;
use attache_iii::HOPS_EXTENSION;
use attache_protocol::{
    ContextId, Error, ErrorKind, IDEMPOTENCY_EXTENSION, Json, JsonObject, Message, Role, TaskId,
};

use crate::router::CHOSEN_METADATA;

/// The most agents that a message may have come through. A gateway that leads to itself would send a message forever.
const MAX_HOPS: u64 = 8;

/// Rejects a message that has come through too many agents.
pub(super) fn check_hops(message: &Message) -> Result<(), Error> {
    if hops(message) < MAX_HOPS {
        return Ok(());
    }
    let text = format!("the message has come through {MAX_HOPS} agents: two of them may lead to each other");
    Err(Error::new(ErrorKind::UnsupportedOperation, text))
}

fn hops(message: &Message) -> u64 {
    message.metadata.as_ref().and_then(|metadata| metadata.get(HOPS_EXTENSION)).unwrap_or(0)
}

/// The ids of a message at the remote agent.
pub(super) struct RemoteIds {
    pub(super) message: String,
    pub(super) task: Option<TaskId>,
    pub(super) context: Option<ContextId>,
    pub(super) references: Vec<TaskId>,
}

/// The message of a turn with the ids of the remote agent. Nothing that identifies the caller is in it but what the caller wrote.
pub(super) fn outgoing(turn: &Turn, client: &Client, ids: RemoteIds) -> Result<Outgoing, serde_json::Error> {
    let own = turn.message();
    let key = ids.message.clone();
    let message = Message {
        message_id: ids.message,
        context_id: ids.context,
        task_id: ids.task,
        role: Role::User,
        parts: own.parts.clone(),
        metadata: Some(message_metadata(own)?),
        extensions: own.extensions.clone(),
        reference_task_ids: ids.references,
    };
    let mut outgoing = Outgoing::new(message).idempotency_key(key);
    if !turn.accepted_output_modes().is_empty() {
        outgoing = outgoing.accept(turn.accepted_output_modes().iter().map(String::as_str));
    }
    if let Some(metadata) = turn.metadata() {
        outgoing = outgoing.metadata(without_key(metadata)?);
    }
    let card = client.card();
    let active = &turn.caller().extensions;
    for extension in card.capabilities.extensions.iter().filter(|extension| active.contains(&extension.uri)) {
        outgoing = outgoing.extension(extension.uri.as_str());
    }
    Ok(match turn.trace_parent() {
        Some(trace_parent) => outgoing.trace_parent(trace_parent.as_str()),
        None => outgoing,
    })
}

/// The metadata of the caller's message, with the number of agents that it has come through.
fn message_metadata(message: &Message) -> Result<JsonObject, serde_json::Error> {
    let mut members = match &message.metadata {
        Some(metadata) => members(metadata)?,
        None => BTreeMap::new(),
    };
    members.insert(HOPS_EXTENSION.to_owned(), Json::new(&(hops(message) + 1))?);
    JsonObject::new(&members)
}

fn without_key(metadata: &JsonObject) -> Result<JsonObject, serde_json::Error> {
    JsonObject::new(&members(metadata)?)
}

/// The members that the remote agent gets: not the idempotency key, and not the note of a router. All callers are one caller to the remote agent, so with the same key one caller would get
/// the task of another.
fn members(metadata: &JsonObject) -> Result<BTreeMap<String, Json>, serde_json::Error> {
    let mut members: BTreeMap<String, Json> = metadata.read()?;
    members.remove(IDEMPOTENCY_EXTENSION);
    // The names of the agents of this server mean nothing there.
    members.remove(CHOSEN_METADATA);
    Ok(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(metadata: serde_json::Value) -> Message {
        Message { metadata: JsonObject::new(&metadata).ok(), ..Message::user("m", "hi") }
    }

    #[test]
    fn each_gateway_counts_and_the_last_one_rejects() {
        let mut passed = message(json!({"skillId": "s"}));
        for _ in 0..MAX_HOPS {
            check_hops(&passed).unwrap();
            passed.metadata = Some(message_metadata(&passed).unwrap());
        }
        let error = check_hops(&passed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        assert_eq!(passed.metadata.unwrap().get::<String>("skillId").unwrap(), "s");
    }

    #[test]
    fn the_idempotency_key_and_the_note_of_a_router_stay_here() {
        let own = json!({IDEMPOTENCY_EXTENSION: "k", CHOSEN_METADATA: "books", "a": 1.50});
        let metadata = message_metadata(&message(own)).unwrap();
        assert_eq!(metadata.get::<String>(IDEMPOTENCY_EXTENSION), None);
        assert_eq!(metadata.get::<String>(CHOSEN_METADATA), None);
        assert_eq!(metadata.get::<f64>("a"), Some(1.5));
    }
}
