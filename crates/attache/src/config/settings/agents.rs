//! The settings of agents at the root, and of conversations with them. Named agents have the same sections.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attache_agents::OAuthSettings;

use super::super::acp::AcpPermissions;
use super::super::budget::BudgetSettings;
use super::super::conversation::{ContextBusy, ContextEndState};
use super::super::declare::settings;
use super::super::model::{AnyValue, ModelTool};
use super::super::program::{CommandLine, ProgramProtocol};
use super::super::router::RouterRule;
use super::super::secret::Masked;
use super::super::units::{AgentUrl, Count, FromText, HttpUrl, Network, Size, Time};
use crate::command::PreferredBinding;

settings! {
    /// A program on this machine as the agent.
    Program in "program.";

    flags ProgramArgs under "Program" {
        /// The program and its arguments
        #[flag(program, value_name = "COMMAND")]
        #[help = "Serve this program as the agent: it reads a message from its standard input and writes the answer"]
        #[more_help = "The text is split as a shell does. For other options, and to talk in JSON, use `program` in the \
            configuration file."]
        command: Option<CommandLine>,
        /// How the program and the server talk
        protocol: Option<ProgramProtocol>,
        /// The working directory of the program; with `protocol: json` the directory of its conversation, if this is not set
        directory: Option<PathBuf>,
        /// The directory that all conversations of a program with `protocol: json` work in; each has a private one, if this is not set
        workspace: Option<PathBuf>,
        /// Where the private directories of conversations are; below the user's data directory, if this is not set
        data_directory: Option<PathBuf>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        pass_environment: Vec<String>,
        /// How long a message may take; 10 minutes if this is not set
        timeout: Option<FromText<Time>>,
        /// How long the program has to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// How long a program that asked a question waits for the answer; 30 minutes if this is not set
        idle: Option<FromText<Time>>,
        /// How much the program may write for a message; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// How many processes run at once; 16 if this is not set
        processes: Option<FromText<Count>>,
        /// Let callers see what a failed program wrote to its standard error
        show_errors: bool,
        /// How much time each caller may use; without a limit, if this is not set
        budget: Option<BudgetSettings>,
    }
}

settings! {
    /// A language model as the agent.
    Model in "model.";

    flags ModelArgs under "Model" {
        /// The URL of a chat completion API like that of OpenAI
        #[flag(model, value_name = "URL")]
        #[help = "Serve a language model as the agent: the URL of a chat completion API, such as \
            `https://api.openai.com/v1`"]
        #[more_help = "The key of the API is in `ATTACHE_MODEL_KEY`, in the file of `--model-key-file`, or in the \
            configuration file."]
        url: Option<String> as Option<FromText<HttpUrl>>,
        /// The name of the model
        #[flag(model_name, value_name = "NAME")]
        name: Option<String>,
        /// The key of the API
        key: Option<Masked>,
        /// The file that the key of the API is in
        #[flag(model_key_file, value_name = "PATH")]
        key_file: Option<PathBuf>,
        /// The system prompt, at the beginning of every conversation
        system: Option<String>,
        /// Further members of each request, such as `temperature`
        parameters: BTreeMap<String, AnyValue>,
        /// What the model can call: `mcp:NAME` and `agent:NAME` for named agents, and `functions`
        tools: Vec<FromText<ModelTool>>,
        /// Accept images, for models that can see
        images: bool,
        /// The media types of files that the model gets as they are, such as `application/pdf` and `audio/wav`
        files: Vec<String>,
        /// How much of a conversation the model gets; without the oldest turns and results of tools, if it would be more; 256 KiB if this is not set
        max_context: Option<FromText<Size>>,
        /// How long a tool may take; 1 minute if this is not set
        tool_timeout: Option<FromText<Time>>,
        /// How many times in a row the model may call tools before it replies; 16 if this is not set
        max_rounds: Option<FromText<Count>>,
        /// How often a request is repeated if the endpoint is overloaded; 3 times if this is not set
        retries: Option<u32>,
        /// How long the endpoint may add nothing to a reply; 2 minutes if this is not set
        silence: Option<FromText<Time>>,
        /// How many tokens and how much time each caller may use; without a limit, if this is not set
        budget: Option<BudgetSettings>,
    }
}

