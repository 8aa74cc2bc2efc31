//! Rules for requests, messages and artifacts beyond their syntax. An error lists several violations and not only the first one.

use crate::{
    Artifact, ContextId, Error, FieldViolation, Message, Part, Request, Role, SendMessageConfiguration,
    SendMessageRequest, TaskId, TaskPushNotificationConfig, limits,
};

/// The maximum page size.
const MAX_PAGE_SIZE: i32 = 100;

#[derive(Default)]
struct Violations(Vec<FieldViolation>);

impl Violations {
    fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        // The number of violations is limited, so that a bad request does not get a huge response.
        if self.0.len() < limits::VIOLATIONS {
            self.0.push(FieldViolation { field: field.into(), description: description.into() });
        }
    }

    fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::violations(self.0)) }
    }

    /// Checks the length of a name.
    fn name(&mut self, field: impl FnOnce() -> String, value: &str, limit: usize) {
        if value.len() > limit {
            self.add(field(), format!("has {} bytes, expected at most {limit}", value.len()));
        }
    }

    /// Checks that an identifier is not too long and has no control characters.
    fn identifier(&mut self, field: impl FnOnce() -> String, value: &str, limit: usize) {
        if value.len() > limit {
            self.name(field, value, limit);
        } else if value.contains(char::is_control) {
            self.add(field(), "has control characters, expected none");
        }
    }

    fn count(&mut self, field: &str, count: usize, limit: usize) {
        if count > limit {
            self.add(field, format!("has {count} entries, expected at most {limit}"));
        }
    }

    fn extensions(&mut self, field: &str, uris: &[String]) {
        self.count(field, uris.len(), limits::EXTENSIONS);
        for (i, uri) in uris.iter().enumerate().take(limits::EXTENSIONS) {
            self.identifier(|| format!("{field}[{i}]"), uri, limits::EXTENSION_URI);
        }
    }

    fn parts(&mut self, field: &str, parts: &[Part]) {
        for (i, part) in parts.iter().enumerate() {
            let mut name = |member: &str, value: &Option<String>, limit| {
                let value = value.as_deref().unwrap_or_default();
                self.name(|| format!("{field}[{i}].{member}"), value, limit);
            };
            name("filename", &part.filename, limits::FILENAME);
            name("mediaType", &part.media_type, limits::MEDIA_TYPE);
        }
    }

    fn page_token(&mut self, token: Option<&str>) {
        self.name(|| "pageToken".to_owned(), token.unwrap_or_default(), limits::PAGE_TOKEN);
    }

    fn required(&mut self, field: &str, value: &str) {
        if value.is_empty() {
            self.add(field, "is required");
        }
    }

    fn history_length(&mut self, field: &str, value: Option<i32>) {
        if let Some(length) = value.filter(|length| *length < 0) {
            self.add(field, format!("{length} is negative, expected 0 or more"));
        }
    }

    fn page_size(&mut self, value: Option<i32>) {
        if let Some(size) = value.filter(|size| !(1..=MAX_PAGE_SIZE).contains(size)) {
            self.add("pageSize", format!("{size} is not between 1 and {MAX_PAGE_SIZE}"));
        }
    }
}

