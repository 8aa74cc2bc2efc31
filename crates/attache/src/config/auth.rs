//! The section `auth` of the file: the callers and their credentials.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use attache::core::Identity;
use attache::server::auth::KeyPlace;
use schemars::JsonSchema;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::ConfigFile;
use super::error::ConfigError;
use super::secret::Secret;
use super::units::{FromText, HttpUrl};
use crate::command::Failure;

/// Who may call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Auth {
    /// Whether one of the kinds below suffices or each of them must be satisfied
    pub(crate) require: Option<Require>,
    /// Callers with a token of their own
    bearer: Vec<Bearer>,
    /// Callers with a key that stands in a header, in the query or in a cookie
    api_key: Vec<ApiKey>,
    /// Callers with a password
    basic: Vec<Basic>,
    /// Who else vouches for callers, with signed tokens
    pub(crate) jwt: Vec<Jwt>,
    /// Callers with a certificate
    pub(crate) mtls: Vec<Certificate>,
    /// Processes on this machine, over a Unix socket or over standard input and output, by the user that they run as
    pub(crate) unix: Vec<UnixCaller>,
}

/// What suffices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Require {
    /// Any one of the kinds
    #[default]
    Any,
    /// Each of the kinds
    All,
}

/// A caller with a token.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bearer {
    /// What the caller is called
    name: String,
    token: Option<Secret>,
    /// The file that the token is in
    token_file: Option<PathBuf>,
    /// What the caller may do
    #[serde(default)]
    scopes: Vec<String>,
    /// The audience that the caller belongs to
    tier: Option<String>,
}

/// A caller with a key.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ApiKey {
    /// What the caller is called
    name: String,
    key: Option<Secret>,
    /// The file that the key is in
    key_file: Option<PathBuf>,
    /// Where the key stands in a request; in a header if nothing is said
    #[serde(rename = "in")]
    place: Option<KeyIn>,
    /// The name of the header; `X-API-Key` if nothing is said
    header: Option<String>,
    /// The name in the query
    query: Option<String>,
    /// The name of the cookie
    cookie: Option<String>,
    /// What the caller may do
    #[serde(default)]
    scopes: Vec<String>,
    /// The audience that the caller belongs to
    tier: Option<String>,
}

/// Where a key stands in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum KeyIn {
    Header,
    Query,
    Cookie,
}

/// A caller with a password.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Basic {
    /// What the caller is called and logs in as
    name: String,
    password: Option<Secret>,
    /// The file that the password is in
    password_file: Option<PathBuf>,
    /// What the caller may do
    #[serde(default)]
    scopes: Vec<String>,
    /// The audience that the caller belongs to
    tier: Option<String>,
}

/// Someone who vouches for callers with signed tokens.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Jwt {
    /// What the claim `iss` of a token must be
    pub(crate) issuer: FromText<HttpUrl>,
    /// What stands before the names of its callers, as in `staff#alice`; the issuer if nothing is said
    pub(crate) name: Option<String>,
    /// What the claim `aud` of a token must be or contain one of
    pub(crate) audience: StringList,
    /// Where the keys are; found through the issuer's OpenID configuration if nothing is said
    pub(crate) jwks: Option<FromText<HttpUrl>>,
    /// What a token may be signed with; any of these if nothing is said
    #[serde(default)]
    pub(crate) algorithms: Vec<JwtAlgorithm>,
    /// The claim that says who the caller is; `sub` if nothing is said
    pub(crate) principal_claim: Option<String>,
    /// The claim that lists what the caller may do; `scope` if nothing is said
    pub(crate) scopes_claim: Option<String>,
    /// The claim that names the audience the caller belongs to
    pub(crate) tier_claim: Option<String>,
    /// The tiers that values of that claim stand for; the value is the tier if nothing is said
    #[serde(default)]
    pub(crate) tiers: BTreeMap<String, String>,
}

/// What a token may be signed with. Secrets that issuer and server share are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum JwtAlgorithm {
    ES256,
    EdDSA,
    PS256,
    RS256,
}

/// A caller with a certificate.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Certificate {
    /// What the caller is called
    pub(crate) name: String,
    /// The subject of the certificate
    pub(crate) subject: Option<String>,
    /// One of the names that the certificate is for
    pub(crate) san: Option<String>,
    /// What the caller may do
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// The audience that the caller belongs to
    pub(crate) tier: Option<String>,
}

/// Processes of one user on this machine.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct UnixCaller {
    /// What the caller is called
    pub(crate) name: String,
    /// The id of the user
    pub(crate) uid: u32,
    /// What the caller may do
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// The audience that the caller belongs to
    pub(crate) tier: Option<String>,
}

