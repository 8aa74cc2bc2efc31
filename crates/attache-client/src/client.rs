//! The client of one agent.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_protocol::{AgentCard, Operation, Request, SendMessageResponse, Version};
#[cfg(feature = "signing")]
use attache_signing::Signer;
use reqwest::Url;

use crate::agent_address::display_direct;
use crate::direct::DirectAddress;
use crate::discovery::{self, DiscoveredAgent};
use crate::http::{Http, display_url};
use crate::interface::Wire;
use crate::request_headers::RequestHeaders;
use crate::transport::{Channels, FromResponse, Transport};
use crate::{ClientError, ClientOptions};

/// The response to a message: a task, or a direct message.
pub type Reply = SendMessageResponse;

/// The address of an agent.
enum Home {
    /// The URLs that the card may have.
    Cards(Vec<Url>),
    /// The transport that leads to the agent.
    Direct(DirectAddress),
}

impl Home {
    fn parse(http: &Http, address: &str) -> Result<Self, ClientError> {
        match DirectAddress::parse(http, address)? {
            Some(direct) => Ok(Self::Direct(direct)),
            None => discovery::card_urls(http, address).map(Self::Cards),
        }
    }

    /// Reads the card; nothing if it has not changed.
    async fn read(
        &self,
        http: &Arc<Http>,
        channels: &Arc<Channels>,
        previous: Option<&DiscoveredAgent>,
    ) -> Result<Option<DiscoveredAgent>, ClientError> {
        match self {
            Self::Cards(urls) => discovery::read(http, urls, previous).await,
            Self::Direct(direct) => direct.discover(http, channels).await.map(Some),
        }
    }
}

/// Whether a card has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// The card has changed.
    Changed,
    /// The card is the same.
    Unchanged,
}

