//! The certificate of a client, and its names.

use std::fmt::Write;

use x509_parser::der_parser::asn1_rs::{Oid, ToDer};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// A client certificate. Its authority and validity period were verified.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The subject as in RFC 4514: `CN=worker-7,OU=Agents,O=Example`. This is the output of
    /// `openssl x509 -noout -subject -nameopt RFC2253`.
    pub subject: String,
    /// The common names in the subject.
    pub common_names: Vec<String>,
    /// The alternative names that are DNS names.
    pub dns: Vec<String>,
    /// The alternative names that are URIs, for example SPIFFE ids.
    pub uris: Vec<String>,
    /// The alternative names that are mail addresses.
    pub emails: Vec<String>,
    /// The certificate itself.
    pub der: Vec<u8>,
}

impl ClientCertificate {
    /// Parses a certificate. It does not verify it.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let mut read = Self {
            subject: written(certificate.subject()),
            common_names: texts(certificate.subject()),
            dns: Vec::new(),
            uris: Vec::new(),
            emails: Vec::new(),
            der: der.to_vec(),
        };
        let alternatives = certificate.subject_alternative_name().ok()?;
        for name in alternatives.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => read.dns.push((*name).to_owned()),
                GeneralName::URI(uri) => read.uris.push((*uri).to_owned()),
                GeneralName::RFC822Name(email) => read.emails.push((*email).to_owned()),
                GeneralName::OtherName(..)
                | GeneralName::X400Address(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EDIPartyName(_)
                | GeneralName::IPAddress(_)
                | GeneralName::RegisteredID(_)
                | GeneralName::Invalid(..) => {}
            }
        }
        Some(read)
    }
}

/// Whether a certificate is in its validity period. `None` if it is not a certificate.
pub(super) fn is_current(der: &[u8]) -> Option<bool> {
    parse_x509_certificate(der).ok().map(|(_, certificate)| certificate.validity().is_valid())
}

fn texts(name: &X509Name<'_>) -> Vec<String> {
    name.iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
}

/// A name as in RFC 4514: in reverse order, with escapes.
fn written(name: &X509Name<'_>) -> String {
    let relative: Vec<_> = name.iter_rdn().collect();
    let parts = relative.iter().rev().map(|relative| {
        let values: Vec<_> = relative.iter().map(attribute).collect();
        values.join("+")
    });
    parts.collect::<Vec<_>>().join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    match (short_name(attribute.attr_type()), attribute.as_str()) {
        (Some(name), Ok(value)) => format!("{name}={}", escaped(value)),
        (name, _) => {
            // An attribute without a short name is written as its bytes.
            let kind = name.map_or_else(|| attribute.attr_type().to_id_string(), str::to_owned);
            let mut text = format!("{kind}=#");
            for byte in attribute.attr_value().to_der_vec().unwrap_or_default() {
                // Writing into a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            text
        }
    }
}

/// The short names of attribute types, from RFC 4514 section 3.
fn short_name(kind: &Oid<'_>) -> Option<&'static str> {
    Some(match kind.to_id_string().as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        _ => return None,
    })
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            '\0' => text.push_str("\\00"),
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            '#' if at == 0 => text.push_str("\\#"),
            character => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::read(signed.der()).unwrap()
    }

    #[test]
    fn the_subject_is_written_with_its_last_part_first_and_without_ambiguity() {
        let read = certificate(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
            params.distinguished_name.push(DnType::OrganizationalUnitName, " a+b ");
            params.distinguished_name.push(DnType::CommonName, "#7, CN=root");
        });
        assert_eq!(read.subject, "CN=\\#7\\, CN=root,OU=\\ a\\+b\\ ,O=Example\\, Inc.");
        assert_eq!(read.common_names, ["#7, CN=root"]);
    }

    #[test]
    fn alternative_names_are_kept_apart_by_kind() {
        let read = certificate(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("worker.example.com".try_into().unwrap()),
                SanType::URI("spiffe://example.com/worker".try_into().unwrap()),
                SanType::Rfc822Name("worker@example.com".try_into().unwrap()),
                SanType::IpAddress([127, 0, 0, 1].into()),
            ];
        });
        assert_eq!((read.subject.as_str(), read.common_names.len()), ("", 0));
        assert_eq!(read.dns, ["worker.example.com"]);
        assert_eq!(read.uris, ["spiffe://example.com/worker"]);
        assert_eq!(read.emails, ["worker@example.com"]);
        assert_eq!(ClientCertificate::read(b"\x30\x03abc"), None);
    }
}
