//! What must be true after the last restart, whatever happened before:
//!
//! - no task is left at work;
//! - a message that was acknowledged, or carries a key, has led to exactly one task, and no message to more;
//! - a task is as it was when it was answered, and as its agent would have left it;
//! - a stream goes on where it was cut off, without a gap and without a repetition, and tells of the same events as before;
//! - webhooks were told of everything, in order, and of nothing that is not in the log;
//! - the listing counts what it lists.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

use super::Tally;
use super::api::{Api, Event, Miss, is_terminal};
use super::client::{ASKS, News, Reply, Sent, Way};
use super::receiver::{Arrival, Receiver};
use super::subject::Subject;

/// How many questions are asked at once.
const AT_ONCE: usize = 16;

/// How long recovery and deliveries may take. Only a broken server reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

const COMPLETED: &str = "TASK_STATE_COMPLETED";
const FAILED: &str = "TASK_STATE_FAILED";
const CANCELED: &str = "TASK_STATE_CANCELED";

/// What a task says whose turn died and was not run again.
const DIED: &str = "the server stopped while the agent was at work: send the message again";

/// Looks at everything; what is wrong comes back.
pub(super) async fn check(
    subject: Subject,
    api: &Api,
    sent: &[Sent],
    receiver: &Receiver,
    tally: &Tally,
) -> Vec<String> {
    let check = Check { subject, api, tally };
    let mut wrong = check.nobody_is_at_work().await;
    let tasks = match check.list(&mut wrong).await {
        Ok(tasks) => tasks,
        Err(miss) => {
            wrong.push(format!("the tasks cannot be listed: {miss:?}"));
            return wrong;
        }
    };
    let by_text = once_each(&tasks, sent, &mut wrong);
    let of_each = futures::stream::iter(sent).map(|sent| check.one(sent, by_text.get(&*sent.text).copied()));
    let (mut expected, mut of_each) = (Vec::new(), of_each.buffer_unordered(AT_ONCE));
    while let Some(found) = of_each.next().await {
        wrong.extend(found.wrong);
        expected.extend(found.news);
    }
    let listed: HashSet<_> = tasks.iter().map(id_of).collect();
    wrong.extend(check_webhooks(&expected, &listed, receiver).await);
    wrong
}

struct Check<'a> {
    subject: Subject,
    api: &'a Api,
    tally: &'a Tally,
}

/// What was found out about one message.
#[derive(Default)]
struct Found<'a> {
    wrong: Vec<String>,
    news: Option<Expected<'a>>,
}

/// What a webhook should have been told.
struct Expected<'a> {
    sent: &'a Sent,
    task: String,
    events: Vec<Event>,
}

