//! The configuration file, and who may call because of it.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::Program;

const ALICE: &str = "the token of alice, who may come in";
const BOB: &str = "the token of bob, who may come in";
const CARL: &str = "the token of carl, who may come in";
const KEY: &str = "the-key-of-ci-which-is-a-program";
const PASSWORD: &str = "the password of ops";

/// A file with callers of three kinds.
const CALLERS: &str = r#"
listen: 127.0.0.1:0
agent: echo
store: "memory:"
auth:
  bearer:
    - { name: alice, token: "${ALICE_TOKEN}", scopes: [quote], tier: partner }
  api_key:
    - { name: ci, key: "${CI_KEY}", in: header, header: X-API-Key }
  basic:
    - { name: ops, password-file: PASSWORD_FILE }
"#;

/// The secrets, as the environment has them.
const SECRETS: [(&str, &str); 2] = [("ALICE_TOKEN", ALICE), ("CI_KEY", KEY)];

fn message() -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}})
}

/// A send over JSON-RPC.
fn over_jsonrpc(url: &str) -> RequestBuilder {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message()});
    Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0").json(&body)
}

/// A send over HTTP+JSON.
fn over_http(url: &str) -> RequestBuilder {
    Client::new().post(format!("{url}/v1/message:send")).header("A2A-Version", "1.0").json(&message())
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.expect("the server answers").status()
}

async fn schemes(url: &str) -> Vec<String> {
    let card = reqwest::get(format!("{url}/.well-known/agent-card.json")).await.expect("there is a card");
    let card: Value = card.json().await.expect("a card is JSON");
    let required = card["securityRequirements"].as_array().cloned().unwrap_or_default();
    let names = card["securitySchemes"].as_object().cloned().unwrap_or_default();
    assert_eq!(required.len(), names.len(), "each suffices");
    names.into_iter().map(|(name, _)| name).collect()
}

/// Waits until a request is answered with this status.
async fn until(expected: StatusCode, request: impl Fn() -> RequestBuilder) {
    let met = async {
        while status(request()).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.expect("it is answered so in the end");
}

#[tokio::test]
async fn callers_of_the_file_come_in_and_nobody_else_does() {
    let home = Home::new();
    let password = home.file("password", &format!("{PASSWORD}\n"));
    let file = home.file("callers.yml", &CALLERS.replace("PASSWORD_FILE", &password));
    let (program, said) = Program::command_with(&["serve", "--config", &file], &SECRETS).await;
    assert!(said.contains("alice (bearer); ci (api-key); ops (basic)"), "{said}");
    assert!(said.contains(&file), "{said}");
    assert!(![ALICE, KEY, PASSWORD].iter().any(|secret| said.contains(secret)), "{said}");
    for send in [over_jsonrpc, over_http] {
        let send = || send(&program.url);
        assert_eq!(status(send()).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(send().bearer_auth(KEY)).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(send().basic_auth("alice", Some(PASSWORD))).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(send().bearer_auth(ALICE)).await, StatusCode::OK);
        assert_eq!(status(send().header("X-API-Key", KEY)).await, StatusCode::OK);
        assert_eq!(status(send().basic_auth("ops", Some(PASSWORD))).await, StatusCode::OK);
    }
    assert_eq!(schemes(&program.url).await, ["apiKeyAuth", "basicAuth", "bearerAuth"]);
}

#[tokio::test]
async fn flags_beat_the_environment_which_beats_the_file_which_beats_defaults() {
    let home = Home::new();
    let file = home.file("some.yml", "listen: 127.0.0.1:1\nlog: debug\nbase-url: https://a.example\npush: { every-event: true, offered: false }\n");
    let shown = async |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = home.command(&[&["config", "show", "--json"], arguments].concat());
        let output = command.envs(environment.iter().copied()).output().await.expect("it runs");
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let settings = shown["settings"].as_array().cloned().unwrap_or_default();
        move |key: &str| {
            let setting = settings.iter().find(|setting| setting["key"] == key).cloned().unwrap_or_default();
            (setting["value"].clone(), setting["source"].clone())
        }
    };
    let in_file = |line: u32| json!({"kind": "file", "file": file, "line": line});
    let variable = |name: &str| json!({"kind": "environment", "variable": name});

    let default = shown(&[], &[]).await;
    assert_eq!(default("listen"), (json!(["127.0.0.1:3111"]), json!({"kind": "default"})));
    assert_eq!(default("push.offered"), (json!(true), json!({"kind": "default"})));

    let by_file = shown(&["--config", &file], &[]).await;
    assert_eq!(by_file("listen"), (json!(["127.0.0.1:1"]), in_file(1)));
    assert_eq!(by_file("push.every-event"), (json!(true), in_file(4)));
    assert_eq!(by_file("push.offered"), (json!(false), in_file(4)));
    assert_eq!(by_file("strict-version"), (json!(false), json!({"kind": "default"})));

    let environment = [
        ("ATTACHE_CONFIG", file.as_str()),
        ("ATTACHE_LISTEN", "127.0.0.1:2"),
        ("ATTACHE_PUSH_EVERY_EVENT", "false"),
        ("ATTACHE_ALLOW_WEBHOOK_NETWORK", "10.0.0.0/8 192.168.0.0/16"),
    ];
    let by_environment = shown(&[], &environment).await;
    assert_eq!(by_environment("listen"), (json!(["127.0.0.1:2"]), variable("ATTACHE_LISTEN")));
    assert_eq!(by_environment("push.every-event"), (json!(false), variable("ATTACHE_PUSH_EVERY_EVENT")));
    assert_eq!(by_environment("push.allow-networks").0, json!(["10.0.0.0/8", "192.168.0.0/16"]));
    assert_eq!(by_environment("log.filter"), (json!("debug"), in_file(2)));

    let flags = ["--listen", "127.0.0.1:3", "--push-every-event=true", "--no-push=false"];
    let by_flag = shown(&flags, &environment[..2]).await;
    assert_eq!(by_flag("listen"), (json!(["127.0.0.1:3"]), json!({"kind": "flag", "flag": "--listen"})));
    assert_eq!(by_flag("push.offered"), (json!(true), json!({"kind": "flag", "flag": "--no-push"})));
}

