//! The output of a function as an HTTP response.

use ::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::HttpBody;

/// The head of a response whose body is still to be written.
pub(super) struct Head {
    status: StatusCode,
    headers: HeaderMap,
}

impl Default for Head {
    fn default() -> Self {
        Self { status: StatusCode::OK, headers: HeaderMap::new() }
    }
}

impl Head {
    /// Applies a message that the function writes before the body.
    pub(super) fn apply(&mut self, text: &str) {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        enum Change {
            SetStatus { status_code: u16 },
            SetHeaders { headers: Value },
        }
        match serde_json::from_str(text) {
            Ok(Change::SetStatus { status_code }) => {
                self.status = status(Some(status_code.into())).unwrap_or(self.status);
            }
            Ok(Change::SetHeaders { headers }) => add_headers(&mut self.headers, &headers),
            Err(error) => tracing::debug!(%error, "a function wrote an unknown message before the body"),
        }
    }

    pub(super) fn into_response(self, body: HttpBody) -> Response<HttpBody> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Creates a response from the result of a function: `{status_code, headers, body}`.
pub(super) fn from_result(result: &RawValue) -> Response<HttpBody> {
    #[derive(Default, Deserialize)]
    struct FunctionResponse<'a> {
        status_code: Option<u64>,
        headers: Option<Value>,
        #[serde(borrow)]
        body: Option<&'a RawValue>,
    }
    let output: FunctionResponse<'_> = serde_json::from_str(result.get()).unwrap_or_default();
    let Some(status) = status(output.status_code) else {
        let text =
            format!("the function returned the invalid status {}", output.status_code.unwrap_or_default());
        return error_response(StatusCode::INTERNAL_SERVER_ERROR, "invalid_status", &text);
    };
    let mut headers = HeaderMap::new();
    if let Some(set) = &output.headers {
        add_headers(&mut headers, set);
    }
    let body = output.body.map_or("{}", RawValue::get);
    // A string is sent as plain text if the function sets a content type. Everything else is sent as JSON.
    let text = match headers.contains_key(CONTENT_TYPE) {
        true => serde_json::from_str::<String>(body).ok(),
        false => None,
    };
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut response = Response::new(HttpBody::full(text.unwrap_or_else(|| body.to_owned())));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn status(code: Option<u64>) -> Option<StatusCode> {
    let code = u16::try_from(code.unwrap_or(200)).ok().filter(|code| (200..=599).contains(code))?;
    StatusCode::from_u16(code).ok()
}

/// Adds headers, given as an object or as lines. Functions cannot set the headers of the connection.
fn add_headers(headers: &mut HeaderMap, set: &Value) {
    match set {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) => add_header(headers, name, text),
                    Value::Array(values) => {
                        values
                            .iter()
                            .filter_map(Value::as_str)
                            .for_each(|text| add_header(headers, name, text));
                    }
                    Value::Number(_) | Value::Bool(_) => add_header(headers, name, &value.to_string()),
                    Value::Null | Value::Object(_) => {}
                }
            }
        }
        Value::Array(lines) => {
            for line in lines.iter().filter_map(Value::as_str) {
                if let Some((name, value)) = line.split_once(':') {
                    add_header(headers, name.trim(), value.trim());
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn add_header(headers: &mut HeaderMap, name: &str, value: &str) {
    let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
    else {
        tracing::debug!(name, "a function set an invalid header");
        return;
    };
    if [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(&name)
        || name == "keep-alive"
    {
        return;
    }
    if name == CONTENT_TYPE {
        headers.insert(name, value);
    } else {
        headers.append(name, value);
    }
}

pub(super) fn json_response(status: StatusCode, body: String) -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn error_response(status: StatusCode, code: &str, message: &str) -> Response<HttpBody> {
    json_response(status, json!({ "error": { "code": code, "message": message } }).to_string())
}
