//! An iii worker whose functions are A2A skills: a quote, and a story that is streamed word by word.
//!
//! With iii-sdk 0.11.3 everything is at the root of the crate (`III` for the client, `IIIError` for the error, `ChannelWriter`), a
//! function's id is given to `RegisterFunction::new_async(id, …)`, and `RegisterTriggerInput` has no `new`: fill its four fields.

use std::time::Duration;

use iii_sdk::channel::{ChannelWriter, StreamChannelRef};
use iii_sdk::protocol::RegisterTriggerInput;
use iii_sdk::{Error, InitOptions, RegisterFunction, register_worker};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The payload of `rust::quote`. The SDK derives the schema for the card. A payload that does not match is rejected before the call.
#[derive(Deserialize, JsonSchema)]
struct Order {
    sku: String,
    quantity: Option<u32>,
}

async fn quote(order: Order) -> Result<Value, Error> {
    let price = match &*order.sku {
        "A-1" => 21,
        "B-2" => 8,
        // The message of the failed task.
        other => return Err(Error::Handler(format!("there is no {other}; try one of A-1, B-2"))),
    };
    Ok(json!({"sku": order.sku, "price": price * order.quantity.unwrap_or(1)}))
}

/// Each chunk written to the channel `response` is sent at once as a chunk of an artifact.
async fn story(engine: String, order: Value) -> Result<Value, Error> {
    let response: StreamChannelRef = serde_json::from_value(order["response"].clone())?;
    let channel = ChannelWriter::new(&engine, &response);
    let about = order["about"].as_str().unwrap_or("a crab");
    for word in format!("Once upon a time there was {about} .").split(' ') {
        channel.write(format!("{word} ").as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    channel.close().await?;
    Ok(Value::Null)
}

async fn quote_over_http(request: Value) -> Result<Value, Error> {
    let sku = request["path_params"]["sku"].as_str().unwrap_or_default().to_owned();
    Ok(match quote(Order { sku, quantity: None }).await {
        Ok(body) => json!({"body": body}),
        Err(error) => json!({"status_code": 404, "body": {"error": error.to_string()}}),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let engine = std::env::var("III_URL").unwrap_or_else(|_| "ws://127.0.0.1:49134".to_owned());
    let iii = register_worker(&engine, InitOptions::default());

    // `a2a.expose` makes a function a skill.
    let examples = json!(["rust::quote {\"sku\": \"A-1\", \"quantity\": 2}"]);
    let function = RegisterFunction::new_async(quote)
        .description("Quote a price")
        .metadata(json!({"a2a.expose": true, "a2a.examples": examples}));
    iii.register_function("rust::quote", function);

    let examples = json!(["rust::story {\"about\": \"a snail\"}"]);
    let address = engine.clone();
    let function = RegisterFunction::new_async(move |order: Value| story(address.clone(), order))
        .description("Tell a story, word by word")
        .metadata(json!({"a2a.expose": true, "a2a.stream": true, "a2a.examples": examples}));
    iii.register_function("rust::story", function);

    // The same over plain HTTP: GET /rust/quotes/A-1. Not a skill, because its metadata has no `a2a.expose`.
    iii.register_function("rust::quote_over_http", RegisterFunction::new_async(quote_over_http));
    let route = json!({"api_path": "rust/quotes/:sku", "http_method": "GET"});
    #[expect(deprecated, reason = "the replacement exists only in engines from 0.26 on")]
    let trigger = iii.register_trigger(RegisterTriggerInput::new("http", "rust::quote_over_http", route));
    trigger.expect("the route can be registered");

    println!("rust::quote and rust::story are registered with {engine}; Ctrl-C ends this");
    let _ = tokio::signal::ctrl_c().await;
    iii.shutdown_async().await;
}
