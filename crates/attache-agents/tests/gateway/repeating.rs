//! What the remote agent does to its task is done to ours.

use attache_client::{Binding, Client, Interface, Outgoing, Reply, SchemeCredentials};
use attache_protocol::{Content, JsonObject, Message, Part, StreamResponse, TaskState, Version};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use serde_json::json;

use crate::support::*;

/// A stream in short: states with their words, and pieces of artifacts with their marks.
fn outline(events: &[StreamResponse]) -> Vec<String> {
    let lines = events.iter().map(|event| match event {
        StreamResponse::Task(task) => format!("task {}", task.status.state),
        StreamResponse::Message(message) => format!("message {}", message.text()),
        StreamResponse::StatusUpdate(update) => {
            let words = update.status.message.as_ref().map(|message| message.text()).unwrap_or_default();
            format!("{} {words}", update.status.state).trim().to_owned()
        }
        StreamResponse::ArtifactUpdate(update) => {
            let append = if update.append { "+" } else { "" };
            let last = if update.last_chunk { "." } else { "" };
            let parts: Vec<String> = update
                .artifact
                .parts
                .iter()
                .map(|part| match &part.content {
                    Content::Text(text) => text.clone(),
                    Content::Data(data) => data.as_str().to_owned(),
                    Content::Url(_) | Content::Raw(_) => "file".to_owned(),
                })
                .collect();
            format!("{append}{}: {}{last}", update.artifact.artifact_id, parts.join("|"))
        }
    });
    lines.filter(|line| !line.starts_with("task ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_repeated_piece_by_piece_over_every_binding_and_version() {
    for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
        for version in [Version::V1_0, Version::V0_3] {
            let interface = Interface { binding, version: Some(version) };
            let chain = chain_with(remote_card(), |options| {
                options.client.interfaces = vec![interface];
                // The address of gRPC has no scheme, so it is another origin.
                options.client.trusted_origins = Default::default();
            })
            .await;
            let lines = outline(&stream(&chain.client, "stream").await);
            assert!(lines.iter().filter(|line| *line == "TASK_STATE_WORKING").count() <= 1, "{lines:?}");
            assert_eq!(
                lines.iter().filter(|line| *line != "TASK_STATE_WORKING").collect::<Vec<_>>(),
                [
                    "TASK_STATE_WORKING one moment",
                    "story: once |upon ",
                    "+story: a time.",
                    "table: {\"a\":1}.",
                    "TASK_STATE_COMPLETED"
                ],
                "{interface}"
            );
            let Reply::Task(task) = in_time(chain.client.send("stream")).await.unwrap() else {
                panic!("{interface}: not a task");
            };
            let story = task.artifact("story").unwrap();
            assert_eq!(story.description.as_deref(), Some("A story"), "{interface}");
            let metadata = story.metadata.as_ref().unwrap().get::<Vec<f64>>("k");
            assert_eq!(metadata, Some(vec![1.0]), "{interface}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_data_arrive_unchanged_in_both_directions() {
    let mut chain = chain().await;
    let parts = vec![
        Part::text("look"),
        Part::raw(vec![0, 159, 146, 150]).filename("a.bin").media_type("application/octet-stream"),
        Part::url("https://files.example/b.png").media_type("image/png"),
        Part::data(&json!({"n": 1.5, "deep": [{"x": null}]})).unwrap().media_type("application/json"),
    ];
    let task = send(&chain.client, parts.clone()).await;
    assert_eq!(chain.reports.message().await.parts, parts);
    assert_eq!(task.artifact("answer").unwrap().parts, parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_without_streams_is_polled() {
    let mut card = remote_card();
    card.capabilities.streaming = Some(false);
    let mut chain = chain_with(card, |_| {}).await;
    let task = send(&chain.client, immediately("gated")).await;
    chain.reports.message().await;
    in_time(chain.client.wait_until(task.id.clone(), |task| !task.artifacts.is_empty())).await.unwrap();
    chain.script.gate.add_permits(1);
    let task = reaches(&chain.client, &task, TaskState::Completed).await;
    assert_eq!(texts(&task, "story"), ["one ", "two"]);
    let asked = send(&chain.client, "ask which?").await;
    let task = send(&chain.client, Outgoing::new("reply the blue one").answering(&asked)).await;
    assert_eq!((task.status.state, words(&task).as_str()), (TaskState::Completed, "the blue one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_task_has_the_words_of_the_remote_agent() {
    let chain = chain().await;
    for (message, state, expected) in [
        ("fail no flour", TaskState::Failed, "no flour"),
        ("reject not today", TaskState::Rejected, "not today"),
        ("complete done", TaskState::Completed, "done"),
    ] {
        let task = send(&chain.client, message).await;
        assert_eq!((task.status.state, words(&task).as_str()), (state, expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_one_side_are_not_those_of_the_other() {
    let mut chain = chain().await;
    let task =
        send(&chain.client, Message { context_id: Some("ours".into()), ..Message::user("m1", "hi") }).await;
    let sent = chain.reports.message().await;
    assert_ne!(sent.message_id, "m1");
    assert_ne!(sent.task_id, Some(task.id.clone()));
    assert_ne!(sent.context_id, Some("ours".into()));
    let shown = serde_json::to_string(&task).unwrap();
    assert!(!shown.contains(sent.task_id.unwrap().as_str()), "{shown}");
    assert!(!shown.contains(sent.context_id.unwrap().as_str()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remote_ids_are_shown_if_wanted() {
    let mut chain = chain_with(remote_card(), |options| options.show_remote_ids = true).await;
    let task = send(&chain.client, "hi").await;
    let sent = chain.reports.message().await;
    let metadata = task.artifact("answer").unwrap().metadata.as_ref().unwrap();
    assert_eq!(metadata.get::<String>("attache.remoteTaskId"), Some(sent.task_id.unwrap().to_string()));
    assert_eq!(metadata.get::<String>("attache.remoteContextId"), Some(sent.context_id.unwrap().to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_references_go_along_and_foreign_tasks_do_not() {
    let mut chain = chain().await;
    let first = send(&chain.client, "hi").await;
    let first_sent = chain.reports.message().await;
    let metadata = JsonObject::new(&json!({"skillId": "cook"})).unwrap();
    let message = Message { metadata: Some(metadata), ..Message::user("m2", "again") };
    let message = Outgoing::new(message).reference(first.id.clone()).reference("unknown");
    send(&chain.client, message).await;
    let sent = chain.reports.message().await;
    assert_eq!(sent.metadata.as_ref().unwrap().get::<String>("skillId").unwrap(), "cook");
    assert_eq!(sent.reference_task_ids, [first_sent.task_id.unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_credentials_of_the_options_are_sent_and_their_lack_is_explained_at_the_start() {
    let (script, mut reports) = Script::new();
    let remote = TestServer::start(move || async move {
        Server::new(script)
            .card(remote_card())
            .authenticate(KnownCallers::new().bearer("gateway", "s3cret"))
            .bind("127.0.0.1:0")
    })
    .await;
    let with_token = |token: &'static str| {
        quick_options(&remote.url(), new_store()).with(|options| {
            options.client = options.client.clone().with_credentials(SchemeCredentials::new().token(token));
        })
    };
    let gateway = start_gateway(with_token("s3cret")).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    assert_eq!(send(&client, "hi").await.status.state, TaskState::Completed);
    reports.message().await;

    let gateway = start_gateway(with_token("wrong")).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let task = send(&client, "hi").await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(words(&task), "the remote agent does not accept the credentials of this server");
    assert!(reports.is_empty());
}
