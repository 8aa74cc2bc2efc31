//! `attache config`: checks the settings, and shows the source of each.

use std::io::Write;

use attache_agents::API_TOKEN_VARIABLE;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::TOKEN_VARIABLE;
use super::client::registry;
use super::serve::Serve;
use super::store_location::SettingsFile;
use super::{Failure, Output};
use crate::config::{DisplayValue, MASK, Resolved, Source, Unread};

/// The subcommands of `attache config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Find out whether `attache serve` would start with these settings, and what it would serve
    ///
    /// The exit code is 2 if something is wrong. No port is taken and nothing is written.
    Check(Box<Check>),

    /// Show every setting, its value and where it comes from; secrets are masked
    Show(Box<Show>),

    /// Print the JSON Schema of the configuration file, for editors
    Schema,
}

/// `attache config check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    // First, so that it does not come under a heading of the server's flags.
    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    serve: Serve,
}

/// `attache config show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    // First, so that it does not come under a heading of the server's flags.
    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    serve: Serve,
}

impl Config {
    /// The option `--config`, for a subcommand that reads settings.
    pub(super) fn settings_file(&self) -> Option<&SettingsFile> {
        match self {
            Self::Check(check) => Some(&check.serve.file),
            Self::Show(show) => Some(&show.serve.file),
            Self::Schema => None,
        }
    }

    /// The settings of the server, for a subcommand that uses them.
    pub(super) fn serve(&mut self) -> Option<&mut Serve> {
        match self {
            Self::Check(check) => Some(&mut check.serve),
            Self::Show(show) => Some(&mut show.serve),
            Self::Schema => None,
        }
    }

    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Show(show) => show.run(),
            Self::Schema => super::print(&format!("{:#}\n", crate::config::schema())),
        }
    }
}

impl Check {
    fn run(self) -> Result<(), Failure> {
        let callers = self.serve.prepare()?.callers;
        let settings = &self.serve.settings;
        let file = settings.file.as_ref().map(|file| file.path.display().to_string());
        let value = |key: &str| {
            settings.resolved.iter().find(|setting| setting.key == key).map(|setting| &setting.value)
        };
        let limits: Vec<_> = settings
            .resolved
            .iter()
            .filter_map(|setting| Some((setting.key.strip_prefix("limits.")?, &setting.value)))
            .collect();
        let store = self.serve.store()?;
        let unread = settings.unread();
        let listed = callers.as_ref().map(|callers| callers.listed()).unwrap_or_default();
        let text = |out: &mut dyn Write| {
            let mut line = |name: &str, text: &str| writeln!(out, "  {name:<11}{text}");
            let shown = |key: &str| value(key).map(ToString::to_string).unwrap_or_default();
            line("settings", file.as_deref().unwrap_or("no file"))?;
            line("agent", &shown("agent"))?;
            line("listen", &shown("listen"))?;
            if value("base-url").is_some_and(|value| *value != DisplayValue::Nothing) {
                line("base URL", &shown("base-url"))?;
            }
            line("store", &store)?;
            if listed.is_empty() {
                line("callers", "everyone: no authentication configured")?;
            }
            for (list, names) in &listed {
                line(list, &names.join(", "))?;
            }
            let limits: Vec<_> =
                limits.iter().map(|(key, value)| format!("{key} {}", as_limit(key, value))).collect();
            line("limits", &limits.join(", "))?;
            unread.iter().try_for_each(|variable| line("problem", &variable.to_string()))
        };
        let json = || {
            let set = limits.iter().filter(|(_, value)| **value != DisplayValue::Nothing);
            let limits: serde_json::Map<_, _> =
                set.map(|(key, value)| ((*key).to_owned(), value.to_json())).collect();
            let callers: serde_json::Map<_, _> =
                listed.iter().map(|(list, names)| ((*list).to_owned(), json!(names))).collect();
            let of = |key: &str| value(key).map_or(Value::Null, DisplayValue::to_json);
            let problem = |Unread { name, meant }: &Unread| json!({"variable": name, "meant": meant});
            let problems: Vec<_> = unread.iter().map(problem).collect();
            json!({
                "file": file, "agent": of("agent"), "listen": of("listen"), "baseUrl": of("base-url"),
                "store": store, "callers": callers, "limits": limits, "problems": problems,
            })
        };
        self.output.print(json, text)?;
        let said = match unread.len() {
            0 => return Ok(()),
            1 => "the environment has a variable that nothing reads".to_owned(),
            count => format!("the environment has {count} variables that nothing reads"),
        };
        Err(Failure::usage(said)
            .hint("rename or unset what is misspelt; `attache serve` warns of it and starts"))
    }
}

/// The value of a limit, in words.
fn as_limit(key: &str, value: &DisplayValue) -> String {
    match (key, value) {
        ("burst" | "burst-per-address", DisplayValue::Nothing) => "twice the rate".to_owned(),
        (_, DisplayValue::Switch(true)) => "limited".to_owned(),
        (_, DisplayValue::Switch(false)) => "not limited".to_owned(),
        (_, DisplayValue::Nothing | DisplayValue::Text(_) | DisplayValue::List(_)) => value.to_string(),
    }
}

impl Show {
    fn run(self) -> Result<(), Failure> {
        let mut settings = self.serve.settings.resolved.clone();
        if let Some(setting) = settings.iter_mut().find(|setting| setting.key == "store") {
            setting.value = DisplayValue::Text(self.serve.store()?);
        }
        // The environment overrides the file.
        let api_token = secret_in("delegation.api-token", API_TOKEN_VARIABLE);
        if api_token.value != DisplayValue::Nothing {
            settings.retain(|setting| setting.key != api_token.key);
            settings.push(api_token);
        }
        settings.extend(of_client());
        let file = self.serve.settings.file.as_ref().map(|file| file.path.display().to_string());
        let member = |Resolved { key, value, source }: &Resolved| json!({"key": key, "value": value.to_json(), "source": source.to_json()});
        self.output.print(
            || json!({"file": file, "settings": settings.iter().map(member).collect::<Vec<_>>()}),
            |out| {
                let widest =
                    |width: fn(&Resolved) -> usize| settings.iter().map(width).max().unwrap_or_default();
                let keys = widest(|setting| setting.key.chars().count());
                // Long values do not widen the column.
                let values = widest(|setting| setting.value.to_string().chars().count()).min(WIDEST_VALUE);
                settings.iter().try_for_each(|Resolved { key, value, source }| {
                    writeln!(out, "{key:keys$}  {:values$}  {source}", value.to_string())
                })
            },
        )
    }
}

/// The largest width of the column of values.
const WIDEST_VALUE: usize = 44;

/// The settings of the client's subcommands.
fn of_client() -> Vec<Resolved> {
    let directory = ["XDG_CONFIG_HOME", "HOME"].into_iter().find(|name| std::env::var_os(name).is_some());
    let agents = Resolved {
        key: "client.agents-file".to_owned(),
        value: registry::file_path()
            .map_or(DisplayValue::Nothing, |path| DisplayValue::Text(path.display().to_string())),
        source: directory.map_or(Source::Default, |name| Source::Environment(name.to_owned())),
    };
    vec![agents, secret_in("client.token", TOKEN_VARIABLE)]
}

/// A secret in an environment variable.
fn secret_in(key: &str, variable: &str) -> Resolved {
    let is_set = std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    Resolved {
        key: key.to_owned(),
        value: if is_set { DisplayValue::Text(MASK.to_owned()) } else { DisplayValue::Nothing },
        source: if is_set { Source::Environment(variable.to_owned()) } else { Source::Default },
    }
}
