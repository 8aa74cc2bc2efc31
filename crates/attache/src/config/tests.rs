//! Tests of whole files: which are valid, and the messages for those that are not.

use std::path::Path;

use super::template::tests::everything;
use super::*;

/// The page about the configuration, with an example in it.
const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// A file with the most common settings.
const COMMON: &str = "\
listen: 0.0.0.0:3111
base-url: https://agents.example.com
store: sqlite:/var/lib/attache/tasks.db
agent: echo                      # or: functions (the default), and what later issues add
auth:
  bearer:
    - { name: alice, token: \"${ALICE_TOKEN}\", scopes: [quote], tier: partner }
    - { name: bob, token-file: /run/secrets/bob }
  api-key:
    - { name: ci, key: \"${CI_KEY}\", in: header, header: X-API-Key }
  basic:
    - { name: ops, password: \"${OPS_PASSWORD}\" }
  jwt:
    - { issuer: \"https://login.example.com/\", audience: attache, jwks: \"https://login.example.com/jwks.json\" }
signing: { keys: /var/lib/attache/keys }
limits: { requests-per-second: 200, body: 8MiB, turns-per-caller: 64 }
";

/// All examples.
fn examples() -> [String; 3] {
    let after = PAGE.split("```yaml\n").nth(1).unwrap();
    [COMMON.to_owned(), everything(), after.split("```").next().unwrap().to_owned()]
}

/// An environment in which every variable of the examples has a secret of its own.
fn environment(name: &str) -> Option<String> {
    match name {
        "NONE" => None,
        "SHORT" => Some("secret".to_owned()),
        name => Some(format!("the secret of {name}")),
    }
}

fn read(text: &str) -> Result<ConfigFile, Failure> {
    let mut file = ConfigFile::read(Path::new("attache.yml"), text, &environment, &|_| true, None);
    match std::mem::take(&mut file.errors) {
        errors if errors.is_empty() => Ok(file),
        errors => Err(Failure::all(errors)),
    }
}

/// The error message for a file, as the user reads it.
fn verdict(text: &str) -> String {
    let checked = read(text).and_then(|file| {
        let settings = ResolvedSettings { file: Some(file), resolved: Vec::new() };
        settings.secret("push.secret", |settings| {
            (settings.push.secret.as_ref(), settings.push.secret_file.as_ref())
        })?;
        settings.agents()?;
        settings.callers()
    });
    match checked {
        Ok(_) => "nothing is wrong".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn the_examples_are_read() {
    for text in examples() {
        if let Err(failure) = read(&text) {
            panic!("{failure}");
        }
    }
}

#[test]
fn the_example_has_every_setting_in_it() {
    let file = read(&everything()).unwrap_or_else(|failure| panic!("{failure}"));
    for (key, _) in declare::described() {
        assert!(file.root.at(key).is_some(), "{key}");
    }
}

#[test]
fn the_examples_fit_the_schema() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    for text in examples() {
        let value = read(&text).unwrap_or_else(|failure| panic!("{failure}")).root.to_json();
        let errors: Vec<_> =
            schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
    assert!(!schema.is_valid(&serde_json::json!({"listne": "x"})));
}

#[test]
fn keys_may_have_underscores() {
    let dashes = read("base-url: https://a\npush: { every-event: true }").map(|file| file.settings);
    let underscores = read("base_url: https://a\npush: { every_event: true }").map(|file| file.settings);
    let settings = dashes.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(settings, underscores.unwrap_or_else(|failure| panic!("{failure}")));
    assert_eq!(settings.base_url.map(|url| url.0.0).as_deref(), Some("https://a"));
}

#[test]
fn callers_have_what_the_file_grants_them() {
    let text = COMMON.replace("    - { name: bob, token-file: /run/secrets/bob }\n", "");
    let file = read(&text).unwrap_or_else(|failure| panic!("{failure}"));
    let callers = file.settings.auth.as_ref().unwrap().callers(&file, "auth");
    let callers = callers.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(
        callers.summary(),
        "alice (bearer); ci (api-key); ops (basic); https://login.example.com/ (jwt)"
    );
    let alice = &callers.known[0];
    assert_eq!(alice.secret.reveal(), "the secret of ALICE_TOKEN");
    assert_eq!(alice.identity.rights.tier(), Some("partner"));
    assert!(alice.identity.rights.has("quote"));
}

#[test]
fn no_secret_is_printed() {
    let file = read(&everything()).unwrap_or_else(|failure| panic!("{failure}"));
    let shown = format!("{file:?} {:?} {}", file.settings, serde_json::to_string(&file.settings).unwrap());
    assert!(!shown.contains("the secret of"), "{shown}");
}

/// What a changed file can have in addition.
const TOKENS: [&str; 18] = [
    "${ALICE_TOKEN}",
    "${",
    "$$",
    "&a ",
    "*a",
    "!!str ",
    "- ",
    ": ",
    "\n  ",
    "\t",
    "[",
    "{",
    "}",
    "|\n",
    "\"",
    "\\x00",
    "\u{e9}",
    "99999999999999999999KiB",
];

/// A file with bytes removed, changed or repeated, or with something in addition. `FUZZ_TIMES=100` tries so many times more.
#[test]
fn a_changed_file_is_read_or_refused_with_a_message() {
    let times: usize = std::env::var("FUZZ_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let (mut random, examples) = (fastrand::Rng::with_seed(7), examples());
    for _ in 0..300 * times {
        let mut text = random.choice(&examples).map(|text| text.as_bytes().to_vec()).unwrap_or_default();
        for _ in 0..random.usize(1..5) {
            let at = random.usize(..=text.len());
            let end = random.usize(at..=text.len().min(at + 24));
            match random.u8(..4) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..at, text[at..end].to_vec())),
                2 => text[at..end].iter_mut().for_each(|byte| *byte = random.u8(b' '..=b'~')),
                _ => drop(text.splice(at..at, TOKENS[random.usize(..TOKENS.len())].bytes())),
            }
        }
        let text = String::from_utf8_lossy(&text);
        assert!(!verdict(&text).is_empty(), "{text}");
    }
}

#[test]
fn an_error_has_its_position_and_a_hint() {
    let caller = |rest: &str| format!("auth:\n  bearer:\n    - {{ name: alice, {rest} }}\n");
    let two = |one: &str, other: &str| format!("auth:\n  bearer:\n    - {one}\n    - {other}\n");
    let mut verdicts = String::new();
    for text in [
        // The file itself.
        "listen: [",
        "listen: a\n---\nlisten: b",
        "- listen",
        "listen: &a x\nlog: *a",
        "listen: !!str x",
        "{a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: {n: {o: {p: {q: {r: 1}}}}}}}}}}}}}}}}}}",
        // Keys.
        "listne: 127.0.0.1:0",
        "base-ulr: https://a",
        "zzz: 1",
        "push:\n  evry-event: true",
        "limits: { requests-per-seconds: 1 }",
        "listen: a\nlisten: b",
        "base-url: https://a\nbase_url: https://b",
        // Values.
        "strict-version: maybe",
        "strict-version: [true]",
        "agent: ecko",
        "agent: [echo]",
        "base-url: agents.example.com",
        "store: postgres://x",
        "log: a=b=c",
        "limits: { body: 8 mib }",
        "limits: { depth: 0 }",
        "limits: { depth: many }",
        "limits: { depth: -1 }",
        "limits: { depth: 99999999999 }",
        "limits: 5",
        "keep: { for: 30 }",
        "functions: { call-timeout: 1500ms }",
        "push: { allow-networks: 10.0.0.0/8 }",
        "push: { allow-networks: [10.0.0] }",
        "paths: { jsonrpc: [a2a] }",
        "allowed-hosts: agents.example.com",
        "allowed-hosts: [\"https://agents.example.com\"]",
        "allowed-hosts: [*]",
        "cors: { origins: [app.example.com] }",
        "cors: { origins: [\"https://app.example.com/path\"] }",
        "cors: { origin: [\"https://app.example.com\"] }",
        "listen: ${NONE}",
        "listen: ${",
        "listen: ${a b}",
        // Secrets.
        "push: { secret: short }",
        "push: { secret: \"                \" }",
        "push: { secret: 0123456789abcdef, secret-file: x }",
        "auth: {}",
        "auth:\nlisten: 127.0.0.1:0",
        "auth:\n  bearer:",
        "auth:\n  bearer: []",
        &caller("scopes: [a]"),
        &caller("token: \"${SHORT}\""),
        &caller("token: \"${NONE}\""),
        &caller("token: \"                \""),
        &caller("token: \"0123456789abcdef \""),
        &caller("token: \"\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\""),
        &caller("token: \"a   b   c   d   e\""),
        &caller("token: 0123456789abcdef, token-file: x"),
        &caller("token-file: /nowhere/at/all"),
        &caller("token: 0123456789abcdef, scope: a"),
        &caller("token: [0123456789abcdef]"),
        "auth:\n  bearer:\n    - { token: 0123456789abcdef }",
        "auth:\n  bearer:\n    - { name: \"\", token: 0123456789abcdef }",
        "auth:\n  bearer: { name: alice }",
        &two("{ name: a, token: 0123456789abcdef }", "{ name: a, token: 0123456789abcdeg }"),
        &two("{ name: a, token: 0123456789abcdef }", "{ name: b, token: 0123456789abcdef }"),
        "auth:\n  basic:\n    - { name: \"a:b\", password: 0123456789abcdef }",
        "auth:\n  basic:\n    - { name: a, password: \"                \" }",
        "auth:\n  api-key:\n    - { name: a, key: \"                \" }",
        "auth:\n  api-key:\n    - { name: a, key: 0123456789abcdef, in: query }",
        "auth:\n  api-key:\n    - { name: a, key: 0123456789abcdef, in: query, header: b }",
        "auth:\n  api-key:\n    - { name: a, key: 0123456789abcdef, header: \"b c\" }",
        "auth:\n  api-key:\n    - { name: a, key: 0123456789abcdef, in: heder }",
        "auth:\n  jwt:\n    - { issuer: \"https://a\" }",
        "auth:\n  jwt:\n    - { issuer: \"https://a\", audience: [] }",
        "auth:\n  jwt:\n    - { issuer: \"https://a\", audience: b, algorithms: [HS256] }",
        "auth:\n  mtls:\n    - { name: a }",
        "auth:\n  mtls:\n    - { name: a, subject: CN=a, san: a }",
        // Credentials for other agents.
        "delegation:\n  agents:\n    - { bearer: \"${TOKEN}\" }",
        "delegation:\n  agents:\n    - { url: \"https://a\" }",
        "delegation:\n  agents:\n    - { url: \"http://a\", bearer: \"${TOKEN}\" }",
        "delegation:\n  agents:\n    - { url: \"https://a\", bearer: \"${TOKEN}\", berer-file: x }",
        "delegation:\n  agents:\n    - { url: \"https://a\", bearer-file: /nowhere/at/all }",
        "delegation:\n  agents:\n    - { url: \"https://a\", basic: { name: b } }",
        "delegation:\n  agents:\n    - { url: \"https://a\", bearer: x }\n    - { url: \"https://a/\", bearer: y }",
    ] {
        verdicts.push_str(&format!("{}\n    -> {}\n\n", text.trim_end(), verdict(text)));
    }
    insta::assert_snapshot!("wrong_files", verdicts);
}

#[test]
fn all_errors_of_a_file_are_found_at_once() {
    let text = "\
listne: 127.0.0.1:0
strict-version: maybe
limits:
  body: 8 mib
  depth: 0
auth:
  bearer:
    - { name: alice, token: \"${NONE}\" }
    - { name: bob, token: short, scope: a }
  basic:
    - { password: 0123456789abcdef }
push: { allow-networks: [10.0.0] }
push: { https-only: true }
";
    let file = ConfigFile::read(Path::new("attache.yml"), text, &environment, &|_| true, None);
    let settings = ResolvedSettings { file: Some(file), resolved: Vec::new() };
    // The token is not missing: its variable is. The others in the list keep their numbers.
    assert!(
        settings.callers().is_err_and(|failure| failure.to_string() == Failure::consequence().to_string())
    );
    let errors = settings.file.map(|file| file.errors).unwrap_or_default();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!("all_errors", errors.join("\n"));
}

#[test]
fn all_callers_that_are_wrong_are_named() {
    let text = "auth:\n  bearer:\n    - { name: a, token: short }\n    - { name: b }\n    - { name: c, token: 0123456789abcdef }\n  mtls:\n    - { name: d }\n";
    let file = ConfigFile::read(Path::new("attache.yml"), text, &environment, &|_| true, None);
    let settings = ResolvedSettings { file: Some(file), resolved: Vec::new() };
    let failures: Vec<_> = settings
        .callers()
        .err()
        .into_iter()
        .flat_map(Failure::each)
        .map(|failure| failure.to_string())
        .collect();
    assert_eq!(failures.len(), 3, "{failures:#?}");
    assert!(
        failures[1].starts_with("attache.yml:4:7: `auth.bearer[1]`: `b` has no `token`"),
        "{failures:#?}"
    );
}
