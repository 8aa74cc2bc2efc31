//! Agents over Unix sockets, commands, WebSocket and the gRPC envelope, at addresses that name the transport.

use std::time::Duration;

use attache_client::{
    Binding, Client, ClientError, ClientOptions, CommandErrors, Commands, ConnectFailure, Interface,
    Outgoing, Reply, SchemeCredentials, Texts, commands_ended,
};
use attache_core::Agent;
use attache_protocol::{ErrorKind, TaskPushNotificationConfig, TaskState, Version};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::{Fake, Player, gated, gists, next, quick, rest, rpc_result, serve, soon, task};

/// Runs a server on a port and on a socket, and gives its addresses on each transport.
async fn everywhere<A: Agent>(server: Server<A>) -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("a.sock").display());
    let listening = server.bind("127.0.0.1:0").bind(&socket).listen().await.unwrap();
    let address = listening.address().unwrap();
    tokio::spawn(listening.run_until(std::future::pending()));
    let addresses = vec![
        socket,
        format!("ws://{address}/ws"),
        format!("ws://{address}/a2a"),
        format!("grpc-jsonrpc://{address}"),
    ];
    (folder, addresses)
}

async fn connect_with(address: &str, options: ClientOptions) -> Client {
    soon(Client::connect_with(address, options)).await.unwrap()
}

#[tokio::test]
async fn every_operation_works_over_every_transport_in_every_version() {
    let callers = KnownCallers::new().bearer("ann", "s3cret-token");
    let (_folder, addresses) = everywhere(Server::new(Player).authenticate(callers)).await;
    let keys = || SchemeCredentials::new().token("s3cret-token");
    for address in &addresses {
        for version in [None, Some(Version::V1_0), Some(Version::V0_3)] {
            let interface = Interface { binding: Binding::JsonRpc, version };
            let agent = connect_with(address, quick().with_credentials(keys()).prefer(interface)).await;
            assert_eq!(agent.card().name, "Agent", "{address}");
            let Reply::Task(task) = soon(agent.send("hello")).await.unwrap() else { panic!("a task") };
            assert_eq!(Texts::from(&task).all(), "hello", "{address} {version:?}");
            assert_eq!(soon(agent.get(task.id.clone())).await.unwrap().id, task.id);
            assert!(
                soon(agent.list(Default::default())).await.unwrap().tasks.iter().any(|it| it.id == task.id)
            );
            let mut events = soon(agent.stream("count 2")).await.unwrap();
            let told = gists(&rest(&mut events).await.unwrap());
            assert_eq!(
                told.last().unwrap(),
                "status TASK_STATE_COMPLETED",
                "{address} {version:?}: {told:?}"
            );

            let mut running = soon(agent.stream("wait")).await.unwrap();
            let id = crate::support::task(&next(&mut running).await).id.clone();
            let mut followed = soon(agent.subscribe(id.clone())).await.unwrap();
            next(&mut followed).await;
            let hook = TaskPushNotificationConfig {
                url: "https://hooks.example.com/a".to_owned(),
                ..Default::default()
            };
            let hook = soon(agent.create_webhook(id.clone(), hook)).await.unwrap();
            let hook_id = hook.id.clone().unwrap();
            assert_eq!(soon(agent.webhook(id.clone(), &*hook_id)).await.unwrap().url, hook.url);
            let mut hooks = agent.webhooks(id.clone());
            assert_eq!(soon(hooks.next()).await.unwrap().unwrap().id, hook.id, "{address} {version:?}");
            assert_eq!(soon(agent.extended_card()).await.unwrap().name, "Agent", "{address} {version:?}");
            soon(agent.delete_webhook(id.clone(), &*hook_id)).await.unwrap();
            let canceled = soon(agent.cancel(id.clone())).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled, "while two streams run on the connection");
            for events in [&mut running, &mut followed] {
                let told = gists(&rest(events).await.unwrap());
                assert_eq!(told.last().unwrap(), "status TASK_STATE_CANCELED", "{address} {version:?}");
            }
            let missing = soon(agent.get("missing")).await.unwrap_err();
            assert_eq!(missing.kind(), Some(ErrorKind::TaskNotFound), "{address}: {missing}");
        }
    }
}

#[tokio::test]
async fn a_dropped_stream_does_not_cancel_its_task() {
    let (agent, gate) = gated();
    let (_folder, addresses) = everywhere(Server::new(agent)).await;
    for address in &addresses {
        let agent = connect_with(address, quick()).await;
        let mut events = soon(agent.stream("count 1")).await.unwrap();
        let id = task(&next(&mut events).await).id.clone();
        drop(events);
        gate.add_permits(1);
        let ended = soon(agent.wait(id)).await.unwrap();
        assert_eq!(ended.status.state, TaskState::Completed, "{address}");
    }
}

