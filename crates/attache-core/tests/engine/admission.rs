//! The checks of a request before it has any effect: extensions, capabilities, media types and limits.

use attache_core::{Identity, Reply, RequestTerms, Service, Turn, agent_fn};
use attache_protocol::{
    AgentCard, AgentExtension, AgentSkill, Error, ErrorKind, Extensions, GetExtendedAgentCardRequest, Part,
    Request, TaskState, Version,
};

use crate::support::{Client, Script, Step, host, host_with, say, say_part, status_text};

async fn extended_card(client: &Client) -> Result<String, Error> {
    let reply = client.call(Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default())).await?;
    let Reply::Card(card) = reply else { panic!("expected a card") };
    Ok(card.name.clone())
}

#[tokio::test(start_paused = true)]
async fn the_extended_card_is_for_authenticated_callers() {
    let host = host(Script(vec![]));
    host.service.set_extended_card(AgentCard::new("Inside", "For those who know"));
    assert_eq!(extended_card(&host.user("ann")).await.unwrap(), "Inside");
    assert_eq!(extended_card(&host.client()).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn an_extended_card_that_the_card_does_not_declare_is_refused_before_all_else() {
    for declared in [None, Some(false)] {
        let host = host_with(Script(vec![]), |card, _| card.capabilities.extended_agent_card = declared);
        for configured in [false, true] {
            if configured {
                host.service.set_extended_card(AgentCard::new("Inside", ""));
            }
            for client in [host.client(), host.user("ann")] {
                let error = extended_card(&client).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_caller_is_checked_before_the_extended_card() {
    let host = host(Script(vec![]));
    assert_eq!(extended_card(&host.client()).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    let error = extended_card(&host.user("ann")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExtendedAgentCardNotConfigured);
}

#[tokio::test(start_paused = true)]
async fn the_extended_card_can_be_for_anonymous_callers() {
    let host = host_with(Script(vec![]), |_, options| options.extended_card_for_anyone = true);
    let error = extended_card(&host.client()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExtendedAgentCardNotConfigured);
    host.service.set_extended_card(AgentCard::new("Inside", ""));
    assert_eq!(extended_card(&host.client()).await.unwrap(), "Inside");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stream_refuses_streams() {
    for declared in [None, Some(false)] {
        let agent = Script(vec![Step::Ask("?".into())]);
        let host = host_with(agent, |card, _| card.capabilities.streaming = declared);
        let client = host.client();
        let error = client.try_stream(say("hi")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
        assert!(client.list_all().await.is_empty());
        let task = client.send(say("hi")).await;
        let error = client.try_subscribe(&task.id, None).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}

fn admit(service: &Service, asked: &str) -> Result<Vec<String>, ErrorKind> {
    let asked = Extensions::parse([asked]);
    let terms = RequestTerms::new(Version::V1_0, &asked);
    let prepared = service.begin(Identity::named("ann"), terms, None).map_err(|error| error.kind())?;
    Ok(prepared.caller().extensions.iter().map(str::to_owned).collect())
}

#[test]
fn a_request_without_a_required_extension_is_rejected() {
    let host = host(Script(vec![]));
    let card = AgentCard::new("Strict", "").extension(AgentExtension::new("urn:must/v1").required());
    host.service.set_card(card);
    assert_eq!(admit(&host.service, ""), Err(ErrorKind::ExtensionSupportRequired));
    assert_eq!(admit(&host.service, "urn:must/v2"), Err(ErrorKind::ExtensionSupportRequired));
    assert_eq!(admit(&host.service, "urn:must/v1"), Ok(vec!["urn:must/v1".to_owned()]));
}

#[test]
fn only_extensions_that_the_agent_knows_become_active() {
    let host = host(Script(vec![]));
    host.service.set_card(AgentCard::new("Open", "").extension(AgentExtension::new("urn:may/v1")));
    assert_eq!(admit(&host.service, ""), Ok(vec![]));
    assert_eq!(admit(&host.service, "urn:may/v2, urn:may/v1, urn:x"), Ok(vec!["urn:may/v1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_an_identity_reaches_the_agent() {
    let host = host(agent_fn(|turn: Turn| async move {
        let plan = turn.caller().metadata.get("plan").and_then(|plan| plan.as_str()).unwrap_or("none");
        turn.complete_with(plan).await
    }));
    let gold = Identity::named("ann").metadata("plan", "gold");
    for (identity, plan) in [(gold, "gold"), (Identity::named("bob"), "none")] {
        let extensions = Extensions::default();
        let terms = RequestTerms::new(Version::V1_0, &extensions);
        let caller = host.service.begin(identity, terms, None).unwrap().caller().clone();
        let client = Client { service: host.service.clone(), caller };
        assert_eq!(status_text(&client.send(say("hi")).await), plan);
    }
}

#[test]
fn metadata_that_is_set_is_not_replaced_by_missing_metadata() {
    let one = Identity::named("ann").metadata("plan", "gold");
    let other = Identity::named("gateway").metadata("plan", "none").metadata("region", "eu");
    let both = one.clone().missing_metadata(&other.metadata);
    assert_eq!(both, one.metadata("region", "eu"));
    assert!(Identity::default().missing_metadata(&Identity::default().metadata).metadata.is_empty());
}

async fn takes(modes: &[&str], given: &str) -> bool {
    let modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
    let host = host_with(Script(vec![]), |card, _| card.default_input_modes = modes);
    let client = host.client();
    match client.try_send(say_part(Part::text("hi").media_type(given))).await {
        Ok(answer) => answer.task().status.state == TaskState::Completed,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ContentTypeNotSupported);
            assert!(client.list_all().await.is_empty(), "a task was made for content that was refused");
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_media_type_that_the_agent_does_not_accept_is_refused_before_a_task_exists() {
    assert!(takes(&["text/plain"], "text/plain").await);
    assert!(!takes(&["text/plain"], "text/html").await);
    assert!(!takes(&["text/plain"], "text/plainer").await);
    assert!(!takes(&["text/plain"], "nonsense").await);
    assert!(takes(&["text/plain", "image/png"], "image/png").await);
}

#[tokio::test(start_paused = true)]
async fn wildcards_accept_a_family_of_media_types_or_all() {
    assert!(takes(&["image/*"], "image/png").await);
    assert!(!takes(&["image/*"], "imagery/png").await);
    assert!(!takes(&["image/*"], "text/plain").await);
    assert!(takes(&["*/*"], "anything/at-all").await);
}

#[tokio::test(start_paused = true)]
async fn parameters_and_case_of_a_media_type_do_not_matter() {
    assert!(takes(&["text/plain"], "Text/Plain; charset=utf-8").await);
    assert!(takes(&["text/plain;charset=utf-8"], "text/plain").await);
    assert!(takes(&["TEXT/*"], "text/markdown ;a=b").await);
}

#[tokio::test(start_paused = true)]
async fn a_part_without_a_media_type_is_accepted() {
    let host = host_with(Script(vec![]), |card, _| card.default_input_modes = vec!["image/png".to_owned()]);
    assert_eq!(host.client().send(say("hi")).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_media_type_that_any_skill_accepts_is_accepted() {
    let host = host_with(Script(vec![]), |card, _| {
        *card = card.clone().skill(AgentSkill::new("see", "See").input_modes(["image/*"]));
    });
    let image = say_part(Part::raw([1, 2, 3]).media_type("image/png"));
    assert_eq!(host.client().send(image).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_media_type_that_is_refused_leaves_a_continued_task_as_it_was() {
    let host = host(Script(vec![Step::Ask("?".into())]));
    let client = host.client();
    let task = client.send(say("hi")).await;
    let image = say_part(Part::raw([1]).media_type("image/png")).to(&task);
    assert_eq!(client.try_send(image).await.unwrap_err().kind(), ErrorKind::ContentTypeNotSupported);
    assert_eq!(client.get(&task.id).await, task);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_parts_of_a_message_is_limited() {
    let host = host_with(Script(vec![]), |_, options| options.max_parts = 2);
    let client = host.client();
    let with_parts = |count: usize| {
        let mut message = say("hi");
        message.0.message.parts = vec![Part::text("x"); count];
        message
    };
    client.send(with_parts(2)).await;
    for count in [0, 3] {
        let error = client.try_send(with_parts(count)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.field_violations()[0].field.as_str()),
            (ErrorKind::InvalidParams, "message.parts")
        );
    }
    assert_eq!(client.list_all().await.len(), 1);
}
