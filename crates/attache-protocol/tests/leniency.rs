//! The lenient and the strict rules of our JSON, and the members that are always written.

#[macro_use]
mod arbitrary;
mod wire;

use std::fmt::Debug;

use attache_protocol::*;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::arbitrary::check;
use crate::wire::{for_each_member, for_each_message, snake_case};

/// A type that can be written as JSON and read back.
trait Wire: Serialize + DeserializeOwned + PartialEq + Debug {}
impl<T: Serialize + DeserializeOwned + PartialEq + Debug> Wire for T {}

/// The path of the error in a text, and its message.
#[derive(Debug, PartialEq)]
struct Wrong {
    path: String,
    why: String,
}

fn print<T: Wire>(value: &T) -> String {
    serde_json::to_string(value).expect("a value that can be written")
}

fn tree<T: Wire>(value: &T) -> Value {
    serde_json::to_value(value).expect("a value that can be written")
}

fn read<T: Wire>(text: &str) -> Result<T, Wrong> {
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| Wrong { path: error.path().to_string(), why: error.inner().to_string() })
}

fn read_tree<T: Wire>(json: &Value) -> Result<T, Wrong> {
    read(&json.to_string())
}

/// The JSON of `value` once for each member that `change` changes, with the name of that member.
fn changed<T: Wire>(value: &T, change: impl Fn(&str, &mut Value) -> bool) -> Vec<(String, Value)> {
    let original = tree(value);
    let mut members = 0;
    for_each_member(&mut original.clone(), &mut |_, _| members += 1);
    let variant = |chosen| {
        let (mut json, mut at, mut name) = (original.clone(), 0, None);
        for_each_member(&mut json, &mut |member, value| {
            if at == chosen && change(member, value) {
                name = Some(member.to_owned());
            }
            at += 1;
        });
        name.map(|name| (name, json))
    };
    (0..members).filter_map(variant).collect()
}

fn output_is_a_fixed_point<T: Wire>(value: T) -> Result<(), TestCaseError> {
    let text = print(&value);
    let again: T = read(&text).map_err(|wrong| TestCaseError::fail(format!("{wrong:?}\n{text}")))?;
    prop_assert_eq!(print(&again), text);
    prop_assert_eq!(again, value);
    Ok(())
}

fn output_is_one_line_of_camel_case_names_without_null<T: Wire>(value: T) -> Result<(), TestCaseError> {
    prop_assert!(!print(&value).contains(['\n', '\r']));
    let mut bad = Vec::new();
    for_each_member(&mut tree(&value), &mut |name, value| {
        let camel_case = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric());
        if !camel_case || value.is_null() {
            bad.push(name.to_owned());
        }
    });
    prop_assert!(bad.is_empty(), "{:?}", bad);
    Ok(())
}

fn unknown_members_are_ignored<T: Wire>(value: T) -> Result<(), TestCaseError> {
    let mut json = tree(&value);
    for_each_message(&mut json, &mut |members| {
        for (name, value) in [
            ("", json!({"role": "nobody"})),
            ("kind", json!("task")),
            ("final", json!(true)),
            ("messageID", json!(1)),
            ("zzz", json!([[null, {"parts": [{}]}]])),
        ] {
            members.insert(name.to_owned(), value);
        }
    });
    prop_assert_eq!(read_tree(&json), Ok(value));
    Ok(())
}

fn names_in_snake_case_mean_the_same<T: Wire>(value: T) -> Result<(), TestCaseError> {
    let mut json = tree(&value);
    for_each_message(&mut json, &mut |members| {
        let renamed = std::mem::take(members).into_iter().map(|(name, value)| (snake_case(&name), value));
        members.extend(renamed);
    });
    prop_assert_eq!(read_tree(&json), Ok(value));
    Ok(())
}

