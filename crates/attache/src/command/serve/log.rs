//! The log of the server, on standard error or in a file.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::reload::SetLogFilter;
use crate::command::Failure;
use crate::config::{LogArgs, LogFormat, STANDARD_OUTPUT};

/// The filter of the log. A library that logs each message of an MCP server at `info` is quiet unless the filter names it.
pub(super) fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("rmcp=warn,{text}"))
}

impl LogArgs {
    /// Starts the log. Returns a function that changes its filter. The server goes on if its log cannot be written.
    pub(super) fn start(&self, filter: EnvFilter) -> Result<SetLogFilter, Failure> {
        let log = tracing_subscriber::fmt().log_internal_errors(false).with_env_filter(filter);
        let (log, file) = match &self.log_file {
            // A socket, as a service manager gives one, cannot be opened.
            Some(path) if path.as_os_str() == STANDARD_OUTPUT => {
                (log.with_ansi(false), Some(BoxMakeWriter::new(std::io::stdout)))
            }
            Some(path) => (log.with_ansi(false), Some(BoxMakeWriter::new(Arc::new(open(path)?)))),
            None => (log, None),
        };
        Ok(match self.log_format {
            LogFormat::Text => {
                let writer = file.unwrap_or_else(|| BoxMakeWriter::new(anstream::stderr));
                let log = log.with_writer(writer).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(Failure::new))
            }
            LogFormat::Json => {
                // The fields of an event are members of the line itself, next to `timestamp`, `level`, `target` and `message`.
                let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let writer = file.unwrap_or_else(|| BoxMakeWriter::new(std::io::stderr));
                let log = log.with_writer(writer).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(Failure::new))
            }
        })
    }
}

/// Opens the file of the log. Each line is appended, so that a program that rotates logs may empty the file.
fn open(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    attache_files::permissions::owner_only_file(&mut options).open(path).map_err(|error| {
        Failure::new(format!("cannot open the log file `{}`: {error}", path.display()))
            .hint("give another file with `--log-file`, or create its folder")
    })
}
