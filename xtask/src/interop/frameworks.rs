//! `cargo xtask interop --frameworks`: the clients and servers of agent frameworks, as `docs/interop-frameworks.md`.
//!
//! Their clients talk to `attache serve --demo` and to examples, `attache` talks to their servers. The programs that use the
//! frameworks are in `crates/attache/tests/interop/frameworks`, in a folder for each, with the versions to install. A framework
//! that cannot be installed or does not start has a row with the reason.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::ours::{Ours, attache, build};
use super::process::Process;
use super::{Cell, Row, notes, read, table};
use crate::peers::{Language, install_node, install_python, quietly, target};
use crate::run;

/// How long a client may take for all features, and a server until it listens.
const PATIENCE: Duration = Duration::from_secs(600);

/// A framework: a folder with its programs.
pub(super) struct Framework {
    pub(super) folder: &'static str,
    /// With its version.
    title: &'static str,
    language: Language,
    has_client: bool,
    has_server: bool,
}

const FRAMEWORKS: [Framework; 13] = [
    Framework::both("adk", "Google ADK 2.13.0", Language::Python),
    Framework::both("adk-js", "Google ADK 2.0.0 for JavaScript", Language::Node),
    Framework::both("pydantic-ai", "Pydantic AI 2.66.0 with fasta2a 2.1.1", Language::Python),
    Framework::both("agent-framework", "Microsoft Agent Framework, a2a 1.0.0b261022", Language::Python),
    Framework::server("langgraph", "LangGraph, langgraph-api 0.16.7", Language::Python),
    Framework::both("strands", "Strands Agents 1.62.0", Language::Python),
    Framework::both("crewai", "CrewAI 1.15.30", Language::Python),
    Framework::both("ag2", "AG2 1.2.1", Language::Python),
    Framework::both("beeai", "BeeAI 0.1.85", Language::Python),
    Framework::both("agno", "Agno 3.1.10", Language::Python),
    Framework::client("vercel", "Vercel AI SDK 6.0.326 with a2a-ai-provider 0.5.0-alpha.1", Language::Node),
    Framework::both("python-a2a", "python-a2a 0.5.10", Language::Python),
    Framework::client("a2acli", "a2acli 0.4.5", Language::Rust),
];

/// What clients are tried with, in the order of the columns; `common/peer.py` says how.
const CLIENT_FEATURES: [&str; 7] =
    ["card", "send", "direct message", "stream", "multi-turn", "files", "data"];

/// What became of a feature.
pub(super) enum Outcome {
    Works,
    Absent(String),
    Fails(String),
}

