//! Small values: kept by scope and key, changed one after the other.

use attache_core::{ChangedValue, Retention};
use attache_protocol::{Json, TaskState};

use crate::support::{Kept, at, soon, status, task};

promises!(
    a_value_is_there_from_its_first_change_on,
    a_value_that_is_taken_away_is_gone,
    a_change_is_told_what_was_kept_and_tells_both,
    a_change_may_leave_everything_as_it_was,
    a_change_that_panics_changes_nothing_and_harms_nobody,
    a_scope_is_listed_in_the_order_of_first_use,
    a_key_that_comes_back_comes_last,
    scopes_are_listed_by_name_while_they_have_values,
    scopes_have_nothing_in_common,
    names_are_told_apart_to_the_letter,
    values_come_back_to_the_letter,
    large_values_come_back_whole,
    of_many_changes_of_one_value_none_is_lost,
    of_many_who_come_first_one_does,
    whoever_was_answered_reads_what_was_written,
    values_have_nothing_to_do_with_tasks,
);

fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}

fn written(value: Option<&Json>) -> Option<&str> {
    value.map(Json::as_str)
}

/// Keeps a value, whatever was there.
pub(crate) async fn set(store: &Kept, scope: &str, key: &str, text: &str) -> ChangedValue {
    let value = json(text);
    store
        .values()
        .change(scope, key, Box::new(move |_| Some(value.clone())))
        .await
        .expect("a value that is kept")
}

pub(crate) async fn remove(store: &Kept, scope: &str, key: &str) -> ChangedValue {
    store.values().change(scope, key, Box::new(|_| None)).await.expect("a value that is gone")
}

/// Adds one to a number. What it is then.
pub(crate) async fn count(store: &Kept, scope: &str, key: &str) -> u64 {
    let next = |old: Option<&Json>| old.map_or(0, |old| old.read::<u64>().expect("a number")) + 1;
    let change = Box::new(move |old: Option<&Json>| Some(Json::new(&next(old)).expect("JSON")));
    let changed = store.values().change(scope, key, change).await.expect("a number that is kept");
    changed.new.expect("a number").read().expect("a number")
}

pub(crate) async fn get(store: &Kept, scope: &str, key: &str) -> Option<String> {
    let value = store.values().get(scope, key).await.expect("an answer");
    value.map(|value| value.as_str().to_owned())
}

pub(crate) async fn list(store: &Kept, scope: &str) -> Vec<(String, String)> {
    let values = store.values().list(scope).await.expect("values");
    values.into_iter().map(|(key, value)| (key, value.as_str().to_owned())).collect()
}

pub(crate) async fn keys(store: &Kept, scope: &str) -> Vec<String> {
    list(store, scope).await.into_iter().map(|(key, _)| key).collect()
}

pub(crate) async fn scopes(store: &Kept) -> Vec<String> {
    store.values().scopes().await.expect("scopes")
}

