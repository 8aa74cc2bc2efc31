//! Parsing a request entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use attache_redis::field;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The longest correlation id and the longest name of a reply stream, in bytes.
const MAX_CORRELATION: usize = 512;
const MAX_REPLY_STREAM: usize = 512;

/// What requests must keep.
pub(super) struct Rules<'a> {
    pub(super) response_stream: &'a str,
    /// What the names of other reply streams begin with.
    pub(super) prefix: &'a str,
    pub(super) max_entry: usize,
    pub(super) max_headers: usize,
}

/// A request.
pub(super) struct RequestEntry {
    pub(super) reply: ReplyTo,
    /// The JSON-RPC request.
    pub(super) payload: Vec<u8>,
    /// Service parameters and credentials.
    pub(super) headers: HeaderMap,
}

/// Where responses go.
#[derive(Clone)]
pub(super) struct ReplyTo {
    pub(super) stream: Arc<[u8]>,
    pub(super) correlation: Arc<[u8]>,
    /// Whether the client keeps its reply stream until it ends, and reads heartbeats.
    pub(super) is_live: bool,
}

/// Why an entry is not a request.
pub(super) struct Refused {
    pub(super) reason: String,
    /// Where the client waits for a response, if that is known and allowed.
    pub(super) reply: Option<ReplyTo>,
}

impl Refused {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), reply: None }
    }
}

/// Parses an entry.
///
/// Fields beside those of the envelope are headers: `authorization`, `a2a-version`, `idempotency-key`, `agent` and so on. So are the
/// members of the field `headers`, an object of strings. No name may occur twice: one request has one credential.
///
/// A refused entry keeps its fields. Otherwise the payload is taken out of them.
pub(super) fn parse(fields: &mut [(Vec<u8>, Vec<u8>)], rules: &Rules<'_>) -> Result<RequestEntry, Refused> {
    let size: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    let (mut correlation, mut stream, mut payload, mut is_live) = (None, None, None, false);
    let (mut headers, mut in_json, mut twice) = (HeaderMap::new(), None, None);
    let (mut headers_size, mut is_full) = (0, false);
    for (i, (name, value)) in fields.iter().enumerate() {
        let again = match std::str::from_utf8(name) {
            Ok(field::CORRELATION_ID) => correlation.replace(value.as_slice()).map(|_| field::CORRELATION_ID),
            Ok(field::REPLY_STREAM) => stream.replace(value.as_slice()).map(|_| field::REPLY_STREAM),
            Ok(field::PAYLOAD) => payload.replace(i).map(|_| field::PAYLOAD),
            Ok(field::HEADERS) => in_json.replace(value.as_slice()).map(|_| field::HEADERS),
            Ok(field::HEARTBEAT) => {
                is_live = value == b"true";
                None
            }
            Ok(_) | Err(_) => {
                headers_size += name.len() + value.len();
                // What is not valid in a header is ignored, as unknown headers are.
                match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                    (Ok(name), Ok(value)) => match headers.try_insert(name, value) {
                        Ok(earlier) => earlier.map(|_| "a header"),
                        Err(_) => {
                            is_full = true;
                            None
                        }
                    },
                    (_, _) => None,
                }
            }
        };
        twice = twice.or(again);
    }
    let stream = stream.filter(|stream| !stream.is_empty()).unwrap_or(rules.response_stream.as_bytes());
    let correlation = match correlation.filter(|correlation| !correlation.is_empty()) {
        Some(correlation) if correlation.len() <= MAX_CORRELATION => correlation,
        Some(_) => {
            return Err(Refused::new(format!("`correlation_id` is longer than {MAX_CORRELATION} bytes")));
        }
        None => return Err(Refused::new("there is no `correlation_id`")),
    };
    let is_shared = stream == rules.response_stream.as_bytes();
    let is_own = stream.len() <= MAX_REPLY_STREAM && stream.starts_with(rules.prefix.as_bytes());
    if !is_shared && !is_own {
        let Rules { response_stream: own, prefix, .. } = rules;
        return Err(Refused::new(format!(
            "`reply_stream` is neither `{own}` nor a name of at most {MAX_REPLY_STREAM} bytes that begins with `{prefix}`"
        )));
    }
    // Other clients read the shared stream too. It stays when one of them ends.
    let is_live = is_live && !is_shared;
    let reply = ReplyTo { stream: stream.into(), correlation: correlation.into(), is_live };
    let refused = |reason: String| Refused { reason, reply: Some(reply.clone()) };
    if size > rules.max_entry {
        return Err(refused(format!(
            "the entry has {size} bytes, and at most {} are accepted",
            rules.max_entry
        )));
    }
    if let Some(name) = twice {
        return Err(refused(format!("{name} occurs twice")));
    }
    let too_many = || refused("there are too many headers".to_owned());
    if is_full {
        return Err(too_many());
    }
    if let Some(json) = in_json {
        headers_size += json.len();
        // The text of the error can quote a value, which can be a credential.
        let more: BTreeMap<String, String> = serde_json::from_slice(json)
            .map_err(|_| refused("`headers` is not a JSON object of strings".to_owned()))?;
        for (name, value) in more {
            let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
            let Ok(value) = HeaderValue::from_str(&value) else { continue };
            if headers.try_insert(name, value).map_err(|_| too_many())?.is_some() {
                return Err(refused("a header occurs twice".to_owned()));
            }
        }
    }
    let limit = rules.max_headers;
    if headers_size > limit {
        return Err(refused(format!(
            "the headers have {headers_size} bytes, and at most {limit} are accepted"
        )));
    }
    match payload {
        Some(i) => Ok(RequestEntry { reply, payload: std::mem::take(&mut fields[i].1), headers }),
        None => Err(refused("there is no `payload`".to_owned())),
    }
}

