//! Several ways to find out who calls, of which any one suffices or all are needed.

use std::collections::BTreeMap;

use attache_core::{BoxFuture, Identity};
use attache_protocol::{SecurityRequirement, SecurityScheme};

use super::{Authenticator, Denied, Head, Verdict};

/// Asks several authenticators, in order. The first one that knows the caller decides who it is.
///
/// A credential that is wrong for one may be right for another. If nobody knows the caller, then as long as one of them cannot tell at
/// the moment it is not known ([`Denied::Unavailable`]); otherwise who is forbidden to come in is, then whoever has something that has
/// expired, then whoever has something wrong. Credentials are missing only if all say so.
///
/// ```
/// use attache_server::auth::{AnyOf, CertificateCallers, CertificateName, KnownCallers};
///
/// let workers = CertificateCallers::new().caller(CertificateName::CommonName("worker".to_owned()), "worker");
/// let callers = AnyOf::new(KnownCallers::new().bearer("alice", "t0ken")).or(workers);
/// ```
pub struct AnyOf(Vec<Box<dyn Authenticator>>);

impl AnyOf {
    /// This one, for a start.
    pub fn new(authenticator: impl Authenticator) -> Self {
        Self(vec![Box::new(authenticator)])
    }

    /// Or this one.
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
        Asked::of(&self.0).schemes
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        Asked::of(&self.0).requirements.concat()
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

/// Asks several authenticators, all of which must know the caller.
///
/// Who it is says the first one. What they may do is what any of them says, and their tier is that of the first one that knows it. The
/// first one that does not know the caller decides what they are told; that one of them cannot tell at the moment matters only if all
/// others know the caller.
///
/// ```
/// use attache_server::auth::{AllOf, CertificateCallers, CertificateName, KnownCallers};
///
/// let gateway = CertificateCallers::new().caller(CertificateName::CommonName("gateway".to_owned()), "gateway");
/// let callers = AllOf::new(KnownCallers::new().bearer("alice", "t0ken")).and(gateway);
/// ```
pub struct AllOf(Vec<Box<dyn Authenticator>>);

impl AllOf {
    /// This one, for a start: it says who the caller is.
    pub fn new(authenticator: impl Authenticator) -> Self {
        Self(vec![Box::new(authenticator)])
    }

    /// And this one.
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
        Asked::of(&self.0).schemes
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        let start = vec![SecurityRequirement::default()];
        let together = Asked::of(&self.0).requirements.into_iter().fold(start, |so_far, alternatives| {
            // One that asks for nothing that a card has words for leaves the others as they are.
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

/// What those who were asked so far agree about.
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

/// One with the rights of both.
fn united(one: Identity, other: &Identity) -> Identity {
    let tier = other.rights.tier().filter(|_| one.rights.tier().is_none());
    let scopes = other.rights.scopes();
    let all = one.scopes(scopes).missing_metadata(&other.metadata);
    match tier {
        Some(tier) => all.tier(tier),
        None => all,
    }
}

/// What a verdict comes to in the end.
fn decided(verdict: Verdict<'_>) -> BoxFuture<'_, Result<Identity, Denied>> {
    match verdict {
        Verdict::Known(identity) => Box::pin(std::future::ready(Ok(identity))),
        Verdict::Denied(denied) => Box::pin(std::future::ready(Err(denied))),
        Verdict::Later(found) => found,
    }
}

/// Which of two denials counts; the first one, if they are of a kind.
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

/// Challenges without those that others begin with: one that says more says it all.
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

/// What several authenticators ask for, under names of which each means one thing.
struct Asked {
    schemes: Vec<(String, SecurityScheme)>,
    /// The alternatives of each of them.
    requirements: Vec<Vec<SecurityRequirement>>,
}

impl Asked {
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

    /// The name of a scheme: its own, unless that means something else already.
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

    /// Says the same to everyone, at once or after a while.
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

    /// Every mixture of answers at once and answers after a while.
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
        assert_eq!(shown(&any.requirements()), "bearer basic api-key api-key-2 api-key");
        assert_eq!(any.schemes().len(), 4);
        let all = AllOf::new(either()).and(key("X-A")).and(Says(wrong(), false));
        assert_eq!(shown(&all.requirements()), "api-key+bearer api-key+basic");
        let nested = AnyOf::new(all).or(key("X-B"));
        assert_eq!(shown(&nested.requirements()), "api-key+bearer api-key+basic api-key-2");
        assert!(AllOf::new(Says(wrong(), false)).requirements().is_empty());
    }

    #[test]
    fn a_challenge_that_says_less_than_another_is_left_out() {
        let challenges = ["Bearer a", "Basic", "Bearer a, error=\"x\"", "Basic"].map(str::to_owned);
        assert_eq!(distinct(challenges.into_iter()), ["Bearer a, error=\"x\"", "Basic"]);
    }
}
