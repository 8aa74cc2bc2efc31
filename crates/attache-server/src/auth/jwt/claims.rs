//! The claims of a token whose signature is valid.

use attache_core::Identity;
use serde_json::{Map, Value};

use super::issuer::{Audiences, BETWEEN, JwtIssuer, Naming};
use crate::auth::Denied;

/// The longest name of a principal, in bytes.
const LONGEST_NAME: usize = 512;

/// The latest time that is accepted, in seconds: the year 9999.
const LATEST: f64 = 253_402_300_799.0;

type Claims = Map<String, Value>;

/// A caller, and until when its token is valid, in milliseconds.
#[derive(Debug, PartialEq)]
pub(super) struct AcceptedClaims {
    pub(super) identity: Identity,
    pub(super) until: i64,
}

impl JwtIssuer {
    /// Whether tokens of this type (`typ`) are accepted.
    pub(super) fn check_kind(&self, kind: Option<&str>) -> Result<(), Denied> {
        match kind {
            Some("at+jwt") => Ok(()),
            None | Some("jwt") if !self.access_tokens_only => Ok(()),
            None => wrong("it does not say to be an access token"),
            Some(_) => wrong("its `typ` is not that of an access token"),
        }
    }

    /// The caller with these claims at `now`, in milliseconds.
    pub(super) fn accept(&self, claims: &Claims, now: i64) -> Result<AcceptedClaims, Denied> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return wrong("it is of another issuer");
        }
        let until = self.check_times(claims, now)?;
        if !self.is_for_us(claims) {
            return wrong("it is for another audience");
        }
        // An ID token tells a client who has signed in. It does not authorize calls.
        let marked = ["at_hash", "c_hash"].iter().any(|mark| claims.contains_key(*mark));
        if marked || matches!(claims.get("typ").and_then(Value::as_str), Some("ID" | "Refresh")) {
            return wrong("it is not an access token");
        }
        let mut identity = Identity::named(self.principal(claims)?);
        let scopes = self.scope_claims.iter().filter_map(|claim| claims.get(claim)).flat_map(texts);
        identity = identity.scopes(scopes.flat_map(str::split_whitespace));
        if let Some(missing) = self.required_scopes.iter().find(|scope| !identity.rights.has(scope)) {
            return Err(Denied::Forbidden(format!("the token lacks the scope `{missing}`")));
        }
        if let Some(tier) = self.tier_of(claims) {
            identity = identity.tier(tier);
        }
        Ok(AcceptedClaims { identity, until })
    }

    fn check_times(&self, claims: &Claims, now: i64) -> Result<i64, Denied> {
        let leeway = i64::try_from(self.leeway.as_millis()).unwrap_or(i64::MAX);
        let Some(expires) = time(claims, "exp")? else { return wrong("it has no `exp`") };
        let until = expires.saturating_add(leeway);
        if now >= until {
            return Err(Denied::Expired("the token has expired".to_owned()));
        }
        let early = |at: Option<i64>| at.is_some_and(|at| now.saturating_add(leeway) < at);
        if early(time(claims, "nbf")?) {
            return wrong("it is not valid yet");
        }
        if early(time(claims, "iat")?) {
            return wrong("it was issued in the future");
        }
        Ok(until)
    }

    fn is_for_us(&self, claims: &Claims) -> bool {
        match &self.audiences {
            Audiences::Anyone => true,
            Audiences::These(ours) => claims
                .get("aud")
                .into_iter()
                .flat_map(texts)
                .any(|audience| ours.iter().any(|own| own == audience)),
        }
    }

    fn principal(&self, claims: &Claims) -> Result<String, Denied> {
        let claim = &self.principal_claim;
        let Some(name) = claims.get(claim).and_then(Value::as_str) else {
            return wrong(&format!("its `{claim}`, which says who it is, is not a text"));
        };
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return wrong(&format!("its `{claim}` cannot be a name"));
        }
        Ok(match &self.naming {
            Naming::Prefixed(prefix) => format!("{prefix}{BETWEEN}{name}"),
            // The principal would have the name of one of another issuer.
            Naming::Bare if name.contains(BETWEEN) => {
                return wrong(&format!("its `{claim}` has a `{BETWEEN}` in it"));
            }
            Naming::Bare => name.to_owned(),
        })
    }

    fn tier_of(&self, claims: &Claims) -> Option<String> {
        let claimed: Vec<&str> = texts(claims.get(self.tier_claim.as_ref()?)?).collect();
        if self.tiers.is_empty() {
            return claimed.first().map(|tier| (*tier).to_owned());
        }
        let (_, tier) = self.tiers.iter().find(|(value, _)| claimed.contains(&value.as_str()))?;
        Some(tier.clone())
    }
}

fn wrong<T>(reason: &str) -> Result<T, Denied> {
    Err(Denied::Wrong(format!("the token is not good: {reason}")))
}

/// A time in milliseconds, if the claim exists.
fn time(claims: &Claims, claim: &str) -> Result<Option<i64>, Denied> {
    let Some(value) = claims.get(claim) else { return Ok(None) };
    match value.as_f64().filter(|seconds| (0.0..=LATEST).contains(seconds)) {
        // Far below the range in which milliseconds lose precision.
        Some(seconds) => Ok(Some((seconds * 1000.0) as i64)),
        None => wrong(&format!("its `{claim}` is not a time")),
    }
}

