//! Callers with a static credential: a bearer token, a password or an API key.

use std::collections::HashMap;
use std::fmt;

use attache_core::Identity;
use attache_protocol::{ApiKeySecurityScheme, HttpAuthSecurityScheme, SecurityScheme};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use foldhash::fast::RandomState;
use http::header::{AUTHORIZATION, COOKIE};
use percent_encoding::percent_decode_str;

use super::{Authenticator, Denied, Head, Verdict};
use crate::card::schemes::usual;

/// The digest of a secret: its HMAC under a random key of this process. Secrets are compared by their digests, so that the time a
/// comparison takes reveals nothing about the secret.
type Digest = [u8; 32];

/// Callers by the digests of their secrets.
type Callers = HashMap<Digest, Identity, RandomState>;

/// Callers with static credentials, each with a name. The secrets themselves are not stored.
///
/// ```
/// use attache_core::Identity;
/// use attache_server::auth::{KeyPlace, KnownCallers};
///
/// let callers = KnownCallers::new()
///     .bearer(Identity::named("alice").scope("quote").tier("partner"), "t0ken")
///     .basic("ops", "pa55word")
///     .api_key("ci", KeyPlace::Header("X-API-Key".to_owned()), "k3y");
/// ```
pub struct KnownCallers {
    key: hmac::Key,
    bearers: Callers,
    passwords: Callers,
    api_keys: Vec<(KeyPlace, Callers)>,
}

/// Where a request carries an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In this header.
    Header(String),
    /// In this query argument. Such keys end up in the logs of proxies.
    Query(String),
    /// In this cookie.
    Cookie(String),
}

impl KeyPlace {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Header(name) => ("header", name),
            Self::Query(name) => ("query", name),
            Self::Cookie(name) => ("cookie", name),
        }
    }

    /// The API keys of a request.
    fn keys(&self, head: Head<'_>) -> Vec<Vec<u8>> {
        match self {
            Self::Header(name) => {
                head.headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
            }
            Self::Query(name) => {
                let pairs = head.query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
                let own = pairs.filter(|(key, _)| percent_decode_str(key).eq(name.bytes()));
                own.map(|(_, value)| percent_decode_str(value).collect()).collect()
            }
            Self::Cookie(name) => {
                let fields = head.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
                let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.split_once('='));
                let own = pairs.filter(|(key, _)| key.trim() == name);
                own.map(|(_, value)| value.trim().trim_matches('"').as_bytes().to_vec()).collect()
            }
        }
    }
}

impl Default for KnownCallers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KnownCallers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: usize = self.api_keys.iter().map(|(_, keys)| keys.len()).sum();
        f.debug_struct("KnownCallers")
            .field("bearers", &self.bearers.len())
            .field("passwords", &self.passwords.len())
            .field("api_keys", &keys)
            .finish()
    }
}

impl KnownCallers {
    /// No callers yet.
    pub fn new() -> Self {
        let mut secret = [0; 32];
        // Without random bytes, the time of a comparison would reveal the secrets.
        rand::fill(&mut secret).expect("the system has randomness");
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            bearers: Callers::default(),
            passwords: Callers::default(),
            api_keys: Vec::new(),
        }
    }

    /// Adds a caller that sends `Authorization: Bearer TOKEN`.
    pub fn bearer(mut self, who: impl Into<Identity>, token: &str) -> Self {
        self.bearers.insert(self.digest(token.as_bytes()), who.into());
        self
    }

    /// Adds a caller that sends its name and this password as HTTP basic authentication.
    pub fn basic(mut self, who: impl Into<Identity>, password: &str) -> Self {
        let who = who.into();
        let name = who.principal.name().unwrap_or_default();
        let digest = self.digest(format!("{name}:{password}").as_bytes());
        self.passwords.insert(digest, who);
        self
    }

    /// Adds a caller that sends this API key.
    pub fn api_key(mut self, who: impl Into<Identity>, place: KeyPlace, key: &str) -> Self {
        let (digest, who) = (self.digest(key.as_bytes()), who.into());
        match self.api_keys.iter_mut().find(|(known, _)| *known == place) {
            Some((_, keys)) => drop(keys.insert(digest, who)),
            None => self.api_keys.push((place, Callers::from_iter([(digest, who)]))),
        }
        self
    }

    fn digest(&self, secret: &[u8]) -> Digest {
        let tag = hmac::sign(&self.key, secret);
        let mut digest = Digest::default();
        digest.copy_from_slice(tag.as_ref());
        digest
    }

    /// The caller that a credential in the `Authorization` header belongs to.
    fn authorized(&self, value: &[u8]) -> Option<&Identity> {
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") {
            self.bearers.get(&self.digest(rest))
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            self.passwords.get(&self.digest(&STANDARD.decode(rest).ok()?))
        } else {
            None
        }
    }
}

