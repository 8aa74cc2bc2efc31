//! The rows of the reference about the card, its extended form and its signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::{Server, contains, settings_with, start, start_with};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::{Program, free_address};

#[tokio::test]
async fn every_field_of_the_card_is_as_documented() {
    if !has_python("iac_code::card::every_field_of_the_card_is_as_documented") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let response = server.http.get(&url).send().await.unwrap();
    let headers = response.headers().clone();
    assert_eq!(headers["cache-control"], "public, max-age=60");
    let card: Value = response.json().await.unwrap();
    let expected = json!({
        "name": "iac-code",
        "provider": {"organization": "iac-code"},
        "capabilities": {"streaming": true, "extendedAgentCard": true},
        "defaultInputModes": [
            "text/plain", "application/json", "text/markdown", "text/yaml", "application/yaml", "application/x-yaml",
            "image/png", "image/jpeg", "image/webp", "image/gif", "audio/mpeg", "audio/wav", "audio/ogg",
            "application/octet-stream",
        ],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": "iac_generation",
                "description": "Generate Alibaba Cloud ROS and Terraform templates from natural language",
            },
            {"id": "iac_review", "description": "Inspect IaC templates and suggest fixes"},
            {"id": "aliyun_ros_operations", "description": "Assist with Alibaba Cloud ROS stack workflows"},
            {
                "id": "terraform_ros_conversion",
                "description": "Assist Terraform-to-ROS conversion using bundled skill resources",
            },
        ],
    });
    assert!(contains(&card, &expected), "{card}");
    for condition in ["etag", "last-modified"] {
        let header = if condition == "etag" { "If-None-Match" } else { "If-Modified-Since" };
        let again = server.http.get(&url).header(header, &headers[condition]).send().await.unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{header}");
        assert_eq!(again.headers()["etag"], headers["etag"], "{header}");
    }
    let changed = server.http.get(&url).header("If-None-Match", "\"another\"").send().await.unwrap();
    assert_eq!(changed.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_interface_names_the_host_and_the_port_that_are_set() {
    if !has_python("iac_code::card::the_interface_names_the_host_and_the_port_that_are_set") {
        return;
    }
    let home = Home::new();
    let address = free_address();
    let port = address.rsplit_once(':').unwrap().1;
    let file = settings_with(&home, &format!("host: 127.0.0.2\nport: {port}\n"));
    let (program, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
    assert_eq!(program.url, format!("http://127.0.0.2:{port}"));
    let server = Server { program, http: Client::new() };
    let card = server.card().await;
    assert_eq!(card["supportedInterfaces"][0]["url"], format!("http://127.0.0.2:{port}/"), "{card}");
}

#[tokio::test]
async fn the_extended_card_has_the_public_one_and_details_of_the_server() {
    if !has_python("iac_code::card::the_extended_card_has_the_public_one_and_details_of_the_server") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let public = server.card().await;
    let extended = server.rpc("GetExtendedAgentCard", json!({})).await["result"].clone();
    for field in ["name", "description", "skills", "supportedInterfaces", "defaultInputModes"] {
        assert_eq!(extended[field], public[field], "{field}");
    }
    let details = |card: &Value| {
        let extensions = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
        extensions.into_iter().find(|extension| extension["uri"] == "urn:attache:extension:runtime:v1")
    };
    assert_eq!(details(&public), None);
    let params = details(&extended).unwrap_or_else(|| panic!("{extended}"))["params"].clone();
    assert!(contains(&params, &json!({"server": "attache", "store": "memory"})), "{params}");
    for transport in ["JSONRPC", "HTTP+JSON"] {
        assert!(params["transports"].as_array().unwrap().contains(&json!(transport)), "{params}");
    }
    assert!(params["limits"]["bodyBytes"].is_u64(), "{params}");
}

#[tokio::test]
async fn the_signature_of_the_card_is_verified_with_the_secret_and_with_no_other() {
    if !has_python("iac_code::card::the_signature_of_the_card_is_verified_with_the_secret") {
        return;
    }
    let home = Home::new();
    let secret = "the-secret-of-this-test-0123456789";
    let server = start_with(&home, &[], &format!("signing-secret: {secret}\n")).await;
    let key = |name: &str, secret: &str| {
        let key =
            json!({"kty": "oct", "kid": "default", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode(secret)});
        home.file(name, &json!({"keys": [key]}).to_string())
    };
    let verify = async |key: &str| home.run(&["card", &server.program.url, "--verify", "--key", key]).await;
    let verified = verify(&key("right.json", secret)).await;
    assert_eq!(verified.code, Some(0), "{verified}");
    assert!(verified.stdout.contains("default (HS256, pinned)"), "{verified}");
    let refused = verify(&key("wrong.json", "another-secret-of-this-test-0123456789")).await;
    assert_ne!(refused.code, Some(0), "{refused}");
    assert_eq!(refused.stdout, "");
}
