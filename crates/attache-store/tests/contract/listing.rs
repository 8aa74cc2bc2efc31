//! Listing: latest status first, filtered, counted, and in pages that hold still while tasks move.

use std::collections::BTreeSet;

use attache_core::{ListQuery, Owner, Retention, View};
use attache_protocol::{ContextId, TaskState, Timestamp};

use crate::support::{Kept, assert_same, at, chunk, ids, message, more, named, status, task};

promises!(
    tasks_are_listed_latest_status_first,
    times_are_told_apart_to_the_nanosecond,
    times_of_all_ages_are_in_order,
    tasks_of_one_moment_keep_their_order_whatever_the_pages,
    every_combination_of_filters_finds_what_matches,
    a_page_that_ends_with_the_last_task_leads_nowhere,
    a_task_that_gets_a_new_status_moves_to_the_front,
    what_is_not_a_status_moves_nothing,
    tasks_that_stay_are_seen_once_while_others_move_and_come,
    pages_hold_still_while_many_write,
    a_cursor_outlives_the_task_that_it_was_taken_from,
    a_list_shows_what_a_read_shows,
    a_list_of_few_messages_shows_the_latest,
);

fn all(limit: usize) -> ListQuery {
    ListQuery { limit, ..ListQuery::default() }
}

async fn listed(store: &Kept, query: &ListQuery) -> Vec<String> {
    ids(&store.walk(&Owner::default(), query, 100).await)
}

async fn tasks_are_listed_latest_status_first(store: Kept) {
    for (name, millis) in [("b", 20), ("d", 40), ("a", 10), ("c", 30)] {
        store.make(task(name).since(millis)).await;
    }
    assert_eq!(listed(&store, &all(9)).await, ["d", "c", "b", "a"]);
    assert_eq!(ids(&store.walk(&Owner::default(), &all(9), 1).await), ["d", "c", "b", "a"]);
    assert!(store.walk(&named("ann"), &all(9), 1).await.is_empty());
}

async fn times_are_told_apart_to_the_nanosecond(store: Kept) {
    for nanos in [5, 1, 1_001, 999_999, 1_000_000] {
        let time = Timestamp::new(1_767_300_000, nanos);
        store.make(task(&nanos.to_string()).changed(|task| task.status.timestamp = time)).await;
    }
    assert_eq!(listed(&store, &all(9)).await, ["1000000", "999999", "1001", "5", "1"]);
    let since = ListQuery { since: Timestamp::new(1_767_300_000, 1_001), ..all(9) };
    assert_eq!(listed(&store, &since).await, ["1000000", "999999", "1001"]);
    assert_eq!(store.page(&Owner::default(), &since).await.2, 3);
}

async fn times_of_all_ages_are_in_order(store: Kept) {
    let seconds = [-9_000_000_000, -1, 0, 1, 1_767_300_000, 9_000_000_000];
    for second in seconds {
        let time = Timestamp::new(second, 0);
        store.make(task(&second.to_string()).changed(|task| task.status.timestamp = time)).await;
    }
    store.make(task("never").in_context("other").changed(|task| task.status.timestamp = None)).await;
    let context = Some(ContextId::from("c"));
    let expected: Vec<_> = seconds.iter().rev().map(ToString::to_string).collect();
    assert_eq!(listed(&store, &ListQuery { context: context.clone(), ..all(9) }).await, expected);
    for (number, second) in seconds.iter().enumerate() {
        let query = ListQuery { since: Timestamp::new(*second, 0), context: context.clone(), ..all(9) };
        assert_eq!(store.page(&Owner::default(), &query).await.2, seconds.len() - number, "{second}");
        let query = ListQuery { context: None, state: Some(TaskState::Working), ..query };
        let never = usize::from(*second <= 0);
        assert_eq!(store.page(&Owner::default(), &query).await.2, seconds.len() - number + never, "{second}");
    }
}

async fn tasks_of_one_moment_keep_their_order_whatever_the_pages(store: Kept) {
    let states = [TaskState::Working, TaskState::Completed, TaskState::InputRequired];
    for number in 0..30 {
        store.make(task(&number.to_string()).state(states[number % 3]).since((number / 15) as i64)).await;
    }
    let once = listed(&store, &all(100)).await;
    assert_eq!(once.iter().collect::<BTreeSet<_>>().len(), 30);
    for size in [1, 2, 7, 15, 29, 30, 31] {
        assert_eq!(ids(&store.walk(&Owner::default(), &all(9), size).await), once, "pages of {size}");
    }
}

