//! Combinations of authenticators: any of them is enough, or all are required.

use std::collections::BTreeMap;

use attache_core::{BoxFuture, Identity};
use attache_protocol::{SecurityRequirement, SecurityScheme};

use super::{Authenticator, Denied, Head, Verdict};

/// Tries several authenticators in order. The first one that knows the caller decides.
///
/// A credential that is wrong for one authenticator may be right for another. If none knows the caller, the result is the first of these
/// that any of them reports: [`Denied::Unavailable`], [`Denied::Forbidden`], [`Denied::Expired`], [`Denied::Wrong`]. It is
/// [`Denied::Missing`] only if all of them report that.
///
/// ```
/// use attache_server::auth::{AnyOf, CertificateCallers, CertificateName, KnownCallers};
///
/// let workers = CertificateCallers::new().caller(CertificateName::CommonName("worker".to_owned()), "worker");
/// let callers = AnyOf::new(KnownCallers::new().bearer("alice", "t0ken")).or(workers);
/// ```
pub struct AnyOf(Vec<Box<dyn Authenticator>>);

impl AnyOf {
    /// Starts with this authenticator.
    pub fn new(authenticator: impl Authenticator) -> Self {
        Self(vec![Box::new(authenticator)])
    }

    /// Adds an alternative.
    pub fn or(mut self, authenticator: impl Authenticator) -> Self {
        self.0.push(Box::new(authenticator));
        self
    }
}

impl Authenticator for AnyOf {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let mut members = self.0.iter();
        let mut denied = Denied::Missing;
        while let Some(member) = members.next() {
            match member.authenticate(head) {
                Verdict::Known(identity) => return Verdict::Known(identity),
                Verdict::Denied(another) => denied = graver(denied, another),
                Verdict::Later(first) => {
                    return Verdict::Later(Box::pin(async move {
                        match first.await {
                            Ok(identity) => return Ok(identity),
                            Err(another) => denied = graver(denied, another),
                        }
                        for member in members {
                            match decided(member.authenticate(head)).await {
                                Ok(identity) => return Ok(identity),
                                Err(another) => denied = graver(denied, another),
                            }
                        }
                        Err(denied)
                    }));
                }
            }
        }
        Verdict::Denied(denied)
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        CombinedSchemes::of(&self.0).schemes
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        CombinedSchemes::of(&self.0).requirements.concat()
    }

    fn challenges(&self) -> Vec<String> {
        distinct(self.0.iter().flat_map(|member| member.challenges()))
    }

    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        distinct(self.0.iter().flat_map(|member| member.challenges_for(head, denied)))
    }

    fn admits_everyone(&self) -> bool {
        self.0.iter().any(|member| member.admits_everyone())
    }
}

/// Requires several authenticators to know the caller.
///
/// The first authenticator names the caller. The caller has the scopes of all of them, and the tier of the first one that has a tier. The
/// first authenticator that denies the caller decides about the response. [`Denied::Unavailable`] is reported only if all others know the
/// caller.
///
/// ```
/// use attache_server::auth::{AllOf, CertificateCallers, CertificateName, KnownCallers};
///
/// let gateway = CertificateCallers::new().caller(CertificateName::CommonName("gateway".to_owned()), "gateway");
/// let callers = AllOf::new(KnownCallers::new().bearer("alice", "t0ken")).and(gateway);
/// ```
pub struct AllOf(Vec<Box<dyn Authenticator>>);

impl AllOf {
    /// Starts with this authenticator, which names the caller.
    pub fn new(authenticator: impl Authenticator) -> Self {
        Self(vec![Box::new(authenticator)])
    }

    /// Adds a requirement.
    pub fn and(mut self, authenticator: impl Authenticator) -> Self {
        self.0.push(Box::new(authenticator));
        self
    }
}

impl Authenticator for AllOf {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let mut members = self.0.iter();
        let mut agreed = Agreed::default();
        while let Some(member) = members.next() {
            let found = match member.authenticate(head) {
                Verdict::Known(identity) => Ok(identity),
                Verdict::Denied(denied) => Err(denied),
                Verdict::Later(first) => {
                    return Verdict::Later(Box::pin(async move {
                        agreed.add(first.await)?;
                        for member in members {
                            agreed.add(decided(member.authenticate(head)).await)?;
                        }
                        agreed.end()
                    }));
                }
            };
            if let Err(denied) = agreed.add(found) {
                return Verdict::Denied(denied);
            }
        }
        match agreed.end() {
            Ok(identity) => Verdict::Known(identity),
            Err(denied) => Verdict::Denied(denied),
        }
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        CombinedSchemes::of(&self.0).schemes
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        let start = vec![SecurityRequirement::default()];
        let together =
            CombinedSchemes::of(&self.0).requirements.into_iter().fold(start, |so_far, alternatives| {
                // An authenticator without schemes for the card leaves the others as they are.
                if alternatives.is_empty() {
                    return so_far;
                }
                let both = |one: &SecurityRequirement| {
                    let one = one.clone();
                    alternatives.iter().map(move |other| {
                        let mut both = one.clone();
                        both.schemes.extend(other.schemes.clone());
                        both
                    })
                };
                so_far.iter().flat_map(both).collect()
            });
        together.into_iter().filter(|requirement| !requirement.schemes.is_empty()).collect()
    }

    fn challenges(&self) -> Vec<String> {
        distinct(self.0.iter().flat_map(|member| member.challenges()))
    }

    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        distinct(self.0.iter().flat_map(|member| member.challenges_for(head, denied)))
    }

    fn admits_everyone(&self) -> bool {
        self.0.iter().all(|member| member.admits_everyone())
    }
}

