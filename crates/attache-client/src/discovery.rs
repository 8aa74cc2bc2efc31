//! From an address to an agent: its card, and which of its interfaces to use.

use std::sync::Arc;

use attache_protocol::{AgentCard, AgentInterface, Version, binding};
use reqwest::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION};
use reqwest::{StatusCode, Url};

use crate::ClientError;
use crate::http::{Http, place, status_error, within};
use crate::jsonrpc::object;

/// Where a card is, below the address of its agent.
const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// How often the request for a card may be sent elsewhere.
const MAX_REDIRECTS: usize = 4;

/// What is known about an agent.
pub(crate) struct Known {
    pub(crate) card: Arc<AgentCard>,
    pub(crate) endpoint: Endpoint,
    etag: Option<HeaderValue>,
}

/// Where to send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: Url,
    pub(crate) tenant: Option<String>,
}

/// The URL of the card that is at, or below, an address. A path that ends in `.json` is that of a card.
pub(crate) fn card_url(http: &Http, address: &str) -> Result<Url, ClientError> {
    let mut url = http.check(address)?;
    url.set_fragment(None);
    if !url.path().ends_with(".json") {
        let path = format!("{}{WELL_KNOWN}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// Reads the card; nothing if it is still the one that is known.
pub(crate) async fn read(
    http: &Http,
    url: &Url,
    known: Option<&Known>,
) -> Result<Option<Known>, ClientError> {
    within(http.options.call_timeout, fetch(http, url.clone(), known)).await
}

async fn fetch(http: &Http, mut url: Url, known: Option<&Known>) -> Result<Option<Known>, ClientError> {
    let etag = known.and_then(|known| known.etag.as_ref());
    for _ in 0..=MAX_REDIRECTS {
        let mut request = http.get(&url).header(ACCEPT, "application/json");
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = http.send(&url, request).await?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && etag.is_some() {
            return Ok(None);
        }
        if let Some(next) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
            url = redirected(http, &url, status, next)?;
            continue;
        }
        if !status.is_success() {
            let body = http.body(&url, response).await.unwrap_or_default();
            return Err(status_error(&url, status, &body));
        }
        let etag = response.headers().get(ETAG).cloned();
        let body = http.body(&url, response).await?;
        let card: AgentCard = object(&body, &format!("the card at `{}`", place(&url)))?;
        let endpoint = choose(http, &url, &card)?;
        return Ok(Some(Known { card: Arc::new(card), endpoint, etag }));
    }
    Err(ClientError::Protocol(format!("the card redirects more than {MAX_REDIRECTS} times")))
}

/// Where a redirect leads, if it may be followed.
fn redirected(http: &Http, from: &Url, status: StatusCode, to: &HeaderValue) -> Result<Url, ClientError> {
    let to = to.to_str().ok().and_then(|to| from.join(to).ok());
    match to {
        // Not from a connection that nobody else reads to one that everybody can.
        Some(to) if from.scheme() == to.scheme() || to.scheme() == "https" => {
            let to = http.check(to.as_str())?;
            may_lead(http, from, &to)?;
            Ok(to)
        }
        Some(_) | None => Err(status_error(from, status, b"a redirect that is not followed")),
    }
}

fn may_lead(http: &Http, card: &Url, to: &Url) -> Result<(), ClientError> {
    if http.options.allow_other_origins || card.origin() == to.origin() {
        return Ok(());
    }
    Err(ClientError::OtherOrigin { card: place(card), leads_to: place(to) })
}

/// The first interface that is spoken here and may be called. If there are only some that may not, this says why.
fn choose(http: &Http, card_url: &Url, card: &AgentCard) -> Result<Endpoint, ClientError> {
    let mut refused = None;
    for interface in card.supported_interfaces.iter().filter(|interface| is_spoken(interface)) {
        let url = http.check(&interface.url).and_then(|url| may_lead(http, card_url, &url).map(|()| url));
        match url {
            Ok(url) => return Ok(Endpoint { url, tenant: interface.tenant.clone() }),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let offered = |interface: &AgentInterface| {
        format!("`{}` {}", interface.protocol_binding, interface.protocol_version)
    };
    Err(refused.unwrap_or_else(|| ClientError::NoInterface {
        agent: card.name.clone(),
        offered: card.supported_interfaces.iter().map(offered).collect(),
    }))
}

fn is_spoken(interface: &AgentInterface) -> bool {
    let version = interface.protocol_version.parse::<Version>();
    interface.protocol_binding.eq_ignore_ascii_case(binding::JSONRPC)
        && version.is_ok_and(|version| version.major == Version::V1_0.major)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientOptions;

    fn http(allow_other_origins: bool) -> Http {
        Http::new(ClientOptions { allow_other_origins, ..ClientOptions::default() }).unwrap()
    }

    #[test]
    fn a_card_is_found_below_the_address_of_its_agent() {
        for (address, card) in [
            ("http://a.example", "http://a.example/.well-known/agent-card.json"),
            ("http://a.example/", "http://a.example/.well-known/agent-card.json"),
            (
                "https://a.example:8443/agents/7/",
                "https://a.example:8443/agents/7/.well-known/agent-card.json",
            ),
            ("http://a.example/x?k=v#f", "http://a.example/x/.well-known/agent-card.json?k=v"),
            ("http://a.example/.well-known/agent-card.json", "http://a.example/.well-known/agent-card.json"),
            ("http://a.example/cards/7.json", "http://a.example/cards/7.json"),
        ] {
            assert_eq!(card_url(&http(true), address).unwrap().as_str(), card);
        }
    }

    fn card(interfaces: &[(&str, &str, &str)]) -> AgentCard {
        let mut card = AgentCard::new("Recipes", "Finds something to cook");
        for (url, binding, version) in interfaces {
            let mut interface = AgentInterface::new(*url, *binding);
            interface.protocol_version = (*version).to_owned();
            card.supported_interfaces.push(interface);
        }
        card
    }

    fn chosen(http: &Http, interfaces: &[(&str, &str, &str)]) -> Result<String, ClientError> {
        let url = "https://a.example/.well-known/agent-card.json".parse().unwrap();
        choose(http, &url, &card(interfaces)).map(|endpoint| endpoint.url.to_string())
    }

    #[test]
    fn the_first_interface_that_is_spoken_is_used() {
        let url = chosen(
            &http(true),
            &[
                ("a.example:443", "GRPC", "1.0"),
                ("https://a.example/old", "JSONRPC", "0.3"),
                ("https://a.example/rest", "HTTP+JSON", "1.0"),
                ("https://a.example/rpc", "JSONRPC", "1.0.1"),
                ("https://a.example/rpc2", "JSONRPC", "1.0"),
            ],
        );
        assert_eq!(url.unwrap(), "https://a.example/rpc");
    }

    #[test]
    fn a_card_without_such_an_interface_is_told_what_it_offers() {
        let error =
            chosen(&http(true), &[("a:1", "GRPC", "1.0"), ("https://a/", "JSONRPC", "0.3")]).unwrap_err();
        let ClientError::NoInterface { agent, offered } = error else { panic!("{error}") };
        assert_eq!(
            (agent.as_str(), offered),
            ("Recipes", vec!["`GRPC` 1.0".to_owned(), "`JSONRPC` 0.3".to_owned()])
        );
    }

    #[test]
    fn another_origin_is_followed_only_if_that_is_allowed() {
        let elsewhere = [("https://b.example/rpc", "JSONRPC", "1.0")];
        assert!(chosen(&http(true), &elsewhere).is_ok());
        for url in ["https://b.example/rpc", "http://a.example/rpc", "https://a.example:8443/rpc"] {
            let error = chosen(&http(false), &[(url, "JSONRPC", "1.0")]).unwrap_err();
            assert!(matches!(error, ClientError::OtherOrigin { .. }), "{url}: {error}");
        }
        let here = [elsewhere[0], ("https://a.example:443/rpc", "JSONRPC", "1.0")];
        assert_eq!(chosen(&http(false), &here).unwrap(), "https://a.example/rpc");
    }

    #[test]
    fn an_interface_is_reached_over_http_or_not_at_all() {
        for url in ["", "/rpc", "file:///etc/passwd", "ws://a.example/rpc", "a.example:443"] {
            assert!(chosen(&http(true), &[(url, "JSONRPC", "1.0")]).is_err(), "{url}");
        }
    }
}
