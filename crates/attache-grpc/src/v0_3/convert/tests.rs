//! Tests of both directions, and of the bytes where 0.3 differs.

use std::fmt::Debug;

use proptest::option::of;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::json;

use super::*;
use crate::arbitrary;
use crate::convert::to_model;

/// Encodes and decodes a value.
fn round_trip<P: prost::Message + Default, M: ProtoConvert<P>>(model: M) -> M {
    let bytes = to_proto::<P, M>(model).unwrap().encode_to_vec();
    to_model(P::decode(&*bytes).unwrap()).unwrap()
}

// Values that 0.3 can represent survive a round trip.

/// Removes what 0.3 cannot represent: the name and the media type of a text, and the empty metadata of wrapped data.
fn supported_part(part: Part) -> Part {
    let Part { content, filename, media_type, metadata } = part;
    match content {
        Content::Text(_) => Part { metadata, ..Part::new(content) },
        Content::Data(_) => {
            Part { metadata: metadata.filter(|metadata| metadata.as_str() != "{}"), ..Part::new(content) }
        }
        Content::Raw(_) | Content::Url(_) => Part { content, filename, media_type, metadata },
    }
}

fn supported_message(message: Message) -> Message {
    let parts = message.parts.into_iter().map(supported_part).collect();
    Message { parts, reference_task_ids: Vec::new(), ..message }
}

fn supported_artifact(artifact: Artifact) -> Artifact {
    Artifact { parts: artifact.parts.into_iter().map(supported_part).collect(), ..artifact }
}

fn supported_status(status: TaskStatus) -> TaskStatus {
    TaskStatus { message: status.message.map(|message| Box::new(supported_message(*message))), ..status }
}

fn supported_task(task: Task) -> Task {
    Task {
        status: supported_status(task.status),
        artifacts: task.artifacts.into_iter().map(supported_artifact).collect(),
        history: task.history.into_iter().map(supported_message).collect(),
        ..task
    }
}

fn event() -> impl Strategy<Value = StreamResponse> {
    arbitrary::event().prop_map(|event| match event {
        StreamResponse::Task(task) => StreamResponse::Task(supported_task(task)),
        StreamResponse::Message(message) => StreamResponse::Message(supported_message(message)),
        StreamResponse::StatusUpdate(update) => StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            status: supported_status(update.status),
            ..update
        }),
        StreamResponse::ArtifactUpdate(update) => StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact: supported_artifact(update.artifact),
            ..update
        }),
    })
}

fn webhook() -> impl Strategy<Value = TaskPushNotificationConfig> {
    arbitrary::webhook().prop_map(|webhook| TaskPushNotificationConfig {
        tenant: None,
        task_id: None,
        ..webhook
    })
}

fn send() -> impl Strategy<Value = SendMessageRequest> {
    (arbitrary::send(), of(webhook())).prop_map(|(request, webhook)| SendMessageRequest {
        tenant: None,
        message: supported_message(request.message),
        configuration: request.configuration.map(|configuration| SendMessageConfiguration {
            task_push_notification_config: webhook.map(Box::new),
            history_length: configuration.history_length.filter(|length| *length != 0),
            ..configuration
        }),
        metadata: request.metadata,
    })
}

proptest! {
    #[test]
    fn every_event_comes_back_unchanged(event in event()) {
        prop_assert_eq!(round_trip::<proto::StreamResponse, _>(event.clone()), event);
    }

    #[test]
    fn every_send_comes_back_unchanged(request in send()) {
        prop_assert_eq!(round_trip::<proto::SendMessageRequest, _>(request.clone()), request);
    }

    #[test]
    fn every_webhook_of_a_task_comes_back_unchanged(webhook in webhook(), task in "[a-z-]{1,8}", id in "[a-z/-]{1,8}") {
        let webhook =
            TaskPushNotificationConfig { id: Some(id), task_id: Some(TaskId::from(task)), ..webhook };
        prop_assert_eq!(&round_trip::<proto::TaskPushNotificationConfig, _>(webhook.clone()), &webhook);
        prop_assert_eq!(round_trip::<proto::CreateTaskPushNotificationConfigRequest, _>(webhook.clone()), webhook);
    }

    #[test]
    fn every_card_comes_back_as_far_as_0_3_supports_it(card in arbitrary::card()) {
        let bytes = super::card(card.clone()).unwrap().encode_to_vec();
        let read = read_card(proto::AgentCard::decode(&*bytes).unwrap()).unwrap();
        prop_assert_eq!(&read.name, &card.name);
        prop_assert_eq!(&read.skills, &card.skills);
        prop_assert_eq!(&read.security_schemes, &card.security_schemes);
        prop_assert_eq!(&read.security_requirements, &card.security_requirements);
        prop_assert_eq!(read.capabilities.streaming, card.capabilities.streaming);
    }

    #[test]
    fn no_resource_name_causes_a_panic(name in "(tasks|/|pushNotificationConfigs|a){0,6}") {
        let _ = (names::task(&name).is_ok(), names::parent(&name).is_ok(), names::webhook(&name).is_ok());
    }
}

