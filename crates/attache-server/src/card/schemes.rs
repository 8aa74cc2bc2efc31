//! The names of security schemes in the card.

use attache_protocol::AgentCard;

/// The names that the card has for security schemes. A second scheme of a kind gets its number, as in `apiKeyAuth-2`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemeNames {
    /// Static bearer tokens.
    pub bearer: String,
    /// Passwords.
    pub basic: String,
    /// API keys.
    pub api_key: String,
    /// Tokens of an issuer whose keys are configured.
    pub jwt: String,
    /// Tokens of an issuer with an OpenID configuration.
    pub openid: String,
    /// Client certificates.
    pub mtls: String,
}

/// The names by default. The authenticators of this crate use them.
pub(crate) mod usual {
    pub(crate) const BEARER: &str = "bearerAuth";
    pub(crate) const BASIC: &str = "basicAuth";
    pub(crate) const API_KEY: &str = "apiKeyAuth";
    pub(crate) const JWT: &str = "jwtAuth";
    pub(crate) const OPENID: &str = "openIdConnect";
    pub(crate) const MTLS: &str = "mutualTls";
}

impl Default for SchemeNames {
    fn default() -> Self {
        use usual::{API_KEY, BASIC, BEARER, JWT, MTLS, OPENID};
        let [bearer, basic, api_key, jwt, openid, mtls] =
            [BEARER, BASIC, API_KEY, JWT, OPENID, MTLS].map(str::to_owned);
        Self { bearer, basic, api_key, jwt, openid, mtls }
    }
}

impl SchemeNames {
    /// Changes some of the names.
    ///
    /// ```
    /// use attache_server::SchemeNames;
    ///
    /// let names = SchemeNames::default().with(|names| names.bearer = "token".to_owned());
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Renames the schemes of a card that have their usual names.
    pub(super) fn apply(&self, card: &mut AgentCard) {
        if *self == Self::default() {
            return;
        }
        card.security_schemes = std::mem::take(&mut card.security_schemes)
            .into_iter()
            .map(|(name, scheme)| (self.name(name), scheme))
            .collect();
        let of_skills = card.skills.iter_mut().map(|skill| &mut skill.security_requirements);
        for requirements in of_skills.chain([&mut card.security_requirements]) {
            for requirement in requirements {
                requirement.schemes = std::mem::take(&mut requirement.schemes)
                    .into_iter()
                    .map(|(name, scopes)| (self.name(name), scopes))
                    .collect();
            }
        }
    }

    fn name(&self, name: String) -> String {
        let own = [
            (usual::BEARER, &self.bearer),
            (usual::BASIC, &self.basic),
            (usual::API_KEY, &self.api_key),
            (usual::JWT, &self.jwt),
            (usual::OPENID, &self.openid),
            (usual::MTLS, &self.mtls),
        ];
        let is_number = |rest: &str| rest.strip_prefix('-').is_some_and(|rest| rest.parse::<u32>().is_ok());
        let renamed = own.into_iter().find_map(|(usual, own)| {
            let rest = name.strip_prefix(usual).filter(|rest| rest.is_empty() || is_number(rest))?;
            Some(format!("{own}{rest}"))
        });
        renamed.unwrap_or(name)
    }
}
