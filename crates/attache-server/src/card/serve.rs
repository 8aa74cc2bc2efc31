//! Serves the public card as cacheable documents: one for each generation of clients, and the keys that sign them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use attache_core::{Identity, Principal, Rights, write_json};
use attache_protocol::dialect::{dual_card, pure_card, v0_1_card};
use attache_protocol::{AgentCard, TRANSPORTS_EXTENSION, Version};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::build::move_interfaces;
use super::transports::{FurtherTransports, Listed};
use crate::dispatch::{names_extension, stated_version};
use crate::http::body::Body;
use crate::http::origin::ClientLocation;
use crate::signing::{self, CurrentKeys, Signing};

/// Where clients of 1.0 and 0.3 look for the card.
pub(crate) const PATH: &str = "/.well-known/agent-card.json";

/// Where clients of 0.1 and 0.2 look for it.
pub(crate) const OLDEST_PATH: &str = "/.well-known/agent.json";

/// Serves the card. Each document is written once, until the card changes.
pub(crate) struct CardHost {
    /// Whether every client gets the card of 1.0 alone.
    pure: bool,
    /// The base URL that cards are built with.
    base: String,
    /// The path of the JSON-RPC endpoint for protocol 0.1, if there is one.
    oldest_path: Option<String>,
    signing: Option<Signing>,
    /// Builds the card of an authenticated caller, if it depends on the caller.
    by_rights: Option<CardFor>,
    transports: FurtherTransports,
    documents: Mutex<HashMap<Key, Arc<Document>>>,
}

/// What a document depends on, apart from the card: the rights of the caller, the kind of client, the base URL if the client asked for
/// another host than that of the card, and which transports are listed.
type Key = (Rights, Reader, Option<String>, Listed);

/// Builds a card for a set of rights.
pub(crate) type CardFor = Arc<dyn Fn(&Rights) -> Arc<AgentCard> + Send + Sync>;

/// The size of the cache. Each audience has a few documents for each host.
const MAX_DOCUMENTS: usize = 256;

/// The kind of client that a document is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    /// Clients of 1.0 and of 0.3.
    Both,
    /// Clients of 1.0 alone.
    Current,
    /// Clients of 0.1.
    Oldest,
    /// Clients that verify signatures: the document holds the keys.
    Verifier,
}

impl Reader {
    fn content_type(self) -> &'static str {
        match self {
            Self::Both | Self::Current | Self::Oldest => "application/json",
            Self::Verifier => "application/jwk-set+json",
        }
    }
}

#[derive(Clone)]
struct Document {
    card: Arc<AgentCard>,
    /// The keys that signed it.
    keys: Option<Arc<CurrentKeys>>,
    json: Bytes,
    etag: HeaderValue,
    modified: HeaderValue,
}

impl CardHost {
    pub(crate) fn new(
        pure: bool,
        base: &str,
        oldest_path: Option<String>,
        signing: Option<Signing>,
        transports: FurtherTransports,
    ) -> Self {
        let base = base.to_owned();
        let documents = Mutex::default();
        Self { pure, base, oldest_path, signing, by_rights: None, transports, documents }
    }

    /// Sets how the cards of authenticated callers are built.
    pub(crate) fn by_rights(self, by_rights: Option<CardFor>) -> Self {
        Self { by_rights, ..self }
    }

    /// Whether the signing keys are published at this path.
    pub(crate) fn publishes_keys_at(&self, path: &str) -> bool {
        let signing = self.signing.as_ref().filter(|_| path == signing::PATH);
        signing.is_some_and(Signing::publishes_keys)
    }

