//! `cargo xtask screens`: what the command looks like on a terminal, as `docs/screens/*.svg`.
//!
//! The real command runs on a real terminal and talks to real agents. What differs from run to run (addresses, ids and times) is
//! replaced by what does not, so that a picture changes only if what it shows does.

mod picture;
mod stable;
mod terminal;

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tempfile::TempDir;

use self::terminal::Terminal;
use crate::peers::target;
use crate::run;

/// Pictures of the command on a terminal, as `docs/screens/*.svg`
#[derive(Debug, Args)]
pub(crate) struct Screens {}

/// A picture: commands, one after the other.
struct Scene {
    name: &'static str,
    commands: &'static [Typed],
}

/// A command, and what is typed while it runs.
struct Typed {
    command: &'static str,
    /// Prompts, and what is typed after each.
    answers: &'static [(&'static str, &'static str)],
}

impl Typed {
    const fn new(command: &'static str) -> Self {
        Self { command, answers: &[] }
    }
}

const SCENES: [Scene; 4] = [
    Scene { name: "card", commands: &[Typed::new("attache card demo")] },
    Scene {
        name: "send",
        commands: &[
            Typed::new(r#"attache send demo 'demo::count {"to": 5}'"#),
            Typed::new(r#"attache send demo --skill pricing::quote --data '{"sku": "A-1", "quantity": 3}'"#),
            Typed::new(r#"attache send tables "a table please""#),
        ],
    },
    Scene {
        name: "chat",
        commands: &[Typed {
            command: "attache chat tables",
            answers: &[
                ("> ", "a table please\n"),
                ("answer> ", "4\n"),
                ("answer> ", "eight\n"),
                ("> ", "/quit\n"),
            ],
        }],
    },
    Scene {
        name: "tasks",
        commands: &[
            Typed::new(r#"attache send demo 'demo::wait {"seconds": 600}' --no-wait"#),
            Typed::new(r#"attache send demo 'demo::wait {"seconds": "many"}'"#),
            Typed::new("attache task list demo"),
        ],
    },
];

impl Screens {
    pub(crate) fn run(self) -> Result<()> {
        let build = ["build", "--package", "attache", "--bin", "attache", "--example", "multi_turn"];
        run::check(run::cargo(&build))?;
        let stage = Stage::set()?;
        let folder = run::root().join("docs/screens");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        for scene in &SCENES {
            let shown = stage.play(scene).with_context(|| format!("the screen `{}`", scene.name))?;
            let file = folder.join(format!("{}.svg", scene.name));
            std::fs::write(&file, picture::draw(&format!("attache {}", scene.name), &shown))
                .with_context(|| format!("cannot write `{}`", file.display()))?;
            eprintln!("wrote {}", file.display());
        }
        Ok(())
    }
}

/// A home directory with named agents, and the agents.
struct Stage {
    home: TempDir,
    programs: PathBuf,
    agents: Vec<Agent>,
}

/// An agent that runs until it is dropped.
struct Agent {
    process: Child,
    /// Where it is, and where it is said to be.
    address: String,
    shown: &'static str,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // There is nothing to be done about one that has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Stage {
    fn set() -> Result<Self> {
        let home = tempfile::tempdir().context("cannot make a folder")?;
        let mut stage = Self { home, programs: target().join("debug"), agents: Vec::new() };
        let demo = "attache serve --demo --store memory: --engine-listen 127.0.0.1:0 --log off --listen ADDR";
        stage.start("demo", demo, "localhost:3111")?;
        stage.start("tables", "examples/multi_turn ADDR", "localhost:8080")?;
        Ok(stage)
    }

    /// Starts an agent and gives it a name.
    fn start(&mut self, name: &str, command: &str, shown: &'static str) -> Result<()> {
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = address.context("there is no free port")?.to_string();
        let command = command.replace("ADDR", &address);
        let mut words = command.split(' ');
        let program = self.programs.join(words.next().unwrap_or_default());
        let mut serve = Command::new(&program);
        self.dress(&mut serve);
        serve.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = serve.spawn().with_context(|| format!("cannot run `{}`", program.display()))?;
        let mut agent = Agent { process, address, shown };
        while TcpStream::connect(&agent.address).is_err() {
            if let Some(status) = agent.process.try_wait()? {
                bail!("`{command}` ended instead of listening: {status}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut add = Command::new(self.programs.join("attache"));
        self.dress(&mut add);
        add.args(["agents", "add", name, &format!("http://{}", agent.address)]).stderr(Stdio::null());
        self.agents.push(agent);
        run::check(add)
    }

    /// What a command finds around it.
    fn dress(&self, command: &mut Command) {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.programs.clone()).chain(std::env::split_paths(&others));
        command.env_clear().env("HOME", self.home.path()).env("TERM", "xterm-256color");
        if let Ok(path) = std::env::join_paths(path) {
            command.env("PATH", path);
        }
    }

    /// Runs the commands of a scene, and gives what is on the screen then.
    fn play(&self, scene: &Scene) -> Result<String> {
        let mut shown = String::new();
        for Typed { command, answers } in scene.commands {
            let mut shell = Command::new("sh");
            self.dress(&mut shell);
            shell.args(["-c", command]).current_dir(self.home.path());
            let mut terminal = Terminal::start(shell)?;
            for (prompt, answer) in *answers {
                terminal.wait_for(prompt)?;
                terminal.type_in(answer)?;
            }
            let said = terminal.finish()?;
            shown.push_str(&format!("\x1b[32m$\x1b[0m {command}\r\n{said}"));
        }
        let placed =
            self.agents.iter().fold(shown, |shown, agent| shown.replace(&agent.address, agent.shown));
        Ok(stable::stable(&placed))
    }
}

/// The width of the terminal, and more rows than anything needs.
const SIZE: (u16, u16) = (96, 80);

/// What is on the screen after something was printed.
fn screen(printed: &str) -> vt100::Parser {
    let size = |number: u16| std::num::NonZero::new(number).unwrap_or(std::num::NonZero::<u16>::MIN);
    let mut screen = vt100::Parser::new(size(SIZE.1), size(SIZE.0), 0);
    screen.process(printed.as_bytes());
    screen
}
