//! An agent on the other side of the network.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_protocol::{AgentCard, Operation, Request, SendMessageResponse};
use attache_signing::Signer;
use reqwest::Url;

use crate::beside::Beside;
use crate::discovery::{self, Known};
use crate::http::{Http, place};
use crate::transport::{Answered, Transport};
use crate::{ClientError, ClientOptions};

/// The answer to a message: the task that works, or has worked, on it, or a direct answer.
pub type Reply = SendMessageResponse;

/// Whether a card is another one than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// The agent describes itself differently now.
    Changed,
    /// It is the same card.
    Unchanged,
}

/// An agent on the other side of the network. Cheap to clone; clones share their connections and what they know of the card.
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
/// A send or a stream that is dropped stops waiting and nothing else: the agent goes on with the task until someone
/// [cancels](Self::cancel) it.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: Arc<Http>,
    /// Where the card may be.
    places: Vec<Url>,
    known: ArcSwap<Known>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("card", &place(&self.0.known.load().place)).finish_non_exhaustive()
    }
}

impl Client {
    /// Finds an agent by its address, or by the address of its card, which ends in `.json`.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, ClientOptions::default()).await
    }

    /// The same, with other settings than the default ones.
    pub async fn connect_with(address: &str, options: ClientOptions) -> Result<Self, ClientError> {
        // What is wrong with them is better said now than with the first request.
        Beside::new(options.extensions.iter().map(String::as_str), None)?;
        let http = Arc::new(Http::new(options)?);
        let places = discovery::places(&http, address)?;
        let Some(known) = discovery::read(&http, &places, None).await? else {
            return Err(ClientError::Protocol("the card is said to be known, which it is not".to_owned()));
        };
        Ok(Self(Arc::new(Inner { http, places, known: ArcSwap::from_pointee(known) })))
    }

    /// How the agent described itself when it was last asked; to this caller, if the [extended card](Self::extended_card) was
    /// asked for.
    pub fn card(&self) -> Arc<AgentCard> {
        let known = self.0.known.load();
        known.extended.as_ref().unwrap_or(&known.card).clone()
    }

    /// Where the agent's card is: scheme, host and port.
    pub fn card_origin(&self) -> String {
        self.0.known.load().place.origin().ascii_serialization()
    }

    /// Where requests go: the interface that the card led to.
    pub fn interface_url(&self) -> Url {
        self.0.known.load().endpoint.url.clone()
    }

    /// Who signed the card that everybody gets, if that [had to be](ClientOptions::card_trust) somebody who is trusted.
    pub fn signer(&self) -> Option<Signer> {
        self.0.known.load().signer.clone()
    }

    /// Asks for the card again, which costs little if it is the same. What is sent from now on goes where the new card says; if
    /// that is nowhere, the old one stays. An extended card is good for as long as the other one stays the same.
    ///
    /// See [`refresh_stale_card`](Self::refresh_stale_card) for those who ask often.
    pub async fn refresh_card(&self) -> Result<Refreshed, ClientError> {
        let before = self.0.known.load_full();
        let Some(mut known) = discovery::read(&self.0.http, &self.0.places, Some(&before)).await? else {
            self.0.known.rcu(|now| now.confirmed());
            return Ok(Refreshed::Unchanged);
        };
        let refreshed = if known.card == before.card {
            known.extended.clone_from(&before.extended);
            Refreshed::Unchanged
        } else {
            Refreshed::Changed
        };
        self.0.known.store(Arc::new(known));
        Ok(refreshed)
    }

    /// The same, but for as long as the server says that the card is good for (`Cache-Control: max-age`) nobody is asked.
    pub async fn refresh_stale_card(&self) -> Result<Refreshed, ClientError> {
        if self.0.known.load().is_fresh() { Ok(Refreshed::Unchanged) } else { self.refresh_card().await }
    }

    /// Keeps the card that this caller got, for as long as the other one is what it was.
    pub(crate) fn keep_extended(&self, transport: &Transport, card: &Arc<AgentCard>) {
        self.0.known.rcu(|now| {
            let mut known = Known::clone(now);
            if known.card == transport.known.card {
                known.extended = Some(card.clone());
            }
            known
        });
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.0.http.options
    }

    /// The way to where requests go now.
    pub(crate) fn transport(&self) -> Transport {
        Transport { http: self.0.http.clone(), known: self.0.known.load_full() }
    }

    /// What goes beside a request that asks for these extensions besides those that are always asked for.
    pub(crate) fn beside<'a>(
        &'a self,
        extensions: impl IntoIterator<Item = &'a str>,
        idempotency_key: Option<&str>,
    ) -> Result<Beside, ClientError> {
        let always = self.options().extensions.iter().map(String::as_str);
        Beside::new(always.chain(extensions), idempotency_key)
    }

    /// Makes a request that is answered soon.
    pub(crate) async fn ask<R: Answered>(&self, request: Request) -> Result<R, ClientError> {
        let beside = self.beside([], None)?;
        self.call(&self.transport(), request, &beside, self.options().call_timeout).await
    }

    /// Makes a request, and makes it again where that is safe and may help.
    pub(crate) async fn call<R: Answered>(
        &self,
        transport: &Transport,
        mut request: Request,
        beside: &Beside,
        limit: std::time::Duration,
    ) -> Result<R, ClientError> {
        request.set_tenant(transport.known.endpoint.tenant.clone());
        let operation = request.operation();
        let repeatable = beside.is_repeatable() || is_safe(operation);
        let backoff = self.options().backoff;
        let mut attempt = 0;
        loop {
            let error = match transport.call(&request, beside, limit).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !repeatable || !error.is_transient() || attempt == backoff.attempts {
                return Err(error);
            }
            attempt += 1;
            let Some(wait) = backoff.wait_after(&error, attempt) else { return Err(error) };
            tracing::debug!(operation = operation.name(), attempt, %error, "repeating a request");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Whether doing something twice is the same as doing it once, and gets the same answer. A task that has been canceled, though,
/// cannot be canceled again.
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