#[test]
fn requests_go_by_resource_names() {
    let task = TaskId::from("t1");
    let get = GetTaskRequest { id: task.clone(), history_length: Some(3), ..Default::default() };
    assert_eq!(to_proto::<proto::GetTaskRequest, _>(get.clone()).unwrap().name, "tasks/t1");
    assert_eq!(round_trip::<proto::GetTaskRequest, _>(get.clone()), get);
    let cancel = CancelTaskRequest { id: task.clone(), ..Default::default() };
    assert_eq!(round_trip::<proto::CancelTaskRequest, _>(cancel.clone()), cancel);
    let subscribe = SubscribeToTaskRequest { id: task.clone(), ..Default::default() };
    assert_eq!(round_trip::<proto::TaskSubscriptionRequest, _>(subscribe.clone()), subscribe);
    let hook = GetTaskPushNotificationConfigRequest { task_id: task.clone(), id: "w".into(), tenant: None };
    let proto: proto::GetTaskPushNotificationConfigRequest = to_proto(hook.clone()).unwrap();
    assert_eq!(proto.name, "tasks/t1/pushNotificationConfigs/w");
    assert_eq!(round_trip::<proto::GetTaskPushNotificationConfigRequest, _>(hook.clone()), hook);
    let list = ListTaskPushNotificationConfigsRequest {
        task_id: task,
        page_size: Some(2),
        page_token: Some("p".into()),
        tenant: None,
    };
    assert_eq!(round_trip::<proto::ListTaskPushNotificationConfigsRequest, _>(list.clone()), list);
}

#[test]
fn a_webhook_without_an_id_gets_the_id_of_its_task() {
    for name in [
        "tasks/t1/pushNotificationConfigs",
        "tasks/t1/pushNotificationConfigs/",
        "tasks/t1/pushNotificationConfigs/None",
        "tasks/t1/pushNotificationConfigs/undefined",
    ] {
        let (task, own) = names::webhook(name).unwrap();
        assert_eq!((task.as_str(), own.as_str()), ("t1", "t1"), "{name}");
    }
    for parent in ["tasks/t1", "tasks/t1/pushNotificationConfigs"] {
        let create =
            proto::CreateTaskPushNotificationConfigRequest { parent: parent.into(), ..Default::default() };
        let webhook: TaskPushNotificationConfig = to_model(create).unwrap();
        assert_eq!((webhook.id.as_deref(), webhook.task_id), (Some("t1"), Some(TaskId::from("t1"))));
    }
}

#[test]
fn the_id_of_a_webhook_may_be_in_two_fields_but_must_be_the_same() {
    let create = |config_id: &str, id: &str| {
        let config = proto::PushNotificationConfig { id: id.into(), ..Default::default() };
        let config = proto::TaskPushNotificationConfig {
            name: "tasks/t1/pushNotificationConfigs/None".into(),
            push_notification_config: Some(config),
        };
        let request = proto::CreateTaskPushNotificationConfigRequest {
            parent: "tasks/t1".into(),
            config_id: config_id.into(),
            config: Some(config),
        };
        to_model::<_, TaskPushNotificationConfig>(request).map(|webhook| webhook.id.unwrap())
    };
    for (config_id, id) in [("w", "w"), ("w", ""), ("", "w")] {
        assert_eq!(create(config_id, id).unwrap(), "w");
    }
    assert_eq!(create("a", "b").unwrap_err().field_violations()[0].field, "configId");
}

#[test]
fn a_message_blocks_without_a_configuration() {
    let immediately = |configuration| {
        let request = proto::SendMessageRequest { configuration, ..Default::default() };
        let request: SendMessageRequest = to_model(request).unwrap();
        request.configuration.is_some_and(|configuration| configuration.return_immediately)
    };
    let configuration = |blocking| Some(proto::SendMessageConfiguration { blocking, ..Default::default() });
    assert!(!immediately(None));
    assert!(!immediately(configuration(true)));
    assert!(immediately(configuration(false)));
}

#[test]
fn a_history_length_of_zero_means_all_messages() {
    let request = proto::GetTaskRequest { name: "tasks/t1".into(), history_length: 0 };
    assert_eq!(to_model::<_, GetTaskRequest>(request).unwrap().history_length, None);
    let configuration = proto::SendMessageConfiguration::default();
    assert_eq!(to_model::<_, SendMessageConfiguration>(configuration).unwrap().history_length, None);
}

#[test]
fn the_first_of_several_schemes_is_used() {
    let authentication =
        proto::AuthenticationInfo { schemes: vec!["Bearer".into(), "Basic".into()], credentials: "c".into() };
    assert_eq!(to_model::<_, AuthenticationInfo>(authentication).unwrap().scheme, "Bearer");
}

#[test]
fn a_status_is_final_if_the_task_ends_or_waits_for_a_message() {
    for state in TaskState::ALL {
        let status = TaskStatus { state: *state, ..Default::default() };
        let update = TaskStatusUpdateEvent { status, ..Default::default() };
        let proto: proto::TaskStatusUpdateEvent = to_proto(update).unwrap();
        let last = [
            TaskState::Completed,
            TaskState::Failed,
            TaskState::Canceled,
            TaskState::Rejected,
            TaskState::InputRequired,
        ];
        assert_eq!(proto.is_final, last.contains(state), "{state}");
    }
}

