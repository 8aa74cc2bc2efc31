//! The settings for agents at work: what they report, what they may do, and what must not leave the machine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use attache::core::{
    Exposure, Namespace, Options, PermissionAction, PermissionPattern, PermissionRule, SHORTEST_SECRET,
};
use attache::protocol::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ResolvedSettings;
use super::secret::Secret;
use super::settings::Settings;
use super::tree::{Environment, Node, Value};
use super::units::{Described, FromText, Time};

/// The namespace of the metadata about an agent at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MetadataNamespace {
    /// `attache`, for readers that activate the extension
    Attache,
    /// `iac_code`, as clients of iac-code know it, for all readers
    #[serde(alias = "iac-code")]
    IacCode,
}

/// What callers see of an agent at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThinkingExposure(Exposure);

impl<'de> Deserialize<'de> for ThinkingExposure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Exposure;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of `tool-trace` and `raw-thinking`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Exposure, E> {
                Exposure::parse([text]).map_err(E::custom)
            }

            fn visit_bool<E: serde::de::Error>(self, all: bool) -> Result<Exposure, E> {
                Exposure::parse([if all { "true" } else { "false" }]).map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Exposure, E> {
                Exposure::parse([number.to_string().as_str()]).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Exposure, A::Error> {
                let mut names: Vec<String> = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Exposure::parse(names.iter().map(String::as_str)).map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(Names).map(Self)
    }
}

impl Serialize for ThinkingExposure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.0.types().into_iter().map(|name| name.replace('_', "-"));
        names.collect::<Vec<_>>().serialize(serializer)
    }
}

impl JsonSchema for ThinkingExposure {
    fn schema_name() -> Cow<'static, str> {
        "ThinkingExposure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A list of names, or a text with several of them; `all`, `none`",
            "type": ["string", "array", "boolean", "integer"],
            "items": {"type": "string"},
            "examples": [["tool-trace", "raw-thinking"]],
        })
    }
}

/// What happens with a request for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PermissionChoice {
    /// It is allowed
    Allow,
    /// It is denied
    Deny,
    /// The caller is asked
    Ask,
}

impl From<PermissionChoice> for PermissionAction {
    fn from(choice: PermissionChoice) -> Self {
        match choice {
            PermissionChoice::Allow => Self::Allow,
            PermissionChoice::Deny => Self::Deny,
            PermissionChoice::Ask => Self::Ask,
        }
    }
}

/// A rule about what agents may do.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PermissionSetting {
    /// The name or the kind of the tool, with `*` for any text; every tool if this is not set
    tool: Option<FromText<PermissionPattern>>,
    /// The path of a file, relative to the workspace, with `*` and `**`; any if this is not set
    path: Option<FromText<PermissionPattern>>,
    /// What happens
    action: PermissionChoice,
}

impl Described for PermissionPattern {
    const NAME: &'static str = "Pattern";
    const PATTERN: &'static str = "^.+$";
    const EXAMPLE: &'static str = "src/**";
}

impl PermissionSetting {
    fn rule(&self) -> PermissionRule {
        let tool = self.tool.as_ref().map(|FromText(tool)| tool.clone());
        let tool = tool.unwrap_or_else(PermissionPattern::any);
        let path = self.path.as_ref().map(|FromText(path)| path.clone());
        PermissionRule { tool, path, action: self.action.into() }
    }
}

/// Whether paths of this machine and secrets are hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SafeMode {
    /// Secrets always, and paths if other machines can connect
    #[default]
    Remote,
    /// Secrets and paths always
    Always,
    /// Nothing is hidden
    Off,
}

/// What is masked beside the secrets of the settings.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct MaskSettings {
    /// Environment variables whose values are masked
    pub(crate) variables: Vec<String>,
}

/// The URI of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtensionUri(pub(crate) String);

impl FromStr for ExtensionUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b',' && byte != b'"';
        match !text.is_empty()
            && text.len() <= limits::EXTENSION_URI
            && text.contains(':')
            && text.bytes().all(is_plain)
        {
            true => Ok(Self(text.to_owned())),
            false => Err("expected the URI of an extension, such as `https://example.com/ext/v1`".to_owned()),
        }
    }
}

impl fmt::Display for ExtensionUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Described for ExtensionUri {
    const NAME: &'static str = "ExtensionUri";
    const PATTERN: &'static str = "^[!-~]+:[!-~]+$";
    const EXAMPLE: &'static str = "https://example.com/ext/v1";
}

impl Settings {
    /// Sets how agents report, and what they may do.
    pub(crate) fn work_options(&self, options: &mut Options) {
        if let Some(namespace) = self.metadata_namespace {
            options.reports.namespace = match namespace {
                MetadataNamespace::Attache => Namespace::Attache,
                MetadataNamespace::IacCode => Namespace::IacCode,
            };
        }
        if let Some(ThinkingExposure(exposure)) = self.thinking_exposure {
            options.reports.exposure = exposure;
        }
        let policy = &mut options.permissions;
        policy.rules = self.permissions.iter().map(PermissionSetting::rule).collect();
        policy.default = self.permission_default.map(Into::into);
        policy.timeout = self.permission_timeout.as_ref().map(|FromText(Time(time))| *time);
    }
}

