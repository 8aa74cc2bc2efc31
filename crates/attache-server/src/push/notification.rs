//! A push notification as the receiver sees it.

use std::fmt::Write;

use attache_core::{ArtifactLinks, Delivery, Owner, Seq, Store, StoreError, TaskEvent, View, Webhook};
use attache_outbound::OutboundRequest;
use attache_protocol::{Dialect, MEDIA_TYPE, Timestamp};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{PushOptions, SigningSecret};

/// The token of the webhook's creator, by which the receiver recognizes the notification.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// The protocol version of the body.
pub(super) const VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// The id of the delivery; the same for every attempt.
pub(super) const DELIVERY: HeaderName = HeaderName::from_static("x-a2a-delivery-id");

/// The number of the event in the log of its task.
pub(super) const EVENT: HeaderName = HeaderName::from_static("x-a2a-event-number");

/// The number of the attempt, from 1.
const ATTEMPT: HeaderName = HeaderName::from_static("x-a2a-delivery-attempt");

/// The trace of the request that created the webhook.
pub(super) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<seconds>.<body>" in hexadecimal>`.
const SIGNATURE: HeaderName = HeaderName::from_static("x-a2a-signature");

/// The body of a delivery: the event, or in an older dialect the task at that event. `None` if the task was deleted. `links` are the
/// URLs of stored content.
pub(super) async fn body(
    delivery: &Delivery,
    store: &dyn Store,
    links: Option<&ArtifactLinks>,
) -> Result<Option<Bytes>, StoreError> {
    match (delivery.webhook.dialect, links) {
        (None, None) => Ok(Some(delivery.entry.webhook_json())),
        (None, Some(links)) => Ok(Some(links.resolve_entry(&delivery.entry).webhook_json())),
        (Some(dialect), _) => in_dialect(delivery, store, dialect, links).await,
    }
}

async fn in_dialect(
    delivery: &Delivery,
    store: &dyn Store,
    dialect: Dialect,
    links: Option<&ArtifactLinks>,
) -> Result<Option<Bytes>, StoreError> {
    let Some(snapshot) = store.load(&delivery.owner, &delivery.id.task).await? else { return Ok(None) };
    let mut task = snapshot.viewed(View::FULL).into_owned();
    // The task may have changed since. The notification reports this status.
    match &delivery.entry.event {
        TaskEvent::Created(created) => task.status = created.status.clone(),
        TaskEvent::Status(update) => task.status = update.status.clone(),
        TaskEvent::Artifact(_) | TaskEvent::Message(_) => {}
    }
    if let Some(links) = links {
        links.resolve_task(&mut task);
    }
    let mut out = Vec::with_capacity(1024);
    dialect.write_task(&task.with_chosen_id(), &mut out);
    Ok(Some(out.into()))
}

/// What is sent to a webhook.
pub(super) struct Notice<'a> {
    /// What the log calls it.
    pub(super) name: &'a str,
    /// The owner of the task, if it is known.
    pub(super) owner: &'a Owner,
    pub(super) task: &'a str,
    pub(super) webhook: &'a Webhook,
    /// The id that the receiver sees, the same for all attempts.
    pub(super) id: &'a str,
    /// The position of the event, if the notification is about one of a store.
    pub(super) event: Option<Seq>,
    /// The number of earlier attempts.
    pub(super) attempts: u32,
    /// The headers that say what the body is.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether this server, or another one with its keys, has made the body. Nothing else is signed.
    pub(super) origin: Origin,
}

/// Where a notification comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A server with the keys of this one.
    Ours,
    /// Another program that can write to the queue.
    #[cfg(feature = "redis")]
    Others,
}

