//! The system under test for the A2A conformance kit. The prefix of the message id selects the behaviour.
//!
//! `cargo run --release --example tck_server -- --listen 127.0.0.1:9999`
//!
//! Some tests of the kit need another card: `--minimal` declares no capabilities, `--required-extension`
//! requires an extension.

use attache::prelude::*;
use attache::server::GrpcAddress;
use serde_json::json;

async fn respond(turn: Turn) -> AgentResult {
    let id = turn.message().message_id.as_str();
    let is = |prefix: &str| id.starts_with(prefix);
    // A longer prefix must be tested before a shorter one that it begins with.
    if is("tck-message-response") {
        return turn.reply("Direct message response").await;
    } else if is("tck-input-required") {
        return turn.ask("What else?").await;
    } else if is("tck-reject-task") {
        return turn.reject("rejected").await;
    } else if is("tck-artifact-text") {
        turn.artifact("result").text("Generated text content").await?;
    } else if is("tck-artifact-file-url") {
        let file =
            Part::url("https://example.com/output.txt").filename("output.txt").media_type("text/plain");
        turn.artifact("result").part(file).await?;
    } else if is("tck-artifact-file") {
        turn.artifact("result").file("output.txt", "text/plain", "tck").await?;
    } else if is("tck-artifact-data") {
        turn.artifact("result").part(Part::data(&json!({"key": "value", "count": 42}))?).await?;
    } else if is("tck-stream-002") {
        return turn.complete().await;
    } else if is("tck-stream-artifact-chunked") {
        turn.working("").await?;
        let mut chunks = turn.artifact("result").stream();
        chunks.chunk("chunk-1 ").await?;
        chunks.last("chunk-2").await?;
    } else if is("tck-stream-artifact-file") {
        turn.working("").await?;
        turn.artifact("result").file("output.txt", "text/plain", "tck").await?;
    } else if is("tck-stream-") {
        let text = match id {
            id if id.starts_with("tck-stream-001") => "Stream hello from TCK",
            id if id.starts_with("tck-stream-003") => "Stream task lifecycle",
            id if id.starts_with("tck-stream-ordering-001") => "Ordered output",
            _ => "Streamed text content",
        };
        turn.working("").await?;
        turn.artifact("result").text(text).await?;
    } else if is("test-resubscribe-message-id") {
        turn.working("").await?;
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    }
    turn.complete_with("Hello from TCK").await
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let listen = value("--listen").map_or("127.0.0.1:9999", String::as_str);

    let skill = Skill::new("tck", "Conformance").tags(["tck"]);
    let mut card = Card::new("TCK server", "Answers the conformance kit").skill(skill).input_modes(["*/*"]);
    if has("--minimal") {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
    } else {
        card.capabilities.extended_agent_card = Some(true);
    }
    if has("--required-extension") {
        card = card.extension(Extension::new("urn:a2a:tck:required-extension").required());
    }
    let extended = card.clone().skill(Skill::new("tck-extended", "Conformance, extended"));
    let mut server = Server::new(agent_fn(respond))
        .card(card)
        .bind(listen)
        // The kit rejects members that 1.0 does not have. Its gRPC library takes no URL.
        .options(|options| (options.pure_card, options.grpc_address) = (true, GrpcAddress::HostPort))
        // The kit receives notifications on this machine.
        .push_options(|push| push.policy = Policy::default().allow_loopback(true));
    if !has("--minimal") {
        // The kit requests the extended card without credentials.
        server =
            server.extended_card(extended).service_options(|options| options.extended_card_for_anyone = true);
    }
    Ok(server.run().await?)
}
