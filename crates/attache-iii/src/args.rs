//! The flags of every command with a gateway.

use std::time::Duration;

use clap::Args;

use crate::{CardDetails, Exposure, GatewayOptions};

/// The exposed functions, and the card.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Functions")]
pub struct GatewayArgs {
    /// Expose functions whether or not their metadata has `"a2a.expose": true`, for development; internal namespaces stay hidden
    #[arg(long)]
    expose_all: bool,

    /// Show only functions whose metadata has this `a2a.tier`
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,

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
    #[arg(long, value_name = "NAME", default_value = "iii-engine", help_heading = "Card")]
    agent_name: String,

    /// The agent's description in the card
    #[arg(long, value_name = "TEXT", default_value_t = CardDetails::default().description, help_heading = "Card")]
    agent_description: String,

    /// The organization that runs the agent; omitted if empty
    #[arg(long, value_name = "NAME", default_value_t = CardDetails::default().provider, help_heading = "Card")]
    provider_org: String,

    /// The web site of the organization that runs the agent
    #[arg(long, value_name = "URL", default_value_t = CardDetails::default().provider_url, help_heading = "Card")]
    provider_url: String,

    /// The documentation of the agent
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true, help_heading = "Card")]
    docs_url: String,
}

impl GatewayArgs {
    /// The settings of the gateway.
    pub fn options(&self) -> GatewayOptions {
        GatewayOptions {
            exposure: Exposure { all: self.expose_all, tier: self.tier.clone() },
            default_function: self.default_function.clone(),
            call_timeout: Duration::from_secs(self.call_timeout),
            streaming: !self.no_streaming,
            card_details: CardDetails {
                name: self.agent_name.clone(),
                description: self.agent_description.clone(),
                provider: self.provider_org.clone(),
                provider_url: self.provider_url.clone(),
                documentation_url: self.docs_url.clone(),
                ..CardDetails::default()
            },
        }
    }
}
