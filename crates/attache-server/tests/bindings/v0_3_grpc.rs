//! Protocol 0.3 over gRPC, on the same port as 1.0.

use attache_protocol::AgentExtension;
use attache_server::Server;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::v0_3::{
    Card, Content, Creating, DataPart, Event, FilePart, Named, NamedWebhook, Payload, Peer, Sending, Task,
    Webhook, Webhooks, message, named, sending,
};
use crate::support::{Player, Running, adopt, card, player, playing, serve, soon, stage};

const SUBMITTED: i32 = 1;
const WORKING: i32 = 2;
const COMPLETED: i32 = 3;
const CANCELLED: i32 = 5;
const INPUT_REQUIRED: i32 = 6;

async fn peer(server: &Running) -> Peer {
    Peer::of(server).await
}

async fn refused(peer: &mut Peer, call: &str, message: impl prost::Message + 'static) -> Status {
    peer.call::<_, Task>(call, message).await.unwrap_err()
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
}

#[tokio::test]
async fn a_message_is_answered_with_the_task_as_0_3_has_it() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let task = peer.task("hello").await;
    assert_eq!(task.state(), COMPLETED);
    assert!(!task.context_id.is_empty() && task.status.as_ref().unwrap().timestamp.is_some());
    assert_eq!(task.artifacts[0].artifact_id, "answer");
    assert_eq!(task.artifacts[0].parts[0].part, Some(Content::Text("hello".into())));
    assert_eq!(task.history[0].content[0].part, Some(Content::Text("hello".into())));
    assert_eq!(peer.call::<_, Task>("GetTask", named(&task)).await.unwrap(), task);

    let answer: Event = peer.call("SendMessage", sending("message me", Some(true))).await.unwrap();
    let Some(Payload::Message(message)) = answer.payload else { panic!("{answer:?}") };
    assert_eq!((message.role, &message.content[0].part), (2, &Some(Content::Text("message me".into()))));
}

#[tokio::test]
async fn files_and_data_come_back_as_they_were_sent() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let number = Value { kind: Some(Kind::NumberValue(2.5)) };
    let data = Struct { fields: [("k".to_owned(), number)].into() };
    for part in [
        Content::File(FilePart {
            file_with_bytes: Some(b"AP8=".to_vec()),
            name: "a.bin".into(),
            mime_type: "text/plain".into(),
            ..Default::default()
        }),
        Content::File(FilePart {
            file_with_uri: Some("https://example.com/a".into()),
            mime_type: "text/plain".into(),
            ..Default::default()
        }),
        Content::Data(DataPart { data: Some(data) }),
    ] {
        let sending = Sending { request: Some(message(part.clone())), configuration: None };
        let answer: Event = peer.call("SendMessage", sending).await.unwrap();
        let Some(Payload::Task(task)) = answer.payload else { panic!("{answer:?}") };
        assert_eq!(task.artifacts[0].parts[0].part, Some(part));
    }
}

