//! Example values and helpers for the tests of the dialects.

use attache_protocol::dialect::Response;
use attache_protocol::{
    Artifact, AuthenticationInfo, Content, Dialect, Json, ListTasksResponse, Message, Part, Request, Role,
    StreamResponse, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use serde_json::{Value, json};

pub(crate) const STATES: &[TaskState] = TaskState::ALL;
pub(crate) const ROLES: &[Role] = Role::ALL;
pub(crate) const DIALECTS: [Dialect; 4] = [Dialect::Iii, Dialect::V0_3, Dialect::Either, Dialect::V0_1];

/// Reads a request, and checks that it is recognized as one of the dialect.
pub(crate) fn read(dialect: Dialect, method: &str, params: &Value) -> Request {
    let params = params.to_string();
    let dialects = [Dialect::of(method, params.as_bytes()), Dialect::of_v0_1(method, params.as_bytes())];
    assert!(
        dialects.contains(&Some(dialect)) || dialects.contains(&Some(Dialect::Either)),
        "{method}: {dialects:?}"
    );
    dialect.read(method, params.as_bytes()).expect("a request")
}

/// The requests that are read, one per line.
pub(crate) fn read_all(dialect: Dialect, requests: &[(&str, Value)]) -> String {
    let line = |(method, params): &(&str, Value)| {
        format!("{method} {params}\n  {:?}", read(dialect, method, params))
    };
    requests.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn written(dialect: Dialect, response: &Response) -> Value {
    let mut out = Vec::new();
    dialect.write(response, &mut out);
    serde_json::from_slice(&out).expect("JSON")
}

/// The JSON of these events in one stream.
pub(crate) fn events(dialect: Dialect, events: &[StreamResponse]) -> Vec<Value> {
    let mut writer = dialect.events();
    let write = |event: &StreamResponse| {
        let mut out = Vec::new();
        writer.write(event, &mut out);
        serde_json::from_slice(&out).expect("JSON")
    };
    events.iter().map(write).collect()
}

/// The invalid fields that the error names.
pub(crate) fn invalid_fields(dialect: Dialect, method: &str, params: &Value) -> Vec<String> {
    let error = dialect.read(method, params.to_string().as_bytes()).expect_err("an error");
    let message = error.to_string();
    assert!(!message.contains("ROLE_") && !message.contains("TASK_STATE"), "{message}");
    error.field_violations().iter().map(|violation| violation.field.clone()).collect()
}

pub(crate) fn task() -> Task {
    let message = Message { role: Role::Agent, ..Message::user("m-2", "all done") };
    Task {
        id: "t-1".into(),
        context_id: Some("c-1".into()),
        status: TaskStatus {
            state: TaskState::Completed,
            message: Some(Box::new(message)),
            timestamp: Some(Timestamp::from_millis(1_767_300_000_123)),
        },
        artifacts: vec![Artifact {
            artifact_id: "a-1".to_owned(),
            name: Some("pricing::quote".to_owned()),
            parts: vec![
                Part::new(Content::Data(
                    Json::parse(r#"{"price":42,"big":12345678901234567890123}"#).unwrap(),
                ))
                .media_type("application/json"),
                Part::text("plain"),
            ],
            ..Artifact::default()
        }],
        history: vec![Message::user(
            "m-1",
            Part::data(&json!({"function_id": "pricing::quote", "payload": {"sku": "A"}})).unwrap(),
        )],
        ..Task::default()
    }
}

/// A task with all kinds of parts.
pub(crate) fn rich_task() -> Task {
    let metadata = serde_json::from_value(json!({"why": "because"})).unwrap();
    let scalar = Part { metadata: Some(metadata), ..Part::data(&[1, 2]).unwrap() };
    let parts = Message::user("m-3", Part::raw("hi").filename("a.txt").media_type("text/plain"))
        .part(Part::url("https://example.com/b.png").filename("b.png"))
        .part(Part::text("*hi*").media_type("text/markdown"))
        .part(scalar)
        .part(Part::data("lone").unwrap());
    let mut task = task();
    task.status = TaskStatus { state: TaskState::Canceled, ..TaskStatus::default() };
    task.artifacts.push(Artifact {
        artifact_id: "a-2".to_owned(),
        description: Some("files".to_owned()),
        parts: parts.parts.clone(),
        extensions: vec!["urn:x".to_owned()],
        ..Artifact::default()
    });
    task.metadata = serde_json::from_value(json!({"priority": "high"})).unwrap();
    task.history = vec![Message { reference_task_ids: vec!["t-0".into()], ..parts }];
    task
}

pub(crate) fn page() -> ListTasksResponse {
    ListTasksResponse { tasks: vec![task()], total_size: 1, page_size: 100, ..Default::default() }
}

pub(crate) fn webhook() -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: Some("w".to_owned()),
        task_id: Some("t-1".into()),
        url: "https://example.com".to_owned(),
        authentication: Some(AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: None }),
        ..TaskPushNotificationConfig::default()
    }
}

pub(crate) fn status_event() -> StreamResponse {
    status_of(TaskState::Working)
}

pub(crate) fn status_of(state: TaskState) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    })
}

pub(crate) fn artifact_event() -> StreamResponse {
    chunk_of("a-1")
}

/// The last chunk of an artifact.
pub(crate) fn chunk_of(artifact_id: &str) -> StreamResponse {
    let mut artifact = task().artifacts.remove(0);
    artifact.artifact_id = artifact_id.to_owned();
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact,
        append: true,
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    })
}
