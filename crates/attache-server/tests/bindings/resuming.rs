//! Taking a stream up again after it was cut off, and streams that break.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Binding, Flaky, Frame, Refusal, Running, Sse, card, fetch, player, playing, send, serve,
};

fn subscription(server: &Running, id: &Value) -> [reqwest::RequestBuilder; 3] {
    let id = id.as_str().unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": id}});
    let rest = format!("/v1/tasks/{id}:subscribe");
    [
        server.http(Method::POST, "/a2a").header("Content-Type", "application/json").body(body.to_string()),
        server.http(Method::GET, &rest),
        server.http(Method::POST, &rest),
    ]
}

async fn resumed(request: reqwest::RequestBuilder, after: impl ToString) -> Vec<Frame> {
    Sse::open(request.header("Last-Event-ID", after.to_string())).await.rest().await
}

fn events(frames: &[Frame]) -> Vec<(Option<u64>, Value)> {
    frames.iter().map(|frame| (frame.id, frame.event())).collect()
}

#[tokio::test]
async fn a_stream_goes_on_exactly_after_any_event_also_of_a_task_that_has_ended() {
    let server = playing().await;
    let all = server.sse("SendStreamingMessage", send("chunks")).await.rest().await;
    assert_eq!(all.len(), 6);
    let id = all[0].event()["task"]["id"].clone();
    for seen in 0..=all.len() {
        for request in subscription(&server, &id) {
            assert_eq!(events(&resumed(request, seen).await), events(&all[seen..]), "after {seen}");
        }
        let mut grpc = server.grpc().await;
        let metadata = [("last-event-id".to_owned(), seen.to_string())];
        let (rest, _) = grpc.call("SubscribeToTask", json!({"id": id}), &metadata).await.unwrap();
        assert_eq!(rest.as_array().unwrap().len(), all.len() - seen);
    }
}

#[tokio::test]
async fn a_stream_goes_on_while_the_task_does() {
    let server = playing().await;
    let task = server.task("ask").await;
    let mut open: Vec<Sse> = Vec::new();
    for request in subscription(&server, &task["id"]) {
        open.push(Sse::open(request.header("Last-Event-ID", "1")).await);
    }
    let mut answer = send("the answer");
    answer["message"]["taskId"] = task["id"].clone();
    server.sent(answer).await;
    for mut stream in open {
        let frames = stream.rest().await;
        // The client's own message is an event of the log that streams do not show.
        assert_eq!(frames.iter().map(|frame| frame.id.unwrap()).collect::<Vec<_>>(), [2, 3, 5, 6]);
        assert_eq!(frames[0].event()["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    }
}

#[tokio::test]
async fn an_event_that_never_was_is_refused() {
    let server = playing().await;
    let id = server.task("chunks").await["id"].clone();
    for last in ["7", "18446744073709551615", "x", "-1", "1.0", "0x1", "1,2", "99999999999999999999999"] {
        let [rpc, get, post] = subscription(&server, &id);
        let reply = fetch(rpc.header("Last-Event-ID", last)).await;
        assert_eq!(reply.code(), -32602, "{last}");
        for request in [get, post] {
            let reply = fetch(request.header("Last-Event-ID", last)).await;
            let json = reply.json();
            assert_eq!(reply.status, 400, "{last}");
            assert_eq!(json["error"]["details"][1]["fieldViolations"][0]["field"], "Last-Event-ID", "{last}");
        }
    }
    let refusal =
        server.ask("SubscribeToTask", json!({"id": id})).header("last-event-id", "7").refused(Binding::Grpc);
    assert_eq!(refusal.await.fields, ["Last-Event-ID"]);
}

#[tokio::test]
async fn an_empty_last_event_is_none() {
    let server = playing().await;
    let id = server.task("ask").await["id"].clone();
    for request in subscription(&server, &id) {
        let mut stream = Sse::open(request.header("Last-Event-ID", "")).await;
        assert!(stream.event().await["task"].is_object());
    }
}

#[tokio::test]
async fn a_stream_of_someone_elses_task_cannot_be_resumed() {
    let server = playing().await;
    let mut params = send("chunks");
    params["tenant"] = json!("acme");
    let id = server.sent(params).await["task"]["id"].clone();
    for request in subscription(&server, &id) {
        let json = fetch(request.header("Last-Event-ID", "1")).await.json();
        let details = json["error"].get("data").unwrap_or(&json["error"]["details"]);
        assert_eq!(details[0]["reason"], "TASK_NOT_FOUND", "{json}");
    }
}

#[tokio::test]
async fn a_repeated_send_is_resumed_where_it_was_cut_off() {
    let server = playing().await;
    let params = send("chunks");
    let request = |last: Option<&str>| {
        let request =
            server.http(Method::POST, "/v1/message:stream").header("Content-Type", "application/json");
        let request = request.header("Idempotency-Key", "k1").body(params.to_string());
        match last {
            Some(last) => request.header("Last-Event-ID", last),
            None => request,
        }
    };
    let all = Sse::open(request(None)).await.rest().await;
    assert_eq!(events(&Sse::open(request(None)).await.rest().await), events(&all), "from the beginning");
    assert_eq!(events(&Sse::open(request(Some("4"))).await.rest().await), events(&all[4..]));
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1);
}

#[tokio::test]
async fn what_was_sent_in_many_lines_never_breaks_the_framing() {
    let server = playing().await;
    let text = "a\n\ndata: fake\r\nid: 9\u{2028}\u{85}\r\n\r\n: x";
    let data = json!({"k\n\n": ["\r\n", {"id: 3": "data: 4\n\n"}]});
    let part = serde_json::to_string_pretty(&json!({"data": data, "metadata": {"\n": "\n\n"}})).unwrap();
    let part = part.replace('\n', "\r\n\r\n");
    let message = format!(
        r#"{{"messageId":"m","role":"ROLE_USER","metadata":{{"a": [1,
        2]}},"parts":[{{"text":{}}},{part}]}}"#,
        json!(text)
    );
    let params = format!("{{\n\"message\": {message}\n}}");
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\n\"id\":1,\n\"method\":\"SendStreamingMessage\",\n\"params\":{params}}}"
    );
    let json = |path: &str| server.http(Method::POST, path).header("Content-Type", "application/json");
    for request in [json("/a2a").body(body), json("/v1/message:stream").body(params)] {
        let frames = Sse::open(request).await.rest().await;
        assert_eq!(frames.iter().map(|frame| frame.id).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
        let parts = &frames[1].event()["artifactUpdate"]["artifact"]["parts"];
        assert_eq!((&parts[0]["text"], &parts[1]["data"]), (&json!(text), &data));
        assert_eq!(parts[1]["metadata"], json!({"\n": "\n\n"}));
    }
}

