//! The settings for the credentials of other agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attache_client::{Address, AddressBook, AddressEntry, ClientError, OAuth, Secret};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The default header of an API key.
const DEFAULT_KEY_HEADER: &str = "X-API-Key";

/// The credential for an agent: a bearer token, an API key, a name and a password, headers, or a token of an authorization server
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentSettings {
    /// The address of the agent: scheme, host and port; with a path, the credential is only for URLs below it
    #[schemars(example = &"https://agents.example.com")]
    url: String,
    /// The token, sent as `Authorization: Bearer …`
    bearer: Option<IssuedSecret>,
    /// The file with the token
    bearer_file: Option<PathBuf>,
    /// The API key, sent in a header
    api_key: Option<IssuedSecret>,
    /// The file with the API key
    api_key_file: Option<PathBuf>,
    /// The header of the API key; default `X-API-Key`
    header: Option<String>,
    /// The name and the password for basic authentication
    basic: Option<BasicSettings>,
    /// Headers that are sent with each request
    #[serde(default)]
    headers: BTreeMap<String, IssuedSecret>,
    /// The authorization server that issues a token
    oauth: Option<OAuthSettings>,
}

/// A name and a password.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BasicSettings {
    /// The name
    name: String,
    password: Option<IssuedSecret>,
    /// The file with the password
    password_file: Option<PathBuf>,
}

/// An OAuth client.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OAuthSettings {
    /// The authorization server: scheme, host and port. The secret is sent to no other server, even if a card names one
    #[schemars(example = &"https://auth.example.com")]
    server: String,
    /// The client id of this program at the server
    client_id: String,
    client_secret: Option<IssuedSecret>,
    /// The file with the secret
    client_secret_file: Option<PathBuf>,
    /// The scopes to request in addition to those in the card
    #[serde(default)]
    scopes: Vec<String>,
}

/// A secret that another party issued, of any length. It is serialized as a mask.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IssuedSecret(Secret);

impl<'de> Deserialize<'de> for IssuedSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl Serialize for IssuedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("********")
    }
}

impl JsonSchema for IssuedSecret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GivenSecret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Better taken from the environment or from a separate file than written here.",
            "examples": ["${TOKEN}"],
        })
    }
}

/// An error in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFault {
    /// The path below the list, such as `[0].bearer`; empty for the list itself.
    pub path: String,
    /// The error.
    pub text: String,
    /// What to do about it.
    pub hint: Option<&'static str>,
}

impl std::fmt::Display for AgentFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// An error in a member of an entry.
struct MemberError {
    member: &'static str,
    text: String,
    hint: Option<&'static str>,
}

impl MemberError {
    fn new(member: &'static str, text: impl Into<String>) -> Self {
        Self { member, text: text.into(), hint: None }
    }

    /// Converts an error of the client about a member.
    fn in_member(member: &'static str) -> impl Fn(ClientError) -> Self {
        move |error| Self::new(member, error.to_string())
    }
}

