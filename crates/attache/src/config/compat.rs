//! `compat: iac-code`: the settings and environment variables of the A2A server of iac-code, translated to those of this server.
//!
//! A file may have keys of both. A key of iac-code that cannot be honoured is an error. What this server says for a key that the
//! file does not have is as that server does.

mod transport;

use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::core::{Busy, Conversation, EndState};

use super::conversation::workspaces;
use super::error::ConfigError;
use super::problems::Problems;
use super::tree::{Entry, Environment, Node, Position, Value};
use crate::command::Failure;

/// The shortest secret for HS256 (RFC 7518).
const SHORTEST_SIGNING_SECRET: usize = 32;

/// How long a context of that server may be idle.
const IDLE: std::time::Duration = std::time::Duration::from_secs(3600);

/// The media types of text there.
const TEXT_TYPES: [&str; 6] = [
    "text/plain",
    "application/json",
    "text/markdown",
    "text/yaml",
    "application/yaml",
    "application/x-yaml",
];

/// The media types of other content there.
const MEDIA_TYPES: [&str; 8] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "audio/mpeg",
    "audio/wav",
    "audio/ogg",
    "application/octet-stream",
];

/// The names of the push queue of that system in Redis, and our settings for them.
const PUSH_NAMES: [(&str, &str, &str); 4] = [
    ("push-stream", "push.redis.stream", "iac-code:a2a:push"),
    ("push-retry-key", "push.redis.retry-key", "iac-code:a2a:push:retry"),
    ("push-dead-stream", "push.redis.dead-stream", "iac-code:a2a:push:dead"),
    ("push-consumer-group", "push.redis.consumer-group", "iac-code-push"),
];

/// The rules for conversations of that server.
pub(super) fn conversation(environment: Environment<'_>) -> Conversation {
    let listed = |name: &str| {
        let text = environment(name).unwrap_or_default().to_ascii_lowercase();
        let all = text.split([',', ';']).map(str::trim).filter(|mode| mode.contains('/'));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let own = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let listed_paths = environment("IACCODE_A2A_ALLOWED_CWDS").filter(|paths| !paths.is_empty());
    let allowed = match (trusts_callers(environment), listed_paths) {
        (true, _) => vec![PathBuf::from("/")],
        // Only directories that exist count.
        (false, Some(paths)) => std::env::split_paths(&paths).filter(|path| path.is_dir()).collect(),
        (false, None) => vec![own.clone(), std::env::temp_dir()],
    };
    Conversation::default().with(|rules| {
        rules.contexts.busy = Busy::Reject;
        rules.contexts.end_state = EndState::InputRequired;
        rules.contexts.idle = IDLE;
        rules.workspaces = workspaces(allowed, own);
        rules.input.text_types = TEXT_TYPES.map(str::to_owned).into();
        rules.input.text_types.extend(listed("IACCODE_A2A_TEXT_MIME_TYPES"));
        rules.input.media_types = MEDIA_TYPES.map(str::to_owned).into();
        rules.input.media_types.extend(listed("IACCODE_A2A_MULTIMODAL_MIME_TYPES"));
    })
}

/// Whether a file says that it is to be read like one of iac-code.
pub(super) fn is_asked_for(root: &Node) -> bool {
    matches!(root.at("compat").map(|node| &node.value), Some(Value::Text { text, .. }) if text == "iac-code")
}

/// Replaces the keys of iac-code in a file by those of this server. Adds what cannot be honoured to `errors`.
pub(super) fn translate(root: &mut Node, environment: Environment<'_>, errors: &mut Vec<ConfigError>) {
    let Value::Map(entries) = &mut root.value else { return };
    let theirs = entries.extract_if(.., |entry| is_theirs(&entry.key)).collect();
    let mut translation = Translation { theirs, ours: std::mem::take(entries), environment, errors };
    translation.listen();
    translation.callers();
    translation.push();
    translation.artifacts();
    translation.permissions();
    translation.rest();
    *entries = translation.ours;
}

/// The keys of iac-code that this server does not have.
const KEYS: [&str; 31] = [
    "host",
    "port",
    "transport",
    "log-to-stdout",
    "token",
    "basic-username",
    "basic-password",
    "api-key",
    "api-key-header",
    "persistence-dir",
    "artifact-dir",
    "signing-secret",
    "push-notifications",
    "push-queue",
    "push-redis-url",
    "push-stream",
    "push-retry-key",
    "push-dead-stream",
    "push-consumer-group",
    "push-consumer-name",
    "push-lease-timeout-ms",
    "socket-path",
    "ws-path",
    "grpc-host",
    "grpc-port",
    "redis-url",
    "request-stream",
    "response-stream",
    "consumer-group",
    "auto-approve-permissions",
    "idle-shutdown-seconds",
];

fn is_theirs(key: &str) -> bool {
    KEYS.contains(&key)
}

/// A variable, which of its values change iac-code, and a hint.
type UnreadVariable = (&'static str, fn(&str) -> bool, &'static str);

/// Variables that change iac-code in a way that this server does not.
const UNREAD: [UnreadVariable; 1] = [(
    "IAC_CODE_MODE",
    |value| value.trim().eq_ignore_ascii_case("pipeline"),
    "pipelines are part of iac-code itself: leave it out",
)];

/// Callers may name every directory if this is true.
const TRUST_CWD: &str = "IAC_CODE_A2A_TRUST_REQUEST_CWD";

/// The keys for the secrets of webhooks, in a form of that system.
const PUSH_KEYRING: &str = "IAC_CODE_A2A_PUSH_KEYRING";

/// The directory with the settings and the data of that system.
const CONFIG_DIRECTORY: &str = "IAC_CODE_CONFIG_DIR";

/// What that system has in its data directory: a folder of JSON files, or a file.
const THEIR_DATA: [&str; 3] = ["tasks", "contexts", "push_keys.json"];

/// What the operator should know about the environment and about data of iac-code that are beside the store.
pub(crate) fn warnings(
    environment: Environment<'_>,
    names_workspaces: bool,
    store: Option<&Path>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if trusts_callers(environment) && !names_workspaces {
        warnings.push(format!(
            "`{TRUST_CWD}` is set: every caller can let the agent work in every directory that this server can read, except \
             those with data of the server. Set it only where all callers may do what you may"
        ));
    }
    if environment(PUSH_KEYRING).is_some_and(|keys| !keys.trim().is_empty()) {
        warnings.push(format!(
            "the keys in `{PUSH_KEYRING}` are not used: secrets of webhooks are encrypted with the keyring of this server \
             (`--keyring PATH`, or `ATTACHE_KEYRING` with its content)"
        ));
    }
    if let Some(folder) = store.and_then(Path::parent).filter(|folder| has_their_data(folder)) {
        warnings.push(format!(
            "`{}` has data of iac-code, which are not read: its tasks, contexts and webhooks do not exist here",
            folder.display()
        ));
    }
    warnings
}

/// Whether callers may name every directory.
fn trusts_callers(environment: Environment<'_>) -> bool {
    environment(TRUST_CWD).is_some_and(|text| is_true(&text))
}

fn has_their_data(folder: &Path) -> bool {
    let is_json = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
    };
    THEIR_DATA.iter().map(|name| folder.join(name)).any(|path| match std::fs::read_dir(&path) {
        Ok(entries) => entries.into_iter().any(is_json),
        Err(_) => path.is_file(),
    })
}

