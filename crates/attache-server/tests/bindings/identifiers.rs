//! How long identifiers and names may be: a test at each limit and one past it, over every binding and dialect.

use std::sync::Arc;

use attache_core::{AgentResult, MemoryStore, NewTask, Owner, Store, TaskEvent, Turn, agent_fn};
use attache_protocol::{Message, Task, TaskState, TaskStatus, Timestamp, limits};
use attache_server::Server;
use serde_json::{Value, json};

use crate::support::v0_3::{Content, Event, FilePart, Peer, Sending, message};
use crate::support::{Binding, Refusal, Running, card, fetch, playing, send, serve};

/// A send with everything in it that has a limit.
fn full() -> Value {
    json!({
        "tenant": "acme",
        "message": {
            "messageId": "m", "contextId": "c", "role": "ROLE_USER",
            "parts": [{"text": "hi", "filename": "a.txt", "mediaType": "text/plain"}],
            "extensions": ["urn:a"],
            "referenceTaskIds": ["t"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "taskPushNotificationConfig": {
                "id": "w", "url": "https://example.com/", "token": "t",
                "authentication": {"scheme": "Bearer", "credentials": "c"},
            },
        },
    })
}

fn long(beginning: &str, bytes: usize) -> Value {
    json!(format!("{beginning}{}", "x".repeat(bytes - beginning.len())))
}

fn many(entry: &str, count: usize) -> Value {
    (0..count).map(|i| json!(format!("{entry}{i}"))).collect()
}

/// Where a limit is, what the field is called, and what is just within the limit and just past it.
fn bounds() -> Vec<(&'static str, &'static str, Value, Value)> {
    let text = |beginning: &str, limit| (long(beginning, limit), long(beginning, limit + 1));
    let list = |entry, limit| (many(entry, limit), many(entry, limit + 1));
    const WEBHOOK: &str = "/configuration/taskPushNotificationConfig";
    let webhook = |member: &str| -> &'static str { format!("{WEBHOOK}/{member}").leak() };
    let named = |member: &str| -> &'static str {
        format!("configuration.taskPushNotificationConfig.{member}").leak()
    };
    [
        ("/tenant", "tenant", text("", limits::TENANT)),
        ("/message/messageId", "message.messageId", text("", limits::ID)),
        ("/message/contextId", "message.contextId", text("", limits::ID)),
        ("/message/parts/0/filename", "message.parts[0].filename", text("", limits::FILENAME)),
        ("/message/parts/0/mediaType", "message.parts[0].mediaType", text("text/plain;", limits::MEDIA_TYPE)),
        ("/message/extensions", "message.extensions", list("urn:", limits::EXTENSIONS)),
        ("/message/extensions/0", "message.extensions[0]", text("urn:", limits::EXTENSION_URI)),
        ("/message/referenceTaskIds", "message.referenceTaskIds", list("t", limits::REFERENCES)),
        ("/message/referenceTaskIds/0", "message.referenceTaskIds[0]", text("", limits::ID)),
        (
            "/configuration/acceptedOutputModes",
            "configuration.acceptedOutputModes",
            list("text/", limits::OUTPUT_MODES),
        ),
        (
            "/configuration/acceptedOutputModes/0",
            "configuration.acceptedOutputModes[0]",
            text("text/", limits::MEDIA_TYPE),
        ),
        (webhook("id"), named("id"), text("", limits::WEBHOOK_ID)),
        (webhook("url"), named("url"), text("https://example.com/", limits::WEBHOOK_URL)),
        (webhook("token"), named("token"), text("", limits::WEBHOOK_SECRET)),
        (webhook("authentication/scheme"), named("authentication.scheme"), text("", limits::WEBHOOK_SCHEME)),
        (
            webhook("authentication/credentials"),
            named("authentication.credentials"),
            text("", limits::WEBHOOK_SECRET),
        ),
    ]
    .map(|(at, field, (within, past))| (at, field, within, past))
    .into()
}

fn with(at: &str, value: Value) -> Value {
    let mut params = full();
    *params.pointer_mut(at).unwrap() = value;
    params
}

#[tokio::test]
async fn every_identifier_of_a_send_is_taken_at_its_limit_and_refused_past_it() {
    let server = playing().await;
    for binding in Binding::ALL {
        for (at, field, within, past) in bounds() {
            let sent = server.ask("SendMessage", with(at, within)).ok(binding).await;
            assert!(sent["task"].is_object(), "{field} {binding:?}: {sent}");
            for operation in ["SendMessage", "SendStreamingMessage"] {
                let refusal = server.ask(operation, with(at, past.clone())).refused(binding).await;
                assert_eq!(refusal.reason, "INVALID_PARAMS", "{field} {binding:?}");
                assert_eq!(refusal.fields, [field], "{operation} {binding:?}");
                assert!(refusal.message.len() < 200, "{}", refusal.message);
            }
        }
    }
}

