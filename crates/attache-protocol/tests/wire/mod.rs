//! Finds the members of a JSON message that belong to the protocol.

use serde_json::{Map, Value};

/// Members whose value is arbitrary JSON.
const OPAQUE: [&str; 4] = ["data", "metadata", "params", "header"];

/// Members whose value is an object with arbitrary names.
const NAMED: [&str; 3] = ["securitySchemes", "schemes", "scopes"];

/// Visits every object of `message` that is a message itself, the innermost first.
pub(crate) fn for_each_message(message: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    match message {
        Value::Object(members) => {
            for (name, value) in members.iter_mut().filter(|(name, _)| !OPAQUE.contains(&name.as_str())) {
                if NAMED.contains(&name.as_str()) {
                    let named = value.as_object_mut().into_iter().flat_map(|named| named.values_mut());
                    named.for_each(|message| for_each_message(message, visit));
                } else {
                    for_each_message(value, visit);
                }
            }
            visit(members);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_message(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Visits every member of `message` that belongs to the protocol, at every level.
pub(crate) fn for_each_member(message: &mut Value, visit: &mut impl FnMut(&str, &mut Value)) {
    for_each_message(message, &mut |members| members.iter_mut().for_each(|(name, value)| visit(name, value)));
}

/// The name of a member in the protobuf definition.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