/// What the authenticators so far agree on.
#[derive(Default)]
struct Agreed {
    identity: Option<Identity>,
    unavailable: Option<Denied>,
}

impl Agreed {
    fn add(&mut self, found: Result<Identity, Denied>) -> Result<(), Denied> {
        match found {
            Ok(another) => {
                self.identity = Some(match self.identity.take() {
                    None => another,
                    Some(identity) => united(identity, &another),
                });
                Ok(())
            }
            Err(denied @ Denied::Unavailable(_)) => {
                self.unavailable.get_or_insert(denied);
                Ok(())
            }
            Err(denied) => Err(denied),
        }
    }

    fn end(self) -> Result<Identity, Denied> {
        match self.unavailable {
            Some(denied) => Err(denied),
            None => self.identity.ok_or(Denied::Missing),
        }
    }
}

/// An identity with the rights of both.
fn united(one: Identity, other: &Identity) -> Identity {
    let tier = other.rights.tier().filter(|_| one.rights.tier().is_none());
    let scopes = other.rights.scopes();
    let all = one.scopes(scopes).missing_metadata(&other.metadata);
    match tier {
        Some(tier) => all.tier(tier),
        None => all,
    }
}

/// Waits for a verdict.
fn decided(verdict: Verdict<'_>) -> BoxFuture<'_, Result<Identity, Denied>> {
    match verdict {
        Verdict::Known(identity) => Box::pin(std::future::ready(Ok(identity))),
        Verdict::Denied(denied) => Box::pin(std::future::ready(Err(denied))),
        Verdict::Later(found) => found,
    }
}

/// Which of two denials is reported; the first one, if they are of the same kind.
fn graver(one: Denied, other: Denied) -> Denied {
    let gravity = |denied: &Denied| match denied {
        Denied::Missing => 0,
        Denied::Wrong(_) => 1,
        Denied::Expired(_) => 2,
        Denied::Forbidden(_) => 3,
        Denied::Unavailable(_) => 4,
    };
    if gravity(&other) > gravity(&one) { other } else { one }
}

/// Removes challenges that are the beginning of another one, which says more.
fn distinct(challenges: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for challenge in challenges {
        if kept.iter().any(|known| known.starts_with(&challenge)) {
            continue;
        }
        match kept.iter_mut().find(|known| challenge.starts_with(known.as_str())) {
            Some(shorter) => *shorter = challenge,
            None => kept.push(challenge),
        }
    }
    kept
}

/// The schemes of several authenticators, under unique names.
struct CombinedSchemes {
    schemes: Vec<(String, SecurityScheme)>,
    /// The alternatives of each authenticator.
    requirements: Vec<Vec<SecurityRequirement>>,
}

impl CombinedSchemes {
    fn of(members: &[Box<dyn Authenticator>]) -> Self {
        let mut asked = Self { schemes: Vec::new(), requirements: Vec::new() };
        for member in members {
            let names: BTreeMap<_, _> = member
                .schemes()
                .into_iter()
                .map(|(name, scheme)| (name.clone(), asked.name(name, scheme)))
                .collect();
            let renamed = member.requirements().into_iter().map(|requirement| SecurityRequirement {
                schemes: requirement
                    .schemes
                    .into_iter()
                    .map(|(name, scopes)| (names.get(&name).cloned().unwrap_or(name), scopes))
                    .collect(),
            });
            asked.requirements.push(renamed.collect());
        }
        asked
    }

    /// A name for a scheme: its own, unless another scheme has that name.
    fn name(&mut self, name: String, scheme: SecurityScheme) -> String {
        let mut number = 1;
        loop {
            let title = if number == 1 { name.clone() } else { format!("{name}-{number}") };
            match self.schemes.iter().find(|(known, _)| *known == title) {
                Some((_, known)) if *known == scheme => return title,
                Some(_) => number += 1,
                None => {
                    self.schemes.push((title.clone(), scheme));
                    return title;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http::HeaderMap;

    use super::super::{KeyPlace, KnownCallers};
    use super::*;

    /// Returns the same verdict for every request, at once or later.
    struct Says(Result<Identity, Denied>, bool);

    impl Authenticator for Says {
        fn authenticate<'a>(&'a self, _: Head<'a>) -> Verdict<'a> {
            match (self.1, self.0.clone()) {
                (true, found) => Verdict::Later(Box::pin(std::future::ready(found))),
                (false, Ok(identity)) => Verdict::Known(identity),
                (false, Err(denied)) => Verdict::Denied(denied),
            }
        }

        fn schemes(&self) -> Vec<(String, SecurityScheme)> {
            Vec::new()
        }

        fn challenges(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn found(authenticator: &dyn Authenticator) -> Result<Identity, Denied> {
        let headers = HeaderMap::new();
        let head = Head { headers: &headers, query: None, peer: None };
        decided(authenticator.authenticate(head)).now_or_never().expect("nothing takes longer than a moment")
    }

    fn wrong() -> Result<Identity, Denied> {
        Err(Denied::Wrong("wrong".into()))
    }

    fn unavailable() -> Result<Identity, Denied> {
        Err(Denied::Unavailable("down".into()))
    }

    fn forbidden() -> Result<Identity, Denied> {
        Err(Denied::Forbidden("no".into()))
    }

    /// All combinations of immediate and later verdicts.
    fn mixtures(one: &Result<Identity, Denied>, other: &Result<Identity, Denied>) -> Vec<(Says, Says)> {
        let both = [(false, false), (false, true), (true, false), (true, true)];
        both.into_iter().map(|(a, b)| (Says(one.clone(), a), Says(other.clone(), b))).collect()
    }

    #[test]
    fn of_any_the_first_that_knows_the_caller_decides() {
        let (alice, bob) = (Ok(Identity::named("alice")), Ok(Identity::named("bob")));
        let expired = || Err(Denied::Expired("old".into()));
        let missing = || Err(Denied::Missing);
        for (one, other, expected) in [
            (alice.clone(), bob.clone(), alice.clone()),
            (wrong(), bob.clone(), bob.clone()),
            (unavailable(), bob.clone(), bob.clone()),
            (forbidden(), alice.clone(), alice.clone()),
            (missing(), missing(), missing()),
            (missing(), wrong(), wrong()),
            (expired(), wrong(), expired()),
            (expired(), forbidden(), forbidden()),
            (wrong(), unavailable(), unavailable()),
            (forbidden(), unavailable(), unavailable()),
        ] {
            for (a, b) in mixtures(&one, &other) {
                assert_eq!(found(&AnyOf::new(a).or(b)), expected, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn of_all_everyone_must_know_the_caller_and_rights_are_united() {
        let alice = Identity::named("alice").scope("read");
        let gateway = Identity::named("gateway").scope("write").tier("partner");
        let both = Ok(Identity::named("alice").scopes(["read", "write"]).tier("partner"));
        for (one, other, expected) in [
            (Ok(alice.clone()), Ok(gateway), both),
            (Ok(alice.clone()), wrong(), wrong()),
            (Err(Denied::Missing), wrong(), Err(Denied::Missing)),
            (unavailable(), Ok(alice.clone()), unavailable()),
            (unavailable(), wrong(), wrong()),
            (forbidden(), Ok(alice), forbidden()),
        ] {
            for (a, b) in mixtures(&one, &other) {
                assert_eq!(found(&AllOf::new(a).and(b)), expected, "{one:?} {other:?}");
            }
        }
    }

    fn shown(requirements: &[SecurityRequirement]) -> String {
        let one = |requirement: &SecurityRequirement| {
            requirement.schemes.keys().cloned().collect::<Vec<_>>().join("+")
        };
        requirements.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_card_tells_a_choice_from_a_demand() {
        let key = |name: &str| KnownCallers::new().api_key("ci", KeyPlace::Header(name.into()), "k3y");
        let either = || KnownCallers::new().bearer("alice", "t0ken").basic("ops", "pa55");
        let any = AnyOf::new(either()).or(key("X-A")).or(key("X-B")).or(key("X-A"));
        assert_eq!(shown(&any.requirements()), "bearerAuth basicAuth apiKeyAuth apiKeyAuth-2 apiKeyAuth");
        assert_eq!(any.schemes().len(), 4);
        let all = AllOf::new(either()).and(key("X-A")).and(Says(wrong(), false));
        assert_eq!(shown(&all.requirements()), "apiKeyAuth+bearerAuth apiKeyAuth+basicAuth");
        let nested = AnyOf::new(all).or(key("X-B"));
        assert_eq!(shown(&nested.requirements()), "apiKeyAuth+bearerAuth apiKeyAuth+basicAuth apiKeyAuth-2");
        assert!(AllOf::new(Says(wrong(), false)).requirements().is_empty());
    }

    #[test]
    fn a_challenge_that_says_less_than_another_is_left_out() {
        let challenges = ["Bearer a", "Basic", "Bearer a, error=\"x\"", "Basic"].map(str::to_owned);
        assert_eq!(distinct(challenges.into_iter()), ["Bearer a, error=\"x\"", "Basic"]);
    }
}