fn null_means_absent<T: Wire>(value: T) -> Result<(), TestCaseError> {
    // In data, `null` is a valid value.
    let null = |name: &str, value: &mut Value| name != "data" && !std::mem::take(value).is_null();
    for (_, nulled) in changed(&value, null) {
        let mut removed = nulled.clone();
        for_each_message(&mut removed, &mut |members| members.retain(|_, value| !value.is_null()));
        match (read_tree::<T>(&nulled), read_tree::<T>(&removed)) {
            (Err(_), Err(_)) => {}
            (nulled, removed) => prop_assert_eq!(nulled, removed),
        }
    }
    Ok(())
}

fn unknown_names_of_enums_are_rejected<T: Wire>(value: T) -> Result<(), TestCaseError> {
    let unknown = |name: &str, value: &mut Value| {
        let is_enum = matches!(name, "role" | "state" | "status") && value.is_string();
        if is_enum {
            *value = "UNHEARD_OF".into();
        }
        is_enum
    };
    for (name, json) in changed(&value, unknown) {
        let wrong = read_tree::<T>(&json).expect_err("an unknown name");
        prop_assert_eq!(wrong.path.rsplit('.').next(), Some(name.as_str()));
        prop_assert!(wrong.why.contains("unknown value `UNHEARD_OF`, expected one of: `"), "{}", wrong.why);
    }
    Ok(())
}

fn an_array_is_not_a_message<T: Wire>(value: T) -> Result<(), TestCaseError> {
    let emptied = |name: &str, value: &mut Value| {
        let message = if value.is_array() { value.get_mut(0) } else { Some(value) };
        match message {
            Some(message) if message.is_object() && name != "data" => {
                // serde would accept an empty array as a struct in which every field has its default.
                *message = json!([]);
                true
            }
            Some(_) | None => false,
        }
    };
    for (_, json) in changed(&value, emptied) {
        prop_assert!(read_tree::<T>(&json).is_err(), "{}", json);
    }
    Ok(())
}

macro_rules! promises {
    (@tests $type:ident $strategy:ident: $($promise:ident)+) => { $(
        #[test]
        fn $promise() {
            check(arbitrary::$strategy(), super::$promise::<$type>);
        }
    )+ };
    ($($type:ident => $strategy:ident),+ $(,)?) => { $(
        mod $strategy {
            use super::*;

            promises! { @tests $type $strategy:
                output_is_a_fixed_point
                output_is_one_line_of_camel_case_names_without_null
                unknown_members_are_ignored
                names_in_snake_case_mean_the_same
                null_means_absent
                unknown_names_of_enums_are_rejected
                an_array_is_not_a_message
            }
        }
    )+ };
}

for_every_message!(promises);

/// The invalid fields that `operation` reports for `json`.
fn wrong_fields(operation: Operation, json: &Value) -> Vec<String> {
    let error = operation.parse(json.to_string().as_bytes()).expect_err("wrong arguments");
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    error.field_violations().iter().map(|violation| violation.field.clone()).collect()
}

#[test]
fn an_unknown_enum_value_in_a_request_is_rejected_with_the_name_of_its_field() {
    for bad in
        [json!("user"), json!("role_user"), json!(""), json!(" ROLE_USER"), json!("ROLE_SYSTEM"), json!(3)]
    {
        assert_eq!(
            wrong_fields(Operation::SendMessage, &json!({"message": {"role": bad}})),
            ["message.role"],
            "{bad}"
        );
    }
    for bad in
        [json!("completed"), json!("TASK_STATE_RUNNING"), json!("TASK_STATE_CANCELLED"), json!("3"), json!(9)]
    {
        assert_eq!(wrong_fields(Operation::ListTasks, &json!({"status": bad})), ["status"], "{bad}");
    }
    for bad in [json!(-1), json!(1.5), json!(true), json!([1]), json!({}), json!(u64::MAX)] {
        assert_eq!(
            wrong_fields(Operation::SendMessage, &json!({"message": {"role": bad}})),
            ["message.role"],
            "{bad}"
        );
        assert_eq!(wrong_fields(Operation::ListTasks, &json!({"status": bad})), ["status"], "{bad}");
    }
}

