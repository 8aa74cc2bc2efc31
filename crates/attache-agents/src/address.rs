//! Addresses as they may be logged, stored and shown.

use url::Url;

/// The longest text that is shown of an address that is not a URL, in characters.
const MAX_INVALID: usize = 200;

/// An address without credentials, query and fragment. Of a command only the program is left: its arguments may be secrets.
pub(crate) fn redact(address: &str) -> String {
    if let Some(command) = address.strip_prefix("stdio:") {
        return format!("stdio:{}", command.split_whitespace().next().unwrap_or_default());
    }
    if address.starts_with("unix:") {
        return address.to_owned();
    }
    match Url::parse(address) {
        Ok(url) => redact_url(&url),
        Err(_) => address.split(['?', '#']).next().unwrap_or_default().chars().take(MAX_INVALID).collect(),
    }
}

/// The same for a URL that has been parsed.
pub(crate) fn redact_url(url: &Url) -> String {
    let origin = url.origin();
    // URLs of Redis and of the gRPC envelope have an opaque origin.
    match (origin.is_tuple(), url.host_str(), url.port()) {
        (false, Some(host), Some(port)) => format!("{}://{host}:{port}{}", url.scheme(), url.path()),
        (false, Some(host), None) => format!("{}://{host}{}", url.scheme(), url.path()),
        (_, _, _) => format!("{}{}", origin.ascii_serialization(), url.path()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_from_every_kind_of_address() {
        for (address, shown) in [
            ("https://u:s3cret@a.example/x?s3cret#s3cret", "https://a.example/x"),
            ("wss://u:s3cret@a.example/ws?s3cret", "wss://a.example/ws"),
            ("grpc-jsonrpc://u:s3cret@a.example:50051", "grpc-jsonrpc://a.example:50051"),
            ("redis-streams://u:s3cret@a.example/0/q/r/g", "redis-streams://a.example/0/q/r/g"),
            ("unix:/run/a b?.sock", "unix:/run/a b?.sock"),
            ("stdio:agent --token s3cret", "stdio:agent"),
            ("no address?s3cret", "no address"),
        ] {
            assert_eq!(redact(address), shown);
        }
    }
}
