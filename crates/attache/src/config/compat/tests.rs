//! What becomes of the settings of iac-code.

use std::path::Path;

use attache::server::PushQueue;

use super::super::{Compat, ConfigFile, Problems, ResolvedSettings, push_queue};
use super::*;

fn read(text: &str, environment: Environment<'_>) -> Result<ConfigFile, String> {
    let mut file =
        ConfigFile::read(Path::new("a2a.yml"), text, environment, &|_| true, Some(Compat::IacCode));
    match std::mem::take(&mut file.errors) {
        errors if errors.is_empty() => Ok(file),
        errors => Err(Failure::all(errors).to_string()),
    }
}

/// A setting as JSON.
fn setting(file: &ConfigFile, path: &str) -> serde_json::Value {
    file.root.at(path).map(Node::to_json).unwrap_or_default()
}

#[test]
fn without_settings_the_server_is_where_iac_code_is() {
    let file = read("", &|_| None).unwrap();
    assert_eq!(setting(&file, "listen"), "127.0.0.1:41242");
    assert_eq!(setting(&file, "paths.http-json"), "/");
    assert_eq!(file.settings.push.offered, Some(false));
    assert!(file.settings.auth.is_none());
}

#[test]
fn its_keys_become_ours_and_ours_win() {
    let text = "host: 0.0.0.0\nport: 9000\ntoken: the-token-of-this-test\nbasic_username: ops\n\
                basic-password: the-password-of-ops\napi-key: the-key-of-this-test\napi-key-header: X-Key\n\
                push-notifications: true\npush-queue: local-file\npersistence-dir: /var/lib/iac\n\
                idle-shutdown-seconds: 1.5\n\
                auto-approve-permissions: true\ncard: { name: mine }\nagent: echo\n";
    let file = read(text, &|_| None).unwrap();
    assert_eq!(setting(&file, "listen"), "0.0.0.0:9000");
    assert_eq!(setting(&file, "store"), "sqlite:/var/lib/iac/attache.db");
    assert_eq!(setting(&file, "permission-default"), "allow");
    assert_eq!(setting(&file, "card.name"), "mine");
    assert_eq!(setting(&file, "auth.api-key[0].header"), "X-Key");
    assert_eq!(setting(&file, "auth.basic[0].name"), "ops");
    assert_eq!(file.settings.push.offered, Some(true));
    let own = read("listen: 127.0.0.1:1\nport: 2\n", &|_| None).unwrap();
    assert_eq!(setting(&own, "listen"), "127.0.0.1:1");
    let socket = read("transport: unix\nsocket-path: /run/a.sock\n", &|_| None).unwrap();
    assert_eq!(setting(&socket, "listen"), "unix:/run/a.sock");
}

#[test]
fn the_environment_has_what_the_file_leaves_out() {
    let environment = |name: &str| match name {
        "IACCODE_A2A_HTTP_TOKEN" => Some("from-the-environment".to_owned()),
        "IACCODE_A2A_API_KEY" => Some("key-of-the-environment".to_owned()),
        _ => None,
    };
    let file = read("api-key: key-of-the-file-itself\n", &environment).unwrap();
    assert_eq!(setting(&file, "auth.bearer[0].token"), "from-the-environment");
    assert_eq!(setting(&file, "auth.api-key[0].key"), "key-of-the-file-itself");
    assert_eq!(setting(&file, "auth.api-key[0].header"), "X-API-Key");
}

