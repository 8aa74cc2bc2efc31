//! The webhooks of a task.

use attache_protocol::{
    DeleteTaskPushNotificationConfigRequest, Error, ErrorKind, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, TaskId,
    TaskPushNotificationConfig,
};

use super::{Reply, Service, internal};
use crate::{Caller, new_id};

pub(super) fn not_supported() -> Error {
    Error::new(ErrorKind::PushNotificationNotSupported, "this agent does not send push notifications")
}

/// A webhook with the task it belongs to and an id.
pub(super) fn complete(
    mut config: TaskPushNotificationConfig,
    task_id: &TaskId,
) -> TaskPushNotificationConfig {
    config.task_id = Some(task_id.clone());
    config.id.get_or_insert_with(new_id);
    config
}

/// A webhook as it is shown: whoever reads it learns that there are secrets, not what they are.
fn shown(mut config: TaskPushNotificationConfig) -> TaskPushNotificationConfig {
    config.token = None;
    if let Some(authentication) = &mut config.authentication {
        authentication.credentials = None;
    }
    config
}

impl Service {
    fn require_push(&self) -> Result<(), Error> {
        let card = self.card();
        if card.capabilities.push_notifications == Some(true) { Ok(()) } else { Err(not_supported()) }
    }

    pub(super) async fn keep_push(
        &self,
        task_id: &TaskId,
        config: TaskPushNotificationConfig,
    ) -> Result<(), Error> {
        let known = self.0.store.list_push(task_id).await.map_err(|error| internal(&error))?;
        let limit = self.0.options.max_push_configs;
        if known.len() >= limit && !known.iter().any(|other| other.id == config.id) {
            let text = format!("a task has at most {limit} webhooks: delete one first");
            return Err(Error::new(ErrorKind::ResourceExhausted, text).with("taskId", task_id));
        }
        self.0.store.put_push(task_id, config).await.map_err(|error| internal(&error))
    }

    pub(super) async fn create_push(
        &self,
        caller: Caller,
        config: TaskPushNotificationConfig,
    ) -> Result<Reply, Error> {
        self.require_push()?;
        let task_id = config.task_id.clone().unwrap_or_default();
        self.find(&caller, &task_id).await?;
        let config = complete(config, &task_id);
        self.keep_push(&task_id, config.clone()).await?;
        Ok(Reply::Push(Box::new(shown(config))))
    }

    pub(super) async fn get_push(
        &self,
        caller: Caller,
        request: GetTaskPushNotificationConfigRequest,
    ) -> Result<Reply, Error> {
        self.require_push()?;
        self.find(&caller, &request.task_id).await?;
        let known = self.0.store.list_push(&request.task_id).await.map_err(|error| internal(&error))?;
        match known.into_iter().find(|config| config.id.as_deref() == Some(&request.id)) {
            Some(config) => Ok(Reply::Push(Box::new(shown(config)))),
            None => Err(Error::task_not_found(&request.task_id).with("configId", &request.id)),
        }
    }

    pub(super) async fn list_push(
        &self,
        caller: Caller,
        request: ListTaskPushNotificationConfigsRequest,
    ) -> Result<Reply, Error> {
        self.require_push()?;
        self.find(&caller, &request.task_id).await?;
        let mut configs = self.0.store.list_push(&request.task_id).await.map_err(|error| internal(&error))?;
        if let Some(token) = &request.page_token {
            // A task has few webhooks: the token is the id of the last one seen.
            let at =
                configs.iter().position(|config| config.id.as_ref() == Some(token)).ok_or_else(|| {
                    Error::invalid_params(
                        "pageToken",
                        "expected the `nextPageToken` of an earlier page of this list",
                    )
                })?;
            configs.drain(..=at);
        }
        let mut next_page_token = String::new();
        if let Some(size) =
            request.page_size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0)
            && configs.len() > size
        {
            configs.truncate(size);
            next_page_token = configs.last().and_then(|config| config.id.clone()).unwrap_or_default();
        }
        let configs = configs.into_iter().map(shown).collect();
        Ok(Reply::Pushes(ListTaskPushNotificationConfigsResponse { configs, next_page_token }))
    }

    pub(super) async fn delete_push(
        &self,
        caller: Caller,
        request: DeleteTaskPushNotificationConfigRequest,
    ) -> Result<Reply, Error> {
        self.require_push()?;
        self.find(&caller, &request.task_id).await?;
        self.0.store.delete_push(&request.task_id, &request.id).await.map_err(|error| internal(&error))?;
        Ok(Reply::Done)
    }
}
