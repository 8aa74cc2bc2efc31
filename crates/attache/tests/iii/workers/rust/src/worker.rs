//! The functions that the tests ask for, in Rust. Started as `worker ENGINE_URL NAME`; its ids begin with the name.
//!
//! The versions of the SDK spell the same things differently: `sdk` has what is used here, once for each version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::sdk::{self, About, Answer, Client};

/// Triggers of the type that this worker provides: the function and the configuration of each, by its id.
pub type Bells = Arc<Mutex<HashMap<String, (String, Value)>>>;

pub async fn run() {
    let mut arguments = std::env::args().skip(1);
    let (Some(engine), Some(name)) = (arguments.next(), arguments.next()) else {
        panic!("usage: worker ENGINE_URL NAME");
    };
    let name: &'static str = name.leak();
    let iii = sdk::connect(&engine, name);
    let id = |what: &str| format!("{name}::{what}");

    let schema = json!({
        "type": "object",
        "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}},
        "required": ["sku", "quantity"],
    });
    let examples = json!({"a2a.examples": [format!("{name}::quote {{\"sku\": \"A-1\", \"quantity\": 2}}")]});
    let about = About { description: Some("Quote a price"), schema: Some(schema), ..skill(examples) };
    sdk::register(&iii, &id("quote"), about, quote);

    sdk::register(&iii, &id("fail"), skill(json!({})), async |_| Err("the shop is closed".to_owned()));

    sdk::register(&iii, &id("slow"), skill(json!({})), slow);
    sdk::register(&iii, &id("late"), skill(json!({"a2a.timeoutMs": 300})), slow);

    // Calls another function, and waits for its result unless the call says otherwise.
    let client = iii.clone();
    sdk::register(&iii, &id("relay"), skill(json!({})), move |order: Value| {
        let client = client.clone();
        async move {
            let function = order["function_id"].as_str().unwrap_or_default();
            let void = order["void"] == true;
            let returned = sdk::call(&client, function, order["payload"].clone(), void).await?;
            Ok(json!({"returned": returned}))
        }
    });

    let client = iii.clone();
    sdk::register(&iii, &id("remember"), skill(json!({})), move |order: Value| {
        let client = client.clone();
        async move {
            let entry = json!({"scope": name, "key": order["key"], "value": order["value"]});
            sdk::call(&client, "state::set", entry, false).await
        }
    });

    // Writes to its channel piece by piece.
    let address = engine.clone();
    sdk::register(&iii, &id("tell"), skill(json!({"a2a.stream": true})), move |order: Value| {
        let address = address.clone();
        async move {
            let writer = sdk::writer(&address, &order["response"])?;
            for word in words(&order) {
                writer.write(word.as_bytes()).await.map_err(said)?;
            }
            writer.close().await.map_err(said)?;
            Ok(Value::Null)
        }
    });

    // Writes to its channel in text frames, and has something to return as well.
    let address = engine.clone();
    sdk::register(&iii, &id("tell_text"), skill(json!({"a2a.stream": true})), move |order: Value| {
        let address = address.clone();
        async move {
            let writer = sdk::writer(&address, &order["response"])?;
            for word in words(&order) {
                writer.send_message(&word).await.map_err(said)?;
            }
            writer.close().await.map_err(said)?;
            Ok(json!({"words": words(&order).count()}))
        }
    });

    sdk::register(&iii, &id("item"), About::default(), move |request: Value| async move {
        let body = json!({
            "id": request["path_params"]["id"],
            "q": request["query_params"]["q"],
            "body": request["body"],
            "method": request["method"],
        });
        Ok(json!({"status_code": 201, "headers": {"x-shop": name}, "body": body}))
    });
    route(&iii, &id("item"), &format!("{name}/items/:id"), "GET");
    route(&iii, &id("item"), &format!("{name}/items/:id"), "POST");

    // Streams its response.
    let address = engine.clone();
    sdk::register(&iii, &id("feed"), About::default(), move |request: Value| {
        let address = address.clone();
        async move {
            let writer = sdk::writer(&address, &request["response"])?;
            let headers = json!({"content-type": "text/event-stream"});
            for head in [
                json!({"type": "set_status", "status_code": 202}),
                json!({"type": "set_headers", "headers": headers}),
            ] {
                writer.send_message(&head.to_string()).await.map_err(said)?;
            }
            let count: u32 =
                request["path_params"]["count"].as_str().unwrap_or_default().parse().map_err(said)?;
            for number in 0..count {
                writer.write(format!("data: {number}\n\n").as_bytes()).await.map_err(said)?;
            }
            writer.close().await.map_err(said)?;
            Ok(Value::Null)
        }
    });
    route(&iii, &id("feed"), &format!("/{name}/feed/:count"), "GET");

    // Reads a body that is not JSON.
    sdk::register(&iii, &id("upload"), About::default(), move |request: Value| {
        let address = engine.clone();
        async move {
            let body = sdk::reader(&address, &request["request_body"])?.read_all().await.map_err(said)?;
            let begins = String::from_utf8_lossy(&body[..5]);
            Ok(json!({"body": {"length": body.len(), "begins": begins}}))
        }
    });
    route(&iii, &id("upload"), &format!("{name}/upload"), "POST");

    // Registers and unregisters a function while the worker runs.
    let client = iii.clone();
    let registered = Arc::new(Mutex::new(HashMap::new()));
    sdk::register(&iii, &id("change"), skill(json!({})), move |order: Value| {
        let (client, registered) = (client.clone(), registered.clone());
        async move {
            let id = format!("{name}::{}", order["name"].as_str().unwrap_or_default());
            if order["wanted"] == true {
                let function = sdk::register(&client, &id, skill(json!({})), quote);
                registered.lock().unwrap().insert(id, function);
            } else if let Some(function) = registered.lock().unwrap().remove(&id) {
                function.unregister();
            }
            Ok(Value::Null)
        }
    });

    let client = iii.clone();
    sdk::register(&iii, &id("changed"), About::default(), move |news: Value| {
        let client = client.clone();
        async move {
            let functions = news["functions"].as_array().into_iter().flatten();
            let seen: Vec<&Value> = functions.map(|function| &function["function_id"]).collect();
            let value = json!({"event": news["event"], "functions": seen});
            sdk::call(&client, "state::set", json!({"scope": name, "key": "seen", "value": value}), false)
                .await
        }
    });
    sdk::trigger(&iii, "engine::functions-available", &id("changed"), json!({}));

    // A trigger type: functions with such a trigger are called when the bell is rung.
    let bells = Bells::default();
    let bell = format!("{name}-bell");
    sdk::provide(&iii, &bell, "A bell", bells.clone());
    let client = iii.clone();
    sdk::register(&iii, &id("ring"), skill(json!({})), move |_| {
        let (client, bells) = (client.clone(), bells.lock().unwrap().clone());
        async move {
            let mut heard = Vec::new();
            for (function, config) in bells.into_values() {
                heard.push(sdk::call(&client, &function, json!({"rung": config["at"]}), false).await?);
            }
            Ok(Value::Array(heard))
        }
    });
    sdk::register(&iii, &id("rung"), About::default(), move |news: Value| async move {
        Ok(json!({"heard": news["rung"], "by": name}))
    });
    sdk::trigger(&iii, &bell, &id("rung"), json!({"at": "the door"}));

    std::future::pending().await
}

async fn quote(order: Value) -> Answer {
    Ok(json!({"price": 21 * order["quantity"].as_i64().unwrap_or_default(), "sku": order["sku"]}))
}

async fn slow(_: Value) -> Answer {
    println!("slow began");
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(json!({"late": true}))
}

fn skill(metadata: Value) -> About {
    let mut metadata = metadata;
    metadata["a2a.expose"] = json!(true);
    About { metadata: Some(metadata), ..About::default() }
}

fn words(order: &Value) -> impl Iterator<Item = String> {
    let words = order["words"].as_array().into_iter().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn route(iii: &Client, function: &str, path: &str, method: &str) {
    sdk::trigger(iii, "http", function, json!({"api_path": path, "http_method": method}));
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
