//! Tests of the gateway, with an engine without a socket and with virtual time.

mod messages;
mod streams;
mod support;

use std::sync::Arc;

use attache_core::{Caller, Identity, Owner};
use attache_iii::{CallError, CardOverrides, ChannelItem, Exposure, FunctionInfo};
use attache_protocol::{Content, ErrorKind, Message, Part, TaskState};
use futures::StreamExt;
use serde_json::{Value, json};
use support::{Client, FakeEngine, SECOND, call, exposed, old_caller, status_text};

fn result(task: &attache_protocol::Task) -> Value {
    let part = &task.artifacts[0].parts[0];
    part.as_data().expect("data").read().expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_result_is_an_artifact_of_data() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!({"price": 42}));
    let task = Client::new(&engine).send(call("pricing::quote", json!({"sku": "A-1"}))).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts[0].name.as_deref(), Some("pricing::quote"));
    assert_eq!(task.artifacts[0].parts[0].media_type.as_deref(), Some("application/json"));
    assert_eq!(result(&task), json!({"price": 42}));
    assert_eq!(*engine.calls.lock(), [("pricing::quote".to_owned(), json!({"sku": "A-1"}))]);
}

#[tokio::test(start_paused = true)]
async fn text_calls_a_function_too() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!({"price": 42}));
    let task = Client::new(&engine).send(Part::text("pricing::quote {\"sku\": \"A-1\"}")).await;
    assert_eq!(result(&task), json!({"price": 42}));
    assert_eq!(engine.calls.lock()[0].1, json!({"sku": "A-1"}));
}

