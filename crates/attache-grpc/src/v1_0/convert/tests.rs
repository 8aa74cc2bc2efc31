//! Tests of both directions against the published protobuf crate.

use std::collections::BTreeMap;
use std::fmt::Debug;

use a2a_pb::protojson as theirs;
use proptest::prelude::*;
use prost::Message as _;
use prost_types::value::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::arbitrary::{card, event, list, message, send, task};
use crate::convert::{Encoded, to_model, to_proto};

// Comparison with the types of `a2a-pb`, which are generated from the protobuf definition.

/// Checks that `a2a-pb` reads our bytes and our JSON to the same value, and that we read its bytes to our value.
fn agree<T, P, M>(model: M)
where
    T: prost::Message + Default + DeserializeOwned + PartialEq + Debug,
    P: prost::Message + Default,
    M: ProtoConvert<P> + Serialize + Clone + PartialEq + Debug,
{
    let ours: P = to_proto(model.clone()).unwrap();
    let theirs = T::decode(&*ours.encode_to_vec()).unwrap();
    assert_eq!(theirs, serde_json::from_str(&serde_json::to_string(&model).unwrap()).unwrap());
    let back = P::decode(&*theirs.encode_to_vec()).unwrap();
    assert_eq!(to_model::<P, M>(back).unwrap(), model);
}

proptest! {
    #[test]
    fn a_generated_client_reads_every_task(task in task()) {
        agree::<theirs::Task, proto::Task, _>(task);
    }

    #[test]
    fn a_generated_client_reads_every_message(message in message()) {
        agree::<theirs::Message, proto::Message, _>(message);
    }

    #[test]
    fn a_generated_client_reads_every_event(event in event()) {
        agree::<theirs::StreamResponse, proto::StreamResponse, _>(event);
    }

    #[test]
    fn a_generated_client_reads_every_card(card in card()) {
        agree::<theirs::AgentCard, proto::AgentCard, _>(card);
    }

    #[test]
    fn every_send_of_a_generated_client_is_read(request in send()) {
        agree::<theirs::SendMessageRequest, proto::SendMessageRequest, _>(request);
    }

    #[test]
    fn every_list_of_a_generated_client_is_read(request in list()) {
        agree::<theirs::ListTasksRequest, proto::ListTasksRequest, _>(request);
    }
}

#[test]
fn all_other_messages_are_the_same_for_both() {
    macro_rules! agree {
        ($( $name:ident $json:tt )+) => { $( {
            let model: $name = serde_json::from_value(json!($json)).unwrap();
            agree::<theirs::$name, proto::$name, _>(model);
        } )+ };
    }
    agree! {
        GetTaskRequest { "tenant": "a", "id": "b", "historyLength": 0 }
        CancelTaskRequest { "tenant": "a", "id": "b", "metadata": { "c": 1 } }
        SubscribeToTaskRequest { "tenant": "a", "id": "b" }
        GetTaskPushNotificationConfigRequest { "tenant": "a", "taskId": "b", "id": "c" }
        DeleteTaskPushNotificationConfigRequest { "tenant": "a", "taskId": "b", "id": "c" }
        ListTaskPushNotificationConfigsRequest { "tenant": "a", "taskId": "b", "pageSize": 3, "pageToken": "d" }
        GetExtendedAgentCardRequest { "tenant": "a" }
        TaskPushNotificationConfig { "tenant": "a", "id": "b", "taskId": "c", "url": "d", "token": "e" }
        ListTaskPushNotificationConfigsResponse { "configs": [{ "url": "a" }], "nextPageToken": "b" }
        ListTasksResponse { "tasks": [{ "id": "a", "status": {} }], "nextPageToken": "b", "pageSize": 3, "totalSize": 4 }
        SendMessageResponse { "task": { "id": "a", "status": {} } }
        SendMessageResponse { "message": { "messageId": "a" } }
    }
}

// Values that `a2a-pb` does not have, or that JSON cannot represent.

/// Encodes and decodes a value.
fn round_trip<P: prost::Message + Default, M: ProtoConvert<P>>(model: M) -> M {
    let bytes = to_proto::<P, M>(model).unwrap().encode_to_vec();
    to_model(P::decode(&*bytes).unwrap()).unwrap()
}

