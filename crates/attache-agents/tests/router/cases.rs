//! What every kind of agent is tried with, through a router: a change of the rules, a restart, a cancel, failures, many contexts.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::router::{RoutedAgent, Router, RouterOptions};
use attache_client::{Client, Outgoing, Reply};
use attache_core::{Agent, AgentError, BoxAgent, MemoryStore, Turn, agent_fn, restartable};
use attache_protocol::{AgentCard, Task, TaskState};
use attache_server::Server;
use futures::future::join_all;
use serde_json::json;
use tokio::sync::mpsc;

use crate::killable::Killable;
use crate::{message, routed, text};

fn named(name: &str, agent: BoxAgent) -> (String, RoutedAgent) {
    (name.to_owned(), RoutedAgent::new(agent, AgentCard::new(name, name)))
}

fn to(default: &str, agents: Vec<(String, RoutedAgent)>) -> Router {
    Router::new(default_is(default), agents).unwrap()
}

fn default_is(name: &str) -> RouterOptions {
    RouterOptions::new().with(|options| options.default = Some(name.to_owned()))
}

fn both() -> Vec<(String, RoutedAgent)> {
    vec![routed("chat", "talk"), routed("books", "count")]
}

async fn serve(
    router: Router,
    store: Arc<MemoryStore>,
    change: impl FnOnce(&mut attache_core::Options),
) -> Client {
    let server = Server::new(router.clone()).card(router.card()).shared_store(store).service_options(change);
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    Client::connect(&url).await.unwrap()
}

async fn send(client: &Client, message: impl Into<Outgoing>) -> Task {
    match client.send(message).await.unwrap() {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("a message instead of a task: {message:?}"),
    }
}

fn said(task: &Task) -> String {
    task.status.message.as_ref().unwrap().text()
}

#[tokio::test]
async fn an_answer_goes_to_the_agent_that_asked_after_a_change_of_the_rules() {
    let router = to("chat", both());
    let client = serve(router.clone(), Arc::default(), |_| {}).await;
    let asked = send(&client, "ask").await;
    assert_eq!((asked.status.state, said(&asked).as_str()), (TaskState::InputRequired, "chat asks"));
    router.set(default_is("books"), both()).unwrap();
    assert_eq!(text(&send(&client, "something new").await), "books");
    assert_eq!(text(&send(&client, Outgoing::new("the answer").answering(&asked)).await), "chat");
}

#[tokio::test]
async fn an_answer_to_an_agent_that_is_gone_fails_and_names_it() {
    let router = to("chat", both());
    let client = serve(router.clone(), Arc::default(), |_| {}).await;
    let asked = send(&client, "ask").await;
    router.set(default_is("books"), vec![routed("books", "count")]).unwrap();
    let failed = send(&client, Outgoing::new("the answer").answering(&asked)).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(said(&failed), "the agent `chat`, which this task went to, does not exist any more");
}

#[tokio::test]
async fn an_answer_goes_to_the_agent_that_asked_after_a_restart_with_other_rules() {
    let store = Arc::new(MemoryStore::new());
    let of = |default: &'static str| {
        let store = store.clone();
        move || {
            let router = to(default, both());
            Server::new(router.clone()).card(router.card()).shared_store(store)
        }
    };
    let server = Killable::start(of("chat")).await;
    let asked = send(&Client::connect(&server.url).await.unwrap(), "ask").await;
    server.kill().await;
    let server = Killable::start(of("books")).await;
    let client = Client::connect(&server.url).await.unwrap();
    assert_eq!(text(&send(&client, Outgoing::new("the answer").answering(&asked)).await), "chat");
}

#[tokio::test]
async fn a_caller_cannot_write_the_note_of_the_router() {
    let client = serve(to("chat", both()), Arc::default(), |_| {}).await;
    let forged = message("ask", &json!({"attache.agent": "books"}));
    assert_eq!(said(&send(&client, forged).await), "chat asks");
}

/// An agent that says that it works and waits, and completes if it runs again.
fn slow(begun: mpsc::UnboundedSender<()>) -> BoxAgent {
    agent_fn(move |turn: Turn| {
        let begun = begun.clone();
        async move {
            if turn.is_rerun() {
                return turn.complete_with("again").await;
            }
            turn.working("on it").await?;
            let _ = begun.send(());
            std::future::pending().await
        }
    })
    .boxed()
}

