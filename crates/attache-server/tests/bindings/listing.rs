//! Listing and history: order, pages, filters, and how much of a task is shown.

use std::sync::Arc;

use attache_core::ManualClock;
use attache_protocol::Timestamp;
use serde_json::{Value, json};

use crate::support::{Binding, Running, player, playing, send, serve, text};

async fn list(server: &Running, filter: Value) -> Value {
    server.ask("ListTasks", filter).ok(Binding::JsonRpc).await
}

fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().into_iter().flatten();
    tasks.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// All ids, page after page.
async fn walk(server: &Running, binding: Binding, mut filter: Value) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let page = server.ask("ListTasks", filter.clone()).ok(binding).await;
        all.extend(ids(&page));
        match page["nextPageToken"].as_str() {
            // ProtoJSON of the published SDK leaves an empty one out.
            None | Some("") => return all,
            Some(token) => filter["pageToken"] = json!(token),
        }
    }
}

/// A server whose time stands still until it is moved.
async fn timed(start: &str) -> (Running, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(start.parse().unwrap()));
    (serve(player().clock(clock.clone())).await, clock)
}

#[tokio::test]
async fn tasks_come_latest_first_and_each_exactly_once() {
    let (server, clock) = timed("2026-01-01T00:00:00Z").await;
    let mut made = Vec::new();
    for i in 0..23_i64 {
        // Three of each time, so that ties must be broken.
        clock.set(Timestamp::from_millis(1_767_225_600_000 + i / 3 * 1000));
        made.push(server.task("hi").await);
    }
    for binding in Binding::ALL {
        let whole = walk(&server, binding, json!({})).await;
        assert_eq!(whole.len(), 23);
        for size in [1, 3, 4, 23, 100] {
            assert_eq!(walk(&server, binding, json!({"pageSize": size})).await, whole, "{binding:?} {size}");
        }
        let time =
            |id: &String| made.iter().find(|task| task["id"] == **id).unwrap()["status"]["timestamp"].clone();
        let times: Vec<_> = whole.iter().map(|id| time(id).as_str().unwrap().to_owned()).collect();
        assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    }
}

#[tokio::test]
async fn all_four_members_of_a_page_are_always_there() {
    let server = playing().await;
    let empty = json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0});
    assert_eq!(list(&server, json!({})).await, empty);
    assert_eq!(server.rest("GET", "/tasks", None).await.json(), empty);
    let mut grpc = server.grpc().await;
    let page = grpc.inner.list_tasks(a2a_pb::proto::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!((page.page_size, page.total_size, page.next_page_token.as_str()), (50, 0, ""));

    for _ in 0..4 {
        server.task("hi").await;
    }
    let full = list(&server, json!({"pageSize": 4})).await;
    assert_eq!(
        (&full["nextPageToken"], &full["pageSize"], &full["totalSize"]),
        (&json!(""), &json!(4), &json!(4))
    );
    let first = list(&server, json!({"pageSize": 2})).await;
    assert_eq!((ids(&first).len(), &first["pageSize"], &first["totalSize"]), (2, &json!(2), &json!(4)));
    assert_ne!(first["nextPageToken"], "");
    let last = list(&server, json!({"pageSize": 2, "pageToken": first["nextPageToken"]})).await;
    assert_eq!((ids(&last).len(), &last["nextPageToken"]), (2, &json!("")), "the last page is exactly full");
}

#[tokio::test]
async fn a_page_has_between_1_and_100_tasks() {
    let server = playing().await;
    for size in [1, 100] {
        for binding in Binding::ALL {
            assert_eq!(
                server.ask("ListTasks", json!({"pageSize": size})).ok(binding).await["pageSize"],
                size
            );
        }
    }
    for size in [0, -1, 101, i32::MAX, i32::MIN] {
        for binding in Binding::ALL {
            let refusal = server.ask("ListTasks", json!({"pageSize": size})).refused(binding).await;
            assert_eq!(refusal.fields, ["pageSize"], "{size} {binding:?}");
        }
    }
}

#[tokio::test]
async fn a_page_token_is_good_for_the_listing_that_it_came_from_only() {
    let server = playing().await;
    for _ in 0..3 {
        server.task("hi").await;
    }
    let token = list(&server, json!({"pageSize": 1})).await["nextPageToken"].as_str().unwrap().to_owned();
    let other_size = json!({"pageSize": 2, "pageToken": token});
    assert_eq!(ids(&list(&server, other_size).await).len(), 2, "how many is no filter");
    for filter in [
        json!({"pageToken": "garbage"}),
        json!({"pageToken": token[1..]}),
        json!({"pageToken": format!("{token}AA")}),
        json!({"pageToken": token, "status": "TASK_STATE_FAILED"}),
        json!({"pageToken": token, "contextId": "c"}),
        json!({"pageToken": token, "tenant": "acme"}),
    ] {
        for binding in Binding::ALL {
            let refusal = server.ask("ListTasks", filter.clone()).refused(binding).await;
            assert_eq!(
                (refusal.reason.as_str(), refusal.fields),
                ("INVALID_PARAMS", vec!["pageToken".to_owned()]),
                "{filter}"
            );
        }
    }
}

