//! The tools of an MCP server as the skills of an agent.
//!
//! The server is a program on this machine, which talks over its standard input and output, or has a URL with streamable HTTP. Every
//! tool is a skill. A message calls a tool, and the result is an artifact. Questions of the server (elicitation) go to the caller of
//! the tool, and the call goes on with the answer.
//!
//! One connection serves all callers, unless the server is a program that asks questions: a question over standard output does not
//! say which call it belongs to, so each call then has a process for itself. A connection is opened again for the next message if
//! the server has ended.

mod agent;
mod calls;
mod connection;
mod content;
mod error;
mod handler;
mod http;
mod lines;
mod login;
mod options;
#[doc(hidden)]
pub mod parsing;
mod process;
mod question;
mod request;
mod sampling;
mod tap;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache_iii::Schemas;
use attache_protocol::{AgentCard, Json};
use futures::future::{BoxFuture, FutureExt, TryFutureExt, WeakShared};
use futures::stream::{self, Stream};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};

pub use self::content::ToolOutput;
pub use self::error::{CallError, McpError};
pub use self::login::{LoginPlace, StoredLogin};
pub use self::options::{McpOptions, McpServer};
pub use self::tools::ToolInfo;

use self::agent::{AskedCall, OpenQuestion};
use self::connection::{Catalog, Connection};
use self::http::Http;
use crate::model::Tool;
use crate::waiting::Waiting;

/// An agent whose skills are the tools of an MCP server. Cheap to clone; clones share the connection. The server is stopped when the
/// last clone is dropped.
#[derive(Clone)]
pub struct Mcp(Arc<Inner>);

struct Inner {
    options: Arc<McpOptions>,
    connections: Arc<Mutex<Connections>>,
    /// Whether every call needs a connection for itself.
    exclusive: Arc<AtomicBool>,
    catalog: watch::Sender<Arc<Catalog>>,
    permits: Arc<Semaphore>,
    /// The calls that wait for the answer to a question.
    questions: Waiting<OpenQuestion>,
    /// The calls that wait for permission.
    asked: Waiting<AskedCall>,
    schemas: Schemas,
}

/// The connections to a server.
#[derive(Default)]
struct Connections {
    open: Vec<Arc<Connection>>,
    /// A connection that is being opened for all calls. It is given up when no call waits for it any more.
    opening: Option<WeakShared<Opening>>,
}

type Opening = BoxFuture<'static, Result<Arc<Connection>, Arc<McpError>>>;

impl Mcp {
    /// Where callers of a server with a URL log in. Nothing, if it takes requests without credentials, or if it is a program.
    pub async fn login_place(options: McpOptions) -> Result<Option<LoginPlace>, McpError> {
        options.check()?;
        let McpServer::Url(url) = &options.server else { return Ok(None) };
        let http = Http::new(url, &options, 0)?;
        let found = tokio::time::timeout(options.start_timeout, http.login_place(url)).await;
        let why = match found {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not respond within {} s", options.start_timeout.as_secs_f64()),
        };
        Err(McpError::Connect { server: options.server.to_string(), why })
    }

    /// Starts the server or connects to it, and lists its tools.
    pub async fn connect(options: McpOptions) -> Result<Self, McpError> {
        options.check()?;
        let permits = Arc::new(Semaphore::new(options.max_calls.min(Semaphore::MAX_PERMITS)));
        let is_program = matches!(options.server, McpServer::Program(_));
        let exclusive = Arc::new(AtomicBool::new(options.exclusive && is_program));
        let mcp = Self(Arc::new(Inner {
            options: Arc::new(options),
            connections: Arc::default(),
            exclusive,
            catalog: watch::Sender::default(),
            permits,
            questions: Waiting::default(),
            asked: Waiting::default(),
            schemas: Schemas::default(),
        }));
        mcp.open().await?;
        Ok(mcp)
    }

    /// The tools of the server.
    pub fn tools(&self) -> Vec<ToolInfo> {
        self.catalog().tools.clone()
    }

    /// Calls a tool, without a task. The arguments are checked first. If the tool itself fails, the output has the error.
    pub async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, CallError> {
        self.call_alone(name, arguments).await
    }

    /// The tools of the server, as tools that a [model](crate::model::Model) can call. Characters that models do not allow in names
    /// are replaced.
    ///
    /// ```no_run
    /// use attache_agents::mcp::{Mcp, McpOptions, McpServer};
    /// use attache_agents::model::{Model, ModelOptions};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let time = Mcp::connect(McpOptions::new(McpServer::program(["uvx", "mcp-server-time"]))).await?;
    /// let options = ModelOptions::new("https://api.openai.com/v1", "gpt-4o-mini");
    /// let agent = Model::new(options)?.tools(time.as_model_tools());
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_model_tools(&self) -> Vec<Tool> {
        let mut names: Vec<String> = Vec::new();
        let mut tools = Vec::new();
        for tool in self.tools() {
            let name = model_name(tool.name(), &names);
            names.push(name.clone());
            let (mcp, own_name) = (self.clone(), tool.name().to_owned());
            let description = tool.description().or(tool.title()).unwrap_or(tool.name()).to_owned();
            tools.push(Tool::new(name, description, tool.input_schema().clone(), move |arguments| {
                let (mcp, name) = (mcp.clone(), own_name.clone());
                async move {
                    match mcp.call(&name, arguments).await {
                        Ok(output) if output.is_error => Err(output.failure()),
                        Ok(output) => Ok(output.for_model()),
                        Err(error) => Err(error.to_string()),
                    }
                }
            }));
        }
        tools
    }

