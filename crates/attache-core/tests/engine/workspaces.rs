//! The workspace of a context.

use std::sync::Arc;

use attache_core::{
    Agent, Clock, ContextRecords, Conversation, DefaultWorkspace, MemoryStore, PeerRules, Redaction, Store,
    Turn, Workspaces, agent_fn, conversational, private_temporary_directory,
};
use attache_protocol::{Artifact, ErrorKind, JsonObject, Message, Part, TaskState};
use serde_json::json;

use crate::support::{Host, Latch, Say, SlowStore, host_on, host_with, say, say_part, status_text};

/// An agent that says where it works, and what it reads.
fn agent(workspaces: Workspaces) -> impl Agent {
    let agent = agent_fn(|turn: Turn| async move {
        let workspace = turn.context().workspace().await?;
        let text = format!("{}\n{}", workspace.root().display(), turn.input().await?.text());
        turn.artifact("a").text(text).await
    });
    conversational(agent, Conversation::default().with(|rules| rules.workspaces = workspaces))
}

fn answer(task: &attache_protocol::Task) -> String {
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    task.artifacts[0].text()
}

struct Setup {
    folder: tempfile::TempDir,
    host: Host,
}

fn setup(peer: PeerRules) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    for name in ["allowed/one", "allowed/two", "outside"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let workspaces = Workspaces::default()
        .allow([folder.path().join("allowed")])
        .default_to(DefaultWorkspace::Private(folder.path().join("data")));
    let host = host_with(agent(workspaces), |_, options| options.peer = peer);
    Setup { folder, host }
}

impl Setup {
    fn in_directory(&self, say: Say, name: &str) -> Say {
        let path = self.folder.path().join(name);
        let metadata = json!({"iac_code": {"cwd": path}});
        let mut say = say;
        say.0.message.metadata = Some(JsonObject::new(&metadata).unwrap());
        say
    }
}

