//! An issuer of tokens: which of its tokens are accepted, and what their claims mean.

use std::time::Duration;

use attache_outbound::SetupError;
use attache_signing::{Algorithm, JwkError, KeySet, VerifyingKey};
use url::{Host, Url};

/// The algorithms that are accepted by default.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::EdDsa];

/// The default tolerance for clocks that differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// Separates the name of an issuer from the name of a principal. No name of an issuer contains it.
pub(super) const BETWEEN: char = '#';

/// An issuer whose tokens are accepted, such as an identity provider.
///
/// Its keys are found by OpenID Connect discovery, unless [`jwks_url`](Self::jwks_url) gives their address or [`keys`](Self::keys) the keys
/// themselves.
///
/// ```
/// use attache_server::auth::{JwtCallers, JwtIssuer};
///
/// let issuer = JwtIssuer::new("https://login.example.com/realms/staff")
///     .name("staff")
///     .audience("https://agent.example.com")
///     .tier_claim("groups")
///     .tier("agents-gold", "gold");
/// let callers = JwtCallers::new([issuer])?;
/// # Ok::<(), attache_server::auth::JwtSetupError>(())
/// ```
///
/// The subject `alice` of this issuer is the principal `staff#alice`.
#[derive(Debug, Clone)]
#[must_use = "an issuer is of no use until callers are made of it"]
pub struct JwtIssuer {
    pub(super) issuer: String,
    pub(super) naming: Naming,
    pub(super) audiences: Audiences,
    pub(super) source: Source,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) principal_claim: String,
    pub(super) scope_claims: Vec<String>,
    pub(super) required_scopes: Vec<String>,
    pub(super) tier_claim: Option<String>,
    pub(super) tiers: Vec<(String, String)>,
    pub(super) leeway: Duration,
    pub(super) access_tokens_only: bool,
}

/// How the principals of an issuer are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Naming {
    /// With the name of the issuer as a prefix.
    Prefixed(String),
    /// Without a prefix.
    Bare,
}

/// The audiences that tokens must have.
#[derive(Debug, Clone)]
pub(super) enum Audiences {
    /// One of these.
    These(Vec<String>),
    Anyone,
}

/// Where the keys come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// From the address in the discovery document.
    Discovered,
    Published(String),
    Pinned(KeySet),
}

/// Why an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwtSetupError {
    /// No issuer is given.
    #[error("no issuer of tokens is given: at least one is required")]
    NoIssuer,
    /// An issuer is given twice.
    #[error("the issuer `{0}` is given twice")]
    Twice(String),
    /// Two issuers would give the same name to different principals.
    #[error(
        "the principals of two issuers would be called alike, as `{0}`: give each of them a `name` of its own"
    )]
    SameName(String),
    /// The name of an issuer contains the separator.
    #[error("`{0}` cannot be the name of an issuer: expected one that is not empty and has no `#` in it")]
    Name(String),
    /// An address cannot be used to fetch keys.
    #[error(
        "keys cannot be read from `{0}`: expected `https`, or an address on this machine, without credentials, such as `https://login.example.com`"
    )]
    Address(String),
    /// No audience is given.
    #[error(
        "the issuer `{0}` has no `audience`: without one, tokens that were made for others would be good here"
    )]
    NoAudience(String),
    /// No algorithm is allowed.
    #[error("the issuer `{0}` has no algorithm that tokens may be signed with")]
    NoAlgorithm(String),
    /// Algorithms with a shared secret are allowed, but no secret is given.
    #[error("the issuer `{0}` allows `HS256`, which needs a `shared_secret`")]
    NoSecret(String),
    /// The given key set is empty.
    #[error("the issuer `{0}` has no key that tokens could be checked with")]
    NoKey(String),
    /// The HTTP client for fetching keys could not be set up.
    #[error(transparent)]
    Client(#[from] SetupError),
}

impl JwtIssuer {
    /// The issuer that tokens name in `iss`, compared exactly.
    pub fn new(issuer: impl Into<String>) -> Self {
        let issuer = issuer.into();
        Self {
            naming: Naming::Prefixed(issuer.clone()),
            issuer,
            audiences: Audiences::These(Vec::new()),
            source: Source::Discovered,
            algorithms: ALGORITHMS.to_vec(),
            principal_claim: "sub".to_owned(),
            scope_claims: ["scope", "scp"].map(str::to_owned).to_vec(),
            required_scopes: Vec::new(),
            tier_claim: None,
            tiers: Vec::new(),
            leeway: LEEWAY,
            access_tokens_only: false,
        }
    }

