//! Redis Streams, from both sides: entries with requests, entries with responses, replies of Redis, and addresses. Push jobs, and requests
//! that another process has left.

use std::cell::OnceCell;
use std::sync::Arc;

use attache_client::parsing;
use attache_core::{
    Delivery, DeliveryId, Entry as LogEntry, Owner, Principal, PushEvents, Seq, TaskEvent, Webhook,
};
use attache_protocol::{AuthenticationInfo, Task, TaskPushNotificationConfig, Timestamp};
use attache_redis::redis::parse_redis_value;
use attache_redis::{Entry, RedisUrl, StreamsAddress, claimed, entries, field, pending_ids};
use attache_server::{parse_entry, parse_job, parse_left, seal_job};
use attache_store::Keyring;
use bytes::Bytes;
use http::HeaderValue;

use crate::choice;
use crate::test_server::contains;

/// The limits of an entry and of its headers, in bytes.
const LIMITS: [(usize, usize); 2] = [(1 << 20, 1 << 16), (300, 60)];

const RESPONSES: &[u8] = b"responses";
const MAX_NAME: usize = 512;

const CORRELATION: &str = "c-1";

const PASSWORD: &str = "correct-h0rse-battery";

/// The id of the store that sealed the job.
const STORE: &str = "store-1";

/// The notification in it.
const BODY: &[u8] = br#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING"}}}"#;

/// The first byte chooses what the rest is. A field is a line with a name, `=` and a value. Entries are separated by an empty line.
pub fn redis_entries(data: &[u8]) {
    let (choice, rest) = choice(data);
    let limits = LIMITS[choice >> 2 & 1];
    match choice >> 3 & 3 {
        1 => return jobs(rest),
        2 => return left(&String::from_utf8_lossy(rest)),
        _ => {}
    }
    match choice & 3 {
        0 => request(&fields(rest), limits),
        1 => responses(rest, limits.0),
        2 => reply(rest),
        _ => addresses(&String::from_utf8_lossy(rest)),
    }
}

fn fields(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let field = |line: &[u8]| {
        let end = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        (line[..end].to_vec(), line.get(end + 1..).unwrap_or_default().to_vec())
    };
    lines.map(field).collect()
}

/// A request that is accepted keeps the rules of the stream, and has at most one credential of each kind.
fn request(fields: &[(Vec<u8>, Vec<u8>)], (max_entry, max_headers): (usize, usize)) {
    let mut left = fields.to_vec();
    let entry = match parse_entry(&mut left, max_entry, max_headers) {
        Ok(entry) => entry,
        Err(reason) => {
            assert!(!reason.is_empty(), "refused without a reason");
            assert_eq!(left, fields, "a refused entry keeps its fields");
            return;
        }
    };
    let size: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(size <= max_entry, "too large");
    let is_shared = entry.reply_stream == RESPONSES;
    assert!(is_shared || entry.reply_stream.starts_with(b"responses:"), "the stream of another application");
    assert!(entry.reply_stream.len() <= MAX_NAME && (1..=MAX_NAME).contains(&entry.correlation.len()));
    assert!(!(is_shared && entry.is_live), "the shared stream does not end with a client");
    let named = |name: &str| -> Vec<_> {
        fields.iter().filter(|(own, _)| own == name.as_bytes()).map(|(_, value)| value).collect()
    };
    assert_eq!(named(field::PAYLOAD), [&entry.payload], "another payload");
    assert!(named(field::HEADERS).len() <= 1, "two sets of headers");
    let sizes = entry.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    assert!(sizes.sum::<usize>() <= max_headers, "too many headers");
    assert_eq!(entry.headers.len(), entry.headers.keys_len(), "a header with two values");
    let is_credential = |(name, value): &&(Vec<u8>, Vec<u8>)| {
        name.eq_ignore_ascii_case(b"authorization") && HeaderValue::from_bytes(value).is_ok()
    };
    assert!(fields.iter().filter(is_credential).count() <= 1, "two credentials");
}

/// The client takes only responses to its own request, in their order.
fn responses(text: &[u8], limit: usize) {
    let mut all = vec![Vec::new()];
    for line in text.split(|byte| *byte == b'\n') {
        match (line.is_empty(), all.last_mut()) {
            (false, Some(entry)) => entry.extend(fields(line)),
            (_, _) => all.push(Vec::new()),
        }
    }
    let all: Vec<Entry> =
        all.into_iter().map(|fields| Entry { id: "1-0".to_owned(), fields: Some(fields) }).collect();
    let own = all.iter().filter(|entry| entry.get(field::CORRELATION_ID) == Some(CORRELATION.as_bytes()));
    let mut payloads = own.filter_map(|entry| entry.get(field::PAYLOAD));
    let (taken, _) = parsing::redis_replies(all.iter().cloned(), CORRELATION, limit);
    for response in &taken {
        assert!(response.len() <= limit, "a response that is too large");
        assert!(payloads.any(|payload| payload == response), "the response to another request");
        parsing::answers(response);
    }
}