#[tokio::test]
async fn a_flag_that_would_do_nothing_is_refused() {
    let ran = Home::new().run(&["config", "check", "--no-push", "--push-every-event"]).await;
    insta::assert_snapshot!("useless_flag", ran.to_string());
}

#[tokio::test]
async fn the_usual_file_is_found_in_the_working_directory() {
    let home = Home::new();
    home.file(
        "attache.yml",
        "listen: 127.0.0.1:4401\nauth:\n  bearer:\n    - { name: alice, token: \"${ALICE_TOKEN}\" }\n",
    );
    let mut command = home.command(&["config", "show"]);
    let output =
        command.current_dir(home.path("")).env("ALICE_TOKEN", ALICE).output().await.expect("it runs");
    let shown = String::from_utf8(output.stdout).expect("text");
    let shown = shown.replace(&home.path("").display().to_string(), "HOME/");
    assert!(!shown.contains(ALICE), "{shown}");
    // Where the home is decides whether these two need a second line.
    let in_home = |line: &&str| {
        ["store ", "client.agents-file ", "    HOME/", "    sqlite:HOME/"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" | ")
    };
    insta::assert_snapshot!(
        "show",
        shown.lines().filter(|line| !in_home(line)).map(cells).collect::<Vec<_>>().join("\n")
    );
}

/// The example that the configuration was agreed on, with its files in a folder.
const AGREED: &str = r#"
listen: 0.0.0.0:3111
base-url: https://agents.example.com
store: sqlite:/var/lib/attache/tasks.db
agent: echo                      # or: functions (the default), and what later issues add
auth:
  bearer:
    - { name: alice, token: "${ALICE_TOKEN}", scopes: [quote], tier: partner }
    - { name: bob, token-file: /run/secrets/bob }
  api-key:
    - { name: ci, key: "${CI_KEY}", in: header, header: X-API-Key }
  basic:
    - { name: ops, password: "${OPS_PASSWORD}" }
  jwt:
    - { issuer: "https://login.example.com/", audience: attache, jwks: "https://login.example.com/jwks.json" }
signing: { keys: /var/lib/attache/keys }
limits: { requests-per-second: 200, body: 8MiB, turns-per-caller: 64 }
"#;

#[tokio::test]
async fn the_agreed_example_is_in_order() {
    let home = Home::new();
    let keys = home.path("keys").display().to_string();
    let made = home.run(&["keys", "new", "--signing-keys", &keys]).await;
    assert_eq!(made.code, Some(0), "{made}");
    let bob = home.file("bob", BOB);
    let text = AGREED.replace("/run/secrets/bob", &bob).replace("/var/lib/attache/keys", &keys);
    let file = home.file("agreed.yml", &text);
    let check = async |environment: &[(&str, &str)]| {
        let mut command = home.command(&["config", "check", "--config", &file]);
        let output = command.envs(environment.iter().copied()).output().await.expect("it runs");
        crate::home::ran(output).to_string().replace(&home.path("").display().to_string(), "HOME/")
    };
    let environment = [SECRETS[0], SECRETS[1], ("OPS_PASSWORD", PASSWORD)];
    insta::assert_snapshot!("check", check(&environment).await);
    insta::assert_snapshot!("check_without_a_secret", check(&environment[1..]).await);
}

