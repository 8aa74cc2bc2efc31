//! Agents at work: who sees their reports, what they may do, and what does not leave the machine.

use std::sync::Arc;

use attache_core::{
    Agent, AgentResult, Exposure, Namespace, PendingPermission, Permission, PermissionAction,
    PermissionAudit, PermissionPolicy, PermissionRequest, PermissionRule, REPORTS_EXTENSION, Redaction,
    Report, ToolReport, Turn, Usage, agent_fn,
};
use attache_protocol::{Extensions, JsonObject, Part, StreamResponse, Task, TaskState};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{Client, Event, Host, host, host_with, say, say_part, status_text};

fn reporter() -> impl Agent {
    agent_fn(|turn: Turn| async move {
        turn.report(Report::tool(ToolReport::started("t").name("edit")).text("edit: started")).await?;
        turn.report(ToolReport::completed("t").name("edit").result("ok")).await?;
        turn.report(Usage::new(1, 2)).await?;
        turn.report(Report::thinking("secret thoughts")).await?;
        turn.complete().await
    })
}

fn with_reports(mut client: Client) -> Client {
    client.caller.extensions = Extensions::parse([REPORTS_EXTENSION]);
    client
}

/// The metadata of all status updates.
fn metadata(events: &[Event]) -> Vec<Value> {
    let metadata = events.iter().filter_map(|event| match &event.what {
        StreamResponse::StatusUpdate(update) => update.metadata.as_ref(),
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
    });
    metadata.map(|metadata| metadata.read().expect("JSON")).collect()
}

#[tokio::test(start_paused = true)]
async fn only_readers_that_activate_the_extension_get_reports() {
    let host = host(reporter());
    let events = with_reports(host.client()).stream(say("x")).await.rest().await;
    assert_eq!(
        metadata(&events),
        [
            json!({"attache": {"tool": {"status": "started", "toolUseId": "t", "name": "edit"}}}),
            json!({"attache": {"tool": {"status": "completed", "toolUseId": "t", "name": "edit", "result": "ok"}}}),
            json!({"attache": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}}),
        ]
    );
    let events = host.client().stream(say("x")).await.rest().await;
    assert_eq!(metadata(&events), Vec::<Value>::new());
    // The text for people stays, and updates that were only reports are left out: created, started, completed.
    assert_eq!(events.len(), 3, "{events:?}");
    // A resumed stream hides them too.
    let task = host.client().send(say("x")).await;
    let resumed = host.client().try_subscribe(&task.id, Some(0)).await.expect("a stream").rest().await;
    assert_eq!(metadata(&resumed), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn every_reader_gets_reports_in_the_namespace_of_iac_code() {
    let host = host_with(reporter(), |_, options| options.reports.namespace = Namespace::IacCode);
    let events = host.client().stream(say("x")).await.rest().await;
    assert_eq!(
        metadata(&events),
        [
            json!({"iac_code": {"tool": {"status": "started", "toolUseId": "t", "name": "edit"}}}),
            json!({"iac_code": {"tool": {"status": "completed", "toolUseId": "t", "name": "edit", "result": "ok"}}}),
            json!({"iac_code": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}}),
        ]
    );
}

/// An agent that asks for a permission and keeps what it waits for, as long as the process runs.
#[derive(Clone, Default)]
struct Careful {
    waiting: Arc<Mutex<Option<PendingPermission>>>,
}