fn data_of(part: &proto::Part) -> serde_json::Value {
    let Some(proto::Content::Data(proto::DataPart { data: Some(data) })) = &part.content else {
        panic!("{part:?}")
    };
    to_model::<_, JsonObject>(data.clone()).unwrap().read().unwrap()
}

#[test]
fn data_that_is_not_an_object_is_wrapped_and_marked() {
    let part = Part::data(&json!([1, "a"])).unwrap();
    let part = Part { metadata: Some(JsonObject::new(&json!({"k": "v"})).unwrap()), ..part };
    let proto: proto::Part = to_proto(part.clone()).unwrap();
    assert_eq!(data_of(&proto), json!({"value": [1, "a"]}));
    let metadata: JsonObject = to_model(proto.metadata.clone().unwrap()).unwrap();
    assert_eq!(metadata.read::<serde_json::Value>().unwrap(), json!({"k": "v", "data_part_compat": true}));
    assert_eq!(to_model::<_, Part>(proto).unwrap(), part);
}

#[test]
fn an_object_without_the_mark_is_not_unwrapped() {
    let part = Part::data(&json!({"value": 1})).unwrap();
    let proto: proto::Part = to_proto(part.clone()).unwrap();
    assert_eq!(data_of(&proto), json!({"value": 1}));
    assert_eq!(round_trip::<proto::Part, _>(part.clone()), part);
}

#[test]
fn the_bytes_of_a_file_are_sent_in_base64_and_read_with_or_without_it() {
    let read = |bytes: &[u8]| {
        let file = Some(proto::File::Bytes(bytes.to_vec()));
        let file = proto::FilePart { file, name: "a.bin".into(), mime_type: "x/y".into() };
        let content = Some(proto::Content::File(file));
        to_model::<_, Part>(proto::Part { content, metadata: None }).unwrap()
    };
    let part = read(b"AP8=");
    assert_eq!(part.content, Content::Raw(vec![0, 255]));
    assert_eq!((part.filename.as_deref(), part.media_type.as_deref()), (Some("a.bin"), Some("x/y")));
    assert_eq!(read(&[0, 255]).content, Content::Raw(vec![0, 255]));
    assert_eq!(read(b"hello, world").content, Content::Raw(b"hello, world".to_vec()));

    let Some(proto::Content::File(file)) = to_proto::<proto::Part, _>(part).unwrap().content else {
        panic!("no file")
    };
    assert_eq!(file.file, Some(proto::File::Bytes(b"AP8=".to_vec())));
}

// Rejected values.

fn invalid_field<P, M: ProtoConvert<P> + Debug>(proto: P) -> (String, String) {
    let error = to_model::<P, M>(proto).unwrap_err();
    let [violation] = error.field_violations() else { panic!("{error:?}") };
    (violation.field.clone(), violation.description.clone())
}

#[test]
fn an_invalid_resource_name_is_rejected_with_the_expected_format() {
    for name in ["", "t1", "tasks/", "/tasks/t1"] {
        let (field, description) = invalid_field::<_, GetTaskRequest>(proto::GetTaskRequest {
            name: name.into(),
            history_length: 0,
        });
        assert_eq!(field, "name");
        assert_eq!(description, format!("`{name}` is not a resource name, expected `tasks/{{id}}`"));
    }
    for name in ["tasks/t1", "tasks//pushNotificationConfigs/w", "tasks/t1/pushNotificationConfigsw"] {
        let request = proto::GetTaskPushNotificationConfigRequest { name: name.into() };
        let (field, description) = invalid_field::<_, GetTaskPushNotificationConfigRequest>(request);
        assert_eq!(field, "name");
        assert!(description.ends_with("expected `tasks/{id}/pushNotificationConfigs/{id}`"), "{description}");
    }
}

#[test]
fn a_message_is_rejected_with_the_path_of_the_field() {
    let content = |part| {
        let message = Some(proto::Message { parts: vec![part], ..Default::default() });
        invalid_field::<_, SendMessageRequest>(proto::SendMessageRequest { message, ..Default::default() }).0
    };
    let part = |content| proto::Part { content: Some(content), metadata: None };
    assert_eq!(content(proto::Part::default()), "message.content[0]");
    assert_eq!(content(part(proto::Content::File(Default::default()))), "message.content[0].file");
    let garbage = proto::DataPart { data: Some(vec![0xff]) };
    assert_eq!(content(part(proto::Content::Data(garbage))), "message.content[0].data.data");
}

#[test]
fn an_empty_authentication_of_a_webhook_is_none() {
    let authentication = Some(proto::AuthenticationInfo::default());
    let webhook = proto::PushNotificationConfig { authentication, ..Default::default() };
    let webhook: TaskPushNotificationConfig = to_model(webhook).unwrap();
    assert_eq!(webhook.authentication, None);
}
