//! A send waits for the result of its own message, and its turn goes on without the request.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Turn, agent_fn};
use attache_protocol::{ErrorKind, TaskId, TaskState};
use parking_lot::Mutex;

use crate::support::{
    Latch, Script, SlowStore, Step, history, host, host_on, say, settle_down, soon, status_text,
};

/// An agent that asks, and then repeats the answer.
fn asking() -> impl attache_core::Agent {
    agent_fn(|turn: Turn| async move {
        match turn.task() {
            None => turn.ask("which one?").await,
            Some(_) => turn.complete_with(format!("took {}", turn.text())).await,
        }
    })
}

/// An agent that waits at a latch before each answer.
fn gated(latch: &Latch) -> impl attache_core::Agent {
    let latch = latch.clone();
    agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.ask(format!("re: {}", turn.text())).await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_send_returns_the_final_task_with_all_artifacts_and_appended_chunks() {
    let host = host(Script(vec![
        Step::Working("".into()),
        Step::Chunks { name: "poem".into(), texts: vec!["roses ".into(), "are ".into(), "red".into()] },
        Step::Yield,
        Step::Artifact { name: "note".into(), text: "old".into() },
        Step::Artifact { name: "note".into(), text: "new".into() },
        Step::Complete,
    ]));
    let task = host.client().send(say("hi")).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifact("poem").unwrap().text(), "roses are red");
    assert_eq!(task.artifact("note").unwrap().text(), "new");
    assert_eq!(task.artifacts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_send_returns_when_the_agent_needs_something() {
    for (step, state) in [
        (Step::Ask("which?".into()), TaskState::InputRequired),
        (Step::RequireAuth("who?".into()), TaskState::AuthRequired),
    ] {
        let latch = Latch::new();
        let agent_latch = latch.clone();
        let host = host(agent_fn(move |turn: Turn| {
            let (latch, step) = (agent_latch.clone(), step.clone());
            async move {
                crate::support::step(&turn, &step).await?;
                latch.pass().await;
                Ok(())
            }
        }));
        // The send has returned although the agent has not.
        assert_eq!(host.client().send(say("hi")).await.status.state, state);
        latch.open();
        host.idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_does_not_wait_returns_a_task_that_is_worked_on() {
    for silent in [false, true] {
        let latch = Latch::new();
        let agent_latch = latch.clone();
        let host = host(agent_fn(move |turn: Turn| {
            let latch = agent_latch.clone();
            async move {
                if !silent {
                    turn.working("").await?;
                }
                latch.pass().await;
                turn.complete().await
            }
        }));
        let client = host.client();
        let task = client.send(say("hi").at_once()).await;
        assert!(!task.status.state.is_terminal(), "{:?}", task.status.state);
        latch.reached().await;
        assert!(!client.get(&task.id).await.status.state.is_terminal());
        latch.open();
        host.idle().await;
        assert_eq!(client.get(&task.id).await.status.state, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_does_not_cancel_the_task() {
    for silent in [false, true] {
        let latch = Latch::new();
        let agent_latch = latch.clone();
        let host = host(agent_fn(move |turn: Turn| {
            let latch = agent_latch.clone();
            async move {
                if !silent {
                    turn.working("").await?;
                }
                latch.pass().await;
                assert!(!turn.is_cancelled());
                turn.complete_with("done").await
            }
        }));
        let client = host.client();
        let sent = client.send_meanwhile(say("hi"));
        latch.reached().await;
        sent.abort();
        assert!(sent.await.is_err_and(|error| error.is_cancelled()));
        latch.open();
        host.idle().await;
        let tasks = client.list_all().await;
        assert_eq!((tasks.len(), status_text(&tasks[0])), (1, "done".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_gets_its_own_result_and_not_the_old_question() {
    let latch = Latch::new();
    let host = host(gated(&latch));
    let client = host.client();
    latch.open();
    let task = client.send(say("first")).await;
    assert_eq!(status_text(&task), "re: first");
    latch.reached().await;
    let answer = client.send_meanwhile(say("second").to(&task));
    latch.reached().await;
    assert_eq!(client.get(&task.id).await.status.state, TaskState::Working);
    assert!(!answer.is_finished());
    latch.open();
    assert_eq!(status_text(&soon(answer).await.unwrap()), "re: second");
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn the_history_has_message_question_and_answer_in_that_order() {
    let host = host(asking());
    let client = host.client();
    let task = client.send(say("a cake").with_id("m1")).await;
    let task = client.send(say("the big one").with_id("m2").to(&task)).await;
    assert_eq!(history(&task), ["a cake", "which one?", "the big one"]);
    assert_eq!(status_text(&task), "took the big one");
    let ids: Vec<_> = task.history.iter().map(|message| message.task_id.as_ref()).collect();
    assert_eq!(ids, [Some(&task.id); 3]);
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_task_at_work_are_answered_one_after_the_other() {
    let (latch, running) = (Latch::new(), Arc::new(Mutex::new((0, 0))));
    let (agent_latch, agent_running) = (latch.clone(), running.clone());
    let host = host(agent_fn(move |turn: Turn| {
        let (latch, running) = (agent_latch.clone(), agent_running.clone());
        async move {
            {
                let mut running = running.lock();
                running.0 += 1;
                running.1 = running.0.max(running.1);
            }
            latch.pass().await;
            running.lock().0 -= 1;
            turn.ask(format!("re: {}", turn.text())).await
        }
    }));
    let client = host.client();
    let task = client.send(say("0").at_once()).await;
    latch.reached().await;
    let mut waiting = Vec::new();
    for number in 1..4 {
        waiting.push(client.send_meanwhile(say(&number.to_string()).to(&task)));
        settle_down().await;
    }
    latch.open();
    for (answer, number) in waiting.into_iter().zip(1..) {
        latch.reached().await;
        assert!(!answer.is_finished());
        latch.open();
        assert_eq!(status_text(&soon(answer).await.unwrap()), format!("re: {number}"));
    }
    host.idle().await;
    assert_eq!(running.lock().1, 1, "two turns of one task ran at the same time");
    let task = client.get(&task.id).await;
    for text in ["0", "1", "2", "3", "re: 0", "re: 1", "re: 2"] {
        assert_eq!(history(&task).iter().filter(|known| *known == text).count(), 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_sees_the_events_of_the_turn_before() {
    let latch = Latch::new();
    let (agent_latch, seen) = (latch.clone(), Arc::new(Mutex::new(Vec::new())));
    let notes = seen.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let (latch, notes) = (agent_latch.clone(), notes.clone());
        async move {
            if let Some(task) = turn.task() {
                notes.lock().push(task.artifacts.iter().map(|it| it.text()).collect::<Vec<_>>());
            }
            latch.pass().await;
            turn.artifact(turn.text()).text(turn.text()).await?;
            turn.ask("and?").await
        }
    }));
    let client = host.client();
    let task = client.send(say("first").at_once()).await;
    let second = client.send_meanwhile(say("second").to(&task));
    settle_down().await;
    latch.open();
    settle_down().await;
    latch.open();
    soon(second).await.unwrap();
    assert_eq!(*seen.lock(), [vec!["first".to_owned()]]);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_gets_the_final_task_if_the_turn_before_ends_it() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            latch.pass().await;
            turn.complete_with(format!("answered {}", turn.text())).await
        }
    }));
    let client = host.client();
    let task = client.send(say("first").at_once()).await;
    let second = client.send_meanwhile(say("second").to(&task));
    settle_down().await;
    latch.open();
    let second = soon(second).await.unwrap();
    assert_eq!((second.id.clone(), status_text(&second)), (task.id, "answered first".to_owned()));
    assert_eq!(history(&second), ["first", "second"]);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_is_answered_when_the_task_ends_and_not_when_the_agent_returns() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            latch.pass().await;
            turn.complete().await?;
            latch.pass().await;
            Ok(())
        }
    }));
    let client = host.client();
    let task = client.send(say("first").at_once()).await;
    let second = client.send_meanwhile(say("second").to(&task));
    latch.reached().await;
    settle_down().await;
    latch.open();
    latch.reached().await;
    settle_down().await;
    assert!(second.is_finished(), "the task has ended, but the second sender still waits");
    assert_eq!(second.await.unwrap().status.state, TaskState::Completed);
    latch.open();
    host.idle().await;
}

/// Sends a message at about the time when the task ends, with a store of random latency.
#[tokio::test(start_paused = true)]
async fn a_message_that_races_the_end_of_the_task_does_not_wait_for_the_agent() {
    for seed in 0..200 {
        let agent = agent_fn(|turn: Turn| async move {
            turn.working("").await?;
            tokio::time::sleep(Duration::from_millis(30)).await;
            turn.complete().await?;
            std::future::pending().await
        });
        let host = host_on(SlowStore::with_jitter(seed), agent, |_, _| {});
        let client = host.client();
        let task = client.send(say("first").at_once()).await;
        match client.try_send(say("second").to(&task)).await {
            Ok(answer) => assert_eq!(answer.task().status.state, TaskState::Completed),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnsupportedOperation),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_question_is_replaced_while_a_queued_message_is_answered() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            latch.pass().await;
            match turn.text().as_str() {
                "first" => turn.ask("which one?").await,
                _ => turn.complete().await,
            }
        }
    }));
    let client = host.client();
    let task = client.send(say("first").at_once()).await;
    latch.reached().await;
    let second = client.send_meanwhile(say("second").to(&task));
    settle_down().await;
    latch.open();
    latch.reached().await;
    assert_eq!(client.get(&task.id).await.status.state, TaskState::Working);
    latch.open();
    assert_eq!(soon(second).await.unwrap().status.state, TaskState::Completed);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_the_task_that_a_message_continues() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let host = host(agent_fn(move |turn: Turn| {
        notes.lock().push(turn.task().map(|task| history(&task)));
        async move { turn.ask("?").await }
    }));
    let client = host.client();
    let task = client.send(say("one")).await;
    client.send(say("two").to(&task)).await;
    let expected = vec!["one".to_owned(), "?".to_owned(), "two".to_owned()];
    assert_eq!(*seen.lock(), [None, Some(expected)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_task_that_has_ended_is_refused() {
    for (end, state) in [
        (Step::Complete, TaskState::Completed),
        (Step::Fail("no".into()), TaskState::Failed),
        (Step::Reject("no".into()), TaskState::Rejected),
    ] {
        let host = host(Script(vec![end]));
        let client = host.client();
        let task = client.send(say("hi")).await;
        assert_eq!(task.status.state, state);
        let error = client.try_send(say("more").to(&task)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        assert_eq!(client.get(&task.id).await, task);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_to_an_unknown_task_is_refused_even_in_a_known_context() {
    let host = host(asking());
    let client = host.client();
    let mut task = client.send(say("hi").in_context("c")).await;
    task.id = TaskId::from("nope");
    let error = client.try_send(say("hi").to(&task).in_context("c")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_context_id_is_generated_if_none_is_given() {
    let host = host(asking());
    let client = host.client();
    let (one, two) = (client.send(say("hi")).await, client.send(say("hi")).await);
    assert!(one.context_id.as_ref().is_some_and(|context| !context.is_empty()));
    assert_ne!(one.context_id, two.context_id);
    assert_eq!(one.history[0].context_id, one.context_id);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_the_client_chose_is_kept() {
    let host = host(asking());
    let task = host.client().send(say("hi").in_context("my own")).await;
    assert_eq!(task.context_id.unwrap().as_str(), "my own");
}

#[tokio::test(start_paused = true)]
async fn the_context_of_a_continued_task_is_inferred() {
    let host = host(asking());
    let client = host.client();
    let task = client.send(say("hi")).await;
    let after = client.send(say("this").to(&task)).await;
    assert_eq!(after.context_id, task.context_id);
    assert_eq!(after.history.last().unwrap().context_id, task.context_id);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_is_not_the_tasks_is_refused() {
    let host = host(asking());
    let client = host.client();
    let task = client.send(say("hi").in_context("c")).await;
    let error = client.try_send(say("this").to(&task).in_context("d")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert_eq!(error.field_violations()[0].field, "message.contextId");
    assert_eq!(client.get(&task.id).await, task);
}

#[tokio::test(start_paused = true)]
async fn no_more_history_is_returned_than_asked_for() {
    let host = host(Script(vec![Step::Ask("?".into())]));
    let client = host.client();
    let task = client.send(say("one")).await;
    for (limit, expected) in
        [(0, vec![]), (1, vec!["two"]), (9, vec!["one", "?", "two", "?", "two", "?", "two"])]
    {
        let answer =
            say("two").to(&task).configured(|configuration| configuration.history_length = Some(limit));
        assert_eq!(history(&client.send(answer).await), expected);
    }
}
