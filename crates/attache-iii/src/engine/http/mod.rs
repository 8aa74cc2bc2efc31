//! HTTP triggers: a request becomes a call, and the output of the function becomes the response.
//!
//! The function responds in one of two ways: with its result, or by writing to the channel `response`, which is part of the call.
//! The first of the two counts. The head of the response is sent with the first bytes that the function writes.

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

use self::body::RequestGuard;
use self::request::{ReadError, TriggerRequest};
use self::response::{Head, error_response, from_result, json_response};
use self::routes::{Route, RouteMatch};
use super::Shared;
use super::calls::error_body;
use super::frames::Extras;
use crate::wire::ErrorBody;
use crate::{CallError, ChannelItem};

pub use self::body::HttpBody;

/// The response that the result of a function stands for, for fuzzing.
pub(crate) fn result_as_response(result: &RawValue) -> Response<HttpBody> {
    from_result(result)
}

/// The response with the head that a function has written, for fuzzing.
pub(crate) fn written_head<'a>(messages: impl IntoIterator<Item = &'a str>) -> Response<HttpBody> {
    let mut head = Head::default();
    messages.into_iter().for_each(|message| head.apply(message));
    head.into_response(HttpBody::empty())
}

/// The metadata key that makes the HTTP triggers of a function public.
const PUBLIC: &str = "a2a.public";

/// Who may use an HTTP trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpRoute {
    /// No trigger has this path.
    None,
    /// Everyone: the metadata of the function has `"a2a.public": true`. A preflight request is public too, and so is a request
    /// with a method that no trigger at the path has.
    Public,
    /// Authenticated callers, if authentication is configured.
    Callers,
}

/// An extension of a request that was not authenticated. Only a public function may serve the request.
#[derive(Debug, Clone, Copy)]
pub struct PublicOnly;

/// Who may send a request with this method and path.
pub(super) fn route(shared: &Arc<Shared>, method: &Method, path: &str) -> HttpRoute {
    match shared.routes.read().find(path, method) {
        None => HttpRoute::None,
        Some(RouteMatch { route: Some(route), .. }) if !is_public(shared, &route) => HttpRoute::Callers,
        Some(_) => HttpRoute::Public,
    }
}

fn is_public(shared: &Shared, route: &Route) -> bool {
    let function = shared.registry.function(&route.trigger.function);
    function.is_some_and(|function| function.info.metadata_value(PUBLIC).is_some_and(|public| public == true))
}

/// Handles a request, if a trigger has its path.
pub(super) async fn handle<B>(shared: &Arc<Shared>, request: Request<B>) -> Option<Response<HttpBody>>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let matched = shared.routes.read().find(request.uri().path(), request.method())?;
    let response = match &matched.route {
        // Another function may have registered the path since the server checked it.
        Some(route) if request.extensions().get::<PublicOnly>().is_some() && !is_public(shared, route) => {
            error_response(
                StatusCode::UNAUTHORIZED,
                "UNAUTHENTICATED",
                "this path requires authentication: try again",
            )
        }
        Some(route) => answer(shared, route, &matched, request).await,
        None => {
            let mut response = Response::new(HttpBody::empty());
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            if let Ok(allow) = HeaderValue::from_str(&methods(&matched)) {
                response.headers_mut().insert(ALLOW, allow);
            }
            response
        }
    };
    Some(response)
}

/// The metadata key for the origins whose web pages may call the HTTP triggers of a function.
const ORIGINS: &str = "a2a.origins";

/// The origins that the function with this method and path lists.
pub(super) fn origins(shared: &Shared, method: &Method, path: &str) -> Vec<String> {
    let route = shared.routes.read().find(path, method).and_then(|matched| matched.route);
    let function = route.and_then(|route| shared.registry.function(&route.trigger.function));
    let listed = function.as_ref().and_then(|function| function.info.metadata_value(ORIGINS)?.as_array());
    listed.into_iter().flatten().filter_map(|origin| origin.as_str().map(str::to_owned)).collect()
}

fn methods(matched: &RouteMatch) -> String {
    let mut methods: Vec<_> = matched.methods.iter().map(Method::as_str).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    methods.join(", ")
}

