//! Callers with a token of an identity provider.

mod claims;
mod fetch;
mod issuer;
mod keys;
mod seen;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use attache_core::{Clock, Identity, SystemClock};
use attache_protocol::{
    HttpAuthSecurityScheme, OpenIdConnectSecurityScheme, SecurityRequirement, SecurityScheme, StringList,
};
use attache_signing::{BadToken, Token};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use self::claims::AcceptedClaims;
use self::fetch::KeyLocation;
pub use self::issuer::{JwtIssuer, JwtSetupError};
use self::issuer::{Naming, Source, address};
use self::keys::{Flight, Hand, Keys, Unknown};
use self::seen::{Good, Seen, Trace, trace};
use super::{Authenticator, Denied, Head, Verdict};
use crate::card::schemes::usual;

/// The longest token, in bytes.
const LONGEST: usize = 16 * 1024;

/// How often one request waits for keys: once for unknown ones, once for keys that were replaced meanwhile.
const ROUNDS: usize = 3;

/// The challenge without parameters.
const CHALLENGE: &str = "Bearer realm=\"a2a\"";

/// Callers with a JSON Web Token (RFC 7519) of an [issuer](JwtIssuer), sent as `Authorization: Bearer TOKEN`.
///
/// A principal is named `issuer#subject`. So it never has the name of a principal of another issuer or with another kind of credential; see
/// [`JwtIssuer::name`].
///
/// - A token needs a known issuer, an allowed algorithm, a signature by one of the issuer's keys, an audience, and an expiry (`exp`) in the
///   future. Key locations inside a token are ignored.
/// - Keys are fetched when they are first needed and cached for as long as the issuer says (at least a minute, at most a day). They are
///   fetched again for a token with an unknown key, at most once in ten seconds.
/// - While keys cannot be fetched, cached keys stay in use for a day. Without cached keys, requests get [`Denied::Unavailable`].
/// - Valid tokens are cached, up to ten thousand, until they expire or the keys of the issuer change.
pub struct JwtCallers {
    issuers: Vec<Issuer>,
    seen: Seen,
    clock: Arc<dyn Clock>,
}

struct Issuer {
    terms: JwtIssuer,
    keys: Arc<Keys>,
}

impl fmt::Debug for JwtCallers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers: Vec<_> = self.issuers.iter().map(|issuer| &issuer.terms.issuer).collect();
        f.debug_struct("JwtCallers").field("issuers", &issuers).finish_non_exhaustive()
    }
}

/// The result of verifying a token.
enum Step {
    Known(Identity),
    Denied(Denied),
    /// Verify again after this fetch.
    Wait(Flight),
}

impl JwtCallers {
    /// Accepts tokens of these issuers.
    pub fn new(issuers: impl IntoIterator<Item = JwtIssuer>) -> Result<Self, JwtSetupError> {
        Self::with_clock(issuers, SystemClock)
    }

    /// The same with another clock.
    pub fn with_clock(
        issuers: impl IntoIterator<Item = JwtIssuer>,
        clock: impl Clock,
    ) -> Result<Self, JwtSetupError> {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let client = fetch::client()?;
        let (mut known, mut names) = (HashSet::new(), HashSet::new());
        let mut own = Vec::new();
        for terms in issuers {
            terms.check()?;
            if !known.insert(terms.issuer.clone()) {
                return Err(JwtSetupError::Twice(terms.issuer));
            }
            let name = match &terms.naming {
                Naming::Prefixed(name) => format!("{name}{}…", issuer::BETWEEN),
                Naming::Bare => "…".to_owned(),
            };
            if !names.insert(name.clone()) {
                return Err(JwtSetupError::SameName(name));
            }
            let place = match (&terms.source, terms.discovery()) {
                (Source::Pinned(keys), _) => {
                    let keys = Arc::new(Keys::pinned(keys.clone(), clock.clone()));
                    own.push(Issuer { terms, keys });
                    continue;
                }
                (Source::Published(url), _) => KeyLocation::Url(address(url)?),
                (Source::Discovered, url) => KeyLocation::Discovered {
                    issuer: terms.issuer.clone(),
                    configuration: address(&url.unwrap_or_default())?,
                },
            };
            let keys = Arc::new(Keys::published(client.clone(), place, clock.clone()));
            own.push(Issuer { terms, keys });
        }
        if own.is_empty() {
            return Err(JwtSetupError::NoIssuer);
        }
        Ok(Self { issuers: own, seen: Seen::new(), clock })
    }

