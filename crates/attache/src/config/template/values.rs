//! The values in the file for settings whose default no flag has.

/// Defaults of settings without a flag, or whose flag has none.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("contexts.busy", "queue"),
    ("contexts.queue-limit", "16"),
    ("contexts.idle", "30m"),
    ("contexts.max", "1024"),
    ("contexts.end-state", "completed"),
    ("input.max-text", "1MiB"),
    ("input.max-data", "1MiB"),
    ("input.max-media", "5MiB"),
    ("input.max-file", "25MiB"),
    ("input.max-total", "64MiB"),
    ("input.fetch-urls", "false"),
    ("program.protocol", "text"),
    ("program.timeout", "10m"),
    ("program.grace", "2s"),
    ("program.idle", "30m"),
    ("program.max-output", "16MiB"),
    ("program.processes", "16"),
    ("program.show-errors", "false"),
    ("model.images", "false"),
    ("model.max-context", "256KiB"),
    ("model.tool-timeout", "1m"),
    ("model.max-rounds", "16"),
    ("model.retries", "3"),
    ("model.silence", "2m"),
    ("acp.permissions", "ask"),
    ("acp.permission-timeout", "10m"),
    ("acp.terminal", "false"),
    ("acp.show-thoughts", "false"),
    ("acp.start-timeout", "2m"),
    ("acp.timeout", "1h"),
    ("acp.grace", "2s"),
    ("acp.max-output", "16MiB"),
    ("acp.max-line", "16MiB"),
    ("acp.max-file", "1MiB"),
    ("acp.max-context", "256KiB"),
    ("mcp.grace", "2s"),
    ("mcp.exclusive", "false"),
    ("mcp.start-timeout", "1m"),
    ("mcp.timeout", "10m"),
    ("mcp.question-timeout", "10m"),
    ("mcp.max-output", "16MiB"),
    ("mcp.calls", "64"),
    ("redis.request-stream", "attache:a2a:requests"),
    ("redis.response-stream", "attache:a2a:responses"),
    ("redis.consumer-group", "attache"),
    ("redis.in-flight", "256"),
    ("redis.streams", "256"),
    ("redis.keep", "10000"),
    ("redis.expire", "1h"),
    ("redis.keep-dead", "1000"),
    ("redis.claim-after", "60s"),
    ("redis.max-deliveries", "5"),
    ("redis.in-card", "true"),
    ("push.queue", "store"),
    ("push.redis.stream", "attache:a2a:push"),
    ("push.redis.retry-key", "attache:a2a:push:retry"),
    ("push.redis.dead-stream", "attache:a2a:push:dead"),
    ("push.redis.consumer-group", "attache-push"),
    ("push.redis.lease", "5m"),
    ("push.redis.keep-dead", "1000"),
    ("remote.refresh", "5m"),
    ("remote.wait", "false"),
    ("remote.timeout", "1h"),
    ("remote.max-bytes", "64MiB"),
    ("remote.show-ids", "false"),
    ("remote.max-links", "10000"),
    ("metadata-namespace", "attache"),
    ("safe-mode", "remote"),
];

