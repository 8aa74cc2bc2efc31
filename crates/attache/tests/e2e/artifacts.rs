//! Large files that agents produce: stored apart, served to the caller that owns the task, removed with the task.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::home::Home;
use crate::support::{Program, free_address, until};

/// Content that compresses badly and is different at every position.
fn content(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

/// Sends a file to the echo agent, which gives it back as an artifact. Returns the task.
async fn echo(url: &str, name: &str, bytes: &[u8], token: Option<&str>) -> Value {
    let part = json!({"raw": STANDARD.encode(bytes), "filename": name, "mediaType": "text/html"});
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = reqwest::Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0").json(&body);
    let request = token.iter().fold(request, |request, token| request.bearer_auth(token));
    let response: Value = request.send().await.expect("it answers").json().await.expect("JSON");
    response["result"]["task"].clone()
}

/// The part of the only artifact of a task.
fn part(task: &Value) -> &Value {
    &task["artifacts"][0]["parts"][0]
}

fn url_of(task: &Value) -> String {
    part(task)["url"].as_str().unwrap_or_else(|| panic!("no URL in {task}")).to_owned()
}

async fn get(url: &str, headers: &[(&str, &str)]) -> (u16, reqwest::header::HeaderMap, Vec<u8>) {
    let request = reqwest::Client::new().get(url);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.expect("it answers");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.expect("a whole body").to_vec())
}

struct TestStore(Home);

impl TestStore {
    fn new() -> Self {
        Self(Home::new())
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.0.path("tasks.db").display())
    }

    fn artifacts(&self) -> PathBuf {
        self.0.path("tasks.db-artifacts")
    }

    async fn serve(&self, more: &[&str]) -> Program {
        let (store, keyring) = (self.store(), self.0.path("keyring.json").display().to_string());
        let mut arguments = vec![
            "serve",
            "--agent",
            "echo",
            "--store",
            &store,
            "--keyring",
            &keyring,
            "--artifacts-inline-limit",
            "1KiB",
        ];
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        Program::command_with(&arguments, &[]).await.0
    }

    async fn store_command(&self, words: &[&str]) -> (Option<i32>, Value, String) {
        let store = self.store();
        let mut arguments = vec!["store"];
        arguments.extend(words);
        arguments.extend(["--json", "--store", &store]);
        let ran = self.0.run(&arguments).await;
        (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_default(), ran.stderr)
    }
}

/// The files with content below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.retain(|path| !path.ends_with("owner.json"));
    found
}

#[tokio::test]
async fn a_large_artifact_has_a_url_with_ranges_and_a_small_one_is_inline() {
    let place = TestStore::new();
    let server = place.serve(&[]).await;
    let small = echo(&server.url, "small.bin", b"small", None).await;
    assert_eq!(part(&small)["raw"], STANDARD.encode("small"));
    assert_eq!(files(&place.artifacts().join("tasks")), Vec::<PathBuf>::new());

    let bytes = content(300_000);
    let task = echo(&server.url, "../../ä\"b.html", &bytes, None).await;
    let (url, metadata) = (url_of(&task), &part(&task)["metadata"]);
    let id = task["id"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/artifacts/{id}/", server.url)), "{url}");
    assert_eq!((metadata["byteSize"].as_u64(), &metadata["mediaType"]), (Some(300_000), &json!("text/html")));
    assert_eq!(part(&task).get("raw"), None);

    let (status, headers, body) = get(&url, &[]).await;
    assert_eq!((status, body == bytes), (200, true));
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("etag"), format!("\"{}\"", metadata["sha256"].as_str().unwrap()));
    assert_eq!(header("content-length"), "300000");
    assert_eq!(header("content-type"), "text/html");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("content-security-policy"), "sandbox; default-src 'none'");
    assert_eq!(
        header("content-disposition"),
        "attachment; filename=\"__b.html\"; filename*=UTF-8''%C3%A4_b.html"
    );

    let (status, part_headers, body) = get(&url, &[("range", "bytes=100-199")]).await;
    assert_eq!((status, body), (206, bytes[100..200].to_vec()));
    assert_eq!(part_headers["content-range"], "bytes 100-199/300000");
    let (status, outside, _) = get(&url, &[("range", "bytes=300000-")]).await;
    assert_eq!((status, &outside["content-range"]), (416, &"bytes */300000".parse().unwrap()));
    let (status, ..) = get(&url, &[("range", "bytes=1-"), ("if-range", "\"other\"")]).await;
    assert_eq!(status, 200);
    let (status, _, body) = get(&url, &[("if-none-match", &header("etag"))]).await;
    assert_eq!((status, body), (304, Vec::new()));
    let head = reqwest::Client::new().head(&url).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], "300000");
    let posted = reqwest::Client::new().post(&url).send().await.unwrap();
    assert_eq!(posted.status(), 405);

    // A page of another origin does not get it, nor does one whose name leads to this machine.
    assert_eq!(
        get(&url, &[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]).await.0,
        403
    );
    assert_eq!(get(&url, &[("host", "evil.example")]).await.0, 403);
    // The name that the client uses is in the URL.
    let renamed = server.url.replace("127.0.0.1", "localhost");
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}});
    let request =
        reqwest::Client::new().post(format!("{renamed}/a2a")).header("A2A-Version", "1.0").json(&request);
    let seen: Value = request.send().await.unwrap().json().await.unwrap();
    assert!(url_of(&seen["result"]).starts_with(&renamed), "{seen}");
}

