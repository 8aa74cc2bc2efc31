//! Parsers of agents' bytes, for fuzzing. Not part of the public API.

use std::collections::VecDeque;
use std::sync::Arc;

use attache_protocol::dialect::v0_3::proto_json::FileEncoding;
use attache_protocol::{
    ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse, Task,
    TaskPushNotificationConfig,
};
use reqwest::Url;
use reqwest::header::HeaderMap;

#[cfg(feature = "redis")]
pub use super::channel::parsing::redis_replies;
pub use super::channel::parsing::{Frame, lines, websocket_message};
#[cfg(feature = "grpc")]
use super::grpc::{FileForm, Package};
use super::jsonrpc::Id;
use super::reader::{FromResponse, Reader};
use super::sse::Decoder;
use crate::named_agents::parse_page;
use crate::{ClientError, ListedAgent};

/// An event of a stream, with its id.
pub type Event = (Option<Arc<str>>, Vec<u8>);

/// The events in a stream of these chunks; nothing if an event is too large.
pub fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Option<Vec<Event>> {
    let (mut decoder, mut frames) = (Decoder::new(limit), VecDeque::new());
    for piece in pieces {
        decoder.feed(piece, &mut frames).ok()?;
    }
    Some(frames.into_iter().map(|frame| (frame.id, frame.data)).collect())
}

/// The agents in a page of the list of a server, and the token of the next page.
pub fn listed_agents(body: &[u8]) -> Result<(Vec<ListedAgent>, String), ClientError> {
    let url = Url::parse("https://agents.example/agents");
    parse_page(&url.map_err(|error| ClientError::Invalid(error.to_string()))?, body)
}

/// The position of a part and the size of the whole content, from the header `Content-Range`.
pub fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    crate::download::content_range(headers)
}

/// Parses a body and an event with every binding and version. Returns how many succeeded.
///
/// JSON-RPC responses must have the id 1.
pub fn answers(bytes: &[u8]) -> usize {
    fn read<R: FromResponse>(reader: Reader, bytes: &[u8]) -> usize {
        reader.decode::<R>(bytes).is_ok().into()
    }
    let readers = [
        Reader::JsonRpc(Id::FIRST),
        Reader::JsonRpc0_3(Id::FIRST),
        Reader::HttpJson,
        Reader::HttpJson0_3(FileEncoding::Once),
        Reader::HttpJson0_3(FileEncoding::Twice),
        #[cfg(feature = "grpc")]
        Reader::Grpc(Package::V1_0, FileForm::Base64),
        #[cfg(feature = "grpc")]
        Reader::Grpc(Package::V0_3, FileForm::Base64),
        #[cfg(feature = "grpc")]
        Reader::Grpc(Package::V0_3, FileForm::Plain),
    ];
    let understood = readers.into_iter().map(|reader| {
        read::<SendMessageResponse>(reader, bytes)
            + read::<Task>(reader, bytes)
            + read::<ListTasksResponse>(reader, bytes)
            + read::<TaskPushNotificationConfig>(reader, bytes)
            + read::<ListTaskPushNotificationConfigsResponse>(reader, bytes)
            + usize::from(reader.decode_event(bytes).is_ok())
    });
    understood.sum()
}