impl Check<'_> {
    /// Waits until every task has ended or waits for its client.
    async fn nobody_is_at_work(&self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut stuck = Vec::new();
            for state in ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
                match self.api.call("ListTasks", json!({"status": state, "pageSize": 100}), &[]).await {
                    Ok(page) => stuck.extend(page["tasks"].as_array().into_iter().flatten().map(|task| {
                        format!(
                            "task {} is still in {state} {} s after the last restart: {}",
                            task["id"],
                            PATIENCE.as_secs(),
                            short(task)
                        )
                    })),
                    // It may not be up yet.
                    Err(Miss::Cut) => stuck.push("the server does not answer".to_owned()),
                    Err(Miss::Refused(answer)) => return vec![answer],
                }
            }
            if stuck.is_empty() || Instant::now() > deadline {
                return stuck;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// All tasks, page by page.
    async fn list(&self, wrong: &mut Vec<String>) -> Result<Vec<Value>, Miss> {
        let mut tasks: Vec<Value> = Vec::new();
        let mut totals = HashSet::new();
        let mut params = json!({"pageSize": 100, "includeArtifacts": true});
        loop {
            let page = self.api.call("ListTasks", params.clone(), &[]).await?;
            totals.extend(page["totalSize"].as_u64());
            tasks.extend(page["tasks"].as_array().into_iter().flatten().cloned());
            match page["nextPageToken"].as_str() {
                None | Some("") => break,
                Some(token) => params["pageToken"] = json!(token),
            }
        }
        let distinct: HashSet<_> = tasks.iter().map(id_of).collect();
        if distinct.len() != tasks.len() {
            wrong.push(format!(
                "the pages list {} tasks, of which {} are different",
                tasks.len(),
                distinct.len()
            ));
        }
        if totals != HashSet::from([tasks.len() as u64]) {
            wrong.push(format!("the pages list {} tasks and say that there are {totals:?}", tasks.len()));
        }
        for state in [COMPLETED, FAILED, CANCELED, ASKS] {
            let listed = tasks.iter().filter(|task| state_of(task) == state).count() as u64;
            let page = self.api.call("ListTasks", json!({"status": state, "pageSize": 1}), &[]).await?;
            let total = page["totalSize"].as_u64();
            if total != Some(listed) {
                wrong.push(format!(
                    "the pages list {listed} tasks in {state}, and the total of these is {total:?}"
                ));
            }
        }
        Ok(tasks)
    }

    /// Compares what became of one message with what its client was told.
    async fn one<'a>(&self, sent: &'a Sent, listed: Option<&Value>) -> Found<'a> {
        let mut found = Found::default();
        let Some(listed) = listed else { return found };
        let id = id_of(listed);
        let task = match self.api.call("GetTask", json!({"id": id}), &[]).await {
            Ok(task) => task,
            Err(miss) => {
                found.wrong.push(format!("task {id} is listed but cannot be read: {miss:?}"));
                return found;
            }
        };
        let mut complain = |what: String| found.wrong.push(format!("task {id} ({:?}): {what}", sent.way));
        if task != *listed {
            complain(format!("read as {} but listed as {}", short(&task), short(listed)));
        }
        self.tally.died.fetch_add(usize::from(state_of(&task) == FAILED), Relaxed);
        self.compare_with_message(sent, &task).into_iter().for_each(&mut complain);
        sent.told.iter().filter_map(|told| compare_with_answer(told, &task)).for_each(&mut complain);
        if matches!(sent.way, Way::Wait | Way::Dialogue)
            && let Some(early) =
                sent.told.iter().find(|told| !is_terminal(state_of(told)) && state_of(told) != ASKS)
        {
            complain(format!("the client wanted to wait, and got {}", short(early)));
        }
        if sent.events.is_empty() && sent.hook.is_none() {
            return found;
        }
        if !is_terminal(state_of(&task)) {
            complain(format!("it should have ended: {}", task["status"]));
            return found;
        }
        // From the beginning: the events are kept as long as the task.
        let mut log = Vec::new();
        if let Err(miss) = self.resume(id, 0, &mut log).await {
            complain(format!("the events cannot be read: {miss:?}"));
            return found;
        }
        compare_with_log(sent, &log, &task).into_iter().for_each(&mut complain);
        // A turn that is run again begins its artifact again.
        let begun = log.iter().filter(|event| event.begins_an_artifact()).count();
        self.tally.died.fetch_add(begun.saturating_sub(1), Relaxed);
        if let Some(last) = sent.events.last() {
            let mut events = sent.events.clone();
            if !last.ends_the_task() {
                if let Err(miss) = self.resume(id, last.seq, &mut events).await {
                    complain(format!("the stream does not go on after {}: {miss:?}", last.seq));
                }
                self.tally.resumed.fetch_add(1, Relaxed);
            }
            complain_about_difference(&events, sent.events.len(), &log).into_iter().for_each(&mut complain);
        }
        if sent.hook.is_some() {
            found.news = Some(Expected { sent, task: id.to_owned(), events: log });
        }
        found
    }

    async fn resume(&self, task: &str, after: u64, events: &mut Vec<Event>) -> Result<(), Miss> {
        self.api
            .stream("SubscribeToTask", json!({"id": task}), &[("Last-Event-ID", after.to_string())], events)
            .await
    }

    /// What is wrong with a task, given only the message that it came from.
    fn compare_with_message(&self, sent: &Sent, task: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let said = text_of(&task["artifacts"][0]["parts"]);
        let status = &task["status"];
        // What the agent repeats in the end.
        let text = sent.reply.as_ref().map_or(&sent.text, |reply| &reply.text);
        let answered = sent.reply.as_ref().is_some_and(|reply| reply.acknowledged || sent.keyed);
        match state_of(task) {
            COMPLETED if said == *text => {}
            COMPLETED => wrong.push(format!("`{}` was sent and `{}` came of it", clip(text), clip(&said))),
            CANCELED if sent.way == Way::Cancel => {}
            ASKS if sent.way == Way::Dialogue && !answered => {}
            FAILED if !self.subject.runs_again() => {
                let why = text_of(&status["message"]["parts"]);
                if why != DIED {
                    wrong.push(format!("it failed and says `{why}`, not `{DIED}`"));
                }
            }
            _ => wrong.push(format!("it should not have ended like this: {status}")),
        }
        if !text.starts_with(&said) {
            wrong.push(format!("the artifact is `{}`, of `{}`", clip(&said), clip(text)));
        }
        if let Some(Reply { text, .. }) = &sent.reply {
            let times = history(task).iter().filter(|message| text_of(&message["parts"]) == *text).count();
            if times > 1 || answered && times == 0 {
                wrong.push(format!("`{}` was said {times} times in answer", clip(text)));
            }
        }
        let asked = &task["history"][0];
        if asked["messageId"] != sent.token() || text_of(&asked["parts"]) != sent.text {
            wrong.push(format!(
                "`{}` was sent and the history begins with {}",
                clip(&sent.text),
                short(asked)
            ));
        }
        wrong
    }
}