/// The client of one agent. Cheap to clone; clones share connections and the card.
///
/// ```no_run
/// use attache_client::{Client, Reply};
///
/// # async fn example() -> Result<(), attache_client::ClientError> {
/// let agent = Client::connect("http://localhost:3111").await?;
/// match agent.send("Hello").await? {
///     Reply::Message(message) => eprintln!("{}", message.text()),
///     Reply::Task(task) => eprintln!("{}: {}", task.id, task.status.state),
/// }
/// let mut events = agent.stream("Tell me a story").await?;
/// while let Some(event) = events.next().await {
///     eprintln!("{:?}", event?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future of a send, or a stream, only ends the wait. The agent continues with the task until it is
/// [canceled](Self::cancel).
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: Arc<Http>,
    channels: Arc<Channels>,
    home: Home,
    agent: ArcSwap<DiscoveredAgent>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("card", &display_url(&self.0.agent.load().card_url))
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to an agent by its address, or by the URL of its card, which ends in `.json`.
    ///
    /// An address of the form `unix:PATH`, `ws://…`, `wss://…`, `grpc-jsonrpc://…` or `stdio:COMMAND` leads to the agent over this
    /// transport. Its card is read there, if the agent has one. Commands must be [allowed](ClientOptions::commands).
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, ClientOptions::default()).await
    }

    /// Connects with these options.
    pub async fn connect_with(address: &str, options: ClientOptions) -> Result<Self, ClientError> {
        // Report invalid extensions now, not with the first request.
        RequestHeaders::new(options.extensions.iter().map(String::as_str), None)?;
        let http = Arc::new(Http::new(options)?);
        let home = Home::parse(&http, address)?;
        let channels = Arc::new(Channels::default());
        let Some(agent) = home.read(&http, &channels, None).await? else {
            return Err(ClientError::Protocol(
                "the server sent `304 Not Modified` in response to a request without a condition".to_owned(),
            ));
        };
        Ok(Self(Arc::new(Inner { http, channels, home, agent: ArcSwap::from_pointee(agent) })))
    }

    /// The card of the agent, as last read: the [extended card](Self::extended_card) if it was read, otherwise the public one.
    pub fn card(&self) -> Arc<AgentCard> {
        let agent = self.0.agent.load();
        agent.extended.as_ref().unwrap_or(&agent.card).clone()
    }

    /// The URL of the card.
    pub(crate) fn card_url(&self) -> Url {
        self.0.agent.load().card_url.clone()
    }

    pub(crate) fn http(&self) -> &Http {
        &self.0.http
    }

    /// The origin of the card: scheme, host and port. For a socket or a command, its address.
    pub fn card_origin(&self) -> String {
        let agent = self.0.agent.load();
        display_direct(&agent.card_url).unwrap_or_else(|| agent.card_url.origin().ascii_serialization())
    }

    /// The URL that requests are sent to: that of the selected interface. For WebSockets and the gRPC envelope it begins with `http://` or
    /// `https://`.
    pub fn interface_url(&self) -> Url {
        self.0.agent.load().endpoint.url.clone()
    }

    /// The version of the protocol that requests have.
    ///
    /// An agent whose card states no version is taken to speak 0.3. If it does not know a message of 0.3, it gets the message and all
    /// further requests in 0.1.
    pub fn protocol_version(&self) -> Version {
        self.transport().wire().version()
    }

    /// Whether the agent speaks 0.1, or may turn out to speak it. Then the id of a new task is the id of the message that begins it.
    pub fn may_speak_v0_1(&self) -> bool {
        let transport = self.transport();
        transport.wire() == Wire::JsonRpc0_1 || transport.may_be_v0_1()
    }

    /// Waits until it is known that the agent speaks 0.1, if it does. An agent of 0.1 mostly responds to a message at the end of the task,
    /// so a caller can wait for this while a message is being sent.
    pub async fn until_v0_1(&self) {
        let transport = self.transport();
        if transport.wire() != Wire::JsonRpc0_1 {
            transport.agent.unstated.until_v0_1().await;
        }
    }

    /// The verified signer of the public card, if the options [require one](ClientOptions::card_trust).
    #[cfg(feature = "signing")]
    pub fn signer(&self) -> Option<Signer> {
        self.0.agent.load().signer.clone()
    }

    /// Reads the card again, with a conditional request. Later requests follow the new card. If the new card cannot be used,
    /// the old one stays. The extended card is kept as long as the public one does not change.
    ///
    /// To call this often, use [`refresh_stale_card`](Self::refresh_stale_card).
    pub async fn refresh_card(&self) -> Result<Refreshed, ClientError> {
        let before = self.0.agent.load_full();
        let read = self.0.home.read(&self.0.http, &self.0.channels, Some(&before));
        let Some(mut agent) = read.await? else {
            self.0.agent.rcu(|now| now.revalidated());
            return Ok(Refreshed::Unchanged);
        };
        if agent.endpoint == before.endpoint {
            agent.unstated.clone_from(&before.unstated);
        }
        let refreshed = if agent.card == before.card {
            agent.extended.clone_from(&before.extended);
            Refreshed::Unchanged
        } else {
            Refreshed::Changed
        };
        self.0.agent.store(Arc::new(agent));
        Ok(refreshed)
    }

    /// Reads the card again unless it is still fresh (`Cache-Control: max-age`).
    pub async fn refresh_stale_card(&self) -> Result<Refreshed, ClientError> {
        if self.0.agent.load().is_fresh() { Ok(Refreshed::Unchanged) } else { self.refresh_card().await }
    }

    /// Keeps the extended card, unless the public one has changed.
    pub(crate) fn keep_extended(&self, transport: &Transport, card: &Arc<AgentCard>) {
        self.0.agent.rcu(|now| {
            let mut agent = DiscoveredAgent::clone(now);
            if agent.card == transport.agent.card {
                agent.extended = Some(card.clone());
            }
            agent
        });
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.0.http.options
    }

    /// The transport to the selected interface.
    pub(crate) fn transport(&self) -> Transport {
        let Inner { http, channels, agent, .. } = &*self.0;
        Transport { http: http.clone(), channels: channels.clone(), agent: agent.load_full() }
    }

    /// The headers of a request. `extensions` are added to those of the options.
    pub(crate) fn request_headers<'a>(
        &'a self,
        extensions: impl IntoIterator<Item = &'a str>,
        idempotency_key: Option<&str>,
    ) -> Result<RequestHeaders, ClientError> {
        let always = self.options().extensions.iter().map(String::as_str);
        RequestHeaders::new(always.chain(extensions), idempotency_key)
    }

    /// Sends a request with the default timeout and headers.
    pub(crate) async fn request<R: FromResponse>(&self, request: Request) -> Result<R, ClientError> {
        let headers = self.request_headers([], None)?;
        self.call(&self.transport(), request, &headers, self.options().call_timeout).await
    }

    /// Sends a request, and repeats it if that is safe and the error is transient.
    pub(crate) async fn call<R: FromResponse>(
        &self,
        transport: &Transport,
        mut request: Request,
        headers: &RequestHeaders,
        limit: std::time::Duration,
    ) -> Result<R, ClientError> {
        request.set_tenant(transport.agent.endpoint.tenant.clone());
        let operation = request.operation();
        let repeatable = headers.is_repeatable() || is_safe(operation);
        let backoff = self.options().backoff;
        let mut attempt = 0;
        loop {
            let error = match transport.call(&request, headers, limit).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if !repeatable || !error.is_transient() || attempt == backoff.attempts {
                return Err(error);
            }
            attempt += 1;
            let Some(wait) = backoff.wait_after(&error, attempt) else { return Err(error) };
            tracing::debug!(operation = operation.name(), attempt, %error, "retrying a request");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Whether an operation can be repeated with the same result. A cancel cannot: a canceled task cannot be canceled again.
const fn is_safe(operation: Operation) -> bool {
    match operation {
        Operation::GetTask
        | Operation::ListTasks
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => true,
        Operation::SendMessage
        | Operation::SendStreamingMessage
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::CreateTaskPushNotificationConfig => false,
    }
}
