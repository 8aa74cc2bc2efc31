//! The webhooks of a task: stored, replaced, listed and deleted, without revealing their secrets.

use attache_core::{PushEvents, Reply, Webhook};
use attache_protocol::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, Request, Task, TaskPushNotificationConfig,
};

use crate::support::{Client, Host, Script, Step, host, host_with, say};

fn asking() -> Host {
    host(Script(vec![Step::Ask("?".into())]))
}

fn webhook(task: &Task, id: Option<&str>) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: id.map(str::to_owned),
        task_id: Some(task.id.clone()),
        url: "https://example.com/hook".to_owned(),
        token: Some("sesame".to_owned()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".to_owned()),
        }),
        ..TaskPushNotificationConfig::default()
    }
}

async fn get(client: &Client, task: &Task, id: &str) -> Result<TaskPushNotificationConfig, Error> {
    let task_id = task.id.clone();
    let request = GetTaskPushNotificationConfigRequest { task_id, id: id.to_owned(), ..Default::default() };
    let reply = client.call(Request::GetTaskPushNotificationConfig(request)).await?;
    let Reply::Push(config) = reply else { panic!("expected a webhook") };
    Ok(*config)
}

async fn list(
    client: &Client,
    task: &Task,
    page_size: Option<i32>,
    page_token: Option<String>,
) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
    let task_id = task.id.clone();
    let request =
        ListTaskPushNotificationConfigsRequest { task_id, page_size, page_token, ..Default::default() };
    let reply = client.call(Request::ListTaskPushNotificationConfigs(request)).await?;
    let Reply::Pushes(page) = reply else { panic!("expected webhooks") };
    Ok(page)
}

async fn ids(client: &Client, task: &Task) -> Vec<String> {
    let page = list(client, task, None, None).await.unwrap();
    page.configs.into_iter().filter_map(|config| config.id).collect()
}

