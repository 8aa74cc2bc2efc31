//! Conversations and their sessions.

use std::time::Duration;

use attache_client::Outgoing;
use attache_protocol::TaskState;
use futures::future::join_all;

use crate::support::{answer, next_text, runs, serve, serve_two, skip, task, until};

#[tokio::test]
async fn a_conversation_keeps_its_session_and_another_one_has_its_own() {
    if skip("a_conversation_keeps_its_session_and_another_one_has_its_own") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let first = answer(&agent.say("c", "session").await);
    let second = answer(&agent.say("c", "session").await);
    let other = answer(&agent.say("d", "session").await);
    let parts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (first, second, other) = (parts(&first), parts(&second), parts(&other));
    assert_eq!((&first[0], &first[2]), (&second[0], &second[2]));
    assert_eq!((first[1].as_str(), second[1].as_str(), other[1].as_str()), ("1", "2", "1"));
    assert_ne!((&first[0], &first[2]), (&other[0], &other[2]));
    assert_eq!(agent.count("initialize"), 1);
}

#[tokio::test]
async fn callers_with_the_same_context_id_do_not_share_a_session() {
    if skip("callers_with_the_same_context_id_do_not_share_a_session") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [alice, bob] = serve_two(&folder).await;
    let session = async |client: &attache_client::Client| {
        let done = task(client.send(Outgoing::from("session").context("c")).await.unwrap());
        answer(&done).split(' ').next().unwrap().to_owned()
    };
    let (first, other, again) = (session(&alice).await, session(&bob).await, session(&alice).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[tokio::test]
async fn two_conversations_work_at_once() {
    if skip("two_conversations_work_at_once") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let signal = agent.path("go");
    let text = format!("stream {}", signal.display());
    let (mut first, _) = agent.begin(Outgoing::from(text.as_str()).context("c")).await;
    let (mut second, _) = agent.begin(Outgoing::from(text.as_str()).context("d")).await;
    std::fs::write(signal, "").unwrap();
    assert_eq!(next_text(&mut first).await, "two");
    assert_eq!(next_text(&mut second).await, "two");
}

#[tokio::test]
async fn messages_of_one_conversation_are_prompts_one_after_the_other() {
    if skip("messages_of_one_conversation_are_prompts_one_after_the_other") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let signal = agent.path("go");
    let (_events, _) = agent.begin(Outgoing::from(format!("stream {}", signal.display())).context("c")).await;
    let second = agent.say("c", "session");
    tokio::pin!(second);
    // The agent has answered a prompt of another conversation meanwhile, but has not got the second one.
    tokio::select! {
        _ = &mut second => panic!("the second prompt did not wait"),
        other = agent.say("d", "hello") => assert_eq!(answer(&other), "you said: hello"),
    }
    assert_eq!(agent.count("session/prompt"), 2);
    std::fs::write(signal, "").unwrap();
    assert!(answer(&second.await).contains(" 2 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_conversations_at_once_get_their_own_answers() {
    if skip("a_hundred_conversations_at_once_get_their_own_answers") {
        return;
    }
    let agent = serve(&[], |options| options.max_sessions = 100).await;
    let all = (0..100).map(|number| {
        let agent = &agent;
        async move { answer(&agent.say(&format!("c{number}"), &format!("hello {number}")).await) }
    });
    let answers = join_all(all).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, format!("you said: hello {number}"));
    }
    assert_eq!(agent.count("session/new"), 100);
    assert_eq!(agent.count("initialize"), 1);
}

#[tokio::test]
async fn the_least_recently_used_session_makes_room_and_is_closed() {
    if skip("the_least_recently_used_session_makes_room_and_is_closed") {
        return;
    }
    let agent = serve(&["--close", "--load"], |options| options.max_sessions = 2).await;
    for context in ["a", "b", "a", "c"] {
        agent.say(context, "hello").await;
    }
    until("one session is closed", || agent.count("session/close") == 1).await;
    let received = agent.received();
    let closed = received.iter().find(|message| message["method"] == "session/close").unwrap();
    assert!(closed["params"]["sessionId"].as_str().unwrap().starts_with("s2-"), "{closed}");
    // The conversation goes on in the loaded session.
    assert!(answer(&agent.say("b", "session").await).contains(" 101 "));
}

#[tokio::test]
async fn a_message_is_refused_while_all_sessions_are_in_use() {
    if skip("a_message_is_refused_while_all_sessions_are_in_use") {
        return;
    }
    let agent = serve(&[], |options| options.max_sessions = 1).await;
    let signal = agent.path("go");
    let (mut events, _) =
        agent.begin(Outgoing::from(format!("stream {}", signal.display())).context("c")).await;
    let error = agent.client.send(Outgoing::from("hello").context("d")).await.unwrap_err();
    assert!(error.to_string().contains("all 1 contexts of this agent are in use"), "{error}");
    assert_eq!(agent.count("session/prompt"), 1);
    std::fs::write(signal, "").unwrap();
    assert_eq!(next_text(&mut events).await, "two");
    while events.next().await.is_some() {}
    assert_eq!(answer(&agent.say("d", "hello").await), "you said: hello");
}

#[tokio::test]
async fn an_idle_session_is_dropped_and_the_process_ends_with_the_last_one() {
    if skip("an_idle_session_is_dropped_and_the_process_ends_with_the_last_one") {
        return;
    }
    let agent = serve(&[], |options| options.idle = Duration::from_millis(50)).await;
    let pid = answer(&agent.say("c", "pid").await);
    until("the process is gone", || !runs(&pid)).await;
    assert_ne!(answer(&agent.say("c", "pid").await), pid);
}

#[tokio::test]
async fn a_conversation_is_loaded_after_a_restart_and_its_past_is_not_repeated() {
    if skip("a_conversation_is_loaded_after_a_restart_and_its_past_is_not_repeated") {
        return;
    }
    let agent = serve(&["--load"], |_| {}).await;
    let before = answer(&agent.say("c", "session").await);
    let agent = agent.restart(&["--load"]).await;
    let after = answer(&agent.say("c", "session").await);
    let parts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (parts(&before), parts(&after));
    // The same session in the same directory. What the agent repeats while it loads the session is not in the answer.
    assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
    assert_eq!(after[1], "101");
    assert_eq!((agent.count("session/load"), agent.count("session/new")), (1, 1));
}

#[tokio::test]
async fn an_agent_that_cannot_load_gets_the_conversation_as_text_once() {
    if skip("an_agent_that_cannot_load_gets_the_conversation_as_text_once") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    agent.say("c", "hello").await;
    let agent = agent.restart(&[]).await;
    let prompt = answer(&agent.say("c", "blocks").await);
    assert!(prompt.contains("User: hello") && prompt.contains("Agent: you said: hello"), "{prompt}");
    let prompt = answer(&agent.say("c", "blocks").await);
    assert!(!prompt.contains("User: hello"), "{prompt}");
}

#[tokio::test]
async fn the_card_shows_the_agent_once_it_has_been_started() {
    if skip("the_card_shows_the_agent_once_it_has_been_started") {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    assert_eq!(agent.client.card().name, "python3");
    assert_eq!(agent.say("c", "hello").await.status.state, TaskState::Completed);
    let mut name = String::new();
    while name != "Scripted Agent" {
        name = attache_client::Client::connect(&agent.url).await.unwrap().card().name.clone();
    }
}

#[tokio::test]
async fn while_the_caller_is_asked_other_messages_of_the_context_wait_and_the_answer_does_not() {
    let name = "while_the_caller_is_asked_other_messages_of_the_context_wait_and_the_answer_does_not";
    if skip(name) {
        return;
    }
    let agent = serve(&[], |_| {}).await;
    let asked = agent.say("c", "ask Remove the disk").await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let other = agent.say("c", "hello");
    tokio::pin!(other);
    tokio::select! {
        _ = &mut other => panic!("the other message did not wait"),
        answered = agent.answer(&asked, "yes") => assert!(answer(&answered).contains("yes-1")),
    }
    assert_eq!(answer(&other.await), "you said: hello");
}

#[tokio::test]
async fn a_message_names_the_directory_that_the_session_works_in() {
    if skip("a_message_names_the_directory_that_the_session_works_in") {
        return;
    }
    let projects = tempfile::tempdir().unwrap();
    std::fs::create_dir(projects.path().join("shop")).unwrap();
    let project = projects.path().join("shop").canonicalize().unwrap();
    let allowed = projects.path().to_owned();
    let agent = serve(&[], |options| options.conversation.workspaces.allowed = vec![allowed.clone()]).await;
    let named = |path: &std::path::Path| {
        let metadata = serde_json::json!({"attache": {"workspace": path}});
        Outgoing::from("session").context("c").metadata(attache_protocol::JsonObject::new(&metadata).unwrap())
    };
    let session = answer(&agent.send(named(&project)).await);
    assert!(session.ends_with(project.to_str().unwrap()), "{session}");
    assert!(agent.client.send(named(&allowed)).await.is_err());
    assert!(answer(&agent.say("c", "session").await).ends_with(project.to_str().unwrap()));
}
