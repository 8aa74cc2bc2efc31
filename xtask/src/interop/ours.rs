//! Our side of the tables for frameworks: the servers that their clients talk to, and the command that talks to their servers.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::process::Process;
use crate::peers::target;
use crate::run;

const EXAMPLES: [(&str, &str); 3] =
    [("story", "streaming_agent"), ("tables", "multi_turn"), ("assistant", "custom_handler")];

/// Builds the command and the examples.
pub(super) fn build() -> Result<()> {
    let mut build = run::cargo(&["build", "--workspace", "--bin", "attache"]);
    for (_, example) in EXAMPLES {
        build.args(["--example", example]);
    }
    run::check(build)
}

fn built() -> PathBuf {
    target().join("debug")
}

/// A folder without settings, in which programs of ours run.
fn scratch() -> Result<PathBuf> {
    let folder = target().join("peers/frameworks/scratch");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    Ok(folder)
}

/// `attache serve --demo` and the examples. They end with this value.
pub(super) struct Ours {
    urls: serde_json::Map<String, serde_json::Value>,
    _processes: Vec<Process>,
    /// Where the Unix socket is.
    _folder: tempfile::TempDir,
}

/// Starts a Redis server on a free port, if it is installed. Returns its URL.
fn start_redis(folder: &Path) -> Result<Option<(Process, String)>> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let (host, port) = address.split_once(':').unwrap_or_default();
    let mut command = Command::new("redis-server");
    command.args(["--bind", host, "--port", port, "--save", "", "--dir"]).arg(folder);
    let Ok(mut process) = Process::start(command) else { return Ok(None) };
    if !answers(&address) {
        bail!("redis-server does not start: {}", process.said());
    }
    Ok(Some((process, format!("redis://{address}"))))
}

impl Ours {
    pub(super) fn start() -> Result<Self> {
        let (mut urls, mut processes) = (serde_json::Map::new(), Vec::new());
        let mut start = |name: &str, program: PathBuf, arguments: &[&str], last: &[&str]| -> Result<()> {
            let address = format!("127.0.0.1:{}", free_port()?);
            let mut command = Command::new(program);
            command.args(arguments).arg(&address).args(last);
            let home = scratch()?;
            command.current_dir(&home).env("HOME", &home).env("XDG_DATA_HOME", &home);
            let mut process = Process::start(command)?;
            if !answers(&address) {
                bail!("the server `{name}` does not start: {}", process.said());
            }
            urls.insert(name.to_owned(), json!(format!("http://{address}")));
            processes.push(process);
            Ok(())
        };
        let engine = format!("127.0.0.1:{}", free_port()?);
        // With the other transports of this machine, which must not confuse the clients. Standard input and output would need a program that
        // holds them.
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let socket = format!("unix:{}", folder.path().join("demo.sock").display());
        let redis = start_redis(folder.path())?;
        let mut rest = vec!["--store", "memory:", "--engine-listen", &engine, "--listen", &socket];
        if let Some((_, url)) = &redis {
            rest.extend(["--redis", url]);
        }
        start("demo", built().join("attache"), &["serve", "--demo", "--listen"], &rest)?;
        for (name, example) in EXAMPLES {
            start(name, built().join("examples").join(example), &[], &[])?;
        }
        processes.extend(redis.map(|(process, _)| process));
        Ok(Self { urls, _processes: processes, _folder: folder })
    }

