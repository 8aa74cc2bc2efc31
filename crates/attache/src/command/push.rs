//! `attache push`: webhooks, from both ends, and the deliveries that are pending or were given up.

mod queue;

use attache::core::{Clock, DeadDelivery, DeliveryId, PendingDelivery, SystemClock};
use clap::{Args, Subcommand};
use serde_json::json;

use super::client::{block_on, hooks, listen};
use super::store_location::SettingsFile;
use super::{Failure, Output, say, store};
use crate::config::StoreArgs;

/// The subcommands of `attache push`.
#[derive(Debug, Subcommand)]
pub(crate) enum Push {
    /// Add a webhook to a task
    Add(hooks::Add),

    /// List the webhooks of a task
    List(hooks::List),

    /// Remove a webhook from a task
    Rm(hooks::Rm),

    /// Receive notifications here, and print them
    Listen(listen::Listen),

    /// List deliveries to webhooks that are still to be made, oldest first
    Pending {
        #[command(flatten)]
        of: DeliveryArgs,

        /// How many at most
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },

    /// Manage deliveries to webhooks that were given up
    #[command(subcommand)]
    Dead(Dead),
}

/// The subcommands of `attache push dead`.
#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List them, oldest first
    List {
        #[command(flatten)]
        of: DeliveryArgs,

        /// How many at most
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Retry them
    ///
    /// The server that uses the store does so within seconds; if none runs, the next one does.
    Retry {
        #[command(flatten)]
        of: DeliveryArgs,

        /// Only this one, as `list` shows it
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Delete them
    Purge {
        #[command(flatten)]
        of: DeliveryArgs,

        /// Only this one, as `list` shows it
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
}

/// The arguments of those about deliveries.
#[derive(Debug, Args)]
pub(crate) struct DeliveryArgs {
    #[command(flatten)]
    common: Common,

    /// Those of the push queue in Redis, which the configuration file names in `push.redis`, instead of those in the store
    #[arg(long)]
    queue: bool,
}

/// The arguments of the commands that work on a store.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(super) file: SettingsFile,

    #[command(flatten)]
    pub(super) place: StoreArgs,

    #[command(flatten)]
    pub(super) output: Output,
}

fn parse_id(text: Option<String>) -> Result<Option<DeliveryId>, Failure> {
    let parse = |text: String| {
        text.parse().map_err(|error| Failure::usage(format!("`{text}` is no delivery: {error}")))
    };
    text.map(parse).transpose()
}

impl Push {
    /// The option `--config`, for a subcommand that reads settings.
    pub(super) fn settings_file(&self) -> Option<&SettingsFile> {
        match self {
            Self::Dead(Dead::List { of, .. } | Dead::Retry { of, .. } | Dead::Purge { of, .. }) => {
                Some(&of.common.file)
            }
            Self::Pending { of, .. } => Some(&of.common.file),
            Self::Add(_) | Self::List(_) | Self::Rm(_) | Self::Listen(_) => None,
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Add(add) => block_on(add.run()),
            Self::List(list) => block_on(list.run()),
            Self::Rm(rm) => block_on(rm.run()),
            Self::Listen(listen) => block_on(listen.run()),
            Self::Pending { of, limit } if of.queue => queue::list_pending(&of.common, limit),
            Self::Pending { of, limit } => pending(&of.common, limit),
            Self::Dead(dead) => dead.run(),
        }
    }
}

fn pending(Common { place, output, .. }: &Common, limit: usize) -> Result<(), Failure> {
    let mut pending =
        store::open(&place.file()?)?.list_pending(limit.saturating_add(1)).map_err(Failure::new)?;
    let has_more = pending.len() > limit;
    pending.truncate(limit);
    let row = |PendingDelivery { id, url, attempts, since, due }: &PendingDelivery| {
        json!({
            "id": id.to_string(),
            "taskId": id.task,
            "configId": id.webhook,
            "eventNumber": id.seq.0,
            "url": url,
            "attempts": attempts,
            "since": since,
            "nextAttemptAt": due,
        })
    };
    output.print(
        || json!({ "deliveries": pending.iter().map(row).collect::<Vec<_>>(), "hasMore": has_more }),
        |out| {
            if pending.is_empty() {
                return writeln!(out, "no delivery is pending");
            }
            for PendingDelivery { id, url, attempts, since, due } in &pending {
                let next = match due {
                    Some(due) => format!("next attempt {due}"),
                    None => "after the one before it".to_owned(),
                };
                writeln!(out, "{id}\n  to {url}\n  since {since}, {}, {next}", tried(*attempts))?;
            }
            Ok(())
        },
    )?;
    say_more(output, has_more, limit);
    Ok(())
}

/// The number of attempts in words.
fn tried(attempts: u32) -> String {
    match attempts {
        0 => "not tried yet".to_owned(),
        1 => "1 attempt failed".to_owned(),
        attempts => format!("{attempts} attempts failed"),
    }
}

/// Says how to see all, if there are more.
fn say_more(output: &Output, has_more: bool, limit: usize) {
    if has_more && !output.json {
        say(format_args!("there are more: `--limit {}` shows twice as many", limit.saturating_mul(2).max(2)));
    }
}

impl Dead {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { of, limit } if of.queue => queue::list(&of.common, limit),
            Self::Retry { of, id } if of.queue => queue::retry(&of.common, id.as_deref()),
            Self::Purge { of, id } if of.queue => queue::purge(&of.common, id.as_deref()),
            Self::List { of, limit } => list(&of.common, limit),
            Self::Retry { of: DeliveryArgs { common: Common { place, output, .. }, .. }, id } => {
                let id = parse_id(id)?;
                let mut store = store::open(&place.file()?)?;
                let count = store.retry_dead(id.as_ref(), SystemClock.now()).map_err(Failure::new)?;
                report(&output, "to be tried again", count, id.as_ref())
            }
            Self::Purge { of: DeliveryArgs { common: Common { place, output, .. }, .. }, id } => {
                let id = parse_id(id)?;
                let mut store = store::open(&place.file()?)?;
                let count = store.purge_dead(id.as_ref()).map_err(Failure::new)?;
                report(&output, "forgotten", count, id.as_ref())
            }
        }
    }
}

fn list(Common { place, output, .. }: &Common, limit: usize) -> Result<(), Failure> {
    let dead = store::open(&place.file()?)?.list_dead(None, limit).map_err(Failure::new)?;
    let row = |DeadDelivery { id, url, attempts, at, error }: &DeadDelivery| {
        json!({
            "id": id.to_string(),
            "taskId": id.task,
            "configId": id.webhook,
            "eventNumber": id.seq.0,
            "url": url,
            "attempts": attempts,
            "givenUpAt": at,
            "error": error,
        })
    };
    output.print(
        || json!({ "deliveries": dead.iter().map(row).collect::<Vec<_>>() }),
        |out| {
            if dead.is_empty() {
                return writeln!(out, "no delivery was given up");
            }
            for DeadDelivery { id, url, attempts, at, error } in &dead {
                writeln!(out, "{id}\n  to {url}\n  given up {at} at attempt {attempts}: {error}")?;
            }
            Ok(())
        },
    )
}

fn report(output: &Output, what: &str, count: usize, id: Option<&DeliveryId>) -> Result<(), Failure> {
    if let Some(id) = id
        && count == 0
    {
        return Err(Failure::new(format!("no delivery `{id}` was given up"))
            .hint("`attache push dead list` shows those that were"));
    }
    output.print(|| json!({ "count": count }), |out| writeln!(out, "{count} deliveries {what}"))
}
