//! Stored content: its routes, ranges, and the names and types that agents give it.

use std::cell::RefCell;
use std::path::Component;

use attache_core::{ArtifactStore, Artifacts, ContentId, Identity, safe_file_name};
use attache_protocol::TaskId;
use attache_server::HttpService;
use attache_store::{DirectoryOptions, DirectoryStore};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
    HeaderName, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::test_server::{Answer, JSON, SECRET, contains, read, server, surface};
use crate::{choice, line};

/// After so many questions everything begins anew.
const QUESTIONS: u32 = 256;

/// What Alice's agent has stored.
const CONTENT: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Names that are no files on some systems.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com1", "lpt9"];

/// The first byte chooses what the rest is. It is a path below the artifacts, with headers in the lines after it, or the name, the
/// media type and the content of a file. In the path, `@` stands for Alice's content and `!` for Bob's.
pub fn artifacts(data: &[u8]) {
    let (choice, rest) = choice(data);
    thread_local! {
        static STORE: RefCell<Option<ContentServer>> = const { RefCell::new(None) };
    }
    STORE.with_borrow_mut(|server| {
        if server.as_ref().is_some_and(|server| server.asked == QUESTIONS) {
            *server = None;
        }
        let server = server.get_or_insert_with(ContentServer::build);
        server.asked += 1;
        match choice & 3 {
            0 => server.store_and_get(rest),
            _ => server.get(if choice & 4 == 0 { Method::GET } else { Method::HEAD }, rest),
        }
    });
}

struct ContentServer {
    http: HttpService,
    store: DirectoryStore,
    /// Alice's content and Bob's, as `TASK/ID`.
    own: String,
    other: String,
    asked: u32,
    runtime: Runtime,
    /// Removed after what uses it.
    _folder: TempDir,
}

