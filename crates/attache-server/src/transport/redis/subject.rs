//! What a request is about, read before the request is processed: the process that has this must process it.

use attache_protocol::jsonrpc::Call;
use attache_protocol::{IDEMPOTENCY_EXTENSION, Operation};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::transport::exchange::own_headers;

/// What a request is about. A request that cannot be read is about nothing: its error is the same everywhere.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    /// The operation.
    pub(super) operation: Option<Operation>,
    /// The task that the request names.
    pub(super) task: Option<String>,
    /// The context that the request names.
    pub(super) context: Option<String>,
    /// The idempotency key of the client.
    pub(super) key: Option<String>,
}

/// The members of the arguments of all operations, in all versions of the protocol, that have ids. Also those of the message in them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "taskId", alias = "task_id")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "contextId", alias = "context_id", alias = "sessionId")]
    context_id: Option<&'a RawValue>,
    /// `tasks/TASK` or `tasks/TASK/pushNotificationConfigs/ID`.
    #[serde(borrow, alias = "parent")]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// The text of a member that is a string and not empty.
fn text(value: Option<&RawValue>) -> Option<String> {
    value.and_then(|value| serde_json::from_str::<String>(value.get()).ok()).filter(|text| !text.is_empty())
}

/// The idempotency key in metadata.
fn key_in(metadata: Option<&RawValue>) -> Option<String> {
    let members: std::collections::HashMap<String, &RawValue> = serde_json::from_str(metadata?.get()).ok()?;
    text(members.get(IDEMPOTENCY_EXTENSION).copied())
}

impl Subject {
    /// Reads a request, which has these headers unless it has its own.
    pub(super) fn read(payload: &[u8], headers: &HeaderMap, max_headers: usize) -> Self {
        let Ok(call) = Call::parse(payload) else { return Self::default() };
        let Some(operation) = Operation::of_method(&call.method) else { return Self::default() };
        let params: Params<'_> = serde_json::from_slice(call.params).unwrap_or_default();
        let message: Params<'_> =
            params.message.and_then(|message| serde_json::from_str(message.get()).ok()).unwrap_or_default();
        let in_name = || {
            let name = text(params.name)?;
            let task = name.strip_prefix("tasks/")?.split('/').next()?.to_owned();
            Some(task).filter(|task| !task.is_empty())
        };
        let task = match operation {
            Operation::ListTasks | Operation::GetExtendedAgentCard => None,
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::GetTask
            | Operation::CancelTask
            | Operation::SubscribeToTask
            | Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig => text(params.task_id)
                .or_else(|| text(message.task_id))
                .or_else(in_name)
                .or_else(|| text(params.id)),
        };
        let context = text(message.context_id).or_else(|| text(params.context_id));
        let key = is_send(operation).then(|| {
            let own = own_headers(payload, max_headers).ok().flatten();
            let in_header = own.as_ref().and_then(|own| own.get(HEADER)).or_else(|| headers.get(HEADER));
            let in_header = in_header.and_then(|key| key.to_str().ok()).map(str::to_owned);
            in_header.or_else(|| key_in(params.metadata)).or_else(|| key_in(message.metadata))
        });
        Self { operation: Some(operation), task, context, key: key.flatten() }
    }

    /// Whether the request sends a message.
    pub(super) fn is_send(&self) -> bool {
        self.operation.is_some_and(is_send)
    }
}

const HEADER: &str = "idempotency-key";

fn is_send(operation: Operation) -> bool {
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => true,
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::CreateTaskPushNotificationConfig
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => false,
    }
}

/// The task and the context that a response names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) task: Option<String>,
    pub(super) context: Option<String>,
}

/// The result of a response, in all versions of the protocol: a task, a message or an event, or an object with one of these.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Result<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "taskId", alias = "task_id")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "contextId", alias = "context_id", alias = "sessionId")]
    context_id: Option<&'a RawValue>,
    #[serde(borrow, alias = "message", alias = "statusUpdate", alias = "artifactUpdate")]
    task: Option<&'a RawValue>,
}

