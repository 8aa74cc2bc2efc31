//! Finds the tool that a message calls, and its arguments.

use attache_protocol::{JsonObject, Message, Part};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tools::{ToolInfo, callable};

/// A call that a message asks for.
#[derive(Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) tool: ToolInfo,
    pub(super) arguments: Map<String, Value>,
}

/// The longest name of a tool that a text repeats, in characters.
const MAX_NAME: usize = 100;

/// The ways in which a data part, or a text with JSON, names a tool.
#[derive(Deserialize)]
struct Named {
    #[serde(alias = "function_id")]
    tool: Value,
    #[serde(default, alias = "payload")]
    arguments: Option<Value>,
}

/// Resolves a message: the `skill` of its metadata, then the first data part that names a tool, then the first text. The error is
/// for the caller, and lists the tools.
pub(super) fn resolve(
    message: &Message,
    metadata: Option<&JsonObject>,
    tools: &[ToolInfo],
) -> Result<ToolCall, String> {
    let skill = |metadata: Option<&JsonObject>| metadata.and_then(|metadata| metadata.get::<String>("skill"));
    if let Some(name) = skill(message.metadata.as_ref()).or_else(|| skill(metadata)) {
        let tool = find(&name, tools)?;
        return match message.parts.iter().find_map(Part::as_data) {
            Some(data) => {
                let value = data.read().map_err(|error| format!("The data part cannot be read: {error}"))?;
                call(tool, Some(named(&value).map_or(value, |named| named.arguments.unwrap_or(json!({})))))
            }
            None => call_with_text(tool, message.text().trim()),
        };
    }
    for data in message.parts.iter().filter_map(Part::as_data) {
        // Other data parts are ignored.
        let Some(named) = data.read().ok().as_ref().and_then(named) else { continue };
        let Value::String(name) = named.tool else {
            return Err("`tool` must be the name of a tool, as a string".to_owned());
        };
        return call(find(&name, tools)?, named.arguments);
    }
    let text = message.parts.iter().find_map(Part::as_text).map(str::trim).unwrap_or_default();
    if let Some(Named { tool: Value::String(name), arguments }) =
        serde_json::from_str(text).ok().as_ref().and_then(named)
    {
        return call(find(&name, tools)?, arguments);
    }
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    if let Some(tool) = tools.iter().find(|tool| tool.name() == first) {
        return call_with_text(tool, rest);
    }
    if let [tool] = tools
        && tool.text_argument().is_some()
        && !text.is_empty()
    {
        return call_with_text(tool, text);
    }
    // A name with arguments, as opposed to a text in plain language.
    if !first.is_empty() && !first.starts_with('{') && rest.starts_with('{') {
        return Err(unknown(first, tools));
    }
    Err(format!(
        "No tool found in the message. Send a data part with {{\"tool\": \"…\", \"arguments\": {{…}}}}, or a text such as `name {{\"argument\": \"value\"}}`. {}",
        callable(tools)
    ))
}

fn named(value: &Value) -> Option<Named> {
    Named::deserialize(value).ok()
}

fn find<'a>(name: &str, tools: &'a [ToolInfo]) -> Result<&'a ToolInfo, String> {
    tools.iter().find(|tool| tool.name() == name).ok_or_else(|| unknown(name, tools))
}

/// The text for a caller of a tool that does not exist.
pub(super) fn unknown(name: &str, tools: &[ToolInfo]) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    format!("There is no tool '{shown}'. {}", callable(tools))
}

/// A call with a text: JSON, or the text itself if the tool takes one.
fn call_with_text(tool: &ToolInfo, text: &str) -> Result<ToolCall, String> {
    if text.is_empty() {
        return call(tool, None);
    }
    match (serde_json::from_str::<Value>(text), tool.text_argument()) {
        (Ok(arguments @ Value::Object(_)), _) => call(tool, Some(arguments)),
        (_, Some(argument)) => call(tool, Some(json!({ argument: text }))),
        (Ok(other), None) => call(tool, Some(other)),
        (Err(error), None) => Err(format!(
            "The arguments of the tool '{}' must be a JSON object after its name, and the text cannot be parsed: {error}",
            tool.name()
        )),
    }
}

