//! Streams: how events are framed, who gets them, and what happens when a reader goes or stalls.

use std::time::Duration;

use a2a_pb::protojson::StreamResponse;
use attache_core::{Turn, agent_fn};
use attache_server::{Limits, Server};
use http_body_util::BodyExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::desk::{Desk, TestOperation, named};
use crate::support::{
    Act, Binding, Frame, Raw, Running, Sse, Stage, canonical, card, player, playing, send, serve, soon,
    stage, text,
};

/// A server whose agent the test plays.
async fn staged() -> (Running, Stage) {
    let (agent, stage) = stage();
    (serve(Server::new(agent).card(card())).await, stage)
}

/// A task at work, with the turn that works on it.
async fn working(server: &Running, stage: &mut Stage) -> (String, Act) {
    let mut params = send("go");
    params["configuration"] = json!({"returnImmediately": true});
    let id = server.sent(params).await["task"]["id"].as_str().unwrap().to_owned();
    let act = stage.turn().await;
    act.working("at it").await;
    (id, act)
}

fn subscribe(id: &str) -> Value {
    json!({"id": id})
}

fn names(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| frame.event().as_object().unwrap().keys().next().unwrap().clone()).collect()
}

#[tokio::test]
async fn each_event_is_one_line_of_json_under_its_number() {
    let server = playing().await;
    let mut rpc = server.sse("SendStreamingMessage", send("chunks")).await;
    let mut rest = server.rest_sse("POST", "/message:stream", Some(send("chunks"))).await;
    for stream in [&mut rpc, &mut rest] {
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(stream.headers[name], *value);
        }
        assert!(!stream.headers.contains_key("content-length"));
        let frames = stream.rest().await;
        let numbers: Vec<_> = frames.iter().map(|frame| frame.id.expect("a number")).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        assert!(frames.iter().all(|frame| frame.data.len() == 1 && frame.event.is_none()));
        let artifact = "artifactUpdate";
        assert_eq!(names(&frames), ["task", "statusUpdate", artifact, artifact, artifact, "statusUpdate"]);
    }
}

