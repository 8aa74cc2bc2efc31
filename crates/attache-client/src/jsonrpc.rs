//! The JSON-RPC binding from the client's side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use attache_protocol::{Operation, StreamResponse, Version};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::discovery::Endpoint;
use crate::http::{Http, explain, status_error, within};
use crate::sse::{Decoder, Frame, TooLarge};
use crate::{ClientError, RemoteError};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
const A2A_EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Numbers the requests of this process, so that no two have the same id.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What goes beside the arguments of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beside {
    extensions: Option<HeaderValue>,
    pub(crate) idempotency_key: Option<HeaderValue>,
    last_event: Option<HeaderValue>,
}

impl Beside {
    /// What a request asks for. What cannot be in a header is the caller's mistake.
    pub(crate) fn new<'a>(
        extensions: impl IntoIterator<Item = &'a String>,
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
            if !uris.contains(&uri.as_str()) {
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
        Ok(Self { extensions, idempotency_key, last_event: None })
    }

    /// The same for a stream that was read up to this event. An id that no header can hold is not one to go on from.
    pub(crate) fn resuming(&self, last_event: Option<&str>) -> Self {
        let last_event = last_event.and_then(|id| HeaderValue::from_str(id).ok());
        Self { extensions: self.extensions.clone(), idempotency_key: None, last_event }
    }
}

/// Calls the methods of one agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct JsonRpc {
    pub(crate) http: Arc<Http>,
    pub(crate) endpoint: Endpoint,
}

impl JsonRpc {
    /// Makes a call and reads its answer.
    pub(crate) async fn call<P: Serialize, R: DeserializeOwned>(
        &self,
        operation: Operation,
        params: &P,
        beside: &Beside,
        limit: Duration,
    ) -> Result<R, ClientError> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let request = self.request(id, operation, params, beside)?.header(ACCEPT, "application/json");
        within(limit, async {
            let response = self.http.send(self.url(), request).await?;
            self.read(id, response).await
        })
        .await
    }

    /// Makes a call whose answer is a stream.
    pub(crate) async fn open<P: Serialize>(
        &self,
        operation: Operation,
        params: &P,
        beside: &Beside,
        limit: Duration,
    ) -> Result<Connection, ClientError> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let accepted = "text/event-stream, application/json";
        let request = self.request(id, operation, params, beside)?.header(ACCEPT, accepted);
        within(limit, async {
            let response = self.http.send(self.url(), request).await?;
            if response.status().is_success() && is_event_stream(&response) {
                return Ok(Connection::new(self, id, response));
            }
            // A refusal, most likely.
            let _: serde::de::IgnoredAny = self.read(id, response).await?;
            Err(ClientError::Protocol("a single answer where a stream of events was asked for".to_owned()))
        })
        .await
    }

    fn url(&self) -> &Url {
        &self.endpoint.url
    }

    fn request<P: Serialize>(
        &self,
        id: u64,
        operation: Operation,
        params: &P,
        beside: &Beside,
    ) -> Result<RequestBuilder, ClientError> {
        #[derive(Serialize)]
        struct Call<'a, P> {
            jsonrpc: &'static str,
            id: u64,
            method: &'static str,
            params: &'a P,
        }
        let body = serde_json::to_vec(&Call { jsonrpc: "2.0", id, method: operation.name(), params })
            .map_err(|error| {
                ClientError::Invalid(format!("the request cannot be written as JSON: {error}"))
            })?;
        let mut request = self
            .http
            .post(self.url())
            .header(CONTENT_TYPE, "application/json")
            .header(A2A_VERSION, Version::V1_0.to_string())
            .body(body);
        for (name, value) in [
            (A2A_EXTENSIONS, &beside.extensions),
            (IDEMPOTENCY_KEY, &beside.idempotency_key),
            (LAST_EVENT_ID, &beside.last_event),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        Ok(request)
    }

    async fn read<R: DeserializeOwned>(&self, id: u64, response: Response) -> Result<R, ClientError> {
        let status = response.status();
        if status.is_success() {
            return answer(id, &self.http.body(self.url(), response).await?);
        }
        // Some refusals have a status of their own besides their code.
        let body = self.http.body(self.url(), response).await.unwrap_or_default();
        match answer::<serde::de::IgnoredAny>(id, &body) {
            Err(refusal @ ClientError::Remote(_)) => Err(refusal),
            Ok(_) | Err(_) => Err(status_error(self.url(), status, &body)),
        }
    }
}

fn is_event_stream(response: &Response) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    /// What to go on from after it.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) response: StreamResponse,
}

/// A stream, for as long as its connection holds.
pub(crate) struct Connection {
    id: u64,
    url: Url,
    response: Response,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    max_event: usize,
    too_large: bool,
}

