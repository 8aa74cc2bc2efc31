//! Stored content and the tasks in a SQLite file, together with the service that deletes old tasks.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Artifacts, Caller, Options, Principal, Reply, Retention, Service, Turn, agent_fn};
use attache_protocol::{AgentCard, Content, Message, Part, Request, Role, SendMessageRequest, Task};
use attache_store::{
    ArtifactMaintenance, DirectoryOptions, DirectoryStore, Keyring, Maintenance, SqliteOptions, SqliteStore,
};

/// Sends a text. The agent gives it back as a file.
async fn send(service: &Service, text: &str) -> Task {
    let message = Message {
        message_id: text.into(),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..Message::default()
    };
    let request = SendMessageRequest { message, ..SendMessageRequest::default() };
    let reply = service.call(Caller::default(), Request::SendMessage(Box::new(request)), None).await.unwrap();
    let Reply::Sent(snapshot, _) = reply else { panic!("no task") };
    snapshot.task().into_owned()
}

/// The id in the reference of the only part.
fn content_id(task: &Task) -> String {
    let Content::Url(url) = &task.artifacts[0].parts[0].content else { panic!("{task:?}") };
    url.strip_prefix("attache-artifact:").unwrap().to_owned()
}

#[tokio::test]
async fn content_is_removed_with_its_task_unless_another_task_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let tasks = SqliteStore::open(&file, SqliteOptions::new(Keyring::ephemeral().unwrap())).unwrap();
    let directory = folder.path().join("artifacts");
    let options = DirectoryOptions::default().grace(Duration::ZERO);
    let content = DirectoryStore::open(&directory, options).unwrap();
    let agent = agent_fn(|turn: Turn| async move {
        turn.artifact("a").file("a.txt", "text/plain", turn.text().repeat(10)).await?;
        turn.complete().await
    });
    let options = Options::default()
        .retention(Retention::default().max_tasks(2))
        .artifacts(Some(Artifacts::new(content.clone()).inline_limit(10)));
    let service = Service::new(agent, Arc::new(tasks), AgentCard::new("Agent", "An agent"), options);
    let first = send(&service, "the same").await;
    let second = send(&service, "another").await;
    let third = send(&service, "the same").await;
    assert_eq!((content.stored_bytes(), content_id(&first)), (80 + 70, content_id(&third)));
    assert_eq!(service.prune().await.unwrap(), 1);
    let swept = service.sweep_artifacts().await.unwrap();
    assert_eq!((swept.tasks, swept.bytes), (1, 0), "the third task has the same content");
    let fourth = send(&service, "new").await;
    assert_eq!(service.prune().await.unwrap(), 1);
    assert_eq!(service.sweep_artifacts().await.unwrap().bytes, 70, "that of the second task");
    for (task, exists) in [(&first, false), (&second, false), (&third, true), (&fourth, true)] {
        let found = service.content(&Principal::Anonymous, None, &task.id, &content_id(task)).await;
        assert_eq!(found.is_ok(), exists);
    }
    let report =
        ArtifactMaintenance::open(&directory).unwrap().check(&Maintenance::open(&file).unwrap()).unwrap();
    assert_eq!((report.references, report.files, report.left_over, report.problems), (2, 2, 0, vec![]));
}
