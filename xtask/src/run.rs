//! Running other commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A cargo command in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let mut command = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo's metadata")?;
    let folder = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(folder.into())
}

/// Runs a command whose output goes where ours goes.
pub(crate) fn check(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Runs a command, passing on its standard output line by line to `see` as well.
pub(crate) fn watch(mut command: Command, mut see: impl FnMut(&str)) -> Result<bool> {
    use std::io::{BufRead, BufReader};
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {command:?}"))?;
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines() {
            let line = line.context("cannot read what the command prints")?;
            eprintln!("{line}");
            see(&line);
        }
    }
    Ok(child.wait()?.success())
}
