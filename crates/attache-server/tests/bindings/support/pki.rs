//! Certificates, made for the moment.

use std::path::PathBuf;

use attache_server::Tls;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use tempfile::TempDir;

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Certified {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server on this machine.
    pub(crate) fn server(&self, organization: &str) -> Certified {
        self.signed(ExtendedKeyUsagePurpose::ServerAuth, |params| {
            params.distinguished_name.push(DnType::OrganizationName, organization);
            params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
        })
    }

    /// A certificate for a client.
    pub(crate) fn client(&self, change: impl FnOnce(&mut CertificateParams)) -> Certified {
        self.signed(ExtendedKeyUsagePurpose::ClientAuth, change)
    }

    fn signed(
        &self,
        usage: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certified {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = vec![usage];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certified { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// A client that trusts this authority.
    pub(crate) fn trusting(&self) -> reqwest::ClientBuilder {
        let root = reqwest::Certificate::from_pem(self.pem().as_bytes()).unwrap();
        reqwest::Client::builder().no_proxy().tls_certs_only([root])
    }
}

impl Certified {
    pub(crate) fn identity(&self) -> reqwest::Identity {
        reqwest::Identity::from_pem(format!("{}{}", self.certificate, self.key).as_bytes()).unwrap()
    }
}

/// The files of a server.
pub(crate) struct Files {
    directory: TempDir,
}

impl Files {
    pub(crate) fn new(certified: &Certified) -> Self {
        let files = Self { directory: TempDir::new().unwrap() };
        files.replace(certified);
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn replace(&self, certified: &Certified) {
        self.write("server.crt", &certified.certificate);
        self.write("server.key", &certified.key);
    }

    pub(crate) fn tls(&self) -> Tls {
        Tls::files(self.path("server.crt"), self.path("server.key"))
    }
}
