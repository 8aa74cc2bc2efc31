//! Reports about a reply of the model while it arrives: thoughts, and the tools that it is about to call.

use attache_core::{AgentResult, Report, ToolReport, Turn};
use serde_json::Value;

use super::reply::Reply;
use crate::answer::Answer;

/// How many bytes of thoughts are collected before they are reported.
const MAX_THOUGHT: usize = 4_000;

/// How many bytes of input arrive between two reports about it.
const INPUT_STEP: usize = 1_024;

/// Watches one reply.
pub(super) struct Watch<'a> {
    turn: &'a Turn,
    thought: String,
    /// For each call that was reported: how much of its input was reported.
    calls: Vec<usize>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(turn: &'a Turn) -> Self {
        Self { turn, thought: String::new(), calls: Vec::new() }
    }

    /// Reports what an event has added to the reply.
    pub(super) async fn see(
        &mut self,
        thought: &str,
        text: &str,
        reply: &Reply,
        stream: &mut Answer<'_>,
    ) -> AgentResult {
        if self.turn.report_options().exposure.raw_thinking {
            self.thought.push_str(thought);
        }
        if self.thought.len() >= MAX_THOUGHT || !text.is_empty() || !reply.calls.is_empty() {
            self.flush_thought(stream).await?;
        }
        for (number, call) in reply.calls.iter().enumerate() {
            let id = reply.call_id(number);
            match self.calls.get(number).copied() {
                // The calls begin one after the other.
                None if number == self.calls.len() && !call.name.is_empty() => {
                    self.calls.push(0);
                    stream.flush().await?;
                    let started = ToolReport::started(id).name(&call.name);
                    self.turn.report(Report::tool(started).text(format!("calling {}", call.name))).await?;
                }
                Some(reported) if call.arguments.len() >= reported + INPUT_STEP => {
                    self.calls[number] = call.arguments.len();
                    self.turn.report(ToolReport::input_delta(id, call.arguments.len())).await?;
                }
                None | Some(_) => {}
            }
        }
        Ok(())
    }

    /// Reports what is complete at the end of the reply. Each call gets an id, also where the endpoint has given none.
    pub(super) async fn end(mut self, reply: &mut Reply, stream: &mut Answer<'_>) -> AgentResult {
        self.flush_thought(stream).await?;
        for number in 0..reply.calls.len() {
            let id = reply.call_id(number);
            let call = &mut reply.calls[number];
            call.id.clone_from(&id);
            stream.flush().await?;
            if number >= self.calls.len() {
                self.turn.report(ToolReport::started(&id).name(&call.name)).await?;
            }
            let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
            let input = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            self.turn.report(ToolReport::input_complete(id).name(&call.name).input(input)).await?;
        }
        Ok(())
    }

    async fn flush_thought(&mut self, stream: &mut Answer<'_>) -> AgentResult {
        if self.thought.is_empty() {
            return Ok(());
        }
        stream.flush().await?;
        let thought = std::mem::take(&mut self.thought);
        // A report shows only the beginning of a long text.
        let mut rest = thought.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_THOUGHT));
            self.turn.report(Report::thinking(piece)).await?;
            rest = later;
        }
        Ok(())
    }
}
