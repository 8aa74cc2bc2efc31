//! The paths of the operations, with and without a tenant in the path.

use attache_protocol::dialect::{HttpPath, HttpRequest};
use attache_protocol::{Error, MEDIA_TYPE, Operation, Request};
use http::header::USER_AGENT;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::{media_type, query};

/// The operation that a path names, and the arguments that the path holds.
#[derive(Debug, PartialEq)]
pub(super) struct OperationPath {
    operation: Operation,
    path: HttpPath,
    tenant: Option<String>,
    task: Option<String>,
    config: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Matched {
    Operation(OperationPath),
    /// The path exists for these methods only.
    OtherMethod(&'static str),
    Nothing,
}

/// Finds the operation of a method and a path such as `/tasks/t1:cancel`.
pub(super) fn find(method: &Method, path: &str) -> Matched {
    let path = path.strip_prefix('/').unwrap_or(path);
    let segments: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
    match match_segments(method, &segments, None) {
        Matched::Nothing => match segments.split_first() {
            Some((tenant, rest)) if !tenant.is_empty() && !rest.is_empty() => match decode(tenant) {
                Some(tenant) => match_segments(method, rest, Some(tenant)),
                None => Matched::Nothing,
            },
            Some(_) | None => Matched::Nothing,
        },
        found @ (Matched::Operation(_) | Matched::OtherMethod(_)) => found,
    }
}

/// Whether a path is one of an operation, for any method.
pub(crate) fn exists(path: &str) -> bool {
    match find(&Method::GET, path) {
        Matched::Operation(_) | Matched::OtherMethod(_) => true,
        Matched::Nothing => matches!(find(&Method::POST, path), Matched::Operation(_)),
    }
}

fn match_segments(method: &Method, segments: &[&str], tenant: Option<String>) -> Matched {
    let route = |operation, task: Option<&str>, config: Option<&str>| {
        let (task, config) = (task.map(decode), config.map(decode));
        if task == Some(None) || config == Some(None) {
            return Matched::Nothing;
        }
        Matched::Operation(OperationPath {
            operation,
            path: match (segments, &tenant) {
                (["card"], _) => HttpPath::Card,
                (_, Some(_)) => HttpPath::Tenant,
                (_, None) => HttpPath::Own,
            },
            tenant: tenant.clone(),
            task: task.flatten(),
            config: config.flatten(),
        })
    };
    let get = method == Method::GET;
    let post = method == Method::POST;
    match segments {
        ["message:send"] if post => route(Operation::SendMessage, None, None),
        ["message:stream"] if post => route(Operation::SendStreamingMessage, None, None),
        ["message:send" | "message:stream"] => Matched::OtherMethod("POST"),
        ["extendedAgentCard"] if get => route(Operation::GetExtendedAgentCard, None, None),
        ["tasks"] if get => route(Operation::ListTasks, None, None),
        ["card"] if get && tenant.is_none() => route(Operation::GetExtendedAgentCard, None, None),
        ["card"] if tenant.is_some() => Matched::Nothing,
        ["extendedAgentCard" | "tasks" | "card"] => Matched::OtherMethod("GET"),
        ["tasks", task] => match task.rsplit_once(':') {
            Some(("", "cancel" | "subscribe")) => Matched::Nothing,
            Some((id, "cancel")) if post => route(Operation::CancelTask, Some(id), None),
            // The specification has POST in its prose and GET in its proto.
            Some((id, "subscribe")) if post || get => route(Operation::SubscribeToTask, Some(id), None),
            Some((_, "subscribe")) => Matched::OtherMethod("GET, POST"),
            Some((_, "cancel")) if !get => Matched::OtherMethod("POST"),
            Some(_) | None if task.is_empty() => Matched::Nothing,
            Some(_) | None if get => route(Operation::GetTask, Some(task), None),
            Some(_) if post => Matched::Nothing,
            Some(_) | None => Matched::OtherMethod("GET"),
        },
        ["tasks", task, "pushNotificationConfigs"] if post => {
            route(Operation::CreateTaskPushNotificationConfig, Some(task), None)
        }
        ["tasks", task, "pushNotificationConfigs"] if get => {
            route(Operation::ListTaskPushNotificationConfigs, Some(task), None)
        }
        ["tasks", _, "pushNotificationConfigs"] => Matched::OtherMethod("GET, POST"),
        ["tasks", task, "pushNotificationConfigs", config] if get => {
            route(Operation::GetTaskPushNotificationConfig, Some(task), Some(config))
        }
        ["tasks", task, "pushNotificationConfigs", config] if method == Method::DELETE => {
            route(Operation::DeleteTaskPushNotificationConfig, Some(task), Some(config))
        }
        ["tasks", _, "pushNotificationConfigs", _] => Matched::OtherMethod("DELETE, GET"),
        _ => Matched::Nothing,
    }
}

fn decode(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned())
}

impl OperationPath {
    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    /// The request as the dialects see it, before its version is settled.
    pub(super) fn http_request<'a>(
        &'a self,
        query: &'a [(String, String)],
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> HttpRequest<'a> {
        HttpRequest {
            operation: self.operation,
            path: self.path,
            task: self.task.as_deref(),
            config: self.config.as_deref(),
            query,
            own_media_type: media_type(headers) == MEDIA_TYPE,
            user_agent: headers.get(USER_AGENT).and_then(|value| value.to_str().ok()),
            body,
        }
    }