impl Connection {
    fn new(rpc: &JsonRpc, id: u64, response: Response) -> Self {
        let max_event = rpc.http.options.max_event;
        Self {
            id,
            url: rpc.url().clone(),
            response,
            decoder: Decoder::new(max_event),
            frames: VecDeque::new(),
            max_event,
            too_large: false,
        }
    }

    /// The next event; nothing at the end. Silence is heard for so long.
    pub(crate) async fn next(&mut self, silence: Duration) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(Frame { id, data }) = self.frames.pop_front() {
                return answer(self.id, &data).map(|response| Some(Event { id, response }));
            }
            if self.too_large {
                return Err(ClientError::TooLarge { limit: self.max_event });
            }
            let (url, response) = (&self.url, &mut self.response);
            let chunk = async { response.chunk().await.map_err(|error| explain(url, &error)) };
            let Some(chunk) = within(silence, chunk).await? else { return Ok(None) };
            self.too_large = self.decoder.feed(&chunk, &mut self.frames) == Err(TooLarge);
        }
    }
}

/// Reads an object. Other values are refused here, where serde would take an array for a list of members.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ClientError> {
    let protocol = |why: &str| ClientError::Protocol(format!("{what} cannot be read: {why}"));
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(protocol("expected a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| protocol(&error.to_string()))
}

/// Reads the answer to a request.
fn answer<R: DeserializeOwned>(id: u64, body: &[u8]) -> Result<R, ClientError> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(default)]
        jsonrpc: Option<String>,
        #[serde(default, borrow)]
        id: Option<&'a RawValue>,
        #[serde(default, borrow)]
        result: Option<&'a RawValue>,
        #[serde(default, borrow)]
        error: Option<&'a RawValue>,
    }

    let protocol = |why: String| Err(ClientError::Protocol(why));
    let envelope: Envelope<'_> = object(body, "the response")?;
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return protocol("the response is not one of JSON-RPC 2.0".to_owned());
    }
    let answers = envelope.id.map(RawValue::get);
    match (envelope.error, envelope.result) {
        // Whoever could not read the request could not read its id either.
        (Some(error), _) if answers.is_none() || answers == Some(id.to_string().as_str()) => {
            let error: Result<RemoteError, _> = RemoteError::from_jsonrpc(error.get());
            match error {
                Ok(error) => Err(ClientError::Remote(Box::new(error))),
                Err(error) => protocol(format!("the error cannot be read: {error}")),
            }
        }
        (None, Some(result)) if answers == Some(id.to_string().as_str()) => {
            object(result.get().as_bytes(), "the result")
        }
        (None, None) => protocol("the response has neither a result nor an error".to_owned()),
        (Some(_), _) | (None, Some(_)) => {
            let answers: String = answers.unwrap_or("null").chars().take(40).collect();
            protocol(format!("the response answers request {answers}, but request {id} was made"))
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{ErrorKind, Task};

    use super::*;

    fn read(body: &str) -> Result<Task, ClientError> {
        answer(7, body.as_bytes())
    }

    #[test]
    fn an_answer_is_taken_only_for_the_request_it_answers() {
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"result":{"id":"t"}}"#).unwrap().id.as_str(), "t");
        assert_eq!(
            read(r#"{"result":{"id":"t"},"error":null,"id":7,"jsonrpc":"2.0","x":1}"#).unwrap().id.as_str(),
            "t"
        );
        for body in [
            r#"{"jsonrpc":"2.0","id":8,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32001,"message":"m"}}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{"id":"t"}}"#,
            r#"{"id":7,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":"no"}"#,
            r#"["2.0",7,{"id":"t"}]"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"id":"t"}"#,
            "<html>",
            "",
        ] {
            let error = read(body).unwrap_err();
            assert!(matches!(error, ClientError::Protocol(_)), "{body}: {error}");
        }
    }

    #[test]
    fn a_refusal_may_come_without_an_id() {
        for id in ["7", "null"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32700,"message":"m"}}}}"#);
            assert_eq!(read(&body).unwrap_err().kind(), Some(ErrorKind::Parse));
        }
    }

    #[test]
    fn what_no_header_can_hold_is_refused_before_it_is_sent() {
        let beside = |uri: &str, key: Option<&str>| Beside::new(&[uri.to_owned(), uri.to_owned()], key);
        assert_eq!(beside("urn:a", Some("k1")).unwrap().extensions.unwrap(), "urn:a");
        for (uri, key) in
            [("", None), ("urn:a,urn:b", None), ("a\r\nb", None), ("a", Some("")), ("a", Some("é"))]
        {
            assert!(matches!(beside(uri, key), Err(ClientError::Invalid(_))), "{uri} {key:?}");
        }
    }
}
