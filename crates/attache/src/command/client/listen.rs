//! `attache push listen`: a webhook that prints notifications.
//!
//! It prints and acknowledges a notification only if its token is right and, with a secret, its signature is valid and recent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache::protocol::StreamResponse;
use attache::protocol::tolerant::{Event, ReadTolerantly, Source};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::any;
use clap::Args;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::registry::StoredSecret;
use super::show::{self, line};
use crate::command::serve::secret_in;
use crate::command::{Failure, Output, print, say};

/// How old a signature may be.
const FRESHNESS: Duration = Duration::from_secs(5 * 60);

/// The largest notification, in bytes.
const LARGEST: usize = 16 * 1024 * 1024;

/// The arguments of `attache push listen`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, with an agent on this machine that was started with `--allow-loopback-webhooks`:
  attache push listen --listen 127.0.0.1:8099
  attache push add http://localhost:3111 TASK http://127.0.0.1:8099/")]
pub(crate) struct Listen {
    /// The address to listen on; any path on it is the webhook
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8099")]
    listen: String,

    /// Refuse what is not signed with the secret in this file, or was signed more than five minutes ago
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,

    /// Refuse what does not bring this token back
    #[arg(long, value_name = "TOKEN", value_parser = clap::value_parser!(StoredSecret))]
    notification_token: Option<StoredSecret>,

    /// Leave after this many notifications
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,

    #[command(flatten)]
    output: Output,
}

/// How a notification is verified.
struct Checks {
    key: Option<hmac::Key>,
    token: Option<StoredSecret>,
}

/// A notification that was accepted.
struct Notification {
    headers: HeaderMap,
    event: StreamResponse,
    /// Signals that it was printed. Until then it is not acknowledged, and the agent sends it again.
    printed: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Receiver {
    checks: Arc<Checks>,
    notifications: mpsc::Sender<Notification>,
}

impl Listen {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let secret =
            secret_in(self.secret_file.as_deref()).map_err(|failure| failure.about("`--secret-file`"))?;
        let key = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &secret));
        let is_signed = key.is_some();
        let checks = Arc::new(Checks { key, token: self.notification_token });
        let listener = TcpListener::bind(&self.listen).await.map_err(|error| {
            Failure::new(format!("cannot listen on `{}`: {error}", self.listen))
                .hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
        })?;
        let address = listener.local_addr().map_err(Failure::new)?;
        say(format_args!("Listening on http://{address}"));
        let (notifications, mut incoming) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let app = Router::new()
            .fallback(any(receive))
            .layer(DefaultBodyLimit::max(LARGEST))
            .with_state(Receiver { checks, notifications });
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        let mut taken = 0;
        while self.count.is_none_or(|count| taken < count) {
            let Some(notification) = incoming.recv().await else { break };
            print(&shown(&notification, is_signed, &self.output)?)?;
            // The sender may have disconnected.
            let _ = notification.printed.send(());
            taken += 1;
        }
        // Waits for the last acknowledgement, but not for idle connections.
        drop(incoming);
        let _ = stop.send(());
        let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
        Ok(())
    }
}

/// A notification in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    delivery_id: Option<&'a str>,
    event_number: Option<u64>,
    attempt: Option<u64>,
    verified: bool,
    event: &'a StreamResponse,
}

fn shown(notification: &Notification, is_signed: bool, output: &Output) -> Result<String, Failure> {
    let Notification { headers, event, .. } = notification;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| header(name).and_then(|text| text.parse::<u64>().ok());
    let (count, attempt) = (number("x-a2a-event-number"), number("x-a2a-delivery-attempt"));
    if output.json {
        let id = header("x-a2a-delivery-id");
        let row = Row { delivery_id: id, event_number: count, attempt, verified: is_signed, event };
        return Ok(format!("{}\n", show::json(&row)?));
    }
    let (task, what) = match event {
        StreamResponse::Task(task) => (task.id.as_str(), status(&task.status)),
        StreamResponse::StatusUpdate(update) => (update.task_id.as_str(), status(&update.status)),
        StreamResponse::ArtifactUpdate(update) => {
            let text = show::artifact(&update.artifact).replace(show::FRESH, "\n");
            (update.task_id.as_str(), format!("artifact: {}", line(&text)))
        }
        StreamResponse::Message(message) => ("-", line(&show::lines(message))),
    };
    let mut text = format!("{}  {what}", line(task));
    if let Some(attempt) = attempt.filter(|attempt| *attempt > 1) {
        text.push_str(&format!("  (attempt {attempt})"));
    }
    text.push('\n');
    Ok(text)
}