#[tokio::test]
async fn callers_with_certificates_need_connections_that_ask_for_them() {
    let home = Home::new();
    let file = home.file("some.yml", "auth:\n  mtls:\n    - { name: billing, san: billing.internal }\n");
    let ran = home.run(&["config", "check", "--config", &file]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("hint: set `tls.client-certificates` to `optional` or `required`"), "{ran}");
}

#[tokio::test]
async fn a_file_is_made_once_and_changes_nothing() {
    let home = Home::new();
    let in_home = async |arguments: &[&str]| {
        let output = home.command(arguments).current_dir(home.path("")).output().await.expect("it runs");
        crate::home::ran(output)
    };
    let values = async || -> Vec<(Value, Value)> {
        let shown = in_home(&["config", "show", "--json"]).await.stdout;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let settings = shown["settings"].as_array().cloned().unwrap_or_default();
        settings.into_iter().map(|setting| (setting["key"].clone(), setting["value"].clone())).collect()
    };
    let before = values().await;
    let made = in_home(&["config", "init"]).await;
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{made}");
    let file = std::fs::read_to_string(home.path("attache.yml")).expect("it is there");
    assert_eq!(file, in_home(&["config", "init", "-"]).await.stdout);
    assert_eq!(values().await, before);
    assert_eq!(in_home(&["config", "check"]).await.code, Some(0));
    std::fs::write(home.path("attache.yml"), "agent: echo\n").expect("it is ours");
    insta::assert_snapshot!("init_again", in_home(&["config", "init"]).await.to_string());
    assert_eq!(std::fs::read_to_string(home.path("attache.yml")).expect("it is there"), "agent: echo\n");
}

#[tokio::test]
async fn a_check_names_all_errors_with_their_lines() {
    let home = Home::new();
    let text = "\
listne: 127.0.0.1:0
listen: 0.0.0.0:0
base-url: https://agents.example.com
limits:
  body: 8 mib
auth:
  bearer:
    - { name: alice, token: short }
    - { name: bob }
tls:
  key: /etc/attache/server.key
engine:
  token-file: /nowhere/token
functions: { call-timeout: 2d }
";
    let file = home.file("some.yml", text);
    let check =
        async |more: &[&str]| home.run(&[&["config", "check", "--config", &file], more].concat()).await;
    let ran = check(&[]).await;
    insta::assert_snapshot!("check_all_errors", ran.to_string().replace(&file, "some.yml"));
    let as_json = check(&["--json"]).await;
    let errors: Value = serde_json::from_str(&as_json.stdout).expect("JSON");
    let count = ran.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(
        (as_json.code, errors["errors"].as_array().map(Vec::len)),
        (Some(2), Some(count)),
        "{as_json}"
    );
    let served = home.run(&["serve", "--config", &file]).await;
    assert!(served.code == Some(2) && served.stderr.contains("some.yml:5:9"), "{served}");
}

/// Settings that are valid each by itself and do not fit together, or name files that are not there.
const UNFIT: &str = r#"
log: a=b=c
tls:
  certificate: /nowhere/certificate.pem
  client-ca: /nowhere/ca.pem
auth:
  mtls:
    - { name: billing, san: billing.internal, tier: gold }
  bearer:
    - { name: alice, token: the-token-of-alice-is-long, tier: silver }
functions:
  tier: bronze
  tiers: [silver]
paths:
  jsonrpc: []
  http-json: /artifacts
artifacts: { urls: file }
safe-mode: always
redis:
  consumer-group: workers
push:
  queue: redis
  secret-file: /nowhere/push
signing:
  keys: /nowhere/keys
  secret-file: /nowhere/secret
engine: { token-file: /nowhere/token }
delegation:
  api-token-file: /nowhere/api
  card-keys: [/nowhere/one, /nowhere/two]
workspaces: [/nowhere/a, /nowhere/b]
input:
  text-types: [text/x-log, log]
agents:
  coder:
    acp: { workspace: /nowhere/coder }
  runner:
    program:
      workspace: /nowhere/runner
      budget: { tokens: 5 }
  helper:
    model:
      url: http://127.0.0.1:9
      key-file: /nowhere/key
      tools: [mcp:none, agent:none]
  tools:
    mcp:
      command: cat
      url: http://127.0.0.1:9
      token: one
      token-file: /nowhere/two
      sampling: { url: 'http://192.0.2.1', key: secret, images: true }
  far:
    remote: { wait: true, redis: nonsense }
  desk:
    router:
      default: nobody
      rules: [{ agent: someone, keywords: [x] }]
