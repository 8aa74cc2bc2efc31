use serde_json::json;

use super::*;
use crate::{BoxFuture, Fetch, Fetched};

fn reader(rules: &InputRules, peer: PeerRules) -> Reader<'_> {
    Reader { rules, peer }
}

fn data(value: Value) -> Part {
    Part::data(&value).unwrap()
}

fn iac_code() -> InputRules {
    InputRules {
        text_types: ["text/plain", "application/json", "text/markdown", "text/yaml"]
            .map(str::to_owned)
            .into(),
        media_types: ["image/png", "audio/wav", "application/octet-stream"].map(str::to_owned).into(),
        ..InputRules::default()
    }
}

fn message(part: Part) -> Message {
    Message { parts: vec![part], ..Message::user("m", "") }
}

fn refusal(rules: &InputRules, peer: PeerRules, part: Part) -> (i32, String) {
    match reader(rules, peer).check(&message(part), None) {
        Ok(()) => (0, String::new()),
        Err(Unaccepted::Error(error)) => {
            let text = error.field_violations().first().map(|bad| bad.description.clone());
            (error.kind().jsonrpc_code(), text.unwrap_or_else(|| error.message().to_owned()))
        }
        Err(Unaccepted::Failed(text)) => (1, text.to_owned()),
    }
}

