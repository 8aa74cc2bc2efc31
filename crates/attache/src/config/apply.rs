//! Turns settings into the options of the server.

use std::num::NonZeroUsize;
use std::sync::Arc;

use attache::core::{Identity, Options};
use attache::server::auth::{
    AllOf, AnyOf, Authenticator, CertificateCallers, CertificateName, JwtCallers, JwtIssuer, KnownCallers,
    UnixCallers,
};
use attache::server::{Algorithm, Limits, ServerOptions, Tls};

use super::auth::{Certificate, CredentialKind, Jwt, JwtAlgorithm, SecretCaller, StringList, UnixCaller};
use super::units::{Count, FromText, Size, Time};
use super::{Callers, ClientCertificates, LimitArgs, Require, TlsArgs};
use crate::command::Failure;

/// The authenticator for these callers.
pub(crate) fn authenticator(callers: &Callers) -> Result<Arc<dyn Authenticator>, Failure> {
    let Callers { require, known, jwt, mtls, unix } = callers;
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
    if !unix.is_empty() {
        kinds.push(Arc::new(by_user(unix)));
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

fn by_user(callers: &[UnixCaller]) -> UnixCallers {
    callers.iter().fold(UnixCallers::new(), |known, UnixCaller { name, uid, scopes, tier }| {
        let identity = Identity::named(name.as_str()).scopes(scopes);
        known.caller(*uid, tier.iter().fold(identity, |identity, tier| identity.tier(tier)))
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

impl super::settings::Limits {
    /// These limits on callers, and others for what is not set.
    pub(super) fn over(&self, mut base: Limits) -> Limits {
        let at_once = |limit: &Option<FromText<Count>>| {
            limit.as_ref().and_then(|FromText(Count(limit))| NonZeroUsize::try_from(*limit).ok())
        };
        if let Some(FromText(Count(rate))) = &self.requests_per_second {
            (base.requests_per_second, base.burst) = (Some(*rate), rate.saturating_add(rate.get()));
        }
        if let Some(FromText(Count(burst))) = &self.burst {
            base.burst = *burst;
        }
        if let Some(FromText(Count(rate))) = &self.requests_per_second_per_address {
            base.requests_per_second_per_address = Some(*rate);
            base.burst_per_address = rate.saturating_add(rate.get());
        }
        if let Some(FromText(Count(burst))) = &self.burst_per_address {
            base.burst_per_address = *burst;
        }
        base.requests_per_caller = at_once(&self.requests_per_caller).or(base.requests_per_caller);
        base.streams_per_caller = at_once(&self.streams_per_caller).or(base.streams_per_caller);
        base.turns_per_caller = at_once(&self.turns_per_caller).or(base.turns_per_caller);
        if let Some(FromText(Time(time))) = &self.queue_timeout {
            base.queue_timeout = *time;
        }
        base.limit_loopback = self.loopback.unwrap_or(base.limit_loopback);
        base
    }

    /// A key that only the server as a whole can have, if one is set.
    pub(super) fn of_server_only(&self) -> Option<&'static str> {
        let Self {
            requests_per_second: _,
            burst: _,
            requests_per_second_per_address: _,
            burst_per_address: _,
            requests_per_caller: _,
            streams_per_caller: _,
            turns_per_caller: _,
            queue_timeout: _,
            loopback: _,
            body,
            headers,
            depth,
            parts,
            push_configs_per_task,
            requests,
            connections,
            connections_per_address,
            streams_per_connection,
            header_timeout,
            body_timeout,
            first_byte_timeout,
            trusted_proxies,
        } = self;
        let given = [
            ("body", body.is_some()),
            ("headers", headers.is_some()),
            ("depth", depth.is_some()),
            ("parts", parts.is_some()),
            ("push-configs-per-task", push_configs_per_task.is_some()),
            ("requests", requests.is_some()),
            ("connections", connections.is_some()),
            ("connections-per-address", connections_per_address.is_some()),
            ("streams-per-connection", streams_per_connection.is_some()),
            ("header-timeout", header_timeout.is_some()),
            ("body-timeout", body_timeout.is_some()),
            ("first-byte-timeout", first_byte_timeout.is_some()),
            ("trusted-proxies", trusted_proxies.is_some()),
        ];
        given.into_iter().find_map(|(key, is_given)| is_given.then_some(key))
    }
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
