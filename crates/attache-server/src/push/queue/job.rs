//! A job: a delivery as an entry of the queue.
//!
//! A job is compact JSON in the field `job`, with the member names of iac-code. The receiver's host is in clear, and so is the payload.
//! The full URL, the credentials and the owner are sealed, in a member that iac-code does not have. The seal covers the payload too, so
//! that only a server with the keys can have made such a job. A job without that member is plain: others have written it.

use std::collections::BTreeMap;
use std::fmt::Write;

use attache_core::{Delivery, Owner, Principal, PushEvents, Seal, Seq, Webhook};
use attache_protocol::{AuthenticationInfo, Dialect, TaskId, TaskPushNotificationConfig, Timestamp};
use attache_redis::Entry;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::push::notification::{self, DELIVERY, EVENT, TOKEN, TRACE_PARENT, VERSION};

/// The field of an entry that has the job.
pub(super) const FIELD: &str = "job";

/// How much is shown of the reason why an entry has no job, in characters. It can repeat what is in the entry.
const MAX_REASON: usize = 300;

/// What stands for the value of a header with a secret.
const REDACTED: &str = "[redacted]";

/// The member of a job that iac-code has encrypted.
const ENCRYPTED_ELSEWHERE: &str = "iacCodeEncryptedPushJob";

/// The headers of a plain job that are sent. The others are secrets that were left out, or are not for receivers.
const SENT: [HeaderName; 3] = [CONTENT_TYPE, VERSION, TRACE_PARENT];

/// A delivery in the queue. Its members are in alphabetical order, as iac-code writes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attache: Option<Extension>,
    /// The number of earlier attempts.
    #[serde(default)]
    pub(super) attempt: u32,
    #[serde(default)]
    config_id: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    /// The id that the receiver sees, the same for all attempts.
    pub(super) job_id: String,
    #[serde(default)]
    last_error: Option<String>,
    /// In seconds since 1970.
    #[serde(default)]
    next_attempt_at: Option<f64>,
    payload: Box<RawValue>,
    task_id: String,
    url: String,
}

/// What a job of this server has in addition.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Extension {
    /// The sealed [`Secrets`], in base64.
    sealed: String,
    /// The id of the store that has the webhook.
    store: String,
}

/// The part of a job that can be read only with the keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Secrets {
    url: String,
    token: Option<String>,
    scheme: Option<String>,
    credentials: Option<String>,
    principal: Option<String>,
    tenant: Option<String>,
    agent: Option<String>,
    dialect: Option<String>,
    seq: u64,
    trace_parent: Option<String>,
}

/// The secrets of a job.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) owner: Owner,
    pub(super) webhook: Webhook,
    pub(super) seq: Seq,
}

