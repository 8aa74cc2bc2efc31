//! HTTP triggers: a request becomes a call, and what the function says or writes becomes the response.
//!
//! The function answers in one of two ways, whichever comes first: with its result, or by writing to the channel `response` that it
//! is given. The head of the response leaves with the first bytes that are written.

mod body;
mod request;
mod response;
pub(super) mod routes;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::http::header::{ALLOW, RETRY_AFTER};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use self::body::Visit;
use self::request::{Asked, NotRead};
use self::response::{Head, error_response, from_result, json_response};
use self::routes::{Found, Route};
use super::Shared;
use crate::{CallError, ChannelItem};

pub use self::body::HttpBody;

/// The key in a function's metadata that says that its HTTP triggers are for everyone.
const PUBLIC: &str = "a2a.public";

/// Who an HTTP trigger is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpRoute {
    /// No trigger has this path.
    None,
    /// For everyone: the metadata of its function has `"a2a.public": true`. A preflight request is, too, and so is a request with a
    /// method that no trigger at the path has.
    Public,
    /// For callers, where they are asked who they are.
    Callers,
}

/// An extension of a request that nobody has vouched for: only a function for everyone may answer it.
#[derive(Debug, Clone, Copy)]
pub struct PublicOnly;

/// What answers a request with this method and path.
pub(super) fn route(shared: &Arc<Shared>, method: &Method, path: &str) -> HttpRoute {
    match shared.routes.read().find(path, method) {
        None => HttpRoute::None,
        Some(Found { route: Some(route), .. }) if !is_public(shared, &route) => HttpRoute::Callers,
        Some(_) => HttpRoute::Public,
    }
}

fn is_public(shared: &Shared, route: &Route) -> bool {
    let function = shared.registry.function(&route.trigger.function);
    function.is_some_and(|function| function.info.said(PUBLIC).is_some_and(|said| said == true))
}

/// Answers a request, if a trigger has its path.
pub(super) async fn handle<B>(shared: &Arc<Shared>, request: Request<B>) -> Option<Response<HttpBody>>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let found = shared.routes.read().find(request.uri().path(), request.method())?;
    let response = match &found.route {
        // Another function may have taken the path since it was found out who may have it.
        Some(route) if request.extensions().get::<PublicOnly>().is_some() && !is_public(shared, route) => {
            error_response(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "this is not for everyone: try again")
        }
        Some(route) => answer(shared, route, &found, request).await,
        None => {
            let mut response = Response::new(HttpBody::empty());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            if let Ok(allow) = HeaderValue::from_str(&methods(&found)) {
                response.headers_mut().insert(ALLOW, allow);
            }
            response
        }
    };
    Some(response)
}

/// The metadata in which the author of a function lists the origins whose pages may call it through its HTTP triggers.
const ORIGINS: &str = "a2a.origins";

/// The origins that are listed for the function that has a method and a path.
pub(super) fn origins(shared: &Shared, method: &Method, path: &str) -> Vec<String> {
    let route = shared.routes.read().find(path, method).and_then(|found| found.route);
    let function = route.and_then(|route| shared.registry.function(&route.trigger.function));
    let listed = function.as_ref().and_then(|function| function.info.said(ORIGINS)?.as_array());
    listed.into_iter().flatten().filter_map(|origin| origin.as_str().map(str::to_owned)).collect()
}

fn methods(found: &Found) -> String {
    let mut methods: Vec<_> = found.methods.iter().map(Method::as_str).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.join(", ")
}

