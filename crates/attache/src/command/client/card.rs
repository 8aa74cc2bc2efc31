//! `attache card`: how an agent describes itself.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use attache::client::{KeySet, Signer, Verifier};
use attache::protocol::{AgentCard, SecurityScheme};
use clap::Args;

use super::connect::AgentArgs;
use super::show::{self, bold, dim, line};
use crate::command::{Failure, Output, print, say};

/// The arguments of `attache card`.
#[derive(Debug, Args)]
pub(crate) struct Card {
    /// The extended card, which the agent has for authenticated callers
    #[arg(long)]
    extended: bool,

    /// Show it only if it is signed with a trusted key
    ///
    /// Those are the keys of `--key` and `--jwks-origin` or, without either, the keys that are kept with the agent's name.
    #[arg(long)]
    verify: bool,

    /// Trust the keys in this file: a JSON Web Key, a set of them, or a public key as PEM
    #[arg(long, value_name = "PATH", requires = "verify")]
    key: Option<PathBuf>,

    /// Trust the keys that this server publishes
    #[arg(long, value_name = "URL", requires = "verify")]
    jwks_origin: Option<String>,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

impl Card {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let trust = self.trust()?;
        let agent = self.target.connect_trusting(trust).await?;
        let card = if self.extended {
            agent.client.extended_card().await.map_err(|error| agent.failed(&error))?
        } else {
            agent.client.card()
        };
        let signer = agent.client.signer();
        if self.output.json {
            if let Some(signer) = &signer {
                say(format_args!("signed by {}", signed_by(signer)));
            }
            return print(&show::json_lines(&*card)?);
        }
        print(&summary(&card, &agent.word(), signer.as_ref()).map_err(Failure::new)?)
    }

    /// The keys that may sign the card, if the registry has none for this agent.
    fn trust(&self) -> Result<Option<Verifier>, Failure> {
        if self.key.is_none() && self.jwks_origin.is_none() {
            if self.verify && !self.target.has_pinned_keys()? {
                return Err(Failure::usage("`--verify` needs to know whom to trust").hint(
                    "name a file of keys with `--key`, or a server that publishes them with `--jwks-origin`",
                ));
            }
            return Ok(None);
        }
        let mut trust = Verifier::new();
        if let Some(path) = &self.key {
            trust = trust.pin(read_keys(path)?);
        }
        if let Some(origin) = &self.jwks_origin {
            trust = trust.allow_origin(origin).map_err(Failure::usage)?;
        }
        Ok(Some(trust))
    }
}

/// Reads the keys that the user trusts.
fn read_keys(path: &Path) -> Result<KeySet, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`--key {}` cannot be read: {error}", path.display())))?;
    let is_pem = bytes.trim_ascii_start().starts_with(b"-----BEGIN");
    let keys = if is_pem { KeySet::from_pem(&bytes) } else { KeySet::from_json(&bytes) };
    let keys =
        keys.map_err(|error| Failure::usage(format!("`--key {}` is of no use: {error}", path.display())))?;
    if keys.is_empty() {
        return Err(Failure::usage(format!("there is no key in `{}`", path.display())));
    }
    Ok(keys)
}

/// The keys in the form in which the registry stores them.
pub(crate) fn pinned(path: &Path) -> Result<serde_json::Value, Failure> {
    let keys = read_keys(path)?;
    let kept = keys.to_json();
    if kept["keys"].as_array().is_none_or(|kept| kept.len() != keys.iter().count()) {
        let text = format!("`--key {}` has a secret in it, which is not kept with a name", path.display());
        return Err(Failure::usage(text).hint("have the agent sign with a key that has a public part"));
    }
    Ok(kept)
}

/// The signer of a card, as text.
fn signed_by(signer: &Signer) -> String {
    let from = match &signer.published_at {
        Some(url) => format!("published at {}", line(url)),
        None => "pinned".to_owned(),
    };
    format!("{} ({}, {from})", line(&signer.kid), signer.algorithm)
}