/// A job could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error("the job cannot be sealed: {0}")]
    Seal(#[from] attache_core::SealError),
    #[error("the payload is not JSON: {0}")]
    Payload(#[from] serde_json::Error),
}

impl Job {
    /// The job of a delivery with this body.
    pub(super) fn of(
        delivery: &Delivery,
        body: &Bytes,
        store: &str,
        seal: &dyn Seal,
        now: Timestamp,
    ) -> Result<Self, JobError> {
        let Webhook { config, dialect, trace_parent, .. } = &delivery.webhook;
        let authentication = config.authentication.as_ref();
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        let secrets = Secrets {
            url: config.url.clone(),
            token: config.token.clone(),
            scheme: authentication.map(|info| info.scheme.clone()),
            credentials: authentication.and_then(|info| info.credentials.clone()),
            principal: delivery.owner.principal.name().map(str::to_owned),
            tenant: text(&delivery.owner.tenant),
            agent: text(&delivery.owner.agent),
            dialect: dialect.map(|dialect| dialect.name().to_owned()),
            seq: delivery.id.seq.0,
            trace_parent: trace_parent.map(|parent| parent.as_str().to_owned()),
        };
        let mut job = Self {
            attache: None,
            attempt: delivery.attempts,
            config_id: Some(delivery.id.webhook.clone()),
            headers: clear_headers(delivery),
            job_id: delivery.id.token(),
            last_error: None,
            next_attempt_at: Some(seconds(now)),
            payload: serde_json::from_slice(body)?,
            task_id: delivery.id.task.as_str().to_owned(),
            url: origin(&config.url),
        };
        let sealed = seal.seal(&job.purpose(store), &serde_json::to_vec(&secrets)?)?;
        job.attache = Some(Extension { sealed: STANDARD.encode(sealed), store: store.to_owned() });
        Ok(job)
    }

    /// The job in an entry. The error says why it is none.
    pub(super) fn parse(entry: &Entry) -> Result<Self, String> {
        let Some(text) = entry.get(FIELD) else { return Err(format!("the entry has no field `{FIELD}`")) };
        Self::read(text).map_err(|error| {
            let members = serde_json::from_slice::<BTreeMap<String, &RawValue>>(text).unwrap_or_default();
            match members.contains_key(ENCRYPTED_ELSEWHERE) {
                true => "iac-code has encrypted the job with a key of its own".to_owned(),
                false => {
                    let error: String = error.to_string().chars().take(MAX_REASON).collect();
                    format!("the entry has no job: {error}")
                }
            }
        })
    }

    /// The job in this JSON.
    pub(super) fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Why the last attempt failed.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The JSON of the job.
    pub(super) fn to_json(&self) -> String {
        // Nothing in it can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same job after an attempt that failed.
    pub(super) fn failed(mut self, again: Timestamp, error: String) -> Self {
        self.attempt = self.attempt.saturating_add(1);
        self.last_error = Some(error);
        self.due(again)
    }

    /// The same job, to be tried at this time.
    pub(super) fn due(mut self, again: Timestamp) -> Self {
        self.next_attempt_at = Some(seconds(again));
        self
    }

    /// The same job with all its attempts before it.
    pub(super) fn anew(mut self) -> Self {
        self.attempt = 0;
        self
    }

    /// The same job, which was given up.
    pub(super) fn given_up(mut self, error: &str) -> Self {
        self.attempt = self.attempt.saturating_add(1);
        self.last_error = Some(error.to_owned());
        self.next_attempt_at = None;
        self
    }

    /// The id of the store that has the webhook, if the job is of a server like this one.
    pub(super) fn store(&self) -> Option<&str> {
        self.attache.as_ref().map(|extension| extension.store.as_str())
    }

    pub(super) fn task(&self) -> TaskId {
        self.task_id.as_str().into()
    }

    /// The id of the webhook within its task.
    pub(super) fn webhook(&self) -> &str {
        self.config_id.as_deref().unwrap_or_default()
    }

    /// The URL, as far as it is in clear.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The webhook and the job, for the log.
    pub(super) fn name(&self) -> String {
        format!("{}/{}/{}", self.task_id, self.webhook(), self.job_id)
    }

    pub(super) fn body(&self) -> Bytes {
        Bytes::copy_from_slice(self.payload.get().as_bytes())
    }

    /// Names the webhook in Redis. Jobs of one webhook are delivered one after another. A plain job has no such name.
    pub(super) fn order(&self) -> Option<String> {
        let store = self.store()?;
        let text = format!("{store}\n{}\n{}", self.task_id, self.webhook());
        Some(hex(&Sha256::digest(text.as_bytes())[..16]))
    }

    /// Opens what is sealed. `None` if the job is plain.
    pub(super) fn open(&self, seal: &dyn Seal) -> Option<Result<Opened, String>> {
        let Extension { sealed, store } = self.attache.as_ref()?;
        let read = || -> Result<Opened, String> {
            let sealed = STANDARD.decode(sealed).map_err(|_| "what is sealed is not base64".to_owned())?;
            let plain = seal.open(&self.purpose(store), &sealed).map_err(|error| error.to_string())?;
            let secrets: Secrets =
                serde_json::from_slice(&plain).map_err(|_| "what is sealed is not a webhook".to_owned())?;
            Ok(secrets.open(self))
        };
        Some(read())
    }

    /// The webhook of a plain job, without credentials.
    pub(super) fn plain_webhook(&self) -> Webhook {
        let config = TaskPushNotificationConfig {
            url: self.url.clone(),
            id: self.config_id.clone(),
            task_id: Some(self.task()),
            ..TaskPushNotificationConfig::default()
        };
        Webhook { config, events: PushEvents::States, dialect: None, trace_parent: None }
    }

    /// Whether a plain job had credentials, which its headers name and do not have.
    pub(super) fn lacks_credentials(&self) -> bool {
        let is_secret =
            |name: &String| [AUTHORIZATION, TOKEN].iter().any(|own| name.eq_ignore_ascii_case(own.as_str()));
        self.headers.keys().any(is_secret)
    }

    /// The headers of a plain job that are sent.
    pub(super) fn plain_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for name in SENT {
            let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name.as_str()));
            let value = found.and_then(|(_, value)| HeaderValue::from_str(value.as_str()?).ok());
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// What the seal is bound to: the job, its webhook and its payload.
    fn purpose(&self, store: &str) -> Vec<u8> {
        let mut purpose = b"attache push job".to_vec();
        for part in [store, &self.job_id, &self.task_id, self.webhook()] {
            purpose.extend_from_slice(&(part.len() as u64).to_le_bytes());
            purpose.extend_from_slice(part.as_bytes());
        }
        purpose.extend_from_slice(&Sha256::digest(self.payload.get().as_bytes()));
        purpose
    }
}

impl Secrets {
    fn open(self, job: &Job) -> Opened {
        let authentication =
            self.scheme.map(|scheme| AuthenticationInfo { scheme, credentials: self.credentials });
        let config = TaskPushNotificationConfig {
            url: self.url,
            id: job.config_id.clone(),
            task_id: Some(job.task()),
            token: self.token,
            authentication,
            ..TaskPushNotificationConfig::default()
        };
        let owner = Owner {
            agent: self.agent.map(Into::into),
            tenant: self.tenant.map(Into::into),
            principal: self.principal.map(Principal::named).unwrap_or_default(),
        };
        let webhook = Webhook {
            config,
            events: PushEvents::States,
            dialect: self.dialect.and_then(|name| Dialect::from_name(&name)),
            trace_parent: self.trace_parent.and_then(|text| text.parse().ok()),
        };
        Opened { owner, webhook, seq: Seq(self.seq) }
    }
}

/// The headers of a delivery, without the values of secrets. They tell readers of the queue what is sent.
fn clear_headers(delivery: &Delivery) -> BTreeMap<String, Value> {
    let Webhook { config, dialect, trace_parent, .. } = &delivery.webhook;
    let mut headers = BTreeMap::new();
    let mut put = |name: &HeaderName, value: &str| {
        headers.insert(name.as_str().to_owned(), Value::from(value));
    };
    for (name, value) in &notification::body_headers(*dialect) {
        put(name, value.to_str().unwrap_or_default());
    }
    put(&DELIVERY, &delivery.id.token());
    put(&EVENT, &delivery.id.seq.to_string());
    if let Some(parent) = trace_parent {
        put(&TRACE_PARENT, parent.as_str());
    }
    if config.token.is_some() {
        put(&TOKEN, REDACTED);
    }
    if config.authentication.as_ref().is_some_and(|info| info.credentials.is_some()) {
        put(&AUTHORIZATION, REDACTED);
    }
    headers
}

/// The scheme, the host and the port of a URL. The rest may be a secret.
fn origin(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(url) => format!("{}/", url.origin().ascii_serialization()),
        Err(_) => String::new(),
    }
}

pub(super) fn seconds(time: Timestamp) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into 53 bits")]
    let millis = time.to_millis() as f64;
    millis / 1000.0
}

/// A time in seconds since 1970. Others may have written one that is not a time.
pub(super) fn timestamp(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "the nearest time is meant")]
    let millis = (seconds * 1000.0) as i64;
    Timestamp::from_millis(millis)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
