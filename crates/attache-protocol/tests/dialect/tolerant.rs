//! The tolerant reader: responses as the servers of frameworks write them.

use attache_protocol::tolerant::{Event, ReadTolerantly, Source, Tolerated};
use attache_protocol::{
    AgentCard, Content, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Role,
    SendMessageResponse, StreamResponse, Task, TaskPushNotificationConfig, TaskState,
};
use serde_json::{Value, json};

fn tolerated<T: ReadTolerantly>(json: &Value) -> Tolerated<T> {
    T::read_tolerantly(Source::Other, json.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn read<T: ReadTolerantly>(json: &Value) -> T {
    tolerated(json).value
}

/// The `result` of `message/send`, as fasta2a 2.1 and pydantic-ai write it.
fn fasta2a() -> Value {
    json!({"task": {
        "id": "5d1d2f55-2f3f-4c4e-9b64-2a0c7f8f6d55", "contextId": "7c0f",
        "status": {"state": "completed", "timestamp": "2026-11-17T00:22:05.706878"},
        "history": [{"role": "user", "parts": [{"text": "hi"}], "messageId": "m"}],
        "artifacts": [{"artifactId": "a", "name": "result", "parts": [
            {"text": "hello"}, {"data": {"result": 7}, "metadata": {"json_schema": {}}}]}],
    }})
}

#[test]
fn a_time_without_a_zone_is_in_utc() {
    let SendMessageResponse::Task(task) = read(&fasta2a()) else { panic!("not a task") };
    assert_eq!(task.status.timestamp.unwrap().to_string(), "2026-11-17T00:22:05.706878Z");
    assert_eq!((task.status.state, task.artifacts[0].text().as_str()), (TaskState::Completed, "hello"));
    assert_eq!(task.history[0].role, Role::User);
}

#[test]
fn each_event_is_read_by_its_own_shape() {
    // LangGraph wraps the first event as 1.0 does, and writes the others as 0.3 does.
    let events = [
        json!({"task": {"id": "t", "contextId": "c", "status": {"state": "submitted"}, "history": []}}),
        json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": false,
            "status": {"state": "working", "message": {"kind": "message", "messageId": "m", "role": "agent",
                "parts": [{"kind": "text", "text": "thinking"}]}}}),
        json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": false, "lastChunk": true,
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "done"}]}}),
        // Events without a kind, as the iii-a2a worker and some others have them.
        json!({"taskId": "t", "status": {"state": "TASK_STATE_WORKING"}}),
        json!({"statusUpdate": {"taskId": "t", "status": {"state": "input_required"}}, "final": true}),
        json!({"kind": "status-update", "taskId": "t", "status": {"state": "completed"}, "final": true}),
    ];
    let shown: Vec<String> = events
        .iter()
        .map(|event| match read::<Event>(event) {
            Event { response: StreamResponse::Task(task), is_last } => {
                format!("{} {is_last}", task.status.state)
            }
            Event { response: StreamResponse::StatusUpdate(update), is_last } => {
                let said = update.status.message.map(|message| message.text()).unwrap_or_default();
                format!("{} {} {said} {is_last}", update.task_id, update.status.state)
            }
            Event { response: StreamResponse::ArtifactUpdate(update), .. } => {
                format!("{} {} {}", update.artifact.artifact_id, update.artifact.text(), update.last_chunk)
            }
            Event { response: StreamResponse::Message(message), .. } => message.text(),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "TASK_STATE_SUBMITTED false",
            "t TASK_STATE_WORKING thinking false",
            "a done true",
            "t TASK_STATE_WORKING  false",
            "t TASK_STATE_INPUT_REQUIRED  false",
            "t TASK_STATE_COMPLETED  true",
        ]
    );
}