    /// The request of 1.0, from the path and the query or the body.
    pub(super) fn request(self, query: &[(String, String)], body: &[u8]) -> Result<Request, Error> {
        let task_member = match self.operation {
            Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => "id",
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::ListTasks
            | Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig
            | Operation::GetExtendedAgentCard => "taskId",
        };
        let mut fixed = Map::new();
        fixed.extend(self.tenant.map(|tenant| ("tenant".to_owned(), json!(tenant))));
        fixed.extend(self.task.map(|task| (task_member.to_owned(), json!(task))));
        fixed.extend(self.config.map(|config| ("id".to_owned(), json!(config))));
        match self.operation {
            Operation::SendMessage | Operation::SendStreamingMessage => {
                let mut request = self.operation.parse(body_or_empty(body))?;
                if let Some(Value::String(tenant)) = fixed.remove("tenant") {
                    if request.tenant().is_some_and(|given| given != tenant) {
                        return Err(disagree("tenant"));
                    }
                    request.set_tenant(Some(tenant));
                }
                Ok(request)
            }
            Operation::CancelTask | Operation::CreateTaskPushNotificationConfig => {
                let mut arguments: Map<String, Value> =
                    serde_json::from_slice(body_or_empty(body)).map_err(|error| {
                        Error::invalid_params("", format!("the body is not a JSON object: {error}"))
                    })?;
                for (key, value) in fixed {
                    let snake = if key == "taskId" { "task_id" } else { key.as_str() };
                    let given = arguments.remove(snake).or_else(|| arguments.remove(&key));
                    if given.is_some_and(|given| !given.is_null() && given != "" && given != value) {
                        return Err(disagree(&key));
                    }
                    arguments.insert(key, value);
                }
                self.operation.parse(Value::Object(arguments).to_string().as_bytes())
            }
            Operation::GetTask
            | Operation::ListTasks
            | Operation::SubscribeToTask
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig
            | Operation::GetExtendedAgentCard => query::read(self.operation, query, fixed),
        }
    }
}

fn body_or_empty(body: &[u8]) -> &[u8] {
    if body.trim_ascii().is_empty() { b"{}" } else { body }
}

