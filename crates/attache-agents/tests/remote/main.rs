//! The import of remote skills, with agents on local ports.

mod support;

use std::sync::Arc;
use std::time::Duration;

use attache_agents::remote::import;
use attache_client::TrustedOrigins;
use attache_core::{Caller, MemoryStore, Options, Reply, Service};
use attache_iii::worker::{Worker, WorkerOptions};
use attache_iii::{
    CallError, Exposure, FunctionCall, FunctionGatewayOptions, Functions, Gateway, HOPS_EXTENSION,
};
use attache_protocol::{
    AgentInterface, CancelTaskRequest, JsonObject, Message, Part, Request, SendMessageConfiguration,
    SendMessageRequest, Task, TaskState, binding,
};
use serde_json::json;
use serde_json::value::to_raw_value;
use support::{
    LONG, TestAgent, call, call_within, card, described, engine, error, fast_options, functions, importing,
    without_streaming,
};

#[tokio::test]
async fn skills_become_functions_that_are_not_exposed() {
    let agent = TestAgent::start(card("Leek Kitchen", &["find", "pricing::quote"])).await;
    let (engine, imports) = importing(&agent).await;
    let catalog = functions(&engine, |ids| ids.len() == 2).await;
    let find = described(&catalog, "a2a.leek_kitchen::find");
    assert_eq!(find.description.as_deref(), Some("Does it"));
    assert_eq!(
        find.metadata,
        Some(json!({
            "a2a.name": "find", "a2a.tags": ["find"],
            "a2a.inputModes": ["text/plain"], "a2a.outputModes": ["text/plain"],
            "a2a.remote": {"url": agent.url(), "skill": "find"},
        }))
    );
    let ids: Vec<_> = imports.ids().iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["a2a.leek_kitchen::find", "a2a.leek_kitchen::pricing_quote"]);
    assert_eq!(Exposure::default().exposed(Some(&catalog)).count(), 0);
}

#[tokio::test]
async fn dropping_the_imports_unregisters_the_functions() {
    let agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let (engine, imports) = importing(&agent).await;
    drop(imports);
    functions(&engine, |ids| ids.is_empty()).await;
}

#[tokio::test]
async fn functions_follow_the_card() {
    let agent = TestAgent::start(card("Kitchen", &["find", "cook"])).await;
    let (engine, _imports) = importing(&agent).await;
    agent.set_card(card("Kitchen", &["cook", "serve"]));
    functions(&engine, |ids| ids == ["a2a.kitchen::cook", "a2a.kitchen::serve"]).await;

    let mut changed = card("Kitchen", &["cook"]);
    changed.skills[0].description = "Cooks leeks".to_owned();
    agent.set_card(changed);
    let catalog = functions(&engine, |ids| ids == ["a2a.kitchen::cook"]).await;
    assert_eq!(described(&catalog, "a2a.kitchen::cook").description.as_deref(), Some("Cooks leeks"));
    assert!(call(&engine, "a2a.kitchen::cook", json!("leeks")).await.is_ok(), "the function still works");

    agent.set_card(card("Canteen", &["cook"]));
    functions(&engine, |ids| ids == ["a2a.canteen::cook"]).await;
}

#[tokio::test]
async fn a_call_returns_the_result_of_the_agent() {
    for card in [
        card("Kitchen", &["find", "pricing::quote"]),
        without_streaming(card("Kitchen", &["find", "pricing::quote"])),
    ] {
        let mut agent = TestAgent::start(card).await;
        let (engine, _imports) = importing(&agent).await;
        assert_eq!(
            call(&engine, "a2a.kitchen::find", json!({"input": "leeks"})).await,
            Ok(json!({"text": "leeks"}))
        );
        assert_eq!(agent.message().await.metadata.unwrap().get::<String>("skillId").unwrap(), "find");
        assert_eq!(call(&engine, "a2a.kitchen::find", json!({"n": 2})).await, Ok(json!({"n": 2})));
        assert_eq!(
            call(&engine, "a2a.kitchen::find", json!({"text": "reply leeks"})).await,
            Ok(json!({"text": "leeks"}))
        );
        assert_eq!(
            call(&engine, "a2a.kitchen::pricing_quote", json!({"sku": "A-1"})).await,
            Ok(json!({"function_id": "pricing::quote", "payload": {"sku": "A-1"}}))
        );
    }
}

#[tokio::test]
async fn a_task_that_does_not_complete_is_an_error_with_its_message() {
    let agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let (engine, _imports) = importing(&agent).await;
    for (said, code) in [("fail no leeks today", "task_failed"), ("reject no leeks today", "task_rejected")] {
        let refused = error(call(&engine, "a2a.kitchen::find", json!({"input": said})).await);
        assert_eq!(refused, (code.to_owned(), "no leeks today".to_owned()));
    }
}

