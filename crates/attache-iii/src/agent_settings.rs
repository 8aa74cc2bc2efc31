//! The credentials of other agents, as settings have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attache_client::{Address, AddressBook, AddressEntry, ClientError, OAuth, Secret};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The header that a key is in if nothing is said.
const KEY_HEADER: &str = "X-API-Key";

/// What an agent is shown: a token, a key, a name with a password, headers, or a token that is got from an authorization server
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentSettings {
    /// Where the agent is: scheme, host and port, and a path if only what is below it is meant
    #[schemars(example = &"https://agents.example.com")]
    url: String,
    /// The token that it is shown as `Authorization: Bearer …`
    bearer: Option<Given>,
    /// The file that the token is in
    bearer_file: Option<PathBuf>,
    /// The key that it is shown in a header
    api_key: Option<Given>,
    /// The file that the key is in
    api_key_file: Option<PathBuf>,
    /// The header that the key is in; `X-API-Key` if nothing is said
    header: Option<String>,
    /// The name and the password that it is shown
    basic: Option<BasicSettings>,
    /// The headers that it is shown
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    /// The authorization server that a token is got from
    oauth: Option<OAuthSettings>,
}

/// A name and a password.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BasicSettings {
    /// The name
    name: String,
    password: Option<Given>,
    /// The file that the password is in
    password_file: Option<PathBuf>,
}

/// A program that authorization servers know.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct OAuthSettings {
    /// The authorization server: scheme, host and port. No other gets the secret, whatever a card says
    #[schemars(example = &"https://auth.example.com")]
    server: String,
    /// What the server knows this program by
    client_id: String,
    client_secret: Option<Given>,
    /// The file that the secret is in
    client_secret_file: Option<PathBuf>,
    /// The scopes to ask for besides those that the card asks for
    #[serde(default)]
    scopes: Vec<String>,
}

/// A secret that others gave us, as long as they made it. Wherever it is written, a mask is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given(Secret);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl Serialize for Given {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("********")
    }
}

impl JsonSchema for Given {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GivenSecret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Better not written here but taken from the environment, or from a file of its own.",
            "examples": ["${TOKEN}"],
        })
    }
}

/// What is wrong with such settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFault {
    /// Where, below the list: such as `[0].bearer`; nothing, if it is the list itself.
    pub path: String,
    /// What is wrong.
    pub text: String,
    /// What would be right.
    pub hint: Option<&'static str>,
}

impl std::fmt::Display for AgentFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What is wrong with a member of an entry.
struct Wrong {
    member: &'static str,
    text: String,
    hint: Option<&'static str>,
}

impl Wrong {
    fn new(member: &'static str, text: impl Into<String>) -> Self {
        Self { member, text: text.into(), hint: None }
    }

    /// What the client finds wrong with a member.
    fn in_member(member: &'static str) -> impl Fn(ClientError) -> Self {
        move |error| Self::new(member, error.to_string())
    }
}

impl AgentSettings {
    /// The credentials of a list. Files that secrets are in are read now.
    pub fn book(list: &[Self]) -> Result<AddressBook, AgentFault> {
        let mut entries = Vec::new();
        for (index, settings) in list.iter().enumerate() {
            let entry = settings.entry().map_err(|Wrong { member, text, hint }| {
                let dot = if member.is_empty() { "" } else { "." };
                AgentFault { path: format!("[{index}]{dot}{member}"), text, hint }
            })?;
            entries.push(entry);
        }
        AddressBook::new(entries).map_err(|error| AgentFault {
            path: String::new(),
            text: error.to_string(),
            hint: None,
        })
    }

