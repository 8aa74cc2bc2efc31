//! The keys of an issuer: fetched when they are needed and no more often, and good for as long as they should be.

use std::sync::Arc;
use std::time::Duration;

use attache_core::ManualClock;
use attache_protocol::Timestamp;
use attache_server::auth::{Authenticator, Denied, Head, JwtCallers, JwtIssuer, Verdict};
use futures::future::join_all;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use super::{Guarded, US, admitted, claims};
use crate::support::issuer::{Minter, Provider};
use crate::support::{Binding, soon};

const START: i64 = 1_800_000_000;

/// Callers of a provider, at a time that only the test moves.
struct Watched {
    provider: Provider,
    callers: JwtCallers,
    clock: Arc<ManualClock>,
}

impl Watched {
    async fn new(minters: &[&Minter]) -> Self {
        let provider = Provider::with(minters).await;
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START * 1000)));
        let issuer = JwtIssuer::new(&provider.url).audience(US).name("idp");
        let callers = JwtCallers::with_clock([issuer], clock.clone()).unwrap();
        Self { provider, callers, clock }
    }

    /// Makes it so many seconds after the start.
    fn at(&self, seconds: i64) {
        self.clock.set(Timestamp::from_millis((START + seconds) * 1000));
    }

    /// A token that is good for a month.
    fn token(&self, minter: &Minter) -> String {
        let mut claims = claims(&self.provider.url, "alice", START);
        claims["exp"] = json!(START + 30 * 86_400);
        minter.token(&claims)
    }

    async fn admits(&self, minter: &Minter) -> bool {
        match admitted(&self.callers, &self.token(minter)).await {
            Ok(name) => {
                assert_eq!(name, "idp#alice");
                true
            }
            Err(Denied::Wrong(reason)) => {
                assert!(reason.contains("a key that is not known"), "{reason}");
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_key_that_is_new_is_fetched_once_and_one_that_is_gone_is_not_good_any_more() {
    let (old, new) = (Minter::new("ES256", "old"), Minter::new("ES256", "new"));
    let watched = Watched::new(&[&old]).await;
    assert!(watched.admits(&old).await);
    watched.provider.publish(&[&old, &new]);
    assert!(!watched.admits(&new).await, "the keys were fetched a moment ago");
    watched.at(10);
    assert!(watched.admits(&new).await);
    assert!(watched.admits(&old).await);
    assert_eq!(watched.provider.fetches(), 2);
    watched.provider.publish(&[&new]);
    assert!(watched.admits(&old).await, "nobody knows yet that it is gone");
    // A quarter of an hour is how long keys are good for whose owner does not say.
    watched.at(10 + 900);
    assert!(!watched.admits(&old).await, "though it was good before");
    assert!(watched.admits(&new).await);
    assert_eq!(watched.provider.fetches(), 3);
}

#[tokio::test]
async fn a_key_that_does_not_exist_is_asked_for_once_in_a_while() {
    let (own, unknown) = (Minter::new("ES256", "own"), Minter::new("ES256", "unknown"));
    let watched = Watched::new(&[&own]).await;
    for (second, fetches) in [(0, 1), (0, 1), (9, 1), (10, 2), (11, 2), (19, 2), (20, 3)] {
        watched.at(second);
        assert!(!watched.admits(&unknown).await);
        assert_eq!(watched.provider.fetches(), fetches, "after {second} s");
    }
}

#[tokio::test]
async fn keys_are_replaced_before_they_expire_without_anyone_waiting() {
    let (own, next) = (Minter::new("ES256", "own"), Minter::new("ES256", "next"));
    let watched = Watched::new(&[&own]).await;
    watched.provider.cache_control("max-age=1000");
    assert!(watched.admits(&own).await);
    watched.at(799);
    assert!(watched.admits(&own).await);
    assert_eq!(watched.provider.fetches(), 1);
    watched.provider.hold(true);
    watched.at(801);
    assert!(watched.admits(&own).await, "while the new ones are on their way");
    soon(async {
        while watched.provider.fetches() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    watched.provider.publish(&[&next]);
    watched.provider.hold(false);
    // A request with the new key waits for the running fetch.
    assert!(watched.admits(&next).await);
    assert!(!watched.admits(&own).await);
    assert_eq!(watched.provider.fetches(), 2);
}

#[tokio::test]
async fn keys_that_are_known_stay_in_use_for_a_day_while_the_issuer_is_down() {
    let own = Minter::new("ES256", "own");
    let watched = Watched::new(&[&own]).await;
    assert!(watched.admits(&own).await);
    watched.provider.down(true);
    for second in [1_000, 1_005, 50_000, 900 + 86_399] {
        watched.at(second);
        assert!(watched.admits(&own).await, "after {second} s");
    }
    assert_eq!(watched.provider.fetches(), 4, "once at the start, then not more than once in ten seconds");
    let other = watched.token(&Minter::new("ES256", "other"));
    let unknown = admitted(&watched.callers, &other).await;
    assert!(matches!(unknown, Err(Denied::Unavailable(_))), "it may be a new key: {unknown:?}");
    watched.at(900 + 86_400);
    let late = admitted(&watched.callers, &watched.token(&own)).await;
    assert!(matches!(late, Err(Denied::Unavailable(_))), "{late:?}");
    watched.provider.down(false);
    watched.at(900 + 86_402);
    assert!(watched.admits(&own).await);
}

#[tokio::test]
async fn a_token_is_good_until_it_expires_and_no_longer() {
    let own = Minter::new("ES256", "own");
    let watched = Watched::new(&[&own]).await;
    let token = own.token(&claims(&watched.provider.url, "alice", START));
    for second in [0, 0, 300 + 59] {
        watched.at(second);
        assert!(admitted(&watched.callers, &token).await.is_ok(), "after {second} s");
    }
    watched.at(300 + 60);
    let expired = Err(Denied::Expired("the token has expired".to_owned()));
    assert_eq!(admitted(&watched.callers, &token).await, expired, "though it is remembered as good");
}

#[tokio::test]
async fn however_many_come_at_once_keys_are_fetched_once() {
    let guarded = Guarded::new().await;
    guarded.provider.hold(true);
    let asks = (0..100).map(|number| {
        let binding = Binding::ALL[number % 3];
        let bearer = guarded.bearer(&format!("caller-{number}"), json!({}));
        guarded.server.ask("ListTasks", json!({})).header("Authorization", &bearer).begin(binding)
    });
    let asks: Vec<_> = asks.collect();
    soon(async {
        while guarded.provider.fetches() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    guarded.provider.hold(false);
    for answer in soon(join_all(asks)).await {
        answer.unwrap().unwrap();
    }
    assert_eq!(guarded.provider.fetches(), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_fetch_of_keys_does_not_abort_it_for_others() {
    let own = Minter::new("ES256", "own");
    let watched = Watched::new(&[&own]).await;
    watched.provider.hold(true);
    let token = watched.token(&own);
    let hasty = tokio::time::timeout(Duration::ZERO, admitted(&watched.callers, &token)).await;
    assert!(hasty.is_err());
    watched.provider.hold(false);
    assert!(watched.admits(&own).await);
    assert_eq!(watched.provider.fetches(), 1);
}

#[tokio::test]
async fn an_issuer_that_is_down_at_the_start_is_our_trouble_and_not_the_callers() {
    let minter = Minter::new("ES256", "own");
    let watched = Watched::new(&[&minter]).await;
    watched.provider.down(true);
    let Watched { provider, callers, clock } = watched;
    let token = |subject: &str| format!("Bearer {}", minter.token(&claims(&provider.url, subject, START)));
    let server = crate::support::serve(crate::support::player().authenticate(callers)).await;
    for binding in Binding::ALL {
        let ask = server.ask("ListTasks", json!({})).header("Authorization", &token("alice"));
        let refusal = ask.refused(binding).await;
        assert_eq!(refusal.code, if binding == Binding::Grpc { 14 } else { 503 }, "{binding:?}");
        assert_eq!(refusal.status, "", "nothing else would help");
        assert_eq!(server.ask("ListTasks", json!({})).refused(Binding::JsonRpc).await.code, 401);
    }
    assert_eq!(provider.fetches(), 1, "not with every request");
    provider.down(false);
    clock.set(Timestamp::from_millis((START + 1) * 1000));
    for binding in Binding::ALL {
        server.ask("ListTasks", json!({})).header("Authorization", &token("alice")).ok(binding).await;
    }
    assert_eq!(provider.fetches(), 2);
}

#[tokio::test]
async fn keys_of_another_issuer_are_not_accepted() {
    let minter = Minter::new("ES256", "own");
    let watched = Watched::new(&[&minter]).await;
    watched.provider.pretend("https://other.example.com");
    let denied = admitted(&watched.callers, &watched.token(&minter)).await.unwrap_err();
    let Denied::Unavailable(reason) = &denied else { panic!("{denied:?}") };
    assert!(reason.contains("describes another issuer, `https://other.example.com`"), "{reason}");
    assert_eq!(watched.provider.fetches(), 0);
}

#[tokio::test]
async fn keys_that_are_for_something_else_are_not_used() {
    let minter = Minter::new("ES256", "own");
    let with = |member: &str, value: Value| {
        let mut jwk = minter.jwk();
        jwk[member] = value;
        jwk
    };
    let useful = Minter::new("EdDSA", "useful");
    for (unfit, fine) in [
        (with("use", json!("enc")), false),
        (with("key_ops", json!(["sign"])), false),
        (with("alg", json!("RS256")), false),
        (with("crv", json!("P-521")), false),
        (with("key_ops", json!(["verify"])), true),
    ] {
        let watched = Watched::new(&[]).await;
        watched.provider.publish_jwks(vec![unfit.clone(), useful.jwk()]);
        assert_eq!(watched.admits(&minter).await, fine, "{unfit}");
        assert!(watched.admits(&useful).await);
    }
}

#[tokio::test]
async fn only_fetching_keys_takes_a_while() {
    let minter = Minter::new("ES256", "own");
    let watched = Watched::new(&[&minter]).await;
    let at_once = |token: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        match watched.callers.authenticate(Head { headers: &headers, query: None, peer: None }) {
            Verdict::Known(_) => true,
            Verdict::Later(_) => false,
            Verdict::Denied(denied) => panic!("{denied:?}"),
        }
    };
    let of = |subject: &str| minter.token(&claims(&watched.provider.url, subject, START));
    let (first, second) = (of("first"), of("second"));
    assert!(!at_once(&first), "there are no keys yet");
    assert!(admitted(&watched.callers, &first).await.is_ok());
    assert!(at_once(&first) && at_once(&second) && at_once(&second));
}

#[tokio::test]
async fn keys_are_read_up_to_512_kib_and_are_up_to_100() {
    let minter = Minter::new("ES256", "own");
    let bytes = |length: usize| {
        let padded = |padding: usize| vec![minter.jwk(), json!({"kty": "none", "x": "x".repeat(padding)})];
        let least = json!({"keys": padded(0)}).to_string().len();
        padded(length - least)
    };
    let others = |count: usize| {
        let mut keys = vec![json!({"kty": "none"}); count - 1];
        keys.push(minter.jwk());
        keys
    };
    for (keys, why) in [
        (bytes(512 * 1024), None),
        (bytes(512 * 1024 + 1), Some("it is longer than 524288 bytes")),
        (others(100), None),
        (others(101), Some("more than 100 keys")),
    ] {
        let watched = Watched::new(&[]).await;
        watched.provider.publish_jwks(keys);
        match admitted(&watched.callers, &watched.token(&minter)).await {
            Ok(name) => assert_eq!((name.as_str(), why), ("idp#alice", None)),
            Err(Denied::Unavailable(reason)) => {
                assert!(why.is_some_and(|why| reason.contains(why)), "{reason}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