async fn delete(client: &Client, task: &Task, id: &str) -> Result<(), Error> {
    let task_id = task.id.clone();
    let request =
        DeleteTaskPushNotificationConfigRequest { task_id, id: id.to_owned(), ..Default::default() };
    let reply = client.call(Request::DeleteTaskPushNotificationConfig(request)).await?;
    assert!(matches!(reply, Reply::Done));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_push_refuses_all_push_operations() {
    for declared in [None, Some(false)] {
        let agent = Script(vec![Step::Ask("?".into())]);
        let host = host_with(agent, |card, _| card.capabilities.push_notifications = declared);
        let client = host.client();
        let task = client.send(say("hi")).await;
        let refusals = [
            client.put_push(webhook(&task, None)).await.unwrap_err(),
            get(&client, &task, "a").await.unwrap_err(),
            list(&client, &task, None, None).await.unwrap_err(),
            delete(&client, &task, "a").await.unwrap_err(),
        ];
        assert!(refusals.iter().all(|error| error.kind() == ErrorKind::PushNotificationNotSupported));
        let inline =
            say("hi").configured(|c| c.task_push_notification_config = Some(Box::new(webhook(&task, None))));
        let error = client.try_send(inline).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PushNotificationNotSupported);
        assert_eq!(client.list_all().await.len(), 1, "a task was made for a message that was refused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_with_a_known_id_replaces_the_old_one() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    for id in ["a", "b"] {
        assert_eq!(client.put_push(webhook(&task, Some(id))).await.unwrap().id.as_deref(), Some(id));
    }
    let changed =
        TaskPushNotificationConfig { url: "https://example.org".to_owned(), ..webhook(&task, Some("a")) };
    client.put_push(changed).await.unwrap();
    assert_eq!(ids(&client, &task).await, ["a", "b"]);
    assert_eq!(get(&client, &task, "a").await.unwrap().url, "https://example.org");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_without_an_id_gets_one() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    let one = client.put_push(webhook(&task, None)).await.unwrap();
    let two = client.put_push(webhook(&task, None)).await.unwrap();
    assert_ne!(one.id, two.id);
    assert_eq!(ids(&client, &task).await, [one.id.clone().unwrap(), two.id.unwrap()]);
    assert_eq!(get(&client, &task, &one.id.clone().unwrap()).await.unwrap(), one);
    assert_eq!(one.task_id, Some(task.id));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_can_come_with_the_message() {
    let host = asking();
    let client = host.client();
    let mut inline = webhook(&client.send(say("hi")).await, Some("inline"));
    inline.task_id = None;
    let send =
        |say: crate::support::Say, config: TaskPushNotificationConfig| {
            client.send(say.configured(|configuration| {
                configuration.task_push_notification_config = Some(Box::new(config))
            }))
        };
    let task = send(say("hi"), inline.clone()).await;
    assert_eq!(get(&client, &task, "inline").await.unwrap().task_id.as_ref(), Some(&task.id));
    inline.id = Some("later".to_owned());
    send(say("this").to(&task), inline).await;
    assert_eq!(ids(&client, &task).await, ["inline", "later"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_can_have_webhooks() {
    let host = host(Script(vec![]));
    let client = host.client();
    let task = client.send(say("hi")).await;
    client.put_push(webhook(&task, Some("a"))).await.unwrap();
    assert_eq!(ids(&client, &task).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_stored_and_never_returned() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    let made = client.put_push(webhook(&task, Some("a"))).await.unwrap();
    let read = get(&client, &task, "a").await.unwrap();
    let listed = list(&client, &task, None, None).await.unwrap();
    let text = serde_json::to_string(&(&made, &read, &listed)).unwrap();
    assert!(!text.contains("sesame") && !text.contains("s3cret"), "{text}");
    assert_eq!(read.authentication.unwrap().scheme, "Bearer");
    let kept = host.store.outbox().webhooks(&task.id).await.unwrap();
    assert_eq!(
        kept,
        [Webhook {
            config: webhook(&task, Some("a")),
            events: PushEvents::States,
            dialect: None,
            trace_parent: None,
        }]
    );
    assert!(!format!("{kept:?}").contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_listed_in_pages() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    for number in 0..5 {
        client.put_push(webhook(&task, Some(&number.to_string()))).await.unwrap();
    }
    for size in 1..=6 {
        let (mut seen, mut token) = (Vec::new(), None);
        loop {
            let page = list(&client, &task, Some(size), token).await.unwrap();
            assert!(page.configs.len() <= size as usize);
            seen.extend(page.configs.into_iter().filter_map(|config| config.id));
            if page.next_page_token.is_empty() {
                break;
            }
            token = Some(page.next_page_token);
        }
        assert_eq!(seen, ["0", "1", "2", "3", "4"]);
    }
    let error = list(&client, &task, None, Some("nope".to_owned())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_can_be_deleted_twice() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("hi")).await;
    client.put_push(webhook(&task, Some("a"))).await.unwrap();
    for _ in 0..2 {
        delete(&client, &task, "a").await.unwrap();
        assert!(ids(&client, &task).await.is_empty());
        assert_eq!(get(&client, &task, "a").await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_belongs_to_one_task() {
    let host = asking();
    let client = host.client();
    let (mine, other) = (client.send(say("hi")).await, client.send(say("hi")).await);
    client.put_push(webhook(&mine, Some("a"))).await.unwrap();
    assert_eq!(get(&client, &other, "a").await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    delete(&client, &other, "a").await.unwrap();
    assert_eq!(ids(&client, &mine).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_webhooks_of_a_task_is_limited() {
    let host = host_with(Script(vec![Step::Ask("?".into())]), |_, options| options.max_push_configs = 2);
    let client = host.client();
    let task = client.send(say("hi")).await;
    for id in ["a", "b", "a"] {
        client.put_push(webhook(&task, Some(id))).await.unwrap();
    }
    assert_eq!(
        client.put_push(webhook(&task, Some("c"))).await.unwrap_err().kind(),
        ErrorKind::ResourceExhausted
    );
    let inline = say("this").to(&task).configured(|configuration| {
        configuration.task_push_notification_config = Some(Box::new(webhook(&task, Some("c"))));
    });
    assert_eq!(client.try_send(inline).await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
    assert_eq!(client.get(&task.id).await, task, "a message was taken that was refused");
    delete(&client, &task, "a").await.unwrap();
    client.put_push(webhook(&task, Some("c"))).await.unwrap();
    assert_eq!(ids(&client, &task).await, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_for_a_task_that_does_not_exist_is_refused() {
    let (host, other) = (asking(), asking());
    let foreign = other.client().send(say("hi")).await;
    let error = host.client().put_push(webhook(&foreign, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotFound);
}