fn round_trip_json(json: Json) -> Json {
    to_model(to_proto::<Encoded, _>(json).unwrap()).unwrap()
}

#[test]
fn generations_have_the_field_numbers_of_protocol_1_1() {
    fn varint<P: prost::Message, M: ProtoConvert<P>>(model: M) -> Vec<u8> {
        let bytes = to_proto(model).unwrap().encode_to_vec();
        bytes[bytes.len() - 2..].to_vec()
    }
    let generation = Some(9);
    assert_eq!(varint::<proto::Task, _>(Task { generation, ..Task::default() }), [7 << 3, 9]);
    assert_eq!(
        varint::<proto::TaskStatusUpdateEvent, _>(TaskStatusUpdateEvent { generation, ..Default::default() }),
        [5 << 3, 9]
    );
    assert_eq!(
        varint::<proto::TaskArtifactUpdateEvent, _>(TaskArtifactUpdateEvent {
            generation,
            ..Default::default()
        }),
        [7 << 3, 9]
    );
    assert_eq!(
        varint::<proto::GetTaskRequest, _>(GetTaskRequest {
            current_generation: generation,
            ..Default::default()
        }),
        [4 << 3, 9]
    );
    let configuration = SendMessageConfiguration { if_generation_match: generation, ..Default::default() };
    assert_eq!(varint::<proto::SendMessageConfiguration, _>(configuration), [5 << 3, 9]);
}

#[test]
fn a_generation_of_zero_is_kept_only_in_fields_with_presence() {
    let task = Task { generation: Some(0), ..Task::default() };
    assert_eq!(round_trip::<proto::Task, _>(task).generation, None);
    let request = GetTaskRequest { current_generation: Some(0), ..GetTaskRequest::default() };
    assert_eq!(round_trip::<proto::GetTaskRequest, _>(request).current_generation, Some(0));
}

#[test]
fn data_may_be_null_and_text_may_be_empty() {
    for part in [Part::data(&()).unwrap(), Part::text(""), Part::raw(""), Part::url("")] {
        assert_eq!(round_trip::<proto::Part, _>(part.clone()), part);
    }
}

