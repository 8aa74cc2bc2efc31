//! The format of jobs.

use std::sync::Arc;

use attache_core::{DeliveryId, Entry as LogEntry, SealError, TaskEvent};
use attache_protocol::Task;

use super::*;

/// Shows what was sealed, and for what.
struct Keys(u8);

impl Seal for Keys {
    fn seal(&self, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let purpose = Sha256::digest(purpose);
        Ok([&[self.0], purpose.as_slice(), secret].concat())
    }

    fn open(&self, purpose: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let begin = [&[self.0], Sha256::digest(purpose).as_slice()].concat();
        sealed.strip_prefix(begin.as_slice()).map(<[u8]>::to_vec).ok_or_else(|| SealError::new("another key"))
    }
}

const BODY: &[u8] = br#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING"}}}"#;

fn delivery() -> Delivery {
    let config = TaskPushNotificationConfig {
        url: "https://hooks.example.com:8443/secret-path?key=secret-key".to_owned(),
        id: Some("w".to_owned()),
        task_id: Some("t".into()),
        token: Some("secret-token".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("secret-credentials".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    };
    let trace_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok();
    Delivery {
        id: DeliveryId { task: "t".into(), webhook: "w".to_owned(), seq: Seq(3) },
        owner: Owner { agent: None, tenant: Some("acme".into()), principal: Principal::named("alice") },
        webhook: Webhook { config, events: PushEvents::States, dialect: None, trace_parent },
        entry: Arc::new(LogEntry::new(Seq(3), TaskEvent::Created(Arc::new(Task::default())))),
        attempts: 0,
    }
}

fn job() -> Job {
    let now = Timestamp::from_millis(1_794_787_200_250);
    Job::of(&delivery(), &Bytes::from_static(BODY), "store-1", &Keys(1), now).unwrap()
}

fn entry(job: &str) -> Entry {
    Entry { id: "1-0".to_owned(), fields: Some(vec![(b"job".to_vec(), job.as_bytes().to_vec())]) }
}

#[test]
fn a_job_has_the_members_of_iac_code_and_no_secret_in_clear() {
    let json =
        job().failed(Timestamp::from_millis(1_794_787_201_500), "the receiver answered 503".to_owned());
    let json = json.to_json();
    assert!(!json.contains("secret"), "{json}");
    let mut shown: Value = serde_json::from_str(&json).unwrap();
    let sealed = shown["attache"]["sealed"].take();
    let sealed = STANDARD.decode(sealed.as_str().unwrap()).unwrap();
    assert!(String::from_utf8_lossy(&sealed).contains("secret-credentials"));
    let names: Vec<_> = shown.as_object().unwrap().keys().cloned().collect();
    assert!(names.is_sorted());
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
}

#[test]
fn a_server_with_the_keys_opens_a_job_as_it_was() {
    let read = Job::parse(&entry(&job().to_json())).unwrap();
    let opened = read.open(&Keys(1)).unwrap().unwrap();
    let Delivery { owner, mut webhook, .. } = delivery();
    webhook.config.tenant = None;
    assert_eq!((opened.owner, opened.webhook, opened.seq), (owner, webhook, Seq(3)));
    assert_eq!(read.body(), BODY);
    assert_eq!(read.job_id, delivery().id.token());
    assert_eq!((read.store(), read.order()), (Some("store-1"), job().order()));
    assert!(read.open(&Keys(2)).unwrap().unwrap_err().contains("another key"));
}

#[test]
fn a_job_that_was_changed_does_not_open() {
    let whole = job().to_json();
    for (from, to) in [
        ("TASK_STATE_WORKING", "TASK_STATE_FAILED"),
        ("\"taskId\":\"t\",\"url\"", "\"taskId\":\"u\",\"url\""),
        ("\"configId\":\"w\"", "\"configId\":\"v\""),
        ("store-1", "store-2"),
    ] {
        assert!(whole.contains(from), "{from}: {whole}");
        let changed = Job::parse(&entry(&whole.replace(from, to))).unwrap();
        assert!(changed.open(&Keys(1)).unwrap().is_err(), "{from}");
    }
}

#[test]
fn a_plain_job_is_read_without_its_secrets() {
    let text = r#"{"attempt":1,"configId":"t","headers":{"Authorization":"***","Content-Type":"application/json","Cookie":"a=b"},
        "jobId":"0123","lastError":null,"nextAttemptAt":1.5,"payload":{"task":{"id":"t"}},"taskId":"t","url":"https://hooks.example.com/a"}"#;
    let job = Job::parse(&entry(text)).unwrap();
    assert!(job.open(&Keys(1)).is_none() && job.order().is_none() && job.lacks_credentials());
    assert_eq!(job.body(), br#"{"task":{"id":"t"}}"#.as_slice());
    let headers = job.plain_headers();
    assert_eq!((headers.len(), &headers[CONTENT_TYPE]), (1, &HeaderValue::from_static("application/json")));
    assert_eq!(job.plain_webhook().config.url, "https://hooks.example.com/a");
    let fewest = r#"{"jobId":"1","payload":1,"taskId":"t","url":"u"}"#;
    assert!(!Job::parse(&entry(fewest)).unwrap().lacks_credentials());
}

#[test]
fn an_entry_that_is_no_job_is_refused_with_a_reason() {
    let reason = |text: &str| Job::parse(&entry(text)).unwrap_err();
    for text in ["", "{", "[]", "1", r#"{"jobId":"1"}"#, r#"{"jobId":1,"payload":1,"taskId":"t","url":"u"}"#]
    {
        assert!(reason(text).contains("the entry has no job"), "{text}");
    }
    let long = format!(r#"{{"attempt": "{}"}}"#, "x".repeat(100_000));
    assert!(reason(&long).len() < 400, "{}", reason(&long).len());
    let encrypted = r#"{"iacCodeEncryptedPushJob":{"version":1,"keyId":"k","ciphertext":"c"}}"#;
    assert!(reason(encrypted).contains("iac-code has encrypted the job"));
    let other = Entry { id: "1-0".to_owned(), fields: Some(Vec::new()) };
    assert!(Job::parse(&other).unwrap_err().contains("no field `job`"));
}

#[test]
fn only_the_origin_of_a_url_is_in_clear() {
    assert_eq!(origin("https://hooks.example.com/a/b?c=d#e"), "https://hooks.example.com/");
    assert_eq!(origin("http://user:password@[::1]:9/x"), "http://[::1]:9/");
    assert_eq!(origin("nonsense"), "");
}
