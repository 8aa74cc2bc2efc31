//! What `attache serve` prints when it listens.

use std::io::Write;

use attache::server::{LocalAddress, Paths};

use crate::config::Callers;

/// The engine that runs with the agent.
#[derive(Clone, Copy)]
pub(super) struct Hosted<'a> {
    pub(super) engine: &'a str,
    pub(super) demo: bool,
}

/// The addresses of the agent, and commands to try.
pub(super) struct Announcement {
    /// Where tasks are kept.
    pub(super) kept: String,
    pub(super) paths: Paths,
    /// The file of settings.
    pub(super) config: Option<String>,
    /// The callers. Without any, everyone may call.
    pub(super) callers: Option<Callers>,
    /// Whether connections are encrypted.
    pub(super) encrypted: bool,
    /// The names of the named agents.
    pub(super) agents: Vec<String>,
}

impl Announcement {
    pub(super) fn say(&self, addresses: &[LocalAddress], hosted: Option<Hosted<'_>>) {
        let mut out = anstream::stderr().lock();
        // A closed standard error is ignored.
        let is_tcp = |address: &&LocalAddress| matches!(address, LocalAddress::Tcp(_));
        let _ = match addresses.iter().find(is_tcp).or(addresses.first()) {
            Some(main) => {
                let others = addresses.iter().filter(|address| *address != main);
                let others = others.map(|address| format!(" and {}", self.listening(address)));
                self.write(&mut out, main, &others.collect::<String>(), hosted)
            }
            None => writeln!(out, "Answering on standard input and output, until its end."),
        };
    }

    /// An address, as it is printed.
    fn listening(&self, address: &LocalAddress) -> String {
        match address {
            LocalAddress::Tcp(address) if self.encrypted => format!("https://{address}"),
            LocalAddress::Tcp(address) => format!("http://{address}"),
            LocalAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    fn write(
        &self,
        out: &mut dyn Write,
        address: &LocalAddress,
        others: &str,
        hosted: Option<Hosted<'_>>,
    ) -> std::io::Result<()> {
        let listening = self.listening(address);
        let (url, curl, target) = match address {
            LocalAddress::Tcp(_) => (listening.clone(), "curl -s".to_owned(), listening.clone()),
            LocalAddress::Unix(path) => {
                let path = path.display();
                let curl = format!("curl -s --unix-socket '{path}'");
                ("http://localhost".to_owned(), curl, format!("'unix:{path}'"))
            }
        };
        let authority = url.split_once("://").map_or(url.as_str(), |(_, authority)| authority);
        writeln!(out, "Listening on {listening}{others}\n")?;
        writeln!(out, "  card       {url}/.well-known/agent-card.json")?;
        let jsonrpc = self.paths.jsonrpc.first().map_or("/", String::as_str);
        writeln!(out, "  JSON-RPC   {url}{jsonrpc}")?;
        writeln!(out, "  HTTP+JSON  {url}{}", self.paths.http_json.as_deref().unwrap_or_default())?;
        if self.paths.grpc {
            writeln!(out, "  gRPC       {authority}")?;
        }
        if let Some(websocket) =
            self.paths.websocket.as_ref().filter(|_| matches!(address, LocalAddress::Tcp(_)))
        {
            writeln!(out, "  WebSocket  {}{websocket}", url.replacen("http", "ws", 1))?;
        }
        if let Some(Hosted { engine, .. }) = &hosted {
            writeln!(out, "  workers    {engine}")?;
        }
        if !self.agents.is_empty() {
            writeln!(out, "  agents     {url}/agents")?;
            for agent in &self.agents {
                writeln!(out, "             {url}/agents/{agent}")?;
            }
        }
        writeln!(out, "  tasks      {}", self.kept)?;
        if let Some(config) = &self.config {
            writeln!(out, "  settings   {config}")?;
        }
        if let Some(callers) = &self.callers {
            writeln!(out, "  callers    {}", callers.summary())?;
        }
        writeln!(out)?;
        let (curl_flags, flags) = match &self.callers {
            Some(callers) => (callers.on_the_command_line(), callers.as_flags()),
            None => (String::new(), String::new()),
        };
        let by_curl = |text: &str| {
            let text = text.replace('"', "\\\"");
            format!(
                "  {curl} {url}{jsonrpc} \\\n    -H 'Content-Type: application/json' -H 'A2A-Version: 1.0'{curl_flags} \\\n    -d '{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"SendMessage\", \"params\":\n         {{\"message\": {{\"messageId\": \"m1\", \"role\": \"ROLE_USER\",\n          \"parts\": [{{\"text\": \"{text}\"}}]}}}}}}'\n"
            )
        };
        let demo = match hosted {
            Some(Hosted { engine, demo: false }) => {
                writeln!(out, "No functions yet. Connect an iii worker to {engine}")?;
                writeln!(
                    out,
                    "and register a function with the metadata {{\"a2a.expose\": true}}. There are"
                )?;
                writeln!(
                    out,
                    "workers in Rust, Node and Python in examples/iii, and `--demo` brings sample"
                )?;
                writeln!(out, "functions along.\n")?;
                return writeln!(out, "{STOP}\n");
            }
            Some(Hosted { demo: true, .. }) => true,
            None => false,
        };
        writeln!(out, "Try, in another terminal:\n")?;
        if demo {
            writeln!(out, "  # which skills it has\n  attache card {target}{flags}\n")?;
            writeln!(out, "  # call one, and follow one that takes its time")?;
            writeln!(
                out,
                "  attache send {target}{flags} --skill pricing::quote \\\n    '{{\"sku\": \"A-1\", \"quantity\": 3}}'"
            )?;
            writeln!(out, "  attache send {target}{flags} 'demo::count {{\"to\": 5}}'\n")?;
        } else {
            writeln!(out, "  attache send {target}{flags} \"Hello\"\n")?;
        }
        writeln!(out, "  # talk with it\n  attache chat {target}{flags}\n")?;
        writeln!(out, "  # the same with curl")?;
        match hosted {
            Some(Hosted { engine, .. }) => {
                writeln!(out, "{}", by_curl(r#"pricing::quote {"sku": "A-1"}"#))?;
                writeln!(out, "  # a skill of your own: connect a worker of the iii SDK to")?;
                writeln!(out, "  # {engine}, register a function with the metadata")?;
                writeln!(out, "  # {{\"a2a.expose\": true}}, and look at the skills again")?;
                writeln!(out, "  # (examples/iii has workers in Rust, Node and Python)\n")?;
            }
            None => writeln!(out, "{}", by_curl("Hello"))?,
        }
        writeln!(out, "{STOP}\n")
    }
}

/// How to stop it.
const STOP: &str = "Ctrl-C stops the server.";
