//! Why an MCP server or one of its tools cannot be used.

use std::time::Duration;

/// How much of a server's text is repeated, in characters.
const MAX_TEXT: usize = 2_000;

/// Why an MCP server cannot be used. The text is for the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The options are invalid.
    #[error("{0}")]
    Invalid(String),
    /// The program cannot be started.
    #[error("cannot start the MCP server `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The server cannot be reached, or does not follow MCP.
    #[error("cannot use the MCP server `{server}`: {why}")]
    Connect {
        /// The program or the URL.
        server: String,
        /// The reason.
        why: String,
    },
    /// The server requires a login.
    #[error("the MCP server `{server}` requires a login: {why}")]
    Login {
        /// The URL.
        server: String,
        /// What is missing.
        why: String,
    },
}

/// Why a call of a tool failed. The text is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such tool. The text lists the tools.
    #[error("{0}")]
    UnknownTool(String),
    /// The arguments do not match the input schema of the tool.
    #[error("The arguments do not match the schema of the tool '{tool}': {faults}")]
    Arguments {
        /// The tool.
        tool: String,
        /// What is wrong.
        faults: String,
    },
    /// The server cannot be used now. The reason is in the log.
    #[error("The MCP server cannot be used now: try again later")]
    Unavailable,
    /// The server ended before it returned a result.
    #[error("The MCP server ended before the tool '{0}' returned a result")]
    Ended(String),
    /// The call took too long.
    #[error("The tool '{tool}' did not return within {} s", .limit.as_secs_f64())]
    TimedOut {
        /// The tool.
        tool: String,
        /// The time limit.
        limit: Duration,
    },
    /// The result is too large.
    #[error("The result of the tool '{tool}' is larger than {limit} bytes")]
    TooLarge {
        /// The tool.
        tool: String,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The server refused the call, or its response is invalid.
    #[error("{0}")]
    Refused(String),
    /// The call was canceled.
    #[error("The call was canceled")]
    Canceled,
}

/// A text of the server, shortened, without control characters except line breaks.
pub(super) fn excerpt(text: &str) -> String {
    let text = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    text.take(MAX_TEXT).collect::<String>().trim().to_owned()
}
