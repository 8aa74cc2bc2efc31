//! TLS: the client's certificate, and the roots that it trusts.

use std::fmt;

use reqwest::Certificate;

use crate::ClientError;

/// A client certificate with its key, for servers that request one.
#[derive(Clone)]
pub struct TlsIdentity(reqwest::Identity);

impl TlsIdentity {
    /// Parses PEM: the certificate, its intermediate certificates and the private key, in any order.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ClientError> {
        // The parser's message may repeat the input, so it is dropped.
        reqwest::Identity::from_pem(pem).map(Self).map_err(|_| {
            let text = "a client certificate must be PEM with a certificate and its private key";
            ClientError::Invalid(text.to_owned())
        })
    }

    pub(crate) fn to_reqwest(&self) -> reqwest::Identity {
        self.0.clone()
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(identity)")
    }
}

/// Root certificates that are trusted.
#[derive(Debug, Clone)]
pub struct RootCertificates {
    certificates: Vec<Certificate>,
    #[cfg(feature = "redis")]
    pem: Vec<u8>,
}

impl RootCertificates {
    /// Parses PEM with one or more certificates.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ClientError> {
        let read = Certificate::from_pem_bundle(pem).ok().filter(|read| !read.is_empty());
        let certificates = read.ok_or_else(|| {
            ClientError::Invalid("root certificates must be PEM with at least one certificate".to_owned())
        })?;
        Ok(Self {
            certificates,
            #[cfg(feature = "redis")]
            pem: pem.to_vec(),
        })
    }

    pub(crate) fn to_reqwest(&self) -> Vec<Certificate> {
        self.certificates.clone()
    }

    /// The certificates as they were given.
    #[cfg(feature = "redis")]
    pub(crate) fn pem(&self) -> &[u8] {
        &self.pem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_certificate_is_refused_before_any_request() {
        for pem in ["", "s3cret", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"] {
            let error = TlsIdentity::from_pem(pem.as_bytes()).unwrap_err();
            assert!(matches!(&error, ClientError::Invalid(text) if !text.contains("s3cret")), "{error}");
        }
        for pem in ["", "s3cret"] {
            assert!(matches!(RootCertificates::from_pem(pem.as_bytes()), Err(ClientError::Invalid(_))));
        }
    }
}