async fn every_combination_of_filters_finds_what_matches(store: Kept) {
    let states = [TaskState::Submitted, TaskState::Working, TaskState::Completed, TaskState::InputRequired];
    let me = Owner::default();
    let mut tasks = Vec::new();
    for number in 0..40_usize {
        let (context, state) = (["c0", "c1", "c2"][number % 3], states[(number / 3) % 4]);
        let (name, millis) = (format!("t{number}"), (number as i64 * 7) % 40);
        store.make(task(&name).in_context(context).state(state).since(millis)).await;
        store.make(task(&format!("other {number}")).of(&named("ann")).in_context(context)).await;
        tasks.push((name, context, state, millis));
    }
    let contexts = [None, Some("c0"), Some("c1"), Some("c2"), Some("c3")];
    for context in contexts {
        for state in [None, Some(TaskState::Canceled)].into_iter().chain(states.map(Some)) {
            for since in [None, Some(-1), Some(0), Some(13), Some(39), Some(40)] {
                let matches = |(_, of, is, millis): &&(String, &str, TaskState, i64)| {
                    context.is_none_or(|context| context == *of)
                        && state.is_none_or(|state| state == *is)
                        && since.is_none_or(|since| *millis >= since)
                };
                let mut expected: Vec<_> = tasks.iter().filter(matches).collect();
                expected.sort_by_key(|(.., millis)| -millis);
                let expected: Vec<_> = expected.iter().map(|(name, ..)| name.clone()).collect();
                let query = ListQuery {
                    context: context.map(ContextId::from),
                    state,
                    since: since.map(at),
                    ..all(100)
                };
                let (found, next, total) = store.page(&me, &query).await;
                assert_eq!((ids(&found), next, total), (expected.clone(), None, expected.len()), "{query:?}");
                assert_eq!(ids(&store.walk(&me, &query, 3).await), expected, "{query:?}");
            }
        }
    }
}

async fn a_page_that_ends_with_the_last_task_leads_nowhere(store: Kept) {
    for number in 0..6 {
        store.make(task(&number.to_string()).since(number)).await;
    }
    let me = Owner::default();
    let (first, next, total) = store.page(&me, &all(3)).await;
    assert_eq!((first.len(), total), (3, 6));
    let (second, next, total) = store.page(&me, &ListQuery { after: next, ..all(3) }).await;
    assert_eq!((second.len(), next, total), (3, None, 6));
}

async fn a_task_that_gets_a_new_status_moves_to_the_front(store: Kept) {
    for number in 0..4 {
        store.make(task(&number.to_string()).since(number)).await;
    }
    store.add("1", more(1, [status("1", TaskState::Completed, 10)])).await.unwrap();
    assert_eq!(listed(&store, &all(9)).await, ["1", "3", "2", "0"]);
    let working = ListQuery { state: Some(TaskState::Working), ..all(9) };
    assert_eq!(listed(&store, &working).await, ["3", "2", "0"]);
    assert_eq!(store.page(&Owner::default(), &working).await.2, 3);
    // Also to where an earlier time puts it: clocks may be set back.
    store.add("3", more(1, [status("3", TaskState::Working, -5)])).await.unwrap();
    assert_eq!(listed(&store, &all(9)).await, ["1", "2", "0", "3"]);
    // And only the last of several counts.
    let through = [status("0", TaskState::InputRequired, 20), status("0", TaskState::Working, 21)];
    store.add("0", more(1, through)).await.unwrap();
    assert_eq!(listed(&store, &all(9)).await, ["0", "1", "2", "3"]);
    let asking = ListQuery { state: Some(TaskState::InputRequired), ..all(9) };
    assert_eq!(store.page(&Owner::default(), &asking).await.2, 0);
}

async fn what_is_not_a_status_moves_nothing(store: Kept) {
    for number in 0..3 {
        store.make(task(&number.to_string()).since(number)).await;
    }
    store.add("0", more(1, [message("x"), chunk("0", "a", "x")]).now(50)).await.unwrap();
    let (found, _, total) = store.page(&Owner::default(), &all(9)).await;
    assert_eq!((ids(&found), total), (vec!["2".into(), "1".into(), "0".into()], 3));
    assert_same(&found[2], &store.get("0").await);
}