#[tokio::test]
async fn an_id_in_many_lines_never_breaks_the_framing() {
    let server = playing().await;
    let body =
        json!({"jsonrpc": "2.0", "id": "a\n\nb\r", "method": "SendStreamingMessage", "params": send("hi")});
    let request = server.http(Method::POST, "/a2a").header("Content-Type", "application/json");
    for frame in Sse::open(request.body(body.to_string())).await.rest().await {
        assert_eq!(frame.json()["id"], "a\n\nb\r");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_says_so_in_its_last_event() {
    let server = serve(player().card(card()).store(Flaky::after(2))).await;
    let rpc = server.sse("SendStreamingMessage", send("chunks")).await.rest().await;
    let rest = server.rest_sse("POST", "/message:stream", Some(send("chunks"))).await.rest().await;
    for (frames, code) in [(&rpc, json!(-32603)), (&rest, json!(500))] {
        let (last, before) = frames.split_last().unwrap();
        assert!(before.iter().all(|frame| frame.event.is_none()));
        assert_eq!((last.event.as_deref(), last.id), (Some("error"), None));
        assert_eq!(last.json()["error"]["code"], code);
        assert!(!last.json().to_string().contains("disk"), "what happened inside stays inside: {last:?}");
    }
    assert_eq!((&rpc.last().unwrap().json()["id"], rpc.len()), (&json!(1), 3));

    let mut grpc = server.grpc().await;
    let (mut stream, _) = grpc.stream("SendStreamingMessage", send("chunks"), &[]).await.unwrap();
    for _ in 0..2 {
        assert!(stream.next().await.unwrap().is_some());
    }
    let refusal = Refusal::from_status(&stream.next().await.unwrap_err());
    assert_eq!((refusal.code, refusal.reason.as_str()), (tonic::Code::Internal as i64, "INTERNAL_ERROR"));
}