    fn entry(&self) -> Result<AddressEntry, Wrong> {
        let Self { url, bearer, bearer_file, api_key, api_key_file, header, basic, headers, oauth } = self;
        let address: Address = url.parse().map_err(Wrong::in_member("url"))?;
        let bearer = secret(("bearer", bearer.as_ref()), ("bearer-file", bearer_file.as_deref()))?;
        let key = secret(("api-key", api_key.as_ref()), ("api-key-file", api_key_file.as_deref()))?;
        let given = [
            ("bearer", bearer.is_some()),
            ("api-key", key.is_some()),
            ("basic", basic.is_some()),
            ("headers", !headers.is_empty()),
            ("oauth", oauth.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|(_, is_given)| *is_given).map(|(kind, _)| *kind).collect();
        if let [one, other, ..] = given[..] {
            let text =
                format!("an agent is shown one kind of credential, and there are `{one}` and `{other}`");
            let hint = Some("where it wants several at once, write all of them below `headers`");
            return Err(Wrong { hint, ..Wrong::new("", text) });
        }
        if header.is_some() && key.is_none() {
            return Err(Wrong::new("header", "this is where a key stands, and there is no `api-key`"));
        }
        if let Some(token) = bearer {
            return AddressEntry::bearer(address, &token).map_err(Wrong::in_member("bearer"));
        }
        if let Some(key) = key {
            let header = header.as_deref().unwrap_or(KEY_HEADER);
            return AddressEntry::api_key(address, header, &key).map_err(Wrong::in_member("api-key"));
        }
        if let Some(BasicSettings { name, password, password_file }) = basic {
            let places = (("password", password.as_ref()), ("password-file", password_file.as_deref()));
            let password =
                secret(places.0, places.1)?.ok_or_else(|| Wrong::new("basic", "there is no `password`"))?;
            return AddressEntry::basic(address, name, &password).map_err(Wrong::in_member("basic"));
        }
        if let Some(settings) = oauth {
            return settings.client().map(|client| AddressEntry::oauth(address, client));
        }
        if headers.is_empty() {
            let hint = Some("give it a `bearer`, an `api-key`, `basic`, `headers` or `oauth`");
            return Err(Wrong { hint, ..Wrong::new("", "it is not said what this agent is shown") });
        }
        let headers = headers.iter().map(|(name, Given(value))| (name.as_str(), value));
        AddressEntry::headers(address, headers).map_err(Wrong::in_member("headers"))
    }
}

impl OAuthSettings {
    fn client(&self) -> Result<OAuth, Wrong> {
        let Self { server, client_id, client_secret, client_secret_file, scopes } = self;
        let given = ("client-secret", client_secret.as_ref());
        let secret = secret(given, ("client-secret-file", client_secret_file.as_deref()))?;
        let secret = secret.ok_or_else(|| Wrong::new("oauth", "there is no `client-secret`"))?;
        let client = OAuth::new(client_id).secret(secret).scopes(scopes).program();
        client.server(server).map_err(Wrong::in_member("oauth"))
    }
}

/// A secret that is given, or in a file that is named.
fn secret(
    (member, given): (&'static str, Option<&Given>),
    (file_member, file): (&'static str, Option<&Path>),
) -> Result<Option<Secret>, Wrong> {
    match (given, file) {
        (Some(_), Some(_)) => {
            Err(Wrong::new("", format!("there is both a `{member}` and a `{file_member}`")))
        }
        (Some(Given(secret)), None) => Ok(Some(secret.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Wrong::new("", format!("`{file_member}: {}` cannot be read: {error}", path.display()))
            })?;
            match text.trim_end_matches(['\r', '\n']) {
                "" => {
                    Err(Wrong::new("", format!("there is no secret in `{file_member}: {}`", path.display())))
                }
                text => Ok(Some(text.into())),
            }
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use attache_client::{PresetCredentials, Credentials};
    use serde_json::{Value, json};

    use super::*;

    fn book(list: Value) -> Result<AddressBook, AgentFault> {
        AgentSettings::book(&serde_json::from_value::<Vec<_>>(list).unwrap())
    }

    #[test]
    fn each_kind_of_credential_is_what_its_agent_is_shown() {
        let book = book(json!([
            {"url": "https://bearer.example", "bearer": "t"},
            {"url": "https://key.example", "api-key": "k"},
            {"url": "https://named.example", "api-key": "k", "header": "X-Other"},
            {"url": "https://basic.example", "basic": {"name": "ops", "password": "p"}},
            {"url": "https://headers.example", "headers": {"Authorization": "Token t", "X-Tenant": "acme"}},
            {"url": "https://oauth.example", "oauth": {"server": "https://auth.example", "client-id": "c", "client-secret": "s"}},
        ]));
        let book = book.unwrap();
        let shown = |url: &str| match book.preset(&url.parse().unwrap()) {
            PresetCredentials::Headers(headers) => {
                let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                    format!("{name}: {}", value.to_str().unwrap())
                };
                let mut lines: Vec<_> = headers.iter().map(line).collect();
                lines.sort();
                lines.join(", ")
            }
            PresetCredentials::FromCard => "as asked".to_owned(),
            PresetCredentials::Anonymous => "nothing".to_owned(),
        };
        assert_eq!(shown("https://bearer.example"), "authorization: Bearer t");
        assert_eq!(shown("https://key.example"), "x-api-key: k");
        assert_eq!(shown("https://named.example"), "x-other: k");
        assert_eq!(shown("https://basic.example"), "authorization: Basic b3BzOnA=");
        assert_eq!(shown("https://headers.example"), "authorization: Token t, x-tenant: acme");
        assert_eq!(shown("https://oauth.example"), "as asked");
        assert_eq!(shown("https://other.example"), "nothing");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let mut faults = String::new();
        for entry in [
            json!({}),
            json!({"bearer": "t", "basic": {"name": "a", "password": "p"}}),
            json!({"bearer": "t", "bearer-file": "x"}),
            json!({"bearer": ""}),
            json!({"bearer-file": "/nowhere/at/all"}),
            json!({"header": "X-Key"}),
            json!({"api-key": "k", "header": "X Key"}),
            json!({"basic": {"name": "a"}}),
            json!({"basic": {"name": "a:b", "password": "p"}}),
            json!({"headers": {"Host": "b"}}),
            json!({"oauth": {"server": "https://auth.example", "client-id": "c"}}),
            json!({"oauth": {"server": "http://auth.example", "client-id": "c", "client-secret": "s"}}),
            json!({"url": "http://a.example", "bearer": "t"}),
        ] {
            let mut entry = entry;
            entry.as_object_mut().unwrap().entry("url").or_insert("https://a.example".into());
            let AgentFault { path, text, hint } = book(json!([entry])).unwrap_err();
            faults.push_str(&format!("{entry}\n    -> {path}: {text}; {}\n", hint.unwrap_or("-")));
        }
        let twice = json!({"url": "https://a.example", "bearer": "t"});
        faults.push_str(&format!("twice -> {}\n", book(json!([twice, twice])).unwrap_err()));
        insta::assert_snapshot!(faults);
    }
}