#[tokio::test(start_paused = true)]
async fn hidden_functions_are_not_called() {
    let engine = FakeEngine::new();
    engine.function("demo::hidden", json!({}), json!(1));
    engine.function("demo::almost", json!({"a2a.expose": "true"}), json!(1));
    engine.function("state::set", exposed(), json!(1));
    engine.function("demo::open", exposed(), json!(1));
    let client = Client::new(&engine);
    for (id, text) in [
        ("demo::hidden", "There is no function 'demo::hidden'. You can call: demo::open."),
        ("demo::almost", "There is no function 'demo::almost'. You can call: demo::open."),
        ("no::such", "There is no function 'no::such'. You can call: demo::open."),
        ("state::set", "in the iii-engine internal namespace"),
    ] {
        let task = client.send(call(id, json!({}))).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert!(status_text(&task).contains(text), "{}", status_text(&task));
    }
    assert!(engine.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_while_the_list_of_functions_is_not_available() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!(1));
    let client = Client::with(&engine, |options| options.exposure.all = true);
    assert_eq!(client.gateway.card().skills.len(), 1);
    engine.lose_list();
    let task = client.send(call("pricing::quote", json!({}))).await;
    assert!(status_text(&task).contains("could not be verified"), "{}", status_text(&task));
    assert!(client.gateway.card().skills.is_empty());
    assert!(engine.calls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_function_that_stops_being_exposed_is_not_called_any_more() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!(1));
    let client = Client::new(&engine);
    assert_eq!(client.send(call("pricing::quote", json!({}))).await.status.state, TaskState::Completed);
    engine.function("pricing::quote", json!({"a2a.expose": false}), json!(1));
    assert_eq!(client.send(call("pricing::quote", json!({}))).await.status.state, TaskState::Failed);
    assert_eq!(engine.calls.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_card_follows_the_functions() {
    let engine = FakeEngine::new();
    let client = Client::with(&engine, |options| {
        options.exposure = Exposure { tier: Some("a".into()), ..Exposure::default() }
    });
    let mut cards = Box::pin(client.gateway.cards());
    assert!(cards.next().await.unwrap().skills.is_empty());
    engine.function("x::one", json!({"a2a.expose": true, "a2a.tier": "a"}), json!(1));
    engine.function("x::two", json!({"a2a.expose": true, "a2a.tier": "b"}), json!(1));
    let skills = cards.next().await.unwrap().skills;
    assert_eq!(skills.iter().map(|skill| &*skill.id).collect::<Vec<_>>(), ["x::one"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_payload_is_refused_without_a_call() {
    let engine = FakeEngine::new();
    let schema =
        json!({"type": "object", "properties": {"quantity": {"type": "integer"}}, "required": ["sku"]});
    let function = FunctionInfo {
        metadata: Some(exposed()),
        request_format: Some(schema),
        ..FunctionInfo::new("pricing::quote")
    };
    engine.register(function, |_| Box::pin(async { Ok(json!(1)) }));
    let client = Client::new(&engine);
    let task = client.send(call("pricing::quote", json!({"sku": "A", "quantity": "two"}))).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(
        status_text(&task),
        "The payload does not match the schema of the function 'pricing::quote': `payload.quantity`: \"two\" is not of type \"integer\""
    );
    assert!(engine.calls.lock().is_empty());
    assert_eq!(
        client.send(call("pricing::quote", json!({"sku": "A"}))).await.status.state,
        TaskState::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_names_no_function_fails_with_what_to_send() {
    let client = Client::new(&FakeEngine::new());
    let task = client.send(Part::text("what does it cost?")).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(
        status_text(&task),
        "No function_id found. Send a data part with {\"function_id\": \"...\", \"payload\": {...}} or use :: notation in text."
    );
}

#[tokio::test(start_paused = true)]
async fn plain_language_goes_to_the_default_function() {
    let engine = FakeEngine::new();
    engine.function("agent::chat", exposed(), json!("It costs 42."));
    let client = Client::with(&engine, |options| options.default_function = Some("agent::chat".to_owned()));
    let task = client.send(Part::text("what does it cost?")).await;
    assert_eq!(task.artifacts[0].parts[0].as_text(), Some("It costs 42."));
    let payload = engine.calls.lock()[0].1.clone();
    assert_eq!(payload["message"], "what does it cost?");
    assert_eq!(payload["sessionId"], task.context_id.unwrap().as_str());
}

#[tokio::test(start_paused = true)]
async fn the_default_function_is_below_the_hard_floor_too() {
    let engine = FakeEngine::new();
    engine.function("state::list", exposed(), json!([]));
    let client = Client::with(&engine, |options| options.default_function = Some("state::list".to_owned()));
    let task = client.send(Part::text("show me everything")).await;
    assert!(status_text(&task).contains("internal namespace"), "{}", status_text(&task));
}

#[tokio::test(start_paused = true)]
async fn a_failed_function_fails_its_task_with_its_message() {
    let engine = FakeEngine::new();
    let function = FunctionInfo { metadata: Some(exposed()), ..FunctionInfo::new("pricing::fail") };
    engine.register(function, |_| {
        Box::pin(async { Err(CallError::remote("invocation_failed", "handler error: boom")) })
    });
    let task = Client::new(&engine).send(call("pricing::fail", json!({}))).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(status_text(&task), "boom");
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_a_function_sets_its_timeout() {
    let engine = FakeEngine::new();
    for (id, metadata) in [
        ("slow::default", exposed()),
        ("slow::patient", json!({"a2a.expose": true, "a2a.timeoutMs": 60_000})),
        ("slow::hasty", json!({"a2a.expose": true, "a2a.timeoutMs": 1_000})),
        ("slow::strange", json!({"a2a.expose": true, "a2a.timeoutMs": "60000"})),
    ] {
        let function = FunctionInfo { metadata: Some(metadata), ..FunctionInfo::new(id) };
        engine.register(function, |_| {
            Box::pin(async {
                tokio::time::sleep(40 * SECOND).await;
                Ok(json!("late"))
            })
        });
    }
    let client = Client::new(&engine);
    for (id, limit, setting) in [
        ("slow::default", 30, "`--call-timeout`, or `a2a.timeoutMs` in the metadata of the function"),
        ("slow::hasty", 1, "`a2a.timeoutMs` in the metadata of the function"),
        ("slow::strange", 30, "`--call-timeout`, or `a2a.timeoutMs` in the metadata of the function"),
    ] {
        let start = tokio::time::Instant::now();
        let task = client.send(call(id, json!({}))).await;
        let expected =
            format!("The function '{id}' did not return within {limit} s; the time limit is {setting}");
        assert_eq!(status_text(&task), expected);
        assert_eq!(start.elapsed().as_secs(), limit, "{id}");
    }
    assert_eq!(client.send(call("slow::patient", json!({}))).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn cancel_wins_over_a_result_that_arrives_later() {
    let engine = FakeEngine::new();
    let function = FunctionInfo { metadata: Some(exposed()), ..FunctionInfo::new("slow::one") };
    engine.register(function, |_| {
        Box::pin(async {
            tokio::time::sleep(10 * SECOND).await;
            Ok(json!("late"))
        })
    });
    let client = Arc::new(Client::new(&engine));
    let called = engine.called.notified();
    let sending = tokio::spawn({
        let client = client.clone();
        async move { client.send(call("slow::one", json!({}))).await }
    });
    called.await;
    tokio::time::sleep(SECOND).await;
    let running = client.tasks().await;
    assert_eq!(running[0].status.state, TaskState::Working);
    assert_eq!(client.cancel(running[0].id.clone()).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(sending.await.unwrap().status.state, TaskState::Canceled);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(client.tasks().await[0].status.state, TaskState::Canceled);
    assert!(client.tasks().await[0].artifacts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_gets_the_stored_result_in_the_dialect_of_iii_only() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!({"price": 42}));
    let client = Client::new(&engine);
    let message =
        Message { task_id: Some("mine".into()), ..Message::user("m", call("pricing::quote", json!({}))) };
    let first = client.send_as(old_caller(), message.clone()).await.unwrap();
    assert_eq!(first.id.as_str(), "mine");
    let again = client.send_as(old_caller(), message.clone()).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(engine.calls.lock().len(), 1);
    let error = client.send_as(Default::default(), message.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    let unknown = Message { task_id: Some("other".into()), ..message };
    let error = client.send_as(Default::default(), unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotFound);
}

#[tokio::test(start_paused = true)]
async fn two_sends_for_one_new_task_call_its_function_once() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!({"price": 42}));
    let client = Client::new(&engine);
    let message =
        || Message { task_id: Some("mine".into()), ..Message::user("m", call("pricing::quote", json!({}))) };
    let (a, b) =
        tokio::join!(client.send_as(old_caller(), message()), client.send_as(old_caller(), message()));
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!(engine.calls.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_contexts_call_a_function_at_once() {
    let engine = FakeEngine::new();
    let all = Arc::new(tokio::sync::Barrier::new(100));
    let function = FunctionInfo { metadata: Some(exposed()), ..FunctionInfo::new("meet::all") };
    engine.register(function, move |payload| {
        let all = all.clone();
        Box::pin(async move {
            all.wait().await;
            Ok(payload)
        })
    });
    let client = Client::new(&engine);
    let calls = (0..100).map(async |number| {
        let context = Some(format!("c{number}").into());
        let message = Message::user(format!("m{number}"), call("meet::all", json!({"n": number})));
        let message = Message { context_id: context.clone(), ..message };
        let task = client.send_as(Caller::default(), message).await.unwrap();
        assert_eq!((task.context_id.clone(), result(&task)), (context, json!({"n": number})));
    });
    futures::future::join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn output_of_a_function_becomes_the_chunks_of_an_artifact() {
    let engine = FakeEngine::new();
    let function = FunctionInfo {
        metadata: Some(json!({"a2a.expose": true, "a2a.stream": true})),
        ..FunctionInfo::new("story::tell")
    };
    let writers = engine.clone();
    engine.register(function, move |payload| {
        let writer = writers.writer();
        Box::pin(async move {
            assert_eq!(payload["response"]["direction"], "write");
            assert_eq!(payload["about"], "whales");
            let euro = "€".as_bytes();
            for item in [
                ChannelItem::Text("Once ".to_owned()),
                ChannelItem::Bytes(euro[..1].to_vec().into()),
                ChannelItem::Bytes(euro[1..].to_vec().into()),
            ] {
                writer.send(item).await.unwrap();
            }
            Ok(json!(null))
        })
    });
    let task = Client::new(&engine).send(call("story::tell", json!({"about": "whales"}))).await;
    assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.artifacts[0].text(), "Once €");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_function_may_return_a_result_and_leave_its_channel_open() {
    let engine = FakeEngine::new();
    let function = FunctionInfo {
        metadata: Some(json!({"a2a.expose": true, "a2a.stream": true, "a2a.outputModes": ["image/png"]})),
        ..FunctionInfo::new("draw::cat")
    };
    let (writers, kept) = (engine.clone(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    engine.register(function, move |_| {
        let (writer, kept) = (writers.writer(), kept.clone());
        Box::pin(async move {
            writer.send(ChannelItem::Bytes(vec![0x89, 0x50].into())).await.unwrap();
            kept.lock().push(writer);
            Ok(json!({"width": 2}))
        })
    });
    let task = Client::new(&engine).send(call("draw::cat", json!({}))).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.artifacts[0].parts[0].content, Content::Raw(vec![0x89, 0x50]));
    assert_eq!(task.artifacts[1].parts[0].as_data().unwrap().as_str(), r#"{"width":2}"#);
}

/// A caller with the rights of these credentials.
fn with_rights(identity: Identity) -> Caller {
    let Identity { principal, rights, .. } = identity;
    Caller { owner: Owner { principal, ..Owner::default() }, rights, ..Caller::default() }
}

#[tokio::test(start_paused = true)]
async fn each_audience_sees_and_calls_its_own_functions_in_one_process() {
    let engine = FakeEngine::new();
    for tier in ["public", "partner", "ops"] {
        engine.function(&format!("{tier}::do"), json!({"a2a.expose": true, "a2a.tier": tier}), json!(tier));
    }
    let client = Client::with(&engine, |options| options.exposure.tier = Some("public".to_owned()));
    let audiences = [
        (Identity::default(), "public"),
        (Identity::named("ann"), "public"),
        (Identity::named("pat").tier("partner"), "partner"),
        (Identity::named("otto").tier("ops"), "ops"),
    ];
    for (identity, own) in audiences {
        let card = client.gateway.card_for(&identity.rights);
        assert_eq!(
            card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(),
            [format!("{own}::do")]
        );
        for tier in ["public", "partner", "ops"] {
            let message = Message::user(format!("{own}-{tier}"), call(&format!("{tier}::do"), json!({})));
            let task = client.send_as(with_rights(identity.clone()), message).await.unwrap();
            let expected = if tier == own { TaskState::Completed } else { TaskState::Failed };
            assert_eq!(task.status.state, expected, "{own} calls {tier}");
        }
    }
    let stranger = client.gateway.card_for(&Identity::named("eve").tier("nobody's").rights);
    assert!(stranger.skills.is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_an_order_of_tiers_a_caller_also_sees_lower_tiers_and_functions_without_one() {
    let engine = FakeEngine::new();
    for tier in ["public", "partner", "ops"] {
        engine.function(&format!("{tier}::do"), json!({"a2a.expose": true, "a2a.tier": tier}), json!(tier));
    }
    engine.function("agent::chat", exposed(), json!("hello"));
    let client = Client::with(&engine, |options| {
        options.exposure.tiers = ["public", "partner", "ops"].map(str::to_owned).into();
        options.default_function = Some("agent::chat".to_owned());
    });
    for (identity, seen) in [
        (Identity::default(), &["agent::chat", "public::do"][..]),
        (Identity::named("pat").tier("partner"), &["agent::chat", "partner::do", "public::do"]),
        (Identity::named("otto").tier("ops"), &["agent::chat", "ops::do", "partner::do", "public::do"]),
    ] {
        let card = client.gateway.card_for(&identity.rights);
        assert_eq!(card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(), seen);
        let message = Message::user(seen.len().to_string(), call("partner::do", json!({})));
        let task = client.send_as(with_rights(identity), message).await.unwrap();
        let expected = if seen.contains(&"partner::do") { TaskState::Completed } else { TaskState::Failed };
        assert_eq!(task.status.state, expected, "{}", status_text(&task));
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_function_answers_callers_of_every_tier() {
    let engine = FakeEngine::new();
    engine.function("agent::chat", exposed(), json!("hello"));
    let client = Client::with(&engine, |options| {
        options.exposure.tier = Some("public".to_owned());
        options.default_function = Some("agent::chat".to_owned());
    });
    let pat = with_rights(Identity::named("pat").tier("partner"));
    for caller in [Caller::default(), pat] {
        let task = client.send_as(caller, Message::user("m", "what does it cost?")).await.unwrap();
        assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
    }
}

#[tokio::test(start_paused = true)]
async fn members_of_the_card_can_be_replaced_and_restored() {
    let engine = FakeEngine::new();
    engine.function("pricing::quote", exposed(), json!(1));
    let client = Client::new(&engine);
    let mut cards = Box::pin(client.gateway.cards());
    let usual = cards.next().await.unwrap();
    let skills = vec![attache_protocol::AgentSkill::new("review", "Code Review")];
    let overrides =
        CardOverrides { name: Some("analyzer".to_owned()), skills: Some(skills), description: None };
    client.gateway.override_card(overrides);
    let card = cards.next().await.unwrap();
    assert_eq!((card.name.as_str(), card.skills[0].id.as_str()), ("analyzer", "review"));
    assert_eq!(card.description, usual.description);
    client.gateway.override_card(CardOverrides::default());
    assert_eq!(cards.next().await.unwrap(), usual);
}

#[tokio::test(start_paused = true)]
async fn a_function_with_scopes_is_for_callers_that_have_all_of_them() {
    let engine = FakeEngine::new();
    engine.function("a::both", json!({"a2a.expose": true, "a2a.scopes": ["quote", "book"]}), json!(1));
    engine.function("a::text", json!({"a2a.expose": true, "a2a.scopes": "quote"}), json!(1));
    engine.function("a::open", json!({"a2a.expose": true, "a2a.scopes": []}), json!(1));
    for (id, mistake) in [("a::bad", json!(7)), ("a::mixed", json!(["quote", 7])), ("a::object", json!({}))] {
        engine.function(id, json!({"a2a.expose": true, "a2a.scopes": mistake}), json!(1));
    }
    let client = Client::with(&engine, |options| options.default_function = Some("a::text".to_owned()));
    let allowed = async |identity: Identity, part: Part| {
        let sent = client.send_as(with_rights(identity), Message::user("m", part)).await;
        match sent {
            Ok(task) => {
                assert_eq!(task.status.state, TaskState::Completed, "{}", status_text(&task));
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                false
            }
        }
    };
    let quote = Identity::named("ann").scope("quote");
    let both = Identity::named("bob").scopes(["quote", "book", "more"]);
    for (id, nobody, with_quote, with_both) in [
        ("a::both", false, false, true),
        ("a::text", false, true, true),
        ("a::open", true, true, true),
        ("a::bad", false, false, false),
        ("a::mixed", false, false, false),
        ("a::object", false, false, false),
    ] {
        assert_eq!(allowed(Identity::default(), call(id, json!({}))).await, nobody, "{id}");
        assert_eq!(allowed(quote.clone(), call(id, json!({}))).await, with_quote, "{id}");
        assert_eq!(allowed(both.clone(), call(id, json!({}))).await, with_both, "{id}");
    }
    assert!(
        !allowed(Identity::default(), Part::text("how much is it?")).await,
        "by way of the default function"
    );
    assert!(allowed(quote, Part::text("how much is it?")).await);
    let refused = client.send_as(Caller::default(), Message::user("m", call("a::both", json!({})))).await;
    assert!(refused.is_err());
    assert_eq!(client.tasks().await.len(), 1, "only what was let in has left a task");
}