#[tokio::test]
async fn every_frame_of_a_jsonrpc_stream_is_a_response_to_the_request() {
    let server = playing().await;
    for frame in server.sse("SendStreamingMessage", send("chunks")).await.rest().await {
        let json = frame.json();
        assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "jsonrpc", "result"]);
        assert_eq!((&json["id"], &json["jsonrpc"]), (&json!(1), &json!("2.0")));
        assert_eq!(json["result"].as_object().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_begins_with_the_task_and_ends_with_its_end() {
    let server = playing().await;
    for binding in Binding::ALL {
        for (verb, state) in [
            ("hi", "TASK_STATE_COMPLETED"),
            ("fail", "TASK_STATE_FAILED"),
            ("reject", "TASK_STATE_REJECTED"),
            ("ask", "TASK_STATE_INPUT_REQUIRED"),
        ] {
            let events = server.ask("SendStreamingMessage", send(verb)).ok(binding).await;
            let events = events.as_array().unwrap();
            assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{binding:?} {verb}");
            assert_eq!(
                events.last().unwrap()["statusUpdate"]["status"]["state"],
                state,
                "{binding:?} {verb}"
            );
            assert!(events[1..].iter().all(|event| event.get("task").is_none()));
        }
    }
}

#[tokio::test]
async fn a_stream_of_a_direct_answer_is_that_answer() {
    let server = playing().await;
    for binding in Binding::ALL {
        let events = server.ask("SendStreamingMessage", send("message hello")).ok(binding).await;
        let [only] = events.as_array().unwrap().as_slice() else { panic!("{events}") };
        assert_eq!(
            (&only["message"]["role"], text(&only["message"])),
            (&json!("ROLE_AGENT"), "message hello".into())
        );
    }
}

#[tokio::test]
async fn the_events_add_up_to_the_task_that_is_read_afterwards() {
    let server = playing().await;
    for binding in Binding::ALL {
        let events = server.ask("SendStreamingMessage", send("chunks")).ok(binding).await;
        let mut task = events[0]["task"].clone();
        for event in &events.as_array().unwrap()[1..] {
            if let Some(update) = event.get("artifactUpdate") {
                if update.get("append") == Some(&json!(true)) {
                    let more = update["artifact"]["parts"].as_array().unwrap().clone();
                    task["artifacts"][0]["parts"].as_array_mut().unwrap().extend(more);
                } else {
                    task["artifacts"] = json!([update["artifact"]]);
                }
            } else {
                task["status"] = event["statusUpdate"]["status"].clone();
            }
        }
        let read = server.ask("GetTask", json!({"id": task["id"]})).ok(binding).await;
        assert_eq!(text(&read["artifacts"][0]), "one two three");
        for member in ["id", "contextId", "status", "artifacts"] {
            assert_eq!(task[member], read[member], "{binding:?} {member}");
        }
    }
}

#[tokio::test]
async fn all_readers_get_the_same_events_whatever_their_binding() {
    let (server, mut stage) = staged().await;
    let mut client = server.grpc().await;
    let sending = tokio::spawn(async move { client.stream("SendStreamingMessage", send("go"), &[]).await });
    let act = stage.turn().await;
    // The answer begins when the agent does.
    act.working("zero").await;
    let (mut sender, _) = soon(sending).await.unwrap().unwrap();
    let first = sender.next().await.unwrap().unwrap();
    let id = first["task"]["id"].as_str().unwrap().to_owned();

    let mut rpc = server.sse("SubscribeToTask", subscribe(&id)).await;
    let mut rest = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
    let mut dropped = server.rest_sse("POST", &format!("/tasks/{id}:subscribe"), None).await;
    let (mut grpc, _) = server.grpc().await.stream("SubscribeToTask", subscribe(&id), &[]).await.unwrap();

    act.working("one").await;
    assert!(dropped.event().await["task"].is_object());
    drop(dropped);
    let turn = act.turn();
    let data = json!({"n": 3, "deep": [1.5, null, {"a": "b"}]});
    act.say(turn.artifact("data").data(&data).unwrap()).await.unwrap();
    act.say(turn.artifact("file").file("a.bin", "application/octet-stream", [0, 159, 255])).await.unwrap();
    act.say(turn.require_auth("who?")).await.unwrap();
    act.working("thanks").await;
    act.say(turn.complete_with("done")).await.unwrap();

    let theirs = |events: Vec<Value>| events.iter().map(canonical::<StreamResponse>).collect::<Vec<_>>();
    let over_rpc = theirs(rpc.rest().await.iter().map(Frame::event).collect());
    let over_rest = theirs(rest.rest().await.iter().map(Frame::event).collect());
    let (mut over_grpc, mut at_sender) = (Vec::new(), Vec::new());
    while let Some(event) = grpc.next().await.unwrap() {
        over_grpc.push(event);
    }
    while let Some(event) = sender.next().await.unwrap() {
        at_sender.push(event);
    }
    assert_eq!(over_rpc.len(), 7);
    assert_eq!(over_rpc, over_rest);
    assert_eq!(over_rpc, theirs(over_grpc));
    // The sender was there from the beginning, and has had what the others got as one snapshot.
    assert_eq!(at_sender.len(), 7);
    assert_eq!(over_rpc[1..], theirs(at_sender)[1..]);
}

#[tokio::test]
async fn a_subscription_begins_with_the_task_as_it_is_and_goes_on_from_there() {
    let (server, mut stage) = staged().await;
    let (id, act) = working(&server, &mut stage).await;
    act.text("a", "first").await;
    for binding in Binding::ALL {
        let ask = server.ask("GetTask", json!({"id": id})).ok(binding).await;
        assert_eq!(ask["artifacts"][0]["name"], "a");
    }
    let mut stream = server.sse("SubscribeToTask", subscribe(&id)).await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.id, text(&first.event()["task"]["artifacts"][0])), (Some(3), "first".to_owned()));
    act.text("b", "second").await;
    let second = stream.next().await.unwrap();
    assert_eq!((second.id, &second.event()["artifactUpdate"]["artifact"]["name"]), (Some(4), &json!("b")));
    act.complete().await;
    assert_eq!(names(&stream.rest().await), ["statusUpdate"]);
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_between_the_snapshot_and_what_follows() {
    const EVENTS: u64 = 300;
    let (server, mut stage) = staged().await;
    let (id, act) = working(&server, &mut stage).await;
    let speaking = async {
        for i in 0..EVENTS {
            act.text(format!("a{i}"), "x").await;
        }
        act.complete().await;
    };
    let reading = async {
        let mut readers = Vec::new();
        for _ in 0..30 {
            let mut stream = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
            readers.push(tokio::spawn(async move { stream.rest().await }));
        }
        readers
    };
    let ((), readers) = tokio::join!(speaking, reading);
    for reader in readers {
        let frames = soon(reader).await.unwrap();
        let numbers: Vec<_> = frames.iter().map(|frame| frame.id.unwrap()).collect();
        let expected: Vec<_> = (numbers[0]..=EVENTS + 3).collect();
        assert_eq!(numbers, expected);
        let artifacts = frames[0].event()["task"]["artifacts"].as_array().map_or(0, Vec::len);
        assert_eq!(artifacts as u64, numbers[0] - 2, "the snapshot is of the moment that it says");
    }
}

