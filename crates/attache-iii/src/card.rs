//! The card of an agent whose skills are functions.

use attache_protocol::{AgentCard, AgentExtension, AgentSkill, JsonObject};
use serde::Serialize;
use serde_json::Value;

use crate::FunctionInfo;
use crate::exposure::scopes;

/// The extension under which the card tells what its skills take and return: a member for each skill that says so, with the JSON
/// Schemas `request` and `response`.
pub const SCHEMAS_EXTENSION: &str = "urn:attache:extension:skill-schemas:v1";

/// How the agent describes itself, besides its skills. What is empty is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Who runs it.
    pub provider: String,
    /// Where to find out about whoever runs it.
    pub provider_url: String,
    /// Where to read about it.
    pub documentation_url: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            name: "iii-engine".to_owned(),
            description: "iii-engine agent — invoke any registered function via A2A".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: "iii".to_owned(),
            provider_url: "https://github.com/iii-hq/iii".to_owned(),
            documentation_url: String::new(),
        }
    }
}

/// The card of an agent with these functions.
pub(crate) fn card<'a>(
    identity: &Identity,
    streaming: bool,
    functions: impl Iterator<Item = &'a FunctionInfo>,
) -> AgentCard {
    let modes = ["text/plain", "application/json"];
    let mut card = AgentCard::new(&identity.name, &identity.description)
        .version(&identity.version)
        .input_modes(modes)
        .output_modes(modes);
    if !identity.provider.is_empty() {
        card = card.provider(&identity.provider, &identity.provider_url);
    }
    if !identity.documentation_url.is_empty() {
        card = card.documentation(&identity.documentation_url);
    }
    card.capabilities.streaming = Some(streaming);
    let mut schemas = serde_json::Map::new();
    for function in functions {
        card.skills.push(skill(function));
        if let Some(schema) = schema(function) {
            schemas.insert(function.id.to_string(), schema);
        }
    }
    if !schemas.is_empty() {
        let mut extension = AgentExtension::new(SCHEMAS_EXTENSION)
            .description("The JSON Schemas of what skills take and return, by skill");
        extension.params = JsonObject::new(&schemas).ok();
        card = card.extension(extension);
    }
    card
}

fn skill(function: &FunctionInfo) -> AgentSkill {
    let id = &*function.id;
    let described = function.description.as_deref().filter(|text| !text.is_empty());
    let name = function.said("a2a.name").and_then(Value::as_str).or(described);
    let mut skill = AgentSkill::new(id, name.map_or_else(|| id.replace("::", " "), str::to_owned))
        .description(described.unwrap_or(id));
    skill.tags = strings(function, "a2a.tags").unwrap_or_else(|| id.split("::").map(str::to_owned).collect());
    skill.examples = strings(function, "a2a.examples").unwrap_or_default();
    skill.input_modes = strings(function, "a2a.inputModes").unwrap_or_default();
    skill.output_modes = strings(function, "a2a.outputModes").unwrap_or_default();
    match scopes(function) {
        scopes if scopes.is_empty() => skill,
        scopes => skill.scopes(scopes),
    }
}

/// A list of strings among the metadata. One that is something else is no list.
fn strings(function: &FunctionInfo, key: &str) -> Option<Vec<String>> {
    let list = function.said(key)?.as_array()?;
    list.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn schema(function: &FunctionInfo) -> Option<Value> {
    #[derive(Serialize)]
    struct Schemas<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<&'a Value>,
    }
    let request = function.request_format.as_ref().filter(|schema| schema.is_object());
    let response = function.response_format.as_ref().filter(|schema| schema.is_object());
    if request.is_none() && response.is_none() {
        return None;
    }
    serde_json::to_value(Schemas { request, response }).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(functions: &[FunctionInfo]) -> serde_json::Value {
        serde_json::to_value(card(&Identity::default(), true, functions.iter())).unwrap()
    }

    #[test]
    fn a_function_without_words_is_described_by_its_id() {
        let card = shown(&[FunctionInfo::new("pricing::quote")]);
        assert_eq!(
            card["skills"],
            json!([{"id": "pricing::quote", "name": "pricing quote", "description": "pricing::quote",
                    "tags": ["pricing", "quote"]}])
        );
    }

    #[test]
    fn metadata_says_more_about_a_skill() {
        let metadata = json!({
            "a2a.name": "Quote", "a2a.tags": ["money"], "a2a.examples": ["pricing::quote {\"sku\": \"A-1\"}"],
            "a2a.inputModes": ["application/json"], "a2a.outputModes": ["application/json"],
        });
        let function = FunctionInfo {
            description: Some("Quote a price".to_owned()),
            metadata: Some(metadata),
            ..FunctionInfo::new("pricing::quote")
        };
        assert_eq!(
            shown(&[function])["skills"],
            json!([{"id": "pricing::quote", "name": "Quote", "description": "Quote a price", "tags": ["money"],
                    "examples": ["pricing::quote {\"sku\": \"A-1\"}"],
                    "inputModes": ["application/json"], "outputModes": ["application/json"]}])
        );
    }

    #[test]
    fn metadata_of_the_wrong_type_says_nothing() {
        let metadata = json!({"a2a.name": 7, "a2a.tags": "money", "a2a.examples": [1], "a2a.inputModes": {}});
        let function = FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new("a::b") };
        assert_eq!(shown(&[function]), shown(&[FunctionInfo::new("a::b")]));
    }

    #[test]
    fn schemas_are_an_extension() {
        let function =
            FunctionInfo { request_format: Some(json!({"type": "object"})), ..FunctionInfo::new("a::b") };
        let card = shown(&[function, FunctionInfo::new("a::c")]);
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], SCHEMAS_EXTENSION);
        assert_eq!(
            card["capabilities"]["extensions"][0]["params"],
            json!({"a::b": {"request": {"type": "object"}}})
        );
        assert!(shown(&[FunctionInfo::new("a::c")])["capabilities"]["extensions"].is_null());
    }

    #[test]
    fn what_is_empty_about_the_agent_is_left_out() {
        let nobody = Identity { provider: String::new(), ..Identity::default() };
        let card = serde_json::to_value(card(&nobody, false, std::iter::empty())).unwrap();
        assert!(card["provider"].is_null() && card["documentationUrl"].is_null());
        assert_eq!(card["capabilities"]["streaming"], false);
    }
}
