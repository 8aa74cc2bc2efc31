//! A task exists for its owner only. A response to any other caller is the same, byte for byte, as if the task did not exist.

use attache_core::{Turn, agent_fn};
use attache_protocol::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Dialect, ErrorKind,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, Request,
    SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig,
};

use crate::support::{Client, Host, Script, Step, history, host, on_the_wire, say, status_text};

fn asking() -> Host {
    host(Script(vec![Step::Ask("which one?".into())]))
}

/// Every operation that names a task, with and without optional arguments.
fn all_requests(task: &Task) -> Vec<Request> {
    let (id, task_id) = (task.id.clone(), task.id.clone());
    let message = say("hi").to(task);
    let webhook = TaskPushNotificationConfig {
        id: Some("hook".to_owned()),
        task_id: Some(id.clone()),
        url: "https://example.com/hook".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let context = task.context_id.as_ref().unwrap().as_str();
    let with_webhook = message.clone().configured(|configuration| {
        configuration.task_push_notification_config = Some(Box::new(webhook.clone()))
    });
    vec![
        Request::SendMessage(Box::new(message.clone().0)),
        Request::SendMessage(Box::new(message.clone().at_once().0)),
        Request::SendMessage(Box::new(message.clone().in_context(context).0)),
        Request::SendMessage(Box::new(message.clone().in_context("wrong").0)),
        Request::SendMessage(Box::new(with_webhook.0)),
        Request::SendMessage(Box::new(message.clone().configured(|c| c.if_generation_match = Some(77)).0)),
        Request::SendStreamingMessage(Box::new(message.0)),
        Request::GetTask(GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() }),
        Request::GetTask(GetTaskRequest {
            id: id.clone(),
            current_generation: Some(1),
            ..GetTaskRequest::default()
        }),
        Request::CancelTask(CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() }),
        Request::SubscribeToTask(SubscribeToTaskRequest { id, ..SubscribeToTaskRequest::default() }),
        Request::CreateTaskPushNotificationConfig(webhook),
        Request::GetTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest {
            task_id: task_id.clone(),
            id: "hook".to_owned(),
            ..GetTaskPushNotificationConfigRequest::default()
        }),
        Request::ListTaskPushNotificationConfigs(ListTaskPushNotificationConfigsRequest {
            task_id: task_id.clone(),
            ..ListTaskPushNotificationConfigsRequest::default()
        }),
        Request::DeleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest {
            task_id,
            id: "hook".to_owned(),
            ..DeleteTaskPushNotificationConfigRequest::default()
        }),
    ]
}

async fn refusal(client: &Client, request: Request) -> String {
    let operation = request.operation();
    let Err(error) = client.call(request).await else {
        panic!("{operation:?} was carried out for a stranger")
    };
    assert_eq!(error.kind(), ErrorKind::TaskNotFound, "{operation:?}");
    on_the_wire(&error)
}

