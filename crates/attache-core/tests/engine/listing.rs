//! Listings: the tasks of a caller, latest first, in pages.

use attache_core::{Turn, agent_fn};
use attache_protocol::{ContextId, ErrorKind, ListTasksRequest, Task, TaskState, Timestamp};

use crate::support::{CLOCK_START, Client, Host, Script, Step, history, host, say};

/// An agent that leaves a task in the state that the message names.
fn stateful() -> Host {
    host(agent_fn(|turn: Turn| async move {
        turn.artifact("a").text("x").await?;
        match turn.text().as_str() {
            "ask" => turn.ask("?").await,
            "reject" => turn.reject("no").await,
            _ => turn.complete().await,
        }
    }))
}

fn ids(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

fn page_of(size: i32) -> ListTasksRequest {
    ListTasksRequest { page_size: Some(size), ..ListTasksRequest::default() }
}

/// Five tasks, a second apart.
async fn five(host: &Host, client: &Client) -> Vec<Task> {
    let mut tasks = Vec::new();
    for number in 0..5 {
        host.clock_at(number * 1_000);
        tasks.push(client.send(say("hi").in_context(if number % 2 == 0 { "even" } else { "odd" })).await);
    }
    tasks.reverse();
    tasks
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_latest_status_first() {
    let host = stateful();
    let client = host.client();
    let first = client.send(say("ask")).await;
    host.clock_at(1_000);
    let second = client.send(say("ask")).await;
    assert_eq!(ids(&client.list_all().await), ids(&[second.clone(), first.clone()]));
    host.clock_at(2_000);
    client.send(say("ask").to(&first)).await;
    assert_eq!(ids(&client.list_all().await), ids(&[first, second]));
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_has_no_tasks_and_no_next_page() {
    let host = stateful();
    let page = host.client().list(ListTasksRequest::default()).await.unwrap();
    assert_eq!((page.tasks.len(), page.next_page_token.as_str()), (0, ""));
    assert_eq!((page.page_size, page.total_size), (50, 0));
}

#[tokio::test(start_paused = true)]
async fn pages_together_hold_each_task_once_and_the_last_has_no_next() {
    let host = stateful();
    let client = host.client();
    let tasks = five(&host, &client).await;
    for size in 1..=6 {
        let (mut seen, mut request) = (Vec::new(), page_of(size));
        loop {
            let page = client.list(request.clone()).await.unwrap();
            assert!(page.tasks.len() <= size as usize);
            assert_eq!((page.page_size, page.total_size), (size, 5));
            seen.extend(page.tasks);
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = Some(page.next_page_token);
        }
        assert_eq!(ids(&seen), ids(&tasks), "{size} to a page");
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_page_that_is_full_has_no_next() {
    let host = stateful();
    let client = host.client();
    five(&host, &client).await;
    assert_eq!(client.list(page_of(5)).await.unwrap().next_page_token, "");
}

#[tokio::test(start_paused = true)]
async fn filters_narrow_a_list_and_its_total_together() {
    let host = stateful();
    let client = host.client();
    let tasks = five(&host, &client).await;
    host.clock_at(9_000);
    let asking = client.send(say("ask").in_context("odd")).await;
    let listed = async |request: ListTasksRequest| {
        let page = client.list(request).await.unwrap();
        assert_eq!(page.total_size as usize, page.tasks.len());
        page.tasks
    };
    let odd = ListTasksRequest { context_id: Some(ContextId::from("odd")), ..ListTasksRequest::default() };
    assert_eq!(ids(&listed(odd.clone()).await), ids(&[asking.clone(), tasks[1].clone(), tasks[3].clone()]));
    let odd_and_done = ListTasksRequest { status: TaskState::Completed, ..odd };
    assert_eq!(ids(&listed(odd_and_done.clone()).await), ids(&[tasks[1].clone(), tasks[3].clone()]));
    let since = Some(Timestamp::from_millis(CLOCK_START + 3_000));
    let recent = ListTasksRequest { status_timestamp_after: since, ..odd_and_done };
    assert_eq!(ids(&listed(recent).await), ids(&[tasks[1].clone()]));
    let nowhere = ListTasksRequest { context_id: Some(ContextId::from("?")), ..ListTasksRequest::default() };
    assert!(listed(nowhere).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_time_filter_includes_its_own_moment_and_reaches_any_year() {
    let host = stateful();
    let client = host.client();
    client.send(say("hi")).await;
    for (since, found) in [
        ("0001-01-01T00:00:00Z", 1),
        ("1600-01-01T00:00:00Z", 1),
        ("1970-01-01T00:00:00Z", 1),
        ("2026-01-01T20:40:00Z", 1),
        ("2026-01-01T20:40:00.000000001Z", 0),
        ("2300-01-01T00:00:00Z", 0),
        ("9999-12-30T00:00:00Z", 0),
    ] {
        let since = Some(since.parse().unwrap());
        let request = ListTasksRequest { status_timestamp_after: since, ..ListTasksRequest::default() };
        assert_eq!(client.list(request).await.unwrap().total_size, found, "{since:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_leaves_the_list_of_its_old_state() {
    let host = stateful();
    let client = host.client();
    let task = client.send(say("ask")).await;
    let count = async |state| {
        let request = ListTasksRequest { status: state, ..ListTasksRequest::default() };
        client.list(request).await.unwrap().total_size
    };
    assert_eq!((count(TaskState::InputRequired).await, count(TaskState::Rejected).await), (1, 0));
    client.send(say("reject").to(&task)).await;
    assert_eq!((count(TaskState::InputRequired).await, count(TaskState::Rejected).await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_page_token_stays_valid_when_tasks_change() {
    let host = host(Script(vec![Step::Ask("?".into())]));
    let client = host.client();
    let tasks = five(&host, &client).await;
    let page = client.list(page_of(2)).await.unwrap();
    assert_eq!(ids(&page.tasks), ids(&tasks[..2]));
    // The task at the position of the token and one of a later page get a new status and move to the front.
    host.clock_at(60_000);
    client.send(say("again").to(&tasks[1])).await;
    client.send(say("again").to(&tasks[3])).await;
    let next = ListTasksRequest { page_token: Some(page.next_page_token), ..page_of(2) };
    let page = client.list(next).await.unwrap();
    assert_eq!(ids(&page.tasks), ids(&[tasks[2].clone(), tasks[4].clone()]));
    assert_eq!((page.next_page_token.as_str(), page.total_size), ("", 5));
}

#[tokio::test(start_paused = true)]
async fn a_page_token_from_another_caller_is_refused() {
    let host = stateful();
    let (ann, bob) = (host.user("ann"), host.user("bob"));
    for client in [&ann, &bob, &ann.clone().in_tenant("t")] {
        five(&host, client).await;
    }
    let token = Some(ann.list(page_of(2)).await.unwrap().next_page_token);
    for stranger in [bob, ann.in_tenant("t"), host.client()] {
        let error =
            stranger.list(ListTasksRequest { page_token: token.clone(), ..page_of(2) }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert_eq!(error.field_violations()[0].field, "pageToken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_token_for_other_filters_is_refused() {
    let host = stateful();
    let client = host.client();
    five(&host, &client).await;
    let page_token = Some(client.list(page_of(2)).await.unwrap().next_page_token);
    let request = ListTasksRequest { page_token, ..page_of(2) };
    for other in [
        ListTasksRequest { context_id: Some(ContextId::from("odd")), ..request.clone() },
        ListTasksRequest { status: TaskState::Completed, ..request.clone() },
        ListTasksRequest { status_timestamp_after: Some(Timestamp::UNIX_EPOCH), ..request.clone() },
    ] {
        assert_eq!(client.list(other).await.unwrap_err().kind(), ErrorKind::InvalidParams);
    }
    // The shown parts and the page size may differ from page to page.
    let wider = ListTasksRequest { page_size: Some(3), include_artifacts: true, ..request };
    assert_eq!(client.list(wider).await.unwrap().tasks.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_page_token_is_refused() {
    let host = stateful();
    let client = host.client();
    five(&host, &client).await;
    let token = client.list(page_of(2)).await.unwrap().next_page_token;
    // A token is 24 bytes in base64.
    assert_eq!(token.len(), 32);
    for bad in [
        "x",
        "0",
        "!!!",
        &token[1..],
        &format!("{token}A"),
        &format!("{token}AA"),
        &"A".repeat(token.len()),
        &"A".repeat(10_000),
    ] {
        let request = ListTasksRequest { page_token: Some(bad.to_owned()), ..page_of(2) };
        let error = client.list(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_size_out_of_bounds_is_refused() {
    let host = stateful();
    for size in [0, -1, 101, i32::MIN, i32::MAX] {
        assert_eq!(host.client().list(page_of(size)).await.unwrap_err().kind(), ErrorKind::InvalidParams);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_artifacts_only_if_asked_and_history_up_to_a_limit() {
    let host = stateful();
    let client = host.client();
    let task = client.send(say("ask")).await;
    client.send(say("hi").to(&task)).await;
    assert!(client.list_all().await[0].artifacts.is_empty());
    let request =
        ListTasksRequest { include_artifacts: true, history_length: Some(1), ..ListTasksRequest::default() };
    let listed = client.list(request).await.unwrap().tasks.remove(0);
    assert_eq!((listed.artifacts.len(), history(&listed)), (1, vec!["hi".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn owners_and_tenants_do_not_mix() {
    let host = stateful();
    let (ann, bob) = (host.user("ann"), host.user("bob"));
    let callers = [host.client(), ann.clone(), bob, ann.in_tenant("red"), host.client().in_tenant("red")];
    for (number, client) in callers.iter().enumerate() {
        for _ in 0..=number {
            client.send(say("hi").in_context("shared")).await;
        }
    }
    for (number, client) in callers.iter().enumerate() {
        let shared =
            ListTasksRequest { context_id: Some(ContextId::from("shared")), ..ListTasksRequest::default() };
        for request in [ListTasksRequest::default(), shared] {
            let page = client.list(request).await.unwrap();
            assert_eq!((page.tasks.len(), page.total_size as usize), (number + 1, number + 1));
        }
    }
    // A tenant in the request has the same effect as a tenant of the caller.
    let request = ListTasksRequest { tenant: Some("red".to_owned()), ..ListTasksRequest::default() };
    assert_eq!(host.client().list(request).await.unwrap().total_size, 5);
}

/// Tasks are indexed in batches. A listing must not miss the tasks of an unfinished batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_listed_as_soon_as_its_sender_knows_of_it() {
    let host = stateful();
    let mut callers = Vec::new();
    for name in ["ann", "bob", "cyd"] {
        let client = host.user(name);
        callers.push(tokio::spawn(async move {
            for sent in 1..=1_500 {
                client.send(say("hi")).await;
                let page = client.list(page_of(1)).await.unwrap();
                assert_eq!(page.total_size, sent);
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
}