"#;

#[tokio::test]
async fn every_error_of_settings_that_do_not_fit_together_has_its_line() {
    let home = Home::new();
    let check = async |text: &str| {
        let file = home.file("some.yml", text);
        let ran = home.run(&["config", "check", "--config", &file]).await;
        assert_eq!(ran.code, Some(2), "{ran}");
        let said = ran.to_string().replace(&file, "some.yml");
        for error in said.lines().filter(|line| line.starts_with("error: ")) {
            let place = error.strip_prefix("error: some.yml:").unwrap_or_default();
            assert!(place.starts_with(|digit: char| digit.is_ascii_digit()), "{error}");
        }
        said
    };
    insta::assert_snapshot!("check_unfit_settings", check(UNFIT).await);
    for (text, expected) in [
        ("agent: program\n", &["1:8: `agent`: no program is named"][..]),
        ("agent: model\nmodel: { images: true }\n", &["2:1: `model.url`: no endpoint is named"]),
        ("agent: acp\n", &["1:8: `agent`: no coding agent is named"]),
        ("agent: mcp\n", &["1:8: `agent`: no MCP server is named"]),
        ("agent: remote\n", &["1:8: `agent`: no remote agent is named"]),
        ("base-url: https://agents.example.com\n", &["1:11: `base-url`: others reach the server at"]),
        (
            "allowed-hosts: ['*']\ncors: { origins: ['*'] }\n",
            &["1:1: `allowed-hosts`: with `*` here", "2:9: `cors.origins`: with `*` here"],
        ),
        (
            "listen: 0.0.0.0:0\nredis: { url: 'redis://192.0.2.1' }\n",
            &["1:9: `listen`: on `0.0.0.0:0` other", "2:15: `redis.url`: other machines can reach Redis"],
        ),
        ("tls: { key: /nowhere/key }\n", &["1:13: `tls.key`: there is no certificate for the key"]),
        (
            "tls: { client-certificates: optional }\n",
            &["1:29: `tls.client-certificates`: there is no authority"],
        ),
        ("push: { redis: { stream: s } }\n", &["1:9: `push.redis`: the section has no effect"]),
        (
            "redis: { url: 'redis://127.0.0.1', request-stream: a, response-stream: a }\n",
            &["1:72: `redis.response-stream`"],
        ),
    ] {
        let said = check(text).await;
        for expected in expected {
            assert!(said.contains(&format!("error: some.yml:{expected}")), "{expected}: {said}");
        }
    }
}

#[tokio::test]
async fn an_error_in_a_flag_or_a_variable_names_it() {
    let home = Home::new();
    let file = home.file("some.yml", "tls: { key: /nowhere/key, certificate: /nowhere/certificate }\n");
    let arguments = ["config", "check", "--config", &file, "--tls-key", "/nowhere/other", "--program", "cat"];
    let mut command = home.command(&[&arguments[..], &["--workspace", "/nowhere/work"]].concat());
    let output = command.env("ATTACHE_LOG", "a=b=c").output().await.expect("it runs");
    let ran = crate::home::ran(output);
    insta::assert_snapshot!("check_flags_and_variables", ran.to_string().replace(&file, "some.yml"));
}

#[tokio::test]
async fn settings_are_shown_within_80_columns() {
    let home = Home::new();
    let file = home.file("a.yml", "store: memory:\nlimits: { body: 1MiB }\n");
    for command in ["show", "check"] {
        let mut command = home.command(&["config", command, "--config", "a.yml"]);
        command.current_dir(home.path("")).env("ATTACHE_LIMIT_REQUESTS_PER_SECOND_PER_ADDRESS", "7");
        let ran = crate::home::ran(command.output().await.expect("it runs"));
        assert_eq!(ran.code, Some(0), "{ran}");
        let home_length = home.path("").display().to_string().len();
        let long: Vec<_> = ran.stdout.lines().filter(|line| line.len() > 80 && home_length < 40).collect();
        assert_eq!(long, Vec::<&str>::new());
        assert!(ran.stdout.contains("memory:"), "{ran}");
    }
    assert!(std::path::Path::new(&file).exists());
    home.file("a.yml", "store: memory\n");
    let ran = home.run(&["config", "check", "--config", &home.path("a.yml").display().to_string()]).await;
    assert!(ran.stdout.contains("  store      memory:\n"), "{ran}");
}

#[tokio::test]
async fn the_schema_is_printed() {
    let ran = Home::new().run(&["config", "schema"]).await;
    let schema: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(
        schema["properties"]["listen"]["description"],
        "The addresses to listen on, each `HOST:PORT` or `unix:PATH` for a Unix socket: one or a list"
    );
    assert_eq!(schema["additionalProperties"], false);
}

