//! Turns settings into the options of the server.

use std::num::NonZeroUsize;
use std::sync::Arc;

use attache::core::{Identity, Options};
use attache::server::auth::{
    AllOf, AnyOf, Authenticator, CertificateCallers, CertificateName, JwtCallers, JwtIssuer, KnownCallers,
};
use attache::server::{Algorithm, Limits, ServerOptions, Tls};

use super::auth::{Certificate, CredentialKind, Jwt, JwtAlgorithm, SecretCaller, StringList};
use super::units::{Count, Size};
use super::{Callers, ClientCertificates, LimitArgs, Require, TlsArgs};
use crate::command::Failure;

/// The authenticator for these callers.
pub(crate) fn authenticator(callers: &Callers) -> Result<Arc<dyn Authenticator>, Failure> {
    let Callers { require, known, jwt, mtls } = callers;
    let mut kinds: Vec<Arc<dyn Authenticator>> = Vec::new();
    match require {
        Require::Any if !known.is_empty() => kinds.push(Arc::new(by_secret(known))),
        Require::Any => {}
        Require::All => {
            let alone = known.chunk_by(|one, next| one.kind.list() == next.kind.list());
            kinds.extend(alone.map(|known| Arc::new(by_secret(known)) as Arc<dyn Authenticator>));
        }
    }
    if !jwt.is_empty() {
        let callers = JwtCallers::new(jwt.iter().map(issuer))
            .map_err(|error| Failure::usage(format!("`auth.jwt`: {error}")))?;
        kinds.push(Arc::new(callers));
    }
    if !mtls.is_empty() {
        kinds.push(Arc::new(by_certificate(mtls)));
    }
    let mut kinds = kinds.into_iter();
    // An empty list of callers was rejected when the file was read.
    let first = kinds.next().unwrap_or_else(|| Arc::new(KnownCallers::new()));
    Ok(match require {
        Require::Any => Arc::new(kinds.fold(AnyOf::new(first), AnyOf::or)),
        Require::All => Arc::new(kinds.fold(AllOf::new(first), AllOf::and)),
    })
}

fn by_secret(known: &[SecretCaller]) -> KnownCallers {
    known.iter().fold(KnownCallers::new(), |callers, SecretCaller { identity, kind, secret }| match kind {
        CredentialKind::Bearer => callers.bearer(identity.clone(), secret.reveal()),
        CredentialKind::Basic => callers.basic(identity.clone(), secret.reveal()),
        CredentialKind::ApiKey(place) => callers.api_key(identity.clone(), place.clone(), secret.reveal()),
    })
}

fn issuer(jwt: &Jwt) -> JwtIssuer {
    let Jwt { issuer, name, audience, jwks, algorithms, principal_claim, scopes_claim, tier_claim, tiers } =
        jwt;
    let StringList(audiences) = audience;
    let mut issuer = JwtIssuer::new(issuer.0.to_string());
    issuer = audiences.iter().fold(issuer, |issuer, audience| issuer.audience(audience));
    issuer = name.iter().fold(issuer, |issuer, name| issuer.name(name));
    issuer = jwks.iter().fold(issuer, |issuer, url| issuer.jwks_url(url.0.to_string()));
    issuer = principal_claim.iter().fold(issuer, |issuer, claim| issuer.principal_claim(claim));
    issuer = scopes_claim.iter().fold(issuer, |issuer, claim| issuer.scope_claim(claim));
    issuer = tier_claim.iter().fold(issuer, |issuer, claim| issuer.tier_claim(claim));
    issuer = tiers.iter().fold(issuer, |issuer, (value, tier)| issuer.tier(value, tier));
    match algorithms.is_empty() {
        true => issuer,
        false => issuer.algorithms(algorithms.iter().map(|algorithm| match algorithm {
            JwtAlgorithm::ES256 => Algorithm::Es256,
            JwtAlgorithm::EdDSA => Algorithm::EdDsa,
            JwtAlgorithm::PS256 => Algorithm::Ps256,
            JwtAlgorithm::RS256 => Algorithm::Rs256,
        })),
    }
}