fn status(status: &attache::protocol::TaskStatus) -> String {
    let state = show::state(status.state);
    match &status.message {
        Some(message) => format!("{state}: {}", line(&show::lines(message))),
        None => state.to_owned(),
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    if let Err(why) = receiver.checks.pass(&headers, &body, SystemTime::now()) {
        say(format_args!("refused a notification: {why}"));
        return (StatusCode::UNAUTHORIZED, why.to_owned());
    }
    let event = match event(&body) {
        Ok(event) => event,
        Err(error) => {
            let why = format!("not a notification: {}", line(&error));
            say(format_args!("refused something that is {why}"));
            return (StatusCode::BAD_REQUEST, why);
        }
    };
    let (printed, acknowledged) = oneshot::channel();
    let notification = Notification { headers, event, printed };
    let leaving = (StatusCode::SERVICE_UNAVAILABLE, "leaving".to_owned());
    if receiver.notifications.send(notification).await.is_err() {
        return leaving;
    }
    match acknowledged.await {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(_) => leaving,
    }
}

/// Reads a notification of any version. Those of 0.3 and 0.1 are tasks.
fn event(body: &[u8]) -> Result<StreamResponse, String> {
    let strict = match serde_json::from_slice(body) {
        Ok(event) => return Ok(event),
        Err(error) => error.to_string(),
    };
    let tolerated = Event::read_tolerantly(Source::Other, body).map_err(|_| strict)?;
    for deviation in &tolerated.deviations {
        tracing::debug!(deviation, "a notification deviates from the protocol");
    }
    Ok(tolerated.value.response)
}

impl Checks {
    fn pass(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), &'static str> {
        let header = |name: &str| headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
        if let Some(StoredSecret(token)) = &self.token {
            verify_slices_are_equal(header("x-a2a-notification-token"), token.reveal().as_bytes())
                .map_err(|_| "it does not bring the token back")?;
        }
        let Some(key) = &self.key else { return Ok(()) };
        let signature = std::str::from_utf8(header("x-a2a-signature")).unwrap_or_default();
        let member = |name: &str| {
            signature.split(',').filter_map(|member| member.split_once('=')).find(|(key, _)| *key == name)
        };
        let ((_, time), (_, code)) = member("t")
            .zip(member("v1"))
            .ok_or("it is not signed (no `X-A2A-Signature` with `t` and `v1`)")?;
        let seconds: u64 = time.parse().map_err(|_| "the time of its signature is not a number")?;
        let code = bytes(code).ok_or("its signature is not hexadecimal")?;
        let signed = [time.as_bytes(), b".", body].concat();
        hmac::verify(key, &signed, &code).map_err(|_| "it was signed with another secret")?;
        let signed_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let age = signed_at.map(|at| now.duration_since(at).unwrap_or_else(|early| early.duration()));
        match age {
            Some(age) if age <= FRESHNESS => Ok(()),
            Some(_) | None => Err("its signature is not of the last five minutes"),
        }
    }
}

/// Decodes hexadecimal digits.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = hex.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_checked_with_its_time() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"a shared secret");
        let code: String =
            hmac::sign(&key, br#"1000.{"a":1}"#).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let checks = Checks { key: Some(key), token: None };
        let pass = |signature: &str, body: &[u8], now: u64| {
            let mut headers = HeaderMap::new();
            headers.insert("x-a2a-signature", signature.parse().unwrap());
            checks.pass(&headers, body, SystemTime::UNIX_EPOCH + Duration::from_secs(now))
        };
        let genuine = format!("t=1000,v1={code}");
        assert_eq!(pass(&genuine, br#"{"a":1}"#, 1001), Ok(()));
        assert_eq!(pass(&genuine, br#"{"a":1}"#, 999), Ok(()), "clocks differ a little");
        assert!(pass(&genuine, br#"{"a":2}"#, 1001).is_err());
        assert!(pass(&genuine, br#"{"a":1}"#, 1301).is_err(), "it is old");
        assert!(pass(&format!("t=1001,v1={code}"), br#"{"a":1}"#, 1001).is_err());
        for signature in
            ["", "t=1000", "v1=00", "t=x,v1=00", "t=1000,v1=0", "t=1000,v1=zz", "t=99999999999999999999,v1="]
        {
            assert!(pass(signature, br#"{"a":1}"#, 1001).is_err(), "{signature}");
        }
    }

    #[test]
    fn notifications_of_every_version_are_read() {
        let state = |body: &str| match event(body.as_bytes()) {
            Ok(StreamResponse::Task(task)) => show::state(task.status.state).to_owned(),
            Ok(StreamResponse::StatusUpdate(update)) => show::state(update.status.state).to_owned(),
            Ok(other) => panic!("another event: {other:?}"),
            Err(error) => error,
        };
        for body in [
            r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}"#,
            r#"{"id":"t","contextId":"c","kind":"task","status":{"state":"completed"}}"#,
            r#"{"id":"t","sessionId":"s","status":{"state":"completed","timestamp":"2026-11-17T00:22:05.706878"}}"#,
            r#"{"kind":"status-update","taskId":"t","contextId":"c","final":true,"status":{"state":"completed"}}"#,
        ] {
            assert_eq!(state(body), "completed", "{body}");
        }
        for body in ["", "[]", "{}", r#"{"id":7"#, r#"{"status":{"state":"completed"}}"#] {
            assert!(event(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_token_that_is_asked_for_must_come_back() {
        let checks = Checks { key: None, token: Some(StoredSecret::from("t0ken".to_owned())) };
        let mut headers = HeaderMap::new();
        assert!(checks.pass(&headers, b"", SystemTime::now()).is_err());
        headers.insert("x-a2a-notification-token", "t0ken".parse().unwrap());
        assert_eq!(checks.pass(&headers, b"", SystemTime::now()), Ok(()));
    }
}