/// One text or a list of texts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct StringList(#[schemars(with = "OneOrMore")] pub(crate) Vec<String>);

/// The schema of [`StringList`].
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl<'de> Deserialize<'de> for StringList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = StringList;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a word or a list of words")
            }

            fn visit_str<E>(self, word: &str) -> Result<StringList, E> {
                Ok(StringList(vec![word.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<StringList, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(StringList(words))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// All callers, with their secrets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Callers {
    pub(crate) require: Require,
    pub(crate) known: Vec<SecretCaller>,
    pub(crate) jwt: Vec<Jwt>,
    pub(crate) mtls: Vec<Certificate>,
    pub(crate) unix: Vec<UnixCaller>,
}

/// A caller with a secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SecretCaller {
    pub(crate) identity: Identity,
    pub(crate) kind: CredentialKind,
    pub(crate) secret: Secret,
}

/// How the caller sends the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    Bearer,
    ApiKey(KeyPlace),
    Basic,
}

impl CredentialKind {
    /// The key of the list in the file.
    pub(crate) fn list(&self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::ApiKey(_) => "api-key",
            Self::Basic => "basic",
        }
    }
}

impl Callers {
    /// The kinds of credentials, each with the names of its callers.
    pub(crate) fn listed(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut lists: Vec<(&'static str, Vec<String>)> = Vec::new();
        for SecretCaller { identity, kind, .. } in &self.known {
            let name = identity.principal.to_string();
            match lists.iter_mut().find(|(list, _)| *list == kind.list()) {
                Some((_, names)) => names.push(name),
                None => lists.push((kind.list(), vec![name])),
            }
        }
        if !self.jwt.is_empty() {
            lists.push(("jwt", self.jwt.iter().map(|jwt| jwt.issuer.0.to_string()).collect()));
        }
        if !self.mtls.is_empty() {
            lists.push(("mtls", self.mtls.iter().map(|caller| caller.name.clone()).collect()));
        }
        if !self.unix.is_empty() {
            lists.push(("unix", self.unix.iter().map(|caller| caller.name.clone()).collect()));
        }
        lists
    }

    /// The tiers of callers, as far as they are known before a caller is authenticated.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = &str> {
        let known = self.known.iter().filter_map(|known| known.identity.rights.tier());
        let mapped = self.jwt.iter().flat_map(|jwt| jwt.tiers.values().map(String::as_str));
        let by_user = self.unix.iter().filter_map(|caller| caller.tier.as_deref());
        known.chain(mapped).chain(self.mtls.iter().filter_map(|caller| caller.tier.as_deref())).chain(by_user)
    }

    /// Whether some callers have a tier of their own.
    pub(crate) fn have_tiers(&self) -> bool {
        self.known.iter().any(|known| known.identity.rights.tier().is_some())
            || self.jwt.iter().any(|jwt| jwt.tier_claim.is_some())
            || self.mtls.iter().any(|caller| caller.tier.is_some())
            || self.unix.iter().any(|caller| caller.tier.is_some())
    }

    /// Says what is weaker, if a caller would need fewer credentials than with the settings `now`.
    pub(crate) fn asks_less_than(&self, now: &Self) -> Option<String> {
        let kinds = |callers: &Self| callers.listed().into_iter().map(|(list, _)| list).collect::<Vec<_>>();
        let then = kinds(self);
        match (now.require, self.require) {
            (Require::Any, _) => None,
            // With one kind of credentials, `any` and `all` are the same.
            (Require::All, Require::Any) if then.len() > 1 => Some(
                "callers would show one kind of credential instead of all: `auth.require` is not `all`"
                    .to_owned(),
            ),
            (Require::All, Require::Any | Require::All) => {
                let gone = kinds(now).into_iter().find(|kind| !then.contains(kind))?;
                Some(format!("callers would no longer need what `auth.{gone}` asks for"))
            }
        }
    }

    /// The callers in one line.
    pub(crate) fn summary(&self) -> String {
        let kind = |(list, names): (&str, Vec<String>)| format!("{} ({list})", names.join(", "));
        self.listed().into_iter().map(kind).collect::<Vec<_>>().join("; ")
    }

    /// The arguments of `attache send` for the first caller.
    pub(crate) fn as_flags(&self) -> String {
        match self.known.first().map(|SecretCaller { identity, kind, .. }| (identity, kind)) {
            Some((_, CredentialKind::Bearer)) | None => " --token TOKEN".to_owned(),
            Some((identity, CredentialKind::Basic)) => format!(" --user '{}:PASSWORD'", identity.principal),
            Some((_, CredentialKind::ApiKey(_))) => " --api-key KEY".to_owned(),
        }
    }

