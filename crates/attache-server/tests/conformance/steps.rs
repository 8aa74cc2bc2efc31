//! What the suite does in each generation.

use attache_protocol::Operation;
use serde_json::{Value, json};

use super::Generation;

/// What is known from earlier responses.
#[derive(Default)]
pub(super) struct Known {
    /// A task that has ended.
    pub(super) ended: Value,
    /// A task that was started by a request that did not wait for it.
    pub(super) started: Value,
    /// A task that goes on until it is canceled, with an open stream.
    pub(super) watched: Value,
    /// The number of the first event of that stream.
    pub(super) first_event: Value,
}

impl Known {
    pub(super) fn tasks(&self) -> [&Value; 3] {
        [&self.ended, &self.started, &self.watched]
    }
}

/// A task of [`Known`].
#[derive(Clone, Copy)]
pub(super) enum Task {
    Ended,
    Started,
    Watched,
}

/// What a request calls.
#[derive(Clone, Copy)]
pub(super) enum Method {
    /// The method that the generation has for an operation.
    Of(Operation),
    /// A method by its name.
    Named(&'static str),
}

/// How a response is read, and what of it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// All of it.
    Whole,
    /// To its end. The names of the members of the result are compared, since the task may have gone on.
    Members,
    /// Until the agent waits. The stream stays open, and is read to its end by [`EndsStreams`](Self::EndsStreams).
    StaysOpen,
    /// All of it, and the rest of all open streams, since the request ends their task.
    EndsStreams,
}

/// One step of the conversation.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) params: Box<dyn Fn(&Known) -> Value>,
    /// Headers beyond those of the generation and of the caller.
    pub(super) headers: fn(&Known) -> Value,
    pub(super) reading: Reading,
    /// The task that the response creates.
    pub(super) creates: Option<Task>,
}

fn step(name: &'static str, method: Method, params: impl Fn(&Known) -> Value + 'static) -> Step {
    let (headers, reading) = (|_: &Known| json!({}), Reading::Whole);
    Step { name, method, params: Box::new(params), headers, reading, creates: None }
}

/// A request of an operation.
fn of(name: &'static str, operation: Operation, params: impl Fn(&Known) -> Value + 'static) -> Step {
    step(name, Method::Of(operation), params)
}

/// A call of a method that is not the one of the generation.
fn named(name: &'static str, method: &'static str, params: impl Fn(&Known) -> Value + 'static) -> Step {
    step(name, Method::Named(method), params)
}

impl Step {
    fn read(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    fn creates(self, task: Task) -> Self {
        Self { creates: Some(task), ..self }
    }

    fn with(self, headers: fn(&Known) -> Value) -> Self {
        Self { headers, ..self }
    }

    /// A stream that begins after the first event of the stream that is open.
    fn resumed(self) -> Self {
        self.with(|known| json!({"Last-Event-ID": known.first_event.to_string()})).read(Reading::StaysOpen)
    }
}

impl Generation {
    /// The method of an operation. `None` if the generation does not have the operation.
    pub(super) fn method(self, operation: Operation) -> Option<&'static str> {
        match self {
            Self::Current | Self::V1_1 => Some(operation.name()),
            Self::V0_3 | Self::Iii => Some(method_of_0_3(operation)),
            Self::V0_1 => method_of_0_1(operation),
        }
    }

    /// The conversation.
    pub(super) fn steps(self) -> Vec<Step> {
        match self {
            Self::Current | Self::V1_1 => of_1_0(),
            Self::V0_3 => {
                // Clients of 0.3 need not state their version. Those that do get 0.3 and nothing beside it.
                let stated = |step: Step| step.with(|_| json!({"A2A-Version": "0.3"}));
                let ended = |known: &Known| json!({"id": known.ended});
                let mut steps = of_0_3(tagged);
                steps.extend([
                    stated(of("get with the version", Operation::GetTask, ended)),
                    stated(of("list with the version", Operation::ListTasks, |_| json!({}))),
                    stated(of("subscribe with the version", Operation::SubscribeToTask, ended)),
                    stated(of("wrong arguments with the version", Operation::GetTask, |_| json!({"id": 7}))),
                    named("earlier name of the extended card", "agent/authenticatedExtendedCard", |_| {
                        json!({})
                    }),
                ]);
                steps
            }
            Self::Iii => {
                // Clients of iii-a2a also call methods by the names of 1.0.
                let mut steps = of_0_3(flat);
                steps.extend([
                    named("send by the name of 1.0", "SendMessage", |_| flat("hello")),
                    named("stream by the name of 1.0", "SendStreamingMessage", |_| flat("chunks")),
                    named("get by the name of 1.0", "GetTask", |known| json!({"id": known.ended})),
                ]);
                steps
            }
            Self::V0_1 => of_0_1(),
        }
    }
}

