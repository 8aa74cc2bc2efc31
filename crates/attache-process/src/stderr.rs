//! The standard error of a program.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// The longest line of standard error in the log, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// How many bytes of a program go to the log in one [`PERIOD`].
const MAX_LOG: usize = 64 * 1024;

/// The time for which [`MAX_LOG`] holds.
const PERIOD: Duration = Duration::from_secs(60);

/// Bounds what one program writes to the log: 64 KiB in a minute. What is more is left out and counted.
#[derive(Debug)]
pub struct LogLimit {
    /// When the current period ends.
    ends: Instant,
    /// How many bytes went to the log in this period.
    used: usize,
    /// How many bytes were left out, and not reported yet.
    left_out: usize,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { ends: Instant::now() + PERIOD, used: 0, left_out: 0 }
    }
}

impl LogLimit {
    /// Counts a line. Returns whether it may be logged. Ask for the [report](Self::report) first.
    pub fn has_room_for(&mut self, bytes: usize) -> bool {
        self.begin_period();
        let has_room = self.used + bytes <= MAX_LOG;
        *(if has_room { &mut self.used } else { &mut self.left_out }) += bytes;
        has_room
    }

    /// A line for the log that says how much was left out, when the period is over.
    pub fn report(&mut self) -> Option<String> {
        if Instant::now() < self.ends { None } else { self.last_report() }
    }

    /// The same at the end of the program.
    pub fn last_report(&mut self) -> Option<String> {
        let bytes = std::mem::take(&mut self.left_out);
        (bytes > 0)
            .then(|| format!("{bytes} bytes more were left out: the limit is {MAX_LOG} bytes per minute"))
    }

    /// When something has to be reported.
    fn due(&self) -> Option<Instant> {
        (self.left_out > 0).then_some(self.ends)
    }

    fn begin_period(&mut self) {
        let now = Instant::now();
        if now >= self.ends {
            (self.ends, self.used) = (now + PERIOD, 0);
        }
    }
}

/// Reads the standard error of a program to its end. `log` gets each line that is not empty, up to the limit if there is one. `keep` gets
/// all bytes.
pub async fn read_errors(
    mut stderr: impl AsyncRead + Unpin,
    mut limit: Option<LogLimit>,
    log: impl Fn(&str),
    mut keep: impl FnMut(&[u8]),
) {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    loop {
        let reading = stderr.read(&mut buffer);
        let read = match limit.as_ref().and_then(LogLimit::due) {
            Some(due) => match tokio::time::timeout_at(due, reading).await {
                Ok(read) => read,
                Err(_) => {
                    report(&mut limit, &log);
                    continue;
                }
            },
            None => reading.await,
        };
        // A program that cannot be read any more has ended.
        let Ok(count @ 1..) = read else { break };
        keep(&buffer[..count]);
        for byte in &buffer[..count] {
            if *byte == b'\n' || line.len() >= MAX_LOG_LINE {
                write(&line, &mut limit, &log);
                line.clear();
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    write(&line, &mut limit, &log);
    if let Some(text) = limit.as_mut().and_then(LogLimit::last_report) {
        log(&text);
    }
}

fn report(limit: &mut Option<LogLimit>, log: impl Fn(&str)) {
    if let Some(text) = limit.as_mut().and_then(LogLimit::report) {
        log(&text);
    }
}

fn write(line: &[u8], limit: &mut Option<LogLimit>, log: impl Fn(&str)) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    report(limit, &log);
    if limit.as_mut().is_none_or(|limit| limit.has_room_for(text.len())) {
        log(text);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// What is logged of a flood, by the line number, and then of one line a minute later.
    async fn logged(limit: Option<LogLimit>) -> Vec<String> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let lines = RefCell::new(Vec::new());
        let reading = read_errors(ours, limit, |line| lines.borrow_mut().push(line.to_owned()), |_| ());
        let writing = async {
            for _ in 0..2_000 {
                theirs.write_all(format!("{}\n", "x".repeat(99)).as_bytes()).await.unwrap();
            }
            tokio::time::sleep(PERIOD * 2).await;
            theirs.write_all(b"later").await.unwrap();
            drop(theirs);
        };
        tokio::join!(reading, writing);
        lines.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_has_64_kib_in_the_log_and_not_one_byte_more() {
        let mut limit = LogLimit::default();
        assert!(limit.has_room_for(64 * 1024 - 1) && limit.has_room_for(1));
        assert!(!limit.has_room_for(1));
        tokio::time::advance(Duration::from_secs(60) - Duration::from_millis(1)).await;
        assert!(!limit.has_room_for(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(limit.report().is_some_and(|text| text.starts_with("2 bytes more were left out")));
        assert!(limit.has_room_for(64 * 1024));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_bounded_in_the_log_and_reported_once() {
        let lines = logged(Some(LogLimit::default())).await;
        let passed = MAX_LOG / 99;
        assert!(lines[..passed].iter().all(|line| line.len() == 99), "{lines:?}");
        let left_out = (2_000 - passed) * 99;
        let report = format!("{left_out} bytes more were left out: the limit is 65536 bytes per minute");
        assert_eq!(&lines[passed..], [report, "later".to_owned()]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_out_is_reported_when_the_minute_is_over_without_another_line() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(read_errors(
            ours,
            Some(LogLimit::default()),
            move |line| sender.send(line.len()).unwrap(),
            |_| (),
        ));
        for _ in 0..=MAX_LOG / MAX_LOG_LINE {
            theirs.write_all(&[b'x'; MAX_LOG_LINE]).await.unwrap();
        }
        theirs.write_all(b"\n").await.unwrap();
        for _ in 0..MAX_LOG / MAX_LOG_LINE {
            assert_eq!(lines.recv().await, Some(MAX_LOG_LINE));
        }
        let begun = Instant::now();
        assert!(lines.recv().await.is_some_and(|length| length < 100), "the report");
        assert_eq!(begun.elapsed(), PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_all_lines_pass() {
        assert_eq!(logged(None).await.len(), 2_001);
    }
}
