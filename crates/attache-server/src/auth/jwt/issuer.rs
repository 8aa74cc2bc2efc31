//! An issuer of tokens: what is believed of what it says, and what its tokens mean here.

use std::time::Duration;

use attache_outbound::SetupError;
use attache_signing::{Algorithm, JwkError, KeySet, VerifyingKey};
use url::{Host, Url};

/// The algorithms that are taken if nothing else is said.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::EdDsa];

/// How far clocks may be apart if nothing else is said.
const LEEWAY: Duration = Duration::from_secs(60);

/// What stands between the name of an issuer and a name that it gave. It is in no name of an issuer.
pub(super) const BETWEEN: char = '#';

/// An issuer whose tokens are believed, such as an identity provider.
///
/// Its keys are found by OpenID Connect discovery, unless their address ([`jwks_url`](Self::jwks_url)) or they themselves
/// ([`keys`](Self::keys)) are given.
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
/// Who has the subject `alice` in a token of this issuer is the principal `staff#alice`.
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

/// What the principals of an issuer are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Naming {
    /// With a name of the issuer before what it calls them.
    Prefixed(String),
    /// As it calls them.
    Bare,
}

/// For whom tokens must be.
#[derive(Debug, Clone)]
pub(super) enum Audiences {
    /// For one of these.
    These(Vec<String>),
    Anyone,
}

/// Where the keys are.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Where the issuer says.
    Discovered,
    Published(String),
    Pinned(KeySet),
}

/// Why tokens of an issuer cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwtSetupError {
    /// There is no issuer.
    #[error("no issuer of tokens is given: without one nobody would be let in")]
    NoIssuer,
    /// An issuer is there twice.
    #[error("the issuer `{0}` is given twice")]
    Twice(String),
    /// Two issuers would give the same names to different people.
    #[error(
        "the principals of two issuers would be called alike, as `{0}`: give each of them a `name` of its own"
    )]
    SameName(String),
    /// The name of an issuer cannot be told from what follows it.
    #[error("`{0}` cannot be the name of an issuer: expected one that is not empty and has no `#` in it")]
    Name(String),
    /// An address cannot be one of keys.
    #[error(
        "keys cannot be read from `{0}`: expected `https`, or an address on this machine, without credentials, such as `https://login.example.com`"
    )]
    Address(String),
    /// Nothing is said about whom tokens must be for.
    #[error(
        "the issuer `{0}` has no `audience`: without one, tokens that were made for others would be good here"
    )]
    NoAudience(String),
    /// No algorithm is allowed.
    #[error("the issuer `{0}` has no algorithm that tokens may be signed with")]
    NoAlgorithm(String),
    /// Secrets are allowed, and there is none.
    #[error("the issuer `{0}` allows `HS256`, which needs a `shared_secret`")]
    NoSecret(String),
    /// There are no keys among those that are pinned.
    #[error("the issuer `{0}` has no key that tokens could be checked with")]
    NoKey(String),
    /// The client for fetching keys cannot be made.
    #[error(transparent)]
    Client(#[from] SetupError),
}

impl JwtIssuer {
    /// The issuer that tokens name as `iss`, exactly so.
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

    /// Takes tokens that are for this audience (`aud`), besides others that are said. One is needed.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        match &mut self.audiences {
            Audiences::These(audiences) => audiences.push(audience.into()),
            Audiences::Anyone => self.audiences = Audiences::These(vec![audience.into()]),
        }
        self
    }

    /// Takes tokens for whomever they are, and so also those that somebody else was given and passes on.
    pub fn any_audience(mut self) -> Self {
        self.audiences = Audiences::Anyone;
        self
    }

    /// Reads the keys at this address, without asking the issuer where they are.
    pub fn jwks_url(mut self, url: impl Into<String>) -> Self {
        self.source = Source::Published(url.into());
        self
    }

    /// Takes these keys and fetches none.
    pub fn keys(mut self, keys: KeySet) -> Self {
        self.source = Source::Pinned(keys);
        self
    }

    /// Takes tokens that are signed with a secret of at least 32 bytes that the issuer has too (`HS256`), and fetches no keys. Nothing
    /// else is taken, unless [`algorithms`](Self::algorithms) says so afterwards.
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

    /// Takes tokens that are signed so: `RS256`, `PS256`, `ES256` and `EdDSA`, if nothing else is said. Each key is good for one of them.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Sets what the names of the issuer's principals begin with: `name#subject`. It is the issuer itself, if not given, so that a
    /// principal is called the same whoever else is known, and never like somebody else's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.naming = Naming::Prefixed(name.into());
        self
    }

    /// Calls principals as the issuer does, with nothing before it. Whoever is called the same elsewhere, such as in
    /// [`KnownCallers`](crate::auth::KnownCallers), is then the same principal and has the same tasks. A name with a `#` in it is
    /// refused then.
    pub fn bare_names(mut self) -> Self {
        self.naming = Naming::Bare;
        self
    }

    /// Sets the claim that says who somebody is: `sub`, if not given.
    pub fn principal_claim(mut self, claim: impl Into<String>) -> Self {
        self.principal_claim = claim.into();
        self
    }

    /// Sets the claim that says what somebody may do, a text with spaces or a list of texts. Otherwise it is `scope` and `scp`.
    pub fn scope_claim(mut self, claim: impl Into<String>) -> Self {
        self.scope_claims = vec![claim.into()];
        self
    }

    /// Lets in only who has this scope, besides others that are said.
    pub fn require_scope(mut self, scope: impl Into<String>) -> Self {
        self.required_scopes.push(scope.into());
        self
    }

    /// Sets the claim that says which tier somebody belongs to, a text or a list of texts. Nobody belongs to one, if not given.
    pub fn tier_claim(mut self, claim: impl Into<String>) -> Self {
        self.tier_claim = Some(claim.into());
        self
    }

    /// Gives a tier to those in whose claim this value is. The first one counts. Where any is given, other values mean nothing.
    pub fn tier(mut self, value: impl Into<String>, tier: impl Into<String>) -> Self {
        self.tiers.push((value.into(), tier.into()));
        self
    }

    /// Sets how far the issuer's clock may be from this one: a minute, if not given.
    pub fn leeway(mut self, leeway: Duration) -> Self {
        self.leeway = leeway;
        self
    }

    /// Takes only tokens that say to be access tokens (`at+jwt`, RFC 9068). Otherwise those that say to be a JWT, or nothing, are taken
    /// too, unless they have the marks of an ID token.
    pub fn access_tokens_only(mut self) -> Self {
        self.access_tokens_only = true;
        self
    }

    /// Whether it makes sense.
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

    /// Where it describes itself, if it is asked.
    pub(super) fn discovery(&self) -> Option<String> {
        let issuer = self.issuer.trim_end_matches('/');
        matches!(self.source, Source::Discovered)
            .then(|| format!("{issuer}/.well-known/openid-configuration"))
    }
}

/// An address that keys may be read from: nobody on the way can change what is there.
pub(super) fn address(text: &str) -> Result<Url, JwtSetupError> {
    let shown = |text: &str| JwtSetupError::Address(text.chars().take(200).collect());
    let url = Url::parse(text).map_err(|_| shown(text))?;
    // Without what may be a secret.
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
