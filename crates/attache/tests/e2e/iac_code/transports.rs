//! The transports of iac-code: standard input and output, Unix sockets and WebSocket, with its settings.

use std::process::Stdio;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_tungstenite::tungstenite::Message as Frame;

use super::{message, settings_with, start_with};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::{attache, until};

/// How long anything may take. Only what is broken reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

fn request(method: &str) -> String {
    let params = json!({"message": message("hello", json!({}))});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// A request and a stream in lines: the last line of a stream marks its end.
async fn check_lines(mut output: impl AsyncWrite + Unpin, mut input: impl AsyncBufRead + Unpin) {
    check_methods_in_lines(&mut output, &mut input).await;
    let mut lines = input.lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    output.write_all((request("SendMessage") + "\n").as_bytes()).await.unwrap();
    output.flush().await.unwrap();
    let answer = next().await;
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{answer}");
    output.write_all((request("SendStreamingMessage") + "\n").as_bytes()).await.unwrap();
    output.flush().await.unwrap();
    let mut events = 0;
    loop {
        let event = next().await;
        if event["final"] == true {
            assert_eq!(event, json!({"jsonrpc": "2.0", "id": 1, "final": true}));
            break;
        }
        assert!(event["result"].is_object(), "{event}");
        events += 1;
    }
    assert!(events >= 3, "{events} events");
}

/// Reads, lists and cancels tasks and keeps webhooks, with a function that gives the response to a request.
async fn check_methods(mut ask: impl AsyncFnMut(Value) -> Value) {
    let mut number = 100;
    let mut call = async |method: &str, params: Value| {
        number += 1;
        let answer = ask(json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params})).await;
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(number)),
            "{method}: {answer}"
        );
        answer
    };
    let send = |text: &str| {
        let message = message(text, json!({"contextId": "methods"}));
        json!({"message": message, "configuration": {"returnImmediately": true}})
    };
    let sent = call("SendMessage", send("sleep 60")).await;
    let task = &sent["result"]["task"]["id"];
    assert!(task.is_string(), "{sent}");
    let read = call("GetTask", json!({"id": task, "historyLength": 0})).await;
    assert_eq!((&read["result"]["id"], &read["result"]["contextId"]), (task, &json!("methods")), "{read}");
    let listed = call("ListTasks", json!({"contextId": "methods"})).await;
    assert_eq!((&listed["result"]["totalSize"], &listed["result"]["tasks"][0]["id"]), (&json!(1), task));
    let config = json!({"taskId": task, "id": "webhook-1", "url": "https://hooks.example.com/a2a"});
    let created = call("CreateTaskPushNotificationConfig", config).await;
    assert_eq!(created["result"]["id"], "webhook-1", "{created}");
    let named = json!({"taskId": task, "id": "webhook-1"});
    let read = call("GetTaskPushNotificationConfig", named.clone()).await;
    assert_eq!(read["result"]["url"], "https://hooks.example.com/a2a", "{read}");
    let all = call("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(all["result"]["configs"][0]["id"], "webhook-1", "{all}");
    let deleted = call("DeleteTaskPushNotificationConfig", named.clone()).await;
    assert!(deleted["error"].is_null(), "{deleted}");
    let gone = call("GetTaskPushNotificationConfig", named).await;
    assert!(gone["error"]["code"].is_i64(), "{gone}");
    let canceled = call("CancelTask", json!({"id": task})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    for (method, id, code) in [
        ("CancelTask", task, -32002),
        ("SubscribeToTask", task, -32001),
        ("CancelTask", &json!("unknown"), -32001),
        ("GetTask", &json!("unknown"), -32001),
        ("GetTask", &json!("a b"), -32602),
    ] {
        let refused = call(method, json!({"id": id})).await;
        assert_eq!(refused["error"]["code"], code, "{method} {id}: {refused}");
    }
}

/// The same in lines.
async fn check_methods_in_lines(output: &mut (impl AsyncWrite + Unpin), input: impl AsyncBufRead + Unpin) {
    let mut lines = input.lines();
    check_methods(async |request| {
        output.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        output.flush().await.unwrap();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    })
    .await;
}

#[tokio::test]
async fn transport_stdio_answers_in_lines() {
    if !has_python("iac_code::transports::transport_stdio_answers_in_lines") {
        return;
    }
    let home = Home::new();
    let file = settings_with(&home, "transport: stdio\npush-notifications: true\n");
    let mut command = attache();
    command.args(["serve", "--config", &file]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    check_lines(input, BufReader::new(output)).await;
    // The end of its input, which was dropped, is the end of the server.
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn transport_unix_answers_in_lines() {
    if !has_python("iac_code::transports::transport_unix_answers_in_lines") {
        return;
    }
    let home = Home::new();
    let socket = home.path("iac.sock");
    let file = settings_with(
        &home,
        &format!("transport: unix\nsocket-path: {}\npush-notifications: true\n", socket.display()),
    );
    let mut command = attache();
    command.args(["serve", "--config", &file]).stderr(Stdio::null());
    let _child = command.kill_on_drop(true).spawn().unwrap();
    until("the socket is there", async || tokio::net::UnixStream::connect(&socket).await.is_ok()).await;
    let (input, output) = tokio::net::UnixStream::connect(&socket).await.unwrap().into_split();
    check_lines(output, BufReader::new(input)).await;
}

#[tokio::test]
async fn websocket_answers_at_the_path_of_the_peers() {
    if !has_python("iac_code::transports::websocket_answers_at_the_path_of_the_peers") {
        return;
    }
    for (more, path) in [("", "/a2a"), ("transport: websocket\nws-path: /socket\n", "/socket")] {
        let home = Home::new();
        let server = start_with(&home, &[], &format!("push-notifications: true\n{more}")).await;
        let url = format!("{}{path}", server.program.url.replace("http://", "ws://"));
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        check_methods(async |request| {
            socket.send(Frame::text(request.to_string())).await.unwrap();
            let frame = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            let mut frame: Value = serde_json::from_str(frame.to_text().unwrap()).unwrap();
            assert_eq!((&frame["id"], &frame["final"]), (&request["id"], &json!(true)), "{frame}");
            frame["payload"].take()
        })
        .await;
        socket.send(Frame::text(request("SendStreamingMessage"))).await.unwrap();
        loop {
            let frame = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            let frame: Value = serde_json::from_str(frame.to_text().unwrap()).unwrap();
            assert_eq!(frame["id"], 1, "{frame}");
            if frame["final"] == true {
                assert_eq!(frame["payload"], json!({"jsonrpc": "2.0", "id": 1}));
                break;
            }
            assert!(frame["payload"]["result"].is_object(), "{frame}");
        }
    }
}
