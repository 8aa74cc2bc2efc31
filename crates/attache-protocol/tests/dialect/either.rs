//! Responses to requests that could be of 0.3, iii or 0.1.

use std::borrow::Cow;

use attache_protocol::dialect::Response;
use attache_protocol::{AgentCard, AgentInterface, Dialect, StreamResponse, TaskState, binding};
use serde_json::{Value, json};

use crate::support::{self, chunk_of, page, rich_task, status_of, task, webhook};

const METHODS: [&str; 10] = [
    "tasks/get",
    "tasks/cancel",
    "tasks/list",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
    "agent/authenticatedExtendedCard",
];

fn written(response: &Response) -> Value {
    support::written(Dialect::Either, response)
}

/// Whether `large` has all members of `small`.
fn covers(large: &Value, small: &Value) -> bool {
    match (large, small) {
        (Value::Object(large), Value::Object(small)) => {
            small.iter().all(|(key, value)| large.get(key).is_some_and(|found| covers(found, value)))
        }
        (Value::Array(large), Value::Array(small)) => {
            large.len() == small.len() && large.iter().zip(small).all(|(large, small)| covers(large, small))
        }
        (large, small) => large == small,
    }
}

#[test]
fn methods_without_parts_belong_to_no_single_dialect() {
    for method in METHODS {
        assert_eq!(Dialect::of(method, br#"{"id":"t","kind":"x"}"#), Some(Dialect::Either), "{method}");
    }
}

#[test]
fn responses_are_written() {
    insta::assert_json_snapshot!("task", written(&Response::Task(Cow::Owned(task()))));
    insta::assert_json_snapshot!("tasks", written(&Response::Tasks(page())));
    insta::assert_json_snapshot!("rich_task", written(&Response::Task(Cow::Owned(rich_task()))));
    for response in [Response::Push(&(webhook())), Response::Done] {
        assert_eq!(written(&response), support::written(Dialect::V0_3, &response));
        assert_eq!(written(&response), support::written(Dialect::Iii, &response));
    }
}

#[test]
fn events_are_written() {
    let events = [StreamResponse::Task(task()), status_of(TaskState::Working), chunk_of("a-2")];
    insta::assert_json_snapshot!(support::events(Dialect::Either, &events));
}

#[test]
fn a_task_has_all_members_of_0_3_and_iii() {
    for task in [task(), rich_task()] {
        let response = Response::Task(Cow::Owned(task));
        let merged = written(&response);
        assert!(covers(&merged, &support::written(Dialect::V0_3, &response)));
        assert!(covers(&merged, &support::written(Dialect::Iii, &response)));
    }
}

#[test]
fn a_task_has_all_members_of_0_1_but_its_spelling_of_cancelled() {
    let response = Response::Task(Cow::Owned(task()));
    let mut v0_1 = support::written(Dialect::V0_1, &response);
    v0_1["metadata"].take();
    let mut merged = written(&response);
    merged["metadata"].take();
    assert!(covers(&merged, &v0_1), "{merged} {v0_1}");
}

#[test]
fn a_listed_task_has_all_members_of_0_3_and_iii() {
    let merged = &written(&Response::Tasks(page()))["tasks"][0];
    assert!(covers(merged, &support::written(Dialect::V0_3, &Response::Tasks(page()))["tasks"][0]));
    let mut of_iii = support::written(Dialect::Iii, &Response::Tasks(page()))["tasks"][0].take();
    assert!(covers(merged, &of_iii.take()), "{merged}");
}

#[test]
fn an_event_has_all_members_of_0_3_iii_and_0_1() {
    for state in [TaskState::Working, TaskState::Completed] {
        let events = [StreamResponse::Task(task()), status_of(state), chunk_of("a-2"), chunk_of("a-1")];
        let merged = support::events(Dialect::Either, &events);
        for dialect in [Dialect::V0_3, Dialect::Iii] {
            for (merged, exact) in merged.iter().zip(support::events(dialect, &events)) {
                assert!(covers(merged, &exact), "{dialect:?}: {merged} {exact}");
            }
        }
        for (merged, exact) in merged.iter().zip(support::events(Dialect::V0_1, &events)).skip(1) {
            assert!(covers(merged, &exact), "{merged} {exact}");
        }
    }
}

#[test]
fn the_extended_card_is_readable_for_both_versions() {
    let mut card = AgentCard::new("n", "d");
    card.supported_interfaces = vec![AgentInterface::new("https://example.com/a2a", binding::JSONRPC)];
    let card = written(&Response::Card(&(card)));
    assert_eq!(card["url"], card["supportedInterfaces"][0]["url"]);
    assert_eq!(card["name"], json!("n"));
}