#[test]
fn null_is_read_with_and_without_its_kind() {
    let json = Json::parse(r#"{"a":null,"b":[null]}"#).unwrap();
    assert_eq!(round_trip_json(json.clone()), json);
    assert_eq!(to_model::<Encoded, Json>(Encoded::new()).unwrap().as_str(), "null");
}

#[test]
fn absent_messages_are_left_to_the_validation() {
    let request: SendMessageRequest = to_model(proto::SendMessageRequest::default()).unwrap();
    assert_eq!(request, SendMessageRequest::default());
    let error = Request::SendMessage(Box::new(request)).validate().unwrap_err();
    assert_eq!(error.field_violations().len(), 3);
}

#[test]
fn nanoseconds_count_forward_also_before_1970() {
    let time: Timestamp = "1969-12-31T23:59:58.750Z".parse().unwrap();
    let proto: prost_types::Timestamp = to_proto(time).unwrap();
    assert_eq!(proto, prost_types::Timestamp { seconds: -2, nanos: 750_000_000 });
    assert_eq!(to_model::<_, Timestamp>(proto).unwrap(), time);
}

#[test]
fn numbers_come_back_unchanged_up_to_the_precision_of_a_double() {
    for (written, read) in [
        ("42", "42"),
        ("-42", "-42"),
        ("42.0", "42"),
        ("0.5", "0.5"),
        ("-1.2487871566686811e-213", "-1.2487871566686811e-213"),
        ("0", "0"),
        ("-0.0", "-0.0"),
        ("1e300", "1e+300"),
        ("9007199254740992", "9007199254740992"),
        ("9007199254740993", "9007199254740992"),
        ("12345678901234567890", "1.2345678901234567e+19"),
    ] {
        let json = Json::parse(written).unwrap();
        assert_eq!(round_trip_json(json).as_str(), read);
    }
}

#[test]
fn json_that_protobuf_cannot_hold_is_an_internal_error() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for text in [r#""\ud800""#, "1e999", &deep] {
        let error = to_proto::<Encoded, _>(Json::parse(text).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{text}");
    }
    let metadata: JsonObject = serde_json::from_str(r#"{"a":"\udc00"}"#).unwrap();
    let error = to_proto::<Encoded, _>(metadata).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn values_at_the_maximum_depth_need_little_stack() {
    fn nested(open: &str, depth: usize, close: &str) -> Json {
        Json::parse(&format!("{}0{}", open.repeat(depth), close.repeat(depth))).unwrap()
    }
    let check = || {
        let arrays = [51, 100].map(|depth| nested("[", depth, "]"));
        let objects = [34, 100].map(|depth| nested(r#"{"a":"#, depth, "}"));
        for json in arrays.into_iter().chain(objects) {
            // The decoder limits the depth to 100 messages. Each level has two or three of them.
            assert_eq!(
                invalid_field::<_, Part>(to_proto::<proto::Part, _>(Part::new(Content::Data(json))).unwrap()),
                "data"
            );
        }
        for json in [nested("[", 50, "]"), nested(r#"{"a":"#, 33, "}")] {
            assert_eq!(round_trip_json(json.clone()), json);
        }
    };
    std::thread::Builder::new().stack_size(512 * 1024).spawn(check).unwrap().join().unwrap();
}

// Rejected values.

fn violation<P, M: ProtoConvert<P> + Debug>(proto: P) -> FieldViolation {
    let error = to_model::<P, M>(proto).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    let [violation] = error.field_violations() else { panic!("{error:?}") };
    violation.clone()
}

fn invalid_field<P, M: ProtoConvert<P> + Debug>(proto: P) -> String {
    violation::<P, M>(proto).field
}

fn number(value: f64) -> prost_types::Value {
    prost_types::Value { kind: Some(Kind::NumberValue(value)) }
}

fn object_with(key: &str, value: prost_types::Value) -> prost_types::Struct {
    prost_types::Struct { fields: BTreeMap::from([(key.to_owned(), value)]) }
}

fn metadata(key: &str, value: prost_types::Value) -> Option<Encoded> {
    Some(object_with(key, value).encode_to_vec())
}

fn data(value: prost_types::Value) -> proto::Part {
    proto::Part { content: Some(proto::Content::Data(value.encode_to_vec())), ..Default::default() }
}

#[test]
fn a_message_is_rejected_with_the_path_of_the_field() {
    let send = |message| {
        let message = Some(message);
        invalid_field::<_, SendMessageRequest>(proto::SendMessageRequest { message, ..Default::default() })
    };
    let parts = |parts| send(proto::Message { parts, ..Default::default() });
    let text = || proto::Part { content: Some(proto::Content::Text("a".into())), ..Default::default() };

    assert_eq!(send(proto::Message { role: 3, ..Default::default() }), "message.role");
    assert_eq!(parts(vec![text(), proto::Part::default()]), "message.parts[1]");
    assert_eq!(parts(vec![data(number(f64::NAN))]), "message.parts[0].data");
    let garbage = proto::Part { content: Some(proto::Content::Data(vec![0xff])), ..Default::default() };
    assert_eq!(parts(vec![garbage]), "message.parts[0].data");
    let garbage = proto::Part { metadata: Some(vec![0xff]), ..text() };
    assert_eq!(parts(vec![garbage]), "message.parts[0].metadata");
    let part = proto::Part { metadata: metadata("a_b", number(f64::INFINITY)), ..text() };
    assert_eq!(parts(vec![part]), "message.parts[0].metadata.a_b");

    let list = prost_types::ListValue { values: vec![number(0.0), number(f64::NEG_INFINITY)] };
    let list = prost_types::Value { kind: Some(Kind::ListValue(list)) };
    let inner = Kind::StructValue(object_with("inner", list));
    let metadata = metadata("outer", prost_types::Value { kind: Some(inner) });
    assert_eq!(send(proto::Message { metadata, ..Default::default() }), "message.metadata.outer.inner[1]");
}

#[test]
fn a_request_is_rejected_with_the_path_of_the_field() {
    let bad = || metadata("x", number(f64::NAN));
    let send = proto::SendMessageRequest { metadata: bad(), ..Default::default() };
    assert_eq!(invalid_field::<_, SendMessageRequest>(send), "metadata.x");
    let cancel = proto::CancelTaskRequest { metadata: bad(), ..Default::default() };
    assert_eq!(invalid_field::<_, CancelTaskRequest>(cancel), "metadata.x");
    let configuration =
        Some(proto::SendMessageConfiguration { if_generation_match: Some(-1), ..Default::default() });
    let send = proto::SendMessageRequest { configuration, ..Default::default() };
    assert_eq!(invalid_field::<_, SendMessageRequest>(send), "configuration.ifGenerationMatch");
    let get = proto::GetTaskRequest { current_generation: Some(-1), ..Default::default() };
    assert_eq!(invalid_field::<_, GetTaskRequest>(get), "currentGeneration");
    let list = proto::ListTasksRequest { status: -1, ..Default::default() };
    assert_eq!(invalid_field::<_, ListTasksRequest>(list), "status");
    for (seconds, nanos) in [(0, -1), (0, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0), (-62_135_596_801, 0)]
    {
        let status_timestamp_after = Some(prost_types::Timestamp { seconds, nanos });
        let list = proto::ListTasksRequest { status_timestamp_after, ..Default::default() };
        assert_eq!(invalid_field::<_, ListTasksRequest>(list), "statusTimestampAfter");
    }
}

#[test]
fn a_response_is_rejected_with_the_path_of_the_field() {
    let event = |payload| invalid_field::<_, StreamResponse>(proto::StreamResponse { payload });
    assert_eq!(event(None), "");
    assert_eq!(invalid_field::<_, SendMessageResponse>(proto::SendMessageResponse { payload: None }), "");

    let message = proto::Message { role: 3, ..Default::default() };
    let history = vec![proto::Message::default(), message.clone()];
    let task = proto::Task { history, ..Default::default() };
    assert_eq!(event(Some(proto::StreamPayload::Task(task))), "task.history[1].role");
    assert_eq!(event(Some(proto::StreamPayload::Message(message))), "message.role");
    let status = Some(proto::TaskStatus { state: 9, ..Default::default() });
    let update = proto::TaskStatusUpdateEvent { status, ..Default::default() };
    assert_eq!(event(Some(proto::StreamPayload::StatusUpdate(update))), "statusUpdate.status.state");
    let artifact = Some(proto::Artifact { parts: vec![proto::Part::default()], ..Default::default() });
    let update = proto::TaskArtifactUpdateEvent { artifact, ..Default::default() };
    assert_eq!(event(Some(proto::StreamPayload::ArtifactUpdate(update))), "artifactUpdate.artifact.parts[0]");

    let card = |scheme| {
        let security_schemes = BTreeMap::from([("main".to_owned(), proto::SecurityScheme { scheme })]);
        invalid_field::<_, AgentCard>(proto::AgentCard { security_schemes, ..Default::default() })
    };
    assert_eq!(card(None), "securitySchemes.main");
    let oauth2 = Some(proto::Scheme::OAuth2(Default::default()));
    assert_eq!(card(oauth2), "securitySchemes.main.oauth2SecurityScheme.flows");
}

#[test]
fn an_error_says_what_is_expected() {
    let message = proto::Message { role: 7, ..Default::default() };
    assert_eq!(
        violation::<_, Message>(message).description,
        "unknown number 7, expected one of: 0 (`ROLE_UNSPECIFIED`), 1 (`ROLE_USER`), 2 (`ROLE_AGENT`)"
    );
    assert_eq!(
        violation::<_, Part>(proto::Part::default()).description,
        "a part needs exactly one of `text`, `raw`, `url` and `data`"
    );
    assert_eq!(
        violation::<_, Part>(data(number(f64::NAN))).description,
        "`NaN` is not a number that JSON can hold"
    );
    assert_eq!(
        violation::<_, SendMessageResponse>(proto::SendMessageResponse::default()).description,
        "no known member is set, expected exactly one of: `task` `message`"
    );
}

#[test]
fn a_long_key_is_cut_in_the_path() {
    let part = proto::Part { metadata: metadata(&"é".repeat(1000), number(f64::NAN)), ..data(number(0.0)) };
    assert_eq!(invalid_field::<_, Part>(part), format!("metadata.{}", "é".repeat(64)));
}
