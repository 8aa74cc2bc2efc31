//! `attache push add`, `list` and `rm`: the webhooks of a task.

use std::collections::BTreeMap;

use attache::protocol::{AuthenticationInfo, ErrorKind, TaskId, TaskPushNotificationConfig};
use clap::Args;

use super::connect::AgentArgs;
use super::registry::StoredSecret;
use super::show::{self, line};
use crate::command::{Failure, Output, print, say};

/// The arguments of `attache push add`.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The task
    #[arg(value_name = "TASK", index = 2)]
    task: String,

    /// The webhook; the agent must be able to reach it
    #[arg(value_name = "URL", index = 3)]
    url: String,

    /// The id of the webhook, if the agent is not to choose it
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// A secret that comes back with every notification, by which the receiver knows it
    #[arg(long, value_name = "TOKEN", value_parser = clap::value_parser!(StoredSecret))]
    notification_token: Option<StoredSecret>,

    /// What the agent is to show to the receiver, such as `Bearer s3cret`
    #[arg(long, value_name = "SCHEME CREDENTIALS", value_parser = authorization)]
    authorization: Option<StoredSecret>,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

fn authorization(text: &str) -> Result<StoredSecret, &'static str> {
    match text.split_once(' ') {
        Some((scheme, credentials)) if !scheme.is_empty() && !credentials.is_empty() => {
            Ok(StoredSecret::from(text.to_owned()))
        }
        Some(_) | None => Err("expected a scheme and credentials, such as `Bearer s3cret`"),
    }
}

impl Add {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.target.connect().await?;
        let pair = self.authorization.as_ref().and_then(|StoredSecret(pair)| pair.reveal().split_once(' '));
        let webhook = TaskPushNotificationConfig {
            id: self.id,
            url: self.url,
            token: self.notification_token.map(|StoredSecret(token)| token.reveal().to_owned()),
            authentication: pair.map(|(scheme, credentials)| AuthenticationInfo {
                scheme: scheme.to_owned(),
                credentials: Some(credentials.to_owned()),
            }),
            ..TaskPushNotificationConfig::default()
        };
        let added = agent.client.create_webhook(self.task, webhook).await;
        let added = hidden(added.map_err(|error| agent.failed(&error))?);
        if self.output.json {
            return print(&show::json_lines(&added)?);
        }
        print(&format!("{}\n", line(added.id.as_deref().unwrap_or_default())))
    }
}

/// The webhook without its secrets, in case the agent returns them.
fn hidden(webhook: TaskPushNotificationConfig) -> TaskPushNotificationConfig {
    let authentication =
        webhook.authentication.map(|known| AuthenticationInfo { credentials: None, ..known });
    TaskPushNotificationConfig { token: None, authentication, ..webhook }
}

/// The arguments of `attache push list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// The task
    #[arg(value_name = "TASK", index = 2)]
    task: String,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    target: AgentArgs,
}

impl List {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.target.connect().await?;
        let mut listing = agent.client.webhooks(self.task);
        let mut webhooks = Vec::new();
        while let Some(webhook) = listing.next().await {
            webhooks.push(hidden(webhook.map_err(|error| agent.failed(&error))?));
        }
        if self.output.json {
            return print(&show::json_lines(&BTreeMap::from([("configs", webhooks)]))?);
        }
        if webhooks.is_empty() {
            return print("no webhooks\n");
        }
        let row = |webhook: &TaskPushNotificationConfig| {
            vec![line(webhook.id.as_deref().unwrap_or_default()), line(&webhook.url)]
        };
        print(&show::table(&webhooks.iter().map(row).collect::<Vec<_>>()))
    }
}

/// The arguments of `attache push rm`.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The task
    #[arg(value_name = "TASK", index = 2)]
    task: String,

    /// The webhook, as `list` shows it
    #[arg(value_name = "ID", index = 3)]
    id: String,

    #[command(flatten)]
    target: AgentArgs,
}

impl Rm {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let agent = self.target.connect().await?;
        // Deleting an unknown webhook succeeds, as the protocol demands. Agents that cannot list webhooks are taken at their word.
        let mut listing = agent.client.webhooks(self.task.clone());
        let mut is_known = false;
        while let Some(webhook) = listing.next().await {
            match webhook {
                Ok(webhook) => is_known |= webhook.id.as_deref() == Some(&self.id),
                Err(error) if error.kind() == Some(ErrorKind::TaskNotFound) => {
                    return Err(agent.failed(&error));
                }
                Err(_) => is_known = true,
            }
        }
        if !is_known {
            let (task, id) = (TaskId::from(self.task), line(&self.id));
            return Err(Failure::new(format!("the task has no webhook `{id}`"))
                .hint(format!("`{}` shows those that it has", agent.about("push list", &task))));
        }
        let removed = agent.client.delete_webhook(self.task, self.id.clone()).await;
        removed.map_err(|error| agent.failed(&error))?;
        say(format_args!("the agent has forgotten the webhook `{}`", line(&self.id)));
        Ok(())
    }
}