#[tokio::test]
async fn credentials_of_the_address_are_sent_over_every_transport() {
    let callers = KnownCallers::new().bearer("ann", "s3cret-token");
    let (_folder, addresses) = everywhere(Server::new(Player).authenticate(callers)).await;
    for address in &addresses {
        let keys = SchemeCredentials::new().token("s3cret-token");
        let agent = connect_with(address, quick().with_credentials(keys)).await;
        assert!(soon(agent.send("hello")).await.is_ok(), "{address}");
        assert!(!rest(&mut soon(agent.stream("count 1")).await.unwrap()).await.unwrap().is_empty());
        let wrong = SchemeCredentials::new().token("another");
        let agent = connect_with(address, quick().with_credentials(wrong)).await;
        let error = soon(agent.send("hello")).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Unauthenticated), "{address}: {error}");
    }
}

#[tokio::test]
async fn a_forwarded_request_keeps_its_id_and_its_generation() {
    let (_folder, addresses) = everywhere(Server::new(Player)).await;
    let http = format!("http://{}", serve(Server::new(Player)).await);
    for address in addresses.iter().chain([&http]) {
        let agent = connect_with(address, quick().prefer(Binding::JsonRpc)).await;
        let ask = async |request: Value, version: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("a2a-version", HeaderValue::from_static(version));
            headers.insert("authorization", HeaderValue::from_static("Bearer of-the-caller"));
            let mut forwarded = soon(agent.forward(request.to_string().as_bytes(), &headers)).await.unwrap();
            let mut all: Vec<(Value, Option<String>)> = Vec::new();
            while let Some(response) = soon(forwarded.next()).await.unwrap() {
                all.push((serde_json::from_slice(&response.json).unwrap(), response.event));
            }
            all
        };
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "count 1"}]});
        let request = json!({"jsonrpc": "2.0", "id": "x-1", "method": "SendStreamingMessage", "params": {"message": message}});
        let events = ask(request, "1.0").await;
        assert!(
            events.len() > 3 && events.iter().all(|(event, _)| event["id"] == "x-1"),
            "{address}: {events:?}"
        );
        assert!(
            events.iter().all(|(event, _)| event.get("final").is_none() && event.get("eventId").is_none())
        );
        assert!(events.last().unwrap().1.is_some(), "{address}: events have numbers");
        let older = json!({"kind": "message", "messageId": "n", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
        let request =
            json!({"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": {"message": older}});
        let [(response, _)] = &ask(request, "0.3").await[..] else { panic!("one response") };
        assert_eq!((&response["id"], &response["result"]["kind"]), (&json!(7), &json!("task")), "{address}");
        let [(error, _)] = &ask(json!({"jsonrpc": "2.0", "id": null, "method": "Nothing"}), "1.0").await[..]
        else {
            panic!("one response")
        };
        assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32601)), "{address}");
    }
}

#[tokio::test]
async fn a_notification_is_forwarded_without_the_credentials_of_its_caller() {
    let fake = Fake::agent(|asked| rpc_result(asked, &json!({}))).await;
    let agent = connect_with(&fake.url, quick()).await;
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer s3cret"));
    let own = json!({"Authorization": "Bearer s3cret"});
    let request = json!({"jsonrpc": "2.0", "method": "SendMessage", "params": {}, "headers": own});
    // Whether the agent answers a notification does not matter.
    let _ = soon(agent.forward(request.to_string().as_bytes(), &headers)).await;
    let calls = fake.calls();
    assert_eq!(calls[0].body, json!({"jsonrpc": "2.0", "method": "SendMessage", "params": {}}));
    assert!(calls.iter().all(|call| !format!("{call:?}").contains("s3cret")), "{calls:?}");
}

/// Passes connections on to another socket, until they are cut.
async fn passing_on(from: std::path::PathBuf, to: std::path::PathBuf) -> watch::Sender<()> {
    let listener = tokio::net::UnixListener::bind(&from).unwrap();
    let cut = watch::Sender::new(());
    let cuts = cut.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (to, mut cut) = (to.clone(), cuts.subscribe());
            tokio::spawn(async move {
                let mut server = tokio::net::UnixStream::connect(&to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = cut.changed() => {}
                }
            });
        }
    });
    cut
}

#[tokio::test]
async fn a_stream_over_a_socket_that_is_cut_goes_on_where_it_was() {
    let (agent, gate) = gated();
    let folder = tempfile::tempdir().unwrap();
    let (inner, outer) = (folder.path().join("inner.sock"), folder.path().join("outer.sock"));
    let listening = Server::new(agent).bind(format!("unix:{}", inner.display())).listen().await.unwrap();
    tokio::spawn(listening.run_until(std::future::pending()));
    let cut = passing_on(outer.clone(), inner).await;
    let agent = connect_with(&format!("unix:{}", outer.display()), quick()).await;
    let mut events = soon(agent.stream("count 3")).await.unwrap();
    next(&mut events).await;
    for _ in 0..3 {
        gate.add_permits(1);
        next(&mut events).await;
        cut.send_replace(());
    }
    let told = gists(&rest(&mut events).await.unwrap());
    let expected = ["artifact 2 ", "artifact 3", "status TASK_STATE_COMPLETED"];
    assert_eq!(told, expected, "no event is lost and none comes twice");
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/none.sock", folder.path().display());
    let error = soon(Client::connect(&address)).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Connect { .. }) && error.to_string().contains("none.sock"),
        "{error}"
    );
}