#[tokio::test]
async fn the_events_of_a_stream_tell_which_is_the_last() {
    let server = playing().await;
    let events = peer(&server).await.events("SendStreamingMessage", sending("chunks", None)).await.unwrap();
    let seen: Vec<_> = events
        .iter()
        .map(|event| match event {
            Payload::Task(task) => format!("task {}", task.state()),
            Payload::Message(_) => "message".to_owned(),
            Payload::Status(update) => {
                format!("status {} final {}", update.status.as_ref().unwrap().state, update.r#final)
            }
            Payload::Artifact(update) => format!("append {} last {}", update.append, update.last_chunk),
        })
        .collect();
    assert_eq!(
        seen,
        [
            &format!("task {SUBMITTED}"),
            &format!("status {WORKING} final false"),
            "append false last false",
            "append true last false",
            "append true last true",
            &format!("status {COMPLETED} final true"),
        ]
    );
}

#[tokio::test]
async fn a_message_blocks_without_a_configuration() {
    let (agent, mut stage) = stage();
    let server = serve(Server::new(agent).card(card())).await;
    let mut peer = peer(&server).await;
    let answer: Event = peer.call("SendMessage", sending("go", Some(false))).await.unwrap();
    let Some(Payload::Task(task)) = answer.payload else { panic!("{answer:?}") };
    assert!([SUBMITTED, WORKING].contains(&task.state()));
    stage.turn().await.complete().await;

    for blocking in [Some(true), None] {
        let send = peer.call::<_, Event>("SendMessage", sending("go", blocking));
        let (answer, ()) = tokio::join!(send, async { stage.turn().await.complete().await });
        let Some(Payload::Task(task)) = answer.unwrap().payload else { panic!("no task") };
        assert_eq!(task.state(), COMPLETED, "{blocking:?}");
    }
}

#[tokio::test]
async fn a_subscription_sees_a_task_being_cancelled() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let answer: Event = peer.call("SendMessage", sending("ask", None)).await.unwrap();
    let Some(Payload::Task(task)) = answer.payload else { panic!("{answer:?}") };
    assert_eq!(task.state(), INPUT_REQUIRED);
    let mut stream = peer.open("TaskSubscription", named(&task)).await.unwrap();
    let first = soon(stream.message()).await.unwrap().unwrap();
    assert!(matches!(first.payload, Some(Payload::Task(_))), "{first:?}");
    let cancelled: Task = peer.call("CancelTask", named(&task)).await.unwrap();
    assert_eq!(cancelled.state(), CANCELLED);
    let last = soon(stream.message()).await.unwrap().unwrap();
    let Some(Payload::Status(update)) = last.payload else { panic!("{last:?}") };
    assert!(update.r#final);
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_subscription_to_a_task_that_has_ended_gets_the_task() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let task = peer.task("hello").await;
    let events = peer.events("TaskSubscription", named(&task)).await.unwrap();
    assert_eq!(events, [Payload::Task(task)]);
}

#[tokio::test]
async fn webhooks_are_kept_under_their_resource_names() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let task = peer.task("hello").await;
    let create = |id: &str| Creating {
        parent: format!("tasks/{}", task.id),
        config_id: id.to_owned(),
        config: Some(NamedWebhook {
            name: String::new(),
            push_notification_config: Some(Webhook {
                id: id.to_owned(),
                url: "https://example.com/h".into(),
            }),
        }),
    };
    let name = |id: &str| format!("tasks/{}/pushNotificationConfigs/{id}", task.id);
    let get = |id: &str| Named { name: name(id), number: 0 };

    let created: NamedWebhook = peer.call("CreateTaskPushNotificationConfig", create("w1")).await.unwrap();
    assert_eq!(created.name, name("w1"));
    let nameless: NamedWebhook = peer.call("CreateTaskPushNotificationConfig", create("")).await.unwrap();
    assert_eq!(nameless.name, name(&task.id));
    for (asked, webhook) in [("w1", &created), ("", &nameless), ("None", &nameless)] {
        let got: NamedWebhook = peer.call("GetTaskPushNotificationConfig", get(asked)).await.unwrap();
        assert_eq!(&got, webhook, "{asked}");
    }
    let list: Webhooks = peer.call("ListTaskPushNotificationConfig", named(&task)).await.unwrap();
    let mut names: Vec<_> = list.configs.iter().map(|webhook| webhook.name.clone()).collect();
    names.sort();
    let mut both = vec![name("w1"), name(&task.id)];
    both.sort();
    assert_eq!(names, both);

    peer.call::<_, ()>("DeleteTaskPushNotificationConfig", get("w1")).await.unwrap();
    let status = refused(&mut peer, "GetTaskPushNotificationConfig", get("w1")).await;
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn the_card_is_the_extended_one_where_there_is_one() {
    let server = playing().await;
    let public: Card = peer(&server).await.call("GetAgentCard", ()).await.unwrap();
    assert_eq!((public.name.as_str(), public.protocol_version.as_str()), ("Player", "0.3.0"));
    assert!(!public.url.is_empty() && !public.preferred_transport.is_empty());
    assert!(!public.supports_authenticated_extended_card);

    let extending = || player().extended_card(card().version("7.0.0"));
    let server = serve(extending().service_options(|options| options.extended_card_for_anyone = true)).await;
    let extended: Card = peer(&server).await.call("GetAgentCard", ()).await.unwrap();
    assert_eq!(extended.version, "7.0.0");

    let server = serve(extending()).await;
    let status = refused(&mut peer(&server).await, "GetAgentCard", ()).await;
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn refusals_have_the_names_and_codes_that_older_clients_look_for() {
    let mut card = card();
    card.capabilities.push_notifications = Some(false);
    let server = serve(Server::new(Player).card(card)).await;
    let mut peer = peer(&server).await;
    let task = peer.task("hello").await;
    let webhook = Creating { parent: format!("tasks/{}", task.id), ..Default::default() };
    let webhook = Creating {
        config: Some(NamedWebhook {
            push_notification_config: Some(Webhook {
                url: "https://example.com".into(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..webhook
    };
    let unknown = Named { name: "tasks/none".into(), number: 0 };
    let refusals = [
        refused(&mut peer, "GetTask", unknown).await,
        refused(&mut peer, "CancelTask", named(&task)).await,
        refused(&mut peer, "CreateTaskPushNotificationConfig", webhook).await,
        refused(&mut peer, "GetTask", Named { name: "none".into(), number: 0 }).await,
    ];
    let told = refusals.map(|status| {
        let name = status.message().split(": ").next().unwrap().to_owned();
        (status.code(), name, reason(&status))
    });
    let expected = [
        (Code::NotFound, "TaskNotFoundError", "TASK_NOT_FOUND"),
        (Code::FailedPrecondition, "TaskNotCancelableError", "TASK_NOT_CANCELABLE"),
        (Code::Unimplemented, "PushNotificationNotSupportedError", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (Code::InvalidArgument, "InvalidParamsError", "INVALID_PARAMS"),
    ];
    assert_eq!(told, expected.map(|(code, name, reason)| (code, name.to_owned(), reason.to_owned())));
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_words_of_0_3() {
    let server = playing().await;
    let mut peer = peer(&server).await;
    let empty = refused(&mut peer, "SendMessage", Sending::default()).await;
    let details = empty.get_error_details();
    let fields: Vec<_> =
        details.bad_request().unwrap().field_violations.iter().map(|v| v.field.clone()).collect();
    assert_eq!(fields, ["message.messageId", "message.role", "message.content"]);
    let bad = Creating { parent: "tasks/t".into(), ..Default::default() };
    let status = refused(&mut peer, "CreateTaskPushNotificationConfig", bad).await;
    let details = status.get_error_details();
    assert_eq!(details.bad_request().unwrap().field_violations[0].field, "config.pushNotificationConfig.url");
}

#[tokio::test]
async fn a_version_that_contradicts_the_service_is_refused() {
    let server = playing().await;
    for version in ["0.3", "0.3.0", "0.2", ""] {
        let mut peer = peer(&server).await.saying("a2a-version", version);
        assert_eq!(peer.task("hello").await.state(), COMPLETED, "{version}");
    }
    for (version, code, expected) in [
        ("1.0", Code::Unimplemented, "METHOD_NOT_FOUND"),
        ("1.1", Code::Unimplemented, "METHOD_NOT_FOUND"),
        ("2.0", Code::FailedPrecondition, "VERSION_NOT_SUPPORTED"),
        ("abc", Code::FailedPrecondition, "VERSION_NOT_SUPPORTED"),
    ] {
        let mut peer = peer(&server).await.saying("a2a-version", version);
        let status = refused(&mut peer, "SendMessage", sending("hello", None)).await;
        assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{version}");
    }
}

#[tokio::test]
async fn a_strict_server_wants_the_version_said() {
    let server = serve(player().options(|options| options.strict_version = true)).await;
    let status = refused(&mut peer(&server).await, "SendMessage", sending("hello", None)).await;
    assert_eq!(reason(&status), "VERSION_NOT_SUPPORTED");
    let mut peer = peer(&server).await.saying("a2a-version", "0.3");
    assert_eq!(peer.task("hello").await.state(), COMPLETED);
}

#[tokio::test]
async fn extensions_go_by_either_name() {
    const URI: &str = "urn:example:tea";
    let extension = AgentExtension { uri: URI.into(), required: true, ..Default::default() };
    let server = serve(Server::new(Player).card(card().extension(extension))).await;
    let status = refused(&mut peer(&server).await, "SendMessage", sending("hello", None)).await;
    assert_eq!(reason(&status), "EXTENSION_SUPPORT_REQUIRED");
    for key in ["x-a2a-extensions", "a2a-extensions"] {
        let mut peer = peer(&server).await.saying(key, URI);
        let answer = peer.respond::<_, Event>("SendMessage", sending("hello", None)).await.unwrap();
        assert_eq!(answer.metadata().get("x-a2a-extensions").unwrap(), URI, "{key}");
    }
}

#[tokio::test]
async fn a_task_is_the_same_in_both_versions() {
    let server = playing().await;
    let task = peer(&server).await.task("hello").await;
    let current = server.read(&task.id.clone().into()).await;
    assert_eq!(current["artifacts"][0]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn an_application_of_someones_own_speaks_0_3_too() {
    let server = adopt(player().into_router("https://example.com").unwrap()).await;
    assert_eq!(peer(&server).await.task("hello").await.state(), COMPLETED);
}