/// Examples for settings without a default. A setting without an example is left empty.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("base-url", "https://agents.example.com"),
    ("store", "sqlite:/var/lib/attache/tasks.db"),
    ("keyring", "/var/lib/attache/keyring.json"),
    ("allowed-hosts", "[agents.internal]"),
    ("cors.origins", "[https://app.example.com]"),
    (
        "auth",
        r#"
  require: any                        # all: a caller shows one credential of each kind
  bearer:
    - { name: alice, token: "${ALICE_TOKEN}", scopes: [quote], tier: partner }
    - { name: bob, token-file: /run/secrets/bob }
  api-key:
    - { name: ci, key: "${CI_KEY}", in: header, header: X-API-Key }
    - { name: page, key: "${PAGE_KEY}", in: query, query: key }
  basic:
    - { name: ops, password: "${OPS_PASSWORD}" }
  jwt:
    - issuer: https://login.example.com/
      audience: attache               # or a list
      jwks: https://login.example.com/jwks.json  # found through the issuer's OpenID configuration if not set
      algorithms: [ES256, RS256]
      principal-claim: sub
      scopes-claim: scope
      tier-claim: tier
  mtls:
    - { name: billing, san: billing.internal, scopes: [quote] }
  unix:
    - { name: ops, uid: 1000 }"#,
    ),
    ("signing.keys", "/var/lib/attache/keys.json"),
    ("signing.secret", "\"${CARD_SECRET}\""),
    ("signing.secret-file", "/run/secrets/card"),
    ("tls.certificate", "/etc/attache/server.pem"),
    ("tls.key", "/etc/attache/server.key"),
    ("tls.client-ca", "/etc/attache/clients.pem"),
    ("limits.burst", "1000"),
    ("limits.burst-per-address", "2000"),
    ("limits.trusted-proxies", "[10.0.0.0/8]"),
    ("push.secret", "\"${PUSH_SECRET}\""),
    ("push.secret-file", "/run/secrets/push"),
    ("push.allow-networks", "[10.1.0.0/16]"),
    ("keep.for", "30d"),
    ("keep.tasks", "1000"),
    ("artifacts.directory", "/var/lib/attache/artifacts"),
    ("artifacts.keep", "7d"),
    ("functions.tier", "partner"),
    ("functions.tiers", "[public, partner, internal]"),
    ("functions.default", "agent::chat"),
    ("compat", "iac-code"),
    ("log.file", "/var/log/attache.log"),
    ("workspaces", "[/srv/projects]"),
    ("input.text-types", "[text/x-log]"),
    ("input.media-types", "[image/png, image/jpeg]"),
    ("input.fetch-networks", "[10.1.0.0/16]"),
    ("program.command", "[./agent.py, --fast]"),
    ("program.directory", "/srv/agent"),
    ("program.workspace", "/srv/project"),
    ("program.data-directory", "/var/lib/attache/workspaces"),
    ("program.environment", "{ MODE: fast, KEY: \"${AGENT_KEY}\" }"),
    ("program.pass-environment", "[SSL_CERT_FILE]"),
    ("program.budget", "{ time: 1h, per: 1d }"),
    ("model.url", "https://api.openai.com/v1"),
    ("model.name", "gpt-4o-mini"),
    ("model.key", "\"${OPENAI_API_KEY}\""),
    ("model.key-file", "/run/secrets/model"),
    ("model.system", "You answer questions about our shop."),
    ("model.parameters", "{ temperature: 0.2, max_tokens: 500 }"),
    ("model.tools", "[mcp:files, agent:research, functions]"),
    ("model.files", "[application/pdf, audio/wav]"),
    ("model.budget", "{ tokens: 100000, time: 1h, per: 1d }"),
    ("acp.command", "npx @google/gemini-cli --acp"),
    ("acp.workspace", "/srv/project"),
    ("acp.data-directory", "/var/lib/attache/workspaces"),
    ("acp.name", "coder"),
    ("acp.description", "Writes code"),
    ("acp.environment", "{ KEY: \"${AGENT_KEY}\" }"),
    ("acp.pass-environment", "[GEMINI_API_KEY]"),
    ("acp.auth-method", "gemini-api-key"),
    ("acp.idle", "30m"),
    ("acp.max-sessions", "64"),
    ("mcp.command", "npx -y @modelcontextprotocol/server-everything"),
    ("mcp.url", "https://tools.example.com/mcp"),
    ("mcp.name", "Tools"),
    ("mcp.description", "Useful tools"),
    ("mcp.tools", "[echo, get-sum]"),
    ("mcp.directory", "/srv/tools"),
    ("mcp.environment", "{ KEY: \"${TOOLS_KEY}\" }"),
    ("mcp.pass-environment", "[SSL_CERT_FILE]"),
    ("mcp.token", "\"${TOOLS_TOKEN}\""),
    ("mcp.token-file", "/run/secrets/tools"),
    ("mcp.headers", "{ X-Tenant: acme }"),
    (
        "mcp.oauth",
        "{ server: https://auth.example.com, client-id: attache, client-secret: \"${CLIENT_SECRET}\" }",
    ),
    ("mcp.roots", "[/srv/files]"),
    ("mcp.sampling", "{ url: https://api.openai.com/v1, name: gpt-4o-mini, key: \"${OPENAI_API_KEY}\" }"),
    ("push.redis.url", "redis://127.0.0.1:6379/0"),
    ("push.redis.password", "\"${REDIS_PASSWORD}\""),
    ("push.redis.password-file", "/run/secrets/redis"),
    ("push.redis.ca-file", "/etc/attache/redis-ca.pem"),
    ("push.redis.consumer-name", "server-1"),
    ("redis.url", "redis://127.0.0.1:6379/0"),
    ("redis.password", "\"${REDIS_PASSWORD}\""),
    ("redis.password-file", "/run/secrets/redis"),
    ("redis.ca-file", "/etc/attache/redis-ca.pem"),
    ("idle-shutdown", "10m"),
    ("redis.consumer-name", "server-1"),
    ("redis.reply-prefix", "\"attache:a2a:responses:\""),
    ("redis.dead-stream", "attache:a2a:requests:dead"),
    ("redis.max-entry-size", "8MiB"),
    ("redis.card-host", "redis.example.com:6379"),
    ("remote.url", "https://old.example.com"),
    ("remote.prefer", "[websocket, jsonrpc]"),
    ("remote.redis", "redis://user:password@redis.example.com:6379"),
    ("thinking-exposure", "[tool-trace, raw-thinking]"),
    (
        "permissions",
        r#"
  - { tool: "*", path: "**/.env", action: deny }
  - { tool: "edit*", path: "src/**", action: allow }"#,
    ),
    ("permission-default", "ask"),
    ("permission-timeout", "10m"),
    ("required-extensions", "[https://example.com/ext/v1]"),
    ("mask", "{ variables: [DATABASE_PASSWORD] }"),
    ("router.default", "chat"),
    (
        "router.rules",
        "[{ agent: books, keywords: [invoice, tax return] }, { agent: eyes, media-types: [image/*] }]",
    ),
    (
        "agents",
        r#"
  words: { program: { command: ./count_words.py }, card: { description: Counts words } }
  chat:
    model: { url: https://api.openai.com/v1, name: gpt-4o-mini, key: "${OPENAI_API_KEY}" }
    auth: { bearer: [{ name: alice, token: "${ALICE_TOKEN}" }] }  # only alice; otherwise as at the root
    limits: { turns-per-caller: 4 }"#,
    ),
    ("card.name", "Example Functions"),
    ("card.version", "1.2.0"),
    ("card.icon-url", "https://example.com/icon.png"),
    ("card.input-modes", "[text/plain, application/json]"),
    ("card.output-modes", "[text/plain, application/json]"),
    ("card.skills", "[{ id: quote, name: Quotes, description: Quotes prices, tags: [shop] }]"),
    ("card.schemes", "{ bearer: bearerAuth }"),
    ("engine.token", "\"${ENGINE_TOKEN}\""),
    ("engine.token-file", "/run/secrets/engine"),
    ("engine.connect", "[https://other.example.com]"),
    ("delegation.allow-networks", "[10.2.0.0/16]"),
    ("delegation.card-keys", "[/etc/attache/partners.json]"),
    ("delegation.api-token", "\"${API_TOKEN}\""),
    ("delegation.api-token-file", "/run/secrets/api"),
    (
        "delegation.agents",
        r#"
  - { url: https://other.example.com, bearer: "${OTHER_TOKEN}" }               # or: bearer-file
  - { url: https://keys.example.com, api-key: "${KEY}", header: X-API-Key }    # or: api-key-file
  - { url: https://names.example.com, basic: { name: ops, password: "${PASSWORD}" } }
  - { url: https://host.example.com/agents/7, headers: { X-Tenant: acme, X-Token: "${SEVEN_TOKEN}" } }
  - url: https://partner.example.com
    oauth: { server: https://auth.partner.example.com, client-id: attache, client-secret: "${CLIENT_SECRET}", scopes: [tasks] }"#,
    ),
];
