//! What authorization servers, MCP servers and browsers send while somebody logs in.

use std::cell::OnceCell;
use std::fmt::{Debug, Display};
use std::time::Duration;

use attache_agents::mcp::parsing::login_place;
use attache_client::ClientOptions;
use attache_client::oauth_parsing::{self as parsing, MetadataReader};
use attache_protocol::Timestamp;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use url::{Url, form_urlencoded};

use crate::pieces::{Pieces, block_on};
use crate::{choice, line};

const STATUSES: [StatusCode; 4] =
    [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::FOUND, StatusCode::BAD_GATEWAY];

/// The server, and where its metadata is.
const ISSUER: &str = "https://auth.example/t";
const METADATA: &str = "https://auth.example/.well-known/oauth-authorization-server/t";

/// The state that the login began with.
const STATE: &str = "s-1";

/// How long the text of an error may be, in bytes.
const LONGEST_ERROR: usize = 2000;

/// The shortest text that counts as a secret.
const SHORTEST_SECRET: usize = 8;

/// The first byte chooses what the rest is, and the status of the response.
pub fn oauth(data: &[u8]) {
    let (choice, rest) = choice(data);
    let status = STATUSES[choice >> 3 & 3];
    match choice & 7 {
        0 | 1 => tokens(status, rest),
        2 => device(status, rest),
        3 => registration(status, rest),
        4 => metadata(status, rest),
        5 => challenge(rest),
        _ => redirect(choice & 1 == 1, rest),
    }
}

/// Texts of a response that no error may repeat: those that look like a secret, outside of the members that are for people.
fn secrets(body: &[u8]) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(members) => members.values().for_each(|member| collect(member, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let mut found = Vec::new();
    collect(&value, &mut found);
    let shown = ["error", "error_description"].map(|name| value[name].as_str().unwrap_or_default());
    found.retain(|text| is_secret(text) && !shown.iter().any(|shown| shown.contains(text.as_str())));
    found
}

/// Whether a text could be a secret. No text of ours is like that.
fn is_secret(text: &str) -> bool {
    text.len() >= SHORTEST_SECRET
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn check_shown(shown: &(impl Debug + ?Sized), secrets: &[String]) {
    let shown = format!("{shown:?}");
    assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
}

fn check_error(error: &(impl Display + Debug), secrets: &[String]) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < LONGEST_ERROR, "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    check_shown(error, secrets);
}

/// Whether a body has this text in this member. A list has members too, which have no names. Members that are not used can have bytes that
/// are no text.
fn has(body: &[u8], name: &str, text: &str) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return true };
    value[name] == text || value.as_array().is_some_and(|items| items.iter().any(|item| item == text))
}

fn tokens(status: StatusCode, body: &[u8]) {
    match parsing::tokens(status, body) {
        Ok(tokens) => {
            assert_eq!(status, StatusCode::OK);
            assert!(has(body, "access_token", tokens.access.reveal()));
            assert!(!tokens.access.reveal().is_empty(), "a token that is empty");
            assert!(tokens.refresh.as_ref().is_none_or(|token| !token.reveal().is_empty()));
            assert!(!tokens.is_stale(Timestamp::UNIX_EPOCH), "{:?}", tokens.renew);
            check_shown(&tokens, &secrets(body));
        }
        Err(error) => check_error(&error, &secrets(body)),
    }
}

fn device(status: StatusCode, body: &[u8]) {
    match parsing::device(status, body) {
        Ok(login) => {
            assert!(has(body, "user_code", &login.code) && has(body, "verification_uri", &login.url));
            assert!((1..=60).contains(&login.interval.as_secs()), "{:?}", login.interval);
            assert!(login.limit <= Duration::from_secs(60 * 60), "{:?}", login.limit);
        }
        Err(error) => check_error(&error, &secrets(body)),
    }
}

fn registration(status: StatusCode, body: &[u8]) {
    match parsing::registration(status, body) {
        Ok(client) => {
            assert!(status.is_success() && !client.id.is_empty(), "{client:?}");
            assert!(client.secret.as_ref().is_none_or(|secret| !secret.reveal().is_empty()));
            let mut secrets = secrets(body);
            secrets.retain(|secret| !client.id.contains(secret.as_str()));
            check_shown(&client, &secrets);
        }
        Err(error) => check_error(&error, &secrets(body)),
    }
}