settings! {
    /// A coding agent as the agent.
    Acp in "acp.";

    flags AcpArgs under "Coding agent" {
        /// The program and its arguments
        #[flag(acp, value_name = "COMMAND")]
        #[help = "Serve a coding agent as the agent: a program that speaks the Agent Client Protocol (ACP)"]
        #[more_help = "The text is split as a shell does, such as `npx @google/gemini-cli --acp`. For other options use `acp` in \
            the configuration file."]
        command: Option<CommandLine>,
        /// The directory that all conversations work in; each has a private one, if this is not set
        #[flag(workspace, value_name = "PATH")]
        #[help = "The directory that all conversations of a coding agent work in, or of a program with `protocol: json`; \
            each has a private one, if this is not set"]
        workspace: Option<PathBuf>,
        /// Where the private directories of conversations are; below the user's data directory, if this is not set
        data_directory: Option<PathBuf>,
        /// The name in the card, and of the records in the store
        name: Option<String>,
        /// The description in the card
        description: Option<String>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        #[flag(pass_env, value_name = "NAME")]
        #[help = "An environment variable of the server that the coding agent, the program or the MCP server gets as well, such as \
            the one with its key; may be repeated"]
        pass_environment: Vec<String> as Vec<String>,
        /// The method of authentication that the program is told to use
        auth_method: Option<String>,
        /// Who decides when the program asks for permission; the caller, if this is not set
        permissions: Option<AcpPermissions>,
        /// How long the caller has to answer a request for permission; 10 minutes if this is not set
        permission_timeout: Option<FromText<Time>>,
        /// Let the program run commands through the server
        terminal: bool,
        /// Let callers see the thoughts of the agent
        show_thoughts: bool,
        /// How long an unused session is kept; as `contexts.idle` says, if this is not set
        idle: Option<FromText<Time>>,
        /// How many sessions there are at once; as `contexts.max` says, if this is not set
        max_sessions: Option<FromText<Count>>,
        /// How long the program may take to start; 2 minutes if this is not set
        start_timeout: Option<FromText<Time>>,
        /// How long a message may take; 1 hour if this is not set
        timeout: Option<FromText<Time>>,
        /// How long the program has to end a canceled prompt, and to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// How much the program may write for a message; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// The longest line that the program may write; 16 MiB if this is not set
        max_line: Option<FromText<Size>>,
        /// The largest text file that the program may read or write through the server; 1 MiB if this is not set
        max_file: Option<FromText<Size>>,
        /// How much of the earlier conversation a new session gets; 256 KiB if this is not set
        max_context: Option<FromText<Size>>,
    }
}

settings! {
    /// Which contexts of agents that hold conversations live, and how their turns follow each other.
    Contexts in "contexts.";

    {
        /// What happens to a message for a context whose turn runs; it waits, if this is not set
        busy: Option<ContextBusy>,
        /// How many messages may wait for one context; 16 if this is not set
        queue_limit: Option<FromText<Count>>,
        /// How long a context may be idle before it is put away; 30 minutes if this is not set
        idle: Option<FromText<Time>>,
        /// How many contexts of an agent live at once; 1,024 if this is not set
        max: Option<FromText<Count>>,
        /// The state of a task after a turn that was successful; completed, if this is not set
        end_state: Option<ContextEndState>,
    }
}

settings! {
    /// What messages to agents that hold conversations may contain.
    Input in "input.";

    {
        /// Further media types that are text
        text_types: Vec<String>,
        /// The media types of other content that are accepted; those that the agent takes, if this is not set
        media_types: Vec<String>,
        /// The largest text of a part, inline or in a file; 1 MiB if this is not set
        max_text: Option<FromText<Size>>,
        /// The largest data of a part, as compact JSON; 1 MiB if this is not set
        max_data: Option<FromText<Size>>,
        /// The largest inline media of a part; 5 MiB if this is not set
        max_media: Option<FromText<Size>>,
        /// The largest file of a workspace that is no text; 25 MiB if this is not set
        max_file: Option<FromText<Size>>,
        /// The largest content of a message in all; 64 MiB if this is not set
        max_total: Option<FromText<Size>>,
        /// Read the content of remote URLs; they are refused, if this is not set
        fetch_urls: bool,
        /// Networks that URLs may lead to although they are not public
        fetch_networks: Vec<FromText<Network>>,
    }
}

