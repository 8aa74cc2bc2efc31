//! Who may call over Redis, and what others learn.

use serde_json::json;

use crate::home::Home;
use crate::requests::card;
use crate::support::{Peer, Redis, Served, attache, command, has_redis, send, until};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn credentials_in_fields_are_checked_as_on_every_binding() {
    if !has_redis("access::credentials_in_fields_are_checked_as_on_every_binding") {
        return;
    }
    let redis = Redis::start().await;
    let home = Home::new();
    let settings = format!(
        "agent: echo\nauth:\n  bearer: [{{ name: alice, token: {TOKEN} }}]\n  api-key: [{{ name: ci, key: {TOKEN}key, in: header, header: X-API-Key }}]\n"
    );
    let file = home.file("attache.yml", &settings);
    let mut served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let mut peer = Peer::new(&redis).await;
    let bearer = format!("Bearer {TOKEN}");
    for (fields, is_let_in) in [
        (vec![], false),
        (vec![("authorization", "Bearer wrong-wrong-wrong-wrong")], false),
        (vec![("authorization", bearer.as_str())], true),
        (vec![("x-api-key", concat!("0123456789abcdef0123456789abcdef", "key"))], true),
        (vec![("headers", r#"{"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}"#)], true),
    ] {
        let answer = peer.ask("c", &send(1, "hello"), &fields).await;
        assert_eq!(answer["result"].is_object(), is_let_in, "{fields:?}: {answer}");
    }
    let denied = served.line_with("attache::audit").await;
    assert!(
        denied.contains("redis") && denied.contains("denied") && !denied.contains("wrong-wrong"),
        "{denied}"
    );
    let is_line = |line: &String| line.contains("attache::request") && line.contains("alice");
    until("the request is logged", async || served.everything().iter().any(is_line)).await;
    let answered = served.said.iter().find(|line| is_line(line)).unwrap();
    assert!(answered.contains("binding=\"redis\""), "{answered}");
    // The tasks of one caller are not those of another.
    let sent = peer.ask("d", &send(2, "mine"), &[("authorization", &bearer)]).await;
    let get = json!({"jsonrpc": "2.0", "id": 3, "method": "GetTask", "params": {"id": sent["result"]["task"]["id"]}});
    let key = format!("{TOKEN}key");
    let other = peer.ask("e", &get.to_string(), &[("x-api-key", &key)]).await;
    assert_eq!(other["error"]["code"], -32001, "{other}");
    // The card needs no credentials, as over HTTP.
    let get = json!({"jsonrpc": "2.0", "id": 4, "method": "GetAgentCard", "params": {}}).to_string();
    let own = peer.ask("f", &get, &[]).await;
    assert_eq!(own["result"]["name"], card(&served.url).await["name"], "{own}");
}

#[tokio::test]
async fn the_card_lists_the_streams_after_the_standard_interfaces_and_without_credentials() {
    if !has_redis("access::the_card_lists_the_streams_after_the_standard_interfaces_and_without_credentials")
    {
        return;
    }
    let redis = Redis::start_with(&["--requirepass", "s3cret-of-redis"]).await;
    let url = format!("redis://:s3cret-of-redis@127.0.0.1:{}", redis.port());
    let mut served = Served::start(&["--agent", "echo", "--redis", &url]).await;
    let client = reqwest::Client::new();
    let address = format!("{}/.well-known/agent-card.json", served.url);
    let card = client
        .get(&address)
        .header("A2A-Extensions", "urn:attache:extension:transports:v1")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(!card.contains("s3cret"), "{card}");
    let card: serde_json::Value = serde_json::from_str(&card).unwrap();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let at = interfaces.iter().position(|it| it["protocolBinding"] == "redis-streams").unwrap();
    assert!(at >= 3 && interfaces[0]["protocolBinding"] == "JSONRPC", "{interfaces:?}");
    assert_eq!(interfaces[at]["url"], redis.agent());
    assert!(!served.everything().iter().any(|line| line.contains("s3cret")));
    // A wrong password is found at the start.
    let wrong = url.replace("s3cret-of-redis", "other-password");
    let mut command = attache();
    command.args(["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--redis", &wrong]);
    let output = command.env("ATTACHE_STORE", "memory:").output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("cannot use Redis at `redis://127.0.0.1:"), "{said}");
    assert!(!said.contains("other-password"), "{said}");
}

#[tokio::test]
async fn paths_of_artifacts_are_not_told_to_other_machines_over_redis() {
    let home = Home::new();
    for redis in [
        "{ url: 'redis://192.0.2.1:6379' }",
        "{ url: 'redis://127.0.0.1:1', card-host: 'redis.example.com:6379' }",
    ] {
        let settings = format!("agent: echo\ninsecure: true\nartifacts: {{ urls: file }}\nredis: {redis}\n");
        let file = home.file("attache.yml", &settings);
        let serve = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
        let refused = attache().args(serve).env("ATTACHE_STORE", "memory:").output().await.unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("`file:` URLs of artifacts"), "{said}");
    }
}

#[tokio::test]
async fn a_redis_of_another_machine_needs_authentication_or_insecure() {
    let refused = attache()
        .args([
            "serve",
            "--agent",
            "echo",
            "--listen",
            "127.0.0.1:0",
            "--redis",
            "redis://:s3cret@192.0.2.1:6379",
        ])
        .env("ATTACHE_STORE", "memory:")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("other machines can reach Redis at `redis://192.0.2.1:6379/0`"), "{said}");
    assert!(said.contains("--insecure") && !said.contains("s3cret"), "{said}");
    // The card leads other machines to a Redis server of this one.
    let home = Home::new();
    let settings =
        "agent: echo\nredis: { url: 'redis://127.0.0.1:1', card-host: 'redis.example.com:6379' }\n";
    let file = home.file("attache.yml", settings);
    let serve = ["serve", "--config", &file, "--listen", "127.0.0.1:0"];
    let refused = attache().args(serve).env("ATTACHE_STORE", "memory:").output().await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("other machines can reach Redis at `redis.example.com:6379`"), "{said}");
    // With `config show`, the password is masked.
    let shown = attache()
        .args(["config", "show", "--redis", "redis://:s3cret@192.0.2.1:6379", "--insecure"])
        .output()
        .await
        .unwrap();
    let said = [shown.stdout, shown.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("192.0.2.1") && !said.contains("s3cret"), "{said}");
}