const fn method_of_0_3(operation: Operation) -> &'static str {
    match operation {
        Operation::SendMessage => "message/send",
        Operation::SendStreamingMessage => "message/stream",
        Operation::GetTask => "tasks/get",
        Operation::ListTasks => "tasks/list",
        Operation::CancelTask => "tasks/cancel",
        Operation::SubscribeToTask => "tasks/resubscribe",
        Operation::CreateTaskPushNotificationConfig => "tasks/pushNotificationConfig/set",
        Operation::GetTaskPushNotificationConfig => "tasks/pushNotificationConfig/get",
        Operation::ListTaskPushNotificationConfigs => "tasks/pushNotificationConfig/list",
        Operation::DeleteTaskPushNotificationConfig => "tasks/pushNotificationConfig/delete",
        Operation::GetExtendedAgentCard => "agent/getAuthenticatedExtendedCard",
    }
}

const fn method_of_0_1(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::SendMessage => Some("tasks/send"),
        Operation::SendStreamingMessage => Some("tasks/sendSubscribe"),
        Operation::GetTask => Some("tasks/get"),
        Operation::CancelTask => Some("tasks/cancel"),
        Operation::SubscribeToTask => Some("tasks/resubscribe"),
        Operation::CreateTaskPushNotificationConfig => Some("tasks/pushNotification/set"),
        Operation::GetTaskPushNotificationConfig => Some("tasks/pushNotification/get"),
        Operation::ListTasks
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => None,
    }
}

fn of_1_0() -> Vec<Step> {
    fn send(text: &str) -> Value {
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
    }
    fn webhook(known: &Known) -> Value {
        json!({"taskId": known.watched, "id": "w"})
    }
    vec![
        of("send", Operation::SendMessage, |_| send("hello")).creates(Task::Ended),
        of("direct message", Operation::SendMessage, |_| send("message back")),
        of("get", Operation::GetTask, |known| json!({"id": known.ended})),
        of("stream", Operation::SendStreamingMessage, |_| send("chunks")),
        of("failing stream", Operation::SendStreamingMessage, |_| send("fail")),
        of("stream of a direct message", Operation::SendStreamingMessage, |_| send("message back")),
        of("list", Operation::ListTasks, |_| json!({})),
        of("start", Operation::SendMessage, |_| {
            let mut params = send("wait");
            params["configuration"] = json!({"returnImmediately": true});
            params
        })
        .read(Reading::Members)
        .creates(Task::Started),
        of("watch", Operation::SendStreamingMessage, |_| send("wait"))
            .read(Reading::StaysOpen)
            .creates(Task::Watched),
        of("subscribe", Operation::SubscribeToTask, |known| json!({"id": known.watched}))
            .read(Reading::StaysOpen),
        of("resume", Operation::SubscribeToTask, |known| json!({"id": known.watched})).resumed(),
        of("create webhook", Operation::CreateTaskPushNotificationConfig, |known| {
            let mut config = webhook(known);
            config["url"] = json!("https://hooks.example.com/a");
            config
        }),
        of("get webhook", Operation::GetTaskPushNotificationConfig, webhook),
        of(
            "list webhooks",
            Operation::ListTaskPushNotificationConfigs,
            |known| json!({"taskId": known.watched}),
        ),
        of("delete webhook", Operation::DeleteTaskPushNotificationConfig, webhook),
        of("get deleted webhook", Operation::GetTaskPushNotificationConfig, webhook),
        of("cancel", Operation::CancelTask, |known| json!({"id": known.watched})).read(Reading::EndsStreams),
        of("cancel again", Operation::CancelTask, |known| json!({"id": known.watched})),
        of("cancel the other", Operation::CancelTask, |known| json!({"id": known.started}))
            .read(Reading::Members),
        of("subscribe too late", Operation::SubscribeToTask, |known| json!({"id": known.ended})),
        of("subscribe to nothing", Operation::SubscribeToTask, |_| json!({"id": "none"})),
        of("extended card", Operation::GetExtendedAgentCard, |_| json!({})),
        named("unknown method", "Nonsense", |_| json!({})),
        of("wrong arguments", Operation::GetTask, |_| json!({"id": 7})),
        of("unknown version", Operation::GetTask, |known| json!({"id": known.ended}))
            .with(|_| json!({"A2A-Version": "9.9"})),
    ]
}

/// A message of 0.3.
fn tagged(text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": parts}})
}

/// A message of iii.
fn flat(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "user", "parts": [{"text": text}]}})
}

