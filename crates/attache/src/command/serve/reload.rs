//! Reading the settings again while the server runs.
//!
//! On SIGHUP the file is read anew, under the same flags and environment, once it is not being written any more. It is read and
//! checked as a whole before anything changes. If something is wrong with it, or it would protect the server less than the settings
//! that hold, everything stays as it was. Otherwise what can be exchanged is, and what else has changed is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attache::client::AddressBook;
use attache::server::auth::{Everyone, Exchangeable};
use attache::server::{Surface, Tls};
use tracing_subscriber::EnvFilter;

use super::{Prepared, Serve};
use crate::command::{Command, Failure};
use crate::config::{self, Callers, ClientCertificates, Resolved, TlsArgs};
use crate::platform::signals::ReloadSignals;

/// Sets what is logged from now on.
pub(super) type Refilter = Box<dyn Fn(EnvFilter) -> Result<(), Failure> + Send + Sync>;

/// The server and how its connections are encrypted, once it has its port.
pub(super) type Running = Arc<OnceLock<(Surface, Option<Tls>)>>;

/// What can be exchanged.
pub(super) struct Exchanged {
    pub(super) authenticator: Exchangeable,
    /// What other agents are shown.
    pub(super) agents: AddressBook,
    pub(super) refilter: Refilter,
    pub(super) running: Running,
}

/// For how long a file stays the same before it is taken to be written to its end.
const WRITTEN: Duration = Duration::from_millis(250);

/// How often that is tried.
const TRIES: usize = 40;

/// What runs, as far as it can be exchanged or compared.
pub(super) struct Reloading {
    exchanged: Exchanged,
    /// The file, if there is one.
    file: Option<PathBuf>,
    callers: Option<Callers>,
    resolved: Vec<Resolved>,
    /// Where the server listens, whatever the file says now.
    listen: String,
    encryption: Encryption,
}

/// How connections are protected, the better the greater.
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

/// From where an address can be reached, the wider the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    ThisMachine,
    OneNetwork,
    Everywhere,
}

impl Reach {
    /// Nothing if the address makes no sense, which is found out elsewhere.
    fn of(listen: &str) -> Option<Self> {
        let each = listen.to_socket_addrs().ok()?.map(|address| match address.ip().to_canonical() {
            ip if ip.is_loopback() => Self::ThisMachine,
            ip if ip.is_unspecified() => Self::Everywhere,
            _ => Self::OneNetwork,
        });
        each.max()
    }
}

impl Reloading {
    pub(super) fn new(serve: &Serve, prepared: &Prepared, exchanged: Exchanged) -> Self {
        Self {
            exchanged,
            file: serve.settled.file.as_ref().map(|file| file.path.clone()),
            callers: prepared.callers.clone(),
            resolved: serve.settled.resolved.clone(),
            listen: serve.server.listen.clone(),
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
        next.guard(&self.listen, prepared.callers.as_ref())?;
        let callers = prepared.callers.as_ref().map(config::authenticator).transpose()?;
        // Also of a certificate that needs a restart: the file is in order as a whole, or nothing of it counts.
        if let Some(tls) = config::tls(&next.tls) {
            let _unused = tls.renew().map_err(Failure::new)?;
        }
        let Exchanged { authenticator, agents, refilter, running } = &self.exchanged;
        let running = running.get();
        let tls = running.and_then(|(_, tls)| tls.as_ref()).map(|tls| tls.renew().map_err(Failure::new));
        let tls = tls.transpose()?;
        // The last that may fail. What follows cannot, so that either all of it changes or nothing does.
        refilter(prepared.filter)?;
        if let Some(tls) = tls {
            tls.apply();
        }
        match callers {
            Some(callers) => authenticator.exchange(callers),
            None => authenticator.exchange(Everyone),
        }
        agents.exchange(&prepared.agents);
        if let Some((surface, _)) = running {
            surface.set_limits(config::caller_limits(&next.limits));
        }
        let changes = changes(&self.resolved, &next.settled.resolved);
        let (exchanged, later): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|setting| setting.is_reloaded());
        // Of lists it is enough to know that something in them has changed.
        let list = |setting: &&Resolved| setting.key.split('[').next().unwrap_or_default().to_owned();
        let keys = |settings: &[&Resolved]| {
            let keys: BTreeSet<_> = settings.iter().map(list).collect();
            keys.into_iter().collect::<Vec<_>>().join(" ")
        };
        tracing::info!(
            changed = keys(&exchanged),
            callers =
                prepared.callers.as_ref().map(Callers::summary).unwrap_or_else(|| "everyone".to_owned()),
            credentials = if self.callers == prepared.callers { "the same" } else { "changed" },
            "read the settings again"
        );
        if !later.is_empty() {
            tracing::warn!(changed = keys(&later), "these settings need a restart");
        }
        // What needs a restart is named again next time, until it has happened.
        let waits = |setting: &Resolved| !setting.is_reloaded();
        let mut kept: Vec<_> = self.resolved.drain(..).filter(waits).collect();
        kept.extend(next.settled.resolved.into_iter().filter(Resolved::is_reloaded));
        (self.resolved, self.callers) = (kept, prepared.callers);
        Ok(())
    }
}