#[tokio::test]
async fn another_call_continues_a_task_that_requires_input() {
    for card in [card("Kitchen", &["find"]), without_streaming(card("Kitchen", &["find"]))] {
        let mut agent = TestAgent::start(card).await;
        let (engine, _imports) = importing(&agent).await;
        let (code, question) =
            error(call(&engine, "a2a.kitchen::find", json!({"input": "ask which one?"})).await);
        assert_eq!(code, "input_required");
        let mut words = question.split('`');
        let (asked, task, context) = (words.next().unwrap(), words.next().unwrap(), words.nth(1).unwrap());
        assert_eq!(asked, "which one? (task ");
        let answer = json!({"input": "the green one", "taskId": task, "contextId": context});
        assert_eq!(call(&engine, "a2a.kitchen::find", answer).await, Ok(json!({"text": "the green one"})));
        agent.message().await;
        let message = agent.message().await;
        assert_eq!(message.task_id.unwrap().as_str(), task);
        assert_eq!(message.context_id.unwrap().as_str(), context);
    }
}

#[tokio::test]
async fn dropping_a_call_cancels_the_remote_task() {
    for card in [card("Kitchen", &["find"]), without_streaming(card("Kitchen", &["find"]))] {
        let mut agent = TestAgent::start(card).await;
        let (engine, _imports) = importing(&agent).await;
        let payload = to_raw_value(&json!("wait")).unwrap();
        let wait = FunctionCall {
            function: "a2a.kitchen::find",
            payload: &payload,
            timeout: LONG,
            trace_parent: None,
        };
        tokio::select! {
            result = engine.call(wait) => panic!("it does not wait: {result:?}"),
            _ = agent.message() => {}
        }
        agent.canceled().await;
    }
}

#[tokio::test]
async fn a_call_that_times_out_cancels_the_remote_task() {
    let mut agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let (engine, _imports) = importing(&agent).await;
    let limit = Duration::from_millis(200);
    assert_eq!(
        call_within(&engine, "a2a.kitchen::find", json!("wait"), limit).await,
        Err(CallError::TimedOut)
    );
    agent.message().await;
    agent.canceled().await;
}

#[tokio::test]
async fn a_long_outage_removes_the_functions_until_the_agent_is_back() {
    let cook = || card("Kitchen", &["cook"]);
    let agent = TestAgent::start(cook()).await;
    let (engine, _imports) = importing(&agent).await;
    let address = agent.address.to_string();
    agent.stop().await;
    functions(&engine, |ids| ids.is_empty()).await;
    let _agent = TestAgent::start_at(&address, cook()).await;
    functions(&engine, |ids| ids == ["a2a.kitchen::cook"]).await;
    assert_eq!(call(&engine, "a2a.kitchen::cook", json!("leeks")).await, Ok(json!({"text": "leeks"})));
}

#[tokio::test]
async fn a_short_outage_keeps_the_functions() {
    let agent = TestAgent::start(card("Kitchen", &["cook"])).await;
    let engine = engine();
    let _imports =
        import(engine.clone(), [agent.url()], fast_options().with(|options| options.gone_after = LONG));
    functions(&engine, |ids| ids == ["a2a.kitchen::cook"]).await;
    let address = agent.address.to_string();
    agent.stop().await;
    let (code, _) = error(call(&engine, "a2a.kitchen::cook", json!("leeks")).await);
    assert_eq!(code, "agent_unreachable");
    let _agent = TestAgent::start_at(&address, card("Kitchen", &["cook", "serve"])).await;
    functions(&engine, |ids| ids == ["a2a.kitchen::cook", "a2a.kitchen::serve"]).await;
    assert_eq!(call(&engine, "a2a.kitchen::cook", json!("leeks")).await, Ok(json!({"text": "leeks"})));
}

#[tokio::test]
async fn two_agents_with_the_same_name_get_different_ids() {
    let agents =
        [TestAgent::start(card("Kitchen", &["a"])).await, TestAgent::start(card("Kitchen", &["a"])).await];
    let engine = engine();
    let _imports = import(engine.clone(), agents.iter().map(TestAgent::url), fast_options());
    let catalog = functions(&engine, |ids| ids == ["a2a.kitchen::a", "a2a.kitchen_2::a"]).await;
    let from = |id| described(&catalog, id).metadata.unwrap()["a2a.remote"]["url"].clone();
    assert_ne!(from("a2a.kitchen::a"), from("a2a.kitchen_2::a"));
}

#[tokio::test]
async fn imported_skills_are_not_imported_again() {
    let far = TestAgent::start(card("Far", &["cook"])).await;
    let (near, imports) = importing(&far).await;
    let everything = Exposure { all: true, ..Exposure::default() };
    let options = FunctionGatewayOptions::default().with(|options| options.exposure = everything);
    let card = Gateway::with_imports(Arc::new(near), options, imports).card();
    assert!(card.skills.iter().any(|skill| skill.id == "a2a.far::cook"), "{card:?}");
    let mut shown = self::card("Near", &["own"]);
    shown.skills.extend(card.skills.into_iter().filter(|skill| skill.id.starts_with("a2a.")));
    let (engine, _imports) = importing(&TestAgent::start(shown).await).await;
    functions(&engine, |ids| ids == ["a2a.near::own"]).await;
}

