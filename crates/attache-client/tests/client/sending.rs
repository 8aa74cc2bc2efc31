//! Sending, reading, listing and canceling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_client::{Client, ClientError, Outgoing, Reply};
use attache_protocol::{ErrorKind, JsonObject, ListTasksRequest, Message, Part, Task, TaskState};
use attache_server::Server;
use serde_json::json;

use crate::support::{
    Fake, Player, Proxy, Reaction, connect, json as respond, playing, quick, rpc_result, serve, soon,
};

fn task(reply: Reply) -> Task {
    match reply {
        Reply::Task(task) => task,
        Reply::Message(message) => panic!("not a task: {message:?}"),
    }
}

#[tokio::test]
async fn whatever_can_be_sent_is_answered() {
    let agent = playing().await;
    let parts = vec![Part::text("two"), Part::data(&json!({"n": 2})).unwrap()];
    for (outgoing, count) in [
        (Outgoing::new("one"), 1),
        (Outgoing::new("one".to_owned()), 1),
        (Outgoing::new(Part::text("one")), 1),
        (Outgoing::new(parts), 2),
        (Outgoing::new(Message::user("m1", "one")), 1),
    ] {
        let task = task(soon(agent.send(outgoing)).await.unwrap());
        assert_eq!((task.status.state, task.artifacts[0].parts.len()), (TaskState::Completed, count));
    }
    let Reply::Message(message) = agent.send("message back").await.unwrap() else {
        panic!("a direct answer")
    };
    assert_eq!(message.text(), "message back");
}

#[tokio::test]
async fn a_conversation_goes_on_where_the_agent_asked() {
    let agent = playing().await;
    let asked = task(agent.send(Outgoing::new("ask").context("dinner")).await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    assert_eq!(asked.context_id.as_ref().map(|id| id.as_str()), Some("dinner"));
    let answered = task(agent.send(Outgoing::new("leeks").task(asked.id.clone())).await.unwrap());
    assert_eq!((&answered.id, answered.status.state), (&asked.id, TaskState::Completed));
}

#[tokio::test]
async fn a_task_can_be_read_listed_and_canceled() {
    let agent = playing().await;
    let task = task(agent.send(Outgoing::new("wait").return_immediately()).await.unwrap());
    assert!(!task.status.state.is_terminal());
    assert_eq!(agent.get(task.id.clone()).await.unwrap().id, task.id);
    assert_eq!(agent.cancel(task.id.clone()).await.unwrap().status.state, TaskState::Canceled);
    let page = agent.list(ListTasksRequest::default()).await.unwrap();
    assert_eq!((page.total_size, &page.tasks[0].id), (1, &task.id));
    let query = ListTasksRequest { status: TaskState::Working, ..ListTasksRequest::default() };
    assert_eq!(agent.list(query).await.unwrap().total_size, 0);
}

#[tokio::test]
async fn giving_up_the_wait_does_not_cancel_the_task() {
    let agent = playing().await;
    let waiting = agent.send("wait");
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err());
    let page = agent.list(ListTasksRequest::default()).await.unwrap();
    assert_eq!(page.tasks[0].status.state, TaskState::Working);
}

#[tokio::test]
async fn every_request_says_its_version_and_what_it_asks_for() {
    let fake = Fake::agent(|asked| rpc_result(asked, &json!({"task": {"id": "t"}, "tasks": []}))).await;
    let options = quick().extensions(vec!["urn:a".to_owned()]);
    let agent = Client::connect_with(&fake.url, options).await.unwrap();
    let metadata = JsonObject::new(&json!({"k": "v"})).unwrap();
    let outgoing = Outgoing::new("hi")
        .context("c")
        .accept(["text/plain"])
        .history_length(3)
        .return_immediately()
        .metadata(metadata)
        .extension("urn:b")
        .extension("urn:a")
        .idempotency_key("k1");
    agent.send(outgoing).await.unwrap();
    agent.list(ListTasksRequest::default()).await.unwrap();

    let calls = fake.calls();
    let headers =
        |i: usize| ["a2a-version", "a2a-extensions", "idempotency-key"].map(|name| calls[i].header(name));
    assert_eq!(headers(0), [Some("1.0"), Some("urn:a, urn:b"), Some("k1")]);
    assert_eq!(headers(1), [Some("1.0"), Some("urn:a"), None]);
    let params = &calls[0].body["params"];
    assert_eq!(
        params["configuration"],
        json!({"acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": true})
    );
    assert_eq!((&params["metadata"], &params["message"]["contextId"]), (&json!({"k": "v"}), &json!("c")));
    assert!(params["message"]["messageId"].as_str().is_some_and(|id| !id.is_empty()));
}

