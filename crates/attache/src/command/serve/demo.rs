//! Sample functions, to try the server without a worker.

use std::time::Duration;

use attache_iii::engine::{Engine, Invocation};
use attache_iii::wire::ChannelRef;
use attache_iii::{CallError, ChannelItem, FunctionInfo};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The sample function for messages that name no function.
pub(super) const DEFAULT_FUNCTION: &str = "demo::chat";

/// Registers the sample functions. With a tier they are for callers of that tier.
pub(super) fn register(engine: &Engine, tier: Option<&str>) {
    let sample = |id: &str, description: &str| {
        let sample = sample(id, description);
        tier.into_iter().fold(sample, |sample, tier| sample.says("a2a.tier", json!(tier)))
    };
    engine.register(
        sample("pricing::quote", "Quote a price for a product and a quantity")
            .takes(json!({
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "description": "The product", "default": "A-1"},
                    "quantity": {"type": "integer", "minimum": 1, "default": 1},
                },
            }))
            .example(r#"pricing::quote {"sku": "A-1", "quantity": 3}"#),
        |invocation| async move {
            #[derive(Deserialize)]
            struct Order {
                sku: Option<String>,
                quantity: Option<u64>,
            }
            let Order { sku, quantity } = read(&invocation)?;
            let (sku, quantity) = (sku.unwrap_or_else(|| "A-1".to_owned()), quantity.unwrap_or(1));
            let price = 1000 + sku.bytes().map(u64::from).sum::<u64>() % 500;
            let total = price.saturating_mul(quantity);
            result(json!({
                "sku": sku, "quantity": quantity, "currency": "EUR",
                "price": price as f64 / 100.0, "total": total as f64 / 100.0,
            }))
        },
    );
    let channels = engine.clone();
    engine.register(
        sample("demo::count", "Count up to a number, one line at a time")
            .takes(json!({
                "type": "object",
                "properties": {"to": {"type": "integer", "minimum": 1, "maximum": 100}},
            }))
            .says("a2a.stream", json!(true))
            .says("a2a.timeoutMs", json!(60_000))
            .example(r#"demo::count {"to": 5}"#),
        move |invocation| {
            let engine = channels.clone();
            async move {
                #[derive(Deserialize)]
                struct Count {
                    #[serde(default = "five")]
                    to: u64,
                    response: ChannelRef,
                }
                fn five() -> u64 {
                    5
                }
                let Count { to, response } = read(&invocation)?;
                let writer = engine.open_writer(&response)?;
                for number in 1..=to {
                    if writer.send(ChannelItem::Text(format!("{number}\n"))).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                result(Value::Null)
            }
        },
    );
    engine.register(
        sample("demo::wait", "Wait for some seconds: something to cancel")
            .takes(json!({
                "type": "object",
                "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 600}},
            }))
            .says("a2a.timeoutMs", json!(660_000))
            .example(r#"demo::wait {"seconds": 30}"#),
        |invocation| async move {
            #[derive(Deserialize)]
            struct Wait {
                #[serde(default)]
                seconds: f64,
            }
            let Wait { seconds } = read(&invocation)?;
            tokio::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 600.0))).await;
            result(json!({"waited": seconds}))
        },
    );
    engine.register(
        sample(DEFAULT_FUNCTION, "Answer what is said in plain language").example("What can you do?"),
        |invocation| async move {
            #[derive(Deserialize)]
            struct Chat {
                message: String,
            }
            let Chat { message } = read(&invocation)?;
            let message: String = message.chars().take(200).collect();
            result(json!(format!(
                "You said \"{message}\". I am only a sample. Functions answer when they are called by name, such as: \
                 pricing::quote {{\"sku\": \"A-1\", \"quantity\": 3}}"
            )))
        },
    );
    engine.register(
        FunctionInfo {
            description: Some("Not exposed, so not to be seen from outside".to_owned()),
            ..FunctionInfo::new("demo::hidden")
        },
        |_| async { result(json!("you should not see this")) },
    );
}

/// A sample that is exposed.
fn sample(id: &str, description: &str) -> FunctionInfo {
    FunctionInfo {
        description: Some(description.to_owned()),
        metadata: Some(json!({"a2a.expose": true})),
        ..FunctionInfo::new(id)
    }
}

/// Builders for the metadata of a sample.
trait Describe {
    fn says(self, key: &str, value: Value) -> Self;
    fn takes(self, schema: Value) -> Self;
    fn example(self, text: &str) -> Self;
}

impl Describe for FunctionInfo {
    fn says(mut self, key: &str, value: Value) -> Self {
        self.metadata.get_or_insert_default()[key] = value;
        self
    }

    fn takes(mut self, schema: Value) -> Self {
        self.request_format = Some(schema);
        self
    }

    fn example(self, text: &str) -> Self {
        self.says("a2a.examples", json!([text]))
    }
}

fn read<T: DeserializeOwned>(invocation: &Invocation) -> Result<T, CallError> {
    serde_json::from_str(invocation.payload.get())
        .map_err(|error| CallError::remote("deserialization_error", error.to_string()))
}

fn result(value: Value) -> Result<Box<RawValue>, CallError> {
    to_raw_value(&value).map_err(|error| CallError::remote("serialization_error", error.to_string()))
}