    /// The card with the current tools.
    pub fn card(&self) -> AgentCard {
        let catalog = self.catalog();
        tools::card(&self.0.options, &catalog.about, &catalog.tools)
    }

    /// A new card each time that the tools change. The first one comes at once.
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        let mut catalogs = self.0.catalog.subscribe();
        catalogs.mark_changed();
        // The stream must not keep the server from ending, so it does not hold the agent.
        let options = self.0.options.clone();
        stream::unfold((options, catalogs), async |(options, mut catalogs)| {
            catalogs.changed().await.ok()?;
            let catalog = catalogs.borrow_and_update().clone();
            let card = tools::card(&options, &catalog.about, &catalog.tools);
            Some((card, (options, catalogs)))
        })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.borrow().clone()
    }

    /// A connection for a call. It is opened if there is none, or if the server has ended. A server that does not start disturbs no call
    /// that has a connection.
    async fn connection(&self) -> Result<Arc<Connection>, Arc<McpError>> {
        let is_exclusive = self.0.exclusive.load(Ordering::Relaxed);
        if let Some(connection) = self.usable(is_exclusive) {
            return Ok(connection);
        }
        let new = || self.open().map_err(Arc::new).boxed().shared();
        let opening = match is_exclusive {
            true => new(),
            // Calls that can share a connection wait for the same one, and fail together if it cannot be opened.
            false => {
                let mut connections = self.0.connections.lock();
                let opening = connections.opening.as_ref().and_then(WeakShared::upgrade).unwrap_or_else(new);
                connections.opening = opening.downgrade();
                opening
            }
        };
        opening.await
    }

    /// A connection that is open and that the call can use.
    fn usable(&self, is_exclusive: bool) -> Option<Arc<Connection>> {
        let mut connections = self.0.connections.lock();
        // Calls hold their connections, so a connection that only the list holds is idle. One idle connection is kept.
        let mut has_idle = false;
        let mut is_needed = |connection: &mut Arc<Connection>| {
            let is_idle = Arc::strong_count(connection) == 1;
            !(connection.has_ended() || is_idle && std::mem::replace(&mut has_idle, true))
        };
        let unneeded: Vec<_> = connections.open.extract_if(.., |connection| !is_needed(connection)).collect();
        let is_usable = |connection: &&Arc<Connection>| !is_exclusive || Arc::strong_count(connection) == 1;
        let usable = connections.open.iter().find(is_usable).cloned();
        drop(connections);
        // Outside of the lock, because it stops their servers.
        drop(unneeded);
        usable
    }

    /// Opens a connection, and keeps it for later calls. This takes as long as the server takes to start, so it holds no lock.
    fn open(&self) -> impl Future<Output = Result<Arc<Connection>, McpError>> + Send + use<> {
        // Not the agent itself: what is opened for a call must not keep it alive.
        let Inner { options, catalog, exclusive, connections, .. } = &*self.0;
        let (options, catalog) = (options.clone(), catalog.clone());
        let (exclusive, connections) = (exclusive.clone(), connections.clone());
        async move {
            let connection = Arc::new(Connection::open(options, &catalog, &exclusive).await?);
            connections.lock().open.push(connection.clone());
            Ok(connection)
        }
    }

    /// Checks arguments against the schema of their tool.
    async fn check(&self, tool: &ToolInfo, arguments: &Map<String, Value>) -> Result<(), CallError> {
        let invalid = |faults: String| CallError::Arguments { tool: tool.name().to_owned(), faults };
        let payload = Json::new(arguments).map_err(|error| invalid(error.to_string()))?;
        let checked = self.0.schemas.check(&tool.function, &payload).await;
        checked.map_err(|faults| invalid(faults.replace("`payload", "`arguments")))
    }
}

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mcp").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// A name that models allow: at most 64 letters, digits, `_` and `-`. It differs from those that are taken.
fn model_name(name: &str, taken: &[String]) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().map(allowed).take(64).collect();
    if !taken.contains(&name) {
        return name;
    }
    let numbered = |number: usize| {
        let suffix = format!("_{number}");
        let kept: String = name.chars().take(64 - suffix.len()).collect();
        kept + &suffix
    };
    (2..).map(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_models_are_valid_and_differ() {
        assert_eq!(model_name("read_file", &[]), "read_file");
        assert_eq!(model_name("files.read/all", &[]), "files_read_all");
        assert_eq!(model_name("a.b", &["a_b".into()]), "a_b_2");
        let long = model_name(&"x".repeat(100), &["x".repeat(64)]);
        assert_eq!((long.len(), long.ends_with("_2")), (64, true));
    }
}
