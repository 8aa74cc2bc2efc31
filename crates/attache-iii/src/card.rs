//! The card of a gateway.

use attache_protocol::{AgentCard, AgentExtension, AgentSkill, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::FunctionInfo;
use crate::exposure::scopes;

/// The extension with the JSON Schemas of the skills. It has a member for each skill with a schema: `request` and `response`.
pub const SCHEMAS_EXTENSION: &str = "urn:attache:extension:skill-schemas:v1";

/// The description of the agent in its card, without its skills. Empty members are omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardDetails {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The version.
    pub version: String,
    /// The organization that runs the agent.
    pub provider: String,
    /// The web site of that organization.
    pub provider_url: String,
    /// The documentation of the agent.
    pub documentation_url: String,
}

impl Default for CardDetails {
    fn default() -> Self {
        Self {
            name: "Attaché".to_owned(),
            description: "Calls functions by their name".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: String::new(),
            provider_url: String::new(),
            documentation_url: String::new(),
        }
    }
}

/// Members of the card that are set while the agent runs. They replace those of the [details](CardDetails) and of the functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CardOverrides {
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The skills, instead of the functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<AgentSkill>>,
}

impl CardOverrides {
    pub(crate) fn apply(&self, card: &mut AgentCard) {
        if let Some(name) = &self.name {
            card.name.clone_from(name);
        }
        if let Some(description) = &self.description {
            card.description.clone_from(description);
        }
        if let Some(skills) = &self.skills {
            card.skills.clone_from(skills);
        }
    }
}

/// Builds the card of an agent with these functions.
pub(crate) fn card<'a>(
    details: &CardDetails,
    streaming: bool,
    functions: impl Iterator<Item = &'a FunctionInfo>,
    takes_messages: impl Fn(&FunctionInfo) -> bool,
) -> AgentCard {
    let modes = ["text/plain", "application/json"];
    let mut card = AgentCard::new(&details.name, &details.description)
        .version(&details.version)
        .input_modes(modes)
        .output_modes(modes);
    if !details.provider.is_empty() {
        card = card.provider(&details.provider, &details.provider_url);
    }
    if !details.documentation_url.is_empty() {
        card = card.documentation(&details.documentation_url);
    }
    card.capabilities.streaming = Some(streaming);
    let mut schemas = serde_json::Map::new();
    for function in functions {
        let mut skill = skill(function);
        if skill.input_modes.is_empty() && takes_messages(function) {
            // It gets all parts of a message.
            skill.input_modes.push("*/*".to_owned());
        }
        card.skills.push(skill);
        if let Some(schema) = schema(function) {
            schemas.insert(function.id.to_string(), schema);
        }
    }
    with_schemas(card, &schemas)
}

/// Adds the schemas of skills to a card, in the extension for them.
pub fn with_schemas(card: AgentCard, schemas: &serde_json::Map<String, Value>) -> AgentCard {
    if schemas.is_empty() {
        return card;
    }
    let mut extension = AgentExtension::new(SCHEMAS_EXTENSION)
        .description("The JSON Schemas of the skills' payloads and results, by skill");
    extension.params = JsonObject::new(schemas).ok();
    card.extension(extension)
}

fn skill(function: &FunctionInfo) -> AgentSkill {
    let id = &*function.id;
    let described = function.description.as_deref().filter(|text| !text.is_empty());
    let name = function.metadata_value("a2a.name").and_then(Value::as_str).or(described);
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

/// A list of strings in the metadata. `None` if it is anything else.
fn strings(function: &FunctionInfo, key: &str) -> Option<Vec<String>> {
    let list = function.metadata_value(key)?.as_array()?;
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

    fn card_json(functions: &[FunctionInfo]) -> serde_json::Value {
        serde_json::to_value(card(&CardDetails::default(), true, functions.iter(), |_| false)).unwrap()
    }

    #[test]
    fn a_function_without_a_description_is_described_by_its_id() {
        let card = card_json(&[FunctionInfo::new("pricing::quote")]);
        assert_eq!(
            card["skills"],
            json!([{"id": "pricing::quote", "name": "pricing quote", "description": "pricing::quote",
                    "tags": ["pricing", "quote"]}])
        );
    }

    #[test]
    fn metadata_describes_a_skill() {
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
            card_json(&[function])["skills"],
            json!([{"id": "pricing::quote", "name": "Quote", "description": "Quote a price", "tags": ["money"],
                    "examples": ["pricing::quote {\"sku\": \"A-1\"}"],
                    "inputModes": ["application/json"], "outputModes": ["application/json"]}])
        );
    }

    #[test]
    fn metadata_of_the_wrong_type_is_ignored() {
        let metadata = json!({"a2a.name": 7, "a2a.tags": "money", "a2a.examples": [1], "a2a.inputModes": {}});
        let function = FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new("a::b") };
        assert_eq!(card_json(&[function]), card_json(&[FunctionInfo::new("a::b")]));
    }

    #[test]
    fn schemas_are_an_extension() {
        let function =
            FunctionInfo { request_format: Some(json!({"type": "object"})), ..FunctionInfo::new("a::b") };
        let card = card_json(&[function, FunctionInfo::new("a::c")]);
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], SCHEMAS_EXTENSION);
        assert_eq!(
            card["capabilities"]["extensions"][0]["params"],
            json!({"a::b": {"request": {"type": "object"}}})
        );
        assert!(card_json(&[FunctionInfo::new("a::c")])["capabilities"]["extensions"].is_null());
    }

    #[test]
    fn empty_card_details_are_omitted() {
        let card = serde_json::to_value(card(&CardDetails::default(), false, std::iter::empty(), |_| false))
            .unwrap();
        assert!(card["provider"].is_null() && card["documentationUrl"].is_null());
        assert_eq!(card["name"], "Attaché");
        assert_eq!(card["capabilities"]["streaming"], false);
    }
}
