//! A server under measurement: a child process on its own core, with its workers if it has any, and what it has used so far.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use attache::store::StoreUrl;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::net::TcpStream;

use crate::bare::DataAs;
use crate::connection::{ask, excerpt};
use crate::machine::{self, Cores};
use crate::requests::Request;
use crate::staff::Staff;
use crate::worker::Crowd;

const START_LIMIT: Duration = Duration::from_secs(15);

/// How to start the subject: a program and its arguments, to which `--listen ADDR` is appended, and for some works `--store STORE`.
#[derive(Clone, Debug)]
pub(crate) struct SubjectCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

impl SubjectCommand {
    /// Our own server, linked into this program.
    pub(crate) fn this_program() -> Result<Self> {
        Ok(Self { program: this_program()?, arguments: vec!["serve".into(), "subject".into()] })
    }

    /// A path to a program, or a path followed by arguments.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        if Path::new(line).is_file() {
            return Ok(Self { program: line.into(), arguments: Vec::new() });
        }
        let mut words = line.split_whitespace();
        let program = words.next().context("`--subject` names no program")?;
        if !Path::new(program).is_file() {
            bail!("the subject `{program}` is not a file");
        }
        Ok(Self { program: program.into(), arguments: words.map(str::to_owned).collect() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }
}

impl std::fmt::Display for SubjectCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// A running server. It is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    cores: Cores,
    started: Instant,
    workers: Option<Staff>,
}

impl Server {
    /// Starts the subject, on `store` if one is named, and waits until it accepts connections.
    pub(crate) async fn subject(
        how: &SubjectCommand,
        store: Option<&StoreUrl>,
        cores: Cores,
    ) -> Result<Self> {
        let mut command = how.command();
        if let Some(store) = store {
            command.arg("--store").arg(store.to_os_string());
        }
        Self::start(command, cores).await.with_context(|| format!("starting the subject, `{how}`"))
    }

    /// Starts our own subject with these arguments besides, and waits until it accepts connections.
    pub(crate) async fn subject_with(arguments: &[&str], cores: Cores) -> Result<Self> {
        let mut command = Command::new(this_program()?);
        command.args(["serve", "subject"]).args(arguments);
        Self::start(command, cores).await.context("starting the subject")
    }

    /// Starts the bare server and waits until it accepts connections.
    pub(crate) async fn bare(data: DataAs, cores: Cores) -> Result<Self> {
        let mut command = Command::new(this_program()?);
        let data = match data {
            DataAs::Tree => "tree",
            DataAs::Raw => "raw",
        };
        command.args(["serve", "bare", "--data", data]);
        Self::start(command, cores).await.context("starting the bare server")
    }

    /// Starts a gateway and its workers and waits until every function is a skill in its card.
    pub(crate) async fn gateway(crowd: Crowd, cores: Cores) -> Result<Self> {
        let engine = free_address()?;
        let mut command = Command::new(this_program()?);
        command.args(["serve", "gateway", "--engine-listen", &engine.to_string()]);
        let mut server = Self::start(command, cores).await.context("starting the gateway")?.asleep();
        let workers = Staff::start(&this_program()?, engine, crowd).context("starting the workers")?;
        server.workers = Some(workers);
        server.wait_for_skills(crowd.functions).await.context("waiting for the workers")?;
        Ok(server)
    }

    /// Starts our server with one of the ready-made agents and waits until it accepts connections. The load generator sleeps while it
    /// waits, since what the agent calls is on its core.
    pub(crate) async fn agent(arguments: &[&str], cores: Cores) -> Result<Self> {
        let mut command = Command::new(this_program()?);
        command.args(["serve", "agent"]).args(arguments);
        Ok(Self::start(command, cores).await.context("starting the agent")?.asleep())
    }

    /// Starts our own subject on the core of the load generator, and waits until it accepts connections: the place of a server that an
    /// agent under measurement [calls](Self::called).
    pub(crate) async fn beside_the_load(cores: Cores) -> Result<Self> {
        let mut command = Command::new(this_program()?);
        command.args(["serve", "subject"]);
        let (address, started) = (listen_on_free_address(&mut command)?, Instant::now());
        let server = Self { child: command.spawn()?, address, cores, started, workers: None };
        Ok(server.until_it_listens().await.context("starting the subject")?.asleep())
    }