#[tokio::test]
async fn the_access_control_lists_of_the_documentation_are_enough_and_less_is_explained() {
    if !has_redis("access::the_access_control_lists_of_the_documentation_are_enough_and_less_is_explained") {
        return;
    }
    let redis = Redis::start().await;
    let mut connection = redis.connection().await;
    let page = include_str!("../../../../docs/redis-streams.md");
    let lists: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER ")).collect();
    assert_eq!(lists.len(), 2, "one for clients and one for servers");
    let weak = lists[1].replace("server on", "weak on").replace(" +rpush", "");
    for list in [lists[0], lists[1], &weak] {
        let list = list.replace("PASSWORD", "s3cret-of-redis");
        let words: Vec<_> = list.split(' ').collect();
        command("ACL").arg("SETUSER").arg(&words).exec_async(&mut connection).await.unwrap();
    }
    let url = |user: &str| redis.url().replace("//", &format!("//{user}:s3cret-of-redis@"));
    let _served = Served::start(&["--agent", "echo", "--redis", &url("server")]).await;
    let _other = Served::start(&["--agent", "echo", "--redis", &url("server")]).await;
    let mut send = attache();
    send.args(["send", &redis.agent(), "Hello"]).env("ATTACHE_REDIS_CREDENTIALS", url("client"));
    let sent = send.output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&sent.stdout), "Hello\n", "{sent:?}");
    let mut serve = attache();
    serve.args(["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--redis", &url("weak")]);
    let refused = serve.env("ATTACHE_STORE", "memory:").kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("several servers need GET, SET"), "{said}");
}
