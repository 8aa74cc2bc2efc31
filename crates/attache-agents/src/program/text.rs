//! The text protocol: the message on standard input, the answer on standard output.

use attache_core::{AgentResult, TextStream, Turn};
use attache_protocol::{Content, Message};
use tokio::io::AsyncBufReadExt;

use super::Program;
use super::files::Files;

/// Runs the program for a message.
pub(super) async fn run(program: &Program, turn: &Turn) -> AgentResult {
    let options = &program.options;
    let mut process = tokio::select! {
        process = program.start(turn) => process?,
        () = turn.cancelled() => return Ok(()),
    };
    // Nothing follows the message, so the input is closed after it.
    if let Some(input) = process.input.take() {
        input.write(input_text(turn.message(), &process.files).into_bytes());
    }
    let answering = async {
        let mut answer = TextStream::new(turn.artifact("answer").stream());
        loop {
            let piece = answer.wait(process.output.fill_buf()).await??.to_vec();
            if piece.is_empty() {
                break;
            }
            process.output.consume(piece.len());
            if let Err(error) = process.spend(piece.len(), options) {
                // The caller gets what the program wrote before.
                answer.finish().await?;
                return Err(error);
            }
            answer.write_bytes(&piece).await?;
        }
        let status = process.ended().await?;
        answer.finish().await?;
        process.result(status, options)
    };
    let result = tokio::select! {
        result = answering => result,
        given_up = program.given_up(turn) => {
            process.stop().await;
            return given_up;
        }
    };
    // Before the task ends. This also removes the files of the message.
    process.stop().await;
    match result {
        Ok(()) => turn.complete().await,
        Err(error) => Err(error),
    }
}

/// What the program reads: text parts, data as JSON, and files and URLs by their names, one part after the other.
fn input_text(message: &Message, files: &Files) -> String {
    let mut lines = Vec::with_capacity(message.parts.len());
    for (number, part) in message.parts.iter().enumerate() {
        lines.push(match &part.content {
            Content::Text(text) => text.clone(),
            Content::Data(data) => data.as_str().to_owned(),
            Content::Url(url) => url.clone(),
            Content::Raw(_) => files.path(number).map(|path| path.display().to_string()).unwrap_or_default(),
        });
    }
    lines.join("\n")
}
