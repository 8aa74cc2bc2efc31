//! Sending: when an answer comes, what it holds, and how a conversation goes on.

use attache_server::Server;
use serde_json::{Value, json};

use crate::support::{Binding, Running, Stage, card, playing, send, serve, soon, stage, text};

async fn staged() -> (Running, Stage) {
    let (agent, stage) = stage();
    (serve(Server::new(agent).card(card())).await, stage)
}

/// A message for a task.
fn answer(task: &Value, text: &str) -> Value {
    let mut params = send(text);
    params["message"]["taskId"] = task["id"].clone();
    params
}

fn at_once(mut params: Value) -> Value {
    params["configuration"] = json!({"returnImmediately": true});
    params
}

#[tokio::test]
async fn a_send_waits_for_the_end_and_returns_everything_in_one_piece() {
    let server = playing().await;
    for binding in Binding::ALL {
        let sent = server.ask("SendMessage", send("chunks")).ok(binding).await;
        assert_eq!(sent.as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{binding:?}");
        assert_eq!(text(&task["status"]["message"]), "that is all");
        assert_eq!(
            (task["artifacts"].as_array().unwrap().len(), text(&task["artifacts"][0])),
            (1, "one two three".into())
        );
    }
}

#[tokio::test]
async fn a_send_returns_when_the_agent_needs_something() {
    let server = playing().await;
    for binding in Binding::ALL {
        for (verb, state) in [("ask", "TASK_STATE_INPUT_REQUIRED"), ("auth", "TASK_STATE_AUTH_REQUIRED")] {
            let task = server.ask("SendMessage", send(verb)).ok(binding).await["task"].clone();
            assert_eq!(task["status"]["state"], state, "{binding:?}");
            let done =
                server.ask("SendMessage", answer(&task, "here you are")).ok(binding).await["task"].clone();
            assert_eq!((&done["id"], &done["contextId"]), (&task["id"], &task["contextId"]));
            assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{binding:?} {verb}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_question_does_not_get_the_question_back() {
    let server = playing().await;
    for binding in Binding::ALL {
        let task = server.ask("SendMessage", send("ask")).ok(binding).await["task"].clone();
        let again = server.ask("SendMessage", answer(&task, "ask")).ok(binding).await["task"].clone();
        assert_eq!(again["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        assert_ne!(
            again["status"]["message"]["messageId"], task["status"]["message"]["messageId"],
            "{binding:?}"
        );
    }
}

#[tokio::test]
async fn a_follow_up_waits_for_the_turn_that_it_starts() {
    let (server, mut stage) = staged().await;
    let first = server.ask("SendMessage", send("go")).begin(Binding::JsonRpc);
    let act = stage.turn().await;
    act.ask("which?").await;
    let task = soon(first).await.unwrap().unwrap()["task"].clone();
    drop(act);
    let second = server.ask("SendMessage", answer(&task, "that one")).begin(Binding::HttpJson);
    let act = stage.turn().await;
    assert_eq!(act.turn().text(), "that one");
    assert_eq!(server.read(&task["id"]).await["status"]["state"], "TASK_STATE_WORKING");
    assert!(!second.is_finished(), "the old question is no answer");
    act.complete().await;
    assert_eq!(soon(second).await.unwrap().unwrap()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_client_that_does_not_want_to_wait_gets_the_task_at_once() {
    let (server, mut stage) = staged().await;
    for binding in Binding::ALL {
        let task = server.ask("SendMessage", at_once(send("go"))).ok(binding).await["task"].clone();
        let state = task["status"]["state"].as_str().unwrap();
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state), "{binding:?} {state}");
        let act = stage.turn().await;
        act.text("answer", "later").await;
        act.complete().await;
        let later = server.ask("GetTask", json!({"id": task["id"]})).ok(binding).await;
        assert_eq!(
            (text(&later["artifacts"][0]), &later["status"]["state"]),
            ("later".into(), &json!("TASK_STATE_COMPLETED"))
        );
    }
}

#[tokio::test]
async fn a_task_goes_on_when_the_client_that_waits_for_it_hangs_up() {
    let (server, mut stage) = staged().await;
    for binding in Binding::ALL {
        let waiting = server.ask("SendMessage", send("go")).begin(binding);
        let act = stage.turn().await;
        act.working("at it").await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        // A few requests later the server has noticed.
        for _ in 0..3 {
            server.rpc("ListTasks", json!({})).await;
        }
        assert!(!act.turn().is_cancelled(), "{binding:?}");
        act.complete().await;
        let task = server.read(&json!(act.task_id())).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{binding:?}");
    }
}

#[tokio::test]
async fn a_direct_answer_is_a_message_of_the_agent_and_no_task() {
    let server = playing().await;
    for binding in Binding::ALL {
        let mut params = send("message hello");
        params["message"]["contextId"] = json!("c-1");
        let sent = server.ask("SendMessage", params).ok(binding).await;
        assert_eq!(sent.as_object().unwrap().keys().collect::<Vec<_>>(), ["message"], "{binding:?}");
        let message = &sent["message"];
        assert_eq!((&message["role"], text(message)), (&json!("ROLE_AGENT"), "message hello".into()));
        assert_eq!(message["contextId"], "c-1");
        assert!(message["messageId"].as_str().is_some_and(|id| !id.is_empty()));
        assert!(message.get("taskId").is_none());
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 0);
}

#[tokio::test]
async fn a_context_is_made_up_kept_or_inferred_and_never_replaced() {
    let server = playing().await;
    for binding in Binding::ALL {
        let made_up = server.ask("SendMessage", send("ask")).ok(binding).await["task"].clone();
        assert!(made_up["contextId"].as_str().is_some_and(|id| !id.is_empty()));

        let mut chosen = send("ask");
        chosen["message"]["contextId"] = json!("my own / context");
        let kept = server.ask("SendMessage", chosen).ok(binding).await["task"].clone();
        assert_eq!(kept["contextId"], "my own / context", "{binding:?}");

        let inferred = server.ask("SendMessage", answer(&kept, "go on")).ok(binding).await["task"].clone();
        assert_eq!(inferred["contextId"], "my own / context", "{binding:?}");

        let mut matching = answer(&made_up, "go on");
        matching["message"]["contextId"] = made_up["contextId"].clone();
        assert_eq!(server.ask("SendMessage", matching).ok(binding).await["task"]["id"], made_up["id"]);
    }
}

#[tokio::test]
async fn a_task_in_another_context_is_a_contradiction_even_if_it_has_ended() {
    let server = playing().await;
    for verb in ["ask", "hi", "fail"] {
        let task = server.task(verb).await;
        let mut params = answer(&task, "more");
        params["message"]["contextId"] = json!("another");
        for binding in Binding::ALL {
            let refusal = server.ask("SendMessage", params.clone()).refused(binding).await;
            assert_eq!(refusal.fields, ["message.contextId"], "{verb} {binding:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_task_is_not_found_even_in_a_known_context() {
    let server = playing().await;
    let task = server.task("ask").await;
    let mut params = answer(&json!({"id": "none"}), "more");
    params["message"]["contextId"] = task["contextId"].clone();
    for binding in Binding::ALL {
        assert_eq!(server.ask("SendMessage", params.clone()).refused(binding).await.reason, "TASK_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_task_that_has_ended_takes_no_more_messages() {
    let server = playing().await;
    let canceled = server.task("ask").await;
    server.rpc("CancelTask", json!({"id": canceled["id"]})).await;
    for task in [server.task("hi").await, server.task("fail").await, server.task("reject").await, canceled] {
        for operation in ["SendMessage", "SendStreamingMessage"] {
            for binding in Binding::ALL {
                let refusal = server.ask(operation, answer(&task, "more")).refused(binding).await;
                assert_eq!(refusal.reason, "UNSUPPORTED_OPERATION", "{task} {binding:?}");
            }
        }
        let mut new = send("a refinement");
        new["message"]["contextId"] = task["contextId"].clone();
        new["message"]["referenceTaskIds"] = json!([task["id"]]);
        let refined = server.sent(new).await["task"].clone();
        assert_eq!(refined["contextId"], task["contextId"]);
        assert_ne!(refined["id"], task["id"]);
    }
}

#[tokio::test]
async fn parts_without_a_media_type_are_taken() {
    let server = playing().await;
    for binding in Binding::ALL {
        for part in [
            json!({"text": "a"}),
            json!({"data": {"a": "b"}}),
            json!({"raw": "aGk="}),
            json!({"url": "https://x/"}),
        ] {
            let mut params = send("");
            params["message"]["parts"] = json!([part]);
            let sent = server.ask("SendMessage", params).ok(binding).await;
            assert_eq!(sent["task"]["artifacts"][0]["parts"], json!([part]), "{binding:?}");
        }
        for media_type in ["text/plain", "Text/Plain; charset=utf-8", "application/json"] {
            let mut params = send("");
            params["message"]["parts"] = json!([{"text": "a", "mediaType": media_type}]);
            server.ask("SendMessage", params).ok(binding).await;
        }
    }
}

#[tokio::test]
async fn the_history_is_the_conversation_oldest_first() {
    let server = playing().await;
    let task = server.task("ask").await;
    let done = server.sent(answer(&task, "the answer")).await["task"].clone();
    let said: Vec<_> = done["history"].as_array().unwrap().iter().map(text).collect();
    assert_eq!(said, ["ask", "what exactly?", "the answer"]);
    let roles: Vec<_> =
        done["history"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]);
}

#[tokio::test]
async fn a_webhook_may_come_with_the_message() {
    let server = playing().await;
    for binding in Binding::ALL {
        let mut params = send("ask");
        let hook = json!({"url": "https://example.com/hook", "token": "secret"});
        params["configuration"] = json!({"taskPushNotificationConfig": hook});
        let id = server.ask("SendMessage", params).ok(binding).await["task"]["id"].clone();
        let listed = server.ask("ListTaskPushNotificationConfigs", json!({"taskId": id})).ok(binding).await;
        assert_eq!(listed["configs"][0]["url"], "https://example.com/hook", "{binding:?}");
        assert_eq!(listed["configs"][0]["taskId"], id);
    }
}
