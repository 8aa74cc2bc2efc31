//! `attache keys`: the keys that cards are signed with.

use std::path::PathBuf;

use attache::core::{Clock, SystemClock};
use attache::signing::{Algorithm, KeyInfo, KeyState, KeysError, SigningKeys};
use clap::{Args, Subcommand};
use serde_json::json;

use super::store_location::SettingsFile;
use super::{Failure, Output, say, show};

/// The subcommands of `attache keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key, beside those that there are
    ///
    /// The file is made if it is not there. Cards are signed with every key that is active or retiring.
    New {
        #[command(flatten)]
        common: Common,

        /// What it signs with: `ES256`, `EdDSA`, `RS256`, `PS256`, or `HS256`, which is a secret and never published
        #[arg(long, value_name = "ALGORITHM", default_value = "ES256")]
        alg: Algorithm,
    },
    /// List the keys, oldest first
    List {
        #[command(flatten)]
        common: Common,

        /// Print the public keys instead, as a JSON Web Key Set that clients can pin
        #[arg(long, conflicts_with = "json")]
        jwks: bool,
    },
    /// Make a new key take the place of an active one
    ///
    /// The old one still signs until it is retired, so that clients with the old key and clients with the new key both find a
    /// signature they can check.
    Rotate {
        #[command(flatten)]
        common: Common,

        /// Only this one, as `list` shows it; otherwise each that is active
        #[arg(value_name = "KEY", allow_hyphen_values = true)]
        kid: Option<String>,
    },
    /// Forget a key: nothing is signed with it any more
    Retire {
        #[command(flatten)]
        common: Common,

        /// This one, as `list` shows it; otherwise all that are retiring
        #[arg(value_name = "KEY", allow_hyphen_values = true)]
        kid: Option<String>,
    },
}

/// The arguments of all of these.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    file: SettingsFile,

    /// The file that the keys are in; `attache/signing-keys.json` in the configuration directory if not given
    #[arg(long, value_name = "PATH")]
    signing_keys: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

impl Common {
    fn file(&self) -> Result<PathBuf, Failure> {
        let usual = || Some(dirs::config_dir()?.join("attache").join("signing-keys.json"));
        self.signing_keys.clone().or_else(usual).ok_or_else(|| {
            Failure::usage("this user has no configuration directory to keep keys in")
                .hint("say where with `--signing-keys PATH`")
        })
    }

    fn open(&self) -> Result<SigningKeys, Failure> {
        SigningKeys::open(self.file()?).map_err(failure)
    }
}

/// The keys that `attache serve` signs with.
pub(super) fn for_serving(
    path: Option<&PathBuf>,
    secret: Option<Vec<u8>>,
) -> Result<Option<SigningKeys>, Failure> {
    match (path, secret) {
        (None, None) => Ok(None),
        (Some(path), None) => SigningKeys::open(path).map(Some).map_err(failure),
        (None, Some(secret)) => {
            let keys = SigningKeys::shared_secret(SHARED_KID, &secret, SystemClock.now());
            keys.map(Some).map_err(failure)
        }
        (Some(_), Some(_)) => {
            Err(Failure::usage("`signing` has both `keys` and a `secret`").hint("leave out one of them"))
        }
    }
}

/// The id of a shared secret in the signatures of cards.
const SHARED_KID: &str = "default";

fn failure(error: KeysError) -> Failure {
    let hint = match &error {
        KeysError::Missing { path } => {
            format!("make one with `attache keys new --signing-keys {}`", path.display())
        }
        KeysError::Unknown(_) | KeysError::NotActive { .. } => "`attache keys list` shows them".to_owned(),
        KeysError::LastActive(_) => "have another take its place with `attache keys rotate` first".to_owned(),
        KeysError::ShortSecret => "make one with `openssl rand -hex 32`".to_owned(),
        KeysError::Io { .. }
        | KeysError::Exposed { .. }
        | KeysError::Malformed { .. }
        | KeysError::Random => return Failure::new(error),
    };
    Failure::new(error).hint(hint)
}

impl Keys {
    /// The option `--config`.
    pub(super) fn settings_file(&self) -> &SettingsFile {
        match self {
            Self::New { common, .. }
            | Self::List { common, .. }
            | Self::Rotate { common, .. }
            | Self::Retire { common, .. } => &common.file,
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let now = SystemClock.now();
        match self {
            Self::New { common, alg } => {
                let made = match SigningKeys::open(common.file()?) {
                    Ok(keys) => keys.add(alg, now),
                    Err(KeysError::Missing { path }) => SigningKeys::create(path, alg, now),
                    Err(error) => Err(error),
                };
                let key = made.map_err(failure)?;
                common.output.print(|| json!(key), |out| writeln!(out, "{}", key.kid))?;
                if !common.output.json {
                    next_steps(&common, &key)?;
                }
                Ok(())
            }
            Self::List { common, jwks: true } => {
                let public = common.open()?.current().public_keys().to_json();
                common.output.print(|| public.clone(), |out| writeln!(out, "{public:#}"))
            }
            Self::List { common, jwks: false } => {
                let keys = common.open()?.list();
                common.output.print(
                    || json!({ "keys": keys }),
                    |out| keys.iter().try_for_each(|key| writeln!(out, "{}", line(key))),
                )
            }
            Self::Rotate { common, kid } => {
                let rotated = common.open()?.rotate(kid.as_deref(), now).map_err(failure)?;
                let pair = |(old, new): &(KeyInfo, KeyInfo)| json!({ "old": old, "new": new });
                common.output.print(
                    || json!({ "rotated": rotated.iter().map(pair).collect::<Vec<_>>() }),
                    |out| {
                        rotated.iter().try_for_each(|(old, new)| writeln!(out, "{} -> {}", old.kid, new.kid))
                    },
                )
            }
            Self::Retire { common, kid } => {
                let retired = common.open()?.retire(kid.as_deref()).map_err(failure)?;
                common.output.print(
                    || json!({ "retired": retired }),
                    |out| match retired.as_slice() {
                        [] => writeln!(out, "there was no key to retire"),
                        retired => retired.iter().try_for_each(|key| writeln!(out, "{}", line(key))),
                    },
                )
            }
        }
    }
}

/// Says what to do with a new key.
fn next_steps(common: &Common, key: &KeyInfo) -> Result<(), Failure> {
    let file = common.file()?;
    let file = show::word(&file.display().to_string());
    say(format_args!("the key is in `{file}`; a server that uses the file signs with it at once"));
    say(format_args!(
        "sign cards with it: `attache serve --signing-keys {file}`, or `signing.keys` in the settings"
    ));
    match key.algorithm {
        Algorithm::Hs256 => say(format_args!("it is a secret: clients that check the card need it from you")),
        Algorithm::Es256 | Algorithm::EdDsa | Algorithm::Rs256 | Algorithm::Ps256 => {
            say(format_args!("clients find the public key at `/.well-known/jwks.json` of the server"));
            say(format_args!("give it to them, to pin: `attache keys list --jwks --signing-keys {file}`"));
        }
    }
    Ok(())
}

fn line(KeyInfo { kid, algorithm, state, created }: &KeyInfo) -> String {
    let published = match (state, algorithm) {
        (KeyState::Retired, _) => "",
        (_, Algorithm::Hs256) => "  secret",
        (_, Algorithm::Es256 | Algorithm::EdDsa | Algorithm::Rs256 | Algorithm::Ps256) => "  published",
    };
    format!("{kid}  {algorithm}  {state:8}  {created}{published}")
}
