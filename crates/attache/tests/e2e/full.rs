//! A server with more connections than the operating system has files for.

use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::home::Home;
use crate::support::Program;

/// How long a health check may take, whatever else there is.
const HEALTHY: Duration = Duration::from_secs(1);

/// Starts a server in a shell that has set a limit on open files, with its tasks in a file. Comes with what it logs about that.
async fn serve(home: &Home, limit: &str) -> (Program, String) {
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let serve = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--store", &store];
    // Nothing is closed because it takes too long.
    let patient = ["first-byte", "header", "body"].map(|what| format!("--limit-{what}-timeout=1h"));
    let arguments: Vec<_> = serve.into_iter().chain(patient.iter().map(String::as_str)).collect();
    let (program, _, mut log) = Program::watched_after(limit, &arguments).await;
    let line = log.line_with("connections=").await;
    tokio::spawn(log.skip());
    (program, line)
}

/// A field of a line of the log.
fn field(line: &str, name: &str) -> usize {
    let value = line.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("no `{name}` in {line}")).parse().expect("a number")
}

/// Asks whether the server is well, over a connection of its own.
async fn health(url: &str) -> (Duration, Result<StatusCode, String>) {
    let began = Instant::now();
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().expect("a client");
    let answer = client.get(format!("{url}/health")).send().await;
    (began.elapsed(), answer.map(|answer| answer.status()).map_err(|error| error.to_string()))
}

/// A connection that says this much and no more.
async fn half_open(program: &Program, beginning: &str) -> TcpStream {
    let address = program.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("it connects");
    stream.write_all(beginning.as_bytes()).await.expect("it can be written to");
    stream
}

/// What clients say that then say nothing more.
const BEGINNINGS: [&str; 4] = [
    "",
    "POST /a2a HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
    "POST /a2a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[tokio::test]
async fn health_checks_and_tasks_go_on_while_half_open_connections_are_more_than_files() {
    let home = Home::new();
    let (program, line) = serve(&home, "ulimit -n 256").await;
    assert_eq!(
        (field(&line, "files"), field(&line, "reserved"), field(&line, "connections")),
        (256, 64, 192)
    );
    let mut half = Vec::new();
    for number in 0..600 {
        half.push(half_open(&program, BEGINNINGS[number % BEGINNINGS.len()]).await);
        if number % 20 == 0 {
            let (took, answer) = health(&program.url).await;
            assert_eq!(answer, Ok(StatusCode::OK), "after {number} connections");
            assert!(took < HEALTHY, "{took:?} after {number} connections");
        }
    }
    let task = program.send("hello", None).await;
    assert!(task["task"]["id"].is_string(), "{task}");
    // The first to come were the first to go, and the last are there.
    let mut closed = Vec::new();
    for stream in &mut half {
        let mut byte = [0; 64];
        // The server's side of HTTP/2 is said at once.
        let read = async {
            loop {
                match stream.read(&mut byte).await {
                    Ok(0) | Err(_) => return true,
                    Ok(_) => {}
                }
            }
        };
        closed.push(tokio::time::timeout(Duration::from_millis(5), read).await.unwrap_or(false));
    }
    assert!(closed[..300].iter().all(|closed| *closed), "{closed:?}");
    assert!(!closed[500..].iter().any(|closed| *closed), "{closed:?}");
}

#[tokio::test]
async fn the_limit_on_open_files_is_raised_as_far_as_it_may_be() {
    let home = Home::new();
    let output = std::process::Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("sh runs");
    let hard = String::from_utf8(output.stdout).expect("text");
    let (_program, line) = serve(&home, "ulimit -Sn 200").await;
    match hard.trim().parse::<usize>() {
        Ok(hard) => assert_eq!(field(&line, "files"), hard, "{line}"),
        // As macOS has it.
        Err(_) => assert!(!line.contains("files=200 "), "{line}"),
    }
}
