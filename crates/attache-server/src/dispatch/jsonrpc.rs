//! JSON-RPC requests, for every transport that carries them: bytes in, one response or a stream of events out.

use std::borrow::Cow;

use attache_core::Reply;
use attache_protocol::jsonrpc::{self, Call, Id, InvalidCall, ParseRules, Parsed, ParsedRequest};
use attache_protocol::{Dialect, Error, Extensions, Operation, Request};

use super::{
    Completed, Dispatcher, Envelope, EventEncoder, Generation, RequestContext, ServiceParameters, to_dialect,
};

/// What a JSON-RPC request is answered with.
pub(crate) enum JsonRpcResponse {
    /// The request was a notification, which gets no response.
    None,
    /// One response.
    Result { body: Vec<u8>, extensions: Extensions },
    /// One response that reports an error. Some transports report the kind of the error beside it.
    Error { body: Vec<u8>, error: Error },
    /// A stream of responses to one id.
    Events { id: Id, events: EventEncoder, extensions: Extensions },
}

impl JsonRpcResponse {
    /// A response that reports an error, as 1.0 has it.
    pub(crate) fn error(id: &Id, error: Error) -> Self {
        Self::Error { body: jsonrpc::error_response(id, &error), error }
    }
}

/// An error with the id of its request, and the dialect that it is reported in.
struct Failure {
    id: Id,
    error: Error,
    dialect: Option<Dialect>,
}

impl Failure {
    fn new(id: Id, error: Error) -> Self {
        Self { id, error, dialect: None }
    }
}

impl Dispatcher {
    /// Answers the bytes of one JSON-RPC request.
    ///
    /// `assume_oldest` is whether a request that could be in protocol 0.1 is taken as such, which depends on the endpoint.
    pub(crate) async fn jsonrpc(
        &self,
        context: &RequestContext,
        parameters: Result<ServiceParameters, Error>,
        assume_oldest: bool,
        body: &[u8],
    ) -> JsonRpcResponse {
        let answer = self.answer_jsonrpc(context, parameters, assume_oldest, body).await;
        if let (Err(failure), Some(record)) = (&answer, &context.record) {
            record.error(&failure.error);
        }
        match answer {
            Ok(response) => response,
            Err(Failure { id, error, dialect: None }) => JsonRpcResponse::error(&id, error),
            Err(Failure { id, error, dialect: Some(dialect) }) => {
                JsonRpcResponse::Error { body: dialect.error_response(&id, &error), error }
            }
        }
    }

    async fn answer_jsonrpc(
        &self,
        context: &RequestContext,
        parameters: Result<ServiceParameters, Error>,
        assume_oldest: bool,
        body: &[u8],
    ) -> Result<JsonRpcResponse, Failure> {
        let options = self.options();
        // These errors need no understanding of the body. The id is echoed where there is one.
        let early = |error| Failure::new(Call::peek_id(body), error);
        let parameters = parameters.map_err(early)?;
        let allows_older = parameters.allows_older(options.strict_version);
        if !allows_older {
            parameters.version(Generation::Current, options.strict_version).map_err(early)?;
        }
        let rules = ParseRules { max_depth: options.max_depth, allow_v0_3: allows_older };
        let (id, method) = Method::parse(body, rules, assume_oldest)
            .map_err(|invalid| Failure::new(invalid.id, invalid.error))?;
        let dialect = method.dialect(&parameters, allows_older);
        // Clients of the earlier iii-a2a call methods by the names of 1.0, too. They state no version, as 1.0 requires.
        let maybe_iii = dialect.is_none() && allows_older && !parameters.states_older();
        let operation = method.operation();
        let parse = || method.into_request(dialect);
        let completed = self.call(context, parameters, operation, dialect, parse).await;
        match (completed, id) {
            (_, None) => Ok(JsonRpcResponse::None),
            (Ok(completed), Some(id)) => Ok(respond(id, completed, dialect, maybe_iii)),
            (Err(error), Some(id)) => Err(Failure { id, error, dialect }),
        }
    }
}

