//! Requests for permission that get no answer: the time is over, the agent ends, the task is canceled, the server is restarted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    Agent, AgentResult, BoxAgent, ContextHold, Conversation, EndState, MemoryStore, Namespace, Options,
    PeerRules, PendingPermission, Permission, PermissionAction, PermissionAudit, PermissionPolicy,
    PermissionRequest, PermissionRule, REPORTS_EXTENSION, Store, Turn, Workspaces, conversational,
};
use attache_protocol::{ErrorKind, Extensions, JsonObject, Part, StreamResponse, Task, TaskId, TaskState};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{
    Client, Host, Say, SlowStore, history, host_on, host_with, in_virtual_time, say, say_part, settle_down,
    soon, status_text,
};

/// How long the agent waits for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// What waits for an answer, with the context that it keeps.
type Kept = Arc<Mutex<HashMap<TaskId, (PendingPermission, Option<ContextHold>)>>>;

/// An agent that asks at `ask`, and goes on in the same task when it has the answer.
#[derive(Clone, Default)]
struct Patient {
    waiting: Kept,
}

impl Patient {
    /// What the agent needs for the answer has ended.
    fn end_work(&self) {
        let ended = std::mem::take(&mut *self.waiting.lock());
        drop(ended);
    }
}

impl Agent for Patient {
    async fn run(&self, turn: Turn) -> AgentResult {
        let waiting = self.waiting.lock().remove(turn.task_id());
        let request = match waiting {
            Some((pending, _held)) => match turn.permission_answer(&pending).await? {
                Some(answer) if answer.allows => return turn.complete_with("done").await,
                Some(_) => return turn.complete_with("went on without").await,
                None => pending.request,
            },
            None => {
                turn.require_message()?;
                if let Some(lost) = turn.lost_permission() {
                    return turn.complete_with(format!("told that `{}` was denied", lost.tool)).await;
                }
                if turn.text() != "ask" {
                    return turn.complete_with(format!("heard {}", turn.text())).await;
                }
                PermissionRequest::new("call-1", "edit").input(json!({"path": "a.txt"}))
            }
        };
        let held = turn.context().hold();
        let pending = turn.ask_permission(request, false).await?;
        pending.deny_after(LIMIT);
        self.waiting.lock().insert(turn.task_id().clone(), (pending, held));
        Ok(())
    }

