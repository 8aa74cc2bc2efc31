//! What an agent does not offer: a client is told that before what is wrong with its arguments.

use reqwest::Method;
use serde_json::json;

use crate::support::{Running, card, fetch, player, serve};

async fn plain() -> Running {
    let mut card = card();
    card.capabilities.streaming = Some(false);
    serve(player().card(card).push(false)).await
}

#[tokio::test]
async fn an_operation_that_is_not_offered_is_refused_before_its_arguments_are_read() {
    let server = plain().await;
    for params in [json!({}), json!({"taskId": 7}), json!({"message": "no"})] {
        for (method, code) in [
            ("SendStreamingMessage", -32004),
            ("SubscribeToTask", -32004),
            ("CreateTaskPushNotificationConfig", -32003),
            ("GetTaskPushNotificationConfig", -32003),
            ("ListTaskPushNotificationConfigs", -32003),
            ("DeleteTaskPushNotificationConfig", -32003),
            ("message/stream", -32004),
            ("tasks/sendSubscribe", -32004),
            ("tasks/resubscribe", -32004),
            ("tasks/pushNotificationConfig/set", -32003),
            ("tasks/pushNotificationConfig/get", -32003),
            ("tasks/pushNotificationConfig/list", -32003),
            ("tasks/pushNotificationConfig/delete", -32003),
            ("tasks/pushNotification/set", -32003),
            ("tasks/pushNotification/get", -32003),
        ] {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let request = server.bare(Method::POST, "/a2a").header("Content-Type", "application/json");
            let reply = fetch(request.body(body.to_string())).await;
            assert_eq!(reply.code(), code, "{method} {params}: {:?}", reply.json());
        }
    }
    for (method, path, body, reason) in [
        ("POST", "/v1/message:stream", "{", "UNSUPPORTED_OPERATION"),
        ("POST", "/v1/message:stream", r#"{"message": 7}"#, "UNSUPPORTED_OPERATION"),
        ("POST", "/v1/tasks/none:subscribe", "[]", "UNSUPPORTED_OPERATION"),
        ("GET", "/v1/tasks/none/pushNotificationConfigs?pageSize=x", "", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("POST", "/v1/tasks/none/pushNotificationConfigs", "[]", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("DELETE", "/v1/tasks/none/pushNotificationConfigs/x", "", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ] {
        let request = server.http(method.parse().unwrap(), path).header("Content-Type", "application/json");
        let reply = fetch(request.body(body)).await.json();
        assert_eq!(reply["error"]["details"][0]["reason"], reason, "{method} {path}: {reply}");
    }
    let client = &mut server.grpc().await;
    for (operation, params, reason) in [
        ("SendStreamingMessage", json!({}), "UNSUPPORTED_OPERATION"),
        ("SubscribeToTask", json!({}), "UNSUPPORTED_OPERATION"),
        ("CreateTaskPushNotificationConfig", json!({}), "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("ListTaskPushNotificationConfigs", json!({}), "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    ] {
        let status = client.call(operation, params, &[]).await.unwrap_err();
        assert_eq!(crate::support::Refusal::from_status(&status).reason, reason, "{operation}");
    }
}

#[tokio::test]
async fn what_is_offered_is_still_refused_for_its_arguments() {
    let server = plain().await;
    assert_eq!(server.rpc("SendMessage", json!({})).await["error"]["code"], -32602);
    assert_eq!(server.rpc("GetTask", json!({})).await["error"]["code"], -32602);
}
