//! Which key of the file is which flag, and what changes while the server runs.

/// A setting that has a key, a flag and a variable of the environment.
pub(super) struct Row {
    pub(super) key: &'static str,
    /// The flag, as clap knows it.
    pub(super) argument: &'static str,
    pub(super) variable: &'static str,
    pub(super) sense: Sense,
}

/// How a key and its flag are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sense {
    /// They say the same.
    Same,
    /// The key has a list of what the flag is given for each of.
    List,
    /// The key has a length of time, and the flag its seconds.
    Seconds,
    /// The key is true where the flag is not given.
    Opposite,
}

const fn same(key: &'static str, argument: &'static str, variable: &'static str) -> Row {
    Row { key, argument, variable, sense: Sense::Same }
}

const fn list(key: &'static str, argument: &'static str, variable: &'static str) -> Row {
    Row { key, argument, variable, sense: Sense::List }
}

const fn opposite(key: &'static str, argument: &'static str, variable: &'static str) -> Row {
    Row { key, argument, variable, sense: Sense::Opposite }
}

/// All of them, in the order in which they are shown.
pub(super) const ROWS: &[Row] = &[
    same("agent", "agent", "ATTACHE_AGENT"),
    same("listen", "listen", "ATTACHE_LISTEN"),
    same("base-url", "base_url", "ATTACHE_BASE_URL"),
    same("store", "store", "ATTACHE_STORE"),
    same("keyring", "keyring", "ATTACHE_KEYRING_FILE"),
    same("insecure", "insecure", "ATTACHE_INSECURE"),
    list("allowed-hosts", "allowed_host", "ATTACHE_ALLOWED_HOST"),
    list("cors.origins", "cors_origin", "ATTACHE_CORS_ORIGIN"),
    same("strict-version", "strict_version", "ATTACHE_STRICT_VERSION"),
    same("pure-card", "pure_card", "ATTACHE_PURE_CARD"),
    same("public-card", "public_card", "ATTACHE_PUBLIC_CARD"),
    same("public-health", "public_health", "ATTACHE_PUBLIC_HEALTH"),
    same("log", "log", "ATTACHE_LOG"),
    same("signing.keys", "signing_keys", "ATTACHE_SIGNING_KEYS"),
    same("tls.certificate", "tls_certificate", "ATTACHE_TLS_CERTIFICATE"),
    same("tls.key", "tls_key", "ATTACHE_TLS_KEY"),
    same("tls.client-ca", "tls_client_ca", "ATTACHE_TLS_CLIENT_CA"),
    same("tls.client-certificates", "tls_client_certificates", "ATTACHE_TLS_CLIENT_CERTIFICATES"),
    same("limits.requests-per-second", "limit_requests_per_second", "ATTACHE_LIMIT_REQUESTS_PER_SECOND"),
    same("limits.burst", "limit_burst", "ATTACHE_LIMIT_BURST"),
    same(
        "limits.requests-per-second-per-address",
        "limit_requests_per_second_per_address",
        "ATTACHE_LIMIT_REQUESTS_PER_SECOND_PER_ADDRESS",
    ),
    same("limits.burst-per-address", "limit_burst_per_address", "ATTACHE_LIMIT_BURST_PER_ADDRESS"),
    same("limits.requests-per-caller", "limit_requests_per_caller", "ATTACHE_LIMIT_REQUESTS_PER_CALLER"),
    same("limits.streams-per-caller", "limit_streams_per_caller", "ATTACHE_LIMIT_STREAMS_PER_CALLER"),
    same("limits.turns-per-caller", "limit_turns_per_caller", "ATTACHE_LIMIT_TURNS_PER_CALLER"),
    same("limits.queue-timeout", "limit_queue_timeout", "ATTACHE_LIMIT_QUEUE_TIMEOUT"),
    same("limits.body", "limit_body", "ATTACHE_LIMIT_BODY"),
    same("limits.headers", "limit_headers", "ATTACHE_LIMIT_HEADERS"),
    same("limits.depth", "limit_depth", "ATTACHE_LIMIT_DEPTH"),
    same("limits.parts", "limit_parts", "ATTACHE_LIMIT_PARTS"),
    same(
        "limits.push-configs-per-task",
        "limit_push_configs_per_task",
        "ATTACHE_LIMIT_PUSH_CONFIGS_PER_TASK",
    ),
    same("limits.requests", "limit_requests", "ATTACHE_LIMIT_REQUESTS"),
    same("limits.connections", "limit_connections", "ATTACHE_LIMIT_CONNECTIONS"),
    same(
        "limits.connections-per-address",
        "limit_connections_per_address",
        "ATTACHE_LIMIT_CONNECTIONS_PER_ADDRESS",
    ),
    same(
        "limits.streams-per-connection",
        "limit_streams_per_connection",
        "ATTACHE_LIMIT_STREAMS_PER_CONNECTION",
    ),
    same("limits.header-timeout", "limit_header_timeout", "ATTACHE_LIMIT_HEADER_TIMEOUT"),
    same("limits.body-timeout", "limit_body_timeout", "ATTACHE_LIMIT_BODY_TIMEOUT"),
    same("limits.first-byte-timeout", "limit_first_byte_timeout", "ATTACHE_LIMIT_FIRST_BYTE_TIMEOUT"),
    list("limits.trusted-proxies", "limit_trusted_proxy", "ATTACHE_LIMIT_TRUSTED_PROXY"),
    same("limits.loopback", "limit_loopback", "ATTACHE_LIMIT_LOOPBACK"),
    list("paths.jsonrpc", "path_jsonrpc", "ATTACHE_PATH_JSONRPC"),
    list("paths.oldest", "path_oldest", "ATTACHE_PATH_OLDEST"),
    same("paths.http-json", "path_http_json", "ATTACHE_PATH_HTTP_JSON"),
    opposite("paths.grpc", "no_grpc", "ATTACHE_NO_GRPC"),
    opposite("push.offered", "no_push", "ATTACHE_NO_PUSH"),
    same("push.every-event", "push_every_event", "ATTACHE_PUSH_EVERY_EVENT"),
    same("push.secret-file", "push_secret_file", "ATTACHE_PUSH_SECRET_FILE"),
    same("push.allow-loopback", "allow_loopback_webhooks", "ATTACHE_ALLOW_LOOPBACK_WEBHOOKS"),
    list("push.allow-networks", "allow_webhook_network", "ATTACHE_ALLOW_WEBHOOK_NETWORK"),
    same("push.https-only", "https_webhooks_only", "ATTACHE_HTTPS_WEBHOOKS_ONLY"),
    same("keep.for", "keep_for", "ATTACHE_KEEP_FOR"),
    same("keep.tasks", "keep_tasks", "ATTACHE_KEEP_TASKS"),
    same("functions.demo", "demo", "ATTACHE_DEMO"),
    same("functions.expose-all", "expose_all", "ATTACHE_EXPOSE_ALL"),
    same("functions.tier", "tier", "ATTACHE_TIER"),
    same("functions.default", "default_function", "ATTACHE_DEFAULT_FUNCTION"),
    Row {
        key: "functions.call-timeout",
        argument: "call_timeout",
        variable: "ATTACHE_CALL_TIMEOUT",
        sense: Sense::Seconds,
    },
    opposite("functions.streaming", "no_streaming", "ATTACHE_NO_STREAMING"),
    same("card.name", "agent_name", "ATTACHE_AGENT_NAME"),
    same("card.description", "agent_description", "ATTACHE_AGENT_DESCRIPTION"),
    same("card.provider", "provider_org", "ATTACHE_PROVIDER_ORG"),
    same("card.provider-url", "provider_url", "ATTACHE_PROVIDER_URL"),
    same("card.docs-url", "docs_url", "ATTACHE_DOCS_URL"),
    same("engine.listen", "engine_listen", "ATTACHE_ENGINE_LISTEN"),
    same("engine.token-file", "engine_token_file", "ATTACHE_ENGINE_TOKEN_FILE"),
    list("engine.connect", "connect", "ATTACHE_CONNECT"),
    opposite("delegation.offered", "no_delegation", "ATTACHE_NO_DELEGATION"),
    same("delegation.allow-loopback", "allow_loopback_agents", "ATTACHE_ALLOW_LOOPBACK_AGENTS"),
    list("delegation.allow-networks", "allow_agent_network", "ATTACHE_ALLOW_AGENT_NETWORK"),
    same("delegation.max-tasks", "max_delegated_tasks", "ATTACHE_MAX_DELEGATED_TASKS"),
    same("delegation.api-token-file", "api_token_file", "ATTACHE_API_TOKEN_FILE"),
];

/// The setting that a flag is for.
pub(super) fn by_argument(argument: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.argument == argument)
}

/// Whether a change of the setting is felt without a restart.
pub(super) fn is_exchanged(key: &str) -> bool {
    const CALLER_LIMITS: [&str; 12] = [
        "requests-per-second",
        "burst",
        "requests-per-second-per-address",
        "burst-per-address",
        "requests-per-caller",
        "streams-per-caller",
        "turns-per-caller",
        "connections-per-address",
        "queue-timeout",
        "first-byte-timeout",
        "trusted-proxies",
        "loopback",
    ];
    let limit = key.strip_prefix("limits.").map(|limit| limit.split('[').next().unwrap_or(limit));
    key == "log"
        || key == "auth"
        || key.starts_with("auth.")
        || key.starts_with(super::AGENTS)
        || limit.is_some_and(|limit| CALLER_LIMITS.contains(&limit))
}
