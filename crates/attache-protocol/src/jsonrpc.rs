//! The envelope of the JSON-RPC binding.
//!
//! [`parse`] checks the depth of a request and parses it. Usual requests are parsed in one pass, the envelope together with the
//! arguments. For all others, [`Call::parse`] parses the envelope alone: its errors are exact, and it leaves the arguments to a
//! dialect. [`write_response`] writes the envelope around a result.

use std::borrow::Cow;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::dialect::TaggedSend;
use crate::json::{self, lenient::Object};
use crate::{Dialect, Error, ErrorKind, Operation, Request, limits};

/// The id of a request, as JSON text. The response repeats it unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(Option<Box<str>>);

impl Id {
    /// The id of a response to a request without an id.
    pub const NULL: Self = Self(None);

    /// Parses an id. `None` if the text is no valid id.
    fn parse(text: &str) -> Option<Self> {
        match text.as_bytes().first() {
            _ if text.len() > limits::JSONRPC_ID => None,
            _ if text == "null" => Some(Self::NULL),
            Some(b'"' | b'-' | b'0'..=b'9') => Some(Self(Some(text.into()))),
            Some(_) | None => None,
        }
    }

    /// The id as JSON text.
    pub fn as_json(&self) -> &str {
        self.0.as_deref().unwrap_or("null")
    }
}

/// A JSON-RPC request whose arguments are still text.
#[derive(Debug)]
pub struct Call<'a> {
    /// The id. A notification has none and gets no response.
    pub id: Option<Id>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The arguments: a JSON object, or `{}` if there are none.
    pub params: &'a [u8],
}

/// The error of a request whose envelope is invalid.
#[derive(Debug)]
pub struct InvalidCall {
    /// The id for the response; null if it could not be parsed.
    pub id: Id,
    /// The error.
    pub error: Error,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some_or_null")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Distinguishes an id of `null` from a missing id.
fn some_or_null<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Parses a string. A string without escapes is not copied.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(raw.get()) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

impl<'a> Call<'a> {
    /// Parses the envelope of a request.
    pub fn parse(body: &'a [u8]) -> Result<Self, InvalidCall> {
        let reject = |id: Id, error| Err(InvalidCall { id, error });
        let Ok(Object(envelope)) = serde_json::from_slice::<Object<Envelope<'a>>>(body) else {
            let error = match (serde_json::from_slice::<&RawValue>(body), body.trim_ascii_start().first()) {
                (Err(error), _) => Error::new(ErrorKind::Parse, format!("the body is not JSON: {error}")),
                (Ok(_), Some(b'[')) => Error::new(
                    ErrorKind::InvalidRequest,
                    "batches are not supported, send one request at a time",
                ),
                (Ok(_), Some(_) | None) => Error::new(
                    ErrorKind::InvalidRequest,
                    "expected a JSON-RPC 2.0 request object with each member at most once",
                ),
            };
            return reject(Id::NULL, error);
        };
        let id = match envelope.id.map(|id| Id::parse(id.get())) {
            None => None,
            Some(Some(id)) => Some(id),
            Some(None) => {
                let limit = limits::JSONRPC_ID;
                let text = format!("`id` must be a string, a number or null, of at most {limit} bytes");
                return reject(Id::NULL, Error::new(ErrorKind::InvalidRequest, text));
            }
        };
        let invalid = |what: &'static str| {
            let id = id.clone().unwrap_or(Id::NULL);
            Err(InvalidCall { id, error: Error::new(ErrorKind::InvalidRequest, what) })
        };
        if envelope.jsonrpc.and_then(string).as_deref() != Some("2.0") {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let method = match envelope.method.map(string) {
            Some(Some(method)) if !method.is_empty() => method,
            Some(_) => return invalid("`method` must be a non-empty string"),
            None => return invalid("`method` is required"),
        };
        let params = match envelope.params.map(RawValue::get) {
            None | Some("null") => b"{}",
            Some(params) if params.starts_with('{') => params.as_bytes(),
            Some(_) => {
                let error = Error::invalid_params("params", "expected an object");
                return reject(id.unwrap_or(Id::NULL), error);
            }
        };
        Ok(Self { id, method, params })
    }

    /// The id of a request that is rejected in any case.
    pub fn peek_id(body: &[u8]) -> Id {
        match Call::parse(body) {
            Ok(call) => call.id.unwrap_or(Id::NULL),
            Err(invalid) => invalid.id,
        }
    }
}

/// What a server accepts as a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseRules {
    /// How deep arrays and objects may be nested.
    pub max_depth: usize,
    /// Whether the request may be one of 0.3.
    pub allow_v0_3: bool,
}

/// A request, as far as it can be parsed before its version is known.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// The complete request.
    Request(ParsedRequest),
    /// The envelope of an unusual request.
    Call(Call<'a>),
}

/// Checks the depth of a request, and parses it.
pub fn parse(body: &[u8], rules: ParseRules) -> Result<Parsed<'_>, InvalidCall> {
    let ParseRules { max_depth, allow_v0_3 } = rules;
    if json::is_deeper_than(body, max_depth) {
        let error = Error::new(ErrorKind::InvalidRequest, format!("the body nests deeper than {max_depth}"));
        return Err(InvalidCall { id: Id::NULL, error });
    }
    match ParsedRequest::parse(body, allow_v0_3) {
        Some(request) => Ok(Parsed::Request(request)),
        None => Call::parse(body).map(Parsed::Call),
    }
}

