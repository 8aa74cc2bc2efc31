//! Page tokens of listings. A token is a position that is valid for one caller and one filter only.

use attache_protocol::{ContextId, Error, TaskState, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::{Cursor, Owner};

/// The caller and the filter that a page token is valid for.
pub(super) struct Filter<'a> {
    pub(super) owner: &'a Owner,
    pub(super) context: Option<&'a ContextId>,
    pub(super) state: Option<TaskState>,
    pub(super) since: Option<Timestamp>,
}

impl Filter<'_> {
    pub(super) fn digest(&self) -> [u8; 8] {
        let mut digest = Sha256::new();
        let texts = [
            self.owner.agent.as_deref(),
            self.owner.tenant.as_deref(),
            self.owner.principal.name(),
            self.context.map(ContextId::as_str),
        ];
        for text in texts {
            // The length comes first, so that different texts cannot add up to the same bytes.
            digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
            digest.update(text.unwrap_or_default());
        }
        digest.update([self.state.map_or(u8::MAX, |state| state as u8)]);
        digest.update(self.since.map_or(i128::MIN, Timestamp::as_nanos).to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        std::array::from_fn(|i| digest[i])
    }
}

/// The token for the page after `cursor`.
pub(super) fn write(cursor: Cursor, digest: [u8; 8]) -> String {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&cursor.nanos.to_be_bytes());
    bytes[8..16].copy_from_slice(&cursor.tie.to_be_bytes());
    bytes[16..].copy_from_slice(&digest);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The position of a token. An error if the token is not valid for the caller and the filter that `digest` stands for.
pub(super) fn read(token: &str, digest: [u8; 8]) -> Result<Cursor, Error> {
    let invalid =
        || Error::invalid_params("pageToken", "expected the `nextPageToken` of an earlier page of this list");
    let mut bytes = [0; 24];
    let length = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes).map_err(|_| invalid())?;
    if length != bytes.len() || bytes[16..] != digest {
        return Err(invalid());
    }
    let number = |at: usize| std::array::from_fn(|i| bytes[at + i]);
    Ok(Cursor { nanos: i64::from_be_bytes(number(0)), tie: u64::from_be_bytes(number(8)) })
}
