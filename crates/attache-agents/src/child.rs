//! What the agents that start programs have in common.

pub(crate) use attache_process::{describe, read_errors};

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