/// Whether that server reads the value of a variable as true.
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

/// Adds an error for each variable with a value that changes iac-code, and that has no effect here.
pub(super) fn check_environment(environment: Environment<'_>, problems: &mut Problems<'_>) {
    for (name, changes, hint) in UNREAD {
        if environment(name).is_some_and(|value| changes(&value)) {
            let text = format!("the environment variable `{name}` of iac-code is not honoured here");
            problems.add_placed(Failure::usage(text).hint(hint));
        }
    }
}

struct Translation<'a, 'b> {
    theirs: Vec<Entry>,
    ours: Vec<Entry>,
    environment: Environment<'a>,
    errors: &'b mut Vec<ConfigError>,
}

impl Translation<'_, '_> {
    /// Takes the text of a key of iac-code. An empty text is like none.
    fn take(&mut self, key: &str) -> Option<(String, Position)> {
        let at = self.theirs.iter().position(|entry| entry.key == key)?;
        let entry = self.theirs.remove(at);
        match entry.node.value {
            Value::Nothing => None,
            Value::Text { text, .. } if text.is_empty() => None,
            Value::Text { text, .. } => Some((text, entry.position)),
            Value::List(_) | Value::Map(_) => {
                self.refuse(entry.position, format!("`{key}` of iac-code has one value"), "");
                None
            }
        }
    }

    fn refuse(&mut self, position: Position, text: impl Into<String>, hint: &str) {
        // Each error has a name of its own, so that all of them are reported.
        let error = ConfigError::at(position, text).blame(&format!("compat[{}]", self.errors.len()));
        self.errors.push(if hint.is_empty() { error } else { error.hint(hint) });
    }

