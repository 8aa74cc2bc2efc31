//! Many concurrent clients on real threads: every request is answered, and all clients see the same result.

use std::time::Duration;

use attache_core::{AgentError, Turn, agent_fn};
use attache_protocol::{ErrorKind, Task};

use crate::support::{Client, Host, host, say};

/// An agent whose turns end in different ways, which the text of the message selects.
fn varying_agent() -> Host {
    host(agent_fn(|turn: Turn| async move {
        let mood: u64 = turn.text().parse()?;
        if mood.is_multiple_of(2) {
            turn.working("hm").await?;
        }
        for _ in 0..mood % 5 {
            tokio::task::yield_now().await;
        }
        turn.artifact("trace").text(mood.to_string()).await?;
        match mood % 7 {
            0 => turn.complete().await,
            1 => Err(AgentError::public("no luck")),
            2 if mood.is_multiple_of(3) => panic!("a mood"),
            3 => turn.require_auth("who?").await,
            _ => turn.ask("and now?").await,
        }
    }))
}

/// Sends another message. It may be rejected, because other clients may have ended the task.
async fn send_more(client: Client, task: Task, seed: u64) {
    for number in 0..4 {
        match client.try_send(say(&(seed * 31 + number * 17).to_string()).to(&task)).await {
            Ok(answer) => assert!(answer.task().status.state.is_settled()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error}"),
        }
    }
}

async fn one_task(client: Client, seed: u64) {
    let Ok(answer) = client.try_send(say(&(seed * 7 + 4).to_string()).at_once()).await else {
        panic!("a first message is taken")
    };
    let task = answer.task();
    let reader = match client.try_subscribe(&task.id, None).await {
        Ok(events) => Some(tokio::spawn(events.rest())),
        Err(_) => None,
    };
    let nagging =
        [send_more(client.clone(), task.clone(), seed), send_more(client.clone(), task.clone(), seed + 1)]
            .map(tokio::spawn);
    for send_more in nagging {
        send_more.await.unwrap();
    }
    if let Err(error) = client.cancel(&task.id).await {
        assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
    }
    let end = client.get(&task.id).await;
    assert!(end.status.state.is_terminal());
    if let Some(reader) = reader {
        let seen = reader.await.unwrap();
        let ends: Vec<_> =
            seen.iter().filter_map(|event| event.state()).filter(|state| state.is_terminal()).collect();
        assert_eq!(ends, [end.status.state]);
        let seqs: Vec<_> = seen.iter().filter_map(|event| event.seq).collect();
        assert!(seqs.is_sorted() && seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_of_many_concurrent_clients_is_answered() {
    let host = varying_agent();
    let client = host.client();
    let all: Vec<_> = (0..150).map(|seed| tokio::spawn(one_task(client.clone(), seed))).collect();
    for one in all {
        tokio::time::timeout(Duration::from_secs(60), one).await.expect("everyone is answered").unwrap();
    }
    host.idle().await;
    assert_eq!(client.list(Default::default()).await.unwrap().total_size, 150);
}