fn by_certificate(callers: &[Certificate]) -> CertificateCallers {
    callers.iter().fold(CertificateCallers::new(), |known, caller| {
        let Certificate { name, subject, san, scopes, tier } = caller;
        let shown = subject.as_deref().map(subject_name).or_else(|| san.as_deref().map(alternative_name));
        let identity = Identity::named(name.as_str()).scopes(scopes);
        let identity = tier.iter().fold(identity, |identity, tier| identity.tier(tier));
        shown.into_iter().fold(known, |known, shown| known.caller(shown, identity.clone()))
    })
}

/// A full subject has attributes, such as `CN=alice`. A name without `=` is the common name.
fn subject_name(subject: &str) -> CertificateName {
    let subject = subject.to_owned();
    if subject.contains('=') {
        CertificateName::Subject(subject)
    } else {
        CertificateName::CommonName(subject)
    }
}

fn alternative_name(name: &str) -> CertificateName {
    let text = name.to_owned();
    match name {
        name if name.contains("://") || name.starts_with("urn:") => CertificateName::Uri(text),
        name if name.contains('@') => CertificateName::Email(text),
        _ => CertificateName::Dns(text),
    }
}

/// Sets the limits on connections and callers.
pub(crate) fn limits(limits: &LimitArgs, options: &mut ServerOptions) {
    let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    options.max_body = bytes(limits.limit_body);
    options.max_headers = bytes(limits.limit_headers);
    options.max_depth = count(limits.limit_depth);
    options.max_requests = count(limits.limit_requests);
    options.max_connections = count(limits.limit_connections);
    options.max_streams_per_connection = count(limits.limit_streams_per_connection);
    options.header_timeout = limits.limit_header_timeout.0;
    options.body_timeout = limits.limit_body_timeout.0;
    options.limits = caller_limits(limits);
}

/// The limits on callers.
pub(crate) fn caller_limits(limits: &LimitArgs) -> Limits {
    let burst = |burst: Option<Count>, rate: Count| {
        burst.map_or_else(|| rate.0.saturating_add(rate.0.get()), |Count(burst)| burst)
    };
    let at_once = |Count(limit): Count| NonZeroUsize::try_from(limit).ok();
    let (rate, address_rate) =
        (limits.limit_requests_per_second, limits.limit_requests_per_second_per_address);
    Limits::default().with(|all| {
        all.requests_per_second = Some(rate.0);
        all.burst = burst(limits.limit_burst, rate);
        all.requests_per_second_per_address = Some(address_rate.0);
        all.burst_per_address = burst(limits.limit_burst_per_address, address_rate);
        all.requests_per_caller = at_once(limits.limit_requests_per_caller);
        all.streams_per_caller = at_once(limits.limit_streams_per_caller);
        all.turns_per_caller = at_once(limits.limit_turns_per_caller);
        all.connections_per_address = at_once(limits.limit_connections_per_address);
        all.queue_timeout = limits.limit_queue_timeout.0;
        all.first_byte_timeout = limits.limit_first_byte_timeout.0;
        all.trusted_proxies = limits.limit_trusted_proxy.iter().map(|network| network.0).collect();
        all.limit_loopback = limits.limit_loopback;
    })
}

/// Sets the limits on messages and tasks.
pub(crate) fn service_limits(limits: &LimitArgs, options: &mut Options) {
    options.max_parts = count(limits.limit_parts);
    options.max_push_configs = count(limits.limit_push_configs_per_task);
}

fn count(Count(count): Count) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

/// TLS, if it is configured.
pub(crate) fn tls(tls: &TlsArgs) -> Option<Tls> {
    let files = tls.tls_certificate.as_ref().zip(tls.tls_key.as_ref());
    let server = files.map(|(certificate, key)| Tls::files(certificate, key))?;
    Some(match (&tls.tls_client_ca, tls.tls_client_certificates) {
        (Some(ca), ClientCertificates::Optional) => server.client_certificates(ca, false),
        (Some(ca), ClientCertificates::Required) => server.client_certificates(ca, true),
        (Some(_), ClientCertificates::Off) | (None, _) => server,
    })
}
