//! The text protocol: the message on standard input, the answer on standard output.

use attache_core::{AgentResult, TextStream, Turn};
use attache_protocol::{Content, Message};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use super::Program;
use super::files::Files;

/// Runs the program for a message.
pub(super) async fn run(program: &Program, turn: &Turn, files: &Files) -> AgentResult {
    let options = &program.options;
    let mut process = tokio::select! {
        process = program.start(turn, files) => process?,
        () = turn.cancelled() => return Ok(()),
    };
    let input = process.input.take();
    let text = input_text(turn.message(), files);
    let writing = async move {
        // A program that does not read its input is not an error.
        if let Some(mut input) = input {
            let _ = input.write_all(text.as_bytes()).await;
        }
    };
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
    let outcome = tokio::select! {
        ((), result) = async { tokio::join!(writing, answering) } => Some(result),
        () = turn.cancelled() => None,
    };
    match outcome {
        Some(Ok(())) => turn.complete().await,
        Some(Err(error)) => {
            process.stop(options).await;
            Err(error)
        }
        None => {
            process.stop(options).await;
            Ok(())
        }
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