    /// Accepts tokens for this audience (`aud`). Can be repeated. At least one is required.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        match &mut self.audiences {
            Audiences::These(audiences) => audiences.push(audience.into()),
            Audiences::Anyone => self.audiences = Audiences::These(vec![audience.into()]),
        }
        self
    }

    /// Accepts tokens for every audience, also those that were issued for another service and passed on.
    pub fn any_audience(mut self) -> Self {
        self.audiences = Audiences::Anyone;
        self
    }

    /// Fetches the keys from this address, without discovery.
    pub fn jwks_url(mut self, url: impl Into<String>) -> Self {
        self.source = Source::Published(url.into());
        self
    }

    /// Uses these keys and fetches none.
    pub fn keys(mut self, keys: KeySet) -> Self {
        self.source = Source::Pinned(keys);
        self
    }

    /// Accepts tokens that are signed with a shared secret of at least 32 bytes (`HS256`), and fetches no keys. No other algorithm is accepted,
    /// unless [`algorithms`](Self::algorithms) is called afterwards.
    pub fn shared_secret(mut self, secret: &[u8]) -> Result<Self, JwkError> {
        let key = VerifyingKey::shared_secret(secret)?;
        match &mut self.source {
            Source::Pinned(keys) => keys.extend([key]),
            Source::Discovered | Source::Published(_) => {
                self.source = Source::Pinned([key].into_iter().collect())
            }
        }
        self.algorithms = vec![Algorithm::Hs256];
        Ok(self)
    }

    /// Sets the accepted algorithms: `RS256`, `PS256`, `ES256` and `EdDSA` by default. Each key is valid for one algorithm only.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Sets the prefix of the issuer's principals: `name#subject`. The default is the issuer itself. So a principal keeps its name when other
    /// issuers are added, and never has the name of another issuer's principal.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.naming = Naming::Prefixed(name.into());
        self
    }

    /// Names principals as the issuer does, without a prefix. A caller of the same name elsewhere, for example in
    /// [`KnownCallers`](crate::auth::KnownCallers), is then the same principal and has the same tasks. Names that contain `#` are rejected.
    pub fn bare_names(mut self) -> Self {
        self.naming = Naming::Bare;
        self
    }

    /// Sets the claim with the name of the principal: `sub` by default.
    pub fn principal_claim(mut self, claim: impl Into<String>) -> Self {
        self.principal_claim = claim.into();
        self
    }

    /// Sets the claim with the scopes, a string with spaces or a list of strings: `scope` and `scp` by default.
    pub fn scope_claim(mut self, claim: impl Into<String>) -> Self {
        self.scope_claims = vec![claim.into()];
        self
    }

    /// Admits only callers that have this scope. Can be repeated.
    pub fn require_scope(mut self, scope: impl Into<String>) -> Self {
        self.required_scopes.push(scope.into());
        self
    }

    /// Sets the claim with the tier, a string or a list of strings. By default callers have no tier.
    pub fn tier_claim(mut self, claim: impl Into<String>) -> Self {
        self.tier_claim = Some(claim.into());
        self
    }

    /// Gives a tier to callers whose claim has this value. The first match counts. If this is used at all, other values give no tier.
    pub fn tier(mut self, value: impl Into<String>, tier: impl Into<String>) -> Self {
        self.tiers.push((value.into(), tier.into()));
        self
    }

    /// Sets how far the clocks may differ: a minute by default.
    pub fn leeway(mut self, leeway: Duration) -> Self {
        self.leeway = leeway;
        self
    }

    /// Accepts only tokens of the type `at+jwt` (access tokens, RFC 9068). By default tokens of the type JWT or without a type are accepted
    /// too, unless they have the claims of an ID token.
    pub fn access_tokens_only(mut self) -> Self {
        self.access_tokens_only = true;
        self
    }

    /// Validates the settings.
    pub(super) fn check(&self) -> Result<(), JwtSetupError> {
        let own = || self.issuer.clone();
        match &self.naming {
            Naming::Prefixed(name) if name.is_empty() || name.contains(BETWEEN) => {
                return Err(JwtSetupError::Name(name.clone()));
            }
            Naming::Prefixed(_) | Naming::Bare => {}
        }
        if matches!(&self.audiences, Audiences::These(audiences) if audiences.is_empty()) {
            return Err(JwtSetupError::NoAudience(own()));
        }
        if self.algorithms.is_empty() {
            return Err(JwtSetupError::NoAlgorithm(own()));
        }
        let has_secret = match &self.source {
            Source::Discovered => address(&self.issuer).map(|_| false)?,
            Source::Published(url) => address(url).map(|_| false)?,
            Source::Pinned(keys) => {
                if !keys.iter().any(|key| self.algorithms.contains(&key.algorithm())) {
                    return Err(JwtSetupError::NoKey(own()));
                }
                keys.iter().any(|key| key.algorithm() == Algorithm::Hs256)
            }
        };
        if self.algorithms.contains(&Algorithm::Hs256) && !has_secret {
            return Err(JwtSetupError::NoSecret(own()));
        }
        Ok(())
    }

    /// The address of the discovery document, if it is needed.
    pub(super) fn discovery(&self) -> Option<String> {
        let issuer = self.issuer.trim_end_matches('/');
        matches!(self.source, Source::Discovered)
            .then(|| format!("{issuer}/.well-known/openid-configuration"))
    }
}

/// An address that keys may be fetched from: `https`, so that the keys cannot be changed on the way, or loopback.
pub(super) fn address(text: &str) -> Result<Url, JwtSetupError> {
    let shown = |text: &str| JwtSetupError::Address(text.chars().take(200).collect());
    let url = Url::parse(text).map_err(|_| shown(text))?;
    // Without parts that may be secret.
    let wrong = || shown(text.rsplit_once('@').map_or(text, |(_, rest)| rest));
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return Err(wrong()),
    };
    let safe = url.scheme() == "https" || url.scheme() == "http" && here;
    let bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    if safe && bare { Ok(url) } else { Err(wrong()) }
}
