//! Fetches the keys of an issuer.

use std::time::Duration;

use attache_outbound::{build_client, causes, restricted_client};
use attache_signing::KeySet;
use http::header::{CACHE_CONTROL, HeaderMap};
use reqwest::Client;
use serde::Deserialize;
use url::Url;

use super::issuer::{JwtSetupError, address};

/// The largest document, in bytes.
const LONGEST: usize = 512 * 1024;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long keys are cached if the response does not say, and the bounds for what it says.
const USUAL: Duration = Duration::from_secs(15 * 60);
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the keys are published.
#[derive(Debug, Clone)]
pub(super) enum KeyLocation {
    Url(Url),
    /// At the address that the discovery document of the issuer names.
    Discovered {
        issuer: String,
        configuration: Url,
    },
}

/// Keys as they were published.
pub(super) struct Fetched {
    pub(super) keys: KeySet,
    pub(super) good_for: Duration,
}

/// The members of a discovery document that are used.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

pub(super) fn client() -> Result<Client, JwtSetupError> {
    Ok(build_client(|| restricted_client().timeout(TIMEOUT).connect_timeout(TIMEOUT / 2))?)
}

/// Fetches keys. The error is for the log.
pub(super) async fn fetch(client: &Client, place: &KeyLocation) -> Result<Fetched, String> {
    let url = match place {
        KeyLocation::Url(url) => url.clone(),
        KeyLocation::Discovered { issuer, configuration } => {
            let (_, body) = get(client, configuration).await?;
            let read: Configuration = serde_json::from_slice(&body)
                .map_err(|error| format!("`{configuration}` does not describe an issuer: {error}"))?;
            // Otherwise the keys of another issuer would be valid for tokens of this one.
            if read.issuer != *issuer {
                let other: String = read.issuer.chars().take(200).collect();
                return Err(format!(
                    "`{configuration}` describes another issuer, `{}`",
                    other.escape_debug()
                ));
            }
            address(&read.jwks_uri).map_err(|error| error.to_string())?
        }
    };
    let (headers, body) = get(client, &url).await?;
    let keys = KeySet::from_published(&body).map_err(|error| format!("at `{url}`: {error}"))?;
    if keys.is_empty() {
        return Err(format!("at `{url}` there is no key of a kind that is known here"));
    }
    Ok(Fetched { keys, good_for: good_for(&headers) })
}

async fn get(client: &Client, url: &Url) -> Result<(HeaderMap, Vec<u8>), String> {
    let failed = |error: reqwest::Error| {
        let why = causes(&error).last().map_or_else(|| "it did not answer".to_owned(), ToString::to_string);
        format!("`{url}` cannot be read: {why}")
    };
    let mut response =
        client.get(url.clone()).header("Accept", "application/json").send().await.map_err(failed)?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("`{url}` cannot be read: it answers with {}", response.status()));
    }
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > LONGEST {
            return Err(format!("`{url}` cannot be read: it is longer than {LONGEST} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((headers, body))
}

/// How long a document is cached, within bounds: withdrawn keys must not be used for long, and the issuer must not be asked for every
/// request.
fn good_for(headers: &HeaderMap) -> Duration {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(',')).map(|one| one.trim().to_ascii_lowercase());
    let mut said = None;
    let never = directives.any(|directive| {
        if let Some(seconds) = directive.strip_prefix("max-age=") {
            said = seconds.trim_matches('"').parse().ok().map(Duration::from_secs);
        }
        directive == "no-store" || directive == "no-cache"
    });
    let said = if never { Duration::ZERO } else { said.unwrap_or(USUAL) };
    said.clamp(SHORTEST, LONGEST_USE)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn keys_are_good_for_as_long_as_their_owner_says_within_bounds() {
        for (header, seconds) in [
            (None, 900),
            (Some("max-age=600"), 600),
            (Some("public, Max-Age=\"300\", must-revalidate"), 300),
            (Some("max-age=1"), 60),
            (Some("max-age=99999999"), 86_400),
            (Some("max-age=soon"), 900),
            (Some("max-age=600, no-store"), 60),
            (Some("no-cache"), 60),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = header {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
            }
            assert_eq!(good_for(&headers), Duration::from_secs(seconds), "{header:?}");
        }
    }
}
