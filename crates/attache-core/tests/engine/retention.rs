//! Deletion of old tasks, and the background task for maintenance.

use std::time::Duration;

use attache_core::Retention;
use attache_protocol::{Task, TaskState};

use crate::recovery::{abandoned_task, idle};
use crate::support::{CLOCK_START, Host, Script, host_with, say, settle_down, soon, states};

/// Makes tasks that end at these times, and one that does not end.
async fn ended(host: &Host, times: impl IntoIterator<Item = i64>) -> Task {
    for millis in times {
        host.clock_at(millis);
        let task = host.client().send(say("hi")).await;
        assert_eq!(task.status.state, TaskState::Completed);
    }
    host.clock_at(0);
    abandoned_task(&*host.store, "unfinished", TaskState::InputRequired).await
}

async fn ages(host: &Host) -> Vec<i64> {
    let tasks = host.client().list_all().await;
    tasks.iter().map(|task| task.status.timestamp.unwrap().to_millis() - CLOCK_START).collect()
}

#[tokio::test(start_paused = true)]
async fn no_task_is_deleted_unless_the_options_say_so() {
    let host = idle();
    ended(&host, [1, 2, 3]).await;
    host.clock_at(i64::MAX / 4);
    assert_eq!(host.service.prune().await.unwrap(), 0);
    assert_eq!(host.client().list_all().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn tasks_beyond_the_age_or_the_number_are_deleted() {
    let (day, hour) = (24 * 60 * 60 * 1_000, 60 * 60 * 1_000);
    let age = Some(Duration::from_millis(day as u64));
    for (retention, kept) in [
        (Retention::default().max_age(age), vec![3 * hour, 2 * hour, 0]),
        (Retention::default().max_tasks(1), vec![3 * hour, 0]),
        (Retention::default().max_age(age).max_tasks(9), vec![3 * hour, 2 * hour, 0]),
        (Retention::default().max_tasks(0), vec![0]),
    ] {
        let host = host_with(Script(vec![]), |_, options| options.retention = retention);
        let unfinished = ended(&host, [hour, 2 * hour, 3 * hour]).await;
        host.clock_at(day + 2 * hour);
        assert_eq!(host.service.prune().await.unwrap(), 4 - kept.len(), "{retention:?}");
        assert_eq!(ages(&host).await, kept, "{retention:?}");
        assert_eq!(host.client().get(&unfinished.id).await, unfinished);
        assert_eq!(host.service.prune().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn all_old_tasks_are_deleted_however_many() {
    let retention = Retention::default().max_tasks(5);
    let host = host_with(Script(vec![]), |_, options| options.retention = retention);
    ended(&host, 1..=700).await;
    assert_eq!(host.service.prune().await.unwrap(), 695);
    assert_eq!(ages(&host).await, [700, 699, 698, 697, 696, 0]);
}

#[tokio::test(start_paused = true)]
async fn maintenance_recovers_and_deletes_tasks_by_itself() {
    let retention = Retention::default().max_age(Duration::from_secs(3_600));
    let host = host_with(Script(vec![]), |_, options| options.retention = retention);
    let working = abandoned_task(&*host.store, "working", TaskState::Working).await;
    let follows = tokio::spawn(host.client().subscribe(&working.id).await.rest());
    let maintenance = tokio::spawn(host.service.clone().run_maintenance());
    let mut now = 0;
    let mut advance = async |seconds: i64| {
        for _ in 0..seconds / 10 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            now += 10_000;
            host.clock_at(now);
        }
        settle_down().await;
    };
    advance(20).await;
    assert_eq!(host.client().get(&working.id).await.status.state, TaskState::Working);
    // Maintenance runs once per lease duration, so it finds the task at the latest one such duration after the lease has expired.
    advance(50).await;
    assert_eq!(host.client().get(&working.id).await.status.state, TaskState::Failed);
    assert_eq!(states(&soon(follows).await.unwrap()), [TaskState::Working, TaskState::Failed]);
    advance(3_000).await;
    assert_eq!(host.client().list_all().await.len(), 1);
    advance(700).await;
    assert!(host.client().list_all().await.is_empty());
    maintenance.abort();
}