    /// Starts a server that an agent under measurement calls, on the core of the load generator, and waits until it accepts
    /// connections. `arguments` follow `serve`.
    pub(crate) async fn called(arguments: &[&str]) -> Result<(Staff, SocketAddr)> {
        let address = free_address()?;
        let mut command = Command::new(this_program()?);
        command.arg("serve").args(arguments).arg("--listen").arg(address.to_string());
        let called = Staff::spawn(command).with_context(|| format!("starting `{}`", arguments.join(" ")))?;
        let begun = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            called.check()?;
            if begun.elapsed() > START_LIMIT {
                bail!(
                    "`{}` does not listen on {address} after {} s",
                    arguments.join(" "),
                    START_LIMIT.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok((called, address))
    }

    /// Counts `called` as a worker of this server, so that its processor time is not that of others.
    pub(crate) fn with_called(mut self, called: Staff) -> Self {
        self.workers = Some(called);
        self
    }

    /// Has the load generator sleep while it waits for this server: as it must for those it is compared with.
    pub(crate) fn asleep(mut self) -> Self {
        self.cores.awake = false;
        self
    }

    async fn wait_for_skills(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let shown = skills(&ask(self.address, &Request::card()).await?)?;
            if shown == count {
                return Ok(());
            }
            self.check_workers()?;
            if begun.elapsed() > START_LIMIT {
                bail!("the card has {shown} of {count} functions after {} s", START_LIMIT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn start(mut command: Command, cores: Cores) -> Result<Self> {
        let (address, started) = (listen_on_free_address(&mut command)?, Instant::now());
        let child = machine::on_the_server_core(cores, async { command.spawn() }).await??;
        Self { child, address, cores, started, workers: None }.until_it_listens().await
    }

    async fn until_it_listens(mut self) -> Result<Self> {
        let address = self.address;
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}) instead of listening on {address}");
            }
            if self.age() > START_LIMIT {
                bail!("it does not listen on {address} after {} s", START_LIMIT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(self)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time since its process was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The cores it shares with the load generator.
    pub(crate) fn cores(&self) -> Cores {
        self.cores
    }

    /// Processor time used so far, in user and system mode, over all threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        cpu_time_of(&self.child.id().to_string())
    }

    /// Processor time its workers have used so far, if it has any.
    pub(crate) fn workers_cpu_time(&self) -> Result<Option<Duration>> {
        self.workers.as_ref().map(|workers| cpu_time_of(&workers.id().to_string())).transpose()
    }

    /// Fails, with what they said, if there should be workers and are none.
    pub(crate) fn check_workers(&self) -> Result<()> {
        self.workers.as_ref().map_or(Ok(()), Staff::check)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("reading `{path}`"))?;
        resident_kib(&status).with_context(|| format!("`{path}` has no VmRSS"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails only when the server has already ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Processor time this process has used so far.
pub(crate) fn own_cpu_time() -> Result<Duration> {
    cpu_time_of("self")
}

fn cpu_time_of(process: &str) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat =
        fs::read_to_string(&path).with_context(|| format!("reading `{path}`; the harness needs Linux"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("`{path}` is not as proc(5) says"))?;
    Ok(machine::duration_of(ticks))
}

/// utime + stime, the 14th and 15th fields. The second, the program's name, may itself hold blanks and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// How many skills a card has.
fn skills(card: &[u8]) -> Result<usize> {
    #[derive(Deserialize)]
    struct Card {
        #[serde(default)]
        skills: Vec<IgnoredAny>,
    }
    let card: Card =
        serde_json::from_slice(card).with_context(|| format!("expected a card, got {}", excerpt(card)))?;
    Ok(card.skills.len())
}

fn resident_kib(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn this_program() -> Result<PathBuf> {
    env::current_exe().context("finding this program's own path")
}

/// Tells a server to listen on a free address.
fn listen_on_free_address(command: &mut Command) -> Result<SocketAddr> {
    let address = free_address()?;
    command.arg("--listen").arg(address.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(address)
}

/// An address without a listener. Another process could bind it before the server does; the server then reports that and ends
fn free_address() -> Result<SocketAddr> {
    let probe = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(probe.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_a_name_with_blanks_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 97 0 0 0 120 35 0 0 20 0 1 0 47421 3133440 356";
        assert_eq!(cpu_ticks(stat), Some(155));
        assert_eq!(cpu_ticks("42 (cut off) S 1"), None);
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(resident_kib("Name:\tx\nVmHWM:\t  9000 kB\nVmRSS:\t    5312 kB\n"), Some(5312));
        assert_eq!(resident_kib("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn the_skills_of_a_card_are_counted() {
        assert_eq!(skills(br#"{"name":"x","skills":[{"id":"a"},{"id":"b"}]}"#).unwrap(), 2);
        assert_eq!(skills(br#"{"name":"x"}"#).unwrap(), 0);
        assert!(skills(b"not found").is_err());
    }

    #[test]
    fn a_subject_that_is_no_file_is_refused_by_name() {
        let error = SubjectCommand::parse("/no/such/thing --flag").unwrap_err();
        assert_eq!(error.to_string(), "the subject `/no/such/thing` is not a file");
    }
}