fn disagree(field: &str) -> Error {
    Error::invalid_params(field, "the body and the path disagree")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> String {
        match find(&method.parse().unwrap(), path) {
            Matched::Nothing => "nothing".to_owned(),
            Matched::OtherMethod(allow) => format!("allow {allow}"),
            Matched::Operation(OperationPath { operation, path, tenant, task, config }) => {
                let show = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
                assert_eq!(path == HttpPath::Tenant, tenant.is_some());
                format!("{} {} {} {}", operation.name(), show(tenant), show(task), show(config))
            }
        }
    }

    #[test]
    fn every_operation_has_its_path() {
        for (method, path, expected) in [
            ("POST", "/message:send", "SendMessage - - -"),
            ("POST", "/acme/message:send", "SendMessage acme - -"),
            ("POST", "/a%2Fb/message:stream", "SendStreamingMessage a/b - -"),
            ("GET", "/tasks", "ListTasks - - -"),
            ("GET", "/tasks/", "ListTasks - - -"),
            ("GET", "/acme/tasks", "ListTasks acme - -"),
            ("GET", "/tasks/t1", "GetTask - t1 -"),
            ("GET", "/tasks/a%3Ab", "GetTask - a:b -"),
            ("GET", "/tasks/a:b", "GetTask - a:b -"),
            ("GET", "/acme/tasks/t1", "GetTask acme t1 -"),
            ("POST", "/tasks/t1:cancel", "CancelTask - t1 -"),
            ("POST", "/tasks/a:b:cancel", "CancelTask - a:b -"),
            ("POST", "/tasks/t1:subscribe", "SubscribeToTask - t1 -"),
            ("GET", "/tasks/t1:subscribe", "SubscribeToTask - t1 -"),
            ("GET", "/acme/tasks/t1:subscribe", "SubscribeToTask acme t1 -"),
            ("POST", "/tasks/t1/pushNotificationConfigs", "CreateTaskPushNotificationConfig - t1 -"),
            ("GET", "/tasks/t1/pushNotificationConfigs", "ListTaskPushNotificationConfigs - t1 -"),
            ("GET", "/tasks/t1/pushNotificationConfigs/c1", "GetTaskPushNotificationConfig - t1 c1"),
            ("DELETE", "/x/tasks/t1/pushNotificationConfigs/c1", "DeleteTaskPushNotificationConfig x t1 c1"),
            ("GET", "/extendedAgentCard", "GetExtendedAgentCard - - -"),
            ("GET", "/card", "GetExtendedAgentCard - - -"),
            ("GET", "/card/tasks", "ListTasks card - -"),
            ("GET", "/acme/card", "nothing"),
            ("POST", "/card", "allow GET"),
            ("GET", "/message:send", "allow POST"),
            ("DELETE", "/tasks/t1", "allow GET"),
            ("PUT", "/tasks/t1:subscribe", "allow GET, POST"),
            ("POST", "/tasks/t1:explode", "nothing"),
            ("POST", "/tasks/:cancel", "nothing"),
            ("GET", "/", "nothing"),
            ("GET", "/a/b/c/d/e", "nothing"),
            ("GET", "/tasks/%ff", "nothing"),
        ] {
            assert_eq!(found(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_path_and_the_body_must_agree() {
        let request = |path: &str, body: &str| match find(&Method::POST, path) {
            Matched::Operation(path) => path.request(&[], body.as_bytes()).map_err(|error| error.to_string()),
            Matched::OtherMethod(_) | Matched::Nothing => panic!("{path} is a route"),
        };
        assert_eq!(request("/a/message:send", r#"{"tenant":"a"}"#).unwrap().tenant(), Some("a"));
        assert!(request("/a/message:send", r#"{"tenant":"b"}"#).unwrap_err().contains("disagree"));
        for body in ["", " \n", "{}", r#"{"id":"t1"}"#, r#"{"metadata":{"why":1}}"#] {
            assert!(request("/tasks/t1:cancel", body).is_ok(), "{body}");
        }
        assert!(request("/tasks/t1:cancel", r#"{"id":"t2"}"#).unwrap_err().contains("disagree"));
        let push = "/tasks/t1/pushNotificationConfigs";
        assert!(request(push, r#"{"task_id":"t2","url":"https://e.org"}"#).unwrap_err().contains("disagree"));
    }
}