impl AgentSettings {
    /// Builds the address book of a list. Reads the files of secrets.
    pub fn book(list: &[Self]) -> Result<AddressBook, AgentFault> {
        let mut entries = Vec::new();
        for (index, settings) in list.iter().enumerate() {
            let entry = settings.entry().map_err(|MemberError { member, text, hint }| {
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

    fn entry(&self) -> Result<AddressEntry, MemberError> {
        let Self { url, bearer, bearer_file, api_key, api_key_file, header, basic, headers, oauth } = self;
        let address: Address = url.parse().map_err(MemberError::in_member("url"))?;
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
                format!("an entry has only one kind of credential, and there are `{one}` and `{other}`");
            let hint = Some("if the agent needs several at once, write all of them below `headers`");
            return Err(MemberError { hint, ..MemberError::new("", text) });
        }
        if header.is_some() && key.is_none() {
            return Err(MemberError::new(
                "header",
                "this is the header of an API key, and there is no `api-key`",
            ));
        }
        if let Some(token) = bearer {
            return AddressEntry::bearer(address, &token).map_err(MemberError::in_member("bearer"));
        }
        if let Some(key) = key {
            let header = header.as_deref().unwrap_or(DEFAULT_KEY_HEADER);
            return AddressEntry::api_key(address, header, &key).map_err(MemberError::in_member("api-key"));
        }
        if let Some(BasicSettings { name, password, password_file }) = basic {
            let given = ("password", password.as_ref());
            let password = secret(given, ("password-file", password_file.as_deref()))?
                .ok_or_else(|| MemberError::new("basic", "there is no `password`"))?;
            return AddressEntry::basic(address, name, &password).map_err(MemberError::in_member("basic"));
        }
        if let Some(settings) = oauth {
            return settings.client().map(|client| AddressEntry::oauth(address, client));
        }
        if headers.is_empty() {
            let hint = Some("add a `bearer`, an `api-key`, `basic`, `headers` or `oauth`");
            return Err(MemberError {
                hint,
                ..MemberError::new("", "there is no credential for this agent")
            });
        }
        let headers = headers.iter().map(|(name, IssuedSecret(value))| (name.as_str(), value));
        AddressEntry::headers(address, headers).map_err(MemberError::in_member("headers"))
    }
}

impl OAuthSettings {
    /// The client. Reads the file of the secret.
    pub fn oauth(&self) -> Result<OAuth, AgentFault> {
        self.client().map_err(|MemberError { member, text, hint }| AgentFault {
            path: member.to_owned(),
            text,
            hint,
        })
    }

    /// The file of the secret, if it has one.
    pub fn secret_file(&self) -> Option<&Path> {
        self.client_secret_file.as_deref()
    }

    fn client(&self) -> Result<OAuth, MemberError> {
        let Self { server, client_id, client_secret, client_secret_file, scopes } = self;
        let given = ("client-secret", client_secret.as_ref());
        let secret = secret(given, ("client-secret-file", client_secret_file.as_deref()))?;
        let secret = secret.ok_or_else(|| MemberError::new("oauth", "there is no `client-secret`"))?;
        let client = OAuth::new(client_id).secret(secret).scopes(scopes).program();
        client.server(server).map_err(MemberError::in_member("oauth"))
    }
}

/// A secret from the settings, or from the file that they name.
fn secret(
    (member, given): (&'static str, Option<&IssuedSecret>),
    (file_member, file): (&'static str, Option<&Path>),
) -> Result<Option<Secret>, MemberError> {
    match (given, file) {
        (Some(_), Some(_)) => {
            Err(MemberError::new("", format!("there is both a `{member}` and a `{file_member}`")))
        }
        (Some(IssuedSecret(secret)), None) => Ok(Some(secret.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                MemberError::new("", format!("`{file_member}: {}` cannot be read: {error}", path.display()))
            })?;
            match text.trim_end_matches(['\r', '\n']) {
                "" => Err(MemberError::new(
                    "",
                    format!("there is no secret in `{file_member}: {}`", path.display()),
                )),
                text => Ok(Some(text.into())),
            }
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use attache_client::{Credentials, PresetCredentials};
    use serde_json::{Value, json};

    use super::*;

    fn book(list: Value) -> Result<AddressBook, AgentFault> {
        AgentSettings::book(&serde_json::from_value::<Vec<_>>(list).unwrap())
    }

    #[test]
    fn each_kind_of_credential_is_sent_to_its_agent() {
        let book = book(json!([
            {"url": "https://bearer.example", "bearer": "t"},
            {"url": "https://key.example", "api-key": "k"},
            {"url": "https://named.example", "api-key": "k", "header": "X-Other"},
            {"url": "https://basic.example", "basic": {"name": "ops", "password": "p"}},
            {"url": "https://headers.example", "headers": {"Authorization": "Token t", "X-Tenant": "acme"}},
            {"url": "https://oauth.example", "oauth": {"server": "https://auth.example", "client-id": "c", "client-secret": "s"}},
        ]));
        let book = book.unwrap();
        let sent = |url: &str| match book.preset(&url.parse().unwrap()) {
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
        assert_eq!(sent("https://bearer.example"), "authorization: Bearer t");
        assert_eq!(sent("https://key.example"), "x-api-key: k");
        assert_eq!(sent("https://named.example"), "x-other: k");
        assert_eq!(sent("https://basic.example"), "authorization: Basic b3BzOnA=");
        assert_eq!(sent("https://headers.example"), "authorization: Token t, x-tenant: acme");
        assert_eq!(sent("https://oauth.example"), "as asked");
        assert_eq!(sent("https://other.example"), "nothing");
    }

    #[test]
    fn errors_have_the_path_of_the_member() {
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
        let entry = json!({"url": "https://a.example", "bearer": "t"});
        faults.push_str(&format!("the same address twice -> {}\n", book(json!([entry, entry])).unwrap_err()));
        insta::assert_snapshot!(faults);
    }
}