    /// Takes a key that is true or false.
    fn switch(&mut self, key: &str) -> Option<(bool, Position)> {
        let (text, position) = self.take(key)?;
        match text.as_str() {
            "true" => Some((true, position)),
            "false" => Some((false, position)),
            _ => {
                self.refuse(position, format!("`{key}` is `true` or `false`"), "");
                None
            }
        }
    }

    /// Sets one of our settings, unless the file has it.
    fn set(&mut self, path: &str, value: Value) {
        set_in(&mut self.ours, "", path, value);
    }

    /// Who may call: each kind of credential that is set, from the file or from the environment.
    fn callers(&mut self) {
        let mut value = |key: &str, variable: &str| {
            let set = self.take(key).map(|(text, _)| text);
            set.or_else(|| (self.environment)(variable)).filter(|text| !text.is_empty())
        };
        let token = value("token", "IACCODE_A2A_HTTP_TOKEN");
        let user = value("basic-username", "IACCODE_A2A_BASIC_USERNAME");
        let password = value("basic-password", "IACCODE_A2A_BASIC_PASSWORD");
        let key = value("api-key", "IACCODE_A2A_API_KEY");
        let header = value("api-key-header", "IACCODE_A2A_API_KEY_HEADER");
        let mut auth = Vec::new();
        if let Some(token) = &token {
            auth.push(("bearer", vec![("name", "bearer".to_owned()), ("token", token.clone())]));
        }
        if let (Some(user), Some(password)) = (&user, &password) {
            auth.push(("basic", vec![("name", user.clone()), ("password", password.clone())]));
        }
        if let Some(key) = &key {
            let header = header.unwrap_or_else(|| "X-API-Key".to_owned());
            let fields =
                vec![("name", format!("api-key:{header}")), ("key", key.clone()), ("header", header)];
            auth.push(("api-key", fields));
        }
        if user.is_some() != password.is_some() {
            let start = Position { line: 1, column: 1 };
            self.refuse(start, "`basic-username` and `basic-password` belong together", "set both or none");
        }
        if auth.is_empty() || self.ours.iter().any(|entry| entry.key == "auth") {
            return;
        }
        for (kind, fields) in auth {
            let path = format!("auth.{kind}");
            let item = map(&format!("{path}[0]"), fields);
            let position = Position { line: 1, column: 1 };
            let node = Node { position, path: format!("{path}[0]"), value: item };
            self.set(&path, Value::List(vec![node]));
        }
    }

    fn push(&mut self) {
        let offered = self.switch("push-notifications").is_some_and(|(offered, _)| offered);
        self.set("push.offered", text(if offered { "true" } else { "false" }));
        match self.take("push-queue") {
            None => {}
            Some((queue, _)) if queue == "local-file" => {}
            Some((queue, position)) if queue == "redis-streams" => self.push_queue(position),
            Some((_, position)) => {
                self.refuse(position, "`push-queue` is `local-file` or `redis-streams`", "")
            }
        }
    }

    /// Deliveries that several processes share over Redis.
    fn push_queue(&mut self, position: Position) {
        self.set("push.queue", text("redis"));
        match self.take("push-redis-url") {
            Some((url, _)) => self.set("push.redis.url", text(&url)),
            None => self.refuse(position, "`push-queue: redis-streams` needs a `push-redis-url`", ""),
        }
        for (theirs, ours, usual) in PUSH_NAMES {
            let name = self.take(theirs).map_or_else(|| usual.to_owned(), |(name, _)| name);
            self.set(ours, text(&name));
        }
        if let Some((name, _)) = self.take("push-consumer-name") {
            self.set("push.redis.consumer-name", text(&name));
        }
        if let Some((lease, position)) = self.take("push-lease-timeout-ms") {
            match lease.parse::<u64>() {
                Ok(lease) => self.set("push.redis.lease", text(&format!("{lease}ms"))),
                Err(_) => self.refuse(position, "`push-lease-timeout-ms` must be a whole number", ""),
            }
        }
    }

    /// What tools produce is stored, and clients get its URL. That server has `file:` URLs, which only clients on this machine can
    /// use, and which name its directories: clients of other machines get the HTTP address.
    fn artifacts(&mut self) {
        if let Some((directory, _)) = self.take("artifact-dir") {
            self.set("artifacts.directory", text(&directory));
        }
        if (self.environment)("IAC_CODE_A2A_SAFE_MODE").is_some_and(|text| is_true(&text)) {
            self.set("safe-mode", text("always"));
        }
        // A `file:` URL is a path of this machine, which safe mode hides.
        let is_safe = self.ours.iter().any(|entry| {
            entry.key == "safe-mode"
                && matches!(&entry.node.value, Value::Text { text, .. } if text == "always")
        });
        let is_local = self.is_local() && !is_safe;
        self.set("artifacts.urls", text(if is_local { "file" } else { "http" }));
        self.set("artifacts.inline-limit", text("1B"));
    }

