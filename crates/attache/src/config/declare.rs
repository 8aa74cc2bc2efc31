//! One declaration per setting. Its key in the file, flag, environment variable, default, help text and schema are derived from it.
//!
//! A section of the file is declared like a struct, in [`settings!`]. Its fields are in groups; `flags NAME under HEADING` before a
//! group makes a struct of clap flags for it. A field has:
//!
//! - a description in one line, for the schema and for `--help`;
//! - `#[variable("NAME")]`, if the environment variable is not called `ATTACHE_` and the name of the flag;
//! - `#[flag(NAME, …)]`: the flag, with arguments for clap. A setting without a flag can only be set in the file;
//! - `#[help = "…"]`, if `--help` needs another text than the schema, and `#[more_help = "…"]` for a second paragraph of `--help`;
//! - `#[flag_in_iii(NAME)]` instead, if `attache-iii` declares the flag, which shares it with another command;
//! - `#[mark(reload)]`, if a reload of the file applies the setting without a restart, or `#[mark(section)]` for a section.
//!
//! The type of a field is the type of its flag. [`FlagType`] gives the type in the file, unless `as` names another one.
//! A flag `no_…` has the opposite value of its key.

use std::path::PathBuf;
use std::sync::LazyLock;

use attache::server::{AllowedHost, AllowedOrigin};
use attache::store::StoreUrl;

use super::card::{CardGrpc, ListTransports};
use super::conversation::Compat;
use super::log::{LogFormat, LoggedRequests};
use super::program::CommandLine;
use super::settings::{ArtifactUrlKind, ClientCertificates, Settings};
use super::units::{Count, FromText, HttpPath, Network, Seconds, Size, StoreText, Time};
use crate::command::AgentName;

/// All settings that are declared.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Those with a flag, in the order of their declaration.
    pub(super) rows: Vec<Row>,
    /// The keys that a reload of the file applies, with everything below them.
    reloaded: Vec<String>,
    /// Every key with its description, also those of sections and those without a flag.
    described: Vec<(String, &'static str)>,
}

/// A setting that has a key, a flag and a variable of the environment.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: String,
    /// The flag, as clap knows it.
    pub(super) argument: &'static str,
    pub(super) variable: String,
    pub(super) sense: Sense,
}

static DECLARED: LazyLock<Declared> = LazyLock::new(|| {
    let mut declared = Declared::default();
    Settings::declare(&mut declared);
    declared
});

/// Each setting with a flag, in the order in which they are shown.
pub(super) fn rows() -> &'static [Row] {
    &DECLARED.rows
}

/// Every key with its description, in the order of declaration. A section comes before its settings.
pub(super) fn described() -> &'static [(String, &'static str)] {
    &DECLARED.described
}

/// The setting that a flag is for.
pub(super) fn by_argument(argument: &str) -> Option<&'static Row> {
    rows().iter().find(|row| row.argument == argument)
}

