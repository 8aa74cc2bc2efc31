//! What the agents that start programs have in common.

use std::process::ExitStatus;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

/// The longest line of standard error in the log, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// The longest name of a file, in bytes.
const MAX_NAME: usize = 200;

/// Reads the standard error of a program to its end. `log` gets each line that is not empty, `keep` all bytes.
pub(crate) async fn read_errors(mut stderr: ChildStderr, log: impl Fn(&str), mut keep: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    let log = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            log(text);
        }
    };
    // A program that cannot be read any more has ended.
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        keep(&buffer[..count]);
        for byte in &buffer[..count] {
            if *byte == b'\n' || line.len() >= MAX_LOG_LINE {
                log(&line);
                line.clear();
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    log(&line);
}

/// How a program ended, for people.
pub(crate) fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            return format!("signal {signal}");
        }
    }
    status.code().map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"))
}

/// A name for a file of a caller, without folders and without characters that a program could stumble over.
pub(crate) fn file_name(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = base.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    name.truncate(name.floor_char_boundary(MAX_NAME));
    match name.chars().next() {
        None => "file".to_owned(),
        // A leading dash looks like an option. A leading dot hides the file or names a folder.
        Some('.' | '-') => format!("_{name}"),
        Some(_) => name,
    }
}
