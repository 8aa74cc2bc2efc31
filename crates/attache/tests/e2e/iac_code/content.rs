//! Input that is refused or described, in the words of the reference.

use std::path::Path;

use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{message, sha256, start, start_with, state, status};
use crate::home::Home;
use crate::programs::has_python;

const MIB: usize = 1024 * 1024;

fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[tokio::test]
async fn media_become_a_manifest_with_the_name_type_size_hash_and_source() {
    if !has_python("iac_code::content::media_become_a_manifest_with_the_name_type_size_hash_and_source") {
        return;
    }
    let home = Home::new();
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    let server = start(&home, &[]).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let (large, text) = (vec![7; 5 * MIB], STANDARD.encode(&bytes));
    let path = project.join("plan.png");
    std::fs::write(&path, &bytes).unwrap();
    let url = file_url(&path);
    for (what, part, content, source) in [
        (
            "data of media",
            json!({"data": {"base64": STANDARD.encode(&large)}, "mediaType": "image/png", "filename": "a.png"}),
            &large,
            "data",
        ),
        (
            "data with `bytes`",
            json!({"data": {"bytes": text}, "mediaType": "audio/ogg", "filename": "a.png"}),
            &bytes,
            "data",
        ),
        (
            "raw audio",
            json!({"raw": text, "mediaType": "audio/wav", "filename": "../a.png"}),
            &bytes,
            "inline",
        ),
        (
            "raw binary",
            json!({"raw": text, "mediaType": "application/octet-stream", "filename": "a.png"}),
            &bytes,
            "inline",
        ),
        ("a file", json!({"url": url, "mediaType": "image/jpeg", "filename": "a.png"}), &bytes, url.as_str()),
    ] {
        let kind = part["mediaType"].as_str().unwrap().to_owned();
        let sent = server.send_part(&project, part).await;
        assert_eq!(state(&sent), "TASK_STATE_INPUT_REQUIRED", "{what}: {sent}");
        let manifest = format!(
            "A2A multimodal attachment:\n- filename=a.png\n- mediaType={kind}\n- byteSize={}\n- sha256={}\n- source={source}",
            content.len(),
            sha256(content)
        );
        let history = sent["result"]["task"]["history"].as_array().unwrap();
        let mut said = history.iter().filter_map(|message| message["parts"][0]["text"].as_str());
        assert!(said.any(|text| text.contains(&manifest)), "{what}: {history:?} lacks {manifest}");
    }
    let unnamed = server.send_part(&project, json!({"url": url, "mediaType": "image/png"})).await;
    assert!(unnamed.to_string().contains("- filename=plan.png"), "{unnamed}");
}

