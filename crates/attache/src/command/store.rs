//! `attache store`: maintenance of the file that tasks are kept in.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use attache::core::{Principal, Swept};
use attache::protocol::Timestamp;
use attache::store::{
    ArtifactBackup, ArtifactMaintenance, ArtifactReport, CompactOptions, ExportReport, ForgetOptions,
    ForgetReport, ForgottenContent, Maintenance,
};
use clap::{Args, Subcommand};
use serde_json::json;

use super::bar::{Bar, megabytes};
use super::store_location::SettingsFile;
use super::{Failure, Output};
use crate::config::{ArtifactDirectoryArgs, StoreArgs, age};

/// The subcommands of `attache store`.
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Read everything and report damage
    ///
    /// The exit code is 1 if there is some. A server may use the store meanwhile.
    Check {
        #[command(flatten)]
        common: Common,
    },
    /// Copy the store into a new file, also while a server uses it
    ///
    /// The copy has everything that was acknowledged before it began. The content of artifacts is copied to a directory with the same
    /// name and `-artifacts` at the end. To restore both, start a server with the copy. The keys to the secrets of webhooks are not in
    /// there: keep a copy of the keyring as well.
    Backup {
        #[command(flatten)]
        common: Common,

        /// The file to make; it must not exist
        path: PathBuf,
    },
    /// Give back the space of what was deleted
    ///
    /// No server may use the store meanwhile, and there must be room for a second copy of it.
    Compact {
        #[command(flatten)]
        common: Common,

        /// Also forget the single events of tasks that ended longer ago than this, such as `30d`; the tasks are kept
        #[arg(long, value_name = "AGE", value_parser = age)]
        drop_events_of: Option<Duration>,
    },
    /// Remove everything that belongs to a caller, for good
    ///
    /// These are its tasks with their messages and artifacts, events, webhooks, deliveries and idempotency keys, and what is
    /// remembered about its contexts. Workspaces and other values, such as the state of workers, belong to no caller and stay. No server may use the store meanwhile. Backups keep what they have.
    Forget {
        #[command(flatten)]
        common: Common,

        /// The name of the caller, as in the settings or in the tokens of its identity provider
        #[arg(
            long,
            value_name = "NAME",
            required_unless_present = "anonymous",
            conflicts_with = "anonymous"
        )]
        owner: Option<String>,

        /// All callers without a name
        #[arg(long)]
        anonymous: bool,

        /// Only what the caller has in this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,

        /// Only count what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Write every task with its owner and its events as JSON, one per line, then every value
    ///
    /// Secrets of webhooks are left out. A server may use the store meanwhile.
    Export {
        #[command(flatten)]
        file: SettingsFile,

        #[command(flatten)]
        place: StoreArgs,

        /// The file to write to, if not to standard output
        #[arg(long, short, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Make a new key for the secrets of webhooks, and encrypt them with it
    ///
    /// Old keys stay in the keyring, so that a server that still runs goes on; `--retire-old` drops them when none does.
    RotateKeys {
        #[command(flatten)]
        common: Common,

        /// Drop the old keys; no server may use the store meanwhile
        #[arg(long)]
        retire_old: bool,
    },
}

/// The arguments of most of these.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    file: SettingsFile,

    #[command(flatten)]
    place: StoreArgs,

    #[command(flatten)]
    artifacts: ArtifactDirectoryArgs,

    #[command(flatten)]
    output: Output,
}

impl Common {
    /// The content of artifacts of the store, if there is any.
    fn artifacts(&self) -> Result<Option<ArtifactMaintenance>, Failure> {
        Ok(self.place.artifacts(&self.artifacts)?.and_then(ArtifactMaintenance::open))
    }
}

impl Store {
    /// The option `--config`.
    pub(super) fn settings_file(&self) -> &SettingsFile {
        match self {
            Self::Check { common }
            | Self::Backup { common, .. }
            | Self::Compact { common, .. }
            | Self::Forget { common, .. }
            | Self::RotateKeys { common, .. } => &common.file,
            Self::Export { file, .. } => file,
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check { common } => check(&common),
            Self::Backup { common, path } => backup(&common, &path),
            Self::Compact { common, drop_events_of } => compact(&common, drop_events_of),
            Self::Forget { common, owner, anonymous: _, tenant, dry_run } => {
                let principal = owner.map_or(Principal::Anonymous, Principal::named);
                let options = ForgetOptions::new(principal);
                forget(
                    &common,
                    &options.with(|options| (options.tenant, options.dry_run) = (tenant, dry_run)),
                )
            }
            Self::Export { place, output, .. } => export(&place, output.as_deref()),
            Self::RotateKeys { common, retire_old } => rotate_keys(&common, retire_old),
        }
    }
}

