//! Credentials by address, for programs that call agents at addresses that others give.
//!
//! Each credential belongs to an [`Address`] and is sent nowhere else: neither to the target of a redirect, nor to an interface
//! at another address.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_outbound::FRAMING;
use futures::future::{BoxFuture, FutureExt};
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Origin;

use crate::ClientError;
#[cfg(feature = "oauth")]
use crate::OAuth;
use crate::credentials::{
    Credential, CredentialFuture, CredentialRequest, Credentials, PresetCredentials, Secret, basic_pair,
    secret_header,
};
use crate::http::{display_text, is_local};
use crate::origins::is_same;

/// An address that credentials may be sent to: scheme, host and port, and everything below a path.
///
/// It must use TLS, because otherwise the credentials could be read in transit. Addresses on this machine need no TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    origin: Origin,
    /// Without the trailing slash; empty for the whole server.
    path: String,
}

impl FromStr for Address {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let invalid = |why: &str| {
            let shown = display_text(text);
            ClientError::Invalid(format!("`{shown}` is not an address that a credential can be for: {why}"))
        };
        let url = Url::parse(text).map_err(|error| {
            invalid(&format!("{error}; expected something like `https://agents.example.com`"))
        })?;
        match url.scheme() {
            "https" => {}
            "http" if is_local(&url) => {}
            "http" => return Err(invalid("without TLS it could be read in transit; use `https://`")),
            _ => return Err(invalid("it must begin with `https://`")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("there is a name or a password in it"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("there is a query or a fragment in it"));
        }
        Ok(Self { origin: url.origin(), path: url.path().trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin.ascii_serialization(), self.path)
    }
}

impl Address {
    /// Whether a URL is at this address or below it.
    pub fn holds(&self, url: &Url) -> bool {
        if !is_same(&self.origin, &url.origin()) {
            return false;
        }
        if self.path.is_empty() {
            return true;
        }
        // Some servers decode these to slashes, so that a segment could lead to a parent path.
        let path = url.path().to_ascii_lowercase();
        let hides_steps = path.contains("%2f") || path.contains("%5c");
        let below = url.path().strip_prefix(&self.path);
        !hides_steps && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A credential and its address.
#[derive(Debug, Clone)]
pub struct AddressEntry {
    address: Address,
    shows: EntryCredential,
}

#[derive(Debug, Clone)]
enum EntryCredential {
    Headers(HeaderMap),
    #[cfg(feature = "oauth")]
    Token(Box<OAuth>),
}

impl AddressEntry {
    /// A token, sent as `Authorization: Bearer …`.
    pub fn bearer(address: Address, token: &Secret) -> Result<Self, ClientError> {
        let value = secret_header(&format!("Bearer {}", require_non_empty(token, "token")?), "token")?;
        Ok(Self::shows(address, [(AUTHORIZATION, value)]))
    }

    /// An API key, sent in a header.
    pub fn api_key(address: Address, name: &str, key: &Secret) -> Result<Self, ClientError> {
        let value = secret_header(require_non_empty(key, "key")?, "key")?;
        Ok(Self::shows(address, [(header_name(name)?, value)]))
    }

    /// A user name and a password, sent as `Authorization: Basic …`.
    pub fn basic(address: Address, user: &str, password: &Secret) -> Result<Self, ClientError> {
        if user.is_empty() || user.contains(':') {
            let text = "a name that comes with a password must not be empty, and can have no colon in it";
            return Err(ClientError::Invalid(text.to_owned()));
        }
        let pair = basic_pair(user, require_non_empty(password, "password")?);
        Ok(Self::shows(address, [(AUTHORIZATION, secret_header(&format!("Basic {pair}"), "password")?)]))
    }

    /// Any headers but those that frame a request or that the protocol uses.
    pub fn headers<'a>(
        address: Address,
        headers: impl IntoIterator<Item = (&'a str, &'a Secret)>,
    ) -> Result<Self, ClientError> {
        let pair = |(name, value): (&str, &Secret)| {
            Ok((header_name(name)?, secret_header(value.reveal(), format_args!("header `{name}`"))?))
        };
        let headers = headers.into_iter().map(pair).collect::<Result<Vec<_>, ClientError>>()?;
        if headers.is_empty() {
            return Err(ClientError::Invalid("there is no header to send".to_owned()));
        }
        Ok(Self::shows(address, headers))
    }

    /// A token from an authorization server, for agents whose cards ask for one.
    #[cfg(feature = "oauth")]
    pub fn oauth(address: Address, oauth: OAuth) -> Self {
        Self { address, shows: EntryCredential::Token(Box::new(oauth)) }
    }

    fn shows(address: Address, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        Self { address, shows: EntryCredential::Headers(headers.into_iter().collect()) }
    }
}

fn require_non_empty<'a>(secret: &'a Secret, what: &str) -> Result<&'a str, ClientError> {
    match secret.reveal() {
        "" => Err(ClientError::Invalid(format!("the {what} is empty"))),
        text => Ok(text),
    }
}

