//! Notifications about content that is stored apart from the events.

use std::sync::Arc;

use attache_core::{MemoryStore, PushEvents, Turn, agent_fn};
use serde_json::Value;

use super::{Receiver, plain, pushing, send_with};
use crate::artifacts::artifacts;
use crate::support::{Binding, serve};

#[tokio::test]
async fn a_notification_has_the_url_of_stored_content() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let agent = agent_fn(|turn: Turn| async move {
        turn.artifact("report").file("report.txt", "text/plain", "a report of some length").await?;
        turn.complete().await
    });
    let server = pushing(agent, &store, |_| {})
        .service_options(|options| options.push_events = PushEvents::Everything)
        .artifacts(artifacts(&folder));
    let server = serve(server).await;
    let mut receiver = Receiver::start().await;
    let sent =
        server.ask("SendMessage", send_with("hi", &plain(receiver.url("/")))).ok(Binding::JsonRpc).await;
    let url = &sent["task"]["artifacts"][0]["parts"][0]["url"];
    let told = loop {
        let body: Value = receiver.told().await.body();
        if let Some(update) = body.get("artifactUpdate") {
            break update["artifact"]["parts"][0]["url"].clone();
        }
    };
    assert_eq!(told, *url);
    assert!(url.as_str().unwrap().starts_with(&server.base), "{url}");
}