#[tokio::test]
async fn identifiers_have_no_control_characters() {
    let server = playing().await;
    for binding in Binding::ALL {
        for (at, field) in [
            ("/message/messageId", "message.messageId"),
            ("/message/contextId", "message.contextId"),
            ("/message/extensions/0", "message.extensions[0]"),
            ("/message/referenceTaskIds/0", "message.referenceTaskIds[0]"),
            ("/configuration/taskPushNotificationConfig/id", "configuration.taskPushNotificationConfig.id"),
        ] {
            for odd in ["a\nb", "a\u{0}", "\u{7f}", "\u{85}"] {
                let refusal = server.ask("SendMessage", with(at, json!(odd))).refused(binding).await;
                assert_eq!(refusal.fields, [field], "{odd:?} {binding:?}");
            }
        }
    }
}

#[tokio::test]
async fn only_so_many_wrong_fields_are_named() {
    let server = playing().await;
    let mut params = send("hi");
    params["message"]["parts"] =
        (0..1_000).map(|_| json!({"text": "", "filename": long("", limits::FILENAME + 1)})).collect();
    for binding in Binding::ALL {
        let refusal = server.ask("SendMessage", params.clone()).refused(binding).await;
        assert_eq!(refusal.fields.len(), limits::VIOLATIONS, "{binding:?}");
    }
}

