//! Replies of the service as messages of either version.

use attache_core::Reply;
use attache_grpc::{ProtoConvert, to_proto};
use attache_protocol::{
    AgentCard, Error, ErrorKind, ListTaskPushNotificationConfigsResponse, ListTasksResponse,
    SendMessageResponse, Task, TaskPushNotificationConfig,
};

pub(super) fn sent<P>(reply: Reply) -> Result<P, Error>
where
    SendMessageResponse: ProtoConvert<P>,
{
    if let Reply::Message(message) = reply {
        return to_proto(SendMessageResponse::Message(*message));
    }
    let Reply::Sent(snapshot, view) = reply else { return Err(unexpected()) };
    to_proto(SendMessageResponse::Task(snapshot.viewed(view).into_owned()))
}

pub(super) fn task<P>(reply: Reply) -> Result<P, Error>
where
    Task: ProtoConvert<P>,
{
    let Reply::Task(snapshot, view) = reply else { return Err(unexpected()) };
    to_proto(snapshot.viewed(view).into_owned())
}

pub(super) fn tasks<P>(reply: Reply) -> Result<P, Error>
where
    ListTasksResponse: ProtoConvert<P>,
{
    let Reply::Tasks(page) = reply else { return Err(unexpected()) };
    to_proto(ListTasksResponse {
        tasks: page.tasks.iter().map(|task| task.viewed(page.view).into_owned()).collect(),
        next_page_token: page.next_page_token,
        page_size: page.page_size,
        total_size: page.total_size,
    })
}

pub(super) fn push<P>(reply: Reply) -> Result<P, Error>
where
    TaskPushNotificationConfig: ProtoConvert<P>,
{
    let Reply::Push(config) = reply else { return Err(unexpected()) };
    to_proto(*config)
}

pub(super) fn pushes<P>(reply: Reply) -> Result<P, Error>
where
    ListTaskPushNotificationConfigsResponse: ProtoConvert<P>,
{
    let Reply::Pushes(configs) = reply else { return Err(unexpected()) };
    to_proto(configs)
}

pub(super) fn card(reply: Reply) -> Result<AgentCard, Error> {
    let Reply::Card(card) = reply else { return Err(unexpected()) };
    Ok((*card).clone())
}

pub(super) fn done(_: Reply) -> Result<(), Error> {
    Ok(())
}

/// Each operation has its own kind of reply. Another kind is a bug in the server.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "the reply does not match the call")
}
