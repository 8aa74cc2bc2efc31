//! Functions from the skills of a card.

use std::collections::{BTreeMap, HashSet};

use attache_iii::{FunctionInfo, SCHEMAS_EXTENSION};
use attache_protocol::{AgentCard, AgentSkill};
use serde_json::{Map, Value, json};

use super::names::{sanitize, unique};

/// The prefix of the ids of imported functions. The remote agent has imported a skill with such an id itself.
const IMPORT_PREFIX: &str = "a2a.";

/// The metadata of a function with the agent and the skill that it was imported from.
pub(super) const REMOTE: &str = "a2a.remote";

/// The most skills that are imported from one agent.
const MAX_SKILLS: usize = 1000;

/// A skill of a remote agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Skill {
    /// The id in the card of the agent.
    pub(super) id: String,
    pub(super) input: SkillInput,
}

/// The input of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkillInput {
    /// The skill is a function, and takes a payload.
    Payload,
    /// The skill takes a message in free form.
    Message,
}

/// The functions for the skills of an agent. `agent` is its name in the ids of the functions, and `url` its address without secrets.
pub(super) fn functions(card: &AgentCard, agent: &str, url: &str) -> Vec<(FunctionInfo, Skill)> {
    let schemas = schemas(card);
    let (mut seen, mut taken) = (HashSet::new(), HashSet::new());
    let importable = |skill: &&AgentSkill| !skill.id.is_empty() && !skill.id.starts_with(IMPORT_PREFIX);
    let skills = card.skills.iter().filter(importable).filter(|skill| seen.insert(&*skill.id));
    let mut functions = Vec::new();
    for skill in skills {
        if functions.len() == MAX_SKILLS {
            tracing::warn!(
                agent,
                url,
                limit = MAX_SKILLS,
                "remote agent has too many skills: ignoring the rest"
            );
            break;
        }
        let wanted = sanitize(&skill.id, "skill");
        let name = unique(wanted.clone(), |name| taken.contains(name));
        if name != wanted {
            tracing::warn!(agent, skill = skill.id, name, "two skills of a remote agent have the same name");
        }
        let schema = schemas.get(&skill.id);
        let format_of =
            |part: &str| schema.and_then(|schema| schema.get(part)).filter(|it| it.is_object()).cloned();
        let info = FunctionInfo {
            description: Some(skill.description.clone()).filter(|text| !text.is_empty()),
            request_format: format_of("request"),
            response_format: format_of("response"),
            metadata: Some(metadata(skill, url)),
            ..FunctionInfo::new(format!("{IMPORT_PREFIX}{agent}::{name}"))
        };
        let is_function = schema.is_some() || skill.id.contains("::");
        let input = if is_function { SkillInput::Payload } else { SkillInput::Message };
        functions.push((info, Skill { id: skill.id.clone(), input }));
        taken.insert(name);
    }
    functions
}

/// The schemas of the skills that have one in the card, by skill.
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
        assert_eq!(skill, Skill { id: "pricing::quote".to_owned(), input: SkillInput::Payload });
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
