//! Reloads the settings while the server runs.
//!
//! On SIGHUP the server reads the file again, with the same flags and environment, once the file has stopped changing. The whole
//! file is checked before anything changes. If it is invalid, or would protect the server less than the current settings, nothing
//! changes. Otherwise the settings that can be reloaded take effect. The log names the changed settings that need a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attache::client::AddressBook;
use attache::server::auth::{AnonymousAccess, Reloadable};
use attache::server::{HttpService, Limits, Tls};
use tokio::sync::{Mutex, MutexGuard};
use tracing_subscriber::EnvFilter;

use super::kinds::AgentSection;
use super::kinds::OnFailure;
use super::named::{NextAgents, RunningAgents};
use super::{Prepared, Serve, UNIX_PREFIX};
use crate::command::{Command, Failure};
use crate::config::{self, Callers, ClientCertificates, Problems, Resolved, TlsArgs};
use crate::platform::signals::ReloadSignals;

/// Sets the filter of the log.
pub(super) type SetLogFilter = Box<dyn Fn(EnvFilter) -> Result<(), Failure> + Send + Sync>;

/// The server, once it listens.
pub(super) type Running = Arc<OnceLock<RunningServer>>;

/// The parts of a server that listens.
pub(super) struct RunningServer {
    pub(super) http: HttpService,
    pub(super) tls: Option<Tls>,
    /// Locked during a reload.
    pub(super) agents: Mutex<RunningAgents>,
}

/// The parts of the server that a reload changes.
pub(super) struct ReloadTargets {
    pub(super) authenticator: Reloadable,
    /// The credentials for other agents.
    pub(super) agents: AddressBook,
    pub(super) set_log_filter: SetLogFilter,
    pub(super) running: Running,
}

/// A file that has not changed for this long is taken as complete.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// How many times the file is looked at before the reload is given up.
const TRIES: usize = 40;

/// The current settings, and what a reload changes.
pub(super) struct Reloader {
    targets: ReloadTargets,
    /// The file, if there is one.
    file: Option<PathBuf>,
    callers: Option<Callers>,
    resolved: Vec<Resolved>,
    /// The addresses that the server listens on. A reload does not change them.
    listen: Vec<String>,
    encryption: Encryption,
}

/// How connections are protected, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Encryption {
    None,
    Tls,
    /// Clients may have certificates.
    OptionalCertificates,
    /// Clients must have certificates.
    RequiredCertificates,
}

impl Encryption {
    fn of(tls: &TlsArgs) -> Self {
        match (tls.is_asked_for(), tls.tls_client_certificates) {
            (false, _) => Self::None,
            (true, ClientCertificates::Off) => Self::Tls,
            (true, ClientCertificates::Optional) => Self::OptionalCertificates,
            (true, ClientCertificates::Required) => Self::RequiredCertificates,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no TLS",
            Self::Tls => "TLS",
            Self::OptionalCertificates => "TLS with optional client certificates",
            Self::RequiredCertificates => "TLS with required client certificates",
        })
    }
}

/// Which machines can reach an address, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AddressScope {
    ThisMachine,
    OneNetwork,
    Everywhere,
}

impl AddressScope {
    /// The widest scope of addresses in a list. `None` for an invalid address, which is reported elsewhere.
    fn of(listen: &str) -> Option<Self> {
        listen
            .split(", ")
            .map(Self::of_one)
            .try_fold(Self::ThisMachine, |widest, scope| Some(widest.max(scope?)))
    }

    fn of_one(listen: &str) -> Option<Self> {
        if listen.starts_with(UNIX_PREFIX) {
            return Some(Self::ThisMachine);
        }
        let each = listen.to_socket_addrs().ok()?.map(|address| match address.ip().to_canonical() {
            ip if ip.is_loopback() => Self::ThisMachine,
            ip if ip.is_unspecified() => Self::Everywhere,
            _ => Self::OneNetwork,
        });
        each.max()
    }
}

impl Reloader {
    pub(super) fn new(serve: &Serve, prepared: &Prepared, targets: ReloadTargets) -> Self {
        Self {
            targets,
            file: serve.settings.file.as_ref().map(|file| file.path.clone()),
            callers: prepared.callers.clone(),
            resolved: serve.settings.resolved.clone(),
            listen: serve.addresses(),
            encryption: Encryption::of(&serve.tls),
        }
    }