impl Request {
    /// Checks the rules for the request. An error names the invalid fields.
    ///
    /// New data must respect the [limits]. This function does not know whether a message that names a task creates it. If it may,
    /// the caller also uses [`new_task_ids`].
    pub fn validate(&self) -> Result<(), Error> {
        let mut bad = Violations::default();
        match self {
            Self::SendMessage(request) | Self::SendStreamingMessage(request) => send(request, &mut bad),
            Self::GetTask(request) => {
                bad.required("id", request.id.as_str());
                bad.history_length("historyLength", request.history_length);
            }
            Self::ListTasks(request) => {
                bad.page_size(request.page_size);
                bad.page_token(request.page_token.as_deref());
                bad.history_length("historyLength", request.history_length);
            }
            Self::CancelTask(request) => bad.required("id", request.id.as_str()),
            Self::SubscribeToTask(request) => bad.required("id", request.id.as_str()),
            Self::CreateTaskPushNotificationConfig(config) => {
                bad.required("taskId", config.task_id.as_ref().map_or("", |id| id.as_str()));
                webhook(config, "", &mut bad);
            }
            Self::GetTaskPushNotificationConfig(request) => {
                bad.required("taskId", request.task_id.as_str());
                bad.required("id", &request.id);
            }
            Self::ListTaskPushNotificationConfigs(request) => {
                bad.required("taskId", request.task_id.as_str());
                // Over gRPC, zero means that no page size was given.
                bad.page_size(request.page_size.filter(|size| *size != 0));
                bad.page_token(request.page_token.as_deref());
            }
            Self::DeleteTaskPushNotificationConfig(request) => {
                bad.required("taskId", request.task_id.as_str());
                bad.required("id", &request.id);
            }
            Self::GetExtendedAgentCard(_) => {}
        }
        bad.into_result()
    }
}

/// Checks the identifiers of a task that a message creates.
pub fn new_task_ids(message: &Message, tenant: Option<&str>) -> Result<(), Error> {
    let mut bad = Violations::default();
    new_task(message, tenant, &mut bad);
    bad.into_result()
}

impl Artifact {
    /// Checks that the artifact, or a chunk of it, respects the [limits].
    pub fn validate(&self) -> Result<(), Error> {
        let mut bad = Violations::default();
        bad.identifier(|| "artifact.artifactId".to_owned(), &self.artifact_id, limits::ARTIFACT_ID);
        let mut name = |member: &str, value: &Option<String>, limit| {
            bad.name(|| format!("artifact.{member}"), value.as_deref().unwrap_or_default(), limit);
        };
        name("name", &self.name, limits::ARTIFACT_NAME);
        name("description", &self.description, limits::ARTIFACT_DESCRIPTION);
        bad.extensions("artifact.extensions", &self.extensions);
        bad.parts("artifact.parts", &self.parts);
        bad.into_result()
    }
}

impl Message {
    /// Checks that the content of the message respects the [limits]. The role is not checked.
    pub fn validate_content(&self) -> Result<(), Error> {
        let mut bad = Violations::default();
        content(self, &mut bad);
        bad.into_result()
    }
}

fn send(request: &SendMessageRequest, bad: &mut Violations) {
    message(&request.message, bad);
    if request.message.task_id.is_none() {
        new_task(&request.message, request.tenant.as_deref(), bad);
    }
    let Some(SendMessageConfiguration {
        accepted_output_modes,
        history_length,
        task_push_notification_config,
        ..
    }) = &request.configuration
    else {
        return;
    };
    bad.count("configuration.acceptedOutputModes", accepted_output_modes.len(), limits::OUTPUT_MODES);
    for (i, mode) in accepted_output_modes.iter().enumerate().take(limits::OUTPUT_MODES) {
        bad.name(|| format!("configuration.acceptedOutputModes[{i}]"), mode, limits::MEDIA_TYPE);
    }
    bad.history_length("configuration.historyLength", *history_length);
    if let Some(config) = task_push_notification_config {
        webhook(config, "configuration.taskPushNotificationConfig.", bad);
    }
}

fn message(message: &Message, bad: &mut Violations) {
    bad.required("message.messageId", &message.message_id);
    match message.role {
        Role::User => {}
        Role::Unspecified => bad.add("message.role", "is required, expected `ROLE_USER`"),
        Role::Agent => bad.add("message.role", "a client sends `ROLE_USER`, not `ROLE_AGENT`"),
    }
    if message.parts.is_empty() {
        bad.add("message.parts", "at least one part is required");
    }
    content(message, bad);
}

