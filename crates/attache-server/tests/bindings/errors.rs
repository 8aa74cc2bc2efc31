//! One condition, one reason: the same refusal over every binding, with the code that the binding has for it.

use attache_protocol::{AgentExtension, ErrorKind};
use attache_server::Server;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Ask, Binding, Player, Refusal, Running, card, player, playing, send, serve};

/// A row of the protocol's table of errors.
struct Row {
    reason: &'static str,
    jsonrpc: i64,
    http: i64,
    status: &'static str,
    grpc: Code,
}

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { reason: "TASK_NOT_FOUND", jsonrpc: -32001, http: 404, status: "NOT_FOUND", grpc: Code::NotFound },
    Row { reason: "TASK_NOT_CANCELABLE", jsonrpc: -32002, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "PUSH_NOTIFICATION_NOT_SUPPORTED", jsonrpc: -32003, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "UNSUPPORTED_OPERATION", jsonrpc: -32004, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "CONTENT_TYPE_NOT_SUPPORTED", jsonrpc: -32005, http: 400, status: "INVALID_ARGUMENT", grpc: Code::InvalidArgument },
    Row { reason: "EXTENDED_AGENT_CARD_NOT_CONFIGURED", jsonrpc: -32007, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "EXTENSION_SUPPORT_REQUIRED", jsonrpc: -32008, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "VERSION_NOT_SUPPORTED", jsonrpc: -32009, http: 400, status: "FAILED_PRECONDITION", grpc: Code::FailedPrecondition },
    Row { reason: "INVALID_PARAMS", jsonrpc: -32602, http: 400, status: "INVALID_ARGUMENT", grpc: Code::InvalidArgument },
    Row { reason: "UNAUTHENTICATED", jsonrpc: -32050, http: 401, status: "UNAUTHENTICATED", grpc: Code::Unauthenticated },
];

/// Asks over every binding and checks that each refuses for this reason, in its own words. They are the same for people.
async fn assert_refused(ask: Ask, reason: &str) -> Vec<Refusal> {
    let row = TABLE.iter().find(|row| row.reason == reason).expect("a row of the table");
    let mut refusals = Vec::new();
    for binding in Binding::ALL {
        let refusal = ask.clone().refused(binding).await;
        let (code, status) = match binding {
            Binding::JsonRpc => (row.jsonrpc, ""),
            Binding::HttpJson => (row.http, row.status),
            Binding::Grpc => (row.grpc as i64, ""),
        };
        assert_eq!(refusal.reason, reason, "{binding:?} {refusal:?}");
        assert_eq!((refusal.code, refusal.status.as_str()), (code, status), "{binding:?} {refusal:?}");
        assert_eq!(refusal.domain, "a2a-protocol.org");
        refusals.push(refusal);
    }
    let plain = |refusal: &Refusal| Refusal { code: 0, status: String::new(), ..refusal.clone() };
    assert!(refusals.iter().all(|refusal| plain(refusal) == plain(&refusals[0])), "{refusals:#?}");
    refusals
}

async fn task_in(server: &Running, text: &str) -> Value {
    server.task(text).await["id"].clone()
}

fn to_task(id: &Value, text: &str) -> Value {
    let mut params = send(text);
    params["message"]["taskId"] = id.clone();
    params
}

#[tokio::test]
async fn a_task_that_is_not_there() {
    let server = playing().await;
    for (operation, params) in [
        ("GetTask", json!({"id": "none"})),
        ("CancelTask", json!({"id": "none"})),
        ("SubscribeToTask", json!({"id": "none"})),
        ("SendMessage", to_task(&json!("none"), "hi")),
        ("SendStreamingMessage", to_task(&json!("none"), "hi")),
        ("CreateTaskPushNotificationConfig", json!({"taskId": "none", "url": "https://example.com/"})),
        ("GetTaskPushNotificationConfig", json!({"taskId": "none", "id": "c"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": "none"})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": "none", "id": "c"})),
    ] {
        let refusals = assert_refused(server.ask(operation, params), "TASK_NOT_FOUND").await;
        assert_eq!(refusals[0].metadata["taskId"], "none", "{operation}");
    }
    let id = task_in(&server, "hi").await;
    let missing = server.ask("GetTaskPushNotificationConfig", json!({"taskId": id, "id": "none"}));
    assert_refused(missing, "TASK_NOT_FOUND").await;
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_canceled() {
    let server = playing().await;
    for (text, state) in
        [("hi", "TASK_STATE_COMPLETED"), ("fail", "TASK_STATE_FAILED"), ("reject", "TASK_STATE_REJECTED")]
    {
        let id = task_in(&server, text).await;
        let refusals =
            assert_refused(server.ask("CancelTask", json!({"id": id})), "TASK_NOT_CANCELABLE").await;
        assert_eq!(refusals[0].metadata["state"], state);
    }
}

#[tokio::test]
async fn webhooks_where_there_are_none() {
    let mut card = card();
    card.capabilities.push_notifications = Some(false);
    let server = serve(player().card(card)).await;
    let id = task_in(&server, "hi").await;
    for (operation, params) in [
        ("CreateTaskPushNotificationConfig", json!({"taskId": id, "url": "https://example.com/"})),
        ("GetTaskPushNotificationConfig", json!({"taskId": id, "id": "c"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": id})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": id, "id": "c"})),
        ("GetTaskPushNotificationConfig", json!({"taskId": "none", "id": "c"})),
    ] {
        assert_refused(server.ask(operation, params), "PUSH_NOTIFICATION_NOT_SUPPORTED").await;
    }
    let mut inline = send("hi");
    inline["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://example.com/"}});
    assert_refused(server.ask("SendMessage", inline), "PUSH_NOTIFICATION_NOT_SUPPORTED").await;
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1, "nothing was created");
}

