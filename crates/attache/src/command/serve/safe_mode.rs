//! Safe mode: what must not leave this machine.

use attache::core::Redaction;
use attache::server::{RedisStreams, is_loopback_url};

use super::{Serve, is_here};
use crate::config::SafeMode;

impl Serve {
    /// What is hidden in the events of agents. `None` if there is nothing to hide.
    pub(super) fn redaction(&self, redis: Option<&RedisStreams>) -> Option<Redaction> {
        let hides_paths = match self.safe_mode() {
            SafeMode::Off => return None,
            SafeMode::Always => true,
            SafeMode::Remote => self.is_remote(redis),
        };
        for variable in self.settings.unmasked_variables() {
            tracing::warn!(
                variable,
                "this variable of `mask.variables` is not set or too short, so it is not masked"
            );
        }
        let redaction = Redaction::new().secrets(self.settings.secrets());
        let redaction = if hides_paths { redaction.paths(machine_paths()) } else { redaction };
        Some(redaction).filter(|redaction| !redaction.is_empty())
    }

    pub(super) fn safe_mode(&self) -> SafeMode {
        self.settings.file.as_ref().and_then(|file| file.settings.safe_mode).unwrap_or_default()
    }

    /// Whether other machines can reach the server. Events are stored as they are shown, and later readers can be elsewhere, so this is
    /// decided for the server and not for the caller of a turn.
    pub(super) fn is_remote(&self, redis: Option<&RedisStreams>) -> bool {
        let is_public = self.server.base_url.as_deref().is_some_and(|url| !is_loopback_url(url));
        let has_remote_redis = redis.is_some_and(|redis| !redis.is_for_this_machine());
        is_public || has_remote_redis || !is_here(&self.server.listen)
    }
}

/// The directories of this machine that paths begin with, and what stands for them. Of two equal ones, the last counts.
fn machine_paths() -> Vec<(std::path::PathBuf, &'static str)> {
    let paths = [
        (Some(std::env::temp_dir()), "<tmp>"),
        (dirs::home_dir(), "<home>"),
        (dirs::config_dir().map(|folder| folder.join("attache")), "<config>"),
        (dirs::data_dir().map(|folder| folder.join("attache")), "<data>"),
        (std::env::current_dir().ok(), "<workspace>"),
    ];
    paths.into_iter().filter_map(|(path, name)| path.map(|path| (path, name))).collect()
}
