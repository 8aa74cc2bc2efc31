//! Multi-agent research: discovers three agents, sends a question to each concurrently, and polls them until they have answered.
//!
//! It uses the functions `a2a::*` of an engine, as a worker in any language would. `cargo run --example research`

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use attache::prelude::*;
use attache_agents::delegation::{Delegation, DelegationOptions};
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, FunctionCall, FunctionGatewayOptions, Functions, Gateway};
use futures::future::try_join_all;
use serde_json::{Value, json, value::to_raw_value};

type Error = Box<dyn std::error::Error>;

/// Starts an agent that has an answer to every question.
async fn researcher(number: usize) -> Result<String, attache::Error> {
    let research = move |turn: Turn| async move {
        turn.working("reading").await?;
        turn.complete_with(format!("Researcher {number} on `{}`: it is complicated.", turn.text())).await
    };
    let card = Card::new(format!("research-{number}"), "Research and analysis")
        .skill(Skill::new("research", "Research").tags(["research"]));
    let server = Server::new(agent_fn(research)).card(card).bind("127.0.0.1:0").listen().await?;
    let url = format!("http://{}", server.address()?);
    tokio::spawn(server.run());
    Ok(url)
}

/// Calls a function of the engine.
async fn trigger(engine: &Engine, function: &str, payload: Value) -> Result<Value, Error> {
    let payload = to_raw_value(&payload)?;
    let call =
        FunctionCall { function, payload: &payload, timeout: Duration::from_secs(30), trace_parent: None };
    let result = engine.call(call).await.map_err(|error: CallError| error.to_string())?;
    Ok(serde_json::from_str(result.get())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::new(store.clone(), EngineOptions::default());
    // By default agents on this machine are rejected.
    let policy = Policy::default().allow_loopback(true);
    let delegation =
        Delegation::new(store, DelegationOptions::default().with(|options| options.policy = policy))?;
    let gateway = Gateway::new(Arc::new(engine.clone()), FunctionGatewayOptions::default());
    let surface = Server::new(gateway.clone()).card(gateway.card()).into_http_service("http://localhost")?;
    let _functions = delegation.register_functions(&engine, surface.in_process(Identity::default()));

    let agents = try_join_all((1..=3).map(researcher)).await?;
    let discover = |url: &String| trigger(&engine, "a2a::discover", json!({ "url": url }));
    for found in try_join_all(agents.iter().map(discover)).await? {
        eprintln!("found {}: {}", found["card"]["name"], found["card"]["description"]);
    }

    let tasks = try_join_all(agents.iter().enumerate().map(|(i, url)| {
        let message = format!("aspect {} of quantum computing", i + 1);
        let metadata = json!({"aspect": i + 1});
        let task = json!({"agentUrl": format!("{url}/a2a/rpc"), "message": message, "metadata": metadata});
        trigger(&engine, "a2a::send_task", task)
    }))
    .await?;
    eprintln!("dispatched {} research tasks", tasks.len());

    let mut out = std::io::stdout();
    for mut task in tasks {
        let query = json!({"taskId": task["id"], "agentUrl": task["metadata"]["agentUrl"]});
        while matches!(task["status"]["state"].as_str(), Some("submitted" | "working")) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            task = trigger(&engine, "a2a::get_task", query.clone()).await?;
        }
        let finding = task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or("nothing was found");
        writeln!(out, "{finding}")?;
    }
    Ok(())
}
