//! Keys that sign.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaEncoding, RsaKeyPair,
};
use zeroize::Zeroizing;

use crate::jwk::{KeyMaterial, Padding};
use crate::{Algorithm, VerifyingKey};

/// A key that signs, with the key that verifies its signatures.
pub(crate) struct SigningKey {
    pair: Pair,
    verifying: VerifyingKey,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Secret(Box<hmac::Key>),
}

/// Generates a key: PKCS #8, or the bytes of a secret. Returns nothing if the system provides no random bytes.
pub(crate) fn generate(algorithm: Algorithm) -> Option<Zeroizing<Vec<u8>>> {
    let bytes = match algorithm {
        Algorithm::Es256 => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok()?;
            pair.to_pkcs8v1().ok()?.as_ref().to_vec()
        }
        Algorithm::EdDsa => Ed25519KeyPair::generate().ok()?.to_pkcs8v1().ok()?.as_ref().to_vec(),
        Algorithm::Rs256 | Algorithm::Ps256 => {
            RsaKeyPair::generate(KeySize::Rsa3072).ok()?.as_der().ok()?.as_ref().to_vec()
        }
        Algorithm::Hs256 => {
            let mut secret = vec![0; 32];
            rand::fill(&mut secret).ok()?;
            secret
        }
    };
    Some(Zeroizing::new(bytes))
}

impl SigningKey {
    /// Parses what [`generate`] returned; nothing if it is not a key of this algorithm.
    pub(crate) fn read(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        let (pair, material) = match algorithm {
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes).ok()?;
                let (x, rest) = pair.public_key().as_ref().strip_prefix(&[4])?.split_first_chunk()?;
                let material = KeyMaterial::P256 { x: *x, y: rest.try_into().ok()? };
                (Pair::P256(pair), material)
            }
            Algorithm::EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8(bytes).ok()?;
                let material = KeyMaterial::Ed25519 { x: pair.public_key().as_ref().try_into().ok()? };
                (Pair::Ed25519(pair), material)
            }
            Algorithm::Rs256 | Algorithm::Ps256 => {
                let (encoding, padding): (&'static dyn RsaEncoding, _) = if algorithm == Algorithm::Ps256 {
                    (&RSA_PSS_SHA256, Padding::Pss)
                } else {
                    (&RSA_PKCS1_SHA256, Padding::Pkcs1)
                };
                let pair = RsaKeyPair::from_pkcs8(bytes).ok()?;
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                (Pair::Rsa(pair, encoding), KeyMaterial::Rsa { n, e, padding })
            }
            Algorithm::Hs256 if bytes.len() >= 32 => {
                let material = KeyMaterial::Secret { k: Zeroizing::new(bytes.to_vec()) };
                (Pair::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))), material)
            }
            Algorithm::Hs256 => return None,
        };
        Some(Self { pair, verifying: VerifyingKey::new(material) })
    }

    /// The same key with an id of the owner's choice.
    pub(crate) fn named(self, kid: &str) -> Self {
        Self { verifying: self.verifying.named(kid), ..self }
    }

    pub(crate) fn verifying(&self) -> &VerifyingKey {
        &self.verifying
    }

    /// Signs a message. Returns nothing if the system provides no random bytes.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(pair) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Some(pair.try_sign(message).ok()?.as_ref().to_vec()),
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Pair::Secret(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
        }
    }
}
