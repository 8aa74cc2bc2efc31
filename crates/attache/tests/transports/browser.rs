//! Pages in Chromium, as clients over WebSocket.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use crate::peers::{PATIENCE, keep};
use crate::{program, serve};

/// Runs a test, or says that there is no browser.
fn with_chromium(test: impl AsyncFnOnce(&'static str)) {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let mut command = std::process::Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    match found {
        Some(browser) => keep("Chromium", None, test(browser)),
        None => keep("Chromium", Some("Chromium is not installed".to_owned()), async {}),
    }
}

/// Serves pages, and hears what they report.
struct Pages {
    port: u16,
    /// Where the next report goes.
    report: Report,
}

type Report = Arc<Mutex<Option<oneshot::Sender<String>>>>;

impl Pages {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pages = Self { port: listener.local_addr().unwrap().port(), report: Arc::default() };
        let report = pages.report.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, report.clone()));
            }
        });
        pages
    }

    /// What a page reports in the end. The browser is ended then, and so is its profile.
    async fn reported(&self, browser: &str, url: &str) -> String {
        let (report, reported) = oneshot::channel();
        *self.report.lock().unwrap() = Some(report);
        let profile = tempfile::tempdir().unwrap();
        let _browser = Browser::start(browser, profile.path(), url);
        tokio::time::timeout(2 * PATIENCE, reported).await.expect("the page reports").unwrap()
    }
}

/// Answers one request: for a page, or with a report.
async fn answer(mut stream: TcpStream, reported: Report) {
    let mut request = Vec::new();
    let (head, mut body) = loop {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).into_owned();
            break (head, request.split_off(end + 4));
        }
    };
    let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let page = match path {
        "report" => {
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            while body.len() < length && stream.read_buf(&mut body).await.unwrap_or(0) > 0 {}
            if let Some(report) = reported.lock().unwrap().take() {
                let _ = report.send(String::from_utf8_lossy(&body).into_owned());
            }
            String::new()
        }
        "page.html" | "resume.html" => std::fs::read_to_string(program(path)).unwrap(),
        _ => String::new(),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    let _ = stream.write_all((head + &page).as_bytes()).await;
}

/// A browser with all of its processes; killed when dropped.
struct Browser(Child);

impl Browser {
    fn start(browser: &str, profile: &std::path::Path, url: &str) -> Self {
        let mut command = Command::new(browser);
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        Self(command.spawn().expect("the browser starts"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let pid =
            self.0.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

const TOKEN: &str = "a-token-for-the-page-in-the-tests";

#[test]
fn a_page_in_chromium_follows_a_task_if_its_origin_is_allowed_and_its_token_is_right() {
    with_chromium(async |browser| {
        let pages = Pages::start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("attache.yml");
        let origin = format!("http://127.0.0.1:{}", pages.port);
        let settings = format!(
            "agent: echo\ncors: {{ origins: [\"{origin}\"] }}\nauth: {{ bearer: [{{ name: page, token: {TOKEN} }}] }}\n"
        );
        std::fs::write(&config, settings).unwrap();
        let server = serve(&["--config", config.to_str().unwrap()]).await;
        let port = server.address.rsplit(':').next().unwrap();
        let reported = pages.reported(browser, &format!("{origin}/page.html#{port}:{TOKEN}")).await;
        assert!(reported.starts_with("received "), "{reported}");
        let reported = pages.reported(browser, &format!("{origin}/page.html#{port}:wrong")).await;
        assert_eq!(reported, "error -32050");
        // The same server under another name is another origin.
        let other = format!("http://localhost:{}/page.html#{port}:{TOKEN}", pages.port);
        assert_eq!(pages.reported(browser, &other).await, "refused");
    });
}

#[test]
fn a_page_in_chromium_gets_every_event_once_though_its_connections_break() {
    with_chromium(async |browser| {
        let pages = Pages::start().await;
        let folder = tempfile::tempdir().unwrap();
        let (config, script) = (folder.path().join("attache.yml"), folder.path().join("agent.sh"));
        std::fs::write(&script, "for n in 1 2 3 4 5 6 7 8; do echo line $n; sleep 0.1; done\n").unwrap();
        let origin = format!("http://127.0.0.1:{}", pages.port);
        let settings = format!(
            "program: {{ command: sh {} }}\ncors: {{ origins: [\"{origin}\"] }}\nauth: {{ bearer: [{{ name: page, token: {TOKEN} }}] }}\n",
            script.display()
        );
        std::fs::write(&config, settings).unwrap();
        let server = serve(&["--config", config.to_str().unwrap()]).await;
        let port = server.address.rsplit(':').next().unwrap();
        let reported = pages.reported(browser, &format!("{origin}/resume.html#{port}:{TOKEN}")).await;
        let (numbers, rest) = reported.split_once(' ').unwrap_or_else(|| panic!("{reported}"));
        let numbers: Vec<u64> = numbers.split(',').map(|number| number.parse().expect(&reported)).collect();
        let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "each event once, in order");
        assert!(numbers.len() > 5 && rest == "5 connections TASK_STATE_COMPLETED", "{reported}");
    });
}