#[tokio::test]
async fn every_category_becomes_text_or_media() {
    let rules = iac_code();
    let mut message = Message::user("m", "Hello");
    let unsorted = attache_protocol::Json::parse(r#"{"b": 1, "a": [1, 2]}"#).unwrap();
    message.parts.push(Part::new(Content::Data(unsorted)).media_type("application/json"));
    message.parts.push(Part::raw("key: value").media_type("text/yaml").filename("a.yml"));
    message.parts.push(Part::raw([1, 2]).media_type("image/png").filename("a.png"));
    message.parts.push(data(json!({"base64": "AQI="})).media_type("audio/wav"));
    let input = reader(&rules, PeerRules::IacCode).read(&message, None).await.unwrap();
    let text = input.text();
    assert!(
        text.starts_with("Hello\n{\"a\":[1,2],\"b\":1}\nkey: value\nA2A multimodal attachment:\n"),
        "{text}"
    );
    assert_eq!(input.media().map(|media| media.source.to_string()).collect::<Vec<_>>(), ["inline", "data"]);
    // In our own mode members keep their order, and files their names.
    let input = reader(&rules, PeerRules::Standard).read(&message, None).await.unwrap();
    assert!(
        input.text().starts_with("Hello\n{\"b\":1,\"a\":[1,2]}\na.yml:\nkey: value\n"),
        "{}",
        input.text()
    );
}

#[test]
fn what_is_not_accepted_is_refused_with_the_documented_words() {
    let rules = InputRules { max_text: 10, max_data: 10, max_media: 10, ..iac_code() };
    let long = "x".repeat(11);
    for (part, code, words) in [
        (Part::text("a").media_type("text/html"), -32005, "`text/html` is not accepted here"),
        (Part::raw("a").media_type("application/zip"), -32005, "`application/zip` is not accepted here"),
        (data(json!(long)), -32602, "A2A data part content is too large."),
        (
            data(json!({})).media_type("text/plain"),
            -32602,
            "A2A data parts must use application/json media type.",
        ),
        (data(json!([])).media_type("image/png"), -32602, "A2A binary data parts must contain an object."),
        (data(json!({})).media_type("image/png"), -32602, "A2A binary data parts must include base64 bytes."),
        (
            data(json!({"bytes": "?"})).media_type("image/png"),
            -32602,
            "A2A binary data part bytes must be valid base64.",
        ),
        (Part::raw(long.clone()), -32602, "A2A raw part content is too large."),
        (Part::raw([0xff]), -32602, "A2A raw parts must contain valid UTF-8."),
        (Part::raw(long).media_type("image/png"), -32602, "A2A binary raw part content is too large."),
        (Part::url("https://example.org/a"), -32602, "A2A file URL parts must use local file:// URLs."),
        (Part::url("file://host/a"), -32602, "A2A file URL parts must use local file:// URLs."),
        (Part::url("file:///a"), -32602, "A2A file URL part is outside the allowed workspace."),
        (Part::text("  "), 1, "A2A server currently accepts text input only."),
    ] {
        let (given, text) = refusal(&rules, PeerRules::IacCode, part.clone());
        assert_eq!(given, code, "{part:?}: {text}");
        assert!(text.starts_with(words), "{part:?}: {text}");
    }
    let (code, text) = refusal(&rules, PeerRules::Standard, Part::url("https://example.org/a"));
    assert_eq!(code, -32602);
    assert!(text.contains("remote URLs are not read"), "{text}");
    let (_, text) = refusal(&rules, PeerRules::Standard, Part::text(""));
    assert!(text.starts_with("the message is empty"), "{text}");
}

#[test]
fn local_urls_name_a_path_and_nothing_else() {
    for (url, path) in [
        ("file:///a/b%20c.txt", Some(Some("/a/b c.txt"))),
        ("FILE:///a", Some(Some("/a"))),
        ("file://localhost/a", Some(None)),
        ("file:a", Some(None)),
        ("file:///a?b", Some(None)),
        ("file:///a%2", Some(None)),
        ("file:///a%ff", Some(None)),
        ("https://a", None),
        ("ü", None),
    ] {
        assert_eq!(file_path(url), path.map(|path| path.map(PathBuf::from)), "{url}");
    }
}

#[test]
fn white_space_in_strings_stays() {
    assert_eq!(compact(r#"{ "a b" : [ 1 , "x \" y" ] , "n": 1.50 }"#), r#"{"a b":[1,"x \" y"],"n":1.50}"#);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_of_the_workspace_are_read_within_their_limits() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("a.txt"), "text").unwrap();
    std::fs::write(work.join("a.bin"), [0xff; 20]).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", work.join("link")).unwrap();
    let workspace = Arc::new(Workspace::open(&work).unwrap());
    let rules = InputRules { max_text: 10, max_file: 100, ..InputRules::default() };
    let reader = reader(&rules, PeerRules::Standard);
    let url = |name: &str| Part::url(format!("file://{}/{name}", workspace.root().display()));
    let parts = [url("a.txt"), url("a.bin")];
    let message = Message { parts: parts.into(), ..Message::user("m", "") };
    assert!(reader.check(&message, Some(&workspace)).is_ok());
    let input = reader.read(&message, Some(workspace.clone())).await.unwrap();
    assert!(matches!(&input.pieces[0], InputPiece::TextFile { text, .. } if text == "text"));
    let media = input.media().next().unwrap();
    assert_eq!((media.filename.as_str(), media.media_type.as_str()), ("a.bin", "application/octet-stream"));
    for (part, words) in [
        (url("link"), "links that lead out of the workspace"),
        (url("../secret"), "`..` is not allowed"),
        (url("missing"), "there is no such file"),
        (url("a.bin").media_type("text/plain"), "it is too large: the limit is 10 bytes"),
        (Part::url(format!("file://{}", folder.path().join("secret").display())), "only paths below"),
    ] {
        let message = Message { parts: vec![part.clone()], ..Message::user("m", "") };
        let Err(Unaccepted::Error(error)) = reader.check(&message, Some(&workspace)) else {
            panic!("{part:?}")
        };
        let text = error.field_violations()[0].description.clone();
        assert!(text.contains(words), "{part:?}: {text}");
        assert!(reader.read(&message, Some(workspace.clone())).await.is_err());
    }
}

struct Web;

impl Fetch for Web {
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(async move {
            let bytes = format!("{url} {limit}").into_bytes();
            Ok(Fetched { bytes, media_type: Some("text/html; charset=utf-8".to_owned()) })
        })
    }
}

#[tokio::test]
async fn remote_urls_are_fetched_if_that_is_allowed() {
    let rules = InputRules { max_file: 5, fetch: Some(Arc::new(Web)), ..InputRules::default() };
    let message = Message { parts: vec![Part::url("https://example.org/page?x")], ..Message::user("m", "") };
    let input = reader(&rules, PeerRules::Standard).read(&message, None).await.unwrap();
    let [InputPiece::TextFile { filename, media_type, text }] = &input.pieces[..] else {
        panic!("{input:?}")
    };
    assert_eq!(text, "https://example.org/page?x 5");
    assert_eq!((filename.as_deref(), media_type.as_deref()), (Some("page"), Some("text/html")));
}

#[test]
fn the_whole_message_has_a_limit() {
    let rules = InputRules { max_total: 10, ..InputRules::default() };
    let message = Message::user("m", "123456").part("123456");
    let Err(Unaccepted::Error(error)) = reader(&rules, PeerRules::Standard).check(&message, None) else {
        panic!("it is too large");
    };
    assert!(error.field_violations()[0].description.contains("10 bytes in all"));
}

#[test]
fn content_is_accepted_at_each_limit_and_refused_past_it() {
    let rules =
        InputRules { max_text: 10, max_data: 11, max_media: 12, max_total: 30, ..InputRules::default() };
    let x = |length: usize| "x".repeat(length);
    let image = |length: usize| Part::raw(vec![0xff_u8; length]).media_type("image/png");
    // A text in JSON has two quotes.
    for (within, past, limit) in [
        (data(json!(x(9))), data(json!(x(10))), 11),
        (Part::raw(x(10)).media_type("text/plain"), Part::raw(x(11)).media_type("text/plain"), 10),
        (image(12), image(13), 12),
        (
            data(json!({"base64": STANDARD.encode([1; 12])})).media_type("image/png"),
            data(json!({"base64": STANDARD.encode([1; 13])})).media_type("image/png"),
            12,
        ),
        (Part::raw(vec![0xff_u8; 12]), Part::raw(vec![0xff_u8; 13]), 12),
    ] {
        assert_eq!(refusal(&rules, PeerRules::Standard, within.clone()), (0, String::new()), "{within:?}");
        let expected = (-32602, format!("it is too large: the limit is {limit} bytes"));
        assert_eq!(refusal(&rules, PeerRules::Standard, past.clone()), expected, "{past:?}");
    }
    let total = |length: usize| {
        let message = Message::user("m", x(15)).part(x(length - 15));
        reader(&rules, PeerRules::Standard).check(&message, None).is_ok()
    };
    assert_eq!((total(30), total(31)), (true, false));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_of_the_workspace_is_accepted_at_its_limit_and_refused_past_it() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
    let rules = InputRules { max_text: 10, max_file: 20, ..InputRules::default() };
    let reader = reader(&rules, PeerRules::Standard);
    for (media_type, length, fits) in [
        (Some("text/plain"), 10, true),
        (Some("text/plain"), 11, false),
        (Some("image/png"), 20, true),
        (Some("image/png"), 21, false),
        (None, 20, true),
        (None, 21, false),
    ] {
        std::fs::write(folder.path().join("file"), vec![b'x'; length]).unwrap();
        let mut part = Part::url(format!("file://{}/file", workspace.root().display()));
        part.media_type = media_type.map(str::to_owned);
        let message = Message { parts: vec![part], ..Message::user("m", "") };
        let read = reader.read(&message, Some(workspace.clone())).await;
        let checked = reader.check(&message, Some(&workspace));
        assert_eq!((checked.is_ok(), read.is_ok()), (fits, fits), "{media_type:?} {length}");
    }
}
