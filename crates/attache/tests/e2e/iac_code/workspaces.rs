//! The rows of the reference about workspaces. The agent says in which directory it runs.

use std::path::Path;

use reqwest::Client;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::support::PATIENCE;
use super::{Server, message, settings, settings_with, start, state, status};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::Program;

const INVALID: &str = "Invalid A2A workspace metadata.";

impl Server {
    /// The directory in which the agent runs for this `cwd`, or why it does not run.
    async fn directory(&self, cwd: Option<&Path>) -> Result<String, String> {
        let metadata = cwd.map_or(json!({}), |cwd| json!({"iac_code": {"cwd": cwd}}));
        let sent = self.send(message("where", json!({"metadata": metadata}))).await;
        if state(&sent) == "TASK_STATE_FAILED" {
            return Err(status(&sent).to_owned());
        }
        let history = sent["result"]["task"]["history"].as_array().unwrap();
        let said = history.iter().rfind(|message| message["role"] == "ROLE_AGENT");
        Ok(said.unwrap()["parts"][0]["text"].as_str().unwrap().to_owned())
    }
}

/// Directories for a test, by their names without links.
fn folders<const N: usize>(home: &Home, names: [&str; N]) -> [String; N] {
    names.map(|name| {
        std::fs::create_dir_all(home.path(name)).unwrap();
        home.path(name).canonicalize().unwrap().display().to_string()
    })
}

#[tokio::test]
async fn the_agent_works_in_the_named_directory_or_in_that_of_the_server() {
    if !has_python("iac_code::workspaces::the_agent_works_in_the_named_directory") {
        return;
    }
    let home = Home::new();
    let [own, project] = folders(&home, ["own", "project"]);
    home.file("project/main.tf", "resource {}");
    let arguments = ["serve", "--config", &settings(&home), "--listen", "127.0.0.1:0"];
    let (program, _) = Program::command_in(&own, &arguments, &[]).await;
    let server = Server { program, http: Client::new() };
    assert_eq!(server.directory(None).await, Ok(own.clone()), "the directory of the server");
    assert_eq!(server.directory(Some(Path::new(&project))).await, Ok(project.clone()));
    let more = json!({"metadata": {"iac_code": {"cwd": project}}});
    let listed = server.stream("SendStreamingMessage", json!({"message": message("list", more)})).await;
    let listed = super::work::reports(&listed, "tool").last().map(|tool| tool["result"].clone());
    assert_eq!(listed, Some(json!("main.tf")));
    // The directory for temporary files is allowed, and what is inside of it.
    let temporary = std::env::temp_dir().canonicalize().unwrap();
    assert_eq!(server.directory(Some(&temporary)).await, Ok(temporary.display().to_string()));
}

#[tokio::test]
async fn only_directories_in_the_allowed_roots_are_taken() {
    if !has_python("iac_code::workspaces::only_directories_in_the_allowed_roots_are_taken") {
        return;
    }
    let home = Home::new();
    let [first, inner, second, other] = folders(&home, ["first", "first/inner", "second", "other"]);
    home.file("first/file", "");
    for (link, to) in [("first/out", &other), ("first/in", &inner)] {
        std::os::unix::fs::symlink(to, home.path(link)).unwrap();
    }
    let missing = home.path("missing").display().to_string();
    let roots = std::env::join_paths([&first, &second, &missing]).unwrap().into_string().unwrap();
    let server = start(&home, &[("IACCODE_A2A_ALLOWED_CWDS", &roots)]).await;
    let at = |name: &str| home.path(name).canonicalize().unwrap_or_else(|_| home.path(name));
    for (what, cwd, works_in) in [
        ("a root", at("first"), Ok(&first)),
        ("another root", at("second"), Ok(&second)),
        ("inside of a root", at("first/inner"), Ok(&inner)),
        ("a link that stays inside", Path::new(&first).join("in"), Ok(&inner)),
        ("beside the roots", at("other"), Err(INVALID)),
        ("above the roots", at(""), Err(INVALID)),
        ("the directory for temporary files", std::env::temp_dir(), Err(INVALID)),
        ("a link that leads out", Path::new(&first).join("out"), Err(INVALID)),
        ("a path that leads out", Path::new(&first).join("../other"), Err(INVALID)),
        ("a root that does not exist", missing.clone().into(), Err(INVALID)),
        ("a file", Path::new(&first).join("file"), Err(INVALID)),
        ("a relative path", "inner".into(), Err(INVALID)),
    ] {
        let expected = works_in.cloned().map_err(str::to_owned);
        assert_eq!(server.directory(Some(&cwd)).await, expected, "{what}");
    }
}

#[tokio::test]
async fn trusted_callers_name_every_directory_but_those_with_data_of_the_server() {
    if !has_python("iac_code::workspaces::trusted_callers_name_every_directory") {
        return;
    }
    let home = Home::new();
    let [own, project, data, _] = folders(&home, ["own", "project", "data", "data/tasks"]);
    home.file("data/tasks/task-1.json", "{}");
    let file = settings(&home);
    let store = format!("sqlite:{data}/attache.db");
    let keyring = home.path("keyring.json").display().to_string();
    let arguments =
        ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--store", &store, "--keyring", &keyring];
    let environment = [
        ("IAC_CODE_A2A_TRUST_REQUEST_CWD", "1"),
        ("IACCODE_A2A_ALLOWED_CWDS", &own),
        ("IAC_CODE_A2A_PUSH_KEYRING", "{\"keys\": []}"),
    ];
    let (program, said) = Program::command_with(&arguments, &environment).await;
    for words in [
        "`IAC_CODE_A2A_TRUST_REQUEST_CWD` is set: every caller",
        "the keys in `IAC_CODE_A2A_PUSH_KEYRING` are not used",
        "has data of iac-code, which are not read",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let server = Server { program, http: Client::new() };
    assert_eq!(server.directory(Some(Path::new(&project))).await, Ok(project.clone()));
    assert_eq!(server.directory(Some(Path::new("/usr"))).await, Ok("/usr".to_owned()));
    for (what, path) in [("around the store", "/"), ("missing", "/does/not/exist"), ("relative", "usr")] {
        assert_eq!(server.directory(Some(Path::new(path))).await, Err(INVALID.to_owned()), "{what}");
    }
}

#[tokio::test]
async fn the_log_goes_to_standard_output_where_the_settings_say_so() {
    let home = Home::new();
    let file = settings_with(&home, "log-to-stdout: true\n");
    let mut command = crate::support::attache();
    command.args(["serve", "--config", &file, "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .env("IAC_CODE_A2A_PUSH_KEYRING", "{}")
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(first.contains("WARN") && first.contains("IAC_CODE_A2A_PUSH_KEYRING"), "{first}");
}
