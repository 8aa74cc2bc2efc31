//! The dispatcher: the one way in for every transport and binding.
//!
//! A transport frames bytes and knows the peer. A binding says what the bytes mean. Both end here:
//!
//! 1. [`Dispatcher::admit`] authenticates the caller, applies the limits, and yields one immutable [`RequestContext`].
//! 2. [`Dispatcher::call`] settles version and extensions, parses the request, and runs the operation.
//!
//! For JSON-RPC, [`Dispatcher::jsonrpc`] does the second step for the bytes of one JSON-RPC request. A transport that carries
//! JSON-RPC only has to frame what comes out: one response, or a stream of events.

mod encode;
mod jsonrpc;
mod parameters;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache_core::{
    FoundContent, Identity, Permit, Prepared, Principal, Quota, Reply, RequestTerms, Seq, Service,
};
use attache_protocol::{Dialect, Error, ErrorKind, Extensions, Operation, Request, TaskId};
use futures::future::{Either, TryFutureExt};
use http::HeaderMap;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::encode::{Envelope, EventEncoder, http_error_body, http_error_body_for, to_dialect};
pub(crate) use self::jsonrpc::JsonRpcResponse;
pub(crate) use self::parameters::{
    Generation, ServiceParameters, TRACE_PARENT, names_extension, stated_version, trace_parent,
};

use crate::audit::{self, Denial};
use crate::auth::{self, Authenticator, Denied};
use crate::limits::load::{self, InFlight, Load};
use crate::limits::{Account, Admission, Limits, Origin, Resource};
use crate::request_log::{RequestRecord, Threshold};
use crate::{Peer, ServerOptions};

/// Takes requests of every transport to the service. Cheap to clone; all clones are one dispatcher.
#[derive(Clone)]
pub(crate) struct Dispatcher(Arc<Inner>);

struct Inner {
    service: Service,
    options: ServerOptions,
    /// The base URL of the agent.
    base: Arc<str>,
    /// `None` if the server does not authenticate callers itself.
    authenticator: Option<Arc<dyn Authenticator>>,
    limits: SharedLimits,
    stopping: AtomicBool,
}

/// What is counted and limited for all agents of a server together. Cheap to clone: all clones count together.
#[derive(Clone)]
pub(crate) struct SharedLimits {
    admission: Arc<Admission>,
    load: Arc<Load>,
    request_log: Arc<Threshold>,
    /// Removes the accounts of callers that are gone. Aborted with the last clone.
    _maintenance: Arc<AbortOnDropHandle<()>>,
}

impl SharedLimits {
    /// Call it within a tokio runtime.
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let load = Load::new(options.max_requests);
        let request_log = Arc::new(Threshold::new(options.request_log));
        Self::with_admission(options.limits.clone(), load, request_log)
    }

    /// The same, with other limits on callers.
    pub(crate) fn with_callers(&self, limits: Limits) -> Self {
        Self::with_admission(limits, self.load.clone(), self.request_log.clone())
    }

    /// Changes the limits on callers.
    pub(crate) fn set_callers(&self, limits: Limits) {
        self.admission.set_limits(limits);
    }

    fn with_admission(limits: Limits, load: Arc<Load>, request_log: Arc<Threshold>) -> Self {
        let admission = Arc::new(Admission::new(limits));
        let maintenance = tokio::spawn(admission.clone().run_maintenance());
        let _maintenance = Arc::new(AbortOnDropHandle::new(maintenance));
        Self { admission, load, request_log, _maintenance }
    }
}

/// What a transport knows about a request before its payload is parsed.
pub(crate) struct RequestHead<'a> {
    /// The binding that answers, if it is one; named in the audit log.
    pub(crate) binding: Option<&'static str>,
    /// Service parameters and credentials. Transports without headers fill them from their frames.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: Option<&'a str>,
    pub(crate) peer: &'a Peer,
    /// What limits apply to: the address of the peer, or that in the header of a trusted proxy.
    pub(crate) origin: Origin,
    /// What the request asks for, for the audit log.
    pub(crate) target: Target<'a>,
    pub(crate) access: Access,
    /// Where the request log notes what becomes known, if the request may be logged.
    pub(crate) record: Option<&'a Arc<RequestRecord>>,
    /// The base URL under which the client knows the agent, if it is not the agent's own.
    pub(crate) base: Option<Arc<str>>,
}