/// The tasks by the texts of the messages that they came from; each message has led to one task, if it was acknowledged or
/// repeated until it was, and otherwise to one or none.
fn once_each<'a>(tasks: &'a [Value], sent: &[Sent], wrong: &mut Vec<String>) -> HashMap<String, &'a Value> {
    let mut by_text: HashMap<String, Vec<&Value>> = HashMap::new();
    for task in tasks {
        by_text.entry(text_of(&task["history"][0]["parts"])).or_default().push(task);
    }
    let ids = |tasks: &[&Value]| tasks.iter().map(|task| id_of(task).to_owned()).collect::<Vec<_>>();
    for one in sent {
        let found = by_text.get(&one.text).map_or(&[][..], Vec::as_slice);
        let must_be_there = one.keyed || one.is_acknowledged();
        if found.len() > 1 || must_be_there && found.is_empty() {
            let told: HashSet<_> =
                one.told.iter().map(id_of).chain(one.events.iter().map(Event::task)).collect();
            wrong.push(format!(
                "`{}` ({:?}{}) was sent once, acknowledged as {told:?}, and led to {:?}",
                one.token(),
                one.way,
                if one.keyed { " with a key" } else { "" },
                ids(found),
            ));
        }
    }
    let known: HashSet<_> = sent.iter().map(|sent| &*sent.text).collect();
    for (text, tasks) in by_text.iter().filter(|(text, _)| !known.contains(&***text)) {
        wrong.push(format!("nobody sent `{}`, but it led to {:?}", clip(text), ids(tasks)));
    }
    by_text.into_iter().filter_map(|(text, tasks)| Some((text, *tasks.first()?))).collect()
}

/// What is wrong with a task that was answered before.
fn compare_with_answer(told: &Value, task: &Value) -> Option<String> {
    let same = if is_terminal(state_of(told)) {
        told == task
    } else {
        // It has gone on since, but not back.
        let (before, now) = (history(told), history(task));
        told["id"] == task["id"] && told["contextId"] == task["contextId"] && now.starts_with(before)
    };
    (!same).then(|| format!("acknowledged as {} but is now {}", short(told), short(task)))
}

/// What is wrong with the events of a task, given what became of it.
fn compare_with_log(sent: &Sent, log: &[Event], task: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let numbers: Vec<_> = log.iter().map(|event| event.seq).collect();
    // A message of the client's has a number too, but is not shown.
    let shown = match &sent.reply {
        Some(_) => numbers.is_sorted_by(|one, next| one < next) && numbers.first() == Some(&1),
        None => numbers.iter().copied().eq(1..=log.len() as u64),
    };
    if !shown {
        wrong.push(format!("its events are numbered {numbers:?}"));
    }
    match log.last() {
        Some(last) if last.state() == Some(state_of(task)) => {}
        last => wrong.push(format!("it is in {} and its last event is {last:?}", state_of(task))),
    }
    let mut said = String::new();
    for event in log {
        if event.begins_an_artifact() {
            said.clear();
        }
        said.push_str(&text_of(&event.what["artifactUpdate"]["artifact"]["parts"]));
    }
    let artifact = text_of(&task["artifacts"][0]["parts"]);
    if said != artifact {
        wrong.push(format!("its events say `{}` and its artifact `{}`", clip(&said), clip(&artifact)));
    }
    wrong
}

