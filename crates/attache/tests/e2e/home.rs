//! Runs the command with a home directory of its own.

use std::fmt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A home with nothing in it.
pub(crate) struct Home(TempDir);

/// What came of a command.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit code: {code:?}\n----- stdout\n{stdout}----- stderr\n{stderr}")
    }
}

impl Ran {
    /// The same without what differs from run to run: addresses, ids and times.
    pub(crate) fn masked(&self, url: &str) -> String {
        let text = self.to_string().replace(url.trim_start_matches("http://"), "ADDR");
        let text = mask(&text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "ID");
        mask(&text, "xxxx-xx-xxTxx:xx:xx.xxxZ", "TIME")
    }
}

/// Replaces what looks like the pattern, in which an `x` is a hexadecimal digit.
fn mask(text: &str, pattern: &str, with: &str) -> String {
    let fits = |rest: &str| {
        let begin = rest.get(..pattern.len());
        let same = |(c, p): (char, char)| if p == 'x' { c.is_ascii_hexdigit() } else { c == p };
        begin.is_some_and(|begin| begin.chars().zip(pattern.chars()).all(same))
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if fits(rest) {
            out.push_str(with);
            rest = &rest[pattern.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Writes a file, and gives its name.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    }

    /// A command without input.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("COLUMNS", "100")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().await;
        ran(output.expect("the command runs"))
    }

    /// The same with something to read from standard input.
    pub(crate) async fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("it is ours");
        stdin.write_all(input.as_bytes()).await.expect("it reads");
        drop(stdin);
        ran(child.wait_with_output().await.expect("the command runs"))
    }
}

/// What came of a command that has ended.
pub(crate) fn ran(Output { status, stdout, stderr }: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}