#[tokio::test]
async fn a_subscription_outlives_questions_and_sees_what_follows_the_answer() {
    let server = playing().await;
    for verb in ["ask", "auth"] {
        let id = server.task(verb).await["id"].clone();
        let mut rpc = server.sse("SubscribeToTask", json!({"id": id})).await;
        let (mut grpc, _) =
            server.grpc().await.stream("SubscribeToTask", json!({"id": id}), &[]).await.unwrap();
        assert!(rpc.event().await["task"].is_object());
        assert!(grpc.next().await.unwrap().unwrap()["task"].is_object());
        let mut answer = send("the answer");
        answer["message"]["taskId"] = id;
        server.sent(answer).await;
        let states: Vec<_> = rpc
            .rest()
            .await
            .iter()
            .map(|frame| frame.event()["statusUpdate"]["status"]["state"].clone())
            .collect();
        assert_eq!(
            states,
            [json!("TASK_STATE_WORKING"), Value::Null, json!("TASK_STATE_COMPLETED")],
            "{verb}"
        );
        let mut count = 0;
        while grpc.next().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 3);
    }
}

#[tokio::test]
async fn a_send_that_continues_a_task_streams_the_task_first() {
    let server = playing().await;
    for binding in Binding::ALL {
        let mut answer = send("the answer");
        answer["message"]["taskId"] = server.task("ask").await["id"].clone();
        let events = server.ask("SendStreamingMessage", answer).ok(binding).await;
        assert!(events[0]["task"].is_object(), "{binding:?} {events}");
        let last = events.as_array().unwrap().last().unwrap();
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{binding:?}");
    }
}

#[tokio::test]
async fn a_refusal_instead_of_a_stream_is_plain_json() {
    let server = playing().await;
    let ended = server.task("hi").await["id"].as_str().unwrap().to_owned();
    for (id, status, code) in [(ended.as_str(), 400, -32004), ("none", 404, -32001)] {
        for method in ["GET", "POST"] {
            let reply = server.rest(method, &format!("/tasks/{id}:subscribe"), None).await;
            assert_eq!((reply.status.as_u16(), reply.header("content-type")), (status, "application/json"));
        }
        let rpc = server.rpc("SubscribeToTask", subscribe(id)).await;
        assert_eq!(rpc["error"]["code"], code);
    }
    let empty = server.rest("POST", "/message:stream", Some(json!({}))).await;
    assert_eq!((empty.status.as_u16(), &empty.json()["error"]["code"]), (400, &json!(400)));
}

#[tokio::test]
async fn a_silent_stream_gives_a_sign_of_life() {
    let server = serve(player().options(|options| options.heartbeat = Duration::from_millis(10))).await;
    let mut sending = server.sse("SendStreamingMessage", send("wait")).await;
    let id = sending.event().await["task"]["id"].as_str().unwrap().to_owned();
    let mut subscribed = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
    for stream in [&mut sending, &mut subscribed] {
        let mut comments = 0;
        while comments < 3 {
            let frame = stream.frame().await.expect("the stream goes on");
            comments += usize::from(frame.comment.is_some());
            assert!(frame.comment.is_some() || frame.id.is_some(), "{frame:?}");
        }
    }
    server.rpc("CancelTask", json!({"id": id})).await;
    assert_eq!(names(&sending.rest().await), ["statusUpdate"]);
}

#[tokio::test]
async fn events_keep_the_heartbeat_quiet() {
    let server = playing().await;
    let mut stream = server.sse("SendStreamingMessage", send("chunks")).await;
    while let Some(frame) = stream.frame().await {
        assert!(frame.comment.is_none(), "{frame:?}");
    }
}