    /// Waits for the signals that ask for a reload, for as long as the runtime lives.
    pub(super) fn start(mut self) -> Result<(), Failure> {
        let mut signals = ReloadSignals::new()
            .map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))?;
        tokio::spawn(async move {
            while signals.next().await.is_some() {
                if let Err(failure) = self.reload().await {
                    tracing::error!(error = %failure, "the settings stay as they were");
                }
            }
        });
        Ok(())
    }

    async fn reload(&mut self) -> Result<(), Failure> {
        let next = self.read().await?;
        let prepared = next.prepare()?;
        if let Some(weaker) = self.weaker(&next, prepared.callers.as_ref()) {
            return Err(Failure::new(weaker).hint("restart the server if that is what you want"));
        }
        let mut problems = Problems::of(&next.settings);
        next.guard(&self.listen, prepared.callers.as_ref(), &mut problems);
        problems.result()?;
        let callers = prepared.callers.as_ref().map(config::authenticator).transpose()?;
        // A certificate that takes effect after a restart is checked too: the whole file must be valid.
        if let Some(tls) = config::tls(&next.tls) {
            let _unused = tls.renew().map_err(Failure::new)?;
        }
        let ReloadTargets { authenticator, agents, set_log_filter, running } = &self.targets;
        let running = running.get();
        let tls = running.and_then(|server| server.tls.as_ref()).map(|tls| tls.renew().map_err(Failure::new));
        let tls = tls.transpose()?;
        let mut named = match running {
            Some(server) => {
                let agents = server.agents.lock().await;
                if let Some(weaker) = agents.weaker(&prepared.named, prepared.callers.is_some()) {
                    return Err(Failure::new(weaker).hint("restart the server if that is what you want"));
                }
                agents.check_root(prepared.root.as_ref(), &next.settings)?;
                let next = agents.prepare(prepared.named, OnFailure::Fail).await?;
                Some((server, agents, next))
            }
            None => None,
        };
        // The last step that can fail. After it, all changes take effect; before it, none do.
        set_log_filter(prepared.filter)?;
        if let Some(tls) = tls {
            tls.apply();
        }
        match callers {
            Some(callers) => authenticator.replace(callers),
            None => authenticator.replace(AnonymousAccess),
        }
        agents.exchange(&prepared.agents);
        if let Some((server, agents, next_agents)) = named.take() {
            let (http, limits) = (&server.http, config::caller_limits(&next.limits));
            http.set_request_log(next.log.log_requests.0);
            apply_agents(http, agents, next_agents, prepared.root.as_ref(), limits).await;
        }
        let changes = changes(&self.resolved, &next.settings.resolved);
        let (applied, later): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|setting| setting.is_reloaded());
        // For a list, the log names the list and not the entry.
        let list = |setting: &&Resolved| setting.key.split('[').next().unwrap_or_default().to_owned();
        let keys = |settings: &[&Resolved]| {
            let keys: BTreeSet<_> = settings.iter().map(list).collect();
            keys.into_iter().collect::<Vec<_>>().join(" ")
        };
        tracing::info!(
            changed = keys(&applied),
            callers =
                prepared.callers.as_ref().map(Callers::summary).unwrap_or_else(|| "everyone".to_owned()),
            credentials = if self.callers == prepared.callers { "the same" } else { "changed" },
            "read the settings again"
        );
        if !later.is_empty() {
            tracing::warn!(changed = keys(&later), "these settings need a restart");
        }
        // A setting that needs a restart is named again at each reload until then.
        let waits = |setting: &Resolved| !setting.is_reloaded();
        let mut kept: Vec<_> = self.resolved.drain(..).filter(waits).collect();
        kept.extend(next.settings.resolved.into_iter().filter(Resolved::is_reloaded));
        (self.resolved, self.callers) = (kept, prepared.callers);
        Ok(())
    }
}

/// Changes the named agents and the limits on callers. The agents were made already, so only a defect of this program can fail here.
async fn apply_agents(
    http: &HttpService,
    mut agents: MutexGuard<'_, RunningAgents>,
    next: NextAgents,
    root: Option<&AgentSection>,
    limits: Limits,
) {
    let applied = match http.agents() {
        Some(server) => {
            server.set_limits(limits.clone());
            agents.apply(next, server, &limits).await
        }
        None => {
            http.set_limits(limits.clone());
            if !next.is_empty() {
                tracing::warn!(
                    "the first named agents need a restart: the paths below `/agents` are reserved at the start"
                );
            }
            Ok(())
        }
    };
    match applied.and_then(|()| agents.apply_root(root, &limits)) {
        Ok(Some(own)) => http.set_limits(own),
        Ok(None) => {}
        Err(failure) => tracing::error!(error = %failure, "an agent stays as it was"),
    }
}

impl Reloader {
    /// Reads the settings, once the file has stopped changing.
    async fn read(&self) -> Result<Box<Serve>, Failure> {
        let Some(file) = &self.file else { return Err(Failure::new("there is no configuration file")) };
        let settings =
            read_when_stable(file, || config::parse_arguments(&std::env::args_os().collect::<Vec<_>>()))
                .await?;
        let Command::Serve(next) = settings?.command else {
            return Err(Failure::new("the command line is not that of a server any more"));
        };
        match next.settings.file {
            Some(_) => Ok(next),
            None => Err(Failure::new("the configuration file is not there any more")),
        }
    }

