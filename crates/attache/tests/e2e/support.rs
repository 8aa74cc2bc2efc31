//! Programs as users start them, and clients to talk to them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// A running program that listens on a port of this machine; stopped when dropped.
pub(crate) struct Program {
    pub(crate) url: String,
    child: Child,
}

/// What a program says while it runs.
pub(crate) struct Log(Lines<BufReader<ChildStderr>>);

impl Log {
    /// The lines that a program has not said yet.
    pub(crate) fn of(lines: Lines<BufReader<ChildStderr>>) -> Self {
        Self(lines)
    }

    /// The next line with this in it.
    pub(crate) async fn line_with(&mut self, text: &str) -> String {
        let found = async {
            loop {
                let line =
                    self.0.next_line().await.expect("it can be read").expect("it says so before it ends");
                if line.contains(text) {
                    return line;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("it says so")
    }
}

impl Log {
    /// Reads on, so that the program never waits for a reader.
    pub(crate) async fn skip(mut self) {
        while let Ok(Some(_)) = self.0.next_line().await {}
    }
}

/// How long a program may take to do anything. Only a broken one reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The `attache` command, without what the environment tells the tests.
pub(crate) fn attache() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATTACHE_")) {
        command.env_remove(name);
    }
    // Private directories of conversations are here.
    command.env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let met = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, met).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// Runs an example to its end, and gives what it printed.
pub(crate) async fn run_example(name: &str, arguments: &[&str]) -> String {
    let running = Command::new(example_path(name)).args(arguments).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, running).await.expect("it ends").expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

impl Program {
    /// Starts an example on a free port.
    pub(crate) async fn example(name: &str, arguments: &[&str]) -> Self {
        Self::example_with(name, arguments, &[]).await
    }

    /// Starts an example on a free port, in an environment.
    pub(crate) async fn example_with(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let address = free_address();
        let path = example_path(name);
        assert!(path.exists(), "{} is not built: run `cargo build --examples`", path.display());
        let arguments: Vec<String> =
            arguments.iter().map(|argument| argument.replace("ADDR", &address)).collect();
        let arguments = if arguments.is_empty() { vec![address.clone()] } else { arguments };
        let child = Command::new(path)
            .args(arguments)
            .envs(environment.iter().copied())
            .kill_on_drop(true)
            .spawn()
            .expect("the example starts");
        let program = Self { url: format!("http://{address}"), child };
        program.wait_until_it_answers().await;
        program
    }

    /// Starts the `attache` command, which says where it listens. It keeps tasks in memory unless told otherwise.
    pub(crate) async fn command(arguments: &[&str]) -> (Self, String) {
        Self::command_with(arguments, &[("ATTACHE_STORE", "memory:")]).await
    }

    /// Starts the `attache` command in an environment.
    pub(crate) async fn command_with(arguments: &[&str], environment: &[(&str, &str)]) -> (Self, String) {
        let (program, said, _) = Self::watched(arguments, environment).await;
        (program, said)
    }

    /// The same in a folder.
    pub(crate) async fn command_in(
        folder: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> (Self, String) {
        let mut command = attache();
        command.current_dir(folder).args(arguments).envs(environment.iter().copied());
        let (program, said, _) = Self::watch(command).await;
        (program, said)
    }

    /// The same, with what it says from then on.
    pub(crate) async fn watched(arguments: &[&str], environment: &[(&str, &str)]) -> (Self, String, Log) {
        let mut command = attache();
        command.args(arguments).envs(environment.iter().copied());
        Self::watch(command).await
    }

    /// The same in a shell that has done something first, such as `ulimit -n 256`.
    #[cfg(unix)]
    pub(crate) async fn watched_after(first: &str, arguments: &[&str]) -> (Self, String, Log) {
        let command = attache();
        let mut shell = Command::new("sh");
        for (name, value) in command.as_std().get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
        shell.arg(command.as_std().get_program()).args(arguments);
        Self::watch(shell).await
    }

    async fn watch(mut command: Command) -> (Self, String, Log) {
        let mut child =
            command.stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("the command starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is ours")).lines();
        let mut said = String::new();
        let mut url = None;
        while let Ok(Some(line)) =
            tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says something")
        {
            url = url.or(line.strip_prefix("Listening on ").map(str::to_owned));
            said.push_str(&line);
            said.push('\n');
            if line == "Ctrl-C stops the server." {
                break;
            }
        }
        let url = url.unwrap_or_else(|| panic!("it does not say where it listens: {said}"));
        let program = Self { url, child };
        (program, said, Log(lines))
    }

    async fn wait_until_it_answers(&self) {
        let answers = async {
            while reqwest::get(format!("{}/health", self.url)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, answers).await.expect("the program answers");
    }

    /// Its number among the processes of the machine.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Asks the program to read its settings again.
    pub(crate) async fn hang_up(&self) {
        let pid = self.pid().to_string();
        Command::new("kill").args(["-HUP", &pid]).status().await.expect("kill works");
    }

    /// Kills it without a warning.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Does what Ctrl-C does.
    pub(crate) async fn interrupt(&self) {
        let pid = self.pid().to_string();
        Command::new("kill").args(["-INT", &pid]).status().await.expect("kill works");
    }

    /// Waits until the program has ended.
    pub(crate) async fn end(mut self) -> std::process::ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("it stops")
            .expect("it can be waited for")
    }

    /// Asks the program to stop, as a process manager does, and waits until it has.
    pub(crate) async fn stop(self) -> std::process::ExitStatus {
        let pid = self.pid().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill works");
        self.end().await
    }

    /// Calls a JSON-RPC method and returns its result.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let response = self.post(method, params).await;
        let body: Value = response.json().await.expect("the answer is JSON");
        assert!(body.get("error").is_none(), "{method} failed: {body}");
        body["result"].clone()
    }

    /// Sends a text, optionally to a task, and returns the answer.
    pub(crate) async fn send(&self, text: &str, task: Option<&str>) -> Value {
        self.call("SendMessage", message(text, task)).await
    }

    /// Sends a text and returns every event of the stream.
    pub(crate) async fn stream(&self, text: &str) -> Vec<Value> {
        let body = self
            .post("SendStreamingMessage", message(text, None))
            .await
            .text()
            .await
            .expect("the stream ends");
        let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
        events
            .map(|data| serde_json::from_str::<Value>(data).expect("an event is JSON")["result"].clone())
            .collect()
    }

    async fn post(&self, method: &str, params: Value) -> reqwest::Response {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let client = reqwest::Client::new();
        let request = client.post(format!("{}/a2a", self.url)).header("A2A-Version", "1.0").json(&request);
        request.send().await.expect("the server answers")
    }
}

fn message(text: &str, task: Option<&str>) -> Value {
    let mut message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(task) = task {
        message["taskId"] = json!(task);
    }
    json!({"message": message})
}

pub(crate) fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").to_string()
}

/// Cargo puts examples beside the command.
pub(crate) fn example_path(name: &str) -> PathBuf {
    let command = PathBuf::from(env!("CARGO_BIN_EXE_attache"));
    command.parent().expect("it is in a folder").join("examples").join(name)
}
