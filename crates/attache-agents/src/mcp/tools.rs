//! The tools of a server: their list, their schemas, and the card that they make.

use std::sync::Arc;

use attache_iii::{FunctionInfo, with_schemas};
use attache_protocol::{AgentCard, AgentSkill};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use super::McpOptions;
use super::error::excerpt;

/// How many tools a server may have. The rest is left out.
pub(super) const MAX_TOOLS: usize = 1_000;

/// How many bytes the names, descriptions and schemas of all tools may have. The rest is left out.
pub(super) const MAX_SIZE: usize = 1024 * 1024;

/// How many tools a text lists.
const MAX_LISTED: usize = 10;

/// The longest name of a tool, in bytes.
const MAX_NAME: usize = 200;

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolInfo {
    /// In the form that schemas are checked with.
    pub(super) function: Arc<FunctionInfo>,
    title: Option<String>,
}

impl ToolInfo {
    fn new(tool: Tool) -> Self {
        let schema = |schema: &Map<String, Value>| Value::Object(schema.clone());
        let title = tool.title.or_else(|| tool.annotations.and_then(|annotations| annotations.title));
        let function = FunctionInfo {
            description: tool.description.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
            request_format: Some(schema(&tool.input_schema)),
            response_format: tool.output_schema.as_deref().map(schema),
            ..FunctionInfo::new(&*tool.name)
        };
        Self { function: Arc::new(function), title: title.filter(|title| !title.trim().is_empty()) }
    }

    /// The name, which is also the id of the skill.
    pub fn name(&self) -> &str {
        &self.function.id
    }

    /// The name for people.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// What the tool does.
    pub fn description(&self) -> Option<&str> {
        self.function.description.as_deref()
    }

    /// The JSON Schema of the arguments.
    pub fn input_schema(&self) -> &Value {
        self.function.request_format.as_ref().unwrap_or(&Value::Null)
    }

    /// The JSON Schema of the structured result.
    pub fn output_schema(&self) -> Option<&Value> {
        self.function.response_format.as_ref()
    }

    /// The argument that takes a text, if the tool needs no other: the only required one, or the only one.
    pub(super) fn text_argument(&self) -> Option<&str> {
        text_member(self.input_schema())
    }

    fn size(&self) -> usize {
        let text = |text: Option<&str>| text.map_or(0, str::len);
        let schema = |schema: Option<&Value>| schema.map_or(0, |schema| schema.to_string().len());
        self.name().len()
            + text(self.title())
            + text(self.description())
            + schema(Some(self.input_schema()))
            + schema(self.output_schema())
    }
}

/// The member of an object schema that takes a text, if no other member is needed.
pub(super) fn text_member(schema: &Value) -> Option<&str> {
    let properties = schema.get("properties")?.as_object()?;
    let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = match (required, properties.len()) {
        ([only], _) => only.as_str()?,
        ([], 1) => properties.keys().next()?,
        _ => return None,
    };
    (properties.get(name)?.get("type")? == "string").then_some(name)
}

/// The tools of a server that can be skills, in the order of the server. What is left out is logged.
pub(super) fn collect(listed: Vec<Tool>, options: &McpOptions) -> Vec<ToolInfo> {
    let server = &options.server;
    let mut tools: Vec<ToolInfo> = Vec::new();
    let mut size = 0;
    for tool in listed.into_iter().map(ToolInfo::new) {
        let name = tool.name();
        if !options.tools.is_empty() && !options.tools.iter().any(|wanted| wanted == name) {
            continue;
        }
        let is_valid = !name.is_empty()
            && name.len() <= MAX_NAME
            && !name.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_valid || tools.iter().any(|other| other.name() == name) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
            tracing::warn!(target: "attache::mcp", %server, tool = shown, "a tool is left out: its name is invalid or exists twice");
            continue;
        }
        size += tool.size();
        if tools.len() >= MAX_TOOLS || size > MAX_SIZE {
            tracing::warn!(
                target: "attache::mcp", %server, kept = tools.len(),
                "tools are left out: there are more than {MAX_TOOLS}, or their schemas have more than {MAX_SIZE} bytes"
            );
            break;
        }
        tools.push(tool);
    }
    for wanted in &options.tools {
        if !tools.iter().any(|tool| tool.name() == wanted) {
            tracing::warn!(target: "attache::mcp", %server, tool = wanted, "the server does not have a tool that is to be a skill");
        }
    }
    tools
}

/// Lists the tools that a caller can call.
pub(super) fn callable(tools: &[ToolInfo]) -> String {
    let listed: Vec<&str> = tools.iter().take(MAX_LISTED).map(ToolInfo::name).collect();
    match (listed.is_empty(), tools.len() - listed.len()) {
        (true, _) => "At the moment there are no tools that you can call.".to_owned(),
        (false, 0) => format!("You can call: {}.", listed.join(", ")),
        (false, more) => {
            format!("You can call: {} and {more} more, which the card lists.", listed.join(", "))
        }
    }
}

/// What a server says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) description: Option<String>,
}

