//! The webhooks of a task.

use attache_protocol::{
    DeleteTaskPushNotificationConfigRequest, Dialect, Error, ErrorKind, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    PUSH_EVERY_EVENT_EXTENSION, TaskId, TaskPushNotificationConfig,
};

use super::{Reply, Service, internal};
use crate::{Caller, NewWebhook, PushEvents, PutWebhook, Webhook, new_id};

fn not_supported() -> Error {
    Error::new(ErrorKind::PushNotificationNotSupported, "this agent does not send push notifications")
}

/// Sets the task of a webhook, and an id if it has none.
pub(super) fn complete(webhook: Webhook, task_id: &TaskId) -> Webhook {
    let mut webhook = webhook;
    webhook.config.task_id = Some(task_id.clone());
    let allowances = webhook.dialect.map(Dialect::rules).unwrap_or_default();
    webhook.config.id.get_or_insert_with(|| match allowances.nameless_webhooks {
        true => task_id.as_str().to_owned(),
        false => new_id(),
    });
    webhook
}

/// The config of a webhook without its secrets.
fn redacted(webhook: Webhook) -> TaskPushNotificationConfig {
    let mut config = webhook.config;
    config.token = None;
    if let Some(authentication) = &mut config.authentication {
        authentication.credentials = None;
    }
    config
}

impl Service {
    pub(super) fn require_push(&self) -> Result<(), Error> {
        let card = self.card();
        if card.capabilities.push_notifications == Some(true) { Ok(()) } else { Err(not_supported()) }
    }

    /// Checks a webhook of a request. `path` is the path of its fields in the request.
    pub(super) fn check_push(
        &self,
        caller: &Caller,
        config: TaskPushNotificationConfig,
        path: &str,
    ) -> Result<Webhook, Error> {
        self.require_push()?;
        if self.0.options.max_push_configs == 0 {
            return Err(self.too_many_webhooks());
        }
        if let Err(reason) = self.0.options.webhook_check.check(&config.url) {
            return Err(Error::invalid_params(format!("{path}url"), reason));
        }
        let every = caller.extensions.contains(PUSH_EVERY_EVENT_EXTENSION);
        let events = if every { PushEvents::Everything } else { self.0.options.push_events };
        Ok(Webhook { config, events, dialect: caller.dialect, trace_parent: caller.trace_parent })
    }

    pub(super) fn too_many_webhooks(&self) -> Error {
        let limit = self.0.options.max_push_configs;
        let text = format!("a task has at most {limit} webhooks: delete one first");
        Error::new(ErrorKind::ResourceExhausted, text)
    }

    /// A webhook for a task, with the limit of webhooks per task.
    pub(super) fn new_webhook(&self, webhook: Webhook, task_id: &TaskId) -> NewWebhook {
        NewWebhook { webhook: complete(webhook, task_id), limit: self.0.options.max_push_configs }
    }

    pub(super) async fn create_push(
        &self,
        caller: Caller,
        config: TaskPushNotificationConfig,
    ) -> Result<Reply, Error> {
        let mut task_id = config.task_id.clone().unwrap_or_default();
        let webhook = self.check_push(&caller, config, "")?;
        self.resolve(&caller, &mut task_id).await?;
        let new = self.new_webhook(webhook, &task_id);
        let webhook = new.webhook.clone();
        let outbox = self.0.store.outbox();
        match outbox.put_webhook(&task_id, new).await.map_err(|error| internal(&error))? {
            PutWebhook::Stored => Ok(Reply::Push(Box::new(redacted(webhook)))),
            PutWebhook::LimitReached => Err(self.too_many_webhooks().with("taskId", &task_id)),
        }
    }

    pub(super) async fn get_push(
        &self,
        caller: Caller,
        mut request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Reply, Error> {
        self.resolve(&caller, &mut request.task_id).await?;
        let outbox = self.0.store.outbox();
        let webhooks = outbox.webhooks(&request.task_id).await.map_err(|error| internal(&error))?;
        match webhooks.into_iter().find(|webhook| webhook.id() == request.id) {
            Some(webhook) => Ok(Reply::Push(Box::new(redacted(webhook)))),
            None => Err(Error::task_not_found(&request.task_id).with("configId", &request.id)),
        }
    }

    pub(super) async fn list_push(
        &self,
        caller: Caller,
        mut request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Reply, Error> {
        self.resolve(&caller, &mut request.task_id).await?;
        let outbox = self.0.store.outbox();
        let mut webhooks = outbox.webhooks(&request.task_id).await.map_err(|error| internal(&error))?;
        if let Some(token) = &request.page_token {
            // A task has few webhooks: the token is the id of the last one on the page before.
            let at = webhooks.iter().position(|webhook| webhook.id() == token).ok_or_else(|| {
                let text = "expected the `nextPageToken` of an earlier page of this list";
                Error::invalid_params("pageToken", text)
            })?;
            webhooks.drain(..=at);
        }
        let mut next_page_token = String::new();
        if let Some(size) =
            request.page_size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0)
            && webhooks.len() > size
        {
            webhooks.truncate(size);
            next_page_token = webhooks.last().map(|webhook| webhook.id().to_owned()).unwrap_or_default();
        }
        let configs = webhooks.into_iter().map(redacted).collect();
        Ok(Reply::Pushes(ListTaskPushNotificationConfigsResponse { configs, next_page_token }))
    }

    pub(super) async fn delete_push(
        &self,
        caller: Caller,
        mut request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Reply, Error> {
        self.resolve(&caller, &mut request.task_id).await?;
        let outbox = self.0.store.outbox();
        outbox.delete_webhook(&request.task_id, &request.id).await.map_err(|error| internal(&error))?;
        Ok(Reply::Done)
    }
}