#[tokio::test]
async fn a_context_works_in_the_directory_that_its_first_message_names() {
    let setup = setup(PeerRules::Standard);
    let client = setup.host.client();
    let one = setup.folder.path().join("allowed/one").canonicalize().unwrap();
    let named = |text: &str, name: &str| setup.in_directory(say(text).in_context("c"), name);
    assert!(answer(&client.send(named("a", "allowed/one")).await).starts_with(one.to_str().unwrap()));
    assert!(answer(&client.send(say("b").in_context("c")).await).starts_with(one.to_str().unwrap()));
    let error = client.try_send(named("c", "allowed/two")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    let text = &error.field_violations()[0].description;
    assert!(text.contains("different workspace") && !text.contains("allowed"), "{text}");
    let error = client.try_send(setup.in_directory(say("x"), "outside")).await.unwrap_err();
    assert_eq!(error.field_violations()[0].field, "message.metadata.iac_code.cwd");
    // The directory goes away: the next turn notices.
    std::fs::remove_dir(&one).unwrap();
    let failed = client.send(say("d").in_context("c")).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert!(status_text(&failed).contains("it must be a directory that exists"), "{failed:?}");
}

#[tokio::test]
async fn without_a_name_each_context_has_a_private_directory() {
    let setup = setup(PeerRules::Standard);
    let client = setup.host.client();
    let place = async |context: &str| {
        let text = answer(&client.send(say("x").in_context(context)).await);
        text.lines().next().unwrap().to_owned()
    };
    let (one, two, again) = (place("a").await, place("b").await, place("a").await);
    assert_eq!(one, again);
    assert_ne!(one, two);
    assert!(one.starts_with(setup.folder.path().join("data").canonicalize().unwrap().to_str().unwrap()));
}

#[tokio::test]
async fn iac_code_fails_the_task_with_its_words() {
    let setup = setup(PeerRules::IacCode);
    let client = setup.host.client();
    for name in ["outside", "allowed/missing", "allowed/../outside"] {
        let failed = client.send(setup.in_directory(say("x"), name)).await;
        assert_eq!(failed.status.state, TaskState::Failed);
        assert_eq!(status_text(&failed), "Invalid A2A workspace metadata.");
    }
    client.send(setup.in_directory(say("x").in_context("c"), "allowed/one")).await;
    let failed = client.send(setup.in_directory(say("x").in_context("c"), "allowed/two")).await;
    assert_eq!(status_text(&failed), "A2A context belongs to a different workspace");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_message_brings_files_of_its_workspace() {
    let setup = setup(PeerRules::Standard);
    let client = setup.host.client();
    std::fs::write(setup.folder.path().join("allowed/one/a.txt"), "content").unwrap();
    std::fs::write(setup.folder.path().join("outside/secret"), "secret").unwrap();
    let url = |name: &str| Part::url(format!("file://{}", setup.folder.path().join(name).display()));
    let send = |name: &str| setup.in_directory(say_part(url(name)).in_context("c"), "allowed/one");
    assert!(answer(&client.send(send("allowed/one/a.txt")).await).ends_with("a.txt:\ncontent"));
    for name in ["outside/secret", "allowed/one/../../outside/secret", "allowed/one/missing"] {
        let error = client.try_send(send(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{name}");
        assert_eq!(error.field_violations()[0].field, "message.parts[0]");
    }
}

#[tokio::test]
async fn the_workspace_is_hidden_also_in_what_an_agent_repeats() {
    let agent = agent_fn(|turn: Turn| async move {
        let context = turn.context();
        // Later turns know the workspace from the first one, and do not open it.
        let place = match context.runtime::<String>("place") {
            Some(place) => place,
            None => context.workspace().await?.root().display().to_string().into(),
        };
        context.keep("place", place.clone());
        let metadata = JsonObject::new(&json!({"other": {"cwd": *place}}))?;
        let message = Message::user("m", format!("in {place}/src, with hunter2-hunter2"));
        turn.repeat_status(TaskState::Working, Some(message), Some(metadata)).await?;
        let artifact = Artifact {
            artifact_id: "a".into(),
            name: Some(format!("{place}/a.txt")),
            parts: vec![Part::text(format!("{place}/b is hunter2")), Part::text("-hunter2")],
            metadata: Some(JsonObject::new(&json!({"path": format!("{place}/a.txt")}))?),
            ..Artifact::default()
        };
        turn.repeat_artifact(artifact).await?;
        turn.complete_with(format!("done in {place}")).await
    });
    let folder = tempfile::tempdir().unwrap();
    let workspaces =
        Workspaces::default().default_to(DefaultWorkspace::Private(folder.path().join("contexts")));
    let rules = Conversation::default().with(|rules| rules.workspaces = workspaces);
    let host = host_with(conversational(agent, rules), |_, options| {
        options.redaction = Some(Redaction::new().secret("hunter2-hunter2").path("/nowhere", "<nowhere>"));
    });
    let client = host.client();
    for _ in 0..2 {
        let events = client.stream(say("go").in_context("c")).await.rest().await;
        let all = format!("{events:?}");
        assert!(!all.contains(folder.path().to_str().unwrap()) && !all.contains("hunter2"), "{all}");
        assert!(all.contains("in <workspace>/src, with ********"), "{all}");
    }
    let task = client.list_all().await.remove(0);
    let task = client.get(&task.id).await;
    assert_eq!(task.artifacts[0].text(), "<workspace>/b is ********");
    assert_eq!(task.artifacts[0].name.as_deref(), Some("<workspace>/a.txt"));
    assert_eq!(status_text(&task), "done in <workspace>");
}

#[tokio::test]
async fn a_context_with_a_private_directory_stays_with_the_server_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server = |home: &str| {
        let default = DefaultWorkspace::Private(folder.path().join(home));
        host_on(store.clone(), agent(Workspaces::default().default_to(default)), |_, _| {})
    };
    let (one, other) = (server("one"), server("other"));
    let place = answer(&one.client().send(say("a").in_context("c")).await);
    let refused = other.client().try_send(say("b").in_context("c")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.message().starts_with("the files of this context are on another server"), "{refused:?}");
    // Nothing was changed, and a restart of the first one is no other server.
    let again = answer(&server("one").client().send(say("c").in_context("c")).await);
    assert_eq!(place.lines().next(), again.lines().next());
    assert!(other.client().try_send(say("d").in_context("d")).await.is_ok());
}

#[tokio::test]
async fn a_context_with_a_temporary_directory_goes_on_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server = |home: &str| {
        let default = DefaultWorkspace::Temporary(folder.path().join(home));
        host_on(store.clone(), agent(Workspaces::default().default_to(default)), |_, _| {})
    };
    let place = answer(&server("one").client().send(say("a").in_context("c")).await);
    let other = answer(&server("other").client().send(say("b").in_context("c")).await);
    assert_ne!(place.lines().next(), other.lines().next());
}

/// A server whose data are below a directory that callers may name.
fn nested(folder: &std::path::Path, peer: PeerRules) -> Host {
    for name in ["project", "artifacts/task"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let workspaces = Workspaces::default()
        .allow([folder.to_owned(), std::env::temp_dir()])
        .default_to(DefaultWorkspace::Private(folder.join("data")))
        .keep_private([folder.join("artifacts"), folder.join("tasks.db")]);
    host_with(agent(workspaces), |_, options| options.peer = peer)
}

fn naming(path: &std::path::Path) -> Say {
    let mut say = say("x");
    let metadata = json!({"attache": {"workspace": path}});
    say.0.message.metadata = Some(JsonObject::new(&metadata).unwrap());
    say
}

#[tokio::test]
async fn no_caller_can_work_in_the_data_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let host = nested(folder.path(), PeerRules::Standard);
    let (alice, mallory) = (host.user("alice"), host.user("mallory"));
    let place = answer(&alice.send(say("secret plans")).await).lines().next().unwrap().to_owned();
    let temporary = private_temporary_directory().unwrap();
    let at = |name: &str| folder.path().join(name);
    let private = [at("data"), at("artifacts"), at("artifacts/task"), temporary, place.into()];
    for path in &private {
        let error = mallory.try_send(naming(path)).await.unwrap_err();
        let text = &error.field_violations()[0].description;
        assert!(text.starts_with("it must be inside"), "{}: {text}", path.display());
    }
    let error = mallory.try_send(naming(folder.path())).await.unwrap_err();
    let text = &error.field_violations()[0].description;
    assert!(text.starts_with("it must not contain the data of the server"), "{text}");
    answer(&mallory.send(naming(&at("project"))).await);
    let host = nested(folder.path(), PeerRules::IacCode);
    for path in private.iter().chain([&folder.path().to_owned()]) {
        let failed = host.user("mallory").send(naming(path)).await;
        assert_eq!(status_text(&failed), "Invalid A2A workspace metadata.", "{}", path.display());
    }
}

#[tokio::test]
async fn a_context_in_a_named_directory_stays_with_its_server_unless_all_servers_share_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("project")).unwrap();
    let store: Arc<dyn Store> = SlowStore::of_several_servers();
    let server = |home: &str, is_shared: bool| {
        let default = DefaultWorkspace::Private(folder.path().join(home));
        let workspaces = Workspaces::default().allow([folder.path().join("project")]).default_to(default);
        let workspaces = if is_shared { workspaces.shared_by_servers() } else { workspaces };
        host_on(store.clone(), agent(workspaces), |_, _| {})
    };
    let named = |context: &str| naming(&folder.path().join("project")).in_context(context);
    answer(&server("one", false).client().send(named("c")).await);
    for other in [named("c"), say("x").in_context("c")] {
        let refused = server("other", false).client().try_send(other).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(
            refused.message().starts_with("the files of this context are on another server"),
            "{refused:?}"
        );
    }
    answer(&server("one", false).client().send(say("x").in_context("c")).await);
    answer(&server("one", true).client().send(named("d")).await);
    answer(&server("other", true).client().send(say("x").in_context("d")).await);
}

