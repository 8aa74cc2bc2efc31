//! The public card, as a document that can be cached.

use std::sync::Arc;
use std::time::SystemTime;

use attache_protocol::AgentCard;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderMap, Request, Response, StatusCode};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::body::Body;

/// Serves the card, written once for as long as it stays the same.
pub(crate) struct CardHost(Mutex<Option<Arc<Document>>>);

struct Document {
    card: Arc<AgentCard>,
    json: Bytes,
    etag: HeaderValue,
    modified: HeaderValue,
}

impl CardHost {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn respond<B>(&self, card: &Arc<AgentCard>, request: &Request<B>) -> Response<Body> {
        let document = self.document(card);
        let fresh = is_fresh(request.headers(), &document);
        let mut response =
            Response::new(if fresh { Body::empty() } else { Body::full(document.json.clone()) });
        if fresh {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        headers.insert(ETAG, document.etag.clone());
        headers.insert(LAST_MODIFIED, document.modified.clone());
        response
    }

    fn document(&self, card: &Arc<AgentCard>) -> Arc<Document> {
        let mut kept = self.0.lock();
        if let Some(document) = kept.as_ref().filter(|document| Arc::ptr_eq(&document.card, card)) {
            return document.clone();
        }
        let mut json = Vec::with_capacity(2048);
        crate::reply::json(&mut json, &**card);
        let digest: [u8; 32] = Sha256::digest(&json).into();
        let tag: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag =
            HeaderValue::from_str(&format!("\"{tag}\"")).unwrap_or(HeaderValue::from_static("\"card\""));
        // The same content, published anew, has not been modified.
        let modified = match kept.as_ref().filter(|document| document.etag == etag) {
            Some(document) => document.modified.clone(),
            None => HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
                .unwrap_or(HeaderValue::from_static("")),
        };
        let document = Arc::new(Document { card: card.clone(), json: json.into(), etag, modified });
        *kept = Some(document.clone());
        document
    }
}

/// Whether the client has this document already. Tags are compared weakly, and beat dates.
fn is_fresh(headers: &HeaderMap, document: &Document) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        let own = document.etag.to_str().unwrap_or_default();
        return headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own);
    }
    headers.get(IF_MODIFIED_SINCE).is_some_and(|value| *value == document.modified)
}
