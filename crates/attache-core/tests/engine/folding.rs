//! The fold: what an event does to a task, over all sequences of events.

use std::sync::Arc;

use attache_core::{FoldError, TaskEvent, fold};
use attache_protocol::{
    Artifact, JsonObject, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use proptest::prelude::*;

use crate::support::{history, model};

fn artifact(id: &str, text: &str, append: bool) -> TaskEvent {
    TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
        artifact: Artifact {
            artifact_id: id.to_owned(),
            parts: vec![Part::text(text)],
            ..Artifact::default()
        },
        append,
        ..TaskArtifactUpdateEvent::default()
    }))
}

fn status(state: TaskState, text: Option<&str>) -> TaskEvent {
    let message = text.map(|text| Box::new(Message::agent(text, text)));
    let status = TaskStatus { state, message, timestamp: None };
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }))
}

fn events() -> impl Strategy<Value = TaskEvent> {
    let id = prop::sample::select(vec!["", "a", "b"]);
    let states = prop::sample::select(TaskState::ALL.to_vec());
    let word = || prop::option::of("[a-z]{0,3}");
    let artifact = (id, prop::collection::vec("[a-z]{0,3}", 0..3), any::<bool>(), word(), word(), 0..3usize)
        .prop_map(|(id, texts, append, name, description, extensions)| {
            TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
                artifact: Artifact {
                    artifact_id: id.to_owned(),
                    metadata: name
                        .as_ref()
                        .map(|name| JsonObject::new(&serde_json::json!({ "n": name })).unwrap()),
                    name,
                    description,
                    parts: texts.into_iter().map(Part::text).collect(),
                    extensions: (0..extensions).map(|number| format!("urn:{number}")).collect(),
                },
                append,
                ..TaskArtifactUpdateEvent::default()
            }))
        });
    prop_oneof![
        1 => Just(TaskEvent::Created(Arc::default())),
        2 => "[a-z]{0,3}".prop_map(|text| TaskEvent::Message(Arc::new(Message::user("m", text)))),
        4 => (states, word()).prop_map(|(state, text)| status(state, text.as_deref())),
        6 => artifact,
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_events_gives_the_task_of_the_model(events in prop::collection::vec(events(), 0..40)) {
        let mut task = Task { id: "t".into(), ..Task::default() };
        let mut expected = task.clone();
        for event in &events {
            let (before, ended) = (task.clone(), task.status.state);
            let result = fold(&mut task, event.clone());
            if ended.is_terminal() {
                prop_assert_eq!(result, Err(FoldError::Ended(ended)));
                prop_assert_eq!(&task, &before);
                continue;
            }
            match event {
                TaskEvent::Created(_) => {
                    prop_assert_eq!(result, Err(FoldError::Exists));
                    prop_assert_eq!(&task, &before);
                }
                TaskEvent::Message(message) => expected.history.push((**message).clone()),
                TaskEvent::Status(update) => model::status(&mut expected, update),
                TaskEvent::Artifact(update) => model::artifact(&mut expected, update),
            }
            prop_assert_eq!(&task, &expected);
        }
    }
}

#[test]
fn a_task_that_has_ended_does_not_change() {
    for state in TaskState::ALL.iter().filter(|state| state.is_terminal()) {
        let mut task = Task::default();
        fold(&mut task, status(*state, Some("bye"))).unwrap();
        let before = task.clone();
        for event in [
            status(TaskState::Working, None),
            status(*state, None),
            artifact("a", "x", false),
            TaskEvent::Message(Arc::default()),
            TaskEvent::Created(Arc::default()),
        ] {
            assert_eq!(fold(&mut task, event.clone()), Err(FoldError::Ended(*state)));
            assert_eq!(task, before);
        }
    }
}

#[test]
fn an_artifact_grows_when_appended_to_and_is_replaced_otherwise() {
    let mut task = Task::default();
    let text = |task: &Task| task.artifact("a").unwrap().text();
    fold(&mut task, artifact("a", "one ", false)).unwrap();
    fold(&mut task, artifact("b", "other", false)).unwrap();
    fold(&mut task, artifact("a", "two", true)).unwrap();
    assert_eq!((text(&task).as_str(), task.artifact("a").unwrap().parts.len()), ("one two", 2));
    fold(&mut task, artifact("a", "new", false)).unwrap();
    assert_eq!((text(&task).as_str(), task.artifacts.len()), ("new", 2));
    assert_eq!(task.artifacts[0].artifact_id, "a", "a replaced artifact keeps its place");
}

#[test]
fn appending_to_an_artifact_that_is_not_there_creates_it() {
    let mut task = Task::default();
    fold(&mut task, artifact("a", "x", true)).unwrap();
    assert_eq!(task.artifact("a").unwrap().text(), "x");
}

#[test]
fn a_status_message_moves_into_the_history_when_the_next_status_replaces_it() {
    let mut task = Task::default();
    for (state, text) in [
        (TaskState::Working, Some("on it")),
        (TaskState::Working, None),
        (TaskState::Completed, Some("done")),
    ] {
        fold(&mut task, status(state, text)).unwrap();
    }
    assert_eq!(history(&task), ["on it"]);
    assert_eq!(task.status.message.unwrap().text(), "done");
}

#[test]
fn the_pieces_of_a_message_are_one_message_in_the_history() {
    let mut task = Task::default();
    let mut apply = |event: TaskEvent| fold(&mut task, event).unwrap();
    let piece = |id: &str, text: &str| {
        let message = Some(Box::new(Message::agent(id, text)));
        let status = TaskStatus { state: TaskState::Working, message, timestamp: None };
        TaskEvent::Status(Arc::new(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }))
    };
    for (id, text) in [("m", "one "), ("m", "two"), ("n", "other"), ("", "a"), ("", "b")] {
        apply(piece(id, text));
    }
    apply(TaskEvent::Message(Arc::new(Message::user("", "question"))));
    apply(piece("n", "late"));
    apply(status(TaskState::Completed, None));
    assert_eq!(history(&task), ["one two", "other", "a", "question", "b", "late"]);
}