#[tokio::test]
async fn a_page_token_survives_what_happens_to_the_task_that_it_points_at() {
    let (server, clock) = timed("2026-01-01T00:00:00Z").await;
    let mut made = Vec::new();
    for second in 0..4 {
        clock.set(Timestamp::from_millis(1_767_225_600_000 + second * 1000));
        made.push(server.task("ask").await["id"].as_str().unwrap().to_owned());
    }
    let first = list(&server, json!({"pageSize": 2})).await;
    assert_eq!(ids(&first), [made[3].clone(), made[2].clone()]);
    clock.set(Timestamp::from_millis(1_767_225_700_000));
    let mut answer = send("go on");
    answer["message"]["taskId"] = json!(made[2]);
    server.sent(answer).await;
    let rest = list(&server, json!({"pageSize": 2, "pageToken": first["nextPageToken"]})).await;
    assert_eq!(ids(&rest), [made[1].clone(), made[0].clone()]);
}

#[tokio::test]
async fn since_includes_the_moment_itself_to_the_nanosecond() {
    let (server, _clock) = timed("2026-01-01T00:00:00.000000001Z").await;
    let task = server.task("hi").await;
    assert_eq!(task["status"]["timestamp"], "2026-01-01T00:00:00.000000001Z");
    for (after, found) in [
        ("2026-01-01T00:00:00.000000001Z", 1),
        ("2026-01-01T01:00:00.000000001+01:00", 1),
        ("2026-01-01T00:00:00Z", 1),
        ("2026-01-01T00:00:00.000000002Z", 0),
        ("2026-01-01T00:00:00.001Z", 0),
    ] {
        for binding in Binding::ALL {
            let page = server.ask("ListTasks", json!({"statusTimestampAfter": after})).ok(binding).await;
            assert_eq!(ids(&page).len(), found, "{after} {binding:?}");
        }
    }
}

#[tokio::test]
async fn filters_are_all_met_at_once() {
    let server = playing().await;
    for (verb, context) in [("hi", "c1"), ("fail", "c1"), ("hi", "c2"), ("ask", "c2")] {
        let mut params = send(verb);
        params["message"]["contextId"] = json!(context);
        server.sent(params).await;
    }
    for (filter, found) in [
        (json!({}), 4),
        (json!({"contextId": "c1"}), 2),
        (json!({"contextId": ""}), 4),
        (json!({"contextId": "unknown"}), 0),
        (json!({"status": "TASK_STATE_COMPLETED"}), 2),
        (json!({"status": "TASK_STATE_UNSPECIFIED"}), 4),
        (json!({"status": "TASK_STATE_COMPLETED", "contextId": "c2"}), 1),
        (json!({"status": "TASK_STATE_WORKING"}), 0),
        (json!({"status": "TASK_STATE_INPUT_REQUIRED", "statusTimestampAfter": "2001-01-01T00:00:00Z"}), 1),
        (json!({"tenant": "acme"}), 0),
    ] {
        for binding in Binding::ALL {
            let page = server.ask("ListTasks", filter.clone()).ok(binding).await;
            assert_eq!(ids(&page).len(), found, "{filter} {binding:?}");
        }
        assert_eq!(list(&server, filter.clone()).await["totalSize"], found, "{filter}");
    }
}

#[tokio::test]
async fn artifacts_are_listed_only_when_asked_for() {
    let server = playing().await;
    server.task("hi").await;
    server.task("ask").await;
    for binding in Binding::ALL {
        for (filter, shown) in
            [(json!({}), 0), (json!({"includeArtifacts": false}), 0), (json!({"includeArtifacts": true}), 1)]
        {
            let page = server.ask("ListTasks", filter.clone()).ok(binding).await;
            let with = page["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|task| task.get("artifacts").is_some())
                .count();
            assert_eq!(with, shown, "{filter} {binding:?}");
        }
    }
}

#[tokio::test]
async fn history_is_cut_to_the_latest_messages_wherever_it_is_shown() {
    let server = playing().await;
    let task = server.task("ask").await;
    let mut answer = send("the answer");
    answer["message"]["taskId"] = task["id"].clone();
    server.sent(answer).await;
    let whole = ["ask", "what exactly?", "the answer"];
    for binding in Binding::ALL {
        for (length, expected) in [(0, 0), (1, 1), (2, 2), (3, 3), (99, 3)] {
            let read =
                server.ask("GetTask", json!({"id": task["id"], "historyLength": length})).ok(binding).await;
            let listed =
                server.ask("ListTasks", json!({"contextId": task["contextId"], "historyLength": length}));
            let listed = listed.ok(binding).await["tasks"][0].clone();
            for shown in [&read, &listed] {
                assert_eq!(shown.get("history").is_some(), expected > 0, "{length} {binding:?}");
                let said: Vec<_> = shown["history"].as_array().into_iter().flatten().map(text).collect();
                assert_eq!(said, whole[3 - expected..], "{length} {binding:?}");
            }
        }
        for (length, shown) in [(0, 0), (1, 1), (5, 1)] {
            let mut params = send("hi");
            params["configuration"] = json!({"historyLength": length});
            let sent = server.ask("SendMessage", params.clone()).ok(binding).await;
            assert_eq!(sent["task"]["history"].as_array().map_or(0, Vec::len), shown, "{length} {binding:?}");
            let events = server.ask("SendStreamingMessage", params).ok(binding).await;
            assert_eq!(
                events[0]["task"]["history"].as_array().map_or(0, Vec::len),
                shown,
                "{length} {binding:?}"
            );
        }
    }
}
