//! The list of the agents of a server that has several.

use attache_protocol::AgentCard;
use reqwest::header::ACCEPT;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::credentials::PresetCredentials;
use crate::http::{Http, display_url, status_error, with_timeout};
use crate::transport::{card_of, invalid_response};
use crate::{Client, ClientError};

/// How many pages of the list are read at most.
const MAX_PAGES: usize = 100;

/// An agent in the list of a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListedAgent {
    /// Its name on the server.
    pub name: String,
    /// The URL to connect to.
    pub url: String,
    /// Its card, as it is in the list. Connecting reads the card again, and verifies its signatures.
    pub card: AgentCard,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    agents: Vec<Row>,
    #[serde(default)]
    next_page_token: String,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    url: String,
    card: Box<RawValue>,
}

impl Client {
    /// The named agents of the server that this agent is on, if it is a server of this project that has some.
    pub async fn named_agents(&self) -> Result<Vec<ListedAgent>, ClientError> {
        let list = list_url(&self.card_url());
        let http = self.http();
        with_timeout(http.options.call_timeout, async {
            let (mut agents, mut token) = (Vec::new(), String::new());
            for _ in 0..MAX_PAGES {
                let (listed, next) = read_page(http, &list, &token).await?;
                agents.extend(listed);
                if next.is_empty() {
                    return Ok(agents);
                }
                token = next;
            }
            Err(ClientError::Protocol(format!("the list of agents has more than {MAX_PAGES} pages")))
        })
        .await
    }
}

/// The URL of the list on the server of a card. A named agent has its card below the list.
fn list_url(card: &Url) -> Url {
    let mut url = card.clone();
    let path = card.path();
    let base = path.find("/.well-known/").map_or(path, |end| &path[..end]);
    let base = match base.rsplit_once("/agents/") {
        Some((server, name)) if !name.contains('/') => server,
        Some(_) | None => base,
    };
    url.set_path(&format!("{}/agents", base.trim_end_matches('/')));
    url
}

async fn read_page(http: &Http, list: &Url, token: &str) -> Result<(Vec<ListedAgent>, String), ClientError> {
    let mut url = list.clone();
    if !token.is_empty() {
        url.query_pairs_mut().append_pair("pageToken", token);
    }
    let mut request = http.request(Method::GET, &url).header(ACCEPT, "application/json");
    if let Some(PresetCredentials::Headers(headers)) =
        http.options.credentials.as_ref().map(|credentials| credentials.preset(&url))
    {
        request = request.headers(headers);
    }
    let response = http.send(&url, request).await?;
    let status = response.status();
    let body = http.body(&url, response).await?;
    if !status.is_success() {
        return Err(status_error(&url, status, &body));
    }
    parse_page(&url, &body)
}

/// Parses a page of the list: its agents, and the token of the next page, which is empty after the last one.
pub(crate) fn parse_page(url: &Url, body: &[u8]) -> Result<(Vec<ListedAgent>, String), ClientError> {
    let Page { agents, next_page_token } = serde_json::from_slice(body).map_err(|error| {
        ClientError::Protocol(format!("the list at `{}` is invalid: {error}", display_url(url)))
    })?;
    let listed = agents.into_iter().map(|Row { name, url, card }| {
        let what = format!("the card of `{name}`");
        let card = card_of(card.get().as_bytes()).map_err(|error| invalid_response(&what, &error))?;
        Ok(ListedAgent { name, url, card })
    });
    Ok((listed.collect::<Result<_, ClientError>>()?, next_page_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_on_the_server_of_the_card() {
        for (card, list) in [
            ("http://a.example/.well-known/agent-card.json", "http://a.example/agents"),
            ("http://a.example/x/.well-known/agent-card.json", "http://a.example/x/agents"),
            ("http://a.example/x/agents/one/.well-known/agent-card.json", "http://a.example/x/agents"),
        ] {
            assert_eq!(list_url(&Url::parse(card).unwrap()).as_str(), list);
        }
    }
}
