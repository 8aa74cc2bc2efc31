//! What the tests need from elsewhere: the SDKs of iii and of A2A in their versions, an authorization server, MCP servers, coding
//! agents and a model endpoint, each where only the tests look for it.
//!
//! Everything comes from the public registries of its language, in versions that are written down beside the programs that use them.
//! What is there already is left alone: a stamp holds what was installed, and something else wanted means once more.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::run;

/// What was installed, and what could not be.
pub(crate) struct Peers {
    folder: PathBuf,
    /// The languages that this machine does not have.
    pub(crate) without: Vec<Language>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
    Rust,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Rust => "rust",
        }
    }

    /// How to get it.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Python => "install Python 3.10 or later with its `venv` module",
            Self::Node => "install Node.js 20 or later with npm",
            Self::Rust => "install Rust from https://rustup.rs",
        }
    }

    fn is_here(self) -> bool {
        match self {
            Self::Python => answers("python3"),
            Self::Node => answers("node") && answers("npm"),
            Self::Rust => true,
        }
    }
}

/// Installs the Debian package of the Redis server if there is none. Without the rights for that, its tests are skipped, and a line states
/// why.
fn provide_redis() {
    if answers("redis-server") {
        return;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        quietly(command)
    };
    let install = || apt(&["install", "--yes", "--quiet", "--no-install-recommends", "redis-server"]);
    // A fresh machine has no lists of packages.
    let installed = install().or_else(|_| apt(&["update", "--quiet"]).and_then(|()| install()));
    if let Err(error) = installed {
        eprintln!(
            "    redis-server is not installed: install its Debian package, or Redis 6.2 or later ({error})"
        );
    }
}

fn answers(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Tests that need something installed, by the name of their target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// Workers of the iii SDKs at the embedded engine.
    Iii,
    /// Clients and servers of the A2A SDKs.
    Interop,
    /// Logging in at an authorization server.
    OAuth,
    /// MCP servers as agents.
    Mcp,
    /// Coding agents that are written with the SDK of ACP.
    Acp,
    /// Language models behind endpoints of others.
    Model,
    /// Clients of the transports beside HTTP.
    Transports,
    /// Peers over Redis Streams.
    Redis,
    /// A real coding agent, for Linux on x86-64. It is large, so only `cargo xtask interop --coding-agents` installs it.
    CodingAgents,
}

impl Suite {
    /// The suites of every test run.
    pub(crate) const ALL: [Self; 8] = [
        Self::Iii,
        Self::Interop,
        Self::OAuth,
        Self::Mcp,
        Self::Acp,
        Self::Model,
        Self::Transports,
        Self::Redis,
    ];

    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Iii => "iii",
            Self::Interop => "interop",
            Self::OAuth => "oauth",
            Self::Mcp => "mcp",
            Self::Acp | Self::CodingAgents => "acp",
            Self::Model => "model",
            Self::Transports => "transports",
            Self::Redis => "redis",
        }
    }

    /// The package that its target belongs to.
    fn package(self) -> &'static str {
        match self {
            Self::Iii | Self::Interop | Self::OAuth | Self::Transports | Self::Redis => "attache",
            Self::Mcp | Self::Acp | Self::Model | Self::CodingAgents => "attache-agents",
        }
    }

    fn sdk(self) -> &'static str {
        match self {
            Self::Iii => "iii SDK",
            Self::Interop => "A2A SDK",
            Self::OAuth => "oidc-provider",
            Self::Mcp => "MCP servers",
            Self::Acp => "ACP SDK",
            Self::Model => "aimock",
            Self::CodingAgents => "OpenCode",
            Self::Transports => "clients of transports",
            Self::Redis => "redis",
        }
    }

    /// Where the programs of its peers are.
    fn programs(self) -> PathBuf {
        let tests = run::root().join("crates").join(self.package()).join("tests");
        match self {
            Self::Iii => tests.join("iii/workers"),
            Self::Interop => tests.join("interop/peers"),
            Self::OAuth => tests.join("oauth/peers"),
            Self::Mcp => tests.join("mcp/peers"),
            Self::Acp | Self::CodingAgents => tests.join("acp/peers"),
            Self::Model => tests.join("model/peers"),
            Self::Transports => tests.join("transports/peers"),
            Self::Redis => tests.join("redis/peers"),
        }
    }
}