/// What a request is addressed to, as the audit log names it: for HTTP, method and path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a>(pub(crate) &'a str, pub(crate) &'a str);

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

/// Which checks a request has to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// The caller is authenticated where the server authenticates callers.
    Authenticated,
    /// The request opens a connection. Credentials that it has must be valid, but it may have none: each message of the connection is
    /// admitted on its own.
    Optional,
    /// The request is answered without credentials.
    Public,
    /// The same, and no rate limit applies.
    Health,
    /// The transport has established who the caller is.
    Established(Identity),
}

/// Everything that is known about an admitted request. It does not change while the request is processed.
pub(crate) struct RequestContext {
    /// The caller, with its rights.
    pub(crate) identity: Identity,
    /// The address that the request comes from.
    pub(crate) address: Option<IpAddr>,
    /// The name of the binding, for the audit log.
    pub(crate) binding: &'static str,
    /// The account that the request is charged to, if limits apply to the caller.
    pub(crate) account: Option<Arc<Account>>,
    /// Where the request log notes what becomes known, if the request may be logged.
    pub(crate) record: Option<Arc<RequestRecord>>,
    /// The base URL under which the client knows the agent.
    base: Arc<str>,
}

/// A request that passed admission.
pub(crate) struct Admitted {
    pub(crate) context: RequestContext,
    /// Counts against the caller's requests until it is dropped. Streams give it back when they begin.
    pub(crate) permit: Option<Permit>,
}

/// Why a request was not admitted.
pub(crate) enum Rejection {
    /// Authentication failed.
    Denied(Denied),
    /// The caller is over a limit.
    Limited(Error),
}

impl Rejection {
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Denied(denied) => denied.error(),
            Self::Limited(error) => error.clone(),
        }
    }
}

/// The reply to a request, and the extensions that are active for it.
pub(crate) struct Completed {
    pub(crate) reply: Reply,
    pub(crate) extensions: Extensions,
}

impl Dispatcher {
    pub(crate) fn new(
        service: Service,
        options: ServerOptions,
        base: &str,
        authenticator: Option<Arc<dyn Authenticator>>,
        limits: SharedLimits,
    ) -> Self {
        let (stopping, base) = (AtomicBool::new(false), base.into());
        Self(Arc::new(Inner { service, options, base, authenticator, limits, stopping }))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.0.limits.admission
    }

    pub(crate) fn authenticator(&self) -> Option<&dyn Authenticator> {
        self.0.authenticator.as_deref()
    }

    pub(crate) fn load(&self) -> &Arc<Load> {
        &self.0.limits.load
    }

    pub(crate) fn request_log(&self) -> &Threshold {
        &self.0.limits.request_log
    }

