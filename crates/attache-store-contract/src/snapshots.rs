//! A task is the fold of its log, in every view, live or ended, as a value and as JSON.

use std::sync::Arc;

use attache_core::{ListQuery, Owner, Seq, Snapshot, TaskEvent, View, fold};
use attache_protocol::{
    Artifact, ContextId, JsonObject, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::support::{TestStore, at, chunk, id, ids, message, more, status, task, views, written};

/// The part of a task that a view shows.
fn shown(task: &Task, seq: Seq, view: View) -> Task {
    let mut task = task.clone();
    if !view.artifacts {
        task.artifacts.clear();
    }
    if let Some(limit) = view.history {
        let skip = task.history.len().saturating_sub(limit);
        task.history = task.history.split_off(skip);
    }
    task.generation = view.generation.then_some(seq.0);
    task
}

/// Checks that a snapshot equals a task, as a value and as JSON, in every view.
fn check(snapshot: &Snapshot, task: &Task, seq: Seq) {
    assert_eq!((snapshot.seq, snapshot.state), (seq, task.status.state));
    assert_eq!(*snapshot.task(), *task);
    for view in views() {
        let expected = shown(task, seq, view);
        assert_eq!(*snapshot.viewed(view), expected, "{view:?}");
        assert_eq!(written(snapshot, view), serde_json::to_value(&expected).unwrap(), "{view:?}");
    }
}

/// Checks that the stored task equals a task, loaded and listed in every view.
async fn check_kept(store: &TestStore, task: &Task, seq: Seq) {
    let me = Owner::default();
    check(&store.load(&me, &task.id).await.unwrap().unwrap(), task, seq);
    for view in views() {
        let query = ListQuery { context: task.context_id.clone(), limit: 9, view, ..ListQuery::default() };
        let (listed, _, total) = store.page(&me, &query).await;
        assert_eq!((ids(&listed), total), (vec![task.id.as_str().to_owned()], 1));
        let expected = shown(task, seq, view);
        assert_eq!((listed[0].seq, listed[0].state), (seq, task.status.state));
        assert_eq!(*listed[0].viewed(view), expected, "{view:?}");
        assert_eq!(written(&listed[0], view), serde_json::to_value(&expected).unwrap(), "{view:?}");
    }
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        4 => "[a-zä\"\\\\ \n]{0,6}".prop_map(Part::text),
        1 => prop::collection::vec(any::<u8>(), 0..6).prop_map(Part::raw),
        1 => "[a-z]{1,4}".prop_map(|path| Part::url(format!("https://example.com/{path}")).filename(path)),
        1 => any::<(i64, bool)>().prop_map(|data| Part::data(&data).unwrap().media_type("application/json")),
        1 => "[a-z]{1,4}".prop_map(|text| Part { metadata: Some(object(&text)), ..Part::text(text) }),
    ];
    prop::collection::vec(part, 0..3)
}

fn object(text: &str) -> JsonObject {
    JsonObject::new(&serde_json::json!({ "of": text, "n": [1, null, { "deep": text }] })).unwrap()
}

fn messages() -> impl Strategy<Value = Message> {
    (parts(), any::<bool>(), prop::option::of("[a-z]{1,3}"), "[a-z]{1,4}").prop_map(
        |(parts, user, note, message_id)| Message {
            message_id,
            context_id: note.as_deref().map(ContextId::from),
            role: if user { Role::User } else { Role::Agent },
            parts,
            metadata: note.as_deref().map(object),
            extensions: note.iter().map(|note| format!("urn:{note}")).collect(),
            reference_task_ids: note.iter().map(|note| TaskId::from(note.as_str())).collect(),
            ..Message::default()
        },
    )
}

/// An event of a live task.
fn events() -> impl Strategy<Value = TaskEvent> {
    let live = [TaskState::Submitted, TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired];
    let statuses = (prop::sample::select(live.to_vec()), prop::option::of(messages()), 0..1_000i64)
        .prop_map(|(state, message, millis)| statement(state, message, millis));
    let word = || prop::option::of("[a-z]{1,3}");
    let artifacts =
        (prop::sample::select(vec!["a", "b", "c"]), parts(), any::<bool>(), word(), word(), 0..3usize)
            .prop_map(|(artifact, parts, append, name, description, extensions)| {
                TaskEvent::Artifact(Arc::new(TaskArtifactUpdateEvent {
                    task_id: "t".into(),
                    artifact: Artifact {
                        artifact_id: artifact.to_owned(),
                        metadata: name.as_deref().map(object),
                        name,
                        description,
                        parts,
                        extensions: (0..extensions).map(|number| format!("urn:{number}")).collect(),
                    },
                    append,
                    last_chunk: extensions == 1,
                    ..TaskArtifactUpdateEvent::default()
                }))
            });
    prop_oneof![
        2 => messages().prop_map(|message| TaskEvent::Message(Arc::new(message))),
        3 => statuses,
        6 => artifacts,
    ]
}

