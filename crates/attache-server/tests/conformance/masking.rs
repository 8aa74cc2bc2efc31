//! Responses without what differs between two servers.

use serde_json::{Value, json};

/// A response without what depends on the server that gave it: its address, and the ids of tasks, which messages of errors have too.
pub(super) fn plain(frame: Value, server: &str, tasks: &[&Value]) -> Value {
    let text = without_ids(frame).to_string().replace(server, "SERVER");
    // An id that the client has chosen is the same everywhere, and may be a part of any word.
    let own = tasks.iter().filter_map(|task| task.as_str()).filter(|task| task.len() > 8);
    let text = own.fold(text, |text, task| text.replace(task, "TASK"));
    let mut frame = serde_json::from_str(&text).unwrap();
    hide_sessions(&mut frame);
    frame
}

/// Replaces the ids of conversations, which protocol 0.1 calls sessions.
fn hide_sessions(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match name.as_str() {
                    "sessionId" => *value = json!("[sessionId]"),
                    _ => hide_sessions(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_sessions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The document with every id and every time of the server's making replaced by a name, for snapshots.
pub(crate) fn without_ids(mut json: Value) -> Value {
    scrub(&mut json);
    json
}

fn scrub(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), &value) {
                    ("id" | "taskId" | "contextId" | "messageId" | "timestamp", Value::String(_)) => {
                        *value = json!(format!("[{name}]"));
                    }
                    _ => scrub(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
