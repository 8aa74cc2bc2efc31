//! All SDKs at one engine.

use serde_json::json;

use crate::support::{Engine, Language, Sdk, keep};

const ALL: [Sdk; 7] = [
    Sdk { module: "together", language: Language::Python, version: "0.11.6" },
    Sdk { module: "together", language: Language::Python, version: "0.25.0" },
    Sdk { module: "together", language: Language::Node, version: "0.11.6" },
    Sdk { module: "together", language: Language::Node, version: "0.22.1" },
    Sdk { module: "together", language: Language::Rust, version: "0.11.3" },
    Sdk { module: "together", language: Language::Rust, version: "0.25.0" },
    Sdk { module: "together", language: Language::Rust, version: "0.26.0-rc.4" },
];

#[test]
fn workers_of_all_sdks_call_each_other() {
    keep(&ALL, "workers_of_all_sdks_call_each_other", async {
        let engine = Engine::start().await;
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let workers = ALL.iter().zip(names).map(|(sdk, name)| engine.worker(*sdk, name));
        let _workers = futures::future::join_all(workers).await;
        for caller in names {
            for called in names {
                let order = json!({"function_id": format!("{called}::quote"), "payload": {"sku": caller, "quantity": 1}});
                let returned = engine.result(&format!("{caller}::relay"), order).await;
                assert_eq!(
                    returned,
                    json!({"returned": {"price": 21, "sku": caller}}),
                    "{caller} calls {called}"
                );
            }
        }
    });
}