/// An installation, and the file beside the programs that says what to install.
struct Sdk {
    suite: Suite,
    language: Language,
    /// All versions for Rust are built together, because they share most of what they need.
    versions: &'static str,
    folder: &'static str,
    recipe: &'static str,
}

const SDKS: [Sdk; 19] = [
    Sdk::new(Suite::Iii, Language::Python, "0.11.6", "python-0.11.6", "python/requirements-0.11.6.txt"),
    Sdk::new(Suite::Iii, Language::Python, "0.25.0", "python-0.25.0", "python/requirements-0.25.0.txt"),
    Sdk::new(Suite::Iii, Language::Node, "0.11.6", "node-0.11.6", "node/0.11.6/package-lock.json"),
    Sdk::new(Suite::Iii, Language::Node, "0.22.1", "node-0.22.1", "node/0.22.1/package-lock.json"),
    Sdk::new(Suite::Iii, Language::Rust, "0.11.3, 0.25.0 and 0.26.0-rc.4", "rust", "rust/Cargo.lock"),
    Sdk::new(Suite::Interop, Language::Python, "1.3.0", "a2a-python-1.3.0", "python/requirements-1.3.0.txt"),
    Sdk::new(
        Suite::Interop,
        Language::Python,
        "0.3.26",
        "a2a-python-0.3.26",
        "python/requirements-0.3.26.txt",
    ),
    Sdk::new(
        Suite::Interop,
        Language::Python,
        "fasta2a 2.1.1",
        "fasta2a-2.1.1",
        "python/requirements-fasta2a-2.1.1.txt",
    ),
    Sdk::new(Suite::Interop, Language::Node, "1.3.0", "a2a-node-1.3.0", "node/1.3.0/package-lock.json"),
    Sdk::new(Suite::Interop, Language::Node, "0.3.14", "a2a-node-0.3.14", "node/0.3.14/package-lock.json"),
    Sdk::new(
        Suite::Interop,
        Language::Rust,
        "a2a-server-lf 0.5.3, a2a-rs-server 1.0.26 and a2a-protocol-server 0.15.0",
        "a2a-rust",
        "rust/Cargo.lock",
    ),
    Sdk::new(Suite::OAuth, Language::Node, "8.8.1", "oidc-provider-8.8.1", "node/package-lock.json"),
    Sdk::new(Suite::Mcp, Language::Node, "2026.8.31", "mcp-node-2026.8.31", "node/package-lock.json"),
    Sdk::new(Suite::Mcp, Language::Python, "2026.10.19", "mcp-python-2026.10.19", "python/requirements.txt"),
    Sdk::new(Suite::Acp, Language::Node, "2.4.0", "acp-node-2.4.0", "node/package-lock.json"),
    Sdk::new(Suite::Model, Language::Node, "1.43.0", "aimock-1.43.0", "node/package-lock.json"),
    Sdk::new(
        Suite::CodingAgents,
        Language::Node,
        "1.18.33",
        "opencode-1.18.33",
        "opencode/package-lock.json",
    ),
    Sdk::new(
        Suite::Transports,
        Language::Python,
        "websockets 17.4 and grpcio 1.85.1",
        "transports-python",
        "python/requirements.txt",
    ),
    Sdk::new(Suite::Redis, Language::Python, "8.1.0", "redis-python-8.1.0", "python/requirements.txt"),
];