/// Options that allow commands.
fn commands() -> ClientOptions {
    quick().commands(Commands::Allowed(CommandErrors::Log))
}

#[tokio::test]
async fn a_command_that_ends_says_how_and_why() {
    let ended = async |address: &str| soon(Client::connect_with(address, commands())).await.unwrap_err();
    let error = ended("stdio:sh -c 'echo starting >&2; echo no model is set >&2; exit 2'").await;
    assert_eq!(
        error.to_string(),
        "cannot connect to `stdio:sh`: the command ended with exit code 2 before it answered: starting | no model is set"
    );
    let error = ended("stdio:sh -c 'kill -9 $$'").await;
    assert!(error.to_string().contains("ended with signal 9 before it answered"), "{error}");
    let error = ended("stdio:/no/such/program --secret s3cret").await;
    assert!(
        error.to_string().contains("no such program") && !error.to_string().contains("s3cret"),
        "{error}"
    );
    assert!(matches!(error, ClientError::Connect { why: ConnectFailure::Ended(_), .. }));
    let error = ended("stdio:echo hello").await;
    assert!(error.to_string().contains("must have JSON-RPC responses only"), "{error}");
    let error = soon(Client::connect("stdio:true")).await.unwrap_err();
    assert!(matches!(error, ClientError::Invalid(_)), "not allowed by default: {error}");
}

/// A command that answers each request with an error, and writes its process id to a file.
const REFUSING: &str = r#"trap "" TERM; echo $$ > "$0"; while read -r line; do id=$(echo "$line" | sed "s/.*\"id\":\([0-9]*\).*/\1/"); echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}"; done"#;

#[tokio::test]
async fn a_command_ends_with_its_client_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    for (tail, what) in [("", "at the end of its input"), ("; sleep 1000", "only if it is killed")] {
        let pid_file = folder.path().join(what);
        let script = format!("{REFUSING}{tail}");
        let words = ["sh", "-c", &script, pid_file.to_str().unwrap()];
        let address =
            format!("stdio:{}", words.map(|word| format!("'{}'", word.replace('\'', "'\\''"))).join(" "));
        let agent = Client::connect_with(&address, commands()).await.unwrap();
        let error = agent.send(Outgoing::new("hello")).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::MethodNotFound), "{error}");
        let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_owned();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        drop(agent);
        if !tail.is_empty() {
            // The grace times pass at once.
            tokio::time::pause();
        }
        commands_ended().await;
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it ends {what}");
    }
}

#[tokio::test]
async fn an_agent_without_a_card_is_taken_for_what_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("peer.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    // A peer that speaks lines alone, knows only 0.3, and rejects members that JSON-RPC does not have.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let Ok(request) = serde_json::from_str::<Value>(&line) else {
                        let _ = writer.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\"message\":\"A2AFrameError\"}}\n").await;
                        continue;
                    };
                    let error = |code: i32| json!({"code": code, "message": "m"});
                    let id = &request["id"];
                    let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}});
                    let response = match request["method"].as_str() {
                        _ if request.get("headers").is_some() => {
                            json!({"jsonrpc": "2.0", "id": id, "error": error(-32600)})
                        }
                        Some("message/send") => json!({"jsonrpc": "2.0", "id": id, "result": task}),
                        Some("agent/getAuthenticatedExtendedCard") => {
                            json!({"jsonrpc": "2.0", "id": id, "error": error(-32007)})
                        }
                        _ => json!({"jsonrpc": "2.0", "id": id, "error": error(-32601)}),
                    };
                    let _ = writer.write_all(format!("{response}\n").as_bytes()).await;
                }
            });
        }
    });
    let address = format!("unix:{}", socket.display());
    let agent = connect_with(&address, quick().call_timeout(Duration::from_secs(10))).await;
    assert_eq!(agent.card().name, address);
    let Reply::Task(task) = soon(agent.send("hello")).await.unwrap() else { panic!("a task") };
    assert_eq!((task.id.as_str(), task.status.state), ("t", TaskState::Completed));
}

#[tokio::test]
async fn a_server_that_dies_during_a_request_is_an_error_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("dying.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // The client asks for a card over HTTP first.
                let Ok(request) = serde_json::from_str::<Value>(&line) else { break };
                // It dies in the middle of its response.
                if request["method"] == "SendMessage" {
                    writer.write_all(b"{\"jsonrpc\":\"2.0\",").await.unwrap();
                    break;
                }
                let error = json!({"code": -32601, "message": "no"});
                let response = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                writer.write_all(format!("{response}\n").as_bytes()).await.unwrap();
            }
        }
    });
    let interface = Interface { binding: Binding::JsonRpc, version: Some(Version::V1_0) };
    let agent = connect_with(&format!("unix:{}", socket.display()), quick().prefer(interface)).await;
    let error = soon(agent.send("hello")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error:?}");
    assert!(error.to_string().contains("in the middle of a line"), "{error}");
}