    /// The response at one of the paths. `card` is the public card; an authenticated caller may get another one. `place` is where the
    /// client is, and the host that it asked for.
    pub(crate) fn respond(
        &self,
        card: Arc<AgentCard>,
        identity: &Identity,
        request: &Parts,
        place: ClientLocation<'_>,
    ) -> Response<Body> {
        let (reader, listed) = self.reader(request, place.is_local());
        let known = identity.principal != Principal::Anonymous;
        let (card, rights) = self.card_of(card, identity);
        let document = self.document(&card, (rights, reader, self.asked_base(place), listed));
        let fresh = is_fresh(&request.headers, &document);
        let mut response =
            Response::new(if fresh { Body::empty() } else { Body::full(document.json.clone()) });
        if fresh {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reader.content_type()));
        // A card for one caller must not be stored by shared caches.
        let caching = if known { "private, max-age=60" } else { "public, max-age=60" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
        headers.insert(ETAG, document.etag.clone());
        headers.insert(LAST_MODIFIED, document.modified.clone());
        headers.insert(VARY, HeaderValue::from_static("A2A-Extensions, A2A-Version, Host"));
        response
    }

    /// The JSON of the public card, as a client gets it at the path of the card.
    pub(crate) fn public_json(
        &self,
        card: &Arc<AgentCard>,
        request: &Parts,
        place: ClientLocation<'_>,
    ) -> Bytes {
        let (reader, listed) = self.reader(request, place.is_local());
        self.document(card, (Rights::default(), reader, self.asked_base(place), listed)).json.clone()
    }

    /// The JSON of the card for a client of a transport that carries frames.
    pub(crate) fn for_frames(
        &self,
        card: Arc<AgentCard>,
        identity: &Identity,
        stated: Option<Version>,
        is_local: bool,
    ) -> Bytes {
        let (card, rights) = self.card_of(card, identity);
        let listed = self.transports.over_frames(is_local);
        self.document(&card, (rights, self.reader_of(stated), None, listed)).json.clone()
    }

    /// The JSON of the card in protocol 0.1.
    pub(crate) fn v0_1(&self, card: Arc<AgentCard>, identity: &Identity) -> Bytes {
        let (card, rights) = self.card_of(card, identity);
        self.document(&card, (rights, Reader::Oldest, None, Listed::Standard)).json.clone()
    }

    /// The card of a caller, and the rights that it depends on.
    fn card_of(&self, public: Arc<AgentCard>, identity: &Identity) -> (Arc<AgentCard>, Rights) {
        match &self.by_rights {
            Some(own) if identity.principal != Principal::Anonymous => {
                (own(&identity.rights), identity.rights.clone())
            }
            Some(_) | None => (public, Rights::default()),
        }
    }

    /// The base URL of the agent, with the host that the client asked for.
    pub(crate) fn base_url(&self, place: ClientLocation<'_>) -> String {
        self.asked_base(place).unwrap_or_else(|| self.base.clone())
    }

    /// The same, if it is another one than that of the card.
    fn asked_base(&self, place: ClientLocation<'_>) -> Option<String> {
        place.host.map(|host| host.base_url(&self.base)).filter(|base| *base != self.base)
    }

    fn reader(&self, request: &Parts, is_local: bool) -> (Reader, Listed) {
        match request.uri.path() {
            OLDEST_PATH => return (Reader::Oldest, Listed::Standard),
            signing::PATH => return (Reader::Verifier, Listed::Standard),
            _ => {}
        }
        let stated = stated_version(&request.headers, request.uri.query());
        let asks = names_extension(&request.headers, TRANSPORTS_EXTENSION);
        (self.reader_of(stated), self.transports.over_http(asks, is_local))
    }

    fn reader_of(&self, stated: Option<Version>) -> Reader {
        match self.pure || stated.is_some_and(|version| version >= Version::V1_0) {
            true => Reader::Current,
            false => Reader::Both,
        }
    }

