//! The list of the named agents of a server, with their public cards.

use std::collections::BTreeMap;
use std::ops::Bound;

use attache_protocol::Error;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::HttpService;
use super::body::Body;
use super::origin::ClientLocation;
use crate::binding::http_json;
use crate::card::{etag_of, has_tag};

/// How many agents a page has if the client does not say.
const PAGE_SIZE: usize = 50;

/// The largest page.
const MAX_PAGE_SIZE: usize = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentList<'a> {
    agents: Vec<ListedAgent<'a>>,
    next_page_token: &'a str,
    total_size: usize,
}

#[derive(Serialize)]
struct ListedAgent<'a> {
    name: &'a str,
    /// The URL below which the agent has its card and its bindings.
    url: String,
    card: Box<RawValue>,
}

/// The page that a request asks for.
struct Page<'a> {
    size: usize,
    /// The name of the last agent of the page before.
    after: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn read(query: &'a str) -> Result<Self, Error> {
        let mut page = Self { size: PAGE_SIZE, after: None };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "pageSize" => {
                    let size = value.parse().ok().filter(|size| (1..=MAX_PAGE_SIZE).contains(size));
                    page.size = size.ok_or_else(|| {
                        Error::invalid_params(
                            "pageSize",
                            format!("expected a number from 1 to {MAX_PAGE_SIZE}"),
                        )
                    })?;
                }
                "pageToken" if !value.is_empty() => page.after = Some(value),
                _ => {}
            }
        }
        Ok(page)
    }
}

/// Answers a request for the list. The token of a page is the name of its last agent.
pub(super) fn respond(
    agents: &BTreeMap<String, HttpService>,
    head: &Parts,
    place: ClientLocation<'_>,
) -> Response<Body> {
    let page = match Page::read(head.uri.query().unwrap_or_default()) {
        Ok(page) => page,
        Err(error) => return http_json::error_response(&error, &head.headers),
    };
    let from = page.after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = agents.range::<str, _>((from, Bound::Unbounded));
    let listed: Vec<_> = rest
        .by_ref()
        .take(page.size)
        .filter_map(|(name, http)| {
            let json = http.0.card.public_json(&http.0.dispatcher.service().card(), head, place);
            let card = serde_json::from_slice(&json).ok()?;
            Some(ListedAgent { name, url: http.0.card.base_url(place), card })
        })
        .collect();
    let next_page_token = match rest.next() {
        Some(_) => listed.last().map_or("", |last| last.name),
        None => "",
    };
    let list = AgentList { agents: listed, next_page_token, total_size: agents.len() };
    let json = serde_json::to_vec(&list).unwrap_or_default();
    let etag = etag_of(&json);
    let fresh = has_tag(&head.headers, &etag) == Some(true);
    let mut response = Response::new(if fresh { Body::empty() } else { Body::full(json) });
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
    headers.insert(ETAG, etag);
    headers.insert(VARY, HeaderValue::from_static("A2A-Extensions, A2A-Version, Host"));
    response
}