#[test]
fn harmless_mistakes_are_replaced_and_noted() {
    let task: Tolerated<Task> = tolerated(&json!({
        "id": 7, "context_id": null, "metadata": null,
        "status": {"state": "archived", "timestamp": "yesterday", "message": "it is done"},
        "artifacts": [{"parts": null}, {"name": "report", "parts": ["text alone", {"kind": "thought", "thought": "hm"}]}],
        "history": [{"parts": {"text": "one part"}}, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
    }));
    let Tolerated { value: task, deviations } = task;
    assert_eq!(
        (task.id.as_str(), task.status.state, task.status.timestamp),
        ("7", TaskState::Unspecified, None)
    );
    assert_eq!(task.status.message.unwrap().text(), "it is done");
    let ids: Vec<&str> = task.artifacts.iter().map(|artifact| artifact.artifact_id.as_str()).collect();
    assert_eq!(ids, ["0", "report"]);
    let parts = &task.artifacts[1].parts;
    assert_eq!(parts[0].as_text(), Some("text alone"));
    assert!(
        matches!(&parts[1].content, Content::Data(data) if data.as_str().contains("hm")),
        "nothing is lost"
    );
    assert_eq!(task.history[0].text(), "one part");
    assert_eq!((task.history[1].role, task.history[1].text().as_str()), (Role::Agent, "x"));
    assert_eq!(
        deviations,
        [
            "a part of the unknown kind `thought` is read as data",
            "the unknown state `archived` is read as unspecified",
            "`yesterday` is not a time and is left out",
        ]
    );
}

#[test]
fn states_of_every_spelling_are_read() {
    for (name, state) in [
        (json!("TASK_STATE_INPUT_REQUIRED"), TaskState::InputRequired),
        (json!("input-required"), TaskState::InputRequired),
        (json!("inputRequired"), TaskState::InputRequired),
        (json!("CANCELLED"), TaskState::Canceled),
        (json!("TASK_STATE_CANCELLED"), TaskState::Canceled),
        (json!("Completed"), TaskState::Completed),
        (json!(4), TaskState::Failed),
        (json!("unknown"), TaskState::Unspecified),
        (json!(null), TaskState::Unspecified),
    ] {
        let task: Tolerated<Task> = tolerated(&json!({"id": "t", "status": {"state": name}}));
        assert_eq!(task.value.status.state, state, "{name}");
        assert!(task.deviations.is_empty(), "{name}");
    }
}

#[test]
fn files_of_every_version_are_read() {
    for part in [
        json!({"kind": "file", "file": {"bytes": "aGk=", "name": "a", "mimeType": "b"}}),
        json!({"file": {"fileWithBytes": "aGk=", "name": "a", "mimeType": "b"}}),
        json!({"raw": "aGk=", "filename": "a", "mediaType": "b"}),
    ] {
        let task: Task = read(&json!({"id": "t", "artifacts": [{"parts": [part]}]}));
        let part = &task.artifacts[0].parts[0];
        assert_eq!(part.content, Content::Raw(b"hi".to_vec()));
        assert_eq!((part.filename.as_deref(), part.media_type.as_deref()), (Some("a"), Some("b")));
    }
}

#[test]
fn data_in_an_object_of_its_own_is_a_matter_of_the_binding() {
    let task = json!({"id": "t", "artifacts": [{"parts": [{"data": {"data": {"a": 1}}}]}]}).to_string();
    for (source, data) in [(Source::HttpJson0_3, r#"{"a":1}"#), (Source::Other, r#"{"data":{"a":1}}"#)] {
        let task = Task::read_tolerantly(source, task.as_bytes()).unwrap().value;
        assert_eq!(task.artifacts[0].parts[0].as_data().unwrap().as_str(), data);
    }
}

#[test]
fn webhooks_of_every_version_are_read() {
    for webhook in [
        json!({"taskId": "t", "id": "w", "url": "u", "authentication": {"scheme": "Bearer", "credentials": "c"}}),
        json!({"taskId": "t", "pushNotificationConfig": {"id": "w", "url": "u",
            "authentication": {"schemes": ["Bearer"], "credentials": "c"}}}),
        json!({"name": "tasks/t/pushNotificationConfigs/w", "pushNotificationConfig": {"url": "u",
            "authentication": {"schemes": ["Bearer"], "credentials": "c"}}}),
        json!({"configId": "w", "taskId": "t", "config": {"url": "u",
            "authentication": {"schemes": ["Bearer"], "credentials": "c"}}}),
    ] {
        let config: TaskPushNotificationConfig = read(&webhook);
        let authentication = config.authentication.unwrap();
        assert_eq!(
            (config.task_id.unwrap().as_str(), config.id.as_deref(), config.url.as_str()),
            ("t", Some("w"), "u"),
            "{webhook}"
        );
        assert_eq!(
            (authentication.scheme.as_str(), authentication.credentials.as_deref()),
            ("Bearer", Some("c"))
        );
        for list in [json!([webhook]), json!({"configs": [webhook]})] {
            let list: ListTaskPushNotificationConfigsResponse = read(&list);
            assert_eq!(list.configs[0].url, "u");
        }
    }
    let empty: TaskPushNotificationConfig = read(&json!({"url": "u", "authentication": {}}));
    assert_eq!(empty.authentication, None);
}

#[test]
fn a_task_that_cannot_be_read_is_left_out_of_a_list() {
    let page: Tolerated<ListTasksResponse> =
        tolerated(&json!({"tasks": [{"id": "t", "status": "working"}, {"status": {}}], "totalSize": "2"}));
    assert_eq!((page.value.tasks.len(), page.value.total_size), (1, 2));
    assert_eq!(page.value.tasks[0].status.state, TaskState::Working);
    assert_eq!(page.deviations.len(), 1);
}

#[test]
fn what_is_no_event_is_refused() {
    for json in
        ["{}", "[]", "null", "1", r#"{"task":{}}"#, r#"{"usage":{"tokens":7}}"#, r#"{"status":"ok"}"#, "{"]
    {
        assert!(Event::read_tolerantly(Source::Other, json.as_bytes()).is_err(), "{json}");
    }
    assert!(
        Task::read_tolerantly(Source::Other, br#"{"status":{"state":"working"}}"#).is_err(),
        "it needs an id"
    );
}

#[test]
fn a_card_is_read_without_the_members_that_cannot_be() {
    let card: Tolerated<AgentCard> = tolerated(&json!({
        "name": "Sloppy", "version": 1.5, "capabilities": null, "provider": "me",
        "supportedInterfaces": [{"url": "http://a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "skills": [{"id": "a", "name": "A", "tags": "one"}, {"id": "b"}],
        "securitySchemes": {"odd": {"type": "odd"}}, "defaultInputModes": null,
    }));
    let Tolerated { value: card, deviations } = card;
    assert_eq!((card.name.as_str(), card.supported_interfaces.len()), ("Sloppy", 1));
    assert_eq!(card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let left_out: Vec<&str> = deviations.iter().filter_map(|it| it.split('`').nth(1)).collect();
    assert_eq!(left_out.len(), 4, "{deviations:?}");
    for member in ["version", "provider", "skills[0].tags", "securitySchemes.odd"] {
        assert!(left_out.contains(&member), "{member}: {deviations:?}");
    }
}

#[test]
fn the_requirements_of_a_card_are_never_left_out() {
    let card = json!({"name": "x", "url": "http://a", "security": "none"}).to_string();
    assert!(AgentCard::read_tolerantly(Source::Other, card.as_bytes()).is_err());
    let card = json!({"name": "x", "supportedInterfaces": [], "securityRequirements": "none"}).to_string();
    assert!(AgentCard::read_tolerantly(Source::Other, card.as_bytes()).is_err());
}
