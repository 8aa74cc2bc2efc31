//! What agents write: programs in JSON, coding agents over the Agent Client Protocol, and endpoints of models.
//!
//! Programs are real ones here, which repeat a file, and the endpoint is a real server, which repeats bytes. So time is real too.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use attache_agents::acp::{Acp, AcpOptions};
use attache_agents::model::{Model, ModelOptions, Tool};
use attache_agents::program::{Program, ProgramOptions, Protocol};
use attache_core::{Agent, Identity};
use attache_protocol::AgentCard;
use attache_server::{HttpService, Server};
use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::choice;
use crate::test_server::{JSON, read, surface};

/// After so many questions everything begins anew.
const QUESTIONS: u32 = 256;

/// What the programs repeat.
const OUTPUT: &str = "output";

/// How long a turn may take, so that an agent that waits for what never comes ends soon.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Answers the requests of a client as a coding agent does, and then repeats the file. If there is a second argument, it does so at once.
const CODING_AGENT: &str = r#"
IFS= read -r line
if [ -z "$2" ]; then
    echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}'
    IFS= read -r line
    echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
    IFS= read -r line
fi
cat "$1"
"#;

/// The first byte chooses the agent and how large the pieces of its output are; the rest is the output.
pub fn agent_output(data: &[u8]) {
    let (choice, output) = choice(data);
    thread_local! {
        static AGENTS: RefCell<Option<Agents>> = const { RefCell::new(None) };
    }
    AGENTS.with_borrow_mut(|agents| {
        if agents.as_ref().is_some_and(|agents| agents.asked == QUESTIONS) {
            *agents = None;
        }
        let agents = agents.get_or_insert_with(Agents::build);
        agents.asked += 1;
        std::fs::write(agents.folder.path().join(OUTPUT), output).expect("the folder is ours");
        match choice & 3 {
            0 => drop(agents.ask(&agents.program)),
            1 => drop(agents.ask(&agents.coding_agent)),
            2 => drop(agents.ask(&agents.other_agent)),
            _ => {
                let texts = [output.len().max(1), choice >> 2 | 1].map(|size| {
                    agents.stream.send_replace(Stream { bytes: output.to_vec(), size });
                    text_of(&agents.ask(&agents.model))
                });
                assert_eq!(texts[0], texts[1], "it matters where the network cuts");
            }
        }
    });
}

struct Agents {
    program: HttpService,
    /// One whose handshake is right, and one that repeats the file instead.
    coding_agent: HttpService,
    other_agent: HttpService,
    model: HttpService,
    stream: watch::Sender<Stream>,
    asked: u32,
    runtime: Runtime,
    /// Removed after what uses it.
    folder: TempDir,
}

/// What the endpoint of the model sends, and in pieces of which size.
#[derive(Debug, Clone, Default)]
struct Stream {
    bytes: Vec<u8>,
    size: usize,
}

impl Agents {
    fn build() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs nothing that could be missing");
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        let output = folder.path().join(OUTPUT).display().to_string();
        let (stream, sent) = watch::channel(Stream::default());
        let [program, coding_agent, other_agent, model] = runtime.block_on(async {
            // Writing to a program that has ended is an error, as in every command. libFuzzer leaves it a signal that ends the process.
            #[cfg(unix)]
            let _ = signal(SignalKind::pipe());
            let program = ProgramOptions::new(["cat".to_owned(), output.clone()]).with(|options| {
                options.protocol = Protocol::Json;
                options.directory = Some(folder.path().to_owned());
                (options.timeout, options.grace) = (TIMEOUT, Duration::ZERO);
                (options.idle, options.permission_timeout) = (Duration::ZERO, Duration::ZERO);
                options.max_output = 64 * 1024;
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
            let address = listener.local_addr().expect("it is bound");
            tokio::spawn(endpoint(listener, sent));
            [
                service(Program::new(program)),
                service(coding_agent(folder.path(), &output, None)),
                service(coding_agent(folder.path(), &output, Some("at once"))),
                service(model(address)),
            ]
        });
        Self { program, coding_agent, other_agent, model, stream, asked: 0, runtime, folder }
    }

    /// Whatever an agent writes, its task ends or asks for something.
    fn ask(&self, http: &HttpService) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static("/a2a");
        request.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
        request.headers_mut().insert("a2a-version", HeaderValue::from_static("1.0"));
        request.extensions_mut().insert(Identity::named("alice"));
        let answer = self.runtime.block_on(async { read(http.handle(request).await).await });
        let value: Value = serde_json::from_slice(&answer.body).expect("responses are JSON");
        let state = value["result"]["task"]["status"]["state"].as_str().unwrap_or_else(|| panic!("{value}"));
        let settled = ["COMPLETED", "FAILED", "REJECTED", "INPUT_REQUIRED"];
        assert!(settled.iter().any(|end| state.strip_prefix("TASK_STATE_") == Some(end)), "{value}");
        value
    }
}

fn service(agent: impl Agent) -> HttpService {
    surface(Server::new(agent).card(AgentCard::new("Agent", "Repeats what it is given")).push(false))
}

fn coding_agent(folder: &Path, output: &str, at_once: Option<&str>) -> Acp {
    let command = ["sh", "-c", CODING_AGENT, "agent", output].into_iter().chain(at_once);
    let options = AcpOptions::new(command).with(|options| {
        let workspace = folder.join("workspace");
        std::fs::create_dir_all(&workspace).expect("the folder is ours");
        options.workspace = Some(workspace);
        (options.start_timeout, options.timeout, options.grace) = (TIMEOUT, TIMEOUT, Duration::ZERO);
        (options.idle, options.permission_timeout) = (Duration::ZERO, Duration::ZERO);
        options.max_output = 64 * 1024;
    });
    Acp::new(options).expect("the options are right")
}

fn model(address: SocketAddr) -> Model {
    let options = ModelOptions::new(format!("http://{address}"), "model").with(|options| {
        (options.max_retries, options.max_rounds) = (0, 2);
        options.silence = TIMEOUT;
    });
    let schema = json!({"type": "object"});
    let tool = Tool::new("add", "Repeats its arguments", schema, |arguments| async move { Ok(arguments) });
    Model::new(options).expect("the system has what requests need").tools([tool])
}

/// The text that a client gets.
fn text_of(response: &Value) -> String {
    let artifacts = response["result"]["task"]["artifacts"].as_array().into_iter().flatten();
    let parts = artifacts.filter_map(|artifact| artifact["parts"].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Answers every request of every connection with the stream.
async fn endpoint(listener: TcpListener, sent: watch::Receiver<Stream>) {
    let sent = Arc::new(sent);
    while let Ok((connection, _)) = listener.accept().await {
        let sent = sent.clone();
        tokio::spawn(async move {
            let _ = answer(connection, &sent).await;
        });
    }
}

async fn answer(connection: TcpStream, sent: &watch::Receiver<Stream>) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (reader, mut writer) = connection.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await?;
        let Stream { bytes, size } = sent.borrow().clone();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut response = head.as_bytes().to_vec();
        for piece in bytes.chunks(size.max(1)) {
            response.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            response.extend_from_slice(piece);
            response.extend_from_slice(b"\r\n");
        }
        response.extend_from_slice(b"0\r\n\r\n");
        writer.write_all(&response).await?;
    }
}
