//! Which path is answered by what.

use attache_core::ARTIFACTS_PATH;
use attache_protocol::{TaskId, binding};
use http::header::UPGRADE;
use http::request::Parts;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use super::origin::Purpose;
#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::binding::http_json::operation_path;
use crate::card::CardHost;
use crate::dispatch::{Generation, NO_BINDING};
use crate::transport::websocket;
use crate::{Paths, ServerOptions, agents, card};

/// What a path leads to.
pub(super) enum Route {
    JsonRpc,
    /// A request that opens a WebSocket connection, or that should.
    WebSocket,
    #[cfg(feature = "grpc")]
    Grpc(grpc::Package),
    /// JSON-RPC in gRPC messages.
    #[cfg(feature = "grpc")]
    Envelope,
    /// The HTTP+JSON binding, with the rest of the path, and whether the path is one for 0.3.
    HttpJson(String, Generation),
    Card,
    /// The keys that cards are signed with.
    Keys,
    /// The list of named agents.
    Agents,
    /// Stored content of a task. `None` if the path does not have the form of such a path.
    Content(Option<ContentPath>),
    Health,
    /// Whether the server accepts messages.
    Ready,
    /// A path that belongs to the application around the server.
    Fallback,
}

/// The paths that a server has only if it uses a feature.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reserved {
    pub(super) agents: bool,
    pub(super) artifacts: bool,
}

/// A path of stored content: `/artifacts/TASK/ID`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentPath {
    pub(super) task: TaskId,
    pub(super) id: String,
}

impl ContentPath {
    /// Reads the rest of a path below the path of artifacts.
    fn read(rest: &str) -> Option<Self> {
        let (task, id) = rest.split_once('/')?;
        let task = percent_decode_str(task).decode_utf8().ok()?;
        (!task.is_empty() && !id.is_empty()).then(|| Self { task: (&*task).into(), id: id.to_owned() })
    }
}

impl Route {
    pub(super) fn find(head: &Parts, paths: &Paths, card: &CardHost, reserved: Reserved) -> Self {
        let path = head.uri.path();
        if card.publishes_keys_at(path) {
            return Self::Keys;
        }
        let is_jsonrpc = paths.jsonrpc.iter().any(|own| is_same_path(own, path));
        if let Some(own) = &paths.websocket
            // Where both have a path, a request that does not ask for a connection is one of JSON-RPC.
            && (is_jsonrpc && is_upgrade(head) || !is_jsonrpc && is_same_path(own, path))
        {
            return Self::WebSocket;
        }
        if is_jsonrpc || paths.oldest.iter().any(|own| is_same_path(own, path)) {
            return Self::JsonRpc;
        }
        #[cfg(feature = "grpc")]
        if let Some(package) = grpc::Package::of(grpc::without_prefix(path)).filter(|_| paths.grpc) {
            return Self::Grpc(package);
        }
        #[cfg(feature = "grpc")]
        if paths.envelope && grpc::envelope::is_path(path) {
            return Self::Envelope;
        }
        if let Some(rest) = paths.below_http_json_v0_3(path) {
            return Self::HttpJson(rest.to_owned(), Generation::Older);
        }
        if let Some(rest) = below_artifacts(path).filter(|_| reserved.artifacts) {
            return Self::Content(ContentPath::read(rest));
        }
        if reserved.agents && is_same_path(agents::PATH, path) {
            return Self::Agents;
        }
        match path {
            card::PATH | card::OLDEST_PATH => Self::Card,
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            path => match paths.http_json_prefix().and_then(|prefix| path.strip_prefix(prefix)) {
                // At the root, the binding has only the paths of its operations. The others belong to the application.
                Some(rest) if rest.len() == path.len() && !operation_path::exists(rest) => Self::Fallback,
                Some(rest) if rest.starts_with('/') => Self::HttpJson(rest.to_owned(), Generation::Current),
                Some(_) | None => Self::Fallback,
            },
        }
    }

    /// The binding that answers, if it is one.
    pub(super) fn binding(&self) -> Option<&'static str> {
        match self {
            Self::JsonRpc => Some(binding::JSONRPC),
            Self::WebSocket => Some(websocket::BINDING),
            #[cfg(feature = "grpc")]
            Self::Grpc(_) => Some(binding::GRPC),
            #[cfg(feature = "grpc")]
            Self::Envelope => Some(grpc::envelope::BINDING),
            Self::HttpJson(..) => Some(binding::HTTP_JSON),
            // A download counts as a request of its caller until it is written.
            Self::Content(_) => Some(NO_BINDING),
            Self::Card | Self::Keys | Self::Agents | Self::Health | Self::Ready | Self::Fallback => None,
        }
    }

    /// Whether it is a health check.
    pub(super) fn is_health(&self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }

    /// What kind of response a request gets, which decides how it is protected from web pages.
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            // A WebSocket connection has no body, and a page may open one without a preflight request. Its origin is checked.
            Self::JsonRpc | Self::WebSocket | Self::HttpJson(..) | Self::Content(_) => Purpose::Json,
            #[cfg(feature = "grpc")]
            Self::Grpc(_) | Self::Envelope => Purpose::Grpc,
            Self::Card | Self::Keys | Self::Agents => Purpose::Document,
            Self::Health | Self::Ready => Purpose::Health,
            Self::Fallback => Purpose::Fallback,
        }
    }

    /// Whether it is answered without credentials, even where the server authenticates callers.
    pub(super) fn is_public(&self, options: &ServerOptions) -> bool {
        match self {
            Self::JsonRpc | Self::HttpJson(..) | Self::Content(_) => false,
            #[cfg(feature = "grpc")]
            Self::Grpc(_) | Self::Envelope => false,
            // Credentials may follow in the first message. Each message is authenticated.
            Self::WebSocket => true,
            Self::Card | Self::Agents => options.public_card,
            Self::Health | Self::Ready => options.public_health,
            Self::Keys | Self::Fallback => true,
        }
    }
}

/// Whether a request asks for a WebSocket connection.
pub(crate) fn is_upgrade(head: &Parts) -> bool {
    head.method == Method::GET
        && head.headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The URI that the client sent, where the server has taken the name of an agent from it. The logs name this one.
#[derive(Clone)]
pub(crate) struct RequestedUri(pub(crate) Uri);

/// The URI of a request as the client sent it.
pub(super) fn requested_uri(head: &Parts) -> &Uri {
    head.extensions.get::<RequestedUri>().map_or(&head.uri, |RequestedUri(uri)| uri)
}

/// The rest of a path below the path of artifacts.
fn below_artifacts(path: &str) -> Option<&str> {
    path.strip_prefix(ARTIFACTS_PATH)?.strip_prefix('/')
}

/// Whether two paths are the same, with or without a slash at the end.
pub(crate) fn is_same_path(own: &str, path: &str) -> bool {
    own == path || path.strip_suffix('/').is_some_and(|path| own == path)
}
