//! The flags about connections: how they are encrypted, how much they may carry, where the bindings answer.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use attache::server::{AllowedHost, AllowedOrigin, Cors, Paths};
use clap::Args;

use crate::command::Failure;
use crate::config::{Callers, ClientCertificates, HttpPath, Network, Size, Time};

/// Encrypted connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// The file of the server's certificate and those above it, as PEM
    #[arg(long, value_name = "PATH")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The file of its private key, as PEM
    #[arg(long, value_name = "PATH")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The file of the authorities that vouch for the certificates of clients, as PEM
    #[arg(long, value_name = "PATH")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Whether clients show certificates
    #[arg(long, value_enum, value_name = "WHETHER", default_value = "off")]
    pub(crate) tls_client_certificates: ClientCertificates,
}

impl TlsArgs {
    pub(crate) fn is_asked_for(&self) -> bool {
        self.tls_certificate.is_some()
    }

    /// Finds out whether the settings belong together and their files can be read.
    pub(super) fn check(&self, callers: Option<&Callers>) -> Result<(), Failure> {
        let asked = self.tls_client_certificates != ClientCertificates::Off;
        if callers.is_some_and(|callers| !callers.mtls.is_empty()) && !asked {
            return Err(Failure::usage("`auth.mtls` knows callers by certificates, and clients show none")
                .hint("set `tls.client-certificates` to `optional` or `required`"));
        }
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                readable(certificate, "tls.certificate")?;
                readable(key, "tls.key")?;
            }
            (None, None) => {}
            (Some(_), None) => {
                return Err(Failure::usage("`tls.certificate` is set and `tls.key` is not")
                    .hint("name the file of the private key with `tls.key` or `--tls-key`"));
            }
            (None, Some(_)) => {
                return Err(Failure::usage("`tls.key` is set and `tls.certificate` is not")
                    .hint("name the file of the certificate with `tls.certificate` or `--tls-certificate`"));
            }
        }
        match (&self.tls_client_ca, self.tls_client_certificates) {
            (Some(_), _) if !self.is_asked_for() => Err(Failure::usage(
                "`tls.client-ca` is about the certificates of clients, and the server has none itself",
            )
            .hint("set `tls.certificate` and `tls.key` too")),
            (Some(ca), ClientCertificates::Optional | ClientCertificates::Required) => {
                readable(ca, "tls.client-ca")
            }
            (Some(_), ClientCertificates::Off) => {
                Err(Failure::usage("`tls.client-ca` is set and `tls.client-certificates` is `off`")
                    .hint("set `tls.client-certificates` to `optional` or `required`"))
            }
            (None, ClientCertificates::Optional | ClientCertificates::Required) => {
                Err(Failure::usage("nobody vouches for the certificates of clients")
                    .hint("name the file of the authorities with `tls.client-ca` or `--tls-client-ca`"))
            }
            (None, ClientCertificates::Off) => Ok(()),
        }
    }
}

fn readable(path: &Path, key: &str) -> Result<(), Failure> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Failure::usage(format!("`{}`, which `{key}` names, cannot be read: {error}", path.display())))
        }
    }
}

/// Which names the server answers to, and which web pages may call it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Web pages")]
pub(crate) struct PageArgs {
    /// A host name that the server answers to beside its own, where callers are not authenticated; may be repeated, and `*` is every name
    #[arg(long, value_name = "HOST")]
    pub(crate) allowed_host: Vec<AllowedHost>,

    /// An origin whose pages may call the server, such as `https://app.example.com`; may be repeated, and `*` is every origin, without cookies
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<AllowedOrigin>,
}

impl PageArgs {
    pub(super) fn cors(&self) -> Cors {
        Cors { origins: self.cors_origin.clone() }
    }

    /// Refuses to let every web page in where callers are not authenticated, unless that is what is wanted.
    pub(super) fn check(&self, insecure: bool) -> Result<(), Failure> {
        let hosts = self.allowed_host.iter().any(AllowedHost::is_any);
        let origins = self.cors_origin.iter().any(AllowedOrigin::is_any);
        let (setting, name) = match (hosts, origins) {
            _ if insecure => return Ok(()),
            (true, _) => ("allowed-hosts", "host names"),
            (_, true) => ("cors.origins", "origins"),
            (false, false) => return Ok(()),
        };
        Err(Failure::usage(format!(
            "with `*` in `{setting}` every web page could call the server, and callers are not authenticated"
        ))
        .hint(format!("list {name}, list who may call below `auth`, or let everyone in with `--insecure`")))
    }
}