/// Where a stream, of which the client had seen `seen` events before it was cut off, differs from the log.
fn complain_about_difference(events: &[Event], seen: usize, log: &[Event]) -> Option<String> {
    if events == log {
        return None;
    }
    let same = events.iter().zip(log).take_while(|(event, logged)| event == logged).count();
    let numbers = |events: &[Event]| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    let show = |events: &[Event]| events.get(same).map(|event| short(&event.what));
    Some(format!(
        "its stream had events {:?} before it was cut off and {:?} with the rest, the log has {:?}; where they part, the stream has {:?} and the log {:?}",
        numbers(&events[..seen.min(events.len())]),
        numbers(events),
        numbers(log),
        show(events),
        show(log),
    ))
}

impl Expected<'_> {
    fn news(&self) -> impl Iterator<Item = &Event> {
        let everything = self.sent.hook == Some(News::Everything);
        self.events.iter().filter(move |event| everything || event.state().is_some())
    }

    fn is_told(&self, arrivals: &[Arrival]) -> bool {
        self.news().all(|event| arrivals.iter().any(|arrival| arrival.seq == event.seq))
    }

    /// What is wrong with what the webhook was told.
    fn compare(&self, arrivals: &[Arrival]) -> Vec<String> {
        let mut wrong = Vec::new();
        let wanted: Vec<_> = self.news().map(|event| event.seq).collect();
        let came: Vec<_> = arrivals.iter().map(|arrival| arrival.seq).collect();
        if !self.is_told(arrivals) {
            wrong.push(format!("should have been told of events {wanted:?} and was told of {came:?}"));
        }
        let mut firsts: Vec<u64> = Vec::new();
        for seq in &came {
            if !firsts.contains(seq) {
                firsts.push(*seq);
            }
        }
        if !firsts.is_sorted() {
            wrong.push(format!("was told out of order: {came:?}"));
        }
        let mut deliveries: HashMap<u64, &str> = HashMap::new();
        for arrival in arrivals {
            let known = deliveries.entry(arrival.seq).or_insert(&arrival.delivery);
            if *known != arrival.delivery {
                wrong.push(format!("was told of event {} as two deliveries", arrival.seq));
            }
            if arrival.token != self.sent.token() {
                wrong.push(format!(
                    "was told with the token `{}`, not `{}`",
                    arrival.token,
                    self.sent.token()
                ));
            }
            match self.news().find(|event| event.seq == arrival.seq) {
                Some(event) if event.what == arrival.what => {}
                logged => wrong.push(format!(
                    "was told {} as event {}, where the log has {:?}",
                    short(&arrival.what),
                    arrival.seq,
                    logged.map(|event| short(&event.what)),
                )),
            }
        }
        let distinct: HashSet<_> = deliveries.values().collect();
        if distinct.len() != deliveries.len() {
            wrong.push("was told of several events as one delivery".to_owned());
        }
        wrong
    }
}

/// Waits until all webhooks were told, and looks at what they were told.
async fn check_webhooks(
    expected: &[Expected<'_>],
    listed: &HashSet<&str>,
    receiver: &Receiver,
) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut arrivals = receiver.arrivals();
    let told = |arrivals: &HashMap<String, Vec<Arrival>>| {
        expected.iter().all(|one| arrivals.get(&one.task).is_some_and(|arrivals| one.is_told(arrivals)))
    };
    while !told(&arrivals) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
        arrivals = receiver.arrivals();
    }
    let mut wrong = Vec::new();
    for one in expected {
        let came = arrivals.remove(&one.task).unwrap_or_default();
        wrong.extend(
            one.compare(&came).into_iter().map(|what| format!("the webhook of task {} {what}", one.task)),
        );
    }
    let gone = arrivals.keys().filter(|task| !listed.contains(&***task));
    wrong.extend(gone.map(|task| format!("a webhook was told of task {task:?}, which is not there")));
    wrong
}

fn id_of(task: &Value) -> &str {
    task["id"].as_str().unwrap_or_default()
}

fn state_of(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

fn history(task: &Value) -> &[Value] {
    task["history"].as_array().map_or(&[], Vec::as_slice)
}

fn text_of(parts: &Value) -> String {
    parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
}

/// A value, not too much of it.
fn short(value: &Value) -> String {
    clip(&value.to_string())
}

fn clip(text: &str) -> String {
    const LONGEST: usize = 700;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
