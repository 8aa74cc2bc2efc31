//! Protocol 0.3 over HTTP+JSON, as its SDKs speak it, and how its requests are told from those of 1.0.

use attache_protocol::{AgentCard, AgentExtension, HttpAuthSecurityScheme, SecurityScheme};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{Binding, Reply, Running, Sse, card, fetch, player, playing, send, serve};

/// A request that does not say which version it speaks.
fn unstated(server: &Running, method: &str, path: &str, body: Option<Value>) -> RequestBuilder {
    let request = server.bare(method.parse().unwrap(), &format!("/v1{path}"));
    match body {
        Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
        None => request,
    }
}

async fn ask(server: &Running, method: &str, path: &str, body: Option<Value>) -> Reply {
    fetch(unstated(server, method, path, body)).await
}

/// A message as the proto has it.
fn said(text: &str) -> Value {
    json!({"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": text}]},
        "configuration": {"blocking": true}})
}

/// Sends a text and gives back the id of the task that it led to.
async fn task(server: &Running, text: &str) -> String {
    let sent = ask(server, "POST", "/message:send", Some(said(text))).await.json();
    sent["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned()
}

#[tokio::test]
async fn a_client_of_0_3_sends_reads_and_cancels() {
    let server = playing().await;
    let sent = ask(&server, "POST", "/message:send", Some(said("ask"))).await;
    assert_eq!((sent.status.as_u16(), sent.header("content-type")), (200, "application/json"));
    let sent = sent.json();
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert_eq!(task["status"]["message"]["content"][0]["text"], "what exactly?");
    assert_eq!(task["history"][0]["content"], json!([{"text": "ask"}]));
    let id = task["id"].as_str().unwrap();

    let read = ask(&server, "GET", &format!("/tasks/{id}"), None).await;
    assert_eq!((read.status.as_u16(), read.header("content-type")), (200, "application/json"));
    assert_eq!(read.json(), *task);
    let canceled =
        ask(&server, "POST", &format!("/tasks/{id}:cancel"), Some(json!({"name": format!("tasks/{id}")})))
            .await;
    assert_eq!(canceled.json()["status"]["state"], "TASK_STATE_CANCELLED");
    let again = ask(&server, "POST", &format!("/tasks/{id}:cancel"), None).await;
    assert_eq!(again.json(), canceled.json());

    let current = server.ask("GetTask", json!({"id": id})).ok(Binding::HttpJson).await;
    assert_eq!(current["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(current["history"][0]["parts"], json!([{"text": "ask"}]));
}

#[tokio::test]
async fn zero_messages_of_history_are_all_of_them() {
    let server = playing().await;
    let id = task(&server, "ask").await;
    for (query, length) in [("", 1), ("?historyLength=0", 1), ("?historyLength=5", 1)] {
        let read = ask(&server, "GET", &format!("/tasks/{id}{query}"), None).await.json();
        assert_eq!(read["history"].as_array().map(Vec::len), Some(length), "{query} {read}");
    }
}

#[tokio::test]
async fn a_direct_answer_is_a_message_with_content() {
    let server = playing().await;
    let sent = ask(&server, "POST", "/message:send", Some(said("message back"))).await.json();
    assert_eq!(sent["message"]["content"], json!([{"text": "message back"}]), "{sent}");
    assert_eq!(sent["message"]["role"], "ROLE_AGENT");
}

#[tokio::test]
async fn a_stream_of_0_3_says_which_event_is_the_last() {
    let server = playing().await;
    let mut stream = Sse::open(unstated(&server, "POST", "/message:stream", Some(said("chunks")))).await;
    let events: Vec<Value> = stream.rest().await.iter().map(|frame| frame.json()).collect();
    assert_eq!(events[0]["task"]["history"][0]["content"][0]["text"], "chunks");
    let finals: Vec<&Value> =
        events.iter().map(|event| &event["statusUpdate"]["final"]).filter(|it| !it.is_null()).collect();
    assert_eq!(finals, [&json!(false), &json!(true)], "{events:?}");
    let chunks =
        events.iter().filter_map(|event| event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str());
    assert_eq!(chunks.collect::<String>(), "one two three");

    let mut params = said("ask");
    params["request"] = params["message"].take();
    params.as_object_mut().unwrap().remove("message");
    let mut stream = Sse::open(unstated(&server, "POST", "/message:stream", Some(params))).await;
    let last = stream.rest().await.pop().unwrap().json();
    assert_eq!(last["statusUpdate"]["final"], true, "{last}");
}

#[tokio::test]
async fn both_verbs_subscribe_and_a_task_that_has_ended_is_told_as_it_ended() {
    let server = playing().await;
    let (open, done) = (task(&server, "ask").await, task(&server, "hi").await);
    for method in ["GET", "POST"] {
        let mut stream =
            Sse::open(unstated(&server, method, &format!("/tasks/{open}:subscribe"), None)).await;
        assert_eq!(stream.event().await["task"]["status"]["message"]["content"][0]["text"], "what exactly?");
        let mut stream =
            Sse::open(unstated(&server, method, &format!("/tasks/{done}:subscribe"), None)).await;
        let events = stream.rest().await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    let current = server.ask("SubscribeToTask", json!({"id": done})).refused(Binding::HttpJson).await;
    assert_eq!(current.reason, "UNSUPPORTED_OPERATION");
    let mut more = said("more");
    more["message"]["taskId"] = json!(done);
    assert_eq!(ask(&server, "POST", "/message:send", Some(more)).await.status, 501);
}

#[tokio::test]
async fn the_kinds_of_the_schema_are_understood_and_answered() {
    let server = playing().await;
    let body = json!({"message": {"kind": "message", "messageId": "m", "role": "user",
        "parts": [{"kind": "data", "data": {"big": 9007199254740993_u64}}]}});
    let sent = ask(&server, "POST", "/message:send", Some(body.clone())).await.json();
    assert_eq!((&sent["kind"], &sent["status"]["state"]), (&json!("task"), &json!("completed")), "{sent}");
    assert_eq!(sent["artifacts"][0]["parts"][0]["data"]["big"], 9007199254740993_u64);
    let mut stream = Sse::open(unstated(&server, "POST", "/message:stream", Some(body))).await;
    let last = stream.rest().await.pop().unwrap().json();
    assert_eq!((&last["kind"], &last["final"]), (&json!("status-update"), &json!(true)));
}

#[tokio::test]
async fn webhooks_go_by_their_resource_names() {
    let server = playing().await;
    let id = task(&server, "ask").await;
    let path = format!("/tasks/{id}/pushNotificationConfigs");
    let name = |webhook: &str| format!("tasks/{id}/pushNotificationConfigs/{webhook}");
    let config = |webhook: &str| json!({"id": webhook, "url": "https://example.com/hook"});
    let python = json!({"parent": format!("tasks/{id}"), "configId": "one",
        "config": {"name": name("one"), "pushNotificationConfig": config("one")}});
    let javascript = json!({"name": name("two"), "pushNotificationConfig": config("two")});
    for (body, webhook) in [(python, "one"), (javascript, "two")] {
        let made = ask(&server, "POST", &path, Some(body)).await;
        assert_eq!(made.status, 200, "{made:?}");
        assert_eq!(made.json(), json!({"name": name(webhook), "pushNotificationConfig": config(webhook)}));
        let read = ask(&server, "GET", &format!("{path}/{webhook}"), None).await;
        assert_eq!(read.json(), made.json());
    }
    let plain = json!({"taskId": id, "pushNotificationConfig": config("three")});
    assert_eq!(ask(&server, "POST", &path, Some(plain.clone())).await.json(), plain);
    let listed = ask(&server, "GET", &path, None).await.json();
    let names: Vec<&Value> =
        listed["configs"].as_array().unwrap().iter().map(|config| &config["name"]).collect();
    assert_eq!(names.len(), 3, "{listed}");
    let gone = ask(&server, "DELETE", &format!("{path}/one"), None).await;
    assert_eq!((gone.status.as_u16(), gone.json()), (200, json!({})));
    assert_eq!(ask(&server, "GET", &format!("{path}/one"), None).await.status, 404);
    let current =
        server.ask("ListTaskPushNotificationConfigs", json!({"taskId": id})).ok(Binding::HttpJson).await;
    assert_eq!(current["configs"].as_array().map(Vec::len), Some(2), "{current}");
    assert!(current["configs"][0]["url"].is_string() && current["configs"][0]["name"].is_null(), "{current}");
}

#[tokio::test]
async fn refusals_have_the_statuses_of_0_3_and_words_for_both() {
    let server = playing().await;
    let done = task(&server, "hi").await;
    for (method, path, body, status, reason) in [
        ("GET", "/tasks/none".to_owned(), None, 404, "TASK_NOT_FOUND"),
        ("POST", format!("/tasks/{done}:cancel"), None, 409, "TASK_NOT_CANCELABLE"),
        ("GET", format!("/tasks/{done}?historyLength=-1"), None, 422, "INVALID_PARAMS"),
        ("GET", "/card".to_owned(), None, 501, "UNSUPPORTED_OPERATION"),
    ] {
        let reply = ask(&server, method, &path, body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (status, "application/json"),
            "{path}"
        );
        let json = reply.json();
        assert_eq!(
            (&json["error"]["code"], &json["error"]["details"][0]["reason"]),
            (&json!(status), &json!(reason))
        );
        assert_eq!(json["message"], json["error"]["message"], "{json}");
    }
    // What is known to be of 0.3 is refused in its words alone, and so is what is known to be of 1.0.
    let older = ask(&server, "POST", "/message:send", Some(json!({"message": {"content": []}}))).await;
    assert_eq!(older.status, 422);
    assert!(older.json()["message"].as_str().unwrap().contains("message.content"), "{older:?}");
    assert!(older.json()["error"].is_null(), "{older:?}");
    let stated = fetch(unstated(&server, "GET", "/tasks/none", None).header("A2A-Version", "0.3")).await;
    assert_eq!((stated.status.as_u16(), &stated.json()["code"]), (404, &json!(-32001)));
    assert!(stated.json()["error"].is_null(), "{stated:?}");
    let current = ask(&server, "POST", "/message:send", Some(json!({"message": {"parts": []}}))).await;
    assert_eq!((current.status.as_u16(), current.json().get("message")), (400, None));
}

#[tokio::test]
async fn a_stated_version_decides() {
    let server = playing().await;
    let id = task(&server, "ask").await;
    let state = async |version: &str, path: &str| {
        let reply = fetch(unstated(&server, "GET", path, None).header("A2A-Version", version)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let history = reply.json()["history"][0].clone();
        (history["parts"].is_array(), history["content"].is_array())
    };
    let path = format!("/tasks/{id}");
    for version in ["0.3", "0.3.0", "0.2"] {
        assert_eq!(state(version, &path).await, (false, true), "{version}");
    }
    for version in ["1.0", "1.1"] {
        assert_eq!(state(version, &path).await, (true, false), "{version}");
    }
    assert_eq!(state("", &format!("{path}?A2A-Version=1.0")).await, (false, true), "the header wins");
    let queried = ask(&server, "GET", &format!("{path}?A2A-Version=1.0"), None).await;
    assert!(queried.json()["history"][0]["parts"].is_array());
    // A body of the one is not read with the schema of the other.
    let stated = unstated(&server, "POST", "/message:send", Some(said("hi"))).header("A2A-Version", "1.0");
    assert_eq!(fetch(stated).await.status, 400);
    // Plain parts are the same in both.
    let plain = unstated(&server, "POST", "/message:send", Some(send("hi"))).header("A2A-Version", "0.3");
    assert!(fetch(plain).await.json()["task"]["history"][0]["content"].is_array());
}

#[tokio::test]
async fn what_only_1_0_has_is_answered_in_its_words() {
    let server = playing().await;
    let sent = ask(&server, "POST", "/message:send", Some(send("ask"))).await.json();
    assert!(sent["task"]["history"][0]["parts"].is_array(), "{sent}");
    let id = sent["task"]["id"].as_str().unwrap();
    assert!(ask(&server, "GET", "/tasks", None).await.json()["tasks"].is_array());
    let accepted =
        unstated(&server, "GET", &format!("/tasks/{id}"), None).header("Accept", "application/a2a+json");
    let accepted = fetch(accepted).await;
    assert_eq!(accepted.header("content-type"), "application/a2a+json");
    assert!(accepted.json()["history"][0]["parts"].is_array());
    let tenant = ask(&server, "GET", &format!("/acme/tasks/{id}"), None).await;
    assert_eq!((tenant.status.as_u16(), tenant.json().get("message")), (404, None));
}

#[tokio::test]
async fn a_strict_server_speaks_0_3_only_to_those_who_say_so() {
    let server = serve(player().options(|options| options.strict_version = true)).await;
    for request in [
        unstated(&server, "POST", "/message:send", Some(said("hi"))),
        unstated(&server, "GET", "/tasks/t", None),
        unstated(&server, "GET", "/card", None),
    ] {
        let refused = fetch(request).await;
        assert_eq!(refused.json()["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{refused:?}");
    }
    let stated = unstated(&server, "POST", "/message:send", Some(said("hi"))).header("A2A-Version", "0.3");
    assert_eq!(fetch(stated).await.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_extended_card_is_at_its_old_place() {
    let mut plain = card();
    let bearer = HttpAuthSecurityScheme { scheme: "Bearer".to_owned(), ..Default::default() };
    plain.security_schemes.insert("key".to_owned(), SecurityScheme::HttpAuth(bearer));
    let extended = AgentCard { description: "More".to_owned(), ..plain.clone() };
    let server = player().card(plain).extended_card(extended);
    let server = serve(server.service_options(|options| options.extended_card_for_anyone = true)).await;
    let card = ask(&server, "GET", "/card", None).await.json();
    assert_eq!((&card["description"], &card["protocolVersion"]), (&json!("More"), &json!("0.3.0")), "{card}");
    let scheme = &card["securitySchemes"]["key"];
    assert_eq!((&scheme["type"], scheme["httpAuthSecurityScheme"].is_object()), (&json!("http"), true));
    let stated = fetch(unstated(&server, "GET", "/card", None).header("A2A-Version", "0.3")).await.json();
    assert!(stated["supportedInterfaces"].is_null() && stated["url"].is_string(), "{stated}");
}

#[tokio::test]
async fn extensions_are_asked_for_and_confirmed_under_the_old_name() {
    let server = serve(player().card(card().extension(AgentExtension::new("urn:x:a").required()))).await;
    let refused = ask(&server, "POST", "/message:send", Some(said("hi"))).await;
    assert_eq!(
        (refused.status.as_u16(), refused.json()["type"].as_str()),
        (400, Some("ExtensionSupportRequiredError"))
    );
    let asked =
        unstated(&server, "POST", "/message:send", Some(said("hi"))).header("X-A2A-Extensions", "urn:x:a");
    let reply = fetch(asked).await;
    assert_eq!((reply.status.as_u16(), reply.header("x-a2a-extensions")), (200, "urn:x:a"), "{reply:?}");
    let rpc =
        server.ask("ListTasks", json!({})).header("X-A2A-Extensions", "urn:x:a").over(Binding::JsonRpc).await;
    assert_eq!(rpc.extensions.as_deref(), Some("urn:x:a"));
}

#[tokio::test]
async fn a_body_of_another_type_and_one_too_large_are_refused_in_the_words_of_0_3() {
    let server = serve(player().options(|options| options.max_body = 512)).await;
    let text = server.bare(Method::POST, "/v1/message:send").header("Content-Type", "text/plain");
    assert_eq!(fetch(text.body(said("hi").to_string())).await.status, 415);
    let large =
        unstated(&server, "POST", "/message:send", Some(said(&"x".repeat(600)))).header("A2A-Version", "0.3");
    let large = fetch(large).await;
    assert_eq!((large.status.as_u16(), large.json()["message"].is_string()), (413, true), "{large:?}");
}

#[tokio::test]
async fn the_path_for_0_3_speaks_0_3_and_the_older_paths_still_do() {
    let server = playing().await;
    for prefix in ["/0.3/v1", "/v1"] {
        let post = |path: &str| {
            server.bare(Method::POST, &format!("{prefix}{path}")).header("Content-Type", "application/json")
        };
        let sent = fetch(post("/message:send").body(said("hi").to_string())).await.json();
        assert_eq!(sent["task"]["history"][0]["content"], json!([{"text": "hi"}]), "{sent}");
        let id = sent["task"]["id"].as_str().unwrap();
        let read = fetch(server.bare(Method::GET, &format!("{prefix}/tasks/{id}"))).await.json();
        assert_eq!(read["history"][0]["content"], json!([{"text": "hi"}]), "{prefix}");
    }
    // At its own path, nothing has to be guessed from the shape of the request.
    let read = fetch(server.bare(Method::GET, "/0.3/v1/tasks/none").header("Accept", "application/a2a+json"));
    assert!(read.await.json()["detail"].is_null());
    let nothing = fetch(server.bare(Method::GET, "/0.3/tasks/none")).await;
    assert_eq!(nothing.status, 404);
    let strict = serve(player().options(|options| options.strict_version = true)).await;
    let refused = fetch(strict.bare(Method::GET, "/0.3/v1/tasks/none")).await.json();
    assert_eq!(refused["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{refused}");
}
