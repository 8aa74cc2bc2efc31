//! Which SDK a server of 0.3 was built with, as far as its responses show it.
//!
//! The SDKs of 0.3 disagree about the bytes of files: over HTTP+JSON the one for Python encodes them twice, and over gRPC the one for
//! JavaScript does not encode them at all. Neither can read the form of the other. A card does not name the SDK, but the headers of
//! its response name the web server that the SDK brings.

use attache_protocol::dialect::v0_3::proto_json::FileEncoding;
use reqwest::header::{HeaderMap, SERVER};

/// The SDK of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    JavaScript,
    Unknown,
}

/// Web servers for Python.
const PYTHON_SERVERS: [&str; 4] = ["uvicorn", "hypercorn", "gunicorn", "granian"];

impl Sdk {
    /// The SDK of the server that sent these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |value: Option<&reqwest::header::HeaderValue>| {
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase()
        };
        let server = text(headers.get(SERVER));
        if PYTHON_SERVERS.iter().any(|name| server.contains(name)) {
            Self::Python
        } else if text(headers.get("x-powered-by")).contains("express") {
            Self::JavaScript
        } else {
            Self::Unknown
        }
    }

    /// How it encodes files over HTTP+JSON of 0.3.
    pub(crate) fn file_encoding(self) -> FileEncoding {
        match self {
            Self::Python => FileEncoding::Twice,
            Self::JavaScript | Self::Unknown => FileEncoding::Once,
        }
    }

    /// How it writes files over gRPC of 0.3.
    #[cfg(feature = "grpc")]
    pub(crate) fn file_form(self) -> attache_grpc::v0_3::FileForm {
        use attache_grpc::v0_3::FileForm;
        match self {
            Self::JavaScript => FileForm::Plain,
            Self::Python | Self::Unknown => FileForm::Base64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_server_shows_the_sdk() {
        let of = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            Sdk::of(&headers)
        };
        assert_eq!(of("server", "uvicorn"), Sdk::Python);
        assert_eq!(of("server", "hypercorn-h11"), Sdk::Python);
        assert_eq!(of("x-powered-by", "Express"), Sdk::JavaScript);
        assert_eq!(of("server", "nginx"), Sdk::Unknown);
        assert_eq!(Sdk::of(&HeaderMap::new()), Sdk::Unknown);
    }
}