fn call(tool: &ToolInfo, arguments: Option<Value>) -> Result<ToolCall, String> {
    match arguments {
        None | Some(Value::Null) => Ok(ToolCall { tool: tool.clone(), arguments: Map::new() }),
        Some(Value::Object(arguments)) => Ok(ToolCall { tool: tool.clone(), arguments }),
        Some(_) => Err(format!("The arguments of the tool '{}' must be a JSON object", tool.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tools::collect;
    use crate::mcp::{McpOptions, McpServer};

    fn tools(names: &[&str]) -> Vec<ToolInfo> {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let two = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}});
        let tool = |name: &&str| {
            let schema = if *name == "add" { &two } else { &schema };
            serde_json::from_value(json!({"name": name, "inputSchema": schema})).unwrap()
        };
        collect(names.iter().map(tool).collect(), &McpOptions::new(McpServer::program(["x"])))
    }

    fn resolved(message: &Message, names: &[&str]) -> Result<(String, Value), String> {
        let call = resolve(message, None, &tools(names))?;
        Ok((call.tool.name().to_owned(), Value::Object(call.arguments)))
    }

    fn text(text: &str, names: &[&str]) -> Result<(String, Value), String> {
        resolved(&Message::user("m", text), names)
    }

    fn data(value: Value) -> Message {
        Message { parts: vec![Part::data(&value).unwrap()], ..Message::default() }
    }

    fn ok(name: &str, arguments: Value) -> Result<(String, Value), String> {
        Ok((name.to_owned(), arguments))
    }

    #[test]
    fn a_data_part_names_a_tool_in_two_ways() {
        let names = ["add", "echo"];
        let two = json!({"a": 1, "b": 2});
        assert_eq!(resolved(&data(json!({"tool": "add", "arguments": two})), &names), ok("add", two.clone()));
        assert_eq!(
            resolved(&data(json!({"function_id": "add", "payload": two})), &names),
            ok("add", two.clone())
        );
        assert_eq!(resolved(&data(json!({"tool": "echo"})), &names), ok("echo", json!({})));
        assert!(
            resolved(&data(json!({"tool": 5})), &names).unwrap_err().contains("must be the name of a tool")
        );
        assert!(
            resolved(&data(json!({"tool": "add", "arguments": [1]})), &names)
                .unwrap_err()
                .contains("must be a JSON object")
        );
        let later = Message::user("m", "please").part(Part::data(&json!({"tool": "echo"})).unwrap());
        assert_eq!(resolved(&later, &names), ok("echo", json!({})));
    }

    #[test]
    fn a_text_names_a_tool_with_json_or_with_its_only_text() {
        let names = ["add", "echo"];
        assert_eq!(text("add {\"a\": 1}", &names), ok("add", json!({"a": 1})));
        assert_eq!(text(" echo  hello there ", &names), ok("echo", json!({"text": "hello there"})));
        assert_eq!(text("echo", &names), ok("echo", json!({})));
        assert_eq!(
            text("{\"tool\": \"add\", \"arguments\": {\"a\": 2}}", &names),
            ok("add", json!({"a": 2}))
        );
        assert!(
            text("add one and two", &names).unwrap_err().contains("must be a JSON object after its name")
        );
        assert!(text("add 5", &names).unwrap_err().contains("must be a JSON object"));
    }

    #[test]
    fn plain_text_calls_the_only_tool_if_it_takes_a_text() {
        assert_eq!(text("hello there", &["echo"]), ok("echo", json!({"text": "hello there"})));
        assert!(text("hello there", &["echo", "other"]).unwrap_err().starts_with("No tool found"));
        assert!(text("hello there", &["add"]).unwrap_err().starts_with("No tool found"));
        assert!(text("", &["echo"]).unwrap_err().starts_with("No tool found"));
    }

    #[test]
    fn metadata_names_a_skill() {
        let metadata = JsonObject::new(&json!({"skill": "add"})).unwrap();
        let message = Message { metadata: Some(metadata.clone()), ..data(json!({"a": 1})) };
        assert_eq!(resolved(&message, &["add", "echo"]), ok("add", json!({"a": 1})));
        let message = Message::user("m", "{\"a\": 3}");
        let call = resolve(&message, Some(&metadata), &tools(&["add"])).unwrap();
        assert_eq!(Value::Object(call.arguments), json!({"a": 3}));
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_list_of_tools() {
        let expected = "There is no tool 'subtract'. You can call: add, echo.";
        let names = ["add", "echo"];
        assert_eq!(resolved(&data(json!({"tool": "subtract"})), &names).unwrap_err(), expected);
        assert_eq!(text("subtract {}", &names).unwrap_err(), expected);
    }
}
