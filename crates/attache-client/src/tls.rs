//! Who a client is, and whom it believes, where connections are encrypted.

use std::fmt;

use reqwest::Certificate;

use crate::ClientError;

/// A certificate with its key, which servers that ask for one are shown.
#[derive(Clone)]
pub struct Identity(reqwest::Identity);

impl Identity {
    /// Reads PEM: the certificate, those that lead to its root, and the private key, in any order.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ClientError> {
        // What the reader says may repeat what it read.
        reqwest::Identity::from_pem(pem).map(Self).map_err(|_| {
            let text = "a client certificate must be PEM with a certificate and its private key";
            ClientError::Invalid(text.to_owned())
        })
    }

    pub(crate) fn to_reqwest(&self) -> reqwest::Identity {
        self.0.clone()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(identity)")
    }
}

/// Certificates that those of servers may lead to.
#[derive(Debug, Clone)]
pub struct RootCertificates(Vec<Certificate>);

impl RootCertificates {
    /// Reads PEM with one certificate or more.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ClientError> {
        let read = Certificate::from_pem_bundle(pem).ok().filter(|read| !read.is_empty());
        read.map(Self).ok_or_else(|| {
            ClientError::Invalid("root certificates must be PEM with at least one certificate".to_owned())
        })
    }

    pub(crate) fn to_reqwest(&self) -> Vec<Certificate> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_certificate_is_refused_before_any_request() {
        for pem in ["", "s3cret", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"] {
            let error = Identity::from_pem(pem.as_bytes()).unwrap_err();
            assert!(matches!(&error, ClientError::Invalid(text) if !text.contains("s3cret")), "{error}");
        }
        for pem in ["", "s3cret"] {
            assert!(matches!(RootCertificates::from_pem(pem.as_bytes()), Err(ClientError::Invalid(_))));
        }
    }
}
