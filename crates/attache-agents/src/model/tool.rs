//! Tools that a model can call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use attache_core::BoxFuture;
use serde_json::Value;

use super::reply::ToolCall;

/// How many bytes of the result of a tool the model gets.
const MAX_RESULT: usize = 64 * 1024;

/// A tool that a model can call.
#[derive(Clone)]
pub struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Value,
    run: Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>,
}

impl Tool {
    /// A tool with a JSON Schema of its arguments. The model gets an error as the result, and can try something else.
    ///
    /// ```
    /// use attache_agents::model::Tool;
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    /// let weather = Tool::new("weather", "The weather in a city", schema, |arguments| async move {
    ///     match arguments["city"].as_str() {
    ///         Some(city) => Ok(json!({"city": city, "sky": "clear"})),
    ///         None => Err("`city` is missing".to_owned()),
    ///     }
    /// });
    /// ```
    pub fn new<F, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Value,
        run: F,
    ) -> Self
    where
        F: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let run = move |arguments| -> BoxFuture<'static, _> { Box::pin(run(arguments)) };
        Self { name: name.into(), description: description.into(), parameters, run: Arc::new(run) }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Calls a tool. Returns the result for the model, also if the tool failed.
pub(super) async fn call(tools: &[Tool], call: &ToolCall, timeout: Duration) -> Result<String, String> {
    match run(tools, call, timeout).await {
        Ok(Value::String(text)) => Ok(cut(text)),
        Ok(value) => Ok(cut(value.to_string())),
        Err(error) => {
            tracing::info!(target: "attache::model", tool = call.name, error, "a tool failed");
            Err(cut(format!("error: {error}")))
        }
    }
}

fn cut(result: String) -> String {
    match result.len() > MAX_RESULT {
        true => {
            format!("{}… (cut after {MAX_RESULT} bytes)", &result[..result.floor_char_boundary(MAX_RESULT)])
        }
        false => result,
    }
}

async fn run(tools: &[Tool], call: &ToolCall, timeout: Duration) -> Result<Value, String> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(format!("there is no tool `{}`, expected one of: {}", call.name, names.join(", ")));
    };
    // Models write nothing where a tool has no arguments.
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let arguments =
        serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"))?;
    match tokio::time::timeout(timeout, (tool.run)(arguments)).await {
        Ok(result) => result,
        Err(_) => Err(format!("the tool did not finish within {} s", timeout.as_secs_f64())),
    }
}
