//! Finding an agent: its card and what the card says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_protocol::{AgentCard, TRANSPORTS_EXTENSION, Version};
use reqwest::header::{
    ACCEPT, CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    LOCATION,
};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::sync::watch;

use crate::ClientError;
use crate::agent_address::complete_address;
use crate::card_trust::{self, Signer};
use crate::credentials::PresetCredentials;
use crate::http::{Http, display_url, status_error, with_timeout};
use crate::interface::{Endpoint, choose};
use crate::request_auth::CredentialTarget;
use crate::sdk::Sdk;
use crate::transport::{card_of, invalid_response};

/// The paths of a card below the address of its agent. The second one was used before 0.3.
pub(crate) const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// How many redirects of a card are followed.
const MAX_REDIRECTS: usize = 4;

/// An agent, as its card describes it.
#[derive(Clone)]
pub(crate) struct DiscoveredAgent {
    /// The public card.
    pub(crate) card: Arc<AgentCard>,
    /// The extended card of this caller, if it was read.
    pub(crate) extended: Option<Arc<AgentCard>>,
    /// The verified signer of the card, if the options require one.
    #[cfg_attr(not(feature = "signing"), expect(dead_code, reason = "read by `Client::signer` only"))]
    pub(crate) signer: Option<Signer>,
    pub(crate) endpoint: Endpoint,
    /// What is known of the version, if the card states none.
    pub(crate) unstated: Arc<UnstatedVersion>,
    /// The URL of the card.
    pub(crate) card_url: Url,
    /// The SDK of the server, as far as its card's response shows it.
    pub(crate) sdk: Sdk,
    validator: Option<CacheValidator>,
    /// When the card was read, and how long it is fresh from then on.
    read_at: Instant,
    max_age: Duration,
}

impl DiscoveredAgent {
    /// Whether the card is still fresh, according to its server.
    pub(crate) fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < self.max_age
    }

    /// The same, after the server confirmed that the card has not changed.
    pub(crate) fn revalidated(&self) -> Self {
        Self { read_at: Instant::now(), ..self.clone() }
    }

    /// The agent as a recipient of credentials.
    pub(crate) fn credential_target(&self) -> CredentialTarget<'_> {
        CredentialTarget { card: &self.card, card_url: &self.card_url, url: &self.endpoint.url }
    }
}

/// The version of an agent whose card states none. It is taken to be 0.3, until the agent does not know a message of that version.
#[derive(Debug)]
pub(crate) struct UnstatedVersion {
    /// Whether the card states no version.
    is_unstated: bool,
    /// Whether the agent has turned out to speak 0.1.
    is_v0_1: watch::Sender<bool>,
}

impl UnstatedVersion {
    fn new(is_unstated: bool) -> Self {
        Self { is_unstated, is_v0_1: watch::Sender::new(false) }
    }

    /// Whether the agent has turned out to speak 0.1.
    pub(crate) fn is_v0_1(&self) -> bool {
        *self.is_v0_1.borrow()
    }

    /// Notes whether the agent speaks 0.1.
    pub(crate) fn set_v0_1(&self, is_v0_1: bool) {
        self.is_v0_1.send_replace(is_v0_1);
    }

    /// Waits until the agent has turned out to speak 0.1.
    pub(crate) async fn until_v0_1(&self) {
        let mut changes = self.is_v0_1.subscribe();
        if changes.wait_for(|is_v0_1| *is_v0_1).await.is_err() {
            std::future::pending().await
        }
    }

    /// Whether the agent may speak 0.1 although it has not turned out so.
    pub(crate) fn may_be_v0_1(&self) -> bool {
        self.is_unstated && !self.is_v0_1()
    }
}

/// Whether a card states the version of the protocol.
fn states_version(card: &[u8]) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Members {
        protocol_version: Option<serde::de::IgnoredAny>,
        #[serde(alias = "supported_interfaces")]
        supported_interfaces: Option<serde::de::IgnoredAny>,
    }
    let members: Members = serde_json::from_slice(card).unwrap_or_default();
    members.protocol_version.is_some() || members.supported_interfaces.is_some()
}

