//! The workers that users are shown, in `examples/iii`.

use serde_json::{Value, json};

use crate::support::{Engine, Language, Sdk, failure, keep};

/// What `examples/iii/README.md` says about all of them.
async fn does_what_is_said(sdk: Sdk) {
    let engine = Engine::start().await;
    let _worker = engine.example(sdk).await;
    let name = sdk.language.name();
    let quote = format!("{name}::quote");
    let returned = engine.result(&quote, json!({"sku": "A-1", "quantity": 2})).await;
    assert_eq!(returned, json!({"sku": "A-1", "price": 42}));
    let task = engine.call(&quote, json!({"sku": "C-3"})).await;
    assert!(failure(&task).ends_with("there is no C-3; try one of A-1, B-2"), "{task}");
    let task = engine.call(&quote, json!({"quantity": 2})).await;
    assert!(failure(&task).contains("\"sku\" is a required property"), "{task}");

    let events = engine.stream(&format!("{name}::story"), json!({"about": "us"})).await;
    let pieces: Vec<&str> = events
        .iter()
        .filter_map(|event| event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str())
        .collect();
    assert_eq!(pieces.concat(), "Once upon a time there was us . ");
    assert!(pieces.len() > 3, "it comes word by word: {pieces:?}");

    let route: Value = engine.get(&format!("/{name}/quotes/B-2")).await.json().await.expect("JSON");
    assert_eq!(route, json!({"sku": "B-2", "price": 8}));
    assert_eq!(engine.get(&format!("/{name}/quotes/nothing")).await.status(), 404);
}

macro_rules! example {
    ($name:ident, $language:ident, $version:literal) => {
        #[test]
        fn $name() {
            let sdk = Sdk { module: "examples", language: Language::$language, version: $version };
            keep(&[sdk], stringify!($name), does_what_is_said(sdk));
        }
    };
}

example!(python_0_11, Python, "0.11.6");
example!(python_0_25, Python, "0.25.0");
example!(node_0_11, Node, "0.11.6");
example!(node_0_22, Node, "0.22.1");
example!(rust_0_25, Rust, "0.25.0");
