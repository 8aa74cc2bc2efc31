//! Passes what the program sends to the sessions, and serves its requests for files and terminals.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::AcpOptions;
use super::connection::{Handler, Responder};
use super::permission::OpenRequest;
use super::session::{Event, Session};
use super::wire::{
    CreateTerminal, PermissionParams, ReadFile, RpcError, SessionNotification, SessionParams, TerminalParams,
    WriteFile, code, method,
};

/// How many requests of the program are served at once.
const MAX_REQUESTS: usize = 256;

/// The sessions of a program, by their ids.
pub(super) struct Routes {
    options: Arc<AcpOptions>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    permits: Arc<Semaphore>,
}

impl Routes {
    pub(super) fn new(options: Arc<AcpOptions>) -> Self {
        Self { options, sessions: Mutex::default(), permits: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    pub(super) fn add(&self, session: Arc<Session>) {
        self.sessions.lock().insert(session.id.clone(), session);
    }

    pub(super) fn remove(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        // A session that was loaded again has the same id.
        if sessions.get(&session.id).is_some_and(|other| Arc::ptr_eq(other, session)) {
            sessions.remove(&session.id);
        }
    }

    fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.sessions.lock().get(id).cloned()
    }
}

impl Handler for Routes {
    fn notification(&self, name: &str, params: &RawValue, size: usize) {
        if name != method::UPDATE {
            tracing::debug!(target: "attache::acp", method = name, "an unknown notification was ignored");
            return;
        }
        match serde_json::from_str::<SessionNotification>(params.get()) {
            Ok(SessionNotification { session_id, update }) => {
                // Updates of a session that is being loaded repeat the past. They belong to no session yet.
                if let Some(session) = self.find(&session_id) {
                    session.deliver(size, Event::Update(Box::new(update)));
                }
            }
            Err(error) => {
                tracing::debug!(target: "attache::acp", %error, "an invalid update was ignored");
            }
        }
    }

    fn request(&self, name: &str, params: &RawValue, size: usize, responder: Responder) {
        let session = parse::<SessionParams>(params).and_then(|found| {
            let unknown = || format!("there is no session `{}`", found.session_id);
            self.find(&found.session_id).ok_or_else(|| RpcError::new(code::INVALID_PARAMS, unknown()))
        });
        if name == method::PERMISSION {
            match (session, parse::<PermissionParams>(params)) {
                // A request that is dropped is answered as canceled.
                (Ok(session), Ok(params)) => {
                    let request = OpenRequest::new(params, responder);
                    session.deliver(size, Event::Permission(Box::new(request)));
                }
                (Err(error), _) | (_, Err(error)) => responder.respond::<()>(Err(error)),
            }
            return;
        }
        let work = match session.and_then(|session| self.work(name, params, &session)) {
            Ok(work) => work,
            Err(error) => return responder.respond::<()>(Err(error)),
        };
        if !work.session.spend(size) {
            let error = RpcError::new(code::INVALID_REQUEST, "no prompt runs in the session");
            return responder.respond::<()>(Err(error));
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            let text = format!("more than {MAX_REQUESTS} requests at once");
            return responder.respond::<()>(Err(RpcError::new(code::INVALID_REQUEST, text)));
        };
        let options = self.options.clone();
        tokio::spawn(async move {
            responder.respond(work.run(options).await);
            drop(permit);
        });
    }
}

/// A request for a file or a terminal.
struct Work {
    session: Arc<Session>,
    kind: Kind,
}

enum Kind {
    Read(ReadFile),
    Write(WriteFile),
    Create(CreateTerminal),
    Output(TerminalParams),
    Wait(TerminalParams),
    Kill(TerminalParams),
    Release(TerminalParams),
}

impl Routes {
    fn work(&self, name: &str, params: &RawValue, session: &Arc<Session>) -> Result<Work, RpcError> {
        if name.starts_with("terminal/") && !self.options.terminal {
            return Err(RpcError::new(code::METHOD_NOT_FOUND, "terminals are switched off on this server"));
        }
        let kind = match name {
            method::READ_FILE => Kind::Read(parse(params)?),
            method::WRITE_FILE => Kind::Write(parse(params)?),
            method::TERMINAL_CREATE => Kind::Create(parse(params)?),
            method::TERMINAL_OUTPUT => Kind::Output(parse(params)?),
            method::TERMINAL_WAIT => Kind::Wait(parse(params)?),
            method::TERMINAL_KILL => Kind::Kill(parse(params)?),
            method::TERMINAL_RELEASE => Kind::Release(parse(params)?),
            _ => return Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method `{name}`"))),
        };
        Ok(Work { session: session.clone(), kind })
    }
}

impl Work {
    async fn run(self, options: Arc<AcpOptions>) -> Result<Value, RpcError> {
        let Self { session, kind } = self;
        match kind {
            Kind::Read(request) => {
                let read = move || session.workspace.read(&request);
                Ok(json!({"content": blocking(read).await?}))
            }
            Kind::Write(request) => {
                blocking(move || session.workspace.write(&request)).await?;
                Ok(json!({}))
            }
            Kind::Create(request) => {
                let created = session.terminals.create(&request, &session.workspace, &options);
                if !session.spend(0) {
                    // The prompt has ended meanwhile, and with it its terminals.
                    session.terminals.clear();
                }
                created
            }
            Kind::Output(request) => session.terminals.output(&request.terminal_id),
            Kind::Wait(request) => session.terminals.wait(&request.terminal_id).await,
            Kind::Kill(request) => session.terminals.kill(&request.terminal_id),
            Kind::Release(request) => session.terminals.release(&request.terminal_id),
        }
    }
}

fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, RpcError> {
    serde_json::from_str(params.get())
        .map_err(|error| RpcError::new(code::INVALID_PARAMS, format!("the parameters are invalid: {error}")))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(target: "attache::acp", %error, "a file request failed");
            Err(RpcError::new(code::INTERNAL, "the request failed"))
        }
    }
}
