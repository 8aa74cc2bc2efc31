//! `attache context`: the contexts of agents that hold conversations, in the file that a server uses or has used.

use attache::core::{Clock, ContextRecord, SystemClock};
use attache::protocol::Json;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::push::Common;
use super::store_location::SettingsFile;
use super::{Failure, say, store};

/// The subcommands of `attache context`.
#[derive(Debug, Subcommand)]
pub(crate) enum Context {
    /// List contexts, the last used first
    ///
    /// A server may use the store meanwhile.
    List {
        #[command(flatten)]
        common: Common,

        /// How many at most
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,

        /// Leave out contexts that were closed
        #[arg(long)]
        open: bool,
    },
    /// Show what is known about a context
    Show {
        #[command(flatten)]
        common: Common,

        /// The id of the context
        #[arg(value_name = "ID")]
        id: String,

        #[command(flatten)]
        owner: OwnerArgs,
    },
    /// Close a context: it takes no more messages, and its private directory is removed
    ///
    /// A turn that runs goes on. A server that uses the store ends what the agent keeps in memory within 30 seconds, or after the turn.
    /// The tasks of the context stay.
    Close {
        #[command(flatten)]
        common: Common,

        /// The id of the context
        #[arg(value_name = "ID")]
        id: String,

        #[command(flatten)]
        owner: OwnerArgs,
    },
}

/// Whose context it is. Needed only if several have a context with the same id.
#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// The caller that the context belongs to, if several have one with this id
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,

    /// The tenant that it belongs to
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// The named agent that it belongs to
    #[arg(long = "of-agent", value_name = "NAME")]
    agent: Option<String>,
}

impl OwnerArgs {
    fn fits(&self, record: &ContextRecord) -> bool {
        let fits = |wanted: &Option<String>, given: &Option<String>| wanted.is_none() || wanted == given;
        fits(&self.caller, &record.caller)
            && fits(&self.tenant, &record.tenant)
            && fits(&self.agent, &record.agent)
    }
}

impl Context {
    /// The option `--config`.
    pub(super) fn settings_file(&self) -> &SettingsFile {
        match self {
            Self::List { common, .. } | Self::Show { common, .. } | Self::Close { common, .. } => {
                &common.file
            }
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { common, limit, open } => list(&common, limit, open),
            Self::Show { common, id, owner } => {
                let record = find(&common, &id, &owner)?;
                common.output.print(|| row(&record), |out| write_record(out, &record))
            }
            Self::Close { common, id, owner } => close(&common, &id, &owner),
        }
    }
}

fn records(common: &Common) -> Result<Vec<ContextRecord>, Failure> {
    let values = store::open(&common.place.file()?)?.values(ContextRecord::SCOPE).map_err(Failure::new)?;
    let mut records: Vec<ContextRecord> =
        values.into_iter().filter_map(|(_, value)| value.read().ok()).collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.used));
    Ok(records)
}

fn find(common: &Common, id: &str, owner: &OwnerArgs) -> Result<ContextRecord, Failure> {
    let mut found = records(common)?;
    found.retain(|record| record.context_id.as_str() == id && owner.fits(record));
    match found.len() {
        0 => Err(Failure::new(format!("there is no context `{id}`"))
            .hint("`attache context list` shows those that there are")),
        1 => Ok(found.remove(0)),
        count => Err(Failure::usage(format!("{count} callers, tenants or agents have a context `{id}`"))
            .hint("name one with `--caller NAME`, `--tenant TENANT` or `--of-agent NAME`")),
    }
}

fn row(record: &ContextRecord) -> Value {
    let names: Vec<&String> = record.state.keys().collect();
    json!({
        "contextId": record.context_id,
        "agent": record.agent,
        "tenant": record.tenant,
        "caller": record.caller,
        "created": record.created,
        "used": record.used,
        "turns": record.turns,
        "workspace": record.workspace.as_ref().map(|workspace| workspace.path()),
        "closed": record.closed,
        "state": names,
    })
}

fn write_record(out: &mut dyn std::io::Write, record: &ContextRecord) -> std::io::Result<()> {
    let turns = match record.turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    writeln!(out, "{}", record.context_id)?;
    let caller = record.caller.as_deref().unwrap_or("anonymous");
    let tenant = record.tenant.as_ref().map(|tenant| format!(", tenant {tenant}")).unwrap_or_default();
    let agent = record.agent.as_ref().map(|agent| format!(", agent {agent}")).unwrap_or_default();
    writeln!(out, "  of {caller}{tenant}{agent}")?;
    writeln!(out, "  {turns} since {}, the last {}", record.created, record.used)?;
    if let Some(workspace) = &record.workspace {
        writeln!(out, "  in {}", workspace.path().display())?;
    }
    match record.closed {
        Some(closed) => writeln!(out, "  closed {closed}"),
        None => Ok(()),
    }
}

fn list(common: &Common, limit: usize, open: bool) -> Result<(), Failure> {
    let mut records = records(common)?;
    records.retain(|record| !open || record.closed.is_none());
    let has_more = records.len() > limit;
    records.truncate(limit);
    common.output.print(
        || json!({ "contexts": records.iter().map(row).collect::<Vec<_>>(), "hasMore": has_more }),
        |out| {
            if records.is_empty() {
                return writeln!(out, "there are no contexts");
            }
            records.iter().try_for_each(|record| write_record(out, record))
        },
    )?;
    if has_more && !common.output.json {
        say(format_args!("there are more: `--limit {}` shows twice as many", limit.saturating_mul(2).max(2)));
    }
    Ok(())
}

fn close(common: &Common, id: &str, owner: &OwnerArgs) -> Result<(), Failure> {
    let record = find(common, id, owner)?;
    let now = SystemClock.now();
    let mut store = store::open(&common.place.file()?)?;
    let changed = store.change_value(ContextRecord::SCOPE, &record.key(), |old| {
        let mut record: ContextRecord = old?.read().ok()?;
        record.close(now);
        Json::new(&record).ok()
    });
    let old = changed.map_err(Failure::new)?.old.and_then(|old| old.read::<ContextRecord>().ok());
    if let Some(workspace) = old.as_ref().and_then(|record| record.workspace.as_ref()) {
        workspace.remove().map_err(|error| {
            Failure::new(format!(
                "the context is closed, but `{}` was not removed: {error}",
                workspace.path().display()
            ))
        })?;
    }
    let was_open = old.is_some_and(|record| record.closed.is_none());
    common.output.print(
        || json!({ "contextId": id, "closed": was_open }),
        |out| match was_open {
            true => writeln!(out, "closed {id}"),
            false => writeln!(out, "{id} was closed already"),
        },
    )
}
