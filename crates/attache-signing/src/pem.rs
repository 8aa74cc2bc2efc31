//! Public keys as PEM, as other programs write them (`SubjectPublicKeyInfo`).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::JwkError;

/// The DER prefix of an Ed25519 key of 32 bytes (RFC 8410).
const ED25519: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The DER prefix of an uncompressed P-256 point (RFC 5480).
const P256: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// The DER encoding of the RSA algorithm identifier (RFC 3279).
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

/// The DER tags that RSA keys use.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// Converts the PEM keys in a text to JSON Web Keys. The caller checks whether they are usable.
pub(crate) fn keys(pem: &[u8]) -> Result<Vec<Value>, JwkError> {
    let text = std::str::from_utf8(pem).map_err(|_| JwkError::Pem)?;
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once("-----BEGIN ") {
        let (label, begun) = begun.split_once("-----").ok_or(JwkError::Pem)?;
        let (body, after) = begun.split_once(&format!("-----END {label}-----")).ok_or(JwkError::Pem)?;
        rest = after;
        if label.ends_with("PRIVATE KEY") {
            return Err(JwkError::Private("in PEM".to_owned()));
        }
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).ok().filter(|_| label == "PUBLIC KEY").ok_or(JwkError::Pem)?;
        keys.push(jwk(&der).ok_or(JwkError::Pem)?);
    }
    if keys.is_empty() { Err(JwkError::Pem) } else { Ok(keys) }
}

fn jwk(der: &[u8]) -> Option<Value> {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    if let Some(x) = der.strip_prefix(ED25519) {
        return Some(json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(x) }));
    }
    if let Some(point) = der.strip_prefix(P256) {
        let (x, y) = point.split_at_checked(32)?;
        return Some(json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) }));
    }
    let (info, _) = value(SEQUENCE, der)?;
    let (algorithm, info) = value(SEQUENCE, info)?;
    let (bits, _) = value(BIT_STRING, info).filter(|_| algorithm == RSA)?;
    let (pair, _) = value(SEQUENCE, bits.strip_prefix(&[0])?)?;
    let (n, pair) = value(INTEGER, pair)?;
    let (e, _) = value(INTEGER, pair)?;
    Some(json!({ "kty": "RSA", "n": encode(n), "e": encode(e) }))
}

/// Splits off the first DER value if it has this tag. Returns its content and the remaining bytes.
fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        let (bytes, rest) =
            rest.split_at_checked(usize::from(length & 0x7f)).filter(|(it, _)| it.len() <= 4)?;
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, KeySet, VerifyingKey};

    // Created with `openssl pkey -pubout`.
    const ED25519: &str = "MCowBQYDK2VwAyEAv+Ma65Tka2n+B1TwCvZEf9vuICrkYRNUGm5GFJKqY6E=";
    const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfjvURIW2cyCL2KhpppCVB2nb9d747HJ9grcrzr7dcJ+drgT6piFdMGY7Z+/QHn2rmVrinXauyIf0w1VhDtkm6Q==";
    const RSA: &str = "\
        MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwBuA/MzIgPEmCKTvkdmn/dzirLoq/XZD5hvnj17RAjiDRi\
        5a3y0VGC9eERSqqk6pCHjII7dr/JId2QcFavthxGLw58yFmkPJtndI8UFAjjYXyRtnTYMzYgH7G08kt/yIq2FI/j8p\
        HiQqAwE5eYlSQaLI0AqatvZO6b2v14apRcY+BnrNHJPnDDIdS34BqoxaVvgzpSOamyF8b2GXEvYx/FBhY5ZP80kX17\
        zpM/zdvAI/QbD0FNQ1+t4GlCP1YheBuQrtcTM3a9oM3Du+4CYxiqq5ktxIpVKjHdHCwcv6Q+lGsWR1eywaDdU8jYh+\
        FvW+3RmPs7XTN8fXT3fe9/yAeQIDAQAB";

    fn pem(label: &str, body: &str) -> String {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    #[test]
    fn keys_of_every_kind_are_read() {
        let text = [ED25519, P256, RSA].map(|body| pem("PUBLIC KEY", body)).concat();
        let keys = KeySet::from_pem(text.as_bytes()).unwrap();
        let kinds: Vec<_> = keys.iter().map(VerifyingKey::algorithm).collect();
        assert_eq!(kinds, [Algorithm::EdDsa, Algorithm::Es256, Algorithm::Rs256]);
    }

    #[test]
    fn a_text_without_public_keys_is_refused_with_the_reason() {
        for (text, reason) in [
            (String::new(), "expected public keys as PEM"),
            (pem("PUBLIC KEY", "AAAA"), "expected public keys as PEM"),
            (pem("PUBLIC KEY", "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A"), "expected public keys as PEM"),
            (pem("CERTIFICATE", ED25519), "expected public keys as PEM"),
            (pem("PUBLIC KEY", "MCowBQYDK2VwAyEAv+Ma65Tka2n+B1Tw"), "its `x` is not 32 bytes"),
            (pem("PRIVATE KEY", "c2VjcmV0"), "is a private key"),
            (pem("EC PRIVATE KEY", "c2VjcmV0"), "is a private key"),
        ] {
            let error = KeySet::from_pem(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("c2VjcmV0"), "{text}: {error}");
        }
    }
}
