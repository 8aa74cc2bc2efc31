//! The file that `attache config init` writes: every setting with its description and its default, commented out.
//!
//! It is made from the declarations, so a new setting is in it by itself. Settings without a default have an example from
//! [`EXAMPLES`], and say so.

use std::fmt::Write;

use clap::{Arg, Command};

use super::declare::{self, Row, Sense};

const INTRODUCTION: &str = "\
# The settings of `attache serve`.
#
# Each line that begins with `#` and a key is a setting: remove the `#` to set it. Its value is the default, unless the
# comment says that it is not set and that the value is an example.
#
# `attache serve` reads `attache.yml` in the working directory, or the file that `--config` names. `attache config check`
# checks a file, and `attache config show` prints each value and its source. `${NAME}` in a value is replaced by the
# environment variable NAME, and `$$` is a dollar sign. Sizes are `64KiB` or `8MiB`, times `250ms`, `30s`, `15m` or `30d`.
";

/// What stands before an example.
const NOT_SET: &str = "Not set. Example:";

/// The width that descriptions are wrapped at.
const WIDTH: usize = 110;

/// Examples for settings without a default. A setting without an example is left empty.
const EXAMPLES: &[(&str, &str)] = &[
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
    ("contexts.busy", "queue"),
    ("contexts.queue-limit", "16"),
    ("contexts.idle", "30m"),
    ("contexts.max", "1024"),
    ("contexts.end-state", "completed"),
    ("workspaces", "[/srv/projects]"),
    ("input.text-types", "[text/x-log]"),
    ("input.media-types", "[image/png, image/jpeg]"),
    ("input.max-text", "1MiB"),
    ("input.max-data", "1MiB"),
    ("input.max-media", "5MiB"),
    ("input.max-file", "25MiB"),
    ("input.max-total", "64MiB"),
    ("input.fetch-urls", "false"),
    ("input.fetch-networks", "[10.1.0.0/16]"),
    ("program.command", "[./agent.py, --fast]"),
    ("program.protocol", "text"),
    ("program.directory", "/srv/agent"),
    ("program.workspace", "/srv/project"),
    ("program.data-directory", "/var/lib/attache/workspaces"),
    ("program.environment", "{ MODE: fast, KEY: \"${AGENT_KEY}\" }"),
    ("program.pass-environment", "[SSL_CERT_FILE]"),
    ("program.timeout", "10m"),
    ("program.grace", "2s"),
    ("program.idle", "30m"),
    ("program.max-output", "16MiB"),
    ("program.processes", "16"),
    ("program.show-errors", "false"),
    ("program.budget", "{ time: 1h, per: 1d }"),
    ("model.url", "https://api.openai.com/v1"),
    ("model.name", "gpt-4o-mini"),
    ("model.key", "\"${OPENAI_API_KEY}\""),
    ("model.key-file", "/run/secrets/model"),
    ("model.system", "You answer questions about our shop."),
    ("model.parameters", "{ temperature: 0.2, max_tokens: 500 }"),
    ("model.tools", "[mcp:files, agent:research, functions]"),
    ("model.images", "false"),
    ("model.files", "[application/pdf, audio/wav]"),
    ("model.max-context", "256KiB"),
    ("model.tool-timeout", "1m"),
    ("model.max-rounds", "16"),
    ("model.retries", "3"),
    ("model.silence", "2m"),
    ("model.budget", "{ tokens: 100000, time: 1h, per: 1d }"),
    ("acp.command", "npx @google/gemini-cli --acp"),
    ("acp.workspace", "/srv/project"),
    ("acp.data-directory", "/var/lib/attache/workspaces"),
    ("acp.name", "coder"),
    ("acp.description", "Writes code"),
    ("acp.environment", "{ KEY: \"${AGENT_KEY}\" }"),
    ("acp.pass-environment", "[GEMINI_API_KEY]"),
    ("acp.auth-method", "gemini-api-key"),
    ("acp.permissions", "ask"),
    ("acp.permission-timeout", "10m"),
    ("acp.terminal", "false"),
    ("acp.show-thoughts", "false"),
    ("acp.idle", "30m"),
    ("acp.max-sessions", "64"),
    ("acp.start-timeout", "2m"),
    ("acp.timeout", "1h"),
    ("acp.grace", "2s"),
    ("acp.max-output", "16MiB"),
    ("acp.max-line", "16MiB"),
    ("acp.max-file", "1MiB"),
    ("acp.max-context", "256KiB"),
    ("mcp.command", "npx -y @modelcontextprotocol/server-everything"),
    ("mcp.url", "https://tools.example.com/mcp"),
    ("mcp.name", "Tools"),
    ("mcp.description", "Useful tools"),
    ("mcp.tools", "[echo, get-sum]"),
    ("mcp.directory", "/srv/tools"),
    ("mcp.environment", "{ KEY: \"${TOOLS_KEY}\" }"),
    ("mcp.pass-environment", "[SSL_CERT_FILE]"),
    ("mcp.grace", "2s"),
    ("mcp.exclusive", "false"),
    ("mcp.token", "\"${TOOLS_TOKEN}\""),
    ("mcp.token-file", "/run/secrets/tools"),
    ("mcp.headers", "{ X-Tenant: acme }"),
    (
        "mcp.oauth",
        "{ server: https://auth.example.com, client-id: attache, client-secret: \"${CLIENT_SECRET}\" }",
    ),
    ("mcp.roots", "[/srv/files]"),
    ("mcp.sampling", "{ url: https://api.openai.com/v1, name: gpt-4o-mini, key: \"${OPENAI_API_KEY}\" }"),
    ("mcp.start-timeout", "1m"),
    ("mcp.timeout", "10m"),
    ("mcp.question-timeout", "10m"),
    ("mcp.max-output", "16MiB"),
    ("mcp.calls", "64"),
    ("redis.url", "redis://127.0.0.1:6379/0"),
    ("redis.password", "\"${REDIS_PASSWORD}\""),
    ("redis.password-file", "/run/secrets/redis"),
    ("redis.ca-file", "/etc/attache/redis-ca.pem"),
    ("redis.request-stream", "attache:a2a:requests"),
    ("idle-shutdown", "10m"),
    ("redis.response-stream", "attache:a2a:responses"),
    ("redis.consumer-group", "attache"),
    ("redis.consumer-name", "server-1"),
    ("redis.reply-prefix", "\"attache:a2a:responses:\""),
    ("redis.dead-stream", "attache:a2a:requests:dead"),
    ("redis.in-flight", "256"),
    ("redis.streams", "256"),
    ("redis.max-entry-size", "8MiB"),
    ("redis.keep", "10000"),
    ("redis.expire", "1h"),
    ("redis.keep-dead", "1000"),
    ("redis.claim-after", "60s"),
    ("redis.max-deliveries", "5"),
    ("redis.in-card", "true"),
    ("redis.card-host", "redis.example.com:6379"),
    ("remote.url", "https://old.example.com"),
    ("remote.prefer", "[websocket, jsonrpc]"),
    ("remote.redis", "redis://user:password@redis.example.com:6379"),
    ("remote.refresh", "5m"),
    ("remote.wait", "false"),
    ("remote.timeout", "1h"),
    ("remote.max-bytes", "64MiB"),
    ("remote.show-ids", "false"),
    ("remote.max-links", "10000"),
    ("metadata-namespace", "attache"),
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
    ("safe-mode", "remote"),
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

/// The file.
pub(crate) fn template() -> String {
    let mut out = INTRODUCTION.to_owned();
    let command = super::arguments();
    let serve = command.find_subcommand("serve");
    let described = declare::described();
    for (key, description) in described {
        let is_section = described
            .iter()
            .any(|(other, _)| other.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.')));
        let (indent, name) = match key.split_once('.') {
            Some((_, name)) => ("  ", name),
            None => ("", key.as_str()),
        };
        // Writing to a text cannot fail.
        let _ = write_setting(&mut out, key, indent, name, description, is_section, serve);
    }
    out
}

fn write_setting(
    out: &mut String,
    key: &str,
    indent: &str,
    name: &str,
    description: &str,
    is_section: bool,
    serve: Option<&Command>,
) -> std::fmt::Result {
    if indent.is_empty() {
        out.push('\n');
    }
    let mut prose = String::from(indent);
    prose.push('#');
    for word in format!("{description}.").split(' ') {
        if prose.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{prose}")?;
            prose = format!("{indent}#");
        }
        write!(prose, " {word}")?;
    }
    writeln!(out, "{prose}")?;
    if is_section {
        return writeln!(out, "{name}:");
    }
    if let Some(default) = serve.and_then(|serve| default_of(serve, key)) {
        return writeln!(out, "{indent}#{name}: {default}");
    }
    writeln!(out, "{indent}# {NOT_SET}")?;
    let example = EXAMPLES.iter().find(|(of, _)| *of == key).map_or("", |(_, example)| example);
    let mut lines = example.split('\n');
    let first = lines.next().map(|first| format!("{name}: {first}")).unwrap_or_default();
    writeln!(out, "{indent}#{}", first.trim_end())?;
    lines.try_for_each(|line| writeln!(out, "{indent}#{line}"))
}

/// The default of a setting, as the file has it. `None` if it is not set by default.
fn default_of(serve: &Command, key: &str) -> Option<String> {
    let row = declare::rows().iter().find(|row| row.key == key)?;
    let argument = serve.get_arguments().find(|argument| argument.get_id() == row.argument)?;
    let values: Vec<_> = defaults(argument).map(|value| as_value(row, &value)).collect();
    match (row.sense, values.as_slice()) {
        (_, []) => None,
        (Sense::List, values) => Some(format!("[{}]", values.join(", "))),
        (Sense::Same | Sense::Seconds | Sense::Opposite, values) => values.first().cloned(),
    }
}

fn defaults(argument: &Arg) -> impl Iterator<Item = String> {
    argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned())
}

