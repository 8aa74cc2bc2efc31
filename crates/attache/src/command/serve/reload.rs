//! Reading the settings again while the server runs.
//!
//! On SIGHUP the file is read anew, under the same flags and environment. If something is wrong with it, everything stays as it
//! was. Otherwise what can be exchanged is, and what else has changed is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use attache::client::AddressBook;
use attache::server::auth::{Everyone, Exchangeable};
use attache::server::{Surface, Tls};
use tracing_subscriber::EnvFilter;

use super::{Prepared, Serve};
use crate::command::{Command, Failure};
use crate::config::{self, Callers, Resolved};

/// Sets what is logged from now on.
pub(super) type Refilter = Box<dyn Fn(EnvFilter) -> Result<(), Failure> + Send>;

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

/// What runs, as far as it can be exchanged or compared.
pub(super) struct Reloading {
    exchanged: Exchanged,
    callers: Option<Callers>,
    resolved: Vec<Resolved>,
    /// Where the server listens, whatever the file says now.
    listen: String,
}

impl Reloading {
    pub(super) fn new(serve: &Serve, prepared: &Prepared, exchanged: Exchanged) -> Self {
        let (callers, resolved) = (prepared.callers.clone(), serve.settled.resolved.clone());
        Self { exchanged, callers, resolved, listen: serve.listen.clone() }
    }

    /// Waits for the signal, for as long as the runtime lives.
    #[cfg(unix)]
    pub(super) fn start(mut self) -> Result<(), Failure> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut hangups = signal(SignalKind::hangup())
            .map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))?;
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                if let Err(failure) = self.reload() {
                    tracing::error!(error = %failure, "the settings stay as they were");
                }
            }
        });
        Ok(())
    }

    /// There is no such signal.
    #[cfg(not(unix))]
    pub(super) fn start(self) -> Result<(), Failure> {
        Ok(())
    }

    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no signal to reload on"))]
    fn reload(&mut self) -> Result<(), Failure> {
        let words: Vec<_> = std::env::args_os().collect();
        let Command::Serve(next) = config::settle(&words)?.command else {
            return Err(Failure::new("the command line is not that of a server any more"));
        };
        if next.settled.file.is_none() {
            return Err(Failure::new("the configuration file is not there any more"));
        }
        let prepared = next.prepare()?;
        next.guard(&self.listen, prepared.callers.as_ref())?;
        let callers = prepared.callers.as_ref().map(config::authenticator).transpose()?;
        let Exchanged { authenticator, agents, refilter, running } = &self.exchanged;
        let running = running.get();
        // Last of what may fail: a certificate that makes no sense changes nothing else either.
        if let Some((_, Some(tls))) = running {
            tls.reload().map_err(Failure::new)?;
        }
        refilter(prepared.filter)?;
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
            changes.into_iter().partition(|setting| setting.is_exchanged());
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
        let waits = |setting: &Resolved| !setting.is_exchanged();
        let mut kept: Vec<_> = self.resolved.drain(..).filter(waits).collect();
        kept.extend(next.settled.resolved.into_iter().filter(Resolved::is_exchanged));
        (self.resolved, self.callers) = (kept, prepared.callers);
        Ok(())
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
