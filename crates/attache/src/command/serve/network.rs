//! Checks of the settings about connections: TLS, web pages and paths.

use std::path::Path;

use attache::core::ARTIFACTS_PATH;
use attache::server::{AllowedHost, AllowedOrigin, Paths};

use super::UNIX_PREFIX;
use crate::command::Failure;
use crate::config::{Callers, ClientCertificates, CorsArgs, HostArgs, HttpPath, PathArgs, Problems, TlsArgs};

/// Checks the form of the addresses to listen on. Whether they can be bound is known only when the server starts.
pub(super) fn check_addresses(addresses: &[String], problems: &mut Problems<'_>) {
    for (index, listen) in addresses.iter().enumerate().filter(|(_, listen)| !is_address(listen)) {
        let failure =
            Failure::usage(format!("cannot listen on `{listen}`: expected `HOST:PORT` or `unix:PATH`"));
        problems.add(
            [&format!("listen[{index}]"), "listen"],
            failure
                .hint("try `127.0.0.1:3111`; the largest port is 65535, and an IPv6 address is in brackets"),
        );
    }
}

fn is_address(listen: &str) -> bool {
    if let Some(path) = listen.strip_prefix(UNIX_PREFIX) {
        return !path.is_empty();
    }
    let Some((host, port)) = listen.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    is_host && port.parse::<u16>().is_ok()
}

impl TlsArgs {
    pub(crate) fn is_asked_for(&self) -> bool {
        self.tls_certificate.is_some()
    }

    /// Checks that the settings fit together and that their files can be read.
    pub(super) fn check(&self, callers: Option<&Callers>, problems: &mut Problems<'_>) {
        let asked = self.tls_client_certificates != ClientCertificates::Off;
        if callers.is_some_and(|callers| !callers.mtls.is_empty()) && !asked {
            let failure =
                Failure::usage("callers are known by their certificates here, and clients show none");
            problems.add(
                ["auth.mtls", "tls.client-certificates"],
                failure.hint("set `tls.client-certificates` to `optional` or `required`"),
            );
        }
        problems.section("tls", |problems| {
            self.check_own_certificate(problems);
            self.check_client_certificates(problems);
        });
    }

    fn check_own_certificate(&self, problems: &mut Problems<'_>) {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                problems.take(["certificate"], readable(certificate));
                problems.take(["key"], readable(key));
            }
            (None, None) => {}
            (Some(_), None) => problems.add(
                ["certificate", "key"],
                Failure::usage("there is no key for the certificate: `tls.key` is not set")
                    .hint("name the file of the private key with `tls.key` or `--tls-key`"),
            ),
            (None, Some(_)) => problems.add(
                ["key", "certificate"],
                Failure::usage("there is no certificate for the key: `tls.certificate` is not set")
                    .hint("name the file of the certificate with `tls.certificate` or `--tls-certificate`"),
            ),
        }
    }

    fn check_client_certificates(&self, problems: &mut Problems<'_>) {
        match (&self.tls_client_ca, self.tls_client_certificates) {
            (Some(_), _) if !self.is_asked_for() => problems.add(
                ["client-ca", "certificate", "key"],
                Failure::usage("this is about the certificates of clients, and the server has none itself")
                    .hint("set `tls.certificate` and `tls.key` too"),
            ),
            (Some(ca), ClientCertificates::Optional | ClientCertificates::Required) => {
                problems.take(["client-ca"], readable(ca));
            }
            (Some(_), ClientCertificates::Off) => problems.add(
                ["client-ca", "client-certificates"],
                Failure::usage("this has no effect: `tls.client-certificates` is `off`")
                    .hint("set `tls.client-certificates` to `optional` or `required`"),
            ),
            (None, ClientCertificates::Optional | ClientCertificates::Required) => problems.add(
                ["client-certificates", "client-ca"],
                Failure::usage("there is no authority for the certificates of clients")
                    .hint("name the file of the authorities with `tls.client-ca` or `--tls-client-ca`"),
            ),
            (None, ClientCertificates::Off) => {}
        }
    }
}

fn readable(path: &Path) -> Result<(), Failure> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::usage(format!("`{}` cannot be read: {error}", path.display()))),
    }
}

/// Refuses to serve every web page without authentication, unless `--insecure` is given.
pub(super) fn check_pages(hosts: &HostArgs, cors: &CorsArgs, insecure: bool, problems: &mut Problems<'_>) {
    let any_host = hosts.allowed_host.iter().any(AllowedHost::is_any);
    let any_origin = cors.cors_origin.iter().any(AllowedOrigin::is_any);
    let wide = [(any_host, "allowed-hosts", "host names"), (any_origin, "cors.origins", "origins")];
    for (_, setting, names) in wide.into_iter().filter(|(any, ..)| *any && !insecure) {
        let failure = Failure::usage(
            "with `*` here every web page could call the server, and callers are not authenticated",
        );
        problems.add(
            [setting, "insecure"],
            failure.hint(format!(
                "list {names}, list who may call below `auth`, or let everyone in with `--insecure`"
            )),
        );
    }
}

impl PathArgs {
    /// Checks that the card has a path to advertise, and that HTTP+JSON does not answer where artifacts are.
    pub(super) fn check(&self, stores_artifacts: bool, problems: &mut Problems<'_>) {
        if self.path_jsonrpc.is_empty() {
            let failure = Failure::usage("the list is empty, and the card has to name a path");
            problems.add(["paths.jsonrpc"], failure.hint("leave it out for `/a2a`"));
        }
        let prefix = self.path_http_json.0.trim_end_matches('/');
        let below = prefix.strip_prefix(ARTIFACTS_PATH);
        if stores_artifacts && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            let failure =
                Failure::usage(format!("the content of artifacts is below `{ARTIFACTS_PATH}` already"));
            problems.add(
                ["paths.http-json", "artifacts.stored"],
                failure.hint("choose another path, or store no artifacts with `--no-artifacts`"),
            );
        }
    }

    pub(super) fn paths(&self) -> Paths {
        let all = |paths: &[HttpPath]| paths.iter().map(|path| path.0.clone()).collect();
        Paths::default().with(|paths| {
            paths.jsonrpc = all(&self.path_jsonrpc);
            paths.oldest = all(&self.path_oldest);
            // The root is an empty prefix.
            paths.http_json = Some(self.path_http_json.0.trim_end_matches('/').to_owned());
            (paths.grpc, paths.envelope) = (!self.no_grpc, !self.no_grpc);
            paths.websocket = Some(self.path_websocket.0.clone());
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::LimitArgs;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        paths: PathArgs,
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn the_usual_limits_are_those_of_the_library() {
        let mut options = attache::server::ServerOptions::default();
        crate::config::limits(&Alone::parse_from(["attache"]).limits, &mut options);
        assert_eq!(format!("{options:?}"), format!("{:?}", attache::server::ServerOptions::default()));
        let (mut service, usual) = (attache::core::Options::default(), attache::core::Options::default());
        crate::config::service_limits(&Alone::parse_from(["attache"]).limits, &mut service);
        assert_eq!((service.max_parts, service.max_push_configs), (usual.max_parts, usual.max_push_configs));
    }

    #[test]
    fn the_usual_paths_are_those_of_the_library() {
        let (paths, usual) = (Alone::parse_from(["attache"]).paths.paths(), Paths::default());
        assert_eq!(paths.answered(), usual.answered());
        assert_eq!(
            (paths.http_json, paths.grpc, paths.envelope),
            (usual.http_json, usual.grpc, usual.envelope)
        );
    }
}