/// Opens the store for a subcommand.
pub(super) fn open(path: &Path) -> Result<Maintenance, Failure> {
    Maintenance::open(path)
        .map_err(|error| Failure::new(error).hint("name the store with `--store sqlite:PATH`"))
}

fn check(common: &Common) -> Result<(), Failure> {
    let Common { place, output, .. } = common;
    let path = place.file()?;
    output.progress(format_args!("checking {}", path.display()));
    let store = open(&path)?;
    let report = store.check().map_err(Failure::new)?;
    // A task that is damaged cannot say what it refers to.
    let artifacts = match common.artifacts()? {
        Some(artifacts) => Some(artifacts.check(&store).map_err(Failure::new)?),
        None => None,
    };
    let (tasks, events, values, problems) = (report.tasks, report.events, report.values, &report.problems);
    let content = artifacts.unwrap_or_default();
    let all = problems.len() + content.problems.len();
    output.print(
        || {
            let mut value = json!({
                "path": path, "tasks": tasks, "events": events, "values": values, "problems": problems,
            });
            if content != ArtifactReport::default() {
                value["artifacts"] = json!({
                    "references": content.references, "files": content.files, "bytes": content.bytes,
                    "expired": content.expired, "leftOver": content.left_over, "problems": content.problems,
                });
            }
            value
        },
        |out| {
            for problem in problems.iter().chain(&content.problems) {
                writeln!(out, "problem: {problem}")?;
            }
            if content != ArtifactReport::default() {
                let (files, bytes) = (content.files, megabytes(content.bytes));
                writeln!(
                    out,
                    "{files} files of artifacts ({bytes}), {} references, {} expired, {} left over",
                    content.references, content.expired, content.left_over
                )?;
            }
            writeln!(out, "{tasks} tasks with {events} events, {values} values, {all} problems")
        },
    )?;
    match (problems.is_empty(), content.problems.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(Failure::new("content of artifacts is missing or damaged")
            .hint("restore the files from a backup; `attache store backup` copies them with the store")),
        (false, _) => Err(Failure::new(format!("`{}` is damaged", path.display())).hint(
            "keep a copy of the file and of `-wal` beside it; `attache store export` saves what can be read",
        )),
    }
}

fn backup(common: &Common, to: &Path) -> Result<(), Failure> {
    let Common { place, output, .. } = common;
    let from = place.file()?;
    let store = open(&from)?;
    let mut bar = Bar::new(output, "copying");
    let bytes = store.backup(to, |progress| bar.show(progress.copied, progress.total)).map_err(|error| {
        Failure::new(error).hint("name a file that does not exist yet, in a directory with enough room")
    });
    bar.clear();
    let bytes = bytes?;
    // After the store: every task in the copy has its content there.
    let mut artifacts = to.as_os_str().to_owned();
    artifacts.push("-artifacts");
    let artifacts = PathBuf::from(artifacts);
    let content = match common.artifacts()? {
        Some(content) => {
            let mut bar = Bar::new(output, "copying artifacts");
            let copied = content.backup(&artifacts, |copied, total| bar.show(copied, total));
            bar.clear();
            copied.map_err(|error| {
                Failure::new(error).hint("the store itself was copied; remove the copy before you try again")
            })?
        }
        None => ArtifactBackup::default(),
    };
    output.print(
        || {
            let mut value = json!({ "store": from, "backup": to, "bytes": bytes });
            if content.files > 0 {
                value["artifacts"] =
                    json!({ "path": artifacts, "files": content.files, "bytes": content.bytes });
            }
            value
        },
        |out| {
            writeln!(out, "copied {} to {} ({})", from.display(), to.display(), megabytes(bytes))?;
            match content.files {
                0 => Ok(()),
                files => writeln!(
                    out,
                    "copied {files} files of artifacts to {} ({})",
                    artifacts.display(),
                    megabytes(content.bytes)
                ),
            }
        },
    )
}

fn compact(common: &Common, drop_events_of: Option<Duration>) -> Result<(), Failure> {
    let Common { place, output, .. } = common;
    let path = place.file()?;
    let drop_events_before = drop_events_of.map(ago);
    output.progress(format_args!("compacting {}", path.display()));
    let options = CompactOptions::default().with(|options| options.drop_events_before = drop_events_before);
    let report = Maintenance::compact(&path, options).map_err(|error| {
        Failure::new(error).hint("stop the server that uses the store, or name another with `--store`")
    })?;
    let swept = match common.artifacts()? {
        Some(artifacts) => artifacts.remove_left_over(&open(&path)?).map_err(Failure::new)?,
        None => Swept::default(),
    };
    output.print(
        || {
            let mut value = json!({
                "path": path, "before": report.before, "after": report.after, "dropped": report.dropped,
            });
            if swept != Swept::default() {
                value["artifacts"] = json!({ "tasks": swept.tasks, "bytes": swept.bytes });
            }
            value
        },
        |out| {
            if swept != Swept::default() {
                writeln!(
                    out,
                    "removed the content of {} tasks that are gone ({})",
                    swept.tasks,
                    megabytes(swept.bytes)
                )?;
            }
            if drop_events_before.is_some() {
                writeln!(out, "forgot the events of {} tasks", report.dropped)?;
            }
            writeln!(out, "{} bytes before, {} after", report.before, report.after)
        },
    )
}