async fn a_value_is_there_from_its_first_change_on(store: Kept) {
    assert_eq!(get(&store, "s", "k").await, None);
    assert!(list(&store, "s").await.is_empty() && scopes(&store).await.is_empty());
    set(&store, "s", "k", "1").await;
    assert_eq!(get(&store, "s", "k").await.as_deref(), Some("1"));
    set(&store, "s", "k", r#"{"a":[]}"#).await;
    assert_eq!(get(&store, "s", "k").await.as_deref(), Some(r#"{"a":[]}"#));
    assert_eq!(list(&store, "s").await, [("k".to_owned(), r#"{"a":[]}"#.to_owned())]);
    assert_eq!(scopes(&store).await, ["s"]);
}

async fn a_value_that_is_taken_away_is_gone(store: Kept) {
    set(&store, "s", "k", "1").await;
    set(&store, "s", "other", "2").await;
    remove(&store, "s", "k").await;
    assert_eq!(get(&store, "s", "k").await, None);
    assert_eq!(keys(&store, "s").await, ["other"]);
    // `null` is a value like any other.
    set(&store, "s", "other", "null").await;
    assert_eq!(get(&store, "s", "other").await.as_deref(), Some("null"));
}

async fn a_change_is_told_what_was_kept_and_tells_both(store: Kept) {
    let steps = [(None, Some("1")), (Some("1"), Some("[2]")), (Some("[2]"), None), (None, None)];
    for (old, new) in steps {
        let change = move |kept: Option<&Json>| {
            assert_eq!(written(kept), old);
            new.map(json)
        };
        let changed = store.values().change("s", "k", Box::new(change)).await.unwrap();
        assert_eq!((written(changed.old.as_ref()), written(changed.new.as_ref())), (old, new));
        assert_eq!(get(&store, "s", "k").await.as_deref(), new);
    }
}

async fn a_change_may_leave_everything_as_it_was(store: Kept) {
    for key in ["a", "b"] {
        set(&store, "s", key, "1").await;
    }
    let changed = store.values().change("s", "a", Box::new(|old| old.cloned())).await.unwrap();
    assert_eq!((written(changed.old.as_ref()), written(changed.new.as_ref())), (Some("1"), Some("1")));
    let changed = store.values().change("s", "c", Box::new(|old| old.cloned())).await.unwrap();
    assert_eq!(changed, ChangedValue { old: None, new: None });
    store.values().change("t", "a", Box::new(|old| old.cloned())).await.unwrap();
    assert_eq!(keys(&store, "s").await, ["a", "b"]);
    assert_eq!(scopes(&store).await, ["s"]);
}

async fn a_change_that_panics_changes_nothing_and_harms_nobody(store: Kept) {
    set(&store, "s", "k", "1").await;
    let theirs = store.clone();
    let change = tokio::spawn(async move {
        theirs.values().change("s", "k", Box::new(|_| panic!("on purpose"))).await.map(|_| ())
    });
    let others = futures::future::join_all((0..10).map(|_| count(&store, "s", "n")));
    let (change, _) = soon(futures::future::join(change, others)).await;
    let panic = change.expect_err("a panic").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(get(&store, "s", "k").await.as_deref(), Some("1"));
    assert_eq!(count(&store, "s", "k").await, 2);
    assert_eq!(count(&store, "s", "n").await, 11);
}

async fn a_scope_is_listed_in_the_order_of_first_use(store: Kept) {
    let names = ["z", "a", "m", "10", "9", "", "ä"];
    for (number, name) in names.iter().enumerate() {
        set(&store, "s", name, &number.to_string()).await;
        set(&store, &format!("other {number}"), name, "0").await;
    }
    for name in ["a", "", "z"] {
        set(&store, "s", name, "\"changed\"").await;
    }
    assert_eq!(keys(&store, "s").await, names);
}

async fn a_key_that_comes_back_comes_last(store: Kept) {
    for name in ["a", "b", "c"] {
        set(&store, "s", name, "1").await;
    }
    for (name, order) in [("a", ["b", "c", "a"]), ("c", ["b", "a", "c"]), ("c", ["b", "a", "c"])] {
        remove(&store, "s", name).await;
        set(&store, "s", name, "2").await;
        assert_eq!(keys(&store, "s").await, order);
    }
    for name in ["a", "b", "c"] {
        remove(&store, "s", name).await;
    }
    for name in ["c", "b"] {
        set(&store, "s", name, "3").await;
    }
    assert_eq!(keys(&store, "s").await, ["c", "b"]);
}

async fn scopes_are_listed_by_name_while_they_have_values(store: Kept) {
    let names = ["b", "a", "B", "", "ab", "ä", "a b", "😀", "\u{ffff}", "10", "9"];
    for name in names {
        for key in ["k", "l"] {
            set(&store, name, key, "1").await;
        }
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(scopes(&store).await, sorted);
    for name in ["a", ""] {
        remove(&store, name, "k").await;
    }
    assert_eq!(scopes(&store).await, sorted);
    for name in ["a", ""] {
        remove(&store, name, "l").await;
    }
    sorted.retain(|name| !["a", ""].contains(name));
    assert_eq!(scopes(&store).await, sorted);
    for name in sorted {
        remove(&store, name, "k").await;
        remove(&store, name, "l").await;
    }
    assert!(scopes(&store).await.is_empty());
}

async fn scopes_have_nothing_in_common(store: Kept) {
    set(&store, "one", "k", "1").await;
    set(&store, "two", "k", "2").await;
    set(&store, "k", "one", "3").await;
    remove(&store, "one", "k").await;
    remove(&store, "three", "k").await;
    assert_eq!(get(&store, "one", "k").await, None);
    assert_eq!(list(&store, "two").await, [("k".to_owned(), "2".to_owned())]);
    assert_eq!(list(&store, "k").await, [("one".to_owned(), "3".to_owned())]);
}

async fn names_are_told_apart_to_the_letter(store: Kept) {
    let long = "x".repeat(100_000);
    let longer = format!("{long}y");
    let names = [
        "k",
        "K",
        "k ",
        " k",
        "",
        " ",
        "%",
        "k%",
        "_",
        "1",
        "01",
        "1.0",
        "NULL",
        "null",
        "'",
        "\"",
        "a'; --",
        "k\0",
        "k\0l",
        "\0",
        "\n",
        "a/b",
        "a:b",
        "é",
        "e\u{301}",
        "😀",
        "\u{10ffff}",
        &long,
        &longer,
    ];
    for (number, scope) in names.iter().enumerate() {
        set(&store, scope, "k", &number.to_string()).await;
        set(&store, "all of them", scope, &number.to_string()).await;
    }
    for (number, name) in names.iter().enumerate() {
        let number = number.to_string();
        assert_eq!(get(&store, name, "k").await.as_ref(), Some(&number), "{name:?}");
        assert_eq!(get(&store, "all of them", name).await.as_ref(), Some(&number), "{name:?}");
        assert_eq!(list(&store, name).await, [("k".to_owned(), number)], "{name:?}");
    }
    assert_eq!(keys(&store, "all of them").await, names);
    assert_eq!(scopes(&store).await.len(), names.len() + 1);
}

/// Values of all kinds, with some that do not survive being read as something.
pub(crate) const ODD: [&str; 14] = [
    "null",
    "true",
    "0",
    "-0",
    "9007199254740993",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "1.10",
    "1e400",
    r#""""#,
    r#""\u0000 \ud83d\ude00 ä\n""#,
    r#"{"b":1,"a":2,"b":3}"#,
    "[ 1 , 2 ]",
    r#"{"deep":[[[[[[{"x":[]}]]]]]]}"#,
];

async fn values_come_back_to_the_letter(store: Kept) {
    for text in ODD {
        set(&store, "s", text, text).await;
        assert_eq!(get(&store, "s", text).await.as_deref(), Some(text));
        let kept = store.values().change("s", text, Box::new(|old| old.cloned())).await.unwrap();
        assert_eq!(written(kept.old.as_ref()), Some(text));
    }
    assert_eq!(list(&store, "s").await, ODD.map(|text| (text.to_owned(), text.to_owned())));
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    set(&store, "s", "deep", &deep).await;
    assert_eq!(get(&store, "s", "deep").await, Some(deep));
}

async fn large_values_come_back_whole(store: Kept) {
    // Of sizes around those at which stores may do something else.
    for size in [100, 8_000, 65_533, 65_534, 65_535, 65_536, 3_000_000] {
        let text = format!("\"{}\"", "x".repeat(size));
        set(&store, "s", "k", &text).await;
        set(&store, "s", &size.to_string(), &text).await;
        assert_eq!(get(&store, "s", "k").await.as_ref(), Some(&text));
        let changed = set(&store, "s", "k", "1").await;
        assert_eq!(written(changed.old.as_ref()), Some(&*text));
    }
    let lengths: Vec<_> = list(&store, "s").await.into_iter().map(|(_, value)| value.len()).collect();
    assert_eq!(lengths, [1, 102, 8_002, 65_535, 65_536, 65_537, 65_538, 3_000_002]);
}

async fn of_many_changes_of_one_value_none_is_lost(store: Kept) {
    let counters = (0..32_usize).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for round in 0..20 {
                count(&store, "s", &format!("own {number}")).await;
                seen.push(count(&store, if round % 2 == 0 { "s" } else { "t" }, "k").await);
            }
            seen
        })
    });
    let mut seen = Vec::new();
    for counter in counters.collect::<Vec<_>>() {
        seen.extend(counter.await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=320).flat_map(|number| [number; 2]).collect::<Vec<_>>());
    for scope in ["s", "t"] {
        assert_eq!(get(&store, scope, "k").await.as_deref(), Some("320"));
    }
    assert_eq!(get(&store, "s", "own 31").await.as_deref(), Some("20"));
}

async fn of_many_who_come_first_one_does(store: Kept) {
    let comers = (0..64).map(|number: u32| {
        let store = store.clone();
        tokio::spawn(async move {
            let mine = Json::new(&number).expect("JSON");
            let change = move |old: Option<&Json>| Some(old.unwrap_or(&mine).clone());
            store.values().change("s", "first", Box::new(change)).await.unwrap()
        })
    });
    let mut answers = Vec::new();
    for comer in comers.collect::<Vec<_>>() {
        answers.push(comer.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|answer| answer.old.is_none()).count(), 1);
    assert!(answers.iter().all(|answer| answer.new == answers[0].new), "{answers:?}");
    assert_eq!(get(&store, "s", "first").await.as_deref(), written(answers[0].new.as_ref()));
}

async fn whoever_was_answered_reads_what_was_written(store: Kept) {
    let writers = (0..8_u32).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = number.to_string();
            for round in 0..20 {
                let text = format!("[{round}]");
                set(&store, "s", &key, &text).await;
                assert_eq!(get(&store, "s", &key).await.as_ref(), Some(&text));
                assert!(list(&store, "s").await.contains(&(key.clone(), text)));
                remove(&store, "s", &key).await;
                assert!(!keys(&store, "s").await.contains(&key));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert!(scopes(&store).await.is_empty());
}

async fn values_have_nothing_to_do_with_tasks(store: Kept) {
    store.make(task("t").then(status("t", TaskState::Completed, 1))).await;
    set(&store, "t", "t", "1").await;
    let all = Retention::default().max_tasks(0);
    assert_eq!(store.prune(&all, at(1_000), 9).await.unwrap(), 1);
    assert!(store.find("t").await.is_none());
    assert_eq!(get(&store, "t", "t").await.as_deref(), Some("1"));
}
