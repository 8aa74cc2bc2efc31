//! `attache card`: how an agent describes itself.

use std::fmt::Write;

use attache::protocol::{AgentCard, SecurityScheme};
use clap::Args;

use super::reach::Reach;
use super::show::{self, bold, dim, line};
use crate::command::{Failure, Output, print};

/// Whose card, and how to show it.
#[derive(Debug, Args)]
pub(crate) struct Card {
    /// The card that the agent has for those who show who they are
    #[arg(long)]
    extended: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    reach: Reach,
}

impl Card {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.reach.connect().await?;
        let card = if self.extended {
            agent.client.extended_card().await.map_err(|error| agent.failed(&error))?
        } else {
            agent.client.card()
        };
        if self.output.json {
            return print(&show::json_lines(&*card)?);
        }
        print(&summary(&card, &agent.word()).map_err(Failure::new)?)
    }
}

fn summary(card: &AgentCard, called: &str) -> Result<String, std::fmt::Error> {
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
    fact("asks for", asks_for(card));
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
        // Where there is nothing more to say than the name, that is often said twice.
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

/// The credentials that suffice, for people.
fn asks_for(card: &AgentCard) -> String {
    let kind = |name: &String| {
        let kind = match card.security_schemes.get(name) {
            Some(SecurityScheme::ApiKey(_)) => "`--api-key`",
            Some(SecurityScheme::HttpAuth(http)) if http.scheme.eq_ignore_ascii_case("basic") => "`--user`",
            Some(
                SecurityScheme::HttpAuth(_) | SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_),
            ) => "`--token`",
            Some(SecurityScheme::MutualTls(_)) => "a client certificate",
            None => "something that the card does not describe",
        };
        format!("{kind} ({})", line(name))
    };
    let choices: Vec<String> = card
        .security_requirements
        .iter()
        .map(|requirement| requirement.schemes.keys().map(kind).collect::<Vec<_>>().join(" and "))
        .filter(|choice| !choice.is_empty())
        .collect();
    if choices.is_empty() { "no credentials".to_owned() } else { choices.join(", or ") }
}