fn forget(common: &Common, options: &ForgetOptions) -> Result<(), Failure> {
    let Common { place, output, .. } = common;
    let path = place.file()?;
    let report = Maintenance::forget(&path, options).map_err(|error| {
        Failure::new(error).hint("stop the server that uses the store, or name another with `--store`")
    })?;
    let ForgetReport { tasks, webhooks, deliveries, keys, contexts, values } = report;
    // After the tasks: content that is left after a crash is removed by the next run, or by a server.
    let content = match common.artifacts()? {
        Some(artifacts) => artifacts.forget(options).map_err(|error| {
            Failure::new(format!("the content of artifacts could not be removed: {error}"))
                .hint("run the command again")
        })?,
        None => ForgottenContent::default(),
    };
    output.print(
        || {
            let mut value = json!({
                "dryRun": options.dry_run, "tasks": tasks, "webhooks": webhooks,
                "deliveries": deliveries, "keys": keys, "contexts": contexts, "values": values,
            });
            if content.files > 0 {
                value["artifacts"] = content.files.into();
            }
            value
        },
        |out| {
            if content.files > 0 {
                let done = if options.dry_run { "would remove" } else { "removed" };
                writeln!(out, "{done} {} files of artifacts", content.files)?;
            }
            let done = if options.dry_run { "would remove" } else { "removed" };
            writeln!(
                out,
                "{done} {tasks} tasks, {webhooks} webhooks, {deliveries} deliveries, {keys} keys, {contexts} contexts \
                 and {values} values of {}",
                options.principal
            )
        },
    )
}

fn export(place: &StoreArgs, output: Option<&Path>) -> Result<(), Failure> {
    let store = open(&place.file()?)?;
    let exported = match output {
        None => store.export(&mut std::io::stdout().lock()),
        Some(path) => {
            let file = File::create_new(path).map_err(|error| {
                Failure::new(format!("`{}` cannot be made: {error}", path.display()))
                    .hint("name a file that does not exist yet")
            })?;
            let mut out = BufWriter::new(file);
            store.export(&mut out).and_then(|exported| Ok(out.flush().map(|()| exported)?))
        }
    };
    let ExportReport { tasks, values, problems } = exported.map_err(Failure::new)?;
    super::say(format_args!("exported {tasks} tasks and {values} values"));
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        super::say(format_args!("left out: {problem}"));
    }
    Err(Failure::new(format!("{} tasks or values are damaged and were left out", problems.len()))
        .hint("restore them from a backup"))
}

fn rotate_keys(Common { place, output, .. }: &Common, retire_old: bool) -> Result<(), Failure> {
    let path = place.file()?;
    let mut store = open(&path)?;
    // Held to the end: a server that starts meanwhile would use keys that are about to be removed.
    let exclusive = retire_old.then(|| store.exclusive()).transpose();
    let _exclusive = exclusive
        .map_err(|error| Failure::new(error).hint("stop the server first, or leave out `--retire-old`"))?;
    let keyring = place.keyring()?;
    let id = keyring.rotate().map_err(|error| {
        Failure::new(error).hint("put a new key in front of the others in `ATTACHE_KEYRING` instead")
    });
    let id = match id {
        // This command cannot change keys in the environment. It encrypts with the first of them.
        Err(_) if place.keys_are_fixed() => keyring.ids().first().cloned().unwrap_or_default(),
        id => id?,
    };
    let resealed = store.reseal(&keyring).map_err(Failure::new)?;
    let retired = if retire_old && !place.keys_are_fixed() {
        keyring.retire_old().map_err(Failure::new)?
    } else {
        Vec::new()
    };
    output.print(
        || json!({ "key": id, "secrets": resealed, "retired": retired }),
        |out| {
            writeln!(out, "encrypted the secrets of {resealed} webhooks with the key {id}")?;
            match retired.len() {
                0 => Ok(()),
                count => writeln!(out, "dropped {count} old keys"),
            }
        },
    )
}

/// The time of `age` ago.
fn ago(age: Duration) -> Timestamp {
    let then =
        SystemTime::now().checked_sub(age).and_then(|then| then.duration_since(SystemTime::UNIX_EPOCH).ok());
    let millis = then.unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