    /// Whether the server was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stopping(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    /// Counts a request as in flight. `None` if the server processes as many as it may.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        self.0.limits.load.begin()
    }

    /// Counts a request as in flight, and admits it.
    pub(crate) async fn enter(&self, head: &RequestHead<'_>) -> Result<(InFlight, Admitted), Error> {
        let entered = match self.begin() {
            Some(in_flight) => self.admit(head).await.map(|admitted| (in_flight, admitted)),
            None => Err(Rejection::Limited(load::too_many())),
        };
        entered.map_err(|rejection| {
            let error = rejection.error();
            if let Some(record) = head.record {
                record.denied(&error);
            }
            error
        })
    }

    /// Authenticates the caller and applies the limits, in this order: the rate of the address, the credentials, the rate of the
    /// caller, the caller's requests at once. Denials are logged here.
    pub(crate) async fn admit(&self, head: &RequestHead<'_>) -> Result<Admitted, Rejection> {
        let admission = &self.0.limits.admission;
        let limited = |principal: &Principal, error: Error| {
            self.log_denial(head, principal, error.message(), error.kind().http_status());
            Rejection::Limited(error)
        };
        let address_account = match head.access {
            Access::Health => None,
            Access::Authenticated | Access::Optional | Access::Public | Access::Established(_) => {
                admission.check_origin(head.origin).map_err(|error| limited(&Principal::Anonymous, error))?
            }
        };
        let identity = match (&head.access, &self.0.authenticator) {
            (Access::Established(identity), _) => identity.clone(),
            (Access::Authenticated | Access::Optional, Some(authenticator)) => {
                match (auth::authenticate(&**authenticator, head.into()).await, &head.access) {
                    (Ok(_) | Err(Denied::Missing), Access::Optional) => Identity::default(),
                    (Ok(identity), _) => identity,
                    (Err(denied), _) => {
                        let status = denied.error().kind().http_status();
                        self.log_denial(head, &Principal::Anonymous, denied.reason(), status);
                        return Err(Rejection::Denied(denied));
                    }
                }
            }
            (Access::Authenticated | Access::Optional | Access::Public | Access::Health, _) => {
                Identity::default()
            }
        };
        let limited = |error: Error| limited(&identity.principal, error);
        let account = admission.check_principal(&identity.principal, address_account).map_err(limited)?;
        let permit = match head.binding {
            Some(_) => admission.acquire(account.as_ref(), Resource::Requests).await.map_err(limited)?,
            None => None,
        };
        let binding = head.binding.unwrap_or(NO_BINDING);
        let record = head.record.cloned();
        if let Some(record) = &record {
            record.caller(&identity.principal);
        }
        let base = head.base.as_ref().unwrap_or(&self.0.base).clone();
        let context =
            RequestContext { identity, address: head.origin.address(), binding, account, record, base };
        Ok(Admitted { context, permit })
    }

    /// Runs the operation that an admitted request asks for.
    ///
    /// `operation` is the operation, if it is known before the request is parsed. `dialect` is the dialect of the request, if it is
    /// not in 1.0. `parse` yields the request. It runs last: a client with the wrong version, or of an operation that the agent does
    /// not offer, gets that error first.
    pub(crate) fn call<'a>(
        &'a self,
        context: &'a RequestContext,
        parameters: ServiceParameters,
        operation: Option<Operation>,
        dialect: Option<Dialect>,
        parse: impl FnOnce() -> Result<Request, Error>,
    ) -> impl Future<Output = Result<Completed, Error>> + Send {
        // Everything that needs no waiting happens here, so that the future is small.
        let begun = self.begin_call(context, parameters, operation, dialect, parse);
        let record = context.record.as_ref();
        async move {
            let completed = match begun {
                Ok((running, extensions)) => running.await.map(|reply| (reply, extensions)),
                Err(error) => Err(error),
            };
            match (completed, record) {
                (Ok((reply, extensions)), None) => Ok(Completed { reply, extensions }),
                (Ok((reply, extensions)), Some(record)) => {
                    Ok(Completed { reply: record.reply(reply), extensions })
                }
                (Err(error), record) => {
                    if let Some(record) = record {
                        record.error(&error);
                    }
                    Err(error)
                }
            }
        }
    }

    fn begin_call<'a>(
        &'a self,
        context: &'a RequestContext,
        parameters: ServiceParameters,
        operation: Option<Operation>,
        dialect: Option<Dialect>,
        parse: impl FnOnce() -> Result<Request, Error>,
    ) -> Result<(impl Future<Output = Result<Reply, Error>> + Send, Extensions), Error> {
        let version = match dialect {
            Some(dialect) => dialect.version(),
            None => parameters.version(Generation::Current, self.0.options.strict_version)?,
        };
        if let (Some(operation), Some(record)) = (operation, &context.record) {
            record.operation(operation);
        }
        let ServiceParameters {
            extensions,
            idempotency_key,
            delivery_key,
            streams,
            resume,
            trace_parent,
            ..
        } = parameters;
        let turns = self.0.limits.admission.quota(context.account.as_ref(), Resource::Turns);
        let terms = RequestTerms {
            version,
            base: Some(&context.base),
            extensions: &extensions,
            idempotency_key,
            delivery_key,
            dialect,
            turns,
            trace_parent,
        };
        let prepared = self.0.service.begin(context.identity.clone(), terms, operation)?;
        let request = parse()?;
        let active = prepared.caller().extensions.clone();
        Ok((self.execute(context, prepared, request, (resume, streams)), active))
    }

    fn execute<'a>(
        &'a self,
        context: &'a RequestContext,
        prepared: Prepared<'a>,
        request: Request,
        (resume, streams): (Option<Seq>, Option<Quota>),
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        let admission = &self.0.limits.admission;
        let operation = request.operation();
        let tenant = request.tenant().map(Arc::<str>::from);
        let running = match operation {
            Operation::SendStreamingMessage | Operation::SubscribeToTask => {
                let streaming = async move {
                    let permits = self.stream_permits(context, streams.as_ref()).await?;
                    let reply = prepared.call(request, resume).await?;
                    Ok(if let Reply::Events(events, view) = reply {
                        Reply::Events(events.holding(permits), view)
                    } else {
                        reply
                    })
                };
                Either::Left(Box::pin(streaming))
            }
            Operation::SendMessage
            | Operation::GetTask
            | Operation::ListTasks
            | Operation::CancelTask
            | Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig
            | Operation::GetExtendedAgentCard => Either::Right(prepared.call(request, resume)),
        };
        running.inspect_err(move |error| {
            let denial = Denial {
                principal: &context.identity.principal,
                tenant: tenant.as_deref(),
                address: context.address,
                binding: context.binding,
                agent: self.0.service.agent_name(),
                operation: &operation.name(),
                task: audit::task_of(error),
                reason: error.message(),
                status: error.kind().http_status(),
            };
            if audit::denies(error) {
                admission.deny(&denial);
            } else if error.kind() == ErrorKind::TaskNotFound {
                audit::not_found(&denial);
            }
        })
    }

    /// Takes the permits that a stream needs: that of the caller, and that of the transport. They are taken before the request is processed,
    /// so that a request that is refused has not run and can be repeated.
    pub(crate) async fn stream_permits(
        &self,
        context: &RequestContext,
        of_transport: Option<&Quota>,
    ) -> Result<Vec<Permit>, Error> {
        let of_transport = of_transport.map(|quota| quota.try_acquire().ok_or_else(too_many_streams));
        let of_transport = of_transport.transpose()?;
        let of_caller = self.0.limits.admission.acquire(context.account.as_ref(), Resource::Streams).await?;
        Ok(of_transport.into_iter().chain(of_caller).collect())
    }

    /// Opens stored content for an admitted request.
    pub(crate) async fn content(
        &self,
        context: &RequestContext,
        tenant: Option<&str>,
        task: &TaskId,
        id: &str,
    ) -> Result<FoundContent, Error> {
        let principal = &context.identity.principal;
        let found = self.0.service.content(principal, tenant, task, id).await;
        if let Err(error) = &found {
            if let Some(record) = &context.record {
                record.error(error);
            }
            if error.kind() == ErrorKind::TaskNotFound {
                audit::not_found(&Denial {
                    principal,
                    tenant,
                    address: context.address,
                    binding: context.binding,
                    agent: self.0.service.agent_name(),
                    operation: &"download",
                    task: Some(task.as_str()),
                    reason: error.message(),
                    status: error.kind().http_status(),
                });
            }
        }
        found
    }

    /// Logs that a request was rejected before it was parsed.
    pub(crate) fn log_denial(
        &self,
        head: &RequestHead<'_>,
        principal: &Principal,
        reason: &str,
        status: u16,
    ) {
        self.0.limits.admission.deny(&Denial {
            principal,
            tenant: None,
            address: head.origin.address(),
            binding: head.binding.unwrap_or(NO_BINDING),
            agent: self.0.service.agent_name(),
            operation: &head.target,
            task: None,
            reason,
            status,
        });
    }
}

fn too_many_streams() -> Error {
    let text = "too many streams over this transport at once, try again in a moment";
    Error::new(ErrorKind::Unavailable, text).retry_in(Duration::from_secs(1))
}

/// The binding that the logs name for requests that no binding answers.
pub(crate) const NO_BINDING: &str = "HTTP";
