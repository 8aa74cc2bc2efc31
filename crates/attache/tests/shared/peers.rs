//! Programs that others wrote the libraries of: where `cargo xtask test` has installed those, and what the programs say.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long anything may take. Only what is broken reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Why tests with libraries for a language cannot be run, if they cannot.
pub(crate) fn absent(language: &str) -> Option<String> {
    if std::env::var_os("ATTACHE_PEERS").is_none() {
        return Some("SDKs are installed by `cargo xtask test`: run that".to_owned());
    }
    let without = std::env::var("ATTACHE_PEERS_WITHOUT").unwrap_or_default();
    without.split(',').any(|absent| absent == language).then(|| format!("{language} is not installed"))
}

/// Where something was installed.
pub(crate) fn home(folder: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("ATTACHE_PEERS").expect("it was looked at before")).join(folder)
}

/// Puts a copy of a file somewhere, whole at every moment: other tests may be reading it.
pub(crate) fn place(file: &Path, place: &Path) {
    let copy = tempfile::NamedTempFile::new_in(place.parent().expect("it is in a folder")).expect("a file");
    std::fs::copy(file, copy.path()).expect("it can be copied");
    copy.persist(place).expect("it can be put in its place");
}

/// Runs a test, or says why not: in a line of its own that no one captures, because otherwise it would count as passed.
pub(crate) fn keep(name: &str, absent: Option<String>, test: impl Future<Output = ()>) {
    if let Some(reason) = absent {
        // On one thread the harness has begun a line by now.
        writeln!(std::io::stdout(), "\nskipped {name}: {reason}").expect("there is an output");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// A process whose words are kept, and shown if the test fails. It is killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    name: String,
    said: Arc<Mutex<String>>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let said = Arc::new(Mutex::new(String::new()));
        let (heard, lines) = mpsc::unbounded_channel();
        listen(child.stdout.take().expect("it is piped"), said.clone(), heard.clone());
        listen(child.stderr.take().expect("it is piped"), said.clone(), heard);
        Self { child, name: name.to_owned(), said, lines }
    }

    /// The next line it says; nothing when it has said everything.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Waits until it says a line for which there is something to see.
    pub(crate) async fn heard<T>(&mut self, what: &str, mut see: impl FnMut(&str) -> Option<T>) -> T {
        let heard = async {
            loop {
                let line = self.line().await.unwrap_or_else(|| panic!("{} ended before {what}", self.name));
                if let Some(seen) = see(&line) {
                    return seen;
                }
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            eprintln!("--- {} said:\n{said}", self.name);
        }
    }
}

fn listen(
    from: impl AsyncRead + Unpin + Send + 'static,
    said: Arc<Mutex<String>>,
    heard: mpsc::UnboundedSender<String>,
) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut said = said.lock().expect("nobody panics with it");
            said.push_str(&line);
            said.push('\n');
            // The receiver has stopped reading.
            let _ = heard.send(line);
        }
    });
}