#[tokio::test]
async fn a_task_goes_on_when_all_of_its_readers_are_gone() {
    let (server, mut stage) = staged().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": send("go")});
    let sending = tokio::spawn(Sse::open(server.http(Method::POST, "/a2a").json(&body)));
    let act = stage.turn().await;
    act.working("at it").await;
    let mut sending = soon(sending).await.unwrap();
    let id = sending.event().await["task"]["id"].as_str().unwrap().to_owned();
    let subscribed = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
    let (grpc, _) = server.grpc().await.stream("SubscribeToTask", subscribe(&id), &[]).await.unwrap();
    drop((sending, subscribed, grpc));
    // Requests on new connections, so that the server has noticed the others by then.
    for _ in 0..3 {
        assert_eq!(server.read(&json!(id)).await["status"]["state"], "TASK_STATE_WORKING");
    }
    assert!(!act.turn().is_cancelled());
    act.text("answer", "for nobody").await;
    drop(act);
    let ended = soon(async {
        loop {
            let task = server.read(&json!(id)).await;
            if task["status"]["state"] == "TASK_STATE_COMPLETED" {
                return task;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(text(&ended.await["artifacts"][0]), "for nobody");
}

#[tokio::test]
async fn a_request_that_is_sent_ahead_does_not_hold_a_stream_back() {
    let (server, mut stage) = staged().await;
    let (id, act) = working(&server, &mut stage).await;
    let mut raw = Raw::connect(server.address).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n");
    raw.write(get(&format!("/v1/tasks/{id}:subscribe")) + &get("/health")).await;
    assert!(raw.read_until("\n\n\r\n").await.contains("id: 2\n"));
    act.text("a", "first").await;
    assert!(raw.read_until("\n\n\r\n").await.contains("id: 3\n"));
    act.complete().await;
    assert!(raw.read_until("\r\n0\r\n\r\n").await.contains("id: 4\n"));
    assert!(raw.head().await.starts_with("HTTP/1.1 200 OK"), "then comes its turn");
}

#[tokio::test]
async fn a_reader_that_never_reads_slows_no_other_and_misses_nothing() {
    const EVENTS: usize = 60;
    let (server, mut stage) = staged().await;
    let (id, act) = working(&server, &mut stage).await;
    let mut stuck = Raw::narrow(server.address).await;
    stuck
        .write(format!(
            "GET /v1/tasks/{id}:subscribe HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n"
        ))
        .await;
    assert!(stuck.head().await.starts_with("HTTP/1.1 200 OK\r\n"));

    let mut readers = Vec::new();
    for _ in 0..100 {
        let mut stream = server.rest_sse("GET", &format!("/tasks/{id}:subscribe"), None).await;
        readers.push(tokio::spawn(async move {
            stream.rest().await.iter().map(|frame| frame.id).collect::<Vec<_>>()
        }));
    }
    let piece = "x".repeat(16 * 1024);
    for i in 0..EVENTS {
        act.text(format!("a{i}"), &piece).await;
    }
    act.complete().await;
    let expected: Vec<_> = (2..=EVENTS as u64 + 3).map(Some).collect();
    for reader in readers {
        assert_eq!(soon(reader).await.unwrap(), expected);
    }
    let late = stuck.read_until("\r\n0\r\n\r\n").await;
    assert_eq!(late.matches("\nid: ").count(), expected.len());
    assert!(late.contains("TASK_STATE_COMPLETED"));
}

#[tokio::test(start_paused = true)]
async fn events_that_are_ready_together_are_written_in_pieces_of_64_kib() {
    let agent = agent_fn(|turn: Turn| async move {
        for number in 0..300 {
            turn.artifact(number.to_string()).text("x".repeat(1024)).await?;
        }
        turn.complete().await
    });
    let desk = Desk::new(Server::new(agent).card(card()), Limits::none());
    let alice = named("alice");
    let response = desk.open(Binding::HttpJson, &alice, TestOperation::Stream, &send("hi")).await;
    while desk.list(Binding::HttpJson, &alice).await.body["tasks"][0]["status"]["state"]
        != "TASK_STATE_COMPLETED"
    {
        tokio::task::yield_now().await;
    }
    let (mut body, mut pieces) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap().len());
    }
    assert!(pieces.iter().sum::<usize>() > 300 * 1024, "{pieces:?}");
    // The event that reaches the limit is written as a whole.
    let largest = *pieces.iter().max().unwrap();
    assert!((64 * 1024..66 * 1024).contains(&largest), "{pieces:?}");
}
