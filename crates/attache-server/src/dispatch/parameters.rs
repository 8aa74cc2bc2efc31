//! Service parameters: what a request carries beside its arguments. Version, extensions, idempotency key, the last event seen.

use attache_core::{Quota, Seq, TraceParent};
use attache_protocol::{Error, ErrorKind, Extensions, Version};
use http::HeaderMap;

use crate::transport::exchange::Additions;

/// The header for extensions, and its name before 1.0. Clients that speak both versions send both.
const EXTENSIONS: [&str; 2] = ["a2a-extensions", "x-a2a-extensions"];

/// The header that names the trace of a request.
pub(crate) const TRACE_PARENT: &str = "traceparent";

/// The service parameters of a request.
#[derive(Debug)]
pub(crate) struct ServiceParameters {
    version: Stated,
    pub(crate) extensions: Extensions,
    pub(crate) idempotency_key: Option<String>,
    /// The key of a send whose client gave none. Transports that can deliver a request twice set it.
    pub(crate) delivery_key: Option<String>,
    /// How many streams the transport may have at once, if it limits them.
    pub(crate) streams: Option<Quota>,
    pub(crate) resume: Option<Seq>,
    pub(crate) trace_parent: Option<TraceParent>,
}

/// The version that a request states.
#[derive(Debug)]
enum Stated {
    None,
    Version(Version),
    Unreadable(String),
}

impl Stated {
    fn read(text: &str) -> Self {
        match text.trim() {
            "" => Self::None,
            "1.0" => Self::Version(Version::V1_0),
            text => text.parse().map_or_else(|()| Self::Unreadable(text.to_owned()), Self::Version),
        }
    }
}

/// The protocol generation that a request looks like, where it does not state its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// 1.0 and later.
    Current,
    /// Before 1.0.
    Older,
}

/// The versions that the server supports.
const SUPPORTED: [Version; 2] = [Version::V1_0, Version::V1_1];

impl ServiceParameters {
    pub(crate) fn read(headers: &HeaderMap, query: Option<&str>) -> Result<Self, Error> {
        let (mut version, mut key, mut last_event, mut extended, mut traced) =
            (None, None, None, false, false);
        // Requests have few headers: one pass over them costs less than a lookup for each name.
        for (name, value) in headers {
            match name.as_str() {
                "a2a-version" => version = version.or(Some(value)),
                name if EXTENSIONS.contains(&name) => extended = true,
                "idempotency-key" => key = key.or(Some(value)),
                "last-event-id" => last_event = last_event.or(Some(value)),
                TRACE_PARENT => traced = true,
                _ => {}
            }
        }
        let version = match (version, query) {
            (Some(value), _) => Stated::read(value.to_str().unwrap_or("?")),
            (None, Some(query)) => version_in_query(query),
            (None, None) => Stated::None,
        };
        let extensions = if extended {
            let fields = EXTENSIONS.iter().flat_map(|name| headers.get_all(*name));
            Extensions::parse(fields.filter_map(|value| value.to_str().ok()))
        } else {
            Extensions::default()
        };
        let idempotency_key = match key {
            None => None,
            Some(value) => Some(idempotency_key(value.as_bytes())?),
        };
        let resume = match last_event.map(|value| value.to_str().map(str::trim)) {
            None | Some(Ok("")) => None,
            Some(Ok(text)) if text.bytes().all(|b| b.is_ascii_digit()) && text.len() < 20 => {
                text.parse().ok().map(Seq)
            }
            Some(_) => {
                let text = "expected the `id` of an event of this task's stream, a number";
                return Err(Error::invalid_params("Last-Event-ID", text));
            }
        };
        let trace_parent = if traced { trace_parent(headers) } else { None };
        let (delivery_key, streams) = (None, None);
        Ok(Self { version, extensions, idempotency_key, delivery_key, streams, resume, trace_parent })
    }

    /// The same with what a transport adds.
    pub(crate) fn with(self, Additions { delivery_key, streams }: Additions) -> Self {
        Self { delivery_key, streams, ..self }
    }

    /// The version of the request, if the server supports it.
    pub(crate) fn version(&self, generation: Generation, strict: bool) -> Result<Version, Error> {
        let version = match &self.version {
            Stated::Version(version) => Some(*version),
            Stated::Unreadable(_) => None,
            Stated::None if strict || generation == Generation::Older => Some(Version::V0_3),
            Stated::None => Some(Version::V1_0),
        };
        if let Some(version) = version.filter(|version| SUPPORTED.contains(version)) {
            return Ok(version);
        }
        let asked = match &self.version {
            Stated::Version(version) => format!("version `{version}`"),
            Stated::Unreadable(text) => format!("version `{}`", text.chars().take(32).collect::<String>()),
            Stated::None => "a request without `A2A-Version`, which means version 0.3,".to_owned(),
        };
        let text = format!("{asked} is not supported here: send `A2A-Version: 1.0`");
        let supported = SUPPORTED.map(|version| version.to_string()).join(", ");
        Err(Error::new(ErrorKind::VersionNotSupported, text).with("supportedVersions", supported))
    }

    /// Whether the request states a version before 1.0.
    pub(crate) fn states_older(&self) -> bool {
        matches!(&self.version, Stated::Version(version) if *version < Version::V1_0)
    }

    /// Whether the request may be in a dialect before 1.0: it states such a version, or it states none and the server is not strict.
    pub(crate) fn allows_older(&self, strict: bool) -> bool {
        match &self.version {
            Stated::None => !strict,
            Stated::Version(version) => *version < Version::V1_0,
            Stated::Unreadable(_) => false,
        }
    }
}

/// The trace that a request belongs to. A header that is invalid or repeated counts as none.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACE_PARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok()?.parse().ok(),
        (_, _) => None,
    }
}

/// The version that a request for a document prefers. A version that cannot be parsed counts as none.
pub(crate) fn stated_version(headers: &HeaderMap, query: Option<&str>) -> Option<Version> {
    let stated = match (headers.get("a2a-version"), query) {
        (Some(value), _) => Stated::read(value.to_str().unwrap_or_default()),
        (None, Some(query)) => version_in_query(query),
        (None, None) => Stated::None,
    };
    match stated {
        Stated::Version(version) => Some(version),
        Stated::None | Stated::Unreadable(_) => None,
    }
}

/// Whether a request for a document names an extension.
pub(crate) fn names_extension(headers: &HeaderMap, uri: &str) -> bool {
    let fields = EXTENSIONS.iter().flat_map(|name| headers.get_all(*name));
    Extensions::parse(fields.filter_map(|value| value.to_str().ok())).contains(uri)
}

fn version_in_query(query: &str) -> Stated {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version")) {
        Some((_, value)) => Stated::read(&percent_encoding::percent_decode_str(value).decode_utf8_lossy()),
        None => Stated::None,
    }
}

/// An idempotency key, with or without the quotes of HTTP's structured fields.
fn idempotency_key(value: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(value).ok().map(str::trim);
    let key = match text {
        Some(text) if text.starts_with('"') => {
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).filter(|key| !key.contains('"'))
        }
        Some(text) => Some(text),
        None => None,
    };
    match key {
        Some(key) if !key.is_empty() => Ok(key.to_owned()),
        Some(_) => Err(Error::invalid_params(
            "Idempotency-Key",
            "is empty: leave the header out, or give it a value",
        )),
        None => Err(Error::invalid_params(
            "Idempotency-Key",
            "expected printable ASCII characters, or a quoted string",
        )),
    }
}
