//! Files in the results of tools, which become artifacts of the task.

use attache_core::{AgentResult, Turn};
use attache_protocol::Part;

pub(crate) use attache_core::{take_tool_file as take, take_tool_file_from_text as take_from_text};

/// Adds the file to the task.
pub(crate) async fn add(turn: &Turn, file: Option<Part>) -> AgentResult {
    match file {
        Some(file) => turn.add_file(file).await,
        None => Ok(()),
    }
}
