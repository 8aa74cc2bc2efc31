//! Forged tokens: all are rejected.

use attache_server::auth::{Denied, JwtCallers, JwtIssuer};
use serde_json::{Value, json};

use super::{US, admitted, claims, seconds};
use crate::support::issuer::{Minter, Provider, encode};

/// A header or claims with some members changed.
fn with(mut value: Value, change: Value) -> String {
    for (name, new) in change.as_object().unwrap() {
        value[name] = new.clone();
    }
    value.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    value.to_string()
}

#[tokio::test]
async fn no_forged_token_lets_anyone_in() {
    let minter = Minter::new("RS256", "r");
    let curve = Minter::new("ES256", "e");
    let mallory = Minter::new("RS256", "r");
    let provider = Provider::with(&[&minter, &curve]).await;
    let callers = JwtCallers::new([JwtIssuer::new(&provider.url).audience(US)]).unwrap();
    let now = seconds();
    let good = claims(&provider.url, "alice", now);
    let (header, body) = (minter.header(), good.to_string());
    let fine = minter.token(&good);
    let name = format!("{}#alice", provider.url);
    assert_eq!(admitted(&callers, &fine).await, Ok(name.clone()), "the original is good");

    let unsigned = |header: &str| format!("{}.{}.", encode(header), encode(&body));
    let (message, signature) = fine.rsplit_once('.').unwrap();
    let (_, payload) = message.split_once('.').unwrap();
    let by_secret = |secret: &[u8], kid: &str| Minter::secret(secret, kid).token(&good);
    let changed = |change: Value| minter.signed(&header.to_string(), &with(good.clone(), change));
    let headed = |change: Value| minter.signed(&with(header.clone(), change), &body);
    let theirs = |change: Value| mallory.signed(&with(header.clone(), change), &body);
    let twice = |text: &str, member: &str| text.replacen('{', &format!("{{{member},"), 1);
    let forged = [
        ("unsigned", unsigned(r#"{"alg":"none"}"#), "`none` is not an algorithm"),
        ("unsigned, in capitals", unsigned(r#"{"alg":"NONE"}"#), "`NONE` is not an algorithm"),
        ("unsigned, under a good header", unsigned(&header.to_string()), "its signature is wrong"),
        ("no algorithm", headed(json!({"alg": null})), "it has no `alg`"),
        (
            "RSA key as a secret",
            by_secret(&minter.public_bytes(), "r"),
            "`HS256` is not among the algorithms",
        ),
        (
            "curve key as a secret",
            by_secret(&curve.public_bytes(), "e"),
            "`HS256` is not among the algorithms",
        ),
        ("JWK as a secret", by_secret(minter.jwk().to_string().as_bytes(), "r"), "`HS256` is not among"),
        ("another's key", mallory.token(&good), "its signature is wrong"),
        ("a key for another algorithm", headed(json!({"kid": "e"})), "but the key is for `ES256`"),
        ("another padding", headed(json!({"alg": "PS256"})), "but the key is for `RS256`"),
        ("an unknown key", headed(json!({"kid": "x"})), "a key that is not known"),
        ("a path as the key", theirs(json!({"kid": "../../../../dev/null"})), "a key that is not known"),
        ("a query as the key", theirs(json!({"kid": "' UNION SELECT 'x"})), "a key that is not known"),
        ("an empty key", theirs(json!({"kid": ""})), "a key that is not known"),
        ("a key that is no text", headed(json!({"kid": ["r"]})), "its `kid` is not a text"),
        ("no name of a key", theirs(json!({"kid": null})), "a key that is not known"),
        ("its own key in it", theirs(json!({"jwk": mallory.jwk()})), "its signature is wrong"),
        (
            "its own keys elsewhere",
            theirs(json!({"jku": "http://127.0.0.1:1/jwks"})),
            "its signature is wrong",
        ),
        ("its own certificate", theirs(json!({"x5u": "http://127.0.0.1:1/c"})), "its signature is wrong"),
        ("critical", headed(json!({"crit": ["exp"], "exp": 1})), "its `crit` is not supported"),
        ("not encoded", headed(json!({"b64": false})), "its `b64` is not supported"),
        ("compressed", headed(json!({"zip": "DEF"})), "its `zip` is not supported"),
        ("another type", headed(json!({"typ": "logout+jwt"})), "its `typ` is not that"),
        ("a proof of possession", headed(json!({"typ": "dpop+jwt"})), "its `typ` is not that"),
        ("a type that is no text", headed(json!({"typ": 1})), "its `typ` is not a text"),
        ("another issuer", changed(json!({"iss": "https://other.example.com"})), "is not known"),
        ("a longer issuer", changed(json!({"iss": format!("{}/", provider.url)})), "is not known"),
        ("no issuer", changed(json!({"iss": null})), "its issuer `` is not known"),
        ("another audience", changed(json!({"aud": "https://other.example.com"})), "another audience"),
        ("no audience", changed(json!({"aud": null})), "another audience"),
        ("not valid yet", changed(json!({"nbf": now + 3600})), "not valid yet"),
        ("from the future", changed(json!({"iat": now + 3600})), "issued in the future"),
        ("without an end", changed(json!({"exp": null})), "it has no `exp`"),
        ("with an end in words", changed(json!({"exp": "never"})), "its `exp` is not a time"),
        ("nobody's", changed(json!({"sub": null})), "its `sub`, which says who it is, is not a text"),
        ("an ID token", changed(json!({"at_hash": "x"})), "it is not an access token"),
        (
            "issuer twice",
            minter.signed(&header.to_string(), &twice(&body, r#""iss":"x""#)),
            "`iss` is there twice",
        ),
        (
            "subject twice",
            minter.signed(&header.to_string(), &twice(&body, r#""sub":"root""#)),
            "`sub` is there twice",
        ),
        (
            "algorithm twice",
            minter.signed(&twice(&header.to_string(), r#""alg":"none""#), &body),
            "`alg` is there twice",
        ),
        ("truncated", fine[..fine.len() - 2].to_owned(), "its signature is wrong"),
        ("without its signature", message.to_owned(), "it is not a JWT"),
        ("with an empty signature", format!("{message}."), "its signature is wrong"),
        ("with padding", format!("{fine}=="), "its signature is not base64url"),
        (
            "other claims under it",
            format!(
                "{}.{}.{signature}",
                encode(header.to_string()),
                encode(with(good.clone(), json!({"sub": "root"})))
            ),
            "its signature is wrong",
        ),
        (
            "another header over it",
            format!("{}.{payload}.{signature}", encode(with(header.clone(), json!({"typ": "JWT"})))),
            "its signature is wrong",
        ),
        ("encrypted", format!("{fine}.AAAA.AAAA"), "is not base64url"),
        ("no token at all", "t0ken".to_owned(), "it is not a JWT"),
        ("nothing", String::new(), "it is not a JWT"),
        ("dots", "..".to_owned(), "its header cannot be read"),
        ("too long", changed(json!({"x": "x".repeat(16 * 1024)})), "it is too long"),
        (
            "too deep",
            minter
                .signed(&header.to_string(), &format!("{{\"a\":{}{}}}", "[".repeat(2000), "]".repeat(2000))),
            "nests deeper",
        ),
    ];
    for (what, token, reason) in forged {
        match admitted(&callers, &token).await {
            Err(Denied::Wrong(why)) => assert!(why.contains(reason), "{what}: {why}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let expired = admitted(&callers, &changed(json!({"exp": now - 61}))).await;
    assert_eq!(expired, Err(Denied::Expired("the token has expired".to_owned())));
    assert_eq!(admitted(&callers, &fine).await, Ok(name.clone()), "and the original still is");
    assert_eq!(provider.fetches(), 1, "nobody can make the keys be fetched again and again");
    let harmless = headed(json!({"jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/c"}));
    assert_eq!(
        admitted(&callers, &harmless).await,
        Ok(name),
        "what it says about its key counts for nothing"
    );
}

#[tokio::test]
async fn a_token_of_16_kib_is_read_and_a_longer_one_is_not() {
    let minter = Minter::new("ES256", "k");
    let provider = Provider::with(&[&minter]).await;
    let callers = JwtCallers::new([JwtIssuer::new(&provider.url).audience(US)]).unwrap();
    let good = claims(&provider.url, "alice", seconds());
    // Not every length is one of base64url, so the header is made longer too.
    let token = |length: usize| {
        let sized = (0..4).flat_map(|header| (11_900..12_200).map(move |claims| (header, claims)));
        let mut tokens = sized.map(|(header, claims)| {
            let header = with(minter.header(), json!({"x": "x".repeat(header)}));
            minter.signed(&header, &with(good.clone(), json!({"x": "x".repeat(claims)})))
        });
        tokens.find(|token| token.len() == length).expect("there is a token of this length")
    };
    assert_eq!(admitted(&callers, &token(16 * 1024)).await, Ok(format!("{}#alice", provider.url)));
    let Err(Denied::Wrong(why)) = admitted(&callers, &token(16 * 1024 + 1)).await else {
        panic!("it was read");
    };
    assert!(why.contains("it is too long"), "{why}");
}
