//! What `attache serve` prints when it listens.

use std::io::Write;

use attache::server::{LocalAddress, Paths};

use crate::config::Callers;

/// The engine that runs with the agent.
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
}

impl Announcement {
    pub(super) fn say(&self, address: &LocalAddress, hosted: Option<Hosted<'_>>) {
        let mut out = anstream::stderr().lock();
        // A closed standard error is ignored.
        let _ = self.write(&mut out, address, hosted);
    }

    fn write(
        &self,
        out: &mut dyn Write,
        address: &LocalAddress,
        hosted: Option<Hosted<'_>>,
    ) -> std::io::Result<()> {
        let scheme = if self.encrypted { "https" } else { "http" };
        let (listening, url, curl) = match address {
            LocalAddress::Tcp(address) => {
                let url = format!("{scheme}://{address}");
                (url.clone(), url, "curl -s".to_owned())
            }
            LocalAddress::Unix(path) => {
                let path = path.display();
                (
                    format!("unix:{path}"),
                    "http://localhost".to_owned(),
                    format!("curl -s --unix-socket '{path}'"),
                )
            }
        };
        let authority = url.split_once("://").map_or(url.as_str(), |(_, authority)| authority);
        writeln!(out, "Listening on {listening}\n")?;
        writeln!(out, "  card       {url}/.well-known/agent-card.json")?;
        let jsonrpc = self.paths.jsonrpc.first().map_or("/", String::as_str);
        writeln!(out, "  JSON-RPC   {url}{jsonrpc}")?;
        writeln!(out, "  HTTP+JSON  {url}{}", self.paths.http_json.as_deref().unwrap_or_default())?;
        if self.paths.grpc {
            writeln!(out, "  gRPC       {authority}")?;
        }
        if let Some(Hosted { engine, .. }) = &hosted {
            writeln!(out, "  workers    {engine}")?;
        }
        writeln!(out, "  tasks      {}", self.kept)?;
        if let Some(config) = &self.config {
            writeln!(out, "  settings   {config}")?;
        }
        if let Some(callers) = &self.callers {
            writeln!(out, "  callers    {}", callers.summary())?;
        }
        writeln!(out)?;
        let credential = self.callers.as_ref().map(Callers::on_the_command_line).unwrap_or_default();
        let send = |text: &str| {
            let text = text.replace('"', "\\\"");
            format!(
                "  {curl} {url}{jsonrpc} -H 'Content-Type: application/json' -H 'A2A-Version: 1.0'{credential} \\\n    -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{{\"message\":{{\"messageId\":\"m1\",\"role\":\"ROLE_USER\",\"parts\":[{{\"text\":\"{text}\"}}]}}}}}}'"
            )
        };
        match hosted {
            None => writeln!(out, "Try:\n{}\n", send("Hello")),
            Some(Hosted { demo: true, .. }) => {
                writeln!(out, "Try, in another terminal:\n")?;
                writeln!(out, "  # which skills there are")?;
                writeln!(
                    out,
                    "  {curl} {url}/.well-known/agent-card.json | jq '.skills[] | {{id, description, examples}}'\n"
                )?;
                writeln!(out, "  # call one")?;
                writeln!(out, "{}\n", send(r#"pricing::quote {"sku": "A-1", "quantity": 3}"#))?;
                writeln!(out, "  # follow one that takes its time")?;
                let stream = send(r#"demo::count {"to": 5}"#);
                writeln!(
                    out,
                    "{}\n",
                    stream.replace("curl -s", "curl -sN").replace("SendMessage", "SendStreamingMessage")
                )?;
                writeln!(
                    out,
                    "  # a skill of your own: connect a worker of the iii SDK to the address above, register a function with the"
                )?;
                writeln!(
                    out,
                    "  # metadata {{\"a2a.expose\": true}}, and look at the card again (examples/iii has workers in Rust, Node and Python)\n"
                )
            }
            Some(Hosted { engine, demo: false }) => {
                writeln!(
                    out,
                    "No functions yet: connect an iii worker to {engine} and register one with the metadata {{\"a2a.expose\": true}}."
                )?;
                writeln!(
                    out,
                    "There are workers in Rust, Node and Python in examples/iii; `--demo` brings sample functions along.\n"
                )
            }
        }
    }
}
