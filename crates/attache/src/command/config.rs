//! `attache config`: makes a file of settings, checks it, and shows the source of each setting.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use attache_agents::API_TOKEN_VARIABLE;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::TOKEN_VARIABLE;
use super::client::registry;
use super::serve::Serve;
use super::store_location::SettingsFile;
use super::{Failure, Output, say, terminal};
use crate::config::{DisplayValue, MASK, Problems, Resolved, Source, USUAL, Unread};

/// The subcommands of `attache config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Write a file with every setting and its default, commented out
    ///
    /// A file that exists is not overwritten.
    Init {
        /// The file to write; `-` prints it
        #[arg(value_name = "PATH", default_value = USUAL)]
        path: PathBuf,
    },

    /// Find out whether `attache serve` would start with these settings, and what it would serve
    ///
    /// All errors are reported, with their lines. The exit code is 2 if something is wrong. No port is taken and nothing is written.
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
            Self::Init { .. } | Self::Schema => None,
        }
    }

    /// The settings of the server, for a subcommand that uses them.
    pub(super) fn serve(&mut self) -> Option<&mut Serve> {
        match self {
            Self::Check(check) => Some(&mut check.serve),
            Self::Show(show) => Some(&mut show.serve),
            Self::Init { .. } | Self::Schema => None,
        }
    }

    /// Whether this is `attache config check`.
    pub(super) fn is_check(&self) -> bool {
        match self {
            Self::Check(_) => true,
            Self::Init { .. } | Self::Show(_) | Self::Schema => false,
        }
    }

    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init { path } => init(&path),
            Self::Check(check) => check.run(),
            Self::Show(show) => show.run(),
            Self::Schema => super::print(&format!("{:#}\n", crate::config::schema())),
        }
    }
}

/// Writes the file with the defaults.
fn init(path: &Path) -> Result<(), Failure> {
    let text = crate::config::template();
    if path.as_os_str() == "-" {
        return super::print(&text);
    }
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() == ErrorKind::AlreadyExists {
        true => Failure::usage(format!("`{shown}` exists, and is not overwritten"))
            .hint("name another file, or print the settings with `attache config init -`"),
        false => Failure::new(format!("`{shown}` cannot be written: {error}")),
    };
    std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    say(format_args!("wrote `{shown}`: every setting with its default, commented out"));
    match path == Path::new(USUAL) {
        true => {
            say(format_args!("`attache serve` reads it in this directory; `attache config check` checks it"))
        }
        false => say(format_args!("use it with `attache serve --config {shown}`")),
    }
    Ok(())
}

impl Check {
    fn run(mut self) -> Result<(), Failure> {
        let file = self.serve.settings.file.as_mut();
        let mut failures = file.map(|file| std::mem::take(&mut file.errors)).unwrap_or_default();
        let mut problems = Problems::of(&self.serve.settings);
        let prepared = self.serve.prepare_all(&mut problems);
        let store = self.serve.store().unwrap_or_default();
        failures.extend(problems.result().err());
        let Some(prepared) = prepared.filter(|_| failures.is_empty()) else {
            let failure = Failure::all(failures);
            if self.output.json {
                let error = |failure: &Failure| json!({"error": failure.error, "hint": failure.hint});
                let errors: Vec<_> = std::iter::once(&failure).chain(&failure.more).map(error).collect();
                super::print(&format!("{:#}\n", json!({ "errors": errors })))?;
            }
            return Err(failure);
        };
        let callers = prepared.callers;
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
            unread.iter().try_for_each(|variable| line("problem", &variable.to_string()))?;
            writeln!(out, "\nlimits")?;
            let widest = limits.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
            limits
                .iter()
                .try_for_each(|(key, value)| writeln!(out, "  {key:widest$}  {}", as_limit(key, value)))
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
                let columns = terminal::size().map_or(terminal::USUAL_WIDTH, |(columns, _)| columns);
                out.write_all(table(&settings, columns).as_bytes())
            },
        )
    }
}

/// The narrowest column of values.
const NARROWEST_VALUE: usize = 16;

/// Settings in three columns: key, value and source. What does not fit beside the key stands below it.
fn table(settings: &[Resolved], columns: usize) -> String {
    let keys = settings.iter().map(|setting| setting.key.len()).max().unwrap_or_default();
    let sources = settings.iter().map(|setting| terminal::width(&setting.source.to_string()));
    // A long source does not narrow the values of all settings.
    let sources =
        sources.filter(|width| keys + NARROWEST_VALUE + width + 4 <= columns).max().unwrap_or_default();
    let values = columns.saturating_sub(keys + sources + 4);
    let widest = settings.iter().map(|setting| terminal::width(&setting.value.to_string()));
    let values = widest.filter(|width| *width <= values).max().unwrap_or_default();
    let mut out = String::new();
    for Resolved { key, value, source } in settings {
        let (value, source) = (value.to_string(), source.to_string());
        // Under the value if it fits there.
        let below = |text: &str| {
            let indent = if keys + 2 + terminal::width(text) <= columns { keys + 2 } else { 4 };
            format!("{:indent$}{text}", "")
        };
        let beside = format!(
            "{key:keys$}  {value}{}  {source}",
            " ".repeat(values.saturating_sub(terminal::width(&value)))
        );
        let lines = if terminal::width(&beside) <= columns {
            vec![beside]
        } else if keys + 2 + terminal::width(&value) <= columns {
            vec![format!("{key:keys$}  {value}"), below(&source)]
        } else {
            vec![format!("{key:keys$}  {source}"), format!("    {value}")]
        };
        for line in lines {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

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
