//! The settings of conversations: `contexts`, `workspaces`, `input` and `compat`.

use std::path::PathBuf;
use std::sync::Arc;

use attache::core::{Busy, Conversation, DefaultWorkspace, EndState, InputRules, PeerRules, Workspaces};
use attache::prelude::Policy;
use attache_agents::UrlFetcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compat;
use super::problems::Problems;
use super::reports::MetadataNamespace;
use super::settings::Settings;
use super::units::{FromText, Size};
use crate::command::Failure;

/// A system whose settings, environment variables and behaviour the server takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compat {
    /// The A2A server of iac-code
    IacCode,
}

impl Compat {
    /// How the server behaves where peers differ. Clients that read the metadata of another system expect its behaviour too.
    fn peer_rules(compat: Option<Self>, namespace: Option<MetadataNamespace>) -> PeerRules {
        match (compat, namespace) {
            (Some(Self::IacCode), _) | (None, Some(MetadataNamespace::IacCode)) => PeerRules::IacCode,
            (None, Some(MetadataNamespace::Attache) | None) => PeerRules::Standard,
        }
    }
}

/// What happens to a message for a context whose turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContextBusy {
    /// It is refused
    Reject,
    /// It waits for its turn
    Queue,
}

/// The state of a task after a turn that was successful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContextEndState {
    /// The task is completed
    Completed,
    /// The task waits for a follow-up
    InputRequired,
}

/// The rules for conversations of the agents of a server.
#[derive(Debug, Clone)]
pub(crate) struct ConversationSettings {
    rules: Conversation,
    /// Whether the operator has named the media types.
    names_media: bool,
    peer: PeerRules,
}

impl Settings {
    /// The rules for conversations.
    pub(crate) fn conversation(&self, compat: Option<Compat>) -> Result<ConversationSettings, Failure> {
        let mut rules = match compat {
            None => Conversation::default(),
            Some(Compat::IacCode) => {
                let environment = |name: &str| std::env::var(name).ok();
                compat::conversation(&environment)
            }
        };
        let contexts = &self.contexts;
        match contexts.busy {
            None => {}
            Some(ContextBusy::Reject) => rules.contexts.busy = Busy::Reject,
            Some(ContextBusy::Queue) => rules.contexts.busy = Busy::Queue,
        }
        match contexts.end_state {
            None => {}
            Some(ContextEndState::Completed) => rules.contexts.end_state = EndState::Completed,
            Some(ContextEndState::InputRequired) => rules.contexts.end_state = EndState::InputRequired,
        }
        if let Some(FromText(limit)) = &contexts.queue_limit {
            rules.contexts.queue_limit = usize::try_from(limit.0.get()).unwrap_or(usize::MAX);
        }
        if let Some(FromText(time)) = &contexts.idle {
            rules.contexts.idle = time.0;
        }
        if let Some(FromText(max)) = &contexts.max {
            rules.contexts.max = usize::try_from(max.0.get()).unwrap_or(usize::MAX);
        }
        if !self.workspaces.is_empty() {
            rules.workspaces.allowed.clone_from(&self.workspaces);
        }
        self.set_input(&mut rules.input)?;
        let names_media = !self.input.media_types.is_empty() || compat.is_some();
        let peer = Compat::peer_rules(compat, self.metadata_namespace);
        Ok(ConversationSettings { rules, names_media, peer })
    }

    /// Checks the settings of conversations.
    pub(crate) fn check_conversation(&self, compat: Option<Compat>, problems: &mut Problems<'_>) {
        match compat {
            None => {}
            Some(Compat::IacCode) => {
                compat::check_environment(&|name| std::env::var(name).ok(), problems);
            }
        }
        for (index, path) in self.workspaces.iter().enumerate().filter(|(_, path)| !path.is_dir()) {
            let failure = Failure::usage(format!("`{}` is not a directory", path.display()));
            problems.add(
                [&format!("workspaces[{index}]"), "workspaces"],
                failure.hint("make the directory, or leave it out"),
            );
        }
        for (key, modes) in [("text-types", &self.input.text_types), ("media-types", &self.input.media_types)]
        {
            for (index, mode) in modes.iter().enumerate().filter(|(_, mode)| !is_media_type(mode)) {
                let failure = Failure::usage(format!("`{mode}` is not a media type"));
                problems.add(
                    [&format!("input.{key}[{index}]"), &format!("input.{key}")],
                    failure.hint("try `text/x-log` or `image/*`"),
                );
            }
        }
    }