    fn now(&self) -> i64 {
        self.clock.now().to_millis()
    }

    /// Verifies a token without waiting.
    fn look(&self, text: &str, trace: Trace) -> Step {
        let now = self.now();
        let wrong = |reason: String| Step::Denied(Denied::Wrong(format!("the token is not good: {reason}")));
        let token = match Token::read(text) {
            Ok(token) => token,
            Err(error) => return wrong(error.to_string()),
        };
        let Some((number, issuer)) = self.issuer_of(&token) else {
            let stated = token.stated_issuer().unwrap_or_default();
            return wrong(format!("its issuer `{}` is not known", Token::shown(stated)));
        };
        if !issuer.terms.algorithms.contains(&token.algorithm()) {
            return wrong(format!("`{}` is not among the algorithms of its issuer", token.algorithm()));
        }
        if let Err(denied) = issuer.terms.check_kind(token.kind().as_deref()) {
            return Step::Denied(denied);
        }
        let (keys, generation) = match issuer.keys.at_hand(now) {
            Hand::Keys(keys, generation) => (keys, generation),
            Hand::Wait(flight) => return Step::Wait(flight),
            Hand::Unavailable(problem) => return Step::Denied(Denied::Unavailable(problem)),
        };
        let claims = match token.claims(&keys) {
            Ok(claims) => claims,
            Err(BadToken::UnknownKey) => {
                return match issuer.keys.unknown(now) {
                    Unknown::Wait(flight) => Step::Wait(flight),
                    Unknown::Unavailable(problem) => Step::Denied(Denied::Unavailable(problem)),
                    Unknown::Reject => wrong(BadToken::UnknownKey.to_string()),
                };
            }
            Err(error @ (BadToken::Unreadable(_) | BadToken::OtherAlgorithm { .. } | BadToken::Mismatch)) => {
                return wrong(error.to_string());
            }
        };
        match issuer.terms.accept(claims, now) {
            Ok(AcceptedClaims { identity, until }) => {
                let good = Good { identity: identity.clone(), until, issuer: number, generation };
                self.seen.remember(trace, good);
                Step::Known(identity)
            }
            Err(denied) => Step::Denied(denied),
        }
    }

    fn issuer_of(&self, token: &Token<'_>) -> Option<(usize, &Issuer)> {
        let stated = token.stated_issuer()?;
        self.issuers.iter().enumerate().find(|(_, issuer)| issuer.terms.issuer == stated)
    }

    async fn look_again(&self, text: &str, trace: Trace, mut flight: Flight) -> Result<Identity, Denied> {
        for _ in 0..ROUNDS {
            flight.await;
            flight = match self.look(text, trace) {
                Step::Known(identity) => return Ok(identity),
                Step::Denied(denied) => return Err(denied),
                Step::Wait(flight) => flight,
            };
        }
        Err(Denied::Unavailable("the issuer's keys do not come to rest".to_owned()))
    }

    /// The scopes that the issuer of a token requires.
    fn required_scopes(&self, head: Head<'_>) -> Option<String> {
        let text = bearer(head.headers).ok()??;
        let token = Token::read(text).ok()?;
        let (_, issuer) = self.issuer_of(&token)?;
        Some(issuer.terms.required_scopes.join(" ")).filter(|scopes| !scopes.is_empty())
    }
}

