//! Callers with a client certificate.

use std::collections::HashMap;

use attache_core::Identity;
use attache_protocol::{MutualTlsSecurityScheme, SecurityScheme};

use super::{Authenticator, Denied, Head, Verdict};
use crate::card::schemes::usual;
use crate::tls::ClientCertificate;

/// A name in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// The whole subject, as in RFC 4514: `CN=worker-7,OU=Agents,O=Example`.
    Subject(String),
    /// A common name in the subject. An authority that signs for several organizations may sign the same name for several callers.
    CommonName(String),
    /// An alternative name: a DNS name.
    Dns(String),
    /// An alternative name: a URI, such as `spiffe://example.com/worker`.
    Uri(String),
    /// An alternative name: a mail address.
    Email(String),
}

impl CertificateName {
    /// Folds the spellings of one name.
    fn folded(self) -> Self {
        match self {
            Self::Dns(name) => Self::Dns(name.to_ascii_lowercase()),
            Self::Subject(_) | Self::CommonName(_) | Self::Uri(_) | Self::Email(_) => self,
        }
    }

    /// The names in a certificate, the most specific first.
    fn all(certificate: &ClientCertificate) -> impl Iterator<Item = Self> {
        let of = |names: &[String], kind: fn(String) -> Self| -> Vec<Self> {
            names.iter().cloned().map(|name| kind(name).folded()).collect()
        };
        let subject = Self::Subject(certificate.subject.clone());
        let uris = of(&certificate.uris, Self::Uri);
        let dns = of(&certificate.dns, Self::Dns);
        let emails = of(&certificate.emails, Self::Email);
        let common = of(&certificate.common_names, Self::CommonName);
        [subject].into_iter().chain(uris).chain(dns).chain(emails).chain(common)
    }
}

/// Callers that are identified by a name in their certificate. TLS has verified the certificate before.
///
/// If several names of a certificate are registered, the order is: subject, URIs, DNS names, mail addresses, common names.
///
/// ```
/// use attache_core::Identity;
/// use attache_server::auth::{CertificateCallers, CertificateName};
///
/// let callers = CertificateCallers::new()
///     .caller(CertificateName::Uri("spiffe://example.com/billing".to_owned()), "billing")
///     .caller(CertificateName::CommonName("ops".to_owned()), Identity::named("ops").tier("internal"));
/// ```
///
/// It needs [`Tls::client_certificates`](crate::Tls::client_certificates), or an application that puts a [`Peer`](crate::Peer) into the
/// extensions of its requests.
#[derive(Debug, Clone, Default)]
pub struct CertificateCallers {
    known: HashMap<CertificateName, Identity>,
}

impl CertificateCallers {
    /// No callers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a caller whose certificate has this name.
    pub fn caller(mut self, name: CertificateName, who: impl Into<Identity>) -> Self {
        self.known.insert(name.folded(), who.into());
        self
    }
}

impl Authenticator for CertificateCallers {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let Some(certificate) = head.peer.and_then(|peer| peer.certificate.as_deref()) else {
            return Verdict::Denied(Denied::Missing);
        };
        match CertificateName::all(certificate).find_map(|name| self.known.get(&name)) {
            Some(identity) => Verdict::Known(identity.clone()),
            None => {
                let subject: String = certificate.subject.chars().take(200).collect();
                Verdict::Denied(Denied::Wrong(format!(
                    "the certificate of `{subject}` belongs to no known caller"
                )))
            }
        }
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        vec![(usual::MTLS.to_owned(), SecurityScheme::MutualTls(MutualTlsSecurityScheme::default()))]
    }

    fn challenges(&self) -> Vec<String> {
        vec!["MutualTLS realm=\"a2a\"".to_owned()]
    }
}
