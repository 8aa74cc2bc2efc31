//! The rows of the reference about callers: wrong credentials on every route, and tasks of other callers.

use futures::{SinkExt, StreamExt};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as Frame};

use super::{Server, message, start};
use crate::home::Home;
use crate::programs::has_python;

const ENVIRONMENT: [(&str, &str); 4] = [
    ("IACCODE_A2A_HTTP_TOKEN", "the-token-of-this-test"),
    ("IACCODE_A2A_API_KEY", "the-key-of-this-test"),
    ("IACCODE_A2A_BASIC_USERNAME", "ops"),
    ("IACCODE_A2A_BASIC_PASSWORD", "the-password-of-this-test"),
];

/// `ops` with another password.
const WRONG_BASIC: &str = "Basic b3BzOm5vdC10aGUtcGFzc3dvcmQ=";

#[tokio::test]
async fn missing_and_wrong_credentials_are_unauthorized_on_every_route() {
    if !has_python("iac_code::credentials::missing_and_wrong_credentials_are_unauthorized_on_every_route") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &ENVIRONMENT).await;
    let wrong = [
        None,
        Some(("Authorization", "Bearer not-the-token")),
        Some(("Authorization", WRONG_BASIC)),
        Some(("X-API-Key", "not-the-key")),
        Some(("Authorization", "Bearer ü")),
    ];
    let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let send = json!({"message": message("hello", json!({}))});
    for credentials in wrong {
        for (method, path, body) in [
            ("POST", "/", Some(&rpc)),
            ("POST", "/a2a", Some(&rpc)),
            ("POST", "/message:send", Some(&send)),
            ("POST", "/message:stream", Some(&send)),
            ("GET", "/tasks", None),
            ("GET", "/tasks/t", None),
            ("POST", "/tasks/t:cancel", None),
            ("GET", "/tasks/t:subscribe", None),
            ("GET", "/tasks/t/pushNotificationConfigs", None),
            ("GET", "/extendedAgentCard", None),
            ("POST", "/v1/message:send", Some(&send)),
            ("GET", "/v1/card", None),
        ] {
            let request =
                server.http.request(method.parse().unwrap(), format!("{}{path}", server.program.url));
            let request = body.into_iter().fold(request.header("A2A-Version", "1.0"), RequestBuilder::json);
            let request = credentials.into_iter().fold(request, |it, (name, value)| it.header(name, value));
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{method} {path} {credentials:?}");
            let body: Value = response.json().await.unwrap();
            assert_eq!(body, json!({"error": "Unauthorized"}), "{method} {path} {credentials:?}");
        }
    }
}

#[tokio::test]
async fn missing_and_wrong_credentials_are_unauthorized_over_websocket() {
    if !has_python("iac_code::credentials::missing_and_wrong_credentials_are_unauthorized_over_websocket") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &ENVIRONMENT).await;
    let url = format!("{}/a2a", server.program.url.replace("http://", "ws://"));
    for (name, value) in [
        ("Authorization", "Bearer not-the-token"),
        ("Authorization", WRONG_BASIC),
        ("X-API-Key", "not-the-key"),
    ] {
        let mut request = url.as_str().into_client_request().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        let refused = tokio_tungstenite::connect_async(request).await.err();
        let Some(SocketError::Http(response)) = refused else { panic!("{name}: {refused:?}") };
        assert_eq!(response.status(), 401, "{name}: {value}");
    }
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    socket.send(Frame::text(request.to_string())).await.unwrap();
    let frame = socket.next().await.unwrap().unwrap();
    assert!(frame.to_text().unwrap().contains("-32050"), "{frame}");
}

#[tokio::test]
async fn tasks_are_visible_to_the_caller_that_created_them() {
    if !has_python("iac_code::credentials::tasks_are_visible_to_the_caller_that_created_them") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &ENVIRONMENT).await;
    let ask = async |name: &str, method: &str, params: Value| -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request =
            server.http.post(format!("{}/", server.program.url)).header("A2A-Version", "1.0").json(&body);
        let request = match name {
            "bearer" => request.bearer_auth("the-token-of-this-test"),
            "basic" => request.basic_auth("ops", Some("the-password-of-this-test")),
            _ => request.header("X-API-Key", "the-key-of-this-test"),
        };
        request.send().await.unwrap().json().await.unwrap()
    };
    let callers = ["bearer", "basic", "api-key"];
    let mut tasks = Vec::new();
    for name in callers {
        // The same context id is another context of each caller.
        let sent =
            ask(name, "SendMessage", json!({"message": message(name, json!({"contextId": "c"}))})).await;
        tasks.push(sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned());
    }
    for (name, own) in callers.into_iter().zip(&tasks) {
        let listed = ask(name, "ListTasks", json!({})).await;
        assert_eq!(
            (&listed["result"]["totalSize"], &listed["result"]["tasks"][0]["id"]),
            (&json!(1), &json!(own))
        );
        for task in &tasks {
            let read = ask(name, "GetTask", json!({"id": task})).await;
            let canceled = ask(name, "CancelTask", json!({"id": task})).await;
            match task == own {
                true => assert_eq!(
                    (&read["result"]["id"], &canceled["error"]["code"]),
                    (&json!(own), &json!(-32002))
                ),
                false => assert_eq!(
                    (&read["error"]["code"], &canceled["error"]["code"]),
                    (&json!(-32001), &json!(-32001))
                ),
            }
        }
        let recalled =
            ask(name, "SendMessage", json!({"message": message("recall", json!({"contextId": "c"}))})).await;
        let said = recalled["result"]["task"]["history"].to_string();
        assert!(said.contains(&format!("You said: {name}\"")), "{said}");
    }
}

#[tokio::test]
async fn the_card_advertises_the_schemes_whose_credentials_are_set() {
    if !has_python("iac_code::credentials::the_card_advertises_the_schemes_whose_credentials_are_set") {
        return;
    }
    let [token, key, user, password] = ENVIRONMENT;
    let header = ("IACCODE_A2A_API_KEY_HEADER", "X-Key");
    for (environment, schemes) in [
        (&[][..], json!({})),
        (&[token], json!({"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}})),
        (&[user, password], json!({"basicAuth": {"httpAuthSecurityScheme": {"scheme": "Basic"}}})),
        (
            &[key],
            json!({"apiKeyAuth": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}}),
        ),
        (
            &[key, header],
            json!({"apiKeyAuth": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}}),
        ),
    ] {
        let home = Home::new();
        let server: Server = start(&home, environment).await;
        let card = server.card().await;
        let names = |schemes: &Value| schemes.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
        let found = &card["securitySchemes"];
        assert_eq!(names(found).unwrap_or_default(), names(&schemes).unwrap_or_default(), "{card}");
        assert!(
            schemes.as_object().is_some_and(serde_json::Map::is_empty) || super::contains(found, &schemes),
            "{found}"
        );
    }
}