#[test]
fn an_unknown_enum_value_in_a_response_is_rejected_with_the_path_of_its_field() {
    fn path<T: Wire>(json: Value) -> String {
        read_tree::<T>(&json).expect_err("an unknown name").path
    }
    let message = || json!({"parts": [{"text": "a"}], "role": "agent"});
    let status = || json!({"state": "working"});
    assert_eq!(path::<Task>(json!({"status": status()})), "status.state");
    assert_eq!(path::<Task>(json!({"status": {"message": message()}})), "status.message.role");
    assert_eq!(path::<Task>(json!({"history": [{}, message()]})), "history[1].role");
    assert_eq!(path::<ListTasksResponse>(json!({"tasks": [{"status": status()}]})), "tasks[0].status.state");
    assert_eq!(
        path::<StreamResponse>(json!({"statusUpdate": {"status": status()}})),
        "statusUpdate.status.state"
    );
    assert_eq!(path::<StreamResponse>(json!({"task": {"history": [message()]}})), "task.history[0].role");
    assert_eq!(path::<SendMessageResponse>(json!({"message": message()})), "message.role");
}

#[test]
fn enums_are_read_by_name_and_by_number() {
    for state in TaskState::ALL {
        assert_eq!(read(&format!("{:?}", state.as_str())), Ok(*state));
        assert_eq!(read(&state.number().to_string()), Ok(*state));
    }
    for role in Role::ALL {
        assert_eq!(read(&format!("{:?}", role.as_str())), Ok(*role));
        assert_eq!(read(&role.number().to_string()), Ok(*role));
    }
}

