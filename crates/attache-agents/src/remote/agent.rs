//! One remote agent: its card, looked at again and again, and the functions that its skills are here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{Client, ClientError, Refreshed};
use attache_protocol::AgentCard;
use tokio::time::Instant;
use url::Url;

use super::names::{free, safe};
use super::skills::functions;
use super::{Board, Import, RemoteOptions};
use crate::{Handler, Offer};

/// How long to wait before an agent that is away is asked for again. The wait doubles with every time, up to the time between
/// two polls.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// What is known about an agent, and what is offered of it.
pub(super) struct Remote {
    board: Arc<Board>,
    address: String,
    /// The address as it may be shown.
    url: String,
    /// Nothing as long as nothing of it is offered.
    client: Option<Client>,
    /// Its name, and the one that it has here.
    name: Option<(String, String)>,
    functions: BTreeMap<Arc<str>, Offered>,
    absence: Option<Absence>,
}

struct Offered {
    import: Arc<Import>,
    offer: Offer,
}

/// An agent has not been reached for a while.
struct Absence {
    since: Instant,
    attempts: u32,
}

impl Remote {
    pub(super) fn new(board: Arc<Board>, address: String) -> Self {
        let url = shown(&address);
        Self { board, address, url, client: None, name: None, functions: BTreeMap::new(), absence: None }
    }

    /// Keeps the functions in step with the card, for ever.
    pub(super) async fn keep(mut self) {
        loop {
            let wait = match self.read().await {
                Ok(changed) => self.is_here(changed),
                Err(error) => self.is_away(&error, Instant::now()),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the card. The agent, if it is another card than before.
    async fn read(&mut self) -> Result<Option<Client>, ClientError> {
        let refreshed = match &self.client {
            Some(client) => client.refresh_card().await?,
            None => {
                let client = Client::connect_with(&self.address, self.board.options.client.clone()).await?;
                self.client = Some(client);
                Refreshed::Changed
            }
        };
        Ok(self.client.clone().filter(|_| refreshed == Refreshed::Changed))
    }

    fn is_here(&mut self, changed: Option<Client>) -> Duration {
        if self.absence.take().is_some() {
            tracing::info!(url = self.url, "a remote agent is back");
        }
        if let Some(client) = changed {
            self.show(&client);
        }
        self.board.options.poll
    }

    fn is_away(&mut self, error: &ClientError, now: Instant) -> Duration {
        let RemoteOptions { poll, gone_after, ref credentials, .. } = self.board.options;
        let denied = Url::parse(&self.address).ok().and_then(|url| credentials.explain(&url, error));
        let error = denied.unwrap_or_else(|| error.to_string());
        let absence = self.absence.get_or_insert_with(|| {
            tracing::warn!(url = self.url, error, "a remote agent cannot be reached");
            Absence { since: now, attempts: 0 }
        });
        let wait = FIRST_RETRY.min(poll).saturating_mul(2_u32.saturating_pow(absence.attempts));
        absence.attempts += 1;
        // Its name is kept, for when it is back.
        if now.duration_since(absence.since) >= gone_after && self.client.take().is_some() {
            tracing::warn!(url = self.url, error, "the functions of a remote agent are gone, as it is");
            self.offer(Vec::new());
        }
        wait.min(poll)
    }

    /// Offers what the card says, and nothing else.
    fn show(&mut self, client: &Client) {
        let card = &*client.card();
        if self.is_ourselves(card) {
            tracing::warn!(url = self.url, "not importing the skills of this agent itself");
            return self.offer(Vec::new());
        }
        let agent = self.claim(&card.name);
        let credentials = &self.board.options.credentials;
        let import =
            |(info, skill)| Import { client: client.clone(), credentials: credentials.clone(), skill, info };
        let imports: Vec<_> = functions(card, &agent, &self.url).into_iter().map(import).collect();
        tracing::info!(
            url = self.url,
            agent,
            functions = imports.len(),
            "importing the skills of a remote agent"
        );
        self.offer(imports);
    }

    fn is_ourselves(&self, card: &AgentCard) -> bool {
        let Some(own) = self.board.options.own_url.as_deref() else { return false };
        let own = own.trim_end_matches('/');
        card.supported_interfaces.iter().any(|interface| {
            interface.url.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The name that the agent has here: as it calls itself, unless another one has that name.
    fn claim(&mut self, name: &str) -> String {
        if let Some((known, here)) = &self.name
            && known == name
        {
            return here.clone();
        }
        let wanted = safe(name, "agent");
        let mut taken = self.board.taken.lock();
        taken.retain(|_, address| *address != self.address);
        let here = free(wanted.clone(), |name| taken.contains_key(name));
        if let Some(other) = taken.get(&wanted) {
            let other = shown(other);
            tracing::warn!(url = self.url, other, name = here, "two remote agents have the same name");
        }
        taken.insert(here.clone(), self.address.clone());
        self.name = Some((name.to_owned(), here.clone()));
        here
    }

    /// Makes these the functions that are offered.
    fn offer(&mut self, wanted: Vec<Import>) {
        let mut before = std::mem::take(&mut self.functions);
        for import in wanted {
            let id = import.info.id.clone();
            let offered = match before.remove(&id) {
                Some(known) if known.import.is_like(&import) => known,
                Some(other) => {
                    let offered = self.board.offer(import);
                    other.offer.replaced();
                    offered
                }
                None => self.board.offer(import),
            };
            self.functions.insert(id, offered);
        }
        let mut table = self.board.table.lock();
        before.keys().for_each(|gone| {
            table.remove(gone);
        });
        // With the rest goes what is offered no more.
    }
}

impl Board {
    fn offer(&self, import: Import) -> Offered {
        let (import, limit) = (Arc::new(import), self.options.call_timeout);
        let called = import.clone();
        let handler: Handler = Arc::new(move |payload| {
            let import = called.clone();
            Box::pin(async move { import.call(&payload, limit, 1).await })
        });
        self.table.lock().insert(import.info.id.clone(), import.clone());
        let offer = self.host.offer(import.info.clone(), handler);
        Offered { import, offer }
    }
}

/// An address without credentials and query.
fn shown(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path().trim_end_matches('/')),
        Err(_) => address.to_owned(),
    }
}
