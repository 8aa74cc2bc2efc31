//! Streaming functions that write too much, or for too long.

use std::sync::Arc;
use std::time::Duration;

use attache_iii::{ChannelItem, FunctionInfo};
use attache_protocol::{Task, TaskState};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{Client, FakeEngine, SECOND, call, status_text};

/// What each piece of output counts beside its content.
const PIECE: usize = 256;

/// Registers a streaming function with a time limit of a second. What it writes is made by `write`, apart from the call.
fn register<F: Future<Output = ()> + Send + 'static>(
    engine: &Arc<FakeEngine>,
    returns: bool,
    write: impl Fn(mpsc::Sender<ChannelItem>) -> F + Send + Sync + 'static,
) {
    let function = FunctionInfo {
        metadata: Some(json!({"a2a.expose": true, "a2a.stream": true, "a2a.timeoutMs": 1000})),
        ..FunctionInfo::new("story::tell")
    };
    let writers = engine.clone();
    engine.register(function, move |_| {
        tokio::spawn(write(writers.writer()));
        Box::pin(async move {
            if !returns {
                std::future::pending::<()>().await;
            }
            Ok(json!(null))
        })
    });
}

async fn tell(client: &Client) -> Task {
    client.send(call("story::tell", json!({}))).await
}

#[tokio::test(start_paused = true)]
async fn output_up_to_the_limit_is_taken_and_a_byte_more_fails_the_task() {
    for (limit, expected) in [(2 * PIECE + 8, TaskState::Completed), (2 * PIECE + 7, TaskState::Failed)] {
        let engine = FakeEngine::new();
        register(&engine, true, |writer| async move {
            for _ in 0..2 {
                // The gateway may have closed the channel.
                let _ = writer.send(ChannelItem::Text("once".to_owned())).await;
            }
        });
        let task = tell(&Client::with(&engine, |options| options.max_output = limit)).await;
        assert_eq!(task.status.state, expected, "{}", status_text(&task));
        if expected == TaskState::Failed {
            assert_eq!(
                status_text(&task),
                format!("the function wrote more than the limit of {limit} bytes")
            );
            assert_eq!(task.artifacts[0].text(), "once", "what came before the limit is kept");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn empty_pieces_reach_the_limit_too() {
    let engine = FakeEngine::new();
    register(&engine, false, |writer| async move {
        while writer.send(ChannelItem::Bytes(Vec::new().into())).await.is_ok() {}
    });
    let task = tell(&Client::with(&engine, |options| options.max_output = 100 * PIECE)).await;
    assert!(status_text(&task).starts_with("the function wrote more than"), "{}", status_text(&task));
}

#[tokio::test(start_paused = true)]
async fn output_that_goes_on_does_not_outlast_the_time_limit() {
    let engine = FakeEngine::new();
    register(&engine, false, |writer| async move {
        while writer.send(ChannelItem::Text("on and on ".to_owned())).await.is_ok() {
            tokio::time::sleep(SECOND / 10).await;
        }
    });
    let begun = tokio::time::Instant::now();
    let task = tell(&Client::new(&engine)).await;
    assert!(status_text(&task).contains("did not return within 1 s"), "{}", status_text(&task));
    assert!(begun.elapsed() < 6 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn output_may_end_up_to_5_s_after_the_time_limit() {
    for (end, expected) in [(5_900, TaskState::Completed), (6_100, TaskState::Failed)] {
        let engine = FakeEngine::new();
        register(&engine, true, move |writer| async move {
            // Without a piece for 5 s, the output counts as ended.
            for _ in 0..5 {
                tokio::time::sleep(SECOND).await;
                let _ = writer.send(ChannelItem::Text("on ".to_owned())).await;
            }
            tokio::time::sleep(Duration::from_millis(end) - 5 * SECOND).await;
        });
        let task = tell(&Client::new(&engine)).await;
        assert_eq!(task.status.state, expected, "{end}: {}", status_text(&task));
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_that_has_returned_and_never_stops_writing_is_ended() {
    let engine = FakeEngine::new();
    register(&engine, true, |writer| async move {
        while writer.send(ChannelItem::Text("on and on ".to_owned())).await.is_ok() {
            tokio::time::sleep(SECOND).await;
        }
    });
    let task = tell(&Client::new(&engine)).await;
    assert_eq!(status_text(&task), "the function did not end its output within 6 s");
}