#[tokio::test]
async fn what_the_agent_or_the_task_does_not_allow() {
    let server = playing().await;
    for text in ["hi", "fail", "reject"] {
        let id = task_in(&server, text).await;
        assert_refused(server.ask("SubscribeToTask", json!({"id": id})), "UNSUPPORTED_OPERATION").await;
        assert_refused(server.ask("SendMessage", to_task(&id, "more")), "UNSUPPORTED_OPERATION").await;
        assert_refused(server.ask("SendStreamingMessage", to_task(&id, "more")), "UNSUPPORTED_OPERATION")
            .await;
    }
    assert_refused(server.ask("GetExtendedAgentCard", json!({})), "UNSUPPORTED_OPERATION").await;
}

#[tokio::test]
async fn streams_where_the_card_says_that_there_are_none() {
    let mut card = card();
    card.capabilities.streaming = Some(false);
    let server = serve(player().card(card)).await;
    let id = task_in(&server, "ask").await;
    assert_refused(server.ask("SendStreamingMessage", send("hi")), "UNSUPPORTED_OPERATION").await;
    assert_refused(server.ask("SubscribeToTask", json!({"id": id})), "UNSUPPORTED_OPERATION").await;
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1, "nothing was created");
}

#[tokio::test]
async fn a_media_type_that_the_agent_does_not_take() {
    let server = playing().await;
    for media_type in ["image/png", "text/html", "application/jsonp", "nonsense"] {
        let mut params = send("hi");
        params["message"]["parts"] = json!([{"text": "a"}, {"text": "b", "mediaType": media_type}]);
        let refusals = assert_refused(server.ask("SendMessage", params), "CONTENT_TYPE_NOT_SUPPORTED").await;
        assert_eq!(refusals[0].metadata["field"], "message.parts[1].mediaType");
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0, "nothing was created");
}

#[tokio::test]
async fn an_extended_card_that_is_promised_but_missing() {
    let mut card = card();
    card.capabilities.extended_agent_card = Some(true);
    let server =
        Server::new(Player).card(card).service_options(|options| options.extended_card_for_anyone = true);
    let server = serve(server).await;
    assert_refused(server.ask("GetExtendedAgentCard", json!({})), "EXTENDED_AGENT_CARD_NOT_CONFIGURED").await;
}

#[tokio::test]
async fn an_extended_card_for_anonymous_callers() {
    let server = serve(player().extended_card(card())).await;
    assert_refused(server.ask("GetExtendedAgentCard", json!({})), "UNAUTHENTICATED").await;
    let reply = server.rest("GET", "/extendedAgentCard", None).await;
    assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, "Bearer"));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"});
    let reply = server.post(body.to_string()).await;
    assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, "Bearer"));
}

#[tokio::test]
async fn an_extension_that_must_be_asked_for() {
    let server = serve(player().card(card().extension(AgentExtension::new("urn:x:audit").required()))).await;
    let refusals = assert_refused(server.ask("ListTasks", json!({})), "EXTENSION_SUPPORT_REQUIRED").await;
    assert_eq!(refusals[0].metadata["extension"], "urn:x:audit");
}

#[tokio::test]
async fn a_version_that_is_not_spoken() {
    let server = playing().await;
    assert_refused(server.ask("ListTasks", json!({})).version(Some("2.0")), "VERSION_NOT_SUPPORTED").await;
}

#[tokio::test]
async fn arguments_that_are_wrong_with_every_field_named() {
    let server = playing().await;
    let id = task_in(&server, "ask").await;
    let mut history = send("hi");
    history["configuration"] = json!({"historyLength": -1});
    let mut context = to_task(&id, "hi");
    context["message"]["contextId"] = json!("another");
    let hook = json!({"taskId": id, "url": "ftp://example.com/", "authentication": {"scheme": ""}});
    for (operation, params, fields) in [
        ("SendMessage", json!({"message": {}}), vec!["message.messageId", "message.role", "message.parts"]),
        (
            "SendStreamingMessage",
            json!({"message": {"messageId": "m", "parts": [{"text": ""}]}}),
            vec!["message.role"],
        ),
        ("SendMessage", history, vec!["configuration.historyLength"]),
        ("SendMessage", context, vec!["message.contextId"]),
        ("ListTasks", json!({"pageSize": 0, "historyLength": -1}), vec!["pageSize", "historyLength"]),
        ("ListTasks", json!({"pageToken": "garbage"}), vec!["pageToken"]),
        ("GetTask", json!({"id": id, "historyLength": -3}), vec!["historyLength"]),
        ("CreateTaskPushNotificationConfig", hook, vec!["url", "authentication.scheme"]),
    ] {
        let refusals = assert_refused(server.ask(operation, params), "INVALID_PARAMS").await;
        assert_eq!(refusals[0].fields, fields, "{operation}");
    }
}

#[test]
fn the_table_here_is_the_table_there() {
    for row in TABLE {
        let kind = ErrorKind::ALL.iter().find(|kind| kind.reason() == row.reason).expect(row.reason);
        assert_eq!(i64::from(kind.jsonrpc_code()), row.jsonrpc);
        assert_eq!(i64::from(kind.http_status()), row.http);
        assert_eq!((kind.grpc_code() as i32, kind.grpc_code().as_str()), (row.grpc as i32, row.status));
    }
}