/// The keys of the file whose values are secrets.
const SECRETS: &[&str] =
    &["token", "key", "password", "secret", "bearer", "api-key", "client-secret", "api-token"];

/// What the names of our own environment variables begin with.
const OWN_VARIABLES: &str = concat!("ATTACHE", "_");

/// The section whose `key` is a file.
const SECTION_WITH_KEY_FILE: &str = "tls";

/// Whether the name of a variable or a header says that its value is secret.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTHORIZATION", "COOKIE"]
        .iter()
        .any(|word| name.contains(word))
}

impl ResolvedSettings {
    /// All secrets of the settings and of the environment variables to mask. Some may be too short to be masked.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        let masked =
            self.file.as_ref().map(|file| file.settings.mask.variables.as_slice()).unwrap_or_default();
        if let Some(file) = &self.file {
            collect(&file.root, masked, &|name| std::env::var(name).ok(), &mut found);
        }
        for (name, value) in std::env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
            let is_ours = name.starts_with(OWN_VARIABLES) && !name.ends_with("_FILE") && sounds_secret(name);
            if is_ours || masked.iter().any(|known| known == name) {
                found.insert(value.to_owned());
            }
        }
        // Files and variables that flags name.
        for setting in &self.resolved {
            if setting.key.rsplit('.').next() == Some(PASSED)
                && let super::DisplayValue::List(names) = &setting.value
            {
                found.extend(
                    names.iter().flat_map(|name| passed_variable(name, &|name| std::env::var(name).ok())),
                );
            }
            let is_secret = setting
                .key
                .strip_suffix("-file")
                .is_some_and(|key| key.rsplit('.').next().is_some_and(|name| SECRETS.contains(&name)));
            if is_secret && let super::DisplayValue::Text(path) = &setting.value {
                found.extend(Secret::in_file(Path::new(path)).ok().map(|secret| secret.reveal().to_owned()));
            }
        }
        found.into_iter().collect()
    }

    /// The variables to mask that are not set, or whose values are too short for that.
    pub(crate) fn unmasked_variables(&self) -> Vec<&str> {
        let names = self.file.iter().flat_map(|file| file.settings.mask.variables.iter());
        let is_short =
            |name: &&String| std::env::var(name).map_or(true, |value| value.len() < SHORTEST_SECRET);
        names.filter(is_short).map(String::as_str).collect()
    }
}

/// Adds the secrets at a node and below it.
fn collect(node: &Node, masked: &[String], environment: Environment<'_>, found: &mut BTreeSet<String>) {
    let below = |node: &Node, found: &mut BTreeSet<String>| collect(node, masked, environment, found);
    match &node.value {
        Value::Nothing => {}
        Value::Text { text, variables } => {
            found.extend(passwords_in(text));
            let secret = variables.iter().filter(|name| sounds_secret(name));
            found.extend(secret.filter_map(|name| environment(name)));
        }
        Value::List(nodes) => nodes.iter().for_each(|node| below(node, found)),
        Value::Map(entries) => {
            let own = node.path.rsplit(['.', ']']).next().unwrap_or_default();
            for entry in entries {
                let key = entry.key.as_str();
                below(&entry.node, found);
                if key == PASSED {
                    found.extend(passed(&entry.node, environment));
                }
                let Value::Text { text, .. } = &entry.node.value else { continue };
                let is_secret = match own {
                    "environment" | "headers" => {
                        let is_named =
                            |name: &String| name.replace('_', "-").eq_ignore_ascii_case(key) || name == key;
                        sounds_secret(key) || masked.iter().any(is_named)
                    }
                    _ => SECRETS.contains(&key) && !(key == "key" && own == SECTION_WITH_KEY_FILE),
                };
                if is_secret {
                    found.insert(text.clone());
                }
                if key.strip_suffix("-file").is_some_and(|key| SECRETS.contains(&key)) {
                    found.extend(Secret::in_file(Path::new(text)).ok().map(|it| it.reveal().to_owned()));
                }
            }
        }
    }
}

/// The key with the environment variables that a program gets.
const PASSED: &str = "pass-environment";

/// The secrets in the environment variables that a program gets: whole values, as far as their names say that they are secret, and
/// passwords in URLs.
fn passed(names: &Node, environment: Environment<'_>) -> Vec<String> {
    let Value::List(names) = &names.value else { return Vec::new() };
    let mut found = Vec::new();
    for name in names {
        let Value::Text { text: name, .. } = &name.value else { continue };
        found.extend(passed_variable(name, environment));
    }
    found
}

/// The secrets in one of the variables that a program gets.
fn passed_variable(name: &str, environment: Environment<'_>) -> Vec<String> {
    let Some(value) = environment(name) else { return Vec::new() };
    let mut found: Vec<String> = passwords_in(&value).into_iter().collect();
    if sounds_secret(name) {
        found.push(value);
    }
    found
}

