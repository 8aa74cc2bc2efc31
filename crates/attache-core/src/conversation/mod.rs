//! Agents that hold a conversation: which contexts live, where they work, and what a message may contain.
//!
//! An agent says that it holds conversations by [`Agent::conversation`](crate::Agent::conversation). Then its turns follow the rules
//! of a [`Conversation`]:
//!
//! - One turn of a [`Context`] runs at a time. Other contexts run at the same time.
//! - What an agent keeps for a context lives until the context was idle for long enough, or until another one needs its place.
//! - A context has one [`Workspace`], which is checked again for each turn.
//! - A message is checked before a task is created for it, and [`Turn::input`](crate::Turn::input) is what the agent reads.
//!
//! Agents without rules are not affected: they have no limit on turns of a context, and nothing is stored about their contexts.

mod admission;
mod context;
mod fetch;
mod input;
mod live;
mod media;
mod private;
mod record;
mod rules;
mod workspace;
mod workspace_folder;
mod workspaces;

pub(crate) use self::admission::{Arriving, ContextAdmission, Homes, is_refused, refusal};
pub use self::context::{Context, ContextHold};
pub use self::fetch::{Fetch, FetchError, Fetched};
pub(crate) use self::input::Reader;
pub use self::input::{Input, InputPiece};
pub(crate) use self::live::{ContextKey, LiveContexts};
pub use self::media::{Media, MediaSource};
pub use self::private::private_temporary_directory;
pub(crate) use self::record::MAX_RECORDS;
pub use self::record::{ContextRecord, ContextRecords, StoredWorkspace};
pub use self::rules::{Busy, ContextRules, Conversation, EndState, InputRules, PeerRules};
pub use self::workspace::{AccessError, OpenDirectory, Workspace};
pub use self::workspace_folder::WorkspaceFolder;
pub use self::workspaces::{DefaultWorkspace, WorkspaceError, Workspaces};