#[tokio::test]
async fn an_agent_does_not_import_itself() {
    let agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let engine = engine();
    let own = format!("{}/own", agent.url());
    let options = fast_options().with(|options| options.own_url = Some(format!("{own}/")));
    let _imports = import(engine.clone(), [agent.url()], options);
    functions(&engine, |ids| ids == ["a2a.kitchen::find"]).await;
    let mut itself = card("Kitchen", &["find"]);
    itself.supported_interfaces = vec![AgentInterface::new(format!("{own}/a2a"), binding::JSONRPC)];
    agent.set_card(itself);
    functions(&engine, |ids| ids.is_empty()).await;
}

#[tokio::test]
async fn a_card_names_another_server_only_if_the_options_allow_it() {
    let (agent, elsewhere) = (
        TestAgent::start(card("Kitchen", &["find"])).await,
        TestAgent::start(card("Elsewhere", &["find"])).await,
    );
    let (engine, _imports) = importing(&agent).await;
    let mut leading = card("Kitchen", &["find", "cook"]);
    leading.supported_interfaces =
        vec![AgentInterface::new(format!("{}/a2a", elsewhere.url()), binding::JSONRPC)];
    agent.set_card(leading);
    functions(&engine, |ids| ids.is_empty()).await;

    let mut allowing = fast_options();
    allowing.client.trusted_origins = TrustedOrigins::new();
    let _imports = import(engine.clone(), [agent.url()], allowing);
    functions(&engine, |ids| ids == ["a2a.kitchen::cook", "a2a.kitchen::find"]).await;
}

/// A service with a gateway that exposes all functions.
struct GatewayService(Service);

impl GatewayService {
    fn new(gateway: Gateway) -> Self {
        let card = gateway.card();
        Self(Service::new(gateway, Arc::new(MemoryStore::new()), card, Options::default()))
    }

    async fn send(&self, message: Message, wait: bool) -> Task {
        let configuration = Some(SendMessageConfiguration {
            return_immediately: !wait,
            ..SendMessageConfiguration::default()
        });
        let request = SendMessageRequest { message, configuration, ..SendMessageRequest::default() };
        match support::in_time(self.0.call(Caller::default(), Request::SendMessage(Box::new(request)), None))
            .await
        {
            Ok(Reply::Sent(snapshot, view)) => snapshot.viewed(view).into_owned(),
            _ => panic!("expected a task"),
        }
    }

    async fn cancel(&self, task: &Task) {
        let request = CancelTaskRequest { id: task.id.clone(), ..CancelTaskRequest::default() };
        assert!(self.0.call(Caller::default(), Request::CancelTask(request), None).await.is_ok());
    }
}

fn asking(function: &str, payload: serde_json::Value) -> Message {
    Message::user("m", Part::data(&json!({"function_id": function, "payload": payload})).unwrap())
}

fn expose_all() -> FunctionGatewayOptions {
    FunctionGatewayOptions::default()
        .with(|options| options.exposure = Exposure { all: true, ..Exposure::default() })
}

#[tokio::test]
async fn a_worker_registers_remote_skills_with_its_engine_and_cancels_them() {
    let mut agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let engine = engine();
    let listening = engine.listen().await.unwrap();
    let url = format!("ws://{}", listening.address());
    tokio::spawn(listening.run_until(std::future::pending()));
    let worker = Worker::connect(WorkerOptions::new(url)).unwrap();
    let imports = import(worker.clone(), [agent.url()], fast_options());
    functions(&engine, |ids| ids == ["a2a.kitchen::find"]).await;
    assert_eq!(call(&engine, "a2a.kitchen::find", json!("leeks")).await, Ok(json!({"text": "leeks"})));
    agent.message().await;

    functions(&worker, |ids| ids == ["a2a.kitchen::find"]).await;
    let service =
        GatewayService::new(Gateway::with_imports(Arc::new(worker.clone()), expose_all(), imports.clone()));
    let task = service.send(asking("a2a.kitchen::find", json!("wait")), false).await;
    agent.message().await;
    service.cancel(&task).await;
    agent.canceled().await;

    drop((service, imports));
    functions(&engine, |ids| ids.is_empty()).await;
    worker.close().await;
}

#[tokio::test]
async fn a_request_that_has_come_through_too_many_agents_is_refused() {
    let mut agent = TestAgent::start(card("Kitchen", &["find"])).await;
    let (engine, imports) = importing(&agent).await;
    let service = GatewayService::new(Gateway::with_imports(Arc::new(engine), expose_all(), imports));
    let after = |hops: u64| {
        let metadata = JsonObject::new(&json!({ HOPS_EXTENSION: hops })).ok();
        Message { metadata, ..asking("a2a.kitchen::find", json!("leeks")) }
    };
    for hops in [0, 8] {
        assert_eq!(service.send(after(hops), true).await.status.state, TaskState::Completed);
        let passed_on = agent.message().await.metadata.unwrap().get::<u64>(HOPS_EXTENSION);
        assert_eq!(passed_on, Some(hops + 1));
    }
    let refused = service.send(after(9), true).await;
    assert_eq!(refused.status.state, TaskState::Failed);
    let said = refused.status.message.unwrap().text();
    assert!(said.contains("passed through 9 agents, and the limit is 8"), "{said}");
}
