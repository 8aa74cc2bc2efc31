//! Why a store could not be opened.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a SQLite store could not be opened. The file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// Another process uses the store.
    #[error("the store at `{}` is in use by another process{}: stop that one first, or use another file", path.display(), shown_pid(*pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The id of the other process, if it is known.
        pid: Option<u32>,
    },
    /// A newer version of the program has written the store.
    #[error(
        "the store at `{}` was written by a newer version of Attaché (schema {found}, this one knows {known}): start it with that version, or export it there",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its schema.
        found: i32,
        /// The newest version that this program supports.
        known: i32,
    },
    /// The file is not a store.
    #[error("`{}` is {what}, not a store of Attaché; it was left as it is: choose another path", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What the file is instead.
        what: &'static str,
    },
    /// The file is damaged.
    #[error(
        "the store at `{}` is damaged ({problem}); it was left as it is: run `attache store check`, or restore a copy of the file",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Other users have access to the file, and this user cannot change that.
    #[error(
        "other users have access to `{}` (mode {mode:04o}), and it could not be changed ({error}): run `chmod 600` on it as its owner",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
        /// Why the mode could not be changed.
        error: io::Error,
    },
    /// There is no store at the path.
    #[error("there is no store at `{}`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The system reported an error.
    #[error("`{}` could not be {doing}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The attempted action, as a participle.
        doing: &'static str,
        /// The error.
        error: io::Error,
    },
    /// SQLite reported an error.
    #[error("the store at `{}` could not be opened: {error}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error.
        error: rusqlite::Error,
    },
}

fn shown_pid(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

impl SqliteOpenError {
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, problem: error.to_string() }
            }
            _ => Self::Sqlite { path, error },
        }
    }
}