fn header_name(name: &str) -> Result<HeaderName, ClientError> {
    let invalid = |why: &str| {
        let shown: String = name.chars().filter(|it| !it.is_control()).take(64).collect();
        ClientError::Invalid(format!("`{shown}` {why}"))
    };
    let read = HeaderName::from_bytes(name.as_bytes());
    let name = read.map_err(|_| invalid("cannot be the name of a header"))?;
    let is_ours = [ACCEPT, CONTENT_TYPE].contains(&name) || name.as_str().starts_with("a2a-");
    if is_ours || FRAMING.contains(&name) {
        return Err(invalid("frames the request or belongs to the protocol, so a credential cannot set it"));
    }
    Ok(name)
}

/// Credentials by address. Cheap to clone; clones share the entries.
///
/// The credential of an address is sent with every request to it, including the one for the card, independently of what the
/// card asks for. An [OAuth](AddressEntry::oauth) token is sent only if the card asks for it. Other addresses receive nothing.
///
/// ```
/// use attache_client::{AddressBook, AddressEntry, ClientOptions};
///
/// let entry = AddressEntry::bearer("https://agents.example.com".parse()?, &"eyJhbGciOi…".into())?;
/// let options = ClientOptions::default().with_credentials(AddressBook::new([entry])?);
/// # Ok::<(), attache_client::ClientError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct AddressBook(Arc<ArcSwap<Vec<AddressEntry>>>);

impl AddressBook {
    /// A book with these entries. Fails if two entries have the same address.
    pub fn new(entries: impl IntoIterator<Item = AddressEntry>) -> Result<Self, ClientError> {
        let entries: Vec<_> = entries.into_iter().collect();
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|other| other.address == entry.address) {
                return Err(ClientError::Invalid(format!(
                    "two entries have the address `{}`",
                    entry.address
                )));
            }
        }
        Ok(Self(Arc::new(ArcSwap::from_pointee(entries))))
    }

    /// Replaces the entries by those of another book, from the next request on.
    pub fn exchange(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }

    /// The address of the entry that applies to a URL, if any: the entry with the longest path.
    pub fn address(&self, url: &Url) -> Option<Address> {
        self.find(url).map(|entry| entry.address)
    }

    fn find(&self, url: &Url) -> Option<AddressEntry> {
        let entries = self.0.load();
        let held = entries.iter().filter(|entry| entry.address.holds(url));
        // This machine has several names. An entry with the same name takes precedence.
        let closest =
            |entry: &&AddressEntry| (entry.address.path.len(), entry.address.origin == url.origin());
        held.max_by_key(closest).cloned()
    }

    #[cfg(feature = "oauth")]
    fn oauth(&self, url: &Url) -> Option<OAuth> {
        match self.find(url)?.shows {
            EntryCredential::Token(oauth) => Some(*oauth),
            EntryCredential::Headers(_) => None,
        }
    }

    /// Without the feature `oauth`, no entry gets tokens from an authorization server.
    #[cfg(not(feature = "oauth"))]
    fn oauth(&self, _: &Url) -> Option<crate::SchemeCredentials> {
        None
    }
}

