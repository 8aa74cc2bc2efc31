//! A router in front of several agents, on a real server.

mod cases;
mod killable;

use attache_agents::router::{RoutedAgent, Router, RouterOptions, Rule};
use attache_client::{Client, ClientError, Reply};
use attache_core::{Agent, BoxAgent, Turn, agent_fn};
use attache_protocol::{AgentCard, AgentSkill, JsonObject, Message, Part, Task, TaskState};
use attache_server::Server;
use futures::StreamExt;
use serde_json::json;

/// An agent that asks for more if the text requests that, and otherwise answers with its name.
fn agent(name: &'static str) -> BoxAgent {
    agent_fn(move |turn: Turn| async move {
        match turn.text().as_str() {
            "ask" => turn.ask(format!("{name} asks")).await,
            _ => {
                turn.artifact("name").text(name).await?;
                turn.complete().await
            }
        }
    })
    .boxed()
}

fn routed(name: &'static str, skill: &str) -> (String, RoutedAgent) {
    let card = AgentCard::new(name, name).skill(AgentSkill::new(skill, skill));
    (name.to_owned(), RoutedAgent::new(agent(name), card))
}

fn router() -> Router {
    let options = RouterOptions::new().with(|options| {
        options.default = Some("chat".to_owned());
        let invoice = |rule: &mut Rule| rule.keywords = vec!["invoice".to_owned()];
        options.rules = vec![Rule::new("books").with(invoice)];
    });
    Router::new(options, [routed("chat", "talk"), routed("books", "count"), routed("maps", "count")]).unwrap()
}

async fn serve(router: Router) -> Client {
    let server = Server::new(router.clone()).card(router.card()).card_updates(router.cards());
    let server = server.bind("127.0.0.1:0").listen().await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run());
    Client::connect(&url).await.unwrap()
}

fn message(text: &str, metadata: &serde_json::Value) -> Message {
    let metadata = metadata.as_object().map(|metadata| JsonObject::new(metadata).unwrap());
    Message { metadata, ..Message::user("", text) }
}

async fn answered_by(client: &Client, message: Message) -> Result<String, ClientError> {
    let Reply::Task(task) = client.send(message).await? else { panic!("not a task") };
    Ok(text(&task))
}

fn text(task: &Task) -> String {
    task.artifacts[0].parts.iter().filter_map(Part::as_text).collect()
}

#[tokio::test]
async fn a_message_goes_to_the_named_agent_or_skill_or_by_rule_or_to_the_default() {
    let client = serve(router()).await;
    for (said, metadata, expected) in [
        ("hello", json!({}), "chat"),
        ("an Invoice for me", json!({}), "books"),
        ("an invoice", json!({"agent": "maps"}), "maps"),
        ("hello", json!({"skill": "talk"}), "chat"),
        ("hello", json!({"skill": "maps/count"}), "maps"),
    ] {
        let answer = answered_by(&client, message(said, &metadata)).await.unwrap();
        assert_eq!(answer, expected, "{said} {metadata}");
    }
}

#[tokio::test]
async fn a_message_that_names_nothing_known_is_refused_and_leaves_no_task() {
    let client = serve(router()).await;
    for (metadata, expected) in [
        (json!({"agent": "nothing"}), "no agent `nothing`, expected one of: books, chat, maps"),
        (json!({"skill": "fly"}), "no agent has the skill `fly`"),
        (json!({"skill": "count"}), "name the skill as `books/count`"),
    ] {
        let refused = answered_by(&client, message("hello", &metadata)).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    let alone = Router::new(RouterOptions::new(), [routed("chat", "talk")]).unwrap();
    let refused =
        answered_by(&serve(alone).await, message("hello", &json!({}))).await.unwrap_err().to_string();
    assert!(refused.contains("name one of these agents: chat"), "{refused}");
    assert!(client.tasks(Default::default()).next().await.is_none());
}

#[tokio::test]
async fn a_follow_up_goes_to_the_agent_that_asked() {
    let client = serve(router()).await;
    let Reply::Task(asked) = client.send(message("ask", &json!({"agent": "books"}))).await.unwrap() else {
        panic!("not a task")
    };
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let answer =
        Message { task_id: Some(asked.id.clone()), ..message("the answer", &json!({"agent": "maps"})) };
    assert_eq!(answered_by(&client, answer).await.unwrap(), "books");
}

#[tokio::test]
async fn the_card_has_the_skills_of_all_agents_and_follows_changes() {
    let router = router();
    let client = serve(router.clone()).await;
    let ids = |card: &AgentCard| card.skills.iter().map(|skill| skill.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&client.card()), ["books/count", "chat/talk", "maps/count"]);
    let mut cards = Box::pin(router.cards());
    router.set(RouterOptions::new(), [routed("new", "fly")]).unwrap();
    assert_eq!(ids(&cards.next().await.unwrap()), ["new/fly"]);
    assert_eq!(answered_by(&client, message("hello", &json!({"agent": "new"}))).await.unwrap(), "new");
}

#[tokio::test]
async fn a_removed_router_does_not_keep_its_agents() {
    let (kept, mut gone) = tokio::sync::mpsc::channel::<()>(1);
    let agent = agent_fn(move |_: Turn| {
        let _kept = &kept;
        async { Ok(()) }
    });
    let routed = RoutedAgent::new(agent, AgentCard::new("chat", "chat"));
    let router = Router::new(RouterOptions::new(), [("chat".to_owned(), routed)]).unwrap();
    let mut cards = Box::pin(router.cards());
    drop(router);
    assert!(gone.recv().await.is_none(), "the agent is gone");
    assert!(cards.next().await.is_none());
}

#[test]
fn a_rule_for_an_unknown_agent_is_an_error_that_lists_the_known_ones() {
    let options = RouterOptions::new().with(|options| options.rules = vec![Rule::new("books")]);
    let error = Router::new(options, [routed("chat", "talk")]).unwrap_err().to_string();
    assert_eq!(error, "the router has no agent `books`, expected one of: chat");
}
