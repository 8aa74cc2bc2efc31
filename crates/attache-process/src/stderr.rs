//! The standard error of a program.

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

/// The longest line of standard error in the log, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// Reads the standard error of a program to its end. `log` gets each line that is not empty, `keep` all bytes.
pub async fn read_errors(mut stderr: ChildStderr, log: impl Fn(&str), mut keep: impl FnMut(&[u8])) {
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