/// The header that asks whether a card has changed.
#[derive(Clone)]
pub(crate) struct CacheValidator {
    header: HeaderName,
    value: HeaderValue,
}

impl CacheValidator {
    fn of(response: &Response) -> Option<Self> {
        let stated = |name, header| Some(Self { header, value: response.headers().get(name)?.clone() });
        stated(ETAG, IF_NONE_MATCH).or_else(|| stated(LAST_MODIFIED, IF_MODIFIED_SINCE))
    }
}

/// How long a response is fresh, according to its `Cache-Control`.
fn max_age(response: &Response) -> Duration {
    let values = response.headers().get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<_> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is = |name: &str| directives.iter().any(|it| it.eq_ignore_ascii_case(name));
    if is("no-cache") || is("no-store") {
        return Duration::ZERO;
    }
    let stated = directives.iter().filter_map(|it| it.split_once('='));
    let mut ages = stated.filter(|(name, _)| name.trim().eq_ignore_ascii_case("max-age"));
    let seconds = ages.next().and_then(|(_, age)| age.trim().trim_matches('"').parse().ok());
    seconds.map(Duration::from_secs).unwrap_or_default()
}

/// The URLs that a card may have, the most likely first. A path that ends in `.json` is that of a card.
pub(crate) fn card_urls(http: &Http, address: &str) -> Result<Vec<Url>, ClientError> {
    let complete = complete_address(address);
    let mut url = http.check(complete.as_deref().unwrap_or(address))?;
    url.set_fragment(None);
    if url.path().ends_with(".json") {
        return Ok(vec![url]);
    }
    let below = |path: &str| {
        let mut candidate = url.clone();
        candidate.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        candidate
    };
    Ok(WELL_KNOWN.map(below).into())
}

/// Reads the card; nothing if it has not changed. The URL where it was found before is tried first.
pub(crate) async fn read(
    http: &Http,
    places: &[Url],
    previous: Option<&DiscoveredAgent>,
) -> Result<Option<DiscoveredAgent>, ClientError> {
    let was_found = |url: &&Url| previous.is_some_and(|previous| previous.card_url == **url);
    let (first, others): (Vec<_>, Vec<_>) = places.iter().partition(was_found);
    with_timeout(http.options.call_timeout, async {
        let mut missing = None;
        for url in first.into_iter().chain(others) {
            let validator = previous
                .filter(|previous| previous.card_url == *url)
                .and_then(|previous| previous.validator.as_ref());
            match fetch(http, url, validator).await.and_then(|found| choose_interface(http, url, found)) {
                Err(error @ ClientError::Http { status: 404 | 410, .. }) => {
                    missing = missing.or(Some(error));
                }
                result => return result,
            }
        }
        Err(missing
            .unwrap_or_else(|| ClientError::Invalid("there is no URL to read the card from".to_owned())))
    })
    .await
}

/// A card that was read over HTTP.
pub(crate) struct FetchedCard {
    pub(crate) card: AgentCard,
    pub(crate) signer: Option<Signer>,
    states_version: bool,
    /// The URL that it was found at, after redirects.
    found_at: Url,
    sdk: Sdk,
    validator: Option<CacheValidator>,
    max_age: Duration,
}

impl FetchedCard {
    /// The agent at this endpoint.
    pub(crate) fn into_agent(self, card_url: Url, endpoint: Endpoint) -> DiscoveredAgent {
        let Self { card, signer, states_version, sdk, validator, max_age, .. } = self;
        DiscoveredAgent {
            card: Arc::new(card),
            extended: None,
            signer,
            endpoint,
            unstated: Arc::new(UnstatedVersion::new(!states_version)),
            card_url,
            sdk,
            validator,
            read_at: Instant::now(),
            max_age,
        }
    }

    /// A card that did not come over HTTP.
    pub(crate) fn of(card: AgentCard, signer: Option<Signer>, url: &Url) -> Self {
        let (found_at, max_age) = (url.clone(), Duration::ZERO);
        Self { card, signer, states_version: true, found_at, sdk: Sdk::Unknown, validator: None, max_age }
    }
}

