//! Every operation, over every interface.

use std::net::SocketAddr;

use attache_client::{Client, ClientError, Interface, Outgoing, Reply};
use attache_protocol::{
    AgentCard, AuthenticationInfo, ErrorKind, ListTasksRequest, Part, Task, TaskPushNotificationConfig,
    TaskState,
};
use attache_server::Server;
use futures::TryStreamExt;
use serde_json::json;

use crate::support::{Player, WIRES, gists, lists, next, over, rest, serve, soon, task};

/// A server with all interfaces, and a client for each.
async fn everywhere() -> Vec<(Interface, Client)> {
    let mut agents = Vec::new();
    for wire in WIRES {
        let card = AgentCard::new("Player", "Does what it is told").input_modes(["*/*"]);
        let server: SocketAddr = serve(Server::new(Player).card(card)).await;
        agents.push((wire, over(wire, server, &format!("http://{server}")).await));
    }
    agents
}

fn sent(reply: Reply) -> Task {
    let Reply::Task(task) = reply else { panic!("not a task: {reply:?}") };
    task
}

#[tokio::test]
async fn messages_are_sent_and_returned_over_every_interface() {
    for (wire, agent) in everywhere().await {
        let parts = vec![
            Part::text("one, zwei, três"),
            Part::raw(*b"\x00\xff").filename("a.bin").media_type("application/x-bytes"),
            Part::url("https://example.com/b.png").media_type("image/png"),
            Part::data(&json!({"n": [1, null, "x"]})).unwrap(),
            Part::data(&json!([1, 2])).unwrap(),
            Part::data("lone").unwrap(),
        ];
        let task = sent(soon(agent.send(parts.clone())).await.unwrap());
        assert_eq!((task.status.state, &task.artifacts[0].parts), (TaskState::Completed, &parts), "{wire}");
        let Reply::Message(message) = agent.send("message hi").await.unwrap() else {
            panic!("{wire}: a task")
        };
        assert_eq!(message.text(), "message hi", "{wire}");
    }
}

#[tokio::test]
async fn tasks_are_read_listed_followed_and_canceled() {
    for (wire, agent) in everywhere().await {
        let begun = sent(agent.send(Outgoing::new("wait").context("c").return_immediately()).await.unwrap());
        assert!(!begun.status.state.is_terminal(), "{wire}");
        let mut events = agent.subscribe(begun.id.clone()).await.unwrap();
        assert_eq!(task(&next(&mut events).await).id, begun.id, "{wire}");
        assert_eq!(agent.get(begun.id.clone()).await.unwrap().id, begun.id, "{wire}");
        let query = ListTasksRequest { context_id: Some("c".into()), ..ListTasksRequest::default() };
        if lists(wire) {
            assert_eq!(agent.list(query.clone()).await.unwrap().total_size, 1, "{wire}");
        }
        assert_eq!(agent.cancel(begun.id.clone()).await.unwrap().status.state, TaskState::Canceled, "{wire}");
        let told = gists(&rest(&mut events).await.unwrap());
        assert_eq!(told.last().unwrap(), "status TASK_STATE_CANCELED", "{wire}");
        let working = ListTasksRequest { status: TaskState::Working, ..query };
        if lists(wire) {
            assert_eq!(agent.list(working).await.unwrap().total_size, 0, "{wire}");
        }
    }
}

#[tokio::test]
async fn a_stream_has_the_same_events_over_every_interface() {
    for (wire, agent) in everywhere().await {
        let mut events = soon(agent.stream("count 2")).await.unwrap();
        let expected = [
            "task TASK_STATE_SUBMITTED",
            "status TASK_STATE_WORKING",
            "artifact 0 ",
            "artifact 1 ",
            "artifact 2",
            "status TASK_STATE_COMPLETED",
        ];
        assert_eq!(gists(&rest(&mut events).await.unwrap()), expected, "{wire}");
        let texts = soon(agent.stream("count 3").await.unwrap().texts()).await.unwrap();
        assert_eq!((texts.all().as_str(), texts.state()), ("0 1 2 3", Some(TaskState::Completed)), "{wire}");
    }
}

#[tokio::test]
async fn what_an_agent_asks_is_answered() {
    for (wire, agent) in everywhere().await {
        let asked = sent(agent.send(Outgoing::new("ask").context("dinner")).await.unwrap());
        assert_eq!(asked.status.state, TaskState::InputRequired, "{wire}");
        let answered = sent(agent.answer(&asked, "leeks").await.unwrap());
        assert_eq!((&answered.id, answered.status.state), (&asked.id, TaskState::Completed), "{wire}");
        assert_eq!(answered.context_id, asked.context_id, "{wire}");
    }
}

#[tokio::test]
async fn webhooks_are_kept_listed_and_forgotten() {
    for (wire, agent) in everywhere().await {
        let id = sent(agent.send("hi").await.unwrap()).id;
        let webhook = TaskPushNotificationConfig {
            id: Some("mine".to_owned()),
            url: "https://hooks.example.com/a2a".to_owned(),
            token: Some("t-1".to_owned()),
            authentication: Some(AuthenticationInfo {
                scheme: "Bearer".to_owned(),
                credentials: Some("s3".to_owned()),
            }),
            ..TaskPushNotificationConfig::default()
        };
        let created = agent.create_webhook(id.clone(), webhook.clone()).await.unwrap();
        assert_eq!((created.id.as_deref(), created.task_id.as_ref()), (Some("mine"), Some(&id)), "{wire}");
        let read = agent.webhook(id.clone(), "mine").await.unwrap();
        assert_eq!((read.url, read.task_id.as_ref()), (webhook.url, Some(&id)), "{wire}");
        let all: Vec<_> = agent.webhooks(id.clone()).try_collect().await.unwrap();
        assert_eq!(all.len(), 1, "{wire}");
        for _ in 0..2 {
            agent.delete_webhook(id.clone(), "mine").await.unwrap();
        }
        let error = agent.webhook(id.clone(), "mine").await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{wire}");
    }
}

#[tokio::test]
async fn a_refusal_has_its_kind_everywhere() {
    for (wire, agent) in everywhere().await {
        let error = agent.get("unknown").await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{wire}");
        assert_eq!(error.remote().unwrap().metadata["taskId"], "unknown", "{wire}");
        let done = sent(agent.send("hi").await.unwrap());
        let error = agent.cancel(done.id.clone()).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TaskNotCancelable), "{wire}");
        let error = agent.stream(Outgoing::new("hi").task("unknown")).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{wire}: before the stream begins");
        if !lists(wire) {
            let error = agent.list(ListTasksRequest::default()).await.unwrap_err();
            assert!(matches!(error, ClientError::Invalid(_)), "{wire}: {error}");
            continue;
        }
        let error =
            agent.list(ListTasksRequest { page_size: Some(1000), ..Default::default() }).await.unwrap_err();
        assert_eq!(error.remote().unwrap().field_violations[0].field, "pageSize", "{wire}");
    }
}
