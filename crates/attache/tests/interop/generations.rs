//! One task and three protocol generations: each client sees the task in its own dialect only.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agent;
use crate::peers::{Process, keep};
use crate::sdk::Sdk;

/// What was answered, and to whom.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(Generation, String)>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    V1_0,
    V0_3,
    V0_1,
}

impl Generation {
    fn of(request: &Request) -> Self {
        match request.headers().get("a2a-version") {
            Some(version) if version == "1.0" => Self::V1_0,
            _ if request.uri().path() == "/a2a/rpc" => Self::V0_1,
            _ => Self::V0_3,
        }
    }

    /// Words that it alone has, each of which must be there.
    fn own(self) -> &'static [&'static str] {
        match self {
            Self::V1_0 => &["TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "ROLE_USER", "\"artifactUpdate\":"],
            Self::V0_3 => &["\"kind\":\"task\"", "\"kind\":\"text\"", "\"kind\":\"message\""],
            Self::V0_1 => &["\"sessionId\":", "\"type\":\"text\"", "\"index\":0"],
        }
    }

    /// Words that none of the others may have.
    fn others(self) -> impl Iterator<Item = &'static str> {
        let marks = |generation| match generation {
            Self::V1_0 => ["TASK_STATE_", "ROLE_"],
            Self::V0_3 => ["\"kind\":", "\"final\":"],
            Self::V0_1 => ["\"sessionId\":", "\"type\":"],
        };
        [Self::V1_0, Self::V0_3, Self::V0_1].into_iter().filter(move |other| *other != self).flat_map(marks)
    }
}

impl Heard {
    /// Listens in on an answer.
    async fn listen(self, request: Request, next: Next) -> Response {
        let (generation, post) = (Generation::of(&request), request.method() == axum::http::Method::POST);
        let response = next.run(request).await;
        if !post {
            return response;
        }
        let (head, body) = response.into_parts();
        let body = body.into_data_stream().inspect(move |data| {
            if let Ok(data) = data {
                let text = String::from_utf8_lossy(data).into_owned();
                self.0.lock().expect("nobody panics with it").push((generation, text));
            }
        });
        Response::from_parts(head, Body::from_stream(body))
    }

    fn by(&self, generation: Generation) -> String {
        let heard = self.0.lock().expect("nobody panics with it");
        heard.iter().filter(|(to, _)| *to == generation).map(|(_, text)| text.as_str()).collect()
    }
}

/// Asks as in 0.1, at the address that is 0.1's.
async fn oldest(url: &str, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let answer = reqwest::Client::new().post(format!("{url}/a2a/rpc")).json(&request).send().await;
    let answer: Value = answer.expect("it answers").json().await.expect("the answer is JSON");
    assert_eq!(answer.get("error"), None, "{method}");
    answer["result"].clone()
}

#[test]
fn a_task_of_0_3_is_followed_in_1_0_and_read_in_0_1() {
    let absent = [Sdk::Python0, Sdk::Python1, Sdk::Node1].into_iter().find_map(Sdk::absent);
    keep("generations::a_task_of_0_3_is_followed_in_1_0_and_read_in_0_1", absent, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let heard = Heard::default();
        let listen = {
            let heard = heard.clone();
            middleware::from_fn(move |request, next| heard.clone().listen(request, next))
        };
        let routes = agent::server().into_router(&url).expect("it can be made").layer(listen);
        tokio::spawn(async { axum::serve(listener, routes).await });

        let program = |sdk: Sdk, version: &str, what: &str| {
            let mut command = sdk.program("client");
            command.args([&url, "JSONRPC", version, what]);
            Process::start(&sdk.title(), command)
        };
        let said = |line: &str| serde_json::from_str::<Value>(line).ok();
        let mut creator = program(Sdk::Python0, "0.3", "begin");
        let begun =
            creator.heard("the task", |line| said(line).filter(|said| said["feature"] == "begin")).await;
        let task =
            begun["detail"].as_str().filter(|_| begun["ok"] == true).unwrap_or_else(|| panic!("{begun}"));

        let follow = format!("follow={task}");
        let mut followers = [program(Sdk::Python1, "1.0", &follow), program(Sdk::Node1, "1.0", &follow)];
        for follower in &mut followers {
            let seen =
                follower.heard("the task", |line| said(line).filter(|said| said["seen"].is_string())).await;
            assert_eq!((&seen["seen"], &seen["state"]), (&json!("task"), &json!("working")));
        }
        let working = oldest(&url, "tasks/get", json!({"id": task})).await;
        assert_eq!((&working["id"], &working["status"]["state"]), (&json!(task), &json!("working")));

        let release = json!({"role": "user", "parts": [{"type": "text", "text": format!("release {task}")}]});
        oldest(&url, "tasks/send", json!({"id": "released-by-the-oldest", "message": release})).await;
        for follower in &mut followers {
            let artifact = |line: &str| said(line).filter(|said| said["seen"] == "artifact");
            assert_eq!(follower.heard("the artifact", artifact).await["text"], "released");
            let end = |line: &str| said(line).filter(|said| said["state"] == "completed");
            follower.heard("the end", end).await;
        }
        let ended = oldest(&url, "tasks/get", json!({"id": task})).await;
        assert_eq!(ended["status"]["state"], "completed");
        assert_eq!(ended["artifacts"][0]["parts"], json!([{"type": "text", "text": "released"}]));

        for generation in [Generation::V1_0, Generation::V0_3, Generation::V0_1] {
            let words = heard.by(generation);
            for own in generation.own() {
                assert!(words.contains(own), "{generation:?} was not told `{own}`: {words}");
            }
            for other in generation.others() {
                assert!(!words.contains(other), "{generation:?} was told `{other}`: {words}");
            }
        }
    });
}