impl Agent for Careful {
    async fn run(&self, turn: Turn) -> AgentResult {
        let waiting = self.waiting.lock().take();
        if let Some(pending) = waiting {
            return match turn.permission_answer(&pending).await? {
                Some(answer) if answer.allows => turn.complete_with("done").await,
                Some(_) => turn.complete_with("not done").await,
                None => {
                    let pending = turn.ask_permission(pending.request, true).await?;
                    *self.waiting.lock() = Some(pending);
                    Ok(())
                }
            };
        }
        if let Some(lost) = turn.lost_permission() {
            return turn.complete_with(format!("lost: {}", lost.tool)).await;
        }
        let input = json!({"path": turn.text(), "content": "secret content"});
        let request = PermissionRequest::new("call-1", "edit_file").input(input);
        match turn.permission(&request, PermissionAction::Ask) {
            Permission::Allowed => turn.complete_with("done").await,
            Permission::Denied => turn.complete_with("not done").await,
            Permission::Ask => {
                let pending = turn.ask_permission(request, false).await?;
                *self.waiting.lock() = Some(pending);
                Ok(())
            }
        }
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A host with rules, and the decisions that it records.
fn careful(namespace: Namespace) -> (Host, Lines) {
    let lines = Lines::default();
    let recorded = lines.clone();
    let audit = PermissionAudit::new(move |record| {
        if record.task.as_str().is_empty() {
            return Err("a task is missing".to_owned());
        }
        let decision = if record.allowed { "allow" } else { "deny" };
        let caller = record.caller.unwrap_or("anonymous");
        recorded.lock().push(format!("{} {} {decision} {caller}", record.tool, record.rule));
        Ok(())
    });
    let rule = |path: &str, action| {
        PermissionRule::new("edit*".parse().expect("a pattern"), action)
            .path(path.parse().expect("a pattern"))
    };
    let policy = PermissionPolicy::default()
        .rule(rule("src/**", PermissionAction::Allow))
        .rule(rule("**/.env", PermissionAction::Deny))
        .audit(audit);
    let host = host_with(Careful::default(), |_, options| {
        options.permissions = policy;
        options.reports.namespace = namespace;
    });
    (host, lines)
}

#[tokio::test(start_paused = true)]
async fn rules_decide_without_the_caller_and_each_decision_is_recorded() {
    let (host, lines) = careful(Namespace::IacCode);
    let alice = host.user("alice");
    let events = alice.stream(say("src/a.rs")).await.rest().await;
    assert_eq!(metadata(&events)[0]["iac_code"]["permission"]["autoApproved"], true);
    let events = alice.stream(say("src/../.env")).await.rest().await;
    let permission = &metadata(&events)[0]["iac_code"]["permission"];
    assert_eq!(permission["autoApproved"], false);
    assert_eq!(permission["toolName"], "edit_file");
    assert_eq!(permission["toolUseId"], "call-1");
    assert_eq!(*lines.lock(), ["edit_file rule 1 allow alice", "edit_file rule 2 deny alice"]);
}

#[tokio::test(start_paused = true)]
async fn the_caller_is_asked_and_the_answer_goes_on() {
    let (host, lines) = careful(Namespace::Attache);
    let alice = host.user("alice");
    for (answer, expected) in [("yes", "done"), ("no", "not done")] {
        let asked = alice.send(say("other.txt")).await;
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let question = data_of(&asked);
        assert_eq!(question["permission"]["tool"], "edit_file");
        assert_eq!(question["permission"]["paths"], json!(["other.txt"]));
        assert_eq!(question["permission"]["options"][0]["kind"], "allow_once");
        // Another caller does not see the task, so it cannot answer.
        assert!(host.user("mallory").try_send(say(answer).to(&asked)).await.is_err());
        let again = alice.send(say("perhaps").with_id("m2").to(&asked)).await;
        assert!(status_text(&again).starts_with("The answer was not understood."), "{again:?}");
        let done = alice.send(say(answer).with_id("m3").to(&asked)).await;
        assert_eq!(status_text(&done), expected);
    }
    assert_eq!(*lines.lock(), ["edit_file caller allow alice", "edit_file caller deny alice"]);
}

fn data_of(task: &Task) -> Value {
    let message = task.status.message.as_ref().expect("a message");
    message.parts.iter().find_map(Part::as_data).expect("a data part").read().expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_client_of_iac_code_answers_in_its_strict_form_and_gets_an_acknowledgement() {
    let (host, lines) = careful(Namespace::IacCode);
    let client = host.client();
    let mut events = client.stream(say("other.txt")).await;
    let asked = events.until(TaskState::InputRequired).await;
    let StreamResponse::StatusUpdate(update) = &asked.what else { panic!("expected a status") };
    let shown: Value = update.metadata.as_ref().expect("metadata").read().expect("JSON");
    let input = &shown["iac_code"]["input"];
    assert_eq!((&input["schemaVersion"], &input["kind"]), (&json!(1), &json!("permission")));
    assert_eq!(
        input["options"],
        json!([{"id": "allow_once", "label": "Allow once"}, {"id": "deny", "label": "Deny"}])
    );
    assert_eq!(shown["iac_code"]["permission"]["pending"], true);
    let task = client.get(&update.task_id).await;
    // What is not an answer is refused, and the task still waits.
    let error = client.try_send(say("yes").to(&task)).await.unwrap_err();
    assert_eq!(error.to_string(), "Permission responses must contain exactly one application/json DataPart.");
    assert_eq!(client.get(&task.id).await.status.state, TaskState::InputRequired);
    let answer = json!({"schemaVersion": 1, "kind": "permission", "requestTaskId": task.id, "inputId": input["inputId"],
        "toolUseId": "call-1", "decision": "allow_once"});
    let answer = say_part(Part::data(&answer).expect("JSON").media_type("application/json")).with_id("m2");
    let events = client.stream(answer.clone().to(&task)).await.rest().await;
    let received: Vec<Value> = metadata(&events);
    assert_eq!(received[0]["iac_code"]["inputReceived"]["decision"], "allow_once");
    let done = client.get(&task.id).await;
    assert_eq!(status_text(&done), "done");
    let ack = done.history.iter().rev().find_map(|it| it.parts.iter().find_map(Part::as_data));
    let ack: Value = ack.expect("an acknowledgement").read().expect("JSON");
    assert_eq!(
        ack,
        json!({"schemaVersion": 1, "kind": "permission_ack", "inputId": input["inputId"],
        "toolUseId": "call-1", "decision": "allow_once", "accepted": true})
    );
    assert_eq!(*lines.lock(), ["edit_file caller allow anonymous"]);
    // A second answer comes too late.
    let other = client.send(say("src/a.rs")).await;
    assert_eq!(other.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_a_restart_finds_the_request_denied() {
    let (host, lines) = careful(Namespace::Attache);
    let asked = host.client().send(say("other.txt")).await;
    // The same store, with an agent that does not remember anything.
    let recorded = lines.clone();
    let restarted = crate::support::host_on(host.store.clone(), Careful::default(), |_, options| {
        options.permissions = PermissionPolicy::default().audit(PermissionAudit::new(move |record| {
            recorded.lock().push(format!("{} {} {}", record.tool, record.rule, record.allowed));
            Ok(())
        }));
    });
    let done = restarted.client().send(say("yes").with_id("m2").to(&asked)).await;
    assert_eq!(status_text(&done), "lost: edit_file");
    assert_eq!(*lines.lock(), ["edit_file the agent does not wait any more false"]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_cannot_be_recorded_is_a_denial() {
    let host = host_with(Careful::default(), |_, options| {
        let audit = PermissionAudit::new(|_| Err("the disk is full".to_owned()));
        options.permissions = PermissionPolicy::default()
            .rule(PermissionRule::new("read*".parse().unwrap(), PermissionAction::Allow))
            .audit(audit);
    });
    let asked = host.client().send(say("other.txt")).await;
    let done = host.client().send(say("yes").with_id("m2").to(&asked)).await;
    assert_eq!(status_text(&done), "not done");
    let allowing = host_with(Careful::default(), |_, options| {
        let audit = PermissionAudit::new(|_| Err("the disk is full".to_owned()));
        options.permissions =
            PermissionPolicy::default().default_action(PermissionAction::Allow).audit(audit);
    });
    assert_eq!(status_text(&allowing.client().send(say("other.txt")).await), "not done");
}

#[tokio::test(start_paused = true)]
async fn no_secret_and_no_path_gets_into_any_answer_of_an_agent() {
    let agent = agent_fn(|turn: Turn| async move {
        match turn.text().as_str() {
            "reply" => turn.reply("the key is hunter2-hunter2").await,
            "fail" => Err(attache_core::AgentError::public("cannot read /srv/project/a.txt")),
            _ => {
                turn.hide_path("/data/workspaces/7", "<workspace>");
                turn.working("in /data/workspaces/7/src").await?;
                let mut stream = turn.artifact("answer").stream();
                for piece in ["the key is hunt", "er2-hun", "ter2 in /srv/proj", "ect/b"] {
                    stream.chunk(piece).await?;
                }
                turn.report(ToolReport::completed("t").result(json!({"out": "hunter2-hunter2"}))).await?;
                turn.complete().await
            }
        }
    });
    let host = host_with(agent, |_, options| {
        options.redaction =
            Some(Redaction::new().secret("hunter2-hunter2").path("/srv/project", "<project>"));
    });
    let client = with_reports(host.client());
    let reply = client.try_send(say("reply")).await.expect("a reply").message();
    assert_eq!(reply.text(), "the key is ********");
    assert_eq!(status_text(&client.send(say("fail")).await), "cannot read <project>/a.txt");
    let events = client.stream(say("work")).await.rest().await;
    let all = format!("{events:?}");
    assert!(
        !all.contains("hunter2-hunter2") && !all.contains("/srv/project") && !all.contains("/data"),
        "{all}"
    );
    assert_eq!(metadata(&events)[0]["attache"]["tool"]["result"]["out"], "********");
    let task = client.list_all().await.remove(0);
    let task = client.get(&task.id).await;
    let text: String = task.artifacts[0].parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(text, "the key is ******** in <project>/b");
    assert_eq!(crate::support::history(&task)[1], "in <workspace>/src");
}

#[tokio::test(start_paused = true)]
async fn a_secret_at_the_cut_of_a_report_and_across_thoughts_is_masked() {
    let agent = agent_fn(|turn: Turn| async move {
        let long = format!("{}hunter2-hunter2", "x".repeat(3_990));
        turn.report(ToolReport::completed("t").result(json!({"out": long}))).await?;
        let metadata = turn.report_metadata(ToolReport::completed("t").title(long.clone()));
        turn.working_with("", metadata.expect("it is exposed")).await?;
        // People read the same pieces of a thought as programs.
        for piece in ["the key is hunter2", "-hunter2 and hunt"] {
            turn.report(Report::thinking(piece).text(piece).allowed()).await?;
        }
        let request = PermissionRequest { title: long, ..PermissionRequest::new("c", "edit") };
        let _pending = turn.ask_permission(request, false).await?;
        Ok(())
    });
    let host =
        host_with(agent, |_, options| options.redaction = Some(Redaction::new().secret("hunter2-hunter2")));
    let mut events = with_reports(host.client()).stream(say("x")).await;
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        let is_question = event.state() == Some(TaskState::InputRequired);
        all.push(event);
        if is_question {
            break;
        }
    }
    let shown = format!("{all:?}");
    assert!(!shown.contains("xhunter2"), "{shown}");
    let masked = format!("{}********", "x".repeat(3_990));
    let found = metadata(&all);
    assert_eq!(found[0]["attache"]["tool"]["result"]["out"], masked);
    assert_eq!(found[1]["attache"]["tool"]["title"], masked);
    let text = |event: &Event| match &event.what {
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
        }
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => {
            String::new()
        }
    };
    let texts: Vec<String> = all.iter().map(text).filter(|text| !text.is_empty()).collect();
    assert_eq!(texts[..3].concat(), "the key is ******** and hunt");
    assert!(texts[3].contains(&masked), "{texts:?}");
}

#[tokio::test(start_paused = true)]
async fn files_in_the_results_of_tools_become_artifacts_whatever_is_exposed() {
    for exposure in [Exposure::default(), Exposure::NONE] {
        let agent = agent_fn(|turn: Turn| async move {
            for content in ["one", "two"] {
                let result = json!({"artifact": {"filename": "a.yml", "content": content}});
                turn.report(ToolReport::completed("t").result(result.clone())).await?;
                turn.report(ToolReport::completed("t").result(result.to_string())).await?;
            }
            turn.complete().await
        });
        let host = host_with(agent, |_, options| options.reports.exposure = exposure);
        let client = with_reports(host.client());
        let events = client.stream(say("x")).await.rest().await;
        for metadata in metadata(&events) {
            let file = &metadata["attache"]["tool"]["result"]["artifact"];
            let described =
                json!({"filename": "a.yml", "mediaType": "application/octet-stream", "byteSize": 3});
            assert_eq!(*file, described);
        }
        let task = client.get(&client.list_all().await[0].id).await;
        let files = task.artifacts.iter().map(|file| (&*file.artifact_id, file.parts[0].content.clone()));
        let content = |text: &str| Part::raw(text).content;
        let expected = [("file:a.yml", content("one")), ("file:a.yml:2", content("two"))];
        assert_eq!(files.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_in_the_metadata_of_a_message_are_not_stored() {
    let agent = agent_fn(|turn: Turn| async move {
        let metadata = [turn.message().metadata.as_ref(), turn.metadata()];
        let known: Vec<_> = metadata.into_iter().flatten().map(JsonObject::as_str).collect();
        turn.ask(known.join(" ")).await
    });
    let host = host_with(agent, |_, options| options.reports.namespace = Namespace::IacCode);
    let metadata =
        json!({"user_id": "u", "iac_code_api_key": "sk-1", "alibaba_cloud_access_key_secret": "sk-2"});
    let message = || {
        let mut message = say("x").with_metadata("iac_code", metadata.clone());
        message.0.message.metadata = message.0.metadata.clone();
        message
    };
    let client = host.client();
    let first = client.send(message()).await;
    let second = client.send(message().with_id("m2").to(&first)).await;
    let all = json!([first, second, client.get(&first.id).await]).to_string();
    assert!(all.contains("user_id") && !all.contains("sk-"), "{all}");
}
