use attache_core::{Idempotency, NewTask, Owner, Principal, Seq, Store, TailItem};
use attache_protocol::{Json, TaskState};
use futures::StreamExt;
use rusqlite::Connection;
use serde_json::json;

use super::super::{
    BackupProgress, CompactOptions, ExportReport, ForgetOptions, ForgetReport, Maintenance, SqliteOpenError,
};
use super::{StoreFolder, at, chunk, ended, live, status, webhook};

async fn some_tasks(folder: &StoreFolder) {
    for i in 0..20 {
        folder.put(ended(&format!("t{i}"), i)).await;
    }
    let push = Some(webhook("open", "w", "example.com"));
    let (seq, _) = folder.put(NewTask { push, ..live("open") }).await;
    folder.add("open", seq, vec![chunk("open", "x"), status("open", TaskState::Working, 1)]).await.unwrap();
    for (key, text) in [("z", "12345678901234567890"), ("a \"b\"", "[1, null]")] {
        put_value(folder, key, text).await;
    }
}

async fn put_value(folder: &StoreFolder, key: &str, text: &str) {
    let value = Json::parse(text).unwrap();
    folder.values().change("a scope", key, Box::new(move |_| Some(value.clone()))).await.unwrap();
}

#[tokio::test]
async fn a_check_finds_nothing_wrong_in_a_sound_store_while_it_is_in_use() {
    let folder = StoreFolder::new();
    some_tasks(&folder).await;
    let report = Maintenance::open(folder.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.events, report.values, report.problems), (21, 63, 2, vec![]));
}

#[tokio::test]
async fn a_check_reports_each_problem() {
    for (damage, expected) in [
        ("DELETE FROM log WHERE id = 1 << 26 | 1", ""),
        ("DELETE FROM log WHERE id = 21 << 26 | 1", "task `open`: its log has a gap after event 0"),
        ("UPDATE tasks SET seq = 9 WHERE id = 3", "task `t2`: its log ends at 3 where the task ends at 9"),
        ("UPDATE tasks SET head = x'7b7b' WHERE id = 3", "the final form of task `t2` cannot be read"),
        ("UPDATE log SET events = x'5b' WHERE id >> 26 = 5", "the log of task `t4` cannot be read"),
        (
            "UPDATE tasks SET artifacts = CAST(replace(CAST(artifacts AS TEXT), 'result', 'tluser') AS BLOB) WHERE id = 3",
            "task `t2`: its final form does not match its events",
        ),
        ("UPDATE tasks SET state = 5 WHERE id = 3", "the number of tasks"),
        ("DELETE FROM counts WHERE level = 42", "at level 42"),
        ("DELETE FROM tasks WHERE id = 21", "webhooks without a task"),
        ("DELETE FROM queues", "deliveries that are never due"),
        ("INSERT INTO log VALUES (99 << 26, '[]')", "parts of logs without a task"),
        ("DELETE FROM owners", "tasks without an owner"),
        (
            "UPDATE kept_values SET value = '[' WHERE key = 'z'",
            "the value of `z` in `a scope` cannot be read",
        ),
        (
            "UPDATE kept_values SET value = '1 2' WHERE key = 'z'",
            "the value of `z` in `a scope` cannot be read",
        ),
        (
            "UPDATE kept_values SET value = x'31' WHERE key = 'z'",
            "the value of `z` in `a scope` cannot be read",
        ),
    ] {
        let mut folder = StoreFolder::new();
        some_tasks(&folder).await;
        folder.close();
        Connection::open(folder.path()).unwrap().execute_batch(damage).unwrap();
        let problems = Maintenance::open(folder.path()).unwrap().check().unwrap().problems.join("\n");
        assert!(
            problems.contains(expected) && problems.is_empty() == expected.is_empty(),
            "{damage}: {problems}"
        );
    }
}

