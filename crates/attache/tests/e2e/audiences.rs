//! Several audiences of one server: each caller sees and reaches the functions that their credentials are for.

use attache::client::{Binding, Client, ClientOptions, SchemeCredentials};
use attache::prelude::*;
use attache::protocol::ErrorKind;
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Invocation, Worker, WorkerOptions};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{Program, until};

const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

/// The token of a caller.
fn token(name: &str) -> String {
    format!("the token of {name}, who is somebody")
}

/// A server whose callers and functions are these, and a worker that has the functions. Each returns its own name.
struct Office {
    program: Program,
    _worker: Worker,
}

impl Office {
    async fn open(settings: &str, callers: &[(&str, &str)], functions: &[(&str, Value)]) -> Self {
        let home = Home::new();
        let caller = |(name, more): &(&str, &str)| {
            format!("    - {{ name: {name}, token: \"{}\"{more} }}\n", token(name))
        };
        let callers: String = callers.iter().map(caller).collect();
        let file = home.file(
            "some.yml",
            &format!(
                "listen: 127.0.0.1:0\nstore: \"memory:\"\nengine: {{ listen: 127.0.0.1:0 }}\n{settings}auth:\n  bearer:\n{callers}"
            ),
        );
        let (program, said) = Program::command_with(&["serve", "--config", &file], &[]).await;
        let engine = said.lines().find_map(|line| line.trim().strip_prefix("workers "));
        let engine = engine.expect("workers can join").trim().to_owned();
        let worker = Worker::connect(WorkerOptions::new(engine)).expect("a worker");
        for (id, metadata) in functions {
            let mut metadata = metadata.clone();
            metadata["a2a.expose"] = json!(true);
            let function = RegisterFunction {
                id: (*id).to_owned(),
                metadata: Some(metadata),
                ..RegisterFunction::default()
            };
            let answer = |call: Invocation| async move {
                Ok(to_raw_value(&json!({"from": call.function_id})).expect("JSON"))
            };
            // It is there for as long as the worker is.
            drop(worker.register(function, answer));
        }
        Self { program, _worker: worker }
    }

    async fn client(&self, name: &str, binding: Binding) -> Client {
        let keys = SchemeCredentials::new().token(token(name));
        let options = ClientOptions::default().with_credentials(keys).prefer(binding);
        Client::connect_with(&self.program.url, options).await.expect("it is there")
    }

    /// The skills in the card of a caller.
    async fn skills(&self, name: &str, binding: Binding) -> Vec<String> {
        let card = self.client(name, binding).await.extended_card().await.expect("there is one");
        card.skills.iter().map(|skill| skill.id.clone()).collect()
    }

