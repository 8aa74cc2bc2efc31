//! `cargo xtask interop`: what the official SDKs of A2A and we can do with each other, as `docs/interop.md`.
//!
//! The tests leave a file for each row; this makes tables of them. Nothing in there depends on when or where they ran.
//! With `--frameworks` the frameworks that users bring are tried instead, as `docs/interop-frameworks.md`. With `--coding-agents` a
//! real coding agent is.

mod frameworks;
mod notes;
mod ours;
mod process;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::peers::{Language, Peers, Suite, target};
use crate::run;

/// The official SDKs of A2A at our server and at our client, and what each can do as `docs/interop.md`
#[derive(Debug, Args)]
pub(crate) struct Interop {
    /// Try the clients and servers of agent frameworks instead, and write `docs/interop-frameworks.md`
    #[arg(long)]
    frameworks: bool,
    /// Try a real coding agent as an agent instead; it installs about 180 MB
    #[arg(long, conflicts_with = "frameworks")]
    coding_agents: bool,
    /// Try only the framework of this name; the other rows stay as the last run left them; may be repeated
    #[arg(long, value_name = "NAME", requires = "frameworks")]
    only: Vec<String>,
}

impl Interop {
    pub(crate) fn run(self) -> Result<()> {
        if self.frameworks {
            return frameworks::run(&self.only);
        }
        if self.coding_agents {
            return coding_agents();
        }
        let peers = Peers::install(&[Suite::Interop])?;
        if let Some(language) = peers.without.first() {
            bail!(
                "{} is not installed, and the tables have rows of it: {}",
                language.name(),
                language.hint()
            );
        }
        forget()?;
        let mut tests = run::cargo(&["test", "--package", "attache", "--test", Suite::Interop.target()]);
        tests.envs(peers.environment());
        let passed = run::check(tests);
        // The tables show what fails, too.
        let document = document();
        std::fs::write(&document, render(&results()?)?)
            .with_context(|| format!("cannot write `{}`", document.display()))?;
        passed
    }
}

/// Runs the tests with a real coding agent, which every other run leaves out.
fn coding_agents() -> Result<()> {
    let suite = Suite::CodingAgents;
    let peers = Peers::install(&[suite])?;
    if peers.without.contains(&Language::Node) {
        bail!("node is not installed: {}", Language::Node.hint());
    }
    let mut tests = run::cargo(&["test", "--workspace", "--test", suite.target()]);
    tests.args(["coding_agent", "--", "--ignored"]).envs(peers.environment());
    run::check(tests)
}

/// Where tests leave what they found out.
fn folder() -> PathBuf {
    target().join("interop")
}

fn document() -> PathBuf {
    run::root().join("docs/interop.md")
}

/// Forgets what tests found out, so that what is there afterwards is what they find out next.
pub(crate) fn forget() -> Result<()> {
    let folder = folder();
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Fails if the document is not what the last run gave.
pub(crate) fn check() -> Result<()> {
    let document = document();
    let committed = std::fs::read_to_string(&document)
        .with_context(|| format!("cannot read `{}`: `cargo xtask interop` writes it", document.display()))?;
    if committed != render(&results()?)? {
        bail!("`docs/interop.md` is not what this run gave: `cargo xtask interop` writes it anew");
    }
    Ok(())
}

#[derive(Deserialize, Serialize)]
struct Row {
    /// With its version.
    sdk: String,
    binding: String,
    protocol: String,
    /// What is to be said about the whole row.
    #[serde(default)]
    note: Option<String>,
    cells: Vec<Cell>,
}

#[derive(Deserialize, Serialize)]
struct Cell {
    feature: String,
    cell: String,
    note: Option<String>,
}

/// The rows of each table, in order.
struct Results {
    clients: Vec<Row>,
    servers: Vec<Row>,
}

fn results() -> Result<Results> {
    let folder = folder();
    let rows = |table: &str| -> Result<Vec<Row>> {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read `{}`: the interop tests write it", folder.display()))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(table)) {
                files.push(path);
            }
        }
        // They are numbered.
        files.sort();
        files.iter().map(|file| read(file)).collect()
    };
    Ok(Results { clients: rows("clients-")?, servers: rows("servers-")? })
}

fn read(file: &Path) -> Result<Row> {
    let failed = || format!("cannot read `{}`", file.display());
    serde_json::from_str(&std::fs::read_to_string(file).with_context(failed)?).with_context(failed)
}