/// Why the function did not respond.
enum Failure {
    /// The middleware or the condition has responded instead.
    Responded(Box<Response<HttpBody>>),
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
    matched: &RouteMatch,
    request: Request<B>,
) -> Response<HttpBody>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limits = &shared.options.limits;
    let counter = &shared.http_requests;
    let counted = counter.fetch_add(1, Ordering::Relaxed) < limits.http_requests;
    let mut guard = RequestGuard::new(counter.clone(), shared.channels.clone());
    if !counted {
        let mut response =
            error_response(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "too many requests at once");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    let timeout = shared.options.http_timeout;
    let request_data =
        match tokio::time::timeout(timeout, TriggerRequest::read(request, matched, limits.http_body)).await {
            Ok(Ok(request_data)) => request_data,
            Ok(Err(ReadError::TooLarge)) => {
                let text = format!("the body is larger than {} bytes", limits.http_body);
                return error_response(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &text);
            }
            Ok(Err(ReadError::BrokeOff)) => {
                return error_response(StatusCode::BAD_REQUEST, "BAD_REQUEST", "the body is incomplete");
            }
            Err(_) => {
                return error_response(
                    StatusCode::REQUEST_TIMEOUT,
                    "REQUEST_TIMEOUT",
                    "the body did not arrive in time",
                );
            }
        };
    route.trigger.fires.fetch_add(1, Ordering::Relaxed);
    let body = shared.channels.create_with_bytes(request_data.bytes.clone());
    let (writer, items) = shared.channels.open();
    guard.channels = vec![body.channel_id.clone(), writer.channel_id.clone()];
    let data = request_data.data(route, limits.http_body_in_call, &body, &writer);
    let answering = async {
        run_middleware(shared, route, &request_data).await?;
        check_condition(shared, route, &data).await?;
        run(shared, route, &data, items, guard).await
    };
    match tokio::time::timeout(timeout, answering).await {
        Ok(Ok(response)) => response,
        Ok(Err(Failure::Responded(response))) => *response,
        Err(_) | Ok(Err(Failure::Call(CallError::TimedOut))) => {
            tracing::warn!(
                function = route.trigger.function,
                path = route.config.path,
                "the function of an HTTP trigger timed out"
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
    tracing::warn!(function = route.trigger.function, path = route.config.path, %error, %error_id, "the function of an HTTP trigger failed");
    let ErrorBody { code, message, .. } = error_body(error);
    let body = json!({ "error": { "code": code, "message": message, "error_id": error_id } });
    json_response(StatusCode::INTERNAL_SERVER_ERROR, body.to_string())
}

/// Calls the middleware functions. Each of them may respond instead of the function.
async fn run_middleware(
    shared: &Arc<Shared>,
    route: &Route,
    request_data: &TriggerRequest,
) -> Result<(), Failure> {
    if route.config.middleware.is_empty() {
        return Ok(());
    }
    #[derive(serde::Deserialize)]
    struct MiddlewareResult<'a> {
        #[serde(default)]
        action: String,
        #[serde(borrow)]
        response: Option<&'a RawValue>,
    }
    let data = request_data.for_middleware();
    for middleware in &route.config.middleware {
        let result =
            shared.call_text(middleware, &data, Extras::default(), shared.options.http_timeout).await?;
        let Ok(parsed) = serde_json::from_str::<MiddlewareResult<'_>>(result.get()) else { continue };
        if parsed.action == "respond" {
            let response = parsed.response.unwrap_or(RawValue::NULL);
            return Err(Failure::Responded(Box::new(from_result(response))));
        }
    }
    Ok(())
}

async fn check_condition(shared: &Arc<Shared>, route: &Route, data: &str) -> Result<(), Failure> {
    let Some(condition) = &route.config.condition else { return Ok(()) };
    let result = shared.call_text(condition, data, Extras::default(), shared.options.http_timeout).await?;
    if result.get() == "false" {
        let text = "the condition of the trigger is not met";
        let response = error_response(StatusCode::UNPROCESSABLE_ENTITY, "CONDITION_NOT_MET", text);
        return Err(Failure::Responded(Box::new(response)));
    }
    Ok(())
}

/// Calls the function. Responds with its result or with what it writes, whichever comes first.
async fn run(
    shared: &Arc<Shared>,
    route: &Route,
    data: &str,
    mut items: mpsc::Receiver<ChannelItem>,
    guard: RequestGuard,
) -> Result<Response<HttpBody>, Failure> {
    let trigger = &route.trigger;
    let timeout = shared.options.http_timeout;
    let extras = Extras { metadata: trigger.metadata(), ..Extras::default() };
    let mut calling = std::pin::pin!(shared.call_text(&trigger.function, data, extras, timeout));
    let mut head = Head::default();
    let mut returned = false;
    loop {
        tokio::select! {
            biased;
            item = items.recv() => match item {
                Some(ChannelItem::Text(text)) => head.apply(&text),
                Some(ChannelItem::Bytes(first)) => {
                    return Ok(head.into_response(HttpBody::stream(first, items, guard)));
                }
                None => return Ok(head.into_response(HttpBody::empty())),
            },
            result = &mut calling, if !returned => match result? {
                // The function writes to the channel, or has no result.
                result if result.get() == "null" => returned = true,
                result => return Ok(from_result(&result)),
            },
        }
    }
}
