//! The headers of a request that do not depend on the binding.

use reqwest::header::{HeaderName, HeaderValue};

use crate::ClientError;

const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const X_A2A_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The headers of a request that do not depend on the binding.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHeaders {
    extensions: Option<HeaderValue>,
    idempotency_key: Option<HeaderValue>,
    last_event: Option<HeaderValue>,
    trace_parent: Option<HeaderValue>,
}

/// The name of the header that lists extensions. It changed with 1.0, and some servers know both names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtensionHeader {
    Current,
    Both,
}

impl RequestHeaders {
    /// Fails if a value cannot be sent as a header.
    pub(crate) fn new<'a>(
        extensions: impl IntoIterator<Item = &'a str>,
        idempotency_key: Option<&str>,
    ) -> Result<Self, ClientError> {
        let mut uris: Vec<&str> = Vec::new();
        for uri in extensions {
            if uri.is_empty() || uri.contains(|c: char| !c.is_ascii_graphic() || c == ',') {
                return Err(ClientError::Invalid(format!(
                    "`{}` is not the URI of an extension",
                    uri.escape_debug()
                )));
            }
            if !uris.contains(&uri) {
                uris.push(uri);
            }
        }
        let value = |text: &str, what: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| ClientError::Invalid(format!("{what} cannot be sent as a header")))
        };
        let extensions =
            (!uris.is_empty()).then(|| value(&uris.join(", "), "the list of extensions")).transpose()?;
        let idempotency_key = match idempotency_key.map(str::trim) {
            None => None,
            Some(key) if key.is_empty() || key.contains(|c: char| !(' '..='~').contains(&c)) => {
                let text = "an idempotency key must consist of printable ASCII characters, at least one";
                return Err(ClientError::Invalid(text.to_owned()));
            }
            Some(key) => Some(value(key, "the idempotency key")?),
        };
        Ok(Self { extensions, idempotency_key, ..Self::default() })
    }

    /// The headers for a stream that continues after this event. An id that is not valid in a header is ignored.
    pub(crate) fn resuming(&self, last_event: Option<&str>) -> Self {
        let last_event = last_event.and_then(|id| HeaderValue::from_str(id).ok());
        Self { idempotency_key: None, last_event, ..self.clone() }
    }

    /// The same headers with the trace that the request belongs to.
    pub(crate) fn with_trace_parent(self, trace_parent: Option<&str>) -> Result<Self, ClientError> {
        let value = trace_parent.map(HeaderValue::from_str).transpose();
        let invalid = |_| ClientError::Invalid("the trace cannot be sent as a header".to_owned());
        Ok(Self { trace_parent: value.map_err(invalid)?, ..self })
    }

    /// The same headers with another extension.
    pub(crate) fn with_extension(&self, uri: &'static str) -> Self {
        let listed = self.extensions.as_ref().and_then(|list| list.to_str().ok()).unwrap_or_default();
        let extensions = if listed.is_empty() {
            Some(HeaderValue::from_static(uri))
        } else if listed.split(", ").any(|listed| listed == uri) {
            self.extensions.clone()
        } else {
            HeaderValue::try_from(format!("{listed}, {uri}")).ok()
        };
        Self { extensions, ..self.clone() }
    }

    /// Whether the request may be sent twice without being executed twice.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some()
    }

    pub(crate) fn pairs(&self, name: ExtensionHeader) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let older = (name == ExtensionHeader::Both).then_some(&self.extensions).and_then(Option::as_ref);
        [
            (A2A_EXTENSIONS, self.extensions.as_ref()),
            (X_A2A_EXTENSIONS, older),
            (IDEMPOTENCY_KEY, self.idempotency_key.as_ref()),
            (LAST_EVENT_ID, self.last_event.as_ref()),
            (TRACE_PARENT, self.trace_parent.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_asked_for_once_besides_the_others() {
        for (asked, list) in
            [(vec![], "urn:x"), (vec!["urn:x", "urn:a"], "urn:x, urn:a"), (vec!["urn:xy"], "urn:xy, urn:x")]
        {
            let headers = RequestHeaders::new(asked, None).unwrap().with_extension("urn:x");
            assert_eq!(headers.extensions.unwrap(), list);
        }
    }

    #[test]
    fn values_that_are_not_valid_in_a_header_are_refused_before_they_are_sent() {
        let headers = |uri: &str, key: Option<&str>| RequestHeaders::new([uri, uri], key);
        assert_eq!(headers("urn:a", Some("k1")).unwrap().extensions.unwrap(), "urn:a");
        for (uri, key) in
            [("", None), ("urn:a,urn:b", None), ("a\r\nb", None), ("a", Some("")), ("a", Some("é"))]
        {
            assert!(matches!(headers(uri, key), Err(ClientError::Invalid(_))), "{uri} {key:?}");
        }
    }
}
