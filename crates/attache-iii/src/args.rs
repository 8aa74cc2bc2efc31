//! The flags of every command with a gateway.

use std::time::Duration;

use clap::Args;

use crate::{CardDetails, Exposure, FunctionGatewayOptions};

/// The exposed functions, and the card.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Functions")]
pub struct GatewayArgs {
    /// Expose functions whether or not their metadata has `"a2a.expose": true`, for development; internal namespaces stay hidden
    #[arg(long)]
    expose_all: bool,

    /// The tier of callers whose credential has none: show only functions whose metadata has this `a2a.tier`, and those of lower tiers if `--tiers` orders them
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,

    /// The order of the tiers, lowest first, such as `--tiers public,partner,internal`: callers also see the functions of lower tiers, and those without a tier
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tiers: Vec<String>,

    /// The function for messages that name no function, such as `agent::chat`
    #[arg(long, value_name = "FUNCTION")]
    default_function: Option<String>,

    /// The timeout in seconds of functions whose metadata has no `a2a.timeoutMs`
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    call_timeout: u64,

    /// Offer no streams
    #[arg(long)]
    no_streaming: bool,

    /// The agent's name in the card
    ///
    /// Without it, the host name of `--base-url`.
    #[arg(long, value_name = "NAME", help_heading = "Card")]
    agent_name: Option<String>,

    /// The agent's description in the card
    #[arg(long, value_name = "TEXT", default_value_t = CardDetails::default().description, help_heading = "Card")]
    agent_description: String,

    /// The organization that runs the agent; omitted if empty
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Card")]
    provider_org: String,

    /// The web site of the organization that runs the agent
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true, help_heading = "Card")]
    provider_url: String,

    /// The documentation of the agent
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true, help_heading = "Card")]
    docs_url: String,
}

impl GatewayArgs {
    /// The settings of the gateway of a server with this public URL, if it has one.
    pub fn options(&self, base_url: Option<&str>) -> FunctionGatewayOptions {
        let named = self.agent_name.clone().or_else(|| public_host(base_url?));
        FunctionGatewayOptions {
            exposure: self.exposure(),
            default_function: self.default_function.clone(),
            call_timeout: Duration::from_secs(self.call_timeout),
            streaming: !self.no_streaming,
            card_details: CardDetails {
                name: named.unwrap_or_else(|| CardDetails::default().name),
                description: self.agent_description.clone(),
                provider: self.provider_org.clone(),
                provider_url: self.provider_url.clone(),
                documentation_url: self.docs_url.clone(),
                ..CardDetails::default()
            },
            ..FunctionGatewayOptions::default()
        }
    }

    /// Which functions are exposed.
    pub fn exposure(&self) -> Exposure {
        Exposure { all: self.expose_all, tier: self.tier.clone(), tiers: self.tiers.clone() }
    }
}

/// The host name of a URL that is not on this machine.
fn public_host(url: &str) -> Option<String> {
    match url::Url::parse(url).ok()?.host()? {
        url::Host::Domain(name) if name != "localhost" => Some(name.to_owned()),
        url::Host::Domain(_) | url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_a_name_is_called_like_its_public_host() {
        assert_eq!(public_host("https://agents.example.com:8443/x").as_deref(), Some("agents.example.com"));
        for url in ["http://localhost:3111", "http://127.0.0.1", "http://[::1]:1", "nonsense"] {
            assert_eq!(public_host(url), None, "{url}");
        }
    }
}