/// The headers that say what the body in a dialect is.
pub(super) fn body_headers(dialect: Option<Dialect>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let media_type = match dialect {
        None => {
            headers.insert(VERSION, HeaderValue::from_static("1.0"));
            MEDIA_TYPE
        }
        Some(_) => "application/json",
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers
}

/// The HTTP request of a notification.
pub(super) fn request(notice: Notice<'_>, options: &PushOptions, now: Timestamp) -> OutboundRequest {
    let Notice { webhook, id, event, attempts, mut headers, body, origin, .. } = notice;
    let config = &webhook.config;
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("attache/", env!("CARGO_PKG_VERSION"))));
    if let Some(event) = event {
        headers.insert(EVENT, HeaderValue::from(event.0));
    }
    headers.insert(ATTEMPT, HeaderValue::from(attempts.saturating_add(1)));
    // The values were validated as headers when the webhook was created.
    let mut put = |name: HeaderName, value: &str, secret: bool| {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(secret);
            headers.insert(name, value);
        }
    };
    put(DELIVERY, id, false);
    if let Some(trace_parent) = &webhook.trace_parent {
        put(TRACE_PARENT, trace_parent.as_str(), false);
    }
    if let Some(token) = &config.token {
        put(TOKEN, token, true);
    }
    if let Some(authentication) = &config.authentication
        && let Some(credentials) = &authentication.credentials
    {
        put(AUTHORIZATION, &authorization(&authentication.scheme, credentials), true);
    }
    match (&options.secret, origin) {
        (Some(secret), Origin::Ours) => put(SIGNATURE, &sign(secret, now, &body), false),
        #[cfg(feature = "redis")]
        (Some(_), Origin::Others) => {}
        (None, _) => {}
    }
    OutboundRequest { url: config.url.clone(), headers, body, timeout: options.timeout }
}

/// The registered schemes, as their specifications write them. Schemes have no case (RFC 9110), but many receivers compare them as
/// text.
const SCHEMES: &[&str] = &[
    "Basic",
    "Bearer",
    "Concealed",
    "Digest",
    "DPoP",
    "GNAP",
    "HOBA",
    "Mutual",
    "Negotiate",
    "OAuth",
    "PrivateToken",
    "SCRAM-SHA-1",
    "SCRAM-SHA-256",
    "vapid",
];

/// The value of the header. The scheme `Basic` needs base64 (RFC 7617). Text in base64 has no colon, and a name with a password has one.
fn authorization(scheme: &str, credentials: &str) -> String {
    let registered = SCHEMES.iter().find(|registered| registered.eq_ignore_ascii_case(scheme));
    let scheme = registered.copied().unwrap_or(scheme);
    match scheme == "Basic" && credentials.contains(':') {
        true => format!("{scheme} {}", STANDARD.encode(credentials)),
        false => format!("{scheme} {credentials}"),
    }
}

fn sign(secret: &SigningSecret, now: Timestamp, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{}.", now.seconds()).as_bytes());
    context.update(body);
    let mut text = format!("t={},v1=", now.seconds());
    for byte in context.sign().as_ref() {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_password_are_sent_as_base64() {
        // printf 'ops:secret' | base64
        assert_eq!(authorization("Basic", "ops:secret"), "Basic b3BzOnNlY3JldA==");
        assert_eq!(authorization("basic", "ops:secret"), "Basic b3BzOnNlY3JldA==");
        assert_eq!(authorization("Basic", "b3BzOnNlY3JldA=="), "Basic b3BzOnNlY3JldA==");
        assert_eq!(authorization("Bearer", "a:b"), "Bearer a:b");
    }

    #[test]
    fn a_registered_scheme_is_sent_as_its_specification_writes_it() {
        assert_eq!(authorization("bearer", "callback-token"), "Bearer callback-token");
        assert_eq!(authorization("BASIC", "b3BzOnNlY3JldA=="), "Basic b3BzOnNlY3JldA==");
        assert_eq!(authorization("dpop", "t"), "DPoP t");
        assert_eq!(authorization("x-own", "t"), "x-own t");
    }

    #[test]
    fn a_signature_is_the_hmac_of_time_and_body() {
        // echo -n '5.{"a":1}' | openssl dgst -sha256 -hmac key
        let text = sign(&SigningSecret::new("key"), Timestamp::from_millis(5_900), br#"{"a":1}"#);
        assert_eq!(text, EXPECTED);
    }

    const EXPECTED: &str = "t=5,v1=76a265040774cfbae5f9cb82bfcf6bc0ea27bf4ce7d7220196eb0e1a7cc760e0";
}