#[test]
fn integers_are_read_from_numbers_and_strings_and_nothing_else() {
    let read_size = |size: &str| {
        let request =
            read(&format!(r#"{{"pageSize":{size}}}"#)).map(|r: ListTasksRequest| r.page_size.unwrap_or(0));
        let response = read(&format!(r#"{{"pageSize":{size}}}"#)).map(|r: ListTasksResponse| r.page_size);
        let total = read(&format!(r#"{{"totalSize":{size}}}"#)).map(|r: ListTasksResponse| r.total_size);
        assert_eq!(request.as_ref().ok(), response.as_ref().ok(), "{size}");
        assert_eq!(response.as_ref().ok(), total.as_ref().ok(), "{size}");
        request.map_err(|wrong| wrong.path)
    };
    for (text, number) in [
        ("10", 10),
        ("\"10\"", 10),
        ("10.0", 10),
        ("\"10.0\"", 10),
        ("1e1", 10),
        ("-3", -3),
        ("\"-3\"", -3),
        ("0", 0),
        ("-0", 0),
        ("null", 0),
        ("2147483647", i32::MAX),
        ("\"-2147483648\"", i32::MIN),
    ] {
        assert_eq!(read_size(text), Ok(number), "{text}");
    }
    for text in [
        "10.5",
        "\"10.5\"",
        "2147483648",
        "\"2147483648\"",
        "-2147483649",
        "1e300",
        "18446744073709551615",
        "\"\"",
        "\" 1\"",
        "\"1 \"",
        "\"ten\"",
        "\"0x10\"",
        "\"inf\"",
        "\"NaN\"",
        "true",
        "[1]",
        "{}",
    ] {
        assert_eq!(read_size(text), Err("pageSize".to_owned()), "{text}");
    }
}

#[test]
fn generations_are_written_as_strings_and_read_as_either() {
    for text in ["9223372036854775807", "\"9223372036854775807\""] {
        let task: Task = read(&format!(r#"{{"generation":{text}}}"#)).unwrap();
        assert_eq!(task.generation, Some(i64::MAX.cast_unsigned()));
        assert!(print(&task).contains(r#""generation":"9223372036854775807""#));
    }
    assert!(read::<Task>(r#"{"generation":-1}"#).is_err());
}

/// Checks that any one of `members` is accepted, by either of its names, and that two of them are rejected.
fn exactly_one_of<T: Wire>(members: &[(&str, Value)]) {
    for (first, one) in members {
        let alone = json!({*first: one});
        let value: T = read_tree(&alone).unwrap();
        assert_eq!(read_tree(&json!({snake_case(first): one})), Ok(value), "{alone}");
        for (second, other) in members {
            let text = format!(r#"{{"{first}":{one},"{second}":{other}}}"#);
            assert!(read::<T>(&text).is_err(), "{text}");
            let text = format!(r#"{{"{first}":{one},"{}":{other}}}"#, snake_case(second));
            assert!(read::<T>(&text).is_err(), "{text}");
        }
    }
    assert!(read::<T>("{}").is_err());
    assert!(read::<T>(r#"{"unknown":{}}"#).is_err());
}

#[test]
fn two_members_of_a_oneof_are_rejected() {
    exactly_one_of::<Part>(&[
        ("text", json!("")),
        ("raw", json!("")),
        ("url", json!("")),
        ("data", json!(null)),
    ]);
    exactly_one_of::<StreamResponse>(&[
        ("task", json!({})),
        ("message", json!({})),
        ("statusUpdate", json!({})),
        ("artifactUpdate", json!({})),
    ]);
    exactly_one_of::<SendMessageResponse>(&[("task", json!({})), ("message", json!({}))]);
    exactly_one_of::<SecurityScheme>(&[
        ("apiKeySecurityScheme", json!({})),
        ("httpAuthSecurityScheme", json!({})),
        ("oauth2SecurityScheme", json!({"flows": {"implicit": {}}})),
        ("openIdConnectSecurityScheme", json!({})),
        ("mtlsSecurityScheme", json!({})),
    ]);
    exactly_one_of::<OAuthFlows>(&[
        ("authorizationCode", json!({})),
        ("clientCredentials", json!({})),
        ("implicit", json!({})),
        ("password", json!({})),
        ("deviceCode", json!({})),
    ]);
}

#[test]
fn a_repeated_member_is_rejected_under_all_its_names() {
    for text in [
        r#"{"messageId":"a","messageId":"a"}"#,
        r#"{"messageId":"a","message_id":"a"}"#,
        r#"{"role":1,"role":null}"#,
        r#"{"parts":[{"text":"a","mediaType":"b","media_type":"b"}]}"#,
    ] {
        assert!(read::<Message>(text).is_err(), "{text}");
    }
}

#[test]
fn null_in_a_list_or_in_a_map_is_rejected() {
    for (text, path) in [
        (r#"{"parts":[null]}"#, "parts[0]"),
        (r#"{"extensions":["a",null]}"#, "extensions[1]"),
        (r#"{"referenceTaskIds":[null]}"#, "referenceTaskIds[0]"),
    ] {
        assert_eq!(read::<Message>(text).unwrap_err().path, path);
    }
    assert!(read::<Task>(r#"{"artifacts":[null]}"#).is_err());
    assert!(read::<AgentCard>(r#"{"skills":[null]}"#).is_err());
    assert!(read::<AgentCard>(r#"{"securitySchemes":{"a":null}}"#).is_err());
    assert!(read::<SecurityRequirement>(r#"{"schemes":{"a":null}}"#).is_err());
}

#[test]
fn an_array_in_a_map_of_messages_is_rejected() {
    assert!(read::<SecurityRequirement>(r#"{"schemes":{"a":[]}}"#).is_err());
    assert!(read::<AgentCard>(r#"{"securitySchemes":{"a":[]}}"#).is_err());
}

#[test]
fn null_data_is_data() {
    assert_eq!(read(r#"{"data":null}"#), Ok(Part::data(&()).unwrap()));
    assert_eq!(print(&Part::data(&()).unwrap()), r#"{"data":null}"#);
    assert_eq!(read(r#"{"text":null,"raw":null,"data":null,"url":null}"#), Ok(Part::data(&()).unwrap()));
}

#[test]
fn an_empty_string_that_is_content_is_kept() {
    for text in [r#"{"text":""}"#, r#"{"raw":""}"#, r#"{"url":""}"#, r#"{"data":""}"#] {
        assert_eq!(print(&read::<Part>(text).unwrap()), text);
    }
}

#[test]
fn metadata_is_an_object() {
    for bad in ["[]", "\"a\"", "1", "true", "[{}]"] {
        assert_eq!(
            read::<Message>(&format!(r#"{{"metadata":{bad}}}"#)).unwrap_err().path,
            "metadata",
            "{bad}"
        );
        assert!(read::<Part>(&format!(r#"{{"text":"","metadata":{bad}}}"#)).is_err(), "{bad}");
        assert!(read::<AgentExtension>(&format!(r#"{{"params":{bad}}}"#)).is_err(), "{bad}");
        assert!(read::<AgentCardSignature>(&format!(r#"{{"header":{bad}}}"#)).is_err(), "{bad}");
    }
    assert_eq!(read::<Message>(r#"{"metadata":null}"#).unwrap().metadata, None);
    assert!(read::<Message>(r#"{"metadata":{}}"#).unwrap().metadata.is_some());
}

#[test]
fn the_arguments_of_an_operation_are_an_object() {
    for operation in Operation::ALL {
        for bad in ["[]", "null", "\"t\"", "1", "", "{}{}", "{} x"] {
            let error = operation.parse(bad.as_bytes()).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{bad}");
        }
        assert!(operation.parse(b" {\n} ").is_ok());
    }
}

#[test]
fn required_members_are_written_even_where_they_are_empty() {
    let status = r#"{"state":"TASK_STATE_UNSPECIFIED"}"#;
    let message = r#"{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}"#;
    let artifact = r#"{"artifactId":"","parts":[]}"#;
    macro_rules! written {
        ($($type:ident: $json:expr),+ $(,)?) => { $(
            assert_eq!(print(&$type::default()), $json);
            assert_eq!(read(&$json), Ok($type::default()));
            assert_eq!(read("{}"), Ok($type::default()));
        )+ };
    }
    written! {
        Task: format!(r#"{{"id":"","status":{status}}}"#),
        TaskStatus: status,
        Message: message,
        Artifact: artifact,
        TaskStatusUpdateEvent: format!(r#"{{"taskId":"","contextId":"","status":{status}}}"#),
        TaskArtifactUpdateEvent: format!(r#"{{"taskId":"","contextId":"","artifact":{artifact}}}"#),
        SendMessageRequest: format!(r#"{{"message":{message}}}"#),
        SendMessageConfiguration: "{}",
        GetTaskRequest: r#"{"id":""}"#,
        ListTasksRequest: "{}",
        ListTasksResponse: r#"{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}"#,
        CancelTaskRequest: r#"{"id":""}"#,
        SubscribeToTaskRequest: r#"{"id":""}"#,
        TaskPushNotificationConfig: r#"{"url":""}"#,
        AuthenticationInfo: r#"{"scheme":""}"#,
        GetTaskPushNotificationConfigRequest: r#"{"taskId":"","id":""}"#,
        DeleteTaskPushNotificationConfigRequest: r#"{"taskId":"","id":""}"#,
        ListTaskPushNotificationConfigsRequest: r#"{"taskId":""}"#,
        ListTaskPushNotificationConfigsResponse: r#"{"configs":[]}"#,
        GetExtendedAgentCardRequest: "{}",
        AgentCard: concat!(
            r#"{"name":"","description":"","supportedInterfaces":[],"version":"","capabilities":{},"#,
            r#""defaultInputModes":[],"defaultOutputModes":[],"skills":[]}"#
        ),
        AgentInterface: r#"{"url":"","protocolBinding":"","protocolVersion":""}"#,
        AgentProvider: r#"{"url":"","organization":""}"#,
        AgentCapabilities: "{}",
        AgentExtension: "{}",
        AgentSkill: r#"{"id":"","name":"","description":"","tags":[]}"#,
        AgentCardSignature: r#"{"protected":"","signature":""}"#,
        SecurityRequirement: r#"{"schemes":{}}"#,
        StringList: "{}",
        ApiKeySecurityScheme: r#"{"location":"","name":""}"#,
        HttpAuthSecurityScheme: r#"{"scheme":""}"#,
        OpenIdConnectSecurityScheme: r#"{"openIdConnectUrl":""}"#,
        MutualTlsSecurityScheme: "{}",
        AuthorizationCodeOAuthFlow: r#"{"authorizationUrl":"","tokenUrl":"","scopes":{}}"#,
        ClientCredentialsOAuthFlow: r#"{"tokenUrl":"","scopes":{}}"#,
        DeviceCodeOAuthFlow: r#"{"deviceAuthorizationUrl":"","tokenUrl":"","scopes":{}}"#,
        ImplicitOAuthFlow: "{}",
        PasswordOAuthFlow: "{}",
    }
}

/// JSON as another program may write it: on one line, with other formats of numbers, escapes and whitespace.
fn foreign_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>()
            .prop_filter("JSON has no such numbers", |n| n.is_finite())
            .prop_map(|n| format!("{n:e}")),
        select(vec![
            "9007199254740993",
            "-9223372036854775808",
            "18446744073709551615",
            "123456789012345678901234567890",
            "1.10",
            "-0",
            "0.1e-7",
            "1E+2",
            "null",
            "true",
            r#""\u00e9\/\ud83e\udd80""#,
            r#""\n\r\u2028""#,
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        let members = prop::collection::vec((select(vec!["a", "b", "snake_case"]), inner), 0..3);
        prop_oneof![
            list.prop_map(|items| format!("[{}]", items.join(" ,\t"))),
            members.prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!(r#""{name}": {value} "#)).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

#[test]
fn data_and_metadata_come_back_unchanged() {
    check(foreign_json(), |json| {
        let text = format!(
            concat!(
                r#"{{"messageId":"","role":"ROLE_UNSPECIFIED","#,
                r#""parts":[{{"data":{0},"metadata":{{"a":{0}}}}}],"metadata":{{"a": {0}}}}}"#
            ),
            json
        );
        let message: Message = read(&text).map_err(|wrong| TestCaseError::fail(format!("{wrong:?}")))?;
        prop_assert_eq!(print(&message), text);
        Ok(())
    });
}

#[test]
fn a_webhook_with_its_receiver_in_a_member_is_read_as_the_sdks_of_the_drafts_send_it() {
    for text in [
        // `CreateTaskPushNotificationConfig` of a2a-swift, and of the SDK for .NET.
        r#"{"taskId":"t","config":{"id":"w","url":"https://example.com/hook","token":"s","authentication":{"scheme":"Bearer","credentials":"c"}}}"#,
        r#"{"taskId":"t","configId":"w","config":{"url":"https://example.com/hook","token":"s","authentication":{"scheme":"Bearer","credentials":"c"}}}"#,
        // What both have in an answer, and the earlier Swift client.
        r#"{"id":"w","taskId":"t","pushNotificationConfig":{"id":"w","url":"https://example.com/hook","token":"s","authentication":{"scheme":"Bearer","credentials":"c"}}}"#,
        r#"{"task_id":"t","push_notification_config":{"id":"w","url":"https://example.com/hook","token":"s","authentication":{"scheme":"Bearer","credentials":"c"}}}"#,
    ] {
        let webhook: TaskPushNotificationConfig = read(text).unwrap();
        assert_eq!(
            print(&webhook),
            r#"{"id":"w","taskId":"t","url":"https://example.com/hook","token":"s","authentication":{"scheme":"Bearer","credentials":"c"}}"#,
            "{text}"
        );
    }
}

#[test]
fn credentials_in_a_member_of_a_webhook_do_not_go_to_the_url_beside_it() {
    let text =
        r#"{"taskId":"t","url":"https://one.example","config":{"url":"https://two.example","token":"s"}}"#;
    let webhook: TaskPushNotificationConfig = read(text).unwrap();
    assert_eq!((webhook.url.as_str(), webhook.token), ("https://one.example", None));
}

#[test]
fn a_webhook_under_the_name_of_a_draft_is_not_ignored() {
    let text = r#"{"pushNotificationConfig": {"url": "https://example.com/hook"}}"#;
    let configuration: SendMessageConfiguration = read(text).unwrap();
    assert_eq!(configuration.task_push_notification_config.unwrap().url, "https://example.com/hook");
}
