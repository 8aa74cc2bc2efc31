//! What the extended card says about the server behind the agent.

use std::collections::BTreeSet;

use attache_core::{Options, Service};
use attache_protocol::{AgentCard, AgentExtension, JsonObject};
use serde_json::{Value, json};

use crate::{Limits, ServerOptions};

/// The extension with details of the running server. Only the extended card has it: they are for authenticated callers.
pub const RUNTIME_EXTENSION: &str = "urn:attache:extension:runtime:v1";

/// The details that do not change while the server runs.
pub(crate) struct RuntimeDetails {
    store: &'static str,
    body: usize,
    parts: usize,
    webhooks: usize,
}

impl RuntimeDetails {
    pub(crate) fn new(service: &Service, server: &ServerOptions, options: &Options) -> Self {
        Self {
            store: service.store().kind(),
            body: server.max_body,
            parts: options.max_parts,
            webhooks: options.max_push_configs,
        }
    }

    /// Adds the extension to a card.
    pub(crate) fn describe(&self, card: &mut AgentCard, limits: &Limits) {
        let interfaces = &card.supported_interfaces;
        let bindings: BTreeSet<_> = interfaces.iter().map(|interface| &interface.protocol_binding).collect();
        let versions: BTreeSet<_> = interfaces.iter().map(|interface| &interface.protocol_version).collect();
        let Limits { requests_per_second, burst, requests_per_caller, streams_per_caller, .. } = limits;
        let params = json!({
            "server": "attache",
            "version": env!("CARGO_PKG_VERSION"),
            "transports": bindings,
            "protocolVersions": versions,
            "store": self.store,
            "limits": {
                "bodyBytes": self.body,
                "partsPerMessage": self.parts,
                "webhooksPerTask": self.webhooks,
                "requestsPerSecond": requests_per_second,
                "burst": burst,
                "requestsAtOnce": requests_per_caller,
                "streamsAtOnce": streams_per_caller,
                "turnsAtOnce": limits.turns_per_caller,
            },
        });
        let Value::Object(params) = params else { return };
        let mut extension = AgentExtension::new(RUNTIME_EXTENSION)
            .description("The server behind the agent: its version, transports, store and limits");
        extension.params = JsonObject::new(&params).ok();
        card.capabilities.extensions.retain(|extension| extension.uri != RUNTIME_EXTENSION);
        card.capabilities.extensions.push(extension);
    }
}