/// The side of a framework that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Framework {
    const fn both(folder: &'static str, title: &'static str, language: Language) -> Self {
        Self { folder, title, language, has_client: true, has_server: true }
    }

    const fn client(folder: &'static str, title: &'static str, language: Language) -> Self {
        Self { folder, title, language, has_client: true, has_server: false }
    }

    const fn server(folder: &'static str, title: &'static str, language: Language) -> Self {
        Self { folder, title, language, has_client: false, has_server: true }
    }

    fn programs(&self) -> PathBuf {
        programs().join(self.folder)
    }

    fn home(&self) -> PathBuf {
        target().join("peers/frameworks").join(self.folder)
    }

    /// Installs it, unless what is there is what is wanted.
    fn install(&self) -> Result<()> {
        let (home, programs) = (self.home(), self.programs());
        let recipe = match self.language {
            Language::Python => programs.join("requirements.txt"),
            Language::Node => programs.join("package-lock.json"),
            Language::Rust => programs.join("version.txt"),
        };
        let wanted = std::fs::read_to_string(&recipe)
            .with_context(|| format!("cannot read `{}`", recipe.display()))?;
        let stamp = home.join("installed");
        if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        eprintln!("    installing {} …", self.title);
        match self.language {
            Language::Python => install_python(&recipe, &home)?,
            Language::Node => install_node(&recipe, &home)?,
            Language::Rust => {
                let mut install = run::cargo(&["install", "--quiet", "--locked", "--debug", "--force"]);
                install.arg(format!("a2a-cli@{}", wanted.trim())).arg("--root").arg(&home);
                install.arg("--target-dir").arg(home.join("target"));
                quietly(install)?;
            }
        }
        std::fs::write(&stamp, wanted).with_context(|| format!("cannot write `{}`", stamp.display()))
    }

    /// The command that runs its client or its server, with the programs of today beside the installation.
    fn program(&self, role: &str) -> Result<Command> {
        let place = self.home().join("programs");
        copy(&programs().join("common"), &place)?;
        copy(&self.programs(), &place)?;
        let mut command = match self.language {
            Language::Python => {
                let mut command = Command::new(self.home().join("bin/python"));
                command.arg(format!("{role}.py"));
                command
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.arg(format!("{role}.mjs"));
                command
            }
            Language::Rust => {
                let mut command = Command::new("python3");
                command.arg(format!("{role}.py")).env("A2ACLI", self.home().join("bin/a2acli"));
                command
            }
        };
        command.current_dir(place).env("PYTHONWARNINGS", "ignore");
        // No framework reports to anyone that it was tried.
        command.env("CREWAI_DISABLE_TELEMETRY", "true").env("OTEL_SDK_DISABLED", "true");
        command.env("CREWAI_TRACING_ENABLED", "false").env("LANGSMITH_TRACING", "false");
        Ok(command)
    }

    /// Lets its client try everything at our servers.
    fn try_client(&self, ours: &Ours) -> Result<Tried> {
        let mut command = self.program("client")?;
        command.arg(ours.urls()).args(CLIENT_FEATURES);
        let mut process = Process::start(command)?;
        let until = Instant::now() + PATIENCE;
        let (mut outcomes, mut interfaces) = (Vec::new(), Vec::new());
        while let Some(line) = process.line(until) {
            // Other lines are the framework's own.
            let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
            if let Some(used) = said["interfaces"].as_array() {
                interfaces.extend(used.iter().filter_map(Value::as_str).map(str::to_owned));
                break;
            }
            let Some(feature) = CLIENT_FEATURES.into_iter().find(|feature| said["feature"] == **feature)
            else {
                continue;
            };
            let detail = said["detail"].as_str().unwrap_or_default().to_owned();
            let outcome = match (&said["ok"], &said["absent"]) {
                (Value::Bool(true), _) => Outcome::Works,
                (_, Value::Bool(true)) => Outcome::Absent(detail),
                _ => Outcome::Fails(detail),
            };
            outcomes.push((feature, outcome));
        }
        if outcomes.len() < CLIENT_FEATURES.len() {
            let end = if Instant::now() < until { "ended early" } else { "took too long" };
            bail!("the client {end}: {}", last_line(&process.said()));
        }
        Ok(Tried { outcomes, interfaces })
    }

    /// Tries everything at its server with our command.
    fn try_server(&self) -> Result<Tried> {
        let mut process = Process::start(self.program("server")?)?;
        let until = Instant::now() + PATIENCE;
        let url = loop {
            let Some(line) = process.line(until) else {
                bail!("the server does not start: {}", last_line(&process.said()));
            };
            let said = serde_json::from_str::<Value>(&line).unwrap_or_default();
            if let Some(url) = said["listening"].as_str() {
                break url.to_owned();
            }
        };
        Ok(Tried { outcomes: attache::try_all(&url), interfaces: attache::interfaces(&url) })
    }

    fn row(&self, side: Side, tried: Result<Tried>) -> Row {
        let features: &[&'static str] = match side {
            Side::Client => &CLIENT_FEATURES,
            Side::Server => &attache::FEATURES,
        };
        let tried = tried.unwrap_or_else(|error| {
            let said = format!("{error:#}");
            let outcomes = features.iter().map(|feature| (*feature, Outcome::Fails(said.clone())));
            Tried { outcomes: outcomes.collect(), interfaces: Vec::new() }
        });
        let cells = tried.outcomes.into_iter().map(|(feature, outcome)| {
            let (cell, note) = notes::cell(self.folder, side, feature, outcome);
            eprintln!(
                "    {:16} {side:?} {feature:14} {cell} {}",
                self.folder,
                note.as_deref().unwrap_or("")
            );
            Cell { feature: feature.to_owned(), cell: cell.to_owned(), note }
        });
        let cells = cells.collect();
        let (bindings, versions): (Vec<&str>, Vec<&str>) =
            tried.interfaces.iter().filter_map(|interface| interface.split_once(' ')).unzip();
        Row {
            sdk: self.title.to_owned(),
            binding: once(&bindings),
            protocol: once(&versions),
            note: None,
            cells,
        }
    }
}

impl Framework {
    fn has(&self, side: Side) -> bool {
        match side {
            Side::Client => self.has_client,
            Side::Server => self.has_server,
        }
    }

    /// Where the row of the last run is.
    fn kept(&self, side: Side) -> PathBuf {
        let side = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        target().join("interop-frameworks").join(format!("{}-{side}.json", self.folder))
    }

    fn keep(&self, side: Side, row: &Row) -> Result<()> {
        let file = self.kept(side);
        let failed = || format!("cannot write `{}`", file.display());
        std::fs::create_dir_all(file.parent().unwrap_or(&file)).with_context(failed)?;
        std::fs::write(&file, serde_json::to_vec(row)?).with_context(failed)
    }
}

