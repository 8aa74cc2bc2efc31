//! Clients that send at full load, and remember what they were told.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Tally;
use super::api::{Api, Event, Miss};
use super::receiver::Receiver;
use super::subject::Subject;

/// How many tasks may wait for their webhooks to be told; then clients ask for no more, so that the end does not take long.
const MAX_BEHIND: usize = 256;

/// How long a client waits before it tries to reach the server again.
const AGAIN: Duration = Duration::from_millis(5);

/// The state of a task that waits for its client.
pub(super) const ASKS: &str = "TASK_STATE_INPUT_REQUIRED";

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// When the task has ended.
    Wait,
    /// At once.
    Immediately,
    /// At once, and then it cancels the task.
    Cancel,
    /// As a stream.
    Stream,
    /// When the agent has asked back; then it answers.
    Dialogue,
}

/// What a webhook is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    States,
    Everything,
}

/// A message that was sent, and what came back.
#[derive(Debug)]
pub(super) struct Sent {
    /// The text, which no other message has.
    pub(super) text: String,
    pub(super) way: Way,
    /// Whether it carries a key, and is therefore sent until it is answered.
    pub(super) keyed: bool,
    pub(super) hook: Option<News>,
    /// The task in each answer.
    pub(super) told: Vec<Value>,
    /// What the client said when the agent asked back.
    pub(super) reply: Option<Reply>,
    /// The events of the stream.
    pub(super) events: Vec<Event>,
}

/// A message that goes on with a task.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) acknowledged: bool,
}

impl Sent {
    /// Whether the client knows that the message was taken.
    pub(super) fn is_acknowledged(&self) -> bool {
        !self.told.is_empty() || !self.events.is_empty()
    }

    /// What the receiver of a webhook is to recognize it by.
    pub(super) fn token(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }
}

/// What all clients have sent and were told.
pub(super) struct Ledger {
    tally: Arc<Tally>,
    sent: Mutex<Vec<Sent>>,
    complaints: Mutex<Vec<String>>,
    hooked: AtomicUsize,
}

impl Ledger {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        Self { tally, sent: Mutex::default(), complaints: Mutex::default(), hooked: AtomicUsize::new(0) }
    }

    fn note(&self, sent: Sent) {
        if sent.is_acknowledged() {
            self.tally.acknowledged.fetch_add(1, Relaxed);
            self.hooked.fetch_add(usize::from(sent.hook.is_some()), Relaxed);
        }
        self.sent.lock().expect("nobody panicked").push(sent);
    }

    fn complain(&self, about: String) {
        self.complaints.lock().expect("nobody panicked").push(about);
    }

    /// Answers that no client should ever get.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("nobody panicked").clone()
    }

    pub(super) fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.sent.lock().expect("nobody panicked"))
    }
}

/// Someone who sends.
pub(super) struct Client {
    name: usize,
    subject: Subject,
    api: Api,
    receiver: Receiver,
    ledger: Arc<Ledger>,
    random: Rng,
}

impl Client {
    pub(super) fn new(
        name: usize,
        subject: Subject,
        api: Api,
        receiver: Receiver,
        ledger: Arc<Ledger>,
        random: Rng,
    ) -> Self {
        Self { name, subject, api, receiver, ledger, random }
    }

    /// Sends one message after the other until it is stopped.
    pub(super) async fn run(mut self, stopped: watch::Receiver<bool>) {
        for number in 0.. {
            if *stopped.borrow() {
                return;
            }
            let mut sent = self.compose(number);
            let result = match sent.way {
                Way::Wait | Way::Immediately => self.send(&mut sent).await,
                Way::Cancel => self.cancel(&mut sent).await,
                Way::Stream => self.stream(&mut sent).await,
                Way::Dialogue => self.dialogue(&mut sent).await,
            };
            match result {
                Ok(()) => {}
                Err(Miss::Cut) => tokio::time::sleep(AGAIN).await,
                Err(Miss::Refused(answer)) => {
                    self.ledger.complain(format!("`{}` ({:?}): {answer}", sent.token(), sent.way));
                }
            }
            self.ledger.note(sent);
        }
    }

    fn compose(&mut self, number: usize) -> Sent {
        let way = match self.random.u8(..12) {
            0..4 => Way::Wait,
            4..6 => Way::Immediately,
            6 if self.subject.takes_its_time() => Way::Cancel,
            7 | 8 if self.subject.takes_its_time() => Way::Dialogue,
            _ => Way::Stream,
        };
        let keyed = self.random.u8(..3) == 0;
        let behind = self.ledger.hooked.load(Relaxed).saturating_sub(self.receiver.ended());
        let hook = match self.random.u8(..8) {
            _ if behind >= MAX_BEHIND => None,
            // Without a key the answer may get lost, and the news would never end.
            _ if way == Way::Dialogue && !keyed => None,
            0 => Some(News::Everything),
            1 | 2 => Some(News::States),
            _ => None,
        };
        // An agent that takes its time takes it for each word.
        let words = match self.random.u8(..20) {
            _ if self.subject.takes_its_time() => self.random.usize(2..12),
            0 => self.random.usize(..8_000),
            _ => self.random.usize(2..40),
        };
        let mut text = format!("{}-{number}", self.name);
        for word in 0..words {
            text.push_str(&format!(" {word}"));
        }
        if way == Way::Dialogue {
            text.push('?');
        }
        Sent { text, way, keyed, hook, told: Vec::new(), reply: None, events: Vec::new() }
    }

