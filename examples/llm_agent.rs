//! A language model as an agent: passes messages to a chat completion endpoint and streams the reply.
//!
//! Works with every endpoint that has the API of OpenAI. Set `OPENAI_BASE_URL`, `OPENAI_API_KEY` and `OPENAI_MODEL`, run
//! `cargo run --example llm_agent`, then `attache chat http://127.0.0.1:8080`.

use attache::prelude::*;
use serde_json::{Value, json};

/// How many earlier tasks of the conversation the model sees.
const MEMORY: usize = 20;

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// The conversation so far: the earlier tasks of the context, then this message.
async fn conversation(turn: &Turn) -> Result<Vec<Value>, AgentError> {
    let mut messages = vec![json!({"role": "system", "content": "You are a helpful agent. Be brief."})];
    for task in turn.earlier_tasks(MEMORY).await? {
        for message in task.history.iter().filter(|message| message.role == Role::User) {
            messages.push(json!({"role": "user", "content": message.text()}));
        }
        let reply: String =
            task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect();
        messages.push(json!({"role": "assistant", "content": reply}));
    }
    messages.push(json!({"role": "user", "content": turn.text()}));
    Ok(messages)
}

async fn reply(turn: Turn) -> AgentResult {
    let url = format!("{}/chat/completions", variable("OPENAI_BASE_URL", "https://api.openai.com/v1"));
    let body = json!({
        "model": variable("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": conversation(&turn).await?,
        "stream": true,
    });
    let request = reqwest::Client::new().post(url).bearer_auth(variable("OPENAI_API_KEY", "")).json(&body);
    let mut response = request.send().await?.error_for_status()?;
    let mut artifact = turn.artifact("reply").stream();
    let mut buffer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        buffer.extend_from_slice(&chunk);
        // A line is complete when its end has arrived.
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
            if data == b"[DONE]" {
                continue;
            }
            let event: Value = serde_json::from_slice(data)?;
            if let Some(piece) =
                event["choices"][0]["delta"]["content"].as_str().filter(|piece| !piece.is_empty())
            {
                artifact.chunk(piece).await?;
            }
        }
    }
    artifact.last("").await?;
    turn.complete().await
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let card = Card::new("Model", "A language model").skill(Skill::new("chat", "General conversation"));
    Ok(Server::new(agent_fn(reply)).card(card).bind(address).run().await?)
}
