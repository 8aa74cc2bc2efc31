//! Whether the signature of a card makes it trusted, if the options ask for that.

use attache_protocol::AgentCard;
use reqwest::Url;

use crate::ClientError;
use crate::http::Http;

#[cfg(feature = "signing")]
pub(crate) use attache_signing::Signer;

/// Without the feature `signing`, no card has a verified signer.
#[cfg(not(feature = "signing"))]
#[derive(Clone)]
pub(crate) enum Signer {}

/// The media types that key sets are served as.
#[cfg(feature = "signing")]
const KEY_TYPES: &str = "application/jwk-set+json, application/json";

/// Verifies the signature of the card in `body`, which came from `url`. Returns only what was signed, and who signed it.
///
/// Returns nothing if the options set no [`card_trust`](crate::ClientOptions::card_trust): then the card needs no signature.
#[cfg(feature = "signing")]
pub(crate) async fn verify(
    http: &Http,
    url: &Url,
    body: &[u8],
) -> Result<Option<(AgentCard, Signer)>, ClientError> {
    use reqwest::header::ACCEPT;
    use reqwest::{Method, StatusCode};

    use crate::http::{display_url, status_error};

    let Some(trust) = &http.options.card_trust else { return Ok(None) };
    let fetch_keys = |url: Url| async move {
        let url = http.check(url.as_str())?;
        let response = http.send(&url, http.request(Method::GET, &url).header(ACCEPT, KEY_TYPES)).await?;
        let status = response.status();
        let body = http.body(&url, response).await?;
        // Redirects are not followed: one could lead to the keys of another origin.
        if status == StatusCode::OK { Ok(body) } else { Err(status_error(&url, status, &body)) }
    };
    let verified = trust.verify_signer(body, std::time::Instant::now(), fetch_keys).await;
    verified.map(Some).map_err(|why| ClientError::Untrusted { url: display_url(url), why })
}

/// Without the feature `signing`, every card is taken as it is.
#[cfg(not(feature = "signing"))]
pub(crate) async fn verify(_: &Http, _: &Url, _: &[u8]) -> Result<Option<(AgentCard, Signer)>, ClientError> {
    Ok(None)
}
