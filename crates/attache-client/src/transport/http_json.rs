//! HTTP+JSON: each operation has a method and a path, with arguments in the path, the query or the body.

use attache_protocol::dialect::v0_3::proto_json::{FileEncoding, request as in_0_3};
use attache_protocol::{MEDIA_TYPE, Request, TaskId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use super::reader::Reader;
use super::{Attempt, Body, Call, unsupported, unwritable};
use crate::ClientError;

/// Characters that are not escaped in a path segment. A colon is escaped, because it would start a verb.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The prefix of the paths of 0.3, below the address of the interface.
const PREFIX_0_3: &str = "/v1";

/// The accepted media types: that of A2A, and plain JSON for servers that do not know it.
const ACCEPT: &str = "application/a2a+json, application/json";

/// Where the arguments go that are not in the path.
enum OtherArguments {
    Query,
    Body,
    None,
}

/// Encodes a request of 1.0. The path is the address of the interface, the tenant if any, and the path of the operation.
pub(super) fn encode_1_0(url: &Url, request: &Request, attempt: Attempt) -> Result<Call, ClientError> {
    let (method, path, others) = target(request, attempt)?;
    let tenant = request.tenant().map(|tenant| segment(tenant, "a tenant")).transpose()?;
    let tenant = tenant.map_or_else(String::new, |tenant| format!("/{tenant}"));
    let url = below(url, &format!("{tenant}/{path}"), &others, request)?;
    let body = match others {
        OtherArguments::Query | OtherArguments::None => None,
        OtherArguments::Body => {
            let bytes = serde_json::to_vec(request).map_err(unwritable)?;
            Some(Body { bytes, media_type: MEDIA_TYPE })
        }
    };
    Ok(Call { method, url, body, accept: Some(ACCEPT), reader: Reader::HttpJson })
}

/// Encodes a request of 0.3, which has another body and some other paths.
pub(super) fn encode_0_3(
    url: &Url,
    request: &Request,
    attempt: Attempt,
    files: FileEncoding,
) -> Result<Call, ClientError> {
    let body = in_0_3::body(request, files).map_err(unsupported)?;
    let (method, path, others) = match request {
        Request::GetExtendedAgentCard(_) => (Method::GET, "card".to_owned(), OtherArguments::None),
        // In 0.3 the preferred method was the other one.
        Request::SubscribeToTask(_) => match attempt {
            Attempt::First => target(request, Attempt::Second)?,
            Attempt::Second => target(request, Attempt::First)?,
        },
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::CancelTask(_)
        | Request::CreateTaskPushNotificationConfig(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::ListTaskPushNotificationConfigs(_)
        | Request::DeleteTaskPushNotificationConfig(_) => target(request, attempt)?,
    };
    let mut sent = request.clone();
    if let Request::GetTask(get) = &mut sent {
        // 0.3 has no long poll. The server may respond immediately.
        get.current_generation = None;
    }
    let url = below(url, &format!("{PREFIX_0_3}/{path}"), &others, &sent)?;
    let media_type = "application/json";
    let body = body.map(|json| Body { bytes: json.as_str().as_bytes().to_vec(), media_type });
    Ok(Call { method, url, body, accept: Some(media_type), reader: Reader::HttpJson0_3(files) })
}

/// The method and the path of an operation, and where its other arguments go.
fn target(request: &Request, attempt: Attempt) -> Result<(Method, String, OtherArguments), ClientError> {
    Ok(match request {
        Request::SendMessage(_) => (Method::POST, "message:send".to_owned(), OtherArguments::Body),
        Request::SendStreamingMessage(_) => (Method::POST, "message:stream".to_owned(), OtherArguments::Body),
        Request::GetTask(get) => (Method::GET, task(&get.id)?, OtherArguments::Query),
        Request::ListTasks(_) => (Method::GET, "tasks".to_owned(), OtherArguments::Query),
        Request::CancelTask(cancel) => {
            (Method::POST, format!("{}:cancel", task(&cancel.id)?), OtherArguments::Body)
        }
        Request::SubscribeToTask(subscribe) => {
            let path = format!("{}:subscribe", task(&subscribe.id)?);
            match attempt {
                Attempt::First => (Method::POST, path, OtherArguments::None),
                Attempt::Second => (Method::GET, path, OtherArguments::None),
            }
        }
        Request::CreateTaskPushNotificationConfig(config) => {
            let id = config.task_id.as_ref().map_or("", TaskId::as_str);
            (Method::POST, webhooks(id)?, OtherArguments::Body)
        }
        Request::GetTaskPushNotificationConfig(get) => {
            (Method::GET, webhook(&get.task_id, &get.id)?, OtherArguments::None)
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            (Method::GET, webhooks(list.task_id.as_str())?, OtherArguments::Query)
        }
        Request::DeleteTaskPushNotificationConfig(delete) => {
            (Method::DELETE, webhook(&delete.task_id, &delete.id)?, OtherArguments::None)
        }
        Request::GetExtendedAgentCard(_) => {
            (Method::GET, "extendedAgentCard".to_owned(), OtherArguments::None)
        }
    })
}

/// The URL of a request, with its query if any.
fn below(url: &Url, path: &str, others: &OtherArguments, request: &Request) -> Result<Url, ClientError> {
    let mut url = url.clone();
    url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
    let pairs = match others {
        OtherArguments::Query => query(request)?,
        OtherArguments::Body | OtherArguments::None => Vec::new(),
    };
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    Ok(url)
}

fn task(id: &TaskId) -> Result<String, ClientError> {
    Ok(format!("tasks/{}", segment(id.as_str(), "a task's id")?))
}

fn webhooks(task: &str) -> Result<String, ClientError> {
    Ok(format!("tasks/{}/pushNotificationConfigs", segment(task, "a task's id")?))
}

fn webhook(task: &TaskId, id: &str) -> Result<String, ClientError> {
    Ok(format!("{}/{}", webhooks(task.as_str())?, segment(id, "a webhook's id")?))
}

/// Encodes a path segment. Values that are not valid segments would lead to another path.
fn segment(text: &str, what: &str) -> Result<String, ClientError> {
    if matches!(text, "" | "." | "..") {
        return Err(ClientError::Invalid(format!("`{text}` cannot be {what}")));
    }
    Ok(utf8_percent_encode(text, &SEGMENT).to_string())
}

/// The query arguments: all arguments that are not in the path.
fn query(request: &Request) -> Result<Vec<(String, String)>, ClientError> {
    let in_path = |key: &str| match request {
        Request::GetTask(_) => matches!(key, "tenant" | "id"),
        Request::ListTaskPushNotificationConfigs(_) => matches!(key, "tenant" | "taskId"),
        Request::ListTasks(_)
        | Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreateTaskPushNotificationConfig(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => key == "tenant",
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let arguments: Map<String, Value> =
        serde_json::to_value(request).and_then(serde_json::from_value).map_err(unwritable)?;
    let pairs = arguments.into_iter().filter(|(key, _)| !in_path(key));
    Ok(pairs.map(|(key, value)| (key, text(value))).collect())
}

#[cfg(test)]
mod tests {
    use attache_protocol::Operation;
    use serde_json::json;

    use super::*;

    type Write = fn(&Url, &Request, Attempt) -> Result<Call, ClientError>;

    fn in_0_3(url: &Url, request: &Request, attempt: Attempt) -> Result<Call, ClientError> {
        encode_0_3(url, request, attempt, FileEncoding::Once)
    }

    fn written(operation: Operation, arguments: Value, attempt: Attempt) -> Result<String, ClientError> {
        written_by(encode_1_0, operation, arguments, attempt)
    }

    fn written_by(
        write: Write,
        operation: Operation,
        arguments: Value,
        attempt: Attempt,
    ) -> Result<String, ClientError> {
        let url = "https://a.example/rest/?k=v".parse().unwrap();
        let request = operation.parse(arguments.to_string().as_bytes()).unwrap();
        let call = write(&url, &request, attempt)?;
        let body =
            call.body.map_or_else(String::new, |body| format!(" {}", String::from_utf8(body.bytes).unwrap()));
        let target = call.url.as_str().strip_prefix("https://a.example").unwrap();
        Ok(format!("{} {target}{body}", call.method))
    }

    #[test]
    fn every_operation_has_its_method_and_path() {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let list = json!({"contextId": "a b", "status": "TASK_STATE_WORKING", "pageSize": 5, "pageToken": "x+y",
            "historyLength": 0, "statusTimestampAfter": "2026-01-02T03:04:05.678Z", "includeArtifacts": true});
        let lines: Vec<_> = [
            (Operation::SendMessage, json!({"message": message})),
            (Operation::SendStreamingMessage, json!({"tenant": "ac/me", "message": message})),
            (Operation::GetTask, json!({"id": "t:1/2", "historyLength": 3, "currentGeneration": "7"})),
            (Operation::GetTask, json!({"id": "t", "tenant": "acme"})),
            (Operation::ListTasks, list),
            (Operation::CancelTask, json!({"id": "t", "metadata": {"why": "late"}})),
            (Operation::SubscribeToTask, json!({"id": "t"})),
            (
                Operation::CreateTaskPushNotificationConfig,
                json!({"taskId": "t", "url": "https://h", "id": "w"}),
            ),
            (Operation::GetTaskPushNotificationConfig, json!({"taskId": "t", "id": "w/1"})),
            (Operation::ListTaskPushNotificationConfigs, json!({"taskId": "t", "pageSize": 2})),
            (Operation::DeleteTaskPushNotificationConfig, json!({"taskId": "t", "id": "é"})),
            (Operation::GetExtendedAgentCard, json!({})),
        ]
        .into_iter()
        .map(|(operation, arguments)| written(operation, arguments, Attempt::First).unwrap())
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
        let second = written(Operation::SubscribeToTask, json!({"id": "t"}), Attempt::Second).unwrap();
        assert_eq!(second, "GET /rest/tasks/t:subscribe?k=v");
    }

    #[test]
    fn every_operation_has_the_method_and_path_and_body_that_it_had_in_0_3() {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": "t", "parts": [
            {"text": "hi"}, {"raw": "aGk=", "filename": "a.txt"}, {"url": "https://example.com/b"}, {"data": [1]}]});
        let configuration = json!({"acceptedOutputModes": ["text/plain"], "historyLength": 2, "returnImmediately": true,
            "taskPushNotificationConfig": {"url": "https://h", "authentication": {"scheme": "Bearer"}}});
        let lines: Vec<_> = [
            (Operation::SendMessage, json!({"message": message, "configuration": configuration})),
            (Operation::SendStreamingMessage, json!({"message": {"messageId": "m"}, "metadata": {"k": 1}})),
            (Operation::GetTask, json!({"id": "t:1/2", "historyLength": 3, "currentGeneration": "7"})),
            (Operation::CancelTask, json!({"id": "t", "metadata": {"why": "late"}})),
            (Operation::SubscribeToTask, json!({"id": "t"})),
            (
                Operation::CreateTaskPushNotificationConfig,
                json!({"taskId": "t", "url": "https://h", "id": "w", "token": "s"}),
            ),
            (Operation::GetTaskPushNotificationConfig, json!({"taskId": "t", "id": "w/1"})),
            (Operation::ListTaskPushNotificationConfigs, json!({"taskId": "t", "pageSize": 2})),
            (Operation::DeleteTaskPushNotificationConfig, json!({"taskId": "t", "id": "w"})),
            (Operation::GetExtendedAgentCard, json!({})),
        ]
        .into_iter()
        .map(|(operation, arguments)| written_by(in_0_3, operation, arguments, Attempt::First).unwrap())
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
        for (operation, arguments) in [
            (Operation::GetTask, json!({"id": "t", "tenant": "acme"})),
            (Operation::ListTasks, json!({})),
            (
                Operation::SendMessage,
                json!({"message": {"messageId": "m"}, "configuration": {"ifGenerationMatch": 3}}),
            ),
        ] {
            let error = written_by(in_0_3, operation, arguments, Attempt::First).unwrap_err();
            assert!(matches!(error, ClientError::Invalid(_)), "{operation:?}: {error}");
        }
    }

    #[test]
    fn files_are_encoded_as_the_sdk_of_the_server_expects_them() {
        let message = json!({"message": {"messageId": "m", "parts": [{"raw": "AP9ieXRlcw=="}]}});
        let request = Operation::SendMessage.parse(message.to_string().as_bytes()).unwrap();
        let url = "https://a.example/".parse().unwrap();
        for (files, encoded) in
            [(FileEncoding::Once, "AP9ieXRlcw=="), (FileEncoding::Twice, "QVA5aWVYUmxjdz09")]
        {
            let call = encode_0_3(&url, &request, Attempt::First, files).unwrap();
            let body: Value = serde_json::from_slice(&call.body.unwrap().bytes).unwrap();
            assert_eq!(body["message"]["content"][0]["file"]["fileWithBytes"], encoded);
        }
    }

    #[test]
    fn an_id_that_would_lead_elsewhere_is_not_sent() {
        for id in ["", ".", ".."] {
            for operation in [Operation::GetTask, Operation::CancelTask] {
                let error = written(operation, json!({ "id": id }), Attempt::First).unwrap_err();
                assert!(matches!(error, ClientError::Invalid(_)), "{id}: {error}");
            }
        }
    }
}