/// Whether a reload of the file applies a change of this setting.
pub(super) fn is_reloaded(key: &str) -> bool {
    let is_below = |above: &String| {
        key.strip_prefix(above.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    DECLARED.reloaded.iter().any(is_below)
}

/// How a key and its flag are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sense {
    /// Both have the same value.
    Same,
    /// The key has a list. The flag is repeated for each item.
    List,
    /// The key has a length of time, and the flag its seconds.
    Seconds,
    /// The key is true where the flag is not given.
    Opposite,
}

impl Declared {
    /// Adds a setting with a flag. `path` is the path of its fields, such as `limits.body_timeout`.
    pub(super) fn flag(&mut self, path: &str, argument: &'static str, sense: Sense, variable: Option<&str>) {
        let derived = || format!("ATTACHE_{}", argument.to_uppercase());
        self.rows.push(Row {
            key: key(path),
            argument,
            variable: variable.map_or_else(derived, ToOwned::to_owned),
            sense: if argument.starts_with("no_") { Sense::Opposite } else { sense },
        });
    }

    /// Adds the description of a setting or a section.
    pub(super) fn describe(&mut self, path: &str, description: &'static str) {
        self.described.push((key(path), description.trim()));
    }

    /// Adds a setting that a reload of the file applies.
    pub(super) fn reload(&mut self, path: &str) {
        self.reloaded.push(key(path));
    }
}

/// The key of a setting, by the path of its fields.
fn key(path: &str) -> String {
    path.replace("r#", "").replace('_', "-")
}

/// The type of a flag, with the type of its key in the file.
pub(crate) trait FlagType {
    type InFile;
    const SENSE: Sense = Sense::Same;
}

/// Types that the file has as they are.
macro_rules! as_it_is {
    ($($type:ty),*) => { $(impl FlagType for $type { type InFile = Option<Self>; })* };
}

/// Types that the file has as text.
macro_rules! as_text {
    ($($type:ty),*) => { $(impl FlagType for $type { type InFile = Option<FromText<Self>>; })* };
}

as_it_is!(
    bool,
    u32,
    String,
    PathBuf,
    AgentName,
    ArtifactUrlKind,
    CardGrpc,
    ClientCertificates,
    CommandLine,
    Compat,
    ListTransports,
    LogFormat
);
as_text!(AllowedHost, AllowedOrigin, Count, HttpPath, LoggedRequests, Network, Size, Time);

/// The file checks that the store is known.
impl FlagType for StoreUrl {
    type InFile = Option<FromText<StoreText>>;
}

impl FlagType for Seconds {
    type InFile = Option<FromText<Self>>;
    const SENSE: Sense = Sense::Seconds;
}

impl<T: FlagType> FlagType for Option<T> {
    type InFile = T::InFile;
    const SENSE: Sense = T::SENSE;
}

impl<T> FlagType for Vec<T> {
    type InFile = Vec<FromText<T>>;
    const SENSE: Sense = Sense::List;
}

/// Declares a section of the file: the struct that is read from the file, and a struct for each group of flags.
macro_rules! settings {
    (
        $(#[$about:meta])*
        $section:ident in $prefix:literal;
        $($(flags $args:ident $(under $heading:literal)?)? {$(
            #[doc = $doc:literal]
            $(#[variable($variable:literal)])?
            $(
                #[flag($flag:ident $(, $($arg:tt)+)?)]
                $(#[help = $help:literal] $(#[more_help = $more_help:literal])?)?
            )?
            $(#[flag_in_iii($shared:ident)])?
            $(#[mark($mark:ident)])?
            $name:ident: $type:ty $(as $in_file:ty)?
        ),* $(,)?})*
    ) => {
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
        $(#[$about])*
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(crate) struct $section {
            $($(#[doc = $doc] pub(crate) $name: settings!(@in_file [$($flag)? $($shared)?] $type $(as $in_file)?),)*)*
        }

        impl $section {
            pub(super) fn declare(declared: &mut $crate::config::declare::Declared) {
                $($(
                    declared.describe(concat!($prefix, stringify!($name)), $doc);
                    settings!(@flag declared, ($prefix $name) [$($flag)? $($shared)?] [$($variable)?] $type);
                    settings!(@mark declared, ($prefix $name) [$($mark)?] $type);
                )*)*
            }
        }

        $(settings! {
            @args [$($args $($heading)?)?]
            $($({ [$doc] [$($help $($more_help)?)?] [$($($arg)+)?] $flag: $type })?)*
        })*
    };

    (@in_file [] $type:ty) => { $type };
    (@in_file [$flag:ident] $type:ty) => { <$type as $crate::config::declare::FlagType>::InFile };
    (@in_file [$flag:ident] $type:ty as $in_file:ty) => { $in_file };

    (@flag $declared:ident, ($prefix:literal $name:ident) [] [] $type:ty) => {};
    (@flag $declared:ident, ($prefix:literal $name:ident) [$flag:ident] [$($variable:literal)?] $type:ty) => {
        let variable = None$(.or(Some($variable)))?;
        let sense = <$type as $crate::config::declare::FlagType>::SENSE;
        $declared.flag(concat!($prefix, stringify!($name)), stringify!($flag), sense, variable);
    };

    (@mark $declared:ident, ($prefix:literal $name:ident) [] $type:ty) => {};
    (@mark $declared:ident, ($prefix:literal $name:ident) [reload] $type:ty) => { $declared.reload(concat!($prefix, stringify!($name))) };
    (@mark $declared:ident, ($prefix:literal $name:ident) [section] $type:ty) => { <$type>::declare($declared) };

    (@args [] $($rest:tt)*) => {};
    (@args [$args:ident $($heading:literal)?] $({
        [$doc:literal] [$($help:literal $($more_help:literal)?)?] [$($arg:tt)*] $flag:ident: $type:ty
    })*) => {
        #[derive(Debug, clap::Args)]
        $(#[command(next_help_heading = $heading)])?
        pub(crate) struct $args {$(
            #[doc = $doc]
            #[arg(long, $($arg)*)]
            $(#[arg(help = $help)] $(#[arg(long_help = concat!($help, "\n\n", $more_help))])?)?
            pub(crate) $flag: $type,
        )*}
    };
}
pub(super) use settings;
