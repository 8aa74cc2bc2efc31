//! What becomes of deliveries when a receiver, Redis or an entry is bad.

use std::collections::HashSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{
    DEAD, RETRY, Receiver, STREAM, handed_over, jobs, leftovers, rpc, send, settings, settings_with_lease,
};
use crate::home::Home;
use crate::support::{Redis, Served, attache, command, has_redis, range, until};

#[tokio::test]
async fn a_delivery_that_failed_is_tried_again_before_later_ones() {
    if !has_redis("push_queue::faults::a_delivery_that_failed_is_tried_again_before_later_ones") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let (id, number) =
        (first.header("x-a2a-delivery-id").to_owned(), first.header("x-a2a-event-number").to_owned());
    assert_eq!(first.header("x-a2a-delivery-attempt"), "1");
    first.answer(StatusCode::SERVICE_UNAVAILABLE);
    let mut connection = redis.connection().await;
    until("the job waits", async || {
        let waiting: Vec<String> =
            command("ZRANGE").arg(RETRY).arg(0).arg(-1).query_async(&mut connection).await.unwrap();
        waiting.iter().any(|job| {
            assert!(!job.contains("secret"), "{job}");
            let job: Value = serde_json::from_str(job).unwrap();
            (&job["jobId"], &job["attempt"]) == (&json!(id), &json!(1))
                && job["lastError"].as_str().unwrap().contains("503")
        })
    })
    .await;
    let again = receiver.next().await;
    assert_eq!(
        (again.header("x-a2a-delivery-id"), again.header("x-a2a-delivery-attempt")),
        (id.as_str(), "2")
    );
    assert_eq!(again.header("x-a2a-event-number"), number);
    again.answer(StatusCode::OK);
    let numbers = receiver.rest().await;
    assert!(numbers.is_sorted() && numbers[0] > 1, "{numbers:?}");
    until("nothing is left in Redis", async || leftovers(&mut connection).await.is_empty()).await;
}