#[tokio::test]
async fn after_a_kill_a_task_runs_again_if_its_own_agent_allows_that() {
    let store = Arc::new(MemoryStore::new());
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let make = || {
        let (store, begun) = (store.clone(), begun.clone());
        move || {
            let agents = vec![
                named("model", restartable(slow(begun.clone())).boxed()),
                named("program", slow(begun.clone())),
            ];
            let router = to("model", agents);
            Server::new(router.clone()).card(router.card()).shared_store(store)
        }
    };
    let server = Killable::start(make()).await;
    let client = Client::connect(&server.url).await.unwrap();
    let first = send(&client, Outgoing::new("go").return_immediately()).await;
    let program = message("go", &json!({"agent": "program"}));
    let second = send(&client, Outgoing::new(program).return_immediately()).await;
    for _ in 0..2 {
        has_begun.recv().await.unwrap();
    }
    server.kill().await;
    let server = Killable::start(make()).await;
    let client = Client::connect(&server.url).await.unwrap();
    let first = client.wait_until(first.id, |task| task.status.state.is_terminal()).await.unwrap();
    assert_eq!((first.status.state, said(&first).as_str()), (TaskState::Completed, "again"));
    let second = client.wait_until(second.id, |task| task.status.state.is_terminal()).await.unwrap();
    assert_eq!(second.status.state, TaskState::Failed);
    assert!(said(&second).contains("the server stopped while the agent was at work"), "{second:?}");
}

#[tokio::test]
async fn a_cancel_in_the_middle_reaches_the_chosen_agent() {
    let (events, mut seen) = mpsc::unbounded_channel();
    let agent = agent_fn(move |turn: Turn| {
        let events = events.clone();
        async move {
            turn.working("on it").await?;
            let _ = events.send("working");
            turn.cancelled().await;
            let _ = events.send("canceled");
            Ok(())
        }
    });
    let router = to("busy", vec![named("busy", agent.boxed()), routed("chat", "talk")]);
    let client = serve(router, Arc::default(), |_| {}).await;
    let task = send(&client, Outgoing::new("go").return_immediately()).await;
    assert_eq!(seen.recv().await, Some("working"));
    assert_eq!(client.cancel(task.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(seen.recv().await, Some("canceled"));
}

#[tokio::test]
async fn a_failure_of_the_chosen_agent_is_that_of_the_task() {
    let fails = agent_fn(async |_: Turn| Err(AgentError::public("no paper")));
    let breaks = agent_fn(async |_: Turn| Err("the password is 1234".into()));
    let panics = agent_fn(async |_: Turn| panic!("the password is 1234"));
    let agents =
        vec![named("fails", fails.boxed()), named("breaks", breaks.boxed()), named("panics", panics.boxed())];
    let client = serve(to("fails", agents), Arc::default(), |_| {}).await;
    let failure = async |name: &str| {
        let task = send(&client, message("go", &json!({"agent": name}))).await;
        assert_eq!(task.status.state, TaskState::Failed);
        said(&task)
    };
    assert_eq!(failure("fails").await, "no paper");
    for name in ["breaks", "panics"] {
        let text = failure(name).await;
        assert!(text.starts_with("the agent failed (error id "), "{text}");
    }
}

#[tokio::test]
async fn an_agent_that_hangs_fails_at_the_limit_of_turns() {
    let (begun, _has_begun) = mpsc::unbounded_channel();
    let router = to("slow", vec![named("slow", slow(begun))]);
    let short = |options: &mut attache_core::Options| options.turn_timeout = Duration::from_millis(200);
    let failed = send(&serve(router, Arc::default(), short).await, "go").await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(said(&failed), "the agent did not finish within 0.2 s");
}

#[tokio::test]
async fn a_hundred_contexts_at_once_are_answered_by_their_own_agents() {
    let client = serve(to("chat", both()), Arc::default(), |_| {}).await;
    let turns = (0..100).map(|number| {
        let client = &client;
        async move {
            let name = ["chat", "books"][number % 2];
            let context = format!("context {number}");
            let asking = Outgoing::new(message("ask", &json!({"agent": name}))).context(context.as_str());
            let asked = send(client, asking).await;
            assert_eq!(said(&asked), format!("{name} asks"));
            let answered = send(client, Outgoing::new("the answer").answering(&asked)).await;
            assert_eq!((text(&answered).as_str(), answered.context_id.unwrap().as_str()), (name, &*context));
        }
    });
    join_all(turns).await;
}
