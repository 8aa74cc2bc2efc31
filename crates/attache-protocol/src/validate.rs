//! What a request must contain beyond its syntax. Every violation is named, not only the first.

use crate::{
    Error, FieldViolation, Message, Request, Role, SendMessageConfiguration, SendMessageRequest,
    TaskPushNotificationConfig,
};

/// Upper bound of a page.
const MAX_PAGE_SIZE: i32 = 100;

/// The longest id of a webhook.
const MAX_ID: usize = 255;

/// The longest token, and the longest credentials, of a webhook.
const MAX_SECRET: usize = 8 * 1024;

#[derive(Default)]
struct Violations(Vec<FieldViolation>);

impl Violations {
    fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.0.push(FieldViolation { field: field.into(), description: description.into() });
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
    /// Checks what the request must contain, naming every field that is wrong.
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
                // Zero is how gRPC says that none was given: the field has no presence there.
                bad.page_size(request.page_size.filter(|size| *size != 0));
            }
            Self::DeleteTaskPushNotificationConfig(request) => {
                bad.required("taskId", request.task_id.as_str());
                bad.required("id", &request.id);
            }
            Self::GetExtendedAgentCard(_) => {}
        }
        if bad.0.is_empty() { Ok(()) } else { Err(Error::violations(bad.0)) }
    }
}

fn send(request: &SendMessageRequest, bad: &mut Violations) {
    message(&request.message, bad);
    let Some(SendMessageConfiguration { history_length, task_push_notification_config, .. }) =
        &request.configuration
    else {
        return;
    };
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
}

fn webhook(config: &TaskPushNotificationConfig, path: &str, bad: &mut Violations) {
    let url = config.url.as_str();
    if url.is_empty() {
        bad.add(format!("{path}url"), "is required");
    } else if !is_absolute_http(url) {
        bad.add(format!("{path}url"), "expected an absolute `http` or `https` URL");
    }
    // These travel in headers.
    let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let mut header = |field: &str, value: Option<&str>| {
        if value.is_some_and(|value| value.len() > MAX_SECRET || !printable(value)) {
            let text = format!("expected at most {MAX_SECRET} printable ASCII characters");
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
        } else if scheme.len() > MAX_ID || !scheme.bytes().all(token) {
            let text = "expected the name of an HTTP authentication scheme, such as `Bearer`";
            bad.add(format!("{path}authentication.scheme"), text);
        }
    }
    if let Some(id) = config.id.as_deref()
        && (id.len() > MAX_ID || id.contains(char::is_control))
    {
        bad.add(format!("{path}id"), format!("expected at most {MAX_ID} bytes and no control characters"));
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
    use crate::{ErrorKind, Operation};

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
    fn what_a_webhook_is_sent_must_fit_into_headers() {
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
}
