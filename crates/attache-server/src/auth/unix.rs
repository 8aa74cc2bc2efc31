//! Callers on this machine, known by the user that their process runs as.

use std::collections::HashMap;

use attache_core::Identity;
use attache_protocol::SecurityScheme;

use super::{Authenticator, Denied, Head, Verdict};

/// Callers that are identified by the user id of their process. The operating system reports it for connections over Unix sockets, and
/// for the process that started a server on standard input and output.
///
/// A request over another transport has no user id, so that it needs another credential.
///
/// ```
/// use attache_server::auth::{AnyOf, KnownCallers, UnixCallers};
///
/// let callers = AnyOf::new(UnixCallers::new().caller(1000, "ops")).or(KnownCallers::new().bearer("alice", "t0ken"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct UnixCallers {
    known: HashMap<u32, Identity>,
}

impl UnixCallers {
    /// No callers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a caller whose processes run as this user.
    pub fn caller(mut self, uid: u32, who: impl Into<Identity>) -> Self {
        self.known.insert(uid, who.into());
        self
    }
}

impl Authenticator for UnixCallers {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let Some(process) = head.peer.and_then(|peer| peer.process) else {
            return Verdict::Denied(Denied::Missing);
        };
        match self.known.get(&process.uid) {
            Some(identity) => Verdict::Known(identity.clone()),
            None => Verdict::Denied(Denied::Wrong(format!("no caller has the user id {}", process.uid))),
        }
    }

    /// None: the specification has no scheme for this.
    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        Vec::new()
    }

    fn challenges(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::{Peer, PeerProcess};

    fn found(uid: Option<u32>) -> Result<String, Denied> {
        let peer = Peer { process: uid.map(|uid| PeerProcess { uid, pid: None }), ..Peer::default() };
        let head = Head { headers: &HeaderMap::new(), query: None, peer: Some(&peer) };
        match UnixCallers::new().caller(7, "ops").authenticate(head) {
            Verdict::Known(identity) => Ok(identity.principal.to_string()),
            Verdict::Denied(denied) => Err(denied),
            Verdict::Later(_) => panic!("nothing takes a while"),
        }
    }

    #[test]
    fn a_process_is_known_by_its_user_and_a_connection_without_a_process_is_not() {
        assert_eq!(found(Some(7)), Ok("ops".to_owned()));
        assert!(matches!(found(Some(8)), Err(Denied::Wrong(_))));
        assert_eq!(found(None), Err(Denied::Missing));
    }
}
