//! Redis servers with their credentials, for agents over Redis Streams.

use attache::client::RedisUrl;

use super::Failure;

/// The environment variable with the URLs, separated by spaces. It is not `ATTACHE_REDIS`, which makes `attache serve` answer requests from
/// that Redis server.
pub(crate) const REDIS_VARIABLE: &str = "ATTACHE_REDIS_CREDENTIALS";

/// The servers in the environment.
pub(crate) fn redis_credentials() -> Result<Vec<RedisUrl>, Failure> {
    parse(&std::env::var(REDIS_VARIABLE).unwrap_or_default())
}

fn parse(text: &str) -> Result<Vec<RedisUrl>, Failure> {
    let parse =
        |text: &str| text.parse().map_err(|error| Failure::usage(format!("`{REDIS_VARIABLE}`: {error}")));
    text.split_whitespace().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_separated_by_spaces_and_errors_have_no_password() {
        let servers = parse("redis://:s3cret@a.example rediss://b.example:6380/1").unwrap();
        let shown: Vec<String> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["redis://a.example:6379/0", "rediss://b.example:6380/1"]);
        assert!(parse("").unwrap().is_empty());
        let error =
            parse("http://:s3cret@a.example").err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(error.contains("`ATTACHE_REDIS_CREDENTIALS`") && !error.contains("s3cret"), "{error}");
    }
}
