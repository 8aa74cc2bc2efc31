//! A request may be dropped at any moment. Its effect is then complete, or it has none.

use attache_core::{Turn, agent_fn};
use attache_protocol::{CancelTaskRequest, Request, TaskState};

use crate::support::{Client, Host, SlowStore, history, host_on, say, settle_down, soon, status_text};

/// Hosts an agent that asks first and completes when it is answered, with a slow store.
fn slow_host() -> Host {
    let agent = agent_fn(|turn: Turn| async move {
        tokio::task::yield_now().await;
        match turn.task() {
            None => turn.ask("which one?").await,
            Some(_) => turn.complete_with(format!("took {}", turn.text())).await,
        }
    });
    host_on(SlowStore::shared(), agent, |_, _| {})
}

/// Polls a request so many times and drops it. Returns whether it was done by then.
async fn go_away_after(steps: usize, client: &Client, request: Request) -> bool {
    let mut call = Box::pin(client.service.call(client.caller.clone(), request, None));
    for _ in 0..steps {
        if futures::poll!(&mut call).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    drop(call);
    settle_down().await;
    false
}

#[tokio::test(start_paused = true)]
async fn a_first_message_of_a_dropped_request_is_either_not_accepted_or_answered() {
    for steps in 0.. {
        let host = slow_host();
        let client = host.client();
        let done = go_away_after(steps, &client, Request::SendMessage(Box::new(say("hi").0))).await;
        host.idle().await;
        for task in client.list_all().await {
            assert_eq!(task.status.state, TaskState::InputRequired, "after {steps} steps");
        }
        if done {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_message_with_a_key_of_a_dropped_request_is_either_not_accepted_or_answered() {
    for steps in 0.. {
        let host = slow_host();
        let client = host.client().with_key("k");
        let done = go_away_after(steps, &client, Request::SendMessage(Box::new(say("hi").0))).await;
        host.idle().await;
        for task in client.list_all().await {
            assert_eq!(task.status.state, TaskState::InputRequired, "after {steps} steps");
        }
        assert_eq!(client.send(say("hi")).await.status.state, TaskState::InputRequired);
        assert_eq!(client.list_all().await.len(), 1);
        if done {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_dropped_request_is_either_not_accepted_or_answered() {
    for streaming in [false, true] {
        for steps in 0.. {
            let host = slow_host();
            let client = host.client();
            let task = client.send(say("a cake")).await;
            host.idle().await;
            let answer = say("the big one").to(&task).0;
            let request = if streaming {
                Request::SendStreamingMessage(Box::new(answer))
            } else {
                Request::SendMessage(Box::new(answer))
            };
            let done = go_away_after(steps, &client, request).await;
            host.idle().await;
            let after = client.get(&task.id).await;
            if after != task {
                assert_eq!(status_text(&after), "took the big one", "after {steps} steps");
                assert_eq!(history(&after), ["a cake", "which one?", "the big one"]);
            } else {
                // The dropped request does not prevent another attempt.
                let again = soon(client.send(say("the big one").to(&task))).await;
                assert_eq!(status_text(&again), "took the big one");
            }
            if done {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_dropped_request_is_either_not_accepted_or_reaches_the_agent() {
    for steps in 0.. {
        let agent = agent_fn(|turn: Turn| async move {
            turn.working("").await?;
            turn.cancelled().await;
            Ok(())
        });
        let host = host_on(SlowStore::shared(), agent, |_, _| {});
        let client = host.client();
        let sent = client.send_meanwhile(say("hi"));
        settle_down().await;
        let task = client.list_all().await.remove(0);
        let request = CancelTaskRequest { id: task.id.clone(), ..CancelTaskRequest::default() };
        let done = go_away_after(steps, &client, Request::CancelTask(request)).await;
        let canceled = client.get(&task.id).await.status.state == TaskState::Canceled;
        settle_down().await;
        assert_eq!(sent.is_finished(), canceled, "after {steps} steps");
        assert_eq!(host.service.running_turns() == 0, canceled, "after {steps} steps");
        sent.abort();
        if done {
            break;
        }
    }
}