const INTRODUCTION: &str = "\
# Interoperation with the official SDKs, and with the servers published for Rust

`cargo xtask interop` runs this and writes these tables; `cargo xtask test` fails if they are not what it sees. Every cell is a
test between real programs over the network, in `crates/attache/tests/interop`.

- `pass`: it works.
- `–`: the SDK has no such thing.
- `fault`: the SDK does it wrong, and the note has the evidence. When a fault is gone, its test fails until the note is gone too.
- `fail`: it does not work, and the reason is not known.

[The tables for agent frameworks](interop-frameworks.md) are on a page of their own.
";

/// What is known about SDKs that are in no registry.
const ELSEWHERE: &str = include_str!("interop/elsewhere.md");

fn render(results: &Results) -> Result<String> {
    let mut notes: Vec<&str> = Vec::new();
    let mut text = INTRODUCTION.to_owned();
    table(&mut text, &mut notes, "SDK", "Their clients, our server", &results.clients)?;
    table(&mut text, &mut notes, "SDK", "Our client, their servers", &results.servers)?;
    text.push('\n');
    text.push_str(ELSEWHERE);
    if !notes.is_empty() {
        text.push('\n');
    }
    for (number, note) in notes.iter().enumerate() {
        writeln!(text, "[^{}]: {note}", number + 1)?;
    }
    Ok(text)
}

fn table<'a>(
    text: &mut String,
    notes: &mut Vec<&'a str>,
    kind: &str,
    title: &str,
    rows: &'a [Row],
) -> Result<()> {
    let Some(first) = rows.first() else { bail!("there is no row for the table `{title}`") };
    write!(text, "\n## {title}\n\n| {kind} | protocol | binding |")?;
    for cell in &first.cells {
        write!(text, " {} |", cell.feature)?;
    }
    write!(text, "\n|---|---|---|{}", "---|".repeat(first.cells.len()))?;
    for row in rows {
        write!(text, "\n| {} | {} | {}", row.sdk, row.protocol, row.binding)?;
        refer(text, notes, row.note.as_deref())?;
        for cell in &row.cells {
            write!(text, " | {}", cell.cell)?;
            refer(text, notes, cell.note.as_deref())?;
        }
        text.push_str(" |");
    }
    text.push('\n');
    Ok(())
}

/// Writes the number of a note, if there is one. The same note has the same number everywhere.
fn refer<'a>(text: &mut String, notes: &mut Vec<&'a str>, note: Option<&'a str>) -> Result<()> {
    let Some(note) = note else { return Ok(()) };
    let known = notes.iter().position(|known| *known == note);
    let number = known.unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    write!(text, "[^{}]", number + 1)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sdk: &str, cells: &[(&str, &str, Option<&str>)]) -> Row {
        let cell = |(feature, cell, note): &(&str, &str, Option<&str>)| Cell {
            feature: (*feature).to_owned(),
            cell: (*cell).to_owned(),
            note: note.map(str::to_owned),
        };
        let (binding, protocol) = ("JSONRPC".to_owned(), "1.0".to_owned());
        Row { sdk: sdk.to_owned(), binding, protocol, note: None, cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn the_same_note_has_the_same_number_in_both_tables() {
        let about = row("C 1", &[("send", "pass", None), ("list", "pass", None)]);
        let about = Row { note: Some("half".to_owned()), ..about };
        let results = Results {
            clients: vec![row("A 1", &[("send", "pass", None), ("list", "–", Some("none"))]), about],
            servers: vec![row("B 1", &[("send", "fault", Some("broken")), ("list", "–", Some("none"))])],
        };
        let text = render(&results).unwrap();
        assert_eq!(
            text.strip_prefix(INTRODUCTION).unwrap().replace(ELSEWHERE, "(elsewhere)\n"),
            "
## Their clients, our server

| SDK | protocol | binding | send | list |
|---|---|---|---|---|
| A 1 | 1.0 | JSONRPC | pass | –[^1] |
| C 1 | 1.0 | JSONRPC[^2] | pass | pass |

## Our client, their servers

| SDK | protocol | binding | send | list |
|---|---|---|---|---|
| B 1 | 1.0 | JSONRPC | fault[^3] | –[^1] |

(elsewhere)

[^1]: none
[^2]: half
[^3]: broken
"
        );
    }
}