impl Authenticator for KnownCallers {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let mut has_credential = false;
        if !self.bearers.is_empty() || !self.passwords.is_empty() {
            for value in head.headers.get_all(AUTHORIZATION) {
                has_credential = true;
                if let Some(identity) = self.authorized(value.as_bytes()) {
                    return Verdict::Known(identity.clone());
                }
            }
        }
        for (place, known) in &self.api_keys {
            for key in place.keys(head) {
                has_credential = true;
                if let Some(identity) = known.get(&self.digest(&key)) {
                    return Verdict::Known(identity.clone());
                }
            }
        }
        Verdict::Denied(if has_credential {
            Denied::Wrong("an unknown credential".to_owned())
        } else {
            Denied::Missing
        })
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        let http = |scheme: &str| {
            let scheme = HttpAuthSecurityScheme { scheme: scheme.to_owned(), ..Default::default() };
            SecurityScheme::HttpAuth(scheme)
        };
        let mut schemes = Vec::new();
        if !self.bearers.is_empty() {
            schemes.push((usual::BEARER.to_owned(), http("Bearer")));
        }
        if !self.passwords.is_empty() {
            schemes.push((usual::BASIC.to_owned(), http("Basic")));
        }
        for (number, (place, _)) in self.api_keys.iter().enumerate() {
            let (location, name) = place.parts();
            let scheme = ApiKeySecurityScheme {
                location: location.to_owned(),
                name: name.to_owned(),
                ..Default::default()
            };
            let usual = usual::API_KEY;
            let title = if number == 0 { usual.to_owned() } else { format!("{usual}-{}", number + 1) };
            schemes.push((title, SecurityScheme::ApiKey(scheme)));
        }
        schemes
    }

    fn challenges(&self) -> Vec<String> {
        let mut challenges = Vec::new();
        if !self.bearers.is_empty() {
            challenges.push("Bearer realm=\"a2a\"".to_owned());
        }
        if !self.passwords.is_empty() {
            challenges.push("Basic realm=\"a2a\", charset=\"UTF-8\"".to_owned());
        }
        for (place, _) in &self.api_keys {
            let (location, name) = place.parts();
            challenges.push(format!("ApiKey realm=\"a2a\", in=\"{location}\", name=\"{name}\""));
        }
        challenges
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn callers() -> KnownCallers {
        KnownCallers::new()
            .bearer("alice", "t0ken")
            .bearer("bob", "other")
            .basic("ops", "pa:55")
            .api_key("ci", KeyPlace::Header("X-API-Key".to_owned()), "k3y")
            .api_key("cd", KeyPlace::Header("X-API-Key".to_owned()), "k4y")
            .api_key("page", KeyPlace::Query("key".to_owned()), "a b")
            .api_key("site", KeyPlace::Cookie("session".to_owned()), "c00kie")
    }

    fn found(headers: &[(&str, &str)], query: Option<&str>) -> Result<String, Denied> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        match callers().authenticate(Head { headers: &map, query, peer: None }) {
            Verdict::Known(identity) => Ok(identity.principal.to_string()),
            Verdict::Denied(denied) => Err(denied),
            Verdict::Later(_) => panic!("nothing takes a while"),
        }
    }

    #[test]
    fn each_credential_belongs_to_its_caller() {
        let basic = format!("Basic {}", STANDARD.encode("ops:pa:55"));
        for (headers, query, name) in [
            (vec![("authorization", "Bearer t0ken")], None, "alice"),
            (vec![("authorization", "bearer   other")], None, "bob"),
            (vec![("authorization", basic.as_str())], None, "ops"),
            (vec![("x-api-key", "k3y")], None, "ci"),
            (vec![("x-api-key", "k4y")], None, "cd"),
            (vec![], Some("a=1&key=a%20b"), "page"),
            (vec![("cookie", "theme=dark; session=\"c00kie\"")], None, "site"),
            (vec![("authorization", "Bearer wrong"), ("x-api-key", "k3y")], None, "ci"),
        ] {
            assert_eq!(found(&headers, query), Ok(name.to_owned()), "{headers:?}");
        }
    }

    #[test]
    fn a_credential_is_good_only_where_it_belongs() {
        let elsewhere = format!("Basic {}", STANDARD.encode("alice:t0ken"));
        for headers in [
            vec![("authorization", "Bearer wrong")],
            vec![("authorization", "Bearer ")],
            vec![("authorization", "t0ken")],
            vec![("authorization", "Bearer k3y")],
            vec![("authorization", "Basic t0ken")],
            vec![("authorization", "Basic !!!")],
            vec![("authorization", elsewhere.as_str())],
            vec![("x-api-key", "t0ken")],
            vec![("x-api-key", "")],
            vec![("cookie", "session=k3y")],
        ] {
            assert!(matches!(found(&headers, None), Err(Denied::Wrong(_))), "{headers:?}");
        }
        for headers in [vec![], vec![("cookie", "theme=dark")], vec![("x-other", "t0ken")]] {
            assert_eq!(found(&headers, Some("other=k3y&key")), Err(Denied::Missing), "{headers:?}");
        }
    }

    #[test]
    fn the_schemes_are_those_that_are_enforced() {
        let names = |callers: &KnownCallers| {
            callers.schemes().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&callers()), "bearerAuth basicAuth apiKeyAuth apiKeyAuth-2 apiKeyAuth-3");
        assert_eq!(names(&KnownCallers::new().basic("a", "b")), "basicAuth");
        assert!(format!("{:?}", callers()).contains("bearers: 2"), "and no secret is shown");
    }
}
