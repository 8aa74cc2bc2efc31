//! Canceling: what can be canceled, what that does, and who notices.

use attache_server::Server;
use serde_json::{Value, json};

use crate::support::{Binding, card, playing, send, serve, soon, stage};

const CANCELED: &str = "TASK_STATE_CANCELED";

#[tokio::test]
async fn a_running_task_is_canceled_and_everyone_is_told() {
    for binding in Binding::ALL {
        let (agent, mut stage) = stage();
        let server = serve(Server::new(agent).card(card())).await;
        let sending = server.ask("SendMessage", send("go")).begin(binding);
        let act = stage.turn().await;
        act.working("at it").await;
        let id = act.task_id();
        let mut stream = server.sse("SubscribeToTask", json!({"id": id})).await;
        let (mut grpc, _) =
            server.grpc().await.stream("SubscribeToTask", json!({"id": id}), &[]).await.unwrap();

        let params = json!({"id": id, "metadata": {"why": "late"}});
        let task = server.ask("CancelTask", params).ok(binding).await;
        assert_eq!((&task["id"], &task["status"]["state"]), (&json!(id), &json!(CANCELED)));
        soon(act.turn().cancelled()).await;
        assert!(act.turn().complete().await.is_err(), "nothing can be said afterwards");
        assert_eq!(soon(sending).await.unwrap().unwrap()["task"]["status"]["state"], CANCELED);

        let last = stream.rest().await.pop().unwrap().event();
        assert_eq!(last["statusUpdate"]["status"]["state"], CANCELED);
        assert_eq!(last["statusUpdate"]["metadata"], json!({"why": "late"}));
        let mut seen = Value::Null;
        while let Some(event) = grpc.next().await.unwrap() {
            seen = event;
        }
        assert_eq!(seen["statusUpdate"]["status"]["state"], CANCELED);
    }
}

#[tokio::test]
async fn a_task_that_waits_for_its_client_can_be_canceled() {
    let server = playing().await;
    for verb in ["ask", "auth"] {
        for binding in Binding::ALL {
            let id = server.task(verb).await["id"].clone();
            let task = server.ask("CancelTask", json!({"id": id})).ok(binding).await;
            assert_eq!(task["status"]["state"], CANCELED, "{verb} {binding:?}");
        }
    }
}

#[tokio::test]
async fn canceling_twice_is_canceling_once() {
    let server = playing().await;
    for binding in Binding::ALL {
        let id = server.task("ask").await["id"].clone();
        let first = server.ask("CancelTask", json!({"id": id})).ok(binding).await;
        let second = server.ask("CancelTask", json!({"id": id})).ok(binding).await;
        assert_eq!(first, second, "{binding:?}");
    }
}

#[tokio::test]
async fn a_task_ends_in_one_way_however_close_the_race() {
    let (agent, mut stage) = stage();
    let server = serve(Server::new(agent).card(card())).await;
    let mut canceled = 0;
    for round in 0..40 {
        let sending = server.ask("SendMessage", send("go")).begin(Binding::HttpJson);
        let act = stage.turn().await;
        act.working("at it").await;
        let id = act.task_id();
        let mut stream = server.sse("SubscribeToTask", json!({"id": id})).await;
        let canceling = server.ask("CancelTask", json!({"id": id})).over(Binding::JsonRpc);
        let completing = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            // Whether that came in time is what the race is about.
            let _ = act.say(act.turn().complete()).await;
        };
        let (answer, ()) = tokio::join!(canceling, completing);
        let state = match &answer.result {
            Ok(task) => {
                assert_eq!(task["status"]["state"], CANCELED);
                canceled += 1;
                CANCELED
            }
            Err(refusal) => {
                assert_eq!(refusal.reason, "TASK_NOT_CANCELABLE");
                "TASK_STATE_COMPLETED"
            }
        };
        drop(act);
        assert_eq!(server.read(&json!(id)).await["status"]["state"], state);
        assert_eq!(soon(sending).await.unwrap().unwrap()["task"]["status"]["state"], state);
        assert_eq!(stream.rest().await.pop().unwrap().event()["statusUpdate"]["status"]["state"], state);
    }
    assert!(canceled < 40, "sometimes the agent is quicker");
}