/// A delivery with secrets.
fn delivery() -> Delivery {
    let authentication =
        AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: Some(PASSWORD.to_owned()) };
    let config = TaskPushNotificationConfig {
        url: format!("https://hooks.example.com/{PASSWORD}?key={PASSWORD}"),
        id: Some("w".to_owned()),
        task_id: Some("t".into()),
        token: Some(PASSWORD.to_owned()),
        authentication: Some(authentication),
        ..TaskPushNotificationConfig::default()
    };
    Delivery {
        id: DeliveryId { task: "t".into(), webhook: "w".to_owned(), seq: Seq(3) },
        owner: Owner { agent: None, tenant: Some("acme".into()), principal: Principal::named("alice") },
        webhook: Webhook { config, events: PushEvents::States, dialect: None, trace_parent: None },
        entry: Arc::new(LogEntry::new(Seq(3), TaskEvent::Created(Arc::new(Task::default())))),
        attempts: 0,
    }
}

/// Tried as a job in two ways: as it is, and as changes of a sealed job. Three bytes are one change: where, and what.
fn jobs(data: &[u8]) {
    thread_local! {
        static SEALED: OnceCell<(Keyring, String)> = const { OnceCell::new() };
    }
    SEALED.with(|sealed| {
        let (keys, sealed) = sealed.get_or_init(|| {
            let keys = Keyring::ephemeral().expect("the system has random numbers");
            let now = Timestamp::from_millis(1_794_787_200_250);
            let job = seal_job(&delivery(), &Bytes::from_static(BODY), STORE, &keys, now);
            (keys, job.expect("it can be sealed"))
        });
        assert!(!sealed.contains(PASSWORD), "{sealed}");
        let mut changed = sealed.clone().into_bytes();
        for change in data.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
            changed[at] ^= change[2];
        }
        for text in [data, &changed] {
            job(text, keys);
        }
    });
}

/// What was sealed opens only in the job that it was sealed for. No text has a secret.
fn job(text: &[u8], keys: &Keyring) {
    let job = match parse_job(text, keys) {
        Ok(job) => job,
        Err(reason) => {
            assert!(!reason.is_empty() && reason.len() < 2000, "{reason}");
            assert!(contains(text, PASSWORD.as_bytes()) || !reason.contains(PASSWORD), "{reason}");
            return;
        }
    };
    assert!(job.plain_headers.len() <= 3, "{:?}", job.plain_headers);
    let again = parse_job(job.json.as_bytes(), keys).expect("what was written can be read");
    assert_eq!((&again.json, &again.body), (&job.json, &job.body), "a job changes each time it is written");
    match &job.opened {
        Some(Ok((owner, webhook, seq))) => {
            let sealed = delivery();
            assert_eq!(
                (owner, &webhook.config, *seq),
                (&sealed.owner, &sealed.webhook.config, sealed.id.seq)
            );
            assert_eq!((&*job.id, job.store.as_deref()), (&*sealed.id.token(), Some(STORE)));
            assert_eq!((&job.task, &*job.webhook, &*job.body), (&sealed.id.task, "w", BODY));
        }
        Some(Err(reason)) => {
            assert!(!reason.is_empty() && reason.len() < 2000 + text.len(), "{reason}");
            assert!(contains(text, PASSWORD.as_bytes()) || !reason.contains(PASSWORD), "{reason}");
        }
        None => assert_eq!(job.store, None),
    }
}

/// A request that another process has left: an id, and the members that have had the request.
fn left(text: &str) {
    let Some((id, visited)) = parse_left(text) else {
        assert!(text.trim_matches(' ').is_empty(), "{text:?} was lost");
        return;
    };
    let words: Vec<&str> = std::iter::once(id).chain(visited.iter().map(|member| &**member)).collect();
    assert!(words.iter().all(|word| !word.is_empty() && !word.contains(' ')), "{words:?}");
    assert_eq!(words, text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
    let again = words.join(" ");
    assert_eq!(parse_left(&again), Some((id, visited)), "it changes each time it is written");
}

/// Whatever Redis returns, reading it comes to an end, and no more comes out than went in.
fn reply(bytes: &[u8]) {
    let Ok(value) = parse_redis_value(bytes) else { return };
    for found in [entries(value.clone()), claimed(value.clone())] {
        let size: usize = found.iter().flatten().map(|entry| entry.size() + entry.id.len()).sum();
        assert!(size <= bytes.len(), "more came out than went in");
    }
    let pending = pending_ids(value);
    assert!(pending.map_or(0, |rows| rows.iter().map(|(id, _)| id.len()).sum()) <= bytes.len());
}

/// An address is the same after a second parse. No text of ours repeats a password.
fn addresses(text: &str) {
    for scheme in ["redis", "rediss"] {
        let with_password = format!("{scheme}://ops:{PASSWORD}@{text}");
        let shown = match with_password.parse::<RedisUrl>() {
            Ok(url) => format!("{url} {url:?} {:?} {}", url.server(), url.is_local()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains(PASSWORD), "{shown}");
        let streams = format!("{scheme}-streams://ops:{PASSWORD}@{text}");
        let shown = match streams.parse::<StreamsAddress>() {
            Ok(address) => format!("{address} {address:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(text.contains(['@', '?', '/', '#']) || !shown.contains(PASSWORD), "{shown}");
    }
    let _ = text.parse::<RedisUrl>();
    for text in [text.to_owned(), format!("redis-streams://{text}")] {
        let Ok(address) = text.parse::<StreamsAddress>() else { continue };
        let again = address.to_string().parse::<StreamsAddress>();
        assert_eq!(again.as_ref(), Ok(&address), "{address}");
    }
}