fn choose_interface(
    http: &Http,
    at: &Url,
    fetched: Option<FetchedCard>,
) -> Result<Option<DiscoveredAgent>, ClientError> {
    let Some(fetched) = fetched else { return Ok(None) };
    let endpoint = choose(http, at, &fetched.found_at, &fetched.card)?;
    Ok(Some(fetched.into_agent(at.clone(), endpoint)))
}

/// Reads the card at a URL; nothing if it has not changed.
async fn fetch(
    http: &Http,
    at: &Url,
    validator: Option<&CacheValidator>,
) -> Result<Option<FetchedCard>, ClientError> {
    fetch_over(http, http, at, validator).await
}

/// The same over another HTTP client. The keys of signatures are read over `http`.
pub(crate) async fn fetch_over(
    http: &Http,
    over: &Http,
    at: &Url,
    validator: Option<&CacheValidator>,
) -> Result<Option<FetchedCard>, ClientError> {
    let mut url = at.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut request = over.request(Method::GET, &url).header(ACCEPT, "application/json");
        // Servers of this project list further transports only in cards for clients that ask for them.
        if http.options.interfaces.iter().any(|interface| interface.binding.is_further()) {
            request = request
                .header("A2A-Version", Version::V1_0.to_string())
                .header("A2A-Extensions", TRANSPORTS_EXTENSION);
        }
        if let Some(PresetCredentials::Headers(headers)) =
            over.options.credentials.as_ref().map(|credentials| credentials.preset(&url))
        {
            request = request.headers(headers);
        }
        if let Some(CacheValidator { header, value }) = validator {
            request = request.header(header, value);
        }
        let response = over.send(&url, request).await?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && validator.is_some() {
            return Ok(None);
        }
        if let Some(next) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
            url = redirected(over, at, &url, status, next)?;
            continue;
        }
        if !status.is_success() {
            let body = over.body(&url, response).await.unwrap_or_default();
            return Err(status_error(&url, status, &body));
        }
        let (validator, max_age) = (CacheValidator::of(&response), max_age(&response));
        let sdk = Sdk::of(response.headers());
        let body = over.body(&url, response).await?;
        let (card, signer) = match card_trust::verify(http, &url, &body).await? {
            Some((card, signer)) => (card, Some(signer)),
            None => {
                let what = format!("the card at `{}`", display_url(&url));
                (card_of(&body).map_err(|error| invalid_response(&what, &error))?, None)
            }
        };
        let states_version = states_version(&body);
        return Ok(Some(FetchedCard {
            card,
            signer,
            states_version,
            found_at: url,
            sdk,
            validator,
            max_age,
        }));
    }
    Err(ClientError::Protocol(format!("the card redirects more than {MAX_REDIRECTS} times")))
}

/// The target of a redirect, if it may be followed.
fn redirected(
    http: &Http,
    home: &Url,
    from: &Url,
    status: StatusCode,
    to: &HeaderValue,
) -> Result<Url, ClientError> {
    let to = to.to_str().ok().and_then(|to| from.join(to).ok());
    match to {
        // Redirects from `https` to `http` are not followed.
        Some(to) if from.scheme() == to.scheme() || to.scheme() == "https" => {
            let to = http.check(to.as_str())?;
            http.options.trusted_origins.check_destination(home, &to)?;
            Ok(to)
        }
        Some(_) | None => Err(status_error(from, status, b"the redirect is not allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientOptions;

    #[test]
    fn a_card_is_found_below_the_address_of_its_agent() {
        let http = Http::new(ClientOptions::default()).unwrap();
        let found =
            |address| card_urls(&http, address).unwrap().iter().map(Url::to_string).collect::<Vec<_>>();
        for (address, below) in [
            ("http://a.example", "http://a.example"),
            ("http://a.example/", "http://a.example"),
            ("https://a.example:8443/agents/7/", "https://a.example:8443/agents/7"),
        ] {
            assert_eq!(found(address), WELL_KNOWN.map(|path| format!("{below}{path}")));
        }
        let expected = "http://a.example/x/.well-known/agent-card.json?k=v";
        assert_eq!(found("http://a.example/x?k=v#f")[0], expected);
        for card in ["http://a.example/.well-known/agent-card.json", "http://a.example/cards/7.json"] {
            assert_eq!(found(card), [card]);
        }
    }
}