#[tokio::test]
async fn a_wrong_address_or_agent_in_the_file_is_reported_with_its_line() {
    let home = Home::new();
    for (listen, error) in [
        (
            "127.0.0.1:99999",
            "FILE:3:9: `listen`: cannot listen on `127.0.0.1:99999`: expected `HOST:PORT` or `unix:PATH`",
        ),
        ("'::1'", "FILE:3:9: `listen`: cannot listen on `::1`"),
        ("[127.0.0.1:0, 'unix:']", "FILE:3:23: `listen[1]`: cannot listen on `unix:`"),
        ("0.0.0.0:0", "FILE:3:9: `listen`: on `0.0.0.0:0` other machines can connect"),
    ] {
        let file = home.file("attache.yml", &format!("store: memory\nagent: parrot\nlisten: {listen}\n"));
        let checked =
            home.run(&["config", "check", "--config", &file]).await.to_string().replace(&file, "FILE");
        assert!(checked.contains(error), "{checked}");
        assert!(checked.contains("FILE:2:8: `agent`: there is no agent `parrot`"), "{checked}");
    }
    let file = home.file("attache.yml", "store: memory\nlisten: ['[::1]:0', 'localhost:0', 'unix:a.sock']\n");
    let checked = home.run(&["config", "check", "--config", &file]).await;
    assert!(checked.stdout.contains("[::1]:0, localhost:0, unix:a.sock"), "{checked}");
}

#[tokio::test]
async fn everyone_is_not_let_in_from_everywhere_by_mistake() {
    let home = Home::new();
    let serve = ["serve", "--agent", "echo", "--store", "memory:", "--listen", "0.0.0.0:0"];
    insta::assert_snapshot!("open_to_everyone", home.run(&serve).await.to_string());
    let (program, _) = Program::command(&[&serve[..], &["--insecure", "--allowed-host", "*"]].concat()).await;
    let url = program.url.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(status(over_jsonrpc(&url)).await, StatusCode::OK);
}

#[tokio::test]
async fn a_secret_of_white_space_stops_the_server_wherever_it_stands() {
    let home = Home::new();
    let blank = home.file("blank", &" ".repeat(32));
    for auth in [
        "bearer:\n    - { name: alice, token: \"                \" }".to_owned(),
        format!("bearer:\n    - {{ name: alice, token-file: {blank} }}"),
        "api-key:\n    - { name: alice, key: \"\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\\t\" }"
            .to_owned(),
        "basic:\n    - { name: alice, password: \"x                y\" }".to_owned(),
    ] {
        let file = home.file("some.yml", &format!("agent: echo\nauth:\n  {auth}\n"));
        for command in [&["config", "check", "--config", &file][..], &["serve", "--config", &file]] {
            let ran = home.run(command).await;
            assert_eq!(ran.code, Some(2), "{ran}");
            assert!(ran.stderr.contains("this secret"), "{ran}");
        }
    }
    for flag in ["--push-secret-file", "--engine-token-file", "--api-token-file"] {
        let ran = home.run(&["config", "check", flag, &blank]).await;
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.contains("is shorter than 16 bytes"), "{ran}");
    }
}