/// The method of a JSON-RPC request with its parameters, as far as they can be parsed before the version is settled.
enum Method<'a> {
    Parsed(Option<Dialect>, Request),
    Current(Operation, &'a [u8]),
    Older(Dialect, Cow<'a, str>, &'a [u8]),
    Unknown(Cow<'a, str>),
}

impl<'a> Method<'a> {
    fn parse(
        body: &'a [u8],
        rules: ParseRules,
        assume_oldest: bool,
    ) -> Result<(Option<Id>, Self), InvalidCall> {
        let Call { id, method, params } = match jsonrpc::parse(body, rules)? {
            Parsed::Request(ParsedRequest { id, request, dialect }) => {
                return Ok((Some(id), Self::Parsed(dialect, request)));
            }
            Parsed::Call(call) => call,
        };
        if let Some(alias) = Dialect::iii_alias(&method, params).filter(|_| rules.allow_v0_3) {
            return Ok((id, Self::Older(Dialect::Iii, alias.into(), params)));
        }
        if let Some(operation) = Operation::from_name(&method) {
            return Ok((id, Self::Current(operation, params)));
        }
        let dialect = match assume_oldest {
            true => Dialect::of_v0_1(&method, params),
            false => Dialect::of(&method, params),
        };
        Ok(match dialect {
            Some(dialect) => (id, Self::Older(dialect, method, params)),
            None => (id, Self::Unknown(method)),
        })
    }

    /// The dialect of the request; `None` for 1.0.
    fn dialect(&self, parameters: &ServiceParameters, allows_older: bool) -> Option<Dialect> {
        match self {
            Self::Parsed(dialect, _) => *dialect,
            // A client that states 0.3 gets 0.3 and nothing beside it.
            Self::Older(Dialect::Either, ..) if parameters.states_older() => Some(Dialect::V0_3),
            Self::Older(dialect, ..) if allows_older => Some(*dialect),
            // The error for an unknown method is reported in the dialect of the client.
            Self::Unknown(method) if allows_older && (parameters.states_older() || method.contains('/')) => {
                Some(Dialect::V0_3)
            }
            Self::Older(..) | Self::Current(..) | Self::Unknown(_) => None,
        }
    }

    fn operation(&self) -> Option<Operation> {
        match self {
            Self::Parsed(_, request) => Some(request.operation()),
            Self::Current(operation, _) => Some(*operation),
            Self::Older(_, method, _) => Dialect::operation(method),
            Self::Unknown(_) => None,
        }
    }

    fn into_request(self, dialect: Option<Dialect>) -> Result<Request, Error> {
        match self {
            Self::Parsed(_, request) => Ok(request),
            Self::Current(operation, params) => operation.parse(params),
            Self::Older(_, method, params) if let Some(dialect) = dialect => dialect.read(&method, params),
            Self::Unknown(method) if let Some(dialect) = dialect => dialect.read(&method, b"{}"),
            Self::Older(_, method, _) | Self::Unknown(method) => {
                let known = Operation::ALL.iter().map(|operation| operation.name());
                Err(Error::method_not_found(&method, known))
            }
        }
    }
}

fn respond(id: Id, completed: Completed, dialect: Option<Dialect>, maybe_iii: bool) -> JsonRpcResponse {
    let Completed { reply, extensions } = completed;
    if let Reply::Events(events, view) = reply {
        let envelope = Envelope::JsonRpc(id.clone(), dialect.map(|dialect| (dialect, dialect.events())));
        return JsonRpcResponse::Events { id, events: EventEncoder::new(events, view, envelope), extensions };
    }
    let mut body = Vec::with_capacity(1024);
    match (dialect, &reply) {
        // A client of iii reads the member `task`, a client of 1.0 the other members.
        (None, Reply::Task(snapshot, view)) if maybe_iii => jsonrpc::write_response(&id, &mut body, |out| {
            reply.write(out);
            if out.pop_if(|last| *last == b'}').is_some() {
                out.extend_from_slice(b",\"task\":");
                Dialect::Iii.write_task(&snapshot.viewed(*view).with_chosen_id(), out);
                out.push(b'}');
            }
        }),
        (None, _) => reply.write_response(&id, &mut body),
        (Some(dialect), _) => {
            jsonrpc::write_response(&id, &mut body, |out| dialect.write(&to_dialect(&reply), out));
        }
    }
    JsonRpcResponse::Result { body, extensions }
}