#[tokio::test]
async fn a_context_that_is_closed_during_a_turn_is_not_filled_again() {
    let folder = tempfile::tempdir().unwrap();
    let latch = Latch::new();
    let passing = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = passing.clone();
        async move {
            latch.pass().await;
            turn.context().set_state("agent", &"remembered").await?;
            turn.context().workspace().await?;
            turn.complete().await
        }
    });
    let workspaces = Workspaces::default().default_to(DefaultWorkspace::Private(folder.path().join("data")));
    let agent = conversational(agent, Conversation::default().with(|rules| rules.workspaces = workspaces));
    let host = host_with(agent, |_, _| {});
    let client = host.client();
    let running = client.send_meanwhile(say("x").in_context("c"));
    latch.reached().await;
    let records = ContextRecords::new(host.store.clone());
    let owner = records.list().await.unwrap()[0].owner();
    records.close(&owner, &"c".into(), host.clock.now()).await.unwrap();
    latch.open();
    let ended = running.await.unwrap();
    assert_eq!(status_text(&ended), "the context was closed");
    let [record] = &records.list().await.unwrap()[..] else { panic!("there is one context") };
    assert!(record.state.is_empty() && record.workspace.is_none(), "{record:?}");
    let left = std::fs::read_dir(folder.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".home"]);
}
