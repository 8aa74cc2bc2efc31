//! The rows of the reference about metadata: what is cut, and where.

use serde_json::{Value, json};

use super::work::reports;
use super::{message, sha256, start, start_with};
use crate::home::Home;
use crate::programs::has_python;

#[tokio::test]
async fn thinking_and_results_are_cut_to_4000_characters_on_a_character() {
    if !has_python("iac_code::reports::thinking_and_results_are_cut_to_4000_characters_on_a_character") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "thinking-exposure: [tool-trace, raw-thinking]\n").await;
    let ask = async |text: &str| {
        server.stream("SendStreamingMessage", json!({"message": message(text, json!({}))})).await
    };
    for (length, cut) in [(3999, 3999), (4000, 4000), (4001, 4000), (9000, 4000)] {
        let thought = json!({"type": "raw_thinking", "text": "ü".repeat(cut)});
        let events = ask(&format!("think {length}")).await;
        assert_eq!(reports(&events, "thinking").first(), Some(&&thought), "{length}");
        // A result that is no object is a text.
        let events = ask(&format!("print {length}")).await;
        let result = reports(&events, "tool").last().map(|tool| tool["result"].clone());
        assert_eq!(result, Some(Value::from("ü".repeat(cut))), "{length}");
    }
}

#[tokio::test]
async fn an_artifact_has_the_size_and_the_hash_of_its_file() {
    if !has_python("iac_code::reports::an_artifact_has_the_size_and_the_hash_of_its_file") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let sent = server.send(message("generate", json!({}))).await;
    let part = &sent["result"]["task"]["artifacts"][0]["parts"][0];
    let path =
        part["url"].as_str().and_then(|url| url.strip_prefix("file://")).unwrap_or_else(|| panic!("{sent}"));
    let content = std::fs::read(path).unwrap();
    let described = json!({"mediaType": "text/yaml", "byteSize": content.len(), "sha256": sha256(&content)});
    assert_eq!(part["metadata"], described, "{part}");
    assert_eq!(content, b"ROSTemplateFormatVersion: '2015-09-01'\nResources: {}\n");
}
