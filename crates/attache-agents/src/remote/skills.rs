//! The skills of a card as functions.

use std::collections::{BTreeMap, HashSet};

use attache_iii::{FunctionInfo, SCHEMAS_EXTENSION};
use attache_protocol::{AgentCard, AgentSkill};
use serde_json::{Map, Value, json};

use super::names::{free, safe};

/// What the ids of imported functions begin with. Skills with such ids are somebody's imports.
const IMPORTED: &str = "a2a.";

/// The metadata that says where a function was imported from.
pub(super) const REMOTE: &str = "a2a.remote";

/// The most skills of one agent that are imported.
const MOST: usize = 1000;

/// A skill, as its agent knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Skill {
    pub(super) id: String,
    pub(super) takes: Takes,
}

/// What a skill is asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// It is a function, which gets a payload.
    Payload,
    /// It is told something.
    Message,
}

/// The functions that the skills of an agent are, under the name that the agent has here.
pub(super) fn functions(card: &AgentCard, agent: &str, url: &str) -> Vec<(FunctionInfo, Skill)> {
    let schemas = schemas(card);
    let (mut seen, mut taken) = (HashSet::new(), HashSet::new());
    let ours = |skill: &&AgentSkill| !skill.id.is_empty() && !skill.id.starts_with(IMPORTED);
    let skills = card.skills.iter().filter(ours).filter(|skill| seen.insert(&*skill.id));
    let mut functions = Vec::new();
    for skill in skills {
        if functions.len() == MOST {
            tracing::warn!(agent, url, most = MOST, "an agent has too many skills: the rest is left out");
            break;
        }
        let wanted = safe(&skill.id, "skill");
        let name = free(wanted.clone(), |name| taken.contains(name));
        if name != wanted {
            tracing::warn!(agent, skill = skill.id, name, "two skills of an agent have the same name here");
        }
        let schema = schemas.get(&skill.id);
        let of = |part: &str| schema.and_then(|schema| schema.get(part)).filter(|it| it.is_object()).cloned();
        let info = FunctionInfo {
            description: Some(skill.description.clone()).filter(|text| !text.is_empty()),
            request_format: of("request"),
            response_format: of("response"),
            metadata: Some(metadata(skill, url)),
            ..FunctionInfo::new(format!("{IMPORTED}{agent}::{name}"))
        };
        let is_function = schema.is_some() || skill.id.contains("::");
        let takes = if is_function { Takes::Payload } else { Takes::Message };
        functions.push((info, Skill { id: skill.id.clone(), takes }));
        taken.insert(name);
    }
    functions
}

/// What skills take and return, by skill, where the card says so.
fn schemas(card: &AgentCard) -> BTreeMap<String, Value> {
    let extensions = &card.capabilities.extensions;
    let extension = extensions.iter().find(|extension| extension.uri == SCHEMAS_EXTENSION);
    extension.and_then(|extension| extension.params.as_ref()?.read().ok()).unwrap_or_default()
}

fn metadata(skill: &AgentSkill, url: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert(REMOTE.to_owned(), json!({ "url": url, "skill": skill.id }));
    if !skill.name.is_empty() {
        metadata.insert("a2a.name".to_owned(), json!(skill.name));
    }
    for (key, list) in [
        ("a2a.tags", &skill.tags),
        ("a2a.examples", &skill.examples),
        ("a2a.inputModes", &skill.input_modes),
        ("a2a.outputModes", &skill.output_modes),
    ] {
        if !list.is_empty() {
            metadata.insert(key.to_owned(), json!(list));
        }
    }
    metadata.into()
}

#[cfg(test)]
mod tests {
    use attache_protocol::{AgentExtension, JsonObject};

    use super::*;

    fn ids(skills: &[&str]) -> Vec<String> {
        let mut card = AgentCard::new("Recipes", "");
        card.skills = skills.iter().map(|id| AgentSkill::new(*id, "")).collect();
        functions(&card, "recipes", "http://a").into_iter().map(|(info, _)| info.id.to_string()).collect()
    }

    #[test]
    fn skills_with_the_same_name_get_different_ids() {
        assert_eq!(
            ids(&["find it", "find_it", "find::it", "find it", ""]),
            ["a2a.recipes::find_it", "a2a.recipes::find_it_2", "a2a.recipes::find_it_3"]
        );
    }

    #[test]
    fn skills_that_the_agent_has_imported_are_not_imported() {
        assert_eq!(
            ids(&["a2a.pricing::quote", "a2a::x", "find"]),
            ["a2a.recipes::a2a_x", "a2a.recipes::find"]
        );
    }

    #[test]
    fn a_function_has_the_description_of_its_skill() {
        let skill = AgentSkill::new("pricing::quote", "Quote")
            .description("Quotes a price")
            .tags(["money"])
            .example("how much?")
            .input_modes(["application/json"]);
        let mut extension = AgentExtension::new(SCHEMAS_EXTENSION);
        let schemas = json!({"pricing::quote": {"request": {"type": "object"}, "response": 7}});
        extension.params = JsonObject::new(&schemas).ok();
        let card = AgentCard::new("Pricing", "").skill(skill).extension(extension);
        let (info, skill) = functions(&card, "pricing", "http://a").remove(0);
        assert_eq!(skill, Skill { id: "pricing::quote".to_owned(), takes: Takes::Payload });
        assert_eq!(&*info.id, "a2a.pricing::pricing_quote");
        assert_eq!(info.description.as_deref(), Some("Quotes a price"));
        assert_eq!((info.request_format, info.response_format), (Some(json!({"type": "object"})), None));
        assert_eq!(
            info.metadata,
            Some(json!({
                "a2a.remote": {"url": "http://a", "skill": "pricing::quote"}, "a2a.name": "Quote", "a2a.tags": ["money"],
                "a2a.examples": ["how much?"], "a2a.inputModes": ["application/json"],
            }))
        );
    }
}