#[tokio::test]
async fn only_the_owner_of_the_task_gets_its_content() {
    let place = TestStore::new();
    let file = place.0.file(
        "attache.yml",
        "auth:\n  bearer:\n    - { name: alice, token: the-token-of-alice-is-long }\n    - { name: bob, token: the-token-of-bob-is-also-long }\nagents:\n  second: { echo: true }\n",
    );
    let server = place.serve(&["--config", &file]).await;
    let (alice, bob) = ("the-token-of-alice-is-long", "the-token-of-bob-is-also-long");
    let bytes = content(5000);
    let task = echo(&server.url, "a.bin", &bytes, Some(alice)).await;
    let url = url_of(&task);
    let as_caller = async |url: &str, token: &str| {
        let (status, _, body) = get(url, &[("authorization", &format!("Bearer {token}"))]).await;
        (status, body)
    };
    assert_eq!(as_caller(&url, alice).await, (200, bytes.clone()));
    assert_eq!(get(&url, &[]).await.0, 401);
    let id = task["id"].as_str().unwrap();
    let unknown = url.replace(id, "00000000-0000-7000-8000-000000000000");
    let (status, body) = as_caller(&url, bob).await;
    let (other_status, other_body) = as_caller(&unknown, bob).await;
    assert_eq!((status, other_status), (404, 404));
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    assert_eq!(
        text(body).replace(id, "ID"),
        text(other_body).replace("00000000-0000-7000-8000-000000000000", "ID")
    );
    // Nor does a task of the caller give access to content that it does not have.
    let other = echo(&server.url, "b.bin", &content(6000), Some(bob)).await;
    let stolen = url.replace(id, other["id"].as_str().unwrap());
    assert_eq!(as_caller(&stolen, bob).await.0, 404);
    for hostile in
        ["/artifacts/", "/artifacts/x", "/artifacts/x/y", "/artifacts/%2e%2e%2f%2e%2e/etc%2fpasswd"]
    {
        assert_eq!(as_caller(&format!("{}{hostile}", server.url), alice).await.0, 404, "{hostile}");
    }

    // A named agent has its own tasks.
    let named = format!("{}/agents/second", server.url);
    let task = echo(&named, "a.bin", &bytes, Some(alice)).await;
    let url = url_of(&task);
    assert!(url.starts_with(&format!("{named}/artifacts/")), "{url}");
    assert_eq!(as_caller(&url, alice).await, (200, bytes));
    assert_eq!(as_caller(&url.replace("/agents/second", ""), alice).await.0, 404);
}

#[tokio::test]
async fn content_survives_a_kill_and_its_url_follows_the_base_url() {
    let place = TestStore::new();
    let server = place.serve(&[]).await;
    let bytes = content(100_000);
    let task = echo(&server.url, "a.bin", &bytes, None).await;
    let id = task["id"].as_str().unwrap().to_owned();
    server.kill().await;
    let server = place.serve(&["--base-url", "http://localhost:4242/deep"]).await;
    let again = server.call("GetTask", json!({"id": id})).await;
    let url = url_of(&again);
    assert!(url.starts_with("http://localhost:4242/deep/artifacts/"), "{url}");
    let own = url.replace("http://localhost:4242/deep", &server.url);
    assert_eq!(get(&own, &[]).await.2, bytes);
    assert_eq!(part(&again)["metadata"], part(&task)["metadata"]);
    assert!(server.stop().await.success());
    let (code, report, _) = place.store_command(&["check"]).await;
    assert_eq!(
        (code, &report["artifacts"]["references"], &report["artifacts"]["files"]),
        (Some(0), &json!(1), &json!(1))
    );
}