/// Why there is no answer of the function's.
enum Failure {
    /// Someone else has answered.
    Answered(Box<Response<HttpBody>>),
    Call(CallError),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

async fn answer<B>(
    shared: &Arc<Shared>,
    route: &Arc<Route>,
    found: &Found,
    request: Request<B>,
) -> Response<HttpBody>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limits = &shared.options.limits;
    let counter = &shared.http_requests;
    let counted = counter.fetch_add(1, Ordering::Relaxed) < limits.http_requests;
    let mut visit = Visit::new(counter.clone(), shared.channels.clone());
    if !counted {
        let mut response =
            error_response(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "too many requests at once");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    let timeout = shared.options.http_timeout;
    let asked = match tokio::time::timeout(timeout, Asked::read(request, found, limits.http_body)).await {
        Ok(Ok(asked)) => asked,
        Ok(Err(NotRead::TooLarge)) => {
            let text = format!("the body is larger than {} bytes", limits.http_body);
            return error_response(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &text);
        }
        Ok(Err(NotRead::BrokeOff)) => {
            return error_response(StatusCode::BAD_REQUEST, "BAD_REQUEST", "the body broke off");
        }
        Err(_) => {
            return error_response(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body did not arrive");
        }
    };
    route.trigger.fires.fetch_add(1, Ordering::Relaxed);
    let body = shared.channels.offer(asked.bytes.clone());
    let (writer, items) = shared.channels.open();
    visit.channels = vec![body.channel_id.clone(), writer.channel_id.clone()];
    let data = asked.data(route, limits.http_body_in_call, &body, &writer);
    let answering = async {
        pass_middleware(shared, route, &asked).await?;
        pass_condition(shared, route, &data).await?;
        run(shared, route, &data, items, visit).await
    };
    match tokio::time::timeout(timeout, answering).await {
        Ok(Ok(response)) => response,
        Ok(Err(Failure::Answered(response))) => *response,
        Err(_) | Ok(Err(Failure::Call(CallError::TimedOut))) => {
            tracing::warn!(
                function = route.trigger.function,
                path = route.path,
                "a function did not answer in time"
            );
            let mut response = Response::new(HttpBody::empty());
            *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
            response
        }
        Ok(Err(Failure::Call(error))) => failed(route, &error),
    }
}

fn failed(route: &Route, error: &CallError) -> Response<HttpBody> {
    let error_id = uuid::Uuid::new_v4();
    tracing::warn!(function = route.trigger.function, path = route.path, %error, %error_id, "a function failed");
    let (code, message) = match error {
        CallError::Remote { code, message } => (code.as_str(), message.clone()),
        CallError::TimedOut => ("TIMEOUT", error.to_string()),
        CallError::Disconnected => ("not_connected", error.to_string()),
    };
    let body = json!({ "error": { "code": code, "message": message, "error_id": error_id } });
    json_response(StatusCode::INTERNAL_SERVER_ERROR, body.to_string())
}

/// Asks those who may answer before the function does.
async fn pass_middleware(shared: &Arc<Shared>, route: &Route, asked: &Asked) -> Result<(), Failure> {
    if route.middleware.is_empty() {
        return Ok(());
    }
    #[derive(serde::Deserialize)]
    struct Verdict<'a> {
        #[serde(default)]
        action: String,
        #[serde(borrow)]
        response: Option<&'a RawValue>,
    }
    let data = asked.for_middleware();
    for middleware in &route.middleware {
        let said = shared.call_text(middleware, &data, None, shared.options.http_timeout).await?;
        let Ok(verdict) = serde_json::from_str::<Verdict<'_>>(said.get()) else { continue };
        if verdict.action == "respond" {
            let response = verdict.response.unwrap_or(RawValue::NULL);
            return Err(Failure::Answered(Box::new(from_result(response))));
        }
    }
    Ok(())
}

async fn pass_condition(shared: &Arc<Shared>, route: &Route, data: &str) -> Result<(), Failure> {
    let Some(condition) = &route.condition else { return Ok(()) };
    let said = shared.call_text(condition, data, None, shared.options.http_timeout).await?;
    if said.get() == "false" {
        let text = "the condition of the trigger is not met";
        let response = error_response(StatusCode::UNPROCESSABLE_ENTITY, "CONDITION_NOT_MET", text);
        return Err(Failure::Answered(Box::new(response)));
    }
    Ok(())
}

/// Calls the function, and takes its result or what it writes, whichever comes first.
async fn run(
    shared: &Arc<Shared>,
    route: &Route,
    data: &str,
    mut items: mpsc::Receiver<ChannelItem>,
    visit: Visit,
) -> Result<Response<HttpBody>, Failure> {
    let trigger = &route.trigger;
    let timeout = shared.options.http_timeout;
    let mut calling = std::pin::pin!(shared.call_text(&trigger.function, data, trigger.metadata(), timeout));
    let mut head = Head::default();
    let mut returned = false;
    loop {
        tokio::select! {
            biased;
            item = items.recv() => match item {
                Some(ChannelItem::Text(text)) => head.change(&text),
                Some(ChannelItem::Bytes(first)) => {
                    return Ok(head.into_response(HttpBody::stream(first, items, visit)));
                }
                None => return Ok(head.into_response(HttpBody::empty())),
            },
            result = &mut calling, if !returned => match result? {
                // It will write, or has nothing to say.
                result if result.get() == "null" => returned = true,
                result => return Ok(from_result(&result)),
            },
        }
    }
}
