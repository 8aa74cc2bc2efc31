//! What the model gets of earlier messages: their content, and never their URLs.

use std::path::Path;
use std::sync::Arc;

use attache_agents::model::ModelOptions;
use attache_client::{Client, Outgoing};
use attache_core::{BoxFuture, DefaultWorkspace, Fetch, FetchError, Fetched, Namespace};
use attache_protocol::{Content, Message, Part, Role, StreamResponse, Task, TaskState};
use serde_json::Value;

use super::{Step, failure, serve, serve_with, task, text};

/// Sends a message in one context.
async fn say(agent: &Client, message: impl Into<Outgoing>) -> Task {
    task(agent.send(message.into().context("c")).await.unwrap())
}

fn url(url: &str, media_type: &str) -> Part {
    Part { content: Content::Url(url.to_owned()), ..Part::text("") }.media_type(media_type)
}

fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The messages of a request, as text.
fn messages(request: &Value) -> String {
    request["messages"].to_string()
}

#[tokio::test]
async fn files_of_the_workspace_are_passed_again_without_their_urls() {
    let folder = tempfile::tempdir().unwrap();
    let (image, notes) = (folder.path().join("a.png"), folder.path().join("notes.txt"));
    std::fs::write(&image, [1, 2, 3]).unwrap();
    std::fs::write(&notes, "the notes").unwrap();
    let change = |options: &mut ModelOptions| {
        options.conversation.workspaces.default = DefaultWorkspace::Shared(folder.path().to_owned());
    };
    let steps = [Step::Say(&["a cat"]), Step::Say(&["again"]), Step::Say(&["once more"])];
    let (agent, script) = serve(steps, change, Vec::new()).await;
    let look = Message::user("m", "look").part(url(&file_url(&image), "image/png"));
    say(&agent, look.part(url(&file_url(&notes), "text/plain"))).await;
    assert_eq!(text(&say(&agent, "and now?").await), "again");
    // A file that is gone does not keep the conversation from going on.
    std::fs::remove_file(&image).unwrap();
    assert_eq!(text(&say(&agent, "and now?").await), "once more");
    let requests = script.requests.lock();
    for request in &requests[1..] {
        assert!(!messages(request).contains("file:"), "{request}");
        assert!(messages(request).contains("notes.txt:\\nthe notes"), "{request}");
    }
    assert!(messages(&requests[1]).contains("data:image/png;base64,AQID"), "{}", requests[1]);
    assert!(messages(&requests[2]).contains("(a.png, image/png, of an earlier message"), "{}", requests[2]);
}

/// Reads one URL, and refuses the others.
struct OnePage;

impl Fetch for OnePage {
    fn fetch<'a>(&'a self, url: &'a str, _: usize) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(async move {
            match url {
                "https://example.org/page" => Ok(Fetched { bytes: b"the page".into(), media_type: None }),
                _ => Err(FetchError("the address is not public".to_owned())),
            }
        })
    }
}

#[tokio::test]
async fn a_remote_url_is_read_once_and_never_passed_to_the_endpoint() {
    let change = |options: &mut ModelOptions| options.conversation.input.fetch = Some(Arc::new(OnePage));
    let (agent, script) = serve([Step::Say(&["I see."]), Step::Say(&["again"])], change, Vec::new()).await;
    let image = url("https://10.0.0.1/secret.png", "image/png");
    assert!(failure(&say(&agent, Message::user("m1", "look").part(image)).await).contains("not public"));
    let page = url("https://example.org/page", "text/plain");
    say(&agent, Message::user("m2", "read").part(page)).await;
    say(&agent, "and now?").await;
    let requests = script.requests.lock();
    assert!(messages(&requests[0]).contains("the page"), "{}", requests[0]);
    assert!(!messages(&requests[0]).contains("10.0.0.1"), "{}", requests[0]);
    assert!(!messages(&requests[1]).contains("https:"), "{}", requests[1]);
    assert!(messages(&requests[1]).contains("text/plain, of an earlier message"), "{}", requests[1]);
}

#[tokio::test]
async fn an_image_is_passed_again_as_it_was() {
    let (agent, script) = serve([Step::Say(&["a cat"]), Step::Say(&["again"])], |_| {}, Vec::new()).await;
    let image = Part::raw([1, 2, 3]).media_type("image/png").filename("a.png");
    say(&agent, Message::user("m", "look").part(image)).await;
    say(&agent, "and now?").await;
    let requests = script.requests.lock();
    assert_eq!(requests[1]["messages"][0], requests[0]["messages"][0]);
}

#[tokio::test]
async fn a_large_image_does_not_take_the_place_of_the_conversation() {
    let small = |options: &mut ModelOptions| options.max_context = 1000;
    let (agent, script) = serve([Step::Say(&["a cat"]), Step::Say(&["again"])], small, Vec::new()).await;
    let image = Part::raw([0; 2000]).media_type("image/png").filename("a.png");
    say(&agent, Message::user("m", "look").part(image)).await;
    say(&agent, "and now?").await;
    let requests = script.requests.lock();
    let contents: Vec<_> =
        requests[1]["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    let described = "look\n(a.png, image/png, 2000 bytes, of an earlier message, is not shown again)";
    assert_eq!(contents, [described, "a cat", "and now?"]);
}

#[tokio::test]
async fn the_reply_for_clients_of_iac_code_is_in_status_messages_and_remembered() {
    let steps = [Step::Say(&["Here is\n", "the tem", "plate.\n", "Done."]), Step::Say(&["Again."])];
    let compatible = |options: &mut attache_core::Options| options.reports.namespace = Namespace::IacCode;
    let (agent, script) = serve_with(steps, |_| {}, Vec::new(), compatible, Arc::default()).await;
    let mut events = agent.stream(Outgoing::new("a template").context("c")).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            StreamResponse::StatusUpdate(update) => {
                let Some(message) = update.status.message else { continue };
                assert_eq!((update.status.state, message.role), (TaskState::Working, Role::Agent));
                said.push(message.text());
            }
            StreamResponse::ArtifactUpdate(update) => panic!("text in an artifact: {update:?}"),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        }
    }
    assert_eq!(said.concat(), "Here is\nthe template.\nDone.");
    let (last, lines) = said.split_last().unwrap();
    assert!(last.ends_with("Done.") && lines.iter().all(|text| text.ends_with('\n')), "{said:?}");
    let second = say(&agent, "and now?").await;
    assert!(second.artifacts.is_empty(), "{second:?}");
    let requests = script.requests.lock();
    assert_eq!(requests[1]["messages"][1]["content"], "Here is\nthe template.\nDone.");
}