impl Named {
    /// Reads the response to a request about a subject, or the first event of the response. `None` if it is an error.
    pub(super) fn read(subject: &Subject, response: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Response<'a> {
            #[serde(borrow, default)]
            result: Option<&'a RawValue>,
        }
        let response: Response<'_> = serde_json::from_slice(response).ok()?;
        let outer: Result<'_> = serde_json::from_str(response.result?.get()).unwrap_or_default();
        let inner: Result<'_> =
            outer.task.and_then(|inner| serde_json::from_str(inner.get()).ok()).unwrap_or_default();
        // The id of a message is another member, and a webhook is no task.
        let id = || match subject.operation {
            Some(
                Operation::SendMessage
                | Operation::SendStreamingMessage
                | Operation::GetTask
                | Operation::CancelTask
                | Operation::SubscribeToTask,
            ) => text(inner.id).or_else(|| text(outer.id)),
            Some(
                Operation::ListTasks
                | Operation::CreateTaskPushNotificationConfig
                | Operation::GetTaskPushNotificationConfig
                | Operation::ListTaskPushNotificationConfigs
                | Operation::DeleteTaskPushNotificationConfig
                | Operation::GetExtendedAgentCard,
            )
            | None => None,
        };
        let task = subject.task.clone();
        Some(Self {
            task: task.or_else(|| text(inner.task_id)).or_else(|| text(outer.task_id)).or_else(id),
            context: text(inner.context_id).or_else(|| text(outer.context_id)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &str) -> Subject {
        Subject::read(request.as_bytes(), &HeaderMap::new(), 1000)
    }

    #[test]
    fn the_task_of_a_request_is_found_in_every_version() {
        for (method, params) in [
            ("GetTask", r#"{"id":"T"}"#),
            ("CancelTask", r#"{"id":"T"}"#),
            ("SubscribeToTask", r#"{"id":"T"}"#),
            ("GetTaskPushNotificationConfig", r#"{"taskId":"T","id":"config"}"#),
            ("DeleteTaskPushNotificationConfig", r#"{"task_id":"T","id":"config"}"#),
            ("GetTaskPushNotificationConfig", r#"{"name":"tasks/T/pushNotificationConfigs/c"}"#),
            ("ListTaskPushNotificationConfigs", r#"{"parent":"tasks/T"}"#),
            ("SendMessage", r#"{"message":{"taskId":"T","parts":[]}}"#),
            ("message/stream", r#"{"message":{"kind":"message","taskId":"T","parts":[]}}"#),
            ("tasks/get", r#"{"id":"T","historyLength":1}"#),
            ("tasks/resubscribe", r#"{"id":"T"}"#),
            ("tasks/pushNotificationConfig/set", r#"{"taskId":"T","pushNotificationConfig":{"id":"c"}}"#),
            ("tasks/pushNotificationConfig/get", r#"{"id":"T","pushNotificationConfigId":"c"}"#),
            ("tasks/send", r#"{"id":"T","sessionId":"S","message":{"role":"user"}}"#),
        ] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":"rpc","method":"{method}","params":{params}}}"#);
            assert_eq!(read(&request).task.as_deref(), Some("T"), "{request}");
        }
    }

    #[test]
    fn a_request_that_cannot_be_read_is_about_nothing() {
        let unreadable = [
            "",
            "[]",
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"a","id":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":""}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"GetAgentCard","params":{"id":"T"}}"#,
        ];
        for request in unreadable {
            assert_eq!((read(request).task, read(request).context), (None, None), "{request}");
        }
    }

    #[test]
    fn the_key_of_a_send_is_in_a_header_or_in_metadata() {
        let send = |more: &str, params: &str| {
            read(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage"{more},"params":{{"message":{{"contextId":"C"{params}}}}}}}"#
            ))
        };
        let subject = send(r#","headers":{"Idempotency-Key":"K"}"#, "");
        assert_eq!((subject.key.as_deref(), subject.context.as_deref()), (Some("K"), Some("C")));
        let in_metadata = send("", &format!(r#","metadata":{{"{IDEMPOTENCY_EXTENSION}":"K"}}"#));
        assert_eq!(in_metadata.key.as_deref(), Some("K"));
        assert_eq!(send("", "").key, None);
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "K".parse().unwrap());
        let get = br#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"T"}}"#;
        assert_eq!(Subject::read(get, &headers, 1000).key, None, "only sends have one");
    }

    #[test]
    fn the_task_of_a_response_is_found_in_every_version() {
        let subject = Subject { operation: Some(Operation::SendMessage), ..Subject::default() };
        let named = |result: &str| {
            let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            Named::read(&subject, response.as_bytes()).map(|named| (named.task, named.context))
        };
        let both = Some((Some("T".to_owned()), Some("C".to_owned())));
        for result in [
            r#"{"task":{"id":"T","contextId":"C","status":{}}}"#,
            r#"{"statusUpdate":{"taskId":"T","contextId":"C"}}"#,
            r#"{"artifactUpdate":{"taskId":"T","contextId":"C"}}"#,
            r#"{"kind":"task","id":"T","contextId":"C"}"#,
            r#"{"kind":"status-update","taskId":"T","contextId":"C"}"#,
            r#"{"id":"T","sessionId":"C","status":{}}"#,
            r#"{"message":{"messageId":"m","taskId":"T","contextId":"C"}}"#,
        ] {
            assert_eq!(named(result), both, "{result}");
        }
        assert_eq!(Named::read(&subject, br#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#), None);
        let webhook = Subject {
            operation: Some(Operation::CreateTaskPushNotificationConfig),
            task: Some("T".to_owned()),
            ..Subject::default()
        };
        let created = Named::read(&webhook, br#"{"result":{"id":"config"}}"#).unwrap();
        assert_eq!(created.task.as_deref(), Some("T"));
    }
}
