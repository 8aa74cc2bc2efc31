//! An identity provider on a port of its own, whose tokens and keys can be anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaKeyPair,
};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Running, adopt};

/// A key that tokens are signed with.
pub(crate) struct Minter {
    pub(crate) kid: String,
    alg: &'static str,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
    Secret(Box<hmac::Key>),
}

/// Something in base64url.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Minter {
    /// A new key of this algorithm.
    pub(crate) fn new(alg: &'static str, kid: &str) -> Self {
        let pair = match alg {
            "ES256" => Pair::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
            "EdDSA" => Pair::Ed25519(Ed25519KeyPair::generate().unwrap()),
            "RS256" | "PS256" => Pair::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())),
            other => panic!("there are no keys for {other}"),
        };
        Self { kid: kid.to_owned(), alg, pair }
    }

    /// A secret.
    pub(crate) fn secret(secret: &[u8], kid: &str) -> Self {
        let pair = Pair::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)));
        Self { kid: kid.to_owned(), alg: "HS256", pair }
    }

    /// The public key.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::P256(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                json!({"kty": "EC", "crv": "P-256", "x": encode(&point[..32]), "y": encode(&point[32..])})
            }
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key())})
            }
            Pair::Rsa(pair) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "n": encode(n), "e": encode(e)})
            }
            Pair::Secret(_) => panic!("a secret is not published"),
        };
        jwk["kid"] = json!(self.kid);
        jwk["alg"] = json!(self.alg);
        jwk["use"] = json!("sig");
        jwk
    }

    /// The public key as bytes that people have mistaken for a secret.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::P256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Secret(_) => panic!("a secret has no public key"),
        }
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let encoding: &'static dyn aws_lc_rs::signature::RsaEncoding =
                    if self.alg == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                pair.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Secret(key) => hmac::sign(key, message).as_ref().to_vec(),
        }
    }

    /// The header of a token.
    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.alg, "kid": self.kid, "typ": "at+jwt"})
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.signed(&self.header().to_string(), &claims.to_string())
    }

    /// A token with this header and these claims, whatever they are.
    pub(crate) fn signed(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = encode(self.signature(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// An identity provider.
pub(crate) struct Provider {
    pub(crate) url: String,
    state: Arc<State>,
    _running: Running,
}

struct State {
    published: Mutex<Published>,
    /// How often the keys were asked for.
    fetches: AtomicUsize,
    /// Whether it answers, or lets everyone wait.
    open: watch::Sender<bool>,
}

#[derive(Default)]
struct Published {
    issuer: Option<String>,
    keys: Vec<Value>,
    down: bool,
    cache_control: Option<&'static str>,
}

impl Provider {
    /// One that publishes these keys.
    pub(crate) async fn with(minters: &[&Minter]) -> Self {
        let state = Arc::new(State {
            published: Mutex::default(),
            fetches: AtomicUsize::new(0),
            open: watch::Sender::new(true),
        });
        let app = axum::Router::new().route(
            "/.well-known/openid-configuration",
            get(|state: axum::extract::State<Arc<State>>, headers: HeaderMap| async move {
                let own = format!("http://{}", headers[header::HOST].to_str().unwrap());
                let issuer = state.published.lock().issuer.clone().unwrap_or_else(|| own.clone());
                json!({"issuer": issuer, "jwks_uri": format!("{own}/jwks")}).to_string()
            }),
        );
        let app = app.route(
            "/jwks",
            get(|state: axum::extract::State<Arc<State>>| async move {
                state.fetches.fetch_add(1, Ordering::SeqCst);
                state.open.subscribe().wait_for(|open| *open).await.unwrap();
                let published = state.published.lock();
                if published.down {
                    return StatusCode::INTERNAL_SERVER_ERROR.into_response();
                }
                let mut response = json!({"keys": published.keys}).to_string().into_response();
                if let Some(value) = published.cache_control {
                    response.headers_mut().insert(header::CACHE_CONTROL, value.parse().unwrap());
                }
                response
            }),
        );
        let running = adopt(app.with_state(state.clone())).await;
        let provider = Self { url: running.base.clone(), state, _running: running };
        provider.publish(minters);
        provider
    }

    /// Publishes these keys instead.
    pub(crate) fn publish(&self, minters: &[&Minter]) {
        self.state.published.lock().keys = minters.iter().map(|minter| minter.jwk()).collect();
    }

    /// Publishes this instead, whatever it is.
    pub(crate) fn publish_jwks(&self, keys: Vec<Value>) {
        self.state.published.lock().keys = keys;
    }

    /// Claims to be another issuer.
    pub(crate) fn pretend(&self, issuer: &str) {
        self.state.published.lock().issuer = Some(issuer.to_owned());
    }

    /// Says how long keys are good for.
    pub(crate) fn cache_control(&self, value: &'static str) {
        self.state.published.lock().cache_control = Some(value);
    }

    /// Stops giving keys, or begins to.
    pub(crate) fn down(&self, down: bool) {
        self.state.published.lock().down = down;
    }

    /// Lets everyone wait for an answer, or answers.
    pub(crate) fn hold(&self, hold: bool) {
        self.state.open.send_replace(!hold);
    }

    /// How often the keys were asked for.
    pub(crate) fn fetches(&self) -> usize {
        self.state.fetches.load(Ordering::SeqCst)
    }
}