impl Peers {
    /// Installs what some suites need and is not there.
    pub(crate) fn install(suites: &[Suite]) -> Result<Self> {
        let folder = target().join("peers");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        let languages = [Language::Python, Language::Node, Language::Rust];
        let without: Vec<Language> = languages.into_iter().filter(|language| !language.is_here()).collect();
        if suites.contains(&Suite::Redis) {
            provide_redis();
        }
        let wanted =
            SDKS.iter().filter(|sdk| suites.contains(&sdk.suite) && !without.contains(&sdk.language));
        // The ones that wait for the network do so beside each other and beside the ones that keep the compiler busy.
        thread::scope(|scope| {
            let mut installing = Vec::new();
            for language in languages {
                let sdks: Vec<&Sdk> = wanted.clone().filter(|sdk| sdk.language == language).collect();
                let folder = &folder;
                installing
                    .push(scope.spawn(move || sdks.into_iter().try_for_each(|sdk| sdk.provide(folder))));
            }
            installing.into_iter().try_for_each(|language| match language.join() {
                Ok(installed) => installed,
                Err(_) => Err(anyhow!("an installation panicked")),
            })
        })?;
        Ok(Self { folder, without })
    }

    /// Where tests find it.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let without: Vec<&str> = self.without.iter().map(|language| language.name()).collect();
        [
            ("ATTACHE_PEERS", self.folder.clone().into_os_string()),
            ("ATTACHE_PEERS_WITHOUT", without.join(",").into()),
        ]
    }
}

impl Sdk {
    const fn new(
        suite: Suite,
        language: Language,
        versions: &'static str,
        folder: &'static str,
        recipe: &'static str,
    ) -> Self {
        Self { suite, language, versions, folder, recipe }
    }

    fn provide(&self, peers: &Path) -> Result<()> {
        let (sdk, language, versions) = (self.suite.sdk(), self.language.name(), self.versions);
        let recipe = self.suite.programs().join(self.recipe);
        let home = peers.join(self.folder);
        let stamp = home.join("installed");
        let wanted = std::fs::read_to_string(&recipe)
            .with_context(|| format!("cannot read `{}`", recipe.display()))?;
        // What is in Rust is built anew when it has changed, and cargo is the one to tell.
        let there = std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted);
        if there && self.language != Language::Rust {
            return Ok(());
        }
        let began = Instant::now();
        if !there {
            eprintln!("    {sdk} {versions} for {language} …");
        }
        let installed = match self.language {
            Language::Python => install_python(&recipe, &home),
            Language::Node => install_node(&recipe, &home),
            Language::Rust => build_rust(&recipe, &home),
        };
        let failed = || format!("cannot install {sdk} {versions} for {language} into `{}`", home.display());
        installed.with_context(failed)?;
        if !there {
            std::fs::write(&stamp, wanted).with_context(failed)?;
            eprintln!("    {sdk} {versions} for {language}: {} s", began.elapsed().as_secs());
        }
        Ok(())
    }
}

pub(crate) fn install_python(recipe: &Path, home: &Path) -> Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(home);
    quietly(venv).context(Language::Python.hint())?;
    let mut pip = Command::new(home.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(recipe);
    quietly(pip)
}

pub(crate) fn install_node(recipe: &Path, home: &Path) -> Result<()> {
    std::fs::create_dir_all(home)?;
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(recipe.with_file_name(file), home.join(file))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(home);
    quietly(npm)
}

fn build_rust(recipe: &Path, home: &Path) -> Result<()> {
    let mut build = run::cargo(&["build", "--locked", "--quiet"]);
    build.arg("--manifest-path").arg(recipe.with_file_name("Cargo.toml")).arg("--target-dir").arg(home);
    // The system's OpenSSL, where there is one, does not have to be compiled.
    let mut ask = Command::new("pkg-config");
    ask.args(["--exists", "openssl"]);
    if quietly(ask).is_ok() {
        build.env("OPENSSL_NO_VENDOR", "1");
    }
    quietly(build)
}

/// Runs a command, and shows what it prints only if it fails.
pub(crate) fn quietly(mut command: Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{command:?} failed: {}\n{}", output.status, String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    run::root().join(chosen.unwrap_or_else(|| "target".into()))
}