/// A request that was parsed in one pass with its envelope, as nearly all requests are.
#[derive(Debug)]
pub struct ParsedRequest {
    /// The id.
    pub id: Id,
    /// The operation and its arguments.
    pub request: Request,
    /// The dialect of the request, if it is not 1.0.
    pub dialect: Option<Dialect>,
}

/// A method whose arguments can be parsed together with the envelope.
#[derive(Clone, Copy)]
enum Method {
    V1_0(Operation),
    V0_3(TaggedSend),
}

impl ParsedRequest {
    /// Parses a valid request whose `method` comes before its `params`. Returns `None` for all other requests; [`Call::parse`]
    /// handles those.
    fn parse(body: &[u8], allow_v0_3: bool) -> Option<Self> {
        struct Members {
            allow_v0_3: bool,
        }

        impl<'de> Visitor<'de> for Members {
            type Value = ParsedRequest;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON-RPC request")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedRequest, A::Error> {
                let unusual = || A::Error::custom("unusual");
                let v0_3 = |name| TaggedSend::from_method(name).filter(|_| self.allow_v0_3).map(Method::V0_3);
                let known = |name| Operation::from_name(name).map(Method::V1_0).or_else(|| v0_3(name));
                let (mut version, mut id, mut method, mut request) = (None, None, None, None);
                while let Some(key) = map.next_key::<&str>()? {
                    let new = match key {
                        "jsonrpc" => version.replace(map.next_value::<&str>()?).is_none(),
                        "id" => id.replace(map.next_value::<&RawValue>()?).is_none(),
                        "method" => method.replace(known(map.next_value()?).ok_or_else(unusual)?).is_none(),
                        "params" => {
                            let read = match method.ok_or_else(unusual)? {
                                Method::V1_0(operation) => (map.next_value_seed(operation)?, None),
                                Method::V0_3(send) => (map.next_value_seed(send)?, Some(Dialect::V0_3)),
                            };
                            request.replace(read).is_none()
                        }
                        _ => map.next_value::<IgnoredAny>().is_ok(),
                    };
                    if !new {
                        return Err(unusual());
                    }
                }
                match (version, id.and_then(|id| Id::parse(id.get())), request) {
                    (Some("2.0"), Some(id), Some((request, dialect))) => {
                        Ok(ParsedRequest { id, request, dialect })
                    }
                    (Some(_) | None, _, _) => Err(unusual()),
                }
            }
        }

        // The UTF-8 of the body is checked once, and not again for each string.
        let mut reader = serde_json::Deserializer::from_str(std::str::from_utf8(body).ok()?);
        let parsed = reader.deserialize_map(Members { allow_v0_3 }).ok()?;
        reader.end().ok()?;
        Some(parsed)
    }
}

/// Writes a response to `id` around the result that `write_result` writes.
pub fn write_response(id: &Id, out: &mut Vec<u8>, write_result: impl FnOnce(&mut Vec<u8>)) {
    write_result_prefix(id, out);
    write_result(out);
    out.extend_from_slice(RESULT_SUFFIX.as_bytes());
}

/// Writes the text before the result in a response to `id`.
pub fn write_result_prefix(id: &Id, out: &mut Vec<u8>) {
    for piece in [r#"{"jsonrpc":"2.0","id":"#, id.as_json(), r#","result":"#] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// The text after the result.
pub const RESULT_SUFFIX: &str = "}";

/// An error response to `id`.
pub fn error_response(id: &Id, error: &Error) -> Vec<u8> {
    error_response_as(id, error, error.kind().jsonrpc_code())
}

/// The same with another code.
pub(crate) fn error_response_as(id: &Id, error: &Error, code: i32) -> Vec<u8> {
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{},"error":"#, id.as_json()).into_bytes();
    // Writing strings and numbers into memory cannot fail.
    if json::write(&mut out, &error.to_jsonrpc_as(code)).is_err() {
        out.extend_from_slice(br#"{"code":-32603,"message":"internal error"}"#);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_and_code(body: &str) -> (String, i32) {
        let invalid = Call::parse(body.as_bytes()).unwrap_err();
        (invalid.id.as_json().to_owned(), invalid.error.kind().jsonrpc_code())
    }

    #[test]
    fn ids_are_echoed_unchanged() {
        for id in [r#""r1""#, "1", "0", r#""""#, "-7", "1.50", r#""\u00e9""#, "null"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert_eq!(Call::parse(body.as_bytes()).unwrap().id.unwrap().as_json(), id);
        }
        assert!(Call::parse(br#"{"jsonrpc":"2.0","method":"m"}"#).unwrap().id.is_none());
    }

    #[test]
    fn each_error_of_an_envelope_has_its_code() {
        for (body, id, code) in [
            ("", "null", -32700),
            ("{", "null", -32700),
            ("\u{0}", "null", -32700),
            ("[", "null", -32700),
            ("[]", "null", -32600),
            ("[1,2,3,4,5]", "null", -32600),
            (r#"["2.0",1,"m",{}]"#, "null", -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "null", -32600),
            ("7", "null", -32600),
            (r#"{"id":1,"method":"m"}"#, "1", -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "1", -32600),
            (r#"{"jsonrpc":2,"id":1,"method":"m"}"#, "1", -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, "1", -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, "1", -32600),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "null", -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null", -32600),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, "null", -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, "1", -32602),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, "1", -32602),
        ] {
            assert_eq!(id_and_code(body), (id.to_owned(), code), "{body}");
        }
    }
}
