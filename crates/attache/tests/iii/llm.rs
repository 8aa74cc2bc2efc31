//! The workers of `examples/llm`: a language model behind a function.

use serde_json::{Value, json};

use crate::model;
use crate::support::{Engine, Language, Sdk, failure, keep};

/// Sends a text to the default function and returns the task.
async fn say(engine: &Engine, text: &str, context: Option<&Value>) -> Value {
    let mut message = json!({"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(context) = context {
        message["contextId"] = context.clone();
    }
    engine.method("SendMessage", json!({"message": message})).await["task"].clone()
}

async fn the_model_replies_and_remembers(sdk: Sdk) {
    let engine = Engine::start_with(&["--default-function", "llm::reply"]).await;
    let url = model::start().await;
    let worker = engine.model_worker(sdk, &url, model::KEY).await;
    let first = say(&engine, "good morning", None).await;
    assert_eq!(model::reply(&first), "system,user: good morning", "{first}");
    let second = say(&engine, "and again", Some(&first["contextId"])).await;
    assert_eq!(model::reply(&second), "system,user,assistant,user: and again", "{second}");
    worker.kill().await;
    engine.until_skill("llm::reply", false).await;

    let _worker = engine.model_worker(sdk, &url, "a wrong key").await;
    let refused = say(&engine, "hello", None).await;
    assert!(failure(&refused).contains("401"), "{refused}");
}

macro_rules! example {
    ($name:ident, $language:ident, $version:literal) => {
        #[test]
        fn $name() {
            let sdk = Sdk { module: "llm", language: Language::$language, version: $version };
            keep(&[sdk], stringify!($name), the_model_replies_and_remembers(sdk));
        }
    };
}

example!(python_0_25, Python, "0.25.0");
example!(node_0_22, Node, "0.22.1");
