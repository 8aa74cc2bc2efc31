//! `attache health`: whether the server of these settings responds, for containers and scripts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use attache_outbound::{causes, restricted_client};
use clap::Args;
use serde_json::json;

use super::serve::{Serve, UNIX_PREFIX};
use super::{Exit, Failure, Output, client};
use crate::config::Time;

/// The arguments of `attache health`.
#[derive(Debug, Args)]
pub(crate) struct Health {
    #[command(flatten)]
    output: Output,

    /// The URL of a server, instead of the one that these settings describe
    url: Option<String>,

    /// Ask whether the server accepts requests (`/ready`), and not only whether it runs (`/health`)
    #[arg(long)]
    ready: bool,

    /// How long to wait for the response
    #[arg(long, value_name = "TIME", default_value = "3s")]
    timeout: Time,

    #[command(flatten)]
    pub(super) serve: Serve,
}

/// Where the server listens.
struct Target {
    url: String,
    /// The Unix socket, if the server listens on one.
    socket: Option<String>,
}

impl Health {
    pub(super) fn run(self) -> Result<(), Failure> {
        client::block_on(self.check())
    }

    async fn check(self) -> Result<(), Failure> {
        let path = if self.ready { "/ready" } else { "/health" };
        let target = match &self.url {
            Some(url) => Target { url: url.trim_end_matches('/').to_owned(), socket: None },
            None => {
                let addresses = self.serve.addresses();
                let first = addresses.first().ok_or_else(|| {
                    Failure::usage(
                        "the server answers on standard input and output alone, where it cannot be asked",
                    )
                    .hint("name a URL with `--url`, or let it listen with `--listen` too")
                })?;
                target(first, self.serve.is_encrypted())?
            }
        };
        let status = get(&target, path, self.timeout.0, self.url.is_none()).await?;
        // A server that asks for credentials runs.
        let healthy = status.is_success() || (status == 401 && !self.ready);
        let word = match (healthy, self.ready) {
            (true, false) => "healthy",
            (true, true) => "ready",
            (false, false) => "unhealthy",
            (false, true) => "not ready",
        };
        if !healthy {
            return Err(Failure::new(format!("{word}: `{}{path}` responded with {status}", target.url)));
        }
        let value = || json!({"status": word, "url": target.url, "code": status.as_u16()});
        self.output.print(value, |out| writeln!(out, "{word}"))
    }
}

/// The address to connect to. A server that listens on all addresses is reached over the loopback address.
fn target(listen: &str, encrypted: bool) -> Result<Target, Failure> {
    if let Some(path) = listen.strip_prefix(UNIX_PREFIX) {
        return Ok(Target { url: "http://localhost".to_owned(), socket: Some(path.to_owned()) });
    }
    let addresses = listen.to_socket_addrs();
    let address = addresses.ok().and_then(|mut addresses| addresses.next());
    let address =
        address.ok_or_else(|| Failure::usage(format!("`listen` is `{listen}`, which is no address")))?;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    let scheme = if encrypted { "https" } else { "http" };
    Ok(Target { url: format!("{scheme}://{}", SocketAddr::new(ip, address.port())), socket: None })
}

/// Asks the server. `is_own` is true for the server of the settings, which is found by its address. Its certificate names the public
/// host and not this address, so it is not checked. The request has no secret.
async fn get(
    target: &Target,
    path: &str,
    timeout: Duration,
    is_own: bool,
) -> Result<reqwest::StatusCode, Failure> {
    let mut client = restricted_client().timeout(timeout).danger_accept_invalid_certs(is_own);
    if let Some(socket) = &target.socket {
        client = with_socket(client, socket)?;
    }
    let client = client.build().map_err(|error| Failure::new(format!("cannot make the request: {error}")))?;
    let url = format!("{}{path}", target.url);
    let response = client.get(&url).send().await.map_err(|error| {
        let problem = match error.is_timeout() {
            true => format!("`{url}` did not respond within {} s", timeout.as_secs_f64()),
            false => {
                let cause = causes(&error).last().map_or_else(|| error.to_string(), ToString::to_string);
                format!("`{url}` cannot be reached: {cause}")
            }
        };
        Failure::new(problem).exit(Exit::Unreachable)
    })?;
    Ok(response.status())
}

#[cfg(unix)]
fn with_socket(client: reqwest::ClientBuilder, path: &str) -> Result<reqwest::ClientBuilder, Failure> {
    Ok(client.unix_socket(path))
}

#[cfg(not(unix))]
fn with_socket(_: reqwest::ClientBuilder, path: &str) -> Result<reqwest::ClientBuilder, Failure> {
    Err(Failure::usage(format!("`{path}`: this system has no Unix sockets")))
}
