//! Paged lists.

use attache_client::{ClientError, Outgoing};
use attache_protocol::ListTasksRequest;
use futures::TryStreamExt;
use serde_json::json;

use crate::support::{Fake, connect, playing, rpc_result, soon};

#[tokio::test]
async fn all_pages_together_have_every_task_once() {
    let agent = playing().await;
    for number in 0..7 {
        agent.send(Outgoing::new(format!("task {number}")).context("c")).await.unwrap();
    }
    agent.send("another").await.unwrap();
    let context = Some("c".into());
    for page_size in [1, 3, 7, 100] {
        let query = ListTasksRequest {
            context_id: context.clone(),
            page_size: Some(page_size),
            ..Default::default()
        };
        let tasks: Vec<_> = soon(agent.tasks(query).try_collect()).await.unwrap();
        let mut ids: Vec<_> = tasks.iter().map(|task: &attache_protocol::Task| task.id.clone()).collect();
        assert_eq!(ids.len(), 7, "pages of {page_size}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 7, "pages of {page_size}");
    }
}

#[tokio::test]
async fn a_page_is_asked_for_only_when_it_is_read() {
    let fake = Fake::agent(|asked| {
        let token = asked.body["params"]["pageToken"].as_str().unwrap_or("0").parse::<u32>().unwrap();
        rpc_result(
            asked,
            &json!({"tasks": [{"id": format!("t{token}")}], "nextPageToken": (token + 1).to_string()}),
        )
    })
    .await;
    let agent = connect(&fake.url).await;
    let mut tasks = agent.tasks(ListTasksRequest::default());
    assert!(fake.calls().is_empty());
    for number in 0..3 {
        assert_eq!(soon(tasks.next()).await.unwrap().unwrap().id.as_str(), format!("t{number}"));
        assert_eq!(fake.calls().len(), number + 1);
    }
}

#[tokio::test]
async fn a_page_that_is_followed_by_itself_is_the_last() {
    let fake = Fake::agent(|asked| rpc_result(asked, &json!({"tasks": [], "nextPageToken": "again"}))).await;
    let mut tasks = connect(&fake.url).await.tasks(ListTasksRequest::default());
    let error = soon(tasks.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    assert!(tasks.next().await.is_none());
    assert_eq!(fake.calls().len(), 2);
}