/// The token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let mut tokens = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let value = value.as_bytes().trim_ascii();
        let space = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, token) = value.split_at(space);
        scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
    });
    let Some(token) = tokens.next() else { return Ok(None) };
    let wrong = |reason: &str| Denied::Wrong(format!("the token is not good: {reason}"));
    if tokens.next().is_some() {
        return Err(wrong("there is more than one"));
    }
    if token.len() > LONGEST {
        return Err(wrong("it is too long"));
    }
    std::str::from_utf8(token).map(Some).map_err(|_| wrong("it is not a text"))
}

impl Authenticator for JwtCallers {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let text = match bearer(head.headers) {
            Ok(Some(text)) => text,
            Ok(None) => return Verdict::Denied(Denied::Missing),
            Err(denied) => return Verdict::Denied(denied),
        };
        let (trace, now) = (trace(text), self.now());
        let holds =
            |good: &Good| now < good.until && self.issuers[good.issuer].keys.stand(good.generation, now);
        if let Some(identity) = self.seen.find(&trace, holds) {
            return Verdict::Known(identity);
        }
        match self.look(text, trace) {
            Step::Known(identity) => Verdict::Known(identity),
            Step::Denied(denied) => Verdict::Denied(denied),
            Step::Wait(flight) => Verdict::Later(Box::pin(self.look_again(text, trace, flight))),
        }
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        let mut schemes = Vec::new();
        let mut jwt = false;
        for issuer in &self.issuers {
            match issuer.terms.discovery() {
                Some(url) => {
                    let scheme =
                        OpenIdConnectSecurityScheme { open_id_connect_url: url, ..Default::default() };
                    schemes.push((self.scheme_name(issuer), SecurityScheme::OpenIdConnect(scheme)));
                }
                None if jwt => {}
                None => {
                    jwt = true;
                    let scheme = HttpAuthSecurityScheme {
                        scheme: "Bearer".to_owned(),
                        bearer_format: Some("JWT".to_owned()),
                        ..Default::default()
                    };
                    schemes.push((self.scheme_name(issuer), SecurityScheme::HttpAuth(scheme)));
                }
            }
        }
        schemes
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        let mut requirements: Vec<SecurityRequirement> = Vec::new();
        for issuer in &self.issuers {
            let scopes = StringList { list: issuer.terms.required_scopes.clone() };
            let requirement =
                SecurityRequirement { schemes: BTreeMap::from([(self.scheme_name(issuer), scopes)]) };
            if !requirements.contains(&requirement) {
                requirements.push(requirement);
            }
        }
        requirements
    }

    fn challenges(&self) -> Vec<String> {
        vec![CHALLENGE.to_owned()]
    }

    /// As RFC 6750 section 3 defines it.
    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        let came = !matches!(bearer(head.headers), Ok(None));
        let invalid =
            |what: &str| format!("{CHALLENGE}, error=\"invalid_token\", error_description=\"{what}\"");
        match denied {
            Denied::Wrong(_) if came => vec![invalid("the token is not valid")],
            Denied::Expired(_) if came => vec![invalid("the token has expired")],
            Denied::Missing | Denied::Wrong(_) | Denied::Expired(_) => self.challenges(),
            Denied::Forbidden(_) => {
                let lacking =
                    |scopes| format!("{CHALLENGE}, error=\"insufficient_scope\", scope=\"{scopes}\"");
                self.required_scopes(head).map(lacking).into_iter().collect()
            }
            Denied::Unavailable(_) => Vec::new(),
        }
    }
}

impl JwtCallers {
    /// The name of the scheme in the card.
    fn scheme_name(&self, issuer: &Issuer) -> String {
        if issuer.terms.discovery().is_none() {
            return usual::JWT.to_owned();
        }
        let discovered = self.issuers.iter().filter(|other| other.terms.discovery().is_some());
        match discovered.map(|other| &other.terms.issuer).position(|other| *other == issuer.terms.issuer) {
            None | Some(0) => usual::OPENID.to_owned(),
            Some(place) => format!("{}-{}", usual::OPENID, place + 1),
        }
    }
}