async fn tasks_that_stay_are_seen_once_while_others_move_and_come(store: Kept) {
    for number in 0..40 {
        store.make(task(&number.to_string()).since(number)).await;
    }
    let me = Owner::default();
    let (mut seen, mut query, mut moved, mut step) = (Vec::new(), all(3), BTreeSet::new(), 0);
    loop {
        let (tasks, next, total) = store.page(&me, &query).await;
        assert_eq!(total, 40 + step);
        seen.extend(ids(&tasks));
        if next.is_none() {
            break;
        }
        query.after = next;
        // One that was seen, maybe the one that the cursor was taken from, and one that was not.
        for which in [seen.last().cloned(), Some((step * 5 % 40).to_string())].into_iter().flatten() {
            if moved.insert(which.clone()) {
                let state = [TaskState::Completed, TaskState::InputRequired][step % 2];
                store.add_anywhere(&which, vec![status(&which, state, 100 + step as i64)], 0).await;
            }
        }
        store.make(task(&format!("new {step}")).since(200 + step as i64)).await;
        step += 1;
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "a task was seen twice: {seen:?}");
    let stayed: BTreeSet<_> =
        (0..40).map(|number| number.to_string()).filter(|id| !moved.contains(id)).collect();
    assert!(stayed.len() > 10 && stayed.is_subset(&unique), "{stayed:?} {seen:?}");
}

async fn pages_hold_still_while_many_write(store: Kept) {
    for number in 0..60 {
        store.make(task(&number.to_string()).since(number)).await;
    }
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (0..60).filter(|number| number % 12 == writer) {
                    let name = number.to_string();
                    for step in 0..4 {
                        let event = status(&name, TaskState::Working, 1_000 + number + step);
                        store.add_anywhere(&name, vec![event], 0).await;
                    }
                    store.make(task(&format!("new {name}")).since(2_000 + number)).await;
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let seen = ids(&store.walk(&Owner::default(), &all(4), 4).await);
        let unique: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "a task was seen twice: {seen:?}");
        let mut stayed = (0..60).filter(|number| number % 12 >= 4).map(|number| number.to_string());
        assert!(stayed.all(|id| unique.contains(&id)), "{seen:?}");
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.page(&Owner::default(), &all(1)).await.2, 80);
}

async fn a_cursor_outlives_the_task_that_it_was_taken_from(store: Kept) {
    for number in 0..9 {
        let state = if number == 5 { TaskState::Completed } else { TaskState::Working };
        store.make(task(&number.to_string()).state(state).since(number)).await;
    }
    let me = Owner::default();
    let (first, next, _) = store.page(&me, &all(4)).await;
    assert_eq!(ids(&first), ["8", "7", "6", "5"]);
    let (rest, query) = (["4", "3", "2", "1", "0"], ListQuery { after: next, ..all(9) });
    assert_eq!(store.prune(&Retention::default().max_tasks(0), at(9), 9).await.unwrap(), 1);
    assert_eq!(ids(&store.page(&me, &query).await.0), rest);

    let (first, next, _) = store.page(&me, &all(3)).await;
    assert_eq!(ids(&first), ["8", "7", "6"]);
    store.add("6", more(1, [status("6", TaskState::Completed, 50)])).await.unwrap();
    assert_eq!(ids(&store.page(&me, &ListQuery { after: next, ..all(9) }).await.0), rest);
    // It is as good for another filter.
    let query = ListQuery { after: next, state: Some(TaskState::Working), since: Some(at(2)), ..all(9) };
    let (tasks, _, total) = store.page(&me, &query).await;
    assert_eq!((ids(&tasks), total), (vec!["4".into(), "3".into(), "2".into()], 5));
}

async fn a_list_shows_what_a_read_shows(store: Kept) {
    for (name, end) in [("live", None), ("ended", Some(TaskState::Completed))] {
        let mut draft = task(name);
        for number in 0..5 {
            draft = draft.then(message(&number.to_string())).then(chunk(name, "a", &number.to_string()));
        }
        store.make(draft.then(status(name, TaskState::Working, 1))).await;
        if let Some(state) = end {
            store.add_anywhere(name, vec![status(name, state, 2)], 0).await;
        }
    }
    let (tasks, ..) = store.page(&Owner::default(), &all(9)).await;
    assert_eq!(ids(&tasks), ["ended", "live"]);
    for listed in &tasks {
        assert_same(listed, &store.get(listed.task().id.as_str()).await);
    }
}

async fn a_list_of_few_messages_shows_the_latest(store: Kept) {
    let mut draft = task("t").then(chunk("t", "a", "x"));
    for number in 0..5 {
        draft = draft.then(message(&number.to_string()));
    }
    store.make(draft.then(status("t", TaskState::Completed, 1))).await;
    for (history, expected) in [(Some(0), vec![]), (Some(2), vec!["3", "4"])] {
        let view = View { history, artifacts: false, generation: true };
        let (tasks, ..) = store.page(&Owner::default(), &ListQuery { view, ..all(9) }).await;
        let shown = tasks[0].viewed(view);
        assert_eq!(shown.history.iter().map(|said| said.text()).collect::<Vec<_>>(), expected);
        assert_eq!((shown.artifacts.len(), shown.generation), (0, Some(8)));
    }
}