impl About {
    pub(super) fn new(info: Option<&rmcp::model::ServerPeerInfo>) -> Self {
        let own = info.and_then(|info| info.server_info.as_ref());
        let described = own.and_then(|own| own.description.clone());
        let instructions = || info.and_then(|info| info.instructions.clone());
        let name = own.map(|own| own.title.as_ref().filter(|title| !title.is_empty()).unwrap_or(&own.name));
        Self {
            name: name.map(|name| excerpt(name)).unwrap_or_default(),
            version: own.map(|own| excerpt(&own.version)).unwrap_or_default(),
            description: described.or_else(instructions).map(|text| excerpt(&text)),
        }
    }
}

/// The card with these tools as skills. Their schemas are in the same extension as those of functions.
pub(super) fn card(options: &McpOptions, about: &About, tools: &[ToolInfo]) -> AgentCard {
    let fallback = if about.name.is_empty() { options.server.to_string() } else { about.name.clone() };
    let name = options.name.clone().unwrap_or(fallback);
    let described = options.description.clone().or_else(|| about.description.clone());
    let description = described
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| format!("The tools of the MCP server `{name}`"));
    let mut card = AgentCard::new(&name, description)
        .input_modes(["text/plain", "application/json"])
        .output_modes(["text/plain", "application/json", "*/*"]);
    if !about.version.is_empty() {
        card = card.version(&about.version);
    }
    card.capabilities.streaming = Some(true);
    let mut schemas = Map::new();
    for tool in tools {
        let skill = AgentSkill::new(tool.name(), tool.title().unwrap_or(tool.name()))
            .description(tool.description().unwrap_or(tool.name()))
            .tags(["tool"]);
        card.skills.push(skill);
        let mut schema = json!({ "request": tool.input_schema() });
        if let Some(output) = tool.output_schema() {
            schema["response"] = output.clone();
        }
        schemas.insert(tool.name().to_owned(), schema);
    }
    with_schemas(card, &schemas)
}

#[cfg(test)]
mod tests {
    use attache_iii::SCHEMAS_EXTENSION;

    use super::*;
    use crate::mcp::McpServer;

    fn options() -> McpOptions {
        McpOptions::new(McpServer::program(["tools"]))
    }

    fn tool(name: &str, schema: Value) -> Tool {
        serde_json::from_value(json!({"name": name, "inputSchema": schema})).unwrap()
    }

    fn object() -> Value {
        json!({"type": "object"})
    }

    #[test]
    fn a_tool_is_a_skill_with_its_schemas() {
        let listed = json!({"name": "add", "title": "Add", "description": " Adds ", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "required": ["sum"]}});
        let tools = collect(vec![serde_json::from_value(listed).unwrap()], &options());
        let about = About { name: "Calculator".into(), version: "2".into(), description: None };
        let card = serde_json::to_value(card(&options(), &about, &tools)).unwrap();
        assert_eq!(
            card["skills"],
            json!([{"id": "add", "name": "Add", "description": "Adds", "tags": ["tool"]}])
        );
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], SCHEMAS_EXTENSION);
        assert_eq!(
            card["capabilities"]["extensions"][0]["params"]["add"],
            json!({"request": {"type": "object"}, "response": {"type": "object", "required": ["sum"]}})
        );
        assert_eq!(
            (card["name"].as_str(), card["description"].as_str(), card["version"].as_str()),
            (Some("Calculator"), Some("The tools of the MCP server `Calculator`"), Some("2"))
        );
    }

    #[test]
    fn tools_are_bounded_in_number_and_size() {
        let many = (0..MAX_TOOLS + 5).map(|n| tool(&format!("t{n}"), object())).collect();
        assert_eq!(collect(many, &options()).len(), MAX_TOOLS);
        let large = json!({"type": "object", "description": "x".repeat(MAX_SIZE / 2)});
        let large = (0..3).map(|n| tool(&format!("t{n}"), large.clone())).collect();
        assert_eq!(collect(large, &options()).len(), 1);
    }

    #[test]
    fn tools_with_unusable_names_and_those_that_are_not_wanted_are_left_out() {
        let listed = || ["a", "a", "b c", "", "b"].map(|name| tool(name, object())).to_vec();
        let names = |tools: Vec<ToolInfo>| {
            tools.iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(names(collect(listed(), &options())), "a,b");
        let wanted = options().with(|options| options.tools = vec!["b".into(), "z".into()]);
        assert_eq!(names(collect(listed(), &wanted)), "b");
    }

    #[test]
    fn the_argument_for_a_text_is_the_only_one_that_is_needed() {
        for (schema, expected) in [
            (json!({"properties": {"a": {"type": "string"}}}), Some("a")),
            (
                json!({"properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a"]}),
                Some("a"),
            ),
            (json!({"properties": {"a": {"type": "number"}}}), None),
            (json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}), None),
            (
                json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}),
                None,
            ),
            (json!({}), None),
        ] {
            assert_eq!(text_member(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn the_list_for_the_caller_is_bounded() {
        let tools = |count: usize| {
            collect((0..count).map(|n| tool(&format!("t{n}"), object())).collect(), &options())
        };
        assert_eq!(callable(&tools(0)), "At the moment there are no tools that you can call.");
        assert_eq!(callable(&tools(2)), "You can call: t0, t1.");
        assert!(callable(&tools(13)).ends_with("t9 and 3 more, which the card lists."));
    }
}