fn statement(state: TaskState, message: Option<Message>, millis: i64) -> TaskEvent {
    TaskEvent::Status(Arc::new(TaskStatusUpdateEvent {
        task_id: "t".into(),
        status: TaskStatus { state, message: message.map(Box::new), timestamp: Some(at(millis)) },
        ..TaskStatusUpdateEvent::default()
    }))
}

/// The batches of a log, and its end if it has one.
type History = (Vec<Vec<TaskEvent>>, Option<(TaskState, Option<Message>)>);

fn histories() -> impl Strategy<Value = History> {
    let ends: Vec<_> = TaskState::ALL.iter().copied().filter(|state| state.is_terminal()).collect();
    let batches = prop::collection::vec(prop::collection::vec(events(), 1..5), 1..8);
    (batches, prop::option::of((prop::sample::select(ends), prop::option::of(messages()))))
}

/// Appends a log batch by batch, and checks the stored task after each one.
async fn play(store: &TestStore, name: &str, (batches, end): History) {
    let mut batches = batches.into_iter();
    let mut draft = task(name).in_context(name);
    draft.0.events.extend(batches.next().unwrap_or_default());
    let mut folded = match &draft.0.events[0] {
        TaskEvent::Created(task) => (**task).clone(),
        TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_) => Task::default(),
    };
    for event in &draft.0.events[1..] {
        fold(&mut folded, event.clone()).unwrap();
    }
    let mut seq = store.make(draft).await.seq;
    check_kept(store, &folded, seq).await;
    let end = end.map(|(state, message)| vec![statement(state, message, 2_000)]);
    for events in batches.chain(end) {
        for event in &events {
            fold(&mut folded, event.clone()).unwrap();
        }
        seq = store.add(name, more(seq.0, events)).await.unwrap().seq;
        check(&store.load(&Owner::default(), &id(name)).await.unwrap().unwrap(), &folded, seq);
    }
    check_kept(store, &folded, seq).await;
    let mut refolded = Task::default();
    for entry in store.read(name, 0, seq.0 as usize).await {
        match &entry.event {
            TaskEvent::Created(task) => refolded = (**task).clone(),
            event @ (TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_)) => {
                fold(&mut refolded, event.clone()).unwrap();
            }
        }
    }
    assert_eq!(refolded, folded);
}

pub async fn every_task_is_the_fold_of_its_log(store: TestStore) {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let count = std::cell::Cell::new(0);
        let outcome = TestRunner::new(config).run(&histories(), |history| {
            count.set(count.get() + 1);
            let name = format!("task-{}", count.get());
            runtime.block_on(play(&store, &name, history));
            Ok::<_, TestCaseError>(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}

pub async fn a_task_reads_the_same_after_its_end(store: TestStore) {
    let draft = task("t").in_context("alone").then(chunk("t", "a", "x"));
    let made = store.make(draft.then(message("more"))).await;
    let mut before = store.get("t").await.task().into_owned();
    store.add("t", more(made.seq.0, [status("t", TaskState::Completed, 5)])).await.unwrap();
    before.status = TaskStatus { state: TaskState::Completed, message: None, timestamp: Some(at(5)) };
    check_kept(&store, &before, made.seq.plus(1)).await;
}

pub async fn a_large_task_reads_like_a_small_one(store: TestStore) {
    let large = "x".repeat(400_000);
    let made = store
        .make(task("t").in_context("alone").changed(|task| task.history[0].parts = vec![Part::text(&*large)]))
        .await;
    let mut expected = store.get("t").await.task().into_owned();
    let mut seq = made.seq;
    for (number, end) in [(0, false), (1, false), (2, true)] {
        let mut events = vec![chunk("t", "a", &large)];
        if end {
            events.push(status("t", TaskState::Failed, number));
        }
        for event in &events {
            fold(&mut expected, event.clone()).unwrap();
        }
        seq = store.add("t", more(seq.0, events)).await.unwrap().seq;
        check_kept(&store, &expected, seq).await;
    }
}

pub async fn every_member_of_a_task_is_stored(store: TestStore) {
    for state in [TaskState::Working, TaskState::Completed] {
        let name = state.as_str();
        let whole = Task {
            id: name.into(),
            context_id: Some(ContextId::from(name)),
            status: TaskStatus {
                state,
                message: Some(Box::new(Message {
                    metadata: Some(object("status")),
                    ..Message::agent("s", "so")
                })),
                timestamp: attache_protocol::Timestamp::new(1_767_300_000, 123_456_789),
            },
            metadata: Some(object("task")),
            generation: None,
            artifacts: vec![Artifact { name: Some("n".into()), ..Artifact::default() }],
            history: vec![Message::user("m", "hi").part(Part::raw([0, 159, 146, 150]))],
        };
        let created = whole.clone();
        store.make(task(name).changed(move |task| *task = created)).await;
        check_kept(&store, &whole, Seq(1)).await;
        let bare = Task { id: format!("bare {name}").into(), ..Task::default() };
        let created = Task { status: TaskStatus { state, ..TaskStatus::default() }, ..bare };
        let expected = created.clone();
        store.make(task("").changed(move |task| *task = created)).await;
        let kept = store.load(&Owner::default(), &expected.id).await.unwrap().unwrap();
        check(&kept, &expected, Seq(1));
    }
}