struct Tried {
    outcomes: Vec<(&'static str, Outcome)>,
    /// Such as `JSONRPC 1.0`.
    interfaces: Vec<String>,
}

/// Tries the frameworks. The rows of those that are not tried stay as the last run left them, and the document is written when
/// there are rows for all.
pub(super) fn run(only: &[String]) -> Result<()> {
    for name in only {
        if !FRAMEWORKS.iter().any(|framework| framework.folder == name) {
            let names: Vec<&str> = FRAMEWORKS.iter().map(|framework| framework.folder).collect();
            bail!("there is no framework `{name}`; there are {}", names.join(", "));
        }
    }
    build()?;
    let ours = Ours::start()?;
    for framework in &FRAMEWORKS {
        if !only.is_empty() && !only.iter().any(|name| name == framework.folder) {
            continue;
        }
        eprintln!("{}", framework.title);
        let installed = framework.install();
        let ready = || installed.as_ref().map_err(|error| anyhow::anyhow!("not installed: {error:#}"));
        if framework.has_client {
            let tried = ready().and_then(|()| framework.try_client(&ours));
            framework.keep(Side::Client, &framework.row(Side::Client, tried))?;
        }
        if framework.has_server {
            let tried = ready().and_then(|()| framework.try_server());
            framework.keep(Side::Server, &framework.row(Side::Server, tried))?;
        }
    }
    let (Some(clients), Some(servers)) = (kept(Side::Client)?, kept(Side::Server)?) else {
        bail!("the document is not written: some frameworks were never tried here, so leave out `--only`");
    };
    let document = run::root().join("docs/interop-frameworks.md");
    std::fs::write(&document, render(&clients, &servers)?)
        .with_context(|| format!("cannot write `{}`", document.display()))
}

/// The rows of a table, if all frameworks were tried.
fn kept(side: Side) -> Result<Option<Vec<Row>>> {
    let frameworks = FRAMEWORKS.iter().filter(|framework| framework.has(side));
    let files: Vec<PathBuf> = frameworks.map(|framework| framework.kept(side)).collect();
    if files.iter().any(|file| !file.exists()) {
        return Ok(None);
    }
    files.iter().map(|file| read(file)).collect::<Result<_>>().map(Some)
}

const INTRODUCTION: &str = "\
# Interoperation with agent frameworks

`cargo xtask interop --frameworks` runs this and writes these tables. The frameworks are large, so that `cargo xtask test` does not
install them. What they send and expect has small tests of its own that always run. The models of all agents are scripted. The
programs and the versions are in `crates/attache/tests/interop/frameworks`.

- `pass`: it works.
- `–`: the framework has no such thing.
- `fault`: the framework does it wrong, and the note has the evidence.
- `fail`: it does not work, and the note has what was seen.

The .NET, Go, Java and Swift SDKs are in none of the registries that these tests install from. [What their public tests
say about their messages](interop.md#sdks-that-are-not-in-the-tables) is compared with ours.

Each client talks to `attache serve --demo` and to the examples `streaming_agent`, `multi_turn` and `custom_handler`, with the cards as
these come, and over the binding that it picks itself. `attache send`, `card` and `task get` talk to each server.
";

fn render(clients: &[Row], servers: &[Row]) -> Result<String> {
    let mut notes: Vec<&str> = Vec::new();
    let mut text = INTRODUCTION.to_owned();
    for (title, rows) in [("Their clients, our server", clients), ("Our client, their servers", servers)] {
        table(&mut text, &mut notes, "framework", title, rows)?;
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for (number, note) in notes.iter().enumerate() {
        writeln!(text, "[^{}]: {note}", number + 1)?;
    }
    Ok(text)
}

fn programs() -> PathBuf {
    run::root().join("crates/attache/tests/interop/frameworks")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy `{}` to `{}`", from.display(), to.display());
    std::fs::create_dir_all(to).with_context(failed)?;
    for entry in std::fs::read_dir(from).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_type().with_context(failed)?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).with_context(failed)?;
        }
    }
    Ok(())
}

/// The different ones, in order.
fn once(words: &[&str]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for word in words {
        if !seen.contains(word) {
            seen.push(word);
        }
    }
    if seen.is_empty() { "–".to_owned() } else { seen.join(", ") }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_framework_has_its_programs_and_its_versions() {
        for framework in &FRAMEWORKS {
            let (recipe, suffix) = match framework.language {
                Language::Python => ("requirements.txt", "py"),
                Language::Node => ("package-lock.json", "mjs"),
                Language::Rust => ("version.txt", "py"),
            };
            for (wanted, file) in [
                (true, recipe.to_owned()),
                (framework.has_client, format!("client.{suffix}")),
                (framework.has_server, format!("server.{suffix}")),
            ] {
                let file = framework.programs().join(file);
                assert_eq!(file.exists(), wanted, "{}", file.display());
            }
        }
    }

    #[test]
    fn an_interface_that_was_used_twice_is_named_once() {
        assert_eq!(once(&["1.0", "0.3", "1.0"]), "1.0, 0.3");
        assert_eq!(once(&[]), "–");
    }
}