#[tokio::test]
async fn killing_the_server_while_artifacts_are_written_leaves_no_dangling_reference() {
    let place = TestStore::new();
    let server = place.serve(&[]).await;
    let url = server.url.clone();
    let mut acknowledged = Vec::new();
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..4_u8 {
        let url = url.clone();
        senders.spawn(async move {
            let mut done = Vec::new();
            for round in 0..50_u8 {
                let mut bytes = content(20_000);
                bytes[0] = number;
                bytes[1] = round;
                let part = json!({"raw": STANDARD.encode(&bytes)});
                let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
                let request = reqwest::Client::new().post(format!("{url}/a2a")).header("A2A-Version", "1.0");
                let Ok(response) = request.json(&body).send().await else { break };
                let Ok(response) = response.json::<Value>().await else { break };
                done.push((response["result"]["task"]["id"].as_str().unwrap().to_owned(), bytes));
            }
            done
        });
    }
    until("some artifacts are stored", async || files(&place.artifacts().join("tasks")).len() > 20).await;
    server.kill().await;
    while let Some(done) = senders.join_next().await {
        acknowledged.extend(done.unwrap());
    }
    assert!(acknowledged.len() > 10 && acknowledged.len() < 200, "{}", acknowledged.len());
    let (code, report, said) = place.store_command(&["check"]).await;
    assert_eq!(code, Some(0), "{report} {said}");
    let server = place.serve(&[]).await;
    for (id, bytes) in acknowledged {
        let task = server.call("GetTask", json!({"id": id})).await;
        assert_eq!(get(&url_of(&task), &[]).await.2, bytes);
    }
    assert!(server.stop().await.success());
    let (code, ..) = place.store_command(&["compact"]).await;
    assert_eq!(code, Some(0));
    let (_, report, _) = place.store_command(&["check"]).await;
    assert_eq!(report["artifacts"]["leftOver"], 0);
    assert_eq!(files(&place.artifacts().join("temporary")), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn content_over_a_limit_fails_the_turn_and_nothing_else() {
    let place = TestStore::new();
    let server = place.serve(&["--artifacts-max-size", "4KiB", "--artifacts-max-total", "6KiB"]).await;
    let failed = echo(&server.url, "a.bin", &content(5000), None).await;
    assert_eq!(failed["status"]["state"], "TASK_STATE_FAILED");
    let said = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(said.contains("larger than 4096 bytes"), "{said}");
    let stored = echo(&server.url, "a.bin", &content(4000), None).await;
    assert_eq!(get(&url_of(&stored), &[]).await.0, 200);
    let failed = echo(&server.url, "b.bin", &content(3000), None).await;
    let said = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(said.contains("all artifacts of this server together may have 6144 bytes"), "{said}");
    let small = echo(&server.url, "c.bin", b"small", None).await;
    assert_eq!(small["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_store_commands_check_copy_and_remove_content() {
    let place = TestStore::new();
    let server = place.serve(&[]).await;
    let bytes = content(50_000);
    let one = echo(&server.url, "one.bin", &bytes, None).await;
    let two = echo(&server.url, "two.bin", &bytes, None).await;
    assert!(server.stop().await.success());
    let (code, report, _) = place.store_command(&["check"]).await;
    assert_eq!(
        (code, &report["artifacts"]["files"], &report["artifacts"]["references"]),
        (Some(0), &json!(1), &json!(2))
    );

    let copy = place.0.path("copy.db").display().to_string();
    let (code, report, said) = place.store_command(&["backup", &copy]).await;
    assert_eq!((code, &report["artifacts"]["bytes"]), (Some(0), &json!(50_000)), "{said}");
    let checked = place.0.run(&["store", "check", "--json", "--store", &format!("sqlite:{copy}")]).await;
    assert_eq!(checked.code, Some(0), "{checked}");

    let file = |task: &Value| {
        let folder = place.artifacts().join("tasks").join(task["id"].as_str().unwrap());
        files(&folder).pop().unwrap()
    };
    fs::remove_file(file(&one)).unwrap();
    fs::write(file(&two), b"other").unwrap();
    let (code, report, said) = place.store_command(&["check"]).await;
    let problems = report["artifacts"]["problems"].to_string();
    assert_eq!(code, Some(1), "{said}");
    assert!(problems.contains("is missing") && problems.contains("is damaged"), "{problems}");

    let copied = format!("sqlite:{copy}");
    let dry =
        place.0.run(&["store", "forget", "--anonymous", "--dry-run", "--json", "--store", &copied]).await;
    assert!(dry.stdout.contains("\"artifacts\": 2"), "{dry}");
    let forgotten = place.0.run(&["store", "forget", "--anonymous", "--json", "--store", &copied]).await;
    assert_eq!(forgotten.code, Some(0), "{forgotten}");
    let folder = PathBuf::from(format!("{copy}-artifacts"));
    assert_eq!(files(&folder.join("tasks")).len() + files(&folder.join("content")).len(), 0);
}

#[tokio::test]
async fn a_temporary_folder_is_removed_with_the_server() {
    let home = Home::new();
    let folder = home.path("temporary").display().to_string();
    let arguments = [
        "serve",
        "--agent",
        "echo",
        "--listen",
        "127.0.0.1:0",
        "--artifacts",
        &folder,
        "--artifacts-inline-limit",
        "1KiB",
    ];
    let (server, _) = Program::command(&arguments).await;
    let task = echo(&server.url, "a.bin", &content(5000), None).await;
    assert_eq!(get(&url_of(&task), &[]).await.0, 200);
    assert_eq!(files(Path::new(&folder)).len(), 3, "the content with its two names, and the lock");
    assert!(server.stop().await.success());
    assert_eq!(files(Path::new(&folder)), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn paths_of_this_machine_are_no_urls_for_other_machines() {
    let open = ["--listen", "0.0.0.0:0", "--insecure", "--allowed-host", "*"];
    let arguments = [&["serve", "--agent", "echo", "--store", "memory:"], &open[..]].concat();
    let ran = Home::new().run(&[&arguments[..], &["--artifacts-urls", "file"]].concat()).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("set `artifacts.urls` to `http`"), "{ran}");
}

#[tokio::test]
async fn files_have_urls_of_their_own_for_local_clients() {
    let place = TestStore::new();
    let server = place.serve(&["--artifacts-urls", "file"]).await;
    let bytes = content(5000);
    let task = echo(&server.url, "report.pdf", &bytes, None).await;
    let url = url_of(&task);
    let path = url.strip_prefix("file://").unwrap_or_else(|| panic!("{url}"));
    assert!(path.ends_with("/report.pdf"), "{url}");
    assert_eq!(fs::read(path).unwrap(), bytes);
}

/// Passes connections on to a server. The first ones are broken off after some bytes of the answers.
async fn breaking_proxy(listener: TcpListener, server: String, bytes: usize, breaks: usize) {
    let left = Arc::new(AtomicUsize::new(breaks));
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let Ok(upstream) = TcpStream::connect(server.trim_start_matches("http://")).await else { continue };
        let left = left.clone();
        tokio::spawn(async move {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = upstream.into_split();
            let requests =
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let (mut sent, mut chunk) = (0, vec![0; 8 * 1024]);
            while let Ok(count) = from_server.read(&mut chunk).await
                && count > 0
                && to_client.write_all(&chunk[..count]).await.is_ok()
            {
                sent += count;
                let take = |left: usize| left.checked_sub(1);
                if sent > bytes && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
                    break;
                }
            }
            requests.abort();
        });
    }
}

#[tokio::test]
async fn a_download_goes_on_after_the_connection_broke_and_the_hash_is_checked() {
    let place = TestStore::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let public = format!("http://{}", listener.local_addr().unwrap());
    let server = place.serve(&["--base-url", &public]).await;
    let proxy = tokio::spawn(breaking_proxy(listener, server.url.clone(), 100_000, 2));
    let bytes = content(1_000_000);
    let task = echo(&server.url, "../../../escape.bin", &bytes, None).await;
    let id = task["id"].as_str().unwrap();
    let folder = place.0.path("downloads").display().to_string() + "/";
    let ran = place.0.run(&["task", "download", &public, id, "--output", &folder, "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(report["files"][0]["resumedAt"].as_u64().unwrap() > 100_000, "{report}");
    assert_eq!(fs::read(place.0.path("downloads/escape.bin")).unwrap(), bytes);
    assert_eq!(files(&place.0.path("downloads")).len(), 1, "nothing else is left");
    // A second run does not overwrite it.
    let again = place.0.run(&["task", "download", &public, id, "echo", "--output", &folder]).await;
    assert!(again.code == Some(1) && again.stderr.contains("exists already"), "{again}");
    // Content that was changed on the server is not kept.
    let stored = place.artifacts().join("tasks").join(id);
    fs::write(files(&stored).pop().unwrap(), vec![0; 1_000_000]).unwrap();
    let wrong = place.0.path("wrong.bin").display().to_string();
    let ran = place.0.run(&["task", "download", &public, id, "--output", &wrong]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("SHA-256"), "{ran}");
    assert!(!place.0.path("wrong.bin").exists());
    proxy.abort();
}

#[tokio::test]
async fn a_download_that_was_broken_off_goes_on_at_a_restarted_server() {
    let place = TestStore::new();
    let address = free_address();
    let server = place.serve(&["--listen", &address]).await;
    let bytes = content(500_000);
    let task = echo(&server.url, "big.bin", &bytes, None).await;
    let (id, url) = (task["id"].as_str().unwrap(), server.url.clone());
    server.kill().await;
    // What an earlier download has left.
    let hash = part(&task)["metadata"]["sha256"].as_str().unwrap();
    fs::write(place.0.path(&format!("big.bin.{}.partial", &hash[..16])), &bytes[..200_000]).unwrap();
    let target = place.0.path("big.bin").display().to_string();
    let words = ["task", "download", &url, id, "--output", &target, "--json"];
    assert_ne!(place.0.run(&words).await.code, Some(0), "the server is down");
    let server = place.serve(&["--listen", &address]).await;
    let ran = place.0.run(&words).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["files"][0]["resumedAt"], 200_000);
    assert_eq!(fs::read(&target).unwrap(), bytes);
    drop(server);
}

#[tokio::test]
async fn a_gateway_fetches_the_files_of_the_remote_agent_for_its_callers() {
    const TOKEN: &str = "the-token-that-only-the-gateway-has";
    let (there, here) = (TestStore::new(), Home::new());
    let file = there
        .0
        .file("attache.yml", &format!("auth:\n  bearer:\n    - {{ name: gateway, token: {TOKEN} }}\n"));
    let remote = there.serve(&["--config", &file]).await;
    let settings = format!(
        "listen: 127.0.0.1:0\nstore: memory\nremote: {{ url: \"{url}\" }}\nartifacts: {{ inline-limit: 1KiB }}\n\
         delegation:\n  allow-loopback: true\n  agents:\n    - {{ url: \"{url}\", bearer: {TOKEN} }}\n",
        url = remote.url
    );
    let file = here.file("gateway.yml", &settings);
    let (gateway, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
    let bytes = content(50_000);
    let task = echo(&gateway.url, "a.bin", &bytes, None).await;
    let url = url_of(&task);
    assert!(url.starts_with(&gateway.url), "{url}");
    assert_eq!(get(&url, &[]).await.2, bytes);
    assert_eq!(part(&task)["filename"], "a.bin");
}

#[tokio::test]
async fn a_file_that_a_gateway_fetches_counts_in_the_limit_of_the_answer() {
    let there = TestStore::new();
    let remote = there.serve(&[]).await;
    let bytes = content(50_000);
    for (limit, state) in [("60kB", "TASK_STATE_COMPLETED"), ("50kB", "TASK_STATE_FAILED")] {
        let here = Home::new();
        let settings = format!(
            "listen: 127.0.0.1:0\nstore: memory\nremote: {{ url: \"{}\", max-bytes: {limit} }}\nartifacts: {{ inline-limit: 1KiB }}\n",
            remote.url
        );
        let file = here.file("gateway.yml", &settings);
        let (gateway, _) = Program::command_with(&["serve", "--config", &file], &[]).await;
        let task = echo(&gateway.url, "a.bin", &bytes, None).await;
        assert_eq!(task["status"]["state"], state, "{limit}: {task}");
        if state == "TASK_STATE_FAILED" {
            let text = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
            assert_eq!(text, "the answer of the remote agent is larger than the limit of 50000 bytes");
        }
    }
}
