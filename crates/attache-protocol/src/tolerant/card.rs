//! Cards with members that cannot be read.

use serde_json::Value;

use super::{Tolerated, excerpt};
use crate::dialect::read_card;
use crate::{AgentCard, Error};

/// How many members of a card are left out at most.
const ATTEMPTS: usize = 64;

/// Reads a card. A member that cannot be read is left out, until the card can be read.
///
/// A security scheme may be left out as well: a requirement that names it cannot be satisfied then. The requirements themselves are
/// needed, since without them a client would send a request that must be refused.
pub(super) fn read(json: &[u8]) -> Result<Tolerated<AgentCard>, Error> {
    let first = match read_card(json) {
        Ok(value) => return Ok(Tolerated { value, deviations: Vec::new() }),
        Err(error) => error,
    };
    let Ok(mut card) = serde_json::from_slice::<Value>(json) else { return Err(first) };
    let mut deviations = Vec::new();
    while deviations.len() < ATTEMPTS {
        let error = match read_card(card.to_string().as_bytes()) {
            Ok(value) => return Ok(Tolerated { value, deviations }),
            Err(error) => error,
        };
        let Some(violation) = error.field_violations().first() else { break };
        let field = violation.field.as_str();
        if field.is_empty() || is_requirement(field) || !remove(&mut card, field) {
            break;
        }
        deviations.push(format!("`{}` is left out: {}", excerpt(field), violation.description));
    }
    Err(first)
}

/// Whether a path leads into the security requirements of the card, in any version.
fn is_requirement(path: &str) -> bool {
    let member = path.split(['.', '[']).next().unwrap_or_default();
    matches!(member, "security" | "securityRequirements" | "security_requirements")
}

/// Removes the value at a path such as `skills[0].tags`. Returns whether there was one.
fn remove(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Object(members) => {
            let rest_of = |key: &str| {
                let rest = path.strip_prefix(key)?;
                (rest.is_empty() || rest.starts_with(['.', '[']))
                    .then(|| rest.trim_start_matches('.').to_owned())
            };
            let found = members.keys().find_map(|key| Some((key.clone(), rest_of(key)?)));
            match found {
                Some((key, rest)) if rest.is_empty() => members.remove(&key).is_some(),
                Some((key, rest)) => members.get_mut(&key).is_some_and(|member| remove(member, &rest)),
                None => false,
            }
        }
        Value::Array(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return false;
            };
            let Some(index) = index.parse().ok().filter(|index| *index < items.len()) else { return false };
            match rest.trim_start_matches('.') {
                "" => {
                    items.remove(index);
                    true
                }
                rest => remove(&mut items[index], rest),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
