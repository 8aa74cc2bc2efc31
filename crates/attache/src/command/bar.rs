//! A progress bar on a terminal.

use std::io::{IsTerminal, Write};

use super::Output;

/// How many characters wide the bar is.
const WIDTH: u64 = 30;

/// A bar on the last line of a terminal. Without a terminal it prints nothing.
pub(super) struct Bar {
    what: &'static str,
    shown: bool,
    percent: Option<u64>,
}

impl Bar {
    pub(super) fn new(output: &Output, what: &'static str) -> Self {
        Self { what, shown: !output.json && std::io::stderr().is_terminal(), percent: None }
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, done: u64, total: u64) {
        let percent = (done * 100).checked_div(total).unwrap_or(100);
        if self.shown && self.percent != Some(percent) {
            self.percent = Some(percent);
            // A closed standard error is ignored.
            let _ = write!(anstream::stderr().lock(), "\r\x1b[K{}", line(self.what, percent, done, total));
        }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        if self.percent.is_some() {
            let _ = write!(anstream::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, percent: u64, done: u64, total: u64) -> String {
    let full = percent * WIDTH / 100;
    let bar: String = (0..WIDTH).map(|at| if at < full { '#' } else { '-' }).collect();
    format!("{what} [{bar}] {percent:>3} %  {} of {}", megabytes(done), megabytes(total))
}

/// A number of bytes, in megabytes.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up() {
        assert_eq!(
            line("copying", 0, 0, 5_000_000),
            format!("copying [{}]   0 %  0.0 MB of 5.0 MB", "-".repeat(30))
        );
        let half = format!("{}{}", "#".repeat(15), "-".repeat(15));
        assert_eq!(
            line("copying", 50, 2_500_000, 5_000_000),
            format!("copying [{half}]  50 %  2.5 MB of 5.0 MB")
        );
        assert!(line("copying", 100, 1, 1).contains(&"#".repeat(30)));
    }
}