impl Credentials for AddressBook {
    fn credential<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        let oauth = self.oauth(request.url);
        async move { oauth.credential(request).await }.boxed()
    }

    /// An entry applies to its address, even if a card of another origin leads there.
    fn credential_for_other_origin<'a>(&'a self, request: CredentialRequest<'a>) -> CredentialFuture<'a> {
        self.credential(request)
    }

    fn refused<'a>(
        &'a self,
        request: CredentialRequest<'a>,
        credential: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        let oauth = self.oauth(request.url);
        async move { oauth.refused(request, credential).await }.boxed()
    }

    fn preset(&self, url: &Url) -> PresetCredentials {
        match self.find(url).map(|entry| entry.shows) {
            Some(EntryCredential::Headers(headers)) => PresetCredentials::Headers(headers),
            #[cfg(feature = "oauth")]
            Some(EntryCredential::Token(_)) => PresetCredentials::FromCard,
            None => PresetCredentials::Anonymous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address, String> {
        text.parse().map_err(|error: ClientError| error.to_string())
    }

    #[test]
    fn an_address_holds_what_is_at_its_origin_and_below_its_path() {
        for (at, held, other) in [
            (
                "https://a.example",
                &[
                    "https://a.example",
                    "https://a.example:443/x?y",
                    "https://A.example/",
                    "https://u:p@a.example/",
                ][..],
                &[
                    "http://a.example",
                    "https://a.example:8443",
                    "https://b.example",
                    "https://a.example.b.example",
                    "https://sub.a.example",
                    "https://a.example./",
                    "https://a.example@b.example/",
                    "https://b.example/https://a.example",
                ][..],
            ),
            ("https://a.example:8443/", &["https://a.example:8443/x"], &["https://a.example/x"]),
            (
                "http://127.0.0.1:4700",
                &["http://127.0.0.1:4700/a2a", "http://localhost:4700", "http://[::1]:4700"],
                &["http://127.0.0.1:4701", "https://127.0.0.1:4700", "http://localhost:4701"],
            ),
            ("http://[::1]:1", &["http://[0:0::1]:1/x"], &["http://[::2]:1/x"]),
            (
                "https://a.example/agents/7/",
                &[
                    "https://a.example/agents/7",
                    "https://a.example/agents/7/a2a",
                    "https://a.example/agents/8/../7/x",
                ],
                &[
                    "https://a.example/",
                    "https://a.example/agents/77",
                    "https://a.example/agents/7/../8",
                    "https://a.example/agents/7/%2e%2e/8",
                    "https://a.example/agents/7/..%2F8",
                    "https://a.example/agents/7/..%5c8",
                    "https://b.example/agents/7",
                ],
            ),
        ] {
            let at = address(at).unwrap();
            for url in held {
                assert!(at.holds(&url.parse().unwrap()), "{at}: {url}");
            }
            for url in other {
                assert!(!at.holds(&url.parse().unwrap()), "{at}: {url}");
            }
        }
    }

    #[test]
    fn a_credential_needs_an_address_with_tls() {
        for good in ["https://a.example", "http://localhost:1", "http://127.0.0.2", "http://[::1]:4700/x"] {
            assert!(address(good).is_ok(), "{good}");
        }
        let mut refusals = String::new();
        for bad in [
            "",
            "a.example",
            "/agents",
            "http://a.example",
            "http://10.0.0.1",
            "ftp://a.example",
            "https://user:s3cret@a.example",
            "https://a.example/?key=s3cret",
            "https://a.example/#s3cret",
        ] {
            let refusal = address(bad).unwrap_err();
            assert!(!refusal.contains("s3cret"), "{refusal}");
            refusals.push_str(&format!("{refusal}\n"));
        }
        insta::assert_snapshot!(refusals);
    }

    #[test]
    fn the_closest_address_decides_and_others_get_nothing() {
        let entry =
            |at: &str, token: &str| AddressEntry::bearer(address(at).unwrap(), &token.into()).unwrap();
        let book = AddressBook::new([
            entry("https://a.example", "server"),
            entry("https://a.example/agents/7", "seven"),
            AddressEntry::oauth(address("https://o.example").unwrap(), OAuth::new("program")),
        ]);
        let book = book.unwrap();
        let shown = |url: &str| match book.preset(&url.parse().unwrap()) {
            PresetCredentials::Headers(headers) => headers[AUTHORIZATION].to_str().unwrap().to_owned(),
            PresetCredentials::FromCard => "from card".to_owned(),
            PresetCredentials::Anonymous => "nothing".to_owned(),
        };
        assert_eq!(shown("https://a.example/.well-known/agent-card.json"), "Bearer server");
        assert_eq!(shown("https://a.example/agents/7/a2a"), "Bearer seven");
        assert_eq!(shown("https://o.example/"), "from card");
        assert_eq!(shown("https://b.example/"), "nothing");
        let other = "https://b.example/".parse().unwrap();
        let headers = (book.clone(), crate::SchemeCredentials::new());
        assert!(matches!(headers.preset(&other), PresetCredentials::FromCard), "others may have something");
        assert!(matches!((book.clone(), book.clone()).preset(&other), PresetCredentials::Anonymous));
        let twice = [entry("https://a.example/", "x"), entry("https://a.example", "y")];
        let error = AddressBook::new(twice).unwrap_err().to_string();
        assert_eq!(error, "two entries have the address `https://a.example`");
        book.exchange(&AddressBook::new([entry("https://b.example", "new")]).unwrap());
        assert_eq!(shown("https://b.example/"), "Bearer new");
        assert_eq!(shown("https://a.example/"), "nothing");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_without_being_repeated() {
        let at = || address("https://a.example").unwrap();
        let secret = |text: &str| Secret::from(text);
        for refused in [
            AddressEntry::bearer(at(), &secret("")),
            AddressEntry::bearer(at(), &secret("s3cret\r\nx: y")),
            AddressEntry::api_key(at(), "X Key", &secret("s3cret")),
            AddressEntry::api_key(at(), "", &secret("s3cret")),
            AddressEntry::api_key(at(), "Host", &secret("s3cret")),
            AddressEntry::basic(at(), "a:b", &secret("s3cret")),
            AddressEntry::basic(at(), "", &secret("s3cret")),
            AddressEntry::headers(at(), []),
            AddressEntry::headers(at(), [("Content-Length", &secret("s3cret"))]),
            AddressEntry::headers(at(), [("A2A-Version", &secret("s3cret"))]),
            AddressEntry::headers(at(), [("X-Ok", &secret("s3cret\n"))]),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, ClientError::Invalid(_)), "{error:?}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        let entry = AddressEntry::basic(at(), "ops", &secret("s3cret")).unwrap();
        assert!(
            !format!("{entry:?}").contains("czNjcmV0") && !format!("{entry:?}").contains("b3BzOnM"),
            "{entry:?}"
        );
    }
}