/// The password in a text that is a URL, as it is written there and as it is meant.
fn passwords_in(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else { return Vec::new() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let Some((_, written)) = password else { return Vec::new() };
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    let meant = String::from_utf8(bytes).ok();
    std::iter::once(written.to_owned()).chain(meant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn read(text: &str) -> ConfigFile {
        ConfigFile::read(Path::new("attache.yml"), text, &|_| None, &|_| true, None)
    }

    fn options(text: &str) -> Options {
        let file = read(text);
        assert!(file.errors.is_empty(), "{:?}", file.errors);
        let mut options = Options::default();
        file.settings.work_options(&mut options);
        options
    }

    #[test]
    fn the_exposure_has_every_spelling() {
        let types = |text: &str| options(text).reports.exposure.types();
        assert_eq!(types(""), ["tool_trace"]);
        assert_eq!(types("thinking-exposure:"), ["tool_trace"]);
        assert_eq!(types("thinking-exposure: [tool-trace, raw_thinking]"), ["raw_thinking", "tool_trace"]);
        assert_eq!(types("thinking-exposure: tool-trace;raw-thinking"), ["raw_thinking", "tool_trace"]);
        assert_eq!(types("thinking-exposure: all"), ["raw_thinking", "tool_trace"]);
        for nothing in ["none", "off", "false", "0", "\"\"", "[]"] {
            assert_eq!(types(&format!("thinking-exposure: {nothing}")), [""; 0], "{nothing}");
        }
        let errors = format!("{:?}", read("thinking-exposure: [thoughts]").errors);
        assert!(errors.contains("`thoughts` cannot be exposed"), "{errors}");
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let policy = options(
            "permissions:\n  - { tool: \"edit*\", path: \"src/**\", action: allow }\n  - { action: deny }\n\
             permission-default: ask\npermission-timeout: 5m\n",
        )
        .permissions;
        assert_eq!(policy.rules.len(), 2);
        assert_eq!(policy.rules[0].path.as_ref().map(ToString::to_string).as_deref(), Some("src/**"));
        assert_eq!(policy.rules[1].tool.to_string(), "**");
        assert_eq!(policy.default, Some(PermissionAction::Ask));
        assert_eq!(policy.timeout, Some(std::time::Duration::from_secs(300)));
        let errors = format!("{:?}", read("permissions: [{ tool: edit, action: maybe }]").errors);
        assert!(errors.contains("maybe"), "{errors}");
    }

    #[test]
    fn an_extension_is_a_uri() {
        assert!("https://example.com/ext/v1".parse::<ExtensionUri>().is_ok());
        assert!("urn:x:y".parse::<ExtensionUri>().is_ok());
        for wrong in ["", "name", "urn:a b", "urn:a,urn:b", "urn:ä"] {
            assert!(wrong.parse::<ExtensionUri>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_secrets_of_the_file_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "from-a-file-1\n").unwrap();
        let text = format!(
            "auth: {{ bearer: [{{ name: a, token: token-of-alice }}, {{ name: b, token-file: {} }}] }}\n\
             tls: {{ key: /etc/server.key }}\n\
             signing: {{ secret: secret-of-the-card }}\n\
             model: {{ key: key-of-model }}\n\
             mask: {{ variables: [REGION] }}\n\
             agents:\n  one: {{ program: {{ command: x, environment: {{ API_KEY: key-of-program, MODE: production, REGION: region-of-program }} }} }}\n\
             delegation:\n  agents: [{{ url: https://a.example, basic: {{ name: ops, password: password-of-ops }} }}]\n",
            path.display()
        );
        let settings = ResolvedSettings { file: Some(read(&text)), resolved: Vec::new() };
        let found = settings.secrets();
        for secret in [
            "token-of-alice",
            "from-a-file-1",
            "key-of-model",
            "secret-of-the-card",
            "key-of-program",
            "region-of-program",
            "password-of-ops",
        ] {
            assert!(found.iter().any(|known| known == secret), "{secret} is not in {found:?}");
        }
        for other in ["production", "/etc/server.key"] {
            assert!(!found.iter().any(|known| known == other), "{other}");
        }
    }

    #[test]
    fn secrets_are_found_in_variables_and_in_urls() {
        let environment = |name: &str| {
            let value = match name {
                "DATABASE_URL" => "postgres://me:database-password@db/x",
                "SERVICE_API_KEY" => "the-key-of-the-service",
                "LANG" => "en_US.UTF-8",
                "MY_TOKEN" => "the-token-in-a-command",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let mut found = BTreeSet::new();
        let text = "redis: { url: \"rediss://user:p%40ssword-1@redis.example:6380/0\" }\n\
                    program:\n  command: [run, \"--auth=${MY_TOKEN}\"]\n  pass-environment: [DATABASE_URL, SERVICE_API_KEY, LANG]\n";
        let file = ConfigFile::read(Path::new("attache.yml"), text, &environment, &|_| true, None);
        assert!(file.errors.is_empty(), "{:?}", file.errors);
        collect(&file.root, &[], &environment, &mut found);
        let expected = [
            "database-password",
            "p%40ssword-1",
            "p@ssword-1",
            "the-key-of-the-service",
            "the-token-in-a-command",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
