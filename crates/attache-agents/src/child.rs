//! What the agents that start programs have in common.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;

pub(crate) use attache_process::{LogLimit, describe, read_errors};
use attache_process::{Output, ProcessGroup};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// A program in a process group of its own, with its pipes.
pub(crate) struct Started {
    pub(crate) group: ProcessGroup,
    pub(crate) child: Child,
    pub(crate) input: ChildStdin,
    pub(crate) output: Output<ChildStdout>,
    pub(crate) errors: Output<ChildStderr>,
}

/// Starts a program with these environment variables. Without a directory, it runs in that of the server.
pub(crate) fn start(
    command: &[String],
    variables: Vec<(OsString, OsString)>,
    directory: Option<&Path>,
) -> io::Result<Started> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let mut command = attache_process::command(program.as_ref(), variables);
    command.args(arguments);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (group, mut child) = ProcessGroup::spawn(command)?;
    let missing = || io::Error::other("a pipe to the program is missing");
    let input = child.stdin.take().ok_or_else(missing)?;
    let output = group.output(child.stdout.take().ok_or_else(missing)?);
    let errors = group.output(child.stderr.take().ok_or_else(missing)?);
    Ok(Started { group, child, input, output, errors })
}

/// The longest name of a file, in bytes.
const MAX_NAME: usize = 200;

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

/// The name for a file in a folder: the given one, or one with a number in front if a file has that name. `number` is the first to try.
pub(crate) fn free_name(folder: &Path, name: &str, number: usize) -> String {
    let numbered = (number..).map(|number| format!("{number}-{name}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // Also a link to nothing counts as a file.
    let is_free = |name: &String| folder.join(name).symlink_metadata().is_err();
    names.find(is_free).unwrap_or_else(|| name.to_owned())
}