    fn task_ended(&self, task: &TaskId) {
        let ended = self.waiting.lock().remove(task);
        drop(ended);
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

struct Setup {
    host: Host,
    agent: Patient,
    lines: Lines,
}

fn setup(namespace: Namespace) -> Setup {
    setup_on(Arc::new(MemoryStore::new()), namespace)
}

/// In the namespace of iac-code, the server has the rules of that system too.
fn configure(options: &mut Options, namespace: Namespace, lines: &Lines) {
    let recorded = lines.clone();
    options.permissions = PermissionPolicy::default().audit(PermissionAudit::new(move |record| {
        recorded.lock().push(format!("{} {} {}", record.tool, record.rule, record.allowed));
        Ok(())
    }));
    options.reports.namespace = namespace;
    options.peer = match namespace {
        Namespace::Attache => PeerRules::Standard,
        Namespace::IacCode => PeerRules::IacCode,
    };
}

fn setup_on(store: Arc<dyn Store>, namespace: Namespace) -> Setup {
    let (agent, lines) = (Patient::default(), Lines::default());
    let rules = Conversation::default().with(|rules| {
        if namespace == Namespace::IacCode {
            rules.contexts.end_state = EndState::InputRequired;
        }
    });
    let served: BoxAgent = conversational(agent.clone(), rules).boxed();
    let host = host_on(store, served, |_, options| configure(options, namespace, &lines));
    Setup { host, agent, lines }
}

const BOTH: [Namespace; 2] = [Namespace::Attache, Namespace::IacCode];

/// The answer as clients of iac-code send it.
fn strict_answer(asked: &Task) -> Say {
    let question = asked.status.message.as_ref().and_then(|it| it.parts.iter().find_map(Part::as_data));
    let question: Value = question.expect("a question").read().expect("JSON");
    let answer = json!({"schemaVersion": 1, "kind": "permission", "requestTaskId": asked.id,
        "inputId": question["inputId"], "toolUseId": "call-1", "decision": "allow_once"});
    say_part(Part::data(&answer).expect("JSON").media_type("application/json")).with_id("late").to(asked)
}

/// The decision in the metadata of the part that tells of a denial.
fn decision(task: &Task, namespace: Namespace) -> Value {
    let mut messages = task.history.iter().chain(task.status.message.as_deref());
    let told = messages.find(|message| message.text().contains("was denied")).expect("a denial");
    let metadata: Value = told.parts[0].metadata.as_ref().expect("metadata").read().expect("JSON");
    metadata[namespace.name()]["permission"].clone()
}

async fn ask(client: &Client) -> Task {
    let asked = client.send(say("ask").in_context("c")).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    asked
}

const DENIED: &str = "The request `edit` was denied: no answer within 60 s";

#[tokio::test(start_paused = true)]
async fn after_the_time_limit_the_agent_gets_the_denial_and_readers_see_it() {
    for namespace in BOTH {
        let Setup { host, lines, .. } = setup(namespace);
        let mut client = host.user("alice");
        client.caller.extensions = Extensions::parse([REPORTS_EXTENSION]);
        let asked = ask(&client).await;
        let mut open = match namespace {
            Namespace::Attache => Some(client.subscribe(&asked.id).await),
            // There, a task that waits has no subscriptions.
            Namespace::IacCode => None,
        };
        // Another task of the context waits until then.
        let other = client.send_meanwhile(say("hello").in_context("c").with_id("m2"));
        tokio::time::sleep(LIMIT - Duration::from_millis(1)).await;
        assert_eq!(client.get(&asked.id).await, asked);
        assert!(!other.is_finished());
        assert_eq!(status_text(&other.await.unwrap()), "heard hello");
        let end = client.get(&asked.id).await;
        assert_eq!(status_text(&end), "went on without");
        assert_eq!(history(&end).last().unwrap(), DENIED);
        let decided = decision(&end, namespace);
        assert_eq!((&decided["autoApproved"], &decided["decision"]), (&json!(false), &json!("deny")));
        assert_eq!((&decided["toolName"], &decided["toolUseId"]), (&json!("edit"), &json!("call-1")));
        if let Some(open) = &mut open {
            let denied = open.until(TaskState::Working).await;
            let StreamResponse::StatusUpdate(update) = denied.what else { panic!("a status update") };
            assert_eq!(update.status.message.unwrap().text(), DENIED);
            let metadata: Value = update.metadata.unwrap().read().unwrap();
            assert_eq!(metadata["attache"]["permission"]["decision"], "deny");
            open.until(TaskState::Completed).await;
        }
        assert_eq!(*lines.lock(), ["edit time limit false"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_time_limit_permits_nothing_and_says_so() {
    for namespace in BOTH {
        let Setup { host, lines, .. } = setup(namespace);
        let client = host.user("alice");
        let asked = ask(&client).await;
        tokio::time::sleep(LIMIT + Duration::from_secs(1)).await;
        match namespace {
            Namespace::Attache => {
                let late = client.try_send(say("yes").with_id("late").to(&asked)).await.unwrap_err();
                assert!(late.to_string().contains("has ended in TASK_STATE_COMPLETED"), "{late}");
            }
            Namespace::IacCode => {
                let late = client.try_send(strict_answer(&asked)).await.unwrap_err();
                assert_eq!(late.kind(), ErrorKind::InvalidParams);
                assert!(late.to_string().contains("does not wait for a permission"), "{late}");
                // A text is a message like any other.
                let next = client.send(say("next").with_id("m3").to(&asked)).await;
                assert!(!status_text(&next).contains("done"), "{next:?}");
                assert_eq!(next.status.state, TaskState::InputRequired);
            }
        }
        assert_eq!(*lines.lock(), ["edit time limit false"]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_question_is_void() {
    for namespace in BOTH {
        let before = setup(namespace);
        let (one, two) = (ask(&before.host.user("alice")).await, ask(&before.host.user("bob")).await);
        let after = setup_on(before.host.store.clone(), namespace);
        let (alice, bob) = (after.host.user("alice"), after.host.user("bob"));
        if namespace == Namespace::IacCode {
            let late = alice.try_send(strict_answer(&one)).await.unwrap_err();
            assert!(late.to_string().contains("does not wait for a permission"), "{late}");
        }
        let heard = alice.send(say("go on").with_id("m2").to(&one)).await;
        assert_eq!(status_text(&heard), "told that `edit` was denied");
        let canceled = bob.cancel(&two.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        assert_eq!(*after.lines.lock(), ["edit the agent does not wait any more false"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_agents_work_denies_the_request_and_the_task_goes_on() {
    for namespace in BOTH {
        let Setup { host, agent, lines } = setup(namespace);
        let (alice, bob) = (host.user("alice"), host.user("bob"));
        let (one, two) = (ask(&alice).await, ask(&bob).await);
        agent.end_work();
        settle_down().await;
        let void = alice.get(&one.id).await;
        assert_eq!(void.status.state, TaskState::InputRequired);
        let told = "The request `edit` was denied: the agent does not wait any more";
        assert_eq!(status_text(&void), told);
        assert_eq!(decision(&void, namespace)["decision"], "deny");
        assert_eq!(*lines.lock(), ["edit the agent ended false"; 2]);
        let heard = alice.send(say("go on").with_id("m2").to(&one)).await;
        assert_eq!(status_text(&heard), "told that `edit` was denied");
        assert_eq!(bob.cancel(&two.id).await.unwrap().status.state, TaskState::Canceled);
        // It was recorded once.
        assert_eq!(lines.lock().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_can_be_canceled_and_its_request_is_recorded_as_canceled() {
    for namespace in BOTH {
        let (agent, lines) = (Patient::default(), Lines::default());
        // An agent without conversations holds no context.
        let host = host_with(agent.clone(), |_, options| configure(options, namespace, &lines));
        let client = host.client();
        let asked = client.send(say("ask")).await;
        assert_eq!(client.cancel(&asked.id).await.unwrap().status.state, TaskState::Canceled);
        assert!(agent.waiting.lock().is_empty());
        assert_eq!(*lines.lock(), ["edit canceled false"]);
        tokio::time::sleep(LIMIT * 2).await;
        assert_eq!(client.get(&asked.id).await.status.state, TaskState::Canceled);
        assert_eq!(lines.lock().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_that_meets_the_question_of_a_running_one_leaves_it_void() {
    let first = setup(Namespace::Attache);
    let asked = ask(&first.host.client()).await;
    // Another server on the same store takes the next message.
    let second = setup_on(first.host.store.clone(), Namespace::Attache);
    let heard = second.host.client().send(say("yes").with_id("m2").to(&asked)).await;
    assert_eq!(status_text(&heard), "told that `edit` was denied");
    tokio::time::sleep(LIMIT * 2).await;
    // The first one lets go, and changes nothing.
    assert!(first.agent.waiting.lock().is_empty());
    assert_eq!(first.host.client().get(&asked.id).await, heard);
    assert_eq!(*first.lines.lock(), ["edit time limit false"]);
}

#[test]
fn an_answer_at_the_time_limit_is_either_in_time_or_too_late() {
    for seed in 0..60 {
        in_virtual_time(async {
            let Setup { host, lines, .. } = setup_on(SlowStore::with_jitter(seed), Namespace::Attache);
            let client = host.user("alice");
            let asked = ask(&client).await;
            tokio::time::sleep(LIMIT - Duration::from_millis(seed * 4)).await;
            let answered = client.try_send(say("yes").with_id("m2").to(&asked)).await;
            let end = soon(async {
                loop {
                    let task = client.get(&asked.id).await;
                    if task.status.state.is_terminal() {
                        return task;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            let (text, denials) = (status_text(&end), lines.lock().clone());
            match text.as_str() {
                "done" => assert_eq!(denials, ["edit caller true"], "{seed}"),
                "went on without" => assert_eq!(denials, ["edit time limit false"], "{seed}"),
                other => panic!("{seed}: {other} {answered:?} {end:?}"),
            }
            if answered.is_err() {
                assert_eq!(text, "went on without");
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn rules_know_the_paths_of_the_workspace_however_they_are_written() {
    struct Opener;

    impl Agent for Opener {
        async fn run(&self, turn: Turn) -> AgentResult {
            let request = PermissionRequest::new("c", "edit").input(json!({"path": turn.text()}));
            turn.context().workspace().await?;
            match turn.permission(&request, PermissionAction::Ask) {
                Permission::Allowed => turn.complete_with("allowed").await,
                Permission::Denied => turn.complete_with("denied").await,
                Permission::Ask => {
                    let pending = turn.ask_permission(request, false).await?;
                    turn.context().keep("pending", Arc::new(pending));
                    Ok(())
                }
            }
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("ws");
    std::fs::create_dir(&root).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&root, folder.path().join("link")).unwrap();
    let rules =
        Conversation::default().with(|rules| rules.workspaces = Workspaces::default().allow([folder.path()]));
    let host = host_with(conversational(Opener, rules), |_, options| {
        let rule = |path: &str, action| {
            PermissionRule::new("edit".parse().unwrap(), action).path(path.parse().unwrap())
        };
        options.permissions = PermissionPolicy::default()
            .rule(rule("secrets/**", PermissionAction::Deny))
            .rule(rule("src/**", PermissionAction::Allow));
    });
    let tell = async |path: &str| {
        let mut told = say(path);
        let metadata = json!({"attache": {"workspace": folder.path().join("link")}});
        told.0.message.metadata = Some(JsonObject::new(&metadata).unwrap());
        host.client().send(told).await
    };
    let inside = |path: &str| format!("{}/{path}", root.display());
    for path in [
        "secrets/x".to_owned(),
        "./secrets/x".to_owned(),
        "src/../secrets/x".to_owned(),
        inside("secrets/x"),
        inside("src/../secrets/x"),
        format!("{}/link/secrets/x", folder.path().display()),
        format!("file://{}", inside("secrets/x")),
        format!("file://localhost{}", inside("%73ecrets/x")),
    ] {
        assert_eq!(status_text(&tell(&path).await), "denied", "{path}");
    }
    assert_eq!(status_text(&tell(&inside("src/a.rs")).await), "allowed");
    let asked = tell(&inside("docs/a.md")).await;
    let question: Value = asked.status.message.unwrap().parts[1].as_data().unwrap().read().unwrap();
    assert_eq!(question["permission"]["paths"], json!(["docs/a.md"]));
}