/// Secrets go only to endpoints with TLS or on this machine, and only metadata of the issuer itself is used.
fn metadata(status: StatusCode, body: &[u8]) {
    thread_local! {
        static READER: OnceCell<MetadataReader> = const { OnceCell::new() };
    }
    let url = Url::parse(METADATA).expect("it is a URL");
    READER.with(|reader| {
        let reader = reader.get_or_init(|| {
            MetadataReader::new(ClientOptions::default()).expect("the system has what requests need")
        });
        match reader.read(&url, status, body) {
            Ok(server) => {
                assert_eq!(status, StatusCode::OK);
                let issuer = server.issuer.as_deref().and_then(|issuer| Url::parse(issuer).ok());
                assert_eq!(issuer.map(|issuer| issuer.origin()), Some(url.origin()));
                for endpoint in server.endpoints {
                    let is_here = matches!(endpoint.host_str(), Some("localhost" | "[::1]"))
                        || endpoint.host_str().is_some_and(|host| host.starts_with("127."));
                    assert!(
                        endpoint.scheme() == "https" || endpoint.scheme() == "http" && is_here,
                        "{endpoint}"
                    );
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() < LONGEST_ERROR && !text.chars().any(char::is_control), "{text:?}");
            }
        }
    });
}

/// Lines with challenges, an empty line, and the metadata of the server.
fn challenge(mut rest: &[u8]) {
    let mut headers = HeaderMap::new();
    loop {
        let (first, others) = line(rest);
        rest = others;
        if first.is_empty() {
            break;
        }
        if let Ok(value) = HeaderValue::from_bytes(first) {
            headers.append(WWW_AUTHENTICATE, value);
        }
    }
    let server = Url::parse("https://mcp.example:8443/a/b?c=d").expect("it is a URL");
    let Ok((urls, place)) = login_place(&server, &headers, rest) else { return };
    assert!((2..=3).contains(&urls.len()), "{urls:?}");
    assert!(urls.iter().all(|url| url.origin() == server.origin()), "another server: {urls:?}");
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(rest) else { return };
    let first = value["authorization_servers"][0].as_str();
    assert_eq!(place.issuer, first.unwrap_or("https://mcp.example:8443"));
    let named = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .any(|value| value.as_bytes().windows(5).any(|it| it == b"scope"));
    let supported: Vec<&str> =
        value["scopes_supported"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_word = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
    assert!(place.scopes == supported || named && place.scopes.iter().all(is_word), "{:?}", place.scopes);
}

fn values<'a>(pairs: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

/// A code counts only if the state matches, and both occur once. Of two servers only the own one is heard.
fn redirect(sends_issuer: bool, request: &[u8]) {
    let issuer = Url::parse(ISSUER).expect("it is a URL");
    let read = |size: usize| {
        let pieces = Pieces(request.chunks(size).collect());
        block_on(parsing::redirect(pieces, STATE, &issuer, sends_issuer))
    };
    let result = read(request.len().max(1));
    for size in [1, 7] {
        assert_eq!(read(size), result, "it matters where the network cuts");
    }
    let Some(result) = result else { return };
    let end = request.iter().position(|byte| *byte == b'\n').expect("it was read");
    let target = request[..end].strip_prefix(b"GET /callback?").expect("another path");
    let target = target.strip_suffix(b"\r").unwrap_or(target);
    let query = target.split(|byte| *byte == b' ').next().unwrap_or_default();
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query).into_owned().collect();
    let values = |name| values(&pairs, name);
    assert_eq!(values("state"), [STATE], "another login");
    match result {
        Ok(code) => {
            assert_eq!(values("code"), [code.as_str()], "which code");
            assert!(!code.is_empty(), "no code");
            let named = values("iss");
            let is_own = |named: &&str| *named == ISSUER;
            assert!(
                named.len() == 1 && named.iter().all(is_own) || named.len() != 1 && !sends_issuer,
                "{named:?}"
            );
            assert_ne!(values("error").len(), 1, "an error and a code");
        }
        Err(error) => {
            let shown = ["error", "error_description", "iss"].map(values).concat().concat();
            let mut codes: Vec<String> = values("code").into_iter().map(str::to_owned).collect();
            codes.retain(|code| is_secret(code) && !shown.contains(code.as_str()));
            check_error(&error, &codes);
        }
    }
}
