//! Agents that are chosen at run time: boxed, and built by name from settings.

use attache_core::{
    Agent, AgentKinds, AgentResult, BoxAgent, BuildAgentError, Caller, Conversation, Echo, Turn, agent_fn,
    conversational, restartable,
};
use attache_protocol::{Artifact, Error, ErrorKind, JsonObject, Message, Role, TaskState};
use serde_json::{Value, json};

use crate::support::{Script, Step, host, say, status_text};

/// An agent that admits no message.
struct Closed;

impl Agent for Closed {
    async fn run(&self, _: Turn) -> AgentResult {
        panic!("no message was admitted")
    }

    fn admits(&self, _: &Caller, _: &Message) -> Result<(), Error> {
        Err(Error::new(ErrorKind::PermissionDenied, "closed"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_boxed_agent_behaves_like_the_agent_in_it() {
    let completes: BoxAgent = Echo.boxed();
    assert_eq!(host(completes).client().send(say("hi")).await.status.state, TaskState::Completed);
    let asks = Script(vec![Step::Ask("which one?".into())]).boxed();
    assert_eq!(status_text(&host(asks).client().send(say("hi")).await), "which one?");
    let error = host(Closed.boxed()).client().try_send(say("hi")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_boxed_agent_is_restartable_if_the_agent_in_it_is() {
    let plain = || agent_fn(|turn: Turn| async move { turn.complete().await });
    assert!(Echo.boxed().restartable());
    assert!(!plain().boxed().restartable());
    assert!(restartable(plain().boxed()).boxed().restartable());
}

/// An agent that notes something in messages that begin a task, reports, and may run again for some tasks.
struct Notes;

impl Agent for Notes {
    async fn run(&self, turn: Turn) -> AgentResult {
        let task = turn.task();
        let first = task.as_ref().and_then(|task| task.history.first()).unwrap_or(turn.message());
        let noted = first.metadata.as_ref().and_then(|metadata| metadata.get::<String>("noted"));
        turn.ask(format!("{noted:?} of {:?}", turn.message().metadata.is_some())).await
    }

    fn prepare(&self, first: &mut Message) {
        first.metadata = JsonObject::new(&json!({"noted": "yes"})).ok();
    }

    fn restarts(&self, first: &Message) -> bool {
        first.text() == "again"
    }

    fn reports(&self) -> bool {
        true
    }
}

#[test]
fn an_agent_with_conversations_is_otherwise_the_agent_in_it() {
    let agent = conversational(Notes, Conversation::default()).boxed();
    assert!(agent.reports() && !conversational(Echo, Conversation::default()).reports());
    assert!(agent.restarts(&Message::user("m", "again")) && !agent.restarts(&Message::user("m", "other")));
    let mut first = Message::user("m", "hi");
    agent.prepare(&mut first);
    assert_eq!(first.metadata.unwrap().get::<String>("noted").as_deref(), Some("yes"));
    assert!(agent.conversation(&Message::user("m", "hi")).is_some());
    assert!(restartable(Notes).restarts(&Message::user("m", "other")));
}

#[tokio::test(start_paused = true)]
async fn the_first_message_of_a_task_is_stored_as_the_agent_has_prepared_it() {
    let client = host(Notes).client();
    let asked = client.send(say("hi")).await;
    assert_eq!(status_text(&asked), "Some(\"yes\") of true");
    assert!(asked.history[0].metadata.is_some(), "{asked:?}");
    let again = say("more").to(&asked);
    assert_eq!(
        status_text(&client.send(again).await),
        "Some(\"yes\") of false",
        "later ones are as they came"
    );
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_boxed_agent_are_one_agent() {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = count.clone();
    let agent = agent_fn(move |turn: Turn| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { turn.complete().await }
    });
    let agent = agent.boxed();
    for host in [host(agent.clone()), host(agent)] {
        host.client().send(say("hi")).await;
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_repeats_a_whole_status_and_a_whole_artifact() {
    let agent = agent_fn(|turn: Turn| async move {
        if turn.text() == "nothing" {
            return turn.repeat_status(TaskState::Unspecified, None, None).await;
        }
        let artifact = Artifact {
            artifact_id: "7f".into(),
            name: Some("page".into()),
            parts: vec!["text".into()],
            extensions: vec!["https://a.example/ext".into()],
            ..Artifact::default()
        };
        turn.repeat_artifact(artifact).await?;
        let message = Message {
            message_id: "theirs".into(),
            task_id: Some("theirs".into()),
            parts: vec!["closing".into(), "time".into()],
            metadata: Some(JsonObject::new(&json!({"k": 1}))?),
            reference_task_ids: vec!["theirs".into()],
            ..Message::default()
        };
        turn.repeat_status(TaskState::Canceled, Some(message), None).await?;
        // The task has ended.
        assert!(turn.working("more").await.unwrap_err().is_over());
        Ok(())
    });
    let host = host(agent);
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Canceled, "closing\ntime"));
    let message = task.status.message.unwrap();
    assert_eq!((message.role, message.parts.len(), message.task_id), (Role::Agent, 2, Some(task.id)));
    assert!(message.message_id != "theirs" && message.reference_task_ids.is_empty());
    assert_eq!(message.metadata.unwrap().get::<u32>("k"), Some(1));
    let artifact = &task.artifacts[0];
    assert_eq!((artifact.artifact_id.as_str(), artifact.name.as_deref()), ("7f", Some("page")));
    assert_eq!(artifact.extensions, ["https://a.example/ext"]);
    assert_eq!(host.client().send(say("nothing")).await.status.state, TaskState::Failed);
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Answering {
    answer: String,
}

fn kinds() -> AgentKinds {
    let mut kinds = AgentKinds::new();
    kinds.register("echo", |_: Value| async { Ok(Echo) });
    kinds.register("answer", |Answering { answer }| async move {
        tokio::task::yield_now().await;
        Ok(Script(vec![Step::Ask(answer)]))
    });
    kinds.register("broken", |_: Value| async { Err::<Echo, _>("no such program".into()) });
    kinds
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_built_by_the_name_of_its_kind_from_settings() {
    let agent = kinds().build("answer", json!({"answer": "42"})).await.unwrap();
    assert_eq!(status_text(&host(agent).client().send(say("hi")).await), "42");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_an_error_that_lists_the_known_ones() {
    let error = kinds().build("ehco", Value::Null).await.unwrap_err();
    assert_eq!(error.to_string(), "`ehco` is not a kind of agent, expected `answer`, `broken` or `echo`");
    let error = AgentKinds::new().build("echo", Value::Null).await.unwrap_err();
    let BuildAgentError::UnknownKind { name, known } = error else { panic!("{error}") };
    assert_eq!((name.as_str(), known.as_slice()), ("echo", [].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_factory_names_the_kind() {
    let error = kinds().build("broken", Value::Null).await.unwrap_err();
    assert_eq!(error.to_string(), "an agent of the kind `broken` cannot be built: no such program");
    let error = kinds().build("answer", json!({"anwser": "42"})).await.unwrap_err().to_string();
    assert!(error.contains("`answer`") && error.contains("unknown field `anwser`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_the_same_name_replaces_the_earlier_one() {
    let mut kinds = kinds();
    kinds.register("echo", |_: Value| async { Ok(Script(vec![Step::Ask("mine".into())])) });
    assert_eq!(kinds.names().collect::<Vec<_>>(), ["answer", "broken", "echo"]);
    let agent = kinds.build("echo", Value::Null).await.unwrap();
    assert_eq!(status_text(&host(agent).client().send(say("hi")).await), "mine");
}