    fn write(
        &self,
        card: &AgentCard,
        keys: Option<&CurrentKeys>,
        (_, reader, base, listed): &Key,
    ) -> Vec<u8> {
        let mut json = Vec::with_capacity(2048);
        let base_url = base.as_deref().unwrap_or(&self.base);
        let is_extended = self.transports.extend(card, *listed);
        let mut changed = None;
        let card = match base.is_some() || is_extended {
            true => {
                let changed: &mut AgentCard = changed.insert(card.clone());
                if let Some(to) = base {
                    move_interfaces(changed, &self.base, to);
                }
                if is_extended {
                    changed.supported_interfaces.extend(self.transports.interfaces(base_url, *listed));
                }
                changed
            }
            false => card,
        };
        // The documents list different interfaces, so each has its own signatures.
        let signed = |card| match self.signing.as_ref().zip(keys) {
            Some((signing, keys)) => signing.sign(keys, &card, base_url),
            None => card,
        };
        match reader {
            Reader::Both => write_json(&mut json, &dual_card(&signed(card.clone()))),
            Reader::Current => write_json(&mut json, &signed(pure_card(card))),
            Reader::Verifier => {
                write_json(&mut json, &keys.map(Signing::published));
            }
            Reader::Oldest => {
                let first = || card.supported_interfaces.first().map(|interface| interface.url.clone());
                let url = self.oldest_path.as_ref().map(|path| format!("{base_url}{path}")).or_else(first);
                write_json(&mut json, &v0_1_card(card, &url.unwrap_or_default()));
            }
        }
        json
    }

    fn document(&self, card: &Arc<AgentCard>, place: Key) -> Arc<Document> {
        let keys = self.signing.as_ref().map(Signing::keys);
        let mut documents = self.documents.lock();
        // The documents for other hosts go first: a client chooses among many of them.
        if documents.len() >= MAX_DOCUMENTS {
            documents.retain(|(_, _, base, _), _| base.is_none());
        }
        if documents.len() >= MAX_DOCUMENTS {
            documents.clear();
        }
        let kept = documents.get(&place);
        let signed_by = |document: &Document| document.keys.as_ref().map(Arc::as_ptr);
        if let Some(document) = kept.filter(|kept| signed_by(kept) == keys.as_ref().map(Arc::as_ptr)) {
            if Arc::ptr_eq(&document.card, card) {
                return document.clone();
            }
            // Unchanged content keeps its signatures: some algorithms never produce the same signature twice.
            if keys.is_some() && document.card == *card {
                let document = Arc::new(Document { card: card.clone(), ..Document::clone(document) });
                documents.insert(place, document.clone());
                return document;
            }
        }
        let json = self.write(card, keys.as_deref(), &place);
        let etag = etag_of(&json);
        // Unchanged content keeps its modification time.
        let modified = match kept.filter(|document| document.etag == etag) {
            Some(document) => document.modified.clone(),
            None => HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
                .unwrap_or(HeaderValue::from_static("")),
        };
        let document = Arc::new(Document { card: card.clone(), keys, json: json.into(), etag, modified });
        documents.insert(place, document.clone());
        document
    }
}

/// The entity tag of a document: a digest of its content.
pub(crate) fn etag_of(content: &[u8]) -> HeaderValue {
    let digest: [u8; 32] = Sha256::digest(content).into();
    let tag: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{tag}\"")).unwrap_or(HeaderValue::from_static("\"card\""))
}

/// Whether the client has the document with this tag. `None` if it names no tags. Tags are compared weakly.
pub(crate) fn has_tag(headers: &HeaderMap, etag: &HeaderValue) -> Option<bool> {
    let own = etag.to_str().unwrap_or_default();
    headers.contains_key(IF_NONE_MATCH).then(|| {
        headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own)
    })
}

/// Whether the client already has this document. Tags take precedence over dates.
fn is_fresh(headers: &HeaderMap, document: &Document) -> bool {
    if let Some(fresh) = has_tag(headers, &document.etag) {
        return fresh;
    }
    headers.get(IF_MODIFIED_SINCE).is_some_and(|value| *value == document.modified)
}
