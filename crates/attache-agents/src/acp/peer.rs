//! The running program: its connection, its abilities and its sessions.

use std::sync::{Arc, Weak};

use attache_core::AgentError;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use super::AcpOptions;
use super::connection::{CallError, Connection};
use super::process::Process;
use super::routes::Routes;
use super::session::Session;
use super::wire::{self, AgentCapabilities, AgentInfo, Initialized, NewSession, code, method};
use super::workspace::{SERVES_FILES, Workspace};

/// A running program that has been initialized. It ends with its last session.
pub(super) struct Peer {
    pub(super) connection: Connection,
    pub(super) capabilities: AgentCapabilities,
    options: Arc<AcpOptions>,
    routes: Arc<Routes>,
    process: Arc<Process>,
    auth_methods: Vec<String>,
}

/// Starts the program when it is needed.
pub(super) struct Host {
    options: Arc<AcpOptions>,
    current: Mutex<Weak<Peer>>,
    /// What the program said about itself when it was started last.
    pub(super) info: watch::Sender<Option<AgentInfo>>,
}

impl Host {
    pub(super) fn new(options: Arc<AcpOptions>) -> Self {
        Self { options, current: Mutex::default(), info: watch::Sender::default() }
    }

    /// The running program. Starts it if it does not run.
    pub(super) async fn peer(&self) -> Result<Arc<Peer>, AgentError> {
        let mut current = self.current.lock().await;
        if let Some(peer) = current.upgrade().filter(|peer| !peer.is_closed()) {
            return Ok(peer);
        }
        let (peer, info) = Peer::start(self.options.clone()).await?;
        let peer = Arc::new(peer);
        *current = Arc::downgrade(&peer);
        self.info.send_if_modified(|known| {
            let changed = info.is_some() && *known != info;
            if changed {
                *known = info;
            }
            changed
        });
        Ok(peer)
    }
}

impl Peer {
    async fn start(options: Arc<AcpOptions>) -> Result<(Self, Option<AgentInfo>), AgentError> {
        let (process, input, output) = Process::start(&options).map_err(|error| {
            let program = options.command.first().map(String::as_str).unwrap_or_default();
            AgentError::from(format!("cannot start `{program}`: {error}"))
        })?;
        let process = Arc::new(process);
        let routes = Arc::new(Routes::new(options.clone()));
        let connection = Connection::open(input, output, options.max_line, routes.clone());
        let (closed, stopped) = (connection.clone(), process.clone());
        // A program that breaks a rule or closes its output is of no use any more.
        tokio::spawn(async move {
            closed.closed().await;
            stopped.stop();
        });
        let mut peer = Self {
            connection,
            capabilities: AgentCapabilities::default(),
            options,
            routes,
            process,
            auth_methods: Vec::new(),
        };
        let initialized = peer.initialize().await?;
        peer.capabilities = initialized.agent_capabilities;
        Ok((peer, initialized.agent_info))
    }

    async fn initialize(&mut self) -> Result<Initialized, AgentError> {
        let params = json!({
            "protocolVersion": wire::VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": SERVES_FILES, "writeTextFile": SERVES_FILES},
                "terminal": self.options.terminal,
            },
            "clientInfo": {"name": "attache", "title": "Attaché", "version": env!("CARGO_PKG_VERSION")},
        });
        let initialized: Initialized = self.call(method::INITIALIZE, &params).await?;
        if initialized.protocol_version != wire::VERSION {
            let (found, expected) = (initialized.protocol_version, wire::VERSION);
            let text = format!("the program speaks version {found} of ACP, expected {expected}");
            return Err(AgentError::from(text));
        }
        self.auth_methods = initialized.auth_methods.iter().map(|method| method.id.clone()).collect();
        if let Some(id) = &self.options.auth_method {
            if !self.auth_methods.contains(id) {
                let known = self.auth_methods.join("`, `");
                let text =
                    format!("the program has no authentication method `{id}`, expected one of `{known}`");
                return Err(AgentError::from(text));
            }
            let _: IgnoredAny = self.call(method::AUTHENTICATE, &json!({"methodId": id})).await?;
        }
        Ok(initialized)
    }

    /// Calls a method that starts something, within the time for that.
    async fn call<R: DeserializeOwned>(&self, method: &'static str, params: &Value) -> Result<R, AgentError> {
        let limit = self.options.start_timeout;
        match tokio::time::timeout(limit, self.connection.call(method, params)).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(self.explain(method, error).await),
            Err(_) => {
                tracing::warn!(target: "attache::acp", method, "a coding agent did not respond in time");
                let seconds = limit.as_secs_f64();
                Err(AgentError::public(format!("the coding agent did not respond within {seconds} s")))
            }
        }
    }

    /// The error of a call, for the caller of the agent as far as it may see it.
    pub(super) async fn explain(&self, method: &'static str, error: CallError) -> AgentError {
        match error {
            CallError::Rpc(error) if error.code == code::AUTH_REQUIRED => {
                let methods = self.auth_methods.join(", ");
                tracing::error!(
                    target: "attache::acp", %error, methods,
                    "the coding agent requires a login: log in with the program itself, pass the variable with its key, or set the authentication method"
                );
                AgentError::public("the coding agent is not logged in at its provider")
            }
            CallError::Rpc(error) => AgentError::from(format!(
                "the coding agent responded to `{method}` with an error: {error}, data: {:?}",
                error.data
            )),
            CallError::Closed => AgentError::public(match self.connection.fault() {
                Some(fault) => fault.to_owned(),
                None => {
                    format!("the coding agent ended unexpectedly ({})", self.process.describe_end().await)
                }
            }),
            CallError::Invalid(error) => AgentError::from(format!(
                "the response of the coding agent to `{method}` is invalid: {error}"
            )),
        }
    }

    /// Creates a session.
    pub(super) async fn new_session(
        self: &Arc<Self>,
        workspace: Arc<Workspace>,
    ) -> Result<LiveSession, AgentError> {
        let params = json!({"cwd": workspace.root(), "mcpServers": []});
        let created: NewSession = self.call(method::NEW, &params).await?;
        Ok(self.register(created.session_id, workspace))
    }

    /// Loads a session of an earlier run.
    pub(super) async fn load_session(
        self: &Arc<Self>,
        id: String,
        workspace: Arc<Workspace>,
    ) -> Result<LiveSession, AgentError> {
        let params = json!({"sessionId": id, "cwd": workspace.root(), "mcpServers": []});
        let _: IgnoredAny = self.call(method::LOAD, &params).await?;
        Ok(self.register(id, workspace))
    }

    fn register(self: &Arc<Self>, id: String, workspace: Arc<Workspace>) -> LiveSession {
        let session = Arc::new(Session::new(id, workspace));
        self.routes.add(session.clone());
        LiveSession { session, peer: self.clone() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Stops the program. All its sessions end.
    pub(super) fn stop(&self) {
        self.connection.close();
        self.process.stop();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A session with the program that it belongs to. The session is closed when this is dropped.
pub(super) struct LiveSession {
    pub(super) session: Arc<Session>,
    pub(super) peer: Arc<Peer>,
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        self.peer.routes.remove(&self.session);
        self.session.end();
        if self.peer.capabilities.session_capabilities.close.is_some() && !self.peer.is_closed() {
            // The result does not matter: the id of the session is not used again unless it can be loaded.
            let _ = self.peer.connection.start(method::CLOSE, &json!({"sessionId": self.session.id}));
        }
    }
}
