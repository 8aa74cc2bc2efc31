//! The envelope of the JSON-RPC binding.
//!
//! [`Whole::read`] reads a request in one go. [`Call::parse`] reads one without touching its arguments, for those who must
//! know what is wrong with it or speak another version. Responses are written around bytes that are already serialized.

use std::borrow::Cow;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::dialect::TaggedSend;
use crate::json::{self, lenient::Object};
use crate::{Dialect, Error, ErrorKind, Operation, Request, limits};

/// The id of a request, as JSON text that is echoed to the letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(Option<Box<str>>);

impl Id {
    /// The id of an answer to something that had none.
    pub const NULL: Self = Self(None);

    /// The id that is written as `text`, if that can be one.
    fn read(text: &str) -> Option<Self> {
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
    /// The id; absent for a notification, which gets no answer.
    pub id: Option<Id>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The arguments: a JSON object, `{}` where none were given.
    pub params: &'a [u8],
}

/// A request that cannot be carried out, with the id to answer to.
#[derive(Debug)]
pub struct Refused {
    /// The id, as far as it could be read.
    pub id: Id,
    /// Why.
    pub error: Error,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Tells an id of `null` from no id at all.
fn even_null<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// The string that a value is, without a copy where it has no escapes.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(raw.get()) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

impl<'a> Call<'a> {
    /// Reads the envelope of a request.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refused> {
        let refuse = |id: Id, error| Err(Refused { id, error });
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
            return refuse(Id::NULL, error);
        };
        let id = match envelope.id.map(|id| Id::read(id.get())) {
            None => None,
            Some(Some(id)) => Some(id),
            Some(None) => {
                let limit = limits::JSONRPC_ID;
                let text = format!("`id` must be a string, a number or null, of at most {limit} bytes");
                return refuse(Id::NULL, Error::new(ErrorKind::InvalidRequest, text));
            }
        };
        let invalid = |what: &'static str| {
            let id = id.clone().unwrap_or(Id::NULL);
            Err(Refused { id, error: Error::new(ErrorKind::InvalidRequest, what) })
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
                return refuse(id.unwrap_or(Id::NULL), error);
            }
        };
        Ok(Self { id, method, params })
    }

    /// The id of a request that will be refused anyway, if it can be had.
    pub fn peek_id(body: &[u8]) -> Id {
        match Call::parse(body) {
            Ok(call) => call.id.unwrap_or(Id::NULL),
            Err(refused) => refused.id,
        }
    }
}

/// A request read in one go: what nearly all requests are.
#[derive(Debug)]
pub struct Whole {
    /// The id.
    pub id: Id,
    /// What is asked.
    pub request: Request,
    /// The dialect that it is in, if it is not in the words of 1.0.
    pub dialect: Option<Dialect>,
}

/// A method of a request that is read in one go.
#[derive(Clone, Copy)]
enum Method {
    Current(Operation),
    Older(TaggedSend),
}

impl Whole {
    /// Reads a request that is as it should be and names its method before its arguments. Nothing for all others:
    /// [`Call::parse`] reads those, and says what is wrong with them. `older` if it may be in an older dialect.
    pub fn read(body: &[u8], older: bool) -> Option<Self> {
        struct Members {
            older: bool,
        }

        impl<'de> Visitor<'de> for Members {
            type Value = Whole;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON-RPC request")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Whole, A::Error> {
                let unusual = || A::Error::custom("unusual");
                let older = |name| TaggedSend::from_method(name).filter(|_| self.older).map(Method::Older);
                let known = |name| Operation::from_name(name).map(Method::Current).or_else(|| older(name));
                let (mut version, mut id, mut method, mut request) = (None, None, None, None);
                while let Some(key) = map.next_key::<&str>()? {
                    let new = match key {
                        "jsonrpc" => version.replace(map.next_value::<&str>()?).is_none(),
                        "id" => id.replace(map.next_value::<&RawValue>()?).is_none(),
                        "method" => method.replace(known(map.next_value()?).ok_or_else(unusual)?).is_none(),
                        "params" => {
                            let read = match method.ok_or_else(unusual)? {
                                Method::Current(operation) => (map.next_value_seed(operation)?, None),
                                Method::Older(send) => (map.next_value_seed(send)?, Some(Dialect::V0_3)),
                            };
                            request.replace(read).is_none()
                        }
                        _ => map.next_value::<IgnoredAny>().is_ok(),
                    };
                    if !new {
                        return Err(unusual());
                    }
                }
                match (version, id.and_then(|id| Id::read(id.get())), request) {
                    (Some("2.0"), Some(id), Some((request, dialect))) => Ok(Whole { id, request, dialect }),
                    (Some(_) | None, _, _) => Err(unusual()),
                }
            }
        }

        // Checked once as a whole, and not again string by string.
        let mut reader = serde_json::Deserializer::from_str(std::str::from_utf8(body).ok()?);
        let whole = reader.deserialize_map(Members { older }).ok()?;
        reader.end().ok()?;
        Some(whole)
    }
}

/// Writes what goes before the result in a response to `id`.
pub fn write_result_prefix(id: &Id, out: &mut Vec<u8>) {
    for piece in [r#"{"jsonrpc":"2.0","id":"#, id.as_json(), r#","result":"#] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// What goes after the result.
pub const RESULT_SUFFIX: &str = "}";

/// A response that refuses `id`.
pub fn error_response(id: &Id, error: &Error) -> Vec<u8> {
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{},"error":"#, id.as_json()).into_bytes();
    // Writing strings and numbers into memory cannot fail.
    if json::write(&mut out, &error.to_jsonrpc()).is_err() {
        out.extend_from_slice(br#"{"code":-32603,"message":"internal error"}"#);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (String, i32) {
        let refused = Call::parse(body.as_bytes()).unwrap_err();
        (refused.id.as_json().to_owned(), refused.error.kind().jsonrpc_code())
    }

    #[test]
    fn ids_are_echoed_to_the_letter() {
        for id in [r#""r1""#, "1", "0", r#""""#, "-7", "1.50", r#""\u00e9""#, "null"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert_eq!(Call::parse(body.as_bytes()).unwrap().id.unwrap().as_json(), id);
        }
        assert!(Call::parse(br#"{"jsonrpc":"2.0","method":"m"}"#).unwrap().id.is_none());
    }

    #[test]
    fn each_fault_of_an_envelope_has_its_code() {
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
            assert_eq!(refused(body), (id.to_owned(), code), "{body}");
        }
    }
}