#[tokio::test]
async fn deliveries_that_wait_in_the_queue_are_listed_with_what_they_wait_for() {
    if !has_redis("push_queue::faults::deliveries_that_wait_in_the_queue_are_listed_with_what_they_wait_for")
    {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let file = settings(&home, &redis, "one.yml", "");
    let list = async |more: &[&str]| {
        home.run(&[&["push", "pending", "--queue", "--config", &file], more].concat()).await
    };
    let listed = async |more: &[&str]| -> Value {
        let ran = list(&[&["--json"], more].concat()).await;
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran}"))
    };
    let states = |listed: &Value| -> Vec<String> {
        let listed = listed["deliveries"].as_array().expect("a list").iter();
        listed.map(|job| job["state"].as_str().expect("a state").to_owned()).collect()
    };
    // The queue was never used.
    assert_eq!(list(&[]).await.stdout, "no delivery of the queue is pending\n");
    let served = Served::start(&["--config", &file]).await;
    let task = send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let id = first.header("x-a2a-delivery-id").to_owned();
    let mut connection = redis.connection().await;
    handed_over(&mut connection).await;
    let all = listed(&[]).await;
    let taken = &all["deliveries"][0];
    assert_eq!(
        (&taken["deliveryId"], &taken["taskId"], &taken["configId"], &taken["attempts"]),
        (&json!(id), &json!(task), &json!("hook-1"), &json!(0))
    );
    let (first_state, others) =
        states(&all).split_first().map(|(one, rest)| (one.clone(), rest.to_vec())).unwrap();
    assert_eq!(first_state, "taken");
    assert!(!others.is_empty() && others.iter().all(|state| state == "predecessor"), "{all}");
    assert_eq!(all["hasMore"], false);
    let cut = listed(&["--limit", "1"]).await;
    assert_eq!((states(&cut).len(), &cut["hasMore"]), (1, &json!(true)), "{cut}");
    first.answer(StatusCode::SERVICE_UNAVAILABLE);
    until("it waits for its next attempt", async || {
        let waiting: usize = command("ZCARD").arg(RETRY).query_async(&mut connection).await.unwrap();
        waiting == 1
    })
    .await;
    // Before a server takes it again.
    served.kill().await;
    let all = listed(&[]).await;
    let again = &all["deliveries"][0];
    let shown = (&again["deliveryId"], &again["attempts"], &again["state"]);
    assert_eq!(shown, (&json!(id), &json!(1), &json!("retry")), "{again}");
    assert!(again["nextAttemptAt"].is_string(), "{again}");
    assert!(again["error"].as_str().unwrap().contains("503"), "{again}");
    assert_eq!(states(&all)[1..], others);
    let add = command("XADD").arg(STREAM).arg("*").arg("other").arg("x").clone();
    add.exec_async(&mut connection).await.unwrap();
    let text = list(&[]).await.stdout;
    assert!(text.contains("no job: a server moves it to the dead stream"), "{text}");
    assert!(text.contains(&format!("{task}/hook-1, delivery {id}")), "{text}");
    assert!(text.contains("1 attempt failed, next attempt "), "{text}");
    assert!(text.contains("not tried yet, after the one before it"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_delivery_that_fails_for_good_goes_to_the_dead_stream() {
    if !has_redis("push_queue::faults::a_delivery_that_fails_for_good_goes_to_the_dead_stream") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let mut served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    let task = send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let id = first.header("x-a2a-delivery-id").to_owned();
    first.answer(StatusCode::NOT_FOUND);
    // The later ones are made all the same.
    receiver.rest().await;
    served.line_with("a delivery failed for the last time").await;
    let mut connection = redis.connection().await;
    until("nothing else is left in Redis", async || leftovers(&mut connection).await == [DEAD]).await;
    let dead = jobs(&mut connection, DEAD).await;
    assert_eq!((dead.len(), &dead[0]["jobId"], &dead[0]["taskId"]), (1, &json!(id), &json!(task)));
    assert!(dead[0]["lastError"].as_str().unwrap().contains("404"), "{dead:?}");
    assert!(!dead[0].to_string().contains("secret"), "{dead:?}");
    // The operator sees it, and puts it back.
    let file = home.path("one.yml").display().to_string();
    let listed = home.run(&["push", "dead", "list", "--queue", "--json", "--config", &file]).await;
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed}"));
    let listed = &listed["deliveries"][0];
    assert_eq!(
        (&listed["deliveryId"], &listed["taskId"], &listed["attempts"]),
        (&json!(id), &json!(task), &json!(1))
    );
    assert!(listed["error"].as_str().unwrap().contains("404"), "{listed}");
    let entry = listed["id"].as_str().unwrap();
    let retried = home.run(&["push", "dead", "retry", "--queue", "--config", &file, entry]).await;
    assert_eq!(
        (retried.code, retried.stdout.as_str()),
        (Some(0), "1 deliveries to be tried again\n"),
        "{retried}"
    );
    let again = receiver.next().await;
    assert_eq!(again.header("x-a2a-delivery-id"), id);
    assert_eq!(again.header("authorization"), "Bearer secret-credentials");
    assert_eq!(again.header("x-a2a-delivery-attempt"), "1");
    again.answer(StatusCode::OK);
    until("nothing is left in Redis", async || leftovers(&mut connection).await.is_empty()).await;
    let missing = home.run(&["push", "dead", "purge", "--queue", "--config", &file, entry]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("has no job"), "{missing}");
}

#[tokio::test]
async fn an_entry_that_is_no_job_harms_nobody() {
    if !has_redis("push_queue::faults::an_entry_that_is_no_job_harms_nobody") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let mut connection = redis.connection().await;
    let encrypted = r#"{"iacCodeEncryptedPushJob":{"version":1,"keyId":"k","ciphertext":"c"}}"#;
    let internal = r#"{"jobId":"1","payload":{},"taskId":"t","url":"http://169.254.169.254/latest"}"#;
    for (field, value) in [("job", "\u{0}nonsense"), ("other", "x"), ("job", encrypted), ("job", internal)] {
        let add = command("XADD").arg(STREAM).arg("*").arg(field).arg(value).clone();
        add.exec_async(&mut connection).await.unwrap();
    }
    // Those that come back from the sorted set are entries too.
    for (score, member) in [("0", &b"\xff\xfe"[..]), ("4000000000", b"\xfd")] {
        command("ZADD").arg(RETRY).arg(score).arg(member).exec_async(&mut connection).await.unwrap();
    }
    let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    send(&served.url, &receiver, "hello").await;
    receiver.rest().await;
    until("nothing else is left in Redis", async || leftovers(&mut connection).await == [DEAD, RETRY]).await;
    let dead = range(&mut connection, DEAD).await;
    let reasons: Vec<_> =
        dead.iter().map(|entry| String::from_utf8_lossy(entry.get("reason").unwrap()).into_owned()).collect();
    for reason in ["has no job", "no field `job`", "iac-code has encrypted the job", "cloud metadata service"]
    {
        assert!(reasons.iter().any(|found| found.contains(reason)), "{reason}: {reasons:?}");
    }
    assert_eq!(reasons.len(), 5);
    let file = home.path("one.yml").display().to_string();
    let purged = home.run(&["push", "dead", "purge", "--queue", "--config", &file]).await;
    assert_eq!(purged.stdout, "5 deliveries forgotten\n", "{purged}");
}

#[tokio::test]
async fn nothing_is_lost_while_redis_is_away_or_full() {
    if !has_redis("push_queue::faults::nothing_is_lost_while_redis_is_away_or_full") {
        return;
    }
    let mut redis = Redis::start_with(&["--requirepass", "s3cret-of-redis"]).await;
    let (home, mut receiver) = (Home::new(), Receiver::start().await);
    let file = settings(&home, &redis, "one.yml", "");
    let text = std::fs::read_to_string(&file).unwrap().replace("redis://", "redis://:s3cret-of-redis@");
    std::fs::write(&file, text).unwrap();
    redis.kill().await;
    // The server starts without Redis, and answers.
    let mut served = Served::start(&["--config", &file]).await;
    // The line may come before the server says that it listens.
    let fails = |line: &String| line.contains("Redis fails, trying again");
    until("the outage is in the log", async || served.everything().iter().any(fails)).await;
    send(&served.url, &receiver, "before the start").await;
    redis.start_again().await;
    receiver.rest().await;
    // A restart in the middle of a delivery.
    send(&served.url, &receiver, "in the middle").await;
    let first = receiver.next().await;
    redis.kill().await;
    first.answer(StatusCode::OK);
    send(&served.url, &receiver, "meanwhile").await;
    redis.start_again().await;
    let (mut ended, mut ids) = (0, HashSet::new());
    while ended < 2 {
        let told = receiver.next().await;
        ids.insert(told.header("x-a2a-delivery-id").to_owned());
        ended += usize::from(told.body.to_string().contains("TASK_STATE_COMPLETED"));
        told.answer(StatusCode::OK);
    }
    // Full.
    let set = async |redis: &Redis, bytes: &str| {
        let url = redis.url().replace("redis://", "redis://:s3cret-of-redis@");
        let url: attache_redis::RedisUrl = url.parse().unwrap();
        let wait = crate::support::MAX_WAIT;
        let mut connection = attache_redis::connect(&url, wait, wait, None).await.unwrap();
        command("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec_async(&mut connection).await.unwrap();
    };
    set(&redis, "1").await;
    send(&served.url, &receiver, "full").await;
    served.line_with("OOM").await;
    set(&redis, "0").await;
    receiver.rest().await;
    let said = served.everything();
    assert!(!said.iter().any(|line| line.contains("s3cret")), "{said:?}");
    let failures = said.iter().filter(|line| line.contains("Redis fails")).count();
    // The answer to a command from just before the end of Redis looks like the end of the outage.
    assert!(failures <= 7, "each outage is logged once for reading and once for the rest: {said:?}");
    let shown = attache().args(["config", "show", "--config", &file]).output().await.unwrap();
    assert!(shown.status.success() && !String::from_utf8_lossy(&shown.stdout).contains("s3cret"));
}

#[tokio::test]
async fn a_server_with_other_keys_leaves_a_job_to_others() {
    if !has_redis("push_queue::faults::a_server_with_other_keys_leaves_a_job_to_others") {
        return;
    }
    let (redis, mut receiver) = (Redis::start().await, Receiver::start().await);
    let (home, elsewhere) = (Home::new(), Home::new());
    let one = Served::start(&["--config", &settings_with_lease(&home, &redis, "one.yml", "1s", "")]).await;
    send(&one.url, &receiver, "hello").await;
    let held = receiver.next().await;
    let id = held.header("x-a2a-delivery-id").to_owned();
    let mut connection = redis.connection().await;
    handed_over(&mut connection).await;
    one.kill().await;
    let stranger =
        Served::start(&["--config", &settings_with_lease(&elsewhere, &redis, "one.yml", "1s", "")]).await;
    until("the other server has given it back", async || {
        let waiting: Vec<String> =
            command("ZRANGE").arg(RETRY).arg(0).arg(-1).query_async(&mut connection).await.unwrap();
        waiting.iter().any(|job| job.contains(&id) && job.contains("a server could not open it"))
    })
    .await;
    // Any process may get it at every attempt, so only one is left.
    stranger.kill().await;
    let _third =
        Served::start(&["--config", &settings_with_lease(&home, &redis, "third.yml", "1s", "")]).await;
    let again = receiver.next().await;
    assert_eq!(again.header("x-a2a-delivery-id"), id);
    again.answer(StatusCode::OK);
    receiver.rest().await;
}

#[tokio::test]
async fn a_webhook_that_was_deleted_gets_no_more_jobs() {
    if !has_redis("push_queue::faults::a_webhook_that_was_deleted_gets_no_more_jobs") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    let task = send(&served.url, &receiver, "hello").await;
    let first = receiver.next().await;
    let deleted =
        rpc(&served.url, "DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "hook-1"})).await;
    assert!(deleted["error"].is_null(), "{deleted}");
    first.answer(StatusCode::SERVICE_UNAVAILABLE);
    let mut connection = redis.connection().await;
    until("nothing is left in Redis", async || leftovers(&mut connection).await.is_empty()).await;
    assert!(receiver.told.try_recv().is_err());
}

#[tokio::test]
async fn of_the_jobs_that_were_given_up_the_newest_are_kept() {
    if !has_redis("push_queue::faults::of_the_jobs_that_were_given_up_the_newest_are_kept") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let settings = settings_with_lease(&home, &redis, "one.yml", "5m, keep-dead: 2", "");
    let served = Served::start(&["--config", &settings]).await;
    let mut connection = redis.connection().await;
    let mut tasks = Vec::new();
    for text in ["one", "two", "three"] {
        tasks.push(send(&served.url, &receiver, text).await);
        receiver.next().await.answer(StatusCode::NOT_FOUND);
        receiver.rest().await;
        let kept = &tasks[tasks.len().saturating_sub(2)..];
        until("the newest jobs are kept", async || {
            let dead = jobs(&mut connection, DEAD).await;
            dead.iter().map(|job| job["taskId"].as_str().unwrap()).eq(kept.iter().map(String::as_str))
        })
        .await;
    }
}

#[tokio::test]
async fn a_receiver_gets_eight_jobs_at_once_and_the_ninth_waits_in_redis() {
    if !has_redis("push_queue::faults::a_receiver_gets_eight_jobs_at_once_and_the_ninth_waits_in_redis") {
        return;
    }
    let (redis, home, mut receiver) = (Redis::start().await, Home::new(), Receiver::start().await);
    let served = Served::start(&["--config", &settings(&home, &redis, "one.yml", "")]).await;
    let mut connection = redis.connection().await;
    let mut waiting = async || {
        let count: usize = command("ZCARD").arg(RETRY).query_async(&mut connection).await.unwrap();
        count
    };
    let mut held = Vec::new();
    for number in 0..8 {
        send(&served.url, &receiver, &number.to_string()).await;
        held.push(receiver.next().await);
    }
    assert_eq!(waiting().await, 0);
    let ninth = send(&served.url, &receiver, "ninth").await;
    until("the ninth job waits", async || waiting().await == 1).await;
    assert!(receiver.told.try_recv().is_err(), "a ninth notification at once");
    for told in held {
        told.answer(StatusCode::OK);
    }
    until("the ninth job is delivered", async || {
        let told = receiver.next().await;
        let is_ninth = told.body.to_string().contains(&ninth);
        told.answer(StatusCode::OK);
        is_ninth
    })
    .await;
}
