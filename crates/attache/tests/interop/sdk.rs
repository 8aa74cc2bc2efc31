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
    /// The crate `a2a-server-lf`, of the project that the protocol belongs to.
    RustLf,
    /// The crate `a2a-rs-server`.
    RustRs,
    /// The crate `a2a-protocol-server`.
    RustProtocol,
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
            Self::RustLf | Self::RustRs | Self::RustProtocol => "rust",
        }
    }

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Python1 | Self::Node1 => "1.3.0",
            Self::Python0 => "0.3.26",
            Self::Node0 => "0.3.14",
            Self::RustLf => "0.5.3",
            Self::RustRs => "1.0.26",
            Self::RustProtocol => "0.15.0",
        }
    }

    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python1 | Self::Python0 => "Python",
            Self::Node1 | Self::Node0 => "JavaScript",
            Self::RustLf => "a2a-server-lf",
            Self::RustRs => "a2a-rs-server",
            Self::RustProtocol => "a2a-protocol-server",
        }
    }

    /// What people call it, with the version, and with the language if that is not its name.
    pub(crate) fn title(self) -> String {
        let (name, version) = (self.name(), self.version());
        match self {
            Self::Python1 | Self::Python0 | Self::Node1 | Self::Node0 => format!("{name} {version}"),
            Self::RustLf | Self::RustRs | Self::RustProtocol => format!("{name} {version} (Rust)"),
        }
    }

    /// Why its tests cannot be run, if they cannot.
    pub(crate) fn absent(self) -> Option<String> {
        peers::absent(self.language())
    }

    /// The command that runs its client or its server.
    pub(crate) fn program(self, role: &str) -> Command {
        match self {
            Self::Python1 => self.python(&format!("{role}_1.py")),
            Self::Python0 => self.python(&format!("{role}_0_3.py")),
            Self::Node1 => self.node(&format!("{role}_1.mjs")),
            Self::Node0 => self.node(&format!("{role}_0_3.mjs")),
            Self::RustLf => built(&format!("a2a-lf-{role}")),
            Self::RustRs => built(&format!("a2a-rs-{role}")),
            Self::RustProtocol => built(&format!("a2a-protocol-{role}")),
        }
    }

    fn home(self) -> PathBuf {
        peers::home(&format!("a2a-{}-{}", self.language(), self.version()))
    }

    fn python(self, program: &str) -> Command {
        let mut command = Command::new(self.home().join("bin/python"));
        command.arg(programs("python").join(program));
        // Without them nothing is left beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONWARNINGS", "ignore");
        command
    }

    fn node(self, program: &str) -> Command {
        // Packages are looked for beside the file that imports them.
        for file in modules(&programs("node")) {
            place(&file, &self.home().join(file.file_name().expect("a file has a name")));
        }
        let mut command = Command::new("node");
        command.arg(self.home().join(program));
        command
    }
}

/// A program in Rust. They share most of what they need, and are built together.
fn built(program: &str) -> Command {
    Command::new(peers::home("a2a-rust").join("debug").join(program))
}

fn programs(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers").join(language)
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