    /// The arguments of `curl` for the first caller.
    pub(crate) fn on_the_command_line(&self) -> String {
        let Some(SecretCaller { identity, kind, .. }) = self.known.first() else {
            return " -H 'Authorization: Bearer TOKEN'".to_owned();
        };
        match kind {
            CredentialKind::Bearer => " -H 'Authorization: Bearer TOKEN'".to_owned(),
            CredentialKind::Basic => format!(" -u '{}:PASSWORD'", identity.principal),
            CredentialKind::ApiKey(KeyPlace::Header(name)) => format!(" -H '{name}: KEY'"),
            CredentialKind::ApiKey(KeyPlace::Cookie(name)) => format!(" -b '{name}=KEY'"),
            CredentialKind::ApiKey(KeyPlace::Query(name)) => format!(" --url-query '{name}=KEY'"),
        }
    }
}

impl Auth {
    /// Checks all callers. All errors are reported, with their positions in the file. `path` is the path of this section.
    pub(super) fn callers(&self, file: &ConfigFile, path: &str) -> Result<Callers, Failure> {
        let mut checked = Checked { file, known: Vec::new(), secrets: HashMap::new() };
        let mut errors = Vec::new();
        for (index, Bearer { name, token, token_file, scopes, tier }) in self.bearer.iter().enumerate() {
            let entry = Entry { section: path, list: "bearer", index, name, scopes, tier: tier.as_deref() };
            let written = ("token", token.as_ref());
            errors.extend(checked.add(&entry, CredentialKind::Bearer, written, token_file.as_ref()).err());
        }
        for (index, caller) in self.api_key.iter().enumerate() {
            let ApiKey { name, key, key_file, scopes, tier, .. } = caller;
            let entry = Entry { section: path, list: "api-key", index, name, scopes, tier: tier.as_deref() };
            let place = caller.place().map_err(|error| checked.error(&entry.path(""), error));
            let added = place.and_then(|place| {
                let kind = CredentialKind::ApiKey(place);
                checked.add(&entry, kind, ("key", key.as_ref()), key_file.as_ref())
            });
            errors.extend(added.err());
        }
        for (index, Basic { name, password, password_file, scopes, tier }) in self.basic.iter().enumerate() {
            let entry = Entry { section: path, list: "basic", index, name, scopes, tier: tier.as_deref() };
            if name.contains(':') {
                let error = ConfigError::new("a name that logs in with a password can have no colon in it");
                errors.push(checked.error(&entry.path(".name"), error));
                continue;
            }
            let written = ("password", password.as_ref());
            errors.extend(checked.add(&entry, CredentialKind::Basic, written, password_file.as_ref()).err());
        }
        for (index, Jwt { audience: StringList(words), .. }) in self.jwt.iter().enumerate() {
            if words.is_empty() || words.iter().any(String::is_empty) {
                let error = ConfigError::new("a token must be for someone: this is empty");
                errors.push(checked.error(&format!("{path}.jwt[{index}].audience"), error));
            }
        }
        for (index, caller) in self.mtls.iter().enumerate() {
            let Certificate { name, subject, san, scopes, tier } = caller;
            let entry = Entry { section: path, list: "mtls", index, name, scopes, tier: tier.as_deref() };
            let others = self.mtls[..index].iter().map(|other| other.name.as_str());
            errors.extend(checked.name(&entry, others).err());
            if subject.is_some() == san.is_some() {
                let error =
                    ConfigError::new("a certificate is known by its `subject` or by a `san`: one of them");
                errors.push(checked.error(&entry.path(""), error));
            }
        }
        for (index, caller) in self.unix.iter().enumerate() {
            let UnixCaller { name, uid, scopes, tier } = caller;
            let entry = Entry { section: path, list: "unix", index, name, scopes, tier: tier.as_deref() };
            let others = &self.unix[..index];
            errors.extend(checked.name(&entry, others.iter().map(|other| other.name.as_str())).err());
            if let Some(other) = others.iter().find(|other| other.uid == *uid) {
                let error = ConfigError::new(format!("`{}` has the user id {uid} already", other.name));
                errors
                    .push(checked.error(&entry.path(".uid"), error.hint("a user id belongs to one caller")));
            }
        }
        if !errors.is_empty() {
            return Err(Failure::all(errors));
        }
        let callers = Callers {
            require: self.require.unwrap_or_default(),
            known: checked.known,
            jwt: self.jwt.clone(),
            mtls: self.mtls.clone(),
            unix: self.unix.clone(),
        };
        if callers.listed().is_empty() {
            let error = ConfigError::new("no callers are listed here");
            let hint = "list callers below `bearer`, `api-key`, `basic`, `jwt`, `mtls` or `unix`, or remove `auth` to let everyone in";
            return Err(file.error(path, error.hint(hint)));
        }
        Ok(callers)
    }
}

