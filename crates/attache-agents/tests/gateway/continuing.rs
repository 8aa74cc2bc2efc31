//! Several messages: questions, contexts, credentials and cancels.

use attache_client::{Binding, Client, Interface, Outgoing};
use attache_protocol::{Message, TaskState, Version};
use attache_server::Server;
use attache_server::auth::KnownCallers;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_continues_the_remote_task_in_every_version() {
    for version in [Version::V1_0, Version::V0_3] {
        let mut chain = chain_with(remote_card(), |options| {
            options.client.interfaces = vec![Interface { binding: Binding::JsonRpc, version: Some(version) }];
        })
        .await;
        let asked = send(&chain.client, "ask which color?").await;
        assert_eq!((asked.status.state, words(&asked).as_str()), (TaskState::InputRequired, "which color?"));
        let first = chain.reports.message().await;
        let asked = send(&chain.client, Outgoing::new("ask which size?").answering(&asked)).await;
        assert_eq!((asked.status.state, words(&asked).as_str()), (TaskState::InputRequired, "which size?"));
        let second = chain.reports.message().await;
        let task = send(&chain.client, Outgoing::new("large").answering(&asked)).await;
        let third = chain.reports.message().await;
        assert_eq!(
            (task.status.state, texts(&task, "answer")),
            (TaskState::Completed, vec!["large".to_owned()])
        );
        assert_eq!((&first.task_id, &second.task_id), (&second.task_id, &third.task_id));
        assert_eq!(first.context_id, third.context_id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_context_of_a_caller_is_one_remote_context() {
    let (script, mut reports) = Script::new();
    let remote = start_remote(script).await;
    let store = new_store();
    let options = quick_options(&remote.url(), store.clone());
    let gateway = TestServer::start(move || async move {
        let gateway = attache_agents::gateway::Gateway::connect(options).await.unwrap();
        let callers = KnownCallers::new().bearer("alice", "a").bearer("bob", "b");
        Server::new(gateway).card(remote_card()).shared_store(store).authenticate(callers).bind("127.0.0.1:0")
    })
    .await;
    let mut contexts = Vec::new();
    for token in ["a", "a", "b"] {
        let credentials = attache_client::SchemeCredentials::new().token(token);
        let options = attache_client::ClientOptions::default().with_credentials(credentials);
        let client = Client::connect_with(&gateway.url(), options).await.unwrap();
        send(&client, Outgoing::new("hi").context("dinner")).await;
        contexts.push(reports.message().await.context_id.unwrap());
    }
    assert_eq!(contexts[0], contexts[1], "the same caller");
    assert_ne!(contexts[0], contexts[2], "another caller with the same id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_on_when_the_remote_agent_gets_credentials_on_another_way() {
    let mut chain = chain().await;
    let task = send(&chain.client, immediately("auth")).await;
    let task = reaches(&chain.client, &task, TaskState::AuthRequired).await;
    assert_eq!(words(&task), "log in");
    chain.reports.message().await;
    chain.script.gate.add_permits(1);
    let task = reaches(&chain.client, &task, TaskState::Completed).await;
    assert_eq!(texts(&task, "answer"), ["logged in"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_can_come_with_a_message() {
    let mut chain = chain().await;
    let task = send(&chain.client, "need").await;
    assert_eq!((task.status.state, words(&task).as_str()), (TaskState::AuthRequired, "send a password"));
    let task = send(&chain.client, Outgoing::new("open sesame").answering(&task)).await;
    assert_eq!(
        (task.status.state, texts(&task, "answer")),
        (TaskState::Completed, vec!["open sesame".to_owned()])
    );
    assert_eq!(chain.reports.message().await.task_id, chain.reports.message().await.task_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_remote_task() {
    let mut chain = chain().await;
    let task = send(&chain.client, immediately("wait")).await;
    chain.reports.message().await;
    let task = in_time(chain.client.cancel(task.id)).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    chain.reports.canceled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_a_remote_task_that_waits_for_an_answer() {
    let mut chain = chain().await;
    let task = send(&chain.client, "ask which?").await;
    let sent = chain.reports.message().await;
    let remote = Client::connect(&chain._remote.url()).await.unwrap();
    in_time(chain.client.cancel(task.id)).await.unwrap();
    let ended = in_time(remote.wait_until(sent.task_id.unwrap(), |_| false)).await.unwrap();
    assert_eq!(ended.status.state, TaskState::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_contexts_at_once_do_not_mix() {
    let chain = chain().await;
    let talks = (0..100).map(|number| {
        let client = chain.client.clone();
        async move {
            let message =
                Message { context_id: Some(format!("c{number}").into()), ..Message::user("m", "ask again?") };
            let asked = send(&client, message).await;
            let task = send(&client, Outgoing::new(format!("text {number}")).answering(&asked)).await;
            assert_eq!(task.context_id, Some(format!("c{number}").into()));
            assert_eq!(texts(&task, "answer"), [format!("text {number}")]);
        }
    });
    futures::future::join_all(talks).await;
}