#[tokio::test]
async fn a_key_that_is_unknown_stops_the_server() {
    let home = Home::new();
    let file = home.file("some.yml", "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\nnonsense: 1\n");
    let ran = home.run(&["serve", "--config", &file]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!("unknown_key", ran.to_string().replace(&file, "some.yml"));
}

#[tokio::test]
async fn a_variable_that_nothing_reads_is_a_problem_with_the_name_that_was_meant() {
    let home = Home::new();
    let text = "auth:\n  bearer:\n    - { name: alice, token: \"${ATTACHE_ALICE}\" }\n";
    let file = home.file("some.yml", text);
    let check = async |arguments: &[&str]| {
        let mut command = home.command(&[&["config", "check", "--config", &file], arguments].concat());
        command.envs([("ATTACHE_LISTN", "127.0.0.1:0"), ("ATTACHE_XYZZY", ""), ("ATTACHE_ALICE", ALICE)]);
        // The address of another service of this name.
        command.envs([("ATTACHE_SERVICE_HOST", "10.0.0.11"), ("ATTACHE_PORT", "tcp://10.0.0.11:3111")]);
        crate::home::ran(command.output().await.expect("it runs"))
    };
    let ran = check(&[]).await;
    let shown = ran.to_string().replace(&home.path("").display().to_string(), "HOME/");
    insta::assert_snapshot!("check_with_misspelt_variables", shown);
    let ran = check(&["--json"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    let checked: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(
        checked["problems"],
        json!([{"variable": "ATTACHE_LISTN", "meant": "ATTACHE_LISTEN"}, {"variable": "ATTACHE_XYZZY", "meant": null}])
    );
    assert_eq!(checked["limits"]["trusted-proxies"], json!([]));
    assert_eq!(checked["limits"]["loopback"], json!(false));
    assert_eq!(checked["limits"].get("burst"), None);
}

#[tokio::test]
async fn a_server_warns_of_variables_that_nothing_reads() {
    let arguments = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0"];
    let environment = [("ATTACHE_STORE", "memory:"), ("ATTACHE_TEIR", "partner"), ("NO_COLOR", "1")];
    let (_program, said) = Program::command_with(&arguments, &environment).await;
    let warned = said.lines().find(|line| line.contains("nothing reads this variable")).expect("a warning");
    assert!(warned.contains("variable=\"ATTACHE_TEIR\" meant=\"ATTACHE_TIER\""), "{warned}");
}

#[tokio::test]
async fn commands_that_look_after_data_find_it_where_the_server_does() {
    let home = Home::new();
    let (store, keys) = (home.path("tasks.db").display().to_string(), home.path("keys.json"));
    let text = format!(
        "agent: echo\nlisten: 127.0.0.1:0\nstore: \"sqlite:{store}\"\nkeyring: {}\nsigning: {{ keys: {} }}\nlimits: {{ trusted-proxies: [\"${{PROXY}}\"] }}\nauth:\n  bearer:\n    - {{ name: alice, token: \"${{ALICE_TOKEN}}\" }}\n",
        home.path("keyring.json").display(),
        keys.display(),
    );
    let file = home.file("attache.yml", &text);
    let run = async |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = home.command(arguments);
        let output = command.current_dir(home.path("")).envs(environment.iter().copied()).output().await;
        crate::home::ran(output.expect("it runs"))
    };
    // Commands on stored data do not need the secrets of callers.
    assert_eq!(run(&["keys", "new"], &[]).await.code, Some(0));
    assert!(keys.exists());
    let environment = [("ALICE_TOKEN", ALICE), ("PROXY", "10.0.0.1")];
    let (program, _) = Program::command_with(&["serve", "--config", &file], &environment).await;
    assert_eq!(status(over_jsonrpc(&program.url).bearer_auth(ALICE)).await, StatusCode::OK);
    assert!(program.stop().await.success());

    for named in [&["store", "check", "--json"][..], &["store", "check", "--json", "--config", &file]] {
        let ran = run(named, &[]).await;
        let checked: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!((&checked["path"], &checked["tasks"]), (&json!(store), &json!(1)), "{ran}");
    }
    for other in [
        &["store", "compact"][..],
        &["store", "rotate-keys"],
        &["push", "dead", "list"],
        &["push", "pending"],
        &["keys", "list"],
        &["keys", "rotate"],
        &["keys", "retire"],
    ] {
        let ran = run(other, &[]).await;
        assert_eq!(ran.code, Some(0), "{other:?}: {ran}");
    }
    let ran = run(&["store", "export"], &[]).await;
    assert!(ran.stderr.contains("exported 1 tasks"), "{ran}");

    // As with the server, the environment beats the file, and flags beat both.
    let elsewhere = [("ATTACHE_STORE", "sqlite:elsewhere.db")];
    let ran = run(&["store", "check"], &elsewhere).await;
    assert!(ran.stderr.contains("there is no store at `elsewhere.db`"), "{ran}");
    let ran = run(&["store", "check", "--store", &format!("sqlite:{store}")], &elsewhere).await;
    assert_eq!(ran.code, Some(0), "{ran}");
}

#[tokio::test]
async fn a_file_that_is_wrong_about_data_is_not_passed_over() {
    let home = Home::new();
    for (text, said) in [
        ("stroe: \"sqlite:tasks.db\"\n", "some.yml:1:1: there is no setting `stroe` here"),
        ("store: \"sqlite:${NOWHERE}/tasks.db\"\n", "`store`: the environment has no variable `NOWHERE`"),
        ("store: tasks.db\n", "some.yml:1:8: `store`: "),
        ("store: [\n", "this is not YAML"),
    ] {
        let file = home.file("some.yml", text);
        let ran = home.run(&["store", "check", "--config", &file]).await;
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.contains(said), "{ran}");
    }
    let ran = home.run(&["keys", "list", "--config", "nowhere.yml"]).await;
    assert!(ran.stderr.contains("`nowhere.yml` cannot be read"), "{ran}");
}

#[cfg(unix)]
mod reloading {
    use super::*;

    fn callers(names: &[(&str, &str)]) -> String {
        let line = |(name, token): &(&str, &str)| format!("    - {{ name: {name}, token: \"{token}\" }}\n");
        let lines: String = names.iter().map(line).collect();
        format!(
            "listen: 127.0.0.1:0\nstore: \"memory:\"\nengine: {{ listen: 127.0.0.1:0 }}\nfunctions: {{ demo: true }}\nauth:\n  bearer:\n{lines}"
        )
    }

    #[tokio::test]
    async fn a_token_that_is_revoked_lets_nobody_in_and_cuts_no_stream() {
        let home = Home::new();
        let file = home.file("some.yml", &callers(&[("alice", ALICE), ("bob", BOB)]));
        let (program, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
        let mut params = message();
        params["message"]["parts"][0]["text"] = json!("demo::count {\"to\": 10}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params});
        let request =
            Client::new().post(format!("{}/a2a", program.url)).header("A2A-Version", "1.0").json(&body);
        let mut stream = request.bearer_auth(ALICE).send().await.expect("the stream begins");
        let mut heard = stream.chunk().await.expect("an event").expect("an event").to_vec();

        home.file("some.yml", &callers(&[("bob", BOB)]));
        program.hang_up().await;
        until(StatusCode::UNAUTHORIZED, || over_jsonrpc(&program.url).bearer_auth(ALICE)).await;
        assert_eq!(status(over_jsonrpc(&program.url).bearer_auth(BOB)).await, StatusCode::OK);

        assert!(!String::from_utf8_lossy(&heard).contains("TASK_STATE_COMPLETED"), "it still runs");
        while let Some(chunk) = stream.chunk().await.expect("the stream goes on") {
            heard.extend_from_slice(&chunk);
        }
        assert!(String::from_utf8_lossy(&heard).contains("TASK_STATE_COMPLETED"), "it ran to its end");
    }

    #[tokio::test]
    async fn a_file_that_is_wrong_changes_nothing() {
        let home = Home::new();
        let good = callers(&[("alice", ALICE)]);
        let file = home.file("some.yml", &good);
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        home.file("some.yml", &good.replace("bearer", "baerer"));
        program.hang_up().await;
        let line = log.line_with("the settings stay as they were").await;
        assert!(line.contains("some.yml:6:3") && line.contains("did you mean `bearer`?"), "{line}");
        assert_eq!(status(over_jsonrpc(&program.url).bearer_auth(ALICE)).await, StatusCode::OK);

        std::fs::remove_file(&file).expect("it can be removed");
        program.hang_up().await;
        let line = log.line_with("the settings stay as they were").await;
        assert!(line.contains("cannot be read"), "{line}");
        assert_eq!(status(over_jsonrpc(&program.url)).await, StatusCode::UNAUTHORIZED);

        home.file("some.yml", &callers(&[("alice", BOB)]));
        program.hang_up().await;
        until(StatusCode::UNAUTHORIZED, || over_jsonrpc(&program.url).bearer_auth(ALICE)).await;
    }

    #[tokio::test]
    async fn what_is_logged_changes_at_once() {
        let home = Home::new();
        let text = callers(&[("alice", ALICE)]);
        let file = home.file("some.yml", &format!("log: error\n{text}"));
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        home.file("some.yml", &format!("log: info\n{text}"));
        program.hang_up().await;
        let line = log.line_with("read the settings again").await;
        assert!(
            line.contains("changed=\"log.filter\"") && line.contains("credentials=\"the same\""),
            "{line}"
        );
    }

    #[tokio::test]
    async fn the_card_follows_and_what_needs_a_restart_is_named() {
        let home = Home::new();
        let first = callers(&[("alice", ALICE)]);
        let file = home.file("some.yml", &first);
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        assert_eq!(schemes(&program.url).await, ["bearerAuth"]);
        let second = first.replace("bearer:", "basic:").replace("token:", "password:");
        home.file("some.yml", &second.replace("127.0.0.1:0\nstore", "127.0.0.1:4402\nstore"));
        program.hang_up().await;
        let line = log.line_with("these settings need a restart").await;
        assert!(line.contains("changed=\"listen\""), "{line}");
        until(StatusCode::OK, || over_jsonrpc(&program.url).basic_auth("alice", Some(ALICE))).await;
        let followed = async {
            while schemes(&program.url).await != ["basicAuth"] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), followed).await.expect("the card follows");
    }

    #[tokio::test]
    async fn authentication_is_not_removed_while_the_server_runs() {
        let home = Home::new();
        let good = callers(&[("alice", ALICE)]);
        let file = home.file("some.yml", &good);
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        let without = good.split("auth:").next().expect("it begins otherwise");
        for (text, said) in [
            ("", "is empty"),
            (" \n\n", "is empty"),
            ("# being written\n", "there is no `auth`"),
            ("listen: 127.0.0.1:0\n", "there is no `auth`"),
            (without, "there is no `auth`"),
            (&format!("{without}auth:\n"), "no callers are listed here"),
            (&format!("{without}auth:\n  bearer:\n"), "no callers are listed here"),
            (&good[..good.len() - 10], "some.yml:"),
        ] {
            home.file("some.yml", text);
            program.hang_up().await;
            let line = log.line_with("the settings stay as they were").await;
            assert!(line.contains(said), "{text:?}: {line}");
            assert_eq!(status(over_jsonrpc(&program.url)).await, StatusCode::UNAUTHORIZED, "{text:?}");
            assert_eq!(
                status(over_jsonrpc(&program.url).bearer_auth(ALICE)).await,
                StatusCode::OK,
                "{text:?}"
            );
        }
        home.file("some.yml", &callers(&[("alice", ALICE), ("bob", BOB)]));
        program.hang_up().await;
        until(StatusCode::OK, || over_jsonrpc(&program.url).bearer_auth(BOB)).await;
    }

    #[tokio::test]
    async fn of_several_credentials_none_is_dropped_while_the_server_runs() {
        let home = Home::new();
        let text = |require: &str, lists: &str| {
            format!(
                "agent: echo\nlisten: 127.0.0.1:0\nstore: \"memory:\"\nauth:\n  require: {require}\n{lists}"
            )
        };
        let bearer = format!("  bearer:\n    - {{ name: alice, token: \"{ALICE}\" }}\n");
        let both = format!("{bearer}  api-key:\n    - {{ name: alice, key: \"{BOB}\" }}\n");
        let file = home.file("some.yml", &text("all", &both));
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        for (require, lists, said) in [
            ("any", &both, "`auth.require` is not `all`"),
            ("all", &bearer, "`auth.api-key`"),
            ("any", &bearer, "`auth.api-key`"),
        ] {
            home.file("some.yml", &text(require, lists));
            program.hang_up().await;
            let line = log.line_with("the settings stay as they were").await;
            assert!(line.contains(said), "{line}");
            assert_eq!(status(over_jsonrpc(&program.url).bearer_auth(ALICE)).await, StatusCode::UNAUTHORIZED);
        }
        let request = over_jsonrpc(&program.url).bearer_auth(ALICE).header("X-API-Key", BOB);
        assert_eq!(status(request).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn no_other_machine_is_let_in_while_the_server_runs() {
        let home = Home::new();
        let good = callers(&[("alice", ALICE)]);
        let file = home.file("some.yml", &good);
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        let revoked = good.replace(ALICE, BOB);
        for (text, said) in [
            (
                revoked.replacen("127.0.0.1:0", "0.0.0.0:0", 1),
                "`listen` would be `0.0.0.0:0` instead of `127.0.0.1:0`",
            ),
            (revoked.replacen("127.0.0.1:0", "\"[::]:0\"", 1), "`listen` would be `[::]:0`"),
            (revoked.replacen("127.0.0.1:0", "192.0.2.1:0", 1), "`listen` would be `192.0.2.1:0`"),
            (
                revoked.replace(
                    "engine: { listen: 127.0.0.1:0 }",
                    &format!("engine: {{ listen: 0.0.0.0:0, token: \"{CARL}\" }}"),
                ),
                "`engine.listen` would be `0.0.0.0:0`",
            ),
        ] {
            home.file("some.yml", &text);
            program.hang_up().await;
            let line = log.line_with("the settings stay as they were").await;
            assert!(line.contains(said), "{line}");
            assert_eq!(status(over_jsonrpc(&program.url).bearer_auth(ALICE)).await, StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn a_server_that_others_reach_stays_closed_although_the_file_would_open_another() {
        let home = Home::new();
        let closed = callers(&[("alice", ALICE)]).replacen("127.0.0.1:0", "0.0.0.0:0", 1);
        let file = home.file("some.yml", &closed);
        let (program, _, mut log) = Program::watched(&["serve", "--config", &file], &[]).await;
        home.file("some.yml", "listen: 127.0.0.1:0\nstore: \"memory:\"\n");
        program.hang_up().await;
        let line = log.line_with("the settings stay as they were").await;
        assert!(line.contains("there is no `auth`"), "{line}");
        let url = program.url.replace("0.0.0.0", "127.0.0.1");
        assert_eq!(status(over_jsonrpc(&url)).await, StatusCode::UNAUTHORIZED);
    }
}
