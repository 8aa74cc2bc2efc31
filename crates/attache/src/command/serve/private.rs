//! The files of the server that workspaces give no access to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use attache::core::Workspaces;

use super::Serve;
use crate::command::Failure;
use crate::config;

impl Serve {
    /// Keeps the data of callers and the settings out of the workspaces.
    pub(super) fn keep_private(&self, workspaces: Workspaces) -> Result<Workspaces, Failure> {
        let url = self.store.url()?;
        let mut private: Vec<PathBuf> =
            dirs::data_dir().map(|data| data.join("attache")).into_iter().collect();
        private.retain(|path| path.exists());
        // SQLite has files beside the one of the store.
        let store = url.sqlite_path().into_iter();
        private
            .extend(store.flat_map(|path| ["", "-wal", "-shm", "-journal"].map(|end| with_end(path, end))));
        private.extend(self.artifact_directory.path(&url));
        let file = self.settings.file.as_ref();
        let sections = file.into_iter().flat_map(|file| {
            let named = file.settings.agents.values().filter_map(|agent| agent.acp.as_ref());
            named.chain([&file.settings.acp])
        });
        private.extend(sections.filter_map(|acp: &config::Acp| acp.data_directory.clone()));
        let mut hidden: Vec<PathBuf> =
            dirs::config_dir().map(|config| config.join("attache")).into_iter().collect();
        hidden.extend(self.store.keyring.clone());
        hidden.extend(self.signing.signing_keys.clone());
        hidden.extend(self.log.log_file.clone().filter(|path| path.as_os_str() != config::STANDARD_OUTPUT));
        hidden.extend(file.map(|file| file.path.clone()));
        let mut workspaces = workspaces.keep_private(private);
        workspaces.hidden.extend(hidden);
        Ok(workspaces)
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path: std::ffi::OsString = AsRef::<OsStr>::as_ref(path).to_owned();
    path.push(end);
    path.into()
}