    /// Requests for permission are denied, and reported as such, unless all of them are allowed.
    fn permissions(&mut self) {
        let allowed = self.switch("auto-approve-permissions").is_some_and(|(allowed, _)| allowed);
        let is_decided = self.ours.iter().any(|entry| entry.node.at("acp.permissions").is_some());
        if !is_decided {
            self.set("permission-default", text(if allowed { "allow" } else { "deny" }));
        }
    }

    fn rest(&mut self) {
        let directory = self.take("persistence-dir").map(|(directory, _)| directory).or_else(|| {
            let config = (self.environment)(CONFIG_DIRECTORY).filter(|directory| !directory.is_empty())?;
            Some(format!("{config}/a2a"))
        });
        if let Some(directory) = directory {
            self.set("store", text(&format!("sqlite:{directory}/attache.db")));
        }
        if let Some((secret, position)) = self.take("signing-secret") {
            match secret.len() >= SHORTEST_SIGNING_SECRET {
                true => self.set("signing.secret", text(&secret)),
                false => self.refuse(
                    position,
                    format!(
                        "`signing-secret` has fewer than {SHORTEST_SIGNING_SECRET} bytes, which HS256 needs"
                    ),
                    "make one with `openssl rand -hex 32`, and give it to the clients",
                ),
            }
        }
        self.set("card.name", text("iac-code"));
        self.set("metadata-namespace", text("iac_code"));
        if let Some((true, position)) = self.switch("log-to-stdout") {
            match self.ours.iter().any(|entry| entry.key == "stdio") {
                true => self.refuse(
                    position,
                    "`log-to-stdout` cannot be used with `transport: stdio`: standard output carries the frames",
                    "leave it out: the log goes to standard error",
                ),
                false => self.set("log.file", text(super::log::STANDARD_OUTPUT)),
            }
        }
        if let Some((seconds, position)) = self.take("idle-shutdown-seconds") {
            match seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                Some(Duration::ZERO) => {}
                Some(time) => self.set("idle-shutdown", text(&format!("{}ms", time.as_millis().max(1)))),
                None => self.refuse(position, "`idle-shutdown-seconds` must be a number, 0 or more", ""),
            }
        }
        // What is left belongs to a transport or a queue that is not used.
        for entry in std::mem::take(&mut self.theirs) {
            if !matches!(entry.node.value, Value::Nothing) {
                let text = format!("`{}` of iac-code has no effect with these settings", entry.key);
                self.refuse(entry.position, text, "leave it out");
            }
        }
    }
}

fn text(text: &str) -> Value {
    Value::Text { text: text.to_owned(), variables: Vec::new() }
}

fn list(items: &[&str]) -> Value {
    let node = |item: &&str| Node {
        position: Position { line: 1, column: 1 },
        path: String::new(),
        value: text(item),
    };
    Value::List(items.iter().map(node).collect())
}

fn map(path: &str, fields: Vec<(&str, String)>) -> Value {
    let entry = |(key, value): (&str, String)| {
        let position = Position { line: 1, column: 1 };
        let node = Node { position, path: format!("{path}.{key}"), value: text(&value) };
        Entry { key: key.to_owned(), position, node }
    };
    Value::Map(fields.into_iter().map(entry).collect())
}

/// Sets the value at a path below `above`, unless there is one.
fn set_in(entries: &mut Vec<Entry>, above: &str, path: &str, value: Value) {
    let position = Position { line: 1, column: 1 };
    let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let own = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
    let found = entries.iter().position(|entry| entry.key == key);
    let Some(rest) = rest else {
        if found.is_none() {
            entries.push(Entry { key: key.to_owned(), position, node: Node { position, path: own, value } });
        }
        return;
    };
    let at = found.unwrap_or_else(|| {
        let node = Node { position, path: own.clone(), value: Value::Map(Vec::new()) };
        entries.push(Entry { key: key.to_owned(), position, node });
        entries.len() - 1
    });
    if let Some(entry) = entries.get_mut(at) {
        if matches!(entry.node.value, Value::Nothing) {
            entry.node.value = Value::Map(Vec::new());
        }
        if let Value::Map(below) = &mut entry.node.value {
            set_in(below, &own, rest, value);
        }
    }
}

#[cfg(test)]
mod tests;
