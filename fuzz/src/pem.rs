//! PEM: keys that cards and tokens are checked with, and certificates.

use attache_client::{RootCertificates, TlsIdentity};
use attache_signing::{Algorithm, KeySet};

/// The shortest line that may be part of something secret.
const SECRET: usize = 24;

/// Read as public keys, as certificates of authorities, and as a certificate with its key.
pub fn pem(data: &[u8]) {
    match KeySet::from_pem(data) {
        Ok(keys) => {
            assert!(!keys.is_empty() && keys.iter().all(|key| key.algorithm() != Algorithm::Hs256));
            let again = KeySet::from_published(keys.to_json().to_string().as_bytes());
            let again = again.expect("keys that were read can be published");
            let names = |keys: &KeySet| -> Vec<_> {
                keys.iter().map(|key| (key.kid().to_owned(), key.algorithm())).collect()
            };
            assert_eq!(names(&again), names(&keys), "keys change when they are published");
        }
        Err(error) => silent(data, &error.to_string()),
    }
    if let Err(error) = RootCertificates::from_pem(data) {
        silent(data, &error.to_string());
    }
    if let Err(error) = TlsIdentity::from_pem(data) {
        silent(data, &error.to_string());
    }
}

/// What is wrong is said without repeating what may be a key.
fn silent(data: &[u8], said: &str) {
    let text = String::from_utf8_lossy(data);
    let repeated = text.split_whitespace().find(|word| word.len() >= SECRET && said.contains(word));
    assert_eq!(repeated, None, "{said}");
}