    /// Where they are, as JSON for the clients.
    pub(super) fn urls(&self) -> String {
        serde_json::Value::Object(self.urls.clone()).to_string()
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn answers(address: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

/// The command at the server of a framework.
pub(super) mod attache {
    use serde_json::Value;

    use super::*;
    use crate::interop::frameworks::Outcome;

    /// What servers are tried with, in the order of the columns.
    pub(in crate::interop) const FEATURES: [&str; 8] =
        ["card", "send", "stream", "multi-turn", "get", "files", "data", "errors"];

    /// What the agent of every server answers to the first message; see `answer` in `common/peer.py`.
    const ANSWER: &str = "turn 1: You said: hello there";

    type Tried = Result<Outcome, String>;

    pub(in crate::interop) fn try_all(url: &str) -> Vec<(&'static str, Outcome)> {
        let attempt = |feature: &'static str| {
            let tried = match feature {
                "card" => card(url),
                "send" => send(url),
                "stream" => stream(url),
                "multi-turn" => multi_turn(url),
                "get" => get(url),
                "files" => files(url),
                "data" => data(url),
                _ => errors(url),
            };
            (feature, tried.unwrap_or_else(Outcome::Fails))
        };
        FEATURES.into_iter().map(attempt).collect()
    }

    /// The interfaces in the server's card, such as `JSONRPC 1.0`.
    pub(in crate::interop) fn interfaces(url: &str) -> Vec<String> {
        let card = succeed(&["card", url, "--json"]).ok();
        let card: Value = card.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let named = |interface: &Value| {
            let binding = interface["protocolBinding"].as_str()?;
            let version: Vec<&str> = interface["protocolVersion"].as_str()?.splitn(3, '.').take(2).collect();
            Some(format!("{binding} {}", version.join(".")))
        };
        let interfaces = card["supportedInterfaces"].as_array();
        interfaces.into_iter().flatten().filter_map(named).collect()
    }

    fn run(arguments: &[&str]) -> Result<super::super::process::Ended, String> {
        let command = || -> Result<_> {
            let mut command = Command::new(built().join("attache"));
            let home = scratch()?;
            command.args(arguments).current_dir(&home).env("HOME", &home).env("XDG_DATA_HOME", &home);
            Process::start(command)?.finish(Duration::from_secs(60))
        };
        command().map_err(|error| format!("{error:#}"))
    }

    /// What a command that must succeed prints.
    fn succeed(arguments: &[&str]) -> Result<String, String> {
        let ended = run(arguments)?;
        if ended.success { Ok(ended.output) } else { Err(ended.errors.trim().to_owned()) }
    }

    fn expect(ok: bool, what: &str, seen: &str) -> Tried {
        if ok { Ok(Outcome::Works) } else { Err(format!("{what}: got `{}`", seen.trim())) }
    }

    fn card(url: &str) -> Tried {
        let text = succeed(&["card", url, "--json"])?;
        let card: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let name = card["name"].as_str().unwrap_or_default();
        expect(name.eq_ignore_ascii_case("echo"), "the name", &text)
    }

    fn send(url: &str) -> Tried {
        let text = succeed(&["send", url, "hello there"])?;
        expect(text.trim() == ANSWER, "the answer", &text)
    }

    fn stream(url: &str) -> Tried {
        let text = succeed(&["send", url, "--stream", "hello there"])?;
        expect(text.trim() == ANSWER, "the answer", &text)
    }

    /// The answer to a first message as JSON: a task or a message.
    fn first(url: &str) -> Result<Value, String> {
        let text = succeed(&["send", url, "--json", "hello there"])?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    fn multi_turn(url: &str) -> Tried {
        let first = first(url)?;
        let context = ["task", "message"].iter().find_map(|kind| first[kind]["contextId"].as_str());
        let Some(context) = context else { return Err(format!("no context in `{first}`")) };
        let text = succeed(&["send", url, "--context", context, "and again"])?;
        expect(text.contains("turn 2: You said: and again"), "the second answer", &text)
    }

    fn get(url: &str) -> Tried {
        let first = first(url)?;
        let Some(task) = first["task"]["id"].as_str() else {
            return Ok(Outcome::Absent("The server answers with messages and keeps no tasks.".to_owned()));
        };
        let text = succeed(&["task", "get", url, task])?;
        expect(text.contains("completed") && text.contains(ANSWER), "the task", &text)
    }

    fn files(url: &str) -> Tried {
        let file = scratch().and_then(|folder| {
            let file = folder.join("note.txt");
            std::fs::write(&file, "six by")?;
            Ok(file)
        });
        let file = file.map_err(|error| format!("{error:#}"))?;
        let text = succeed(&["send", url, "--file", &file.to_string_lossy(), "look"])?;
        expect(text.contains("[file "), "the file", &text)
    }

    fn data(url: &str) -> Tried {
        let text = succeed(&["send", url, "--data", r#"{"n": 1}"#, "look"])?;
        let dense: String = text.split_whitespace().collect();
        expect(dense.contains(r#""n":1"#), "the data", &text)
    }

    fn errors(url: &str) -> Tried {
        let ended = run(&["task", "get", url, "0e0f5ee4-0000-4000-8000-000000000000"])?;
        expect(
            !ended.success && ended.errors.contains("TASK_NOT_FOUND"),
            "the error for an unknown task",
            &ended.errors,
        )
    }
}