    /// Says what the new settings would protect less, if anything.
    fn weaker(&self, next: &Serve, callers: Option<&Callers>) -> Option<String> {
        let address = |settings: &[Resolved], key: &str| {
            let setting = settings.iter().find(|setting| setting.key == key)?;
            Some(setting.value.to_string())
        };
        let wider = ["listen", "engine.listen"].into_iter().find_map(|key| {
            let now = address(&self.resolved, key)?;
            let then = address(&next.settings.resolved, key)?;
            let wider = AddressScope::of(&then)? > AddressScope::of(&now)?;
            wider.then(|| {
                format!("`{key}` would be `{then}` instead of `{now}`, which more machines can reach")
            })
        });
        let encryption = Encryption::of(&next.tls);
        match (&self.callers, callers) {
            (Some(_), None) => {
                Some("callers would no longer be authenticated: there is no `auth`".to_owned())
            }
            (Some(now), Some(then)) => then.asks_less_than(now),
            (None, _) => None,
        }
        .or(wider)
        .or_else(|| {
            let text = || format!("there would be {encryption} instead of {}", self.encryption);
            (encryption < self.encryption).then(text)
        })
    }
}

/// Calls `read` once the file has not changed for a while, and returns its result if the file did not change meanwhile.
async fn read_when_stable<T>(file: &Path, read: impl Fn() -> T) -> Result<T, Failure> {
    let mut before = text(file)?;
    for _ in 0..TRIES {
        tokio::time::sleep(QUIET_PERIOD).await;
        let read = (text(file)? == before).then(&read);
        let after = text(file)?;
        match read {
            Some(read) if after == before => return Ok(read),
            Some(_) | None => before = after,
        }
    }
    Err(Failure::new(format!("`{}` does not stop changing", file.display())))
}

/// Reads a file. An empty file is an error: it is about to be written, or was cut off.
fn text(file: &Path) -> Result<Vec<u8>, Failure> {
    let path = file.display();
    let text =
        std::fs::read(file).map_err(|error| Failure::new(format!("`{path}` cannot be read: {error}")))?;
    match text.trim_ascii().is_empty() {
        true => Err(Failure::new(format!("`{path}` is empty"))),
        false => Ok(text),
    }
}

/// The settings whose value has changed or is gone.
fn changes<'a>(before: &'a [Resolved], now: &'a [Resolved]) -> Vec<&'a Resolved> {
    let by_key = |settings: &'a [Resolved]| -> BTreeMap<&'a str, &'a Resolved> {
        settings.iter().map(|setting| (setting.key.as_str(), setting)).collect()
    };
    let (old, new) = (by_key(before), by_key(now));
    let changed = now
        .iter()
        .filter(|setting| old.get(setting.key.as_str()).is_none_or(|old| old.value != setting.value));
    let gone = before.iter().filter(|setting| !new.contains_key(setting.key.as_str()));
    changed.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_read_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.yml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let read = read_when_stable(&file, || std::fs::read_to_string(&file).unwrap());
        write("auth:");
        let writing = async {
            for text in ["auth: {", "auth: { bearer", "auth: { bearer: [] }"] {
                tokio::time::sleep(QUIET_PERIOD - Duration::from_millis(1)).await;
                write(text);
            }
        };
        let (read, ()) = tokio::join!(read, writing);
        assert_eq!(read.unwrap_or_else(|failure| panic!("{failure}")), "auth: { bearer: [] }");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_empty_or_keeps_changing_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.yml");
        let written = std::cell::Cell::new(0);
        let changes = || {
            written.set(written.get() + 1);
            std::fs::write(&file, written.get().to_string()).unwrap();
        };
        changes();
        let failure = read_when_stable(&file, changes).await.unwrap_err();
        assert!(failure.to_string().contains("does not stop changing"), "{failure}");
        std::fs::write(&file, " \n").unwrap();
        let failure = read_when_stable(&file, changes).await.unwrap_err();
        assert!(failure.to_string().contains("is empty"), "{failure}");
    }

    #[test]
    fn an_address_is_wider_the_more_machines_can_reach_it() {
        let of = |listen: &str| AddressScope::of(listen).unwrap();
        for (narrow, wide) in [
            ("127.0.0.1:0", "192.0.2.1:0"),
            ("[::1]:0", "[2001:db8::1]:0"),
            ("192.0.2.1:0", "0.0.0.0:0"),
            ("127.0.0.1:0", "[::]:0"),
            ("[::ffff:127.0.0.1]:0", "[::ffff:0.0.0.0]:0"),
        ] {
            assert!(of(narrow) < of(wide), "{narrow} {wide}");
            assert!(of(wide) == of(wide) && of(wide) > of(narrow), "{narrow} {wide}");
        }
        assert_eq!(of("127.0.0.1:1"), of("127.0.0.2:2"));
        assert_eq!(AddressScope::of("nonsense"), None);
    }
}
