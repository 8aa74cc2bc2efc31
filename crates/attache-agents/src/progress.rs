//! The function `a2a::progress`, with which functions report progress while they run.

use std::sync::Arc;

use attache_iii::{FunctionInfo, Gateway, PROGRESS_FUNCTION};
use serde_json::json;
use serde_json::value::RawValue;

use crate::{FunctionGuard, FunctionHandler, FunctionHost};

/// Registers the function `a2a::progress`. A function of the gateway calls it with the `taskId` that it got and a `text`, which becomes the
/// status message of the task.
pub fn register_progress(host: &impl FunctionHost, gateway: &Gateway) -> FunctionGuard {
    let gateway = gateway.clone();
    let handler: FunctionHandler = Arc::new(move |payload, _| {
        let reported = gateway.report_progress(&payload);
        Box::pin(async move { reported.map(|()| RawValue::NULL.to_owned()) })
    });
    let function = FunctionInfo {
        description: Some("Reports the progress of a function as the status message of its task".to_owned()),
        metadata: Some(json!({"internal": true})),
        request_format: Some(json!({
            "type": "object",
            "properties": {
                "taskId": {"type": "string", "description": "The task, as the function got it"},
                "text": {"type": "string", "description": "What the caller reads"},
            },
            "required": ["taskId", "text"],
        })),
        ..FunctionInfo::new(PROGRESS_FUNCTION)
    };
    host.register_function(function, handler)
}