/// Checks a message without its task and its context, which may already exist.
fn content(message: &Message, bad: &mut Violations) {
    bad.identifier(|| "message.messageId".to_owned(), &message.message_id, limits::ID);
    bad.parts("message.parts", &message.parts);
    bad.extensions("message.extensions", &message.extensions);
    let references = &message.reference_task_ids;
    bad.count("message.referenceTaskIds", references.len(), limits::REFERENCES);
    for (i, id) in references.iter().enumerate().take(limits::REFERENCES) {
        bad.identifier(|| format!("message.referenceTaskIds[{i}]"), id.as_str(), limits::ID);
    }
}

fn new_task(message: &Message, tenant: Option<&str>, bad: &mut Violations) {
    bad.identifier(|| "tenant".to_owned(), tenant.unwrap_or_default(), limits::TENANT);
    let task = message.task_id.as_ref().map_or("", TaskId::as_str);
    bad.identifier(|| "message.taskId".to_owned(), task, limits::ID);
    let context = message.context_id.as_ref().map_or("", ContextId::as_str);
    bad.identifier(|| "message.contextId".to_owned(), context, limits::ID);
}

fn webhook(config: &TaskPushNotificationConfig, path: &str, bad: &mut Violations) {
    let url = config.url.as_str();
    bad.identifier(|| format!("{path}tenant"), config.tenant.as_deref().unwrap_or_default(), limits::TENANT);
    bad.identifier(|| format!("{path}id"), config.id.as_deref().unwrap_or_default(), limits::WEBHOOK_ID);
    if url.is_empty() {
        bad.add(format!("{path}url"), "is required");
    } else if url.len() > limits::WEBHOOK_URL {
        bad.name(|| format!("{path}url"), url, limits::WEBHOOK_URL);
    } else if !is_absolute_http(url) {
        bad.add(format!("{path}url"), "expected an absolute `http` or `https` URL");
    }
    // These are sent in headers.
    let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let mut header = |field: &str, value: Option<&str>| {
        if value.is_some_and(|value| value.len() > limits::WEBHOOK_SECRET || !printable(value)) {
            let text = format!("expected at most {} printable ASCII characters", limits::WEBHOOK_SECRET);
            bad.add(format!("{path}{field}"), text);
        }
    };
    header("token", config.token.as_deref());
    if let Some(authentication) = &config.authentication {
        header("authentication.credentials", authentication.credentials.as_deref());
        let scheme = authentication.scheme.as_str();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if scheme.is_empty() {
            bad.add(format!("{path}authentication.scheme"), "is required, such as `Bearer`");
        } else if scheme.len() > limits::WEBHOOK_SCHEME || !scheme.bytes().all(token) {
            let text = "expected the name of an HTTP authentication scheme, such as `Bearer`";
            bad.add(format!("{path}authentication.scheme"), text);
        }
    }
}