/// A request as [`parse_entry`] reads it.
#[derive(Debug)]
pub struct ParsedEntry {
    /// The stream that responses are added to.
    pub reply_stream: Vec<u8>,
    /// What the responses have in common with the request.
    pub correlation: Vec<u8>,
    /// Whether the reply stream ends with its client.
    pub is_live: bool,
    /// The JSON-RPC request.
    pub payload: Vec<u8>,
    /// Service parameters and credentials.
    pub headers: HeaderMap,
}

/// Parses an entry of the stream `requests`, with the response stream `responses`. For fuzzing: the parser has no public caller.
pub fn parse_entry(
    fields: &mut [(Vec<u8>, Vec<u8>)],
    max_entry: usize,
    max_headers: usize,
) -> Result<ParsedEntry, String> {
    let rules = Rules { response_stream: "responses", prefix: "responses:", max_entry, max_headers };
    let RequestEntry { reply, payload, headers } = parse(fields, &rules).map_err(|refused| refused.reason)?;
    Ok(ParsedEntry {
        reply_stream: reply.stream.to_vec(),
        correlation: reply.correlation.to_vec(),
        is_live: reply.is_live,
        payload,
        headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules<'_> =
        Rules { response_stream: "responses", prefix: "responses:", max_entry: 1000, max_headers: 100 };

    fn entry(fields: &[(&str, &str)]) -> Result<RequestEntry, String> {
        let mut fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        parse(&mut fields, &RULES).map_err(|refused| refused.reason)
    }

    const CORRELATED: (&str, &str) = ("correlation_id", "c-1");

    #[test]
    fn the_fields_of_existing_peers_are_enough() {
        let fields = [CORRELATED, ("reply_stream", "responses"), ("payload", "{}")];
        let RequestEntry { reply, payload, headers } = entry(&fields).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (&*reply.stream, &*reply.correlation, reply.is_live),
            (&b"responses"[..], &b"c-1"[..], false)
        );
        assert_eq!((payload.as_slice(), headers.is_empty()), (&b"{}"[..], true));
        let without = entry(&[CORRELATED, ("payload", "{}")]).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(&*without.reply.stream, b"responses");
    }

    #[test]
    fn a_reply_stream_outside_the_prefix_is_refused() {
        for allowed in ["responses", "responses:a", "responses:a:b"] {
            assert!(entry(&[CORRELATED, ("reply_stream", allowed), ("payload", "{}")]).is_ok(), "{allowed}");
        }
        let long = format!("responses:{}", "a".repeat(600));
        for other in ["requests", "responses2", "response", " responses:a", "x:responses:a", &long] {
            let error =
                entry(&[CORRELATED, ("reply_stream", other), ("payload", "{}")]).err().unwrap_or_default();
            assert!(error.contains("begins with `responses:`"), "{other}: {error}");
        }
    }

    #[test]
    fn other_fields_are_headers_and_none_occurs_twice() {
        let json = ("headers", r#"{"A2A-Version":"1.0","Idempotency-Key":"k"}"#);
        let request = entry(&[CORRELATED, ("payload", "{}"), ("authorization", "Bearer t"), json]);
        let headers = request.unwrap_or_else(|why| panic!("{why}")).headers;
        assert_eq!(
            (headers["authorization"].as_bytes(), headers["a2a-version"].as_bytes()),
            (&b"Bearer t"[..], &b"1.0"[..])
        );
        for twice in [
            [("authorization", "a"), ("Authorization", "b")],
            [("authorization", "a"), ("headers", r#"{"authorization":"b"}"#)],
            [("payload", "{}"), ("a", "b")],
        ] {
            let [one, other] = twice;
            let error = entry(&[CORRELATED, ("payload", "{}"), one, other]).err().unwrap_or_default();
            assert!(error.contains("occurs twice"), "{twice:?}: {error}");
        }
    }

    #[test]
    fn what_is_missing_or_too_large_is_named() {
        let large = "x".repeat(1000);
        let header = "x".repeat(100);
        for (fields, why) in [
            (vec![("payload", "{}")], "no `correlation_id`"),
            (vec![("correlation_id", ""), ("payload", "{}")], "no `correlation_id`"),
            (vec![CORRELATED], "no `payload`"),
            (vec![CORRELATED, ("payload", large.as_str())], "at most 1000 are accepted"),
            (vec![CORRELATED, ("payload", "{}"), ("x", header.as_str())], "at most 100 are accepted"),
            (vec![CORRELATED, ("payload", "{}"), ("headers", "[]")], "JSON object of strings"),
            (vec![("correlation_id", large.as_str()), ("payload", "{}")], "longer than 512"),
        ] {
            let error = entry(&fields).err().unwrap_or_default();
            assert!(error.contains(why), "{fields:?}: {error}");
        }
    }

    #[test]
    fn the_reason_for_a_refusal_quotes_no_credential() {
        for headers in [r#""Bearer s3cret""#, r#"{"authorization": ["Bearer s3cret"]}"#, r#"["s3cret"]"#] {
            let error =
                entry(&[CORRELATED, ("payload", "{}"), ("headers", headers)]).err().unwrap_or_default();
            assert_eq!(error, "`headers` is not a JSON object of strings");
        }
    }

    #[test]
    fn more_headers_than_a_map_of_headers_can_hold_are_refused() {
        let rules = Rules { max_entry: usize::MAX, max_headers: usize::MAX, ..RULES };
        let mut fields =
            vec![(b"correlation_id".to_vec(), b"c".to_vec()), (b"payload".to_vec(), b"{}".to_vec())];
        fields.extend((0..40_000).map(|i| (format!("x{i}").into_bytes(), Vec::new())));
        let reason = parse(&mut fields, &rules).err().map(|refused| refused.reason);
        assert_eq!(reason.as_deref(), Some("there are too many headers"));
        assert_eq!(fields[1].1, b"{}", "a refused entry keeps its fields");
    }

    #[test]
    fn the_shared_response_stream_never_ends_with_a_client() {
        let request = |stream| {
            let fields = [CORRELATED, ("payload", "{}"), ("heartbeat", "true"), ("reply_stream", stream)];
            entry(&fields).is_ok_and(|request| request.reply.is_live)
        };
        assert!(request("responses:own") && !request("responses"));
    }
}