impl ApiKey {
    fn place(&self) -> Result<KeyPlace, ConfigError> {
        let said = [
            (KeyIn::Header, &self.header, KeyPlace::Header as fn(String) -> KeyPlace),
            (KeyIn::Query, &self.query, KeyPlace::Query),
            (KeyIn::Cookie, &self.cookie, KeyPlace::Cookie),
        ];
        let mut named =
            said.iter().filter_map(|(kind, name, make)| name.as_ref().map(|name| (kind, name, make)));
        let place = match (self.place, named.next(), named.next()) {
            (None | Some(KeyIn::Header), None, None) => return Ok(KeyPlace::Header("X-API-Key".to_owned())),
            (said, Some((kind, name, make)), None) if said.is_none_or(|said| said == *kind) => {
                let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
                if name.is_empty() || !name.bytes().all(token) {
                    return Err(ConfigError::new(format!(
                        "`{name}` cannot be the name of what a key stands in"
                    )));
                }
                make(name.clone())
            }
            _ => {
                return Err(ConfigError::new("it is not clear where the key stands").hint(
                    "such as `in: header` with `header: X-API-Key`, or `in: query` with `query: key`",
                ));
            }
        };
        Ok(place)
    }
}

/// An entry in one of the lists.
struct Entry<'a> {
    section: &'a str,
    list: &'static str,
    index: usize,
    name: &'a str,
    scopes: &'a [String],
    tier: Option<&'a str>,
}

impl Entry<'_> {
    fn path(&self, rest: &str) -> String {
        format!("{}.{}[{}]{rest}", self.section, self.list, self.index)
    }
}

/// The callers that have been checked.
struct Checked<'a> {
    file: &'a ConfigFile,
    known: Vec<SecretCaller>,
    /// Each secret with the path of its owner.
    secrets: HashMap<String, String>,
}

impl Checked<'_> {
    fn error(&self, path: &str, error: ConfigError) -> Failure {
        self.file.error(path, error)
    }

    fn name<'a>(&self, entry: &Entry<'_>, mut others: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        if entry.name.trim().is_empty() {
            return Err(self.error(&entry.path(".name"), ConfigError::new("a caller must have a name")));
        }
        if others.any(|other| other == entry.name) {
            let error = ConfigError::new(format!("`{}` is in this list already", entry.name));
            return Err(self.error(&entry.path(".name"), error.hint("give each caller a name of its own")));
        }
        Ok(())
    }

    fn add(
        &mut self,
        entry: &Entry<'_>,
        kind: CredentialKind,
        (key, written): (&str, Option<&Secret>),
        in_file: Option<&PathBuf>,
    ) -> Result<(), Failure> {
        let same_list = self.known.iter().filter(|known| known.kind.list() == entry.list);
        self.name(entry, same_list.filter_map(|known| known.identity.principal.name()))?;
        let (path, read) = match (written, in_file) {
            (Some(secret), None) => (entry.path(&format!(".{key}")), Ok(secret.clone())),
            (None, Some(path)) => (entry.path(&format!(".{key}-file")), Secret::in_file(path)),
            (None, None) => {
                let error = ConfigError::new(format!("`{}` has no `{key}`", entry.name));
                let hint = format!("such as `{key}: \"${{{}}}\"`, or `{key}-file: PATH`", key.to_uppercase());
                return Err(self.error(&entry.path(""), error.hint(hint)));
            }
            (Some(_), Some(_)) => {
                let error =
                    ConfigError::new(format!("`{}` has both a `{key}` and a `{key}-file`", entry.name));
                return Err(self.error(&entry.path(""), error));
            }
        };
        let secret = read.and_then(Secret::strong).map_err(|error| self.error(&path, error))?;
        if let Some(other) = self.secrets.insert(secret.reveal().to_owned(), path.clone()) {
            let error = ConfigError::new(format!("this is the same secret as `{other}`"))
                .hint("a secret tells callers apart: make another with `openssl rand -hex 32`");
            return Err(self.error(&path, error));
        }
        let identity = Identity::named(entry.name).scopes(entry.scopes.iter().cloned());
        let identity = match entry.tier {
            Some(tier) => identity.tier(tier),
            None => identity,
        };
        self.known.push(SecretCaller { identity, kind, secret });
        Ok(())
    }
}