#[tokio::test]
async fn the_extensions_that_a_request_asks_for_are_limited() {
    let server = playing().await;
    let uris = |count| (0..count).map(|i| format!("urn:{i}")).collect::<Vec<_>>().join(",");
    let within = [uris(limits::EXTENSIONS), "x".repeat(limits::EXTENSION_URI)];
    let past = [uris(limits::EXTENSIONS + 1), uris(2_000), "x".repeat(limits::EXTENSION_URI + 1)];
    for binding in Binding::ALL {
        for header in &within {
            server.ask("ListTasks", json!({})).header("A2A-Extensions", header).ok(binding).await;
        }
        for header in &past {
            let ask = server.ask("ListTasks", json!({})).header("A2A-Extensions", header);
            let refusal = ask.refused(binding).await;
            assert_eq!(
                (refusal.reason.as_str(), refusal.fields),
                ("INVALID_PARAMS", vec!["A2A-Extensions".into()])
            );
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_is_taken_at_its_limit_and_refused_past_it() {
    let server = playing().await;
    for (i, binding) in Binding::ALL.into_iter().enumerate() {
        let key = |length| format!("{i}{}", "k".repeat(length - 1));
        let ask = |length| server.ask("SendMessage", send("hi")).header("Idempotency-Key", &key(length));
        ask(limits::IDEMPOTENCY_KEY).ok(binding).await;
        let refusal = ask(limits::IDEMPOTENCY_KEY + 1).refused(binding).await;
        assert_eq!(refusal.fields, ["Idempotency-Key"], "{binding:?}");
    }
}

#[tokio::test]
async fn a_page_token_is_looked_at_only_up_to_its_limit() {
    let server = playing().await;
    let task = server.task("ask").await;
    for binding in Binding::ALL {
        for (operation, mut params) in
            [("ListTasks", json!({})), ("ListTaskPushNotificationConfigs", json!({"taskId": task["id"]}))]
        {
            for (length, why) in [(limits::PAGE_TOKEN, "nextPageToken"), (limits::PAGE_TOKEN + 1, "1024")] {
                params["pageToken"] = long("", length);
                let refusal = server.ask(operation, params.clone()).refused(binding).await;
                assert_eq!(refusal.fields, ["pageToken"], "{operation} {binding:?}");
                assert!(refusal.message.contains(why), "{}", refusal.message);
            }
        }
    }
}

#[tokio::test]
async fn an_id_that_every_event_of_a_stream_repeats_is_limited() {
    let server = playing().await;
    let post = |id: String| {
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": "SendStreamingMessage", "params": send("hi")});
        server.post(body.to_string())
    };
    // With its quotes.
    let within = "i".repeat(limits::JSONRPC_ID - 2);
    let reply = post(within.clone()).await;
    assert!(String::from_utf8_lossy(&reply.body).contains(&within));
    let refused = post("i".repeat(limits::JSONRPC_ID - 1)).await.json();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("256 bytes"), "{refused}");
}

async fn older(server: &Running, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
    fetch(request.body(body)).await.json()
}

fn fields(answer: &Value) -> Vec<&str> {
    let details = answer["error"]["data"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let violations = details.iter().filter_map(|detail| detail["fieldViolations"].as_array()).flatten();
    violations.map(|violation| violation["field"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn older_dialects_have_the_same_limits_and_name_the_fields_in_their_words() {
    let server = playing().await;
    let id = |past: usize| long("", limits::ID + past);
    let file = |past: usize| {
        json!([{"kind": "file", "type": "file", "file": {"bytes": "", "name": long("", limits::FILENAME + past),
            "mimeType": "text/plain"}}])
    };
    let flat = |past: usize| json!([{"text": "hi", "filename": long("", limits::FILENAME + past)}]);
    let kinds = json!([{"kind": "text", "type": "text", "text": "hi"}]);
    let text = json!([{"text": "hi"}]);
    let said = |parts: &Value| json!({"message": {"messageId": "m", "role": "user", "parts": parts}});
    type Make = fn(usize) -> Value;
    let cases: [(&str, Value, &str, Make, &str); 10] = [
        ("message/send", said(&kinds), "/message/messageId", id, "message.messageId"),
        ("message/send", said(&kinds), "/message/contextId", id, "message.contextId"),
        ("message/send", said(&kinds), "/message/parts", file, "message.parts[0].file.name"),
        ("message/send", said(&text), "/message/messageId", id, "message.messageId"),
        ("message/send", said(&text), "/message/contextId", id, "message.contextId"),
        ("message/send", said(&text), "/message/taskId", id, "message.taskId"),
        ("message/send", said(&text), "/message/parts", flat, "message.parts[0].filename"),
        ("tasks/send", said(&kinds), "/id", id, "id"),
        ("tasks/send", said(&kinds), "/sessionId", id, "sessionId"),
        ("tasks/send", said(&kinds), "/message/parts", file, "message.parts[0].file.name"),
    ];
    for (method, mut params, at, value, field) in cases {
        let (parent, member) = at.rsplit_once('/').unwrap();
        let mut ask = |past| {
            params.pointer_mut(parent).unwrap()[member] = value(past);
            older(&server, method, params.clone())
        };
        let taken = ask(0).await;
        assert!(taken["error"].is_null(), "{method} {field}: {taken}");
        let refused = ask(1).await;
        assert_eq!(refused["error"]["code"], -32602, "{method} {field}: {refused}");
        assert_eq!(fields(&refused), [field], "{method}: {refused}");
    }
}

#[tokio::test]
async fn an_id_that_a_client_chooses_for_its_task_brings_no_longer_context_with_it() {
    let server = playing().await;
    let said = json!({"messageId": "m", "role": "user", "parts": [{"text": "hi"}], "taskId": "mine",
        "contextId": long("", limits::ID + 1)});
    let refused = older(&server, "message/send", json!({"message": said})).await;
    assert_eq!(fields(&refused), ["message.contextId"]);
    let said = json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]});
    let params = json!({"id": "mine", "sessionId": long("", limits::ID + 1), "message": said});
    assert_eq!(fields(&older(&server, "tasks/send", params).await), ["sessionId"]);
}

#[tokio::test]
async fn the_http_and_grpc_of_0_3_have_the_same_limits() {
    let server = playing().await;
    let past = long("", limits::ID + 1);
    let body = json!({"message": {"messageId": past, "role": "ROLE_USER", "content": [{"text": "hi"}]}});
    let request = server.bare(reqwest::Method::POST, "/v1/message:send").header("A2A-Version", "0.3");
    let reply = fetch(request.header("Content-Type", "application/json").body(body.to_string())).await;
    assert_eq!(reply.status, 422);
    assert!(String::from_utf8_lossy(&reply.body).contains("message.messageId"), "{reply:?}");
    let mut peer = Peer::of(&server).await;
    let file = FilePart {
        name: "n".repeat(limits::FILENAME + 1),
        file_with_uri: Some("u".into()),
        ..Default::default()
    };
    let mut said = message(Content::File(file));
    said.message_id = past.as_str().unwrap().to_owned();
    let sending = Sending { request: Some(said), configuration: None };
    let status = peer.call::<_, Event>("SendMessage", sending).await.unwrap_err();
    let refusal = Refusal::from_status(&status);
    assert_eq!(refusal.fields, ["message.messageId", "message.content[0].file.name"]);
}

/// A task that an earlier version has stored under identifiers that are longer than what is taken today.
async fn stored(store: &MemoryStore) -> (String, String) {
    let (id, context) = ("t".repeat(limits::ID + 1), "c".repeat(limits::ID + 1));
    let mut message = Message::user("m".repeat(limits::ID + 1), "hi");
    message.task_id = Some(id.as_str().into());
    message.context_id = Some(context.as_str().into());
    let now = Timestamp::UNIX_EPOCH;
    let task = Task {
        id: id.as_str().into(),
        context_id: Some(context.as_str().into()),
        status: TaskStatus { state: TaskState::InputRequired, message: None, timestamp: Some(now) },
        history: vec![message],
        ..Task::default()
    };
    let new = NewTask {
        owner: Owner::default(),
        events: vec![TaskEvent::Created(Arc::new(task))],
        now,
        followed: false,
        lease_until: now,
        idempotency: None,
        push: None,
    };
    store.create(new).await.unwrap();
    (id, context)
}

#[tokio::test]
async fn what_is_stored_under_longer_identifiers_can_be_read_continued_and_canceled() {
    for binding in Binding::ALL {
        let store = MemoryStore::new();
        let (id, context) = stored(&store).await;
        let server = serve(
            Server::new(agent_fn(|turn: Turn| async move { turn.ask("and?").await }))
                .card(card())
                .store(store),
        )
        .await;
        let task = server.ask("GetTask", json!({"id": id})).ok(binding).await;
        assert_eq!(task["history"][0]["messageId"].as_str().unwrap().len(), limits::ID + 1, "{binding:?}");
        let page = server.ask("ListTasks", json!({"contextId": context})).ok(binding).await;
        assert_eq!(page["tasks"][0]["id"], id, "{binding:?}");
        let mut more = send("more");
        more["message"]["taskId"] = json!(id);
        more["message"]["contextId"] = json!(context);
        let sent = server.ask("SendMessage", more).ok(binding).await;
        assert_eq!(sent["task"]["contextId"], context, "{binding:?}");
        let hook = json!({"taskId": id, "url": "https://example.com/"});
        server.ask("CreateTaskPushNotificationConfig", hook).ok(binding).await;
        let canceled = server.ask("CancelTask", json!({"id": id})).ok(binding).await;
        assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{binding:?}");
        // Another task in the context would be stored anew.
        let mut another = send("another");
        another["message"]["contextId"] = json!(context);
        let refusal = server.ask("SendMessage", another).refused(binding).await;
        assert_eq!(refusal.fields, ["message.contextId"], "{binding:?}");
    }
}

#[tokio::test]
async fn a_task_that_is_not_found_is_not_repeated_in_full() {
    let server = playing().await;
    for binding in Binding::ALL {
        // What fits into the path of a request.
        let id = "t".repeat(10_000);
        let refusal = server.ask("GetTask", json!({"id": id})).refused(binding).await;
        assert_eq!(refusal.reason, "TASK_NOT_FOUND", "{binding:?}");
        assert!(refusal.metadata["taskId"].len() < 300, "{binding:?}");
    }
}

/// An agent that hands out an artifact under a name of as many bytes as the message says.
async fn namer(turn: Turn) -> AgentResult {
    let text = turn.text();
    let (what, length) = text.split_once(' ').unwrap();
    let name = "n".repeat(length.parse().unwrap());
    match what {
        "id" => turn.artifact(name).text("x").await?,
        "description" => turn.artifact("a").text("x").description(name).await?,
        "filename" => turn.artifact("a").file(name, "text/plain", "x").await?,
        "mediaType" => turn.artifact("a").file("a", name, "x").await?,
        "status" => turn.complete_with(attache_protocol::Part::text("x").filename(name)).await?,
        "ignored" => {
            assert!(turn.artifact(name).text("x").await.is_err());
            turn.artifact("short").text("x").await?;
        }
        other => panic!("{other}"),
    }
    turn.complete().await.or(Ok(()))
}

#[tokio::test]
async fn an_agent_that_uses_names_that_are_too_long_fails_its_turn_and_nothing_else() {
    let server = serve(Server::new(agent_fn(namer)).card(card())).await;
    for (what, limit, field) in [
        ("id", limits::ARTIFACT_ID, "artifact.artifactId"),
        ("description", limits::ARTIFACT_DESCRIPTION, "artifact.description"),
        ("filename", limits::FILENAME, "artifact.parts[0].filename"),
        ("mediaType", limits::MEDIA_TYPE, "artifact.parts[0].mediaType"),
        ("status", limits::FILENAME, "message.parts[0].filename"),
    ] {
        let within = server.task(&format!("{what} {limit}")).await;
        assert_eq!(within["status"]["state"], "TASK_STATE_COMPLETED", "{what}: {within}");
        let past = server.task(&format!("{what} {}", limit + 1)).await;
        assert_eq!(past["status"]["state"], "TASK_STATE_FAILED", "{what}: {past}");
        let said = past["status"]["message"]["parts"][0]["text"].as_str().unwrap();
        assert!(said.contains(field) && said.contains(&limit.to_string()), "{said}");
    }
    let went_on = server.task(&format!("ignored {}", limits::ARTIFACT_ID + 1)).await;
    assert_eq!(went_on["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(went_on["artifacts"][0]["artifactId"], "short");
}