#[tokio::test]
async fn an_export_has_everything_but_the_secrets() {
    let folder = StoreFolder::new();
    some_tasks(&folder).await;
    let mut out = Vec::new();
    let report = Maintenance::open(folder.path()).unwrap().export(&mut out).unwrap();
    assert_eq!(report, ExportReport { tasks: 21, values: 2, problems: vec![] });
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("t0ken") && !text.contains("cr3dentials"));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 23);
    let open = &lines[20];
    assert_eq!(open["owner"], serde_json::json!({ "tenant": "acme", "principal": "ann" }));
    assert_eq!(open["task"]["id"], "open");
    assert_eq!(open["events"].as_array().unwrap().len(), 3);
    assert_eq!(open["webhooks"][0]["url"], "https://example.com/hook");
    let values = [
        r#"{"scope":"a scope","key":"z","value":12345678901234567890}"#,
        r#"{"scope":"a scope","key":"a \"b\"","value":[1, null]}"#,
    ];
    assert_eq!(text.lines().skip(21).collect::<Vec<_>>(), values);
}

#[tokio::test]
async fn an_export_of_a_damaged_store_has_the_readable_rows_and_lists_the_others() {
    let mut folder = StoreFolder::new();
    some_tasks(&folder).await;
    folder.close();
    let damage =
        "UPDATE tasks SET head = x'ff' WHERE id = 3; UPDATE log SET events = x'5b' WHERE id >> 26 = 21;
         UPDATE webhooks SET config = x'00'; UPDATE kept_values SET value = '[' WHERE key = 'z'";
    Connection::open(folder.path()).unwrap().execute_batch(damage).unwrap();
    let mut out = Vec::new();
    let report = Maintenance::open(folder.path()).unwrap().export(&mut out).unwrap();
    assert_eq!((report.tasks, report.values, report.problems.len()), (19, 1, 3));
    for (problem, expected) in report.problems.iter().zip(["task `t2`", "task `open`", "`z` in `a scope`"]) {
        assert!(problem.contains(expected), "{problem}");
    }
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_everything_that_was_acknowledged_before_it_while_others_write() {
    let folder = std::sync::Arc::new(StoreFolder::new());
    some_tasks(&folder).await;
    let writer = {
        let folder = folder.clone();
        tokio::spawn(async move {
            for i in 0..200 {
                folder.put(ended(&format!("later{i}"), i)).await;
            }
        })
    };
    let mut round = 0;
    while !writer.is_finished() || round == 0 {
        let copy = folder.path().with_file_name(format!("copy{round}.db"));
        let before = folder.list(&super::owner(), &super::all()).await.unwrap().total as u64;
        let mut last = None;
        let bytes = Maintenance::open(folder.path()).unwrap().backup(&copy, |at| last = Some(at)).unwrap();
        assert_eq!(last, Some(BackupProgress { copied: bytes, total: bytes }));
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), bytes);
        let report = Maintenance::open(&copy).unwrap().check().unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert!(report.tasks >= before, "{} of {before}", report.tasks);
        round += 1;
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_backup_replaces_nothing_is_private_and_leaves_nothing_else() {
    let folder = StoreFolder::new();
    some_tasks(&folder).await;
    let (store, copy) = (Maintenance::open(folder.path()).unwrap(), folder.dir.path().join("copy.db"));
    std::fs::write(&copy, "mine").unwrap();
    let error = store.backup(&copy, |_| {}).unwrap_err().to_string();
    assert!(error.contains("copy.db") && error.contains("exists"), "{error}");
    assert_eq!(std::fs::read(&copy).unwrap(), b"mine");
    std::fs::remove_file(&copy).unwrap();
    assert!(store.backup(folder.dir.path().join("none/copy.db"), |_| {}).is_err());
    #[cfg(unix)]
    {
        // A link at the path of the incomplete copy does not redirect the copy.
        let partial = folder.dir.path().join(format!("copy.db.{}.partial", std::process::id()));
        let elsewhere = folder.dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &partial).unwrap();
        let error = store.backup(&copy, |_| {}).unwrap_err().to_string();
        assert!(error.contains("partial") && !elsewhere.exists() && !copy.exists(), "{error}");
        std::fs::remove_file(&partial).unwrap();
    }
    store.backup(&copy, |_| {}).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let mut names: Vec<_> =
        std::fs::read_dir(folder.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy.db", "data", "keyring.json", "keyring.lock"]);
}

#[tokio::test]
async fn an_export_of_many_large_values_has_each_once() {
    let folder = StoreFolder::new();
    for i in 0..40 {
        put_value(&folder, &i.to_string(), &format!("\"{}\"", "x".repeat(i * 10_000))).await;
    }
    let mut out = Vec::new();
    Maintenance::open(folder.path()).unwrap().export(&mut out).unwrap();
    let keys = String::from_utf8(out).unwrap();
    let keys = keys.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let keys: Vec<_> = keys.map(|line| line["key"].as_str().unwrap().parse::<usize>().unwrap()).collect();
    assert_eq!(keys, (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn compacting_keeps_values_in_their_order_and_frees_space() {
    let mut folder = StoreFolder::new();
    for key in ["c", "gone", "a", "b"] {
        put_value(&folder, key, &format!("\"{}\"", "x".repeat(200_000))).await;
    }
    folder.values().change("a scope", "gone", Box::new(|_| None)).await.unwrap();
    put_value(&folder, "c", "1").await;
    folder.close();
    let report = Maintenance::compact(folder.path(), CompactOptions::default()).unwrap();
    assert!(report.after < 600_000, "{report:?}");
    folder.reopen();
    put_value(&folder, "new", "1").await;
    let kept = folder.values().list("a scope").await.unwrap();
    let kept: Vec<_> = kept.iter().map(|(key, value)| (key.as_str(), value.as_str().len())).collect();
    assert_eq!(kept, [("c", 1), ("a", 200_002), ("b", 200_002), ("new", 1)]);
}

#[tokio::test]
async fn forget_removes_the_data_of_one_caller_and_nothing_else() {
    let mut folder = StoreFolder::new();
    let bob = Owner { principal: Principal::named("bob"), ..Owner::default() };
    some_tasks(&folder).await;
    let elsewhere = Owner { tenant: None, ..super::owner() };
    folder.put(NewTask { owner: elsewhere, ..ended("elsewhere", 1) }).await;
    let key = Idempotency { key: "k".to_owned(), fingerprint: [1; 32] };
    folder.put(NewTask { owner: bob.clone(), idempotency: Some(key), ..ended("bobs", 1) }).await;
    folder.close();
    let options = |dry_run, tenant: Option<&str>| ForgetOptions {
        principal: Principal::named("ann"),
        tenant: tenant.map(str::to_owned),
        dry_run,
    };
    let count = |options| Maintenance::forget(folder.path(), &options).unwrap();
    let all = ForgetReport { tasks: 22, webhooks: 1, deliveries: 2, ..ForgetReport::default() };
    for _ in 0..2 {
        assert_eq!(count(options(true, None)), all);
        assert_eq!(count(options(true, Some("acme"))).tasks, 21);
        assert_eq!(count(options(true, Some("other"))).tasks, 0);
    }
    assert_eq!(count(options(false, None)), all);
    assert_eq!(count(options(false, None)), ForgetReport::default());
    for file in std::fs::read_dir(folder.path().parent().unwrap()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!holds("ann") && !holds("example.com"), "nothing of it is left in the files");
    }
    folder.reopen();
    let left = folder.list(&bob, &super::all()).await.unwrap();
    assert_eq!((left.total, folder.ids(super::all()).await.len()), (1, 0));
    assert!(folder.find_key(&bob, "k").await.unwrap().is_some());
    let report = Maintenance::open(folder.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.values, report.problems), (1, 2, vec![]));
    // Fails while a server uses the store.
    assert!(Maintenance::forget(folder.path(), &options(false, None)).is_err());
}

#[tokio::test]
async fn forget_removes_the_contexts_of_a_caller_with_their_directories_and_what_is_kept_about_the_caller() {
    let mut folder = StoreFolder::new();
    let [ann, bob] =
        ["ann", "bob"].map(|name| Owner { principal: Principal::named(name), ..Owner::default() });
    let other = Owner { tenant: Some("acme".into()), ..ann.clone() };
    folder.put(NewTask { owner: ann.clone(), ..ended("anns", 1) }).await;
    let directories = tempfile::tempdir().unwrap();
    let put = async |scope: &str, key: &str, value: serde_json::Value| {
        let value = Json::new(&value).unwrap();
        folder.values().change(scope, key, Box::new(move |_| Some(value.clone()))).await.unwrap();
    };
    let mut privates = Vec::new();
    for (number, owner) in [&ann, &bob, &other].into_iter().enumerate() {
        let private = directories.path().join(format!("00000000-0000-4000-8000-00000000000{number}"));
        std::fs::create_dir(&private).unwrap();
        let record = json!({
            "tenant": owner.tenant.as_deref(), "caller": owner.principal.name(), "contextId": "c", "created": "2026-01-01T00:00:00Z",
            "used": "2026-01-01T00:00:00Z", "turns": 1, "workspace": { "private": private },
        });
        put("contexts", &owner.value_key("c"), record).await;
        put("a2a_gateway_contexts:x", &owner.value_key("c"), json!("remote")).await;
        privates.push(private);
    }
    for principal in [&ann.principal, &bob.principal] {
        put("budget:writer", &principal.value_key(), json!({})).await;
    }
    put("a2a_gateway_ended:x", "anns", json!("remote")).await;
    put("a2a_gateway_ended:x", "bobs", json!("remote")).await;
    put("orders", &ann.principal.value_key(), json!("of a worker")).await;
    folder.close();
    let run = |dry_run, tenant: Option<&str>| {
        let (principal, tenant) = (Principal::named("ann"), tenant.map(str::to_owned));
        let options = ForgetOptions { principal, tenant, dry_run };
        let report = Maintenance::forget(folder.path(), &options).unwrap();
        (report.contexts, report.values, [0, 1, 2].map(|owner| privates[owner].exists()))
    };
    assert_eq!(run(true, None), (2, 4, [true; 3]));
    assert_eq!(run(false, Some("acme")), (1, 1, [true, true, false]));
    assert_eq!(run(false, None), (1, 3, [false, true, false]));
    assert_eq!(run(false, None), (0, 0, [false, true, false]));
    folder.reopen();
    let mut left = Vec::new();
    for scope in folder.values().scopes().await.unwrap() {
        left.extend(
            folder.values().list(&scope).await.unwrap().into_iter().map(|(key, _)| (scope.clone(), key)),
        );
    }
    left.sort();
    let bobs = bob.value_key("c");
    let expected = [
        ("a2a_gateway_contexts:x", &*bobs),
        ("a2a_gateway_ended:x", "bobs"),
        ("budget:writer", "caller:bob"),
        ("contexts", &*bobs),
        ("orders", "caller:ann"),
    ];
    assert_eq!(left, expected.map(|(scope, key)| (scope.to_owned(), key.to_owned())));
}

#[tokio::test]
async fn compacting_needs_exclusive_use_of_the_store() {
    let folder = StoreFolder::new();
    let error = Maintenance::compact(folder.path(), CompactOptions::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn dropped_events_leave_the_task() {
    let mut folder = StoreFolder::new();
    for i in 0..200 {
        folder.put(ended(&format!("t{i}"), i)).await;
    }
    folder.put(NewTask { push: Some(webhook("told", "w", "a.com")), ..ended("told", 0) }).await;
    folder.close();
    let options = CompactOptions { drop_events_before: Some(at(100)) };
    let report = Maintenance::compact(folder.path(), options).unwrap();
    assert!(report.dropped == 100 && report.after < report.before, "{report:?}");
    folder.reopen();
    let first = folder.tail(&"t5".into(), Seq(1)).collect::<Vec<_>>().await;
    let [Ok(TailItem::Reset(snapshot))] = &first[..] else { panic!("{first:?}") };
    assert_eq!((snapshot.seq, snapshot.task().artifacts.len()), (Seq(3), 1));
    assert!(folder.tail(&"t5".into(), Seq(3)).next().await.is_none());
    assert_eq!(folder.events("t150", 0, 9).await.len(), 3);
    assert_eq!(folder.events("told", 0, 9).await.len(), 3);
    let report = Maintenance::open(folder.path()).unwrap().check().unwrap();
    assert_eq!((report.tasks, report.problems), (201, vec![]));
}

#[test]
fn maintenance_does_not_create_a_missing_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    assert!(matches!(Maintenance::open(&path), Err(SqliteOpenError::Missing { .. })));
    assert!(Maintenance::compact(&path, CompactOptions::default()).is_err());
    assert!(!path.exists());
}