impl ContentServer {
    fn build() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing that could be missing");
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        let store =
            DirectoryStore::open(folder.path(), DirectoryOptions::default()).expect("the folder is new");
        let artifacts = Artifacts::new(store.clone()).inline_limit(0);
        let http = runtime.block_on(async { surface(server().artifacts(artifacts)) });
        let mut server = Self {
            http,
            store,
            own: String::new(),
            other: String::new(),
            asked: 0,
            runtime,
            _folder: folder,
        };
        let stored = |answer: Option<(String, Answer)>| answer.map(|(place, _)| place).expect("it is stored");
        server.own = stored(server.stored("alice", "a.txt", "text/plain", CONTENT));
        server.other = stored(server.stored("bob", "b.txt", "text/plain", SECRET.as_bytes()));
        server
    }

    fn ask(&self, caller: &str, mut request: Request<Bytes>) -> Answer {
        request.extensions_mut().insert(Identity::named(caller));
        let request = request.map(Full::new);
        self.runtime.block_on(async { read(self.http.handle(request).await).await })
    }

    /// Lets the agent store a file. Returns its place, if it is stored.
    fn stored(&self, caller: &str, name: &str, media_type: &str, content: &[u8]) -> Option<(String, Answer)> {
        let part = json!({"raw": STANDARD.encode(content), "filename": name, "mediaType": media_type});
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
            "params": {"message": message, "configuration": {"returnImmediately": false}},
        });
        let mut request = Request::new(Bytes::from(body.to_string()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static("/a2a");
        request.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
        request.headers_mut().insert("a2a-version", HeaderValue::from_static("1.0"));
        let answer = self.ask(caller, request);
        let value: Value = serde_json::from_slice(&answer.body).expect("responses are JSON");
        let code = value["error"]["code"].as_i64();
        assert!(![Some(-32603), Some(-32006)].contains(&code), "we are to blame: {value}");
        let url = value["result"]["task"]["artifacts"][0]["parts"][0]["url"].as_str()?;
        let place = url.strip_prefix("http://localhost:4600/artifacts/");
        Some((place.unwrap_or_else(|| panic!("another URL: {url}")).to_owned(), answer))
    }

    /// Whatever an agent calls a file, it is stored below the folder of its task, and comes back as a harmless download.
    fn store_and_get(&self, data: &[u8]) {
        let (name, rest) = line(data);
        let (media_type, content) = line(rest);
        let (name, media_type) = (String::from_utf8_lossy(name), String::from_utf8_lossy(media_type));
        self.check_path(&name, &media_type);
        let safe = safe_file_name(&name);
        if let Some(safe) = &safe {
            assert_eq!(safe_file_name(safe).as_ref(), Some(safe), "another name the second time");
            let stem = safe.split('.').next().unwrap_or_default().trim_end();
            assert!(!DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device)), "a device: {safe}");
        }
        let Some((place, _)) = self.stored("alice", &name, &media_type, content) else { return };
        let request = Request::get(format!("/artifacts/{place}")).header(HOST, "localhost:4600");
        let answer = self.ask("alice", request.body(Bytes::new()).expect("it is a place of ours"));
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, content), "{}", answer.text());
        check_headers(&answer.headers);
        let sent_type = answer.headers[CONTENT_TYPE].to_str().expect("it is checked");
        assert!(sent_type == "application/octet-stream" || sent_type == media_type, "{sent_type}");
        let shown = shown_name(&answer.headers);
        assert_eq!(shown, safe.unwrap_or_else(|| "artifact".to_owned()), "another name");
        let foreign = Request::get(format!("/artifacts/{place}")).body(Bytes::new());
        let answer = self.ask("bob", foreign.expect("it is a place of ours"));
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "somebody else's content");
    }

    fn check_path(&self, name: &str, task: &str) {
        let id = self.own.split_once('/').and_then(|(_, id)| ContentId::parse(id)).expect("it is an id");
        let path = ArtifactStore::path(&self.store, &TaskId::from(task), &id, Some(name))
            .expect("content is in files");
        let below = path.strip_prefix(self.store.path()).unwrap_or_else(|_| panic!("outside: {path:?}"));
        let is_plain = below.components().all(|component| matches!(component, Component::Normal(_)));
        assert!(is_plain && below.components().count() == 4, "{below:?}");
    }

    /// Whatever the path and the headers are: the content, a part of it, or an error.
    fn get(&self, method: Method, data: &[u8]) {
        let (path, mut rest) = line(data);
        let path = String::from_utf8_lossy(path).replace('@', &self.own).replace('!', &self.other);
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = method.clone();
        let Ok(uri) = format!("/artifacts/{path}").parse() else { return };
        *request.uri_mut() = uri;
        while !rest.is_empty() {
            let (field, after) = line(rest);
            rest = after;
            let Some(colon) = field.iter().position(|byte| *byte == b':') else { continue };
            let name = HeaderName::from_bytes(&field[..colon]);
            let value = HeaderValue::from_bytes(field[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (name, value)
                && request.headers_mut().try_append(name, value).is_err()
            {
                return;
            }
        }
        let answer = self.ask("alice", request);
        let shown = || format!("{} {:?} {}", answer.status, answer.headers, answer.text());
        assert!(
            !contains(&answer.body, SECRET.as_bytes()) || contains(data, SECRET.as_bytes()),
            "{}",
            shown()
        );
        assert!(!answer.status.is_server_error(), "{}", shown());
        let sent = match answer.status {
            StatusCode::OK => CONTENT,
            StatusCode::PARTIAL_CONTENT => part_of(&answer.headers).unwrap_or_else(|| panic!("{}", shown())),
            StatusCode::NOT_MODIFIED => b"",
            status => {
                assert!(status.is_client_error(), "{}", shown());
                return;
            }
        };
        check_headers(&answer.headers);
        assert_eq!(answer.body, if method == Method::GET { sent } else { b"" }, "{}", shown());
        if let Some(length) = answer.headers.get(CONTENT_LENGTH) {
            assert_eq!(length.as_bytes(), sent.len().to_string().as_bytes(), "{}", shown());
        }
    }
}

/// The part of the content that a response says it has.
fn part_of(headers: &HeaderMap) -> Option<&'static [u8]> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    (size.parse() == Ok(CONTENT.len())).then_some(CONTENT.get(first..=last)?)
}

/// A browser must not run content, or take it for a page.
fn check_headers(headers: &HeaderMap) {
    assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(headers[CONTENT_SECURITY_POLICY].to_str().is_ok_and(|policy| policy.contains("sandbox")));
    assert!(headers[CONTENT_DISPOSITION].as_bytes().starts_with(b"attachment; filename=\""));
}

/// The name that a client reads in the headers.
fn shown_name(headers: &HeaderMap) -> String {
    let text = headers[CONTENT_DISPOSITION].to_str().expect("it is ASCII");
    let rest = text.strip_prefix("attachment; filename=\"").expect("it is checked");
    let (plain, rest) = rest.split_once('"').expect("the quotes are closed");
    assert!(!plain.contains(['/', '\\']), "{text}");
    match rest.strip_prefix("; filename*=UTF-8''") {
        Some(encoded) => percent_decode_str(encoded).decode_utf8().expect("it is UTF-8").into_owned(),
        None => {
            assert_eq!(rest, "", "{text}");
            plain.to_owned()
        }
    }
}