/// A string, or the strings of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().into_iter().flatten();
    value.as_str().into_iter().chain(list.filter_map(Value::as_str))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn issuer() -> JwtIssuer {
        JwtIssuer::new("https://login.example.com").audience("us").audience("too")
    }

    fn claims(change: Value) -> Claims {
        let mut claims = json!({
            "iss": "https://login.example.com", "aud": "us", "sub": "alice", "exp": NOW / 1000 + 300,
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let Value::Object(claims) = claims else { unreachable!() };
        claims.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }

    fn admitted(issuer: &JwtIssuer, change: Value) -> Result<Identity, Denied> {
        issuer.accept(&claims(change), NOW).map(|accepted| accepted.identity)
    }

    #[test]
    fn times_are_taken_with_a_leeway() {
        let seconds = NOW / 1000;
        let exactly = issuer().leeway(Duration::ZERO);
        for (issuer, change, fine) in [
            (issuer(), json!({"exp": seconds - 59}), true),
            (issuer(), json!({"exp": seconds - 60}), false),
            (issuer(), json!({"exp": seconds as f64 - 59.5}), true),
            (issuer(), json!({"nbf": seconds + 60}), true),
            (issuer(), json!({"nbf": seconds + 61}), false),
            (issuer(), json!({"iat": seconds + 60}), true),
            (issuer(), json!({"iat": seconds + 61}), false),
            (issuer(), json!({"exp": null}), false),
            (issuer(), json!({"exp": "2099"}), false),
            (issuer(), json!({"exp": 1e300}), false),
            (issuer(), json!({"exp": -1}), false),
            (issuer(), json!({"nbf": true}), false),
            (exactly.clone(), json!({"exp": seconds}), false),
            (exactly.clone(), json!({"exp": seconds + 1}), true),
            (exactly, json!({"nbf": seconds + 1}), false),
        ] {
            assert_eq!(admitted(&issuer, change.clone()).is_ok(), fine, "{change}");
        }
        let expired = admitted(&issuer(), json!({"exp": 1}));
        assert_eq!(expired, Err(Denied::Expired("the token has expired".to_owned())));
    }

    #[test]
    fn a_token_is_for_us_if_we_are_among_those_it_is_for() {
        for (audience, fine) in [
            (json!("us"), true),
            (json!(["others", "too"]), true),
            (json!("others"), false),
            (json!([]), false),
            (json!(["us, too"]), false),
            (json!({"us": "us"}), false),
            (json!(null), false),
        ] {
            assert_eq!(admitted(&issuer(), json!({"aud": audience})).is_ok(), fine, "{audience}");
        }
        assert!(admitted(&issuer().any_audience(), json!({"aud": null})).is_ok());
    }

    #[test]
    fn a_principal_is_called_by_its_issuer_and_subject() {
        let name = |issuer: JwtIssuer, change| admitted(&issuer, change).unwrap().principal.to_string();
        assert_eq!(name(issuer(), json!({})), "https://login.example.com#alice");
        assert_eq!(name(issuer().name("staff"), json!({})), "staff#alice");
        assert_eq!(name(issuer().bare_names(), json!({})), "alice");
        assert_eq!(name(issuer().name("s").principal_claim("azp"), json!({"azp": "cli"})), "s#cli");
        for subject in [json!(null), json!(7), json!(""), json!("a\nb"), json!("x".repeat(513))] {
            assert!(admitted(&issuer(), json!({"sub": subject})).is_err(), "{subject}");
        }
        let longest = "x".repeat(512);
        assert_eq!(name(issuer().bare_names(), json!({"sub": longest})), longest);
        let impostor = json!({"sub": "staff#alice"});
        assert!(admitted(&issuer().bare_names(), impostor.clone()).is_err(), "it is the name of another");
        assert_eq!(name(issuer().name("x"), impostor), "x#staff#alice");
    }

    #[test]
    fn scopes_and_tiers_come_from_claims() {
        let rights = |issuer: JwtIssuer, change| admitted(&issuer, change).unwrap().rights;
        let scopes = |rights: attache_core::Rights| rights.scopes().collect::<Vec<_>>().join(" ");
        assert_eq!(scopes(rights(issuer(), json!({"scope": "b a", "scp": ["c"]}))), "a b c");
        let own = issuer().scope_claim("permissions");
        assert_eq!(scopes(rights(own, json!({"scope": "a", "permissions": ["x", "y"]}))), "x y");
        let plain = issuer().tier_claim("plan");
        assert_eq!(rights(plain.clone(), json!({"plan": "gold"})).tier(), Some("gold"));
        assert_eq!(rights(plain, json!({})).tier(), None);
        let mapped = issuer().tier_claim("groups").tier("g-1", "gold").tier("g-2", "silver");
        assert_eq!(rights(mapped.clone(), json!({"groups": ["g-2", "g-1"]})).tier(), Some("gold"));
        assert_eq!(rights(mapped, json!({"groups": ["gold"]})).tier(), None);
        let strict = issuer().require_scope("a2a");
        assert!(admitted(&strict, json!({"scope": "a2a x"})).is_ok());
        let lacking = Denied::Forbidden("the token lacks the scope `a2a`".to_owned());
        assert_eq!(admitted(&strict, json!({"scope": "a2ax"})), Err(lacking));
    }

    #[test]
    fn what_is_not_an_access_token_is_not_taken_for_one() {
        for change in
            [json!({"at_hash": "x"}), json!({"typ": "ID"}), json!({"typ": "Refresh"}), json!({"iss": "x"})]
        {
            assert!(admitted(&issuer(), change.clone()).is_err(), "{change}");
        }
        assert!(admitted(&issuer(), json!({"typ": "Bearer"})).is_ok());
        for (kind, usually, strictly) in [
            (None, true, false),
            (Some("jwt"), true, false),
            (Some("at+jwt"), true, true),
            (Some("logout+jwt"), false, false),
        ] {
            assert_eq!(issuer().check_kind(kind).is_ok(), usually, "{kind:?}");
            assert_eq!(issuer().access_tokens_only().check_kind(kind).is_ok(), strictly, "{kind:?}");
        }
    }
}