#[test]
fn what_cannot_be_honoured_is_an_error_that_says_so() {
    for (text, words) in [
        ("transport: quic\n", "iac-code has no transport `quic`"),
        ("transport: redis\n", "`transport: redis-streams` needs a `redis-url`"),
        ("redis-url: redis://127.0.0.1\n", "`redis-url` of iac-code has no effect with these settings"),
        ("transport: unix\n", "`transport: unix` needs a `socket-path`"),
        ("push-queue: redis-streams\n", "`push-queue: redis-streams` needs a `push-redis-url`"),
        ("push-stream: s\n", "`push-stream` of iac-code has no effect with these settings"),
        (
            "push-queue: redis-streams\npush-redis-url: redis://127.0.0.1\npush-lease-timeout-ms: soon\n",
            "`push-lease-timeout-ms` must be a whole number",
        ),
        ("push-queue: x\n", "`push-queue` is `local-file` or `redis-streams`"),
        ("signing-secret: abc\n", "`signing-secret` has fewer than 32 bytes, which HS256 needs"),
        ("idle-shutdown-seconds: -5\n", "`idle-shutdown-seconds` must be a number, 0 or more"),
        ("log-to-stdout: true\ntransport: stdio\n", "`log-to-stdout` cannot be used with `transport: stdio`"),
        ("basic-username: a\n", "`basic-username` and `basic-password` belong together"),
        ("ws-path: /x\n", "`ws-path` of iac-code has no effect with these settings"),
        ("push-notifications: maybe\n", "`push-notifications` is `true` or `false`"),
        ("tokn: x\n", "tokn"),
    ] {
        let error = read(text, &|_| None).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(error.contains(words), "{text}: {error}");
    }
    for (name, value, is_honoured) in
        [("IAC_CODE_MODE", "pipeline", false), ("IAC_CODE_MODE", "normal", true)]
    {
        let checked = environment_errors(&|asked| (asked == name).then(|| value.to_owned()));
        assert_eq!(checked.is_ok(), is_honoured, "{name}={value}");
        if let Err(error) = checked {
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    assert!(environment_errors(&|_| None).is_ok());
    assert!(read("idle-shutdown-seconds: 0\nlog-to-stdout: false\n", &|_| None).is_ok());
}

#[test]
fn the_log_and_the_store_are_where_the_settings_of_iac_code_say() {
    assert_eq!(setting(&read("log-to-stdout: true\n", &|_| None).unwrap(), "log.file"), "/dev/stdout");
    let file = read("log-to-stdout: true\nlog: debug\n", &|_| None).unwrap();
    assert_eq!(
        (setting(&file, "log.file"), setting(&file, "log.filter")),
        ("/dev/stdout".into(), "debug".into())
    );
    let environment = |name: &str| (name == "IAC_CODE_CONFIG_DIR").then(|| "/srv/iac".to_owned());
    assert_eq!(setting(&read("", &environment).unwrap(), "store"), "sqlite:/srv/iac/a2a/attache.db");
    for text in ["persistence-dir: /own\n", "store: \"sqlite:/own/attache.db\"\n"] {
        assert_eq!(setting(&read(text, &environment).unwrap(), "store"), "sqlite:/own/attache.db", "{text}");
    }
}

#[test]
fn what_has_another_effect_here_is_a_warning() {
    let with = |name: &'static str, value: &'static str| {
        move |asked: &str| (asked == name).then(|| value.to_owned())
    };
    for (name, value, is_told) in [
        ("IAC_CODE_A2A_TRUST_REQUEST_CWD", "1", true),
        ("IAC_CODE_A2A_TRUST_REQUEST_CWD", " Yes ", true),
        ("IAC_CODE_A2A_TRUST_REQUEST_CWD", "0", false),
        ("IAC_CODE_A2A_TRUST_REQUEST_CWD", "", false),
        ("IAC_CODE_A2A_PUSH_KEYRING", "{}", true),
        ("IAC_CODE_A2A_PUSH_KEYRING", "", false),
    ] {
        let environment = with(name, value);
        assert!(environment_errors(&environment).is_ok(), "{name}");
        let told = warnings(&environment, false, None);
        assert_eq!(told.iter().any(|text| text.contains(name)), is_told, "{name}={value}: {told:?}");
    }
    let trusts = with("IAC_CODE_A2A_TRUST_REQUEST_CWD", "true");
    assert_eq!(conversation(&trusts).workspaces.allowed, [Path::new("/")]);
    assert!(warnings(&trusts, true, None).is_empty(), "`workspaces` takes its place");
    // Data of that system beside the store.
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("attache.db");
    let is_told = || !warnings(&|_| None, false, Some(&store)).is_empty();
    std::fs::create_dir(folder.path().join("tasks")).unwrap();
    assert!(!is_told());
    std::fs::write(folder.path().join("tasks/t.json"), "{}").unwrap();
    assert!(is_told());
    std::fs::remove_file(folder.path().join("tasks/t.json")).unwrap();
    std::fs::write(folder.path().join("push_keys.json"), "{}").unwrap();
    assert!(is_told());
}

#[test]
fn media_types_and_workspaces_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let paths = std::env::join_paths([folder.path(), Path::new("/does/not/exist")]).unwrap();
    let environment = |name: &str| match name {
        "IACCODE_A2A_TEXT_MIME_TYPES" => Some("Text/X-Log; text/csv,bad".to_owned()),
        "IACCODE_A2A_MULTIMODAL_MIME_TYPES" => Some("video/mp4".to_owned()),
        "IACCODE_A2A_ALLOWED_CWDS" => Some(paths.to_string_lossy().into_owned()),
        _ => None,
    };
    let rules = conversation(&environment);
    let modes = rules.input.modes();
    assert!(["text/x-log", "text/csv", "video/mp4"].iter().all(|mode| modes.contains(&mode.to_string())));
    assert_eq!(rules.workspaces.allowed, [folder.path()]);
    assert_eq!(conversation(&|_| None).workspaces.allowed.len(), 2);
}

#[test]
fn every_transport_is_here_under_all_its_names() {
    let with = |text: &str| read(text, &|_| None).unwrap_or_else(|error| panic!("{text}: {error}"));
    for name in ["stdio", "STDIO"] {
        let file = with(&format!("transport: {name}\n"));
        assert_eq!(setting(&file, "stdio"), true);
        assert_eq!(setting(&file, "listen"), serde_json::Value::Null);
    }
    for name in ["websocket", "ws", "wss"] {
        let file = with(&format!("transport: {name}\nws-path: /socket\nport: 9000\n"));
        assert_eq!(setting(&file, "paths.websocket"), "/socket");
        assert_eq!(setting(&file, "listen"), "127.0.0.1:9000");
    }
    assert_eq!(setting(&with(""), "paths.websocket"), "/a2a");
    for name in ["grpc", "grpcs", "grpc-jsonrpc", "grpc+jsonrpc"] {
        let file = with(&format!("transport: {name}\nport: 9000\ngrpc-port: 0\ngrpc-host: \"::1\"\n"));
        assert_eq!(setting(&file, "listen"), "[::1]:0");
    }
    for name in ["redis-streams", "redis", "redis-stream"] {
        let file = with(&format!(
            "transport: {name}\nredis-url: redis://127.0.0.1:6379/0\nresponse-stream: answers\n"
        ));
        assert_eq!(setting(&file, "redis.url"), "redis://127.0.0.1:6379/0");
        assert_eq!(setting(&file, "redis.request-stream"), "iac-code:a2a:requests");
        assert_eq!(setting(&file, "redis.response-stream"), "answers");
        assert_eq!(setting(&file, "redis.consumer-group"), "iac-code");
    }
}

fn environment_errors(environment: Environment<'_>) -> Result<(), Failure> {
    let settings = ResolvedSettings::default();
    let mut problems = Problems::of(&settings);
    check_environment(environment, &mut problems);
    problems.result()
}

fn queue_of(file: &ConfigFile) -> PushQueue {
    let settings = ResolvedSettings::default();
    let mut problems = Problems::of(&settings);
    let queue = push_queue(&file.settings.push, &mut problems);
    problems.result().unwrap();
    queue.unwrap()
}

#[test]
fn its_push_queue_in_redis_has_the_names_that_it_has_there() {
    let with = |text: &str| read(text, &|_| None).unwrap_or_else(|error| panic!("{text}: {error}"));
    let needed =
        "push-notifications: true\npush-queue: redis-streams\npush-redis-url: redis://localhost:6379/0\n";
    let file = with(needed);
    let queue = queue_of(&file);
    let names = [&queue.stream, &queue.retry_key, &queue.dead_stream, &queue.group];
    let usual = ["iac-code:a2a:push", "iac-code:a2a:push:retry", "iac-code:a2a:push:dead", "iac-code-push"];
    assert_eq!(names, usual);
    assert_eq!((queue.consumer, queue.lease), (None, Duration::from_secs(300)));
    // The block of the document, with other values.
    let file = with(&format!(
        "{needed}push-stream: s\npush-retry-key: r\npush-dead-stream: d\npush-consumer-group: g\n\
         push-consumer-name: worker-1\npush-lease-timeout-ms: 5000\n"
    ));
    let queue = queue_of(&file);
    let names = [queue.stream, queue.retry_key, queue.dead_stream, queue.group];
    assert_eq!(names, ["s", "r", "d", "g"]);
    assert_eq!((queue.consumer.as_deref(), queue.lease), (Some("worker-1"), Duration::from_secs(5)));
    let own = with(&format!("{needed}push: {{ redis: {{ stream: mine }} }}\n"));
    assert_eq!(setting(&own, "push.redis.stream"), "mine");
}

#[test]
fn artifacts_have_file_urls_for_clients_on_this_machine() {
    let with = |text: &str| read(text, &|_| None).unwrap_or_else(|error| panic!("{text}: {error}"));
    let file = with("artifact-dir: /var/lib/iac/artifacts\n");
    assert_eq!(setting(&file, "artifacts.directory"), "/var/lib/iac/artifacts");
    assert_eq!(setting(&file, "artifacts.urls"), "file");
    assert_eq!(setting(&file, "artifacts.inline-limit"), "1B");
    for remote in [
        "host: 0.0.0.0\n",
        "host: \"::\"\n",
        "host: agents.example.com\n",
        "listen: [127.0.0.1:1, \"[::]:1\"]\n",
        "transport: redis\nredis-url: redis://192.0.2.1:6379\n",
        "base-url: https://agents.example.com\n",
        "safe-mode: always\n",
    ] {
        assert_eq!(setting(&with(remote), "artifacts.urls"), "http", "{remote}");
    }
    let safe = |name: &str| (name == "IAC_CODE_A2A_SAFE_MODE").then(|| "Yes".to_owned());
    let hidden = read("", &safe).unwrap();
    assert_eq!(setting(&hidden, "artifacts.urls"), "http");
    assert_eq!(setting(&hidden, "safe-mode"), "always");
    let open = read("safe-mode: off\n", &safe).unwrap();
    assert_eq!(setting(&open, "artifacts.urls"), "file", "the file wins");
    for local in [
        "host: localhost\n",
        "base-url: http://localhost:41242\n",
        "safe-mode: remote\n",
        "host: \"::1\"\n",
        "listen: [127.0.0.1:1, unix:/a.sock]\n",
        "transport: stdio\n",
    ] {
        assert_eq!(setting(&with(local), "artifacts.urls"), "file", "{local}");
    }
    let own = with("artifacts: { urls: http, inline-limit: 1MiB }\n");
    assert_eq!(setting(&own, "artifacts.urls"), "http");
    assert_eq!(setting(&own, "artifacts.inline-limit"), "1MiB");
}

#[test]
fn permissions_reports_and_signatures_are_as_there() {
    let with = |text: &str| read(text, &|_| None).unwrap_or_else(|error| panic!("{text}: {error}"));
    let file = with(
        "signing-secret: the-secret-of-this-test-0123456789\nthinking-exposure: raw-thinking,tool_trace\n",
    );
    assert_eq!(setting(&file, "metadata-namespace"), "iac_code");
    assert_eq!(setting(&file, "permission-default"), "deny");
    assert_eq!(setting(&file, "signing.secret"), "the-secret-of-this-test-0123456789");
    assert!(file.settings.signing.secret.is_some() && file.settings.thinking_exposure.is_some());
    let asks = with("acp: { permissions: ask }\n");
    assert_eq!(setting(&asks, "permission-default"), serde_json::Value::Null);
    assert_eq!(setting(&with("permission-default: ask\n"), "permission-default"), "ask");
}
