//! Peers that are written with the `redis` package of PyPI, and know only the fields of existing peers.

use attache::client::{Client, Reply};
use serde_json::Value;
use tokio::process::Command;

use crate::peers::{self, Process};
use crate::support::{GROUP, REQUESTS, RESPONSES, Redis, Served, has_redis, soon};

/// A program of the peers, with its arguments.
fn program(name: &str, arguments: &[&str]) -> Command {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/peers/python");
    let mut command = Command::new(peers::home(FOLDER).join("bin/python"));
    command.arg(format!("{folder}/{name}")).args(arguments);
    command
}

/// Where `cargo xtask test` installs the package.
pub(crate) const FOLDER: &str = "redis-python-8.1.0";

#[test]
fn a_python_client_that_knows_three_fields_is_answered() {
    let name = "python::a_python_client_that_knows_three_fields_is_answered";
    if !has_redis(name) {
        return;
    }
    peers::keep(name, peers::absent("python"), async {
        let redis = Redis::start().await;
        let _served = Served::start(&["--agent", "echo", "--redis", &redis.url()]).await;
        let mut client = Process::start(
            "the client",
            program("client.py", &[&redis.port().to_string(), REQUESTS, RESPONSES]),
        );
        let mut lines: Vec<Value> = Vec::new();
        while let Some(line) = soon("a line", client.line()).await {
            lines.push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")));
        }
        let of = |method: &str| lines.iter().filter(|line| line["method"] == method).collect::<Vec<_>>();
        let sent = of("SendMessage");
        assert_eq!((sent.len(), &sent[0]["final"]), (1, &Value::from("true")));
        assert_eq!(sent[0]["payload"]["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        let events = of("SendStreamingMessage");
        let (last, before) = events.split_last().expect("events");
        assert!(before.len() >= 2 && before.iter().all(|event| event["final"] == "false"), "{events:?}");
        assert_eq!((&last["final"], last["payload"].get("result")), (&Value::from("true"), None));
        assert_eq!(of("GetTask")[0]["payload"]["error"]["code"], -32001);
    });
}

#[test]
fn a_python_server_that_knows_three_fields_is_called() {
    let name = "python::a_python_server_that_knows_three_fields_is_called";
    if !has_redis(name) {
        return;
    }
    peers::keep(name, peers::absent("python"), async {
        let redis = Redis::start().await;
        let mut server =
            Process::start("the server", program("server.py", &[&redis.port().to_string(), REQUESTS, GROUP]));
        server.heard("it is ready", |line| (line == "ready").then_some(())).await;
        let client = soon("a connection", Client::connect(&redis.agent())).await.unwrap();
        let Reply::Task(task) = soon("a reply", client.send("to Python")).await.unwrap() else {
            panic!("a task is expected")
        };
        assert!(format!("{task:?}").contains("to Python"));
        let mut events = soon("a stream", client.stream("a stream")).await.unwrap();
        let mut count = 0;
        while let Some(event) = soon("an event", events.next()).await {
            event.unwrap();
            count += 1;
        }
        assert_eq!(count, 2);
    });
}
