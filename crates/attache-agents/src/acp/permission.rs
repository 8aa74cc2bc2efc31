//! Requests of the coding agent for permission, and their answers.

use attache_core::{PermissionAnswer, PermissionOption, PermissionOptionKind, PermissionRequest, paths_in};
use serde_json::json;

use super::connection::Responder;
use super::wire::{PermissionParams, ToolCall, ToolContent};
use super::workspace::Workspace;

/// A request for permission that has no answer yet. If it is dropped, it is answered as canceled.
pub(super) struct OpenRequest {
    params: PermissionParams,
    responder: Option<Responder>,
}

impl OpenRequest {
    pub(super) fn new(params: PermissionParams, responder: Responder) -> Self {
        Self { params, responder: Some(responder) }
    }

    /// What the agent wants to do.
    pub(super) fn request(&self, workspace: &Workspace) -> PermissionRequest {
        let ToolCall { tool_call_id, title, name, kind, content, raw_input, locations, .. } =
            &self.params.tool_call;
        let tool = name.clone().or_else(|| kind.clone()).unwrap_or_else(|| "tool".to_owned());
        let mut paths: Vec<String> = locations.iter().map(|location| location.path.clone()).collect();
        paths.extend(raw_input.iter().flat_map(paths_in));
        paths.extend(content.iter().flatten().filter_map(|item| match item {
            ToolContent::Diff { path, .. } => Some(path.clone()),
            ToolContent::Content { .. } | ToolContent::Other => None,
        }));
        for path in &mut paths {
            *path = workspace.shown(path).into_owned();
        }
        paths.sort();
        paths.dedup();
        let option = |option: &super::wire::PermissionOption| PermissionOption {
            id: option.option_id.clone(),
            name: option.name.clone(),
            kind: PermissionOptionKind::named(&option.kind),
        };
        PermissionRequest {
            kind: kind.clone(),
            title: title.clone().or_else(|| name.clone()).unwrap_or_else(|| "use a tool".to_owned()),
            paths,
            input: raw_input.clone(),
            options: self.params.options.iter().map(option).collect(),
            ..PermissionRequest::new(tool_call_id, tool)
        }
    }

    /// Gives the answer to the agent. Without an option, the request is answered as canceled.
    pub(super) fn answer(mut self, answer: PermissionAnswer) {
        if let Some(id) = answer.option
            && let Some(responder) = self.responder.take()
        {
            responder.respond(Ok(json!({"outcome": {"outcome": "selected", "optionId": id}})));
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.take() {
            responder.respond(Ok(json!({"outcome": {"outcome": "cancelled"}})));
        }
    }
}