/// The steps of 0.3 and of iii, which have other messages in the same methods.
fn of_0_3(send: fn(&str) -> Value) -> Vec<Step> {
    fn webhook(known: &Known) -> Value {
        json!({"id": known.watched, "pushNotificationConfigId": "w"})
    }
    vec![
        of("send", Operation::SendMessage, move |_| send("hello")).creates(Task::Ended),
        of("direct message", Operation::SendMessage, move |_| send("message back")),
        of("get", Operation::GetTask, |known| json!({"id": known.ended, "historyLength": 1})),
        of("stream", Operation::SendStreamingMessage, move |_| send("chunks")),
        of("failing stream", Operation::SendStreamingMessage, move |_| send("fail")),
        of("stream of a direct message", Operation::SendStreamingMessage, move |_| send("message back")),
        of("list", Operation::ListTasks, |_| json!({})),
        of("start", Operation::SendMessage, move |_| {
            let mut params = send("wait");
            params["configuration"] = json!({"blocking": false});
            params
        })
        .read(Reading::Members)
        .creates(Task::Started),
        of("watch", Operation::SendStreamingMessage, move |_| send("wait"))
            .read(Reading::StaysOpen)
            .creates(Task::Watched),
        of("subscribe", Operation::SubscribeToTask, |known| json!({"id": known.watched}))
            .read(Reading::StaysOpen),
        of("resume", Operation::SubscribeToTask, |known| json!({"id": known.watched})).resumed(),
        of("create webhook", Operation::CreateTaskPushNotificationConfig, |known| {
            let config = json!({"id": "w", "url": "https://hooks.example.com/a"});
            json!({"taskId": known.watched, "pushNotificationConfig": config})
        }),
        of("get webhook", Operation::GetTaskPushNotificationConfig, webhook),
        of("list webhooks", Operation::ListTaskPushNotificationConfigs, |known| json!({"id": known.watched})),
        of("delete webhook", Operation::DeleteTaskPushNotificationConfig, webhook),
        of("get deleted webhook", Operation::GetTaskPushNotificationConfig, webhook),
        of("cancel", Operation::CancelTask, |known| json!({"id": known.watched})).read(Reading::EndsStreams),
        of("cancel again", Operation::CancelTask, |known| json!({"id": known.watched})),
        of("cancel the other", Operation::CancelTask, |known| json!({"id": known.started}))
            .read(Reading::Members),
        of("subscribe too late", Operation::SubscribeToTask, |known| json!({"id": known.ended})),
        of("subscribe to nothing", Operation::SubscribeToTask, |_| json!({"id": "none"})),
        of("extended card", Operation::GetExtendedAgentCard, |_| json!({})),
        named("unknown method", "message/nonsense", |_| json!({})),
        of("wrong arguments", Operation::GetTask, |_| json!({"id": 7})),
    ]
}

fn of_0_1() -> Vec<Step> {
    fn send(id: &str, text: &str) -> Value {
        json!({"id": id, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}})
    }
    vec![
        of("send", Operation::SendMessage, |_| send("one", "hello")).creates(Task::Ended),
        of("get", Operation::GetTask, |known| json!({"id": known.ended})),
        of("direct message", Operation::SendMessage, |_| send("two", "message back")),
        of("stream", Operation::SendStreamingMessage, |_| send("three", "chunks")),
        of("failing stream", Operation::SendStreamingMessage, |_| send("four", "fail")),
        of("watch", Operation::SendStreamingMessage, |_| send("five", "wait"))
            .read(Reading::StaysOpen)
            .creates(Task::Watched),
        of("subscribe", Operation::SubscribeToTask, |known| json!({"id": known.watched}))
            .read(Reading::StaysOpen),
        of("resume", Operation::SubscribeToTask, |known| json!({"id": known.watched})).resumed(),
        of("create webhook", Operation::CreateTaskPushNotificationConfig, |known| {
            let config = json!({"url": "https://hooks.example.com/a"});
            json!({"id": known.watched, "pushNotificationConfig": config})
        }),
        of("get webhook", Operation::GetTaskPushNotificationConfig, |known| json!({"id": known.watched})),
        of("get no webhook", Operation::GetTaskPushNotificationConfig, |known| json!({"id": known.ended})),
        of("cancel", Operation::CancelTask, |known| json!({"id": known.watched})).read(Reading::EndsStreams),
        of("cancel again", Operation::CancelTask, |known| json!({"id": known.watched})),
        of("subscribe too late", Operation::SubscribeToTask, |known| json!({"id": known.ended})),
        of("subscribe to nothing", Operation::SubscribeToTask, |_| json!({"id": "none"})),
        of("wrong arguments", Operation::GetTask, |_| json!({"id": 7})),
        named("unknown method", "tasks/nonsense", |_| json!({})),
    ]
}
