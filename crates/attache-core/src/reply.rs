//! The result of an operation, and its JSON in protocol 1.0.

use std::sync::Arc;

use attache_protocol::jsonrpc::{self, Id};
use attache_protocol::{
    AgentCard, ListTaskPushNotificationConfigsResponse, Message, TaskPushNotificationConfig,
};

use crate::event::write_json;
use crate::{EventStream, Snapshot, View};

/// The result of an operation.
pub enum Reply {
    /// The task of a message that was sent, and the parts of it to show.
    Sent(Snapshot, View),
    /// A direct message of the agent.
    Message(Box<Message>),
    /// A task, and the parts of it to show.
    Task(Snapshot, View),
    /// A page of tasks.
    Tasks(Page),
    /// A stream of events, and the parts of tasks to show.
    Events(EventStream, View),
    /// A webhook.
    Push(Box<TaskPushNotificationConfig>),
    /// Webhooks.
    Pushes(ListTaskPushNotificationConfigsResponse),
    /// Success without a result.
    Done,
    /// The extended card.
    Card(Arc<AgentCard>),
}

/// A page of tasks.
pub struct Page {
    /// The tasks, latest status first.
    pub tasks: Vec<Snapshot>,
    /// The parts of each task to show.
    pub view: View,
    /// The token of the next page. Empty on the last page.
    pub next_page_token: String,
    /// The limit that was used.
    pub page_size: i32,
    /// The number of matching tasks on all pages.
    pub total_size: i32,
}

impl Reply {
    /// Writes a reply that is not a stream as a JSON-RPC response to `id`.
    pub fn write_response(&self, id: &Id, out: &mut Vec<u8>) {
        jsonrpc::write_response(id, out, |out| self.write(out));
    }

    /// Writes a reply that is not a stream. The JSON of tasks that have ended is copied.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sent(snapshot, view) => {
                out.extend_from_slice(b"{\"task\":");
                snapshot.write(*view, out);
                out.push(b'}');
            }
            Self::Message(message) => {
                out.extend_from_slice(b"{\"message\":");
                write_json(out, message);
                out.push(b'}');
            }
            Self::Task(snapshot, view) => snapshot.write(*view, out),
            Self::Tasks(page) => page.write(out),
            Self::Push(config) => write_json(out, config),
            Self::Pushes(configs) => write_json(out, configs),
            Self::Done | Self::Events(..) => out.extend_from_slice(b"{}"),
            Self::Card(card) => write_json(out, card),
        }
    }
}

impl Page {
    fn write(&self, out: &mut Vec<u8>) {
        // Reserved at once: growing on the way would copy the page several times.
        out.reserve(self.tasks.iter().map(|task| task.size_hint(self.view) + 1).sum::<usize>() + 256);
        out.extend_from_slice(b"{\"tasks\":[");
        for (i, task) in self.tasks.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            task.write(self.view, out);
        }
        out.extend_from_slice(b"],\"nextPageToken\":");
        write_json(out, &self.next_page_token);
        out.extend_from_slice(b",\"pageSize\":");
        write_json(out, &self.page_size);
        out.extend_from_slice(b",\"totalSize\":");
        write_json(out, &self.total_size);
        out.push(b'}');
    }
}