impl Reloading {
    /// Reads the settings, once the file is not being written any more.
    async fn read(&self) -> Result<Box<Serve>, Failure> {
        let Some(file) = &self.file else { return Err(Failure::new("there is no configuration file")) };
        let settled = when_written(file, || config::settle(&std::env::args_os().collect::<Vec<_>>())).await?;
        let Command::Serve(next) = settled?.command else {
            return Err(Failure::new("the command line is not that of a server any more"));
        };
        match next.settled.file {
            Some(_) => Ok(next),
            None => Err(Failure::new("the configuration file is not there any more")),
        }
    }

    /// What the new settings would take away of what protects the server, if they do.
    fn weaker(&self, next: &Serve, callers: Option<&Callers>) -> Option<String> {
        let address = |settings: &[Resolved], key: &str| {
            let setting = settings.iter().find(|setting| setting.key == key)?;
            Some(setting.value.to_string())
        };
        let wider = ["listen", "engine.listen"].into_iter().find_map(|key| {
            let now = address(&self.resolved, key)?;
            let then = address(&next.settled.resolved, key)?;
            let wider = Reach::of(&then)? > Reach::of(&now)?;
            wider.then(|| {
                format!("`{key}` would be `{then}` instead of `{now}`, which more machines can reach")
            })
        });
        let encryption = Encryption::of(&next.tls);
        match (&self.callers, callers) {
            (Some(_), None) => {
                Some("callers would no longer be asked who they are: there is no `auth`".to_owned())
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

/// What `read` makes of a file that has not changed for a while, nor while it was read.
async fn when_written<T>(file: &Path, read: impl Fn() -> T) -> Result<T, Failure> {
    let mut before = text(file)?;
    for _ in 0..TRIES {
        tokio::time::sleep(WRITTEN).await;
        let read = (text(file)? == before).then(&read);
        let after = text(file)?;
        match read {
            Some(read) if after == before => return Ok(read),
            Some(_) | None => before = after,
        }
    }
    Err(Failure::new(format!("`{}` does not stop changing", file.display())))
}

/// What a file says. One that says nothing is about to be written, or was cut off.
fn text(file: &Path) -> Result<Vec<u8>, Failure> {
    let path = file.display();
    let text =
        std::fs::read(file).map_err(|error| Failure::new(format!("`{path}` cannot be read: {error}")))?;
    match text.trim_ascii().is_empty() {
        true => Err(Failure::new(format!("`{path}` is empty"))),
        false => Ok(text),
    }
}

/// The settings that have another value now, or none any more.
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
    async fn a_file_that_is_being_written_is_read_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.yml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let read = when_written(&file, || std::fs::read_to_string(&file).unwrap());
        write("auth:");
        let writing = async {
            for text in ["auth: {", "auth: { bearer", "auth: { bearer: [] }"] {
                tokio::time::sleep(WRITTEN - Duration::from_millis(1)).await;
                write(text);
            }
        };
        let (read, ()) = tokio::join!(read, writing);
        assert_eq!(read.unwrap_or_else(|failure| panic!("{failure}")), "auth: { bearer: [] }");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_empty_or_never_whole_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("some.yml");
        let written = std::cell::Cell::new(0);
        let changes = || {
            written.set(written.get() + 1);
            std::fs::write(&file, written.get().to_string()).unwrap();
        };
        changes();
        let failure = when_written(&file, changes).await.unwrap_err();
        assert!(failure.to_string().contains("does not stop changing"), "{failure}");
        std::fs::write(&file, " \n").unwrap();
        let failure = when_written(&file, changes).await.unwrap_err();
        assert!(failure.to_string().contains("is empty"), "{failure}");
    }

    #[test]
    fn an_address_is_wider_the_more_machines_can_reach_it() {
        let of = |listen: &str| Reach::of(listen).unwrap();
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
        assert_eq!(Reach::of("nonsense"), None);
    }
}