fn is_absolute_http(url: &str) -> bool {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    let rest = if lower.starts_with("https://") {
        url.get(8..)
    } else {
        lower.starts_with("http://").then(|| &url[7..])
    };
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']))
        && !url.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::new_task_ids;
    use crate::{Artifact, Error, ErrorKind, Message, Operation, limits};

    fn fields(operation: Operation, json: &str) -> Vec<String> {
        let request = match operation.parse(json.as_bytes()) {
            Ok(request) => request,
            Err(error) => return error.field_violations().iter().map(|v| v.field.clone()).collect(),
        };
        match request.validate() {
            Ok(()) => Vec::new(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidParams);
                error.field_violations().iter().map(|v| v.field.clone()).collect()
            }
        }
    }

    #[test]
    fn every_missing_field_of_a_send_is_named_at_once() {
        let missing = ["message.messageId", "message.role", "message.parts"];
        assert_eq!(fields(Operation::SendMessage, "{}"), missing);
        assert_eq!(fields(Operation::SendMessage, r#"{"message":{}}"#), missing);
        assert_eq!(fields(Operation::SendMessage, r#"{"message":null}"#), missing);
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let wrong = |json| fields(Operation::SendMessage, json);
        assert_eq!(wrong(r#"{"message":{"messageId":3}}"#), ["message.messageId"]);
        assert_eq!(wrong(r#"{"message":{"role":"user"}}"#), ["message.role"]);
        assert_eq!(wrong(r#"{"message":{"parts":[{"text":"a"},{}]}}"#), ["message.parts[1]"]);
        assert_eq!(wrong(r#"{"message":{"parts":[{"raw":"!!"}]}}"#), ["message.parts[0].raw"]);
        assert_eq!(wrong(r#"{"message":{"metadata":[]}}"#), ["message.metadata"]);
        assert_eq!(wrong(r#"{"configuration":{"historyLength":1.5}}"#), ["configuration.historyLength"]);
        assert_eq!(wrong(r#"{"message":{"parts":[null]}}"#), ["message.parts[0]"]);
    }

    #[test]
    fn list_bounds_are_checked_together() {
        let list = |json| fields(Operation::ListTasks, json);
        assert_eq!(list(r#"{"pageSize":0,"historyLength":-1}"#), ["pageSize", "historyLength"]);
        assert_eq!(list(r#"{"page_size":"101"}"#), ["pageSize"]);
        assert_eq!(list(r#"{"pageSize":"100"}"#), Vec::<String>::new());
        assert_eq!(list(r#"{"status":"TASK_STATE_RUNNING"}"#), ["status"]);
        assert_eq!(list(r#"{"statusTimestampAfter":"yesterday"}"#), ["statusTimestampAfter"]);
    }

    #[test]
    fn webhooks_need_an_absolute_http_url() {
        let url = |url: &str| {
            fields(Operation::CreateTaskPushNotificationConfig, &format!(r#"{{"taskId":"t","url":"{url}"}}"#))
        };
        assert_eq!(url("https://example.com/hook"), Vec::<String>::new());
        assert_eq!(url("HTTP://example.com"), Vec::<String>::new());
        for bad in
            ["", "/hook", "ftp://example.com", "https://", "http:///x", "file:///etc/passwd", "https://a b"]
        {
            assert_eq!(url(bad), ["url"], "{bad}");
        }
    }

    #[test]
    fn secrets_of_a_webhook_must_be_valid_in_headers() {
        let fields = |rest: &str| {
            let json = format!(r#"{{"taskId":"t","url":"https://example.com",{rest}}}"#);
            fields(Operation::CreateTaskPushNotificationConfig, &json)
        };
        assert_eq!(fields(r#""token":"s3sam\u0020e","id":"ø""#), Vec::<String>::new());
        assert_eq!(fields(r#""token":"a\r\nX-Evil: 1""#), ["token"]);
        assert_eq!(fields(r#""token":"ø""#), ["token"]);
        assert_eq!(fields(&format!(r#""token":"{}""#, "x".repeat(8193))), ["token"]);
        assert_eq!(fields(r#""id":"a\u0000""#), ["id"]);
        assert_eq!(fields(&format!(r#""id":"{}""#, "x".repeat(256))), ["id"]);
        let authentication = |scheme, credentials| {
            fields(&format!(r#""authentication":{{"scheme":"{scheme}","credentials":"{credentials}"}}"#))
        };
        assert_eq!(authentication("Bearer", "abc def"), Vec::<String>::new());
        assert_eq!(authentication("Bearer", "a\\nb"), ["authentication.credentials"]);
        assert_eq!(authentication("Bear er", "a"), ["authentication.scheme"]);
        assert_eq!(authentication("", "a"), ["authentication.scheme"]);
    }

    #[test]
    fn an_artifact_is_accepted_at_its_limits_and_rejected_above_them() {
        type Set = fn(&mut Artifact, usize);
        let cases: [(Set, usize, &str); 5] = [
            (|it, n| it.artifact_id = "x".repeat(n), limits::ARTIFACT_ID, "artifact.artifactId"),
            (|it, n| it.name = Some("x".repeat(n)), limits::ARTIFACT_NAME, "artifact.name"),
            (
                |it, n| it.description = Some("x".repeat(n)),
                limits::ARTIFACT_DESCRIPTION,
                "artifact.description",
            ),
            (|it, n| it.extensions = vec!["x".repeat(n)], limits::EXTENSION_URI, "artifact.extensions[0]"),
            (|it, n| it.extensions = vec!["x".into(); n], limits::EXTENSIONS, "artifact.extensions"),
        ];
        for (set, limit, field) in cases {
            let mut artifact = Artifact::default();
            set(&mut artifact, limit);
            assert_eq!(artifact.validate(), Ok(()), "{field}");
            set(&mut artifact, limit + 1);
            let error = artifact.validate().unwrap_err();
            assert_eq!(error.field_violations()[0].field, field);
            assert!(error.message().ends_with(&format!("expected at most {limit}")), "{error}");
        }
    }

    /// The field that is wrong, if there is one, and why.
    fn first(result: Result<(), Error>) -> Option<(String, String)> {
        let error = result.err()?;
        let violation = error.field_violations().first()?;
        Some((violation.field.clone(), violation.description.clone()))
    }

    #[test]
    fn identifiers_of_a_new_task_are_accepted_at_their_limits_without_control_characters() {
        type Set = fn(&mut Message, &mut String, String);
        let cases: [(Set, usize, &str); 3] = [
            (|_, tenant, text| *tenant = text, limits::TENANT, "tenant"),
            (|message, _, text| message.task_id = Some(text.into()), limits::ID, "message.taskId"),
            (|message, _, text| message.context_id = Some(text.into()), limits::ID, "message.contextId"),
        ];
        for (set, limit, field) in cases {
            let check = |text: String| {
                let (mut message, mut tenant) = (Message::user("m", "hi"), String::new());
                set(&mut message, &mut tenant, text);
                first(new_task_ids(&message, Some(&tenant)))
            };
            assert_eq!(check("x".repeat(limit)), None, "{field}");
            let too_long = format!("has {} bytes, expected at most {limit}", limit + 1);
            assert_eq!(check("x".repeat(limit + 1)), Some((field.to_owned(), too_long)));
            let (named, why) = check("a\u{7f}".to_owned()).unwrap();
            assert_eq!((named.as_str(), why.contains("control characters")), (field, true));
        }
    }

    #[test]
    fn lengths_are_in_bytes_of_utf8() {
        let check = |id: String| first(Message::user(id, "hi").validate_content());
        assert_eq!(check("ä".repeat(limits::ID / 2)), None);
        assert!(check(format!("{}x", "ä".repeat(limits::ID / 2))).is_some());
    }

    #[test]
    fn identifiers_of_artifacts_extensions_and_webhooks_have_no_control_characters() {
        let artifact = |id: &str, uri: &str| {
            let artifact =
                Artifact { artifact_id: id.into(), extensions: vec![uri.into()], ..Artifact::default() };
            first(artifact.validate()).map(|(field, _)| field)
        };
        assert_eq!(artifact("a", "urn:a"), None);
        assert_eq!(artifact("a\n", "urn:a").as_deref(), Some("artifact.artifactId"));
        assert_eq!(artifact("a", "urn:\u{85}").as_deref(), Some("artifact.extensions[0]"));
        let hook = |member: &str, value: &str| {
            let mut hook = serde_json::json!({"taskId": "t", "url": "https://example.com/"});
            hook[member] = value.into();
            fields(Operation::CreateTaskPushNotificationConfig, &hook.to_string())
        };
        for (member, value) in
            [("tenant", "a\u{0}"), ("id", "a\n"), ("url", "https://example.com/\t"), ("token", "\u{7f}")]
        {
            assert_eq!(hook(member, value), [member], "{value:?}");
        }
    }

    #[test]
    fn an_error_names_ten_wrong_fields_and_no_more() {
        let wrong = |count: usize| {
            let artifact = Artifact { extensions: vec!["\n".into(); count], ..Artifact::default() };
            artifact.validate().unwrap_err().field_violations().len()
        };
        assert_eq!(limits::VIOLATIONS, 10);
        assert_eq!([wrong(1), wrong(10), wrong(11), wrong(64)], [1, 10, 10, 10]);
    }
}