    fn set_input(&self, input: &mut InputRules) -> Result<(), Failure> {
        let settings = &self.input;
        let set = |place: &mut usize, size: &Option<FromText<Size>>| {
            if let Some(FromText(Size(size))) = size {
                *place = usize::try_from(*size).unwrap_or(usize::MAX);
            }
        };
        set(&mut input.max_text, &settings.max_text);
        set(&mut input.max_data, &settings.max_data);
        set(&mut input.max_media, &settings.max_media);
        set(&mut input.max_file, &settings.max_file);
        set(&mut input.max_total, &settings.max_total);
        input.text_types.extend(settings.text_types.iter().cloned());
        if !settings.media_types.is_empty() {
            input.media_types.clone_from(&settings.media_types);
        }
        if settings.fetch_urls {
            let policy = Policy::default().allow(settings.fetch_networks.iter().map(|network| network.0.0));
            let fetcher = UrlFetcher::new(policy).map_err(Failure::new)?;
            input.fetch = Some(Arc::new(fetcher));
        }
        Ok(())
    }
}

fn is_media_type(text: &str) -> bool {
    text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
}

impl Default for ConversationSettings {
    fn default() -> Self {
        Self { rules: Conversation::default(), names_media: false, peer: PeerRules::Standard }
    }
}

impl ConversationSettings {
    /// The rules for an agent that takes every kind of file.
    pub(crate) fn rules(&self) -> Conversation {
        self.rules.clone()
    }

    /// The rules for an agent that takes these media types, unless the operator names others.
    pub(crate) fn rules_with_media(&self, media_types: &[&str]) -> Conversation {
        let mut rules = self.rules.clone();
        if !self.names_media {
            rules.input.media_types = media_types.iter().map(|&mode| mode.to_owned()).collect();
        }
        rules
    }

    /// Sets which directories contexts work in.
    pub(crate) fn set_workspaces(&mut self, workspaces: Workspaces) {
        self.rules.workspaces = workspaces;
    }

    /// How the server behaves where peers differ.
    pub(crate) fn peer(&self) -> PeerRules {
        self.peer
    }
}

/// Where the private directories of the conversations of an agent are, unless the settings say otherwise. `name` is its name among several
/// agents.
pub(super) fn private_directories(name: Option<&str>) -> Option<PathBuf> {
    let data = dirs::data_dir()?;
    Some(data.join("attache").join("workspaces").join(name.unwrap_or("root")))
}

/// The directories that callers may name, and the one for callers that name none.
pub(super) fn workspaces(allowed: Vec<PathBuf>, default: PathBuf) -> Workspaces {
    Workspaces::default().allow(allowed).default_to(DefaultWorkspace::Shared(default))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ConfigFile;
    use super::*;

    #[test]
    fn the_metadata_of_a_system_come_with_its_rules() {
        let peer = |text: &str, compat: Option<Compat>| {
            let file = ConfigFile::read(Path::new("attache.yml"), text, &|_| None, &|_| true, compat);
            file.settings.conversation(compat).unwrap().peer()
        };
        assert_eq!(peer("", None), PeerRules::Standard);
        assert_eq!(peer("metadata-namespace: attache\n", None), PeerRules::Standard);
        assert_eq!(peer("metadata-namespace: iac_code\n", None), PeerRules::IacCode);
        assert_eq!(peer("", Some(Compat::IacCode)), PeerRules::IacCode);
        assert_eq!(peer("metadata-namespace: attache\n", Some(Compat::IacCode)), PeerRules::IacCode);
    }
}