#[tokio::test(start_paused = true)]
async fn a_foreign_task_gives_the_same_bytes_as_one_that_does_not_exist() {
    // In one service the task belongs to another caller. In the other service it never existed.
    let (house, empty) = (asking(), asking());
    let ann = house.user("ann").in_tenant("red");
    let task = ann.send(say("a cake")).await;
    let strangers = |house: &Host| {
        [
            house.client(),
            house.client().in_tenant("red"),
            house.user("bob").in_tenant("red"),
            house.user("ann"),
            house.user("ann").in_tenant("blue"),
            house.user("bob").in_tenant("red").with_generations(),
        ]
    };
    for (here, there) in strangers(&house).iter().zip(strangers(&empty)) {
        for request in all_requests(&task) {
            assert_eq!(refusal(here, request.clone()).await, refusal(&there, request).await);
        }
    }
    assert_eq!(ann.get(&task.id).await, task, "a stranger left a trace");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_task_that_has_ended_gives_the_same_bytes_too() {
    let (house, empty) = (host(Script(vec![])), asking());
    let task = house.user("ann").send(say("a cake")).await;
    for request in all_requests(&task) {
        let there = refusal(&empty.user("bob"), request.clone()).await;
        assert_eq!(refusal(&house.user("bob"), request).await, there);
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_can_do_all_of_it() {
    let host = asking();
    let ann = host.user("ann").in_tenant("red").with_generations();
    let task = ann.send(say("a cake")).await;
    for request in all_requests(&task) {
        if let Err(error) = ann.call(request).await {
            assert_ne!(error.kind(), ErrorKind::TaskNotFound, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_of_another_caller_shows_none_of_its_tasks() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.ask(format!("{} before", turn.task().map_or(0, |task| task.history.len()))).await
    }));
    let (ann, bob) = (host.user("ann"), host.user("bob"));
    ann.send(say("secret").in_context("c")).await;
    let task = bob.send(say("hi").in_context("c")).await;
    assert_eq!((status_text(&task).as_str(), history(&task)), ("0 before", vec!["hi".to_owned()]));
    assert_eq!(bob.list_all().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_shown_only_referenced_tasks_of_its_caller() {
    let host = host(agent_fn(|turn: Turn| async move {
        let known: Vec<_> = turn.referenced_tasks().await?.iter().map(|task| task.id.to_string()).collect();
        turn.complete_with(known.join(",")).await
    }));
    let (ann, bob) = (host.user("ann"), host.user("bob"));
    let (hers, his) = (ann.send(say("hi")).await, bob.send(say("hi")).await);
    let mut message = say("compare");
    message.0.message.reference_task_ids = vec![hers.id.clone(), TaskId::from("nope"), his.id.clone()];
    assert_eq!(status_text(&bob.send(message).await), his.id.to_string());
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_shown_the_latest_tasks_of_its_caller_in_the_context() {
    let host = host(agent_fn(|turn: Turn| async move {
        let earlier = turn.earlier_tasks(2).await?;
        let said: Vec<_> = earlier.iter().flat_map(history).collect();
        turn.complete_with(said.join(",")).await
    }));
    let (ann, bob) = (host.user("ann"), host.user("bob"));
    ann.send(say("secret").in_context("c")).await;
    bob.send(say("elsewhere").in_context("d")).await;
    for (second, text, before) in [(1, "1", ""), (2, "2", "1"), (3, "3", "1,2"), (4, "4", "2,3")] {
        host.clock_at(1000 * second);
        let task = bob.send(say(text).in_context("c")).await;
        assert_eq!(status_text(&task), before);
    }
}

/// A caller with the dialect in which clients choose the ids of their tasks.
fn choosing(host: &Host, name: Option<&str>) -> Client {
    let mut client = name.map_or_else(|| host.client(), |name| host.user(name));
    client.caller.dialect = Some(Dialect::V0_1);
    client
}

fn chosen(id: &str) -> Task {
    Task { id: TaskId::from(id), ..Task::default() }
}

#[tokio::test(start_paused = true)]
async fn callers_who_choose_the_same_id_have_separate_tasks() {
    let host = asking();
    let mut made = Vec::new();
    for name in [None, Some("ann"), Some("bob")] {
        let client = choosing(&host, name);
        // The first response reveals nothing about other callers, and the id is free whatever they have done.
        let task = client.send(say("hi").to(&chosen("report"))).await;
        assert_eq!((history(&task), status_text(&task)), (vec!["hi".to_owned()], "which one?".to_owned()));
        assert_eq!(task.id.chosen(), "report");
        let again = client.send(say("this one").to(&chosen("report"))).await;
        assert_eq!((&again.id, history(&again).len()), (&task.id, 3));
        made.push((client, task));
    }
    for (client, task) in &made {
        let tasks = client.list_all().await;
        assert_eq!(tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&task.id]);
        // The other dialects find the task by that id, too. No other caller finds it by the stored id.
        assert_eq!(client.get(&TaskId::from("report")).await.id, task.id);
        let scoped = made.iter().filter(|(_, other)| other.id != task.id && other.id.is_scoped());
        for (other, others) in scoped {
            let error = client.cancel(&others.id).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TaskNotFound);
            assert_ne!(other.get(&others.id).await.status.state, attache_protocol::TaskState::Canceled);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_cannot_take_the_id_that_another_caller_may_choose() {
    let host = asking();
    let ann = choosing(&host, Some("ann"));
    let stored = ann.send(say("hi").to(&chosen("probe"))).await.id;
    let scope = stored.as_str().strip_prefix("probe").unwrap().to_owned();
    for name in [None, Some("bob")] {
        // The stored id of ann's next task.
        let target = format!("report{scope}");
        let squatted = choosing(&host, name).send(say("mine").to(&chosen(&target))).await;
        assert_ne!(squatted.id.as_str(), target);
        assert_eq!(squatted.id.chosen(), target);
    }
    let report = ann.send(say("hers").to(&chosen("report"))).await;
    assert_eq!(history(&report), ["hers"]);
}