fn summary(card: &AgentCard, called: &str, signer: Option<&Signer>) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{} {}", bold(&line(&card.name)), dim(&line(&card.version)))?;
    if !card.description.is_empty() {
        writeln!(out, "{}", line(&card.description))?;
    }
    let mut facts: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push(vec![format!("  {name}"), value]);
    if let Some(provider) = &card.provider {
        fact("provider", line(&format!("{} {}", provider.organization, provider.url)));
    }
    if let Some(url) = &card.documentation_url {
        fact("documentation", line(url));
    }
    if let Some(signer) = signer {
        fact("signed by", signed_by(signer));
    }
    for interface in &card.supported_interfaces {
        let tenant = interface.tenant.as_ref().map(|tenant| format!(" (tenant {tenant})"));
        let binding = format!("{} {}", interface.protocol_binding, interface.protocol_version);
        fact(&line(&binding), line(&format!("{}{}", interface.url, tenant.unwrap_or_default())));
    }
    let capabilities = &card.capabilities;
    let can: Vec<&str> = [
        (capabilities.streaming, "streaming"),
        (capabilities.push_notifications, "push notifications"),
        (capabilities.extended_agent_card, "extended card"),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.unwrap_or(false).then_some(name))
    .collect();
    if !can.is_empty() {
        fact("can", can.join(", "));
    }
    for extension in &capabilities.extensions {
        let required = if extension.required { " (required)" } else { "" };
        fact("extension", format!("{}{required}", line(&extension.uri)));
    }
    fact("asks for", asks_for(card, "attache login").unwrap_or_else(|| "no credentials".to_owned()));
    fact("takes", line(&card.default_input_modes.join(", ")));
    fact("gives", line(&card.default_output_modes.join(", ")));
    write!(out, "\n{}", show::table(&facts))?;
    if card.skills.is_empty() {
        writeln!(out, "\nNo skills")?;
    } else {
        writeln!(out, "\n{}", bold("Skills"))?;
    }
    for skill in &card.skills {
        write!(out, "  {}", bold(&line(&skill.id)))?;
        if skill.name != skill.id && !skill.name.is_empty() {
            write!(out, "  {}", line(&skill.name))?;
        }
        writeln!(out)?;
        // Many cards repeat the name as the description.
        if !skill.description.is_empty() && skill.description != skill.name {
            writeln!(out, "    {}", line(&skill.description))?;
        }
        if let Some(example) = skill.examples.first() {
            writeln!(out, "    {}", dim(&format!("attache send {called} {}", quoted(example))))?;
        }
    }
    Ok(out)
}

/// A text as an argument of a command, in the quotes that suit most texts.
fn quoted(text: &str) -> String {
    let text = line(text);
    if text.contains(['"', '\\', '$', '`', '!']) { show::word(&text) } else { format!("\"{text}\"") }
}

/// The credentials that the agent requires, as text. `login` is the command that logs in there. `None` if it requires none.
pub(crate) fn asks_for(card: &AgentCard, login: &str) -> Option<String> {
    let kind = |name: &String| {
        let kind = match card.security_schemes.get(name) {
            Some(SecurityScheme::ApiKey(_)) => "`--api-key`".to_owned(),
            Some(SecurityScheme::HttpAuth(http)) if http.scheme.eq_ignore_ascii_case("basic") => {
                "`--user`".to_owned()
            }
            Some(SecurityScheme::HttpAuth(_)) => "`--token`".to_owned(),
            Some(SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_)) => format!("`{login}`"),
            Some(SecurityScheme::MutualTls(_)) => "`--cert`".to_owned(),
            None => "something that the card does not describe".to_owned(),
        };
        format!("{kind} ({})", line(name))
    };
    let choices: Vec<String> = card
        .security_requirements
        .iter()
        .map(|requirement| requirement.schemes.keys().map(kind).collect::<Vec<_>>().join(" and "))
        .filter(|choice| !choice.is_empty())
        .collect();
    (!choices.is_empty()).then(|| choices.join(", or "))
}