#[tokio::test]
async fn what_is_refused_is_refused_in_the_words_of_the_reference() {
    if !has_python("iac_code::content::what_is_refused_is_refused_in_the_words_of_the_reference") {
        return;
    }
    let home = Home::new();
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    let outside = home.path("secret.txt");
    std::fs::write(&outside, "secret").unwrap();
    std::os::unix::fs::symlink(&outside, project.join("link.txt")).unwrap();
    let server = start(&home, &[]).await;
    let data = |data: Value, kind: &str| json!({"data": data, "mediaType": kind});
    let file = |path: &Path| json!({"url": file_url(path), "mediaType": "text/plain"});
    let url = |url: &str| json!({"url": url});
    let remote = "A2A file URL parts must use local file:// URLs.";
    let large = STANDARD.encode(vec![0; 5 * MIB + 1]);
    for (part, code, words) in [
        (data(json!([1]), "image/png"), -32602, "A2A binary data parts must contain an object."),
        (data(json!({"a": 1}), "image/png"), -32602, "A2A binary data parts must include base64 bytes."),
        (
            data(json!({"base64": "%"}), "image/png"),
            -32602,
            "A2A binary data part bytes must be valid base64.",
        ),
        (data(json!({"base64": large}), "image/png"), -32602, "A2A binary data part content is too large."),
        (data(json!({"a": 1}), "text/yaml"), -32602, "A2A data parts must use application/json media type."),
        (data(json!("x".repeat(MIB)), "application/json"), -32602, "A2A data part content is too large."),
        (
            json!({"raw": "/w==", "mediaType": "text/plain"}),
            -32602,
            "A2A raw parts must contain valid UTF-8.",
        ),
        (
            json!({"raw": large, "mediaType": "audio/mpeg"}),
            -32602,
            "A2A binary raw part content is too large.",
        ),
        (json!({"raw": large, "mediaType": "text/plain"}), -32602, "A2A raw part content is too large."),
        (json!({"raw": "AQI=", "mediaType": "video/mp4"}), -32005, "`video/mp4` is not accepted"),
        (json!({"text": "x", "mediaType": "image/png"}), -32005, "`image/png` is not accepted"),
        (url("https://example.org/main.tf"), -32602, remote),
        (url("http://127.0.0.1/main.tf"), -32602, remote),
        (url("file://elsewhere/main.tf"), -32602, remote),
        (file(&outside), -32602, "A2A file URL part is outside the allowed workspace."),
        (file(&project.join("../secret.txt")), -32602, "A2A file URL part is outside the allowed workspace."),
        (file(&project.join("link.txt")), -32602, "A2A file URL part is outside the allowed workspace."),
        (file(&project.join("missing.txt")), -32602, "A2A file URL part must reference an existing file."),
        (file(&project), -32602, "A2A file URL part is outside the allowed workspace."),
    ] {
        let shown = part.to_string().chars().take(120).collect::<String>();
        let refused = server.send_part(&project, part).await;
        assert_eq!(refused["error"]["code"], code, "{shown}: {refused}");
        let text = refused["error"]["message"].as_str().unwrap();
        assert!(text.contains(words), "{shown}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
    // A file is read when the turn runs.
    let path = project.join("latin-1.txt");
    std::fs::write(&path, b"caf\xe9").unwrap();
    let failed = server.send_part(&project, file(&path)).await;
    assert_eq!(state(&failed), "TASK_STATE_FAILED", "{failed}");
    assert!(status(&failed).contains("A2A file URL part must contain valid UTF-8."), "{failed}");
}

#[tokio::test]
async fn further_media_types_of_the_environment_are_taken_and_in_the_card() {
    if !has_python("iac_code::content::further_media_types_of_the_environment_are_taken_and_in_the_card") {
        return;
    }
    let home = Home::new();
    let environment = [
        ("IACCODE_A2A_TEXT_MIME_TYPES", "text/x-log; Application/TOML"),
        ("IACCODE_A2A_MULTIMODAL_MIME_TYPES", "video/mp4,application/pdf"),
    ];
    let server = start(&home, &environment).await;
    let card = server.card().await;
    let modes = card["defaultInputModes"].as_array().unwrap();
    for (kind, words) in [
        ("text/x-log", "Here is the ROS template for: AQI="),
        ("application/toml", "Here is the ROS template for: AQI="),
        ("video/mp4", "- mediaType=video/mp4"),
        ("application/pdf", "- mediaType=application/pdf"),
    ] {
        assert!(modes.contains(&json!(kind)), "{kind}: {modes:?}");
        // Text is sent as text, and media as bytes.
        let part = match words.starts_with("- ") {
            true => json!({"raw": "AQI=", "mediaType": kind}),
            false => json!({"text": "AQI=", "mediaType": kind}),
        };
        let sent = server.send(message("", json!({"parts": [part]}))).await;
        assert!(sent.to_string().contains(words), "{kind}: {sent}");
    }
}

#[tokio::test]
async fn remote_urls_are_read_where_they_are_allowed_and_from_allowed_networks_alone() {
    if !has_python("iac_code::content::remote_urls_are_read_where_they_are_allowed") {
        return;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/main.tf", listener.local_addr().unwrap());
    let route = Router::new().route("/main.tf", get(async || "resource {}"));
    tokio::spawn(async move { axum::serve(listener, route).await });
    let part = json!({"parts": [{"url": url, "mediaType": "text/plain"}]});
    let home = Home::new();
    let more = "input: { fetch-urls: true, fetch-networks: [127.0.0.0/8] }\n";
    let server = start_with(&home, &[], more).await;
    let read = server.send(message("", part.clone())).await;
    assert_eq!(state(&read), "TASK_STATE_INPUT_REQUIRED", "{read}");
    assert!(read.to_string().contains("Here is the ROS template for: resource {}"), "{read}");
    drop(server);
    let home = Home::new();
    let server = start_with(&home, &[], "input: { fetch-urls: true }\n").await;
    let refused = server.send(message("", part)).await;
    assert_eq!(state(&refused), "TASK_STATE_FAILED", "{refused}");
    assert!(status(&refused).contains("A2A remote URL cannot be read."), "{refused}");
}
