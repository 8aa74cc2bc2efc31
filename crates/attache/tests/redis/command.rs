//! The client over Redis, as the command and as a library.

use attache::client::RedisUrl;
use attache::prelude::*;
use attache::protocol::TaskPushNotificationConfig;
use serde_json::Value;

use crate::home::Home;
use crate::support::{RESPONSES, Redis, Served, attache, command, has_redis, soon, until};

/// Runs the command and returns what it printed.
async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (bool, String, String) {
    let home = Home::new();
    let mut command = attache();
    command.args(arguments).env("HOME", home.path("")).envs(environment.iter().copied()).kill_on_drop(true);
    let output = soon("the end of the command", command.output()).await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn send_stream_task_and_card_work_over_redis() {
    if !has_redis("command::send_stream_task_and_card_work_over_redis") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let agent = redis.agent();
    let (succeeded, said, error) = run(&["send", &agent, "hello over Redis"], &[]).await;
    assert!(succeeded && said.contains("hello over Redis"), "{said}{error}");
    let (succeeded, said, error) = run(&["send", "--stream", &agent, "in pieces"], &[]).await;
    assert!(succeeded && said.contains("in pieces"), "{said}{error}");
    let (succeeded, said, error) = run(&["card", "--json", &agent], &[]).await;
    let card: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{error}"));
    assert!(succeeded && card["name"] == "Echo", "{card}");
    let (succeeded, said, error) = run(&["task", "list", "--json", &agent], &[]).await;
    assert!(succeeded && said.matches("TASK_STATE_COMPLETED").count() == 2, "{said}{error}");
    let mut connection = redis.connection().await;
    let replies: Vec<String> =
        command("KEYS").arg(format!("{RESPONSES}:*")).query_async(&mut connection).await.unwrap();
    assert!(replies.is_empty(), "each client deletes its reply stream: {replies:?}");
}

#[tokio::test]
async fn chat_watch_and_cancel_work_over_redis() {
    if !has_redis("command::chat_watch_and_cancel_work_over_redis") {
        return;
    }
    let redis = Redis::start().await;
    let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let (home, agent) = (Home::new(), redis.agent());
    let chat = home.run_with_input(&["chat", &agent], "over Redis\nonce more\n").await;
    assert_eq!((chat.code, chat.stdout.as_str()), (Some(0), "over Redis\nonce more\n"), "{chat}");
    let redis = Redis::start().await;
    let file = home.file("attache.yml", "program:\n  command: sleep 600\n");
    let _served = Served::start(&["--config", &file, "--redis", &redis.url()]).await;
    let agent = redis.agent();
    let sent = home.run(&["send", "--no-wait", &agent, "wait"]).await;
    let task = sent.stdout.trim();
    let watch = home.command(&["task", "watch", &agent, task]).spawn().expect("it starts");
    let canceled = home.run(&["task", "cancel", "--json", &agent, task]).await;
    assert!(canceled.code == Some(0) && canceled.stdout.contains("TASK_STATE_CANCELED"), "{canceled}");
    let watched = soon("the end of the watch", watch.wait_with_output()).await.expect("it ends");
    assert_eq!(watched.status.code(), Some(1), "the task was canceled");
}

#[tokio::test]
async fn redis_credentials_are_for_one_server_and_never_in_messages() {
    if !has_redis("command::redis_credentials_are_for_one_server_and_never_in_messages") {
        return;
    }
    let redis = Redis::start_with(&["--requirepass", "s3cret-of-redis"]).await;
    let url = format!("redis://:s3cret-of-redis@127.0.0.1:{}", redis.port());
    let served = Served::start(&["--agent", "echo", "--redis", &url]).await;
    let agent = redis.agent();
    let (succeeded, said, error) =
        run(&["send", &agent, "hello"], &[("ATTACHE_REDIS_CREDENTIALS", &url)]).await;
    assert!(succeeded && said.contains("hello"), "{said}{error}");
    let (succeeded, _, error) = run(&["send", &agent, "hello"], &[]).await;
    assert!(!succeeded && error.contains("NOAUTH"), "{error}");
    // A card may not decide that credentials of the user are used.
    let over_card = ["send", "--prefer", "redis-streams", &served.url, "hello"];
    let credentials = [("ATTACHE_REDIS_CREDENTIALS", url.as_str())];
    let (succeeded, _, error) = run(&over_card, &credentials).await;
    assert!(!succeeded && error.contains("none were sent") && !error.contains("s3cret"), "{error}");
    let origin = format!("redis-streams://127.0.0.1:{}", redis.port());
    let trusting = [&over_card[..], &["--trust-origin", &origin]].concat();
    let (succeeded, said, error) = run(&trusting, &credentials).await;
    assert!(succeeded && said.contains("hello"), "{said}{error}");
    // The Redis server of `attache serve` is none of the client's credentials.
    let (succeeded, _, error) = run(&["send", &agent, "hello"], &[("ATTACHE_REDIS", &url)]).await;
    assert!(!succeeded && error.contains("NOAUTH"), "{error}");
    let elsewhere = format!("redis://:s3cret-of-redis@127.0.0.1:{}", redis.port() ^ 1);
    let (succeeded, _, error) =
        run(&["send", &agent, "hello"], &[("ATTACHE_REDIS_CREDENTIALS", &elsewhere)]).await;
    assert!(!succeeded && error.contains("NOAUTH") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_missing_server_is_reported() {
    if !has_redis("command::a_missing_server_is_reported") {
        return;
    }
    let redis = Redis::start().await;
    let agent = redis.agent();
    let (succeeded, _, error) = run(&["send", &agent, "hello"], &[]).await;
    assert!(!succeeded && error.contains("no server reads `attache:a2a:requests`"), "{error}");
    let nowhere = agent.replace(&redis.port().to_string(), "1");
    let (succeeded, _, error) = run(&["send", &nowhere, "hello"], &[]).await;
    assert!(!succeeded && error.contains("no server listens there"), "{error}");
}

#[tokio::test]
async fn a_stream_goes_on_after_a_restart_of_redis() {
    if !has_redis("command::a_stream_goes_on_after_a_restart_of_redis") {
        return;
    }
    let mut redis = Redis::start().await;
    let agent = agent_fn(|turn: Turn| async move {
        for i in 0..20 {
            turn.working(format!("{i}")).await?;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        turn.complete().await
    });
    let streams = attache::server::RedisStreams::new(&redis.url()).unwrap();
    let listening = Server::new(agent).bind("127.0.0.1:0").redis(streams).listen().await.unwrap();
    let server = tokio::spawn(listening.run_until(std::future::pending()));
    let url: RedisUrl = redis.url().parse().unwrap();
    let options = ClientOptions::default().redis(vec![url]);
    let client = Client::connect_with(&redis.agent(), options).await.unwrap();
    let mut events = client.stream("count").await.unwrap();
    let mut count = 0;
    let mut last = None;
    while let Some(event) = soon("an event", events.next()).await {
        let event = event.unwrap();
        count += 1;
        if count == 5 {
            redis.kill().await;
            redis.start_again().await;
        }
        last = Some(event);
    }
    let task = match last {
        Some(attache::protocol::StreamResponse::StatusUpdate(update)) => update.task_id,
        other => panic!("{other:?}"),
    };
    let task = client.get(task).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(client.list(Default::default()).await.unwrap().tasks.len(), 1);
    drop((client, events));
    let mut connection = redis.connection().await;
    until("the reply stream is deleted", async || {
        let replies: Vec<String> =
            command("KEYS").arg(format!("{RESPONSES}:*")).query_async(&mut connection).await.unwrap();
        replies.is_empty()
    })
    .await;
    server.abort();
}

#[tokio::test]
async fn rediss_is_encrypted_and_its_certificate_is_checked() {
    if !has_redis("command::rediss_is_encrypted_and_its_certificate_is_checked") {
        return;
    }
    let home = Home::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = home.file("redis.pem", &made.cert.pem());
    let key = home.file("redis.key", &made.signing_key.serialize_pem());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let _redis = Redis::start_with(
        &[&tls[..], &["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"]].concat(),
    )
    .await;
    let url = format!("rediss://localhost:{port}");
    let file = home
        .file("attache.yml", &format!("agent: echo\nredis: {{ url: '{url}', ca-file: '{certificate}' }}\n"));
    let _served = Served::start(&["--config", &file]).await;
    let agent = format!("rediss-streams://localhost:{port}/0/attache:a2a:requests/{RESPONSES}/attache");
    let (succeeded, said, error) = run(&["send", "--ca", &certificate, &agent, "encrypted"], &[]).await;
    assert!(succeeded && said.contains("encrypted"), "{said}{error}");
    let (succeeded, _, error) = run(&["send", &agent, "hello"], &[]).await;
    assert!(!succeeded && error.contains("invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn all_operations_work_and_a_task_is_canceled_while_a_send_waits_for_it() {
    if !has_redis("command::all_operations_work_and_a_task_is_canceled_while_a_send_waits_for_it") {
        return;
    }
    let redis = Redis::start().await;
    let agent = agent_fn(|turn: Turn| async move {
        turn.working("waiting").await?;
        turn.cancelled().await;
        Ok(())
    });
    let streams = attache::server::RedisStreams::new(&redis.url()).unwrap();
    let listening = Server::new(agent).bind("127.0.0.1:0").redis(streams).listen().await.unwrap();
    let server = tokio::spawn(listening.run_until(std::future::pending()));
    let client = Client::connect(&redis.agent()).await.unwrap();
    let Reply::Task(task) = client.send(Outgoing::new("wait").return_immediately()).await.unwrap() else {
        panic!("a task is expected")
    };
    let id = task.id.clone();
    let webhook = TaskPushNotificationConfig {
        url: "https://hooks.example.com/a".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let webhook = client.create_webhook(id.clone(), webhook).await.unwrap();
    let own = webhook.id.clone().expect("it has an id");
    assert_eq!(client.webhook(id.clone(), own.clone()).await.unwrap().url, webhook.url);
    let mut listed = client.webhooks(id.clone());
    assert!(listed.next().await.unwrap().is_ok() && listed.next().await.is_none());
    client.delete_webhook(id.clone(), own.clone()).await.unwrap();
    assert!(client.webhook(id.clone(), own).await.is_err());
    let mut events = client.subscribe(id.clone()).await.unwrap();
    assert!(soon("an event", events.next()).await.unwrap().is_ok());
    let waiting = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { client.wait(id).await }
    });
    assert_eq!(client.cancel(id.clone()).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(soon("the end", waiting).await.unwrap().unwrap().status.state, TaskState::Canceled);
    while let Some(event) = soon("the end of the stream", events.next()).await {
        event.unwrap();
    }
    assert_eq!(client.get(id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(client.list(Default::default()).await.unwrap().tasks.len(), 1);
    let error = client.extended_card().await.unwrap_err();
    assert!(error.remote().is_some(), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_proxy_connects_redis_with_other_transports_in_both_directions() {
    if !has_redis("command::a_proxy_connects_redis_with_other_transports_in_both_directions") {
        return;
    }
    let redis = Redis::start().await;
    let served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
    let proxy = format!("stdio:'{}' proxy --stdio {}", env!("CARGO_BIN_EXE_attache"), redis.agent());
    for how in ["--stream", "--no-stream"] {
        let (succeeded, said, error) = run(&["send", how, &proxy, "from a command to Redis"], &[]).await;
        assert!(succeeded && said.contains("from a command to Redis"), "{said}{error}");
    }
    // An agent over HTTP for clients of another Redis server.
    let other = Redis::start().await;
    let mut proxy = attache();
    proxy.args(["proxy", "--listen", "127.0.0.1:0", "--redis", &other.url(), &served.url]);
    let mut proxy = proxy.stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(proxy.stderr.take().unwrap()));
    let listening = async {
        while !lines.next_line().await.unwrap().expect("it runs").starts_with("redis://127.0.0.1:") {}
    };
    soon("the proxy listens", listening).await;
    for how in ["--stream", "--no-stream"] {
        let (succeeded, said, error) = run(&["send", how, &other.agent(), "from Redis to HTTP"], &[]).await;
        assert!(succeeded && said.contains("from Redis to HTTP"), "{said}{error}");
    }
    proxy.kill().await.unwrap();
}

#[tokio::test]
async fn a_gateway_reaches_its_agent_over_redis() {
    if !has_redis("command::a_gateway_reaches_its_agent_over_redis") {
        return;
    }
    let redis = Redis::start_with(&["--requirepass", "s3cret-of-redis"]).await;
    let url = format!("redis://:s3cret-of-redis@127.0.0.1:{}", redis.port());
    let mut agent = Served::start(&["--agent", "echo", "--redis", &url, "--log-requests", "true"]).await;
    let environment = [("ATTACHE_REDIS_CREDENTIALS", url.as_str())];
    let by_flag = ["--remote", &redis.agent()];
    let home = Home::new();
    let by_card = format!("remote: {{ url: '{}', prefer: [redis-streams] }}\n", agent.url);
    let by_card = home.file("attache.yml", &by_card);
    let mut gateway = Served::start_with(&by_flag, &environment).await;
    for text in ["over Redis", "once more"] {
        let (succeeded, said, error) = run(&["send", &gateway.url, text], &[]).await;
        assert!(succeeded && said.contains(text), "{said}{error}");
        agent.line_with("binding=\"redis\" operation=\"SendStreamingMessage\"").await;
    }
    assert!(!gateway.everything().iter().any(|line| line.contains("s3cret")), "{:?}", gateway.said);
    // An address in a card gets no credentials, unless it is trusted.
    let mut refused = attache();
    refused.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--config", &by_card]);
    let refused = refused.envs(environment).kill_on_drop(true);
    let refused = soon("the end of the gateway", refused.output()).await.expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is another origin"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}
