//! Samples of a language model, for a server that asks for them.
#![expect(deprecated, reason = "servers still ask for samples, although later versions of MCP drop them")]

use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, Role, SamplingMessage, SamplingMessageContentBlock,
};

use crate::model::{Model, Sample, SampleMessage, SamplePart};

/// Lets the model reply. What the model's endpoint says about errors is logged, and does not go to the server.
pub(super) async fn sample(
    model: &Model,
    params: CreateMessageRequestParams,
) -> Result<CreateMessageResult, ErrorData> {
    let messages = params.messages.into_iter().map(message).collect::<Result<_, _>>()?;
    let sample = Sample {
        system: params.system_prompt,
        messages,
        max_tokens: params.max_tokens,
        temperature: params.temperature,
        stop: params.stop_sequences.unwrap_or_default(),
    };
    match model.sample(sample).await {
        Ok(sampled) => {
            let reason = match sampled.is_cut {
                true => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
                false => CreateMessageResult::STOP_REASON_END_TURN,
            };
            let message = SamplingMessage::assistant_text(sampled.text);
            Ok(CreateMessageResult::new(message, sampled.model).with_stop_reason(reason))
        }
        Err(error) => {
            tracing::warn!(target: "attache::mcp", %error, "a sample for an MCP server failed");
            Err(ErrorData::internal_error("the model failed", None))
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the type belongs to the MCP crate, which adds variants")]
fn message(message: SamplingMessage) -> Result<SampleMessage, ErrorData> {
    let part = |block| match block {
        SamplingMessageContentBlock::Text(text) => Ok(SamplePart::Text(text.text)),
        SamplingMessageContentBlock::Image(image) => {
            Ok(SamplePart::Image(format!("data:{};base64,{}", image.mime_type, image.data)))
        }
        _ => Err(ErrorData::invalid_params("only text and images are supported", None)),
    };
    let parts = message.content.into_vec().into_iter().map(part).collect::<Result<_, _>>()?;
    Ok(SampleMessage { is_user: message.role == Role::User, parts })
}
