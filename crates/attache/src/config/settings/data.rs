//! The settings of what the server keeps: tasks, content of artifacts, and deliveries to webhooks.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::declare::settings;
use super::super::redis::RedisText;
use super::super::secret::{Masked, Secret};
use super::super::units::{Count, FromText, Network, Size, Time};

settings! {
    /// Push notifications.
    Push in "push.";

    flags PushArgs under "Push notifications" {
        /// Whether they are offered
        #[flag(no_push)]
        #[help = "Offer no push notifications"]
        offered: bool,
        /// Tell webhooks of every event, not only of every new status
        #[flag(push_every_event)]
        every_event: bool,
        /// Sign what webhooks are told with this secret
        secret: Option<Secret>,
        /// Sign what webhooks are told with the secret in this file
        #[flag(push_secret_file, value_name = "PATH")]
        secret_file: Option<PathBuf>,
        /// Let webhooks be on this machine, for development
        #[flag(allow_loopback_webhooks)]
        allow_loopback: bool,
        /// Let webhooks be in these networks although they are not public
        #[flag(allow_webhook_network, value_name = "NETWORK")]
        #[help = "Let webhooks be in this network although it is not public, such as `10.1.0.0/16`; may be repeated"]
        allow_networks: Vec<Network>,
        /// Refuse webhooks that are not `https`
        #[flag(https_webhooks_only)]
        https_only: bool,
    }

    {
        /// Where deliveries wait: in the store of this process, or in Redis, where several processes share them; `store` if this is not set
        queue: Option<PushQueueKind>,
        /// The Redis server of `queue: redis`
        #[mark(section)] redis: PushRedis,
    }
}

/// Where deliveries wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PushQueueKind {
    /// In the store of this process
    #[default]
    Store,
    /// In Redis, where several processes share them
    Redis,
}

settings! {
    /// The Redis server of the push queue.
    PushRedis in "push.redis.";

    {
        /// The Redis server
        url: Option<FromText<RedisText>>,
        /// The password of Redis, instead of one in the URL
        password: Option<Masked>,
        /// The file with the password of Redis
        password_file: Option<PathBuf>,
        /// Certificates (PEM) that are trusted for `rediss://` instead of those of the system
        ca_file: Option<PathBuf>,
        /// The stream of deliveries; `attache:a2a:push` if this is not set
        stream: Option<String>,
        /// The sorted set of deliveries that wait for their next attempt; `attache:a2a:push:retry` if this is not set
        retry_key: Option<String>,
        /// The stream of deliveries that were given up; `attache:a2a:push:dead` if this is not set
        dead_stream: Option<String>,
        /// The consumer group of all processes that share the deliveries; `attache-push` if this is not set
        consumer_group: Option<String>,
        /// The name of this process in the group; a random one if this is not set
        consumer_name: Option<String>,
        /// When the deliveries of a process that has ended are taken over; after 5 minutes if this is not set
        lease: Option<FromText<Time>>,
        /// How many deliveries that were given up are kept; 1000 if this is not set
        keep_dead: Option<FromText<Count>>,
    }
}

settings! {
    /// How long tasks are kept.
    Keep in "keep.";

    flags KeepArgs under "Retention" {
        /// Forget tasks that ended longer ago than this
        #[flag(keep_for, value_name = "AGE")]
        #[help = "Forget tasks that ended longer ago than this, such as `12h` or `30d`; they are kept for good if this is not \
            given"]
        r#for: Option<Time>,
        /// Forget tasks that have ended beyond this many of each caller
        #[flag(keep_tasks, value_name = "COUNT")]
        #[help = "Forget tasks that have ended beyond this many of each caller, oldest first"]
        tasks: Option<u32>,
    }
}

settings! {
    /// Where large content of artifacts is stored.
    Artifacts in "artifacts.";

    flags ArtifactDirectoryArgs under "Artifacts" {
        /// The directory of the content
        #[flag(artifacts, value_name = "PATH")]
        #[help = "The directory for the content of artifacts"]
        #[more_help = "Without it, it is next to the file of the store: its path with `-artifacts` at the end. With a store in \
            memory it is a temporary folder."]
        directory: Option<PathBuf>,
    }

    flags ArtifactArgs under "Artifacts" {
        /// Whether large content is stored apart from the tasks
        #[flag(no_artifacts)]
        #[help = "Keep all content of artifacts in the tasks, and serve none of it apart"]
        stored: bool,
        /// The largest content that stays in a task
        #[flag(artifacts_inline_limit, value_name = "SIZE", default_value = "1MiB")]
        #[help = "The largest content that stays in a task; larger content gets a URL"]
        inline_limit: Size,
        /// The largest content
        #[flag(artifacts_max_size, value_name = "SIZE", default_value = "1GiB")]
        #[help = "The largest content of one file; a turn that produces more fails"]
        max_size: Size,
        /// The largest size of all content together
        #[flag(artifacts_max_total, value_name = "SIZE", default_value = "10GiB")]
        #[help = "The largest size of all stored content together; a turn that would exceed it fails"]
        max_total: Size,
        /// How long content is kept after its task has got its last content
        #[flag(artifacts_keep, value_name = "AGE")]
        #[help = "Remove the content of a task this long after its last content was stored, such as `7d`; as long as the task is \
            kept, if this is not given"]
        keep: Option<Time>,
        /// Which URLs clients get: `http`, or `file` for clients of the same user on this machine
        #[flag(artifacts_urls, value_enum, value_name = "KIND", default_value = "http")]
        urls: ArtifactUrlKind,
        /// Whether the servers of a shared store share the directory
        #[flag(artifacts_shared)]
        #[help = "The directory is shared by all servers that use the store"]
        shared: bool,
    }
}

/// Which URLs of stored content clients get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArtifactUrlKind {
    /// URLs of this server
    #[default]
    Http,
    /// URLs of files, for clients of the same user on this machine
    File,
}