settings! {
    /// The tools of an MCP server as the agent.
    Mcp in "mcp.";

    flags McpArgs under "MCP" {
        /// The program of the MCP server and its arguments
        #[flag(mcp, value_name = "COMMAND")]
        #[help = "Serve the tools of an MCP server as the agent: its program with arguments, or its URL"]
        #[more_help = "The text is split as a shell does, such as `npx -y @modelcontextprotocol/server-everything`. For other \
            options use `mcp` in the configuration file."]
        command: Option<CommandLine>,
        /// The URL of an MCP server with streamable HTTP, instead of a program
        url: Option<FromText<HttpUrl>>,
        /// The name in the card; what the server says about itself, if this is not set
        name: Option<String>,
        /// The description in the card; what the server says about itself, if this is not set
        description: Option<String>,
        /// The tools that are skills; all of them, if this is not set
        tools: Vec<String>,
        /// The working directory of the program
        directory: Option<PathBuf>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        pass_environment: Vec<String>,
        /// How long the program has to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// Give every call a process for itself
        exclusive: bool,
        /// The token for a URL
        token: Option<Masked>,
        /// The file that the token for a URL is in
        token_file: Option<PathBuf>,
        /// Headers for a URL
        headers: BTreeMap<String, Masked>,
        /// The OAuth client for a URL
        oauth: Option<OAuthSettings>,
        /// Directories that the server is told about
        roots: Vec<PathBuf>,
        /// The model that answers requests of the server to sample one; they are refused, if this is not set
        sampling: Option<Model>,
        /// How long the server may take to start; 1 minute if this is not set
        start_timeout: Option<FromText<Time>>,
        /// How long a call may take; 10 minutes if this is not set
        timeout: Option<FromText<Time>>,
        /// How long a call waits for the answer to a question; 10 minutes if this is not set
        question_timeout: Option<FromText<Time>>,
        /// How large the result of a call may be; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// How many calls run at once; 64 if this is not set
        calls: Option<FromText<Count>>,
    }
}

settings! {
    /// A remote A2A agent as the agent.
    Remote in "remote.";

    flags RemoteArgs under "Remote agent" {
        /// The address of the agent, or the URL of its card
        #[flag(remote, value_name = "URL")]
        #[help = "Serve a remote A2A agent as if it were this server's own: its address, or the URL of its card"]
        #[more_help = "The address can also name a transport: `unix:PATH`, `stdio:COMMAND`, `ws://…`, `grpc-jsonrpc://…` or \
            `redis-streams://…`. Credentials for the agent are in `delegation.agents` of the configuration file."]
        url: Option<String> as Option<FromText<AgentUrl>>,
        /// Which of its interfaces to use, the best one first; the first one that can be used if this is not set
        prefer: Vec<PreferredBinding>,
        /// The Redis server with its credentials, for a `redis-streams://` address
        redis: Option<Masked>,
        /// How often its card is read; every 5 minutes if this is not set
        refresh: Option<FromText<Time>>,
        /// Wait at the start until the agent can be reached
        wait: bool,
        /// How long a message may take; 1 hour if this is not set
        timeout: Option<FromText<Time>>,
        /// How large an answer may be; 64 MiB if this is not set
        max_bytes: Option<FromText<Size>>,
        /// Show callers the ids of the remote tasks
        show_ids: bool,
        /// How many contexts and tasks are remembered, each; 10000 if this is not set
        max_links: Option<FromText<Count>>,
    }
}

settings! {
    /// A router as the agent.
    Router in "router.";

    {
        /// The agent for messages that name none and match no rule
        #[mark(reload)] default: Option<String>,
        /// Which messages go to which agent; the first rule that matches counts
        #[mark(reload)] rules: Vec<RouterRule>,
    }
}