#[tokio::test]
async fn the_tenant_of_the_interface_goes_with_every_request() {
    let fake = Fake::server(|asked| {
        if !asked.is_for_card() {
            return rpc_result(asked, &json!({"id": "t", "task": {"id": "t"}}));
        }
        let url = format!("http://{}/rpc", asked.header("host").unwrap());
        let interface =
            json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "acme"});
        respond(200, &json!({"name": "Fake", "supportedInterfaces": [interface]}))
    })
    .await;
    let agent = connect(&fake.url).await;
    agent.send("hi").await.unwrap();
    agent.stream("hi").await.unwrap();
    agent.get("t").await.unwrap();
    agent.cancel("t").await.unwrap();
    agent.list(ListTasksRequest::default()).await.unwrap();
    assert!(agent.subscribe("t").await.is_err());
    let calls = fake.calls();
    assert_eq!(calls.len(), 6);
    assert!(calls.iter().all(|call| call.body["params"]["tenant"] == "acme"), "{calls:?}");
}

#[tokio::test]
async fn a_send_without_a_key_is_never_repeated() {
    let fake = Fake::agent(|_| Reaction::Bytes(Vec::new())).await;
    let agent = connect(&fake.url).await;
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
    let error = soon(agent.stream("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
    assert_eq!(fake.calls().len(), 2);

    let busy = Fake::agent(|_| respond(503, &json!({}))).await;
    let error = soon(connect(&busy.url).await.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Http { status: 503, .. }), "{error}");
    assert_eq!(busy.calls().len(), 1);
}

#[tokio::test]
async fn a_send_with_a_key_is_repeated_as_it_was_until_it_is_answered() {
    let count = AtomicUsize::new(0);
    let fake = Fake::agent(move |asked| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Bytes(Vec::new()),
        1 => respond(503, &json!("busy")),
        _ => rpc_result(asked, &json!({"task": {"id": "t"}})),
    })
    .await;
    let agent = connect(&fake.url).await;
    soon(agent.send(Outgoing::new("hi").idempotency_key("k1"))).await.unwrap();
    let calls = fake.calls();
    assert_eq!(calls.len(), 3);
    for call in &calls {
        assert_eq!(call.header("idempotency-key"), Some("k1"));
        assert_eq!(call.body["params"], calls[0].body["params"], "the message id included");
    }
}

#[tokio::test]
async fn repeating_has_an_end() {
    let fake = Fake::agent(|_| Reaction::Bytes(Vec::new())).await;
    let agent = connect(&fake.url).await;
    let error = soon(agent.send(Outgoing::new("hi").idempotency_key("k1"))).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
    assert_eq!(fake.calls().len(), 6);
}

#[tokio::test]
async fn a_send_that_is_repeated_is_carried_out_once() {
    let mut proxy = Proxy::new([10]).await;
    let server = serve(Server::new(Player).base_url(proxy.url())).await;
    proxy.forward_to(server);
    let agent = connect(&format!("http://{server}")).await;
    let first = task(soon(agent.send(Outgoing::new("hi").idempotency_key("k1"))).await.unwrap());
    assert_eq!((first.status.state, proxy.connections()), (TaskState::Completed, 2));
    assert_eq!(agent.list(ListTasksRequest::default()).await.unwrap().total_size, 1);
}

#[tokio::test]
async fn what_cannot_be_sent_is_not_sent() {
    let agent = playing().await;
    for outgoing in [Outgoing::new("hi").idempotency_key(" "), Outgoing::new("hi").extension("a,b")] {
        let error = agent.send(outgoing).await.unwrap_err();
        assert!(matches!(error, ClientError::Invalid(_)), "{error}");
    }
    let error = agent.send(Vec::<Part>::new()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidParams), "what a message needs is the agent's to say");
}

#[tokio::test]
async fn a_request_is_not_repeated_if_the_agent_asks_to_wait_too_long() {
    for (seconds, calls) in [(0, 6), (3600, 1)] {
        let busy = format!(
            "HTTP/1.1 503 X\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let fake = Fake::agent(move |_| Reaction::Bytes(busy.clone().into())).await;
        let error = soon(connect(&fake.url).await.get("t")).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)), "{error}");
        assert_eq!(fake.calls().len(), calls);
    }
}