fn as_value(row: &Row, value: &str) -> String {
    let value = match row.sense {
        Sense::Opposite => (value != "true").to_string(),
        Sense::Seconds => format!("{value}s"),
        Sense::Same | Sense::List => value.to_owned(),
    };
    quoted(&value)
}

/// A text in YAML, in quotes only if it needs them.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:+ —,".contains(c);
    let first_is_plain = text.starts_with(|c: char| c.is_alphanumeric() || c == '/');
    match first_is_plain && text.chars().all(is_plain) && !text.contains(": ") && !text.ends_with([':', ' '])
    {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::Command as Subcommand;
    use crate::config::{DisplayValue, parse_arguments};

    /// The file of the repository, which `attache config init -` prints.
    const IN_REPOSITORY: &str = include_str!("../../../../attache.example.yml");

    /// Which settings to switch on.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Which {
        All,
        Defaults,
    }

    /// The file with its settings switched on.
    fn switched_on(text: &str, which: Which) -> String {
        let mut is_example = false;
        let mut out = String::new();
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let rest = line[indent..].strip_prefix('#');
            let is_prose = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            match rest {
                // An example goes on with lines that are indented.
                Some(rest) if is_prose && !(is_example && rest.starts_with("  ")) => {
                    is_example = rest.trim() == NOT_SET;
                    out.push_str(line);
                }
                Some(_) if is_example && which == Which::Defaults => out.push_str(line),
                Some(rest) => out.push_str(&format!("{}{rest}", &line[..indent])),
                None => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }

    /// The file with every setting in it.
    pub(in crate::config) fn everything() -> String {
        switched_on(&template(), Which::All)
    }

    fn resolved(text: &str) -> Vec<(String, DisplayValue)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attache.yml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["attache", "config", "show", "--config", path.to_str().unwrap()];
        let parsed = parse_arguments(&arguments.map(Into::into));
        let Ok(crate::Arguments { command: mut command @ Subcommand::Config(_) }) = parsed else {
            panic!("the file is not read")
        };
        let settings = &command.serve().unwrap().settings;
        settings.resolved.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }

    #[test]
    fn the_example_is_what_config_init_writes() {
        assert!(
            IN_REPOSITORY == template(),
            "attache.example.yml is not up to date: run `cargo xtask docs`, or `attache config init - > attache.example.yml`"
        );
    }

    #[test]
    fn each_value_that_is_not_an_example_is_the_default() {
        let defaults = switched_on(&template(), Which::Defaults);
        assert!(
            defaults.contains("\nlisten: [127.0.0.1:3111]\n") && defaults.contains("\n  body: 8MiB\n"),
            "{defaults}"
        );
        assert!(defaults.contains("\n#base-url: "), "{defaults}");
        assert_eq!(resolved(&defaults), resolved(""));
        assert_eq!(resolved(&template()), resolved(""));
    }

    #[test]
    fn each_example_is_for_a_setting_without_a_default() {
        let command = super::super::arguments();
        let serve = command.find_subcommand("serve").unwrap();
        for (key, _) in EXAMPLES {
            assert!(declare::described().iter().any(|(known, _)| known == key), "{key}");
            assert_eq!(default_of(serve, key), None, "{key}");
        }
    }

    #[test]
    fn text_is_quoted_where_yaml_would_read_something_else() {
        for (text, expected) in [
            ("127.0.0.1:3111", "127.0.0.1:3111"),
            ("memory:", "\"memory:\""),
            ("*", "\"*\""),
            ("a: b", "\"a: b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
