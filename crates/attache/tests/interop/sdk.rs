//! The SDKs, and how their programs in `peers/` are started.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::peers::{self, place};

/// A version of an SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python1,
    Python0,
    Node1,
    Node0,
}

/// A binding, by the name that cards have for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    HttpJson,
    Grpc,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    V1_0,
    V0_3,
}

impl Sdk {
    pub(crate) fn language(self) -> &'static str {
        match self {
            Self::Python1 | Self::Python0 => "python",
            Self::Node1 | Self::Node0 => "node",
        }
    }

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Python1 | Self::Node1 => "1.3.0",
            Self::Python0 => "0.3.26",
            Self::Node0 => "0.3.14",
        }
    }

    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python1 | Self::Python0 => "Python",
            Self::Node1 | Self::Node0 => "JavaScript",
        }
    }

    /// Why its tests cannot be run, if they cannot.
    pub(crate) fn absent(self) -> Option<String> {
        peers::absent(self.language())
    }

    /// The command that runs its client or its server.
    pub(crate) fn program(self, role: &str) -> Command {
        let home = peers::home(&format!("a2a-{}-{}", self.language(), self.version()));
        let generation = match self {
            Self::Python1 | Self::Node1 => "1",
            Self::Python0 | Self::Node0 => "0_3",
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers");
        match self {
            Self::Python1 | Self::Python0 => {
                let mut command = Command::new(home.join("bin/python"));
                command.arg(folder.join(format!("python/{role}_{generation}.py")));
                // Without them nothing is left beside the sources.
                command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONWARNINGS", "ignore");
                command
            }
            Self::Node1 | Self::Node0 => {
                // Packages are looked for beside the file that imports them.
                for file in modules(&folder.join("node")) {
                    place(&file, &home.join(file.file_name().expect("a file has a name")));
                }
                let mut command = Command::new("node");
                command.arg(home.join(format!("{role}_{generation}.mjs")));
                command
            }
        }
    }
}

fn modules(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("it can be read").path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "mjs")).collect()
}

impl Binding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_0 => "1.0",
            Self::V0_3 => "0.3",
        }
    }
}
