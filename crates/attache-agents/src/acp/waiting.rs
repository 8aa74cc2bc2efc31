//! Prompts that wait for the caller's answer to a request for permission.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use parking_lot::Mutex;

use super::open_prompt::OpenPrompt;
use super::permission::PermissionRequest;

/// The waiting prompts, by their tasks.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Prompts>>);

#[derive(Default)]
struct Prompts {
    by_task: HashMap<TaskId, (u64, Question)>,
    /// Tells a question from a later one of the same task.
    next: u64,
}

/// A prompt and the request that it waits for. If it is dropped, the prompt is canceled first, then the request is answered as
/// canceled. The agent expects this order.
pub(super) struct Question {
    pub(super) prompt: OpenPrompt,
    pub(super) request: Box<PermissionRequest>,
}

impl Waiting {
    /// Keeps a prompt for the answer. After the time limit the request is denied and the prompt is canceled: no turn could report
    /// what the agent does next.
    pub(super) fn put(&self, task: TaskId, question: Question, limit: Duration) {
        let number = {
            let mut prompts = self.0.lock();
            prompts.next += 1;
            let number = prompts.next;
            prompts.by_task.insert(task.clone(), (number, question));
            number
        };
        let prompts = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            let Some(prompts) = prompts.upgrade() else { return };
            let expired = {
                let mut prompts = prompts.lock();
                let is_same = prompts.by_task.get(&task).is_some_and(|(other, _)| *other == number);
                if is_same { prompts.by_task.remove(&task) } else { None }
            };
            if let Some((_, Question { prompt, request })) = expired {
                tracing::info!(target: "attache::acp", %task, "a request for permission was denied: no answer in time");
                request.deny();
                drop(prompt);
            }
        });
    }

    /// The prompt that waits for this answer.
    pub(super) fn take(&self, task: &TaskId) -> Option<Question> {
        self.0.lock().by_task.remove(task).map(|(_, question)| question)
    }
}