    /// The skills that everybody sees.
    async fn public_skills(&self) -> Vec<String> {
        let card = reqwest::get(format!("{}/.well-known/agent-card.json", self.program.url)).await;
        let card: Value = card.expect("a card").json().await.expect("JSON");
        let skills = card["skills"].as_array().cloned().unwrap_or_default();
        skills.iter().map(|skill| skill["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// What comes of calling a function: its answer, why the task failed, or why there is no task.
    async fn call(&self, name: &str, binding: Binding, function: &str) -> Result<Value, Refused> {
        let client = self.client(name, binding).await;
        let reply = client.send(format!("{function} {{}}")).await;
        let reply = reply.map_err(|error| Refused::Request(error.kind()))?;
        let Reply::Task(task) = reply else { panic!("{reply:?}") };
        if task.status.state == TaskState::Failed {
            return Err(Refused::Task(task.status.message.expect("words").text()));
        }
        assert_eq!(task.status.state, TaskState::Completed);
        Ok(task.artifacts[0].parts[0].as_data().expect("data").read().expect("JSON"))
    }

    fn request(&self, path: &str, body: &Value) -> RequestBuilder {
        reqwest::Client::new().post(format!("{}{path}", self.program.url)).json(body)
    }
}

/// Why a caller got no response.
#[derive(Debug, PartialEq)]
enum Refused {
    Request(Option<ErrorKind>),
    Task(String),
}

#[tokio::test]
async fn with_an_order_of_tiers_partners_also_see_what_the_public_sees() {
    let functions =
        ["public", "partner", "ops"].map(|tier| (format!("{tier}::do"), json!({"a2a.tier": tier})));
    let mut functions = functions.each_ref().map(|(id, metadata)| (id.as_str(), metadata.clone())).to_vec();
    functions.push(("all::do", json!({})));
    let callers = [("ann", ""), ("pat", ", tier: partner"), ("otto", ", tier: ops")];
    let settings = "functions: { tiers: [public, partner, ops] }\n";
    let office = Office::open(settings, &callers, &functions).await;
    until("the worker is there", async || office.public_skills().await == ["all::do", "public::do"]).await;
    for (name, seen) in [
        ("ann", &["all::do", "public::do"][..]),
        ("pat", &["all::do", "partner::do", "public::do"]),
        ("otto", &["all::do", "ops::do", "partner::do", "public::do"]),
    ] {
        assert_eq!(office.skills(name, Binding::JsonRpc).await, seen, "{name}");
        for function in ["all::do", "public::do", "partner::do", "ops::do"] {
            let came = office.call(name, Binding::JsonRpc, function).await;
            assert_eq!(came.is_ok(), seen.contains(&function), "{name} calls {function}");
        }
    }
}

#[tokio::test]
async fn three_audiences_have_three_cards_and_reach_three_functions_in_one_process() {
    let tiers = ["ops", "partner", "public"];
    let functions = tiers.map(|tier| (format!("{tier}::do"), json!({"a2a.tier": tier})));
    let functions = functions.each_ref().map(|(id, metadata)| (id.as_str(), metadata.clone()));
    let callers =
        [("ann", ""), ("pat", ", tier: partner"), ("otto", ", tier: ops"), ("eve", ", tier: nobodys")];
    let office = Office::open("functions: { tier: public }\n", &callers, &functions).await;
    until("the worker is there", async || office.public_skills().await == ["public::do"]).await;

    for binding in BINDINGS {
        for (name, own) in [("ann", "public"), ("pat", "partner"), ("otto", "ops")] {
            assert_eq!(office.skills(name, binding).await, [format!("{own}::do")], "{name} over {binding:?}");
            for tier in tiers {
                let function = format!("{tier}::do");
                let came = office.call(name, binding, &function).await;
                if tier == own {
                    assert_eq!(came, Ok(json!({"from": function})), "{name} over {binding:?}");
                } else {
                    // It is as if there were no such function.
                    let Err(Refused::Task(said)) = came else { panic!("{name} over {binding:?}: {came:?}") };
                    let only = format!("There is no function '{function}'. You can call: {own}::do.");
                    assert_eq!(said, only);
                }
            }
        }
        assert_eq!(office.skills("eve", binding).await, [""; 0]);
    }
    assert_eq!(office.public_skills().await, ["public::do"], "the card for everybody stays as it is");
}

#[tokio::test]
async fn a_function_that_takes_scopes_answers_those_who_have_them_over_every_binding() {
    let functions = [("desk::quote", json!({"a2a.scopes": ["quote", "read"]})), ("desk::hello", json!({}))];
    let callers = [("ann", ", scopes: [read, quote]"), ("bob", ", scopes: [read]"), ("eve", "")];
    let office = Office::open("", &callers, &functions).await;
    until("the worker is there", async || office.public_skills().await == ["desk::hello", "desk::quote"])
        .await;

    let denied = Err(Refused::Request(Some(ErrorKind::PermissionDenied)));
    for binding in BINDINGS {
        let answer = Ok(json!({"from": "desk::quote"}));
        assert_eq!(office.call("ann", binding, "desk::quote").await, answer, "{binding:?}");
        for name in ["bob", "eve"] {
            assert_eq!(office.call(name, binding, "desk::quote").await, denied, "{name} over {binding:?}");
            let hello = office.call(name, binding, "desk::hello").await;
            assert_eq!(hello, Ok(json!({"from": "desk::hello"})), "{name} over {binding:?}");
        }
    }

    // What they answer in HTTP's own words, in every dialect.
    let parts = json!([{"text": "desk::quote {}"}]);
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
    let older = json!({"message": {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "desk::quote {}"}]}});
    let rpc =
        |method: &str, params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    for (path, version, body) in [
        ("/a2a", "1.0", rpc("SendMessage", &message)),
        ("/a2a", "1.0", rpc("SendStreamingMessage", &message)),
        ("/a2a", "0.3", rpc("message/send", &older)),
        ("/a2a", "0.3", rpc("message/stream", &older)),
        ("/v1/message:send", "1.0", message.clone()),
        ("/v1/message:stream", "1.0", message.clone()),
    ] {
        let status = async |name: &str| {
            let request = office.request(path, &body).header("A2A-Version", version).bearer_auth(token(name));
            let response = request.send().await.expect("an answer");
            let status = response.status();
            (status, response.text().await.expect("text"))
        };
        let (refused, said) = status("bob").await;
        assert_eq!(refused, StatusCode::FORBIDDEN, "{path} {body}: {said}");
        assert!(said.contains("this function requires scopes that the caller does not have"), "{said}");
        let (answered, said) = status("ann").await;
        assert_eq!(answered, StatusCode::OK, "{path} {body}: {said}");
        assert!(said.contains("desk::quote"), "{said}");
    }

    // The card says what it takes.
    let card =
        reqwest::get(format!("{}/.well-known/agent-card.json", office.program.url)).await.expect("a card");
    let card: Value = card.json().await.expect("JSON");
    let takes = |id: &str| {
        let skills = card["skills"].as_array().expect("skills");
        skills.iter().find(|skill| skill["id"] == id).expect("it is there")["securityRequirements"].clone()
    };
    assert_eq!(takes("desk::quote"), json!([{"schemes": {"bearerAuth": {"list": ["quote", "read"]}}}]));
    assert_eq!(takes("desk::hello"), Value::Null);
}
