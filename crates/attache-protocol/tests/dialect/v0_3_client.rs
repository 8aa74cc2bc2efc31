//! A client of protocol 0.3: our server reads its requests, and it reads our server's responses.

use std::borrow::Cow;

use attache_protocol::dialect::v0_3::{request, response};
use attache_protocol::dialect::{Response, dual_card, read_card, v0_3_card};
use attache_protocol::{
    AgentCard, Dialect, Error, ListTaskPushNotificationConfigsResponse, OAuthFlows, Operation, Request,
    SecurityScheme, SendMessageResponse, StreamResponse, TaskState,
};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arbitrary;
use crate::carried::{carried, carried_message, carried_part};
use crate::support::{artifact_event, page, rich_task, status_of, task, webhook};

fn written(operation: Operation, arguments: &Value) -> Result<String, Error> {
    let request = operation.parse(arguments.to_string().as_bytes()).expect("a request");
    request::write(&request).map(|it| format!("{} {}", it.method, it.params.as_str()))
}

#[test]
fn every_operation_is_written() {
    let message = json!({"messageId": "m1", "role": "ROLE_USER", "contextId": "c", "taskId": "t", "parts": [
        {"text": "hi"},
        {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/b"},
        {"data": [1]},
    ]});
    let configuration = json!({
        "acceptedOutputModes": ["text/plain"], "historyLength": 2, "returnImmediately": true,
        "taskPushNotificationConfig": {"url": "https://h", "authentication": {"scheme": "Bearer", "credentials": "s3"}},
    });
    let lines: Vec<_> = [
        (Operation::SendMessage, json!({"message": message, "metadata": {"k": 1}})),
        (Operation::SendMessage, json!({"message": {"messageId": "m"}, "configuration": configuration})),
        (Operation::SendStreamingMessage, json!({"message": {"messageId": "m"}})),
        (Operation::GetTask, json!({"id": "t", "historyLength": 3, "currentGeneration": 7})),
        (Operation::CancelTask, json!({"id": "t", "metadata": {"why": "late"}})),
        (Operation::SubscribeToTask, json!({"id": "t"})),
        (Operation::ListTasks, json!({"contextId": "c", "status": "TASK_STATE_CANCELED", "pageSize": 5})),
        (
            Operation::CreateTaskPushNotificationConfig,
            json!({"taskId": "t", "id": "w", "url": "https://h", "token": "s"}),
        ),
        (Operation::GetTaskPushNotificationConfig, json!({"taskId": "t", "id": "w"})),
        (Operation::ListTaskPushNotificationConfigs, json!({"taskId": "t"})),
        (Operation::DeleteTaskPushNotificationConfig, json!({"taskId": "t", "id": "w"})),
        (Operation::GetExtendedAgentCard, json!({})),
    ]
    .iter()
    .map(|(operation, arguments)| written(*operation, arguments).expect("words for it"))
    .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn fields_that_0_3_does_not_have_are_errors() {
    let generation = json!({"message": {"messageId": "m"}, "configuration": {"ifGenerationMatch": 3}});
    for (operation, arguments, field) in [
        (Operation::GetTask, json!({"id": "t", "tenant": "acme"}), "tenant"),
        (Operation::SendMessage, generation, "configuration.ifGenerationMatch"),
        (
            Operation::ListTasks,
            json!({"statusTimestampAfter": "2026-01-02T03:04:05Z"}),
            "statusTimestampAfter",
        ),
    ] {
        let error = written(operation, &arguments).expect_err("an error");
        assert_eq!(error.field_violations()[0].field, field);
    }
}

#[test]
fn a_server_reads_what_a_client_writes() {
    let sends = arbitrary::send_message_request().prop_filter("a client says something", |send| {
        !send.message.message_id.is_empty() && !send.message.parts.is_empty()
    });
    arbitrary::check(sends, |mut send| {
        send.tenant = None;
        send.message.role = attache_protocol::Role::User;
        // Another test covers the webhooks of both versions.
        let configuration = send.configuration.get_or_insert_default();
        configuration.task_push_notification_config = None;
        configuration.if_generation_match = None;
        configuration.history_length = configuration.history_length.filter(|length| *length > 0);
        let request = Request::SendMessage(Box::new(send.clone()));
        let it = request::write(&request).expect("words for it");
        prop_assert_eq!(Dialect::of(it.method, it.params.as_str().as_bytes()), Some(Dialect::V0_3));
        let read = Dialect::V0_3.read(it.method, it.params.as_str().as_bytes()).expect("a request");
        carried_message(&mut send.message);
        prop_assert_eq!(read, Request::SendMessage(Box::new(send)));
        Ok(())
    });
}

fn response_bytes(response: &Response) -> Vec<u8> {
    let mut out = Vec::new();
    Dialect::V0_3.write(response, &mut out);
    out
}

#[test]
fn a_client_reads_the_responses_of_a_server() {
    let (task, rich) = (carried(task()), carried(rich_task()));
    assert_eq!(
        response::reply(&response_bytes(&Response::Sent(Cow::Borrowed(&task)))).unwrap(),
        SendMessageResponse::Task(task.clone())
    );
    let message = rich.history[0].clone();
    let reply = response::reply(&response_bytes(&Response::Message(&message))).unwrap();
    assert_eq!(reply, SendMessageResponse::Message(message));
    let tasks = response::tasks(&response_bytes(&Response::Tasks(page()))).unwrap();
    assert_eq!((tasks.tasks, tasks.total_size, tasks.page_size), (vec![task.clone()], 1, 100));
    let bare = [b"[".as_slice(), &response_bytes(&Response::Task(Cow::Borrowed(&task))), b"]"].concat();
    assert_eq!(response::tasks(&bare).unwrap().tasks, [task]);
    assert_eq!(response::webhook(&response_bytes(&Response::Push(&webhook()))).unwrap(), webhook());
    let pushes = ListTaskPushNotificationConfigsResponse { configs: vec![webhook()], ..Default::default() };
    assert_eq!(response::webhooks(&response_bytes(&Response::Pushes(&pushes))).unwrap(), pushes);
}

#[test]
fn a_client_reads_the_events_of_a_server() {
    arbitrary::check(arbitrary::stream_response(), |event| {
        let named = match &event {
            StreamResponse::Task(task) => !task.id.is_empty(),
            StreamResponse::Message(_)
            | StreamResponse::StatusUpdate(_)
            | StreamResponse::ArtifactUpdate(_) => true,
        };
        prop_assume!(named);
        let mut out = Vec::new();
        Dialect::V0_3.write_event(&event, &mut out);
        let read = response::event(&out).expect("an event");
        let expected = match event {
            StreamResponse::Task(task) => StreamResponse::Task(carried(task)),
            StreamResponse::Message(mut message) => {
                carried_message(&mut message);
                StreamResponse::Message(message)
            }
            StreamResponse::StatusUpdate(mut update) => {
                update.generation = None;
                update.status.message.iter_mut().for_each(|message| carried_message(message));
                StreamResponse::StatusUpdate(update)
            }
            StreamResponse::ArtifactUpdate(mut update) => {
                update.generation = None;
                update.artifact.parts.iter_mut().for_each(carried_part);
                StreamResponse::ArtifactUpdate(update)
            }
        };
        prop_assert_eq!(read.response, expected);
        Ok(())
    });
}

#[test]
fn the_last_event_of_a_stream_is_recognized() {
    for (event, is_last) in [
        (status_of(TaskState::Working), false),
        (status_of(TaskState::Completed), true),
        (status_of(TaskState::InputRequired), true),
        (artifact_event(), false),
    ] {
        let mut out = Vec::new();
        Dialect::V0_3.write_event(&event, &mut out);
        assert_eq!(response::event(&out).unwrap().is_last, is_last, "{event:?}");
    }
}

#[test]
fn an_object_without_a_kind_is_recognized_by_its_members() {
    let status = json!({"state": "working"});
    for (event, kind) in [
        (json!({"id": "t", "status": status}), "task"),
        (json!({"taskId": "t", "status": status}), "statusUpdate"),
        (json!({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}), "artifactUpdate"),
        (json!({"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]}), "message"),
    ] {
        let read = response::event(event.to_string().as_bytes()).expect("an event");
        assert!(serde_json::to_value(&read.response).unwrap().get(kind).is_some(), "{event}");
    }
    for (event, why) in [
        (json!({}), "fit none of the kinds"),
        (json!({"kind": "dance"}), "unknown value `dance`"),
        (json!({"kind": "task", "id": "t", "status": {"state": "TASK_STATE_WORKING"}}), "unknown variant"),
        (json!({"kind": "task", "id": "", "status": status}), "expected a task's id"),
        (json!({"kind": "status-update", "status": status}), "missing field `taskId`"),
        (json!([]), ""),
        (json!(null), ""),
    ] {
        let error = response::event(event.to_string().as_bytes()).expect_err("no event").to_string();
        assert!(error.contains(why), "{event}: {error}");
    }
}

fn json_of(card: impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    attache_protocol::json::write(&mut out, &card).expect("a card");
    out
}

#[test]
fn a_card_of_0_3_is_read() {
    let card = json!({
        "name": "Recipes", "description": "Finds something to cook", "version": "2.1.0", "protocolVersion": "0.3.0",
        "url": "https://a.example/rpc", "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": "https://a.example/rpc", "transport": "JSONRPC"},
            {"url": "https://a.example/rest", "transport": "HTTP+JSON"},
        ],
        "provider": {"organization": "Kitchen", "url": "https://k.example"},
        "capabilities": {"streaming": true, "pushNotifications": false, "stateTransitionHistory": true,
            "extensions": [{"uri": "urn:x", "required": true}]},
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "k", "description": "a key"},
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "oauth": {"type": "oauth2", "flows": {
                "authorizationCode": {"authorizationUrl": "https://o/a", "tokenUrl": "https://o/t", "scopes": {"r": "read"}},
                "clientCredentials": {"tokenUrl": "https://o/t", "scopes": {"r": "read"}}}},
            "open": {"type": "openIdConnect", "openIdConnectUrl": "https://o/.well-known"},
            "tls": {"type": "mutualTLS"},
            "unheard-of": {"type": "smoke"},
        },
        "security": [{"key": []}, {"oauth": ["r"], "tls": []}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"], "inputModes": ["a/b"], "security": [{"bearer": []}]}],
        "supportsAuthenticatedExtendedCard": true,
        "signatures": [{"protected": "e30", "signature": "c2ln"}],
    });
    let card = read_card(card.to_string().as_bytes()).unwrap();
    let schemes: Vec<_> = card.security_schemes.keys().collect();
    assert_eq!(schemes, ["bearer", "key", "oauth", "open", "tls"], "all that are known");
    insta::assert_json_snapshot!(card);
}

#[test]
fn a_card_without_a_transport_means_json_rpc() {
    let card =
        read_card(br#"{"name":"Old","url":"http://a.example/","capabilities":{},"skills":[]}"#).unwrap();
    let interface = &card.supported_interfaces[0];
    assert_eq!(
        (interface.protocol_binding.as_str(), interface.protocol_version.as_str()),
        ("JSONRPC", "0.3")
    );
    for no_card in ["[]", "null", "7", "", "<html>", r#"{"url":7}"#] {
        assert!(read_card(no_card.as_bytes()).is_err(), "{no_card}");
    }
}

#[test]
fn a_card_for_both_versions_is_read_as_the_card_of_1_0() {
    arbitrary::check(arbitrary::agent_card(), |card: AgentCard| {
        prop_assume!(!card.supported_interfaces.is_empty());
        prop_assert_eq!(read_card(&json_of(dual_card(&card))).expect("a card"), card.clone());
        let v0_3 = read_card(&json_of(v0_3_card(&card))).expect("a card");
        prop_assert_eq!((&v0_3.name, &v0_3.version), (&card.name, &card.version));
        prop_assert_eq!(&v0_3.security_requirements, &card.security_requirements);
        // 0.3 has no device code flow and no PKCE.
        let known = card.security_schemes.into_iter().filter_map(|(name, mut scheme)| {
            if let SecurityScheme::OAuth2(oauth) = &mut scheme {
                match &mut oauth.flows {
                    OAuthFlows::DeviceCode(_) => return None,
                    OAuthFlows::AuthorizationCode(flow) => flow.pkce_required = false,
                    OAuthFlows::Implicit(flow) => {
                        flow.authorization_url = flow.authorization_url.take().filter(|url| !url.is_empty())
                    }
                    OAuthFlows::Password(flow) => {
                        flow.token_url = flow.token_url.take().filter(|url| !url.is_empty())
                    }
                    OAuthFlows::ClientCredentials(_) => {}
                }
            }
            Some((name, scheme))
        });
        prop_assert_eq!(v0_3.security_schemes, known.collect());
        Ok(())
    });
}

#[test]
fn any_response_is_read_or_rejected_the_same_way_twice() {
    let kinds = prop::sample::select(vec!["task", "message", "status-update", "artifact-update", "other"]);
    arbitrary::check((arbitrary::object(), kinds), |(mut object, kind)| {
        for _ in 0..2 {
            let json = object.to_string();
            let read = || {
                let json = json.as_bytes();
                (
                    response::reply(json),
                    response::event(json),
                    response::tasks(json),
                    response::webhook(json),
                    read_card(json),
                )
            };
            prop_assert_eq!(read(), read());
            object["kind"] = json!(kind);
            object["status"] = json!({"state": "working"});
        }
        Ok(())
    });
}
