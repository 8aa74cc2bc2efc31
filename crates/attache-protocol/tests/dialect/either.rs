//! Answers to those who do not say whether they speak 0.3, iii or 0.1.

use std::borrow::Cow;

use attache_protocol::dialect::Answer;
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

fn written(answer: &Answer) -> Value {
    support::written(Dialect::Either, answer)
}

/// Whether everything in `small` is in `large` as well.
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
fn what_carries_no_parts_is_in_no_dialect_for_sure() {
    for method in METHODS {
        assert_eq!(Dialect::of(method, br#"{"id":"t","kind":"x"}"#), Some(Dialect::Either), "{method}");
    }
}

#[test]
fn answers_are_written() {
    insta::assert_json_snapshot!("task", written(&Answer::Task(Cow::Owned(task()))));
    insta::assert_json_snapshot!("tasks", written(&Answer::Tasks(page())));
    insta::assert_json_snapshot!("rich_task", written(&Answer::Task(Cow::Owned(rich_task()))));
    for answer in [Answer::Push(&(webhook())), Answer::Done] {
        assert_eq!(written(&answer), support::written(Dialect::V0_3, &answer));
        assert_eq!(written(&answer), support::written(Dialect::Iii, &answer));
    }
}

#[test]
fn events_are_written() {
    let events = [StreamResponse::Task(task()), status_of(TaskState::Working), chunk_of("a-2")];
    insta::assert_json_snapshot!(support::events(Dialect::Either, &events));
}

#[test]
fn a_task_has_all_that_0_3_and_iii_show() {
    for task in [task(), rich_task()] {
        let answer = Answer::Task(Cow::Owned(task));
        let merged = written(&answer);
        assert!(covers(&merged, &support::written(Dialect::V0_3, &answer)));
        assert!(covers(&merged, &support::written(Dialect::Iii, &answer)));
    }
}

#[test]
fn a_task_has_all_that_0_1_shows_but_the_second_l_of_cancelled() {
    let answer = Answer::Task(Cow::Owned(task()));
    let mut oldest = support::written(Dialect::V0_1, &answer);
    oldest["metadata"].take();
    let mut merged = written(&answer);
    merged["metadata"].take();
    assert!(covers(&merged, &oldest), "{merged} {oldest}");
}

#[test]
fn a_listed_task_has_all_that_0_3_and_iii_show() {
    let merged = &written(&Answer::Tasks(page()))["tasks"][0];
    assert!(covers(merged, &support::written(Dialect::V0_3, &Answer::Tasks(page()))["tasks"][0]));
    let mut of_iii = support::written(Dialect::Iii, &Answer::Tasks(page()))["tasks"][0].take();
    assert!(covers(merged, &of_iii.take()), "{merged}");
}

#[test]
fn an_event_has_all_that_0_3_and_iii_and_0_1_show() {
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
fn the_extended_card_is_read_by_both_generations() {
    let mut card = AgentCard::new("n", "d");
    card.supported_interfaces = vec![AgentInterface::new("https://example.com/a2a", binding::JSONRPC)];
    let card = written(&Answer::Card(&(card)));
    assert_eq!(card["url"], card["supportedInterfaces"][0]["url"]);
    assert_eq!(card["name"], json!("n"));
}