    fn params(&self, sent: &Sent) -> Value {
        let message = json!({"messageId": sent.token(), "role": "ROLE_USER", "parts": [{"text": sent.text}]});
        let at_once = matches!(sent.way, Way::Immediately | Way::Cancel);
        let mut configuration = json!({"returnImmediately": at_once});
        if sent.hook.is_some() {
            configuration["taskPushNotificationConfig"] =
                json!({"url": self.receiver.url, "token": sent.token()});
        }
        json!({"message": message, "configuration": configuration})
    }

    fn headers(&self, sent: &Sent) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if sent.keyed {
            headers.push(("Idempotency-Key", sent.token().to_owned()));
        }
        if sent.hook == Some(News::Everything) {
            headers.push(("A2A-Extensions", "urn:attache:extension:push-every-event:v1".to_owned()));
        }
        headers
    }

    /// Sends, again and again if that is safe.
    async fn send(&mut self, sent: &mut Sent) -> Result<(), Miss> {
        let (params, headers) = (self.params(sent), self.headers(sent));
        // A message with a key is also repeated when it was answered: that must change nothing.
        let wanted = if sent.keyed && self.random.bool() { 2 } else { 1 };
        let mut cut = false;
        while sent.told.len() < wanted {
            match self.api.call("SendMessage", params.clone(), &headers).await {
                Ok(answer) if answer["task"].is_object() => sent.told.push(answer["task"].clone()),
                Ok(answer) => return Err(Miss::Refused(format!("the answer is not a task: {answer}"))),
                Err(Miss::Cut) if sent.keyed => {
                    tokio::time::sleep(AGAIN).await;
                    cut = true;
                }
                Err(miss) => return Err(miss),
            }
        }
        self.ledger.tally.repeated.fetch_add(usize::from(cut), Relaxed);
        Ok(())
    }

    /// Sends, and cancels what comes of it.
    async fn cancel(&mut self, sent: &mut Sent) -> Result<(), Miss> {
        self.send(sent).await?;
        let Some(id) = sent.told.last().map(|task| task["id"].clone()) else { return Ok(()) };
        match self.api.call("CancelTask", json!({"id": id}), &[]).await {
            Ok(task) => {
                sent.told.push(task);
                Ok(())
            }
            // It was too late.
            Err(Miss::Refused(answer)) if answer.contains("TASK_NOT_CANCELABLE") => Ok(()),
            Err(miss) => Err(miss),
        }
    }

    /// Sends, and answers the question that comes back.
    async fn dialogue(&mut self, sent: &mut Sent) -> Result<(), Miss> {
        self.send(sent).await?;
        let Some(task) = sent.told.last().filter(|task| task["status"]["state"] == ASKS) else {
            return Ok(());
        };
        let (id, key) = (task["id"].clone(), format!("{}-reply", sent.token()));
        let text = format!("{key} {}", sent.text.trim_end_matches('?'));
        let message = json!({"messageId": key, "role": "ROLE_USER", "taskId": id, "parts": [{"text": text}]});
        let reply = sent.reply.insert(Reply { text, acknowledged: false });
        let headers = if sent.keyed { vec![("Idempotency-Key", key)] } else { Vec::new() };
        loop {
            match self.api.call("SendMessage", json!({"message": message}), &headers).await {
                Ok(answer) => {
                    sent.told.push(answer["task"].clone());
                    reply.acknowledged = true;
                    return Ok(());
                }
                Err(Miss::Cut) if sent.keyed => tokio::time::sleep(AGAIN).await,
                Err(miss) => return Err(miss),
            }
        }
    }

    /// Sends and reads the stream. When it is cut off, it is sometimes resumed at once and sometimes left for later.
    async fn stream(&mut self, sent: &mut Sent) -> Result<(), Miss> {
        let (params, headers) = (self.params(sent), self.headers(sent));
        let mut result =
            self.api.stream("SendStreamingMessage", params.clone(), &headers, &mut sent.events).await;
        let (leaves, mut resumed) = (self.random.bool(), false);
        while let Err(Miss::Cut) = result {
            tokio::time::sleep(AGAIN).await;
            result = match sent.events.last() {
                None if sent.keyed => {
                    self.api.stream("SendStreamingMessage", params.clone(), &headers, &mut sent.events).await
                }
                None => return Err(Miss::Cut),
                Some(_) if leaves => return Ok(()),
                Some(last) => {
                    resumed = true;
                    let resume = ("Last-Event-ID", last.seq.to_string());
                    let id = json!({"id": last.task()});
                    if sent.keyed && self.random.bool() {
                        let headers = [headers.clone(), vec![resume]].concat();
                        self.api
                            .stream("SendStreamingMessage", params.clone(), &headers, &mut sent.events)
                            .await
                    } else {
                        self.api.stream("SubscribeToTask", id, &[resume], &mut sent.events).await
                    }
                }
            };
        }
        self.ledger.tally.resumed.fetch_add(usize::from(resumed), Relaxed);
        match (&result, sent.events.last()) {
            (Ok(()), Some(last)) if last.ends_the_task() => result,
            (Ok(()), last) => Err(Miss::Refused(format!("the stream ended with {last:?}"))),
            (Err(_), _) => result,
        }
    }
}