/// How much callers may ask for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// How many requests a caller may make in a second
    #[arg(long, value_name = "COUNT", default_value = "500")]
    pub(crate) limit_requests_per_second: NonZeroU32,

    /// How many requests a caller may make at once after a pause; twice as many as in a second, if this is not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit_burst: Option<NonZeroU32>,

    /// How many requests in a second may come from one address
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub(crate) limit_requests_per_second_per_address: NonZeroU32,

    /// How many requests may come at once from one address after a pause; twice as many as in a second, if this is not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit_burst_per_address: Option<NonZeroU32>,

    /// How many requests of one caller are worked on at once
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) limit_requests_per_caller: NonZeroU32,

    /// How many streams one caller may have open
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) limit_streams_per_caller: NonZeroU32,

    /// How many turns of one caller run at once
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) limit_turns_per_caller: NonZeroU32,

    /// How long a request may wait while its caller is at a limit
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) limit_queue_timeout: Time,

    /// The largest body
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    pub(crate) limit_body: Size,

    /// The largest set of request headers
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) limit_headers: Size,

    /// How deep JSON may nest
    #[arg(long, value_name = "COUNT", default_value = "100")]
    pub(crate) limit_depth: NonZeroU32,

    /// How many parts a message may have
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub(crate) limit_parts: NonZeroU32,

    /// How many webhooks a task may have
    #[arg(long, value_name = "COUNT", default_value = "32")]
    pub(crate) limit_push_configs_per_task: NonZeroU32,

    /// How many requests are worked on at once; more are refused, but health checks never are
    #[arg(long, value_name = "COUNT", default_value = "10000")]
    pub(crate) limit_requests: NonZeroU32,

    /// How many connections may be open at once; for one more, the one that has waited longest for its client is closed
    ///
    /// The limit on open files (`ulimit -n`) allows fewer, if need be. It is raised as far as possible at start.
    #[arg(long, value_name = "COUNT", default_value = "20000")]
    pub(crate) limit_connections: NonZeroU32,

    /// How many connections may come from one address; more are closed at once
    #[arg(long, value_name = "COUNT", default_value = "1024")]
    pub(crate) limit_connections_per_address: NonZeroU32,

    /// How many requests may be open at once on one connection of HTTP/2, at most half of `--limit-requests`
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) limit_streams_per_connection: NonZeroU32,

    /// How long a client may take to send the headers of a request, and a connection may stay idle
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) limit_header_timeout: Time,

    /// How long a client may take to send a body
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) limit_body_timeout: Time,

    /// How long a client may take to send anything after it has connected
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) limit_first_byte_timeout: Time,

    /// A proxy whose word on where a request comes from (`X-Forwarded-For`) is taken, or a network of them; may be repeated
    #[arg(long, value_name = "NETWORK")]
    pub(crate) limit_trusted_proxy: Vec<Network>,

    /// Limit those on this machine too who do not say who they are, and connections from it
    ///
    /// A proxy on this machine that is not named with `--limit-trusted-proxy` is then limited for everyone behind it.
    #[arg(long)]
    pub(crate) limit_loopback: bool,
}

/// Where the bindings answer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Paths")]
pub(crate) struct PathArgs {
    /// A path of the JSON-RPC binding; may be repeated, and the first one is advertised
    #[arg(long, value_name = "PATH", default_values = ["/a2a", "/", "/v1/rpc"])]
    path_jsonrpc: Vec<HttpPath>,

    /// A further path of the JSON-RPC binding, for clients of protocol 0.1; may be repeated
    #[arg(long, value_name = "PATH", default_values = ["/a2a/rpc"])]
    path_oldest: Vec<HttpPath>,

    /// What the paths of the HTTP+JSON binding begin with
    #[arg(long, value_name = "PATH", default_value = "/v1")]
    path_http_json: HttpPath,

    /// Offer no gRPC
    #[arg(long)]
    no_grpc: bool,
}

impl PathArgs {
    /// Finds out whether there is something to advertise.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.path_jsonrpc.is_empty() {
            true => Err(Failure::usage("`paths.jsonrpc` is empty, and the card has to name a path")
                .hint("leave it out for `/a2a`")),
            false => Ok(()),
        }
    }

    pub(super) fn paths(&self) -> Paths {
        let all = |paths: &[HttpPath]| paths.iter().map(|path| path.0.clone()).collect();
        Paths {
            jsonrpc: all(&self.path_jsonrpc),
            oldest: all(&self.path_oldest),
            // The root is what begins with nothing.
            http_json: Some(self.path_http_json.0.trim_end_matches('/').to_owned()),
            grpc: !self.no_grpc,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

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
        assert_eq!((paths.http_json, paths.grpc), (usual.http_json, usual.grpc));
    }
}
