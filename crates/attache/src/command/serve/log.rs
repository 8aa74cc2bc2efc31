//! The log of the server, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::reload::SetLogFilter;
use crate::command::Failure;
use crate::config::{LogArgs, LogFormat};

/// The filter of the log. A library that logs each message of an MCP server at `info` is quiet unless the filter names it.
pub(super) fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("rmcp=warn,{text}"))
}

impl LogArgs {
    /// Starts the log. Returns a function that changes its filter. The server goes on if its log cannot be written.
    pub(super) fn start(&self, filter: EnvFilter) -> SetLogFilter {
        let log = tracing_subscriber::fmt().log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => {
                let log = log.with_writer(anstream::stderr).with_env_filter(filter).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(Failure::new))
            }
            LogFormat::Json => {
                // The fields of an event are members of the line itself, next to `timestamp`, `level`, `target` and `message`.
                let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let log = log.with_writer(std::io::stderr).with_env_filter(filter).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(Failure::new))
            }
        }
    }
}
